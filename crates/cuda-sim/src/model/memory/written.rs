//! Which bytes of device memory somebody has written: a bit for each, in an order that ends up in `ptx_sim::Window`.

use std::cell::Cell;

/// The bits of a stretch of memory, eight to a byte, the lowest first.
#[derive(Clone, Copy)]
pub(crate) struct Written<'m>(pub(crate) &'m [Cell<u8>]);

impl<'m> Written<'m> {
    /// The bits of a part that begins at a multiple of 8 bytes.
    pub(crate) fn part(self, start: usize, length: usize) -> Option<&'m [Cell<u8>]> {
        if !start.is_multiple_of(8) {
            return None;
        }
        self.0.get(start / 8..(start + length).div_ceil(8))
    }

    /// Notes of a range whether it is written.
    pub(crate) fn set(self, start: usize, length: usize, written: bool) {
        let end = start + length;
        let (first, last) = (start.next_multiple_of(8).min(end), end / 8 * 8);
        for bit in start..first {
            self.set_bit(bit, written);
        }
        if first < last {
            let whole = if written { u8::MAX } else { 0 };
            self.0[first / 8..last / 8].iter().for_each(|cell| cell.set(whole));
        }
        for bit in last.max(first)..end {
            self.set_bit(bit, written);
        }
    }

    /// Notes that a range is as written as another one, which it may overlap.
    pub(crate) fn copy(self, start: usize, from: Self, source: usize, length: usize) {
        if (start | source).is_multiple_of(8) {
            let (whole, rest) = (length / 8, length % 8);
            let bytes: Vec<u8> = from.0[source / 8..][..whole].iter().map(Cell::get).collect();
            let tail: Vec<bool> = (0..rest).map(|bit| from.bit(source + whole * 8 + bit)).collect();
            self.0[start / 8..].iter().zip(bytes).for_each(|(cell, byte)| cell.set(byte));
            tail.into_iter().enumerate().for_each(|(bit, value)| self.set_bit(start + whole * 8 + bit, value));
            return;
        }
        let bits: Vec<bool> = (0..length).map(|bit| from.bit(source + bit)).collect();
        bits.into_iter().enumerate().for_each(|(bit, value)| self.set_bit(start + bit, value));
    }

    fn bit(self, at: usize) -> bool {
        self.0[at / 8].get() & 1 << (at % 8) != 0
    }

    fn set_bit(self, at: usize, written: bool) {
        let (cell, mask) = (&self.0[at / 8], 1 << (at % 8));
        cell.set(if written { cell.get() | mask } else { cell.get() & !mask });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random ranges, beside a list of truths.
    #[test]
    fn ranges_are_noted_bit_by_bit() {
        let (mut bits, mut plain) = (vec![0_u8; 16], vec![false; 128]);
        let written = Written(Cell::from_mut(&mut bits[..]).as_slice_of_cells());
        let mut random = 1_usize;
        let mut draw = |end: usize| {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (random >> 33) % end
        };
        for step in 0..3000 {
            let start = draw(128);
            let length = draw(129 - start);
            if step % 3 == 0 {
                let source = draw(129 - length);
                written.copy(start, written, source, length);
                plain.copy_within(source..source + length, start);
            } else {
                written.set(start, length, step % 3 == 1);
                plain[start..start + length].fill(step % 3 == 1);
            }
            let found: Vec<bool> = (0..128).map(|bit| written.bit(bit)).collect();
            assert_eq!(found, plain, "step {step}");
        }
    }
}
