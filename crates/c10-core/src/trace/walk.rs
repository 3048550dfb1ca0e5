//! Walking the stack of a thread: the addresses that its calls return to.
//!
//! There are three ways. Where functions keep frame pointers (`-C force-frame-pointers=yes`), each frame has the address of
//! the one before it, and a walk is a few loads a frame. The unwinder works everywhere and takes ten times as long. What
//! it says of the size of a frame is kept by the address that the frame goes on at, and serves the walks after it, which
//! then are a few loads a frame, too.
//!
//! Nothing says how a program was compiled, so the first way is tried and compared with the unwinder whenever it gives a
//! stack that was not seen before. Once they differ, it is not used any more. So it is with kept sizes, which are wrong
//! where a frame has another size each time. Such a walk ends elsewhere than where the unwinder found the thread's first
//! frame, and counts for nothing.
//!
//! **Invariant:** two walks of one place give the same addresses, and walks of different places different ones. A function
//! without a frame pointer hides the address in its caller, so a walk that meets one is never confirmed; and a walk that
//! was confirmed met none, but for the last few that belong to the system.
//!
//! # Safety
//! The unwinder that every program of the standard library contains is called by its C interface: it calls a function of
//! this file for each frame, with the pointer that it was given. Frame pointers and kept sizes are followed only upwards and
//! only within the stack of the thread, whose bounds the system tells; what lies there can be read as words, whatever it is.
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

/// Whether kept sizes of frames have.
static FOLLOWS_SIZES: AtomicBool = AtomicBool::new(true);

/// How a walk was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    FramePointers,
    Sizes,
    Unwinder,
}

/// The addresses that the calls of a thread return to, innermost first.
pub(super) struct Walk {
    addresses: [usize; DEPTH_MAX],
    len: usize,
    way: Way,
}

impl Walk {
    /// Walks this thread's stack, from the caller's caller on.
    #[inline(never)]
    pub(super) fn new() -> Self {
        let mut walk = Self::none(Way::FramePointers);
        if !(FOLLOWS_FRAME_POINTERS.load(Ordering::Relaxed) && pointers::follow(&mut walk)) {
            (walk.len, walk.way) = (0, Way::Sizes);
            if !(FOLLOWS_SIZES.load(Ordering::Relaxed) && sizes::follow(&mut walk)) {
                (walk.len, walk.way) = (0, Way::Unwinder);
                walk.unwind();
            }
        }
        walk
    }

    fn none(way: Way) -> Self {
        Self { addresses: [0; DEPTH_MAX], len: 0, way }
    }

    /// The addresses, without those of this file.
    pub(super) fn addresses(&self) -> &[usize] {
        &self.addresses[OWN.min(self.len)..self.len]
    }

