//! Calls functions of the program: those that a stream runs on the host, and one that a call asks for sizes.
//!
//! # Safety
//! The function pointers and their arguments come from `cuLaunchHostFunc`, `cuStreamAddCallback` and host nodes, whose
//! contracts demand that they can be called from any thread once the work before them is done. That of
//! `cuOccupancyMaxPotentialBlockSize` is called before that call returns, on its thread.
#![expect(unsafe_code, reason = "calls functions of the program")]

use std::cell::Cell;

use cuda_sys::CUresult;

use crate::claim::{handle, host_pointer};
use crate::model::HostWork;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside such a function; calls into the driver are not permitted there.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs a function of the program.
pub(crate) fn run(work: HostWork) {
    INSIDE.set(true);
    match work {
        HostWork::Function { function, data } => {
            // SAFETY: the program promised that the function may be called with this argument once its turn comes.
            unsafe { function(host_pointer(data)) };
        }
        HostWork::Callback { function, stream, data } => {
            // SAFETY: as above, with the stream it was added to and success as the status.
            unsafe { function(handle(stream), CUresult::CUDA_SUCCESS, host_pointer(data)) };
        }
    }
    INSIDE.set(false);
}

/// Asks a function of the program how much shared memory blocks of so many threads need; it may call the driver.
pub(crate) fn shared_for_block(function: unsafe extern "C" fn(i32) -> usize, threads: i32) -> usize {
    // SAFETY: the program promised that the function may be called with any size of blocks while its call lasts.
    unsafe { function(threads) }
}

/// Has a function called when the process ends.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: a function that takes nothing and stays loaded as long as this library, which a process does not unload
    // while it uses the driver.
    let _ = unsafe { libc::atexit(function) };
}
