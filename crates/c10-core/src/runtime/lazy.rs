//! Calls that wait until the runtime starts.
//!
//! **Invariants:** a queued call runs at most once with success, in the order of queueing, on the thread that starts
//! the runtime and with no lock held, so that it may use the runtime. A call that fails stays in the queue, with the
//! calls behind it, until [`Runtime::init`] runs the queue again.

use std::fmt;
use std::panic::Location;
use std::sync::PoisonError;

use crate::base::error::{DeferredCudaCallError, Error, Result, StartError};
use crate::runtime::handle::Runtime;
use crate::sync::{Mutex, MutexGuard};

type Call = dyn FnMut(&Runtime) -> Result<()> + Send;

/// A call that waits.
struct Queued {
    call: Box<Call>,
    place: &'static Location<'static>,
}

/// Calls that wait, oldest first.
#[derive(Default)]
pub(crate) struct Queue(Mutex<Vec<Queued>>);

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<Queued>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a call. If the runtime has started, returns the call instead.
    #[track_caller]
    pub(crate) fn add_unless<C>(&self, is_started: impl FnOnce() -> bool, call: C) -> Option<C>
    where
        C: FnMut(&Runtime) -> Result<()> + Send + 'static,
    {
        let place = Location::caller();
        let mut queue = self.lock();
        // Asked under the lock, so that a start under way either runs the call or is noticed here.
        if is_started() {
            return Some(call);
        }
        queue.push(Queued { call: Box::new(call), place });
        None
    }

    /// Runs the queued calls. The runtime has started.
    pub(crate) fn run(&self, runtime: &Runtime) -> Result<()> {
        let mut waiting = std::mem::take(&mut *self.lock()).into_iter();
        while let Some(mut first) = waiting.next() {
            if let Err(error) = (first.call)(runtime) {
                let place = first.place;
                let mut queue = self.lock();
                let since = std::mem::take(&mut *queue);
                *queue = std::iter::once(first).chain(waiting).chain(since).collect();
                return Err(Error::Start(StartError::DeferredCall(Box::new(DeferredCudaCallError { error, place }))));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.lock().len()).finish()
    }
}
