//! New inputs from old ones, in an order that follows from a seed alone.

use std::ops::Range;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;

/// How inputs are made from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Bytes change, come and go.
    Bytes,
    /// So do lines and words, as of a program's text.
    Lines,
}

impl Style {
    /// The longest input that is made: longer ones find nothing that shorter ones do not, only later.
    #[must_use]
    pub fn length_max(self) -> usize {
        match self {
            Self::Bytes => 512,
            Self::Lines => 1 << 16,
        }
    }
}

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
pub fn mutate(random: &mut Pcg32, corpus: &[Vec<u8>], style: Style) -> Vec<u8> {
    let mut bytes = corpus.get(below(random, corpus.len())).cloned().unwrap_or_default();
    for _ in 0..=below(random, 6) {
        match style {
            Style::Lines if below(random, 8) > 0 => change_text(random, corpus, &mut bytes),
            Style::Lines | Style::Bytes => change(random, corpus, &mut bytes),
        }
    }
    bytes.truncate(style.length_max());
    bytes
}

/// An input to take something from.
fn other<'c>(random: &mut Pcg32, corpus: &'c [Vec<u8>]) -> &'c [u8] {
    corpus.get(below(random, corpus.len())).map_or(&[][..], Vec::as_slice)
}

/// Numbers at which programs go wrong.
const NUMBERS: &[&[u8]] = &[
    b"0",
    b"1",
    b"-1",
    b"2",
    b"3",
    b"15",
    b"16",
    b"31",
    b"32",
    b"33",
    b"63",
    b"64",
    b"127",
    b"128",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"2147483647",
    b"2147483648",
    b"-2147483648",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"0f7FC00000",
    b"0f7F800000",
    b"0d7FF0000000000000",
    b"_",
    b"%tid.x",
    b"%clock",
];

/// Changes a line or a word.
fn change_text(random: &mut Pcg32, corpus: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let at = below(random, bytes.len());
    match below(random, 8) {
        0 => drop(bytes.drain(line(bytes, at))),
        1 => {
            let (copied, to) = (bytes[line(bytes, at)].to_vec(), below(random, bytes.len()));
            let to = line(bytes, to).start;
            bytes.splice(to..to, copied);
        }
        2 => {
            let from = other(random, corpus);
            let from_at = below(random, from.len());
            let to = line(bytes, at).start;
            bytes.splice(to..to, from[line(from, from_at)].iter().copied());
        }
        3 => drop(bytes.splice(word(bytes, at), NUMBERS[below(random, NUMBERS.len())].iter().copied())),
        4 => {
            let from = other(random, corpus);
            let from_at = below(random, from.len());
            bytes.splice(word(bytes, at), from[word(from, from_at)].iter().copied());
        }
        5 => drop(bytes.drain(word(bytes, at))),
        _ => {
            let from_at = below(random, bytes.len());
            let taken = bytes[word(bytes, from_at)].to_vec();
            bytes.splice(word(bytes, at), taken);
        }
    }
}

/// The line that a byte is in, with its end.
fn line(bytes: &[u8], at: usize) -> Range<usize> {
    let start = bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let end = bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| at + end + 1);
    start..end
}

/// The letters, digits and signs of names around a byte.
fn word(bytes: &[u8], at: usize) -> Range<usize> {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'%' | b'$');
    let start = bytes[..at].iter().rposition(|byte| !is_of_word(byte)).map_or(0, |end| end + 1);
    let end = bytes[at..].iter().position(|byte| !is_of_word(byte)).map_or(bytes.len(), |end| at + end);
    start..end
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
            let other = other(random, corpus);
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
            (0..200).map(|_| mutate(&mut random, &corpus, Style::Bytes)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(3).iter().all(|input| input.len() <= Style::Bytes.length_max()));
    }

    #[test]
    fn lines_and_words_are_whole() {
        let text = b"one two\n.three.four;\n";
        assert_eq!((line(text, 0), line(text, 7), line(text, 8), line(text, 20)), (0..8, 0..8, 8..21, 8..21));
        assert_eq!(
            (word(text, 1), word(text, 8), word(text, 10), line(&[], 0), word(&[], 0)),
            (0..3, 8..8, 9..14, 0..0, 0..0)
        );
        let corpus = vec![text.to_vec(), b"add.u32 %r1, %r2, 7;\n".to_vec(), Vec::new()];
        let mut random = random(5);
        let inputs: Vec<_> = (0..2000).map(|_| mutate(&mut random, &corpus, Style::Lines)).collect();
        let holds = |part: &[u8]| inputs.iter().any(|input| input.windows(part.len()).any(|window| window == part));
        // A word of another input, a line of it, a number.
        assert!(holds(b".add.") && holds(b"7;\n.three") && holds(b"4294967295"));
    }
}
