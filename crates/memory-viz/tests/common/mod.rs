//! A made training run: a small caching allocator that keeps its own history, so that segments, blocks and entries
//! agree with each other as those of a real one do.

#![expect(clippy::unwrap_used, reason = "what is missing here is a fault of the test")]

use std::collections::BTreeMap;

use memory_viz::{
    Action, Annotation, Block, BlockState, Frame, Segment, SegmentKind, Setting, Snapshot, StackId, TraceEntry,
};

const MIB: u64 = 1 << 20;

/// A generator of numbers: the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

struct Run {
    snapshot: Snapshot,
    trace: Vec<TraceEntry>,
    random: Random,
    /// Free ranges of each segment by address.
    free: BTreeMap<u64, u64>,
    live: BTreeMap<u64, (u64, u64, StackId)>,
    segments: Vec<(u64, u64, StackId)>,
    next: u64,
    time: i64,
}

impl Run {
    fn stack(&mut self, calls: &[(&str, u64)]) -> StackId {
        let names = &mut self.snapshot.names;
        let frames: Vec<_> = calls
            .iter()
            .map(|(name, line)| {
                let (module, _) = name.split_once("::").unwrap_or((name, ""));
                let filename = names.text(&format!("/home/someone/model/{module}.py"));
                let name = names.text(name);
                names.frame(Frame { name, filename, line: *line })
            })
            .collect();
        names.stack(&frames)
    }

    fn note(&mut self, action: Action, addr: u64, size: u64, stack: StackId) {
        self.time += 3 + i64::try_from(self.random.below(20)).unwrap();
        let compile_context = Some(self.snapshot.names.text("N/A"));
        let user_metadata = Some(self.snapshot.names.text(""));
        self.trace.push(TraceEntry {
            action,
            addr,
            size,
            time_us: 1_795_223_010_000_000 + self.time,
            stack,
            compile_context,
            user_metadata,
            ..TraceEntry::default()
        });
    }

    fn alloc(&mut self, size: u64, stack: StackId) -> u64 {
        let rounded = size.next_multiple_of(512);
        let best = self.free.iter().filter(|(_, room)| **room >= rounded).min_by_key(|(_, room)| **room);
        let address = match best.map(|(address, _)| *address) {
            Some(address) => address,
            None => self.grow(rounded, stack),
        };
        let room = self.free.remove(&address).unwrap();
        if room > rounded {
            self.free.insert(address + rounded, room - rounded);
        }
        self.live.insert(address, (rounded, size, stack));
        self.note(Action::Alloc, address, size, stack);
        address
    }

    fn grow(&mut self, rounded: u64, stack: StackId) -> u64 {
        let size = rounded.next_multiple_of(20 * MIB);
        let address = self.next;
        self.next += size + 64 * MIB;
        self.segments.push((address, size, stack));
        self.free.insert(address, size);
        self.note(Action::SegmentAlloc, address, size, stack);
        address
    }

    fn free(&mut self, address: u64, stack: StackId) {
        let (rounded, size, _) = self.live.remove(&address).unwrap();
        self.note(Action::FreeRequested, address, size, stack);
        self.note(Action::FreeCompleted, address, size, stack);
        let (mut begin, mut length) = (address, rounded);
        let starts_segment = |at: u64, run: &Self| run.segments.iter().any(|(begin, ..)| *begin == at);
        if !starts_segment(address + rounded, self)
            && let Some(next) = self.free.remove(&(address + rounded))
        {
            length += next;
        }
        let before = self.free.range(..begin).next_back().map(|(at, room)| (*at, *room));
        if let Some((at, room)) = before.filter(|(at, room)| at + room == begin)
            && !starts_segment(begin, self)
        {
            self.free.remove(&at);
            (begin, length) = (at, length + room);
        }
        self.free.insert(begin, length);
    }

