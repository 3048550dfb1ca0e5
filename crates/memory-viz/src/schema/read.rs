//! A snapshot from the values of a file.
//!
//! Unknown keys and actions are kept unchanged. A list of frames that is referenced several times is parsed once.
//! Memory is charged to the tree's budget before it is allocated, so that a list that a file references a thousand
//! times cannot exceed the budget.

use std::collections::HashMap;

use super::Key;
use super::write::state_name;
use crate::error::{Error, Result};
use crate::limits::{Budget, Limits};
use crate::model::unknown::{Place, Unknown};
use crate::model::{
    Action, Annotation, Block, BlockState, Frame, FrameId, Names, Segment, SegmentKind, Setting, Snapshot, StackId,
    TextId, TraceEntry,
};
use crate::tree::{Node, Packed, Range, Tree, Value};

/// Makes a snapshot of what a file says. A bare list is taken as `memory_snapshot()` returns it: the segments alone.
pub(crate) fn snapshot(tree: &Tree<'_>, limits: &Limits) -> Result<Snapshot> {
    let mut reader = Reader {
        tree,
        budget: tree.budget,
        depth_max: limits.depth_max,
        names: Names::default(),
        texts: HashMap::new(),
        frames: HashMap::new(),
        stacks: HashMap::new(),
        unknown: Unknown::default(),
        unknown_nodes: HashMap::new(),
        unknown_texts: HashMap::new(),
    };
    let mut snapshot = Snapshot::default();
    match tree.root {
        Value::List(_) => snapshot.segments = reader.list(tree.root, "the snapshot", Reader::segment)?,
        Value::Dict(node) => reader.top(node, &mut snapshot)?,
        other => return Err(shape("the snapshot", "a dictionary", other)),
    }
    snapshot.names = reader.names;
    snapshot.unknown = reader.unknown;
    Ok(snapshot)
}

struct Reader<'tree> {
    tree: &'tree Tree<'tree>,
    budget: Budget,
    depth_max: usize,
    names: Names,
    texts: HashMap<Range, TextId>,
    frames: HashMap<Node, FrameId>,
    stacks: HashMap<Node, StackId>,
    unknown: Unknown,
    /// Lists and strings already copied into `unknown`.
    unknown_nodes: HashMap<Node, Value>,
    unknown_texts: HashMap<Range, Range>,
}

fn shape(path: &'static str, expected: &'static str, found: Value) -> Error {
    Error::Shape { path, expected, found: found.kind() }
}

fn missing(path: &'static str, expected: &'static str) -> Error {
    Error::Shape { path, expected, found: "nothing" }
}

/// The dictionary entries of a value by the keys that are known; later entries win, as they do in Python.
struct Entries {
    known: [Option<Value>; Key::COUNT],
    /// Whether the file has keys that this kind of dictionary does not define.
    has_unknown: bool,
}

/// Known keys of each kind of dictionary.
const TOP: &[Key] = &[Key::Segments, Key::DeviceTraces, Key::AllocatorSettings, Key::ExternalAnnotations];
const SEGMENT: &[Key] = &[
    Key::Device,
    Key::Address,
    Key::TotalSize,
    Key::AllocatedSize,
    Key::ActiveSize,
    Key::RequestedSize,
    Key::Stream,
    Key::SegmentType,
    Key::SegmentPoolId,
    Key::IsExpandable,
    Key::Frames,
    Key::Blocks,
];
const BLOCK: &[Key] = &[Key::Address, Key::Size, Key::RequestedSize, Key::State, Key::Frames, Key::ForwardFrames];
const ENTRY: &[Key] = &[
    Key::Action,
    Key::Addr,
    Key::DeviceFree,
    Key::Size,
    Key::Stream,
    Key::TimeUs,
    Key::CompileContext,
    Key::UserMetadata,
    Key::PoolId,
    Key::Frames,
    Key::ForwardFrames,
];
const ANNOTATION: &[Key] = &[Key::Name, Key::Stage, Key::Device, Key::TimeUs];
const FRAME: &[Key] = &[Key::Name, Key::Filename, Key::Line];

