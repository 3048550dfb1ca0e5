//! New inputs from old ones, in an order that follows from a seed alone.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;

/// The longest input that is made: longer ones find nothing that shorter ones do not, only later.
pub const LENGTH_MAX: usize = 512;

/// A generator whose sequence follows from the seed alone, whatever the version of its package.
#[must_use]
pub fn random(seed: u64) -> Pcg32 {
    Pcg32::seed_from_u64(seed)
}

/// A number below a limit; 0 if the limit is.
fn below(random: &mut Pcg32, limit: usize) -> usize {
    random.random_range(0..limit.max(1))
}

/// Makes an input from those that are there.
pub fn mutate(random: &mut Pcg32, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus.get(below(random, corpus.len())).cloned().unwrap_or_default();
    for _ in 0..=below(random, 6) {
        change(random, corpus, &mut bytes);
    }
    bytes.truncate(LENGTH_MAX);
    bytes
}

fn change(random: &mut Pcg32, corpus: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let at = below(random, bytes.len());
    match below(random, 7) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << below(random, 8),
        1 if !bytes.is_empty() => bytes[at] = random.random(),
        2 if !bytes.is_empty() => drop(bytes.drain(at..bytes.len().min(at + 1 + below(random, 8)))),
        3 => {
            let end = bytes.len().min(at + 1 + below(random, 16));
            let piece = bytes[at.min(end)..end].to_vec();
            bytes.splice(at..at, piece);
        }
        4 => {
            let other = corpus.get(below(random, corpus.len())).map_or(&[][..], Vec::as_slice);
            let from = below(random, other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let fresh: Vec<u8> = (0..=below(random, 12)).map(|_| random.random()).collect();
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
            let mut random = random(seed);
            (0..200).map(|_| mutate(&mut random, &corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(3).iter().all(|input| input.len() <= LENGTH_MAX));
    }
}
