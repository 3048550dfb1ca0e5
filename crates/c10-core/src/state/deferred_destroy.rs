//! Driver objects whose destruction failed.
//!
//! **Invariant:** every driver object that this crate makes is destroyed once, or is listed here. Listed objects are
//! tried again whenever the runtime sweeps finished work, and at its end.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::EventHandle;
use crate::driver::{Api, Driver, GraphExecHandle, GraphHandle};
use crate::sync::{Mutex, MutexGuard};

/// A driver object to be destroyed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DriverObject {
    Event(EventHandle),
    Graph(GraphHandle),
    GraphExec(GraphExecHandle),
    /// Memory of another process, mapped for a device.
    Import(DeviceIndex, u64),
    /// Memory behind a range of addresses: the range, its bytes, and those of each piece.
    MappedRange(DeviceIndex, u64, u64, u64),
}

impl DriverObject {
    fn destroy(self, api: &Api) -> Result<()> {
        match self {
            Self::Event(event) => api.event_destroy(event),
            Self::Graph(graph) => api.graph_destroy(graph),
            Self::GraphExec(exec) => api.graph_exec_destroy(exec),
            Self::Import(device, base) => api.ipc_close_memory(device, base),
            Self::MappedRange(device, base, bytes, page) => api.release_imported(device, base, bytes, page),
        }
    }
}

/// The objects that are left.
#[derive(Debug, Default)]
pub(crate) struct DeferredDestroy {
    objects: Mutex<Vec<DriverObject>>,
    /// Whether there are any; changed under the lock.
    any: AtomicBool,
}

impl DeferredDestroy {
    /// Destroys an object. If that fails, keeps it to try again later.
    pub(crate) fn destroy(&self, api: &Api, object: DriverObject) -> Result<()> {
        object.destroy(api).inspect_err(|_| {
            let mut objects = self.lock();
            objects.push(object);
            self.any.store(true, Ordering::Release);
        })
    }

    /// Tries everything again.
    pub(crate) fn sweep(&self, api: &Api) {
        let mut objects = self.lock();
        objects.retain(|object| object.destroy(api).is_err());
        self.any.store(!objects.is_empty(), Ordering::Release);
    }

    /// Whether anything is left.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DriverObject>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
