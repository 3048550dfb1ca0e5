//! Launches of `kernels/ordered.cu`: elements written and added at indexed places in the order of the index.
//!
//! # Safety
//! A kernel reads and writes where the plan, the sorted keys and the places lead it. The plan is made of the tensors' own
//! sizes and strides; keys that are not below [`Lists::size`] are not used, and places are those of a sort of `n` keys.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use c10_core::{Arg, DeviceIndex, Runtime};

use super::index::{Along, packed_along, plan};
use super::{Packed, Text, memory, row, whole};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::iterate::Iteration;
use crate::launch::record;
use crate::report;
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "ordered", ptx: include_str!("../../../kernels/ordered.ptx") };

const THREADS: u32 = 256;

/// Lists of elements for places in a tensor. Views have the sizes of what lies beside the lists, and the first element of
/// a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lists<'a> {
    /// The tensor that is written.
    pub(crate) pointed: &'a Tensor,
    /// The tensor that is read.
    pub(crate) other: &'a Tensor,
    /// Sorted keys of all lists, `i32` or `i64`, one list after another.
    pub(crate) keys: &'a Tensor,
    /// For each key the place in its list that it had before it was sorted.
    pub(crate) places: &'a Tensor,
    /// `places` as a view like the others.
    pub(crate) first_places: &'a Tensor,
    /// Elements of a list.
    pub(crate) n: i64,
    /// Elements from one place of the tensor that is written to the next.
    pub(crate) stride: i64,
    /// Elements from one element of a list to the next in the tensor that is read.
    pub(crate) step: i64,
    /// How many places there are.
    pub(crate) size: i64,
}

/// Copies indices to contiguous keys of the same sizes, which are of 32 bits where `along` has no more places. An index
/// that is out of range is reported and becomes the key behind the last place.
pub(crate) fn keys(index: &Tensor, along: &Along) -> Result<Tensor> {
    let dtype = if i32::try_from(along.size).is_ok() { DType::I32 } else { DType::I64 };
    let keys = Tensor::uninitialized(index.sizes(), dtype, index)?;
    make_keys(&keys, index, *along)?;
    Ok(keys)
}

fn make_keys(keys: &Tensor, index: &Tensor, along: Along) -> Result<()> {
    if record::call("keys", (&[keys], &[index]), along.detail(0), move |outputs, inputs| {
        let ([keys], [index]) = (outputs, inputs) else { return Ok(()) };
        make_keys(keys, index, along)
    })? {
        return Ok(());
    }
    let iteration = Iteration::new(index.sizes(), &[keys, index], false);
    let (plan, along) = (plan(&iteration)?, packed_along(&along, 0, index, false));
    let device = device(index)?;
    let slot = Runtime::with_current(|runtime| report::slot(runtime, device))?;
    let arguments = [memory(keys)?, whole(index)?, plan.argument(), along.argument(), Arg::U64(slot)];
    let kernel = if keys.dtype() == DType::I32 { "keys_4" } else { "keys_8" };
    // SAFETY: the plan is of these two tensors; the slot of reports lives as long as the runtime.
    unsafe { super::launch(&TEXT, kernel, device, &row(iteration.numel.unsigned_abs(), THREADS)?, &arguments)? };
    Ok(())
}

/// Writes the last element for each place.
pub(crate) fn write(lists: &Lists<'_>) -> Result<()> {
    let names = ["write_1", "write_2", "write_4", "write_8", "write_16"];
    queue(lists, names[lists.pointed.element_size().trailing_zeros() as usize])
}

/// Adds the elements for each place, floats or complex numbers, one after another.
pub(crate) fn add(lists: &Lists<'_>) -> Result<()> {
    let kernel = match lists.pointed.dtype() {
        DType::F16 => "add_half",
        DType::BF16 => "add_brain",
        DType::F32 => "add_float",
        DType::F64 => "add_double",
        DType::C32 => "add_half_pair",
        DType::C64 => "add_float_pair",
        DType::C128 => "add_double_pair",
        dtype => return Err(invalid(format!("{dtype} is added in any order"))),
    };
    queue(lists, kernel)
}

/// Adds the elements for each place, floats of 16 bits or pairs of them, in 32 bits, and rounds once.
pub(crate) fn sum(lists: &Lists<'_>) -> Result<()> {
    let kernel = match lists.pointed.dtype() {
        DType::F16 => "sum_half",
        DType::BF16 => "sum_brain",
        DType::C32 => "sum_half_pair",
        _ => return add(lists),
    };
    queue(lists, kernel)
}

fn queue(lists: &Lists<'_>, kernel: &'static str) -> Result<()> {
    let Lists { pointed, other, keys, places, first_places, n, stride, step, size } = *lists;
    let detail = [n, stride, step, size].map(i64::cast_unsigned).to_vec();
    let inputs = [pointed, other, keys, places, first_places];
    if record::call(kernel, (&[pointed], &inputs), detail, move |outputs, inputs| {
        let ([pointed], [_, other, keys, places, first_places]) = (outputs, inputs) else { return Ok(()) };
        queue(&Lists { pointed, other, keys, places, first_places, n, stride, step, size }, kernel)
    })? {
        return Ok(());
    }
    debug_assert!(keys.is_contiguous() && places.is_contiguous(), "keys and places were sorted");
    let iteration = Iteration::new(pointed.sizes(), &[pointed, other, first_places], false);
    let width = i64::try_from(pointed.element_size()).unwrap_or(0);
    let too_large = || TensorError::TooLarge { sizes: pointed.sizes().iter().copied().chain([n]).collect() };
    let threads = iteration.numel.checked_mul(n).ok_or_else(too_large)?;
    let mut list = Packed::default();
    [n, stride * width, step * width, size].into_iter().for_each(|number| list.word(number));
    list.half(i32::try_from(keys.element_size()).unwrap_or(0));
    list.half(i32::from(iteration.strides[1][0] != width));
    list.half(i32::from(keys.numel() == n));
    list.half(0);
    let plan = plan(&iteration)?;
    let [to, from] = [pointed, other].map(beginning);
    let arguments = [to?, memory(keys)?, memory(places)?, from?, plan.argument(), list.argument()];
    // SAFETY: the plan is of these tensors, and keys below `size` lead to elements of the tensor that is written.
    unsafe { super::launch(&TEXT, kernel, device(keys)?, &row(threads.unsigned_abs(), THREADS)?, &arguments)? };
    Ok(())
}

/// The memory from a view's first element to the end of the storage.
fn beginning(view: &Tensor) -> Result<Arg<'_>> {
    let buffer = view.plain_storage()?.buffer().ok_or_else(|| invalid("the tensor is on the host"))?;
    Ok(Arg::range(buffer, view.byte_offset()..view.storage().nbytes()))
}

fn device(tensor: &Tensor) -> Result<DeviceIndex> {
    let buffer = tensor.storage().buffer().ok_or_else(|| invalid("the tensor is on the host"))?;
    Ok(buffer.device_index())
}
