//! The driver's events that graphs record or wait for.
//!
//! **Invariants:** such an event is listed until it is destroyed, once: with the last graph that uses it and whoever made
//! it, or at the end of the runtime, which those graphs may outlive. No other event ever gets it.

use std::sync::PoisonError;

use crate::base::handles::EventHandle;
use crate::sync::{Mutex, MutexGuard};

/// Events that graphs use.
#[derive(Debug, Default)]
pub(crate) struct GraphEvents(Mutex<Vec<EventHandle>>);

impl GraphEvents {
    fn lock(&self) -> MutexGuard<'_, Vec<EventHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists an event that a graph will use.
    pub(crate) fn add(&self, event: EventHandle) {
        self.lock().push(event);
    }

    /// Takes an event off the list; whether it was there. Then the caller destroys it.
    pub(crate) fn remove(&self, event: EventHandle) -> bool {
        let mut listed = self.lock();
        let position = listed.iter().position(|other| *other == event);
        position.map(|position| listed.swap_remove(position)).is_some()
    }

    /// Takes all of them off the list, to be destroyed.
    pub(crate) fn clear(&self) -> Vec<EventHandle> {
        std::mem::take(&mut *self.lock())
    }
}
