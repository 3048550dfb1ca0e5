//! A snapshot as a sequence of keys and values, for the writers of both formats.

use std::io;

use super::Key;
use crate::model::unknown::{Place, Unknown};
use crate::model::{
    Action, Annotation, Block, BlockState, Frame, FrameId, Names, Segment, SegmentKind, Setting, Snapshot, StackId,
    TextId, TraceEntry,
};
use crate::tree::{Tree, Value};

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
    /// Writes a key that is not a string.
    fn number_key(&mut self, key: i64) -> io::Result<()>;
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn begin_tuple(&mut self) -> io::Result<()>;
    fn end_tuple(&mut self) -> io::Result<()>;
    /// Writes a reference to an unknown list or dictionary, if it was written before; returns whether it did.
    fn recall_node(&mut self, node: usize) -> io::Result<bool>;
    /// Registers the last list or dictionary begun or written, for later references.
    fn keep_node(&mut self, node: usize) -> io::Result<()>;
}

/// Hands a snapshot to a writer.
pub(crate) fn emit(snapshot: &Snapshot, sink: &mut impl Sink) -> io::Result<()> {
    let all = All { names: &snapshot.names, unknown: &snapshot.unknown };
    sink.begin_dict()?;
    sink.key(Key::Segments)?;
    list(sink, &snapshot.segments, |sink, segment, at| self::segment(sink, all, segment, at))?;
    sink.key(Key::DeviceTraces)?;
    list(sink, &snapshot.device_traces, |sink, entries, device| {
        list(sink, entries, |sink, entry, at| self::entry(sink, all, entry, Place::Entry(device, at)))
    })?;
    sink.key(Key::AllocatorSettings)?;
    sink.begin_dict()?;
    settings(sink, &snapshot.allocator_settings)?;
    others(sink, all, Place::Settings)?;
    sink.end_dict()?;
    sink.key(Key::ExternalAnnotations)?;
    list(sink, &snapshot.external_annotations, |sink, annotation, at| self::annotation(sink, all, annotation, at))?;
    others(sink, all, Place::Snapshot)?;
    sink.end_dict()
}

/// Tables of the snapshot that its lists refer to.
#[derive(Clone, Copy)]
struct All<'snapshot> {
    names: &'snapshot Names,
    unknown: &'snapshot Unknown,
}

fn list<T, S: Sink>(sink: &mut S, items: &[T], write: impl Fn(&mut S, &T, usize) -> io::Result<()>) -> io::Result<()> {
    sink.begin_list()?;
    for (at, item) in items.iter().enumerate() {
        sink.item()?;
        write(sink, item, at)?;
    }
    sink.end_list()
}

/// Writes the entries of a dictionary whose keys are unknown.
fn others(sink: &mut impl Sink, all: All<'_>, place: Place) -> io::Result<()> {
    let tree = &all.unknown.tree;
    for (key, value) in all.unknown.places.get(&place).into_iter().flatten() {
        other_entry(sink, tree, tree.value(*key), tree.value(*value))?;
    }
    Ok(())
}

fn other_entry(sink: &mut impl Sink, tree: &Tree<'_>, key: Value, value: Value) -> io::Result<()> {
    match key {
        Value::Text(range) => sink.named(&tree.text(range))?,
        Value::Int(number) => sink.number_key(number)?,
        other => sink.named(other.kind())?,
    }
    other(sink, tree, value)
}

/// Writes an unknown value, whose depth the reader has bounded.
fn other(sink: &mut impl Sink, tree: &Tree<'_>, value: Value) -> io::Result<()> {
    match value {
        Value::None => sink.none(),
        Value::Bool(value) => sink.truth(value),
        Value::Int(value) => sink.signed(value),
        Value::Large(value) => sink.unsigned(value),
        Value::Float(value) => sink.float(value),
        Value::Text(range) => sink.text(&tree.text(range)),
        Value::Bytes(range) => sink.bytes(tree.bytes(range)),
        Value::List(node) | Value::Tuple(node) | Value::Dict(node) if sink.recall_node(node.index())? => Ok(()),
        Value::List(node) => {
            sink.begin_list()?;
            sink.keep_node(node.index())?;
            for item in tree.items(node) {
                sink.item()?;
                other(sink, tree, item)?;
            }
            sink.end_list()
        }
        Value::Tuple(node) => {
            sink.begin_tuple()?;
            for item in tree.items(node) {
                sink.item()?;
                other(sink, tree, item)?;
            }
            sink.end_tuple()?;
            sink.keep_node(node.index())
        }
        Value::Dict(node) => {
            sink.begin_dict()?;
            sink.keep_node(node.index())?;
            for (key, value) in tree.pairs(node) {
                other_entry(sink, tree, key, value)?;
            }
            sink.end_dict()
        }
    }
}

