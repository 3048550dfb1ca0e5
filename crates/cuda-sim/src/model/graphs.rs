//! The machine's graphs: finding them by handle, and running executable ones.
//!
//! A graph inside a child node has a handle of its own, and so have its nodes; all are found through the graphs that
//! the program owns.

use std::collections::BTreeMap;

use super::engine::{OpId, Timing};
use super::graph::{Copy3d, ExecGraph, Fill, Graph, GraphId, NodeId, Step, ValueOp, Work};
use super::graph_memory::MemoryPlan;
use super::memory::{self, Endpoint, Source, Transfer};
use super::{Effect, HostWork, State};
use crate::codes::{Answer, INVALID_VALUE};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const FREE_ON_LAUNCH: u64 = 1;

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) graph: ExecGraph,
    pub(crate) flags: u64,
    /// The last launch, which the next one comes after.
    last: Option<OpId>,
}

/// A condition of conditional nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition {
    /// The context whose kernels may set it.
    pub(crate) context: u64,
    pub(crate) value: u32,
}

impl Exec {
    pub(crate) fn new(graph: ExecGraph, flags: u64) -> Self {
        Self { graph, flags, last: None }
    }
}

impl State {
    pub(crate) fn graph(&self, handle: u64) -> Answer<&Graph> {
        let own = self.graphs.get(&handle);
        own.or_else(|| self.graphs.values().find_map(|graph| graph.find(GraphId(handle)))).ok_or(INVALID_VALUE)
    }

    /// The graph that the program owns and that a graph is, or is inside of.
    pub(crate) fn whole_graph(&self, handle: u64) -> Answer<&Graph> {
        self.graphs.values().find(|graph| graph.find(GraphId(handle)).is_some()).ok_or(INVALID_VALUE)
    }

    pub(crate) fn graph_mut(&mut self, handle: u64) -> Answer<&mut Graph> {
        if self.graphs.contains_key(&handle) {
            return self.graphs.get_mut(&handle).ok_or(INVALID_VALUE);
        }
        self.graphs.values_mut().find_map(|graph| graph.find_mut(GraphId(handle))).ok_or(INVALID_VALUE)
    }

    /// The graph that a node is in.
    pub(crate) fn graph_of(&self, node: u64) -> Answer<&Graph> {
        self.graphs.values().find_map(|graph| graph.graph_of(NodeId(node))).ok_or(INVALID_VALUE)
    }

    /// The graph that a node is in.
    pub(crate) fn graph_of_mut(&mut self, node: u64) -> Answer<&mut Graph> {
        self.graphs.values_mut().find_map(|graph| graph.graph_of_mut(NodeId(node))).ok_or(INVALID_VALUE)
    }

