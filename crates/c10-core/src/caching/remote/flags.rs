//! Which shards of a device may have remote frees that nobody has drained.
//!
//! A block that another thread gives back becomes a free part of its segment, which may make a peak: at that moment, and
//! not when its shard drains it. So a thread that is about to change figures has the remote frees of every other shard
//! drained first, and asks one word whether there are any.
//!
//! **Invariant:** when a remote free has returned, it has been drained, or its shard's flag is set, or [`REFRESHING`] is.
//! A flag stays set while remote frees go on coming, so that the word is seldom written.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, SeqCst};

/// The flags are being refreshed: any shard may have remote frees.
const REFRESHING: u64 = 1 << 63;

/// A word that threads share; the model checker has its own.
pub(crate) trait Word: Default {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_or(&self, value: u64, order: Ordering);
    fn fetch_and(&self, value: u64, order: Ordering);
    /// Compare and exchange; what was there.
    fn exchange(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64>;
}

/// Words by the operations of a type that has them under the usual names.
macro_rules! word {
    ($type:ty) => {
        impl Word for $type {
            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                self.load(order)
            }

            #[inline]
            fn store(&self, value: u64, order: Ordering) {
                self.store(value, order);
            }

            #[inline]
            fn fetch_or(&self, value: u64, order: Ordering) {
                self.fetch_or(value, order);
            }

            #[inline]
            fn fetch_and(&self, value: u64, order: Ordering) {
                self.fetch_and(value, order);
            }

            #[inline]
            fn exchange(&self, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
                self.compare_exchange(current, new, order, Ordering::Acquire)
            }
        }
    };
}

word!(AtomicU64);
#[cfg(test)]
word!(loom::sync::atomic::AtomicU64);

/// A flag for each shard; shards beyond the 62nd share one.
#[derive(Debug, Default)]
pub(crate) struct RemoteFreeFlags<W = AtomicU64>(W);

impl<W: Word> RemoteFreeFlags<W> {
    /// Whether shards with these flags may have remote frees.
    #[inline]
    pub(crate) fn any_of(&self, flags: u64) -> bool {
        self.0.load(SeqCst) & (flags | REFRESHING) != 0
    }

    /// Whether no shard has remote frees.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.0.load(SeqCst) == 0
    }

    /// Notes a remote free; before it returns.
    pub(crate) fn set(&self, flag: u64) {
        if self.0.load(SeqCst) & flag == 0 {
            self.0.fetch_or(flag, SeqCst);
        }
    }

    /// Clears all flags but those of shards that have remote frees now: one that came meanwhile may have found its flag
    /// still set.
    pub(crate) fn refresh(&self, shards: impl Iterator<Item = (u64, impl Fn() -> bool)>) {
        if self.0.load(SeqCst) != 0 {
            self.0.store(REFRESHING, SeqCst);
            shards.filter(|(_, has_remote_frees)| has_remote_frees()).for_each(|(flag, _)| self.set(flag));
            self.0.fetch_and(!REFRESHING, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicU64 as ModelWord;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// Two shards with their queues.
    #[derive(Default)]
    struct Device {
        flags: RemoteFreeFlags<ModelWord>,
        queues: [Mutex<u32>; 2],
    }

    impl Device {
        /// A remote free: the chain, then the flag.
        fn send(&self, shard: usize) {
            *self.queues[shard].lock().unwrap() += 1;
            self.flags.set(1 << shard);
        }

        fn has_remote_frees(&self, shard: usize) -> bool {
            *self.queues[shard].lock().unwrap() > 0
        }

        /// What is done under all locks.
        fn drain(&self) {
            self.queues.iter().for_each(|queue| *queue.lock().unwrap() = 0);
            self.flags.refresh((0..2).map(|shard| (1 << shard, move || self.has_remote_frees(shard))));
        }
    }

    /// In every order of the memory accesses: once a free has returned, nobody overlooks it.
    #[test]
    fn no_remote_free_is_overlooked() {
        loom::model(|| {
            let device = Arc::new(Device::default());
            // The flag of an earlier remote free is still set.
            device.flags.set(1);
            let sender = {
                let device = Arc::clone(&device);
                thread::spawn(move || {
                    device.send(0);
                    assert!(!device.has_remote_frees(0) || device.flags.any_of(1));
                })
            };
            let drainer = {
                let device = Arc::clone(&device);
                thread::spawn(move || device.drain())
            };
            sender.join().unwrap();
            drainer.join().unwrap();
            assert!(!device.has_remote_frees(0) || device.flags.any_of(1));
        });
    }

    #[test]
    fn remote_frees_of_two_shards_are_both_seen() {
        loom::model(|| {
            let device = Arc::new(Device::default());
            let senders = [0, 1].map(|shard| {
                let device = Arc::clone(&device);
                thread::spawn(move || device.send(shard))
            });
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            assert!(device.flags.any_of(1) && device.flags.any_of(2) && !device.flags.are_none());
        });
    }
}
