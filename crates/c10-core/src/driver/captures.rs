//! The captures under way in this process, of all runtimes.
//!
//! While a stream is captured in the usual mode, the driver refuses calls of other threads that could not be replayed,
//! and the capture is spoilt. Two runtimes on one driver share its contexts but do not know each other, so each asks
//! here whether the other captures.
//!
//! **Invariants:** `COUNT` is the length of `LIST`. An entry is made before its capture begins, and removed after the
//! capture has ended or with its runtime. While no runtime captures, asking is one load.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cuda_sys::Driver as Table;

use crate::base::device::DeviceIndex;
use crate::sync::{Mutex, MutexGuard};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LIST: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// A capture under way.
struct Entry {
    owner: u64,
    driver: (usize, usize),
    device: DeviceIndex,
}

/// The captures of one runtime.
#[derive(Debug)]
pub(crate) struct OwnCaptures {
    number: u64,
    driver: (usize, usize),
    count: AtomicUsize,
}

fn lock() -> MutexGuard<'static, Vec<Entry>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OwnCaptures {
    pub(super) fn new(table: &Table) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, driver: table.identity(), count: AtomicUsize::new(0) }
    }

    /// Notes a capture that is about to begin.
    pub(crate) fn begin(&self, device: DeviceIndex) {
        let mut list = lock();
        list.push(Entry { owner: self.number, driver: self.driver, device });
        self.count.fetch_add(1, Ordering::Release);
        COUNT.store(list.len(), Ordering::Release);
    }

    /// Forgets a capture.
    pub(crate) fn end(&self, device: DeviceIndex) {
        let mut list = lock();
        let own = list.iter().position(|entry| (entry.owner, entry.device) == (self.number, device));
        if let Some(position) = own {
            list.swap_remove(position);
            self.count.fetch_sub(1, Ordering::Release);
            COUNT.store(list.len(), Ordering::Release);
        }
    }

    /// Whether another runtime captures with the same driver.
    #[inline]
    pub(super) fn have_others(&self) -> bool {
        let all = COUNT.load(Ordering::Acquire);
        all != 0 && all != self.count.load(Ordering::Acquire) && self.look_for_others(None)
    }

    /// Whether another runtime captures on a device.
    pub(super) fn have_others_on(&self, device: DeviceIndex) -> bool {
        COUNT.load(Ordering::Acquire) != 0 && self.look_for_others(Some(device))
    }

    #[cold]
    fn look_for_others(&self, device: Option<DeviceIndex>) -> bool {
        let is_other = |entry: &Entry| {
            entry.owner != self.number
                && entry.driver == self.driver
                && device.is_none_or(|device| device == entry.device)
        };
        lock().iter().any(is_other)
    }
}

impl Drop for OwnCaptures {
    fn drop(&mut self) {
        let mut list = lock();
        list.retain(|entry| entry.owner != self.number);
        COUNT.store(list.len(), Ordering::Release);
    }
}
