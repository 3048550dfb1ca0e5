//! What a kernel computes, as one expression over what it reads.
//!
//! Nodes that are computed within their readers are followed from the kernel's results down to memory. Equal parts, which
//! are the same node seen through the same index map, exist once.
//!
//! **Invariant:** an expression refers only to expressions before it.

use std::collections::HashMap;
use std::sync::Arc;

use kernel_ir::reduce::{Last, Reduction};
use kernel_ir::{Program, Value};
use smallvec::SmallVec;

use super::folding::{self, Constant};
use super::fuse::{Frame, Fusion, Level};
use super::graph::{Graph, Node, NodeId, SlotId, View};
use super::map::Map;
use crate::base::dtype::DType;
use crate::base::shape::Dims;
use crate::launch::record::Recorded;

/// A number of an expression.
pub(super) type ExprId = usize;

/// Elements that a kernel reads from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) slot: SlotId,
    pub(super) dtype: DType,
    /// Over the kernel's elements.
    pub(super) strides: Dims,
    pub(super) offset: i64,
}

/// A part of an expression: one value.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    /// An element that is read.
    Leaf(usize),
    /// An output of a program on other values.
    Of { call: usize, output: usize },
    /// A value that the rows of a reduction come to.
    Row { reduction: usize, output: usize },
    /// An output of what a row operation makes of each element.
    Each { reduction: usize, output: usize },
}

/// A program on values.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) node: NodeId,
    pub(super) program: Arc<Program>,
    pub(super) scalars: Vec<u64>,
    pub(super) arguments: Vec<ExprId>,
    /// The reduction whose rows are all that it depends on.
    pub(super) of_rows: Option<usize>,
}

/// A reduction of values.
#[derive(Clone, Debug)]
pub(super) struct Reduced {
    pub(super) node: NodeId,
    pub(super) reduction: Arc<Reduction>,
    pub(super) scalars: Vec<u64>,
    pub(super) arguments: Vec<ExprId>,
}

/// All that a kernel computes.
#[derive(Debug)]
pub(super) struct Expression<'a> {
    graph: &'a Graph,
    fusion: &'a Fusion,
    /// The kept nodes whose results it writes.
    roots: &'a [NodeId],
    /// The kernel's elements.
    pub(super) domain: Dims,
    pub(super) frame: Option<Frame>,
    /// Whether the results are one value for each row.
    pub(super) is_per_row: bool,
    pub(super) leaves: Vec<Leaf>,
    pub(super) exprs: Vec<Expr>,
    pub(super) calls: Vec<Call>,
    pub(super) reductions: Vec<Reduced>,
    known: HashMap<(NodeId, Map), SmallVec<[ExprId; 1]>>,
    /// The results: which view each goes to, over its node's sizes.
    pub(super) results: Vec<(ExprId, View)>,
}

impl<'a> Expression<'a> {
    /// What these kept nodes compute. `None` where they do not fit into one kernel after all.
    pub(super) fn new(graph: &'a Graph, fusion: &'a Fusion, roots: &'a [NodeId]) -> Option<Self> {
        let &first = roots.first()?;
        let frame = fusion.frame(graph, first);
        let domain =
            frame.as_ref().map_or_else(|| graph.nodes[first].domain().into(), |frame| frame.sizes.as_slice().into());
        let mut made = Self {
            graph,
            fusion,
            roots,
            domain,
            is_per_row: matches!(fusion.levels[first], Level::Row(_)),
            frame,
            leaves: Vec::new(),
            exprs: Vec::new(),
            calls: Vec::new(),
            reductions: Vec::new(),
            known: HashMap::new(),
            results: Vec::new(),
        };
        for &root in roots {
            let map = made.root_map(root)?;
            let values = made.node(root, &map)?;
            let outputs = &graph.nodes[root].outputs;
            let places = outputs.iter().map(|output| made.placed(root, output, &map));
            let places: Option<Vec<View>> = places.collect();
            made.results.extend(values.into_iter().zip(places?));
        }
        Some(made)
    }

