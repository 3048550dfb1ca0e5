//! Which bytes of a layout are in use.
//!
//! The ends of all places cut the bytes into pieces, one bit each: a place is free when all bits of its pieces are 0. So
//! whatever is asked for and given back in whatever order, no two live places overlap.
//!
//! **Invariant:** the bits that are set are those of the places that are taken, each of which was free when it was taken.

use crate::caching::plan::solve::{Layout, Lifetime};

/// The bits of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pieces {
    /// The words that the bits begin and end in.
    first: u32,
    last: u32,
    /// The bits in the first word, and those in the last one.
    head: u64,
    tail: u64,
}

/// The bits of all pieces.
#[derive(Debug, Default)]
pub(crate) struct Places {
    words: Box<[u64]>,
    /// Places that are taken.
    taken: u32,
}

impl Places {
    /// The bits of a layout, all 0, and those of each request; of one without a place none.
    pub(crate) fn new(period: &[Lifetime], layout: &Layout) -> (Self, Vec<Pieces>) {
        let placed = || period.iter().zip(&layout.offsets).filter(|(lifetime, _)| lifetime.turns > 0);
        let mut cuts: Vec<u64> = placed().flat_map(|(lifetime, offset)| [*offset, offset + lifetime.size]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let number = |cut: u64| cuts.partition_point(|known| *known < cut);
        let pieces = period.iter().zip(&layout.offsets).map(|(lifetime, offset)| match lifetime.turns {
            0 => Pieces::default(),
            _ => Pieces::between(number(*offset), number(offset + lifetime.size)),
        });
        let pieces = pieces.collect();
        (Self { words: vec![0; cuts.len().div_ceil(64)].into(), taken: 0 }, pieces)
    }

    /// How many places are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Takes a place, if it is free; whether it was.
    #[inline]
    pub(crate) fn take(&mut self, place: Pieces) -> bool {
        if place.first == place.last {
            let word = &mut self.words[place.first as usize];
            if *word & place.head != 0 {
                return false;
            }
            *word |= place.head;
            self.taken += 1;
            return true;
        }
        self.take_long(place)
    }

    fn take_long(&mut self, place: Pieces) -> bool {
        let is_taken = place.words().any(|(word, bits)| self.words[word] & bits != 0);
        if !is_taken {
            place.words().for_each(|(word, bits)| self.words[word] |= bits);
            self.taken += 1;
        }
        !is_taken
    }

    /// Gives a place back that is taken.
    #[inline]
    pub(crate) fn give_back(&mut self, place: Pieces) {
        self.taken -= 1;
        if place.first == place.last {
            self.words[place.first as usize] &= !place.head;
        } else {
            place.words().for_each(|(word, bits)| self.words[word] &= !bits);
        }
    }

    /// Whether the bits are those of these places.
    pub(crate) fn are(&self, mut places: impl Iterator<Item = Pieces>) -> bool {
        let mut expected = Self { words: vec![0; self.words.len()].into(), taken: 0 };
        let disjoint = places.all(|place| expected.take(place));
        disjoint && expected.words == self.words && expected.taken == self.taken
    }
}

impl Pieces {
    /// The bits from one number to before another.
    fn between(from: usize, to: usize) -> Self {
        let last = to - 1;
        let (head, tail) = (u64::MAX << (from % 64), u64::MAX >> (63 - last % 64));
        let number = |bit: usize| u32::try_from(bit / 64).unwrap_or(u32::MAX);
        let is_one = from / 64 == last / 64;
        let (head, tail) = if is_one { (head & tail, head & tail) } else { (head, tail) };
        Self { first: number(from), last: number(last), head, tail }
    }

    /// Each word with its bits.
    fn words(self) -> impl Iterator<Item = (usize, u64)> {
        (self.first..=self.last).map(move |word| {
            let bits = match word {
                _ if word == self.first => self.head,
                _ if word == self.last => self.tail,
                _ => u64::MAX,
            };
            (word as usize, bits)
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;
    use crate::caching::tests::random;

    /// Places that are taken and given back at random, beside a list of all bytes.
    #[test]
    fn a_place_is_free_when_all_its_bytes_are() {
        for seed in 0..30 {
            let mut random = random(seed);
            let count = random.random_range(1..300);
            let period: Vec<Lifetime> = (0..count)
                .map(|_| Lifetime { size: random.random_range(1..60), turns: random.random_range(0..2) })
                .collect();
            let offsets: Vec<u64> = (0..count).map(|_| random.random_range(0..400)).collect();
            let layout = Layout::at(offsets.clone());
            let (mut places, pieces) = Places::new(&period, &layout);
            let (mut bytes, mut taken) = (vec![false; 460], Vec::new());
            for _ in 0..600 {
                let number = random.random_range(0..count);
                let range = |number: usize| {
                    let begin = usize::try_from(offsets[number]).unwrap();
                    begin..begin + usize::try_from(period[number].size).unwrap()
                };
                if period[number].turns > 0 && !taken.contains(&number) {
                    let is_free = bytes[range(number)].iter().all(|used| !used);
                    assert_eq!(places.take(pieces[number]), is_free, "seed {seed}");
                    if is_free {
                        bytes[range(number)].fill(true);
                        taken.push(number);
                    }
                } else if let Some(at) = taken.iter().position(|known| *known == number) {
                    taken.remove(at);
                    places.give_back(pieces[number]);
                    bytes[range(number)].fill(false);
                }
                assert_eq!(places.taken() as usize, taken.len());
                assert!(places.are(taken.iter().map(|number| pieces[*number])));
            }
            assert!(taken.is_empty() || !places.are(std::iter::empty()));
        }
    }
}
