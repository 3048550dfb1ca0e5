//! What happened to the memory of a device, in order: torch's history.
//!
//! Each device has a ring of entries. When it is full, the oldest entry goes. Blocks and segments that live have the stack
//! of the call that made them, if stacks are recorded.
//!
//! **Invariants:** an entry is a few words; times, names and texts become what they say when somebody asks. Entries of a
//! device are in the order in which they happened, because they are made under the lock that its allocations are made
//! under ([`super::Order`]). A ring holds one entry at least and never more than the options say.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::base::ids::PoolId;
use crate::trace::clock::{self, Converter, Ticks};
use crate::trace::event::{TraceBlock, TraceEvent, TraceSegment};
use crate::trace::stack::{Stack, TraceFrame, WordHasher};

/// What a [`TraceEntry`] tells of.
///
/// ```
/// use c10_core::TraceAction;
///
/// assert_eq!(TraceAction::SegmentAlloc.name(), "segment_alloc");
/// assert!(TraceAction::ALL.iter().all(|action| TraceAction::from_name(action.name()) == Some(*action)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TraceAction {
    /// Memory was handed out.
    Alloc,
    /// Memory was given back.
    FreeRequested,
    /// Memory that was given back can serve again.
    FreeCompleted,
    /// A segment was taken from the driver.
    SegmentAlloc,
    /// A segment was given back.
    SegmentFree,
    /// Memory was put behind a part of an expandable segment.
    SegmentMap,
    /// Memory behind a part of an expandable segment was given back.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request could not be served.
    Oom,
}

impl TraceAction {
    /// Every action.
    pub const ALL: [Self; 9] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::Oom,
    ];

    /// The name in torch's snapshots.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::Oom => "oom",
        }
    }

    /// The action of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// Where stacks go. Each level records all that the one before does.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, HistoryContext, HistoryOptions, Runtime};
///
/// let runtime = Runtime::current();
/// let options = HistoryOptions { context: HistoryContext::State, ..HistoryOptions::default() };
/// runtime.memory().record_history(Some(&options))?;
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let snapshot = runtime.memory().take_snapshot(None, true)?;
/// assert!(!snapshot.frames_of_block(buffer.address()).is_empty(), "the block lives");
/// assert!(snapshot.device_traces[0].iter().all(|entry| entry.frames.is_empty()));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum HistoryContext {
    /// No stacks.
    Never,
    /// To blocks and segments that live.
    State,
    /// To the entries about memory that is handed out too. Those about memory that is given back have the same stack.
    Alloc,
    /// Entries about memory that is given back have the stack of the call that did so.
    #[default]
    All,
}

/// Which functions of a stack are shown.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, HistoryOptions, HistoryStacks, Runtime};
///
/// let runtime = Runtime::current();
/// let options = HistoryOptions { stacks: HistoryStacks::Program, ..HistoryOptions::default() };
/// runtime.memory().record_history(Some(&options))?;
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let snapshot = runtime.memory().take_snapshot(None, false)?;
/// let frames = snapshot.frames_of_block(buffer.address());
/// assert!(frames.iter().all(|frame| !frame.name.starts_with("c10_core::")));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum HistoryStacks {
    /// Those of the program: not those of the standard library and of this crate.
    Program,
    /// All.
    #[default]
    All,
}

