//! Loads and stores of words by all lanes of a warp, the frequent ones.
//!
//! Most accesses touch one stretch of memory: words next to each other, or one word for all. These are told apart by one
//! pass over the addresses, and the bytes are copied without an address for each lane. Everything else is left to
//! `access`. Compiled once for each set of vector instructions.

#![expect(
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "compiled once for each set of vector instructions, which these loops become"
)]
#![expect(clippy::cast_possible_truncation, reason = "offsets are inside a slice")]

use std::cell::Cell;

use super::core::{Common, Core};
use super::fragment::Warp;
use super::memory::Memory;
use super::op::WordAccess;
use super::rows::{Base, LANES, Rows, Word, put};
use super::watch::{self, Accesses, Does};
use crate::program::action::{Action, Load, Order};

/// Bytes of a word.
const WORD: u64 = 4;

/// Loads a parameter into some lanes; false if there is none.
#[inline(always)]
pub(super) fn parameter(
    parameters: &[u8],
    rows: &mut Rows,
    base: Base,
    (to, long, offset): (u16, bool, u16),
    lanes: u32,
) -> bool {
    let Some(bytes) = parameters.get(usize::from(offset)..) else { return false };
    let to = usize::from(to);
    if long {
        let Some(value) = bytes.first_chunk() else { return false };
        put(&mut rows.longs[base.longs as usize + to], [u64::from_le_bytes(*value); LANES], lanes);
    } else {
        let Some(value) = bytes.first_chunk() else { return false };
        put(&mut rows.words[base.words as usize + to], [u32::from_le_bytes(*value); LANES], lanes);
    }
    true
}

/// Looks at such a load before it is done; false if that is not done here.
#[inline(never)]
pub(super) fn watch_load<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &Common,
    warp: &Warp,
    base: Base,
    (what, pc): (WordAccess, u32),
) -> bool {
    let Action::Load(Load { order: Order::Weak, space, .. }) = core.launch.program.actions[pc as usize] else {
        return false;
    };
    let addresses = if what.shared {
        let row = &warp.rows.words[base.words as usize + usize::from(what.base)];
        row.map(|address| u64::from(address.wrapping_add_signed(what.offset)))
    } else {
        let row = &warp.rows.longs[base.longs as usize + usize::from(what.base)];
        row.map(|address| address.wrapping_add_signed(i64::from(what.offset)))
    };
    if addresses.iter().fold(0, |all, address| all | address) % WORD != 0 {
        return false;
    }
    let (bytes, does, active) = (WORD, Does::Read, u32::MAX);
    watch::look(core, common, warp, &Accesses { space, addresses: &addresses, bytes, does, weak: true, active, pc });
    true
}

/// Loads a word for each lane; false if that is not done here.
#[inline(always)]
pub(super) fn load<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    what: WordAccess,
) -> bool {
    let words = base.words as usize;
    let to = words + usize::from(what.row);
    if what.shared {
        let addresses = &warp.rows.words[words + usize::from(what.base)];
        let Some(offsets) = shared_offsets(addresses, what.offset, common.shared.len()) else { return false };
        let cells = Cell::from_mut(&mut common.shared[..]).as_slice_of_cells();
        return gather(cells, &offsets, &mut warp.rows.words[to]);
    }
    let addresses = &warp.rows.longs[base.longs as usize + usize::from(what.base)];
    let first = addresses[0];
    let start = first.wrapping_add_signed(i64::from(what.offset));
    let Some((cells, origin, _)) = core.windows.find_cells(core.memory, start) else { return false };
    if is_run(addresses) {
        let Some(run) = run_of(cells, start - origin) else { return false };
        copy_in(run, &mut warp.rows.words[to]);
        return true;
    }
    let Some(offsets) = offsets(addresses, what.offset, origin, cells.len()) else { return false };
    gather(cells, &offsets, &mut warp.rows.words[to])
}

