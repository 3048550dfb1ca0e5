//! The answer to a request for memory: an address, null for no bytes, or an error that PyTorch raises.
//!
//! PyTorch takes a null for memory: the tensor has no data, some operations notice and some do not. So the request is
//! written in two parts. The first, in Rust, asks the allocator and gives back an address, or the error's text with the
//! function that raises it. The second, in assembly, returns the address or jumps to that function in its place, when
//! no frame of this library is left: the exception starts in PyTorch's own function and passes only PyTorch's frames.
//! Without such a function, and on processors other than x86-64, the answer is null.
//!
//! # Safety
//! The function to jump to has the signature that [`torch_allocator_set_raise`] asks for, by the word of its caller.
#![expect(unsafe_code, reason = "exports C functions, one of them in assembly")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use c10_core::Runtime;

use crate::last_error::{Failure, guarded, raised};
use crate::streams;

/// The address of the function that raises errors, 0 for none.
static RAISE: AtomicUsize = AtomicUsize::new(0);

/// Two words that C functions return in registers.
#[repr(C)]
struct Answer {
    /// The address of the memory, or of the error's text.
    value: *const c_void,
    /// The function that raises the error; null if there is none, or nobody who raises it.
    raise: usize,
}

/// Names the function that raises errors of requests, null for none: `c10::detail::torchCheckFail`, which throws what
/// Python sees as `RuntimeError`. It takes the names of a function and of a file, a line and the error's text.
///
/// # Safety
/// The function has the signature `void (const char *, const char *, uint32_t, const char *)` and stays where it is while
/// memory is asked for. It does not return; one that does, in a test, returns the answer to the request, a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_set_raise(raise: *const c_void) {
    RAISE.store(raise.addr(), Ordering::Release);
}

/// Memory of `size` bytes on `device` for use on `stream`, as `CUDAPluggableAllocator` asks for it; null for no bytes. If
/// that fails, the function of [`torch_allocator_set_raise`] is called in place of returning; null without one.
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
        "mov r8, rdx",
        "mov rcx, rax",
        "lea rdi, [rip + {name}]",
        "lea rsi, [rip + {name}]",
        "xor edx, edx",
        "jmp r8",
        ".cfi_endproc",
        answer = sym answer,
        name = sym NAME,
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
    let answer = unsafe { answer(size, device, stream) };
    if answer.raise == 0 { answer.value.cast_mut() } else { ptr::null_mut() }
}

/// Who raises the error, as PyTorch's text names it.
static NAME: [u8; 22] = *b"torch_allocator_alloc\0";

/// What the request comes to.
///
/// # Safety
/// As for [`torch_allocator_alloc`].
unsafe extern "C" fn answer(size: usize, device: c_int, stream: *mut c_void) -> Answer {
    // SAFETY: as for this function.
    match guarded("torch_allocator_alloc", || unsafe { allocate(size, device, stream) }) {
        Some(address) => Answer { value: ptr::with_exposed_provenance(address), raise: 0 },
        None => match RAISE.load(Ordering::Acquire) {
            0 => Answer { value: ptr::null(), raise: 0 },
            raise => Answer { value: raised().cast(), raise },
        },
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
