//! The last launches on each device, for the errors of work that fails later.
//!
//! **Invariants:** a slot is written by whoever drew its number and read by anybody. Its number is 0 while it is
//! written, so that a reader who finds the same number before and after has read one launch. A writer who is overtaken
//! by a whole round of the ring may mix two launches; that costs an error's text its truth, and nothing else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::error::{AcceleratorError, DeviceFaultError, Error, LaunchRecord};
use crate::base::handles::StreamRef;
use crate::driver::Shape;
use crate::sync::Mutex;

/// Launches that are kept for each device.
const KEPT: usize = 64;

/// The name of a kernel, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameId(u32);

impl NameId {
    /// The number that stands for it outside.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

#[derive(Debug)]
pub(crate) struct Launches {
    rings: Box<[Ring]>,
    names: Mutex<Names>,
    /// Whether every launch is waited for (`CUDA_LAUNCH_BLOCKING`).
    pub(crate) blocking: bool,
}

#[derive(Debug, Default)]
struct Names {
    ids: HashMap<Arc<str>, NameId>,
    /// The names of the ids from 1 on; id 0 stands for graphs.
    names: Vec<Arc<str>>,
}

#[derive(Debug)]
struct Ring {
    /// Number of launches so far.
    count: AtomicU64,
    /// Whether an error has told already that the device is lost.
    is_lost: AtomicBool,
    slots: [Slot; KEPT],
}

/// A launch, in one line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    number: AtomicU64,
    stream: AtomicU64,
    /// Two numbers of 32 bits each: name and shared bytes, blocks along x and y, then blocks along z and threads along x,
    /// then threads along y and z.
    pairs: [AtomicU64; 4],
}

impl Launches {
    pub(crate) fn new(devices: usize, blocking: bool) -> Self {
        let ring = || Ring {
            count: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            slots: std::array::from_fn(|_| Slot::default()),
        };
        Self { rings: (0..devices).map(|_| ring()).collect(), names: Mutex::default(), blocking }
    }

    /// The number that stands for a kernel's name from now on.
    pub(crate) fn name(&self, name: &str) -> NameId {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = names.ids.get(name) {
            return known;
        }
        let name: Arc<str> = name.into();
        names.names.push(Arc::clone(&name));
        let id = NameId(u32::try_from(names.names.len()).unwrap_or(u32::MAX));
        names.ids.insert(name, id);
        id
    }

