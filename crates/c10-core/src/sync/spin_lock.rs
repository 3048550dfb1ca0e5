//! The lock of a shard: held for some tens of nanoseconds, many million times a second.
//!
//! Taking it is one atomic exchange and letting go a plain store, where a lock that can put its waiters to sleep needs an
//! exchange for both. A waiter spins for a little while and then lets other threads run.
//!
//! **Invariant:** whoever holds a shard's calls neither the driver nor anything that may block, so nobody waits long. What
//! is looked at during calls of the driver has one waiter at a time: see [`crate::sync::turns`].

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// Looks at the lock before the processor is given away.
const SPINS: u32 = 100;

/// Something that one thread at a time may look at.
#[derive(Debug)]
pub(crate) struct Hot<T>(SpinMutex<T>);

/// Access to what a [`Hot`] guards.
pub(crate) type HotGuard<'a, T> = SpinMutexGuard<'a, T>;

impl<T> Hot<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Access, if nobody else has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<HotGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Waits until nobody else has access.
    #[inline]
    pub(crate) fn lock(&self) -> HotGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> HotGuard<'_, T> {
        loop {
            for _ in 0..SPINS {
                if let Some(guard) = self.0.try_lock_weak() {
                    return guard;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }
}
