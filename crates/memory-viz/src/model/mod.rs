//! What a snapshot holds: segments with their blocks, the history of each device, settings and annotations.
//!
//! The fields are plain and named as PyTorch names the keys. Texts, frames and stacks stand once in
//! [`Snapshot::names`]; everything else refers to them by number. Nothing here is checked against anything else: a
//! snapshot is what a file says, and the analyses take any.

mod names;
pub(crate) mod unknown;

pub use names::{Frame, FrameId, Names, StackId, TextId};
pub use unknown::Unknown;

/// A snapshot of the allocator, as `torch.cuda.memory._snapshot()` returns it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The memory taken from the driver, in order of device and address.
    pub segments: Vec<Segment>,
    /// For each device what happened on it, from the oldest entry that was kept to the newest.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// How the allocator was configured, in the order of the file.
    pub allocator_settings: Vec<(String, Setting)>,
    /// Ranges that a profiler has reported.
    pub external_annotations: Vec<Annotation>,
    /// The texts, frames and stacks that the rest refers to.
    pub names: Names,
    /// Parts of a file that this version does not know; they are written back unchanged.
    pub unknown: Unknown,
}

/// A contiguous piece of memory taken from the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// The device's index.
    pub device: u32,
    /// The first byte.
    pub address: u64,
    /// Bytes in all: the sum over the blocks.
    pub total_size: u64,
    /// Bytes in blocks that are allocated.
    pub allocated_size: u64,
    /// Bytes in blocks that are allocated, or freed and waiting for a stream.
    pub active_size: u64,
    /// Bytes asked for, before rounding, in active blocks.
    pub requested_size: u64,
    /// The handle of the stream that owns it; 0 is the default stream.
    pub stream: i64,
    /// Which of the two kinds of segments it is.
    pub kind: SegmentKind,
    /// The private pool it belongs to; `(0, 0)` is the common pool.
    pub pool_id: (u64, u64),
    /// Whether it is a mapped range of an expandable segment.
    pub is_expandable: bool,
    /// Where it was taken from the driver.
    pub stack: StackId,
    /// Its blocks, in order of address and without gaps.
    pub blocks: Vec<Block>,
}

/// Whether a segment serves small requests or large ones (`segment_type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Requests of at most 1 MiB.
    Small,
    /// All others.
    #[default]
    Large,
}

/// A block of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// The first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes asked for, before rounding. In an inactive block PyTorch leaves that of its last use.
    pub requested_size: u64,
    /// Whether it is in use.
    pub state: BlockState,
    /// Where it was allocated.
    pub stack: StackId,
    /// Where the forward pass was that this allocation of the backward pass belongs to; empty when nothing is known.
    pub forward_stack: StackId,
}

/// The state of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In use.
    ActiveAllocated,
    /// Freed by its owner, while a stream may still use it.
    ActivePendingFree,
    /// Free.
    #[default]
    Inactive,
}

impl BlockState {
    /// Whether nobody else can have the block.
    #[must_use]
    pub fn is_active(self) -> bool {
        self != Self::Inactive
    }
}

/// One entry of a device's history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// The first byte it is about; 0 for [`Action::OutOfMemory`] and [`Action::Snapshot`].
    pub addr: u64,
    /// Bytes that the device had left; only [`Action::OutOfMemory`] has it.
    pub device_free: u64,
    /// Bytes: as asked for by `alloc` and the two kinds of `free`, of the segment, of the rounded request that could
    /// not be served, or active when a snapshot was taken.
    pub size: u64,
    /// The handle of the stream.
    pub stream: i64,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// What was being compiled, if the file has the key.
    pub compile_context: Option<TextId>,
    /// What the program had set as its own description, if the file has the key.
    pub user_metadata: Option<TextId>,
    /// Where it happened.
    pub stack: StackId,
    /// As [`Block::forward_stack`].
    pub forward_stack: StackId,
    /// The private pool, in files that have the key.
    pub pool_id: Option<(u64, u64)>,
}

/// What an entry of a history reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Action {
    /// A block was handed out.
    #[default]
    Alloc,
    /// A block was given back.
    FreeRequested,
    /// A block that was given back became free: every stream is done with it.
    FreeCompleted,
    /// A segment was taken from the driver.
    SegmentAlloc,
    /// A segment was given back to the driver.
    SegmentFree,
    /// An expandable segment grew.
    SegmentMap,
    /// An expandable segment shrank.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request could not be served.
    OutOfMemory,
    /// Action that this version does not know, such as `annotate`, with its name.
    Other(TextId),
}

impl Action {
    /// All known actions.
    pub const ALL: [Self; 9] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::OutOfMemory,
    ];

    /// Returns PyTorch's name of the action; `other` for an unknown action, whose own name [`Names::action_text`]
    /// returns.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::OutOfMemory => "oom",
            Self::Other(_) => "other",
        }
    }
}

/// A value of [`Snapshot::allocator_settings`].
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// Nothing.
    None,
    /// A switch.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A fraction.
    Float(f64),
    /// A text.
    Text(String),
    /// Settings by name, such as the divisions of `roundup_power2_divisions`.
    Map(Vec<(String, Setting)>),
}

/// The begin or the end of a range that a profiler has reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The name of the range.
    pub name: TextId,
    /// Whether the range begins (`START`) or ends (`END`).
    pub stage: TextId,
    /// The device's index.
    pub device: i64,
    /// When, in microseconds since 1970.
    pub time_us: i64,
}
