//! The history of device memory, and snapshots of it in torch's shape: recorded, taken, written to files.
//!
//! **Invariant:** what the runtime says is turned into a file's model in one place ([`snapshot`]); every file is written
//! by `memory-viz`, whole or not at all.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use c10_core::{
    AllocatorConfig, BlockInfo, BlockState, DeviceArg, Error, HistoryContext, HistoryOptions, HistoryStacks,
    MemoryError, MemorySnapshot, ObserverId, PinnedMemory, Result, Runtime, SegmentInfo, SegmentType, TraceAction,
    TraceEntry, TraceFrame,
};
use memory_viz::analysis::flame;
use memory_viz::{
    Action, Annotation, Block, BlockState as FileState, Frame, Names, Segment, SegmentKind, Setting, Snapshot, StackId,
    TraceEntry as FileEntry, file,
};

/// The arguments of torch's `_record_memory_history`, with its defaults. The history goes for all devices.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::MemoryHistory;
///
/// cuda_api::record_memory_history(&MemoryHistory { context: Some("alloc"), ..MemoryHistory::default() })?;
/// drop(cuda_api::DeviceBuffer::new(1000, None)?);
/// let snapshot = cuda_api::snapshot(None)?;
/// assert_eq!(snapshot.device_traces[0].len(), 4);
/// cuda_api::record_memory_history(&MemoryHistory::OFF)?;
/// # Ok::<(), cuda_api::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryHistory<'a> {
    /// `"state"`: what lives has its stack; `"all"`: there are entries too; `None`: nothing is recorded, and what was is
    /// forgotten.
    pub enabled: Option<&'a str>,
    /// What has stacks: `"state"`, `"alloc"`, `"all"`, or `None` for nothing.
    pub context: Option<&'a str>,
    /// `"python"` for the functions of the program, `"all"` for those of its libraries too.
    pub stacks: &'a str,
    /// Entries that a device keeps.
    pub max_entries: usize,
    /// Forget what was recorded before.
    pub clear_history: bool,
    /// Record what [`c10_core::Memory::compile_context`] says.
    pub compile_context: bool,
    /// Record what [`c10_core::Memory::annotate`] says.
    pub global_record_annotations: bool,
    /// Names of actions that get no entry.
    pub skip_actions: &'a [&'a str],
}

impl Default for MemoryHistory<'_> {
    fn default() -> Self {
        Self {
            enabled: Some("all"),
            context: Some("all"),
            stacks: "all",
            max_entries: usize::MAX,
            clear_history: false,
            compile_context: false,
            global_record_annotations: false,
            skip_actions: &[],
        }
    }
}

impl MemoryHistory<'_> {
    /// Nothing is recorded, and what was is forgotten. What lives keeps the stack of the call that made it.
    pub const OFF: Self = Self {
        enabled: None,
        context: None,
        stacks: "all",
        max_entries: 1,
        clear_history: true,
        compile_context: false,
        global_record_annotations: false,
        skip_actions: &[],
    };

    fn options(&self) -> Result<Option<HistoryOptions>> {
        let refuse =
            |expected, found: &str| Err(Error::Memory(MemoryError::HistoryOption { expected, found: found.into() }));
        let max_entries = match self.enabled {
            Some("state") => 1,
            None | Some("all") => self.max_entries,
            Some(other) => return refuse("state to be 'state', 'all', or None", other),
        };
        let context = match self.context {
            None => HistoryContext::Never,
            Some("state") => HistoryContext::State,
            Some("alloc") => HistoryContext::Alloc,
            Some("all") => HistoryContext::All,
            Some(other) => return refuse("context to be 'state', 'alloc', 'all', or None", other),
        };
        let stacks = match self.stacks {
            "python" => HistoryStacks::Program,
            "all" => HistoryStacks::All,
            other => return refuse("stacks to be 'python', or 'all'", other),
        };
        Ok(self.enabled.is_some().then_some(HistoryOptions {
            context,
            stacks,
            max_entries,
            clear_history: self.clear_history,
            compile_context: self.compile_context,
            global_record_annotations: self.global_record_annotations,
            skip_actions: actions(self.skip_actions)?,
        }))
    }
}

/// The actions of names.
fn actions(names: &[&str]) -> Result<Vec<TraceAction>> {
    let expected = "skip_actions to be names of actions, such as 'free_requested'";
    let refuse = |found: &str| MemoryError::HistoryOption { expected, found: found.into() };
    names.iter().map(|name| TraceAction::from_name(name).ok_or_else(|| Error::Memory(refuse(name)))).collect()
}

