//! The driver's events that are used again: making one costs more than recording it.
//!
//! [`SpareEvents`] are those of one owner, without any lock; [`EventPools`] those of all events that programs make.
//!
//! An event that is given back may still have work before it. Recording it anew replaces what it stood for, and whoever
//! waits for the old record does so still. Threads that make events use shelves of their own as long as those have some,
//! so that they seldom meet at a lock.
//!
//! **Invariants:** an event is in one place: with its owner or on one shelf of its device and kind. Events that other
//! processes know, that a capture saw, or whose recording failed do not come here. Events of graphs are listed until they
//! are destroyed, since a graph may outlive whoever made them.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::EventHandle;
use crate::driver::{Api, EVENT_INTERPROCESS};
use crate::thread;

/// Shelves of a device.
const SHELVES: usize = 8;
/// Kinds of events that are kept: with timing or without, blocking or not.
const KINDS: usize = 4;
/// Events of one kind on a shelf at most.
const PLACES: usize = 256;

/// Spare events without timing of one owner, by device.
#[derive(Debug, Default)]
pub(crate) struct SpareEvents(Vec<Vec<EventHandle>>);

impl SpareEvents {
    /// An event of a device, which may stand for anything until it is recorded.
    #[inline]
    pub(crate) fn take(&mut self, device: DeviceIndex) -> Option<EventHandle> {
        self.0.get_mut(usize::try_from(device).ok()?)?.pop()
    }

    /// Keeps an event of a device.
    #[inline]
    pub(crate) fn keep(&mut self, device: DeviceIndex, event: EventHandle) {
        let position = usize::try_from(device).unwrap_or(0);
        if position >= self.0.len() {
            self.make(position);
        }
        self.0[position].push(event);
    }

    #[cold]
    fn make(&mut self, position: usize) {
        self.0.resize_with(position + 1, Vec::new);
    }

    /// Gives up all of them.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = EventHandle> + use<> {
        std::mem::take(&mut self.0).into_iter().flatten()
    }
}

/// The events of all devices.
#[derive(Debug)]
pub(crate) struct EventPools {
    devices: Box<[[Shelf; SHELVES]]>,
    of_graphs: Mutex<Vec<EventHandle>>,
}

/// What a few threads share; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shelf([Mutex<Vec<EventHandle>>; KINDS]);

impl EventPools {
    pub(crate) fn new(device_count: usize) -> Self {
        let devices = (0..device_count).map(|_| Default::default()).collect();
        Self { devices, of_graphs: Mutex::default() }
    }

    /// An event of that kind, which may stand for anything until it is recorded.
    #[inline]
    pub(crate) fn take(&self, api: &Api, device: DeviceIndex, flags: u32) -> Result<EventHandle> {
        let kept = self.shelves(device, flags).and_then(|(shelves, kind)| {
            let own = own_shelf();
            lock(&shelves[own].0[kind]).pop().or_else(|| take_elsewhere(shelves, own, kind))
        });
        kept.map_or_else(|| api.event_create_with_flags(device, flags), Ok)
    }

    /// Keeps an event; gives it back to the caller if there is no place for it.
    #[inline]
    pub(crate) fn give(&self, device: DeviceIndex, flags: u32, event: EventHandle) -> Result<(), EventHandle> {
        let Some((shelves, kind)) = self.shelves(device, flags) else { return Err(event) };
        let mut shelf = lock(&shelves[own_shelf()].0[kind]);
        if shelf.len() >= PLACES {
            return Err(event);
        }
        shelf.push(event);
        Ok(())
    }

    #[inline]
    fn shelves(&self, device: DeviceIndex, flags: u32) -> Option<(&[Shelf; SHELVES], usize)> {
        if flags & EVENT_INTERPROCESS != 0 {
            return None;
        }
        let kind = usize::try_from(flags).ok().filter(|kind| *kind < KINDS)?;
        Some((self.devices.get(usize::try_from(device).ok()?)?, kind))
    }

