//! Call stacks: where a thread is, as addresses, and what these are called when somebody asks.
//!
//! A walk over the stack gives addresses. Each stack that was not seen before is kept once, together with what
//! the standard library needs to name its functions. So most captures are a walk and a look into a table.
//!
//! **Invariants:** two stacks are one exactly if their addresses are. Names are looked for when a snapshot is taken, once
//! for each stack.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, OnceLock};

use crate::sync::Mutex;
use crate::sync::lock;
use crate::trace::walk::Walk;

/// A function that was being called.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, HistoryOptions, Runtime};
///
/// let runtime = Runtime::current();
/// runtime.memory().record_history(Some(&HistoryOptions::default()))?;
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let snapshot = runtime.memory().take_snapshot(None, false)?;
/// for frame in snapshot.frames_of_block(buffer.address()) {
///     println!("{} at {}:{}", frame.name, frame.filename, frame.line);
/// }
/// # assert!(snapshot.frames_of_block(buffer.address()).iter().any(|frame| frame.name.contains("main")));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TraceFrame {
    /// The function.
    pub name: String,
    /// Its file; `??` where the program does not say.
    pub filename: String,
    /// The line; 0 where the program does not say.
    pub line: u32,
}

/// Crates of the runtime, and those of the standard library.
const INTERNAL: [&str; 14] = [
    "c10_core",
    "aten_cuda",
    "cuda_api",
    "cuda_dist",
    "cuda_storage",
    "cuda_sys",
    "cuda_sim",
    "kernel_ir",
    "testkit",
    "std",
    "core",
    "alloc",
    "test",
    "backtrace",
];

/// Beginnings of functions of libc, of the unwinder and of the start of a process.
const STARTS: [&str; 8] = ["_start", "__libc_", "start_thread", "clone", "__clone", "__rust_", "_Unwind_", "rust_"];

/// Parts of the paths of their sources. Inlined functions have no crate in their name where a program keeps line tables
/// alone.
const SOURCES: [&str; 11] = [
    "/rustc/",
    "/c10-core/src/",
    "/aten-cuda/src/",
    "/cuda-api/src/",
    "/cuda-dist/src/",
    "/cuda-storage/src/",
    "/cuda-sys/src/",
    "/cuda-sim/src/",
    "/kernel-ir/src/",
    "/testkit/src/",
    "/library/std/src/",
];

impl TraceFrame {
    /// Whether the function is the program's own: none of the runtime, of the standard library or of libc.
    pub(crate) fn is_program(&self) -> bool {
        let plain = self.name.trim_start_matches(['<', '&', '*', '(', '[']);
        let plain = plain.strip_prefix("dyn ").or_else(|| plain.strip_prefix("mut ")).unwrap_or(plain);
        let is_of_crate = plain.split_once("::").is_some_and(|(first, _)| INTERNAL.contains(&first));
        let starts_process = STARTS.iter().any(|start| plain.starts_with(start));
        !is_of_crate && !starts_process && !SOURCES.iter().any(|part| self.filename.contains(part))
    }
}

/// A call stack, innermost function first.
#[derive(Debug)]
pub(crate) struct Stack {
    unresolved: Backtrace,
    frames: OnceLock<Arc<[TraceFrame]>>,
}

impl Stack {
    /// Its functions.
    pub(crate) fn frames(&self) -> Arc<[TraceFrame]> {
        Arc::clone(self.frames.get_or_init(|| parse(&self.unresolved.to_string()).into()))
    }
}

/// The stacks that were seen.
#[derive(Debug, Default)]
pub(crate) struct Stacks(Mutex<Known>);

type Known = HashMap<Box<[usize]>, Arc<Stack>, BuildHasherDefault<WordHasher>>;

impl Stacks {
    /// The stack of this thread.
    #[inline(never)]
    pub(crate) fn capture(&self) -> Arc<Stack> {
        // Where a walk cannot be believed, the next one is made by the unwinder.
        let walk = loop {
            let walk = Walk::new();
            if let Some(stack) = lock(&self.0).get(walk.addresses()) {
                return Arc::clone(stack);
            }
            if walk.is_confirmed() {
                break walk;
            }
        };
        // Made with the table unlocked: it takes long, and two threads may well do it for one stack.
        let stack = Arc::new(Stack { unresolved: Backtrace::force_capture(), frames: OnceLock::new() });
        Arc::clone(lock(&self.0).entry(walk.addresses().into()).or_insert(stack))
    }

    /// Forgets every stack; whoever holds one keeps it.
    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }
}

/// Mixes words well enough for a table.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl WordHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        // A table takes the low bits, which a product mixes least.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }
}

/// The functions that the text of a backtrace names, without those that captured it.
fn parse(text: &str) -> Vec<TraceFrame> {
    let mut frames: Vec<TraceFrame> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                (last.filename, last.line) = parse_place(place);
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            frames.push(TraceFrame { name: name.to_owned(), filename: "??".to_owned(), line: 0 });
        }
    }
    // Names have no path where the program keeps line tables alone.
    let is_own = |file: &str| file.contains("c10-core") && file.contains("/src/trace/");
    let captures = |frame: &TraceFrame| {
        frame.name.contains("Backtrace") || frame.name.contains("c10_core::trace::") || is_own(&frame.filename)
    };
    frames.retain(|frame| !captures(frame));
    frames
}

/// File and line of `file:line:column`.
fn parse_place(place: &str) -> (String, u32) {
    let mut parts = place.rsplitn(3, ':');
    match (parts.next(), parts.next().and_then(|line| line.parse().ok()), parts.next()) {
        (Some(_), Some(line), Some(file)) => (whole_path(file), line),
        _ => (place.to_owned(), 0),
    }
}

/// The path of a file that a backtrace writes relative to the current directory.
fn whole_path(file: &str) -> String {
    let folder = file.strip_prefix("./").and_then(|rest| Some((std::env::current_dir().ok()?, rest)));
    folder.map_or_else(|| file.to_owned(), |(folder, rest)| folder.join(rest).display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn here(stacks: &Stacks) -> Arc<Stack> {
        std::hint::black_box(stacks.capture())
    }

    #[test]
    fn a_stack_is_kept_once_and_named_when_asked() {
        let _alone = lock(&crate::trace::walk::COMPARING);
        // The first may be the one after which frame pointers are not followed any more.
        let _ = here(&Stacks::default());
        let stacks = Stacks::default();
        let mut seen = Vec::new();
        // Of an unknown number of turns: the calls of a loop that is unrolled are several places.
        for _ in 0..std::hint::black_box(3) {
            seen.push(here(&stacks));
        }
        assert!(Arc::ptr_eq(&seen[0], &seen[2]));
        let elsewhere = here(&stacks);
        assert!(!Arc::ptr_eq(&seen[0], &elsewhere), "another line");
        assert_eq!(lock(&stacks.0).len(), 2);
    }

    #[test]
    fn the_text_of_a_backtrace_is_understood() {
        let text = "   0: std::backtrace::Backtrace::create\n             at /rustc/x/backtrace.rs:331:13\n   \
                    1: c10_core::trace::stack::Stacks::capture\n   2: a::b<c: d>\n             at ./src/a b.rs:12:5\n   \
                    3: main\n";
        let frame = |name: &str, filename: &str, line| TraceFrame {
            name: name.to_owned(),
            filename: filename.to_owned(),
            line,
        };
        let file = std::env::current_dir().unwrap().join("src/a b.rs");
        assert_eq!(parse(text), [frame("a::b<c: d>", &file.to_string_lossy(), 12), frame("main", "??", 0)]);
    }
}