impl Entries {
    fn get(&self, key: Key) -> Option<Value> {
        self.known[key.index()]
    }
}

impl Reader<'_> {
    fn top(&mut self, node: Node, snapshot: &mut Snapshot) -> Result<()> {
        let entries = self.entries_of(node, TOP);
        self.keep_unknown(Place::Snapshot, node, TOP, &entries)?;
        let segments = entries.get(Key::Segments).ok_or_else(|| missing("segments", "a list"))?;
        snapshot.segments = self.list(segments, "segments", Self::segment)?;
        if let Some(traces) = entries.get(Key::DeviceTraces) {
            snapshot.device_traces = self.list(traces, "device_traces", |reader, trace, device| {
                reader.list(trace, "device_traces[]", |reader, entry, at| reader.entry(entry, Place::Entry(device, at)))
            })?;
        }
        if let Some(settings) = entries.get(Key::AllocatorSettings) {
            snapshot.allocator_settings = self.settings(settings, SETTINGS_DEPTH)?;
        }
        if let Some(annotations) = entries.get(Key::ExternalAnnotations) {
            snapshot.external_annotations = self.list(annotations, "external_annotations", Self::annotation)?;
        }
        Ok(())
    }

    fn entries_of(&self, node: Node, keys: &[Key]) -> Entries {
        let mut entries = Entries { known: [None; Key::COUNT], has_unknown: false };
        for (key, value) in self.tree.pairs(node) {
            match self.known(key, keys) {
                Some(index) => entries.known[index] = Some(value),
                None => entries.has_unknown = true,
            }
        }
        entries
    }

    /// Returns the position of a key among all keys, if it is one of `keys`.
    fn known(&self, key: Value, keys: &[Key]) -> Option<usize> {
        let Value::Text(range) = key else { return None };
        let name = self.tree.bytes(range);
        keys.iter().find(|known| known.name().as_bytes() == name).map(|known| known.index())
    }

    /// Returns the entries of a dictionary by key, and keeps entries with unknown keys for `place`.
    fn dict(&mut self, value: Value, path: &'static str, keys: &[Key], place: Place) -> Result<Entries> {
        let Value::Dict(node) = value else { return Err(shape(path, "a dictionary", value)) };
        let entries = self.entries_of(node, keys);
        self.keep_unknown(place, node, keys, &entries)?;
        Ok(entries)
    }

    /// Keeps the entries of a dictionary whose keys are unknown.
    fn keep_unknown(&mut self, place: Place, node: Node, keys: &[Key], entries: &Entries) -> Result<()> {
        if !entries.has_unknown || self.unknown.places.contains_key(&place) {
            return Ok(());
        }
        let tree = self.tree;
        let mut kept = Vec::new();
        for (key, value) in tree.pairs(node) {
            if self.known(key, keys).is_none() {
                let pair = (self.copy(key, 0)?, self.copy(value, 0)?);
                self.budget.push(&mut kept, pair)?;
            }
        }
        self.budget.entry::<Place, Vec<(Packed, Packed)>>()?;
        self.unknown.places.insert(place, kept);
        Ok(())
    }

    /// Copies an unknown value. A list that is referenced several times is copied once; a list that contains itself is
    /// rejected.
    fn copy(&mut self, value: Value, depth: usize) -> Result<Packed> {
        let tree = self.tree;
        let copied = match value {
            Value::Text(range) => Value::Text(self.copy_text(range)?),
            Value::Bytes(range) => Value::Bytes(self.copy_text(range)?),
            Value::List(node) | Value::Tuple(node) | Value::Dict(node) => {
                if let Some(known) = self.unknown_nodes.get(&node) {
                    *known
                } else if depth >= self.depth_max {
                    let limit = self.depth_max as u64;
                    return Err(Error::Limit { what: "values inside each other", limit, field: "depth_max" });
                } else {
                    let mut items = self.budget.list(tree.length(node))?;
                    for item in tree.items(node) {
                        let item = self.copy(item, depth + 1)?;
                        items.push(item);
                    }
                    let mine = self.in_unknown(|unknown| unknown.node(&mut items, 0))?;
                    self.budget.give(items.capacity() * size_of::<Packed>());
                    let copied = match value {
                        Value::Tuple(_) => Value::Tuple(mine),
                        Value::Dict(_) => Value::Dict(mine),
                        _ => Value::List(mine),
                    };
                    self.budget.entry::<Node, Value>()?;
                    self.unknown_nodes.insert(node, copied);
                    copied
                }
            }
            plain => plain,
        };
        self.in_unknown(|unknown| unknown.pack(copied))
    }

    fn copy_text(&mut self, range: Range) -> Result<Range> {
        if let Some(known) = self.unknown_texts.get(&range) {
            return Ok(*known);
        }
        self.budget.entry::<Range, Range>()?;
        let tree = self.tree;
        let start = u32::try_from(self.unknown.tree.text_end());
        let start = start.map_err(|_| shape("a key that is not known", "a text within 4 GiB", Value::Text(range)))?;
        self.in_unknown(|unknown| unknown.extend_text(tree.bytes(range)))?;
        let copied = Range { start, length: range.length };
        self.unknown_texts.insert(range, copied);
        Ok(copied)
    }

    /// Changes the tree of unknown values within this reader's budget.
    fn in_unknown<T>(&mut self, change: impl FnOnce(&mut Tree<'static>) -> Result<T>) -> Result<T> {
        self.unknown.tree.budget = self.budget;
        let outcome = change(&mut self.unknown.tree);
        self.budget = self.unknown.tree.budget;
        outcome
    }

    fn list<T>(
        &mut self,
        value: Value,
        path: &'static str,
        read: impl Fn(&mut Self, Value, usize) -> Result<T>,
    ) -> Result<Vec<T>> {
        let (Value::List(node) | Value::Tuple(node)) = value else { return Err(shape(path, "a list", value)) };
        let tree = self.tree;
        let mut list = self.budget.list(tree.length(node))?;
        for (at, item) in tree.items(node).enumerate() {
            list.push(read(self, item, at)?);
        }
        Ok(list)
    }

    fn segment(&mut self, value: Value, at: usize) -> Result<Segment> {
        let entries = self.dict(value, "segments[]", SEGMENT, Place::Segment(at))?;
        let blocks = entries.get(Key::Blocks).ok_or_else(|| missing("segments[].blocks", "a list"))?;
        let address = required(&entries, Key::Address, "segments[].address")?;
        let mut blocks = self
            .list(blocks, "segments[].blocks", |reader, block, place| reader.block(block, Place::Block(at, place)))?;
        fill_addresses(address, &mut blocks);
        let device = optional(&entries, Key::Device, "segments[].device")?.unwrap_or(0);
        Ok(Segment {
            device: u32::try_from(device).map_err(|_| missing("segments[].device", "the index of a device"))?,
            address,
            total_size: required(&entries, Key::TotalSize, "segments[].total_size")?,
            allocated_size: optional(&entries, Key::AllocatedSize, "segments[].allocated_size")?.unwrap_or(0),
            active_size: optional(&entries, Key::ActiveSize, "segments[].active_size")?.unwrap_or(0),
            requested_size: optional(&entries, Key::RequestedSize, "segments[].requested_size")?.unwrap_or(0),
            stream: signed(&entries, Key::Stream, "segments[].stream")?,
            kind: self.kind(entries.get(Key::SegmentType))?,
            pool_id: self.pair(entries.get(Key::SegmentPoolId), "segments[].segment_pool_id")?.unwrap_or((0, 0)),
            is_expandable: matches!(entries.get(Key::IsExpandable), Some(Value::Bool(true))),
            stack: self.stack(entries.get(Key::Frames), "segments[].frames")?,
            blocks,
        })
    }

    fn kind(&self, value: Option<Value>) -> Result<SegmentKind> {
        match self.bytes(value) {
            Some(b"small") => Ok(SegmentKind::Small),
            Some(b"large") | None => Ok(SegmentKind::Large),
            Some(_) => Err(shape("segments[].segment_type", "`small` or `large`", value.unwrap_or(Value::None))),
        }
    }

    fn block(&mut self, value: Value, place: Place) -> Result<Block> {
        let entries = self.dict(value, "segments[].blocks[]", BLOCK, place)?;
        let size = required(&entries, Key::Size, "segments[].blocks[].size")?;
        let states = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive];
        let name = self.bytes(entries.get(Key::State));
        let state = match name {
            // The name in PyTorch's documentation, which its allocator does not write.
            Some(b"active_awaiting_free") => Some(BlockState::ActivePendingFree),
            name => states.into_iter().find(|state| name == Some(state_name(*state).as_bytes())),
        };
        let state = state.ok_or_else(|| {
            shape("segments[].blocks[].state", "the state of a block", entries.get(Key::State).unwrap_or(Value::None))
        })?;
        Ok(Block {
            // Older files have no addresses: they follow from the sizes.
            address: optional(&entries, Key::Address, "segments[].blocks[].address")?.unwrap_or(0),
            size,
            requested_size: optional(&entries, Key::RequestedSize, "segments[].blocks[].requested_size")?.unwrap_or(0),
            state,
            stack: self.stack(entries.get(Key::Frames), "segments[].blocks[].frames")?,
            forward_stack: self.stack(entries.get(Key::ForwardFrames), "segments[].blocks[].forward_frames")?,
        })
    }

    fn entry(&mut self, value: Value, place: Place) -> Result<TraceEntry> {
        let entries = self.dict(value, "device_traces[][]", ENTRY, place)?;
        let action = self.action(entries.get(Key::Action))?;
        // The fields of an unknown action are unknown too.
        let is_other = matches!(action, Action::Other(_));
        let size = optional(&entries, Key::Size, "device_traces[][].size")?.or(is_other.then_some(0));
        Ok(TraceEntry {
            action,
            addr: optional(&entries, Key::Addr, "device_traces[][].addr")?.unwrap_or(0),
            device_free: optional(&entries, Key::DeviceFree, "device_traces[][].device_free")?.unwrap_or(0),
            size: size.ok_or_else(|| missing("device_traces[][].size", "a number of at least 0"))?,
            stream: signed(&entries, Key::Stream, "device_traces[][].stream")?,
            time_us: signed(&entries, Key::TimeUs, "device_traces[][].time_us")?,
            compile_context: self.name(entries.get(Key::CompileContext))?,
            user_metadata: self.name(entries.get(Key::UserMetadata))?,
            stack: self.stack(entries.get(Key::Frames), "device_traces[][].frames")?,
            forward_stack: self.stack(entries.get(Key::ForwardFrames), "device_traces[][].forward_frames")?,
            pool_id: self.pair(entries.get(Key::PoolId), "device_traces[][].pool_id")?,
        })
    }

    /// Returns the action with a name.
    fn action(&mut self, value: Option<Value>) -> Result<Action> {
        let name = self.bytes(value);
        if let Some(known) = Action::ALL.into_iter().find(|known| name == Some(known.name().as_bytes())) {
            return Ok(known);
        }
        let other = || shape("device_traces[][].action", "the name of an action", value.unwrap_or(Value::None));
        self.name(value)?.map(Action::Other).ok_or_else(other)
    }

    fn annotation(&mut self, value: Value, at: usize) -> Result<Annotation> {
        let entries = self.dict(value, "external_annotations[]", ANNOTATION, Place::Annotation(at))?;
        Ok(Annotation {
            name: self.name(entries.get(Key::Name))?.unwrap_or_else(|| self.names.text("")),
            stage: self.name(entries.get(Key::Stage))?.unwrap_or_else(|| self.names.text("")),
            device: signed(&entries, Key::Device, "external_annotations[].device")?,
            time_us: signed(&entries, Key::TimeUs, "external_annotations[].time_us")?,
        })
    }

    /// The stack of a list of frames; no list, or one that is empty, is the empty stack.
    fn stack(&mut self, value: Option<Value>, path: &'static str) -> Result<StackId> {
        let node = match value {
            None | Some(Value::None) => return Ok(StackId::EMPTY),
            Some(Value::List(node) | Value::Tuple(node)) => node,
            Some(other) => return Err(shape(path, "a list of frames", other)),
        };
        if let Some(id) = self.stacks.get(&node) {
            return Ok(*id);
        }
        let tree = self.tree;
        let mut frames = self.budget.list(tree.length(node))?;
        for item in tree.items(node) {
            frames.push(self.frame(item, path)?);
        }
        let before = self.names.stacks().len();
        self.budget.take(STACK_BYTES + frames.len() * size_of::<FrameId>())?;
        let id = self.names.stack(&frames);
        self.budget.give(frames.len() * size_of::<FrameId>());
        if self.names.stacks().len() == before {
            self.budget.give(STACK_BYTES + frames.len() * size_of::<FrameId>());
        }
        self.budget.entry::<Node, StackId>()?;
        self.stacks.insert(node, id);
        Ok(id)
    }

    /// A frame, or a ready text in its place.
    fn frame(&mut self, value: Value, path: &'static str) -> Result<FrameId> {
        let node = match value {
            Value::Dict(node) => node,
            Value::Text(_) => {
                let (name, filename) = (self.name(Some(value))?.unwrap_or_default(), self.names.text(""));
                return self.named_frame(Frame { name, filename, line: 0 });
            }
            other => return Err(shape(path, "a list of frames", other)),
        };
        if let Some(id) = self.frames.get(&node) {
            return Ok(*id);
        }
        let entries = self.entries_of(node, FRAME);
        let empty = self.names.text("");
        let line = match entries.get(Key::Line) {
            Some(Value::Int(line)) => u64::try_from(line).unwrap_or(0),
            Some(Value::Large(line)) => line,
            _ => 0,
        };
        let frame = Frame {
            name: self.name(entries.get(Key::Name))?.unwrap_or(empty),
            filename: self.name(entries.get(Key::Filename))?.unwrap_or(empty),
            line,
        };
        let id = self.named_frame(frame)?;
        self.keep_unknown(Place::Frame(id.index()), node, FRAME, &entries)?;
        self.budget.entry::<Node, FrameId>()?;
        self.frames.insert(node, id);
        Ok(id)
    }

    fn named_frame(&mut self, frame: Frame) -> Result<FrameId> {
        self.budget.take(FRAME_BYTES)?;
        let before = self.names.frames().len();
        let id = self.names.frame(frame);
        if self.names.frames().len() == before {
            self.budget.give(FRAME_BYTES);
        }
        Ok(id)
    }

    /// Returns the id of a string; `None` for another value.
    fn name(&mut self, value: Option<Value>) -> Result<Option<TextId>> {
        let Some(Value::Text(range)) = value else { return Ok(None) };
        if let Some(id) = self.texts.get(&range) {
            return Ok(Some(*id));
        }
        // Each invalid byte becomes three bytes of UTF-8, and the string exists twice during the lookup.
        let bytes = TEXT_BYTES + 6 * range.length as usize;
        self.budget.take(bytes)?;
        let before = self.names.texts().len();
        let tree = self.tree;
        let text = tree.text(range);
        let id = self.names.text(&text);
        let kept = if self.names.texts().len() == before { 0 } else { TEXT_BYTES + text.len() };
        self.budget.give(bytes.saturating_sub(kept));
        self.budget.entry::<Range, TextId>()?;
        self.texts.insert(range, id);
        Ok(Some(id))
    }

    fn bytes(&self, value: Option<Value>) -> Option<&[u8]> {
        match value {
            Some(Value::Text(range)) => Some(self.tree.bytes(range)),
            _ => None,
        }
    }

    fn pair(&self, value: Option<Value>, path: &'static str) -> Result<Option<(u64, u64)>> {
        let node = match value {
            None | Some(Value::None) => return Ok(None),
            Some(Value::List(node) | Value::Tuple(node)) => node,
            Some(other) => return Err(shape(path, "two numbers", other)),
        };
        let mut numbers = self.tree.items(node).map(unsigned);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(first)), Some(Some(second)), None) => Ok(Some((first, second))),
            _ => Err(missing(path, "two numbers")),
        }
    }

    /// Settings are kept under any name; a value that is neither a scalar nor a dictionary is kept unchanged.
    fn settings(&mut self, value: Value, depth: usize) -> Result<Vec<(String, Setting)>> {
        let Value::Dict(node) = value else { return Err(shape("allocator_settings", "a dictionary", value)) };
        let tree = self.tree;
        let mut settings = Vec::new();
        for (key, value) in tree.pairs(node) {
            let Value::Text(name) = key else { continue };
            let setting = match value {
                Value::None => Setting::None,
                Value::Bool(value) => Setting::Bool(value),
                Value::Int(value) => Setting::Int(value),
                Value::Float(value) => Setting::Float(value),
                Value::Text(range) => {
                    self.budget.take(3 * range.length as usize)?;
                    Setting::Text(tree.text(range).into_owned())
                }
                inner @ Value::Dict(_) if depth > 0 => Setting::Map(self.settings(inner, depth - 1)?),
                _ => {
                    if depth == SETTINGS_DEPTH {
                        self.keep_setting(key, value)?;
                    }
                    continue;
                }
            };
            self.budget.take(3 * name.length as usize)?;
            self.budget.push(&mut settings, (tree.text(name).into_owned(), setting))?;
        }
        Ok(settings)
    }

    /// Keeps a setting whose value is a list or has another type that settings do not use.
    fn keep_setting(&mut self, key: Value, value: Value) -> Result<()> {
        let pair = (self.copy(key, 0)?, self.copy(value, 0)?);
        let kept = self.unknown.places.entry(Place::Settings).or_default();
        self.budget.push(kept, pair)
    }
}

