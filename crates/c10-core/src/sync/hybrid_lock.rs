//! A lock that one waiter spins for while the others sleep; for what is guarded during short driver calls.
//!
//! Like a [`SpinLock`] it costs one atomic exchange, where a lock that can put its waiters to sleep costs two. But a driver
//! call may take long, so no more than one thread spins: the others sleep in a queue. A thread that knows it will hold the
//! lock for long ([`HybridLock::lock_long`]) keeps the head of the queue as well, and then all others sleep.
//!
//! **Invariant:** the head of the queue is taken before the lock, and never by a thread that holds the lock.

use crate::sync::spin_lock::{SpinGuard, SpinLock};
use crate::sync::{Mutex, MutexGuard, lock};

/// A value that one thread at a time has access to.
#[derive(Debug)]
pub(crate) struct HybridLock<T> {
    value: SpinLock<T>,
    /// Held by the one thread that spins.
    queue: Mutex<()>,
}

/// Access for long.
#[derive(Debug)]
pub(crate) struct LongGuard<'a, T> {
    // Dropped in this order, so that the next thread in the queue finds the lock free.
    pub(crate) value: SpinGuard<'a, T>,
    _queue: MutexGuard<'a, ()>,
}

impl<T: Default> Default for HybridLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> HybridLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: SpinLock::new(value), queue: Mutex::default() }
    }

    /// Waits until nobody else has access.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        match self.value.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        let _queue = lock(&self.queue);
        self.value.lock()
    }

    /// The same for a holder that will take long: other threads sleep meanwhile.
    pub(crate) fn lock_long(&self) -> LongGuard<'_, T> {
        let queue = lock(&self.queue);
        LongGuard { value: self.value.lock(), _queue: queue }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_access() {
        let shared = HybridLock::<[u64; 2]>::default();
        thread::scope(|scope| {
            for number in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for step in 0..2000 {
                        let count = |both: &mut [u64; 2]| {
                            both[0] += 1;
                            assert_eq!(both[0], both[1] + 1);
                            thread::yield_now();
                            both[1] += 1;
                        };
                        if (step + number) % 5 == 0 {
                            count(&mut shared.lock_long().value);
                        } else {
                            count(&mut shared.lock());
                        }
                    }
                });
            }
        });
        assert_eq!(*shared.lock(), [8000, 8000]);
    }

    #[test]
    fn a_panic_of_the_holder_releases_the_lock() {
        let shared = HybridLock::<u64>::default();
        for long in [false, true] {
            let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let (_short, _long);
                if long {
                    _long = shared.lock_long();
                } else {
                    _short = shared.lock();
                }
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(panics.is_err());
            *shared.lock() += 1;
        }
        assert_eq!(*shared.lock_long().value, 2);
    }
}
