//! What is handed out: from an address to what has to be known when it comes back.
//!
//! Cut by address into parts, each behind a lock of its own, so that threads seldom wait for each other. A part is a table
//! in which a place is looked for from where the address belongs, one after another, and which is at most half full.
//!
//! The limit of a device is about a sum over all parts. Only while there is one, the sum is kept in one word for all
//! threads, so that requests without a limit write to one part each and nothing else that is shared.
//!
//! **Invariants:** an address is in the part that its hash names, while it is handed out and not longer, and no free place
//! lies between where it belongs and where it is. The sums of increases less those of decreases are what is handed out,
//! until they are reset. While a device has a limit, its word is the sum of what is handed out and of what is reserved; a
//! limit is set and removed under the locks of all parts.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::caching::Owner;
use crate::sync::spin_lock::{SpinGuard, SpinLock};

/// Number of parts, a power of two.
const PARTS: usize = 64;
/// The bits of a hash that choose the part.
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Places of a part at first, a power of two.
const FIRST_PLACES: usize = 16;

/// Memory that is handed out. Three words: two places of a table are on one cache line.
#[derive(Debug)]
pub(super) struct Live {
    handle: StreamHandle,
    /// What is true of few.
    special: Option<Box<Special>>,
    /// The bytes that were asked for, the device and the owner, from the highest bit down. No device has 2^48 bytes.
    packed: u64,
}

/// Bits of the device and of the owner.
const DEVICE_BITS: u32 = 14;
const OWNER_BITS: u32 = 1;

#[derive(Debug, Default)]
struct Special {
    /// Number of the capture in which the memory was allocated, 0 for none.
    capture: u64,
    /// Other streams that it is used on.
    uses: Vec<StreamRef>,
}

impl Default for Live {
    /// What a free place of a table has.
    fn default() -> Self {
        Self { handle: StreamHandle(0), special: None, packed: 0 }
    }
}

impl Live {
    /// Memory that was allocated on a stream, in a capture if its number is not 0.
    #[inline]
    pub(super) fn new(stream: StreamRef, bytes: u64, owner: Owner, capture: u64) -> Self {
        let special = if capture == 0 { None } else { Some(Box::new(Special { capture, uses: Vec::new() })) };
        let device = u64::from(stream.device.cast_unsigned());
        let is_buffer = u64::from(owner == Owner::Buffer);
        let packed = bytes << (DEVICE_BITS + OWNER_BITS) | device << OWNER_BITS | is_buffer;
        Self { handle: stream.handle, special, packed }
    }

    /// Bytes that were asked for.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.packed >> (DEVICE_BITS + OWNER_BITS)
    }

    #[inline]
    fn device(&self) -> DeviceIndex {
        let device = (self.packed >> OWNER_BITS) & ((1 << DEVICE_BITS) - 1);
        DeviceIndex(i32::try_from(device).unwrap_or(0))
    }

    #[inline]
    pub(super) fn owner(&self) -> Owner {
        if self.packed & 1 == 0 { Owner::Program } else { Owner::Buffer }
    }

    /// The stream that it was allocated on.
    #[inline]
    pub(super) fn stream(&self) -> StreamRef {
        StreamRef { device: self.device(), handle: self.handle }
    }

    /// Whether it was allocated outside of captures and is used on its own stream only.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.special.is_none()
    }

    /// Number of the capture in which it was allocated, 0 for none.
    pub(super) fn capture(&self) -> u64 {
        self.special.as_ref().map_or(0, |special| special.capture)
    }

    /// The other streams that it is used on.
    pub(super) fn uses(&self) -> &[StreamRef] {
        self.special.as_ref().map_or(&[], |special| &special.uses)
    }

    /// Notes another stream; false if it is the memory's own.
    fn use_on(&mut self, stream: StreamRef) -> bool {
        if stream == self.stream() {
            return false;
        }
        let uses = &mut self.special.get_or_insert_default().uses;
        if !uses.contains(&stream) {
            uses.push(stream);
        }
        true
    }
}

/// Requests and bytes of a device that came and went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) requests: [u64; 2],
    pub(super) bytes: [u64; 2],
}

