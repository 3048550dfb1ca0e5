//! The lock of what is looked at during short calls of the driver: blocks that await other streams, and their events.
//!
//! Like [`Hot`] it costs one atomic exchange, where a lock that can put its waiters to sleep costs two. But a call of the
//! driver may take long, so no more than one thread waits by looking again and again; the others sleep until it is their
//! turn. Whoever knows that it will take long takes everybody's turn, and then all of them sleep.
//!
//! **Invariant:** the turn is taken before the lock, and never by somebody who has the lock.

use std::sync::{Mutex, MutexGuard};

use crate::sync::lock;

use crate::sync::spin_lock::{Hot, HotGuard};

/// Something that one thread at a time may look at.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    value: Hot<T>,
    turn: Mutex<()>,
}

/// Access for long.
#[derive(Debug)]
pub(crate) struct Long<'a, T> {
    // Given up in this order: whoever's turn is next finds the lock free.
    pub(crate) value: HotGuard<'a, T>,
    _turn: MutexGuard<'a, ()>,
}

impl<T: Default> Default for Turns<T> {
    fn default() -> Self {
        Self { value: Hot::new(T::default()), turn: Mutex::default() }
    }
}

impl<T> Turns<T> {
    /// Waits until nobody else has access.
    #[inline]
    pub(crate) fn lock(&self) -> HotGuard<'_, T> {
        match self.value.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> HotGuard<'_, T> {
        let _turn = lock(&self.turn);
        self.value.lock()
    }

    /// The same for who will take long: other threads sleep meanwhile.
    pub(crate) fn lock_for_long(&self) -> Long<'_, T> {
        let turn = lock(&self.turn);
        Long { value: self.value.lock(), _turn: turn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_access() {
        let shared = Turns::<[u64; 2]>::default();
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
                            count(&mut shared.lock_for_long().value);
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
    fn a_panic_of_who_has_access_gives_it_up() {
        let shared = Turns::<u64>::default();
        for long in [false, true] {
            let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let (_short, _long);
                if long {
                    _long = shared.lock_for_long();
                } else {
                    _short = shared.lock();
                }
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(panics.is_err());
            *shared.lock() += 1;
        }
        assert_eq!(*shared.lock_for_long().value, 2);
    }
}
