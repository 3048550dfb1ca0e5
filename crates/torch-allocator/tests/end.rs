//! A forked child is refused and does not fall; what is given back at the end of the process is left alone. Alone in its
//! process.
//!
//! # Safety
//! The child calls only code that takes no lock another thread could hold, and leaves by `_exit`.
#![expect(unsafe_code, reason = "fork and exit are C functions")]

use std::ffi::c_char;
use std::ptr;

use testkit::Config;
use torch_allocator::figures::{torch_allocator_is_valid, torch_allocator_last_error};
use torch_allocator::hooks::{torch_allocator_free, torch_allocator_reset, torch_allocator_shutdown};
use torch_allocator::torch_allocator_alloc;

fn last_error() -> String {
    let mut place = [0_u8; 1000];
    // SAFETY: the place is as long as is said.
    let length = unsafe { torch_allocator_last_error(place.as_mut_ptr().cast::<c_char>(), place.len()) };
    String::from_utf8_lossy(&place[..usize::try_from(length).expect("a length").min(999)]).into_owned()
}

fn alloc() -> *mut std::ffi::c_void {
    // SAFETY: the default stream.
    unsafe { torch_allocator_alloc(1 << 20, 0, ptr::null_mut()) }
}

#[test]
fn forks_and_the_end_are_survived() {
    testkit::make_default(Config::default()).unwrap();
    let kept = alloc();
    assert!(!kept.is_null());
    // SAFETY: see the top of the file.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let refused = alloc().is_null() && last_error().starts_with("Cannot re-initialize CUDA in forked subprocess");
        torch_allocator_free(kept, 1 << 20, 0, ptr::null_mut());
        torch_allocator_reset();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    torch_allocator_free(kept, 1 << 20, 0, ptr::null_mut());
    assert_eq!(alloc(), kept);
    torch_allocator_shutdown();
    torch_allocator_free(kept, 1 << 20, 0, ptr::null_mut());
    assert_ne!(alloc(), kept, "it was left alone");
    assert_eq!(torch_allocator_is_valid(), 1);
    assert_eq!(last_error(), "");
}
