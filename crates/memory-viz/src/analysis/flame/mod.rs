//! Lines for a flame graph, as the commands of PyTorch's `_memory_viz.py` write them: names separated by `;`, a space,
//! and bytes. [`svg`] draws them.

mod svg;

pub use svg::svg;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::model::{BlockState, FrameId, Names, Segment, Snapshot, StackId};

/// A line for each block: stream, segment, state and frames, outermost first (`_memory_viz.py segments`).
#[must_use]
pub fn segments(snapshot: &Snapshot) -> String {
    let mut lines = String::new();
    for segment in &snapshot.segments {
        let prefix = format!("stream_{};seg_{}", segment.stream, segment.address);
        blocks(&mut lines, &prefix, &snapshot.names, segment);
    }
    lines
}

/// As [`segments`], without the segment (`_memory_viz.py memory`).
#[must_use]
pub fn memory(snapshot: &Snapshot) -> String {
    let mut lines = String::new();
    for segment in &snapshot.segments {
        blocks(&mut lines, &format!("stream_{}", segment.stream), &snapshot.names, segment);
    }
    lines
}

/// The segments that only one of two snapshots has, by address and size (`_memory_viz.py compare`).
#[must_use]
pub fn compare(before: &Snapshot, after: &Snapshot) -> String {
    let mut lines = String::new();
    for (name, one, other) in [("only_before", before, after), ("only_after", after, before)] {
        let known: BTreeSet<(u64, u64)> = other.segments.iter().map(identity).collect();
        for segment in one.segments.iter().filter(|segment| !known.contains(&identity(segment))) {
            let prefix = format!("stream_{};{name};seg_{}", segment.stream, segment.address);
            blocks(&mut lines, &prefix, &one.names, segment);
        }
    }
    lines
}

/// What makes a segment the same in two snapshots.
pub(in crate::analysis) fn identity(segment: &Segment) -> (u64, u64) {
    (segment.address, segment.total_size)
}

fn blocks(lines: &mut String, prefix: &str, names: &Names, segment: &Segment) {
    for block in &segment.blocks {
        let state = match block.state {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        };
        let frames = frames(names, block.stack);
        let _ = writeln!(lines, "{prefix};{state};{frames} {}", block.requested_size);
        let gaps = block.size.saturating_sub(block.requested_size);
        if gaps > 0 {
            let _ = writeln!(lines, "{prefix};{state};<gaps> {gaps}");
        }
    }
}

fn frames(names: &Names, stack: StackId) -> String {
    if stack == StackId::EMPTY {
        return "<non-python>".to_owned();
    }
    let kept: Vec<String> = shown(names, stack).rev().map(|frame| names.frame_text(frame)).collect();
    kept.join(";")
}

/// Parts of functions' names whose frames say nothing about the program: the recorder, the interpreter, the start.
const OMITTED_NAMES: [&str; 8] = [
    "unwind::unwind",
    "CapturedTraceback::gather",
    "gather_with_cpp",
    "_start",
    "__libc_start_main",
    "PyEval_",
    "PyObject_",
    "PyFunction_",
];

/// Parts of files' names likewise: the dispatcher and the interpreter.
const OMITTED_FILES: [&str; 10] = [
    "core/boxing",
    "/Register",
    "/Redispatch",
    "pythonrun.c",
    "Modules/main.c",
    "Objects/call.c",
    "Objects/methodobject.c",
    "pycore_ceval.h",
    "ceval.c",
    "cpython/abstract.h",
];

/// The frames of a stack that PyTorch's tools show, innermost first.
pub(in crate::analysis) fn shown(names: &Names, stack: StackId) -> impl DoubleEndedIterator<Item = FrameId> {
    names.frames_of(stack).iter().copied().filter(|id| {
        let frame = names.frame_of(*id);
        let (name, file) = (names.text_of(frame.name), names.text_of(frame.filename));
        !OMITTED_NAMES.iter().any(|part| name.contains(part)) && !OMITTED_FILES.iter().any(|part| file.contains(part))
    })
}
