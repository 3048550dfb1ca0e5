//! Walking the stack of a thread: the addresses that its calls return to.
//!
//! There are two ways. Where functions keep frame pointers (`-C force-frame-pointers=yes`), each frame has the address of
//! the one before it, and a walk is a few loads a frame. The unwinder works everywhere and takes ten times as long.
//! Nothing says how a program was compiled, so the first way is tried and compared with the second whenever it gives a
//! stack that was not seen before. Once they differ, it is not used any more.
//!
//! **Invariant:** two walks of one place give the same addresses, and walks of different places different ones. A function
//! without a frame pointer hides the address in its caller, so a walk that meets one is never confirmed; and a walk that
//! was confirmed met none, but for the last few that belong to the system.
//!
//! # Safety
//! The unwinder that every program of the standard library contains is called by its C interface: it calls a function of
//! this file for each frame, with the pointer that it was given. Frame pointers are followed only upwards and only within
//! the stack of the thread, whose bounds the system tells; what lies there can be read as words, whatever it is.
#![expect(unsafe_code, reason = "calls of the unwinder, and loads from the thread's own stack")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Frames that are walked at most.
const DEPTH_MAX: usize = 64;

/// Frames at the bottom of a stack, of the system's library, that may lack frame pointers.
const BOTTOM_MAX: usize = 4;

/// Addresses at the top of a walk that lie in this file. The first frame pointer that is read may be none, so they are
/// not always the same, and nobody asks for them.
const OWN: usize = 2;

/// Whether frame pointers have told the truth so far.
static FOLLOWS_FRAME_POINTERS: AtomicBool = AtomicBool::new(true);

/// The addresses that the calls of a thread return to, innermost first.
pub(super) struct Walk {
    addresses: [usize; DEPTH_MAX],
    len: usize,
    /// Whether frame pointers were followed.
    is_quick: bool,
}

impl Walk {
    /// Walks this thread's stack, from the caller's caller on.
    #[inline(never)]
    pub(super) fn new() -> Self {
        let mut walk = Self { addresses: [0; DEPTH_MAX], len: 0, is_quick: false };
        if FOLLOWS_FRAME_POINTERS.load(Ordering::Relaxed) && pointers::follow(&mut walk) {
            walk.is_quick = true;
        } else {
            walk.unwind();
        }
        walk
    }

    /// The addresses, without those of this file.
    pub(super) fn addresses(&self) -> &[usize] {
        &self.addresses[OWN.min(self.len)..self.len]
    }

    /// Compares a walk that was not seen before with what the unwinder says, called by the same function; whether it can be
    /// believed.
    #[inline(never)]
    pub(super) fn is_confirmed(&self) -> bool {
        if !self.is_quick {
            return true;
        }
        let mut slow = Self { addresses: [0; DEPTH_MAX], len: 0, is_quick: false };
        slow.unwind();
        let (quick, slow) = (self.addresses(), slow.addresses());
        // From the caller of whoever asked for it on they agree.
        let found = quick.first().and_then(|first| slow.iter().take(2).position(|address| address == first));
        let agrees = found.is_some_and(|from| {
            let slow = &slow[from..];
            let shared = quick.len().min(slow.len());
            quick[..shared] == slow[..shared] && slow.len() <= shared + BOTTOM_MAX
        });
        if !agrees {
            FOLLOWS_FRAME_POINTERS.store(false, Ordering::Relaxed);
        }
        agrees
    }

    fn push(&mut self, address: usize) -> bool {
        if address == 0 || self.len == DEPTH_MAX {
            return false;
        }
        self.addresses[self.len] = address;
        self.len += 1;
        true
    }

    #[inline(never)]
    fn unwind(&mut self) {
        // SAFETY: the unwinder walks the stack of this thread and calls `step` with the pointer, both until it returns.
        let _ = unsafe { _Unwind_Backtrace(step, std::ptr::from_mut(self).cast()) };
    }
}

type Context = c_void;

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut Context, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

/// The answers of a step: go on, or end (`_URC_NO_REASON`, `_URC_END_OF_STACK`).
const GO_ON: c_int = 0;
const END: c_int = 5;

