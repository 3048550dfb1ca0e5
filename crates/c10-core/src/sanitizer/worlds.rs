//! The rules for ranges of bytes: what runs now, what is captured, and graphs that are launched.
//!
//! Work that is captured does not run. It is compared with the other work of its capture, in a world of its own, and
//! remembered as what the graph does. A launch of the graph is one piece of work of its stream with all these accesses: work
//! of a graph that races with other work of the same graph is told once, when it is captured.
//!
//! **Invariants:** a mark belongs to the world that its stream was in when it was placed. A graph that is launched comes after
//! its own last launch, which the driver sees to.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::trace::{Stack, TraceAccess, TraceStream};

use super::access::{Access, Arguments, Race};
use super::clock::Clock;
use super::order::{HostThread, Order, Words};
use super::ranges::Ranges;

/// Work in an order of its own, and what it accesses.
#[derive(Debug, Default)]
struct World {
    order: Order,
    ranges: Ranges,
    /// What a graph that is captured does.
    recorded: Vec<Used>,
}

/// Bytes that a graph uses.
#[derive(Clone, Debug)]
struct Used {
    start: u64,
    size: u64,
    access: Arc<Access>,
}

/// An executable graph.
#[derive(Debug)]
struct Executable {
    uses: Arc<[Used]>,
    /// What comes before its next launch.
    last: Clock,
}

/// Device memory that was handed out.
#[derive(Debug)]
struct Block {
    end: u64,
    /// Number of the last work before.
    after: u64,
    stack: Option<Arc<Stack>>,
}

type StreamKey = (DeviceIndex, u64);

/// What runs, what is captured, and the graphs.
#[derive(Debug, Default)]
pub(super) struct Worlds {
    live: World,
    /// Captures under way, by the stream that began them.
    captures: BTreeMap<StreamKey, World>,
    /// The capture that a stream takes part in.
    capturing: Words<StreamKey, StreamKey>,
    /// The capture, if it was placed in one, and the clock of each mark.
    marks: Words<u64, (Option<StreamKey>, Clock)>,
    /// What the last capture of a stream has recorded.
    ended: BTreeMap<StreamKey, Arc<[Used]>>,
    graphs: Words<u64, Arc<[Used]>>,
    executables: Words<u64, Executable>,
    blocks: BTreeMap<u64, Block>,
}

fn key(stream: TraceStream) -> StreamKey {
    (stream.device, stream.handle)
}

impl Worlds {
    fn world(&mut self, stream: TraceStream) -> &mut World {
        let capture = self.capturing.get(&key(stream));
        match capture.and_then(|capture| self.captures.get_mut(capture)) {
            Some(world) => world,
            None => &mut self.live,
        }
    }

    /// Queues work with its accesses, of a stream or of the host.
    pub(super) fn work(
        &mut self,
        (thread, work): (HostThread, u64),
        accesses: &[TraceAccess],
        stack: Option<&Arc<Stack>>,
        races: &mut Vec<Race>,
    ) {
        let Some(first) = accesses.first() else { return };
        let capture = first.stream.and_then(|stream| self.capturing.get(&key(stream)).copied());
        let world = match capture.and_then(|capture| self.captures.get_mut(&capture)) {
            Some(world) => world,
            None => &mut self.live,
        };
        let agent = match first.stream {
            Some(stream) => world.order.work(stream, thread, work),
            None => world.order.host_work(thread, work),
        };
        for told in accesses {
            let access = Arc::new(Access {
                agent,
                work,
                is_write: told.is_write,
                stream: told.stream.map(|stream| stream.handle),
                operation: told.operation,
                is_replayed: false,
                arguments: Arguments::One(told.argument),
                is_output: told.is_output,
                stack: stack.cloned(),
            });
            world.access(&self.blocks, Used { start: told.address, size: told.size, access }, capture.is_some(), races);
        }
    }

    /// Queues the launch of a graph.
    pub(super) fn replay(
        &mut self,
        (thread, work): (HostThread, u64),
        exec: u64,
        stream: TraceStream,
        stack: Option<&Arc<Stack>>,
        races: &mut Vec<Race>,
    ) {
        let capture = self.capturing.get(&key(stream)).copied();
        let Some(executable) = self.executables.get_mut(&exec) else { return };
        let world = match capture.and_then(|capture| self.captures.get_mut(&capture)) {
            Some(world) => world,
            None => &mut self.live,
        };
        world.order.wait(stream, thread, &executable.last);
        let agent = world.order.work(stream, thread, work);
        for used in &*executable.uses {
            let Access { is_write, operation, ref arguments, is_output, .. } = *used.access;
            let access = Arc::new(Access {
                agent,
                work,
                is_write,
                stream: Some(stream.handle),
                operation,
                is_replayed: true,
                arguments: arguments.clone(),
                is_output,
                stack: stack.cloned(),
            });
            let used = Used { start: used.start, size: used.size, access };
            world.access(&self.blocks, used, capture.is_some(), races);
        }
        executable.last = world.order.clock(stream, thread).clone();
    }

