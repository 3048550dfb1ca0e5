//! Conditional nodes: graphs inside a node, of which the value of a condition says whether and how often they run.
//!
//! A condition is a handle that a graph made; the machine keeps its value. A condition belongs to one node at most, in
//! the graph that made it or in one inside of that; one without a node keeps the graph from being instantiated.

use std::collections::BTreeSet;
use std::sync::Arc;

use cuda_sys::driver::CUresult;
use cuda_sys::driver::types::{CUgraphConditionalNodeType, CUgraphInstantiateResult};

use super::{ExecGraph, Graph, GraphId, InstantiateFailure, NodeId, NodeKind};

/// How a condition's value chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionalKind {
    /// The first body if it is not 0, else the second where there is one.
    If,
    /// The body, again and again as long as it is not 0.
    While,
    /// The body of that number, where there is one.
    Switch,
}

impl ConditionalKind {
    /// The kind that the driver's number means.
    pub(crate) fn from_raw(raw: CUgraphConditionalNodeType) -> Option<Self> {
        match raw {
            CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF => Some(Self::If),
            CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE => Some(Self::While),
            CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH => Some(Self::Switch),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::If => "IF",
            Self::While => "WHILE",
            Self::Switch => "SWITCH",
        }
    }
}

/// What a conditional node does. `C` is what its bodies are kept as.
#[derive(Clone, Debug)]
pub(crate) struct Conditional<C> {
    /// Handle of the condition.
    pub(crate) condition: u64,
    pub(crate) kind: ConditionalKind,
    pub(crate) bodies: Vec<C>,
    /// Handles of the graphs that the bodies are, in an array that programs read.
    pub(crate) handles: Arc<[usize]>,
}

impl<C> Conditional<C> {
    /// The body that runs for a value.
    pub(crate) fn chosen(&self, value: u32) -> Option<&C> {
        let index = match (self.kind, value) {
            (ConditionalKind::If, 0) => 1,
            (ConditionalKind::While, 0) => return None,
            (ConditionalKind::If | ConditionalKind::While, _) => 0,
            (ConditionalKind::Switch, value) => usize::try_from(value).ok()?,
        };
        self.bodies.get(index)
    }

    /// The same node with its bodies kept as something else.
    pub(super) fn map<D, E>(&self, body: impl FnMut(&C) -> Result<D, E>) -> Result<Conditional<D>, E> {
        Ok(Conditional {
            condition: self.condition,
            kind: self.kind,
            bodies: self.bodies.iter().map(body).collect::<Result<_, _>>()?,
            handles: Arc::clone(&self.handles),
        })
    }
}

impl Conditional<Graph> {
    /// A node with empty bodies of these ids.
    pub(crate) fn new(condition: u64, kind: ConditionalKind, bodies: &[GraphId]) -> Self {
        let bodies = bodies.iter().map(|&id| Graph::new(id)).collect();
        Self { condition, kind, bodies, handles: Arc::default() }.with_handles()
    }

    /// The node with the array of the bodies it has.
    pub(super) fn with_handles(self) -> Self {
        let handles = self.bodies.iter().map(|body| usize::try_from(body.id().0).unwrap_or(usize::MAX)).collect();
        Self { handles, ..self }
    }
}

impl Conditional<ExecGraph> {
    /// Whether a graph's node has the same shape.
    pub(super) fn fits(&self, new: &Conditional<Graph>) -> bool {
        self.kind == new.kind && self.bodies.len() == new.bodies.len()
    }
}

impl Graph {
    /// Adds a condition; `default` is what it is set to when a launch begins.
    pub(crate) fn add_condition(&mut self, condition: u64, default: Option<u32>) {
        self.conditions.push((condition, default));
    }

    /// Conditions of this graph itself that a launch sets, and to what.
    pub(super) fn defaults(&self) -> Vec<(u64, u32)> {
        self.conditions.iter().filter_map(|&(condition, default)| Some((condition, default?))).collect()
    }

    /// Refuses a condition that is not of this graph or of one inside it, or that a node has already.
    pub(crate) fn check_condition(&self, condition: u64) -> Result<(), CUresult> {
        let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
        self.collect_conditions(&mut known, &mut used);
        if known.contains(&condition) && !used.contains(&condition) {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    }

    fn collect_conditions(&self, known: &mut BTreeSet<u64>, used: &mut BTreeSet<u64>) {
        known.extend(self.conditions.iter().map(|(condition, _)| condition));
        for (_, node) in self.nodes() {
            if let NodeKind::Conditional(conditional) = node.kind() {
                used.insert(conditional.condition);
            }
            node.kind().inner().iter().for_each(|inner| inner.collect_conditions(known, used));
        }
    }

    /// Whether a node of this graph or of one inside it is conditional.
    pub(crate) fn has_conditional_nodes(&self) -> bool {
        let is_conditional = |(_, node): (NodeId, &super::Node)| {
            matches!(node.kind(), NodeKind::Conditional(_))
                || node.kind().inner().iter().any(Self::has_conditional_nodes)
        };
        self.nodes().any(is_conditional)
    }

    /// Refuses conditions that no node has, and work inside bodies that only a stream can do.
    pub(super) fn check_conditionals(&self) -> Result<(), InstantiateFailure> {
        let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
        self.collect_conditions(&mut known, &mut used);
        if !known.is_subset(&used) {
            let result = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
            return Err(InstantiateFailure { result, node: NodeId(0) });
        }
        self.check_work(false)
    }

    fn check_work(&self, in_body: bool) -> Result<(), InstantiateFailure> {
        for (id, node) in self.nodes() {
            let fits = match node.kind() {
                NodeKind::Empty
                | NodeKind::Memcpy(_)
                | NodeKind::Memset(_)
                | NodeKind::Kernel(_)
                | NodeKind::Child(_)
                | NodeKind::Conditional(_) => true,
                NodeKind::Host(_)
                | NodeKind::EventRecord(_)
                | NodeKind::EventWait(_)
                | NodeKind::Value(_)
                | NodeKind::MemAlloc(_)
                | NodeKind::MemFree(_) => !in_body,
            };
            if !fits {
                let result = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
                return Err(InstantiateFailure { result, node: id });
            }
            let in_body = in_body || matches!(node.kind(), NodeKind::Conditional(_));
            node.kind().inner().iter().try_for_each(|inner| inner.check_work(in_body))?;
        }
        Ok(())
    }
}

impl ExecGraph {
    /// What a launch sets conditions to, those of the graphs inside included.
    pub(crate) fn all_defaults(&self) -> Vec<(u64, u32)> {
        let inner = self.nodes.iter().flat_map(|node| node.kind.inner()).flat_map(Self::all_defaults);
        self.defaults.iter().copied().chain(inner).collect()
    }
}
