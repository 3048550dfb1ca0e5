//! Running out of memory: the error with torch's text, what may help, and who is told.
//!
//! **Invariants:** everything here happens after the allocator has returned, with no lock held, so an observer may use
//! the runtime. Whatever observers do, the caller gets the error.

use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::base::error::Error;
use crate::driver::Api;
use crate::runtime::handle::Runtime;
use crate::state::observers::ObserverId;

impl Runtime {
    /// Calls `observer` whenever device memory runs out, before the error is returned, with no lock held; torch's
    /// `_cuda_attach_out_of_memory_observer`. It is told the device, the bytes asked of the driver, the bytes of the
    /// device (or the limit that was set for this process), and the bytes of the device that nobody holds. Observers
    /// are called in the order they were attached; one that panics does not keep the others from being called nor the
    /// error from being returned. An observer may ask for memory: if that fails too, it gets the error, and no observer is
    /// called for it.
    ///
    /// An observer that holds a [`Runtime`] keeps it alive until it is detached; [`Runtime::current`] can be asked
    /// instead.
    pub fn attach_out_of_memory_observer(
        &self,
        observer: impl Fn(DeviceIndex, u64, u64, u64) + Send + Sync + 'static,
    ) -> ObserverId {
        self.observers().attach(Arc::new(observer))
    }

    /// Calls an observer no more; `false` if it was detached already. Calls under way go on.
    pub fn detach_out_of_memory_observer(&self, observer: ObserverId) -> bool {
        self.observers().detach(observer)
    }

    /// Adds to the allocator's error what it could not know, and tells the observers. Other errors pass through.
    #[cold]
    pub(crate) fn complete_out_of_memory(&self, api: &Api, error: Error) -> Error {
        let Error::OutOfMemory(mut failed) = error else { return error };
        failed.processes = self.processes_for_message(api, failed.figures.device);
        failed.expandable_segments = self.config().expandable_segments;
        self.observers().tell(&failed.figures);
        Error::OutOfMemory(failed)
    }
}
