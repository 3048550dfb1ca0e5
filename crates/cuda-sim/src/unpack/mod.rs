//! Formats in which compilers compress the code of fat binaries.
//!
//! Reading order: `lz4`, then for the other format `bits`, `fse` and `huffman` (how symbols are coded), `zstd`.
//!
//! Invariants: bytes that are no such format are an error and never a panic; no more than the announced size is made.

mod bits;
mod fse;
mod huffman;
mod lz4;
#[cfg(test)]
mod tests;
mod zstd;

pub(crate) use lz4::lz4;
pub(crate) use zstd::zstd;

/// The bytes are not of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// Appends `length` bytes that stand `distance` bytes before the end, of which some may be among those appended.
fn repeat(output: &mut Vec<u8>, distance: usize, length: usize, limit: usize) -> Result<(), Broken> {
    let start = output.len().checked_sub(distance).ok_or(Broken)?;
    if distance == 0 || length > limit - output.len().min(limit) {
        return Err(Broken);
    }
    for index in 0..length {
        output.push(output[start + index]);
    }
    Ok(())
}

/// Appends bytes.
fn append(output: &mut Vec<u8>, bytes: &[u8], limit: usize) -> Result<(), Broken> {
    if bytes.len() > limit - output.len().min(limit) {
        return Err(Broken);
    }
    output.extend_from_slice(bytes);
    Ok(())
}
