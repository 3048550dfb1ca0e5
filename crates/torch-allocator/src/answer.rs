//! The answer to a request for memory: an address, null for no bytes, or an error that PyTorch raises.
//!
//! PyTorch takes a null for memory: the tensor has no data, some operations notice and some do not. So the request is
//! written in two parts. The first, in Rust, asks the allocator and gives back an address, or the call that raises the
//! error. The second, in assembly, returns the address or jumps to that call's function in its place, when no frame of
//! this library is left: the exception starts as if PyTorch's own function had thrown it, and passes only PyTorch's
//! frames. Without such a function, and on processors other than x86-64, the answer is null.
//!
//! # Safety
//! The functions to jump to have the signatures that [`crate::raise`] asks for, by the word of its callers.
#![expect(unsafe_code, reason = "exports a C function, in assembly")]

use std::ffi::{c_int, c_void};
use std::ptr;

use c10_core::Runtime;

use crate::last_error::{Failure, attempt};
use crate::raise::{self, Call};
use crate::streams;

/// Two words that C functions return in registers.
#[repr(C)]
struct Answer {
    /// The address of the memory; null if there is none.
    address: *const c_void,
    /// The call that raises the error; null if there is none, or nobody who raises it.
    raise: *const Call,
}

/// Memory of `size` bytes on `device` for use on `stream`, as `CUDAPluggableAllocator` asks for it; null for no bytes. If
/// that fails, a function named by [`raise::torch_allocator_set_raise`] or
/// [`raise::torch_allocator_set_out_of_memory`] throws; without one the answer is null.
///
/// # Safety
/// `stream` is a stream of the device's primary context, or null, and lives as long as memory that was used on it.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn torch_allocator_alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    // The stack is aligned for the call and as PyTorch left it again before the jump.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {answer}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "test rdx, rdx",
        "jnz 2f",
        "ret",
        "2:",
        "mov rax, rdx",
        "mov rdi, [rax + {first}]",
        "mov rsi, [rax + {first} + 8]",
        "mov rdx, [rax + {first} + 16]",
        "mov rcx, [rax + {first} + 24]",
        "jmp [rax + {function}]",
        ".cfi_endproc",
        answer = sym answer,
        first = const std::mem::offset_of!(Call, arguments),
        function = const std::mem::offset_of!(Call, function),
    )
}

/// Memory of `size` bytes on `device` for use on `stream`, as `CUDAPluggableAllocator` asks for it; null for no bytes, and
/// if that fails.
///
/// # Safety
/// `stream` is a stream of the device's primary context, or null, and lives as long as memory that was used on it.
#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    // SAFETY: as for this function.
    match attempt("torch_allocator_alloc", || unsafe { allocate(size, device, stream) }) {
        Ok(address) => ptr::with_exposed_provenance_mut(address),
        Err(_) => ptr::null_mut(),
    }
}

/// What the request comes to.
///
/// # Safety
/// As for [`torch_allocator_alloc`].
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn answer(size: usize, device: c_int, stream: *mut c_void) -> Answer {
    // SAFETY: as for this function.
    match attempt("torch_allocator_alloc", || unsafe { allocate(size, device, stream) }) {
        Ok(address) => Answer { address: ptr::with_exposed_provenance(address), raise: ptr::null() },
        Err(told) => Answer { address: ptr::null(), raise: raise::call(&told) },
    }
}

/// # Safety
/// As for [`torch_allocator_alloc`].
unsafe fn allocate(size: usize, device: c_int, stream: *mut c_void) -> Result<usize, Failure> {
    let device = streams::device(device)?;
    // SAFETY: as for this function.
    let stream = unsafe { streams::of_device(stream, device) }?;
    let address = Runtime::current().memory().alloc(size as u64, &stream)?;
    usize::try_from(address).map_err(|_| Failure::Argument(format!("{address:#x} is no address of this process")))
}
