//! Sums of tensors on several devices.

use c10_core::{DeviceArg, DeviceIndex, Event, Runtime};
use kernel_ir::{Binary, Graph};

use super::choice::{Movement, is_nccl, reduce_by_nccl};
use super::device_of;
use super::pattern::LinkModel;
use super::route::{self as way, Route};
use super::topology::{LinkClass, Topology};
use super::transfer::{Lane, among, copy, is_any_capturing, with_lanes};
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
/// reach the other devices' memory, one kernel adds up to four tensors; elsewhere they are copied first. Of more than two
/// large tensors each device adds its own to what the one before hands on, if that is quicker on their links, or
/// [`Route::Chain`] says so. The order of the
/// sum and its rounding are the same in all of these: the first, then the others one by one. NCCL, which is used where
/// [`Route::Nccl`] says so or [`super::measure`] has found it quicker, adds in an order of its own. Tensors of several dtypes give
/// what adding them so gives. The result is complex where the tensors are.
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
    if is_nccl(Movement::ReduceAdd, inputs, way::route() == Route::Nccl)? {
        return reduce_by_nccl(inputs, root).of("reduce_add", inputs);
    }
    reduce_here(inputs, destination)
}

/// The sum on the device of a number, without NCCL.
pub(super) fn reduce_here(inputs: &[&Tensor], destination: DeviceIndex) -> Result<Tensor> {
    let root = root(inputs, destination)?;
    let others = inputs.iter().enumerate().filter(|(index, _)| *index != root).map(|(_, other)| *other);
    let ordered: Vec<&Tensor> = [inputs[root]].into_iter().chain(others).collect();
    let run = || {
        if goes_by_chain(&ordered)? {
            return by_chain(&ordered);
        }
        if reaches_all(&ordered, destination)? { by_kernels(&ordered) } else { by_copies(&ordered) }
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

/// Whether a sum goes along a chain: there are more than two tensors, each whole on a device of its own that reaches the
/// others, and either a chain is named or their links take less time so.
fn goes_by_chain(inputs: &[&Tensor]) -> Result<bool> {
    let route = way::route();
    let bytes = inputs[0].nbytes();
    if inputs.len() < 3 || bytes == 0 || !matches!(route, Route::Auto | Route::Chain) || launch::record::is_on() {
        return Ok(false);
    }
    let is_alike = |other: &&Tensor| {
        other.dtype() == inputs[0].dtype() && other.is_contiguous() && !other.is_conj() && !other.is_neg()
    };
    let devices: Vec<DeviceIndex> = inputs.iter().filter_map(|input| device_of(input)).collect();
    let is_repeated = |at: usize| devices[..at].contains(&devices[at]);
    if inputs[0].dtype().is_float8() || !inputs.iter().all(is_alike) || (1..devices.len()).any(is_repeated) {
        return Ok(false);
    }
    let topology = Topology::of_numbers(&devices)?;
    let worst = worst_of_star_and_chain(&topology, devices.len());
    let is_quicker = || way::plan(Route::Auto, LinkModel::of(worst), bytes, inputs.len() - 1).is_chain;
    Ok(worst != LinkClass::Host && !is_any_capturing(devices)? && (route == Route::Chain || is_quicker()))
}

/// The worst link among those from one device to the next, and back to the first.
fn worst_of_star_and_chain(topology: &Topology, count: usize) -> LinkClass {
    (0..count).map(|at| topology.class(at, (at + 1) % count)).max().unwrap_or(LinkClass::Host)
}

/// The sum along a chain: each device adds its own to what comes, part by part, and hands it on; the last one's goes to the
/// first device. The order of the sum, and its rounding, are those of [`by_kernels`].
fn by_chain(inputs: &[&Tensor]) -> Result<Tensor> {
    let out = inputs[0].uninitialized_like()?;
    let flat = inputs.iter().map(|input| input.flatten()).collect::<Result<Vec<Tensor>>>()?;
    let lanes = inputs.iter().map(|input| Lane::begin(device_of(input).unwrap_or(0)));
    let lanes = lanes.collect::<Result<Vec<Lane>>>()?;
    let begun = lanes.iter().map(|lane| Ok(lane.joins().record_event()?)).collect::<Result<Vec<Event>>>()?;
    with_lanes(&lanes, || {
        lanes.iter().try_for_each(|lane| begun.iter().try_for_each(|begun| lane.stream().wait_event(begun)))?;
        let room = |at: usize| lanes[at].run(|| flat[at].uninitialized_like());
        let rooms = (1..flat.len()).map(room).chain([out.flatten()]).collect::<Result<Vec<Tensor>>>()?;
        let step = i64::try_from(way::PART / out.dtype().itemsize()).unwrap_or(i64::MAX);
        for start in (0..out.numel()).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let length = step.min(out.numel() - start);
            let mut from = flat[0].narrow(0, start, length)?;
            let mut arrived: Option<Event> = None;
            for at in 1..=flat.len() {
                let (own, lane) = (rooms[at - 1].narrow(0, start, length)?, &lanes[at % flat.len()]);
                arrived.iter().try_for_each(|arrived| lane.stream().wait_event(arrived))?;
                take(&from, &own, lane)?;
                if let Some(input) = flat.get(at) {
                    let input = input.narrow(0, start, length)?;
                    lane.run(|| own.add_(&input).map(drop))?;
                }
                arrived = Some(lane.stream().record_event()?);
                from = own;
            }
        }
        Ok(())
    })?;
    // What comes later on a device may write what others still read from it.
    let ends = lanes.iter().map(|lane| Ok(lane.stream().record_event()?)).collect::<Result<Vec<Event>>>()?;
    for lane in &lanes {
        ends.iter().try_for_each(|end| lane.joins().wait_event(end))?;
    }
    Ok(out)
}

/// Copies the bytes of one tensor to another of as many, on a lane.
fn take(from: &Tensor, to: &Tensor, lane: &Lane) -> Result<()> {
    let (Some(source), Some(target)) = (from.storage().buffer(), to.storage().buffer()) else { return Ok(()) };
    to.storage().note_write();
    let read = from.byte_offset()..from.byte_offset() + from.nbytes();
    Ok(target.copy_from_buffer_on(to.byte_offset(), source, read, lane.stream())?)
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
    among(device, inputs.iter().filter_map(|input| device_of(input)), || {
        let (first, rest) = inputs.split_at(inputs.len().min(AT_ONCE));
        add_all(&out, first)?;
        rest.chunks(AT_ONCE - 1).try_for_each(|some| {
            let operands: Vec<&Tensor> = [&out].into_iter().chain(some.iter().copied()).collect();
            add_all(&out, &operands)
        })
    })?;
    Ok(out)
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
