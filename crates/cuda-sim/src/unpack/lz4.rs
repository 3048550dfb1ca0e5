//! Blocks of LZ4: literals and repetitions in turn.

use super::{Broken, append, repeat};

/// The shortest repetition.
const REPEAT_MIN: usize = 4;

/// Unpacks a block into at most `limit` bytes.
pub(crate) fn lz4(input: &[u8], limit: usize) -> Result<Vec<u8>, Broken> {
    let (mut output, mut rest) = (Vec::new(), input);
    while let Some(token) = take(&mut rest, 1).ok().map(|token| usize::from(token[0])) {
        let literals = length(&mut rest, token >> 4)?;
        append(&mut output, take(&mut rest, literals)?, limit)?;
        // The last sequence has no repetition.
        if rest.is_empty() {
            return Ok(output);
        }
        let distance = take(&mut rest, 2)?;
        let distance = usize::from(u16::from_le_bytes([distance[0], distance[1]]));
        let repeated = length(&mut rest, token & 15)?;
        repeat(&mut output, distance, repeated.saturating_add(REPEAT_MIN), limit)?;
    }
    Err(Broken)
}

/// A length that begins in four bits of the token and goes on in whole bytes while they are full.
fn length(rest: &mut &[u8], begin: usize) -> Result<usize, Broken> {
    let mut length = begin;
    let mut goes_on = begin == 15;
    while goes_on {
        let byte = take(rest, 1)?[0];
        length = length.saturating_add(usize::from(byte));
        goes_on = byte == u8::MAX;
    }
    Ok(length)
}

fn take<'i>(rest: &mut &'i [u8], count: usize) -> Result<&'i [u8], Broken> {
    let (taken, left) = rest.split_at_checked(count).ok_or(Broken)?;
    *rest = left;
    Ok(taken)
}