/// What to record; [`crate::Memory::record_history`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, HistoryOptions, Runtime, TraceAction};
///
/// let runtime = Runtime::current();
/// let options = HistoryOptions { max_entries: 2, skip_actions: vec![TraceAction::SegmentAlloc], ..Default::default() };
/// runtime.memory().record_history(Some(&options))?;
/// for _ in 0..3 {
///     drop(DeviceBuffer::new(1000, None)?);
/// }
/// assert_eq!(runtime.memory().take_snapshot(None, true)?.device_traces[0].len(), 2);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryOptions {
    /// Where stacks go.
    pub context: HistoryContext,
    /// Which functions of a stack are shown.
    pub stacks: HistoryStacks,
    /// Entries that a device keeps; 0 counts as 1.
    pub max_entries: usize,
    /// Forget what was recorded before.
    pub clear_history: bool,
    /// Record what [`crate::Memory::compile_context`] says.
    pub compile_context: bool,
    /// Record what [`crate::Memory::annotate`] says.
    pub global_record_annotations: bool,
    /// Actions that get no entry.
    pub skip_actions: Vec<TraceAction>,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            context: HistoryContext::default(),
            stacks: HistoryStacks::default(),
            max_entries: usize::MAX,
            clear_history: false,
            compile_context: false,
            global_record_annotations: false,
            skip_actions: Vec::new(),
        }
    }
}

/// One thing that happened to the memory of a device.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, HistoryOptions, Runtime, TraceAction};
///
/// let runtime = Runtime::current();
/// runtime.memory().record_history(Some(&HistoryOptions::default()))?;
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let snapshot = runtime.memory().take_snapshot(None, true)?;
/// let entry = snapshot.device_traces[0].last().expect("the buffer has an entry");
/// assert_eq!((entry.action, entry.size, entry.address), (TraceAction::Alloc, 1000, buffer.address()));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TraceEntry {
    /// What happened.
    pub action: TraceAction,
    /// The device.
    pub device: DeviceIndex,
    /// First byte; for [`TraceAction::Oom`] the free bytes of the device.
    pub address: u64,
    /// Bytes that were asked for, of the segment, or, of a snapshot, of the active blocks.
    pub size: u64,
    /// Handle of the stream, 0 for the default stream.
    pub stream: u64,
    /// The private pool; `PoolId(0, 0)` for none.
    pub pool: PoolId,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// What was being compiled, if that was recorded.
    pub compile_context: Option<Arc<str>>,
    /// The text that the thread had set; empty if none.
    pub user_metadata: Arc<str>,
    /// The call stack, innermost function first; empty where none was recorded.
    pub frames: Arc<[TraceFrame]>,
}

/// The texts that go with what a thread does.
#[derive(Default, Debug)]
pub(super) struct Notes {
    pub(super) compile_context: Option<Arc<str>>,
    pub(super) metadata: Option<Arc<str>>,
}

impl Notes {
    fn is_empty(&self) -> bool {
        self.compile_context.is_none() && self.metadata.is_none()
    }

    #[cold]
    fn kept(&self, is_compiled: bool) -> Box<Self> {
        let compile_context = self.compile_context.clone().filter(|_| is_compiled);
        Box::new(Self { compile_context, metadata: self.metadata.clone() })
    }
}

/// What the history keeps of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BriefBlock {
    pub(crate) address: u64,
    /// Bytes that were asked for.
    pub(crate) requested: u64,
    pub(crate) stream: u64,
    pub(crate) pool: PoolId,
}

impl From<&TraceBlock> for BriefBlock {
    #[inline]
    fn from(block: &TraceBlock) -> Self {
        let &TraceBlock { address, requested, stream, pool, .. } = block;
        Self { address, requested, stream, pool }
    }
}

/// When something happens, and who does it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    pub(super) time: Ticks,
    /// The stack of the call, if it is recorded.
    pub(super) stack: Option<&'a Arc<Stack>>,
    pub(super) notes: &'a Notes,
}

/// An entry as it is kept.
#[derive(Debug)]
struct Record {
    time: Ticks,
    address: u64,
    size: u64,
    stack: Option<Arc<Stack>>,
    /// Most threads have none.
    notes: Option<Box<Notes>>,
    /// The stream and the pool: their number in [`Places`].
    place: u32,
    action: TraceAction,
}

// A history may have millions of entries.
const _: () = assert!(size_of::<Record>() == 48, "an entry grew");