/// The limit of a device.
#[derive(Debug, Default)]
struct Limit {
    /// How often a limit was set, 0 while there is none.
    number: AtomicU64,
    most: AtomicU64,
    used: AtomicU64,
}

/// Bytes that count towards a limit although the driver has not given them yet; nothing without a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the bytes stay reserved until they are handed out or returned"]
pub(super) struct Reserved {
    bytes: u64,
    /// The number of the limit, 0 for none.
    limit: u64,
}

/// A place of a part's table.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Place {
    /// 0 where the place is free.
    address: u64,
    live: Live,
}

#[derive(Debug)]
struct Part {
    places: Box<[Place]>,
    /// Places that are taken.
    taken: usize,
    /// Those of the first device, beside the lock, and of the others.
    first_sums: Sums,
    more_sums: Box<[Sums]>,
}

/// All that is handed out.
#[derive(Debug)]
pub(super) struct Table {
    parts: Box<[CachePadded<SpinLock<Part>>]>,
    /// By device.
    limits: Box<[Limit]>,
    /// Limits that were set so far.
    numbers: AtomicU64,
}

impl Table {
    pub(super) fn new(devices: usize) -> Self {
        let part = || Part {
            places: places(FIRST_PLACES),
            taken: 0,
            first_sums: Sums::default(),
            more_sums: vec![Sums::default(); devices.saturating_sub(1)].into(),
        };
        Self {
            parts: (0..PARTS).map(|_| CachePadded::new(SpinLock::new(part()))).collect(),
            limits: (0..devices).map(|_| Limit::default()).collect(),
            numbers: AtomicU64::new(0),
        }
    }

