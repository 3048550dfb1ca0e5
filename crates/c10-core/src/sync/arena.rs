//! Things that are made once, found by number without a lock, used again, and never moved.
//!
//! **Invariant:** a number below that of things made names the same thing as long as the arena lives.

use std::sync::{OnceLock, PoisonError};

use super::Mutex;

/// The things, in chunks that grow by a quarter.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
    /// The next number, and those given back.
    free: Mutex<(u32, Vec<u32>)>,
}

/// Logarithm of the number of things in the first chunks.
const CHUNK_BITS: u32 = 6;
/// Chunks, four of each size: room for 2^25 things.
const CHUNKS: usize = 68;

/// The chunk of a number, the position in it, and the logarithm of its length.
#[inline]
fn chunk_of(number: u32) -> (usize, usize, u32) {
    let number = number as usize + (4 << CHUNK_BITS);
    let bits = number.ilog2() - 2;
    let chunk = (bits - CHUNK_BITS) as usize * 4 + (number >> bits & 3);
    (chunk, number & ((1 << bits) - 1), bits)
}

impl<T> Arena<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), free: Mutex::default() }
    }

    /// The thing of a number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (chunk, position, _) = chunk_of(number);
        self.chunks.get(chunk)?.get()?.get(position)
    }

    /// A number whose thing nobody uses; `None` when there are no more.
    #[cold]
    pub(crate) fn take(&self, make: impl Fn() -> T) -> Option<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = free.1.pop() {
            return Some(number);
        }
        let number = free.0;
        let (chunk, _, bits) = chunk_of(number);
        self.chunks.get(chunk)?.get_or_init(|| (0..1 << bits).map(|_| make()).collect());
        free.0 += 1;
        Some(number)
    }

    pub(crate) fn give_back(&self, number: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).1.push(number);
    }

    /// How many there are, used or not.
    #[cfg(test)]
    pub(crate) fn made(&self) -> u32 {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_through_the_chunks() {
        let mut expected = (0, 0);
        for number in 0..1_000_000 {
            let (chunk, position, bits) = chunk_of(number);
            assert_eq!((chunk, position), expected, "{number}");
            expected = if position + 1 == 1 << bits { (chunk + 1, 0) } else { (chunk, position + 1) };
        }
        assert!(chunk_of(1 << 24).0 < CHUNKS);
    }

    #[test]
    fn what_was_given_back_is_taken_again() {
        let arena = Arena::new();
        let numbers: Vec<_> = (0..300).map(|_| arena.take(|| 7).unwrap()).collect();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
        assert_eq!((arena.get(299), arena.get(1 << 20)), (Some(&7), None));
        arena.give_back(5);
        assert_eq!((arena.take(|| 8), arena.made()), (Some(5), 300));
    }
}
