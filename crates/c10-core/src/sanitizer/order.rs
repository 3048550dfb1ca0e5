//! What the order of work follows from: streams, marks on them, and what the host has waited for.
//!
//! **Invariant:** a stream's clock covers what a thread of the host knew when it queued the stream's last work. What the host
//! learns after that reaches the stream with its next work: nothing is done for streams that are not used.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::base::device::DeviceIndex;
use crate::trace::{TraceStream, WordHasher};

use super::clock::{Agent, Clock};

pub(super) type Words<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// A thread of the host; all of them are one where nobody tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostThread(pub(crate) u64);

/// The order of work so far.
#[derive(Debug, Default)]
pub(super) struct Order {
    agents: Vec<State>,
    streams: Words<(DeviceIndex, u64), Agent>,
    hosts: Words<u64, Agent>,
}

#[derive(Debug)]
struct State {
    clock: Clock,
    /// The device of a stream.
    device: Option<DeviceIndex>,
    /// How often a thread of the host has learned something.
    version: u64,
    /// The thread that queued work on a stream last, and what it had learned then.
    heard: Option<(Agent, u64)>,
}

impl Order {
    fn add(&mut self, device: Option<DeviceIndex>) -> Agent {
        let agent = Agent::at(self.agents.len());
        self.agents.push(State { clock: Clock::default(), device, version: 0, heard: None });
        agent
    }

    fn host(&mut self, thread: HostThread) -> Agent {
        if let Some(&known) = self.hosts.get(&thread.0) {
            return known;
        }
        let agent = self.add(None);
        self.hosts.insert(thread.0, agent);
        agent
    }

    fn state(&mut self, agent: Agent) -> &mut State {
        &mut self.agents[agent.position()]
    }

    fn both(&mut self, to: Agent, from: Agent) -> (&mut State, &State) {
        let (to, from) = (to.position(), from.position());
        if to < from {
            let (low, high) = self.agents.split_at_mut(from);
            (&mut low[to], &high[0])
        } else {
            let (low, high) = self.agents.split_at_mut(to);
            (&mut high[0], &low[from])
        }
    }

    /// A stream that was used.
    fn known_stream(&self, stream: TraceStream) -> Option<Agent> {
        self.streams.get(&(stream.device, stream.handle)).copied()
    }

    /// A stream that a thread is about to queue something on.
    fn stream(&mut self, stream: TraceStream, thread: HostThread) -> Agent {
        let key = (stream.device, stream.handle);
        let agent = match self.streams.get(&key) {
            Some(&known) => known,
            None => {
                let agent = self.add(Some(stream.device));
                self.streams.insert(key, agent);
                agent
            }
        };
        let host = self.host(thread);
        let (state, host_state) = self.both(agent, host);
        let now = Some((host, host_state.version));
        if state.heard != now {
            state.clock.join(&host_state.clock);
            state.heard = now;
        }
        agent
    }

    /// Work is queued on a stream. Who does it.
    pub(super) fn work(&mut self, stream: TraceStream, thread: HostThread, work: u64) -> Agent {
        let agent = self.stream(stream, thread);
        self.state(agent).clock.advance(agent, work);
        agent
    }

    /// A thread of the host does something itself.
    pub(super) fn host_work(&mut self, thread: HostThread, work: u64) -> Agent {
        let agent = self.host(thread);
        let state = self.state(agent);
        state.clock.advance(agent, work);
        state.version += 1;
        agent
    }

    /// Whether the last work of an agent comes after other work.
    #[inline]
    pub(super) fn is_after(&self, agent: Agent, (earlier, work): (Agent, u64)) -> bool {
        self.agents[agent.position()].clock.covers(earlier, work)
    }

    /// What comes before the next work of a stream.
    pub(super) fn clock(&mut self, stream: TraceStream, thread: HostThread) -> &Clock {
        let agent = self.stream(stream, thread);
        &self.state(agent).clock
    }

    /// Later work of a stream comes after what a clock covers.
    pub(super) fn wait(&mut self, stream: TraceStream, thread: HostThread, clock: &Clock) {
        let agent = self.stream(stream, thread);
        self.state(agent).clock.join(clock);
    }

    /// Later work of a stream comes after the work of another so far.
    pub(super) fn follow(&mut self, stream: TraceStream, earlier: TraceStream, thread: HostThread) {
        let (agent, earlier) = (self.stream(stream, thread), self.known_stream(earlier));
        if let Some(earlier) = earlier.filter(|earlier| *earlier != agent) {
            let (state, earlier) = self.both(agent, earlier);
            state.clock.join(&earlier.clock);
        }
    }

    /// What a thread of the host knows.
    pub(super) fn known(&mut self, thread: HostThread) -> &Clock {
        let agent = self.host(thread);
        &self.state(agent).clock
    }

    /// A thread of the host learns that what a clock covers is over.
    pub(super) fn learn(&mut self, thread: HostThread, clock: &Clock) {
        let agent = self.host(thread);
        let state = self.state(agent);
        state.clock.join(clock);
        state.version += 1;
    }

    /// A thread of the host learns that the work of a stream is over.
    pub(super) fn learn_stream(&mut self, thread: HostThread, stream: TraceStream) {
        let Some(agent) = self.known_stream(stream) else { return };
        let host = self.host(thread);
        let (state, stream) = self.both(host, agent);
        state.clock.join(&stream.clock);
        state.version += 1;
    }

    /// A thread of the host learns that the work of a device is over; for `None`, of all devices.
    pub(super) fn learn_device(&mut self, thread: HostThread, device: Option<DeviceIndex>) {
        let host = self.host(thread);
        for agent in (0..self.agents.len()).map(Agent::at) {
            let of = self.agents[agent.position()].device;
            if of.is_some_and(|of| device.is_none_or(|device| of == device)) {
                let (state, stream) = self.both(host, agent);
                state.clock.join(&stream.clock);
            }
        }
        self.state(host).version += 1;
    }
}
