//! Products that take along the operations behind them: a bias, a sum, an activation.
//!
//! A product is a call, which no kernel of the fusion holds. What libraries compute within the product's own kernel, they
//! compute before the result is written: an operation that only reads the product becomes a part of it where that moves fewer
//! bytes. It does where the operation's own result has to be in memory all the same, and where a sum is read several times.
//!
//! **Invariants:** a product runs where the operation that it takes along stood, and nothing that it reads is written in
//! between. Without `wide_intermediates` the bits are those of the operations one after another. The report has an entry for
//! each product that an elementwise operation follows.

use smallvec::SmallVec;

use super::fuse::{self, Fusion, Kept};
use super::graph::{Graph, Joined, Node, NodeId, View};
use super::map;
use crate::base::shape::contiguous_strides;
use crate::blas::followed::{Declined, Follower, Problem, ProductCall};
use crate::launch::record::Recorded;

/// Whether a product has taken along the operations behind it.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::compile::{CompileOptions, compile_with};
/// use aten_cuda::{DType, Tensor};
///
/// let mut options = CompileOptions::default();
/// options.wide_intermediates = true;
/// let f = compile_with(|x: &[Tensor]| Ok(vec![x[0].mm(&x[0])?.add(&x[1])?.relu()?]), options);
/// let (x, bias) = (Tensor::ones(&[8, 8], DType::BF16, "cuda")?, Tensor::ones(&[8], DType::BF16, "cuda")?);
/// assert!(f.call(&[&x, &bias])?[0].to_dtype(DType::F32)?.to_vec::<f32>()?.iter().all(|&element| element == 9.0));
/// let taken = &f.report().programs[0].epilogues[0];
/// assert_eq!((taken.operations.join(" + ").as_str(), taken.refused), ("add + relu", None));
/// // Two results of 64 elements are neither written nor read.
/// assert_eq!(taken.saved, 2 * 2 * 64 * 2);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpilogueReport {
    /// The product.
    pub product: &'static str,
    /// The operations that it does along with it, in their order; where it does none, the one that follows it.
    pub operations: Vec<&'static str>,
    /// Bytes that are not moved since.
    pub saved: i64,
    /// Why it does none.
    pub refused: Option<Declined>,
}

/// Lets the products of a graph take along what they can.
pub(super) fn take_along(graph: &mut Graph, may_widen: bool) -> Vec<EpilogueReport> {
    let products =
        (0..graph.nodes.len()).filter(|&at| call(&graph.nodes[at]).is_some() && follower(graph, at).is_some());
    let products: Vec<NodeId> = products.collect();
    if products.is_empty() {
        return Vec::new();
    }
    let mut kept = Fusion::new(graph, may_widen).kept;
    let (mut gone, mut reports) = (Vec::new(), Vec::new());
    for product in products {
        let chain = Chain::of(graph, &kept, product, may_widen);
        reports.extend(chain.taken(graph, &mut kept, &mut gone));
    }
    if !gone.is_empty() {
        graph.leave_out(&gone);
    }
    reports
}

/// A product that was written down, of real numbers.
fn call(node: &Node) -> Option<ProductCall> {
    let is_plain = node.outputs.len() == 1 && node.views().all(View::is_plain);
    ProductCall::read(node.name, &node.work).filter(|_| is_plain)
}

/// The elementwise operation that reads a node's result first.
fn follower(graph: &Graph, at: NodeId) -> Option<NodeId> {
    let [output] = graph.nodes[at].outputs.as_slice() else { return None };
    let is_elementwise =
        |reader: &NodeId| matches!(graph.nodes[*reader].work, Recorded::Elements { .. }) && *reader > at;
    graph.slots[output.slot].readers.iter().copied().find(is_elementwise)
}

/// A product with one more operation.
struct Link {
    node: NodeId,
    /// Whether it is a sum that several operations read: each of them would read both summands.
    is_read_often: bool,
    call: ProductCall,
    inputs: SmallVec<[View; 3]>,
}

/// The operations behind a product that it could take along, and why not the next one.
struct Chain {
    product: NodeId,
    links: Vec<Link>,
    end: Option<Declined>,
}

