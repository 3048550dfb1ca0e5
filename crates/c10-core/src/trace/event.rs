//! What a runtime reports: one closed type.
//!
//! **Invariant:** an event is a few numbers, and names that live as long as the program. It holds nothing alive, so it can
//! be kept as long as one likes.

use crate::base::device::DeviceIndex;
use crate::base::ids::PoolId;

/// A block of device memory that changes hands. Sizes are bytes.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, TraceEvent, TraceKind};
///
/// let (tell, told) = std::sync::mpsc::channel();
/// Runtime::current().subscribe(TraceKind::Memory.into(), move |event| {
///     if let TraceEvent::Allocated(block) = *event {
///         let _ = tell.send(block);
///     }
/// });
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let block = told.recv().expect("the buffer is reported");
/// assert_eq!((block.address, block.requested, block.size), (buffer.address(), 1000, 1024));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TraceBlock {
    /// The device that the memory is on.
    pub device: DeviceIndex,
    /// First byte.
    pub address: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Handle of the stream that the block serves, 0 for the default stream.
    pub stream: u64,
    /// The private pool it belongs to; `PoolId(0, 0)` for none.
    pub pool: PoolId,
}

/// Memory that the allocator took from the driver or gave back to it. Sizes are bytes.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, TraceEvent, TraceKind};
///
/// let (tell, told) = std::sync::mpsc::channel();
/// Runtime::current().subscribe(TraceKind::Memory.into(), move |event| {
///     if let TraceEvent::SegmentAllocated(segment) = *event {
///         let _ = tell.send(segment.size);
///     }
/// });
/// let _buffer = DeviceBuffer::new(1000, None)?;
/// assert_eq!(told.recv(), Ok(2 << 20), "small requests share segments of 2 MiB");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceSegment {
    /// The device that the memory is on.
    pub device: DeviceIndex,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Handle of the stream that the memory serves, 0 for the default stream.
    pub stream: u64,
    /// The private pool it belongs to; `PoolId(0, 0)` for none.
    pub pool: PoolId,
}

/// A stream with its device.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, Stream, TraceEvent, TraceKind};
///
/// let stream = Stream::new(None, 0)?;
/// let (tell, told) = std::sync::mpsc::channel();
/// Runtime::current().subscribe(TraceKind::Synchronize.into(), move |event| {
///     if let TraceEvent::StreamSynchronized(stream) = *event {
///         let _ = tell.send(stream);
///     }
/// });
/// stream.synchronize()?;
/// let waited = told.recv().expect("the wait is reported");
/// assert_eq!((waited.device, waited.handle), (0, stream.cuda_stream() as u64));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceStream {
    /// The device of the stream.
    pub device: DeviceIndex,
    /// Its handle, 0 for the default stream.
    pub handle: u64,
}

/// Between which memories a copy goes.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, TraceCopy, TraceEvent, TraceKind};
///
/// let (tell, told) = std::sync::mpsc::channel();
/// Runtime::current().subscribe(TraceKind::Copy.into(), move |event| {
///     if let TraceEvent::Copied { kind, .. } = *event {
///         let _ = tell.send(kind);
///     }
/// });
/// let buffer = DeviceBuffer::new(4, None)?;
/// buffer.fill(.., 7, None)?;
/// assert_eq!(buffer.to_vec()?, [7; 4]);
/// assert_eq!(told.recv(), Ok(TraceCopy::ToHost));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TraceCopy {
    /// From device memory to device memory.
    OnDevice,
    /// From host memory to device memory.
    ToDevice,
    /// From device memory to host memory.
    ToHost,
}

