//! Texts that C callers get into a place of their own.
//!
//! # Safety
//! The caller's place has the length it says.
#![expect(unsafe_code, reason = "writes to a place that C gave")]

use std::ffi::{CStr, c_char};

use crate::last_error::Failure;

/// Writes as much of `text` as fits, and a zero byte, and returns the length of the whole text.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
pub(crate) unsafe fn give(text: &str, place: *mut c_char, room: usize) -> isize {
    let fits = text.len().min(room.saturating_sub(1));
    if !place.is_null() && room > 0 {
        // SAFETY: `fits` bytes of the text, and fewer than `room`.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), fits) };
        // SAFETY: `fits` is less than `room`.
        let end = unsafe { place.add(fits) };
        // SAFETY: within the place.
        unsafe { end.write(0) };
    }
    isize::try_from(text.len()).unwrap_or(isize::MAX)
}

/// The text of a caller.
///
/// # Errors
/// Null, or no UTF-8.
///
/// # Safety
/// `text` is null or points to a text that ends with a zero byte and outlives the use of the answer.
pub(crate) unsafe fn take<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::Argument("a text is missing".to_owned()));
    }
    // SAFETY: ends with a zero byte by the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::Argument(error.to_string()))
}
