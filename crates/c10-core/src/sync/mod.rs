//! Locks and owning handles that know nothing of devices.

pub(crate) mod arena;
pub(crate) mod hybrid_lock;
pub(crate) mod lasting;
pub(crate) mod places;
pub(crate) mod spin_lock;
pub mod tracked;

use std::sync::PoisonError;

pub(crate) use tracked::{Condvar, Mutex, MutexGuard, RwLock};

/// Locks, and goes on after a panic of another thread: what locks guard here changes only in steps that leave it whole.
#[inline]
#[track_caller]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