/// Memory that a piece of work, or the host, reads or writes.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, TraceEvent, TraceKind};
///
/// let (tell, told) = std::sync::mpsc::channel();
/// Runtime::current().subscribe(TraceKind::Access.into(), move |event| {
///     if let TraceEvent::Accessed(access) = *event {
///         let _ = tell.send(access);
///     }
/// });
/// let buffer = DeviceBuffer::new(8, None)?;
/// buffer.fill(4.., 7, None)?;
/// let access = told.recv().expect("the fill is reported");
/// assert_eq!((access.operation, access.address, access.size), ("fill", buffer.address() + 4, 4));
/// assert!(access.is_write && access.is_output && access.rest == 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceAccess {
    /// Number of the work; accesses of the same work have the same, and follow each other on a thread.
    pub work: u64,
    /// How many accesses of the work follow.
    pub rest: u32,
    /// The stream; `None` for the host.
    pub stream: Option<TraceStream>,
    /// The kernel, library function or copy.
    pub operation: &'static str,
    /// The argument that names the memory; empty if it has no name.
    pub argument: &'static str,
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it writes; then it may read, too.
    pub is_write: bool,
    /// Whether the memory is a result of the work.
    pub is_output: bool,
    /// Whether it is memory of the host.
    pub is_on_host: bool,
}

