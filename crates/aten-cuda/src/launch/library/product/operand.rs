//! How factors and results lie in memory.

use crate::tensor::Tensor;

/// A batch of matrices whose neighbours along one dimension lie together. Steps are elements; one does not matter where
/// there is just one place along its dimension, and is 0 then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    /// Whether neighbours lie along the inner dimension of the product, or along the other one.
    pub(super) lies_inner: bool,
    /// From one line to the next.
    pub(super) step: i64,
    /// From one matrix to the next.
    pub(super) batch: i64,
}

/// The two ways that a factor may lie, as far as they are true of it. Dimensions are given as the outer and the inner
/// one.
pub(super) fn lines(factor: &Tensor, [outer, inner]: [usize; 2]) -> impl Iterator<Item = Lines> {
    let ways = [(inner, outer), (outer, inner)].into_iter();
    ways.filter(move |&(fast, _)| factor.strides()[fast] == 1 || factor.sizes()[fast] == 1)
        .map(move |(fast, slow)| Lines { lies_inner: fast == inner, step: step(factor, slow), batch: step(factor, 0) })
}

/// Whether lines and matrices begin at multiples of 16 bytes.
pub(super) fn is_aligned(tensor: &Tensor, lines: &Lines) -> bool {
    let vector = i64::try_from(16 / tensor.element_size()).unwrap_or(1);
    tensor.data_ptr().is_multiple_of(16) && lines.step % vector == 0 && lines.batch % vector == 0
}

/// The step along a dimension, which does not matter where there is just one place.
pub(super) fn step(tensor: &Tensor, dim: usize) -> i64 {
    if tensor.sizes()[dim] <= 1 { 0 } else { tensor.strides()[dim] }
}

/// How many tiles cover a size.
pub(super) fn tiles(size: i64, tile: i64) -> i64 {
    size / tile + i64::from(size % tile != 0)
}
