//! A snapshot as a sequence of keys and values, for the writers of both formats.

use std::io;

use super::Key;
use crate::model::{
    Annotation, Block, BlockState, Frame, FrameId, Names, Segment, SegmentKind, Setting, Snapshot, StackId, TextId,
    TraceEntry,
};

/// What takes the values, in order: a writer of one format.
///
/// Of a dictionary: [`begin_dict`](Self::begin_dict), for each entry [`key`](Self::key) or
/// [`named`](Self::named) and a value, [`end_dict`](Self::end_dict). Lists alike, with [`item`](Self::item) before each.
pub(crate) trait Sink {
    fn begin_dict(&mut self) -> io::Result<()>;
    fn key(&mut self, key: Key) -> io::Result<()>;
    fn named(&mut self, key: &str) -> io::Result<()>;
    fn end_dict(&mut self) -> io::Result<()>;
    fn begin_list(&mut self) -> io::Result<()>;
    fn item(&mut self) -> io::Result<()>;
    fn end_list(&mut self) -> io::Result<()>;
    fn none(&mut self) -> io::Result<()>;
    fn truth(&mut self, value: bool) -> io::Result<()>;
    fn signed(&mut self, value: i64) -> io::Result<()>;
    fn unsigned(&mut self, value: u64) -> io::Result<()>;
    fn float(&mut self, value: f64) -> io::Result<()>;
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// A text that may have been written before.
    fn name(&mut self, id: TextId, text: &str) -> io::Result<()>;
    /// One of a few words that are written again and again.
    fn word(&mut self, word: &'static str) -> io::Result<()>;
    fn pair(&mut self, first: u64, second: u64) -> io::Result<()>;
    /// Whether the frame was written before and has now been referred to.
    fn recall_frame(&mut self, id: FrameId) -> io::Result<bool>;
    /// Remembers the dictionary that is about to be filled as that frame.
    fn begin_frame(&mut self, id: FrameId) -> io::Result<()>;
    /// Whether the list of frames was written before and has now been referred to.
    fn recall_stack(&mut self, id: StackId) -> io::Result<bool>;
    /// Remembers the list that is about to be filled as that stack.
    fn begin_stack(&mut self, id: StackId) -> io::Result<()>;
}

/// Hands a snapshot to a writer.
pub(crate) fn emit(snapshot: &Snapshot, sink: &mut impl Sink) -> io::Result<()> {
    let names = &snapshot.names;
    sink.begin_dict()?;
    sink.key(Key::Segments)?;
    list(sink, &snapshot.segments, |sink, segment| self::segment(sink, names, segment))?;
    sink.key(Key::DeviceTraces)?;
    list(sink, &snapshot.device_traces, |sink, entries| {
        list(sink, entries, |sink, entry| self::entry(sink, names, entry))
    })?;
    sink.key(Key::AllocatorSettings)?;
    settings(sink, &snapshot.allocator_settings)?;
    sink.key(Key::ExternalAnnotations)?;
    list(sink, &snapshot.external_annotations, |sink, annotation| self::annotation(sink, names, annotation))?;
    sink.end_dict()
}

fn list<T, S: Sink>(sink: &mut S, items: &[T], write: impl Fn(&mut S, &T) -> io::Result<()>) -> io::Result<()> {
    sink.begin_list()?;
    for item in items {
        sink.item()?;
        write(sink, item)?;
    }
    sink.end_list()
}

fn number(sink: &mut impl Sink, key: Key, value: u64) -> io::Result<()> {
    sink.key(key)?;
    sink.unsigned(value)
}

fn segment(sink: &mut impl Sink, names: &Names, segment: &Segment) -> io::Result<()> {
    sink.begin_dict()?;
    number(sink, Key::Device, u64::from(segment.device))?;
    number(sink, Key::Address, segment.address)?;
    number(sink, Key::TotalSize, segment.total_size)?;
    number(sink, Key::AllocatedSize, segment.allocated_size)?;
    number(sink, Key::ActiveSize, segment.active_size)?;
    number(sink, Key::RequestedSize, segment.requested_size)?;
    sink.key(Key::Stream)?;
    sink.signed(segment.stream)?;
    sink.key(Key::SegmentType)?;
    sink.word(match segment.kind {
        SegmentKind::Small => "small",
        SegmentKind::Large => "large",
    })?;
    sink.key(Key::SegmentPoolId)?;
    sink.pair(segment.pool_id.0, segment.pool_id.1)?;
    sink.key(Key::IsExpandable)?;
    sink.truth(segment.is_expandable)?;
    sink.key(Key::Frames)?;
    stack(sink, names, segment.stack)?;
    sink.key(Key::Blocks)?;
    list(sink, &segment.blocks, |sink, block| self::block(sink, names, block))?;
    sink.end_dict()
}

fn block(sink: &mut impl Sink, names: &Names, block: &Block) -> io::Result<()> {
    sink.begin_dict()?;
    number(sink, Key::Address, block.address)?;
    number(sink, Key::Size, block.size)?;
    number(sink, Key::RequestedSize, block.requested_size)?;
    sink.key(Key::State)?;
    sink.word(state_name(block.state))?;
    sink.key(Key::Frames)?;
    stack(sink, names, block.stack)?;
    forward(sink, names, block.forward_stack)?;
    sink.end_dict()
}

/// PyTorch's name of a block's state.
pub(super) fn state_name(state: BlockState) -> &'static str {
    match state {
        BlockState::ActiveAllocated => "active_allocated",
        BlockState::ActivePendingFree => "active_pending_free",
        BlockState::Inactive => "inactive",
    }
}

