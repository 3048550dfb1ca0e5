//! Symbols coded by states: each state stands for a symbol and says which states may come next.

use super::Broken;
use super::bits::{Backward, Forward};

/// A state.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    symbol: u8,
    /// How many bits choose among the next states, and the first of them.
    bits: u32,
    base: u32,
}

/// What the states of a code are.
#[derive(Clone, Debug)]
pub(super) struct Table {
    states: Vec<State>,
    log: u32,
}

impl Table {
    /// The table of one symbol that stands for everything.
    pub(super) fn of_one(symbol: u8) -> Self {
        Self { states: vec![State { symbol, bits: 0, base: 0 }], log: 0 }
    }

    /// Reads how often each symbol occurs; the table, and how many bytes that took.
    pub(super) fn read(input: &[u8], log_max: u32, symbols_max: usize) -> Result<(Self, usize), Broken> {
        let mut bits = Forward::new(input);
        let log = bits.take(4)? + 5;
        if log > log_max {
            return Err(Broken);
        }
        let (mut left, mut shares) = (1_i32 << log, Vec::new());
        while left > 0 {
            let share = Self::read_share(&mut bits, left)?;
            left -= share.abs();
            shares.push(share);
            // Zeros are followed by how many more there are.
            let mut more = if share == 0 { bits.take(2)? } else { 0 };
            let mut goes_on = share == 0;
            while goes_on {
                shares.extend((0..more).map(|_| 0));
                goes_on = more == 3;
                more = if goes_on { bits.take(2)? } else { 0 };
                if shares.len() > symbols_max {
                    return Err(Broken);
                }
            }
        }
        if left < 0 || shares.len() > symbols_max {
            return Err(Broken);
        }
        Ok((Self::new(&shares, log)?, bits.bytes_read()))
    }

    /// How often one symbol occurs, of `left` that are not given away yet; -1 for less than once.
    fn read_share(bits: &mut Forward<'_>, left: i32) -> Result<i32, Broken> {
        let most = left.cast_unsigned() + 1;
        let width = most.ilog2() + 1;
        let value = bits.take(width)?;
        let low = (1 << (width - 1)) - 1;
        // Small values take a bit less.
        let short = (1 << width) - 1 - most;
        let value = if value & low < short {
            bits.give_back();
            value & low
        } else if value > low {
            value - short
        } else {
            value
        };
        Ok(i32::try_from(value).map_err(|_| Broken)? - 1)
    }

    /// The table of symbols that occur so often.
    pub(super) fn new(shares: &[i32], log: u32) -> Result<Self, Broken> {
        let size = 1_usize << log;
        let (mut symbols, mut next) = (vec![0_u8; size], vec![0_u32; shares.len()]);
        let mut high = size;
        for (symbol, _) in shares.iter().enumerate().filter(|(_, share)| **share == -1) {
            high = high.checked_sub(1).ok_or(Broken)?;
            symbols[high] = u8::try_from(symbol).map_err(|_| Broken)?;
            next[symbol] = 1;
        }
        let (step, mut at) = ((size >> 1) + (size >> 3) + 3, 0);
        for (symbol, &share) in shares.iter().enumerate().filter(|(_, share)| **share > 0) {
            next[symbol] = share.cast_unsigned();
            for _ in 0..share {
                *symbols.get_mut(at).ok_or(Broken)? = u8::try_from(symbol).map_err(|_| Broken)?;
                at = (at + step) & (size - 1);
                while at >= high && high > 0 {
                    at = (at + step) & (size - 1);
                }
            }
        }
        if at != 0 {
            return Err(Broken);
        }
        let states = symbols.into_iter().map(|symbol| {
            let number = next[usize::from(symbol)];
            next[usize::from(symbol)] += 1;
            let bits = log.checked_sub(number.checked_ilog2().ok_or(Broken)?).ok_or(Broken)?;
            Ok(State { symbol, bits, base: (number << bits) - (1 << log) })
        });
        Ok(Self { states: states.collect::<Result<_, Broken>>()?, log })
    }

    /// The first state.
    pub(super) fn begin(&self, bits: &mut Backward<'_>) -> usize {
        bits.take(self.log) as usize
    }

    /// The symbol of a state.
    pub(super) fn symbol(&self, state: usize) -> u8 {
        self.states[state].symbol
    }

    /// The state after another.
    pub(super) fn next(&self, state: usize, bits: &mut Backward<'_>) -> usize {
        let State { bits: count, base, .. } = self.states[state];
        (base + bits.take(count)) as usize
    }
}