    /// From the kernel's elements to those of a kept node.
    fn root_map(&self, root: NodeId) -> Option<Map> {
        let node = &self.graph.nodes[root];
        let (Level::Row(reduction), Recorded::Elements { .. }) = (&self.fusion.levels[root], &node.work) else {
            return Some(Map::identity(&self.domain));
        };
        // The node's sizes without ones are those of the dimensions that tell the row, in their order.
        let frame = self.frame.as_ref()?;
        let of = &self.graph.nodes[*reduction];
        let kept = (0..frame.sizes.len()).filter(|dim| !frame.dims.contains(dim) && of.domain()[*dim] > 1);
        let own = (0..node.domain().len()).filter(|&dim| node.domain()[dim] > 1);
        let (kept, own): (Vec<usize>, Vec<usize>) = (kept.collect(), own.collect());
        let sizes = |dims: &[usize], sizes: &[i64]| dims.iter().map(|&dim| sizes[dim]).collect::<Vec<_>>();
        if sizes(&kept, &frame.sizes) != sizes(&own, node.domain()) {
            return None;
        }
        let mut map = Map::identity(&vec![1; node.domain().len()]);
        for (&from, &to) in kept.iter().zip(&own) {
            map.dims[to].terms.push((u8::try_from(from).ok()?, 1));
        }
        Some(map)
    }

    /// Where a result lies, over the kernel's elements; one for a row has one element along it.
    fn placed(&self, node: NodeId, output: &View, map: &Map) -> Option<View> {
        let (strides, offset) = map.place(output, self.graph.nodes[node].domain(), &self.domain)?;
        let mut sizes = self.domain.clone();
        if let (Level::Row(_), Some(frame)) = (&self.fusion.levels[node], &self.frame) {
            frame.dims.iter().for_each(|&dim| sizes[dim] = 1);
        }
        Some(View { sizes, strides, offset, ..output.clone() })
    }

    /// The outputs of a node, seen through a map from the kernel's elements to the node's.
    fn node(&mut self, at: NodeId, map: &Map) -> Option<SmallVec<[ExprId; 1]>> {
        let key = (at, map.clone());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        let graph = self.graph;
        let node = &graph.nodes[at];
        let made = match &node.work {
            Recorded::Elements { program, scalars, .. } => {
                let arguments = self.arguments(at, node, map)?;
                let of_rows = self.rows_of(&arguments);
                let (program, scalars) = (Arc::clone(program), scalars.clone());
                let outputs = program.outputs().len();
                self.calls.push(Call { node: at, program, scalars, arguments, of_rows });
                let call = self.calls.len() - 1;
                (0..outputs).map(|output| self.add(Expr::Of { call, output })).collect()
            }
            Recorded::Rows { reduction, scalars, .. } => self.reduction(at, node, (reduction, scalars), map)?,
            Recorded::Call { .. } => return None,
        };
        self.known.insert(key, SmallVec::clone(&made));
        Some(made)
    }

    fn reduction(
        &mut self,
        at: NodeId,
        node: &Node,
        (reduction, scalars): (&Arc<Reduction>, &[u64]),
        map: &Map,
    ) -> Option<SmallVec<[ExprId; 1]>> {
        let frame = self.frame.clone()?;
        let per_row = *reduction.last() == Last::Row;
        let fits = node.domain() == frame.sizes.as_slice()
            && map.is_identity_at(&frame.sizes, |dim| !per_row || !frame.dims.contains(&dim));
        if !fits {
            return None;
        }
        let index = match self.reductions.iter().position(|known| known.node == at) {
            Some(known) => known,
            None => {
                // Its elements are those of the kernel, wherever a row's value is looked at from.
                let arguments = self.arguments(at, node, &Map::identity(&frame.sizes))?;
                let (reduction, scalars) = (Arc::clone(reduction), scalars.to_vec());
                self.reductions.push(Reduced { node: at, reduction, scalars, arguments });
                self.reductions.len() - 1
            }
        };
        let outputs = reduction.output_types().len();
        let expr = |output| match per_row {
            true => Expr::Row { reduction: index, output },
            false => Expr::Each { reduction: index, output },
        };
        Some((0..outputs).map(|output| self.add(expr(output))).collect())
    }

    /// What a node reads, seen through a map from the kernel's elements to the node's.
    fn arguments(&mut self, at: NodeId, node: &Node, map: &Map) -> Option<Vec<ExprId>> {
        let mut arguments = Vec::with_capacity(node.inputs.len());
        for (input, view) in node.inputs.iter().enumerate() {
            let is_here = |maker: NodeId| self.fusion.is_inlined(maker) || self.roots.contains(&maker);
            let link = self.fusion.links[at][input].as_ref().filter(|link| is_here(link.maker));
            arguments.push(match link {
                Some(link) => {
                    let (maker, output) = (link.maker, link.output);
                    *self.node(maker, &map.then(&link.map))?.get(output)?
                }
                None => self.leaf(view, node, map)?,
            });
        }
        Some(arguments)
    }