/// Streams with their pools, by number. There are few, and an entry mostly has that of the one before.
#[derive(Default, Debug)]
struct Places {
    known: Vec<(u64, PoolId)>,
    numbers: HashMap<(u64, PoolId), u32>,
    last: u32,
}

impl Places {
    #[inline]
    fn number(&mut self, place: (u64, PoolId)) -> u32 {
        if self.known.get(self.last as usize) != Some(&place) {
            self.last = self.look_up(place);
        }
        self.last
    }

    #[cold]
    fn look_up(&mut self, place: (u64, PoolId)) -> u32 {
        *self.numbers.entry(place).or_insert_with(|| {
            self.known.push(place);
            u32::try_from(self.known.len() - 1).expect("fewer than 2^32 streams and pools")
        })
    }

    fn get(&self, number: u32) -> (u64, PoolId) {
        self.known[number as usize]
    }
}

/// Entries, the newest of which take the place of the oldest.
#[derive(Debug)]
struct Ring {
    records: Vec<Record>,
    /// The oldest, once the ring is full.
    oldest: usize,
    max: usize,
}

impl Ring {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "an entry is written where it stays, not copied there")]
    fn push(&mut self, record: Record) {
        if self.records.len() < self.max {
            return self.records.push(record);
        }
        let place = &mut self.records[self.oldest];
        self.oldest = if self.oldest + 1 < self.max { self.oldest + 1 } else { 0 };
        if place.stack.is_some() || place.notes.is_some() {
            return *place = record;
        }
        // Field by field: what was built up elsewhere would be read again before it is written.
        let Record { time, address, size, stack, notes, place: number, action } = record;
        (place.time, place.address, place.size) = (time, address, size);
        (place.place, place.action) = (number, action);
        if stack.is_some() || notes.is_some() {
            (place.stack, place.notes) = (stack, notes);
        }
    }

    /// Forgets the entries; the room for them stays.
    fn clear(&mut self) {
        self.records.clear();
        self.oldest = 0;
    }

    /// Keeps at most so many from now on, and of what there is the newest.
    fn set_max(&mut self, max: usize) {
        let max = max.max(1);
        if max == self.max {
            return;
        }
        self.records.rotate_left(self.oldest);
        self.oldest = 0;
        let surplus = self.records.len().saturating_sub(max);
        drop(self.records.drain(..surplus));
        self.max = max;
    }

    /// By time.
    fn iter(&self) -> impl Iterator<Item = &Record> {
        let (newer, older) = self.records.split_at(self.oldest);
        older.iter().chain(newer)
    }
}

type StackOf = HashMap<u64, Arc<Stack>, BuildHasherDefault<WordHasher>>;

/// The history of one device.
#[derive(Debug)]
pub(super) struct DeviceHistory {
    device: DeviceIndex,
    pub(super) settings: Settings,
    ring: Ring,
    places: Places,
    /// When the history ends these stay. They then name what is gone too, and what took its place has no stack.
    blocks: StackOf,
    segments: StackOf,
}

/// What a device records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub(super) on: bool,
    pub(super) context: HistoryContext,
    pub(super) stacks: HistoryStacks,
    pub(super) max_entries: usize,
    pub(super) compile_context: bool,
    pub(super) annotations: bool,
    /// A bit for each action without entries.
    skipped: u16,
}

impl Settings {
    pub(super) fn new(options: &HistoryOptions) -> Self {
        Self {
            on: true,
            context: options.context,
            stacks: options.stacks,
            max_entries: options.max_entries,
            compile_context: options.compile_context,
            annotations: options.global_record_annotations,
            skipped: options.skip_actions.iter().fold(0, |bits, action| bits | 1 << *action as u16),
        }
    }
}

impl DeviceHistory {
    pub(super) fn new(device: DeviceIndex, settings: Settings) -> Self {
        let ring = Ring { records: Vec::new(), oldest: 0, max: settings.max_entries.max(1) };
        let (places, blocks, segments) = Default::default();
        Self { device, settings, ring, places, blocks, segments }
    }

