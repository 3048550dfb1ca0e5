//! Memory without tensors: device buffers, pinned host buffers, and what goes to other processes.
//!
//! [`DeviceBuffer`] is bytes on a device, [`PinnedBuffer`] bytes on the host that the device can reach. They are made by
//! `DeviceBuffer::new(bytes, device)` and `PinnedBuffer::new(bytes)`; `torch.empty` and its like are names of tensors.

pub use c10_core::{
    BufferError, DeviceBuffer, DeviceOf, DeviceSlice, PinnedBuffer, PinnedCursor, SharedBuffer,
    construct_storage_from_data_pointer,
};
