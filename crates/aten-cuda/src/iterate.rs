//! How an elementwise operation goes over its operands: which result it has, and in which order memory is visited
//! (ATen's `TensorIterator`).
//!
//! **Invariants:** dimensions are listed from the fastest to the slowest. All operands have the same sizes; where one
//! repeats an element its stride is zero. The layout that a new output gets is torch's.

use smallvec::SmallVec;

use crate::base::shape::{self, Dims};
use crate::tensor::Tensor;

/// An operand's place in memory: bytes from its first element on, for each dimension.
pub(crate) type ByteStrides = Dims;

/// Layout of an operand of an iteration.
pub(crate) trait Placed {
    /// Returns the sizes of the dimensions.
    fn sizes(&self) -> &[i64];

    /// Returns the strides in elements.
    fn strides(&self) -> &[i64];

    /// Returns the number of bytes of an element.
    fn width(&self) -> i64;
}

impl Placed for Tensor {
    fn sizes(&self) -> &[i64] {
        self.sizes()
    }

    fn strides(&self) -> &[i64] {
        self.strides()
    }

    fn width(&self) -> i64 {
        i64::try_from(self.element_size()).unwrap_or(i64::MAX)
    }
}

/// Sizes and strides of an operand without its data, for example of an operand after a dtype conversion.
pub(crate) struct OperandLayout {
    sizes: Dims,
    strides: Dims,
    width: i64,
}

impl OperandLayout {
    /// Makes the layout of a tensor with other sizes and strides.
    pub(crate) fn of(tensor: &Tensor, sizes: Dims, strides: Dims) -> Self {
        Self { sizes, strides, width: tensor.width() }
    }
}

impl Placed for OperandLayout {
    fn sizes(&self) -> &[i64] {
        &self.sizes
    }

    fn strides(&self) -> &[i64] {
        &self.strides
    }

    fn width(&self) -> i64 {
        self.width
    }
}

/// The order in which elements are visited.
#[derive(Clone, Debug)]
pub(crate) struct Iteration {
    /// Elements in all.
    pub(crate) numel: i64,
    /// Sizes of the dimensions, fastest first, neighbours joined where every operand allows it.
    pub(crate) sizes: Dims,
    /// Strides of each operand in bytes.
    pub(crate) strides: SmallVec<[ByteStrides; 4]>,
}

impl Iteration {
    /// The iteration over operands that broadcast to `sizes`. In logical order the last dimension is the fastest;
    /// otherwise the order is that of memory, as the operands' strides have it.
    pub(crate) fn new(sizes: &[i64], operands: &[&impl Placed], in_logical_order: bool) -> Self {
        let numel = shape::numel(sizes);
        let fast =
            operands.iter().all(|operand| operand.sizes() == sizes && shape::is_contiguous(sizes, operand.strides()));
        if fast {
            let strides = operands.iter().map(|operand| Dims::from_elem(operand.width(), 1)).collect();
            return Self { numel, sizes: Dims::from_elem(numel, 1), strides };
        }
        let strides: SmallVec<[Dims; 4]> = operands.iter().map(|operand| broadcast_strides(sizes, *operand)).collect();
        let order = if in_logical_order { (0..sizes.len()).rev().collect() } else { memory_order(sizes, &strides) };
        let sizes: Dims = order.iter().map(|&dim| sizes[dim]).collect();
        let strides = strides.iter().map(|strides| order.iter().map(|&dim| strides[dim]).collect()).collect();
        Self { numel, sizes, strides }.joined()
    }

    /// Neighbouring dimensions joined where each operand goes through both in equal steps.
    pub(crate) fn joined(mut self) -> Self {
        let mut last = 0;
        for dim in 1..self.sizes.len() {
            let (low, high) = (self.sizes[last], self.sizes[dim]);
            let fits = |strides: &ByteStrides| strides[last].checked_mul(low) == Some(strides[dim]);
            if high == 1 || low == 1 || self.strides.iter().all(fits) {
                if low == 1 {
                    for strides in &mut self.strides {
                        strides[last] = strides[dim];
                    }
                }
                self.sizes[last] = low * high;
            } else {
                last += 1;
                self.sizes[last] = high;
                for strides in &mut self.strides {
                    strides[last] = strides[dim];
                }
            }
        }
        self.sizes.truncate(last + 1);
        for strides in &mut self.strides {
            strides.truncate(last + 1);
        }
        self
    }
}

