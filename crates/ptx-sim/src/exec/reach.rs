//! The memory that a warp reaches: of the device, of its block, of its threads, and the parameters of the launch.
//!
//! An access of a warp is one look-up where all its lanes fall into one window; otherwise lane after lane.
//!
//! **Invariants:** bytes of the device are touched only inside a window or by asking [`Memory`]. Lanes that do not take
//! part touch nothing: their addresses are replaced by one of a lane that does.

#![expect(clippy::wildcard_enum_match_arm, reason = "a number has many values")]

use std::cell::Cell;

use super::memory::{Fault, Memory, Notice, Window};
use super::rows::{LANES, Long, Word, lanes};
use crate::program::types::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, Space, WINDOW_BYTES};

/// Windows that are remembered, since threads touch the same ones again and again.
const WINDOWS: usize = 6;

/// A fault, and the lane and address that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) fault: Fault,
    pub(crate) lane: usize,
    pub(crate) address: u64,
}

/// The windows found last.
#[derive(Debug, Default)]
pub(crate) struct Windows<'m>(Vec<Window<'m>>);

impl<'m> Windows<'m> {
    /// The bytes of the window that an address is in, its beginning, and whether they may be written.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of each quick access")]
    pub(crate) fn find_cells(
        &mut self,
        memory: &mut impl Memory<'m>,
        address: u64,
    ) -> Option<(&'m [Cell<u8>], u64, bool)> {
        for window in &self.0 {
            if address.wrapping_sub(window.base) < window.bytes.len() as u64 {
                return Some((window.bytes, window.base, window.writable));
            }
        }
        let found = self.find(memory, address)?;
        Some((found.bytes, found.base, found.writable))
    }

    /// The window that an address is in.
    #[inline]
    pub(crate) fn find(&mut self, memory: &mut impl Memory<'m>, address: u64) -> Option<Window<'m>> {
        let holds = |window: &Window<'_>| address.wrapping_sub(window.base) < window.bytes.len() as u64;
        if let Some(window) = self.0.iter().find(|window| holds(window)) {
            return Some(*window);
        }
        let found = memory.window(address)?;
        self.0.truncate(WINDOWS - 1);
        self.0.insert(0, found);
        Some(found)
    }
}

/// The memory of threads: so many bytes for each lane.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of a lane.
    pub(crate) stride: usize,
}

/// The most bytes of local memory of a thread.
const MAX_LOCAL_BYTES: usize = 1 << 19;

impl Local {
    /// Gives each lane so many bytes at least; false if that is more than it may have.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        if bytes <= self.stride {
            return true;
        }
        if bytes > MAX_LOCAL_BYTES {
            return false;
        }
        let stride = bytes.next_power_of_two().max(64);
        let mut grown = vec![0; stride * LANES];
        for lane in 0..LANES {
            let old = &self.bytes[lane * self.stride..(lane + 1) * self.stride];
            grown[lane * stride..][..self.stride].copy_from_slice(old);
        }
        (self.bytes, self.stride) = (grown, stride);
        true
    }
}

/// Everything that an access of a warp can touch.
pub(crate) struct Reach<'a, 'm, M> {
    pub(crate) memory: &'a mut M,
    pub(crate) windows: &'a mut Windows<'m>,
    pub(crate) shared: &'a mut [u8],
    pub(crate) local: &'a mut Local,
    pub(crate) parameters: &'a mut [u8],
    pub(crate) notices: &'a mut Vec<(usize, u64, Notice)>,
}

/// Bytes, and where in them each lane's access begins.
struct Spot<'c> {
    cells: &'c [Cell<u8>],
    offsets: Long,
    writable: bool,
    is_shared: bool,
}