impl Chain {
    fn of(graph: &Graph, kept: &[Option<Kept>], product: NodeId, may_widen: bool) -> Self {
        let mut chain = Self { product, links: Vec::new(), end: None };
        let node = &graph.nodes[product];
        let (Some(mut call), mut inputs) = (call(node), node.inputs.clone()) else { return chain };
        let mut last = product;
        while let Some(next) = follower(graph, last) {
            let joined = chain.order(graph, last, next).and_then(|()| {
                let (follower, summand) = operation(graph, product, last, next)?;
                // What would be computed within the operation's kernel would have to be written for the product.
                let maker = summand.as_ref().and_then(|summand| graph.maker(summand.slot));
                if maker.is_some_and(|maker| kept[maker].is_none()) {
                    return Err(Declined::Fused);
                }
                let with = call.with(follower, &problem(node).ok_or(Declined::Shape)?, may_widen)?;
                Ok((with, follower, summand))
            });
            match joined {
                Ok((with, follower, summand)) => {
                    // A bias comes behind what is added.
                    let place = if follower == Follower::Sum { 2 } else { inputs.len() };
                    summand.into_iter().for_each(|summand| inputs.insert(place, summand));
                    (call, last) = (with, next);
                    let readers = &graph.slots[graph.nodes[next].outputs[0].slot].readers;
                    let is_read_often = follower == Follower::Sum && readers.len() > 1;
                    chain.links.push(Link { node: next, is_read_often, call, inputs: inputs.clone() });
                }
                Err(why) => {
                    chain.end = Some(why);
                    break;
                }
            }
        }
        chain
    }

    /// Whether the product may run as late as an operation that is the only one to read what it has given so far.
    fn order(&self, graph: &Graph, last: NodeId, next: NodeId) -> Result<(), Declined> {
        let (product, read) = (&graph.nodes[self.product], graph.nodes[last].outputs[0].slot);
        let slot = &graph.slots[read];
        if graph.is_result(read) || slot.readers.as_slice() != [next] {
            return Err(Declined::Read);
        }
        let between = self.product + 1..=next;
        let is_written = |view: &View| graph.slots[view.slot].writers.iter().any(|writer| between.contains(writer));
        let orders = between.clone().any(|at| fuse::is_fence(&graph.nodes[at]));
        // What is made within the graph has one writer: memory with several is that of a change in place.
        let is_made = graph.maker(read) == Some(last) && graph.maker(graph.nodes[next].outputs[0].slot) == Some(next);
        let is_apart = product.stream != graph.nodes[next].stream || orders;
        // What an operation before this one has read stays as it was, too.
        let mut inputs = self.links.last().map_or(&product.inputs, |link| &link.inputs).iter();
        if is_apart || !is_made || inputs.any(is_written) {
            return Err(Declined::Order);
        }
        Ok(())
    }

    /// Makes the product do the longest part of the chain with which something is saved, and says what came of it.
    fn taken(self, graph: &mut Graph, kept: &mut [Option<Kept>], gone: &mut Vec<NodeId>) -> Option<EpilogueReport> {
        let product = graph.nodes[self.product].name;
        let is_needed = |link: &Link| kept[link.node].map_or(link.is_read_often, |kept| kept != Kept::Dead);
        let Some(count) = self.links.iter().rposition(is_needed) else {
            let next = follower(graph, self.product)?;
            let fused = (!self.links.is_empty()).then_some(Declined::Fused);
            let refused = Some(fused.or(self.end)?);
            return Some(EpilogueReport { product, operations: vec![graph.nodes[next].name], saved: 0, refused });
        };
        let nodes: Vec<NodeId> = self.links[..=count].iter().map(|link| link.node).collect();
        let operations: Vec<&'static str> = nodes.iter().map(|&node| graph.nodes[node].name).collect();
        let before = || std::iter::once(self.product).chain(nodes.iter().copied());
        let unfused = before().map(|node| graph.nodes[node].moved()).sum();
        let names = before().flat_map(|node| graph.nodes[node].names()).collect();
        let Link { node: at, call, inputs, .. } = self.links.into_iter().nth(count)?;
        let own = graph.nodes[self.product].clone();
        let to = &graph.nodes[at].outputs[0];
        let output = View { slot: to.slot, offset: to.offset, ..own.outputs[0].clone() };
        let joined = Some(Box::new(Joined { names, unfused }));
        let outputs = SmallVec::from_elem(output, 1);
        graph.nodes[at] = Node { work: call.recorded(), outputs, inputs, joined, ..own };
        kept[at] = Some(Kept::Opaque);
        gone.extend(before().filter(|&node| node != at));
        let saved = unfused - graph.nodes[at].moved_at_once();
        Some(EpilogueReport { product, operations, saved, refused: None })
    }
}