/// What a runtime reports to whoever subscribed ([`crate::Runtime::subscribe`]).
///
/// An event is reported when it has happened; what failed is not reported.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, TraceEvent, TraceKind};
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let id = Runtime::current().subscribe(TraceKind::Memory.into(), move |event| {
///     let _ = tell.send(*event);
/// });
/// let buffer = DeviceBuffer::new(1000, 0)?;
/// assert!(matches!(told.recv(), Ok(TraceEvent::SegmentAllocated(segment)) if segment.size == 2 << 20));
/// assert!(matches!(told.recv(), Ok(TraceEvent::Allocated(block)) if block.address == buffer.address()));
/// assert!(Runtime::current().unsubscribe(id));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TraceEvent {
    /// Device memory was handed out.
    Allocated(TraceBlock),
    /// Device memory was given back. It may be in use by other streams still.
    FreeRequested(TraceBlock),
    /// Device memory that was given back can serve again.
    FreeCompleted(TraceBlock),
    /// A segment was taken from the driver, or from what serves a private pool.
    SegmentAllocated(TraceSegment),
    /// A segment was given back.
    SegmentFreed(TraceSegment),
    /// Memory was put behind a part of an expandable segment.
    SegmentMapped(TraceSegment),
    /// Memory behind a part of an expandable segment was given back.
    SegmentUnmapped(TraceSegment),
    /// A request could not be served.
    OutOfMemory {
        /// The device.
        device: DeviceIndex,
        /// The stream that the memory was for.
        stream: u64,
        /// Rounded bytes of the request.
        size: u64,
        /// Free bytes of the device.
        device_free: u64,
        /// The private pool that the request went to.
        pool: PoolId,
    },
    /// Device memory was handed out past the cache.
    UncachedAllocated {
        /// The device.
        device: DeviceIndex,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Device memory that was handed out past the cache was given back.
    UncachedFreed {
        /// First byte.
        address: u64,
    },
    /// Pinned memory was handed out.
    PinnedAllocated {
        /// First byte.
        address: u64,
        /// Bytes that were asked for.
        requested: u64,
    },
    /// Pinned memory was given back by its last owner. Streams may use it still.
    PinnedFreed {
        /// First byte.
        address: u64,
    },
    /// A stream was made.
    StreamCreated(TraceStream),
    /// An event got a handle of the driver.
    EventCreated {
        /// The handle.
        event: u64,
        /// The device of the event.
        device: DeviceIndex,
    },
    /// An event gave its handle up.
    EventDeleted {
        /// The handle.
        event: u64,
        /// The device of the event.
        device: DeviceIndex,
    },
    /// An event was recorded on a stream.
    EventRecorded {
        /// The event's handle.
        event: u64,
        /// The stream.
        stream: TraceStream,
    },
    /// Later work of a stream waits for an event.
    EventWaited {
        /// The event's handle.
        event: u64,
        /// The stream.
        stream: TraceStream,
    },
    /// The host has waited for an event.
    EventSynchronized {
        /// The event's handle.
        event: u64,
        /// The device of the event.
        device: DeviceIndex,
    },
    /// The host has waited for a stream.
    StreamSynchronized(TraceStream),
    /// The host has waited for a device.
    DeviceSynchronized(DeviceIndex),
    /// A stream began to capture a graph.
    CaptureBegun(TraceStream),
    /// A stream ended the capture of a graph.
    CaptureEnded(TraceStream),
    /// A graph was launched.
    GraphReplayed {
        /// Handle of the executable graph.
        graph: u64,
        /// The stream it was launched on.
        stream: TraceStream,
    },
    /// A copy was queued.
    Copied {
        /// Between which memories.
        kind: TraceCopy,
        /// Address of the first byte to be written.
        to: u64,
        /// Address of the first byte to be read.
        from: u64,
        /// Bytes.
        size: u64,
        /// The stream.
        stream: TraceStream,
    },
    /// A fill was queued.
    Filled {
        /// Address of the first byte to be written.
        to: u64,
        /// Bytes.
        size: u64,
        /// The stream.
        stream: TraceStream,
    },
    /// A kernel was queued.
    Launched {
        /// Handle of the kernel.
        function: u64,
        /// The stream.
        stream: TraceStream,
    },
    /// Work was queued that reads or writes memory, or the host did.
    Accessed(TraceAccess),
    /// The driver marked the work of a stream so far, for whoever asked: an event, or an allocator that waits.
    MarkPlaced {
        /// Handle of the driver's event.
        event: u64,
        /// The stream.
        stream: TraceStream,
    },
    /// Later work of a stream comes after a mark.
    MarkAwaited {
        /// Handle of the driver's event.
        event: u64,
        /// The stream.
        stream: TraceStream,
    },
    /// Later work of a stream comes after the work of another one so far.
    StreamFollowed {
        /// The stream whose work so far comes first.
        earlier: TraceStream,
        /// The stream.
        stream: TraceStream,
    },
    /// A stream began to capture the body of a conditional node of another stream's capture.
    BodyBegun {
        /// The stream that captures the body.
        body: TraceStream,
        /// The stream whose capture has the node.
        stream: TraceStream,
    },
    /// A stream ended the capture of a body. Later work of the other stream's capture comes after the node.
    BodyEnded {
        /// The stream that captured the body.
        body: TraceStream,
        /// The stream whose capture has the node.
        stream: TraceStream,
    },
    /// The host knows that the work before a mark is done.
    MarkSeen {
        /// Handle of the driver's event.
        event: u64,
    },
    /// The host knows that the work of a stream so far is done.
    StreamSeen(TraceStream),
    /// The host knows that the work of a device so far is done.
    DeviceSeen(DeviceIndex),
    /// A graph was made of a capture.
    GraphCaptured {
        /// Handle of the graph.
        graph: u64,
        /// The stream that ended the capture.
        stream: TraceStream,
    },
    /// An executable graph does what a graph says from now on.
    GraphInstantiated {
        /// Handle of the graph.
        graph: u64,
        /// Handle of the executable graph.
        exec: u64,
    },
    /// A library has queued work.
    LibraryQueued {
        /// The number of the library's function; [`crate::Runtime::traced_name`] knows its name.
        function: u32,
        /// The stream.
        stream: TraceStream,
    },
    /// Something begins that is reported by an event of its own when it was done, if it does not fail.
    Begun {
        /// The sort of that event.
        what: TraceKind,
        /// Handle of the kernel that is launched, else 0.
        function: u64,
        /// The stream; the default one for what is about no stream.
        stream: TraceStream,
    },
}

/// Sorts of events; a subscriber says which it wants.
///
/// ```
/// use c10_core::{TraceKind, TraceKinds};
///
/// let both = TraceKinds::from(TraceKind::Stream).and(TraceKind::Event);
/// assert!(both.has(TraceKind::Event) && !both.has(TraceKind::Memory));
/// assert!(TraceKind::ALL.into_iter().all(|kind| TraceKinds::ALL.has(kind)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TraceKind {
    /// Device memory: blocks, segments, and requests that could not be served.
    Memory,
    /// Pinned memory.
    Pinned,
    /// New streams.
    Stream,
    /// Events: made, given up, recorded, waited for by streams.
    Event,
    /// The host waits for a device, a stream or an event.
    Synchronize,
    /// Captures and launches of graphs.
    Graph,
    /// Copies and fills.
    Copy,
    /// Launches of kernels, and work of libraries.
    Launch,
    /// Memory that is read and written.
    Access,
    /// What the order of work follows from, as the driver is told and tells it.
    Order,
    /// What takes time begins: launches, copies, fills, replays of graphs, waits.
    Begin,
}

/// A set of [`TraceKind`].
///
/// ```
/// use c10_core::{TraceKind, TraceKinds};
///
/// assert_eq!(format!("{:?}", TraceKinds::NONE.and(TraceKind::Graph)), "{Graph}");
/// assert!(TraceKinds::ALL.has(TraceKind::Launch));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TraceKinds(u32);

impl TraceKind {
    /// Every sort.
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::Pinned,
        Self::Stream,
        Self::Event,
        Self::Synchronize,
        Self::Graph,
        Self::Copy,
        Self::Launch,
        Self::Access,
        Self::Order,
        Self::Begin,
    ];

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl TraceKinds {
    /// No sort.
    pub const NONE: Self = Self(0);
    /// Every sort.
    pub const ALL: Self = Self((1 << TraceKind::ALL.len()) - 1);

    /// What a copy or a fill reports.
    pub(crate) const COPIES: Self = Self(TraceKind::Copy.bit() | TraceKind::Access.bit());

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The sorts of both.
    #[must_use]
    pub const fn and(self, kind: TraceKind) -> Self {
        Self(self.0 | kind.bit())
    }

    /// Whether a sort is among them.
    #[must_use]
    pub const fn has(self, kind: TraceKind) -> bool {
        self.0 & kind.bit() != 0
    }
}

impl From<TraceKind> for TraceKinds {
    fn from(kind: TraceKind) -> Self {
        Self(kind.bit())
    }
}

impl std::fmt::Debug for TraceKinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(TraceKind::ALL.into_iter().filter(|kind| self.has(*kind))).finish()
    }
}

