//! Formats in which compilers compress the code of fat binaries.
//!
//! Invariants: bytes that are no such format are an error and never a panic; no more than the announced size is made.

#[cfg(test)]
mod tests;

use std::io::Read as _;

/// The bytes are not of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The most bytes that a byte of an LZ4 block becomes.
const LZ4_GROWTH: usize = 255;

/// Unpacks a block of LZ4 into at most `limit` bytes.
pub(crate) fn lz4(packed: &[u8], limit: usize) -> Result<Vec<u8>, Broken> {
    // The memory is allocated first, so that an announced size is not believed that the block cannot have.
    let limit = limit.min(packed.len().saturating_mul(LZ4_GROWTH));
    lz4_flex::block::decompress(packed, limit).map_err(|_| Broken)
}

/// Unpacks a frame of Zstandard into at most `limit` bytes.
pub(crate) fn zstd(packed: &[u8], limit: usize) -> Result<Vec<u8>, Broken> {
    let frame = ruzstd::decoding::StreamingDecoder::new(packed).map_err(|_| Broken)?;
    let mut made = Vec::new();
    // A byte more than allowed tells that there are too many.
    frame.take(limit as u64 + 1).read_to_end(&mut made).map_err(|_| Broken)?;
    if made.len() > limit { Err(Broken) } else { Ok(made) }
}
