//! Index operations on a device that write and add in index order, for deterministic algorithms and for sums of short
//! floats that are rounded once.
//!
//! The indices of each list are sorted with the places that they have in it. Equal ones are neighbours then and still in
//! order, so that one thread can take all elements for a place of the tensor, one after another, as the host does. Lists
//! that repeat along a dimension are sorted once.
//!
//! **Invariants:** the result equals the host's bit by bit, except for sums that are rounded once.

use std::ops::Range;

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::deterministic;
use crate::launch::library::index::{Action, Along, Indexed};
use crate::launch::library::ordered::{self, Lists};
use crate::ops::sort::sorted_rows;
use crate::report::Reporter;
use crate::tensor::Tensor;

/// Longest row, in elements, for which torch's `index_put` with `accumulate` sums short floats in `f32`: the size of a
/// warp.
const SHORT_ROW: i64 = 32;

/// Whether the elements for a place are summed in `f32` and rounded once, as torch's kernel for short rows does. With
/// deterministic algorithms torch uses this kernel for `index_add`, and for `scatter_add` with rows of one element.
fn is_wide_sum(indexed: &Indexed<'_>, lists: &Range<usize>, action: Action) -> bool {
    let is_short = || indexed.index.sizes()[lists.end..].iter().product::<i64>() <= SHORT_ROW;
    action == Action::Add
        && matches!(indexed.other.dtype(), DType::F16 | DType::BF16 | DType::C32)
        && match indexed.along.operation {
            Reporter::IndexPut => is_short(),
            Reporter::IndexAdd => deterministic::are_deterministic_algorithms_enabled() && is_short(),
            Reporter::ScatterAdd => deterministic::are_deterministic_algorithms_enabled(),
            _ => false,
        }
}

/// Whether the elements for a place must be combined one after another: their order affects the result and must be
/// deterministic, or their sum is rounded once.
pub(super) fn is_needed(indexed: &Indexed<'_>, lists: &Range<usize>, action: Action) -> bool {
    if is_wide_sum(indexed, lists, action) {
        return lists.clone().any(|dim| indexed.index.sizes()[dim] > 1);
    }
    if !deterministic::are_deterministic_algorithms_enabled() {
        return false;
    }
    let other = indexed.other;
    let among = |dim: usize| indexed.index.sizes()[dim] > 1;
    match action {
        Action::Gather => false,
        // Where all elements that may meet are the same one, any of them may be the last.
        Action::Scatter => lists.clone().any(|dim| among(dim) && other.strides()[dim] != 0),
        Action::Add => (other.dtype().is_floating_point() || other.dtype().is_complex()) && lists.clone().any(among),
    }
}

/// Writes or adds on the device of the tensors. `lists` are the dimensions along which indices may name a place twice.
pub(super) fn run(indexed: &Indexed<'_>, lists: Range<usize>, action: Action) -> Result<()> {
    let Indexed { pointed, along, index, other } = *indexed;
    let n: i64 = index.sizes()[lists.clone()].iter().product();
    let is_wide = is_wide_sum(indexed, &lists, action);
    let at = lists.start;
    let [index, other] = [index, other].map(|tensor| with_list(tensor, &lists, n));
    let (index, other) = (index?, other?);
    let (keys, places) = sorted_keys(&index, at, &along)?;
    let beside = without(pointed.sizes(), &lists);
    let first = |tensor: &Tensor| tensor.select(i64::try_from(at).unwrap_or(0), 0);
    let list_last = i64::try_from(index.dim() - 1).unwrap_or(0);
    let first_places = first(&places.transpose(i64::try_from(at).unwrap_or(0), list_last)?)?.expand(&beside)?;
    let pointed = pointed.with_layout(beside, without(pointed.strides(), &lists), pointed.storage_offset())?;
    let lists = Lists {
        pointed: &pointed,
        other: &first(&other)?,
        keys: &keys,
        places: &places,
        first_places: &first_places,
        n,
        stride: along.stride,
        step: other.strides()[at],
        size: along.size,
    };
    match action {
        Action::Add if is_wide => ordered::sum(&lists),
        Action::Add => ordered::add(&lists),
        _ => ordered::write(&lists),
    }
}

/// The tensor with the dimensions of lists joined to one.
fn with_list(tensor: &Tensor, lists: &Range<usize>, n: i64) -> Result<Tensor> {
    let mut sizes = Dims::from_slice(&tensor.sizes()[..lists.start]);
    sizes.push(n);
    sizes.extend_from_slice(&tensor.sizes()[lists.end..]);
    tensor.reshape(&sizes)
}

/// Numbers of all dimensions but those of lists.
fn without(numbers: &[i64], lists: &Range<usize>) -> Dims {
    numbers[..lists.start].iter().chain(&numbers[lists.end..]).copied().collect()
}

/// The lists of indices along a dimension as sorted keys, and the places that they had. Both have the list as their last
/// dimension, in the place of which that one stands, and one element along dimensions that repeat an index.
fn sorted_keys(index: &Tensor, list: usize, along: &Along) -> Result<(Tensor, Tensor)> {
    let mut different = index.clone();
    for dim in (0..index.dim()).filter(|&dim| dim != list && index.strides()[dim] == 0) {
        different = different.narrow(i64::try_from(dim).unwrap_or(0), 0, 1)?;
    }
    let last = i64::try_from(index.dim() - 1).unwrap_or(0);
    let rows = different.transpose(i64::try_from(list).unwrap_or(0), last)?;
    let keys = ordered::keys(&rows, along)?;
    debug_assert!(matches!(keys.dtype(), DType::I32 | DType::I64), "keys are integers");
    sorted_rows(&keys, along.size)
}
