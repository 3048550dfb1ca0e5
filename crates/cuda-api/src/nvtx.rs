//! Marks and ranges that profilers show; torch's `torch.cuda.nvtx`.
//!
//! torch's `range` is [`range`] where it is a context manager and [`in_range`] where it is a decorator; its format
//! arguments are `format_args!`, which is formatted only if a tool is attached. `_device_range_start` and
//! `_device_range_end` have no underscore here. Beyond torch: domains, colours, categories, values, and names of
//! threads, devices and streams.
//!
//! ```
//! use cuda_api::nvtx;
//!
//! for step in 0..2 {
//!     let _range = nvtx::range(format_args!("step {step}"));
//!     nvtx::mark("loaded");
//! }
//! // No tool is attached to this program.
//! assert_eq!(nvtx::range_push("alone"), -2);
//! assert_eq!(nvtx::range_pop(), -2);
//! ```

pub use c10_core::nvtx::{
    Attributes, DeviceRange, Domain, DomainMessage, Message, NvtxError, Payload, Range, RangeId, RegisteredText,
    device_range_end, device_range_start, emit_ranges, in_range, mark, mark_with, name_category, name_device,
    name_stream, name_thread, range, range_end, range_pop, range_push, range_start, tool,
};