    #[inline]
    fn part(&self, hash: u64) -> SpinGuard<'_, Part> {
        let part = usize::try_from(hash >> (u64::BITS - PART_BITS)).unwrap_or(0);
        self.parts[part].lock()
    }

    /// Reserves bytes of a device; `None` where the limit does not allow them.
    #[inline]
    pub(super) fn reserve(&self, device: DeviceIndex, bytes: u64) -> Option<Reserved> {
        let limit = &self.limits[position(device)];
        let number = limit.number.load(Ordering::Acquire);
        if number == 0 { Some(Reserved { bytes, limit: 0 }) } else { limit.reserve(number, bytes) }
    }

    /// Returns bytes that the driver has not given.
    #[cold]
    pub(super) fn cancel(&self, device: DeviceIndex, reserved: Reserved) {
        // No limit is set or removed meanwhile.
        let _part = self.part(0);
        let limit = &self.limits[position(device)];
        if reserved.limit != 0 && limit.number.load(Ordering::Relaxed) == reserved.limit {
            limit.used.fetch_sub(reserved.bytes, Ordering::Relaxed);
        }
    }

    /// Memory was handed out, of as many bytes as were reserved.
    #[inline]
    pub(super) fn add(&self, address: u64, live: Live, reserved: Reserved) {
        let hash = spread(address);
        let part = &mut *self.part(hash);
        let (device, bytes) = (position(live.device()), live.bytes());
        let sums = part.sums(device);
        sums.requests[0] += 1;
        sums.bytes[0] += bytes;
        let limit = &self.limits[device];
        let number = limit.number.load(Ordering::Relaxed);
        if number != reserved.limit && number != 0 {
            // The limit was set after the bytes had been reserved.
            limit.used.fetch_add(bytes, Ordering::Relaxed);
        }
        part.insert(hash, address, live);
    }

    /// Takes memory back, of which there is no entry any more.
    #[inline]
    pub(super) fn take(&self, address: u64, owner: Owner) -> Result<Live> {
        let hash = spread(address);
        let part = &mut *self.part(hash);
        let Some(at) = part.find(hash, address) else { return Err(invalid(address)) };
        if part.places[at].live.owner() != owner {
            return Err(Error::Memory(MemoryError::OwnedByBuffer { address }));
        }
        let live = part.remove(at);
        let (device, bytes) = (position(live.device()), live.bytes());
        let sums = part.sums(device);
        sums.requests[1] += 1;
        sums.bytes[1] += bytes;
        let limit = &self.limits[device];
        if limit.number.load(Ordering::Relaxed) != 0 {
            limit.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        Ok(live)
    }

    /// Notes another stream that memory is used on; false if it is its own.
    pub(super) fn use_on(&self, address: u64, stream: StreamRef) -> Result<bool> {
        let hash = spread(address);
        let part = &mut *self.part(hash);
        let at = part.find(hash, address).ok_or_else(|| invalid(address))?;
        Ok(part.places[at].live.use_on(stream))
    }

    /// Looks at what is handed out at an address.
    pub(super) fn look<T>(&self, address: u64, look: impl FnOnce(&Live) -> T) -> Option<T> {
        let hash = spread(address);
        let part = self.part(hash);
        part.find(hash, address).map(|at| look(&part.places[at].live))
    }

    /// The most bytes of a device to hand out.
    pub(super) fn limit(&self, device: DeviceIndex) -> Option<u64> {
        let limit = &self.limits[position(device)];
        (limit.number.load(Ordering::Acquire) != 0).then(|| limit.most.load(Ordering::Relaxed))
    }

    /// Sets or removes that; what is handed out stays.
    pub(super) fn set_limit(&self, device: DeviceIndex, most: Option<u64>) {
        let parts: Vec<_> = self.parts.iter().map(|part| part.lock()).collect();
        let limit = &self.limits[position(device)];
        let Some(most) = most else { return limit.number.store(0, Ordering::Release) };
        limit.most.store(most, Ordering::Relaxed);
        limit.used.store(parts.iter().map(|part| part.live(device)[1]).sum(), Ordering::Relaxed);
        limit.number.store(self.numbers.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The sums of a device.
    pub(super) fn sums(&self, device: DeviceIndex) -> Sums {
        let mut sums = Sums::default();
        for part in &self.parts {
            let of_part = *part.lock().sums(position(device));
            for at in 0..2 {
                sums.requests[at] += of_part.requests[at];
                sums.bytes[at] += of_part.bytes[at];
            }
        }
        sums
    }

    /// Sets the sums of a device to 0.
    pub(super) fn reset_sums(&self, device: DeviceIndex) {
        self.parts.iter().for_each(|part| *part.lock().sums(position(device)) = Sums::default());
    }

    /// Number and bytes of what is handed out of a device.
    pub(super) fn count(&self, device: DeviceIndex) -> [u64; 2] {
        let each = self.parts.iter().map(|part| part.lock().live(device));
        each.fold([0, 0], |[count, bytes], [more, more_bytes]| [count + more, bytes + more_bytes])
    }

    /// What is wrong with a device's books, if anything; called while no other thread allocates.
    pub(super) fn inconsistency(&self, device: DeviceIndex) -> Option<String> {
        let bytes = self.count(device)[1];
        let used = self.limit(device).map(|_| self.limits[position(device)].used.load(Ordering::Relaxed));
        if let Some(used) = used.filter(|used| *used != bytes) {
            return Some(format!("{used} bytes of device {device} count towards its limit, {bytes} are handed out"));
        }
        self.parts.iter().find_map(|part| part.lock().inconsistency())
    }

    /// Takes everything.
    pub(super) fn drain(&self) -> Vec<(u64, Live)> {
        let drained = self.parts.iter().flat_map(|part| part.lock().drain());
        drained.collect()
    }
}

impl Limit {
    #[cold]
    fn reserve(&self, number: u64, bytes: u64) -> Option<Reserved> {
        let most = self.most.load(Ordering::Relaxed);
        let raised = |used: u64| used.checked_add(bytes).filter(|used| *used <= most);
        let raised = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
        raised.ok().map(|_| Reserved { bytes, limit: number })
    }
}

impl Part {
    /// The sums of a device, by its position.
    #[inline]
    fn sums(&mut self, device: usize) -> &mut Sums {
        match device.checked_sub(1) {
            None => &mut self.first_sums,
            Some(at) => &mut self.more_sums[at],
        }
    }

    /// Where an address belongs in a table of so many places.
    #[inline]
    fn home(places: usize, hash: u64) -> usize {
        usize::try_from((hash << PART_BITS) >> (u64::BITS - places.trailing_zeros())).unwrap_or(0)
    }

    #[inline]
    fn find(&self, hash: u64, address: u64) -> Option<usize> {
        let mask = self.places.len() - 1;
        let mut at = Self::home(self.places.len(), hash) & mask;
        loop {
            match self.places[at].address {
                found if found == address => return Some(at),
                0 => return None,
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Enters an address that has no place.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the path of each request")]
    fn insert(&mut self, hash: u64, address: u64, live: Live) {
        if 2 * (self.taken + 1) > self.places.len() {
            self.grow();
        }
        let mask = self.places.len() - 1;
        let mut at = Self::home(self.places.len(), hash) & mask;
        while self.places[at].address != 0 {
            at = (at + 1) & mask;
        }
        self.places[at] = Place { address, live };
        self.taken += 1;
    }

    /// Twice as many places.
    #[cold]
    fn grow(&mut self) {
        let wider = places(2 * self.places.len());
        let before = std::mem::replace(&mut self.places, wider);
        self.taken = 0;
        for place in before.into_iter().filter(|place| place.address != 0) {
            self.insert(spread(place.address), place.address, place.live);
        }
    }

    /// Frees a place, and moves those behind it that may be nearer to where they belong.
    #[inline]
    fn remove(&mut self, at: usize) -> Live {
        let mask = self.places.len() - 1;
        let removed = std::mem::take(&mut self.places[at]);
        self.taken -= 1;
        let (mut free, mut next) = (at, (at + 1) & mask);
        while self.places[next].address != 0 {
            let home = Self::home(self.places.len(), spread(self.places[next].address)) & mask;
            // How far the entry is from its home, and how far the free place is from the entry, going round.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(free) & mask) {
                self.places.swap(free, next);
                free = next;
            }
            next = (next + 1) & mask;
        }
        removed.live
    }

    /// Number and bytes of what is handed out of a device.
    fn live(&self, device: DeviceIndex) -> [u64; 2] {
        let all = self.places.iter().filter(|place| place.address != 0 && place.live.device() == device);
        all.fold([0, 0], |[count, bytes], place| [count + 1, bytes + place.live.bytes()])
    }

    fn inconsistency(&self) -> Option<String> {
        let all = || self.places.iter().filter(|place| place.address != 0);
        if all().count() != self.taken {
            return Some(format!("{} places are taken, {} are counted", all().count(), self.taken));
        }
        let lost = all().find(|place| self.find(spread(place.address), place.address).is_none());
        lost.map(|place| format!("{:#x} is not found where it is", place.address))
    }

    fn drain(&mut self) -> Vec<(u64, Live)> {
        self.taken = 0;
        let all = self.places.iter_mut().filter(|place| place.address != 0).map(std::mem::take);
        all.map(|place| (place.address, place.live)).collect()
    }
}

fn places(count: usize) -> Box<[Place]> {
    (0..count).map(|_| Place::default()).collect()
}

#[cold]
fn invalid(address: u64) -> Error {
    Error::Memory(MemoryError::InvalidPointer { address })
}

/// The place of a device that exists.
#[inline]
fn position(device: DeviceIndex) -> usize {
    usize::try_from(device).unwrap_or(0)
}

/// A number for an address whose upper bits depend on all of its bits. Addresses are multiples of 512.
#[inline]
fn spread(address: u64) -> u64 {
    (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg32;

    use super::*;

    const DEVICE: DeviceIndex = DeviceIndex(0);

    fn on(handle: usize) -> StreamRef {
        StreamRef { device: DEVICE, handle: StreamHandle(handle) }
    }

    impl Table {
        fn put(&self, address: u64, bytes: u64, owner: Owner) {
            let reserved = self.reserve(DEVICE, bytes).expect("within the limit");
            self.add(address, Live::new(on(3), bytes, owner, 0), reserved);
        }
    }

    #[test]
    fn memory_is_taken_once_and_by_its_owner() {
        let table = Table::new(1);
        table.put(512, 100, Owner::Buffer);
        let owned = Error::Memory(MemoryError::OwnedByBuffer { address: 512 });
        assert_eq!(table.take(512, Owner::Program).unwrap_err(), owned);
        assert_eq!(table.count(DEVICE), [1, 100]);
        assert!(table.take(512, Owner::Buffer).unwrap().is_plain());
        assert_eq!(table.take(512, Owner::Buffer).unwrap_err(), invalid(512));
        assert_eq!(table.sums(DEVICE), Sums { requests: [1, 1], bytes: [100, 100] });
    }

    #[test]
    fn a_stream_is_noted_once_and_never_the_own_one() {
        let table = Table::new(1);
        table.put(1024, 1, Owner::Program);
        assert!(!table.use_on(1024, on(3)).unwrap());
        assert!(table.use_on(1024, on(4)).unwrap() && table.use_on(1024, on(4)).unwrap());
        assert_eq!(table.take(1024, Owner::Program).unwrap().uses(), [on(4)]);
        assert!(table.use_on(1024, on(4)).is_err());
    }

    #[test]
    fn a_limit_counts_what_is_handed_out_when_it_is_set() {
        let table = Table::new(1);
        table.put(512, 60, Owner::Program);
        let before = table.reserve(DEVICE, 30).unwrap();
        table.set_limit(DEVICE, Some(100));
        table.add(1024, Live::new(on(3), 30, Owner::Program, 0), before);
        assert_eq!(table.inconsistency(DEVICE), None);
        assert_eq!(table.reserve(DEVICE, 11), None, "90 of 100 are taken");
        let reserved = table.reserve(DEVICE, 10).unwrap();
        assert_eq!(table.reserve(DEVICE, 1), None);
        table.cancel(DEVICE, reserved);
        assert_eq!(table.inconsistency(DEVICE), None);
        let late = table.reserve(DEVICE, 10).unwrap();
        table.set_limit(DEVICE, None);
        assert!(table.reserve(DEVICE, u64::MAX).is_some());
        table.set_limit(DEVICE, Some(95));
        table.cancel(DEVICE, late);
        assert_eq!(table.inconsistency(DEVICE), None, "what was reserved under another limit does not count");
        table.take(512, Owner::Program).unwrap();
        assert_eq!((table.limit(DEVICE), table.inconsistency(DEVICE)), (Some(95), None));
    }

    #[test]
    fn addresses_are_found_whatever_came_and_went() {
        let (table, mut random) = (Table::new(1), Pcg32::seed_from_u64(5));
        let mut live = BTreeMap::new();
        for step in 0..20_000_u64 {
            let address = 512 * random.random_range(1..3000_u64) + (1 << 44);
            if let Some(bytes) = live.remove(&address) {
                assert_eq!(table.take(address, Owner::Program).unwrap().bytes(), bytes);
            } else {
                table.put(address, step, Owner::Program);
                live.insert(address, step);
            }
        }
        assert_eq!(table.inconsistency(DEVICE), None);
        assert_eq!(table.count(DEVICE), [live.len() as u64, live.values().sum()]);
        let drained: BTreeMap<u64, u64> =
            table.drain().into_iter().map(|(address, live)| (address, live.bytes())).collect();
        assert_eq!((drained, table.count(DEVICE)), (live, [0, 0]));
    }

    #[test]
    fn what_is_handed_out_is_three_words() {
        assert_eq!((size_of::<Live>(), size_of::<Place>()), (24, 32));
        for (device, bytes, owner) in [(0, 1, Owner::Buffer), (300, (1 << 48) - 1, Owner::Program)] {
            let stream = StreamRef { device: DeviceIndex(device), handle: StreamHandle(5) };
            let live = Live::new(stream, bytes, owner, 0);
            assert_eq!((live.stream(), live.bytes(), live.owner()), (stream, bytes, owner));
        }
    }

    #[test]
    fn neighbours_are_in_different_parts() {
        let part = |block: u64| spread(0x7f00_0000_0000 + 512 * block) >> (u64::BITS - PART_BITS);
        let parts: std::collections::BTreeSet<u64> = (0..64).map(part).collect();
        assert!(parts.len() > 32, "{parts:?}");
    }
}
