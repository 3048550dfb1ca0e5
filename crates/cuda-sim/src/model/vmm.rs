//! Virtual memory management as books: reservations of addresses, physical handles, and which handle is mapped where.
//!
//! The caller owns addresses and bytes: it takes addresses before [`Vmm::reserve`], puts bytes behind a range after
//! [`Vmm::map`], and gives memory back when an answer says that a handle is gone.
//!
//! Invariants, checked by [`Vmm::is_valid`]: everything is a multiple of the granule; a mapping covers one whole handle
//! and lies in one reservation; mappings do not overlap; a handle exists while it has references or mappings, and
//! `mappings` of it counts those; `mapped_twice` counts the handles with more than one.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::memory::GRANULE;
use crate::codes::{Answer, INVALID_VALUE, NOT_SUPPORTED};

/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`, `_READ` and `_READWRITE`.
const ACCESS_FLAGS: [u32; 3] = [0, READ, READ | WRITE];

/// The bit of an access flag that lets a device read.
const READ: u32 = 1;

/// The bit of an access flag that lets a device write.
const WRITE: u32 = 2;

/// Physical memory behind a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Physical {
    pub(crate) length: u64,
    pub(crate) device: u32,
    /// `requestedHandleTypes` of the properties it was made with; none for an import.
    pub(crate) handle_types: u32,
    /// Whether another process has taken the memory from its device.
    pub(crate) is_foreign: bool,
    /// How often it was created or retained and not yet released.
    references: u64,
    mappings: u64,
}

/// A handle mapped at a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    length: u64,
    handle: u64,
    /// What each device may do; nothing where a device is missing.
    access: BTreeMap<u32, u32>,
}

/// Where a handle is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) handle: u64,
}

/// A mapping that was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped {
    pub(crate) base: u64,
    pub(crate) handle: u64,
    /// The physical memory, when nothing holds the handle any more.
    pub(crate) gone: Option<Physical>,
}

/// All books of virtual memory management.
#[derive(Debug, Default)]
pub(crate) struct Vmm {
    reservations: BTreeMap<u64, u64>,
    handles: BTreeMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    /// Handles that are mapped more than once.
    mapped_twice: usize,
}

/// The alignment that a reservation is to have.
///
/// `INVALID_VALUE`: the length is no positive multiple of the granule, the alignment no power of two, or a flag is set.
pub(crate) fn reservation_alignment(length: u64, alignment: u64, flags: u64) -> Answer<u64> {
    let good_alignment = alignment == 0 || alignment.is_power_of_two();
    if is_granular(length) && good_alignment && flags == 0 { Ok(alignment.max(GRANULE)) } else { Err(INVALID_VALUE) }
}

fn is_granular(length: u64) -> bool {
    length != 0 && length.is_multiple_of(GRANULE)
}

impl Vmm {
    /// Notes addresses as reserved.
    pub(crate) fn reserve(&mut self, base: u64, length: u64) {
        self.reservations.insert(base, length);
    }

    /// Forgets a reservation. `INVALID_VALUE`: it is not exactly one, or something is mapped in it.
    pub(crate) fn free_reservation(&mut self, base: u64, length: u64) -> Answer {
        if self.reservations.get(&base) != Some(&length) || self.mapped_within(base, length).next().is_some() {
            return Err(INVALID_VALUE);
        }
        self.reservations.remove(&base);
        Ok(())
    }

    /// Whether a handle of this length can be made: `INVALID_VALUE` unless it is a positive multiple of the granule.
    pub(crate) fn check_length(length: u64) -> Answer {
        if is_granular(length) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Notes a new handle with one reference.
    pub(crate) fn create(&mut self, handle: u64, length: u64, device: u32, handle_types: u32) {
        let physical = Physical { length, device, handle_types, is_foreign: false, references: 1, mappings: 0 };
        self.handles.insert(handle, physical);
    }

    /// Notes a handle of memory that has another handle elsewhere, with one reference.
    pub(crate) fn import(&mut self, handle: u64, length: u64, device: u32, is_foreign: bool) {
        let physical = Physical { length, device, handle_types: 0, is_foreign, references: 1, mappings: 0 };
        self.handles.insert(handle, physical);
    }

    /// What can be exported as a type. `INVALID_VALUE`: there is no such handle, or it was not made for that.
    ///
    /// As on hardware, a handle that was released can be exported while it is mapped.
    pub(crate) fn exported(&self, handle: u64, handle_type: u32) -> Answer<&Physical> {
        let made_for = |physical: &&Physical| physical.handle_types & handle_type != 0;
        self.handles.get(&handle).filter(made_for).ok_or(INVALID_VALUE)
    }

    /// What is behind a handle that the program holds. `INVALID_VALUE`: it holds none of this name.
    pub(crate) fn physical(&self, handle: u64) -> Answer<&Physical> {
        self.handles.get(&handle).filter(|physical| physical.references > 0).ok_or(INVALID_VALUE)
    }

    /// The handle mapped at an address, with one more reference. `INVALID_VALUE`: nothing is mapped there.
    pub(crate) fn retain(&mut self, address: u64) -> Answer<u64> {
        let (_, mapping) = self.mapping_at(address).ok_or(INVALID_VALUE)?;
        let handle = mapping.handle;
        let physical = self.handles.get_mut(&handle).ok_or(INVALID_VALUE)?;
        physical.references += 1;
        Ok(handle)
    }

    /// Drops one reference; says what memory is gone when it was the last one and nothing is mapped.
    ///
    /// `INVALID_VALUE`: the program holds no reference.
    pub(crate) fn release(&mut self, handle: u64) -> Answer<Option<Physical>> {
        let physical = self.handles.get_mut(&handle).filter(|physical| physical.references > 0).ok_or(INVALID_VALUE)?;
        physical.references -= 1;
        Ok(self.drop_unheld(handle))
    }

    /// Maps a whole handle.
    ///
    /// `INVALID_VALUE`: no such handle, a flag is set, the address is not aligned, the range is empty, not in one
    /// reservation or partly taken. `NOT_SUPPORTED`: the range is only a part of the handle.
    pub(crate) fn map(&mut self, base: u64, length: u64, offset: u64, handle: u64, flags: u64) -> Answer {
        let whole = self.physical(handle)?.length;
        let bad_range = flags != 0 || length == 0 || !base.is_multiple_of(GRANULE) || !self.is_reserved(base, length);
        if bad_range || self.mapped_within(base, length).next().is_some() {
            return Err(INVALID_VALUE);
        }
        if length != whole || offset != 0 {
            return Err(NOT_SUPPORTED);
        }
        self.mappings.insert(base, Mapping { length, handle, access: BTreeMap::new() });
        if let Some(physical) = self.handles.get_mut(&handle) {
            physical.mappings += 1;
            self.mapped_twice += usize::from(physical.mappings == 2);
        }
        Ok(())
    }

    /// Takes away every mapping in a range, which may have gaps.
    ///
    /// `INVALID_VALUE`: the range is empty, not aligned, not in one reservation, or cuts a mapping in two.
    pub(crate) fn unmap(&mut self, base: u64, length: u64) -> Answer<Vec<Unmapped>> {
        let aligned = base.is_multiple_of(GRANULE) && is_granular(length);
        if !aligned || !self.is_reserved(base, length) || !self.holds_whole_mappings(base, length) {
            return Err(INVALID_VALUE);
        }
        let bases: Vec<u64> = self.mapped_within(base, length).map(|(base, _)| base).collect();
        Ok(bases.into_iter().filter_map(|base| self.unmap_one(base)).collect())
    }

    fn unmap_one(&mut self, base: u64) -> Option<Unmapped> {
        let Mapping { handle, .. } = self.mappings.remove(&base)?;
        let physical = self.handles.get_mut(&handle)?;
        physical.mappings -= 1;
        self.mapped_twice -= usize::from(physical.mappings == 1);
        let gone = self.drop_unheld(handle);
        Some(Unmapped { base, handle, gone })
    }

    /// Says what devices may do with a range; the mappings in it are returned with their bases.
    ///
    /// The caller has checked that the devices exist. `INVALID_VALUE`: a flag is unknown, or the range is not made up of
    /// whole mappings without a gap; then nothing has changed.
    pub(crate) fn set_access(&mut self, base: u64, length: u64, grants: &[(u32, u32)]) -> Answer<Vec<u64>> {
        let known = grants.iter().all(|(_, flags)| ACCESS_FLAGS.contains(flags));
        let covered: u64 = self.mapped_within(base, length).map(|(_, mapping)| mapping.length).sum();
        if !known || length == 0 || covered != length || !self.holds_whole_mappings(base, length) {
            return Err(INVALID_VALUE);
        }
        let bases: Vec<u64> = self.mapped_within(base, length).map(|(base, _)| base).collect();
        for base in &bases {
            if let Some(mapping) = self.mappings.get_mut(base) {
                mapping.access.extend(grants.iter().copied());
            }
        }
        Ok(bases)
    }

    /// What a device may do at an address; the host, which is none, nothing. `INVALID_VALUE`: nothing is mapped there.
    pub(crate) fn access(&self, address: u64, device: Option<u32>) -> Answer<u32> {
        let (_, mapping) = self.mapping_at(address).ok_or(INVALID_VALUE)?;
        Ok(device.and_then(|device| mapping.access.get(&device)).copied().unwrap_or(0))
    }

    /// Whether any device may read, and whether any may write, at an address.
    pub(crate) fn allowed(&self, address: u64) -> (bool, bool) {
        let Some((_, mapping)) = self.mapping_at(address) else { return (false, false) };
        (
            mapping.access.values().any(|&flags| flags & READ != 0),
            mapping.access.values().any(|&flags| flags & WRITE != 0),
        )
    }

    /// The devices that may read at an address, a bit for each.
    pub(crate) fn granted(&self, address: u64) -> u64 {
        let Some((_, mapping)) = self.mapping_at(address) else { return 0 };
        let may_read = mapping.access.iter().filter(|(_, flags)| *flags & READ != 0);
        may_read.fold(0, |all, (device, _)| all | 1 << device)
    }

    /// The mapping that an address lies in, and where that begins.
    fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.length).then_some((base, mapping))
    }

    /// Whether any handle is mapped more than once.
    pub(crate) fn maps_any_twice(&self) -> bool {
        self.mapped_twice > 0
    }

    /// Whether a handle is mapped more than once.
    pub(crate) fn is_mapped_twice(&self, handle: u64) -> bool {
        self.handles.get(&handle).is_some_and(|physical| physical.mappings > 1)
    }

    /// The mappings that a range touches, lowest first.
    pub(crate) fn mappings_in(&self, base: u64, length: u64) -> impl Iterator<Item = Mapped> {
        let mapped = self.mapped_within(base, length);
        mapped.map(|(base, mapping)| Mapped { base, length: mapping.length, handle: mapping.handle })
    }

    /// The handle mapped at an address.
    pub(crate) fn mapped_handle(&self, address: u64) -> Option<&Physical> {
        self.handles.get(&self.mapping_at(address)?.1.handle)
    }

    /// The reservation that an address lies in, as base and length.
    pub(crate) fn reservation_at(&self, address: u64) -> Option<(u64, u64)> {
        let (&base, &length) = self.reservations.range(..=address).next_back()?;
        (address - base < length).then_some((base, length))
    }

    /// Number of reserved ranges.
    pub(crate) fn reservation_count(&self) -> usize {
        self.reservations.len()
    }

    /// Number of handles that are held or mapped.
    pub(crate) fn handle_count(&self) -> usize {
        self.handles.len()
    }

    fn is_reserved(&self, base: u64, length: u64) -> bool {
        self.reservation_at(base).is_some_and(|(start, whole)| length <= whole - (base - start))
    }

    /// Mappings that a range touches, lowest first.
    fn mapped_within(&self, base: u64, length: u64) -> impl Iterator<Item = (u64, &Mapping)> {
        let start = self.mapping_at(base).map_or(base, |(start, _)| start);
        let end = base.saturating_add(length).max(start);
        self.mappings.range(start..end).map(|(&base, mapping)| (base, mapping))
    }

    /// Whether no mapping is only partly in a range.
    fn holds_whole_mappings(&self, base: u64, length: u64) -> bool {
        let end = base.saturating_add(length);
        self.mapped_within(base, length).all(|(start, mapping)| start >= base && start + mapping.length <= end)
    }

    fn drop_unheld(&mut self, handle: u64) -> Option<Physical> {
        let unheld = self.handles.get(&handle).is_some_and(|held| held.references == 0 && held.mappings == 0);
        if unheld { self.handles.remove(&handle) } else { None }
    }

    /// Whether the invariants of the module hold.
    #[cfg(test)]
    pub(crate) fn is_valid(&self) -> bool {
        let mut end = 0;
        let mappings_are_valid = self.mappings.iter().all(|(&base, mapping)| {
            let apart = base >= std::mem::replace(&mut end, base + mapping.length);
            let whole = self.handles.get(&mapping.handle).is_some_and(|held| held.length == mapping.length);
            apart && whole && base.is_multiple_of(GRANULE) && self.is_reserved(base, mapping.length)
        });
        let handles_are_valid = self.handles.iter().all(|(handle, held)| {
            let mappings = self.mappings.values().filter(|mapping| mapping.handle == *handle).count();
            is_granular(held.length) && held.mappings == mappings as u64 && (held.references > 0 || mappings > 0)
        });
        let twice = self.handles.values().filter(|held| held.mappings > 1).count();
        mappings_are_valid && handles_are_valid && twice == self.mapped_twice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x4000_0000;

    /// Eight granules reserved, a handle of two and one of one.
    fn books() -> Vmm {
        let mut books = Vmm::default();
        books.reserve(BASE, 8 * GRANULE);
        books.create(1, 2 * GRANULE, 0, 0);
        books.create(2, GRANULE, 0, 1);
        books
    }

    fn at(granules: u64) -> u64 {
        BASE + granules * GRANULE
    }

    #[test]
    fn reservations_are_made_of_granules() {
        assert_eq!(reservation_alignment(GRANULE, 0, 0), Ok(GRANULE));
        assert_eq!(reservation_alignment(GRANULE, 4096, 0), Ok(GRANULE));
        assert_eq!(reservation_alignment(GRANULE, 4 * GRANULE, 0), Ok(4 * GRANULE));
        for (length, alignment, flags) in [(0, 0, 0), (100, 0, 0), (4096, 0, 0), (GRANULE, 3, 0), (GRANULE, 0, 1)] {
            assert_eq!(reservation_alignment(length, alignment, flags), Err(INVALID_VALUE));
        }
        assert_eq!(Vmm::check_length(GRANULE), Ok(()));
        assert_eq!(Vmm::check_length(65536), Err(INVALID_VALUE));
        assert_eq!(Vmm::check_length(0), Err(INVALID_VALUE));
    }

    #[test]
    fn only_whole_handles_are_mapped_into_reservations() {
        let mut books = books();
        for (base, length, handle, flags) in [
            (at(8), GRANULE, 2, 0),
            (at(7), 2 * GRANULE, 1, 0),
            (BASE + 4096, GRANULE, 2, 0),
            (BASE, 0, 2, 0),
            (BASE, GRANULE, 99, 0),
            (BASE, GRANULE, 2, 1),
            (0x1000_0000, GRANULE, 2, 0),
        ] {
            assert_eq!(books.map(base, length, 0, handle, flags), Err(INVALID_VALUE), "{base:#x} {length} {handle}");
        }
        for (length, offset, handle) in [(4096, 0, 2), (2 * GRANULE, 0, 2), (GRANULE, 0, 1), (GRANULE, GRANULE, 1)] {
            assert_eq!(books.map(BASE, length, offset, handle, 0), Err(NOT_SUPPORTED));
        }
        assert_eq!(books.map(BASE, 2 * GRANULE, 0, 1, 0), Ok(()));
        assert_eq!(books.map(BASE, 2 * GRANULE, 0, 1, 0), Err(INVALID_VALUE));
        assert_eq!(books.map(at(1), GRANULE, 0, 2, 0), Err(INVALID_VALUE));
        assert_eq!(books.map(at(2), 2 * GRANULE, 0, 1, 0), Ok(()));
        assert_eq!((books.reservation_count(), books.handle_count()), (1, 2));
        assert_eq!(books.mapping_at(at(3) + 5).map(|(base, mapping)| (base, mapping.handle)), Some((at(2), 1)));
        assert_eq!(books.mapped_handle(at(3)).map(|physical| physical.length), Some(2 * GRANULE));
        assert_eq!(books.mapping_at(at(4)), None);
        assert!(books.is_valid());
    }

    #[test]
    fn access_is_given_to_whole_mappings() {
        let mut books = books();
        books.map(BASE, 2 * GRANULE, 0, 1, 0).expect("free");
        books.map(at(2), GRANULE, 0, 2, 0).expect("free");
        assert_eq!(books.access(BASE, Some(0)), Ok(0));
        for (base, length, flags) in
            [(BASE, 8 * GRANULE, 3), (BASE, GRANULE, 3), (BASE, 4096, 3), (at(6), GRANULE, 3), (BASE, 2 * GRANULE, 2)]
        {
            assert_eq!(books.set_access(base, length, &[(0, flags)]), Err(INVALID_VALUE), "{base:#x} {length} {flags}");
        }
        assert_eq!(books.set_access(BASE, 0, &[(0, 3)]), Err(INVALID_VALUE));
        assert_eq!(books.set_access(BASE, 2 * GRANULE, &[(0, 3), (0, 7)]), Err(INVALID_VALUE));
        assert_eq!(books.access(BASE, Some(0)), Ok(0));
        assert_eq!(books.set_access(BASE, 3 * GRANULE, &[(0, 3), (1, 1)]), Ok(vec![BASE, at(2)]));
        assert_eq!(
            (books.access(at(1) + 9, Some(0)), books.access(at(2), Some(1)), books.access(at(2), Some(2))),
            (Ok(3), Ok(1), Ok(0))
        );
        assert_eq!((books.access(at(2), None), books.allowed(at(2))), (Ok(0), (true, true)));
        assert_eq!(books.set_access(at(2), GRANULE, &[(0, 0)]), Ok(vec![at(2)]));
        assert_eq!((books.access(at(2), Some(0)), books.access(BASE, Some(0))), (Ok(0), Ok(3)));
        assert_eq!(books.allowed(at(2)), (true, false));
        assert_eq!(books.access(at(3), Some(0)), Err(INVALID_VALUE));
        assert_eq!(books.access(0x1000, Some(0)), Err(INVALID_VALUE));
    }

    #[test]
    fn a_handle_lives_as_long_as_it_is_held_or_mapped() {
        let mut books = books();
        books.map(BASE, GRANULE, 0, 2, 0).expect("free");
        assert_eq!(books.release(2), Ok(None));
        assert_eq!(books.release(2), Err(INVALID_VALUE));
        assert_eq!(books.map(at(1), GRANULE, 0, 2, 0), Err(INVALID_VALUE));
        assert_eq!(books.physical(2), Err(INVALID_VALUE));
        assert!(books.is_valid());
        assert_eq!(books.retain(BASE + 4096), Ok(2));
        assert_eq!(books.physical(2).map(|physical| physical.handle_types), Ok(1));
        assert_eq!(books.retain(at(1)), Err(INVALID_VALUE));
        assert_eq!(books.release(2), Ok(None));
        let gone = books.unmap(BASE, GRANULE).expect("mapped");
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].gone.map(|physical| physical.length), Some(GRANULE));
        let gone = books.release(1).expect("held");
        assert_eq!(gone.map(|physical| physical.length), Some(2 * GRANULE));
        assert_eq!(books.release(0), Err(INVALID_VALUE));
        assert_eq!((books.reservation_count(), books.handle_count()), (1, 0));
        assert!(books.is_valid());
    }

    #[test]
    fn unmapping_takes_gaps_but_no_halves() {
        let mut books = books();
        books.map(BASE, 2 * GRANULE, 0, 1, 0).expect("free");
        books.map(at(4), GRANULE, 0, 2, 0).expect("free");
        for (base, length) in
            [(BASE, GRANULE), (at(1), GRANULE), (BASE + 4096, GRANULE), (BASE, 4096), (BASE, 0), (BASE, 9 * GRANULE)]
        {
            assert_eq!(books.unmap(base, length), Err(INVALID_VALUE), "{base:#x} {length}");
        }
        assert_eq!(books.unmap(at(6), GRANULE), Ok(Vec::new()));
        let gone = books.unmap(BASE, 8 * GRANULE).expect("reserved");
        assert_eq!(gone.iter().map(|unmapped| unmapped.base).collect::<Vec<_>>(), [BASE, at(4)]);
        assert!(gone.iter().all(|unmapped| unmapped.gone.is_none()));
        assert_eq!(books.unmap(BASE, 8 * GRANULE), Ok(Vec::new()));
        assert!(books.is_valid());
    }

    #[test]
    fn reservations_are_freed_as_a_whole_when_nothing_is_mapped() {
        let mut books = books();
        books.map(at(7), GRANULE, 0, 2, 0).expect("free");
        assert_eq!(books.free_reservation(BASE, 8 * GRANULE), Err(INVALID_VALUE));
        books.unmap(at(7), GRANULE).expect("mapped");
        for (base, length) in [(BASE, 4 * GRANULE), (at(1), 7 * GRANULE), (BASE, 16 * GRANULE), (BASE, 0), (0x1000, 1)]
        {
            assert_eq!(books.free_reservation(base, length), Err(INVALID_VALUE));
        }
        assert_eq!(books.free_reservation(BASE, 8 * GRANULE), Ok(()));
        assert_eq!(books.free_reservation(BASE, 8 * GRANULE), Err(INVALID_VALUE));
        assert_eq!(books.reservation_at(BASE), None);
    }

    #[test]
    fn mappings_next_to_each_other_need_one_reservation() {
        let mut books = books();
        books.reserve(at(8), GRANULE);
        assert_eq!(books.reservation_at(at(8) + 1), Some((at(8), GRANULE)));
        assert_eq!(books.map(at(7), 2 * GRANULE, 0, 1, 0), Err(INVALID_VALUE));
        assert_eq!(books.map(at(8), GRANULE, 0, 2, 0), Ok(()));
        assert!(books.is_valid());
    }
}
