//! Torch's hooks: functions that are called when the runtime does one of ten things.
//!
//! **Invariant:** a callback is called after the thing happened, on the thread that did it, with no lock held, until the
//! subscription is ended by [`Runtime::unsubscribe`]. Of several each is called, in the order in which they were
//! registered; one that panics is logged and does not stop the others.

use c10_core::{Runtime, SubscriptionId};

/// Calls `callback` with the handle of each event that is made.
pub fn register_callback_for_event_creation(callback: impl Fn(u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_event_creation(callback)
}

/// Calls `callback` with the handle of each event that is given up.
pub fn register_callback_for_event_deletion(callback: impl Fn(u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_event_deletion(callback)
}

/// Calls `callback` with the handles of each event that is recorded, and of the stream.
pub fn register_callback_for_event_record(callback: impl Fn(u64, u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_event_record(callback)
}

/// Calls `callback` with the handles of each event that a stream waits for, and of the stream.
pub fn register_callback_for_event_wait(callback: impl Fn(u64, u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_event_wait(callback)
}

/// Calls `callback` with the address of device memory that is handed out.
pub fn register_callback_for_memory_allocation(callback: impl Fn(u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_memory_allocation(callback)
}

/// Calls `callback` with the address of device memory that is given back.
pub fn register_callback_for_memory_deallocation(callback: impl Fn(u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_memory_deallocation(callback)
}

/// Calls `callback` with the handle of each stream that is made, 32 at a time for a pool.
pub fn register_callback_for_stream_creation(callback: impl Fn(u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_stream_creation(callback)
}

/// Calls `callback` when the host has waited for a device.
pub fn register_callback_for_device_synchronization(callback: impl Fn() + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_device_synchronization(callback)
}

/// Calls `callback` with the handle of each stream that the host has waited for; copies that block count.
pub fn register_callback_for_stream_synchronization(callback: impl Fn(u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_stream_synchronization(callback)
}

/// Calls `callback` with the handle of each event that the host has waited for.
pub fn register_callback_for_event_synchronization(callback: impl Fn(u64) + Send + Sync + 'static) -> SubscriptionId {
    Runtime::current().register_callback_for_event_synchronization(callback)
}
