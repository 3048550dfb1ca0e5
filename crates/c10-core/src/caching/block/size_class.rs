//! Sizes: how a request is rounded, which pool serves it, how large a segment is asked for, when a block is split.
//!
//! Pure functions of numbers and of the configuration; torch's rules.

use crate::base::config::AllocatorConfig;

/// Every block's size is a multiple of this.
pub(crate) const MIN_BLOCK_SIZE: u64 = 512;
/// Rounded requests up to this go to the small pool.
pub(crate) const SMALL_SIZE: u64 = 1 << 20;
/// Size of the small pool's segments.
pub(crate) const SMALL_BUFFER: u64 = 2 << 20;
/// Requests below this share segments of the configured size.
pub(crate) const MIN_LARGE_ALLOC: u64 = 10 << 20;
/// Segments of their own are a multiple of this.
pub(crate) const ROUND_LARGE: u64 = 2 << 20;
/// Size of the pages of the elastic backend.
pub(crate) const ELASTIC_PAGE: u64 = 2 << 20;
/// Requests from this size on are refused before anything is counted.
pub(crate) const SIZE_LIMIT: u64 = 1 << 60;

/// Which of the two pools.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SizeClass {
    Small,
    Large,
}

/// Requests from this size on are never served by splitting.
pub(crate) fn max_split_size(config: &AllocatorConfig, elastic: bool) -> u64 {
    // What is free of a large block serves others as pages in any case.
    config.max_split_size.filter(|_| !elastic).unwrap_or(u64::MAX)
}

/// What of the options each request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Blocks from this size on stay whole, serve only requests like themselves, and are counted apart.
    pub(crate) max_split: u64,
    /// How much larger such a block may be than what it serves.
    slack: u64,
    /// Every request is rounded up to a multiple of 512.
    pub(crate) rounds_plainly: bool,
    /// Segments can grow.
    pub(crate) expandable: bool,
    /// Pages move to where they are needed, so that it does not matter what a block can grow to.
    pub(crate) elastic: bool,
    /// Searches are counted: unused segments are released before more than the limit is held.
    pub(crate) counts_lookups: bool,
}

impl Rules {
    /// Those of a pool, whose memory is held in pages that move or not.
    pub(crate) fn new(config: &AllocatorConfig, elastic: bool, counts_lookups: bool) -> Self {
        Self {
            max_split: max_split_size(config, elastic),
            slack: config.max_non_split_rounding,
            rounds_plainly: config.roundup_power2_divisions.iter().all(|divisions| *divisions <= 1),
            expandable: config.expandable_segments || elastic,
            elastic,
            counts_lookups,
        }
    }

    /// Whether the smallest cached block that is large enough may be used.
    #[inline]
    pub(crate) fn may_use(&self, size: u64, block: u64) -> bool {
        if size < self.max_split { block < self.max_split } else { block < size.saturating_add(self.slack) }
    }

    /// Whether the rest of a block goes back to the pool. While segments can expand, large blocks are split like small
    /// ones.
    #[inline]
    pub(crate) fn should_split(&self, expandable: bool, class: SizeClass, size: u64, block: u64) -> bool {
        // Without branches: of two requests in a row nothing is known.
        let to_the_unit = expandable | (class == SizeClass::Small);
        let least = if to_the_unit { MIN_BLOCK_SIZE } else { SMALL_SIZE + 1 };
        (block - size >= least) & (to_the_unit | (size < self.max_split))
    }
}

/// Rounds a request below the size limit up to a multiple of 512.
#[inline]
pub(crate) fn round_plainly(requested: u64) -> u64 {
    (requested + (MIN_BLOCK_SIZE - 1)) & !(MIN_BLOCK_SIZE - 1)
}

/// Rounds a request of at least one byte.
#[cold]
pub(crate) fn round_size(config: &AllocatorConfig, requested: u64) -> u64 {
    let requested = requested.max(MIN_BLOCK_SIZE);
    let divisions = u64::from(config.roundup_power2_divisions[roundup_entry(requested)]);
    if divisions > 1 && requested > MIN_BLOCK_SIZE * divisions {
        round_to_division(requested, divisions)
    } else {
        requested.next_multiple_of(MIN_BLOCK_SIZE)
    }
}

/// The entry of the table that serves a size: one for each power of two from 1 MiB on.
fn roundup_entry(size: u64) -> usize {
    (size.ilog2() as usize).saturating_sub(20).min(15)
}

/// Rounds up to a multiple of a part of the power of two below; a power of two stays.
fn round_to_division(size: u64, divisions: u64) -> u64 {
    let floor = 1 << size.ilog2();
    let step = floor >> divisions.ilog2();
    if size == floor {
        size
    } else if step == 0 {
        2 * floor
    } else {
        size.next_multiple_of(step)
    }
}

/// The pool that serves a rounded size.
pub(crate) fn size_class(size: u64) -> SizeClass {
    if size <= SMALL_SIZE { SizeClass::Small } else { SizeClass::Large }
}