impl<'m, M: Memory<'m>> Reach<'_, 'm, M> {
    /// Bytes that hold all accesses of `size` bytes; none where each lane has to be looked at.
    #[inline]
    fn spot(&mut self, space: Space, addresses: &Long, size: u64) -> Option<Spot<'_>> {
        let space = match space {
            Space::Generic => uniform_space(addresses)?,
            other => other,
        };
        let mut is_shared = false;
        let (cells, base, writable): (&[Cell<u8>], u64, bool) = match space {
            Space::Generic | Space::Global => {
                let window = self.windows.find(self.memory, addresses[0])?;
                is_shared = window.is_shared;
                (window.bytes, window.base, window.writable)
            }
            Space::Shared => (cells(self.shared), addresses[0] & !(SHARED_WINDOW - 1), true),
            Space::Parameters => (cells(self.parameters), addresses[0] & !(SHARED_WINDOW - 1), false),
            Space::Local => {
                let (stride, mut offsets) = (self.local.stride as u64, *addresses);
                for (lane, offset) in (0_u64..).zip(&mut offsets) {
                    let inside = inside(*offset);
                    if inside.saturating_add(size) > stride {
                        return None;
                    }
                    *offset = lane * stride + inside;
                }
                return Some(Spot { cells: cells(&mut self.local.bytes), offsets, writable: true, is_shared: false });
            }
        };
        let (mut offsets, mut last) = ([0; LANES], 0);
        for lane in 0..LANES {
            offsets[lane] = addresses[lane].wrapping_sub(base);
            last = last.max(offsets[lane]);
        }
        let fits = last.checked_add(size).is_some_and(|end| end <= cells.len() as u64);
        fits.then_some(Spot { cells, offsets, writable, is_shared })
    }

    /// Reads a word of `B` bytes for each lane, `skip` bytes behind its address.
    #[inline]
    pub(crate) fn load_words<const B: usize>(
        &mut self,
        space: Space,
        addresses: &Long,
        active: u32,
        skip: u64,
    ) -> Result<Word, Stop> {
        if let Some(spot) = self.spot(space, addresses, skip + B as u64) {
            return Ok(gather(spot.cells, &spot.offsets, skip, |bytes: [u8; B]| {
                let mut word = [0; 4];
                word[..B].copy_from_slice(&bytes);
                u32::from_le_bytes(word)
            }));
        }
        let mut row = [0; LANES];
        for lane in lanes(active) {
            let value = self.load_lane(space, addresses[lane].wrapping_add(skip), B as u64, lane)?;
            #[expect(clippy::cast_possible_truncation, reason = "no more than 4 bytes were read")]
            let value = value as u32;
            row[lane] = value;
        }
        Ok(row)
    }

    /// Reads 8 bytes for each lane.
    #[inline]
    pub(crate) fn load_longs(&mut self, space: Space, addresses: &Long, active: u32, skip: u64) -> Result<Long, Stop> {
        if let Some(spot) = self.spot(space, addresses, skip + 8) {
            return Ok(gather(spot.cells, &spot.offsets, skip, u64::from_le_bytes));
        }
        let mut row = [0; LANES];
        for lane in lanes(active) {
            row[lane] = self.load_lane(space, addresses[lane].wrapping_add(skip), 8, lane)?;
        }
        Ok(row)
    }

    /// Writes `B` bytes of each lane's word.
    #[inline]
    pub(crate) fn store_words<const B: usize>(
        &mut self,
        space: Space,
        addresses: &Long,
        active: u32,
        skip: u64,
        row: &Word,
    ) -> Result<(), Stop> {
        if let Some(spot) = self.spot(space, addresses, skip + B as u64)
            && spot.writable
        {
            scatter(spot.cells, &spot.offsets, skip, active, |lane| {
                let mut bytes = [0; B];
                bytes.copy_from_slice(&row[lane].to_le_bytes()[..B]);
                bytes
            });
            return Ok(());
        }
        for lane in lanes(active) {
            self.store_lane(space, addresses[lane].wrapping_add(skip), B as u64, lane, u64::from(row[lane]))?;
        }
        Ok(())
    }

    /// Writes 8 bytes of each lane.
    #[inline]
    pub(crate) fn store_longs(
        &mut self,
        space: Space,
        addresses: &Long,
        active: u32,
        skip: u64,
        row: &Long,
    ) -> Result<(), Stop> {
        if let Some(spot) = self.spot(space, addresses, skip + 8)
            && spot.writable
        {
            scatter(spot.cells, &spot.offsets, skip, active, |lane| row[lane].to_le_bytes());
            return Ok(());
        }
        for lane in lanes(active) {
            self.store_lane(space, addresses[lane].wrapping_add(skip), 8, lane, row[lane])?;
        }
        Ok(())
    }

    /// Changes a 32-bit word in each lane, lane by lane, and returns the old words; `None` if lanes must be handled one
    /// by one ([`Self::change_lane`]).
    #[inline]
    pub(crate) fn change_words(
        &mut self,
        space: Space,
        addresses: &Long,
        active: u32,
        change: impl Fn(u32, usize) -> u32,
    ) -> Option<Word> {
        let spot = self.spot(space, addresses, 4)?;
        if !spot.writable || spot.is_shared {
            return None;
        }
        let mut old = [0; LANES];
        for lane in lanes(active) {
            let at = usize::try_from(spot.offsets[lane]).ok()?;
            let word = spot.cells.get(at..at + 4)?;
            old[lane] = u32::from_le_bytes([word[0].get(), word[1].get(), word[2].get(), word[3].get()]);
            write(word, change(old[lane], lane).to_le_bytes());
        }
        Some(old)
    }

    /// Reads 1, 2, 4 or 8 bytes of one lane.
    pub(crate) fn load_lane(&mut self, space: Space, address: u64, bytes: u64, lane: usize) -> Result<u64, Stop> {
        let stop = |fault| Stop { fault, lane, address };
        match self.one(space, address, bytes, lane) {
            One::Bytes(cells, _) => {
                let mut value = [0; 8];
                cells.iter().zip(&mut value).for_each(|(cell, byte)| *byte = cell.get());
                Ok(u64::from_le_bytes(value))
            }
            One::Ask => {
                let value = self.memory.load(address, bytes).map_err(stop);
                self.notice(address, lane);
                value
            }
            One::Missing => Err(stop(Fault::Address)),
        }
    }

    /// Writes 1, 2, 4 or 8 bytes of one lane.
    pub(crate) fn store_lane(
        &mut self,
        space: Space,
        address: u64,
        bytes: u64,
        lane: usize,
        value: u64,
    ) -> Result<(), Stop> {
        let stop = |fault| Stop { fault, lane, address };
        match self.one(space, address, bytes, lane) {
            One::Bytes(cells, true) => {
                cells.iter().zip(value.to_le_bytes()).for_each(|(cell, byte)| cell.set(byte));
                Ok(())
            }
            One::Ask => {
                let done = self.memory.store(address, bytes, value).map_err(stop);
                self.notice(address, lane);
                done
            }
            One::Bytes(_, false) | One::Missing => Err(stop(Fault::Address)),
        }
    }

    /// Changes 1, 2, 4 or 8 bytes of one lane, atomically if others may change them; returns the old and the new value.
    pub(crate) fn change_lane(
        &mut self,
        space: Space,
        address: u64,
        bytes: u64,
        lane: usize,
        change: impl Fn(u64) -> u64,
    ) -> Result<(u64, u64), Stop> {
        let is_global =
            matches!(space, Space::Global) || (space == Space::Generic && space_of(address) == Space::Global);
        let mut old = self.load_lane(space, address, bytes, lane)?;
        if !is_global || !self.windows.find(self.memory, address).is_some_and(|window| window.is_shared) {
            let new = change(old);
            self.store_lane(space, address, bytes, lane, new)?;
            return Ok((old, new));
        }
        loop {
            let new = change(old);
            let found = self.memory.exchange(address, bytes, old, new);
            self.notice(address, lane);
            let found = found.map_err(|fault| Stop { fault, lane, address })?;
            if found == old {
                return Ok((old, new));
            }
            old = found;
        }
    }

    /// Keeps what the memory noticed in the access of a lane.
    fn notice(&mut self, address: u64, lane: usize) {
        self.notices.extend(self.memory.noticed().map(|notice| (lane, address, notice)));
    }

    fn one(&mut self, space: Space, address: u64, bytes: u64, lane: usize) -> One<'_> {
        let space = if space == Space::Generic { space_of(address) } else { space };
        let inside = inside(address);
        let (cells, start, writable) = match space {
            Space::Generic => return One::Missing,
            Space::Global => match self.windows.find(self.memory, address) {
                Some(window) => (window.bytes, address - window.base, window.writable),
                None => return One::Ask,
            },
            Space::Shared => (cells(self.shared), inside, true),
            Space::Parameters => (cells(self.parameters), inside, false),
            Space::Local => {
                let stride = self.local.stride;
                (cells(&mut self.local.bytes[lane * stride..(lane + 1) * stride]), inside, true)
            }
        };
        let Ok(start) = usize::try_from(start) else { return One::Missing };
        let end = start.saturating_add(usize::try_from(bytes).unwrap_or(8));
        match cells.get(start..end) {
            Some(cells) => One::Bytes(cells, writable),
            None if space == Space::Global => One::Ask,
            None => One::Missing,
        }
    }
}

