//! Bytes read as small decisions.
//!
//! An input that ends reads as zeros, so that every byte string is a whole program and a shorter one is simpler.

/// A reader of an input.
#[derive(Debug, Clone)]
pub struct Input<'bytes> {
    bytes: &'bytes [u8],
}

impl<'bytes> Input<'bytes> {
    /// Begins to read.
    #[must_use]
    pub fn new(bytes: &'bytes [u8]) -> Self {
        Self { bytes }
    }

    /// Whether everything has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// A position in a list of that length; 0 for an empty one.
    pub fn position(&mut self, length: usize) -> usize {
        usize::from(self.byte()) % length.max(1)
    }

    /// A number of bytes: mostly small, sometimes at a power of two or one beside it, up to 2^32.
    pub fn size(&mut self) -> usize {
        let (kind, low) = (self.byte(), usize::from(self.byte()));
        let power = 1_usize << (kind >> 3);
        match kind & 7 {
            0 => low,
            1 => power,
            2 => power.saturating_sub(1),
            3 => power + 1,
            4 => low << 9,
            5 => low << 20,
            _ => low * 61,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Input;

    #[test]
    fn an_input_that_ended_reads_as_zeros() {
        let mut input = Input::new(&[7, 9]);
        assert_eq!((input.byte(), input.position(4), input.byte(), input.size()), (7, 1, 0, 0));
        assert!(input.is_empty());
    }

    #[test]
    fn sizes_meet_the_edges() {
        assert_eq!(Input::new(&[20 << 3 | 1, 0]).size(), 1 << 20);
        assert_eq!(Input::new(&[20 << 3 | 2, 0]).size(), (1 << 20) - 1);
        assert_eq!(Input::new(&[20 << 3 | 3, 0]).size(), (1 << 20) + 1);
    }
}
