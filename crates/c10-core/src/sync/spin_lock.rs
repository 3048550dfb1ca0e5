//! The lock of a shard: held for some tens of nanoseconds, many million times a second.
//!
//! Taking it is one atomic exchange and letting go a plain store, where a lock that can put its waiters to sleep needs
//! an exchange for both. A guard is one pointer, so that the stages of a shard's lock are passed in registers. A waiter
//! spins for a little while and then lets other threads run. [Why it is not a
//! library's.](../../../../docs/decisions/0007-the-lock-of-a-shard.md)
//!
//! **Invariant:** whoever holds a shard's lock calls neither the driver nor anything else that may block, so nobody waits
//! long. What is guarded during driver calls has a [`HybridLock`](super::hybrid_lock::HybridLock).
//!
//! # Safety
//! The value is reached only through a guard. There is at most one guard at a time: it is made when `is_locked` turns from
//! false to true, and that turns back only when the guard is dropped.
#![expect(unsafe_code, reason = "a lock: access to a value that threads share")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::Backoff;

/// A value that one thread at a time has access to. The flag lies before the value, on the cache line of its beginning.
#[repr(C)]
pub(crate) struct SpinLock<T> {
    is_locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the guard reaches the value, and the lock orders one holder's accesses before the next
// one's. The value passes from thread to thread, so it has to be `Send`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Access to the value of a [`SpinLock`], until it is dropped.
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> SpinLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { is_locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Access, if nobody else has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let taken = self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken { Some(SpinGuard { lock: self }) } else { None }
    }

    /// Waits until nobody else has access.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        let backoff = Backoff::new();
        loop {
            // Looked at first: an exchange would take the cache line from the holder.
            if !self.is_locked.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
            backoff.snooze();
        }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, and it is borrowed as long as the reference lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is borrowed mutably as long as the reference lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.is_locked.store(false, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("SpinLock").field(&*value).finish(),
            None => f.write_str("SpinLock(locked)"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SpinGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_access() {
        let shared = SpinLock::new([0_u64; 2]);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let mut both = shared.lock();
                        both[0] += 1;
                        assert_eq!(both[0], both[1] + 1);
                        thread::yield_now();
                        both[1] += 1;
                    }
                });
            }
        });
        assert_eq!(*shared.lock(), [20_000, 20_000]);
    }

    #[test]
    fn a_guard_that_is_dropped_by_a_panic_releases_the_lock() {
        let shared = SpinLock::new(1);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = shared.lock();
            assert!(shared.try_lock().is_none());
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panics.is_err());
        assert_eq!(shared.try_lock().as_deref(), Some(&1));
    }
}
