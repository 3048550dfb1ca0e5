//! Spare events of the driver, which are used again: making one costs more than recording it.
//!
//! A shelf has spare events of one device, by kind. [`SpareEvents`] are those of one owner: a shelf for each device, without
//! any lock. [`SharedSpareEvents`] are those of the events that programs make: several shelves for each device, each behind
//! a lock. A thread uses a shelf of its own as long as that has some, so that threads seldom meet at a lock.
//!
//! A spare event may still have work before it. Recording it anew replaces what it stood for, and whoever waits for the old
//! record does so still.
//!
//! **Invariants:** an event is in one place: with its owner or on one shelf of its device and kind. Whoever keeps an event
//! here answers for it: neither another process nor a graph knows it. Nothing here calls the driver.

use std::sync::{PoisonError, TryLockError};

use crate::base::device::DeviceIndex;
use crate::base::handles::EventHandle;
use crate::driver::EVENT_DISABLE_TIMING;
use crate::sync::{Mutex, MutexGuard};
use crate::thread;

/// Kinds of events that are kept: with timing or without, blocking or not. The kind is what the flags say of that.
const KINDS: usize = 4;
/// The kind without timing that does not block.
const UNTIMED: usize = EVENT_DISABLE_TIMING as usize;
/// Shelves of a device that threads share.
const SHELVES: usize = 8;
/// Events of one kind on a shared shelf at most.
const PLACES: usize = 256;

/// Spare events of one device, by kind.
#[derive(Debug, Default)]
struct Shelf([Vec<EventHandle>; KINDS]);

/// Spare events of one owner, all without timing.
#[derive(Debug, Default)]
pub(crate) struct SpareEvents(Vec<Shelf>);

impl SpareEvents {
    /// An event of a device, which may stand for anything until it is recorded.
    #[inline]
    pub(crate) fn take(&mut self, device: DeviceIndex) -> Option<EventHandle> {
        self.0.get_mut(usize::try_from(device).ok()?)?.0[UNTIMED].pop()
    }

    /// Keeps an event of a device.
    #[inline]
    pub(crate) fn keep(&mut self, device: DeviceIndex, event: EventHandle) {
        let position = usize::try_from(device).unwrap_or(0);
        if position >= self.0.len() {
            self.make(position);
        }
        self.0[position].0[UNTIMED].push(event);
    }

    #[cold]
    fn make(&mut self, position: usize) {
        self.0.resize_with(position + 1, Shelf::default);
    }

    /// Gives up all of them.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = EventHandle> + use<> {
        std::mem::take(&mut self.0).into_iter().flat_map(|shelf| shelf.0).flatten()
    }
}

/// Spare events that all threads share.
#[derive(Debug)]
pub(crate) struct SharedSpareEvents(Box<[[LockedShelf; SHELVES]]>);

/// What a few threads share; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LockedShelf(Mutex<Shelf>);

impl LockedShelf {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedSpareEvents {
    pub(crate) fn new(device_count: usize) -> Self {
        Self((0..device_count).map(|_| Default::default()).collect())
    }

    /// An event of a device with these flags, which may stand for anything until it is recorded.
    #[inline]
    pub(crate) fn take(&self, device: DeviceIndex, flags: u32) -> Option<EventHandle> {
        let (shelves, kind) = self.shelves(device, flags)?;
        let own = own_shelf();
        shelves[own].lock().0[kind].pop().or_else(|| take_elsewhere(shelves, own, kind))
    }

    /// Keeps an event of a device with these flags; gives it back to the caller if there is no place for it.
    #[inline]
    pub(crate) fn keep(&self, device: DeviceIndex, flags: u32, event: EventHandle) -> Result<(), EventHandle> {
        let Some((shelves, kind)) = self.shelves(device, flags) else { return Err(event) };
        let events = &mut shelves[own_shelf()].lock().0[kind];
        if events.len() >= PLACES {
            return Err(event);
        }
        events.push(event);
        Ok(())
    }

    /// The shelves of a device, and the kind of events with these flags. Events for other processes are of none.
    #[inline]
    fn shelves(&self, device: DeviceIndex, flags: u32) -> Option<(&[LockedShelf; SHELVES], usize)> {
        let kind = usize::try_from(flags).ok().filter(|kind| *kind < KINDS)?;
        Some((self.0.get(usize::try_from(device).ok()?)?, kind))
    }

    /// Gives up all of them.
    pub(crate) fn clear(&self) -> Vec<EventHandle> {
        self.0.iter().flatten().flat_map(|shelf| std::mem::take(&mut *shelf.lock()).0).flatten().collect()
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
fn take_elsewhere(shelves: &[LockedShelf; SHELVES], own: usize, kind: usize) -> Option<EventHandle> {
    let others = (1..SHELVES).map(|step| &shelves[(own + step) % SHELVES].0);
    others.into_iter().find_map(|shelf| match shelf.try_lock() {
        Ok(mut shelf) => shelf.0[kind].pop(),
        Err(TryLockError::Poisoned(shelf)) => shelf.into_inner().0[kind].pop(),
        Err(TryLockError::WouldBlock) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{EVENT_BLOCKING_SYNC, EVENT_INTERPROCESS};

    const DEVICE: DeviceIndex = DeviceIndex(1);
    const PLAIN: u32 = EVENT_DISABLE_TIMING;

    #[test]
    fn each_kind_has_its_own_place() {
        let spare = SharedSpareEvents::new(2);
        for flags in [0, EVENT_BLOCKING_SYNC, PLAIN, PLAIN | EVENT_BLOCKING_SYNC] {
            let event = EventHandle(100 + flags as usize);
            assert_eq!(spare.keep(DEVICE, flags, event), Ok(()));
        }
        for flags in [PLAIN, 0, PLAIN | EVENT_BLOCKING_SYNC, EVENT_BLOCKING_SYNC] {
            assert_eq!(spare.take(DEVICE, flags), Some(EventHandle(100 + flags as usize)));
            assert_eq!(spare.take(DEVICE, flags), None);
        }
    }

    #[test]
    fn what_has_no_place_comes_back() {
        let spare = SharedSpareEvents::new(2);
        let event = EventHandle(7);
        assert_eq!(spare.keep(DEVICE, PLAIN | EVENT_INTERPROCESS, event), Err(event));
        assert_eq!(spare.keep(DeviceIndex(2), PLAIN, event), Err(event));
        for number in 0..PLACES {
            assert_eq!(spare.keep(DEVICE, PLAIN, EventHandle(number + 1)), Ok(()));
        }
        assert_eq!(spare.keep(DEVICE, PLAIN, event), Err(event));
        assert_eq!(spare.clear().len(), PLACES);
    }

    #[test]
    fn another_threads_events_serve_too() {
        let spare = SharedSpareEvents::new(2);
        let keep = |number| {
            let kept =
                std::thread::scope(|scope| scope.spawn(|| spare.keep(DEVICE, PLAIN, EventHandle(number))).join());
            kept.expect("the thread does not panic")
        };
        for number in 1..=20 {
            assert_eq!(keep(number), Ok(()));
        }
        let mut found: Vec<_> = std::iter::from_fn(|| spare.take(DEVICE, PLAIN)).map(|event| event.0).collect();
        found.sort_unstable();
        assert_eq!(found, (1..=20).collect::<Vec<_>>());
    }
}