    /// Compares a walk that was not seen before with what the unwinder says, called by the same function; whether it can be
    /// believed.
    #[inline(never)]
    pub(super) fn is_confirmed(&self) -> bool {
        let follows = match self.way {
            Way::FramePointers => &FOLLOWS_FRAME_POINTERS,
            Way::Sizes => &FOLLOWS_SIZES,
            Way::Unwinder => return true,
        };
        let mut slow = Self::none(Way::Unwinder);
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
            follows.store(false, Ordering::Relaxed);
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
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
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

    pub(super) fn stack() -> Range<usize> {
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
    pub(super) fn word(stack: &Range<usize>, address: usize) -> usize {
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

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod sizes {
    //! Sizes of frames. What the caller goes on at lies right below where its frame ends, so that the next address follows
    //! from the size of each frame. A size is kept by the address at which the function of the frame goes on: unless the
    //! function makes room of a changing size, its frame has one size there.
    //!
    //! **Invariant:** a walk is told only if it ends at the frame that the unwinder came to last on this thread. Every size
    //! adds to where it ends, so one that is wrong is noticed.

    use std::cell::Cell;
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::pointers::{stack, word};
    use super::{_Unwind_Backtrace, _Unwind_GetCFA, _Unwind_GetIP, Context, END, GO_ON, OWN, Walk};

    /// Frames that are followed at most, those that are not kept among them.
    const FRAMES_MAX: usize = 1024;
    const WORD: usize = size_of::<usize>();
    /// Places of the table; a size takes the first of [`TRIES`] places that is empty or its own, else the first one.
    const PLACES: usize = 1 << 13;
    const TRIES: usize = 4;
    /// Bits of a size, which is a number of words. The rest of an entry is the address.
    const SIZE_BITS: u32 = 17;
    /// The marks of the lowest [`SIZE_BITS`] bits.
    const SIZE: u64 = (1 << SIZE_BITS) - 1;

    static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

    /// The size of the frame of [`follow`] where it reads its own place, in words; 0 as long as it is not known.
    static OWN_SIZE: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        /// The last frame of this thread: the address it goes on at, and where it begins.
        static LAST: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    /// The first place for an address.
    fn place(address: usize) -> usize {
        address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - PLACES.ilog2())
    }

    /// The words of the frame that goes on at an address; 0 if that is not known.
    fn size_at(address: usize) -> usize {
        let (first, wanted) = (place(address), (address as u64) << SIZE_BITS);
        for offset in 0..TRIES {
            let entry = TABLE[(first + offset) % PLACES].load(Ordering::Relaxed);
            if entry & !SIZE == wanted {
                return usize::try_from(entry & SIZE).unwrap_or(0);
            }
        }
        0
    }

    fn keep(address: usize, words: usize) {
        let (first, wanted) = (place(address), (address as u64) << SIZE_BITS);
        if address >> (u64::BITS - SIZE_BITS) != 0 || words as u64 > SIZE {
            return;
        }
        let fits = |entry: u64| entry == 0 || entry & !SIZE == wanted;
        let mut places = (0..TRIES).map(|offset| &TABLE[(first + offset) % PLACES]);
        let place = places.find(|place| fits(place.load(Ordering::Relaxed))).unwrap_or(&TABLE[first]);
        place.store(wanted | words as u64, Ordering::Relaxed);
    }

    /// Follows kept sizes, or asks the unwinder and keeps what it says; `false` if this thread does not stand on its own
    /// stack, or the stack is too deep.
    #[inline(never)]
    pub(super) fn follow(walk: &mut Walk) -> bool {
        let here: usize;
        // SAFETY: copies a register.
        unsafe {
            std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags));
        }
        let told = follow_from(here, walk) || ask(here, walk);
        // This frame must be there while the unwinder walks: nothing is called in its place.
        std::hint::black_box(told)
    }

    /// Keeps a wrong size for each address of a walk; for tests.
    #[cfg(test)]
    pub(super) fn spoil(walk: &Walk) {
        for address in &walk.addresses[..walk.len] {
            keep(*address, size_at(*address) + 2);
        }
    }

    /// Whether the sizes of the last walk are known, and lead to the same addresses; for tests.
    #[cfg(test)]
    pub(super) fn knows(walk: &Walk) -> bool {
        walk.addresses[..walk.len - 1].iter().all(|address| size_at(*address) != 0)
    }

    /// Follows kept sizes from the place of [`follow`] on.
    fn follow_from(here: usize, walk: &mut Walk) -> bool {
        let (stack, last) = (stack(), LAST.get());
        let (mut at, mut words) = (here, OWN_SIZE.load(Ordering::Relaxed));
        for _ in 0..FRAMES_MAX {
            // The end of the frame; below it lies the address to go on at.
            let end = at + words * WORD;
            if words == 0 || end <= stack.start + WORD || end > stack.end {
                break;
            }
            let address = word(&stack, end - WORD);
            walk.push(address);
            if (address, end) == last {
                return walk.len > OWN;
            }
            (at, words) = (end, size_at(address));
        }
        walk.len = 0;
        false
    }

    /// What is known while the unwinder walks.
    struct Asked<'a> {
        walk: &'a mut Walk,
        /// The place of [`follow`].
        here: usize,
        /// The last frame: the address it goes on at, and where it begins.
        last: (usize, usize),
        frames: usize,
    }