    fn leaf(&mut self, view: &View, node: &Node, map: &Map) -> Option<ExprId> {
        let (strides, offset) = map.place(view, node.domain(), &self.domain)?;
        let leaf = Leaf { slot: view.slot, dtype: view.dtype, strides, offset };
        let at = match self.leaves.iter().position(|known| *known == leaf) {
            Some(known) => known,
            None => {
                self.leaves.push(leaf);
                self.leaves.len() - 1
            }
        };
        Some(self.add(Expr::Leaf(at)))
    }

    /// The one reduction whose row values all of these are made of.
    fn rows_of(&self, arguments: &[ExprId]) -> Option<usize> {
        let of = |&argument: &ExprId| match &self.exprs[argument] {
            Expr::Row { reduction, .. } => Some(*reduction),
            Expr::Of { call, .. } => self.calls[*call].of_rows,
            Expr::Leaf(_) | Expr::Each { .. } => None,
        };
        let first = of(arguments.first()?)?;
        arguments.iter().all(|argument| of(argument) == Some(first)).then_some(first)
    }

    fn add(&mut self, expr: Expr) -> ExprId {
        self.exprs.push(expr);
        self.exprs.len() - 1
    }
}

/// The values of a graph of `kernel_ir` that stand for expressions while it is written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) exprs: HashMap<ExprId, Value>,
    calls: HashMap<usize, Vec<Value>>,
    /// What calls on constants come to; nothing where they are none.
    constants: HashMap<usize, Option<Vec<Constant>>>,
}

impl Expression<'_> {
    /// A graph that values are written into.
    pub(super) fn writer(&self) -> kernel_ir::Graph {
        let graph = kernel_ir::Graph::new();
        if self.fusion.keeps_wide { graph.keeping_wide() } else { graph }
    }

    /// What an operation is called.
    pub(super) fn name_of(&self, node: NodeId) -> &'static str {
        self.graph.nodes[node].name
    }

    /// What an expression of constants comes to. What is kept wide is not rounded in between, so that it is left to the kernel.
    fn folded(&self, known: &mut Written, expr: ExprId) -> Option<Constant> {
        let Expr::Of { call, output } = self.exprs[expr] else { return None };
        if !known.constants.contains_key(&call) {
            let called = &self.calls[call];
            let folded = |&argument: &ExprId| self.folded(known, argument);
            let arguments: Option<Vec<Constant>> = called.arguments.iter().map(folded).collect();
            let arguments = arguments.filter(|_| !self.fusion.keeps_wide);
            let outputs = arguments.and_then(|given| folding::outputs(&called.program, &given, &called.scalars));
            known.constants.insert(call, outputs);
        }
        known.constants.get(&call)?.as_ref()?.get(output).copied()
    }

    /// Writes an expression into a graph that has its leaves and row values already.
    pub(super) fn write(&self, to: &mut kernel_ir::Graph, known: &mut Written, expr: ExprId) -> Option<Value> {
        if let Some(&value) = known.exprs.get(&expr) {
            return Some(value);
        }
        let Expr::Of { call, output } = self.exprs[expr] else { return None };
        if let Some(constant) = self.folded(known, expr) {
            to.note(self.name_of(self.calls[call].node));
            let value = folding::write(to, constant);
            known.exprs.insert(expr, value);
            return Some(value);
        }
        if !known.calls.contains_key(&call) {
            let called = &self.calls[call];
            let arguments: Option<Vec<Value>> =
                called.arguments.iter().map(|&argument| self.write(to, known, argument)).collect();
            let arguments = arguments?;
            to.note(self.name_of(called.node));
            let outputs = inline(to, &called.program, &arguments, &called.scalars);
            known.calls.insert(call, outputs);
        }
        let value = *known.calls.get(&call)?.get(output)?;
        known.exprs.insert(expr, value);
        Some(value)
    }
}

/// A program as part of a graph, with its scalars as constants.
pub(super) fn inline(to: &mut kernel_ir::Graph, program: &Program, arguments: &[Value], scalars: &[u64]) -> Vec<Value> {
    let numbers: Vec<Value> = program.scalars().iter().zip(scalars).map(|(&ty, &bits)| to.constant(ty, bits)).collect();
    to.inline(program, arguments, &numbers)
}
