//! Green contexts: work on a part of a device's multiprocessors.
//!
//! **Invariants:** a green context is not destroyed while its runtime lives, so its streams stay valid; the driver's
//! current context is always a primary one, and entering a green context makes one of its streams current.

use std::fmt;
use std::sync::Arc;

use crate::api::arg::DeviceArg;
use crate::api::stream::{Stream, Streams};
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{Error, GreenContextError, Result};
use crate::base::process;
use crate::runtime::Runtime;
use crate::thread::{self, entered};

/// A part of a device's multiprocessors (SMs): work on its streams runs there and nowhere else, so that other work
/// always finds the rest free. torch's `torch.cuda.green_contexts.GreenContext`, over the driver's `cuGreenCtxCreate`.
///
/// Memory, kernels and events are the device's as ever. Two green contexts may share multiprocessors, since each
/// is made from the whole device.
///
/// This is a handle; clones are the same green context. When the last one is dropped, work already queued goes on, and
/// a later [`Self::create`] for as many multiprocessors gets the same one again. It is destroyed with the runtime, since
/// buffers and the current stream of a thread may still name its streams.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, GreenContext};
///
/// let part = GreenContext::create(20, None)?;
/// assert_eq!(part.num_sms(), 24, "whole groups of 8 on this device");
/// let buffer = DeviceBuffer::new(4, None)?;
/// part.set_context()?;
/// buffer.fill(.., 7, None)?; // on 24 SMs, after everything queued before
/// part.pop_context()?;
/// assert_eq!(buffer.to_vec()?, [7; 4]);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct GreenContext(Arc<Held>);

/// A green context that somebody holds; given back when this is dropped.
struct Held {
    runtime: Runtime,
    device: DeviceIndex,
    place: usize,
    num_sms: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(ready) = self.runtime.started().filter(|_| !process::in_bad_fork()) {
            ready.green.give(self.place);
        }
    }
}

impl GreenContext {
    /// A green context with at least `num_sms` multiprocessors of a device, on the current runtime; the current device
    /// for `None` and for negative numbers. The driver gives whole groups, of 8 on compute capability 9.0.
    ///
    /// # Errors
    /// [`GreenContextError::InvalidCount`] for 0 and for more than the device has,
    /// [`GreenContextError::DriverTooOld`] before CUDA 12.8, the device does not exist, or the driver's error.
    pub fn create(num_sms: u32, device_id: impl DeviceArg) -> Result<Self> {
        let runtime = Runtime::current();
        let index = device_id.resolve(&runtime)?;
        let index = if index < DeviceIndex(0) { runtime.current_device()? } else { index };
        runtime.streams().green_context(index, num_sms)
    }

    /// Makes this green context the current one of the thread: its first stream becomes the current one of its device
    /// and that device the current one, and work queued there waits for what is queued on the stream that was current
    /// before. Contexts nest; [`Self::pop_context`] leaves the one entered last.
    ///
    /// torch pushes the driver's context and works on its default stream. Here the driver's context stays the primary
    /// one, so the default stream is always that of the whole device.
    ///
    /// # Errors
    /// The driver's error; then nothing has changed.
    pub fn set_context(&self) -> Result<()> {
        let (runtime, device) = (&self.0.runtime, self.0.device);
        let before = thread::device(runtime.id());
        let parent = runtime.streams().current(before)?;
        let inside = self.first()?;
        inside.wait_stream(&parent)?;
        let source = (before, thread::stream(runtime.id(), before));
        let target = thread::exchange_stream(runtime.id(), device, inside.key());
        thread::exchange_device(runtime.id(), device);
        entered::push(entered::Entered { runtime: runtime.id(), number: self.number(), source, target });
        Ok(())
    }

    /// Leaves the green context that this thread entered last, which must be this one: device and stream are again what
    /// they were before [`Self::set_context`], and later work there waits for what is queued on the stream that is
    /// current now.
    ///
    /// # Errors
    /// [`GreenContextError::NotCurrent`] if the thread entered another one later, or none; the driver's error. Then
    /// nothing has changed.
    pub fn pop_context(&self) -> Result<()> {
        let (runtime, device) = (&self.0.runtime, self.0.device);
        let entered = entered::last(runtime.id(), self.number());
        let entered = entered.ok_or(Error::GreenContext(GreenContextError::NotCurrent))?;
        let inside = runtime.streams().current(device)?;
        let (before, key) = entered.source;
        runtime.streams().of_key(before, key).wait_stream(&inside)?;
        thread::exchange_stream(runtime.id(), device, entered.target);
        thread::exchange_stream(runtime.id(), before, key);
        thread::exchange_device(runtime.id(), before);
        entered::pop();
        Ok(())
    }

    /// A stream of the green context, of priority 0: kernels queued there run on its multiprocessors. It waits for no
    /// other stream by itself. The 33rd request gets the first stream again, which [`Self::set_context`] uses, too.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, GreenContext};
    ///
    /// let (stream, buffer) = (GreenContext::create(8, None)?.stream()?, DeviceBuffer::new(4, None)?);
    /// let current = stream.guard();
    /// buffer.fill(.., 7, None)?;
    /// drop(current);
    /// stream.synchronize()?;
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The driver cannot make the stream.
    #[doc(alias = "Stream")]
    pub fn stream(&self) -> Result<Stream> {
        let ready = self.0.runtime.ready()?;
        let _relaxed = ready.relaxed()?;
        let key = ready.green.next_stream(&ready.api, self.0.place)?;
        Ok(self.0.runtime.streams().of_key(self.0.device, key))
    }

    /// Multiprocessors that it has, at least as many as were asked for.
    #[must_use]
    pub fn num_sms(&self) -> u32 {
        self.0.num_sms
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::cuda(self.0.device)
    }

    fn first(&self) -> Result<Stream> {
        let ready = self.0.runtime.ready()?;
        let _relaxed = ready.relaxed()?;
        let key = ready.green.first_stream(&ready.api, self.0.place)?;
        Ok(self.0.runtime.streams().of_key(self.0.device, key))
    }

    /// Its name among those of its runtime.
    fn number(&self) -> u64 {
        self.0.place as u64
    }
}

impl fmt::Debug for GreenContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GreenContext {{ num_sms: {}, device: {} }}", self.num_sms(), self.device())
    }
}

impl PartialEq for GreenContext {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for GreenContext {}

impl Streams<'_> {
    /// A green context of a device; see [`GreenContext::create`].
    ///
    /// # Errors
    /// As for [`GreenContext::create`].
    pub fn green_context(self, device: DeviceIndex, num_sms: u32) -> Result<GreenContext> {
        let runtime = self.runtime();
        let ready = runtime.check_device(device)?;
        let _relaxed = ready.relaxed()?;
        let (place, num_sms) = ready.green.take(&ready.api, device, num_sms)?;
        Ok(GreenContext(Arc::new(Held { runtime: runtime.clone(), device, place, num_sms })))
    }
}
