//! Separates frames of the program from frames of this runtime, of Rust's standard library and of libc.
//!
//! A stack begins inside the allocator and ends in the start-up code of the process, which says nothing about the
//! program. Reports and the page show the program's frames; a switch shows all frames. Function names suffice to tell
//! them apart, so no line tables are needed.

use crate::model::{FrameId, Names, StackId};

/// Crates and namespaces of the runtime and of the standard library.
const CRATES: [&str; 19] = [
    "c10_core",
    "aten_cuda",
    "cuda_api",
    "cuda_dist",
    "cuda_storage",
    "cuda_sys",
    "cuda_sim",
    "cuda_caching",
    "kernel_ir",
    "memory_viz",
    "ptx_sim",
    "testkit",
    "torch_allocator",
    "trace_replay",
    "std",
    "core",
    "alloc",
    "test",
    "backtrace",
];

/// Prefixes of function names of libc, of the unwinder and of process start-up.
const STARTS: [&str; 8] = ["_start", "__libc_", "start_thread", "clone", "__clone", "__rust_", "_Unwind_", "rust_"];

/// Parts of the paths of their sources. Inlined functions have no crate in their name where a program keeps line tables
/// alone.
const FILES: [&str; 11] = [
    "/rustc/",
    "/library/std/src/",
    "/c10-core/src/",
    "/aten-cuda/src/",
    "/cuda-api/src/",
    "/cuda-dist/src/",
    "/cuda-storage/src/",
    "/cuda-sys/src/",
    "/cuda-sim/src/",
    "/kernel-ir/src/",
    "/testkit/src/",
];

/// Whether a function is one of the runtime, of the standard library or of libc.
fn is_internal(name: &str) -> bool {
    let plain = name.trim_start_matches(['<', '&', '*', '(', '[']);
    let plain = plain.strip_prefix("dyn ").or_else(|| plain.strip_prefix("mut ")).unwrap_or(plain);
    let of_crate = plain.split_once("::").is_some_and(|(first, _)| CRATES.contains(&first));
    of_crate || STARTS.iter().any(|start| plain.starts_with(start))
}

/// Whether a frame is the program's own.
#[must_use]
pub fn is_program(names: &Names, frame: FrameId) -> bool {
    let frame = names.frame_of(frame);
    is_of_program(names.text_of(frame.filename), names.text_of(frame.name))
}

/// Whether a function of this file and name is the program's own.
fn is_of_program(file: &str, name: &str) -> bool {
    !is_internal(name) && !FILES.iter().any(|part| file.contains(part))
}

/// Returns the program's own frames of a stack, innermost first; all frames where none is the program's own.
///
/// ```
/// use memory_viz::analysis::program_frames;
/// use memory_viz::{Frame, Names};
///
/// let mut names = Names::default();
/// let mut frame = |name: &str| {
///     let name = names.text(name);
///     let filename = names.text("");
///     names.frame(Frame { name, filename, line: 0 })
/// };
/// let frames = ["c10_core::api::alloc", "app::load", "std::rt::lang_start"].map(&mut frame);
/// let stack = names.stack(&frames);
/// assert_eq!(program_frames(&names, stack), [frames[1]]);
/// ```
#[must_use]
pub fn program_frames(names: &Names, stack: StackId) -> Vec<FrameId> {
    let all = names.frames_of(stack);
    let own: Vec<FrameId> = all.iter().copied().filter(|frame| is_program(names, *frame)).collect();
    if own.is_empty() { all.to_vec() } else { own }
}

/// Like [`program_frames`], for frames as written by [`Names::frame_text`].
pub(super) fn program_texts(frames: &[String]) -> Vec<String> {
    program_places(frames).into_iter().map(|at| frames[at].clone()).collect()
}

/// Places of the program's own frames among texts as [`Names::frame_text`] writes them; all where none is its own.
pub(crate) fn program_places(frames: &[String]) -> Vec<usize> {
    // File, line and name; a text of two parts is a name alone.
    let is_own = |text: &String| {
        let mut parts = text.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(file), Some(line), Some(name)) if line.parse::<u64>().is_ok() => is_of_program(file, name),
            _ => is_of_program("", text),
        }
    };
    let own: Vec<usize> = (0..frames.len()).filter(|&at| is_own(&frames[at])).collect();
    if own.is_empty() { (0..frames.len()).collect() } else { own }
}

/// Whether stacks have function names but no lines, as in programs built without line tables.
#[must_use]
pub fn lack_lines(names: &Names) -> bool {
    !names.frames().is_empty() && names.frames().iter().all(|frame| frame.line == 0)
}

#[cfg(test)]
mod tests {
    use super::{is_internal, program_texts};

    #[test]
    fn frames_of_the_program_are_told_from_others() {
        for name in [
            "c10_core::caching::allocate",
            "<c10_core::Buffer as core::clone::Clone>::clone",
            "<alloc::boxed::Box<app::F> as core::ops::FnOnce<()>>::call_once",
            "<&mut core::iter::Map<I, F>>::next",
            "<dyn core::ops::Fn()>::call",
            "std::rt::lang_start::{{closure}}",
            "__libc_start_main",
            "_start",
            "__rust_try",
            "clone3",
        ] {
            assert!(is_internal(name), "{name}");
        }
        for name in ["app::main", "<app::Model as core::clone::Clone>::clone", "main", "core_app::run", "f", "run", ""]
        {
            assert!(!is_internal(name), "{name}");
        }
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let stack =
            texts(&["alloc.rs:3:c10_core::alloc", "main.rs:7:app::load", "std::rt::lang_start", "train.py:4:f"]);
        assert_eq!(program_texts(&stack), texts(&["main.rs:7:app::load", "train.py:4:f"]));
        assert_eq!(program_texts(&stack[..1]), stack[..1], "nothing is hidden where nothing else is known");
    }
}