/// Stores a word of each lane; false if that is not done here.
#[inline(always)]
pub(super) fn store<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    what: WordAccess,
) -> bool {
    let words = base.words as usize;
    let row = &warp.rows.words[words + usize::from(what.row)];
    if what.shared {
        let addresses = &warp.rows.words[words + usize::from(what.base)];
        let Some(offsets) = shared_offsets(addresses, what.offset, common.shared.len()) else { return false };
        let cells = Cell::from_mut(&mut common.shared[..]).as_slice_of_cells();
        return scatter(cells, &offsets, row);
    }
    let addresses = &warp.rows.longs[base.longs as usize + usize::from(what.base)];
    let start = addresses[0].wrapping_add_signed(i64::from(what.offset));
    let Some((cells, origin, true)) = core.windows.find_cells(core.memory, start) else { return false };
    if is_run(addresses) {
        let Some(run) = run_of(cells, start - origin) else { return false };
        copy_out(row, run);
        return true;
    }
    let Some(offsets) = offsets(addresses, what.offset, origin, cells.len()) else { return false };
    scatter(cells, &offsets, row)
}

/// Whether the addresses are those of words next to each other.
#[inline(always)]
fn is_run(addresses: &[u64; LANES]) -> bool {
    let (first, mut wrong) = (addresses[0], 0);
    for lane in 0..LANES {
        wrong |= addresses[lane] ^ first.wrapping_add(lane as u64 * WORD);
    }
    wrong == 0
}

/// The bytes of a run that begins at an offset; none where they are not all there or not aligned.
#[inline(always)]
fn run_of(cells: &[Cell<u8>], offset: u64) -> Option<&[Cell<u8>]> {
    let start = usize::try_from(offset).ok().filter(|start| start.is_multiple_of(4))?;
    cells.get(start..start.checked_add(LANES * 4)?)
}

#[inline(always)]
fn copy_in(run: &[Cell<u8>], to: &mut Word) {
    for (word, bytes) in to.iter_mut().zip(run.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0].get(), bytes[1].get(), bytes[2].get(), bytes[3].get()]);
    }
}

#[inline(always)]
fn copy_out(row: &Word, run: &[Cell<u8>]) {
    for (word, bytes) in row.iter().zip(run.chunks_exact(4)) {
        set(bytes, *word);
    }
}

#[inline(always)]
fn set(bytes: &[Cell<u8>], word: u32) {
    for (cell, byte) in bytes.iter().zip(word.to_le_bytes()) {
        cell.set(byte);
    }
}

/// Offsets in shared memory; none where one is outside or not aligned.
#[inline(always)]
fn shared_offsets(addresses: &Word, distance: i32, bytes: usize) -> Option<Word> {
    let (mut offsets, mut all, mut last) = ([0; LANES], 0, 0);
    for lane in 0..LANES {
        offsets[lane] = addresses[lane].wrapping_add_signed(distance);
        all |= offsets[lane];
        last = last.max(offsets[lane]);
    }
    (all.is_multiple_of(4) && last as usize + 4 <= bytes).then_some(offsets)
}

/// Offsets in a window; none where one is outside or not aligned, or the window is large.
#[inline(always)]
fn offsets(addresses: &[u64; LANES], distance: i32, origin: u64, bytes: usize) -> Option<Word> {
    let shift = origin.wrapping_sub(i64::from(distance).cast_unsigned());
    let (mut offsets, mut all, mut last) = ([0; LANES], 0, 0);
    for lane in 0..LANES {
        let offset = addresses[lane].wrapping_sub(shift);
        offsets[lane] = offset as u32;
        all |= offset;
        last = last.max(offset);
    }
    // An offset beyond 32 bits shows in `all`.
    (all.is_multiple_of(4) && all >> 32 == 0 && last as usize + 4 <= bytes).then_some(offsets)
}

#[inline(always)]
fn gather(cells: &[Cell<u8>], offsets: &Word, to: &mut Word) -> bool {
    for lane in 0..LANES {
        let Some(bytes) = cells.get(offsets[lane] as usize..).and_then(<[_]>::first_chunk::<4>) else { return false };
        to[lane] = u32::from_le_bytes([bytes[0].get(), bytes[1].get(), bytes[2].get(), bytes[3].get()]);
    }
    true
}

#[inline(always)]
fn scatter(cells: &[Cell<u8>], offsets: &Word, row: &Word) -> bool {
    for lane in 0..LANES {
        let Some(bytes) = cells.get(offsets[lane] as usize..).and_then(<[_]>::first_chunk::<4>) else { return false };
        set(bytes, row[lane]);
    }
    true
}