/// Where the access of one lane is.
enum One<'c> {
    /// Here; whether it may be written.
    Bytes(&'c [Cell<u8>], bool),
    /// In no window.
    Ask,
    /// Nowhere.
    Missing,
}

fn cells(bytes: &mut [u8]) -> &[Cell<u8>] {
    Cell::from_mut(bytes).as_slice_of_cells()
}

/// How far an address is inside its window; addresses of a space count from its beginning already.
fn inside(address: u64) -> u64 {
    if address < SHARED_WINDOW { address } else { address & (WINDOW_BYTES - 1) }
}

/// The space of a generic address.
pub(crate) fn space_of(address: u64) -> Space {
    match address {
        ..SHARED_WINDOW => Space::Global,
        _ if address - SHARED_WINDOW < WINDOW_BYTES => Space::Shared,
        _ if address.wrapping_sub(LOCAL_WINDOW) < WINDOW_BYTES => Space::Local,
        _ if address.wrapping_sub(PARAMETER_WINDOW) < WINDOW_BYTES => Space::Parameters,
        _ => Space::Generic,
    }
}

/// The space that all addresses are of.
#[inline]
fn uniform_space(addresses: &Long) -> Option<Space> {
    let (mut any, mut all) = (0, u64::MAX);
    for address in addresses {
        any |= address;
        all &= address;
    }
    let window = !(WINDOW_BYTES - 1);
    match any {
        ..SHARED_WINDOW => Some(Space::Global),
        _ if any & window == all & window => match space_of(any) {
            Space::Generic => None,
            space => Some(space),
        },
        _ => None,
    }
}