extern "C" fn step(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: the pointer that `unwind` gave to the unwinder, which calls this before it returns.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the frame that the unwinder is at.
    let address = unsafe { _Unwind_GetIP(context) };
    if walk.push(address) { GO_ON } else { END }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod pointers {
    //! Frame pointers. A frame begins with the address of the caller's frame, and then the address to return to.

    use std::cell::Cell;
    use std::mem::MaybeUninit;
    use std::ops::Range;
    use std::ptr;

    use super::Walk;

    thread_local! {
        /// The addresses of this thread's stack, once they are known; an empty range if they cannot be.
        static STACK: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    }

    fn stack() -> Range<usize> {
        let known = STACK.try_with(|stack| {
            let bounds = stack.get().unwrap_or_else(|| bounds().unwrap_or((0, 0)));
            stack.set(Some(bounds));
            bounds
        });
        let (low, high) = known.unwrap_or((0, 0));
        low..high
    }

    /// What the system says about the stack of this thread.
    fn bounds() -> Option<(usize, usize)> {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: a question without a condition.
        let own = unsafe { libc::pthread_self() };
        // SAFETY: `attributes` outlives the call, which fills it in if it succeeds.
        if unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) } != 0 {
            return None;
        }
        let (mut low, mut size) = (ptr::null_mut(), 0);
        // SAFETY: filled in above; both places outlive the call.
        let answer = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size) };
        // SAFETY: filled in above, and used no more.
        let _ = unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        (answer == 0).then(|| (low.addr(), low.addr() + size))
    }

    /// The frame pointer of whoever this is compiled into.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a function of its own would have another frame")]
    fn own() -> usize {
        let frame: usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: copies a register.
        unsafe {
            std::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: copies a register.
        unsafe {
            std::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags));
        }
        frame
    }

    /// A word of this thread's stack.
    fn word(stack: &Range<usize>, address: usize) -> usize {
        debug_assert!(stack.contains(&address) && address.is_multiple_of(size_of::<usize>()), "checked by the caller");
        // SAFETY: a word of this thread's stack, which is there as long as the thread is.
        unsafe { ptr::read_volatile(ptr::with_exposed_provenance::<usize>(address)) }
    }

    /// Follows the frame pointers; `false` if this thread does not stand on its own stack.
    #[inline(never)]
    pub(super) fn follow(walk: &mut Walk) -> bool {
        const WORD: usize = size_of::<usize>();
        let (stack, here) = (stack(), ptr::from_ref(&walk).expose_provenance());
        if !stack.contains(&here) {
            return false;
        }
        // Only what lies above the present frame is a frame of a caller.
        let (mut least, mut frame) = (here, own());
        while frame > least && frame.is_multiple_of(WORD) && frame < stack.end - 2 * WORD {
            if !walk.push(word(&stack, frame + WORD)) {
                break;
            }
            (least, frame) = (frame, word(&stack, frame));
        }
        walk.len > super::OWN
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod pointers {
    //! Frame pointers are not followed here.

    pub(super) fn follow(_walk: &mut super::Walk) -> bool {
        false
    }
}

/// Held by tests that compare walks, since any of them may end the following of frame pointers for all.
#[cfg(test)]
pub(super) static COMPARING: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::lock;

    #[inline(never)]
    fn walk() -> Walk {
        loop {
            let walk = Walk::new();
            if walk.is_confirmed() {
                return walk;
            }
        }
    }

    #[inline(never)]
    fn deep(depth: usize, walks: &mut Vec<Walk>) {
        if depth == 0 {
            walks.push(walk());
        } else {
            deep(depth - 1, walks);
        }
        std::hint::black_box(depth);
    }

    /// Whatever way is taken, one place has the same addresses each time, and places differ.
    #[test]
    fn walks_tell_places_apart() {
        let _alone = lock(&COMPARING);
        let mut walks = Vec::new();
        // The first may be the one after which frame pointers are not followed any more.
        let _ = walk();
        // Of an unknown number of turns: the calls of a loop that is unrolled are several places.
        for depth in 0..std::hint::black_box(6) {
            deep(depth / 2, &mut walks);
        }
        for (number, walk) in walks.iter().enumerate() {
            for (other, known) in walks.iter().enumerate() {
                assert_eq!(walk.addresses() == known.addresses(), number / 2 == other / 2, "{number} and {other}");
            }
            assert!(walk.addresses().len() > 3);
        }
    }

    /// A stack that is not the thread's own is left to the unwinder.
    #[test]
    fn made_up_frames_are_not_believed() {
        let _alone = lock(&COMPARING);
        let mut walk = Walk::new();
        walk.is_quick = true;
        walk.addresses = [7; DEPTH_MAX];
        assert!(!walk.is_confirmed());
        assert!(!FOLLOWS_FRAME_POINTERS.load(Ordering::Relaxed));
    }
}
