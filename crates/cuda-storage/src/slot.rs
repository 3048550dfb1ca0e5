//! Pinned memory through which bytes of a file pass, with a stream of its own.
//!
//! **Invariant:** only this stream copies from and to the memory, so that waiting for the stream is waiting for the memory.

use c10_core::{DeviceBuffer, DeviceIndex, PinnedBuffer, Runtime, Stream};

use crate::error::Result;
use crate::options::ALIGN;

/// Room for one request.
#[derive(Debug)]
pub(crate) struct Slot {
    memory: PinnedBuffer,
    /// Where the room begins: at a whole block.
    first: usize,
    bytes: usize,
    stream: Stream,
}

impl Slot {
    /// Room for requests of this size, whose copies come after the work that is queued on `after`.
    ///
    /// # Errors
    /// There is no memory to pin, or no stream.
    pub(crate) fn new(runtime: &Runtime, device: DeviceIndex, bytes: usize, after: &Stream) -> Result<Self> {
        let mut memory = runtime.pinned().buffer(bytes)?;
        if memory.address() % ALIGN != 0 {
            memory = runtime.pinned().buffer(bytes + ALIGN)?;
        }
        let first = memory.address().next_multiple_of(ALIGN) - memory.address();
        let stream = runtime.streams().unpooled(device, 0)?;
        stream.wait_stream(after)?;
        Ok(Self { memory, first, bytes, stream })
    }

    /// Waits until the copies are done.
    ///
    /// # Errors
    /// The device failed, or the sync debug mode forbids waiting.
    pub(crate) fn wait(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    /// The first bytes of the room, after [`Self::wait`].
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let end = self.first + bytes.min(self.bytes);
        Ok(&mut self.memory.as_mut_slice()?[self.first..end])
    }

    /// Queues a copy of bytes of the room to a device.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn give(&self, from: usize, bytes: usize, to: &DeviceBuffer, at: usize) -> Result<()> {
        let from = self.first + from;
        Ok(to.copy_from_pinned(at, &self.memory, from..from + bytes, &self.stream)?)
    }

    /// Queues a copy of bytes of a device into the room.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn take(&self, to: usize, bytes: usize, from: &DeviceBuffer, at: usize) -> Result<()> {
        Ok(from.copy_to_pinned(at..at + bytes, &self.memory, self.first + to, &self.stream)?)
    }
}