    /// Lists an event that a graph will use.
    pub(crate) fn note_of_graph(&self, event: EventHandle) {
        lock(&self.of_graphs).push(event);
    }

    /// Takes an event off that list; whether it was there.
    pub(crate) fn forget_of_graph(&self, event: EventHandle) -> bool {
        let mut listed = lock(&self.of_graphs);
        let position = listed.iter().position(|other| *other == event);
        position.map(|position| listed.swap_remove(position)).is_some()
    }

    /// Everything that is kept, to be destroyed.
    pub(crate) fn clear(&self) -> Vec<EventHandle> {
        let mut events = std::mem::take(&mut *lock(&self.of_graphs));
        for kept in self.devices.iter().flatten().flat_map(|shelf| &shelf.0) {
            events.append(&mut lock(kept));
        }
        events
    }
}

/// The calling thread's shelf.
#[inline]
fn own_shelf() -> usize {
    // Consecutive numbers go to different shelves; the remainder fits whatever the number is.
    usize::try_from(thread::number() % SHELVES as u64).unwrap_or(0)
}

/// Looks at the other threads' shelves, passing by those that are in use.
#[cold]
fn take_elsewhere(shelves: &[Shelf; SHELVES], own: usize, kind: usize) -> Option<EventHandle> {
    let others = (1..SHELVES).map(|step| &shelves[(own + step) % SHELVES].0[kind]);
    others.into_iter().find_map(|shelf| match shelf.try_lock() {
        Ok(mut shelf) => shelf.pop(),
        Err(TryLockError::Poisoned(shelf)) => shelf.into_inner().pop(),
        Err(TryLockError::WouldBlock) => None,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING};

    const DEVICE: DeviceIndex = DeviceIndex(1);
    const PLAIN: u32 = EVENT_DISABLE_TIMING;

    fn kept(pools: &EventPools, flags: u32) -> Option<EventHandle> {
        let (shelves, kind) = pools.shelves(DEVICE, flags)?;
        lock(&shelves[own_shelf()].0[kind]).pop().or_else(|| take_elsewhere(shelves, own_shelf(), kind))
    }

    #[test]
    fn each_kind_has_its_own_place() {
        let pools = EventPools::new(2);
        for flags in [0, EVENT_BLOCKING_SYNC, PLAIN, PLAIN | EVENT_BLOCKING_SYNC] {
            let event = EventHandle(100 + flags as usize);
            assert_eq!(pools.give(DEVICE, flags, event), Ok(()));
        }
        for flags in [PLAIN, 0, PLAIN | EVENT_BLOCKING_SYNC, EVENT_BLOCKING_SYNC] {
            assert_eq!(kept(&pools, flags), Some(EventHandle(100 + flags as usize)));
            assert_eq!(kept(&pools, flags), None);
        }
    }

    #[test]
    fn what_has_no_place_comes_back() {
        let pools = EventPools::new(2);
        let event = EventHandle(7);
        assert_eq!(pools.give(DEVICE, PLAIN | EVENT_INTERPROCESS, event), Err(event));
        assert_eq!(pools.give(DeviceIndex(2), PLAIN, event), Err(event));
        for number in 0..PLACES {
            assert_eq!(pools.give(DEVICE, PLAIN, EventHandle(number + 1)), Ok(()));
        }
        assert_eq!(pools.give(DEVICE, PLAIN, event), Err(event));
        assert_eq!(pools.clear().len(), PLACES);
    }

    #[test]
    fn another_threads_events_serve_too() {
        let pools = EventPools::new(2);
        let give = |number| {
            let given =
                std::thread::scope(|scope| scope.spawn(|| pools.give(DEVICE, PLAIN, EventHandle(number))).join());
            given.expect("the thread does not panic")
        };
        for number in 1..=20 {
            assert_eq!(give(number), Ok(()));
        }
        let mut found: Vec<_> = std::iter::from_fn(|| kept(&pools, PLAIN)).map(|event| event.0).collect();
        found.sort_unstable();
        assert_eq!(found, (1..=20).collect::<Vec<_>>());
    }
}
