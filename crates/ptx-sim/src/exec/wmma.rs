//! Loads and stores of whole matrices (`wmma`): each lane has the matrix's address and the distance of its lines.
//!
//! **Invariant:** an access is one element of every lane, or one register where elements have less than eight bits, which
//! lie next to each other then.

use super::access;
use super::core::{Common, Core};
use super::fragment::Warp;
use super::memory::Memory;
use super::reach::Stop;
use super::rows::{Base, LANES, Long};
use super::watch::{self, Accesses, Does};
use crate::program::action::WarpMatrix;
use crate::program::types::{Address, Register, Space, mask};

/// Where a matrix is in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) space: Space,
    pub(super) start: Address,
    /// Elements from the beginning of a line to that of the next one.
    pub(super) stride: Register,
    /// Whether a line is a row.
    pub(super) by_rows: bool,
}

/// The accesses to a matrix: their addresses, each with the first element's number in its lane.
struct Places {
    matrix: WarpMatrix,
    by_rows: bool,
    starts: Long,
    strides: Long,
}

impl Places {
    fn of(warp: &Warp, base: Base, matrix: WarpMatrix, lines: &Lines, active: u32) -> Self {
        let starts = access::addresses(&warp.rows, base, lines.start, active);
        let strides = warp.rows.row(base, lines.stride);
        Self { matrix, by_rows: lines.by_rows, starts, strides }
    }

    /// Elements of an access.
    fn step(&self) -> usize {
        if self.matrix.ty.bits < 8 { self.matrix.packed() } else { 1 }
    }

    /// Bytes of an access.
    fn bytes(&self) -> u64 {
        if self.matrix.ty.bits < 8 { 4 } else { self.matrix.ty.bytes() }
    }

    /// The addresses of each lane's n-th element. Lanes that do not take part have that of one which does.
    fn addresses(&self, index: usize, active: u32) -> Long {
        let mut addresses = self.starts;
        for (lane, address) in addresses.iter_mut().enumerate() {
            if active & 1 << lane != 0 {
                let (row, column) = self.matrix.place(lane, index);
                let (line, along) = if self.by_rows { (row, column) } else { (column, row) };
                let elements = self.strides[lane].wrapping_mul(line as u64).wrapping_add(along as u64);
                *address = address.wrapping_add(elements.wrapping_mul(self.matrix.ty.bits.into()) / 8);
            }
        }
        let first = addresses[(active.trailing_zeros() as usize).min(LANES - 1)];
        for (lane, address) in addresses.iter_mut().enumerate() {
            if active & 1 << lane == 0 {
                *address = first;
            }
        }
        addresses
    }
}

/// Checks an access and tells the watch of it.
fn look<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &Common,
    warp: &Warp,
    (space, addresses, bytes): (Space, &Long, u64),
    does: Does,
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    access::check_alignment(addresses, bytes, active)?;
    if core.watch.is_on() {
        watch::look(core, common, warp, &Accesses { space, addresses, bytes, does, weak: true, active, pc });
    }
    Ok(())
}

/// Loads a matrix into registers.
pub(super) fn load<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    (matrix, lines, to): (WarpMatrix, &Lines, &[Register]),
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    let places = Places::of(warp, base, matrix, lines, active);
    let (bytes, packed) = (places.bytes(), matrix.packed());
    let mut rows = vec![[0; LANES]; matrix.distinct()];
    for index in (0..matrix.held()).step_by(places.step()) {
        let at = places.addresses(index, active);
        look(core, common, warp, (lines.space, &at, bytes), Does::Read, (pc, active))?;
        let mut reach = core.reach(common, &mut warp.local);
        let loaded: Long = match bytes {
            1 => reach.load_words::<1>(lines.space, &at, active, 0)?.map(u64::from),
            2 => reach.load_words::<2>(lines.space, &at, active, 0)?.map(u64::from),
            4 => reach.load_words::<4>(lines.space, &at, active, 0)?.map(u64::from),
            _ => reach.load_longs(lines.space, &at, active, 0)?,
        };
        let shift = index % packed * usize::from(matrix.ty.bits);
        for (value, loaded) in rows[index / packed].iter_mut().zip(loaded) {
            *value |= loaded << shift;
        }
    }
    for (&to, row) in to.iter().zip(rows.iter().cycle()) {
        warp.rows.put(base, to, active, row);
    }
    Ok(())
}

/// Stores a matrix from registers. Its elements have sixteen bits at least.
pub(super) fn store<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    (matrix, lines, from): (WarpMatrix, &Lines, &[Register]),
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    let places = Places::of(warp, base, matrix, lines, active);
    let (bytes, packed) = (places.bytes(), matrix.packed());
    for index in 0..matrix.held() {
        let at = places.addresses(index, active);
        look(core, common, warp, (lines.space, &at, bytes), Does::Write, (pc, active))?;
        let shift = index % packed * usize::from(matrix.ty.bits);
        let cut = mask(matrix.ty.bits);
        let row = warp.rows.row(base, from[index / packed]).map(|value| value >> shift & cut);
        let mut reach = core.reach(common, &mut warp.local);
        #[expect(clippy::cast_possible_truncation, reason = "the values have no more bits")]
        let words = row.map(|value| value as u32);
        match bytes {
            2 => reach.store_words::<2>(lines.space, &at, active, 0, &words)?,
            4 => reach.store_words::<4>(lines.space, &at, active, 0, &words)?,
            _ => reach.store_longs(lines.space, &at, active, 0, &row)?,
        }
    }
    Ok(())
}