impl TraceEvent {
    /// The sort of the event.
    #[must_use]
    pub const fn kind(&self) -> TraceKind {
        match self {
            Self::Allocated(_)
            | Self::FreeRequested(_)
            | Self::FreeCompleted(_)
            | Self::SegmentAllocated(_)
            | Self::SegmentFreed(_)
            | Self::SegmentMapped(_)
            | Self::SegmentUnmapped(_)
            | Self::OutOfMemory { .. }
            | Self::UncachedAllocated { .. }
            | Self::UncachedFreed { .. } => TraceKind::Memory,
            Self::PinnedAllocated { .. } | Self::PinnedFreed { .. } => TraceKind::Pinned,
            Self::StreamCreated(_) => TraceKind::Stream,
            Self::EventCreated { .. }
            | Self::EventDeleted { .. }
            | Self::EventRecorded { .. }
            | Self::EventWaited { .. } => TraceKind::Event,
            Self::EventSynchronized { .. } | Self::StreamSynchronized(_) | Self::DeviceSynchronized(_) => {
                TraceKind::Synchronize
            }
            Self::CaptureBegun(_) | Self::CaptureEnded(_) | Self::GraphReplayed { .. } => TraceKind::Graph,
            Self::Copied { .. } | Self::Filled { .. } => TraceKind::Copy,
            Self::Launched { .. } | Self::LibraryQueued { .. } => TraceKind::Launch,
            Self::Begun { .. } => TraceKind::Begin,
            Self::Accessed(_) => TraceKind::Access,
            Self::MarkPlaced { .. }
            | Self::MarkAwaited { .. }
            | Self::StreamFollowed { .. }
            | Self::BodyBegun { .. }
            | Self::BodyEnded { .. }
            | Self::MarkSeen { .. }
            | Self::StreamSeen(_)
            | Self::DeviceSeen(_)
            | Self::GraphCaptured { .. }
            | Self::GraphInstantiated { .. } => TraceKind::Order,
        }
    }
}
