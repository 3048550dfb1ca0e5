//! The version, and texts of errors.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use cuda_sys::nccl::types::NCCL_VERSION_CODE;
use cuda_sys::ncclResult_t;

use super::{Answer, INVALID_ARGUMENT};
use crate::call::Call;
use crate::claim::Ptr;
use crate::machine::Machine;

pub(super) fn version(_: &mut Call<'_>, version: Ptr<i32>) -> Answer {
    version.write(NCCL_VERSION_CODE.cast_signed()).map_err(|_| INVALID_ARGUMENT)
}

impl Call<'_> {
    /// Refuses with a text that `ncclGetLastError` gives.
    pub(super) fn refuse(&mut self, status: ncclResult_t, text: impl Into<String>) -> ncclResult_t {
        self.nccl.last_error = text.into();
        status
    }
}

/// What a status means. The words are this simulator's.
const TEXTS: [&str; 8] = [
    "no error",
    "a CUDA call failed",
    "a call to the system failed",
    "an internal check failed",
    "an argument is invalid",
    "the library was used in a way that it forbids",
    "another process failed, or the connection to it did",
    "an operation is still in progress",
];

pub(super) fn error_string(result: ncclResult_t) -> *const c_char {
    static KNOWN: OnceLock<BTreeMap<u32, CString>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let texts = (0..).zip(TEXTS);
        texts.filter_map(|(code, text)| Some((code, CString::new(text).ok()?))).collect()
    });
    known.get(&result.0).map_or(c"unknown result code".as_ptr(), |text| text.as_ptr())
}

thread_local! {
    static TOLD: RefCell<CString> = RefCell::default();
}

/// The text of what went wrong last on the machine of the thread; it stays until the thread asks again.
pub(super) fn last_error() -> *const c_char {
    let text = Machine::current().shared().lock().nccl.last_error.clone();
    let text = CString::new(text).unwrap_or_default();
    // A thread that ends has no place for it any more.
    TOLD.try_with(|told| {
        told.replace(text);
        told.borrow().as_ptr()
    })
    .unwrap_or(c"".as_ptr())
}