/// Largest nesting depth of dictionaries inside the settings.
const SETTINGS_DEPTH: usize = 4;

/// Bytes that a new string, frame or stack takes in addition to its content: its allocation header, its slot in a list
/// whose capacity may be twice its length, and its entry in a hash table.
const TEXT_BYTES: usize = 16 + 2 * 16 + 3 * (24 + 1);
const FRAME_BYTES: usize = 2 * size_of::<Frame>() + 3 * (size_of::<(Frame, FrameId)>() + 1);
const STACK_BYTES: usize = 16 + 2 * 16 + 3 * (24 + 1);

/// Addresses that the file leaves out. No file with addresses has a block at 0.
fn fill_addresses(segment: u64, blocks: &mut [Block]) {
    let mut address = segment;
    for block in blocks {
        if block.address == 0 {
            block.address = address;
        }
        address = address.wrapping_add(block.size);
    }
}

fn unsigned(value: Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(number).ok(),
        Value::Large(number) => Some(number),
        _ => None,
    }
}

fn optional(entries: &Entries, key: Key, path: &'static str) -> Result<Option<u64>> {
    let Some(value) = entries.get(key) else { return Ok(None) };
    unsigned(value).map(Some).ok_or_else(|| shape(path, "a number of at least 0", value))
}

fn required(entries: &Entries, key: Key, path: &'static str) -> Result<u64> {
    optional(entries, key, path)?.ok_or_else(|| missing(path, "a number of at least 0"))
}

/// A number that may be negative; 0 if it is not there.
fn signed(entries: &Entries, key: Key, path: &'static str) -> Result<i64> {
    match entries.get(key) {
        None => Ok(0),
        Some(Value::Int(number)) => Ok(number),
        Some(other) => Err(shape(path, "a whole number of 64 bits", other)),
    }
}