/// The segment to ask the driver for when nothing cached fits a rounded size.
pub(crate) fn segment_size(config: &AllocatorConfig, elastic: bool, size: u64) -> u64 {
    if elastic {
        size.next_multiple_of(ELASTIC_PAGE)
    } else if size <= SMALL_SIZE {
        SMALL_BUFFER
    } else if size < MIN_LARGE_ALLOC {
        config.large_segment_size
    } else {
        size.next_multiple_of(ROUND_LARGE)
    }
}

/// Bytes that expandable segments of a class grow by.
pub(crate) fn page_size(config: &AllocatorConfig, elastic: bool, class: SizeClass) -> u64 {
    match class {
        _ if elastic => ELASTIC_PAGE,
        SizeClass::Small => SMALL_BUFFER,
        SizeClass::Large => config.large_segment_size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn plain() -> AllocatorConfig {
        AllocatorConfig::default()
    }

    fn rules(options: &str) -> Rules {
        Rules::new(&with(options), false, false)
    }

    fn with(options: &str) -> AllocatorConfig {
        plain().parse(options).unwrap()
    }

    #[test]
    fn requests_round_up_to_512() {
        for (requested, rounded) in
            [(1, 512), (512, 512), (513, 1024), (600, 1024), (1200, 1536), (MIB, MIB), (MIB + 1, MIB + 512)]
        {
            assert_eq!(round_size(&plain(), requested), rounded, "{requested}");
        }
        assert_eq!(round_size(&plain(), 3_000_000), 3_000_320);
    }

    #[test]
    fn divisions_round_to_parts_of_the_power_of_two_below() {
        let quarters = with("roundup_power2_divisions:4");
        let cases = [
            (1200, 1536),
            (2048, 2048),
            (2049, 2560),
            (4096, 4096),
            (5_000_000, 5_242_880),
            (12_000_000, 12_582_912),
            (MIB + 1, MIB + MIB / 4),
            ((64 << 30) + 1, 80 << 30),
        ];
        for (requested, rounded) in cases {
            assert_eq!(round_size(&quarters, requested), rounded, "{requested}");
        }
        let coarse = with("roundup_power2_divisions:1");
        assert_eq!(round_size(&coarse, 5_000_000), 5_000_192);
    }

    #[test]
    fn each_power_of_two_has_its_entry() {
        for (size, entry) in [(512, 0), (MIB, 0), (2 * MIB - 1, 0), (2 * MIB, 1), (32 << 30, 15), (1 << 59, 15)] {
            assert_eq!(roundup_entry(size), entry, "{size}");
        }
    }

    #[test]
    fn pools_and_segments_follow_the_rounded_size() {
        let cases = [
            (512, SizeClass::Small, 2 * MIB),
            (MIB, SizeClass::Small, 2 * MIB),
            (MIB + 512, SizeClass::Large, 20 * MIB),
            (10 * MIB - 512, SizeClass::Large, 20 * MIB),
            (10 * MIB, SizeClass::Large, 10 * MIB),
            (10 * MIB + 512, SizeClass::Large, 12 * MIB),
            (12_000_256, SizeClass::Large, 12 * MIB),
            (21 * MIB, SizeClass::Large, 22 * MIB),
        ];
        for (size, class, segment) in cases {
            assert_eq!((size_class(size), segment_size(&plain(), false, size)), (class, segment), "{size}");
        }
        assert_eq!(segment_size(&plain(), false, SIZE_LIMIT - 512), SIZE_LIMIT);
        let wide = with("large_segment_size_mb:40");
        assert_eq!((segment_size(&wide, false, 5 * MIB), segment_size(&wide, false, 10 * MIB)), (40 * MIB, 10 * MIB));
    }

    #[test]
    fn large_blocks_keep_rests_up_to_one_mebibyte() {
        let cases = [
            (SizeClass::Small, 512, 512, false),
            (SizeClass::Small, 512, 1024, true),
            (SizeClass::Large, 2 * MIB, 3 * MIB, false),
            (SizeClass::Large, 2 * MIB, 3 * MIB + 512, true),
            (SizeClass::Large, 2 * MIB, 2 * MIB + 512 * KIB, false),
        ];
        for (class, size, block, splits) in cases {
            assert_eq!(rules("").should_split(false, class, size, block), splits, "{class:?} {size} of {block}");
        }
        assert!(rules("").should_split(true, SizeClass::Large, 2 * MIB, 2 * MIB + 512));
    }

    #[test]
    fn blocks_above_the_split_limit_serve_only_requests_like_themselves() {
        assert!(rules("").may_use(512, 1 << 50));
        let limited = rules("max_split_size_mb:32");
        assert!(limited.may_use(30 * MIB, 31 * MIB) && !limited.may_use(30 * MIB, 32 * MIB));
        assert!(limited.may_use(32 * MIB, 51 * MIB) && !limited.may_use(32 * MIB, 52 * MIB));
        assert!(!limited.should_split(false, SizeClass::Large, 32 * MIB, 51 * MIB));
    }
}