    /// The name that a number stands for.
    pub(crate) fn name_of(&self, number: u32) -> Option<Arc<str>> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        names.names.get(at).cloned()
    }

    /// Notes the launch of a kernel that was queued.
    #[inline]
    pub(crate) fn note(&self, name: NameId, shape: &Shape, stream: StreamRef) {
        let Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes } = *shape;
        self.write(stream, [(name.0, shared_bytes), (gx, gy), (gz, bx), (by, bz)]);
    }

    /// Notes the replay of a graph.
    #[inline]
    pub(crate) fn note_graph(&self, stream: StreamRef) {
        self.write(stream, [(0, 0); 4]);
    }

    #[inline]
    fn write(&self, stream: StreamRef, pairs: [(u32, u32); 4]) {
        let Some(ring) = self.ring(stream.device) else { return };
        let number = ring.count.fetch_add(1, Ordering::Relaxed) + 1;
        let slot = ring.slot(number);
        slot.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        slot.stream.store(stream.handle.0 as u64, Ordering::Relaxed);
        for (to, (first, second)) in slot.pairs.iter().zip(pairs) {
            to.store(u64::from(first) | u64::from(second) << 32, Ordering::Relaxed);
        }
        slot.number.store(number, Ordering::Release);
    }

    /// The launches of a device that are kept, the newest first.
    pub(crate) fn last(&self, device: DeviceIndex) -> Vec<LaunchRecord> {
        let Some(ring) = self.ring(device) else { return Vec::new() };
        let count = ring.count.load(Ordering::Acquire);
        let kept = (1..=count).rev().take(KEPT);
        kept.filter_map(|number| self.read(device, ring.slot(number), number)).collect()
    }

    fn read(&self, device: DeviceIndex, slot: &Slot, number: u64) -> Option<LaunchRecord> {
        if slot.number.load(Ordering::Acquire) != number {
            return None;
        }
        let stream = slot.stream.load(Ordering::Relaxed);
        let [(name, shared_bytes), (gx, gy), (gz, bx), (by, bz)] =
            std::array::from_fn(|pair| halves(slot.pairs[pair].load(Ordering::Relaxed)));
        fence(Ordering::Acquire);
        if slot.number.load(Ordering::Relaxed) != number {
            return None;
        }
        let kernel = self.name_of(name);
        Some(LaunchRecord { number, device, kernel, stream, grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes })
    }

    /// An error of a call about a device, with the last launches where the device is lost.
    #[cold]
    pub(crate) fn explain(&self, device: DeviceIndex, error: Error) -> Error {
        match lost(&error) {
            Some(failed) => self.fault(device, failed, false),
            None => error,
        }
    }

    /// The error of a launch that was waited for, which is to blame for a device that was not lost before.
    #[cold]
    pub(crate) fn blame(&self, error: Error, name: NameId, shape: &Shape, stream: StreamRef) -> Error {
        match lost(&error) {
            Some(failed) => {
                self.note(name, shape, stream);
                self.fault(stream.device, failed, true)
            }
            None => error,
        }
    }

    fn fault(&self, device: DeviceIndex, error: AcceleratorError, is_newest: bool) -> Error {
        let was_lost = self.ring(device).is_some_and(|ring| ring.is_lost.swap(true, Ordering::Relaxed));
        DeviceFaultError { error, device, launches: self.last(device), is_certain: is_newest && !was_lost }.into()
    }

    fn ring(&self, device: DeviceIndex) -> Option<&Ring> {
        self.rings.get(usize::try_from(device).ok()?)
    }
}

impl Ring {
    /// The slot of the launch of a number, counted from 1.
    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        // What is cut off does not matter: the number of slots is a power of two.
        &self.slots[usize::try_from(number % KEPT as u64).unwrap_or(0)]
    }
}

/// The driver's answer that the device is lost, which has not been explained yet.
fn lost(error: &Error) -> Option<AcceleratorError> {
    let failed = error.accelerator().filter(|failed| failed.context_is_lost()).copied();
    failed.filter(|_| !matches!(error, Error::DeviceFault(_)))
}

/// The lower and the upper half of a word.
fn halves(word: u64) -> (u32, u32) {
    (u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0), u32::try_from(word >> 32).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::handles::StreamHandle;

    const STREAM: StreamRef = StreamRef { device: DeviceIndex(0), handle: StreamHandle(9) };

    #[test]
    fn the_newest_come_first_and_old_ones_go() {
        let launches = Launches::new(1, false);
        let (first, second) = (launches.name("first"), launches.name("second"));
        assert_eq!(launches.name("first"), first);
        let shape = Shape { grid: [1, 2, 3], block: [4, 5, 6], shared_bytes: 7 };
        (0..100).for_each(|_| launches.note(first, &shape, STREAM));
        launches.note_graph(STREAM);
        launches.note(second, &shape, STREAM);
        let last = launches.last(DeviceIndex(0));
        assert_eq!(last.len(), KEPT);
        let numbers: Vec<u64> = last.iter().map(|launch| launch.number).collect();
        assert_eq!(numbers, (39..=102).rev().collect::<Vec<_>>());
        let expected = "kernel 'second' with 1 x 2 x 3 blocks of 4 x 5 x 6 threads on stream 0x9";
        assert_eq!((last[0].to_string().as_str(), last[0].shared_bytes), (expected, 7));
        assert_eq!(last[1].to_string(), "replay of a graph on stream 0x9");
        assert!(launches.last(DeviceIndex(1)).is_empty());
    }
}
