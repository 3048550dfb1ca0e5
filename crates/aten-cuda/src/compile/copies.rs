//! Copies that products do not need: a factor that was copied to lie otherwise is read where it lay before.
//!
//! What kernels of the fusion read, they read where it lies: a copy between them fuses away. A product is a call, and reads
//! memory; but it reads matrices by rows and by columns alike, so that a copy of a transpose is a flag of the product.
//!
//! **Invariants:** results that somebody outside gets lie as without this. A factor lies so that nothing is copied for the
//! product after all, and nothing writes to it between the copy and the product. The way to a product follows from how its
//! factors lie, and with it the order of sums: so this is done only where other bits are allowed.

use super::fuse::{self, Fusion, Kept};
use super::graph::{Graph, Joined, Node, NodeId, View};
use super::map::Map;
use crate::blas::followed::{Declined, ProductCall};
use crate::blas::operand::reads_as_it_lies;
use crate::launch::record::Recorded;

/// Whether products read what was copied for them where it lay before.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::compile::{CompileOptions, compile_with};
/// use aten_cuda::{DType, Tensor};
///
/// let mut options = CompileOptions::default();
/// options.wide_intermediates = true;
/// let f = compile_with(|x: &[Tensor]| Ok(vec![x[0].mm(&x[0].t()?.contiguous()?)?]), options);
/// f.call(&[&Tensor::ones(&[8, 8], DType::F32, "cuda")?])?;
/// let report = f.report();
/// assert_eq!((report.programs[0].kernels.len(), report.programs[0].copies[0].refused), (1, None));
/// // 64 elements are neither read nor written.
/// assert_eq!(report.programs[0].copies[0].saved, 2 * 64 * 4);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// How many products read the copy.
    pub products: usize,
    /// Bytes that are not moved since.
    pub saved: i64,
    /// Why they read the copy after all.
    pub refused: Option<Declined>,
}

/// Lets the products of a graph read where it lay what was copied for them.
pub(super) fn leave_out(graph: &mut Graph, may_widen: bool) -> Vec<CopyReport> {
    let is_wanted =
        |&at: &NodeId| is_copy(&graph.nodes[at]) && readers(graph, at).any(|reader| is_product(graph, reader));
    let copies: Vec<NodeId> = (0..graph.nodes.len()).filter(is_wanted).collect();
    if copies.is_empty() {
        return Vec::new();
    }
    let kept = Fusion::new(graph, may_widen).kept;
    let (mut gone, mut reports) = (Vec::new(), Vec::new());
    for copy in copies.into_iter().filter(|&copy| kept[copy] != Some(Kept::Dead)) {
        let products = readers(graph, copy).filter(|&reader| is_product(graph, reader)).count();
        let found = uses(graph, &kept, copy, may_widen);
        let saved = if found.is_ok() { graph.nodes[copy].moved() } else { 0 };
        reports.push(CopyReport { products, saved, refused: found.as_ref().err().copied() });
        if let Ok(uses) = found {
            read_before(graph, copy, uses);
            gone.push(copy);
        }
    }
    if !gone.is_empty() {
        graph.leave_out(&gone);
    }
    reports
}

/// An operand of a product that is to be read elsewhere.
struct Use {
    product: NodeId,
    input: usize,
    view: View,
}

fn is_copy(node: &Node) -> bool {
    let ([from], [to]) = (node.inputs.as_slice(), node.outputs.as_slice()) else { return false };
    node.name == "copy" && from.dtype == to.dtype && fuse::is_fusable(node)
}

fn is_product(graph: &Graph, node: NodeId) -> bool {
    let node = &graph.nodes[node];
    ProductCall::read(node.name, &node.work).is_some() && node.views().all(View::is_plain)
}

/// The nodes that read a node's result.
fn readers(graph: &Graph, at: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    graph.nodes[at].outputs.iter().flat_map(|output| graph.slots[output.slot].readers.iter().copied())
}

/// Where the products that read a copy read instead of it.
fn uses(graph: &Graph, kept: &[Option<Kept>], copy: NodeId, may_widen: bool) -> Result<Vec<Use>, Declined> {
    let node = &graph.nodes[copy];
    let (from, to) = (&node.inputs[0], &node.outputs[0]);
    if graph.is_result(to.slot) || readers(graph, copy).any(|reader| !is_product(graph, reader)) {
        return Err(Declined::Read);
    }
    if graph.maker(from.slot).is_some_and(|maker| kept[maker].is_none()) {
        return Err(Declined::Fused);
    }
    let last = readers(graph, copy).max().unwrap_or(copy);
    let between = copy + 1..=last;
    let is_apart = |reader: NodeId| graph.nodes[reader].stream != node.stream;
    if graph.maker(to.slot) != Some(copy)
        || graph.slots[from.slot].writers.iter().any(|writer| between.contains(writer))
        || between.clone().any(|at| fuse::is_fence(&graph.nodes[at]))
        || readers(graph, copy).any(is_apart)
    {
        return Err(Declined::Order);
    }
    let mut uses = Vec::new();
    for product in readers(graph, copy) {
        for (input, view) in graph.nodes[product].inputs.iter().enumerate().filter(|(_, view)| view.slot == to.slot) {
            let before = (input < 2).then(|| lying_before(view, node)).flatten().ok_or(Declined::Shape)?;
            uses.push(Use { product, input, view: before });
        }
    }
    if may_widen { Ok(uses) } else { Err(Declined::Bits) }
}

/// A factor in the memory that was copied, where a product reads it as it lies there.
fn lying_before(factor: &View, copy: &Node) -> Option<View> {
    let map = Map::link(factor, &factor.sizes, &copy.outputs[0], copy.domain())?;
    let (strides, offset) = map.place(&copy.inputs[0], copy.domain(), &factor.sizes)?;
    let view = View { slot: copy.inputs[0].slot, strides, offset, ..factor.clone() };
    reads_as_it_lies(&view.sizes, &view.strides, view.offset, view.dtype).then_some(view)
}

/// Has the products read elsewhere. The first one counts for having done the copy.
fn read_before(graph: &mut Graph, copy: NodeId, uses: Vec<Use>) {
    let mut done = Some((graph.nodes[copy].names(), graph.nodes[copy].moved()));
    for Use { product, input, view } in uses {
        if let Some((mut names, moved)) = done.take() {
            let own = &graph.nodes[product];
            names.extend(own.names());
            let unfused = moved + own.moved();
            graph.nodes[product].joined = Some(Box::new(Joined { names, unfused }));
        }
        graph.nodes[product].inputs[input] = view;
    }
}

/// Whether a node by itself copies elements to another order, which the kernel that turns tiles around does best.
pub(super) fn turns_around(node: &Node) -> bool {
    let steps =
        |view: &View| (0..view.sizes.len()).filter(|&dim| view.sizes[dim] > 1).min_by_key(|&dim| view.strides[dim]);
    is_copy(node)
        && matches!(node.work, Recorded::Elements { .. })
        && node.inputs[0].sizes == node.outputs[0].sizes
        && steps(&node.inputs[0]) != steps(&node.outputs[0])
}
