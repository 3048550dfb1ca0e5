//! NVTX: marks and ranges of a program that a profiler shows beside the work of the device; torch's `torch.cuda.nvtx`.
//!
//! A profiler such as Nsight Systems attaches itself through the environment ([`tool`] says which one is there). Without one
//! each function is a load and a branch: texts are not copied and `format_args!` is not formatted.
//!
//! Texts end at their first zero byte. Functions may be called from every thread, in a forked child too, and touch neither
//! driver nor device, but for [`device_range_start`] and [`device_range_end`].
//!
//! ```
//! use c10_core::nvtx;
//!
//! let epoch = 3;
//! let sum = nvtx::in_range(format_args!("epoch {epoch}"), || (0..10).sum::<i32>());
//! assert_eq!(sum, 45);
//!
//! let whole = nvtx::range_start("may end on another thread");
//! std::thread::spawn(move || nvtx::range_end(whole)).join().unwrap();
//! ```

mod device_range;
mod domain;
mod emit;
mod message;

use std::marker::PhantomData;
use std::path::Path;

use cuda_sys::nvtx::{Attachment, EventAttributes, NVTX_NO_PUSH_POP_TRACKING, Tool};

pub use device_range::{DeviceRange, device_range_end, device_range_start};
pub use domain::{Attributes, Domain, DomainMessage, Payload, RegisteredText};
pub use emit::emit_ranges;
pub use message::Message;

use crate::api::stream::Stream;
use crate::base::device::DeviceIndex;
use crate::driver::nvtx::{os_thread, tool as attached};

/// The tool that the environment names cannot be attached.
///
/// ```
/// use c10_core::nvtx;
///
/// match nvtx::tool() {
///     Ok(tool) => assert_eq!(tool, None, "no tool is named here"),
///     Err(nvtx::NvtxError { path, reason, .. }) => eprintln!("{}: {reason}", path.display()),
/// }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error("the NVTX tool {} is not attached: {reason}. NVTX_INJECTION64_PATH names it", path.display())]
#[non_exhaustive]
pub struct NvtxError {
    /// The file of the tool.
    pub path: std::path::PathBuf,
    /// Why it is not attached.
    pub reason: String,
}

/// The file of the tool that is attached, `None` without one. The first call of any function here looks for it.
///
/// ```
/// assert_eq!(c10_core::nvtx::tool().unwrap(), None, "no tool is named here");
/// ```
///
/// # Errors
/// [`NvtxError`] if the environment names a tool that cannot be attached. All functions then do nothing.
pub fn tool() -> Result<Option<&'static Path>, NvtxError> {
    let _ = attached();
    match cuda_sys::nvtx::attachment() {
        Some(Attachment::Attached(path)) => Ok(Some(path)),
        Some(Attachment::Failed(path, reason)) => Err(NvtxError { path: path.clone(), reason: reason.clone() }),
        _ => Ok(None),
    }
}

/// Marks an instant; torch's `mark`.
///
/// ```
/// c10_core::nvtx::mark(format_args!("step {}", 7));
/// ```
#[inline]
pub fn mark(message: impl Message) {
    if let Some(tool) = attached() {
        message.with(|text| tool.mark(text));
    }
}

/// Marks an instant, with a colour, a category or a value.
///
/// ```
/// use c10_core::nvtx::{self, Attributes};
///
/// nvtx::mark_with("checkpoint", Attributes::default().color(0xff_00_80_ff));
/// ```
#[inline]
pub fn mark_with(message: impl Message, attributes: Attributes) {
    if let Some(tool) = attached() {
        message.with(|text| tool.mark_ex(&attributes.apply(EventAttributes::new(text))));
    }
}

/// Begins a range of this thread, inside those that it has begun; torch's `range_push`. Returns its depth, counted from
/// zero, or -2 if no tool counts.
///
/// ```
/// use c10_core::nvtx;
///
/// // Depths count from zero where a tool is attached.
/// assert_eq!((nvtx::range_push("outer"), nvtx::range_pop()), (-2, -2), "no tool is attached here");
/// ```
#[inline]
pub fn range_push(message: impl Message) -> i32 {
    attached().map_or(NVTX_NO_PUSH_POP_TRACKING, |tool| message.with(|text| tool.range_push(text)))
}

