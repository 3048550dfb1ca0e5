//! Bytes coded by more or fewer bits, the frequent ones by fewer.

use super::Broken;
use super::bits::Backward;
use super::fse::Table;

/// The most bits of a symbol.
const BITS_MAX: u32 = 11;

/// The finest table of weights, and how many weights there can be besides the last.
const WEIGHTS_LOG: u32 = 6;
const WEIGHTS_MAX: usize = 255;

/// By the next bits, which byte they begin with and how many of them it takes.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    entries: Vec<(u8, u32)>,
    bits: u32,
}

impl Tree {
    /// Reads a tree; also how many bytes that took.
    pub(super) fn read(input: &[u8]) -> Result<(Self, usize), Broken> {
        let (&head, rest) = input.split_first().ok_or(Broken)?;
        let head = usize::from(head);
        if head < 128 {
            let coded = rest.get(..head).ok_or(Broken)?;
            return Ok((Self::new(&coded_weights(coded)?)?, 1 + head));
        }
        let count = head - 127;
        let bytes = rest.get(..count.div_ceil(2)).ok_or(Broken)?;
        let weights: Vec<u8> = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(count).collect();
        Ok((Self::new(&weights)?, 1 + bytes.len()))
    }

    /// The tree of bytes with these weights; that of the last byte follows from the others.
    fn new(weights: &[u8]) -> Result<Self, Broken> {
        if weights.iter().any(|&weight| u32::from(weight) > BITS_MAX) {
            return Err(Broken);
        }
        let sum: u32 = weights.iter().filter(|weight| **weight > 0).map(|weight| 1 << (weight - 1)).sum();
        let bits = sum.checked_ilog2().ok_or(Broken)? + 1;
        let left = (1 << bits) - sum;
        if bits > BITS_MAX || !left.is_power_of_two() {
            return Err(Broken);
        }
        let last = u8::try_from(left.ilog2() + 1).map_err(|_| Broken)?;
        let mut entries = Vec::new();
        // Long codes come first, and those of one length in the order of the bytes.
        for weight in 1..=bits {
            for (symbol, _) in weights.iter().chain([&last]).enumerate().filter(|(_, own)| u32::from(**own) == weight) {
                let entry = (u8::try_from(symbol).map_err(|_| Broken)?, bits + 1 - weight);
                entries.extend((0..1 << (weight - 1)).map(|_| entry));
            }
        }
        if entries.len() == 1 << bits { Ok(Self { entries, bits }) } else { Err(Broken) }
    }

    /// Reads all bytes of a stream, which must be `count`.
    pub(super) fn stream(&self, input: &[u8], count: usize, output: &mut Vec<u8>) -> Result<(), Broken> {
        let mut bits = Backward::new(input)?;
        let mask = (1 << self.bits) - 1;
        let mut seen = bits.take(self.bits);
        for _ in 0..count {
            let (symbol, taken) = self.entries[seen as usize];
            output.push(symbol);
            seen = (seen << taken | bits.take(taken)) & mask;
        }
        if bits.left() == -i64::from(self.bits) { Ok(()) } else { Err(Broken) }
    }
}

/// Weights that two states in turn code.
fn coded_weights(input: &[u8]) -> Result<Vec<u8>, Broken> {
    let (table, taken) = Table::read(input, WEIGHTS_LOG, usize::from(u8::MAX) + 1)?;
    let mut bits = Backward::new(input.get(taken..).ok_or(Broken)?)?;
    let mut weights = Vec::new();
    let (mut state, mut other) = (table.begin(&mut bits), table.begin(&mut bits));
    loop {
        weights.push(table.symbol(state));
        state = table.next(state, &mut bits);
        // With the bits at their end, one symbol is left.
        if bits.left() < 0 {
            weights.push(table.symbol(other));
            break;
        }
        if weights.len() > WEIGHTS_MAX {
            return Err(Broken);
        }
        std::mem::swap(&mut state, &mut other);
    }
    if weights.len() > WEIGHTS_MAX { Err(Broken) } else { Ok(weights) }
}