/// Strides, in elements, of a new result of elementwise operations on these inputs. A number beside them counts as a
/// tensor without dimensions, so that inputs and result are not all of one shape.
pub(crate) fn result_strides(sizes: &[i64], inputs: &[&impl Placed], beside_number: bool) -> Dims {
    let Some(first) = inputs.first() else { return shape::contiguous_strides(sizes) };
    let one_shape = (!beside_number || sizes.is_empty()) && inputs.iter().all(|tensor| tensor.sizes() == sizes);
    if one_shape {
        if inputs.iter().all(|tensor| shape::is_contiguous(tensor.sizes(), tensor.strides())) {
            return shape::contiguous_strides(sizes);
        }
        if inputs.iter().all(|tensor| shape::is_channels_last(sizes, tensor.strides())) {
            return shape::channels_last_strides(sizes);
        }
        let dense = shape::is_non_overlapping_and_dense(first.sizes(), first.strides());
        if dense && inputs.iter().all(|tensor| tensor.strides() == first.strides()) {
            return Dims::from_slice(first.strides());
        }
    }
    let strides: SmallVec<[Dims; 4]> = inputs.iter().map(|tensor| broadcast_strides(sizes, *tensor)).collect();
    let order = memory_order(sizes, &strides);
    if order.iter().copied().eq((0..sizes.len()).rev()) {
        return shape::contiguous_strides(sizes);
    }
    let mut result = Dims::from_elem(1, sizes.len());
    let mut stride = 1;
    for dim in order {
        result[dim] = stride;
        stride = stride.saturating_mul(sizes[dim]);
    }
    result
}

/// Returns the strides of an operand in bytes, broadcast to `sizes`.
fn broadcast_strides(sizes: &[i64], tensor: &impl Placed) -> ByteStrides {
    let rank = tensor.sizes().len();
    let new = sizes.len() - rank;
    let mut strides = Dims::from_elem(0, sizes.len());
    for dim in 0..rank {
        // Where one element stands for many, and where there is just one, there is no step.
        let repeated = tensor.sizes()[dim] == 1 && sizes[new + dim] != 1;
        strides[new + dim] = if repeated { 0 } else { tensor.strides()[dim].saturating_mul(tensor.width()) };
    }
    strides
}

/// The dimensions, fastest first: an insertion sort that looks at the operands in turn and swaps two dimensions only
/// where the first operand that has a say wants it.
fn memory_order(sizes: &[i64], strides: &[ByteStrides]) -> SmallVec<[usize; 6]> {
    let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).rev().collect();
    for start in 1..order.len() {
        let mut moving = start;
        for other in (0..start).rev() {
            match prefer(sizes, strides, order[other], order[moving]) {
                std::cmp::Ordering::Greater => {
                    order.swap(other, moving);
                    moving = other;
                }
                std::cmp::Ordering::Less => break,
                std::cmp::Ordering::Equal => {}
            }
        }
    }
    order
}

/// Whether the first dimension is to be faster than the second (`Less`), slower (`Greater`), or nobody has a say.
fn prefer(sizes: &[i64], strides: &[ByteStrides], first: usize, second: usize) -> std::cmp::Ordering {
    for operand in strides {
        let (one, other) = (operand[first], operand[second]);
        if one == 0 || other == 0 {
            continue;
        }
        match one.cmp(&other) {
            std::cmp::Ordering::Equal if sizes[first] > sizes[second] => return std::cmp::Ordering::Greater,
            std::cmp::Ordering::Equal => {}
            decided => return decided,
        }
    }
    std::cmp::Ordering::Equal
}