/// Ends the range that this thread began last; torch's `range_pop`. Returns its depth, or -2 if no tool counts. What a
/// tool answers when no range is left is its own matter; tools answer a negative number.
///
/// ```
/// use c10_core::nvtx;
///
/// // Depths count from zero where a tool is attached.
/// assert_eq!((nvtx::range_push("outer"), nvtx::range_pop()), (-2, -2), "no tool is attached here");
/// ```
#[inline]
pub fn range_pop() -> i32 {
    attached().map_or(NVTX_NO_PUSH_POP_TRACKING, Tool::range_pop)
}

/// A tool's number of a range. Zero where no tool is attached.
///
/// ```
/// use c10_core::nvtx;
///
/// let id: nvtx::RangeId = nvtx::range_start("load");
/// std::thread::spawn(move || nvtx::range_end(id)).join().unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangeId(pub u64);

/// Begins a range that another thread may end, and that may overlap others; torch's `range_start`.
///
/// ```
/// use c10_core::nvtx;
///
/// let id: nvtx::RangeId = nvtx::range_start("load");
/// std::thread::spawn(move || nvtx::range_end(id)).join().unwrap();
/// ```
#[inline]
pub fn range_start(message: impl Message) -> RangeId {
    RangeId(attached().map_or(0, |tool| message.with(|text| tool.range_start(text))))
}

/// Ends a range that [`range_start`] began; torch's `range_end`. A number that names no range is the tool's to refuse.
///
/// ```
/// use c10_core::nvtx;
///
/// let id: nvtx::RangeId = nvtx::range_start("load");
/// std::thread::spawn(move || nvtx::range_end(id)).join().unwrap();
/// ```
#[inline]
pub fn range_end(id: RangeId) {
    if let Some(tool) = attached() {
        tool.range_end(id.0);
    }
}

/// A range of this thread that ends when this is dropped, also by a panic.
///
/// ```
/// use c10_core::nvtx;
///
/// let range: nvtx::Range<'_> = nvtx::range("forward");
/// drop(range);
/// ```
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct Range<'domain> {
    /// None if the range was not begun, since no tool was there.
    tool: Option<Tool>,
    domain: Option<&'domain Domain>,
    /// Ranges are counted by thread.
    of_thread: PhantomData<*const ()>,
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        if let Some(tool) = self.tool {
            let _ = self.domain.map_or_else(|| tool.range_pop(), Domain::range_pop);
        }
    }
}

/// Begins a range that ends when the value is dropped; torch's `range` as a context manager.
///
/// ```
/// use c10_core::nvtx;
///
/// for step in 0..2 {
///     let _range = nvtx::range(format_args!("step {step}"));
/// }
/// ```
#[inline]
pub fn range(message: impl Message) -> Range<'static> {
    let tool = attached();
    if let Some(tool) = tool {
        let _ = message.with(|text| tool.range_push(text));
    }
    Range { tool, domain: None, of_thread: PhantomData }
}

/// Calls a function inside a range; torch's `range` as a decorator.
///
/// ```
/// assert_eq!(c10_core::nvtx::in_range("sum", || 1 + 2), 3);
/// ```
#[inline]
pub fn in_range<R>(message: impl Message, f: impl FnOnce() -> R) -> R {
    let _range = range(message);
    f()
}

/// Names a category for marks that have no domain.
///
/// ```
/// c10_core::nvtx::name_category(1, "loading");
/// ```
pub fn name_category(category: u32, name: impl Message) {
    if let Some(tool) = attached() {
        name.with(|name| tool.name_category(category, name));
    }
}

/// Names this thread in the tool.
///
/// ```
/// c10_core::nvtx::name_thread("loader");
/// ```
pub fn name_thread(name: impl Message) {
    if let Some(tool) = attached() {
        name.with(|name| tool.name_os_thread(os_thread(), name));
    }
}

/// Names a device in the tool.
///
/// ```
/// c10_core::nvtx::name_device(c10_core::DeviceIndex(0), "the first");
/// ```
pub fn name_device(device: DeviceIndex, name: impl Message) {
    if let Some(tool) = attached() {
        name.with(|name| tool.name_device(device, name));
    }
}

/// Names a stream in the tool.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Stream, nvtx};
///
/// nvtx::name_stream(&Stream::new(None, 0)?, "copies");
/// # Ok::<(), c10_core::Error>(())
/// ```
pub fn name_stream(stream: &Stream, name: impl Message) {
    if let Some(tool) = attached() {
        name.with(|name| tool.name_stream(stream.cuda_stream(), name));
    }
}
