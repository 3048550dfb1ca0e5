//! Guards: something is current until they are dropped.
//!
//! **Invariants:** a guard restores what was current when it was made, on the thread it was made on (guards cannot be
//! sent). No guard creates a context: that happens when a device is first used.

use std::marker::PhantomData;

use crate::device::DeviceIndex;
use crate::runtime::{Runtime, RuntimeId};
use crate::stream::{Stream, StreamKey};
use crate::thread;

/// Ties a guard to its thread.
type NotSend = PhantomData<*const ()>;

/// A device is current until this is dropped; torch's `torch.cuda.device`.
#[must_use = "the device is current only while the guard lives"]
#[derive(Debug)]
pub struct DeviceGuard {
    runtime: RuntimeId,
    previous: Option<DeviceIndex>,
    thread: NotSend,
}

impl DeviceGuard {
    pub(crate) fn new(runtime: &Runtime, device: DeviceIndex) -> crate::Result<Self> {
        let previous = runtime.exchange_device(device)?;
        let previous = (device.0 >= 0).then_some(previous);
        Ok(Self { runtime: runtime.id(), previous, thread: PhantomData })
    }

    /// The device that was current before; `None` when the guard was made for a negative number and does nothing.
    #[must_use]
    pub fn previous(&self) -> Option<DeviceIndex> {
        self.previous
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            thread::exchange_device(self.runtime, previous);
        }
    }
}

/// A stream and its device are current until this is dropped; torch's `StreamContext`.
#[must_use = "the stream is current only while the guard lives"]
#[derive(Debug)]
pub struct StreamGuard {
    runtime: RuntimeId,
    source: (DeviceIndex, StreamKey),
    target: (DeviceIndex, StreamKey),
    thread: NotSend,
}

impl StreamGuard {
    pub(crate) fn new(stream: &Stream) -> Self {
        let runtime = stream.runtime().id();
        let device = thread::device(runtime);
        let source = (device, thread::stream(runtime, device));
        let target = (stream.device_index(), thread::stream(runtime, stream.device_index()));
        stream.make_current();
        Self { runtime, source, target, thread: PhantomData }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        for (device, stream) in [self.target, self.source] {
            thread::set_stream(self.runtime, device, stream);
        }
        thread::exchange_device(self.runtime, self.source.0);
    }
}

/// A runtime is the current one of this thread until this is dropped.
#[must_use = "the runtime is current only while the guard lives"]
#[derive(Debug)]
pub struct RuntimeGuard {
    runtime: RuntimeId,
    thread: NotSend,
}

impl RuntimeGuard {
    pub(crate) fn new(runtime: &Runtime) -> Self {
        thread::bind(runtime.clone());
        Self { runtime: runtime.id(), thread: PhantomData }
    }
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        thread::unbind(self.runtime);
    }
}
