//! What a process holds of memory that it has received.
//!
//! **Invariants:** dropping blocks nobody. What is held is let go when the streams that used the memory have passed the work
//! queued until then: first the mapping, then the lock by which the sender sees it.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, PoisonError};

use super::handle::Place;
use crate::base::device::DeviceIndex;
use crate::base::handles::StreamRef;
use crate::base::process;
use crate::driver::IpcHandle;
use crate::runtime::{Runtime, Started, WeakRuntime};
use crate::state::captures::KeptId;
use crate::sync::Mutex;

/// Memory of another process, mapped here, for one buffer.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) home: WeakRuntime,
    pub(super) device: DeviceIndex,
    pub(super) mapped: Mapped,
}

#[derive(Debug)]
pub(super) enum Mapped {
    Segment(IpcHandle),
    /// Pages, by their first address.
    Pages(u64),
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        // Without the runtime the mapping is gone already. What fails is tried again later.
        if let Some(runtime) = Runtime::upgrade(&self.home)
            && let Ok(ready) = runtime.ready()
        {
            match self.mapped {
                Mapped::Segment(segment) => ready.ipc.close(&ready.api, &ready.deferred, (self.device, segment)),
                Mapped::Pages(base) => ready.ipc.close_pages(&ready.api, &ready.deferred, base),
            }
        }
    }
}

/// What a buffer holds whose memory is somebody else's: a mapping of another process's, which is closed before the lock is
/// released, or whatever keeps memory of another library.
pub(crate) struct Received {
    _held: Box<dyn Any + Send + Sync>,
    /// How another process has shared it.
    place: Option<Box<Place>>,
    /// Streams with work that may still use it.
    used: Mutex<BTreeSet<StreamRef>>,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Received {
    /// Holds something until the work that uses the memory is done.
    pub(crate) fn new(held: Box<dyn Any + Send + Sync>) -> Self {
        Self { _held: held, place: None, used: Mutex::default() }
    }

    /// The same for memory that another process has shared.
    pub(super) fn of_process(held: Box<dyn Any + Send + Sync>, place: Place) -> Self {
        Self { place: Some(Box::new(place)), ..Self::new(held) }
    }

    /// How another process has shared it, if one has.
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_deref()
    }

    /// Notes work on a stream.
    pub(crate) fn use_on(&self, stream: StreamRef) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
    }

    /// Lets go of what is held when the work that uses the memory is done.
    pub(crate) fn discard(self: Arc<Self>, ready: &Started) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        // Without it no event can be recorded now; that is tried again later.
        let _relaxed = ready.relaxed();
        for stream in used {
            match ready.api.stream_capture_id(stream) {
                Ok(Some(capture)) => ready.captures.keep(capture, KeptId::of(&self), || self.clone()),
                Ok(None) | Err(_) => {
                    let _ = ready.holds.hold(&ready.api, stream, self.clone());
                }
            }
        }
        drop(self);
        ready.holds.sweep(&ready.api);
    }
}
