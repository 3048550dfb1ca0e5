//! A snapshot from the values of a file.
//!
//! Keys that are not known are passed over. A list of frames that is recalled is looked at once. Every entry counts
//! against [`Limits::entries_max`], so that a list that a file recalls a thousand times cannot grow beyond it.

use std::collections::HashMap;

use super::Key;
use super::write::state_name;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::model::{
    Action, Annotation, Block, BlockState, Frame, FrameId, Names, Segment, SegmentKind, Setting, Snapshot, StackId,
    TextId, TraceEntry,
};
use crate::tree::{Node, Range, Tree, Value};

/// Makes a snapshot of what a file says. A bare list is taken as `memory_snapshot()` returns it: the segments alone.
pub(crate) fn snapshot(tree: &Tree<'_>, limits: &Limits) -> Result<Snapshot> {
    let mut reader = Reader {
        tree,
        entries: 0,
        limits,
        names: Names::default(),
        texts: HashMap::new(),
        frames: HashMap::new(),
        stacks: HashMap::new(),
    };
    let mut snapshot = Snapshot::default();
    match tree.root {
        Value::List(_) => snapshot.segments = reader.list(tree.root, "the snapshot", Reader::segment)?,
        Value::Dict(node) => reader.top(node, &mut snapshot)?,
        other => return Err(shape("the snapshot", "a dictionary", other)),
    }
    snapshot.names = reader.names;
    Ok(snapshot)
}

struct Reader<'tree> {
    tree: &'tree Tree<'tree>,
    entries: u64,
    limits: &'tree Limits,
    names: Names,
    texts: HashMap<Range, TextId>,
    frames: HashMap<Node, FrameId>,
    stacks: HashMap<Node, StackId>,
}

fn shape(path: &'static str, expected: &'static str, found: Value) -> Error {
    Error::Shape { path, expected, found: found.kind() }
}

fn missing(path: &'static str, expected: &'static str) -> Error {
    Error::Shape { path, expected, found: "nothing" }
}

/// The dictionary entries of a value by the keys that are known; later entries win, as they do in Python.
struct Entries([Option<Value>; Key::COUNT]);

impl Entries {
    fn get(&self, key: Key) -> Option<Value> {
        self.0[key.index()]
    }
}

