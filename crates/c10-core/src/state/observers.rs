//! The observers that are called when device memory runs out.
//!
//! **Invariants:** observers are called with no lock held, so that one may use the runtime. While a thread calls
//! observers, it calls none for memory that runs out meanwhile, so that an observer that asks for memory is not called
//! again.

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::error::OutOfMemory;
use crate::base::panics::{caught, discard};
use crate::sync::{Mutex, MutexGuard};

/// A function of the device, the bytes asked of the driver, the bytes of the device or the limit that was set, and the
/// free bytes of the device.
pub(crate) type Observer = dyn Fn(DeviceIndex, u64, u64, u64) + Send + Sync;

/// The number of an attached observer, for detaching it.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let (memory, (tell, told)) = (Runtime::current(), std::sync::mpsc::channel());
/// let observer = memory.memory().attach_out_of_memory_observer(move |device, asked, _, _| {
///     let _ = tell.send((device, asked));
/// });
/// assert!(DeviceBuffer::new(1 << 50, None).is_err());
/// assert_eq!(told.try_recv(), Ok((0, 1 << 50)));
/// assert!(memory.memory().detach_out_of_memory_observer(observer));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObserverId(u64);

/// The observers, in the order in which they were attached.
#[derive(Default)]
pub(crate) struct Observers(Mutex<List>);

#[derive(Default)]
struct List {
    last: u64,
    observers: Vec<(ObserverId, Arc<Observer>)>,
}

thread_local! {
    /// Whether this thread calls observers at the moment.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// This thread calls observers until this is dropped.
struct Telling;

impl Telling {
    /// `None` if the thread calls observers already.
    fn begin() -> Option<Self> {
        // A thread that is ending has no such mark any more; then no observer is called.
        let was_telling = IS_TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true);
        (!was_telling).then_some(Self)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        // The thread has the mark: it was set when this was made.
        let _ = IS_TELLING.try_with(|telling| telling.set(false));
    }
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
        // The observer is dropped with the list unlocked: it may hold anything.
        drop(list);
        detached.is_some()
    }

    /// Calls the observers, unless this thread is calling observers already.
    pub(crate) fn tell(&self, figures: &OutOfMemory) {
        let Some(_telling) = Telling::begin() else { return };
        let observers: Vec<Arc<Observer>> =
            self.lock().observers.iter().map(|(_, observer)| Arc::clone(observer)).collect();
        let OutOfMemory { device, segment, total, free, .. } = *figures;
        for observer in observers {
            // The panic has been shown by the program's hook; the error matters more to the caller.
            let _ = caught(|| observer(device, segment, figures.allowed.unwrap_or(total), free));
            discard(observer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