/// The sizes of a product.
fn problem(node: &Node) -> Option<Problem> {
    let ([out], [a, ..]) = (node.outputs.as_slice(), node.inputs.as_slice()) else { return None };
    let &[.., m, n] = out.sizes.as_slice() else { return None };
    Some(Problem { m, n, k: *a.sizes.last()?, is_batch: out.sizes.len() > 2, dtype: out.dtype })
}

/// What an operation does to the result of a product, and what it adds to it, as the product takes that.
fn operation(graph: &Graph, product: NodeId, last: NodeId, next: NodeId) -> Result<(Follower, Option<View>), Declined> {
    let (node, made) = (&graph.nodes[next], &graph.nodes[product].outputs[0]);
    let Recorded::Elements { scalars, sizes, .. } = &node.work else { return Err(Declined::Operation) };
    let given = &graph.nodes[last].outputs[0];
    let lies_as_made = |view: &View| view.dtype == made.dtype && view.is_plain() && lies_in_order(view, sizes, made);
    let is_given = |view: &&View| view.slot == given.slot;
    let fits = |view: &View| lies_as_made(view) && view.offset == given.offset;
    let lies_so = node.inputs.iter().filter(is_given).all(fits) && node.outputs.iter().all(lies_as_made);
    let (follower, summand) = match (node.name, node.inputs.as_slice(), scalars.as_slice()) {
        ("relu", [_], []) => (Follower::Relu, None),
        ("gelu_tanh", [_], []) => (Follower::Gelu, None),
        ("add", [one, other], []) => {
            let summand = if one.slot == given.slot { other } else { one };
            if summand.slot == given.slot || summand.dtype != made.dtype {
                return Err(Declined::Operation);
            }
            let bias = bias_of(summand, sizes, made).map(|bias| (Follower::Bias, bias));
            let sum = || {
                lies_as_made(summand)
                    .then(|| (Follower::Sum, View { offset: summand.offset, ..as_made(summand, made) }))
            };
            let (follower, view) = bias.or_else(sum).ok_or(Declined::Shape)?;
            (follower, Some(view))
        }
        _ => return Err(Declined::Operation),
    };
    if lies_so { Ok((follower, summand)) } else { Err(Declined::Shape) }
}

/// A view of the sizes of a product's result in the memory of another one.
fn as_made(view: &View, made: &View) -> View {
    View { slot: view.slot, ..made.clone() }
}

/// Whether a view over these sizes has its elements one after another, as many as a product's result.
fn lies_in_order(view: &View, sizes: &[i64], made: &View) -> bool {
    let Some(strides) = map::broadcast(view, sizes) else { return false };
    let wanted = contiguous_strides(sizes);
    let in_order =
        sizes.iter().zip(strides.iter().zip(&wanted)).all(|(&size, (stride, want))| size <= 1 || stride == want);
    in_order && sizes.iter().product::<i64>() == made.numel()
}

/// The vector that a view over these sizes adds to each row of a product's result, if it is one.
fn bias_of(view: &View, sizes: &[i64], made: &View) -> Option<View> {
    let (&columns, strides) = (made.sizes.last()?, map::broadcast(view, sizes)?);
    let mut inner = 1;
    for (&size, &stride) in sizes.iter().zip(&strides).rev().filter(|&(&size, _)| size > 1) {
        let is_inside = inner < columns;
        if stride != if is_inside { inner } else { 0 } {
            return None;
        }
        inner *= if is_inside { size } else { 1 };
    }
    let vector = View { sizes: SmallVec::from_elem(columns, 1), strides: SmallVec::from_elem(1, 1), ..view.clone() };
    (inner == columns && view.is_plain()).then_some(vector)
}