/// The arguments of torch's older form, `_record_memory_history_legacy`, with its defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LegacyMemoryHistory<'a> {
    /// Whether anything is recorded.
    pub enabled: bool,
    /// Whether what lives has its stack.
    pub record_context: bool,
    /// Entries that a device keeps.
    pub trace_alloc_max_entries: usize,
    /// Whether entries about memory that is handed out have stacks.
    pub trace_alloc_record_context: bool,
    /// Whether stacks have the functions of libraries too.
    pub record_context_cpp: bool,
    /// Forget what was recorded before.
    pub clear_history: bool,
    /// Record what [`c10_core::Memory::compile_context`] says.
    pub compile_context: bool,
    /// Record what [`c10_core::Memory::annotate`] says.
    pub global_record_annotations: bool,
    /// Names of actions that get no entry.
    pub skip_actions: &'a [&'a str],
}

impl LegacyMemoryHistory<'_> {
    /// Torch's defaults.
    #[must_use]
    pub const fn new(enabled: bool) -> Self {
        Self {
            enabled,
            record_context: true,
            trace_alloc_max_entries: 1,
            trace_alloc_record_context: false,
            record_context_cpp: false,
            clear_history: false,
            compile_context: false,
            global_record_annotations: false,
            skip_actions: &[],
        }
    }
}

/// Records what happens to device memory, or stops; torch's `_record_memory_history`. Can be called before [`crate::init`].
///
/// # Errors
/// [`MemoryError::HistoryOption`] for a text that is none of an option's; this process was forked from one that had used a
/// GPU.
pub fn record_memory_history(arguments: &MemoryHistory<'_>) -> Result<()> {
    let options = arguments.options()?;
    Runtime::current().memory().record_history(options.as_ref())
}

/// The same by torch's inner name.
///
/// # Errors
/// As for [`record_memory_history`].
pub fn record_memory_history_impl(arguments: &MemoryHistory<'_>) -> Result<()> {
    record_memory_history(arguments)
}

/// The same with the arguments of torch's older form.
///
/// # Errors
/// As for [`record_memory_history`].
pub fn record_memory_history_legacy(arguments: &LegacyMemoryHistory<'_>) -> Result<()> {
    let context = match (arguments.trace_alloc_record_context, arguments.record_context) {
        (true, _) => HistoryContext::Alloc,
        (false, true) => HistoryContext::State,
        (false, false) => HistoryContext::Never,
    };
    let options = HistoryOptions {
        context,
        stacks: if arguments.record_context_cpp { HistoryStacks::All } else { HistoryStacks::Program },
        max_entries: arguments.trace_alloc_max_entries,
        clear_history: arguments.clear_history,
        compile_context: arguments.compile_context,
        global_record_annotations: arguments.global_record_annotations,
        skip_actions: actions(arguments.skip_actions)?,
    };
    Runtime::current().memory().record_history(arguments.enabled.then_some(&options))
}

/// Sets the text that goes with what this thread does to device memory from now on; torch's `_set_memory_metadata`.
pub fn set_memory_metadata(metadata: &str) {
    Runtime::with_current(|runtime| runtime.memory().set_metadata(metadata));
}

/// The text that [`set_memory_metadata`] set on this thread, or an empty one; torch's `_get_memory_metadata`.
#[must_use]
pub fn get_memory_metadata() -> String {
    Runtime::with_current(|runtime| runtime.memory().metadata())
}

/// The allocator of pinned memory; torch's `_host_allocator`.
#[must_use]
pub fn host_allocator() -> HostAllocator {
    HostAllocator(Runtime::current())
}

/// The allocator of pinned memory of a runtime.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let buffer = cuda_api::host_allocator().memory().buffer(1000)?;
/// assert_eq!(cuda_api::host_memory_stats().active_requests.current, 1);
/// # Ok::<(), cuda_api::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostAllocator(Runtime);

impl HostAllocator {
    /// Its memory, figures and cache.
    #[must_use]
    pub fn memory(&self) -> PinnedMemory<'_> {
        self.0.pinned()
    }
}

/// What is held of all devices and how it came to that, as files have it; torch's `_snapshot`. As in torch, a snapshot has
/// all devices, whichever is named.
///
/// # Errors
/// This process was forked from one that had used a GPU.
pub fn snapshot(_device: impl DeviceArg) -> Result<Snapshot> {
    Ok(Converter::default().convert(&Runtime::current().memory().take_snapshot(None, true)?))
}

/// What is held of all devices, without the history; adds no entry to that.
pub(crate) fn state() -> Result<Snapshot> {
    Ok(Converter::default().convert(&Runtime::current().memory().state()?))
}

/// Turns what a runtime says into the model of a file.
#[derive(Default)]
struct Converter {
    names: Names,
    /// Stacks that were met, by the address of their frames.
    stacks: HashMap<usize, StackId>,
}

