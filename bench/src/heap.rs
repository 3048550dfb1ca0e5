//! Counting the bytes that this program holds of its heap.
//!
//! The program's allocator is the system's with a counter that is off unless [`count`] switched it on, so that what is
//! timed pays one load of a flag. A driver is a library with an allocator of its own, which is not counted.
//!
//! # Safety
//! Every request is passed to the system's allocator as it came, and its answer is returned as it is; the counter
//! touches no memory that is handed out.
#![expect(unsafe_code, reason = "implements the allocator of the program")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

#[global_allocator]
static HEAP: Counting = Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);

static BYTES: AtomicI64 = AtomicI64::new(0);

/// Counts from now on, for the rest of the process.
pub(crate) fn count() {
    IS_COUNTING.store(true, Ordering::SeqCst);
}

/// How many bytes more are held than when counting began; less than 0 when older ones were given back.
#[must_use]
pub(crate) fn bytes() -> i64 {
    BYTES.load(Ordering::SeqCst)
}

struct Counting;

// SAFETY: all duties are met by the system's allocator, which answers every request.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duties are the same.
        let memory = unsafe { System.alloc(layout) };
        change(0, if memory.is_null() { 0 } else { layout.size() });
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duties are the same.
        let memory = unsafe { System.alloc_zeroed(layout) };
        change(0, if memory.is_null() { 0 } else { layout.size() });
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's duties are the same.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            change(layout.size(), size);
        }
        moved
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        change(layout.size(), 0);
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Nothing here may allocate or panic.
fn change(before: usize, after: usize) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        // A request is at most `isize::MAX` bytes long.
        BYTES.fetch_add(after.cast_signed() as i64 - before.cast_signed() as i64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, count};

    #[test]
    fn what_is_held_is_counted_until_it_is_given_back() {
        // Large enough to stand out from what other tests hold at the same time.
        const LARGE: i64 = 1 << 28;
        const NOISE: i64 = 1 << 24;
        count();
        let before = bytes();
        let mut held: Vec<u8> = Vec::with_capacity(1 << 28);
        assert!((bytes() - before - LARGE).abs() < NOISE, "one block");
        held.reserve_exact(1 << 29);
        assert!((bytes() - before - 2 * LARGE).abs() < NOISE, "grown");
        drop(held);
        assert!((bytes() - before).abs() < NOISE, "given back");
        let zeroed = vec![0_u8; 1 << 28];
        assert!((bytes() - before - LARGE).abs() < NOISE, "zeroed");
        drop(zeroed);
    }
}