    fn finish(mut self) -> Snapshot {
        for (address, total_size, stack) in std::mem::take(&mut self.segments) {
            let mut segment = Segment { address, total_size, kind: SegmentKind::Large, stack, ..Segment::default() };
            let mut at = address;
            while at < address + total_size {
                let block = match self.live.get(&at) {
                    Some((size, requested_size, stack)) => Block {
                        address: at,
                        size: *size,
                        requested_size: *requested_size,
                        state: BlockState::ActiveAllocated,
                        stack: *stack,
                        ..Block::default()
                    },
                    None => Block { address: at, size: self.free[&at], ..Block::default() },
                };
                if block.state.is_active() {
                    segment.allocated_size += block.size;
                    segment.active_size += block.size;
                    segment.requested_size += block.requested_size;
                }
                at += block.size;
                segment.blocks.push(block);
            }
            self.snapshot.segments.push(segment);
        }
        self.snapshot.device_traces = vec![self.trace];
        self.snapshot
    }
}

/// A training run of about that many entries, with the same content for the same seed.
pub(crate) fn training(entries: usize, seed: u64) -> Snapshot {
    let mut run = Run {
        snapshot: Snapshot::default(),
        trace: Vec::new(),
        random: Random::new(seed),
        free: BTreeMap::new(),
        live: BTreeMap::new(),
        segments: Vec::new(),
        next: 0x7f00_0000_0000,
        time: 0,
    };
    settings(&mut run.snapshot);
    let layers: Vec<StackId> = (0..24)
        .map(|layer| {
            run.stack(&[
                ("linear::forward", 114),
                ("block::forward", 60 + layer),
                ("model::forward", 31),
                ("train::step", 12),
                ("train::main", 80),
            ])
        })
        .collect();
    let weights = run.stack(&[("linear::__init__", 96), ("model::__init__", 17), ("train::main", 64)]);
    let gradients = run.stack(&[("autograd::backward", 220), ("train::step", 14), ("train::main", 80)]);
    let metrics = run.stack(&[("metrics::log", 5), ("train::main", 85)]);
    for layer in 0..24 {
        run.alloc((3 + layer % 3) * MIB + 1000, weights);
    }
    let mut kept = Vec::new();
    let mut step = 0;
    while run.trace.len() < entries {
        step += 1;
        let mut activations = Vec::new();
        for stack in &layers {
            for _ in 0..8 {
                let size = 512 * (1 + run.random.below(4000));
                let address = run.alloc(size, *stack);
                if run.random.below(3) == 0 { run.free(address, *stack) } else { activations.push(address) }
            }
        }
        if step % 7 == 3 {
            let (device_free, size) = (300 * MIB, 4096 * MIB);
            run.note(Action::OutOfMemory, 0, size, layers[5]);
            run.trace.last_mut().unwrap().device_free = device_free;
        }
        while let Some(address) = activations.pop() {
            let size = 512 * (1 + run.random.below(500));
            let gradient = run.alloc(size, gradients);
            run.free(address, gradients);
            run.free(gradient, gradients);
        }
        if step % 5 == 0 {
            kept.push(run.alloc(100_000, metrics));
        }
    }
    for stack in &layers {
        let size = 512 * (1 + run.random.below(4000));
        run.alloc(size, *stack);
    }
    run.finish()
}

fn settings(snapshot: &mut Snapshot) {
    let divisions = vec![("1".to_owned(), Setting::Int(0)), ("2".to_owned(), Setting::Int(4))];
    snapshot.allocator_settings = vec![
        ("PYTORCH_CUDA_ALLOC_CONF".to_owned(), Setting::Text("roundup_power2_divisions:[2:4]".to_owned())),
        ("max_split_size".to_owned(), Setting::Int(-1)),
        ("garbage_collection_threshold".to_owned(), Setting::Float(0.0)),
        ("expandable_segments".to_owned(), Setting::Bool(false)),
        ("roundup_power2_divisions".to_owned(), Setting::Map(divisions)),
    ];
    let (name, stage) = (snapshot.names.text("step"), snapshot.names.text("START"));
    snapshot.external_annotations.push(Annotation { name, stage, device: 0, time_us: 1_795_223_010_000_000 });
}
