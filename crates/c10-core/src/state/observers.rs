//! Who is told when device memory runs out.
//!
//! **Invariant:** observers are called with no lock held, so that one may use the runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::error::OutOfMemory;

/// Is told of the device, the bytes asked of the driver, the bytes of the device or the limit that was set, and the
/// bytes of the device that nobody holds.
pub(crate) type Observer = dyn Fn(DeviceIndex, u64, u64, u64) + Send + Sync;

/// Names an observer, so that it can be detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObserverId(u64);

/// Who wants to be told, in the order they asked.
#[derive(Default)]
pub(crate) struct Observers(Mutex<List>);

#[derive(Default)]
struct List {
    last: u64,
    observers: Vec<(ObserverId, Arc<Observer>)>,
}

impl Observers {
    pub(crate) fn attach(&self, observer: Arc<Observer>) -> ObserverId {
        let mut list = self.lock();
        list.last += 1;
        let id = ObserverId(list.last);
        list.observers.push((id, observer));
        id
    }

    pub(crate) fn detach(&self, id: ObserverId) -> bool {
        let mut list = self.lock();
        let position = list.observers.iter().position(|(known, _)| *known == id);
        let detached = position.map(|position| list.observers.remove(position));
        // What the observer holds is dropped with the list unlocked: that may be anything.
        drop(list);
        detached.is_some()
    }

    pub(crate) fn tell(&self, figures: &OutOfMemory) {
        let observers: Vec<Arc<Observer>> =
            self.lock().observers.iter().map(|(_, observer)| Arc::clone(observer)).collect();
        let OutOfMemory { device, segment, total, free, .. } = *figures;
        for observer in observers {
            // The panic has been shown by the program's hook; the error matters more to the caller.
            let _ =
                catch_unwind(AssertUnwindSafe(|| observer(device, segment, figures.allowed.unwrap_or(total), free)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
