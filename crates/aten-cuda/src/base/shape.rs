//! Sizes and strides, in elements.
//!
//! **Invariants:** the number of elements and the number of bytes of every existing tensor fit into `i64` (`layout`).

use smallvec::SmallVec;

use crate::base::error::{Result, TensorError};
use crate::base::layout::LARGEST;

/// Sizes or strides, one for each dimension.
pub(crate) type Dims = SmallVec<[i64; 6]>;

/// Returns the number of elements.
///
/// # Errors
/// A size is negative, or the number, with empty dimensions counted as one, is above [`LARGEST`].
pub(crate) fn checked_numel(sizes: &[i64]) -> Result<i64> {
    if let Some(&size) = sizes.iter().find(|&&size| size < 0) {
        return Err(TensorError::NegativeSize { size, sizes: sizes.to_vec() }.into());
    }
    let count = sizes.iter().try_fold(1_i64, |count, &size| count.checked_mul(size.max(1)));
    match count {
        Some(count) if count <= LARGEST => Ok(if sizes.contains(&0) { 0 } else { count }),
        _ => Err(TensorError::TooLarge { sizes: sizes.to_vec() }.into()),
    }
}

/// The number of elements of sizes that are known to be good.
pub(crate) fn numel(sizes: &[i64]) -> i64 {
    sizes.iter().product()
}

/// Returns the row-major contiguous strides. They saturate on overflow: a view with saturated strides is rejected.
pub(crate) fn contiguous_strides(sizes: &[i64]) -> Dims {
    let mut strides = Dims::from_elem(1, sizes.len());
    let mut stride = 1;
    for dim in (0..sizes.len()).rev() {
        strides[dim] = stride;
        stride = stride.saturating_mul(sizes[dim].max(1));
    }
    strides
}

/// Whether the elements lie one after another, the last dimension fastest. Dimensions of one element do not count.
pub(crate) fn is_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    if numel(sizes) == 0 {
        return true;
    }
    let mut expected = 1;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected *= size;
        }
    }
    true
}

/// The order of dimensions, fastest first, of images whose channels are neighbours (`torch.channels_last`).
const CHANNELS_LAST: [usize; 4] = [1, 3, 2, 0];

/// The order of the dimensions of images, or of volumes with one more (`torch.channels_last_3d`); none of others.
fn channels_last_order(rank: usize) -> &'static [usize] {
    match rank {
        4 => &CHANNELS_LAST,
        5 => &[1, 4, 3, 2, 0],
        _ => &[],
    }
}

/// Whether the elements of four dimensions lie one after another, channels fastest. Dimensions of one element do not
/// count.
pub(crate) fn is_channels_last(sizes: &[i64], strides: &[i64]) -> bool {
    let (4, 4) = (sizes.len(), strides.len()) else { return false };
    let mut expected = 1;
    CHANNELS_LAST.iter().filter(|&&dim| sizes[dim] != 1).all(|&dim| {
        let fits = strides[dim] == expected;
        expected *= sizes[dim];
        fits
    })
}

/// Returns the channels-last strides of four or five dimensions. They saturate on overflow: a view with saturated
/// strides is rejected.
pub(crate) fn channels_last_strides(sizes: &[i64]) -> Dims {
    let mut strides = Dims::from_elem(1, sizes.len());
    let mut stride = 1;
    for &dim in channels_last_order(sizes.len()) {
        strides[dim] = stride;
        stride = stride.saturating_mul(sizes[dim].max(1));
    }
    strides
}

/// Whether the elements fill their memory without a gap or an overlap, in whatever order. No elements always do.
pub(crate) fn is_non_overlapping_and_dense(sizes: &[i64], strides: &[i64]) -> bool {
    if is_contiguous(sizes, strides) {
        return true;
    }
    let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).collect();
    order.sort_by_key(|&dim| if sizes[dim] < 2 { i64::MAX } else { strides[dim] });
    let mut expected = 1;
    for dim in order {
        if sizes[dim] < 2 {
            return true;
        }
        if strides[dim] != expected {
            return false;
        }
        expected *= sizes[dim];
    }
    true
}

/// The elements between the first one and the end of the last one; zero for none.
pub(crate) fn extent(sizes: &[i64], strides: &[i64]) -> Option<i64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let last = sizes
        .iter()
        .zip(strides)
        .try_fold(0_i64, |sum, (&size, &stride)| sum.checked_add((size - 1).checked_mul(stride)?))?;
    last.checked_add(1)
}

/// Whether the strides say that the channels lie last (`torch.channels_last`, `torch.channels_last_3d`). Where sizes of 1
/// leave it open, they do not, as in torch.
pub(crate) fn has_channels_last(sizes: &[i64], strides: &[i64]) -> bool {
    let order = channels_last_order(sizes.len());
    if order.is_empty() || strides[1] == 0 {
        return false;
    }
    let mut least = 0;
    for &dim in order {
        if sizes[dim] == 0 || strides[dim] < least || (dim == 0 && least == strides[1]) {
            return false;
        }
        least = strides[dim].saturating_mul(sizes[dim].max(1));
    }
    true
}

/// Returns the shape that both shapes broadcast to (`torch.broadcast_shapes`).
///
/// # Errors
/// Two sizes differ and neither is 1, or the result would have more elements than a tensor can have.
pub(crate) fn broadcast(a: &[i64], b: &[i64]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    let mut sizes = Dims::from_elem(1, rank);
    for from_end in 1..=rank {
        let size_of = |sizes: &[i64]| sizes.len().checked_sub(from_end).map_or(1, |dim| sizes[dim]);
        let (first, second) = (size_of(a), size_of(b));
        let dim = rank - from_end;
        sizes[dim] = match (first, second) {
            (first, second) if first == second => first,
            (1, second) => second,
            (first, 1) => first,
            _ => return Err(TensorError::Broadcast { first, second, dim }.into()),
        };
    }
    checked_numel(&sizes)?;
    Ok(sizes)
}

/// The dimension that an index from the front, or a negative one from the end, means. Without dimensions there is one.
pub(crate) fn wrap_dim(dim: i64, rank: usize) -> Result<usize> {
    let count = i64::try_from(rank.max(1)).unwrap_or(i64::MAX);
    let place = if dim < 0 { dim + count } else { dim };
    match usize::try_from(place) {
        Ok(at) if place < count => Ok(at),
        _ => Err(TensorError::DimOutOfRange { dim, low: -count, high: count - 1 }.into()),
    }
}
