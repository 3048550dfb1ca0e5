//! The functions of `cudart()` that take addresses and handles of the program.
//!
//! # Safety
//! What the addresses and handles name is the promise of the callers of these functions, which pass it on.
#![expect(unsafe_code, reason = "addresses and handles that are somebody else's")]

use crate::api::cudart::Cudart;
use crate::base::error::status;
use crate::base::handles::{StreamHandle, StreamRef};

#[expect(non_snake_case, reason = "the names of C")]
impl Cudart {
    /// Pins `size` bytes of the program's memory at `ptr`, so that devices can reach them. Returns the status code of
    /// the runtime API. `flags` are those of C: 1 portable, 2 mapped, 4 of an I/O device, 8 read-only.
    ///
    /// # Safety
    /// - The memory stays where it is, and the program's, until `cudaHostUnregister`.
    #[must_use = "the answer is a code"]
    pub unsafe fn cudaHostRegister(&self, ptr: usize, size: usize, flags: u32) -> i32 {
        status(self.on_current_device(|ready, device| {
            // SAFETY: the caller's promise.
            unsafe { ready.api.register(device, ptr, size, flags) }
        }))
    }

    /// Unpins the memory that [`Self::cudaHostRegister`] pinned. Returns the status code of the runtime API.
    ///
    /// # Safety
    /// - No queued work uses the memory.
    #[must_use = "the answer is a code"]
    pub unsafe fn cudaHostUnregister(&self, ptr: usize) -> i32 {
        status(self.on_current_device(|ready, device| {
            // SAFETY: the caller's promise.
            unsafe { ready.api.unregister(device, ptr) }
        }))
    }

    /// Destroys a stream. Its queued work still runs. Returns the status code of the runtime API.
    ///
    /// # Safety
    /// - `stream` is from [`Self::cudaStreamCreate`], and nobody uses it any more.
    #[must_use = "the answer is a code"]
    pub unsafe fn cudaStreamDestroy(&self, stream: usize) -> i32 {
        status(self.on_current_device(|ready, device| {
            ready.api.stream_destroy(StreamRef { device, handle: StreamHandle(stream) })
        }))
    }
}
