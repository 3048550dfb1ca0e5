//! The history of device memory and snapshots with it, for the Python package.
//!
//! A snapshot is taken by one call, which says how long its text is, and given by the next, so that it is taken once
//! however long it is. The text is JSON with the names of torch's `_snapshot`.
//!
//! **Invariant:** a snapshot that was taken is kept for the thread that took it, until it is given or the next is taken.
//!
//! # Safety
//! Places for texts have the length that the caller says, texts end with a zero byte.
#![expect(unsafe_code, reason = "exports C functions")]

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::fmt::Write as _;

use c10_core::{
    AllocatorConfig, BlockInfo, HistoryContext, HistoryOptions, HistoryStacks, MemorySnapshot, PoolId, Runtime,
    SegmentInfo, TraceAction, TraceEntry, TraceFrame,
};

use crate::last_error::{Failure, guarded};
use crate::text;

thread_local! {
    static TAKEN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Records the history of all devices from now on, or stops and forgets it where `enabled` is null: the first five
/// arguments of torch's `_record_memory_history` that say what, with null for `None`; `max_entries` for each device;
/// whether what was recorded is forgotten; names of actions that get no entry, with commas between. 0, or -1 for an error.
///
/// # Safety
/// Texts are null or end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_record_history(
    enabled: *const c_char,
    context: *const c_char,
    stacks: *const c_char,
    max_entries: u64,
    clear_history: c_int,
    skip_actions: *const c_char,
) -> c_int {
    let recorded = guarded("torch_allocator_record_history", || {
        // SAFETY: as for this function.
        let texts = [enabled, context, stacks, skip_actions].map(|text| unsafe { optional(text) });
        let [enabled, context, stacks, skip_actions] = texts;
        let options = options([enabled?, context?, stacks?, skip_actions?], max_entries, clear_history != 0)?;
        Ok(Runtime::current().memory().record_history(options.as_ref())?)
    });
    recorded.map_or(-1, |()| 0)
}

/// Sets the text that goes with what this thread does to device memory from now on; null or empty for none.
///
/// # Safety
/// `metadata` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_set_metadata(metadata: *const c_char) -> c_int {
    let set = guarded("torch_allocator_set_metadata", || {
        // SAFETY: as for this function.
        let metadata = unsafe { optional(metadata) }?;
        Runtime::current().memory().set_metadata(metadata.unwrap_or_default());
        Ok(())
    });
    set.map_or(-1, |()| 0)
}

/// The text that goes with what this thread does.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_metadata(place: *mut c_char, room: usize) -> isize {
    let metadata = guarded("torch_allocator_metadata", || Ok(Runtime::current().memory().metadata()));
    // SAFETY: as for this function.
    metadata.map_or(-1, |metadata| unsafe { text::give(&metadata, place, room) })
}

/// Takes a snapshot, of one pool alone if `of_pool` is not 0, and with the history if `include_traces` is not 0; the length
/// of its text, or -1 for an error. [`torch_allocator_give_snapshot`] gives it.
#[unsafe(no_mangle)]
pub extern "C" fn torch_allocator_take_snapshot(
    of_pool: c_int,
    first: u64,
    second: u64,
    include_traces: c_int,
) -> isize {
    let taken = guarded("torch_allocator_take_snapshot", || {
        let pool = (of_pool != 0).then_some(PoolId(first, second));
        let json = snapshot(&Runtime::current().memory().take_snapshot(pool, include_traces != 0)?);
        let length = isize::try_from(json.len()).unwrap_or(isize::MAX);
        TAKEN.with(|taken| *taken.borrow_mut() = json);
        Ok(length)
    });
    taken.unwrap_or(-1)
}

/// Gives the snapshot that this thread took, and forgets it if there is room for all of it; its length.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torch_allocator_give_snapshot(place: *mut c_char, room: usize) -> isize {
    let given = guarded("torch_allocator_give_snapshot", || {
        Ok(TAKEN.with(|taken| {
            let mut taken = taken.borrow_mut();
            // SAFETY: as for this function.
            let length = unsafe { text::give(&taken, place, room) };
            if taken.len() < room {
                *taken = String::new();
            }
            length
        }))
    });
    given.unwrap_or(-1)
}

/// A text that may be missing.
///
/// # Safety
/// As for [`text::take`].
unsafe fn optional<'a>(text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as for this function.
    unsafe { text::take(text) }.map(Some)
}

/// What to record; torch's words and its texts for others.
fn options(
    [enabled, context, stacks, skip_actions]: [Option<&str>; 4],
    max_entries: u64,
    clear_history: bool,
) -> Result<Option<HistoryOptions>, Failure> {
    let refuse = |expected: &str| Err(Failure::Argument(expected.to_owned()));
    let max_entries = match enabled {
        None => return Ok(None),
        Some("state") => 1,
        Some("all") => usize::try_from(max_entries).unwrap_or(usize::MAX),
        Some(_) => return refuse("expected state to be 'state', 'all', or None"),
    };
    let context = match context {
        None => HistoryContext::Never,
        Some("state") => HistoryContext::State,
        Some("alloc") => HistoryContext::Alloc,
        Some("all") => HistoryContext::All,
        Some(_) => return refuse("expected context to be 'state', 'alloc', 'all', or None"),
    };
    let stacks = match stacks {
        Some("python") => HistoryStacks::Program,
        Some("all") => HistoryStacks::All,
        _ => return refuse("expected stacks to be 'python', or 'all'"),
    };
    let names = skip_actions.unwrap_or_default().split(',').filter(|name| !name.is_empty());
    let action = |name: &str| {
        let unknown = || Failure::Argument(format!("'{name}' is no action such as 'free_requested'"));
        TraceAction::from_name(name).ok_or_else(unknown)
    };
    let skip_actions = names.map(action).collect::<Result<_, _>>()?;
    Ok(Some(HistoryOptions { context, stacks, max_entries, clear_history, skip_actions, ..HistoryOptions::default() }))
}

