//! Memory for reading: at most eight times the file's size, whatever the file is, and less for real files.
//!
//! # Safety
//! The allocator hands every call on to the system's as it is, and counts bytes.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(unsafe_code, reason = "an allocator that counts; see the top of the file")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use memory_viz::{Error, Snapshot, file};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call is the system allocator's, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps what `GlobalAlloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps what `GlobalAlloc` asks for.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match size.checked_sub(layout.size()) {
            Some(more) => add(more),
            None => drop(HELD.fetch_sub(layout.size() - size, Ordering::Relaxed)),
        }
        // SAFETY: the caller keeps what `GlobalAlloc` asks for.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads a file; returns the result and the peak number of allocated bytes, including the file's.
fn measured(bytes: &[u8]) -> (Result<Snapshot, Error>, usize) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = file::parse(bytes);
    let peak = PEAK.load(Ordering::Relaxed) - before;
    (outcome, peak + bytes.len())
}

fn pickle(parts: &[&[u8]]) -> Vec<u8> {
    let begin: &[u8] = b"\x80\x04";
    [&[begin], parts].concat().concat()
}

/// Returns a pickled snapshot whose list of segments is built by these instructions.
fn with_segments(instructions: &[u8]) -> Vec<u8> {
    pickle(&[b"}(X\x08\0\0\0segments](", instructions, b"eu."])
}

/// Returns files whose values take far more memory than the files.
fn hostile(count: usize) -> Vec<(&'static str, Vec<u8>)> {
    let numbered = |text: fn(usize) -> String| (0..count / 16).map(text).collect::<Vec<_>>().join(",");
    let json = |inner: &str| format!("{{\"segments\":[],\"device_traces\":[[{inner}]]}}").into_bytes();
    let entry = b"}(X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0sizeK\x01u";
    let sparse = (0..count / 8).flat_map(|number| {
        let number = u32::try_from(2 * number + 1000).unwrap();
        [b"Nr".as_slice(), &number.to_le_bytes()].concat()
    });
    let texts = (0..count / 8).flat_map(|number| [b"\x8c\x05", format!("{number:05x}").as_bytes()].concat());
    let stack = |number: usize| format!("{{\"action\":\"alloc\",\"size\":1,\"frames\":[{{\"name\":\"{number}\"}}]}}");
    vec![
        ("empty lists", with_segments(&b"]".repeat(count))),
        ("empty dictionaries", with_segments(&b"}".repeat(count))),
        ("empty tuples", with_segments(&b")".repeat(count))),
        ("lists of one", with_segments(&b"]Na".repeat(count / 3))),
        ("kept values", with_segments(&b"N\x94".repeat(count / 2))),
        ("kept far apart", with_segments(&sparse.collect::<Vec<_>>())),
        ("large numbers", with_segments(&b"G\x40\0\0\0\0\0\0\0".repeat(count / 9))),
        ("texts", with_segments(&texts.collect::<Vec<_>>())),
        (
            "one entry recalled",
            pickle(&[
                b"}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](",
                entry,
                b"\x94",
                &b"h\0".repeat(count / 2),
                b"eeu.",
            ]),
        ),
        ("unknown lists", pickle(&[b"}(X\x08\0\0\0segments]X\x01\0\0\0x](", &b"]".repeat(count), b"eu."])),
        ("empty lists of JSON", json(&vec!["[]"; count / 3].join(","))),
        ("digits of JSON", json(&vec!["0"; count / 2].join(","))),
        ("escapes of JSON", json(&vec!["\"\\n\""; count / 5].join(","))),
        ("frames of JSON", json(&numbered(stack))),
        ("unknown keys of JSON", json(&numbered(|key| format!("{{\"action\":\"x\",\"{key}\":[]}}")))),
        ("settings of JSON", {
            let settings: Vec<String> = (0..count / 8).map(|key| format!("\"{key}\":1")).collect();
            format!("{{\"segments\":[],\"allocator_settings\":{{{}}}}}", settings.join(",")).into_bytes()
        }),
    ]
}

/// There is only one test, since the counters are process-wide.
#[test]
fn reading_takes_at_most_eight_times_the_file() {
    for count in [100, 10_000, 300_000] {
        for (name, bytes) in hostile(count) {
            let (outcome, held) = measured(&bytes);
            let most = 8 * bytes.len() + (64 << 10) + 4096;
            assert!(held <= most, "{name}: {held} bytes for {}, {:?}", bytes.len(), outcome.map(drop));
        }
    }
    // A file of 30 MB once took 1.67 GB. Now it is rejected.
    let (outcome, held) = measured(&with_segments(&b"]".repeat(30_000_000)));
    assert!(matches!(outcome, Err(Error::Limit { field: "held_ratio", .. })) && held <= 240_100_000, "{held}");
    // Real snapshots are well within the limit, in both formats.
    for steps in [3000, 30_000] {
        let snapshot = common::training(steps, 1);
        let (mut pickled, mut json) = (Vec::new(), Vec::new());
        file::pickle_to(&snapshot, &mut pickled).unwrap();
        file::json_to(&snapshot, &mut json).unwrap();
        for bytes in [pickled, json] {
            let (outcome, held) = measured(&bytes);
            assert!(outcome.is_ok() && held <= 7 * bytes.len(), "{held} bytes for {}", bytes.len());
        }
    }
}
