//! Elements at places that another tensor tells.
//!
//! Reading order: this file (how indices are applied, on the host and on a device), `gather` (reading), `scatter`
//! (writing and adding), `advanced` (indices for several dimensions at once), `ordered` (writing and adding in the order of
//! the index on a device), `select` (places that a mask or a value tells).
//!
//! **Invariants:** an index is checked where it is used: on the host before anything is written, on a device by the
//! kernel, which leaves the element out and reports the index ([`TensorError::IndexOutOfRange`]).

mod advanced;
mod gather;
mod ordered;
mod scatter;
mod select;

pub(crate) use select::nonzero_flat;

use c10_core::host_memory;
use std::ops::Range;

use crate::base::dtype::DType;
use crate::base::error::{IndexKernel, Result, TensorError, invalid};
use crate::base::shape::Dims;
use crate::launch;
use crate::launch::library::index::{self, Action, Along, Indexed};
use crate::report::Reporter;
use crate::tensor::{Places, Tensor, is_host};

/// Applies indices. `index` and `other` have the same sizes, and `pointed` has a place for each of them along `dim` and
/// its own places along the other dimensions.
fn along_dim(
    pointed: &Tensor,
    dim: usize,
    index: &Tensor,
    other: &Tensor,
    action: Action,
    operation: Reporter,
) -> Result<()> {
    let (size, stride) = (pointed.sizes()[dim], pointed.strides()[dim]);
    if size == 0 && index.numel() > 0 {
        if is_host(pointed.device())
            && let Some(&(element, index)) = values(index)?.first()
        {
            return checked(&Along { size, stride, wraps: false, operation }, element, index)
                .map(drop)
                .map_err(|error| error.in_dimension(dim, IndexKernel::Elements));
        }
        return Err(invalid("index is out of bounds for dimension with size 0"));
    }
    let mut strides = Dims::from_slice(pointed.strides());
    strides[dim] = 0;
    let sizes = Dims::from_slice(index.sizes());
    let view = pointed.with_layout(sizes, strides, pointed.storage_offset())?;
    let along = Along { size, stride, wraps: false, operation };
    let applied = apply(&Indexed { pointed: &view, along, index, other }, dim..dim + 1, action);
    // A report of the device is about earlier work, whose dimension is not known.
    if is_host(pointed.device()) {
        applied.map_err(|error| error.in_dimension(dim, host_kernel(operation, pointed, dim, index.dtype())))
    } else {
        applied
    }
}

/// The kernel of torch's host that finds an index out of range. Those for several dimensions have texts of their own.
fn host_kernel(operation: Reporter, pointed: &Tensor, dim: usize, indices: DType) -> IndexKernel {
    let dims = pointed.dim();
    match operation {
        // Between the first and the last dimension torch adds slice by slice.
        Reporter::IndexAdd if indices == DType::I64 && dims > 1 && (dim == 0 || dim + 1 == dims) => IndexKernel::Slices,
        Reporter::IndexSelect if dims > 1 && dim == 1 => IndexKernel::Blocks,
        _ => IndexKernel::Elements,
    }
}

/// Applies indices on the device of the tensors. `lists` are the dimensions along which indices may name a place twice.
fn apply(indexed: &Indexed<'_>, lists: Range<usize>, action: Action) -> Result<()> {
    launch::common_device([indexed.pointed, indexed.index, indexed.other])?;
    if indexed.index.numel() == 0 {
        return Ok(());
    }
    let signs = indexed.pointed.signs();
    let pointed = &indexed.pointed.as_stored();
    match action {
        // Elements are read as they lie in memory; signs are turned in what comes out.
        Action::Gather => {
            apply_as_stored(&Indexed { pointed, ..*indexed }, lists, action)?;
            indexed.other.turn_signs(signs)
        }
        // Signs of sums are sums of signs.
        Action::Scatter | Action::Add => {
            let other = &indexed.other.with_signs(indexed.other.signs().towards(signs)).resolved()?;
            apply_as_stored(&Indexed { pointed, other, ..*indexed }, lists, action)
        }
    }
}

