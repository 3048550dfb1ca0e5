//! One tensor on several devices.

use std::collections::HashMap;

use c10_core::{Device, DeviceArg, DeviceIndex, Event};

use super::choice::{Movement, is_nccl};
use super::pattern::LinkModel;
use super::route::Route;
use super::topology::Topology;
use super::transfer::{Lane, copy, current, is_any_capturing, with_lanes};
use super::{as_real, device_of, not_negative, resolved, route as way};
use crate::base::comm_error::CommError;
use crate::base::error::Result;
use crate::nccl;
use crate::tensor::{Context, Tensor, empty_strided};

/// The tensor on each of `devices`, in their order (`torch.cuda.comm.broadcast(tensor, devices)`). The source may be on the
/// host. On its own device it is the tensor itself; elsewhere it is copied, with its layout, also where a device is named
/// twice. Which way copies to several devices take is [`super::set_route`]'s.
///
/// Queued on the current streams of the devices, after what is queued there. A complex tensor is broadcast as a real one
/// with a last dimension of two.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let source = Tensor::full(&[2, 3], 7, DType::I64, "cuda:1")?;
/// let copies = comm::broadcast(&source, &["cuda:0", "cuda:1"])?;
/// assert_eq!(copies[0].device().to_string(), "cuda:0");
/// assert_eq!((copies[0].to_vec::<i64>()?, copies[1].data_ptr()), (vec![7; 6], source.data_ptr()));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// A number is below zero or names no device, the tensor is a conjugate, there is not enough memory, or a device failed.
pub fn broadcast<D: DeviceArg + Clone>(tensor: &Tensor, devices: &[D]) -> Result<Vec<Tensor>> {
    broadcast_to(&as_real(tensor)?, &resolved(devices)?)
}

/// The tensor on devices of these numbers.
pub(super) fn broadcast_to(tensor: &Tensor, devices: &[DeviceIndex]) -> Result<Vec<Tensor>> {
    let own = device_of(tensor);
    let strides = crate::ops::preserved_strides(tensor);
    let made = |&device: &DeviceIndex| match not_negative(device)? {
        device if Some(device) == own => Ok(tensor.clone()),
        device => empty_strided(tensor.sizes(), &strides, tensor.dtype(), Device::cuda(device)),
    };
    let run = || {
        let results = devices.iter().map(made).collect::<Result<Vec<Tensor>>>()?;
        let copied: Vec<&Tensor> = results.iter().filter(|result| device_of(result) != own).collect();
        send(tensor, &copied)?;
        Ok(results)
    };
    run().of("broadcast", &[tensor])
}

/// Copies the tensor into each of `out` (`torch.cuda.comm.broadcast(tensor, out=out)`), converted to its dtype and laid out
/// as it is.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let out = [Tensor::zeros(&[3], DType::F32, "cuda:0")?, Tensor::zeros(&[3], DType::F32, "cuda:1")?];
/// comm::broadcast_out(&Tensor::ones(&[3], DType::F32, "cuda:0")?, &[&out[0], &out[1]])?;
/// assert_eq!(out[1].to_vec::<f32>()?, [1.0; 3]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// An output is on the host or has other sizes, several of its elements lie at one place, there is not enough memory, or a
/// device failed.
pub fn broadcast_out(tensor: &Tensor, out: &[&Tensor]) -> Result<()> {
    let tensor = as_real(tensor)?;
    for (index, out) in out.iter().enumerate() {
        if !out.is_cuda() {
            return Err(CommError::OutputDevice { index, device: out.device() }.into());
        }
        if out.sizes() != tensor.sizes() {
            let (found, expected) = (out.sizes().to_vec(), tensor.sizes().to_vec());
            return Err(CommError::OutputShape { index, found, expected }.into());
        }
    }
    send(&tensor, out).of("broadcast", &[&tensor])
}

