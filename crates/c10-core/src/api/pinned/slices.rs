//! Pinned memory as slices of the host.
//!
//! **Invariants:** a slice borrows the only handle of its memory exclusively, and is made only when no queued work can use
//! the memory. So while it lives no copy can be queued, no graph can replay one, and no other thread has a handle.
//!
//! # Safety
//! Work that uses the memory is queued through a handle, which records its stream on the block or makes a graph an
//! owner. The one owner here asks every recorded stream. Work that is queued in other ways needs unsafe code, whose
//! author is responsible for it.
#![expect(unsafe_code, reason = "references to memory that a device can write")]

use bytemuck::Pod;

use crate::api::pinned::PinnedBuffer;
use crate::base::error::{BufferError, Result};
use crate::base::handles::StreamRef;
use crate::runtime::Started;

impl PinnedBuffer {
    /// The bytes in place. The handle is borrowed exclusively, so that no work that writes them can be queued
    /// meanwhile.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, PinnedBuffer};
    ///
    /// let (device, mut host) = (DeviceBuffer::new(4, None)?, PinnedBuffer::new(4)?);
    /// host.as_mut_slice()?.copy_from_slice(b"abcd");
    /// device.copy_from_pinned(0, &host, .., None)?;
    /// host.wait_until_idle()?;
    /// assert_eq!(host.as_slice()?, b"abcd");
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// Queueing work while a slice lives does not compile:
    ///
    /// ```compile_fail,E0502
    /// use c10_core::{DeviceBuffer, PinnedBuffer, Result};
    /// fn overwrites(device: &DeviceBuffer, host: &mut PinnedBuffer) -> Result<u8> {
    ///     let bytes = host.as_slice()?;
    ///     device.copy_to_pinned(.., host, 0, None)?;
    ///     Ok(bytes[0])
    /// }
    /// ```
    ///
    /// # Errors
    /// [`BufferError::PinnedShared`] unless this is the only handle; [`BufferError::PinnedInUse`] while a stream that used
    /// the memory has work left ([`Self::wait_until_idle`]) or captures; the driver's error, for example that earlier work
    /// failed.
    pub fn as_slice(&mut self) -> Result<&[u8]> {
        self.as_mut_slice().map(|bytes| &*bytes)
    }

    /// The bytes in place, for writing too.
    ///
    /// # Errors
    /// As for [`Self::as_slice`].
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8]> {
        self.check_idle()?;
        self.report_host_access(0, self.len(), true)?;
        // SAFETY: this is the only handle, which stays borrowed as long as the slice; no queued work uses the memory.
        Ok(self.memory().map_or(&mut [], |memory| unsafe { memory.exclusive() }))
    }

    /// The memory as elements of a plain type, in place.
    ///
    /// # Errors
    /// As for [`Self::as_slice`]; [`BufferError::ElementSize`], [`BufferError::Misaligned`].
    pub fn as_slice_of<T: Pod>(&mut self) -> Result<&[T]> {
        self.as_mut_slice_of().map(|elements| &*elements)
    }

    /// The memory as elements of a plain type, in place, for writing too.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// let mut host = c10_core::PinnedBuffer::new(16)?;
    /// host.as_mut_slice_of::<f32>()?.fill(1.5);
    /// assert_eq!(host.as_slice_of::<f32>()?, [1.5; 4]);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::as_slice_of`].
    pub fn as_mut_slice_of<T: Pod>(&mut self) -> Result<&mut [T]> {
        let (bytes, address) = (self.len(), self.address() as u64);
        match bytemuck::try_cast_slice_mut(self.as_mut_slice()?) {
            Ok(elements) => Ok(elements),
            Err(bytemuck::PodCastError::TargetAlignmentGreaterAndInputNotAligned) => {
                Err(BufferError::Misaligned { address, align: align_of::<T>() }.into())
            }
            Err(_) => Err(BufferError::ElementSize { bytes, element: size_of::<T>() }.into()),
        }
    }

    /// Blocks until the work is done that was queued so far on the streams that used the memory.
    ///
    /// # Errors
    /// The sync debug mode forbids waiting, one of the streams captures, or the driver's error.
    pub fn wait_until_idle(&self) -> Result<()> {
        self.for_each_stream(|ready, stream| ready.api.stream_wait_on_host(stream))
    }

    /// Refuses unless this is the only handle and no queued work can use the memory.
    fn check_idle(&self) -> Result<()> {
        if self.block.is_some_and(|(_, block)| block.owners() != 1) {
            return Err(BufferError::PinnedShared.into());
        }
        self.for_each_stream(|ready, stream| {
            let in_use = BufferError::PinnedInUse { device: stream.device };
            if ready.captures.of(&ready.api, stream)?.is_some() || !ready.api.stream_query(stream)? {
                return Err(in_use.into());
            }
            Ok(())
        })
    }

    /// Looks at each stream that used the memory. If the runtime is gone, it has waited for that work already.
    fn for_each_stream(&self, look: impl Fn(&Started, StreamRef) -> Result<()>) -> Result<()> {
        let Some((_, block)) = self.block else { return Ok(()) };
        let streams = block.recorded();
        let Some(first) = streams.first().filter(|_| !self.home.is_closed()) else { return Ok(()) };
        // Without its last handle the runtime is waiting for its devices just now.
        let runtime = self.home.runtime().ok_or(BufferError::PinnedInUse { device: first.device })?;
        let ready = runtime.ready()?;
        let looked = streams.into_iter().try_for_each(|stream| look(ready, stream));
        ready.api.trace.deliver_order();
        looked
    }
}
