//! Which bytes of a file go where, and in which requests.
//!
//! **Invariants:** pieces rise and do not overlap. Requests rise, do not overlap, and together cover every piece; where
//! that is asked for they are whole blocks of the disk.

use std::ops::Range;

use c10_core::DeviceBuffer;

use crate::options::ALIGN;

/// Bytes of a file and their place in a device's memory.
#[derive(Clone, Debug)]
pub(crate) struct Piece<'a> {
    /// Where they are in the file.
    pub(crate) file: Range<u64>,
    /// The memory.
    pub(crate) buffer: &'a DeviceBuffer,
    /// Where they begin in it.
    pub(crate) at: usize,
}

/// A request, and the pieces that have bytes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Bytes of the file.
    pub(crate) file: Range<u64>,
    /// Indices of the pieces.
    pub(crate) pieces: Range<usize>,
}

/// Cuts the ranges of pieces into requests of at most `chunk` bytes, which begin at multiples of that; in whole blocks if
/// asked.
pub(crate) fn cut(pieces: &[Range<u64>], chunk: usize, is_aligned: bool) -> Vec<Chunk> {
    let (chunk, block) = (chunk as u64, if is_aligned { ALIGN as u64 } else { 1 });
    let mut chunks: Vec<Chunk> = Vec::new();
    for (index, piece) in pieces.iter().enumerate().filter(|(_, piece)| !piece.is_empty()) {
        let mut at = piece.start;
        while at < piece.end {
            let end = piece.end.min((at / chunk + 1) * chunk);
            let file = at / block * block..end.div_ceil(block) * block;
            match chunks.last_mut() {
                Some(last) if last.file.start / chunk == file.start / chunk => {
                    last.file.end = last.file.end.max(file.end);
                    last.pieces.end = index + 1;
                }
                _ => chunks.push(Chunk { file, pieces: index..index + 1 }),
            }
            at = end;
        }
    }
    chunks
}

/// The part of a piece that lies in a range of the file: the bytes of the file, and where they begin in the memory.
pub(crate) fn part(piece: &Piece<'_>, within: &Range<u64>) -> (Range<u64>, usize) {
    let start = piece.file.start.max(within.start);
    let end = piece.file.end.min(within.end).max(start);
    let skipped = usize::try_from(start - piece.file.start).unwrap_or(usize::MAX);
    (start..end, piece.at.saturating_add(skipped))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_pieces_share_a_request_and_large_ones_have_several() {
        let chunks = cut(&[10..20, 20..30, 8190..20_000], 8192, false);
        let ranges: Vec<_> = chunks.iter().map(|chunk| (chunk.file.clone(), chunk.pieces.clone())).collect();
        assert_eq!(ranges, [(10..8192, 0..3), (8192..16_384, 2..3), (16_384..20_000, 2..3)]);
        let whole = cut(&[10..20, 20..20], 8192, true);
        assert_eq!(whole, [Chunk { file: 0..4096, pieces: 0..1 }]);
        assert_eq!(cut(&[], 4096, true), []);
    }

    proptest! {
        #[test]
        fn requests_cover_every_byte_once(
            parts in proptest::collection::vec((0_u64..9000, 0_u64..40_000), 0..12),
            power in 12_u32..16,
            is_aligned: bool,
        ) {
            let mut at = 0;
            let pieces: Vec<_> = parts.iter().map(|&(gap, bytes)| {
                let start = at + gap;
                at = start + bytes;
                start..at
            }).collect();
            let chunk = 1_usize << power;
            let chunks = cut(&pieces, chunk, is_aligned);
            prop_assert!(chunks.windows(2).all(|pair| pair[0].file.end <= pair[1].file.start));
            for one in &chunks {
                prop_assert!(one.file.end - one.file.start <= chunk as u64 && !one.file.is_empty());
                prop_assert!(!is_aligned || (one.file.start % 4096 == 0 && one.file.end % 4096 == 0));
            }
            for (index, piece) in pieces.iter().enumerate() {
                let holding = chunks.iter().filter(|one| one.pieces.contains(&index));
                let covered: u64 = holding.map(|one| {
                    one.file.end.min(piece.end).saturating_sub(one.file.start.max(piece.start))
                }).sum();
                prop_assert_eq!(covered, piece.end - piece.start);
            }
        }
    }
}
