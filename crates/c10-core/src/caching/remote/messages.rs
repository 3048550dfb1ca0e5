//! Which shards of a device may have messages that nobody has followed.
//!
//! A block that another thread gives back becomes a free part of its segment, which may make a peak, and at that moment,
//! not when the shard takes note of it. So whoever changes figures has every other shard's messages followed first, and
//! asks one word whether there are any.
//!
//! **Invariant:** when a free from another thread has returned, its message has been followed, or its shard's bit is set,
//! or [`RENEWING`] is. A bit stays set while messages go on coming, so that the word is seldom written.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, SeqCst};

/// The bits are being renewed: any shard may have messages.
const RENEWING: u64 = 1 << 63;

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

/// A bit for each shard ([`Shard::bit`](crate::caching::shard::Shard::bit)).
#[derive(Debug, Default)]
pub(crate) struct MessageBits<W = AtomicU64>(W);

impl<W: Word> MessageBits<W> {
    /// Whether shards with these bits may have messages.
    #[inline]
    pub(crate) fn concern(&self, bits: u64) -> bool {
        self.0.load(SeqCst) & (bits | RENEWING) != 0
    }

    /// Whether no shard has messages.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.0.load(SeqCst) == 0
    }

    /// Notes a message that was sent; before the free returns.
    pub(crate) fn set(&self, bit: u64) {
        if self.0.load(SeqCst) & bit == 0 {
            self.0.fetch_or(bit, SeqCst);
        }
    }

    /// Forgets all bits but those of shards that have messages now: a message sent meanwhile may have found its bit set
    /// still.
    pub(crate) fn renew(&self, shards: impl Iterator<Item = (u64, impl Fn() -> bool)>) {
        if self.0.load(SeqCst) != 0 {
            self.0.store(RENEWING, SeqCst);
            shards.filter(|(_, has_messages)| has_messages()).for_each(|(bit, _)| self.set(bit));
            self.0.fetch_and(!RENEWING, SeqCst);
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
        bits: MessageBits<ModelWord>,
        queues: [Mutex<u32>; 2],
    }

    impl Device {
        /// A free from another thread: the message, then the bit.
        fn send(&self, shard: usize) {
            *self.queues[shard].lock().unwrap() += 1;
            self.bits.set(1 << shard);
        }

        fn has_messages(&self, shard: usize) -> bool {
            *self.queues[shard].lock().unwrap() > 0
        }

        /// What is done under all locks.
        fn settle(&self) {
            self.queues.iter().for_each(|queue| *queue.lock().unwrap() = 0);
            self.bits.renew((0..2).map(|shard| (1 << shard, move || self.has_messages(shard))));
        }
    }

    /// In every order of the memory accesses: once a free has returned, nobody overlooks its message.
    #[test]
    fn no_message_is_overlooked() {
        loom::model(|| {
            let device = Arc::new(Device::default());
            // The bit of an earlier message is still there.
            device.bits.set(1);
            let sender = {
                let device = Arc::clone(&device);
                thread::spawn(move || {
                    device.send(0);
                    assert!(!device.has_messages(0) || device.bits.concern(1));
                })
            };
            let settler = {
                let device = Arc::clone(&device);
                thread::spawn(move || device.settle())
            };
            sender.join().unwrap();
            settler.join().unwrap();
            assert!(!device.has_messages(0) || device.bits.concern(1));
        });
    }

    #[test]
    fn senders_to_two_shards_are_both_seen() {
        loom::model(|| {
            let device = Arc::new(Device::default());
            let senders = [0, 1].map(|shard| {
                let device = Arc::clone(&device);
                thread::spawn(move || device.send(shard))
            });
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            assert!(device.bits.concern(1) && device.bits.concern(2) && !device.bits.are_none());
        });
    }
}