    /// Lets the unwinder walk, and keeps the sizes of the frames.
    fn ask(here: usize, walk: &mut Walk) -> bool {
        let stack = stack();
        if !stack.contains(&here) {
            return false;
        }
        let mut asked = Asked { walk, here, last: (0, 0), frames: 0 };
        // SAFETY: the unwinder walks the stack of this thread and calls `step` with the pointer, both until it returns.
        let _ = unsafe { _Unwind_Backtrace(step, std::ptr::from_mut(&mut asked).cast()) };
        LAST.set(asked.last);
        asked.frames < FRAMES_MAX && asked.walk.len > OWN
    }

    extern "C" fn step(context: *mut Context, asked: *mut c_void) -> c_int {
        // SAFETY: the pointer that `ask` gave to the unwinder, which calls this before it returns.
        let asked = unsafe { &mut *asked.cast::<Asked<'_>>() };
        // SAFETY: the frame that the unwinder is at.
        let address = unsafe { _Unwind_GetIP(context) };
        // SAFETY: as above.
        let begin = unsafe { _Unwind_GetCFA(context) };
        // Frames below that of `follow`, and its own.
        if begin <= asked.here {
            return GO_ON;
        }
        if address == 0 || asked.frames == FRAMES_MAX {
            return END;
        }
        match asked.last {
            (0, 0) => OWN_SIZE.store((begin - asked.here) / WORD, Ordering::Relaxed),
            (before, from) => keep(before, begin.saturating_sub(from) / WORD),
        }
        asked.walk.push(address);
        asked.last = (address, begin);
        asked.frames += 1;
        GO_ON
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod sizes {
    //! Sizes of frames are not kept here.

    pub(super) fn follow(_walk: &mut super::Walk) -> bool {
        false
    }
}

/// Held by tests that compare walks, since any of them may end the following of frame pointers for all.
#[cfg(test)]
pub(super) static COMPARING: crate::sync::Mutex<()> = crate::sync::Mutex::new(());

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

    #[inline(never)]
    fn by_sizes() -> Walk {
        let mut walk = Walk::none(Way::Sizes);
        assert!(sizes::follow(&mut walk), "this thread stands on its own stack");
        walk
    }

    #[inline(never)]
    fn deep_by_sizes(depth: usize, room: &[u64]) -> Vec<usize> {
        let walked = match depth {
            0 => by_sizes().addresses().to_vec(),
            1 => deep_by_sizes(0, &[depth as u64; 40]),
            depth => deep_by_sizes(depth - 1, &room[1..]),
        };
        std::hint::black_box(room);
        walked
    }

    /// Kept sizes lead to what the unwinder says, and to nothing else once they are wrong.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn kept_sizes_lead_where_the_unwinder_goes() {
        let _alone = lock(&COMPARING);
        let room = [0; 64];
        for depth in std::hint::black_box([0, 1, 2, 9, 3, 9]) {
            let turns = std::hint::black_box(3);
            let seen: Vec<_> = (0..turns).map(|_| deep_by_sizes(depth, &room)).collect();
            assert!(seen.iter().all(|addresses| *addresses == seen[0] && addresses.len() > depth), "{seen:?}");
        }
        let mut walks = Vec::new();
        for turn in 0..std::hint::black_box(4) {
            let walk = by_sizes();
            assert!(sizes::knows(&walk) && walk.is_confirmed());
            walks.push(walk.addresses().to_vec());
            if turn % 2 == 0 {
                sizes::spoil(&walk);
            }
        }
        assert!(walks.iter().all(|walk| *walk == walks[0]));
        std::thread::spawn(|| {
            let (first, second) = (by_sizes(), by_sizes());
            assert!(first.is_confirmed() && second.is_confirmed());
        })
        .join()
        .expect("another thread has another last frame");
    }

    /// A stack that is not the thread's own is left to the unwinder.
    #[test]
    fn made_up_frames_are_not_believed() {
        let _alone = lock(&COMPARING);
        let mut walk = Walk::new();
        walk.way = Way::FramePointers;
        walk.addresses = [7; DEPTH_MAX];
        assert!(!walk.is_confirmed());
        assert!(!FOLLOWS_FRAME_POINTERS.load(Ordering::Relaxed));
    }
}
