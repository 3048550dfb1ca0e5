//! New inputs from old ones, in an order that follows from a seed alone.

/// The longest input that is made: longer ones find nothing that shorter ones do not, only later.
pub const LENGTH_MAX: usize = 512;

/// A small random number generator (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero; neighbouring seeds must not begin alike.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below a limit; 0 if the limit is.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % limit.max(1)
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// Makes an input from those that are there.
pub fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus.get(random.below(corpus.len())).cloned().unwrap_or_default();
    for _ in 0..=random.below(6) {
        change(random, corpus, &mut bytes);
    }
    bytes.truncate(LENGTH_MAX);
    bytes
}

fn change(random: &mut Random, corpus: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len());
    match random.below(7) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = random.byte(),
        2 if !bytes.is_empty() => drop(bytes.drain(at..bytes.len().min(at + 1 + random.below(8)))),
        3 => {
            let end = bytes.len().min(at + 1 + random.below(16));
            let piece = bytes[at.min(end)..end].to_vec();
            bytes.splice(at..at, piece);
        }
        4 => {
            let other = corpus.get(random.below(corpus.len())).map_or(&[][..], Vec::as_slice);
            let from = random.below(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let fresh: Vec<u8> = (0..=random.below(12)).map(|_| random.byte()).collect();
            bytes.splice(at..at, fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        let corpus = vec![b"one".to_vec(), b"another".to_vec()];
        let inputs = |seed| {
            let mut random = Random::new(seed);
            (0..200).map(|_| mutate(&mut random, &corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(3).iter().all(|input| input.len() <= LENGTH_MAX));
    }
}