fn apply_as_stored(indexed: &Indexed<'_>, lists: Range<usize>, action: Action) -> Result<()> {
    if !is_host(indexed.pointed.device()) {
        return if ordered::is_needed(indexed, &lists, action) {
            ordered::run(indexed, lists, action)
        } else {
            index::run(indexed, action)
        };
    }
    // Whatever shares memory with the tensor that is written is read before.
    let places = places(indexed)?;
    match action {
        Action::Gather => read(indexed, &places),
        Action::Scatter => write(indexed, &places, |to, from, _| to.copy_from_slice(from)),
        Action::Add => write(indexed, &places, scatter::add),
    }
}

/// The indices of a tensor in row-major order, each with its place in memory.
fn values(index: &Tensor) -> Result<Vec<(usize, i64)>> {
    let bytes = index.to_bytes()?;
    let places = Places::new(index.sizes(), index.strides());
    let count = bytes.len() / index.element_size();
    Ok(match index.dtype() {
        DType::I32 => {
            let numbers = bytes.chunks_exact(4).map(|one| i64::from(bytemuck::pod_read_unaligned::<i32>(one)));
            host_memory::collected(count, places.zip(numbers))?
        }
        _ => {
            let numbers = bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned::<i64>);
            host_memory::collected(count, places.zip(numbers))?
        }
    })
}

/// The index counted from the front.
fn checked(along: &Along, element: usize, index: i64) -> Result<i64> {
    let place = if along.wraps && index < 0 { index + along.size } else { index };
    if (0..along.size).contains(&place) {
        return Ok(place);
    }
    let (operation, element) = (along.operation.name(), i64::try_from(element).unwrap_or(i64::MAX));
    Err(TensorError::IndexOutOfRange {
        operation,
        element,
        index,
        dim: None,
        size: along.size,
        kernel: IndexKernel::Elements,
    }
    .into())
}

/// The first byte of each element that is pointed to, in its storage.
fn places(indexed: &Indexed<'_>) -> Result<Vec<usize>> {
    let Indexed { pointed, along, index, .. } = *indexed;
    let own = Places::new(pointed.sizes(), pointed.strides());
    let width = pointed.element_size();
    let values = values(index)?;
    let mut places = host_memory::with_capacity(values.len())?;
    for (own, (element, index)) in own.zip(values) {
        let steps = usize::try_from(checked(&along, element, index)? * along.stride).unwrap_or(0);
        places.push(pointed.byte_offset() + (own + steps) * width);
    }
    Ok(places)
}

fn read(indexed: &Indexed<'_>, places: &[usize]) -> Result<()> {
    let (out, width) = (indexed.other, indexed.other.element_size());
    let from = host_memory::copied(&indexed.pointed.plain_storage()?.host()?)?;
    let mut to = out.plain_storage()?.host_mut()?;
    for (place, &source) in Places::new(out.sizes(), out.strides()).zip(places) {
        let at = out.byte_offset() + place * width;
        to[at..at + width].copy_from_slice(&from[source..source + width]);
    }
    Ok(())
}

fn write(indexed: &Indexed<'_>, places: &[usize], put: impl Fn(&mut [u8], &[u8], DType)) -> Result<()> {
    let width = indexed.pointed.element_size();
    let from = indexed.other.to_bytes()?;
    let mut to = indexed.pointed.plain_storage()?.host_mut()?;
    for (&at, element) in places.iter().zip(from.chunks_exact(width)) {
        put(&mut to[at..at + width], element, indexed.pointed.dtype());
    }
    Ok(())
}

/// Copies host indices, with their current values, to the device of the tensor that they index, as torch does.
fn moved_to(index: &Tensor, tensor: &Tensor) -> Result<Tensor> {
    if is_host(tensor.device()) || !is_host(index.device()) {
        return Ok(index.clone());
    }
    if index.is_pinned() { index.to_device(tensor) } else { index.to_device_non_blocking(tensor) }
}

/// Refuses indices that are no integers of 32 or 64 bits.
fn check_integers(index: &Tensor, text: &str) -> Result<()> {
    if matches!(index.dtype(), DType::I32 | DType::I64) { Ok(()) } else { Err(invalid(text)) }
}

/// The tensor with one dimension where it has none.
fn with_dimension(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dim() == 0 { tensor.unsqueeze(0) } else { Ok(tensor.clone()) }
}

/// A list of indices as one for each element of `sizes`, which differ along `dim` only.
fn spread(index: &Tensor, sizes: &[i64], dim: usize) -> Result<Tensor> {
    let mut shape = Dims::from_elem(1, sizes.len());
    shape[dim] = index.numel();
    index.reshape(&shape)?.expand(sizes)
}
