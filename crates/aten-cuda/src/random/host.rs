//! The generator of the host: mt19937, as torch has it.
//!
//! **Invariants:** `left` counts the words of the table that are not given out, and the present one; `next` is the place
//! of the next word. A state of torch's bytes and this one stand for each other.

use std::sync::{Arc, PoisonError};

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::random_error::RandomError;
use crate::random::device::{DEFAULT_SEED, seed_bits, unforeseeable};
use crate::tensor::Tensor;
use c10_core::locks::{Mutex, MutexGuard};

/// Words of the table.
const WORDS: usize = 624;

/// How far the words lie apart that are mixed.
const DISTANCE: usize = 397;

/// Bytes of torch's state.
const STATE_BYTES: usize = 5056;

/// A generator of the host. Clones are the same generator.
#[derive(Clone, Debug)]
pub(super) struct HostGenerator(Arc<Mutex<Engine>>);

/// The words, and normal numbers that were made in pairs and have not been given out.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    seed: u64,
    left: u32,
    next: usize,
    words: [u32; WORDS],
    next_double: Option<f64>,
    next_single: Option<f32>,
}

impl Default for HostGenerator {
    fn default() -> Self {
        Self::new(DEFAULT_SEED)
    }
}

impl HostGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Engine::new(seed))))
    }

    /// The default generator of a runtime: its seed is one that nobody can foresee.
    pub(super) fn unforeseeable() -> Self {
        Self::new(unforeseeable())
    }

    /// The engine, for one whole draw.
    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn manual_seed(&self, seed: i128) -> Result<()> {
        *self.lock() = Engine::new(seed_bits(seed)?);
        Ok(())
    }

    pub(super) fn seed(&self) -> u64 {
        let seed = unforeseeable();
        *self.lock() = Engine::new(seed);
        seed
    }

    pub(super) fn initial_seed(&self) -> u64 {
        self.lock().seed
    }

    pub(super) fn get_state(&self) -> Result<Tensor> {
        Tensor::from_slice(&self.lock().to_bytes(), &[5056])
    }

    pub(super) fn set_state(&self, state: &Tensor) -> Result<()> {
        if state.is_cuda() || state.dtype() != DType::U8 {
            return Err(RandomError::StateKind { dtype: state.dtype() }.into());
        }
        if !state.is_contiguous() {
            return Err(RandomError::StateStrided.into());
        }
        let engine = Engine::from_bytes(&state.to_bytes()?)?;
        *self.lock() = engine;
        Ok(())
    }

    pub(super) fn clone_state(&self) -> Self {
        Self(Arc::new(Mutex::new(self.lock().clone())))
    }
}

impl Engine {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low 32 bits of the seed are used, and places are below 624"
    )]
    fn new(seed: u64) -> Self {
        let mut words = [seed as u32; WORDS];
        for at in 1..WORDS {
            let last = words[at - 1];
            words[at] = 1_812_433_253_u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(at as u32);
        }
        Self { seed, left: 1, next: 0, words, next_double: None, next_single: None }
    }

    /// 32 random bits.
    pub(super) fn word(&mut self) -> u32 {
        self.left -= 1;
        if self.left == 0 {
            self.turn();
        }
        let mut word = self.words[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// 64 random bits, the higher half first.
    pub(super) fn wide_word(&mut self) -> u64 {
        let high = u64::from(self.word());
        high << 32 | u64::from(self.word())
    }

    /// A number of 53 random bits from 0 up to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(super) fn double(&mut self) -> f64 {
        (self.wide_word() & ((1 << 53) - 1)) as f64 / (1_u64 << 53) as f64
    }

    /// A number of so many random bits, at most 24, from 0 up to 1.
    #[expect(clippy::cast_precision_loss, reason = "24 bits fit")]
    pub(super) fn single(&mut self, digits: u32) -> f32 {
        (self.word() & ((1 << digits) - 1)) as f32 / (1_u32 << digits) as f32
    }

    /// A normal number, of which every second one was made together with the one before.
    pub(super) fn normal(&mut self) -> f64 {
        if let Some(known) = self.next_double.take() {
            return known;
        }
        let (angle, part) = (self.double(), self.double());
        let radius = (-2.0 * (-part).ln_1p()).sqrt();
        let angle = 2.0 * std::f64::consts::PI * angle;
        self.next_double = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// Makes the next words of the table.
    fn turn(&mut self) {
        let mix = |first: u32, second: u32| ((first & 0x8000_0000) | (second & 0x7fff_ffff)) >> 1;
        for at in 0..WORDS {
            let (first, second) = (self.words[at], self.words[(at + 1) % WORDS]);
            let twist = if second & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[at] = self.words[(at + DISTANCE) % WORDS] ^ mix(first, second) ^ twist;
        }
        self.left = u32::try_from(WORDS).unwrap_or(u32::MAX);
        self.next = 0;
    }

    /// Torch's bytes: the seed, the counts, a word in 8 bytes each, the kept normal numbers.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATE_BYTES);
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(self.left.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend((self.next as u64).to_le_bytes());
        bytes.extend(self.words.iter().flat_map(|&word| u64::from(word).to_le_bytes()));
        for number in [0.0, self.next_double.unwrap_or_default(), 0.0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(u64::from(self.next_double.is_some()).to_le_bytes());
        bytes.extend(self.next_single.unwrap_or_default().to_le_bytes());
        bytes.extend(u32::from(self.next_single.is_some()).to_le_bytes());
        bytes
    }

    #[expect(clippy::cast_possible_truncation, reason = "the counts are checked")]
    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() != STATE_BYTES {
            return Err(RandomError::HostStateSize { bytes: bytes.len() }.into());
        }
        let long = |at: usize| bytemuck::pod_read_unaligned::<u64>(&bytes[at..at + 8]);
        let int = |at: usize| bytemuck::pod_read_unaligned::<u32>(&bytes[at..at + 4]);
        let mut words = [0; WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = long(24 + 8 * at) as u32;
        }
        let (left, is_seeded, next) = (int(8), int(12) == 1, long(16));
        if !is_seeded || left == 0 || left as usize > WORDS || next + u64::from(left - 1) > WORDS as u64 {
            return Err(RandomError::HostState.into());
        }
        let after = 24 + 8 * WORDS;
        let (number, is_kept) = (f64::from_bits(long(after + 8)), int(after + 24) != 0);
        let (single, is_single_kept) = (f32::from_bits(int(after + 32)), int(after + 36) & 0xff != 0);
        Ok(Self {
            seed: long(0),
            left,
            next: next as usize,
            words,
            next_double: is_kept.then_some(number),
            next_single: is_single_kept.then_some(single),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_mt19937() {
        // The ten-thousandth word of the seed 5489, which the standard of C++ gives.
        let mut engine = Engine::new(5489);
        let word = (0..10_000).map(|_| engine.word()).last();
        assert_eq!(word, Some(4_123_659_995));
    }

    #[test]
    fn a_state_goes_there_and_back() {
        let mut engine = Engine::new(42);
        engine.normal();
        let mut other = Engine::from_bytes(&engine.to_bytes()).unwrap();
        let numbers = |engine: &mut Engine| [engine.normal(), engine.double(), engine.normal()].map(f64::to_bits);
        assert_eq!(numbers(&mut engine), numbers(&mut other));
        assert_eq!(engine.to_bytes(), other.to_bytes());
    }
}
