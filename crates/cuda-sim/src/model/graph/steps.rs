//! An executable graph as a flat list of steps, child graphs inlined: what a launch queues.

use std::convert::Infallible;
use std::sync::Arc;

use super::super::modules::Launch;
use super::{Conditional, Copy3d, ExecGraph, Fill, HostCall, MemAlloc, NodeId, NodeKind, ValueOp};

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Nothing; joins its dependencies.
    Empty,
    /// A copy.
    Memcpy(Copy3d),
    /// A set.
    Memset(Fill),
    /// A launch of a kernel.
    Kernel(Launch),
    /// A call of a function of the host.
    Host(HostCall),
    /// Records the event with this handle.
    EventRecord(u64),
    /// Waits for the event with this handle.
    EventWait(u64),
    /// Writes a value in memory, or waits for one.
    Value(ValueOp),
    /// Allocates memory at an address that is fixed.
    MemAlloc(MemAlloc),
    /// Frees the memory at an address.
    MemFree(u64),
    /// Runs other steps depending on a value.
    Conditional(Arc<Conditional<Vec<Step>>>),
}

/// One piece of work of a launch.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The node it comes from.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests tell steps apart by it"))]
    pub(crate) node: NodeId,
    pub(crate) work: Work,
    /// Indices of earlier steps that must have finished. A step without any waits for the launch only.
    pub(crate) dependencies: Vec<usize>,
}

impl ExecGraph {
    /// The steps of a launch, each after its dependencies. Steps may run in any order that keeps to these.
    ///
    /// A child graph begins and ends with an empty step, so that it runs between its node's dependencies and
    /// dependents. A disabled node is an empty step.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(self.len());
        self.append_steps(None, &mut steps);
        steps
    }

    /// Appends the steps of this graph; those without dependencies wait for `entry`.
    fn append_steps(&self, entry: Option<usize>, steps: &mut Vec<Step>) {
        let mut last_step_of: Vec<usize> = Vec::with_capacity(self.len());
        for node in &self.nodes {
            let mut dependencies: Vec<usize> = node.dependencies.iter().map(|&index| last_step_of[index]).collect();
            if dependencies.is_empty() {
                dependencies.extend(entry);
            }
            let work = if node.enabled { Work::of(&node.kind) } else { Work::Empty };
            steps.push(Step { node: node.updated_from, work, dependencies });
            if let Some(child) = node.child() {
                let begin = steps.len() - 1;
                child.append_steps(Some(begin), steps);
                // All steps of the child, rather than its sinks only: the same order, and right for an empty child.
                let dependencies = (begin..steps.len()).collect();
                steps.push(Step { node: node.updated_from, work: Work::Empty, dependencies });
            }
            last_step_of.push(steps.len() - 1);
        }
    }
}

impl Work {
    fn of(kind: &NodeKind<ExecGraph>) -> Self {
        match kind {
            NodeKind::Empty | NodeKind::Child(_) => Self::Empty,
            NodeKind::Memcpy(copy) => Self::Memcpy(*copy),
            NodeKind::Memset(fill) => Self::Memset(*fill),
            NodeKind::Kernel(launch) => Self::Kernel(launch.clone()),
            NodeKind::Host(call) => Self::Host(*call),
            NodeKind::EventRecord(event) => Self::EventRecord(*event),
            NodeKind::EventWait(event) => Self::EventWait(*event),
            NodeKind::Value(value) => Self::Value(*value),
            NodeKind::MemAlloc(alloc) => Self::MemAlloc(*alloc),
            NodeKind::MemFree(address) => Self::MemFree(*address),
            NodeKind::Conditional(conditional) => {
                let Ok(steps) = conditional.map(|body| Ok::<_, Infallible>(body.steps()));
                Self::Conditional(Arc::new(steps))
            }
        }
    }
}
