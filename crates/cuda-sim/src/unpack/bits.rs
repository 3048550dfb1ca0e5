//! Bits of bytes, read from the front or from the back.

use super::Broken;

/// Reads from the front, lowest bits first.
#[derive(Debug)]
pub(super) struct Forward<'i> {
    bytes: &'i [u8],
    at: usize,
}

impl<'i> Forward<'i> {
    pub(super) fn new(bytes: &'i [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next bits, at most 16.
    pub(super) fn take(&mut self, count: u32) -> Result<u32, Broken> {
        let mut value = 0;
        for index in 0..count {
            let byte = *self.bytes.get(self.at / 8).ok_or(Broken)?;
            value |= u32::from(byte >> (self.at % 8) & 1) << index;
            self.at += 1;
        }
        Ok(value)
    }

    /// Goes one bit back.
    pub(super) fn give_back(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// Whole bytes that were read, the one under way included.
    pub(super) fn bytes_read(&self) -> usize {
        self.at.div_ceil(8)
    }
}

/// Reads from the back, highest bits first. The last byte says by its highest bit where the bits begin.
#[derive(Debug)]
pub(super) struct Backward<'i> {
    bytes: &'i [u8],
    /// Bits that are left; less than none when more were read than there are, which reads zeros.
    left: i64,
}

impl<'i> Backward<'i> {
    pub(super) fn new(bytes: &'i [u8]) -> Result<Self, Broken> {
        let last = *bytes.last().ok_or(Broken)?;
        if last == 0 {
            return Err(Broken);
        }
        let unused = i64::from(last.leading_zeros()) + 1;
        Ok(Self { bytes, left: i64::try_from(bytes.len()).map_err(|_| Broken)? * 8 - unused })
    }

    /// The next bits, at most 32.
    pub(super) fn take(&mut self, count: u32) -> u32 {
        let mut value = 0;
        for _ in 0..count {
            self.left -= 1;
            value = value << 1 | self.bit(self.left);
        }
        value
    }

    fn bit(&self, at: i64) -> u32 {
        let Ok(at) = usize::try_from(at) else { return 0 };
        u32::from(self.bytes.get(at / 8).copied().unwrap_or(0) >> (at % 8) & 1)
    }

    pub(super) fn left(&self) -> i64 {
        self.left
    }
}
