//! Reads of global memory that nobody has written, as far as its windows know.

use super::core::{Common, Core, FindingKind};
use super::fragment::Warp;
use super::memory::{Memory, Window};
use super::rows::{LANES, lanes};
use super::watch::{Accesses, Does, place};
use crate::program::types::Space;

/// Notes what an access writes, or finds a lane that reads what nobody wrote.
pub(super) fn look<'m, M: Memory<'m>>(core: &mut Core<'_, 'm, M>, common: &Common, warp: &Warp, what: &Accesses<'_>) {
    if matches!(what.space, Space::Shared | Space::Local | Space::Parameters) {
        return;
    }
    if let Some((window, offset)) = run(core, what) {
        if what.does != Does::Read {
            note(window, offset, what.bytes * LANES as u64);
            return;
        }
        if is_noted(window, offset, what.bytes * LANES as u64) {
            return;
        }
    }
    for lane in lanes(what.active) {
        let Some((false, address)) = place(what.space, what.addresses[lane]) else { continue };
        let Some(window) = core.windows.find(core.memory, address).filter(|window| window.written.is_some()) else {
            continue;
        };
        let offset = address - window.base;
        let bytes = what.bytes.min(window.bytes.len() as u64 - offset);
        if !matches!(what.does, Does::Write) && !is_noted(window, offset, bytes) {
            let text = "reads global memory that nobody wrote".to_owned();
            core.find_of_lane(common, warp, what.pc, (lane, address), FindingKind::UninitializedRead, text);
        }
        if what.does != Does::Read {
            note(window, offset, bytes);
        }
    }
}

/// The window with all of an access of all lanes that lie next to each other, and where they begin.
fn run<'m, M: Memory<'m>>(core: &mut Core<'_, 'm, M>, what: &Accesses<'_>) -> Option<(Window<'m>, u64)> {
    let first = what.addresses[0];
    let (mut wrong, mut next) = (u64::from(what.active != u32::MAX), first);
    for address in what.addresses {
        wrong |= address ^ next;
        next = next.wrapping_add(what.bytes);
    }
    let (false, first) = place(what.space, first).filter(|_| wrong == 0 && what.does != Does::Change)? else {
        return None;
    };
    let window = core.windows.find(core.memory, first)?;
    let (offset, bytes) = (first - window.base, what.bytes * LANES as u64);
    (window.written.is_some() && offset + bytes <= window.bytes.len() as u64).then_some((window, offset))
}

/// The bits of one byte of a window's that stand for a range, by their place.
fn masks(offset: u64, bytes: u64) -> impl Iterator<Item = (usize, u8)> {
    let end = offset + bytes;
    (offset / 8..end.div_ceil(8)).map(move |at| {
        let (from, to) = (offset.max(at * 8) - at * 8, end.min(at * 8 + 8) - at * 8);
        let mask = (1_u16 << to) - (1_u16 << from);
        (usize::try_from(at).unwrap_or(usize::MAX), mask.to_le_bytes()[0])
    })
}

fn note(window: Window<'_>, offset: u64, bytes: u64) {
    let Some(written) = window.written else { return };
    for (at, mask) in masks(offset, bytes) {
        if let Some(cell) = written.get(at) {
            cell.set(cell.get() | mask);
        }
    }
}

fn is_noted(window: Window<'_>, offset: u64, bytes: u64) -> bool {
    let Some(written) = window.written else { return true };
    masks(offset, bytes).all(|(at, mask)| written.get(at).is_none_or(|cell| cell.get() & mask == mask))
}