    pub(super) fn device(&self) -> DeviceIndex {
        self.device
    }

    /// Records by other options from now on. What lives keeps its stack.
    pub(super) fn set(&mut self, settings: Settings, clear: bool) {
        // How stacks are shown was said when they were recorded.
        let stacks = if settings.on { settings.stacks } else { self.settings.stacks };
        self.settings = Settings { stacks, ..settings };
        if clear || !settings.on {
            self.ring.clear();
            self.places = Places::default();
        }
        if !settings.on {
            self.ring.records = Vec::new();
        }
        self.ring.set_max(settings.max_entries);
    }

    /// Whether any block has a stack.
    pub(super) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Forgets the stacks of all other blocks.
    pub(super) fn keep_blocks(&mut self, live: &BTreeSet<u64>) {
        self.blocks.retain(|address, _| live.contains(address));
    }

    /// The segment at an address is not the one any more whose stack is known.
    pub(super) fn forget_segment(&mut self, address: u64) {
        self.segments.remove(&address);
    }

    /// A block was handed out.
    #[inline]
    pub(super) fn note_allocated(&mut self, block: &BriefBlock, now: &Circumstances<'_>) {
        if self.blocks.is_empty() && now.stack.is_none() {
            self.push(TraceAction::Alloc, block, now, None);
        } else {
            self.note_kept(block, now);
        }
    }

    #[inline(never)]
    fn note_kept(&mut self, block: &BriefBlock, now: &Circumstances<'_>) {
        keep(&mut self.blocks, block.address, now.stack.filter(|_| self.settings.on));
        self.push(TraceAction::Alloc, block, now, now.stack.cloned());
    }

    /// A block was given back, and was free at once.
    #[inline]
    pub(super) fn note_freed(&mut self, block: &BriefBlock, now: &Circumstances<'_>) {
        let is_bare = self.blocks.is_empty() && now.stack.is_none() && now.notes.is_empty();
        if !is_bare || self.settings.skipped != 0 || !self.settings.on {
            self.note_free_requested(block, now);
            self.note_free_completed(block, now);
            return;
        }
        let &BriefBlock { address, requested: size, stream, pool } = block;
        let (time, place) = (now.time, self.places.number((stream, pool)));
        for action in [TraceAction::FreeRequested, TraceAction::FreeCompleted] {
            self.ring.push(Record { time, address, size, stack: None, notes: None, place, action });
        }
    }

    /// A block was given back.
    pub(super) fn note_free_requested(&mut self, block: &BriefBlock, now: &Circumstances<'_>) {
        let of_alloc = || if self.blocks.is_empty() { None } else { self.blocks.get(&block.address).cloned() };
        let stack = self.stack_of_free(now.stack).or_else(of_alloc);
        self.push(TraceAction::FreeRequested, block, now, stack);
    }

    /// A block is free again.
    pub(super) fn note_free_completed(&mut self, block: &BriefBlock, now: &Circumstances<'_>) {
        let of_alloc = if self.blocks.is_empty() { None } else { self.blocks.remove(&block.address) };
        self.push(TraceAction::FreeCompleted, block, now, self.stack_of_free(now.stack).or(of_alloc));
    }