#[inline]
fn bytes_at<const B: usize>(cells: &[Cell<u8>]) -> [u8; B] {
    let mut bytes = [0; B];
    for (byte, cell) in bytes.iter_mut().zip(cells) {
        *byte = cell.get();
    }
    bytes
}

#[inline]
fn write<const B: usize>(cells: &[Cell<u8>], bytes: [u8; B]) {
    for (cell, byte) in cells.iter().zip(bytes) {
        cell.set(byte);
    }
}

/// Whether lanes access bytes right behind each other's.
#[inline]
fn is_row<const B: usize>(offsets: &Long) -> bool {
    let (mut wrong, first) = (0, offsets[0]);
    for (lane, offset) in (0_u64..).zip(offsets) {
        wrong |= offset ^ (first + lane * B as u64);
    }
    wrong == 0
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "offsets are inside a slice")]
fn gather<const B: usize, T: Copy + Default>(
    cells: &[Cell<u8>],
    offsets: &Long,
    skip: u64,
    value: impl Fn([u8; B]) -> T,
) -> [T; LANES] {
    let mut row = [T::default(); LANES];
    if is_row::<B>(offsets) {
        let run = &cells[(offsets[0] + skip) as usize..][..LANES * B];
        for (value_of, bytes) in row.iter_mut().zip(run.chunks_exact(B)) {
            *value_of = value(bytes_at(bytes));
        }
    } else {
        for (value_of, offset) in row.iter_mut().zip(offsets) {
            *value_of = value(bytes_at(&cells[(offset + skip) as usize..][..B]));
        }
    }
    row
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "offsets are inside a slice")]
fn scatter<const B: usize>(
    cells: &[Cell<u8>],
    offsets: &Long,
    skip: u64,
    active: u32,
    value: impl Fn(usize) -> [u8; B],
) {
    if active == u32::MAX && is_row::<B>(offsets) {
        let run = &cells[(offsets[0] + skip) as usize..][..LANES * B];
        for (lane, bytes) in run.chunks_exact(B).enumerate() {
            write(bytes, value(lane));
        }
    } else {
        for lane in lanes(active) {
            write(&cells[(offsets[lane] + skip) as usize..][..B], value(lane));
        }
    }
}
