//! What the Python package reads and sets: figures, segments, options, the last error.
//!
//! A function that answers with a text writes what fits into the caller's place and returns the length of the whole, so
//! that a caller whose place was too small asks again; -1 is an error. Others return 0, or -1 for an error.
//!
//! # Safety
//! Places for texts have the length that the caller says.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_char, c_int};
use std::fmt::Write as _;

use c10_core::Runtime;

use crate::last_error::{self, Failure, guarded};
use crate::{history, streams, text};

/// The text of the last error that any thread met; empty if there was none since it was last forgotten.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_last_error(place: *mut c_char, room: usize) -> isize {
    // SAFETY: as for this function.
    unsafe { text::give(&last_error::last(), place, room) }
}

/// Forgets the last error.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_forget_error() {
    last_error::forget();
}

/// Every figure of a device's allocator, a line for each: torch's name, a space, a number.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_stats(device: c_int, place: *mut c_char, room: usize) -> isize {
    let lines = guarded("torch_allocator_stats", || {
        let stats = Runtime::current().memory().stats(streams::device(device)?)?;
        Ok(stats.flatten().into_iter().fold(String::new(), |mut lines, (name, value)| {
            // Writing to a text cannot fail.
            let _ = writeln!(lines, "{name} {value}");
            lines
        }))
    });
    // SAFETY: as for this function.
    lines.map_or(-1, |lines| unsafe { text::give(&lines, place, room) })
}

/// All memory held from the driver, without stacks, as JSON with the names of torch's `memory_snapshot`.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_segments(place: *mut c_char, room: usize) -> isize {
    let json = guarded("torch_allocator_segments", || {
        let segments = Runtime::current().memory().snapshot(None);
        let listed = |segment: &_| history::segment(segment, |_| (&[], &[]));
        Ok(format!("[{}]", segments.iter().map(listed).collect::<Vec<_>>().join(",")))
    });
    // SAFETY: as for this function.
    json.map_or(-1, |json| unsafe { text::give(&json, place, room) })
}

/// Sets the peaks of a device's figures to their present values.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_reset_peak_stats(device: c_int) -> c_int {
    status("torch_allocator_reset_peak_stats", || {
        Ok(Runtime::current().memory().reset_peak_stats(streams::device(device)?)?)
    })
}

/// Sets the sums and counts of a device's figures to zero.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_reset_accumulated_stats(device: c_int) -> c_int {
    status("torch_allocator_reset_accumulated_stats", || {
        Ok(Runtime::current().memory().reset_accumulated_stats(streams::device(device)?)?)
    })
}

/// Changes options of the allocator by a text as `PYTORCH_CUDA_ALLOC_CONF` has it.
///
/// # Safety
/// `settings` is null or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_set_settings(settings: *const c_char) -> c_int {
    status("torch_allocator_set_settings", || {
        // SAFETY: as for this function.
        let settings = unsafe { text::take(settings) }?;
        Ok(Runtime::current().memory().set_settings(settings)?)
    })
}

/// The fraction of a device's memory that may be held; -1 for an error.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_get_memory_fraction(device: c_int) -> f64 {
    let fraction = guarded("torch_allocator_get_memory_fraction", || {
        Ok(Runtime::current().memory().fraction(streams::device(device)?)?)
    });
    fraction.unwrap_or(-1.0)
}

/// 1 if the books balance, 0 if they do not.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_is_valid() -> c_int {
    guarded("torch_allocator_is_valid", || Ok(c_int::from(Runtime::current().is_valid()))).unwrap_or(0)
}

fn status(function: &str, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guarded(function, body).map_or(-1, |()| 0)
}