    /// Enters what happened.
    pub(super) fn note(&mut self, event: &TraceEvent, now: &Circumstances<'_>) {
        use TraceAction as Action;
        match event {
            TraceEvent::Allocated(block) => self.note_allocated(&block.into(), now),
            TraceEvent::FreeRequested(block) => self.note_free_requested(&block.into(), now),
            TraceEvent::FreeCompleted(block) => self.note_free_completed(&block.into(), now),
            TraceEvent::SegmentAllocated(segment) | TraceEvent::SegmentMapped(segment) => {
                keep(&mut self.segments, segment.address, now.stack.filter(|_| self.settings.on));
                let is_new = matches!(event, TraceEvent::SegmentAllocated(_));
                let action = if is_new { Action::SegmentAlloc } else { Action::SegmentMap };
                self.note_segment(action, segment, now, now.stack.cloned());
            }
            TraceEvent::SegmentFreed(segment) | TraceEvent::SegmentUnmapped(segment) => {
                let of_alloc = self.segments.remove(&segment.address);
                let is_whole = matches!(event, TraceEvent::SegmentFreed(_));
                let action = if is_whole { Action::SegmentFree } else { Action::SegmentUnmap };
                self.note_segment(action, segment, now, self.stack_of_free(now.stack).or(of_alloc));
            }
            &TraceEvent::OutOfMemory { stream, size, device_free, pool, .. } => {
                let brief = BriefBlock { address: device_free, requested: size, stream, pool };
                self.push(Action::Oom, &brief, now, now.stack.cloned());
            }
            // These have no place in a history of cached memory.
            TraceEvent::UncachedAllocated { .. }
            | TraceEvent::UncachedFreed { .. }
            | TraceEvent::PinnedAllocated { .. }
            | TraceEvent::PinnedFreed { .. }
            | TraceEvent::StreamCreated(_)
            | TraceEvent::EventCreated { .. }
            | TraceEvent::EventDeleted { .. }
            | TraceEvent::EventRecorded { .. }
            | TraceEvent::EventWaited { .. }
            | TraceEvent::EventSynchronized { .. }
            | TraceEvent::StreamSynchronized(_)
            | TraceEvent::DeviceSynchronized(_)
            | TraceEvent::CaptureBegun(_)
            | TraceEvent::CaptureEnded(_)
            | TraceEvent::GraphReplayed { .. }
            | TraceEvent::Copied { .. }
            | TraceEvent::Filled { .. }
            | TraceEvent::Launched { .. }
            | TraceEvent::Accessed(_)
            | TraceEvent::MarkPlaced { .. }
            | TraceEvent::MarkAwaited { .. }
            | TraceEvent::StreamFollowed { .. }
            | TraceEvent::BodyBegun { .. }
            | TraceEvent::BodyEnded { .. }
            | TraceEvent::MarkSeen { .. }
            | TraceEvent::StreamSeen(_)
            | TraceEvent::DeviceSeen(_)
            | TraceEvent::GraphCaptured { .. }
            | TraceEvent::GraphInstantiated { .. }
            | TraceEvent::LibraryQueued { .. }
            | TraceEvent::Begun { .. } => {}
        }
    }

    /// Enters that a snapshot was taken while so many bytes were active.
    pub(super) fn note_snapshot(&mut self, active: u64, now: &Circumstances<'_>) {
        let brief = BriefBlock { address: 0, requested: active, stream: 0, pool: PoolId(0, 0) };
        self.push(TraceAction::Snapshot, &brief, now, None);
    }

    #[inline]
    fn stack_of_free(&self, stack: Option<&Arc<Stack>>) -> Option<Arc<Stack>> {
        stack.filter(|_| self.settings.context == HistoryContext::All).cloned()
    }

