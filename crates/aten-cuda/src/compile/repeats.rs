//! Calls and reductions that a graph makes again with the same operands: they are done once.
//!
//! Operations for each element are left as they are. Within a kernel equal parts exist once (`expression`), and computing
//! them in two kernels can move fewer bytes than keeping them.
//!
//! **Invariant:** what is left out has no results outside of the graph, and what it has read is not written between it and the
//! one that it repeats.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::graph::{Graph, Home, Joined, Node, NodeId, SlotId, View};
use crate::launch::record::{Beyond, Recorded};

/// Lets what reads a repeated result read the first one, and leaves the repetition out.
pub(super) fn leave_out(graph: &mut Graph) {
    let mut known: HashMap<u64, Vec<NodeId>> = HashMap::new();
    let mut renamed: HashMap<SlotId, SlotId> = HashMap::new();
    let mut gone = Vec::new();
    for at in 0..graph.nodes.len() {
        for input in &mut graph.nodes[at].inputs {
            input.slot = renamed.get(&input.slot).copied().unwrap_or(input.slot);
        }
        let Some(key) = key(graph, at) else { continue };
        let alike = known.entry(key).or_default();
        let Some(&first) = alike.iter().find(|&&first| repeats(graph, first, at)) else {
            alike.push(at);
            continue;
        };
        join(graph, first, at);
        let slots = |node: NodeId| graph.nodes[node].outputs.iter().map(|output| output.slot);
        renamed.extend(slots(at).zip(slots(first)));
        gone.push(at);
    }
    if !gone.is_empty() {
        graph.leave_out(&gone);
    }
}

/// Notes that a node does what another one would do again.
fn join(graph: &mut Graph, first: NodeId, again: NodeId) {
    let [own, other] = [first, again].map(|at| &graph.nodes[at]);
    let joined = Joined { names: [own.names(), other.names()].concat(), unfused: own.moved() + other.moved() };
    graph.nodes[first].joined = Some(Box::new(joined));
}

/// What nodes that do the same have alike; nothing for those that do more than write memory of the graph, or are cheap.
fn key(graph: &Graph, at: NodeId) -> Option<u64> {
    let node = &graph.nodes[at];
    let mut hasher = DefaultHasher::new();
    match &node.work {
        Recorded::Call { detail, beyond: Beyond::Nothing, .. } => detail.hash(&mut hasher),
        Recorded::Rows { key, .. } => key.hash(&mut hasher),
        Recorded::Elements { .. } | Recorded::Call { .. } => return None,
    }
    // Memory with one writer keeps what that has written.
    let is_own = |output: &View| graph.maker(output.slot) == Some(at);
    (node.name, &node.inputs).hash(&mut hasher);
    node.outputs.iter().all(is_own).then(|| hasher.finish())
}

fn repeats(graph: &Graph, first: NodeId, again: NodeId) -> bool {
    let nodes = (&graph.nodes[first], &graph.nodes[again]);
    let is_kept = |view: &View| graph.slots[view.slot].wanted.is_some();
    let is_changed = |view: &View| graph.slots[view.slot].writers.iter().any(|at| (first..=again).contains(at));
    does_the_same(nodes)
        && nodes.0.inputs == nodes.1.inputs
        && nodes.0.stream == nodes.1.stream
        && nodes.0.outputs.len() == nodes.1.outputs.len()
        && nodes.0.outputs.iter().zip(&nodes.1.outputs).all(|views| lie_alike(graph, views))
        && !nodes.1.outputs.iter().any(is_kept)
        && !nodes.1.inputs.iter().any(is_changed)
}

fn does_the_same((first, again): (&Node, &Node)) -> bool {
    let is_same = match (&first.work, &again.work) {
        (Recorded::Call { detail, .. }, Recorded::Call { detail: other, .. }) => detail == other,
        (
            Recorded::Rows { key, scalars, dims, .. },
            Recorded::Rows { key: other, scalars: numbers, dims: others, .. },
        ) => (key, scalars, dims) == (other, numbers, others),
        _ => false,
    };
    is_same && first.name == again.name
}

/// Whether two results lie alike in memory that comes from the same place.
fn lie_alike(graph: &Graph, (first, again): (&View, &View)) -> bool {
    let home = |view: &View| match &graph.slots[view.slot].home {
        Home::Made { bytes, device, source } => Some((*bytes, *device, source.clone())),
        Home::Input(_) | Home::Captured(_) => None,
    };
    View { slot: first.slot, ..again.clone() } == *first && home(first) == home(again)
}