impl Converter {
    fn convert(mut self, taken: &MemorySnapshot) -> Snapshot {
        let segments = taken.segments.iter().map(|segment| self.segment(taken, segment)).collect();
        let traces = taken.device_traces.iter();
        let device_traces = traces.map(|entries| entries.iter().map(|entry| self.entry(entry)).collect()).collect();
        let annotation = |annotation: &c10_core::TraceAnnotation| Annotation {
            name: self.names.text(&annotation.name),
            stage: self.names.text(if annotation.is_end { "END" } else { "START" }),
            device: i64::from(annotation.device),
            time_us: annotation.time_us.cast_signed(),
        };
        let external_annotations = taken.external_annotations.iter().map(annotation).collect();
        let allocator_settings = settings(&taken.settings);
        Snapshot {
            segments,
            device_traces,
            allocator_settings,
            external_annotations,
            names: self.names,
            ..Snapshot::default()
        }
    }

    fn segment(&mut self, taken: &MemorySnapshot, segment: &SegmentInfo) -> Segment {
        Segment {
            device: u32::try_from(segment.device).unwrap_or(0),
            address: segment.address,
            total_size: segment.total_size,
            allocated_size: segment.allocated_size,
            active_size: segment.active_size,
            requested_size: segment.requested_size,
            stream: segment.stream.cast_signed(),
            kind: match segment.segment_type {
                SegmentType::Small => SegmentKind::Small,
                SegmentType::Large => SegmentKind::Large,
            },
            pool_id: (segment.pool.0, segment.pool.1),
            is_expandable: segment.is_expandable,
            stack: self.stack(taken.frames_of_segment(segment.address)),
            blocks: segment.blocks.iter().map(|block| self.block(taken, block)).collect(),
        }
    }

    fn block(&mut self, taken: &MemorySnapshot, block: &BlockInfo) -> Block {
        let (state, is_active) = match block.state {
            BlockState::ActiveAllocated => (FileState::ActiveAllocated, true),
            BlockState::ActivePendingFree => (FileState::ActivePendingFree, true),
            BlockState::Inactive => (FileState::Inactive, false),
        };
        let frames = if is_active { taken.frames_of_block(block.address) } else { &[] };
        Block {
            address: block.address,
            size: block.size,
            requested_size: block.requested_size,
            state,
            stack: self.stack(frames),
            forward_stack: StackId::EMPTY,
        }
    }

    fn entry(&mut self, entry: &TraceEntry) -> FileEntry {
        let is_oom = entry.action == TraceAction::Oom;
        let (addr, device_free) = if is_oom { (0, entry.address) } else { (entry.address, 0) };
        FileEntry {
            action: action(entry.action),
            addr,
            device_free,
            size: entry.size,
            stream: entry.stream.cast_signed(),
            time_us: entry.time_us.cast_signed(),
            compile_context: Some(self.names.text(entry.compile_context.as_deref().unwrap_or("N/A"))),
            user_metadata: Some(self.names.text(&entry.user_metadata)),
            stack: self.stack(&entry.frames),
            forward_stack: StackId::EMPTY,
            pool_id: None,
        }
    }

    /// Whoever took the snapshot holds all frames, so their addresses name them.
    fn stack(&mut self, frames: &[TraceFrame]) -> StackId {
        if frames.is_empty() {
            return StackId::EMPTY;
        }
        let Self { names, stacks } = self;
        *stacks.entry(frames.as_ptr().addr()).or_insert_with(|| {
            let ids: Vec<_> = frames
                .iter()
                .map(|frame| {
                    let (name, filename) = (names.text(&frame.name), names.text(&frame.filename));
                    names.frame(Frame { name, filename, line: u64::from(frame.line) })
                })
                .collect();
            names.stack(&ids)
        })
    }
}

fn action(action: TraceAction) -> Action {
    match action {
        TraceAction::Alloc => Action::Alloc,
        TraceAction::FreeRequested => Action::FreeRequested,
        TraceAction::FreeCompleted => Action::FreeCompleted,
        TraceAction::SegmentAlloc => Action::SegmentAlloc,
        TraceAction::SegmentFree => Action::SegmentFree,
        TraceAction::SegmentMap => Action::SegmentMap,
        TraceAction::SegmentUnmap => Action::SegmentUnmap,
        TraceAction::Snapshot => Action::Snapshot,
        TraceAction::Oom => Action::OutOfMemory,
    }
}