/// Copies a tensor to each of several.
fn send(tensor: &Tensor, to: &[&Tensor]) -> Result<()> {
    let is_alike = |other: &&Tensor| {
        other.dtype() == tensor.dtype() && other.strides() == tensor.strides() && other.signs() == tensor.signs()
    };
    let dense = crate::base::shape::is_non_overlapping_and_dense(tensor.sizes(), tensor.strides());
    let is_whole = dense && to.iter().all(is_alike) && tensor.nbytes() > 0;
    let mut devices: Vec<Option<DeviceIndex>> = to.iter().map(|to| device_of(to)).chain([device_of(tensor)]).collect();
    devices.sort_unstable();
    devices.dedup();
    // Ways through other devices are for bytes as they are, each device once.
    let is_ring = is_whole && to.len() > 1 && devices.len() == to.len() + 1 && tensor.is_cuda();
    let all: Vec<&Tensor> = [tensor].into_iter().chain(to.iter().copied()).collect();
    if is_whole && is_nccl(Movement::Broadcast, &all, way::route() == Route::Nccl)? {
        return nccl::broadcast(&all, 0, &nccl::Using::default());
    }
    if !is_ring || is_any_capturing(devices.iter().flatten().copied())? || !all_reach_each_other(&devices)? {
        return to.iter().try_for_each(|to| copy(to, tensor));
    }
    by_hops(tensor, to)
}

/// Whether all devices reach each other's memory.
pub(super) fn all_reach_each_other(devices: &[Option<DeviceIndex>]) -> Result<bool> {
    c10_core::Runtime::with_current(|runtime| {
        for &one in devices.iter().flatten() {
            for &other in devices.iter().flatten() {
                if !runtime.devices().can_access_peer(one, other)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })
}

/// Copies the bytes of a tensor along a way, each device by a lane of its own.
fn by_hops(tensor: &Tensor, to: &[&Tensor]) -> Result<()> {
    let bytes = tensor.nbytes();
    let devices: Vec<DeviceIndex> = [tensor].iter().chain(to).filter_map(|tensor| device_of(tensor)).collect();
    // Neighbours on the way have the best links.
    let (order, worst) = Topology::of_numbers(&devices)?.order(0);
    let plan = way::plan(way::route(), LinkModel::of(worst), bytes, to.len());
    let to: Vec<&Tensor> = order[1..].iter().map(|&at| to[at - 1]).collect();
    let member = |number: usize| if number == 0 { tensor } else { to[number - 1] };
    // Nothing of the source's device is queued yet that has to come first, but what its current stream has.
    let source = current(device_of(tensor).unwrap_or(0))?;
    let begun = source.record_event()?;
    let lanes = to.iter().map(|to| Lane::begin(device_of(to).unwrap_or(0))).collect::<Result<Vec<Lane>>>()?;
    with_lanes(&lanes, || {
        lanes.iter().try_for_each(|lane| lane.stream().wait_event(&begun))?;
        let mut arrived: HashMap<(usize, usize), Event> = HashMap::new();
        for hop in &plan.hops {
            let lane = &lanes[hop.to - 1];
            if let Some(arrived) = arrived.get(&(hop.from, hop.part)) {
                lane.stream().wait_event(arrived)?;
            }
            let (start, end) = (hop.part * plan.part, bytes.min((hop.part + 1) * plan.part));
            copy_part(member(hop.from), member(hop.to), start..end, lane)?;
            arrived.insert((hop.to, hop.part), lane.stream().record_event()?);
        }
        Ok(())
    })?;
    // What comes later on a device may write what others still read from it.
    let ends = lanes.iter().map(|lane| Ok(lane.stream().record_event()?)).collect::<Result<Vec<Event>>>()?;
    for stream in lanes.iter().map(Lane::joins).chain([&source]) {
        ends.iter().try_for_each(|end| stream.wait_event(end))?;
    }
    Ok(())
}

/// Copies some bytes of one tensor to the same place of another, on a lane.
fn copy_part(from: &Tensor, to: &Tensor, range: std::ops::Range<usize>, lane: &Lane) -> Result<()> {
    let (Some(source), Some(target)) = (from.storage().buffer(), to.storage().buffer()) else { return Ok(()) };
    to.storage().note_write();
    let read = from.byte_offset() + range.start..from.byte_offset() + range.end;
    Ok(target.copy_from_buffer_on(to.byte_offset() + range.start, source, read, lane.stream())?)
}
