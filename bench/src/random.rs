//! The pseudo-random requests of the allocator's rows.
//!
//! **Invariant:** the engine is the 64-bit Mersenne Twister with the parameters of C++'s `std::mt19937_64`, and sizes and
//! indexes are drawn from it as a C++ harness draws them, so that both sides get the same requests from the same seed.

use rand_mt::Mt64;

/// Sizes that are drawn; requests go through them with a stride, again and again.
pub(crate) const SIZES: usize = 8192;

/// Indexes that are drawn.
pub(crate) const INDEXES: usize = 65536;

/// The least and the greatest size, as powers of two.
const POWERS: (f64, f64) = (9.0, 24.0);

/// The engine under a seed, and what is drawn from it.
#[derive(Debug, Clone)]
pub(crate) struct Random(Mt64);

impl Random {
    /// The engine under a seed.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mt64::new(seed))
    }

    /// Sizes of 512 B to 16 MiB, whose logarithms are spread evenly.
    pub(crate) fn sizes(&mut self) -> Vec<u64> {
        let (least, greatest) = POWERS;
        (0..SIZES).map(|_| whole(((greatest - least) * self.unit() + least).exp2())).collect()
    }

    /// Indexes below a bound.
    pub(crate) fn indexes(&mut self, bound: usize) -> Vec<usize> {
        (0..INDEXES).map(|_| usize::try_from(self.0.next_u64() % bound as u64).unwrap_or_default()).collect()
    }

    /// A number from 0 to below 1.
    fn unit(&mut self) -> f64 {
        self.0.next_u64() as f64 / 2_f64.powi(64)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 2^9 to 2^24")]
fn whole(size: f64) -> u64 {
    size as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_the_one_of_the_standard() {
        // The C++ standard fixes the 10000th number of a default engine, whose seed is 5489.
        let mut random = Random::new(5489);
        let number = (0..10_000).map(|_| random.0.next_u64()).last();
        assert_eq!(number, Some(9_981_545_732_273_789_042));
    }

    #[test]
    fn requests_are_those_of_a_harness_in_cpp() {
        let mut random = Random::new(7);
        assert_eq!(random.sizes()[..5], [1_305_145, 9_903_575, 1_735, 5_453_298, 2_224]);
        assert_eq!(random.indexes(1000)[..5], [57, 942, 88, 610, 388]);
    }

    #[test]
    fn sizes_are_spread_over_the_powers_of_two() {
        let sizes = Random::new(7).sizes();
        assert!(sizes.iter().all(|size| (512..=16 << 20).contains(size)));
        let small = sizes.iter().filter(|size| **size <= 1 << 20).count();
        // 11 of 15 powers lie up to 1 MiB.
        assert!((0.70..0.77).contains(&(small as f64 / SIZES as f64)), "{small}");
    }

    #[test]
    fn indexes_stay_below_their_bound() {
        let indexes = Random::new(7).indexes(100);
        assert_eq!(indexes.len(), INDEXES);
        assert!(indexes.iter().all(|index| *index < 100) && indexes.contains(&0) && indexes.contains(&99));
    }
}