/// The options in torch's order and form.
fn settings(config: &AllocatorConfig) -> Vec<(String, Setting)> {
    let max_split = config.max_split_size.map_or(-1, u64::cast_signed);
    let divisions = config.roundup_power2_divisions.iter().enumerate();
    let divisions = divisions.map(|(entry, count)| ((1_u64 << entry).to_string(), Setting::Int(i64::from(*count))));
    let settings = [
        ("PYTORCH_CUDA_ALLOC_CONF", Setting::Text(config.text().to_owned())),
        ("max_split_size", Setting::Int(max_split)),
        ("garbage_collection_threshold", Setting::Float(config.garbage_collection_threshold)),
        ("expandable_segments", Setting::Bool(config.expandable_segments)),
        ("pinned_num_register_threads", Setting::Int(i64::from(config.pinned_num_register_threads))),
        ("release_lock_on_cudamalloc", Setting::Bool(config.release_lock_on_cudamalloc)),
        ("pinned_use_cuda_host_register", Setting::Bool(config.pinned_use_cuda_host_register)),
        ("graph_capture_record_stream_reuse", Setting::Bool(config.graph_capture_record_stream_reuse)),
        ("roundup_power2_divisions", Setting::Map(divisions.collect())),
    ];
    settings.map(|(name, setting)| (name.to_owned(), setting)).into()
}

/// Why a snapshot could not be written to a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It could not be taken.
    Runtime(Error),
    /// The file could not be written; one that was there is as it was.
    File(memory_viz::Error),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Runtime(error) => error.source(),
            Self::File(error) => error.source(),
        }
    }
}

/// Converts an error of the runtime to itself, and a file error to an external error.
impl From<SnapshotError> for aten_cuda::Error {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Runtime(error) => error.into(),
            SnapshotError::File(error) => Self::external(error),
        }
    }
}

impl From<Error> for SnapshotError {
    fn from(error: Error) -> Self {
        Self::Runtime(error)
    }
}

impl From<memory_viz::Error> for SnapshotError {
    fn from(error: memory_viz::Error) -> Self {
        Self::File(error)
    }
}

/// Writes a snapshot to a file that PyTorch's tools and its page for memory read; torch's `_dump_snapshot`, whose usual name
/// for the file is `dump_snapshot.pickle`.
///
/// # Errors
/// As for [`snapshot`]; the file cannot be written.
pub fn dump_snapshot(filename: impl AsRef<Path>) -> Result<(), SnapshotError> {
    Ok(file::write_pickle(&snapshot(None)?, filename.as_ref())?)
}

/// The same as JSON, with the same keys.
///
/// # Errors
/// As for [`dump_snapshot`].
pub fn dump_snapshot_json(filename: impl AsRef<Path>) -> Result<(), SnapshotError> {
    Ok(file::write_json(&snapshot(None)?, filename.as_ref())?)
}

/// Writes a snapshot to that file whenever device memory runs out, before the error is returned; the last one stays. A file
/// that cannot be written is warned of. Until [`crate::detach_out_of_memory_observer`].
pub fn dump_snapshot_when_out_of_memory(filename: impl Into<PathBuf>) -> ObserverId {
    let filename = filename.into();
    crate::attach_out_of_memory_observer(move |_, _, _, _| {
        if let Err(error) = dump_snapshot(&filename) {
            c10_core::warn(&format!("out of memory, and no snapshot of it: {error}"));
        }
    })
}

/// A line for each block of a snapshot: stream, segment, state and frames, outermost first, and its bytes; torch's
/// `_segments`. It is what flame graphs are drawn of.
#[must_use]
pub fn segments(snapshot: &Snapshot) -> String {
    flame::segments(snapshot)
}

/// Draws what segments hold, by stream, segment, state and stack, as a flame graph; torch's `_save_segment_usage`, whose
/// usual name for the file is `output.svg`. `None` takes a snapshot now.
///
/// # Errors
/// As for [`dump_snapshot`].
pub fn save_segment_usage(filename: impl AsRef<Path>, snapshot: Option<&Snapshot>) -> Result<(), SnapshotError> {
    save(filename.as_ref(), snapshot, flame::segments, "Segments")
}

/// The same by stream, state and stack alone; torch's `_save_memory_usage`.
///
/// # Errors
/// As for [`dump_snapshot`].
pub fn save_memory_usage(filename: impl AsRef<Path>, snapshot: Option<&Snapshot>) -> Result<(), SnapshotError> {
    save(filename.as_ref(), snapshot, flame::memory, "Memory")
}

fn save(
    filename: &Path,
    given: Option<&Snapshot>,
    lines: fn(&Snapshot) -> String,
    title: &str,
) -> Result<(), SnapshotError> {
    let lines = match given {
        Some(given) => lines(given),
        None => lines(&snapshot(None)?),
    };
    Ok(file::write_text(&flame::svg(&lines, title), filename)?)
}