fn number(sink: &mut impl Sink, key: Key, value: u64) -> io::Result<()> {
    sink.key(key)?;
    sink.unsigned(value)
}

fn segment(sink: &mut impl Sink, all: All<'_>, segment: &Segment, at: usize) -> io::Result<()> {
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
    stack(sink, all, segment.stack)?;
    sink.key(Key::Blocks)?;
    list(sink, &segment.blocks, |sink, block, place| self::block(sink, all, block, Place::Block(at, place)))?;
    others(sink, all, Place::Segment(at))?;
    sink.end_dict()
}

fn block(sink: &mut impl Sink, all: All<'_>, block: &Block, place: Place) -> io::Result<()> {
    sink.begin_dict()?;
    number(sink, Key::Address, block.address)?;
    number(sink, Key::Size, block.size)?;
    number(sink, Key::RequestedSize, block.requested_size)?;
    sink.key(Key::State)?;
    sink.word(state_name(block.state))?;
    sink.key(Key::Frames)?;
    stack(sink, all, block.stack)?;
    forward(sink, all, block.forward_stack)?;
    others(sink, all, place)?;
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

fn entry(sink: &mut impl Sink, all: All<'_>, entry: &TraceEntry, place: Place) -> io::Result<()> {
    let names = all.names;
    sink.begin_dict()?;
    sink.key(Key::Action)?;
    match entry.action {
        Action::Other(name) => sink.name(name, names.text_of(name))?,
        known => sink.word(known.name())?,
    }
    if entry.action == Action::OutOfMemory {
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
    stack(sink, all, entry.stack)?;
    forward(sink, all, entry.forward_stack)?;
    others(sink, all, place)?;
    sink.end_dict()
}

fn stack(sink: &mut impl Sink, all: All<'_>, id: StackId) -> io::Result<()> {
    if sink.recall_stack(id)? {
        return Ok(());
    }
    sink.begin_stack(id)?;
    for frame in all.names.frames_of(id) {
        sink.item()?;
        self::frame(sink, all, *frame)?;
    }
    sink.end_list()
}

fn frame(sink: &mut impl Sink, all: All<'_>, id: FrameId) -> io::Result<()> {
    let names = all.names;
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
    others(sink, all, Place::Frame(id.index()))?;
    sink.end_dict()
}

/// Forward frames are ready texts where nothing but the name is known, as PyTorch writes them, and frames elsewhere.
fn forward(sink: &mut impl Sink, all: All<'_>, id: StackId) -> io::Result<()> {
    let names = all.names;
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
            self::frame(sink, all, *frame)?;
        }
    }
    sink.end_list()
}

fn settings(sink: &mut impl Sink, entries: &[(String, Setting)]) -> io::Result<()> {
    for (name, setting) in entries {
        sink.named(name)?;
        match setting {
            Setting::None => sink.none()?,
            Setting::Bool(value) => sink.truth(*value)?,
            Setting::Int(value) => sink.signed(*value)?,
            Setting::Float(value) => sink.float(*value)?,
            Setting::Text(text) => sink.text(text)?,
            Setting::Map(entries) => {
                sink.begin_dict()?;
                settings(sink, entries)?;
                sink.end_dict()?;
            }
        }
    }
    Ok(())
}

fn annotation(sink: &mut impl Sink, all: All<'_>, annotation: &Annotation, at: usize) -> io::Result<()> {
    let names = all.names;
    sink.begin_dict()?;
    sink.key(Key::Name)?;
    sink.name(annotation.name, names.text_of(annotation.name))?;
    sink.key(Key::Stage)?;
    sink.name(annotation.stage, names.text_of(annotation.stage))?;
    sink.key(Key::Device)?;
    sink.signed(annotation.device)?;
    sink.key(Key::TimeUs)?;
    sink.signed(annotation.time_us)?;
    others(sink, all, Place::Annotation(at))?;
    sink.end_dict()
}
