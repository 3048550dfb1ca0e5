//! Loads, stores and atomic instructions of a warp.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each function does a few instructions, of which its caller chose one"
)]

use super::core::{Common, Core};
use super::fragment::Warp;
use super::memory::{Fault, Memory};
use super::poll::Reading;
use super::reach::{Stop, space_of};
use super::rows::{Base, LANES, Long, Rows, Word, lanes};
use super::watch::{self, Accesses, Does};
use crate::arith;
use crate::program::action::{Action, Atomic, AtomicOp, Load, Order, Store};
use crate::program::types::{Address, Space, Type, mask};

/// Does the load, store or atomic instruction at a program counter.
pub(super) fn access<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    let program = core.launch.program;
    let done = match &program.actions[pc as usize] {
        Action::Load(what) => load(core, common, warp, base, what, (pc, active)),
        Action::Store(what) => store(core, common, warp, base, what, (pc, active)),
        Action::Atomic(what) => atomic(core, common, warp, base, what, (pc, active)),
        _ => Ok(()),
    };
    core.find_noticed(common, warp, pc);
    done
}

/// The addresses of all lanes; of those that are not active that of one which is.
#[inline]
pub(super) fn addresses(rows: &Rows, base: Base, address: Address, active: u32) -> Long {
    let mut row = rows.row(base, address.base);
    let offset = address.offset.cast_unsigned();
    // Addresses of 32 bits stay inside their space.
    let cut = mask(address.base.bits);
    for value in &mut row {
        *value = value.wrapping_add(offset) & cut;
    }
    if active != u32::MAX {
        let first = row[(active.trailing_zeros() as usize).min(LANES - 1)];
        for (lane, value) in row.iter_mut().enumerate() {
            if active & 1 << lane == 0 {
                *value = first;
            }
        }
    }
    row
}

/// Refuses addresses that are no multiples of a size.
#[inline]
pub(super) fn check_alignment(addresses: &Long, bytes: u64, active: u32) -> Result<(), Stop> {
    let all = addresses.iter().fold(0, |all, address| all | address);
    if all & (bytes - 1) == 0 {
        return Ok(());
    }
    let wrong = lanes(active).find(|&lane| addresses[lane] & (bytes - 1) != 0);
    let lane = wrong.unwrap_or(0);
    Err(Stop { fault: Fault::Misaligned, lane, address: addresses[lane] })
}

fn load<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    what: &Load,
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    let at = addresses(&warp.rows, base, what.from, active);
    let bytes = what.ty.bytes();
    let all = bytes * what.to.len() as u64;
    check_alignment(&at, all, active)?;
    if core.watch.is_on() {
        let (does, weak) = (Does::Read, what.order == Order::Weak);
        let accesses = Accesses { space: what.space, addresses: &at, bytes: all, does, weak, active, pc };
        watch::look(core, common, warp, &accesses);
    }
    let first = (active.trailing_zeros() as usize).min(LANES - 1);
    let mut read = 0_u64;
    let mut reach = core.reach(common, &mut warp.local);
    for (skip, to) in skips(bytes).zip(&what.to) {
        let Some(to) = *to else { continue };
        if bytes == 8 {
            let row = reach.load_longs(what.space, &at, active, skip)?;
            read = read.rotate_left(7) ^ row[first];
            warp.rows.put(base, to, active, &row);
            continue;
        }
        let row: Word = match bytes {
            1 => reach.load_words::<1>(what.space, &at, active, skip)?,
            2 => reach.load_words::<2>(what.space, &at, active, skip)?,
            _ => reach.load_words::<4>(what.space, &at, active, skip)?,
        };
        read = read.rotate_left(7) ^ u64::from(row[first]);
        if to.bits == 32 && !(what.ty.is_signed() && bytes < 4) {
            warp.rows.put_words(base, to, active, row);
        } else {
            warp.rows.put(base, to, active, &row.map(|value| widen(u64::from(value), what.ty)));
        }
    }
    if what.order != Order::Weak && is_seen(what.space) {
        warp.polls.read(Reading { pc, lane: first, address: at[first], value: read });
    }
    Ok(())
}

/// Whether other blocks see what is written to a space. Of a generic address it is not looked at which space it is in.
fn is_seen(space: Space) -> bool {
    matches!(space, Space::Global | Space::Generic)
}

/// How far the values of a vector are from its address.
fn skips(bytes: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |index| index * bytes)
}

/// A value of a type with its sign continued to 64 bits.
fn widen(value: u64, ty: Type) -> u64 {
    if !ty.is_signed() {
        return value;
    }
    let unused = 64 - u32::from(ty.bits);
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}