    pub(super) fn begin_capture(&mut self, stream: TraceStream) {
        self.captures.insert(key(stream), World::default());
        self.capturing.insert(key(stream), key(stream));
    }

    pub(super) fn end_capture(&mut self, stream: TraceStream) {
        let ended = key(stream);
        self.capturing.retain(|_, capture| *capture != ended);
        // Nothing can wait for marks of a capture that is over.
        self.marks.retain(|_, (capture, _)| *capture != Some(ended));
        if let Some(world) = self.captures.remove(&ended) {
            self.ended.insert(ended, world.recorded.into());
        }
    }

    pub(super) fn captured(&mut self, graph: u64, stream: TraceStream) {
        if let Some(uses) = self.ended.remove(&key(stream)) {
            self.graphs.insert(graph, uses);
        }
    }

    pub(super) fn instantiated(&mut self, graph: u64, exec: u64) {
        if let Some(uses) = self.graphs.get(&graph) {
            let last = self.executables.remove(&exec).map(|known| known.last).unwrap_or_default();
            self.executables.insert(exec, Executable { uses: Arc::clone(uses), last });
        }
    }

    pub(super) fn place(&mut self, mark: u64, stream: TraceStream, thread: HostThread) {
        let clock = self.world(stream).order.clock(stream, thread).clone();
        let capture = self.capturing.get(&key(stream)).copied();
        self.marks.insert(mark, (capture, clock));
    }

    pub(super) fn wait(&mut self, mark: u64, stream: TraceStream, thread: HostThread) {
        let Some((capture, clock)) = self.marks.get(&mark) else { return };
        let world = match capture {
            // The stream takes part in the capture from now on.
            Some(capture) => {
                self.capturing.insert(key(stream), *capture);
                self.captures.get_mut(capture)
            }
            // What is captured cannot wait for what runs.
            None if self.capturing.contains_key(&key(stream)) => None,
            None => Some(&mut self.live),
        };
        if let Some(world) = world {
            world.order.wait(stream, thread, clock);
        }
    }

    pub(super) fn follow(&mut self, stream: TraceStream, earlier: TraceStream, thread: HostThread) {
        self.live.order.follow(stream, earlier, thread);
    }

    pub(super) fn see_mark(&mut self, mark: u64, thread: HostThread) {
        if let Some((None, clock)) = self.marks.get(&mark) {
            self.live.order.learn(thread, clock);
        }
    }

    pub(super) fn see_stream(&mut self, stream: TraceStream, thread: HostThread) {
        self.live.order.learn_stream(thread, stream);
    }

    pub(super) fn see_device(&mut self, device: DeviceIndex, thread: HostThread) {
        self.live.order.learn_device(thread, Some(device));
    }

    /// What a thread of the host knows to be over.
    pub(super) fn known(&mut self, thread: HostThread) -> Clock {
        self.live.order.known(thread).clone()
    }

    /// A thread of the host learns what another one knew.
    pub(super) fn learn(&mut self, thread: HostThread, clock: &Clock) {
        self.live.order.learn(thread, clock);
    }

    /// Memory was handed out after so much work.
    pub(super) fn allocate(&mut self, address: u64, size: u64, after: u64, stack: Option<Arc<Stack>>) {
        self.blocks.insert(address, Block { end: address.saturating_add(size), after, stack });
    }

    /// Memory went back to the driver, which waits for what uses it.
    pub(super) fn unmap(&mut self, address: u64, size: u64) {
        self.live.ranges.forget(address, size);
        let gone: Vec<u64> = self.blocks.range(address..address.saturating_add(size)).map(|(&from, _)| from).collect();
        gone.iter().for_each(|from| drop(self.blocks.remove(from)));
    }
}

impl World {
    /// Notes an access, and adds its races.
    fn access(&mut self, blocks: &BTreeMap<u64, Block>, used: Used, is_captured: bool, races: &mut Vec<Race>) {
        let Used { start, size, access } = &used;
        if *size == 0 {
            return;
        }
        for overlap in self.ranges.access(*start, *size, access, &self.order) {
            let block = blocks.range(..=overlap.start).next_back().map(|(_, block)| block);
            let block = block.filter(|block| overlap.start < block.end);
            races.push(Race {
                address: overlap.start,
                bytes: Some(overlap.bytes),
                is_reused: block.is_some_and(|block| overlap.previous.work <= block.after),
                allocation: block.and_then(|block| block.stack.clone()),
                current: Arc::clone(access),
                previous: overlap.previous,
            });
        }
        if is_captured {
            self.recorded.push(used);
        }
    }
}
