//! Copies and sets as data: planned when they are queued, carried out when they run.

use super::Memory;
use super::bytes::{self, Bytes};

/// One side of a copy: where its first byte is, and how far rows and slices are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: u64,
    /// Distance of rows in bytes.
    pub(crate) pitch: u64,
    /// Distance of slices in bytes.
    pub(crate) slice: u64,
}

impl Endpoint {
    /// A run of bytes without rows.
    pub(crate) fn linear(address: u64) -> Self {
        Self { address, pitch: 0, slice: 0 }
    }

    /// Number of bytes from the first to the last one touched.
    pub(crate) fn span(&self, width: u64, height: u64, depth: u64) -> Option<u64> {
        if width == 0 || height == 0 || depth == 0 {
            return Some(0);
        }
        let rows = self.pitch.checked_mul(height - 1)?;
        let slices = self.slice.checked_mul(depth - 1)?;
        rows.checked_add(slices)?.checked_add(width)
    }

    fn row(&self, y: u64, z: u64) -> u64 {
        self.address + self.pitch * y + self.slice * z
    }
}

/// Where a copy reads.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// From memory, at the moment the copy runs.
    Memory(Endpoint),
    /// From a copy that was made when the work was queued: rows without gaps.
    Staged(Vec<u8>),
}

/// A copy of `width` times `height` times `depth` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) from: Source,
    pub(crate) to: Endpoint,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

impl Transfer {
    pub(crate) fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    /// Whether the copy reads or writes inside a range of addresses.
    pub(crate) fn touches(&self, base: u64, length: u64) -> bool {
        let touches = |side: &Endpoint| {
            let span = side.span(self.width, self.height, self.depth).unwrap_or(u64::MAX);
            side.address < base.saturating_add(length) && base < side.address.saturating_add(span)
        };
        let reads = match &self.from {
            Source::Memory(side) => touches(side),
            Source::Staged(_) => false,
        };
        reads || touches(&self.to)
    }
}

/// A set of `height` rows of `width` bytes to a repeated pattern.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) to: Endpoint,
    pub(crate) pattern: Vec<u8>,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// An address that nothing is behind, as a copy finds out when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadAddress(pub(crate) u64);

impl Memory {
    /// Carries out a copy. On an error, rows before the bad one have been copied.
    pub(crate) fn transfer(&self, transfer: &Transfer) -> Result<(), BadAddress> {
        let width = usize::try_from(transfer.width).unwrap_or(usize::MAX);
        let mut staged_rows = 0;
        for (y, z) in rows(transfer.height, transfer.depth) {
            let to = transfer.to.row(y, z);
            match &transfer.from {
                Source::Memory(side) => self.copy_run(to, side.row(y, z), transfer.width)?,
                Source::Staged(staged) => {
                    self.write_run(to, &staged[staged_rows * width..(staged_rows + 1) * width])?;
                    staged_rows += 1;
                }
            }
        }
        Ok(())
    }

    /// Reads a source now, as rows without gaps.
    pub(crate) fn stage(&self, side: &Endpoint, width: u64, height: u64, depth: u64) -> Result<Vec<u8>, BadAddress> {
        let mut staged = Vec::new();
        for (y, z) in rows(height, depth) {
            for (place, length) in self.places(side.row(y, z), width)? {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                staged.extend(bytes::read(&place, length).ok_or(BadAddress(side.row(y, z)))?);
            }
        }
        Ok(staged)
    }

    /// Carries out a set.
    pub(crate) fn fill(&self, fill: &Fill) -> Result<(), BadAddress> {
        for (y, z) in rows(fill.height, 1) {
            let row = fill.to.row(y, z);
            let mut done = 0;
            for (place, length) in self.places(row, fill.width)? {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let mut pattern = fill.pattern.clone();
                pattern.rotate_left(done % fill.pattern.len().max(1));
                if !bytes::fill(&place, &pattern, length) {
                    return Err(BadAddress(row));
                }
                done += length;
            }
        }
        Ok(())
    }

    fn copy_run(&self, to: u64, from: u64, length: u64) -> Result<(), BadAddress> {
        let (targets, sources) = (self.places(to, length)?, self.places(from, length)?);
        if let ([(target, _)], [(source, _)]) = (targets.as_slice(), sources.as_slice()) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            return if bytes::copy(target, source, length) { Ok(()) } else { Err(BadAddress(to)) };
        }
        // Pieces on both sides may end at different places, and the ranges may overlap: go by way of a buffer.
        let staged = self.stage(&Endpoint::linear(from), length, 1, 1)?;
        self.write_run(to, &staged)
    }

    pub(crate) fn write_run(&self, to: u64, bytes: &[u8]) -> Result<(), BadAddress> {
        let mut rest = bytes;
        for (place, length) in self.places(to, bytes.len() as u64)? {
            let (now, later) = rest.split_at(usize::try_from(length).unwrap_or(usize::MAX).min(rest.len()));
            if !bytes::write(&place, now) {
                return Err(BadAddress(to));
            }
            rest = later;
        }
        Ok(())
    }

    /// The bytes behind a range of any addresses: of a device, or of the host.
    fn places(&self, address: u64, length: u64) -> Result<Vec<(Bytes, u64)>, BadAddress> {
        if length == 0 {
            return Ok(Vec::new());
        }
        if self.is_device_address(address) {
            return self.pieces(address, length).ok_or(BadAddress(address));
        }
        if address < 4096 {
            return Err(BadAddress(address));
        }
        Ok(vec![(Bytes::host(address), length)])
    }
}

/// Rows of a box, slice by slice.
fn rows(height: u64, depth: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..depth).flat_map(move |z| (0..height).map(move |y| (y, z)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitched_copy_moves_only_the_box() {
        let mut memory = Memory::new(1, 1 << 30);
        let from = memory.allocate(0, 1, 64).expect("fits");
        let to = memory.allocate(0, 1, 64).expect("fits");
        memory.write_run(from, &(0..64).collect::<Vec<u8>>()).expect("mapped");
        memory.write_run(to, &[0xFF; 64]).expect("mapped");
        let transfer = Transfer {
            from: Source::Memory(Endpoint { address: from + 1, pitch: 16, slice: 0 }),
            to: Endpoint { address: to, pitch: 8, slice: 0 },
            width: 2,
            height: 3,
            depth: 1,
        };
        memory.transfer(&transfer).expect("mapped");
        let row = memory.stage(&Endpoint::linear(to), 24, 1, 1).expect("mapped");
        assert_eq!(&row[..4], &[1, 2, 0xFF, 0xFF]);
        assert_eq!(&row[8..11], &[17, 18, 0xFF]);
        assert_eq!(&row[16..19], &[33, 34, 0xFF]);
    }

    #[test]
    fn patterns_go_on_across_regions_and_bad_addresses_are_found() {
        let mut memory = Memory::new(1, 1 << 30);
        let base = memory.allocate(0, 1, 64).expect("fits");
        let fill = Fill { to: Endpoint::linear(base), pattern: vec![1, 2], width: 6, height: 1 };
        memory.fill(&fill).expect("mapped");
        assert_eq!(memory.stage(&Endpoint::linear(base), 6, 1, 1), Ok(vec![1, 2, 1, 2, 1, 2]));
        memory.free(base).expect("allocated");
        assert_eq!(memory.fill(&fill), Err(BadAddress(base)));
    }
}