impl Reader<'_> {
    fn top(&mut self, node: Node, snapshot: &mut Snapshot) -> Result<()> {
        let entries = self.entries_of(node);
        let segments = entries.get(Key::Segments).ok_or_else(|| missing("segments", "a list"))?;
        snapshot.segments = self.list(segments, "segments", Self::segment)?;
        if let Some(traces) = entries.get(Key::DeviceTraces) {
            snapshot.device_traces =
                self.list(traces, "device_traces", |reader, trace| reader.list(trace, "device_traces[]", Self::entry))?;
        }
        if let Some(settings) = entries.get(Key::AllocatorSettings) {
            snapshot.allocator_settings = self.settings(settings, 4)?;
        }
        if let Some(annotations) = entries.get(Key::ExternalAnnotations) {
            snapshot.external_annotations = self.list(annotations, "external_annotations", Self::annotation)?;
        }
        Ok(())
    }

    fn entries_of(&self, node: Node) -> Entries {
        let mut entries = Entries([None; Key::COUNT]);
        for pair in self.tree.items(node).chunks_exact(2) {
            if let Value::Text(range) = pair[0]
                && let Some(index) = Key::of(self.tree.bytes(range))
            {
                entries.0[index] = Some(pair[1]);
            }
        }
        entries
    }

    fn dict(&self, value: Value, path: &'static str) -> Result<Entries> {
        match value {
            Value::Dict(node) => Ok(self.entries_of(node)),
            other => Err(shape(path, "a dictionary", other)),
        }
    }

    fn list<T>(
        &mut self,
        value: Value,
        path: &'static str,
        read: impl Fn(&mut Self, Value) -> Result<T>,
    ) -> Result<Vec<T>> {
        let (Value::List(node) | Value::Tuple(node)) = value else { return Err(shape(path, "a list", value)) };
        let tree = self.tree;
        tree.items(node)
            .iter()
            .map(|item| {
                self.count()?;
                read(self, *item)
            })
            .collect()
    }

    fn count(&mut self) -> Result<()> {
        self.entries += 1;
        let limit = self.limits.entries_max;
        let error = Error::Limit { what: "segments, blocks, trace entries and frames", limit, field: "entries_max" };
        if self.entries <= limit { Ok(()) } else { Err(error) }
    }

    fn segment(&mut self, value: Value) -> Result<Segment> {
        let entries = self.dict(value, "segments[]")?;
        let blocks = entries.get(Key::Blocks).ok_or_else(|| missing("segments[].blocks", "a list"))?;
        let address = required(&entries, Key::Address, "segments[].address")?;
        let mut blocks = self.list(blocks, "segments[].blocks", Self::block)?;
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

    fn block(&mut self, value: Value) -> Result<Block> {
        let entries = self.dict(value, "segments[].blocks[]")?;
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

    fn entry(&mut self, value: Value) -> Result<TraceEntry> {
        let entries = self.dict(value, "device_traces[][]")?;
        let action = entries.get(Key::Action);
        let name = self.bytes(action);
        let action = Action::ALL
            .into_iter()
            .find(|known| name == Some(known.name().as_bytes()))
            .ok_or_else(|| shape("device_traces[][].action", "the name of an action", action.unwrap_or(Value::None)))?;
        Ok(TraceEntry {
            action,
            addr: optional(&entries, Key::Addr, "device_traces[][].addr")?.unwrap_or(0),
            device_free: optional(&entries, Key::DeviceFree, "device_traces[][].device_free")?.unwrap_or(0),
            size: required(&entries, Key::Size, "device_traces[][].size")?,
            stream: signed(&entries, Key::Stream, "device_traces[][].stream")?,
            time_us: signed(&entries, Key::TimeUs, "device_traces[][].time_us")?,
            compile_context: self.name(entries.get(Key::CompileContext)),
            user_metadata: self.name(entries.get(Key::UserMetadata)),
            stack: self.stack(entries.get(Key::Frames), "device_traces[][].frames")?,
            forward_stack: self.stack(entries.get(Key::ForwardFrames), "device_traces[][].forward_frames")?,
            pool_id: self.pair(entries.get(Key::PoolId), "device_traces[][].pool_id")?,
        })
    }

    fn annotation(&mut self, value: Value) -> Result<Annotation> {
        let entries = self.dict(value, "external_annotations[]")?;
        Ok(Annotation {
            name: self.name(entries.get(Key::Name)).unwrap_or_else(|| self.names.text("")),
            stage: self.name(entries.get(Key::Stage)).unwrap_or_else(|| self.names.text("")),
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
        let mut frames = Vec::with_capacity(tree.items(node).len());
        for item in tree.items(node) {
            self.count()?;
            frames.push(self.frame(*item, path)?);
        }
        let id = self.names.stack(&frames);
        self.stacks.insert(node, id);
        Ok(id)
    }

    /// A frame, or a ready text in its place.
    fn frame(&mut self, value: Value, path: &'static str) -> Result<FrameId> {
        let node = match value {
            Value::Dict(node) => node,
            Value::Text(_) => {
                let frame =
                    Frame { name: self.name(Some(value)).unwrap_or_default(), filename: self.names.text(""), line: 0 };
                return Ok(self.names.frame(frame));
            }
            other => return Err(shape(path, "a list of frames", other)),
        };
        if let Some(id) = self.frames.get(&node) {
            return Ok(*id);
        }
        let entries = self.entries_of(node);
        let empty = self.names.text("");
        let line = match entries.get(Key::Line) {
            Some(Value::Int(line)) => u64::try_from(line).unwrap_or(0),
            Some(Value::Large(line)) => line,
            _ => 0,
        };
        let frame = Frame {
            name: self.name(entries.get(Key::Name)).unwrap_or(empty),
            filename: self.name(entries.get(Key::Filename)).unwrap_or(empty),
            line,
        };
        let id = self.names.frame(frame);
        self.frames.insert(node, id);
        Ok(id)
    }

    fn name(&mut self, value: Option<Value>) -> Option<TextId> {
        let Some(Value::Text(range)) = value else { return None };
        if let Some(id) = self.texts.get(&range) {
            return Some(*id);
        }
        let id = self.names.text(&self.tree.text(range));
        self.texts.insert(range, id);
        Some(id)
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
        match self.tree.items(node) {
            [first, second] => match (unsigned(*first), unsigned(*second)) {
                (Some(first), Some(second)) => Ok(Some((first, second))),
                _ => Err(missing(path, "two numbers")),
            },
            _ => Err(missing(path, "two numbers")),
        }
    }

    /// Settings are kept whatever they are called; what is neither value nor dictionary is passed over.
    fn settings(&mut self, value: Value, depth: usize) -> Result<Vec<(String, Setting)>> {
        let Value::Dict(node) = value else { return Err(shape("allocator_settings", "a dictionary", value)) };
        let tree = self.tree;
        let mut settings = Vec::new();
        for pair in tree.items(node).chunks_exact(2) {
            self.count()?;
            let Value::Text(name) = pair[0] else { continue };
            let setting = match pair[1] {
                Value::None => Setting::None,
                Value::Bool(value) => Setting::Bool(value),
                Value::Int(value) => Setting::Int(value),
                Value::Float(value) => Setting::Float(value),
                Value::Text(range) => Setting::Text(tree.text(range).into_owned()),
                inner @ Value::Dict(_) if depth > 0 => Setting::Map(self.settings(inner, depth - 1)?),
                _ => continue,
            };
            settings.push((tree.text(name).into_owned(), setting));
        }
        Ok(settings)
    }
}

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