    pub(crate) fn exec_mut(&mut self, handle: u64) -> Answer<&mut Exec> {
        self.graph_execs.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    /// Takes an executable graph away; what a launch of it uses stays until that is over.
    pub(crate) fn remove_exec(&mut self, handle: u64) -> Answer {
        let removed = self.graph_execs.remove(&handle).ok_or(INVALID_VALUE)?;
        self.hold_until(removed.last, removed.graph.all_kept());
        self.forget_graph_addresses();
        Ok(())
    }

    /// Changes an executable graph; what a launch of it uses stays until that is over.
    pub(crate) fn change_exec<T>(&mut self, handle: u64, change: impl FnOnce(&mut ExecGraph) -> T) -> Answer<T> {
        let exec = self.exec_mut(handle)?;
        let (last, kept) = (exec.last, exec.graph.all_kept());
        let changed = change(&mut exec.graph);
        self.hold_until(last, kept);
        Ok(changed)
    }

    /// A copy of a graph, with handles of its own all the way down.
    pub(crate) fn copy_graph(&mut self, handle: u64) -> Answer<Graph> {
        let original = self.graph(handle)?.clone();
        Ok(original.copy(&mut || self.new_handle()))
    }

    /// Queues the work of an executable graph on a stream.
    pub(crate) fn launch_graph(&mut self, exec: u64, stream: u64) -> Answer {
        let entry = self.graph_execs.get(&exec).ok_or(INVALID_VALUE)?;
        let (steps, defaults) = (entry.graph.steps(), entry.graph.all_defaults());
        let (last, flags) = (entry.last, entry.flags);
        if entry.graph.events().iter().any(|event| !self.events.contains_key(event)) {
            return Err(INVALID_VALUE);
        }
        let memory = MemoryPlan::of(steps.iter().map(|step| &step.work));
        self.prepare_graph_memory(&memory, flags & FREE_ON_LAUNCH != 0)?;
        let ids = self.hand_out_graph_memory(&memory, stream)?;
        let timing = self.draw_timing(0, 0);
        let first = if defaults.is_empty() { Effect::Nothing } else { Effect::SetConditions(defaults) };
        let begin = self.enqueue(stream, last.as_slice(), timing, first)?;
        let context = self.stream(stream)?.context;
        let ops = self.submit_steps(steps, context, Some(begin), &ids)?;
        let end = self.enqueue(stream, &ops, Timing::default(), Effect::Nothing)?;
        self.exec_mut(exec)?.last = Some(end);
        self.note_launch(context, end);
        Ok(())
    }

    /// Queues steps, those without dependencies after `begin`.
    pub(super) fn submit_steps(
        &mut self,
        steps: Vec<Step>,
        context: u64,
        begin: Option<OpId>,
        ids: &BTreeMap<u64, u64>,
    ) -> Answer<Vec<OpId>> {
        let mut ops: Vec<OpId> = Vec::with_capacity(steps.len());
        for step in steps {
            let mut after: Vec<OpId> = step.dependencies.iter().map(|&index| ops[index]).collect();
            if after.is_empty() {
                after.extend(begin);
            }
            if let Work::EventWait(event) = step.work {
                after.extend(self.event(event)?.recording.map(|recording| recording.op));
            }
            let (timing, effect) = self.step_effect(step.work, ids)?;
            // A body runs when all before its node is done, but what follows the node may be queued already.
            if begin.is_some() {
                self.check_aliases(context, &after, &effect);
            }
            self.note_queued(self.engine.next(), (None, begin), &after, &effect);
            let op = self.engine.submit(self.clock_ns, context, &after, timing, effect.clone());
            if let Effect::Record { event, serial } = effect {
                self.note_recording(event, serial, op)?;
            }
            ops.push(op);
        }
        Ok(ops)
    }

    fn step_effect(&mut self, work: Work, ids: &BTreeMap<u64, u64>) -> Answer<(Timing, Effect)> {
        let effect = match work {
            Work::Empty | Work::EventWait(_) => return Ok((Timing::default(), Effect::Nothing)),
            Work::EventRecord(event) => {
                let serial = self.next_serial(event)?;
                return Ok((Timing::default(), Effect::Record { event, serial }));
            }
            Work::Conditional(node) => return Ok((Timing::default(), Effect::Conditional(node))),
            Work::Value(op) => value_effect(op),
            Work::MemAlloc(alloc) => match ids.get(&alloc.address) {
                Some(&id) => Effect::Allocate { id },
                None => Effect::Nothing,
            },
            Work::MemFree(base) => match ids.get(&base) {
                Some(&id) => Effect::FreeInOrder { base, id },
                None => Effect::Nothing,
            },
            Work::Memcpy(copy) => Effect::Copy(transfer(&copy)?),
            Work::Memset(fill) => Effect::Fill(set(&fill)),
            Work::Kernel(launch) => Effect::Launch(launch),
            Work::Host(call) => {
                let function = call.function.ok_or(INVALID_VALUE)?;
                Effect::Host(HostWork::Function { function, data: call.user_data })
            }
        };
        let bytes = match &effect {
            Effect::Copy(transfer) => transfer.bytes(),
            Effect::Fill(fill) => fill.width.saturating_mul(fill.height),
            Effect::Nothing
            | Effect::Record { .. }
            | Effect::Launch(_)
            | Effect::Host(_)
            | Effect::WriteValue { .. }
            | Effect::WaitValue { .. }
            | Effect::WaitElsewhere { .. }
            | Effect::Allocate { .. }
            | Effect::FreeInOrder { .. }
            | Effect::SetConditions(_)
            | Effect::Conditional(_)
            | Effect::MovePages { .. }
            | Effect::EndBody { .. } => 0,
        };
        let timing = if let Effect::Copy(transfer) = &effect {
            self.copy_timing(transfer, 1)
        } else {
            self.draw_timing(bytes, 1)
        };
        Ok((timing, effect))
    }
}

/// What a node with a value in memory does.
pub(crate) fn value_effect(op: ValueOp) -> Effect {
    let ValueOp { address, value, width, condition } = op;
    match condition {
        Some(condition) => Effect::WaitValue { address, value, width, condition },
        None => {
            let bytes = usize::try_from(width).unwrap_or(8).min(8);
            Effect::WriteValue { address, value: value.to_le_bytes()[..bytes].to_vec() }
        }
    }
}

/// What a copy node does. Its addresses are looked at when it runs.
fn transfer(copy: &Copy3d) -> Answer<Transfer> {
    let (from, to) = copy.first_bytes()?;
    let from = Endpoint { address: from.address, pitch: from.pitch, slice: from.slice };
    let to = Endpoint { address: to.address, pitch: to.pitch, slice: to.slice };
    let (width, height, depth) = (copy.width_bytes, copy.height, copy.depth);
    Ok(Transfer { from: Source::Memory(from), to, width, height, depth })
}

fn set(fill: &Fill) -> memory::Fill {
    let size = usize::try_from(fill.element_bytes).unwrap_or(1).clamp(1, 4);
    memory::Fill {
        to: Endpoint { address: fill.dst, pitch: fill.pitch, slice: 0 },
        pattern: fill.value.to_le_bytes()[..size].to_vec(),
        width: fill.row_bytes(),
        height: fill.height,
    }
}
