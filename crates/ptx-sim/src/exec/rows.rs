//! The rows of a warp: one value for each lane, and the loops over lanes.
//!
//! The loops are written so that the compiler makes vector instructions of them: a whole row is computed, then put in the
//! lanes that are meant.

use crate::program::Frame;
use crate::program::types::{Register, mask};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// All lanes.
pub(crate) const ALL: u32 = u32::MAX;

/// A row of up to 32 bits.
pub(crate) type Word = [u32; LANES];
/// A row of 64 bits.
pub(crate) type Long = [u64; LANES];

/// Where a frame's rows begin among those of its warp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) words: u32,
    pub(crate) longs: u32,
    pub(crate) predicates: u32,
    /// Where the frame's local memory begins.
    pub(crate) local: u32,
}

impl Base {
    /// Where the frame of a callee begins.
    pub(crate) fn behind(self, frame: &Frame, local: u32) -> Self {
        Self {
            words: self.words + u32::from(frame.words),
            longs: self.longs + u32::from(frame.longs),
            predicates: self.predicates + u32::from(frame.predicates),
            local,
        }
    }
}

/// All rows of a warp.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) words: Vec<Word>,
    pub(crate) longs: Vec<Long>,
    /// A bit for each lane.
    pub(crate) predicates: Vec<u32>,
}

impl Rows {
    /// Makes room for a frame.
    pub(crate) fn reserve(&mut self, base: Base, frame: &Frame) {
        let grow = |base: u32, count: u16| base as usize + usize::from(count);
        let (words, longs) = (grow(base.words, frame.words), grow(base.longs, frame.longs));
        let predicates = grow(base.predicates, frame.predicates);
        if self.words.len() < words {
            self.words.resize(words, [0; LANES]);
        }
        if self.longs.len() < longs {
            self.longs.resize(longs, [0; LANES]);
        }
        if self.predicates.len() < predicates {
            self.predicates.resize(predicates, 0);
        }
    }

    /// The value of one lane, its other bits zero.
    #[inline]
    pub(crate) fn get(&self, base: Base, register: Register, lane: usize) -> u64 {
        let index = usize::from(register.index);
        match register.bits {
            1 => u64::from(self.predicates[base.predicates as usize + index] >> lane & 1),
            64 => self.longs[base.longs as usize + index][lane],
            _ => u64::from(self.words[base.words as usize + index][lane]),
        }
    }

    /// The lowest 32 bits of one lane.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only the lower bits are asked for")]
    pub(crate) fn get_word(&self, base: Base, register: Register, lane: usize) -> u32 {
        self.get(base, register, lane) as u32
    }

    /// Sets the value of one lane, cut to the register's size.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the mask has cut it")]
    pub(crate) fn set(&mut self, base: Base, register: Register, lane: usize, value: u64) {
        let index = usize::from(register.index);
        let value = value & mask(register.bits);
        match register.bits {
            1 => {
                let row = &mut self.predicates[base.predicates as usize + index];
                *row = *row & !(1 << lane) | (value as u32) << lane;
            }
            64 => self.longs[base.longs as usize + index][lane] = value,
            _ => self.words[base.words as usize + index][lane] = value as u32,
        }
    }

    /// The same value in all lanes.
    #[expect(clippy::cast_possible_truncation, reason = "a row of words has no more bits")]
    pub(crate) fn fill(&mut self, base: Base, register: Register, value: u64) {
        let index = usize::from(register.index);
        match register.bits {
            1 => self.predicates[base.predicates as usize + index] = if value & 1 == 1 { ALL } else { 0 },
            64 => self.longs[base.longs as usize + index] = [value; LANES],
            _ => self.words[base.words as usize + index] = [(value & mask(register.bits)) as u32; LANES],
        }
    }

    /// A row as it is, widened with zeros.
    pub(crate) fn row(&self, base: Base, register: Register) -> Long {
        if register.is_long() {
            self.longs[base.longs as usize + usize::from(register.index)]
        } else if register.is_predicate() {
            std::array::from_fn(|lane| self.get(base, register, lane))
        } else {
            self.words[base.words as usize + usize::from(register.index)].map(u64::from)
        }
    }

    /// A row of up to 32 bits.
    pub(crate) fn word(&self, base: Base, register: Register) -> Word {
        if register.is_predicate() || register.is_long() {
            #[expect(clippy::cast_possible_truncation, reason = "only the lower bits are asked for")]
            return self.row(base, register).map(|value| value as u32);
        }
        self.words[base.words as usize + usize::from(register.index)]
    }

    /// A row of 32 bits where it stands.
    #[inline]
    pub(crate) fn word_row(&self, base: Base, register: Register) -> &Word {
        &self.words[base.words as usize + usize::from(register.index)]
    }

    /// Puts a row into the lanes of a mask.
    #[expect(clippy::cast_possible_truncation, reason = "a row of words has no more bits")]
    pub(crate) fn put(&mut self, base: Base, register: Register, lanes: u32, values: &Long) {
        if register.is_long() {
            put(&mut self.longs[base.longs as usize + usize::from(register.index)], *values, lanes);
        } else if register.is_predicate() {
            let bits = collect(|lane| values[lane] & 1 == 1);
            self.put_predicate(base, register, lanes, bits);
        } else {
            let cut = mask(register.bits) as u32;
            let row = &mut self.words[base.words as usize + usize::from(register.index)];
            put(row, values.map(|value| value as u32 & cut), lanes);
        }
    }

    /// Puts a row of words into the lanes of a mask.
    #[inline]
    pub(crate) fn put_words(&mut self, base: Base, register: Register, lanes: u32, values: Word) {
        put(&mut self.words[base.words as usize + usize::from(register.index)], values, lanes);
    }

    /// The lanes in which a predicate holds.
    #[inline]
    pub(crate) fn predicate(&self, base: Base, register: Register) -> u32 {
        self.predicates[base.predicates as usize + usize::from(register.index)]
    }

    /// Puts truth values into the lanes of a mask.
    #[inline]
    pub(crate) fn put_predicate(&mut self, base: Base, register: Register, lanes: u32, bits: u32) {
        let row = &mut self.predicates[base.predicates as usize + usize::from(register.index)];
        *row = *row & !lanes | bits & lanes;
    }
}

/// Puts a row into the lanes of a mask.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once for each set of vector instructions")]
pub(crate) fn put<T: Copy>(to: &mut [T; LANES], from: [T; LANES], lanes: u32) {
    if lanes == ALL {
        *to = from;
    } else {
        for lane in 0..LANES {
            if lanes & 1 << lane != 0 {
                to[lane] = from[lane];
            }
        }
    }
}

/// The lanes for which something holds.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once for each set of vector instructions")]
pub(crate) fn collect(holds: impl Fn(usize) -> bool) -> u32 {
    let mut bits = [0_u32; LANES];
    for (lane, bit) in bits.iter_mut().enumerate() {
        *bit = if holds(lane) { 1 << lane } else { 0 };
    }
    bits.iter().fold(0, |all, bit| all | bit)
}

/// The lanes of a mask, one after the other.
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        if lane == 32 {
            return None;
        }
        mask &= mask - 1;
        Some(lane as usize)
    })
}