    fn note_segment(
        &mut self,
        action: TraceAction,
        &TraceSegment { address, size, stream, pool, .. }: &TraceSegment,
        now: &Circumstances<'_>,
        stack: Option<Arc<Stack>>,
    ) {
        self.push(action, &BriefBlock { address, requested: size, stream, pool }, now, stack);
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "without a stack it is half as long")]
    fn push(&mut self, action: TraceAction, of: &BriefBlock, now: &Circumstances<'_>, stack: Option<Arc<Stack>>) {
        if !self.settings.on || self.settings.skipped & 1 << action as u16 != 0 {
            return;
        }
        let stack = stack.filter(|_| self.settings.context >= HistoryContext::Alloc);
        let &BriefBlock { address, requested: size, stream, pool } = of;
        let (place, notes) = (self.places.number((stream, pool)), self.notes(now.notes));
        self.ring.push(Record { time: now.time, address, size, stack, notes, place, action });
    }

    /// What an entry keeps of the texts of a thread.
    #[inline]
    fn notes(&self, notes: &Notes) -> Option<Box<Notes>> {
        let compiled = notes.compile_context.as_ref().filter(|_| self.settings.compile_context);
        if compiled.is_none() && notes.metadata.is_none() { None } else { Some(notes.kept(compiled.is_some())) }
    }

    /// The entries by time.
    pub(super) fn entries(&self, names: &mut Names) -> Vec<TraceEntry> {
        let (converter, nothing) = (Converter::new(), Arc::<str>::from(""));
        let entry = |record: &Record| {
            let notes = record.notes.as_deref();
            let (stream, pool) = self.places.get(record.place);
            TraceEntry {
                action: record.action,
                device: self.device,
                address: record.address,
                size: record.size,
                stream,
                pool,
                time_us: converter.micros(record.time),
                compile_context: notes.and_then(|notes| notes.compile_context.clone()),
                user_metadata: notes.and_then(|notes| notes.metadata.clone()).unwrap_or_else(|| Arc::clone(&nothing)),
                frames: names.frames(record.stack.as_ref()),
            }
        };
        self.ring.iter().map(entry).collect()
    }

    /// The stacks of the blocks, and those of the segments, that live.
    pub(super) fn live(&self, names: &mut Names) -> [Vec<(u64, Arc<[TraceFrame]>)>; 2] {
        [&self.blocks, &self.segments].map(|stacks| {
            let named = stacks.iter().map(|(address, stack)| (*address, names.frames(Some(stack))));
            named.collect()
        })
    }
}

/// Keeps the stack of what is at an address from now on.
fn keep(stacks: &mut StackOf, address: u64, stack: Option<&Arc<Stack>>) {
    match stack {
        Some(stack) => drop(stacks.insert(address, Arc::clone(stack))),
        None if stacks.is_empty() => {}
        None => drop(stacks.remove(&address)),
    }
}

/// The functions of stacks, each looked for once.
#[derive(Debug)]
pub(super) struct Names {
    stacks: HistoryStacks,
    none: Arc<[TraceFrame]>,
    known: HashMap<usize, Arc<[TraceFrame]>, BuildHasherDefault<WordHasher>>,
}

impl Names {
    pub(super) fn new(stacks: HistoryStacks) -> Self {
        Self { stacks, none: Arc::new([]), known: HashMap::default() }
    }

    fn frames(&mut self, stack: Option<&Arc<Stack>>) -> Arc<[TraceFrame]> {
        let Some(stack) = stack else { return Arc::clone(&self.none) };
        if self.stacks == HistoryStacks::All {
            return stack.frames();
        }
        // A stack is alive as long as the history holds it, so its address names it.
        let known = self.known.entry(Arc::as_ptr(stack).addr());
        let of_program = || stack.frames().iter().filter(|frame| is_of_program(&frame.name)).cloned().collect();
        Arc::clone(known.or_insert_with(of_program))
    }
}

/// Whether a function belongs to the program, and not to what runs it.
fn is_of_program(name: &str) -> bool {
    let inner = name.trim_start_matches('<');
    let libraries = ["std::", "core::", "alloc::", "c10_core::", "__rust", "__libc", "_start", "clone", "start_thread"];
    !libraries.iter().any(|library| inner.starts_with(library))
}

/// A moment at which a named stretch of the program begins or ends.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{HistoryOptions, Runtime};
///
/// let runtime = Runtime::current();
/// runtime.init()?;
/// let options = HistoryOptions { global_record_annotations: true, ..HistoryOptions::default() };
/// runtime.memory().record_history(Some(&options))?;
/// let step = runtime.memory().annotate("step")?;
/// let begun = runtime.memory().take_snapshot(None, false)?.external_annotations;
/// assert!(&*begun[0].name == "step" && !begun[0].is_end);
/// drop(step);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TraceAnnotation {
    /// The name.
    pub name: Arc<str>,
    /// Whether it ends there; else it begins.
    pub is_end: bool,
    /// The device that was current.
    pub device: DeviceIndex,
    /// Microseconds since 1970.
    pub time_us: u64,
}

