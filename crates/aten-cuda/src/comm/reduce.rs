//! Sums of tensors on several devices.

mod parts;

use c10_core::{DeviceArg, DeviceIndex, Runtime};
use kernel_ir::{Binary, Graph};

use super::device_of;
use super::transfer::{among, copy};
use crate::base::comm_error::CommError;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::is_non_overlapping_and_dense;
use crate::launch::{self, ProgramKey, Work};
use crate::tensor::{Context, Tensor};

/// The sum of the tensors, element by element, on the device of number `destination`, the current one for `None`
/// (`torch.cuda.comm.reduce_add`). They have the same sizes and are on CUDA devices; one of them is on the destination,
/// and the sum begins with the last such. A single tensor is its own sum.
///
/// Queued on the current stream of the destination, after what is queued on those of the other devices. Where its kernels
/// reach the other devices' memory, one kernel adds up to four tensors, and large tensors come part after part by copies,
/// which use the whole link, while the parts before are added; elsewhere they are copied first. The order of the sum and
/// its rounding are the same in each way: the first, then the others one by one. Tensors of several dtypes give what
/// adding them so gives. The result is complex where the tensors are.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let (one, two) = (Tensor::full(&[3], 1, DType::F32, "cuda:0")?, Tensor::full(&[3], 2, DType::F32, "cuda:1")?);
/// let sum = comm::reduce_add(&[&one, &two], 1)?;
/// assert_eq!((sum.device().to_string().as_str(), sum.to_vec::<f32>()?), ("cuda:1", vec![3.0; 3]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There are no tensors, one is on the host or has other sizes, none is on the destination, there is not enough memory, or
/// a device failed.
pub fn reduce_add(inputs: &[&Tensor], destination: impl DeviceArg) -> Result<Tensor> {
    let destination = Runtime::with_current(|runtime| destination.resolve(runtime))?;
    reduce_to(inputs, destination)
}

/// The sum on the device of a number.
pub(super) fn reduce_to(inputs: &[&Tensor], destination: DeviceIndex) -> Result<Tensor> {
    let root = root(inputs, destination)?;
    if let [single] = inputs {
        return Ok((*single).clone());
    }
    let others = inputs.iter().enumerate().filter(|(index, _)| *index != root).map(|(_, other)| *other);
    let ordered: Vec<&Tensor> = [inputs[root]].into_iter().chain(others).collect();
    let run = || match reaches_all(&ordered, destination)? {
        true if parts::fit(&ordered)? => parts::sum(&ordered),
        true => by_kernels(&ordered),
        false => by_copies(&ordered),
    };
    run().of("reduce_add", &ordered)
}

/// The tensor that the sum begins with.
fn root(inputs: &[&Tensor], destination: DeviceIndex) -> Result<usize> {
    let first = inputs.first().ok_or(CommError::NoInputs)?;
    let mut root = None;
    for (index, input) in inputs.iter().enumerate() {
        let device = device_of(input).ok_or(CommError::InputOnHost)?;
        if device == destination {
            root = Some(index);
        }
        if input.sizes() != first.sizes() {
            let (found, expected) = (input.sizes().to_vec(), first.sizes().to_vec());
            return Err(CommError::InputSize { index, found, expected }.into());
        }
    }
    Ok(root.ok_or(CommError::Destination)?)
}

/// Whether kernels of a device reach all tensors, which are of one dtype and lie without gaps.
fn reaches_all(inputs: &[&Tensor], device: DeviceIndex) -> Result<bool> {
    // A trace has work of one device.
    if launch::record::is_on() || inputs.iter().any(|input| input.dtype() != inputs[0].dtype()) {
        return Ok(false);
    }
    if inputs[0].dtype().is_float8() {
        return Ok(false);
    }
    for input in inputs {
        let is_dense = is_non_overlapping_and_dense(input.sizes(), input.strides());
        let Some(buffer) = input.storage().buffer() else { return Ok(false) };
        if !is_dense || !buffer.let_reach(device)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tensors that one kernel adds.
const AT_ONCE: usize = 4;

/// The sum by kernels that read the tensors where they are.
fn by_kernels(inputs: &[&Tensor]) -> Result<Tensor> {
    let out = inputs[0].uninitialized_like()?;
    let device = device_of(&out).unwrap_or(0);
    among(device, inputs.iter().filter_map(|input| device_of(input)), || add_some(&out, inputs))?;
    Ok(out)
}

/// Writes the sum of the inputs, one by one, to `out`, by kernels that add a few of them each.
fn add_some(out: &Tensor, inputs: &[&Tensor]) -> Result<()> {
    let (first, rest) = inputs.split_at(inputs.len().min(AT_ONCE));
    add_all(out, first)?;
    rest.chunks(AT_ONCE - 1).try_for_each(|some| {
        let operands: Vec<&Tensor> = [out].into_iter().chain(some.iter().copied()).collect();
        add_all(out, &operands)
    })
}

/// Writes the sum of the inputs, one by one, to `out`.
fn add_all(out: &Tensor, inputs: &[&Tensor]) -> Result<()> {
    let dtype = out.dtype();
    let key = ProgramKey::new("reduce_add", (dtype as u64) << 8 | inputs.len() as u64);
    let program = launch::program(key, || {
        let mut graph = Graph::new();
        let values: Vec<_> = inputs.iter().flat_map(|_| 0..dtype.parts()).map(|_| graph.input(dtype.part())).collect();
        for part in 0..dtype.parts() {
            let mut of_part = values.iter().copied().skip(part).step_by(dtype.parts());
            let Some(mut sum) = of_part.next() else { continue };
            for value in of_part {
                // Rounded each time, as additions one by one are.
                let (left, right) =
                    (graph.convert(sum, dtype.compute_type()), graph.convert(value, dtype.compute_type()));
                let op = if dtype == DType::Bool { Binary::Or } else { Binary::Add };
                let added = graph.binary(op, left, right);
                sum = graph.convert(added, dtype.part());
            }
            graph.output(sum);
        }
        graph.finish()
    })?;
    launch::run(&Work { key, program, outputs: &[out], inputs, scalars: &[] }, out.sizes())
}

/// The sum by copies to the destination and additions there.
fn by_copies(inputs: &[&Tensor]) -> Result<Tensor> {
    let here = |other: &Tensor| -> Result<Tensor> {
        if other.device() == inputs[0].device() {
            return Ok(other.clone());
        }
        let strides = crate::ops::preserved_strides(other);
        let made = crate::tensor::empty_strided(other.sizes(), &strides, other.dtype(), inputs[0].device())?;
        copy(&made, other)?;
        Ok(made)
    };
    let sum = inputs[0].add(&here(inputs[1])?)?;
    for other in &inputs[2..] {
        sum.add_(&here(other)?)?;
    }
    Ok(sum)
}