fn store<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    what: &Store,
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    let at = addresses(&warp.rows, base, what.to, active);
    let bytes = what.ty.bytes();
    let all = bytes * what.from.len() as u64;
    check_alignment(&at, all, active)?;
    if core.watch.is_on() {
        let (does, weak) = (Does::Write, what.order == Order::Weak);
        let accesses = Accesses { space: what.space, addresses: &at, bytes: all, does, weak, active, pc };
        let mut wrong = watch::find(core, common, warp, &accesses);
        if !wrong.is_empty() {
            let same = unchanged(core, common, warp, base, what, &at, active);
            wrong.retain(|wrong| !(wrong.is_race() && same & 1 << wrong.lane != 0));
            watch::tell(core, common, warp, &accesses, &wrong);
        }
    }
    let mut reach = core.reach(common, &mut warp.local);
    for (skip, from) in skips(bytes).zip(&what.from) {
        match bytes {
            8 => reach.store_longs(what.space, &at, active, skip, &warp.rows.row(base, *from))?,
            1 => reach.store_words::<1>(what.space, &at, active, skip, &warp.rows.word(base, *from))?,
            2 => reach.store_words::<2>(what.space, &at, active, skip, &warp.rows.word(base, *from))?,
            _ => reach.store_words::<4>(what.space, &at, active, skip, &warp.rows.word(base, *from))?,
        }
    }
    if is_seen(what.space) {
        core.note_write(warp);
    }
    Ok(())
}

/// The lanes that store what is there already: two threads that do so do not disagree.
fn unchanged<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    what: &Store,
    at: &Long,
    active: u32,
) -> u32 {
    let bytes = what.ty.bytes();
    let mut same = 0;
    for lane in lanes(active) {
        let is_same = skips(bytes).zip(&what.from).all(|(skip, &from)| {
            let value = warp.rows.get(base, from, lane) & mask(what.ty.register_bits());
            let there =
                core.reach(common, &mut warp.local).load_lane(what.space, at[lane].wrapping_add(skip), bytes, lane);
            there == Ok(value)
        });
        same |= u32::from(is_same) << lane;
    }
    same
}

fn atomic<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    what: &Atomic,
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    let at = addresses(&warp.rows, base, what.at, active);
    let bytes = what.ty.bytes();
    let all = bytes * what.values.len() as u64;
    check_alignment(&at, all, active)?;
    if core.watch.is_on() {
        let accesses =
            Accesses { space: what.space, addresses: &at, bytes: all, does: Does::Change, weak: false, active, pc };
        watch::look(core, common, warp, &accesses);
    }
    let mut reach = core.reach(common, &mut warp.local);
    if what.op == AtomicOp::Add && what.ty.bits == 32 && what.ty.is_integer() && what.values.len() == 1 {
        let values = warp.rows.word(base, what.values[0]);
        if let Some(old) = reach.change_words(what.space, &at, active, |old, lane| old.wrapping_add(values[lane])) {
            if let Some(Some(to)) = what.to.first() {
                warp.rows.put_words(base, *to, active, old);
            }
            let first = (active.trailing_zeros() as usize).min(LANES - 1);
            let changes = lanes(active).any(|lane| values[lane] != 0);
            let reading = Reading { pc, lane: first, address: at[first], value: old[first].into() };
            note_atomic(core, warp, what.space, changes, reading);
            return Ok(());
        }
    }
    let (mut changes, mut read) = (false, 0_u64);
    for lane in lanes(active) {
        for (index, (&value, skip)) in what.values.iter().zip(skips(bytes)).enumerate() {
            let address = at[lane].wrapping_add(skip);
            let value = warp.rows.get(base, value, lane) & mask(what.ty.register_bits());
            let swap = what.swap.map_or(0, |swap| warp.rows.get(base, swap, lane)) & mask(what.ty.register_bits());
            let space = if what.space == Space::Generic { space_of(address) } else { what.space };
            let change = |old| arith::atomic(what.op, what.ty, space == Space::Global, old, value, swap);
            let (old, new) = reach.change_lane(what.space, address, bytes, lane, change)?;
            (changes, read) = (changes || new != old, read.rotate_left(7) ^ old);
            if let Some(Some(to)) = what.to.get(index) {
                warp.rows.set(base, *to, lane, old);
            }
        }
    }
    let first = (active.trailing_zeros() as usize).min(LANES - 1);
    note_atomic(core, warp, what.space, changes, Reading { pc, lane: first, address: at[first], value: read });
    Ok(())
}

/// Notes an atomic instruction: one that leaves memory as it was is a reading.
fn note_atomic<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    warp: &mut Warp,
    space: Space,
    changes: bool,
    reading: Reading,
) {
    match (is_seen(space), changes) {
        (true, true) => core.note_write(warp),
        (true, false) => warp.polls.read(reading),
        (false, _) => {}
    }
}