/// Annotations as they are kept.
#[derive(Debug, Default)]
pub(super) struct Annotations(Vec<(Arc<str>, bool, DeviceIndex, Ticks)>);

impl Annotations {
    pub(super) fn push(&mut self, name: Arc<str>, is_end: bool, device: DeviceIndex) {
        self.0.push((name, is_end, device, clock::now()));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn entries(&self) -> Vec<TraceAnnotation> {
        let converter = Converter::new();
        let entry = |(name, is_end, device, time): &(Arc<str>, bool, DeviceIndex, Ticks)| TraceAnnotation {
            name: Arc::clone(name),
            is_end: *is_end,
            device: *device,
            time_us: converter.micros(*time),
        };
        self.0.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64) -> TraceBlock {
        TraceBlock { device: DeviceIndex(0), address, requested: 7, size: 512, stream: 0, pool: PoolId(0, 0) }
    }

    fn now(notes: &Notes) -> Circumstances<'_> {
        Circumstances { time: clock::now(), stack: None, notes }
    }

    fn history(options: &HistoryOptions) -> DeviceHistory {
        DeviceHistory::new(DeviceIndex(0), Settings::new(options))
    }

    fn addresses(history: &DeviceHistory) -> Vec<u64> {
        let entries = history.entries(&mut Names::new(HistoryStacks::All));
        assert!(entries.is_sorted_by_key(|entry| entry.time_us));
        entries.iter().map(|entry| entry.address).collect()
    }

    #[test]
    fn a_full_ring_loses_the_oldest_and_keeps_the_order() {
        let mut history = history(&HistoryOptions { max_entries: 3, ..HistoryOptions::default() });
        for address in 1..=8 {
            history.note(&TraceEvent::Allocated(block(address)), &now(&Notes::default()));
            let expected: Vec<u64> = (address.saturating_sub(2).max(1)..=address).collect();
            assert_eq!(addresses(&history), expected);
        }
        let smaller = Settings { max_entries: 2, ..history.settings };
        history.set(smaller, false);
        assert_eq!(addresses(&history), [7, 8]);
        history.set(Settings { max_entries: 0, ..smaller }, false);
        assert_eq!(addresses(&history), [8]);
        history.set(Settings { max_entries: 4, ..smaller }, false);
        (9..13).for_each(|address| history.note(&TraceEvent::Allocated(block(address)), &now(&Notes::default())));
        assert_eq!(addresses(&history), [9, 10, 11, 12]);
        history.set(history.settings, true);
        assert_eq!(addresses(&history), []);
    }

    #[test]
    fn skipped_actions_leave_no_entry() {
        let skip_actions = vec![TraceAction::FreeRequested, TraceAction::Oom];
        let mut history = history(&HistoryOptions { skip_actions, ..HistoryOptions::default() });
        for event in
            [TraceEvent::Allocated(block(1)), TraceEvent::FreeRequested(block(1)), TraceEvent::FreeCompleted(block(1))]
        {
            history.note(&event, &now(&Notes::default()));
        }
        let entries = history.entries(&mut Names::new(HistoryStacks::All));
        let actions: Vec<_> = entries.iter().map(|entry| entry.action).collect();
        assert_eq!(actions, [TraceAction::Alloc, TraceAction::FreeCompleted]);
    }

    #[test]
    fn names_of_actions_are_torchs() {
        for action in TraceAction::ALL {
            assert_eq!(TraceAction::from_name(action.name()), Some(action));
        }
        assert_eq!(TraceAction::from_name("malloc"), None);
    }
}