fn entry(sink: &mut impl Sink, names: &Names, entry: &TraceEntry) -> io::Result<()> {
    sink.begin_dict()?;
    sink.key(Key::Action)?;
    sink.word(entry.action.name())?;
    if entry.action == crate::model::Action::OutOfMemory {
        number(sink, Key::DeviceFree, entry.device_free)?;
    } else {
        number(sink, Key::Addr, entry.addr)?;
    }
    number(sink, Key::Size, entry.size)?;
    sink.key(Key::Stream)?;
    sink.signed(entry.stream)?;
    sink.key(Key::TimeUs)?;
    sink.signed(entry.time_us)?;
    for (key, text) in [(Key::CompileContext, entry.compile_context), (Key::UserMetadata, entry.user_metadata)] {
        if let Some(id) = text {
            sink.key(key)?;
            sink.name(id, names.text_of(id))?;
        }
    }
    if let Some((first, second)) = entry.pool_id {
        sink.key(Key::PoolId)?;
        sink.pair(first, second)?;
    }
    sink.key(Key::Frames)?;
    stack(sink, names, entry.stack)?;
    forward(sink, names, entry.forward_stack)?;
    sink.end_dict()
}

fn stack(sink: &mut impl Sink, names: &Names, id: StackId) -> io::Result<()> {
    if sink.recall_stack(id)? {
        return Ok(());
    }
    sink.begin_stack(id)?;
    for frame in names.frames_of(id) {
        sink.item()?;
        self::frame(sink, names, *frame)?;
    }
    sink.end_list()
}

fn frame(sink: &mut impl Sink, names: &Names, id: FrameId) -> io::Result<()> {
    if sink.recall_frame(id)? {
        return Ok(());
    }
    let frame = names.frame_of(id);
    sink.begin_frame(id)?;
    sink.key(Key::Name)?;
    sink.name(frame.name, names.text_of(frame.name))?;
    sink.key(Key::Filename)?;
    sink.name(frame.filename, names.text_of(frame.filename))?;
    number(sink, Key::Line, frame.line)?;
    sink.end_dict()
}

/// Forward frames are ready texts where nothing but the name is known, as PyTorch writes them, and frames elsewhere.
fn forward(sink: &mut impl Sink, names: &Names, id: StackId) -> io::Result<()> {
    if id == StackId::EMPTY {
        return Ok(());
    }
    sink.key(Key::ForwardFrames)?;
    sink.begin_list()?;
    for frame in names.frames_of(id) {
        sink.item()?;
        let Frame { name, filename, line } = names.frame_of(*frame);
        if names.text_of(filename).is_empty() && line == 0 {
            sink.name(name, names.text_of(name))?;
        } else {
            self::frame(sink, names, *frame)?;
        }
    }
    sink.end_list()
}

fn settings(sink: &mut impl Sink, entries: &[(String, Setting)]) -> io::Result<()> {
    sink.begin_dict()?;
    for (name, setting) in entries {
        sink.named(name)?;
        match setting {
            Setting::None => sink.none()?,
            Setting::Bool(value) => sink.truth(*value)?,
            Setting::Int(value) => sink.signed(*value)?,
            Setting::Float(value) => sink.float(*value)?,
            Setting::Text(text) => sink.text(text)?,
            Setting::Map(entries) => settings(sink, entries)?,
        }
    }
    sink.end_dict()
}

fn annotation(sink: &mut impl Sink, names: &Names, annotation: &Annotation) -> io::Result<()> {
    sink.begin_dict()?;
    sink.key(Key::Name)?;
    sink.name(annotation.name, names.text_of(annotation.name))?;
    sink.key(Key::Stage)?;
    sink.name(annotation.stage, names.text_of(annotation.stage))?;
    sink.key(Key::Device)?;
    sink.signed(annotation.device)?;
    sink.key(Key::TimeUs)?;
    sink.signed(annotation.time_us)?;
    sink.end_dict()
}
