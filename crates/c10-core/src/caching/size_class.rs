//! Sizes: how a request is rounded, which pool serves it, how large a segment is asked for, when a block is split.
//!
//! Pure functions of numbers; torch's rules with its default options.

/// Every block's size is a multiple of this.
pub(crate) const MIN_BLOCK_SIZE: u64 = 512;
/// Rounded requests up to this go to the small pool.
pub(crate) const SMALL_SIZE: u64 = 1 << 20;
/// Size of the small pool's segments.
pub(crate) const SMALL_BUFFER: u64 = 2 << 20;
/// Requests below this share segments of [`LARGE_BUFFER`].
pub(crate) const MIN_LARGE_ALLOC: u64 = 10 << 20;
/// Size of the large pool's shared segments.
pub(crate) const LARGE_BUFFER: u64 = 20 << 20;
/// Segments of their own are a multiple of this.
pub(crate) const ROUND_LARGE: u64 = 2 << 20;
/// Requests from this size on are refused before anything is counted.
pub(crate) const SIZE_LIMIT: u64 = 1 << 60;
/// A block this much larger than a request made for the largest blocks is not used for it.
const MAX_NON_SPLIT_ROUNDING: u64 = LARGE_BUFFER;
/// Requests from this size on are never served by splitting.
const MAX_SPLIT_SIZE: u64 = u64::MAX;

/// Which of the two pools.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SizeClass {
    Small,
    Large,
}

/// Rounds a request of at least one byte.
pub(crate) fn round_size(requested: u64) -> u64 {
    requested.max(1).next_multiple_of(MIN_BLOCK_SIZE)
}

/// The pool that serves a rounded size.
pub(crate) fn size_class(size: u64) -> SizeClass {
    if size <= SMALL_SIZE { SizeClass::Small } else { SizeClass::Large }
}

/// The segment to ask the driver for when nothing cached fits a rounded size.
pub(crate) fn segment_size(size: u64) -> u64 {
    if size <= SMALL_SIZE {
        SMALL_BUFFER
    } else if size < MIN_LARGE_ALLOC {
        LARGE_BUFFER
    } else {
        size.next_multiple_of(ROUND_LARGE)
    }
}

/// Whether the smallest cached block that is large enough may be used.
pub(crate) fn may_use(size: u64, block: u64) -> bool {
    if size < MAX_SPLIT_SIZE { block < MAX_SPLIT_SIZE } else { block < size.saturating_add(MAX_NON_SPLIT_ROUNDING) }
}

/// Whether the rest of a block goes back to the pool.
pub(crate) fn should_split(class: SizeClass, size: u64, block: u64) -> bool {
    let remaining = block - size;
    match class {
        SizeClass::Small => remaining >= MIN_BLOCK_SIZE,
        SizeClass::Large => size < MAX_SPLIT_SIZE && remaining > SMALL_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn requests_round_up_to_512() {
        for (requested, rounded) in
            [(1, 512), (512, 512), (513, 1024), (600, 1024), (1200, 1536), (MIB, MIB), (MIB + 1, MIB + 512)]
        {
            assert_eq!(round_size(requested), rounded, "{requested}");
        }
        assert_eq!(round_size(3_000_000), 3_000_320);
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
            assert_eq!((size_class(size), segment_size(size)), (class, segment), "{size}");
        }
        assert_eq!(segment_size(SIZE_LIMIT - 512), SIZE_LIMIT);
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
            assert_eq!(should_split(class, size, block), splits, "{class:?} {size} of {block}");
        }
    }

    #[test]
    fn every_fitting_block_may_be_used_while_splitting_is_unlimited() {
        assert!(may_use(512, 1 << 50));
    }
}
