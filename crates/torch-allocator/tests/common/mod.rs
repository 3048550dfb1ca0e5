//! PyTorch's side on a simulated machine: the functions called as PyTorch calls them.
//!
//! # Safety
//! Streams are the simulated runtime's and live until the end of each test; addresses that were never handed out are
//! only looked up.
#![allow(dead_code, reason = "each test program uses some of it")]
#![expect(unsafe_code, reason = "calls C functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use testkit::c10_core::{DeviceIndex, Stream};
use testkit::{Config, SimulatedRuntime};
use torch_allocator::figures::*;
use torch_allocator::hooks::*;
use torch_allocator::torch_allocator_alloc;

pub(crate) const MIB: usize = 1 << 20;

/// The last error and the function that raises are the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) struct Torch {
    pub(crate) simulated: SimulatedRuntime,
    _alone: MutexGuard<'static, ()>,
}

impl Torch {
    pub(crate) fn new(config: Config) -> Self {
        let torch = Self::unstarted(config);
        torch_allocator_init(0);
        torch_allocator_init(1);
        assert_eq!(last_error(), "");
        torch
    }

    /// Before PyTorch's first call.
    pub(crate) fn unstarted(config: Config) -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let torch = Self { simulated: SimulatedRuntime::new(config), _alone: alone };
        torch_allocator_forget_error();
        torch
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream_of(0)
    }

    pub(crate) fn stream_of(&self, device: i32) -> Stream {
        self.simulated.runtime().streams().unpooled(DeviceIndex(device), 0).expect("a device")
    }

    /// Ends the test: its streams end, everything was given back and the books balance.
    pub(crate) fn close<const N: usize>(self, streams: [Stream; N]) {
        self.close_all(streams.into());
    }

    pub(crate) fn close_all(self, streams: Vec<Stream>) {
        drop(streams);
        torch_allocator_reset();
        assert_eq!(last_error(), "");
        for device in 0..self.simulated.runtime().device_count() {
            assert_eq!(figure_of(c_int::try_from(device).expect("few"), "reserved_bytes.all.current"), 0);
        }
        assert_eq!(torch_allocator_is_valid(), 1);
        self.simulated.close_clean();
    }
}

pub(crate) fn handle(stream: &Stream) -> *mut c_void {
    ptr::without_provenance_mut(stream.cuda_stream())
}

pub(crate) fn alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    // SAFETY: see the top of the file.
    unsafe { torch_allocator_alloc(size, device, stream) }
}

pub(crate) fn free(address: *mut c_void, size: usize) {
    torch_allocator_free(address, size, 0, ptr::null_mut());
}

pub(crate) fn record(address: *mut c_void, stream: &Stream) {
    // SAFETY: see the top of the file.
    unsafe { torch_allocator_record_stream(address, handle(stream)) };
}

pub(crate) fn text(give: impl Fn(*mut c_char, usize) -> isize) -> String {
    let length = usize::try_from(give(ptr::null_mut(), 0)).expect("a text");
    let mut place = vec![1_u8; length + 1];
    assert_eq!(give(place.as_mut_ptr().cast(), place.len()), isize::try_from(length).expect("a length"));
    CStr::from_bytes_with_nul(&place).expect("one zero byte, at the end").to_str().expect("a text").to_owned()
}

pub(crate) fn last_error() -> String {
    // SAFETY: the place is as long as is said.
    text(|place, room| unsafe { torch_allocator_last_error(place, room) })
}

/// The last error, which is forgotten.
pub(crate) fn taken_error() -> String {
    let error = last_error();
    torch_allocator_forget_error();
    error
}

pub(crate) fn figure(name: &str) -> i64 {
    figure_of(0, name)
}

pub(crate) fn figure_of(device: c_int, name: &str) -> i64 {
    // SAFETY: the place is as long as is said.
    let lines = text(|place, room| unsafe { torch_allocator_stats(device, place, room) });
    let found = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.expect("a figure of that name").parse().expect("a number")
}

/// Sets options, as PyTorch's user does before the first use.
pub(crate) fn set(settings: &str) {
    let settings = CString::new(settings).expect("no zero byte");
    // SAFETY: a text.
    assert_eq!(unsafe { torch_allocator_set_settings(settings.as_ptr()) }, 0, "{}", last_error());
}