fn snapshot(snapshot: &MemorySnapshot) -> String {
    let traces = snapshot.device_traces.iter().map(|entries| list(entries, entry));
    format!(
        "{{\"segments\":{},\"device_traces\":[{}],\"allocator_settings\":{},\"external_annotations\":[]}}",
        list(&snapshot.segments, |held| segment(held, |address| {
            (snapshot.frames_of_segment(address), snapshot.frames_of_block(address))
        })),
        traces.collect::<Vec<_>>().join(","),
        settings(&snapshot.settings),
    )
}

/// A segment as torch's `memory_snapshot` lists it; `frames` has the stacks of what made the segment and the block at an
/// address.
pub(crate) fn segment<'a>(
    segment: &SegmentInfo,
    frames: impl Fn(u64) -> (&'a [TraceFrame], &'a [TraceFrame]),
) -> String {
    let (made, _) = frames(segment.address);
    format!(
        "{{\"device\":{},\"address\":{},\"total_size\":{},\"allocated_size\":{},\"active_size\":{},\
         \"requested_size\":{},\"stream\":{},\"segment_type\":\"{}\",\"segment_pool_id\":[{},{}],\
         \"is_expandable\":{},\"frames\":{},\"blocks\":{}}}",
        segment.device,
        segment.address,
        segment.total_size,
        segment.allocated_size,
        segment.active_size,
        segment.requested_size,
        segment.stream,
        segment.segment_type.name(),
        segment.pool.0,
        segment.pool.1,
        segment.is_expandable,
        list(made, frame),
        list(&segment.blocks, |held| block(held, frames(held.address).1)),
    )
}

fn block(block: &BlockInfo, frames: &[TraceFrame]) -> String {
    format!(
        "{{\"address\":{},\"size\":{},\"requested_size\":{},\"state\":\"{}\",\"frames\":{}}}",
        block.address,
        block.size,
        block.requested_size,
        block.state.name(),
        list(frames, frame),
    )
}

/// An entry of the history. Torch names the address of a request that failed otherwise: it is what the device had free.
fn entry(entry: &TraceEntry) -> String {
    let address = if entry.action == TraceAction::Oom { "device_free" } else { "addr" };
    format!(
        "{{\"action\":\"{}\",\"{address}\":{},\"size\":{},\"stream\":{},\"time_us\":{},\"compile_context\":{},\
         \"user_metadata\":{},\"pool_id\":[{},{}],\"frames\":{}}}",
        entry.action.name(),
        entry.address,
        entry.size,
        entry.stream,
        entry.time_us,
        quoted(entry.compile_context.as_deref().unwrap_or("N/A")),
        quoted(&entry.user_metadata),
        entry.pool.0,
        entry.pool.1,
        list(&entry.frames, frame),
    )
}

fn frame(frame: &TraceFrame) -> String {
    let TraceFrame { name, filename, line, .. } = frame;
    format!("{{\"name\":{},\"filename\":{},\"line\":{line}}}", quoted(name), quoted(filename))
}

/// The options under torch's names.
fn settings(config: &AllocatorConfig) -> String {
    let divisions = config.roundup_power2_divisions.iter().enumerate();
    let divisions: Vec<String> = divisions.map(|(entry, count)| format!("\"{}\":{count}", 1_u64 << entry)).collect();
    format!(
        "{{\"PYTORCH_CUDA_ALLOC_CONF\":{},\"max_split_size\":{},\"garbage_collection_threshold\":{},\
         \"expandable_segments\":{},\"pinned_num_register_threads\":{},\"release_lock_on_cudamalloc\":{},\
         \"pinned_use_cuda_host_register\":{},\"graph_capture_record_stream_reuse\":{},\
         \"roundup_power2_divisions\":{{{}}}}}",
        quoted(config.text()),
        config.max_split_size.map_or(-1, u64::cast_signed),
        config.garbage_collection_threshold,
        config.expandable_segments,
        config.pinned_num_register_threads,
        config.release_lock_on_cudamalloc,
        config.pinned_use_cuda_host_register,
        config.graph_capture_record_stream_reuse,
        divisions.join(","),
    )
}

fn list<T>(items: &[T], write: impl Fn(&T) -> String) -> String {
    format!("[{}]", items.iter().map(write).collect::<Vec<_>>().join(","))
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Writing to a text cannot fail.
            control if control < ' ' => drop(write!(quoted, "\\u{:04x}", u32::from(control))),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
