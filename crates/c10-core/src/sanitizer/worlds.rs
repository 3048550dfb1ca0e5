//! Order of live work, of captures, and of graph launches.
//!
//! Captured work does not run. It is compared only with the other work of its capture, in a separate world, and
//! recorded as the graph's accesses. A launch of the graph is one piece of work on the launching stream, with all these
//! accesses: a race inside a graph is reported once, at capture.
//!
//! Both rules use these worlds: [`Memory`] defines which accesses conflict.
//!
//! **Invariants:** a mark belongs to the world that its stream was in when it was placed. A launch of a graph comes
//! after the graph's previous launch, which the driver guarantees.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::trace::{Stack, TraceAccess, TraceStream};

use super::access::{Access, Execution, Race, Use};
use super::clock::Clock;
use super::order::{HostThread, Order, Words};

/// Recorded accesses, with the rule that decides which of them conflict.
pub(super) trait Memory: Debug + Default {
    /// Information about allocated memory.
    type Blocks: Debug + Default;

    /// Returns the accesses of a piece of work that are compared, in the order of comparison.
    fn uses(accesses: &[TraceAccess]) -> Vec<Use>;

    /// Returns the accesses of a graph, merged over all its work.
    fn of_graph(recorded: Vec<Use>) -> Vec<Use>;

    /// Records an access and appends its races to `races`.
    fn note(&mut self, blocks: &Self::Blocks, used: &Use, access: &Arc<Access>, order: &Order, races: &mut Vec<Race>);
}

/// Work in an order of its own, and what it accesses.
#[derive(Debug, Default)]
struct World<M> {
    order: Order,
    memory: M,
    /// What a graph that is captured does.
    recorded: Vec<Use>,
}

/// An executable graph.
#[derive(Debug)]
struct Executable {
    uses: Arc<[Use]>,
    /// What comes before its next launch.
    last: Clock,
}

type StreamKey = (DeviceIndex, u64);

/// What runs, what is captured, and the graphs.
#[derive(Debug, Default)]
pub(super) struct Worlds<M: Memory> {
    live: World<M>,
    /// Captures under way, by the stream that began them.
    captures: BTreeMap<StreamKey, World<M>>,
    /// The capture that a stream takes part in.
    capturing: Words<StreamKey, StreamKey>,
    /// The capture, if it was placed in one, and the clock of each mark.
    marks: Words<u64, (Option<StreamKey>, Clock)>,
    /// What the last capture of a stream has recorded.
    ended: BTreeMap<StreamKey, Arc<[Use]>>,
    graphs: Words<u64, Arc<[Use]>>,
    executables: Words<u64, Executable>,
    pub(super) blocks: M::Blocks,
}

fn key(stream: TraceStream) -> StreamKey {
    (stream.device, stream.handle)
}

impl<M: Memory> Worlds<M> {
    fn world(&mut self, stream: TraceStream) -> &mut World<M> {
        let capture = self.capturing.get(&key(stream));
        match capture.and_then(|capture| self.captures.get_mut(capture)) {
            Some(world) => world,
            None => &mut self.live,
        }
    }

    /// Calls `change` with the recorded accesses of each world.
    pub(super) fn for_each_memory(&mut self, change: impl FnMut(&mut M)) {
        let captured = self.captures.values_mut().map(|world| &mut world.memory);
        std::iter::once(&mut self.live.memory).chain(captured).for_each(change);
    }

    /// Returns the recorded accesses of live work.
    pub(super) fn live_memory(&mut self) -> &mut M {
        &mut self.live.memory
    }

    /// Queues work with its accesses, on the stream `on` or on the host.
    pub(super) fn work(
        &mut self,
        (thread, work): (HostThread, u64),
        on: Option<TraceStream>,
        accesses: &[TraceAccess],
        stack: Option<&Arc<Stack>>,
        races: &mut Vec<Race>,
    ) {
        let capture = on.and_then(|stream| self.capturing.get(&key(stream)).copied());
        let world = match capture.and_then(|capture| self.captures.get_mut(&capture)) {
            Some(world) => world,
            None => &mut self.live,
        };
        let agent = match on {
            Some(stream) => world.order.work(stream, thread, work),
            None => world.order.host_work(thread, work),
        };
        let stream = on.map(|stream| stream.handle);
        let execution = Execution { agent, work, stream, is_replayed: false, stack };
        let uses = M::uses(accesses);
        world.run(&self.blocks, &uses, &execution, races);
        if capture.is_some() {
            world.recorded.extend(uses);
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
        let execution = Execution { agent, work, stream: Some(stream.handle), is_replayed: true, stack };
        world.run(&self.blocks, &executable.uses, &execution, races);
        if capture.is_some() {
            world.recorded.extend(executable.uses.iter().cloned());
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
            self.ended.insert(ended, M::of_graph(world.recorded).into());
        }
    }

    /// Lets the stream `body` take part in the capture of `stream`, after that stream's work so far.
    pub(super) fn begin_body(&mut self, body: TraceStream, stream: TraceStream, thread: HostThread) {
        let Some(capture) = self.capturing.get(&key(stream)).copied() else { return };
        self.capturing.insert(key(body), capture);
        self.join(body, stream, thread);
    }

    /// Ends the part that the stream `body` takes in the capture of `stream`, whose later work comes after it.
    pub(super) fn end_body(&mut self, body: TraceStream, stream: TraceStream, thread: HostThread) {
        self.join(stream, body, thread);
        self.capturing.remove(&key(body));
    }

    /// Orders later work of a stream after the work of another stream of its capture so far.
    fn join(&mut self, stream: TraceStream, earlier: TraceStream, thread: HostThread) {
        let world = self.world(stream);
        let clock = world.order.clock(earlier, thread).clone();
        world.order.wait(stream, thread, &clock);
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

    /// Removes a mark.
    pub(super) fn remove_mark(&mut self, mark: u64) {
        self.marks.remove(&mark);
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

    /// Notes that a host thread has seen all work of a device finish; of all devices for `None`.
    pub(super) fn see_device(&mut self, device: Option<DeviceIndex>, thread: HostThread) {
        self.live.order.learn_device(thread, device);
    }

    /// What a thread of the host knows to be over.
    pub(super) fn known(&mut self, thread: HostThread) -> Clock {
        self.live.order.known(thread).clone()
    }

    /// A thread of the host learns what another one knew.
    pub(super) fn learn(&mut self, thread: HostThread, clock: &Clock) {
        self.live.order.learn(thread, clock);
    }
}

impl<M: Memory> World<M> {
    /// Records the accesses of an execution and appends their races to `races`.
    fn run(&mut self, blocks: &M::Blocks, uses: &[Use], execution: &Execution<'_>, races: &mut Vec<Race>) {
        for used in uses {
            self.memory.note(blocks, used, &used.by(execution), &self.order, races);
        }
    }
}
