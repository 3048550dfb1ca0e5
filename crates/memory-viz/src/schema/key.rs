//! The keys that are written, by number: writers remember what they have written under it.

/// A key of a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Key {
    Segments,
    DeviceTraces,
    AllocatorSettings,
    ExternalAnnotations,
    Device,
    Address,
    TotalSize,
    AllocatedSize,
    ActiveSize,
    RequestedSize,
    Stream,
    SegmentType,
    SegmentPoolId,
    IsExpandable,
    Frames,
    ForwardFrames,
    Blocks,
    Size,
    State,
    Action,
    Addr,
    DeviceFree,
    TimeUs,
    CompileContext,
    UserMetadata,
    PoolId,
    Name,
    Filename,
    Line,
    Stage,
}

impl Key {
    /// How many there are.
    pub(crate) const COUNT: usize = Self::Stage as usize + 1;

    const NAMES: [&'static str; Self::COUNT] = [
        "segments",
        "device_traces",
        "allocator_settings",
        "external_annotations",
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
        "frames",
        "forward_frames",
        "blocks",
        "size",
        "state",
        "action",
        "addr",
        "device_free",
        "time_us",
        "compile_context",
        "user_metadata",
        "pool_id",
        "name",
        "filename",
        "line",
        "stage",
    ];

    /// The position among all keys.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// PyTorch's name.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}
