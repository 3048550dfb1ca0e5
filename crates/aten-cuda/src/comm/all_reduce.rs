//! Sums of tensors on several devices, on all of them, by copies over links and additions on the devices.

use std::collections::HashMap;

use c10_core::{DeviceIndex, Event};

use super::broadcast::all_reach_each_other;
use super::choice::{Movement, is_nccl};
use super::device_of;
use super::pattern::{LinkModel, Pattern, Step, steps};
use super::reduce::reduce_to;
use super::topology::Topology;
use super::transfer::{Lane, copy, is_any_capturing, with_lanes};
use crate::base::comm_error::CommError;
use crate::base::error::Result;
use crate::nccl;
use crate::tensor::{Context, Tensor, empty_strided};

/// Adds tensors of the same sizes and dtype, each on a device of its own, and writes the sum to each of them, by copies
/// between the devices and additions on them. The order of the sum depends on the pattern and may differ from element to
/// element, but all devices have the same bits. For few bytes see [`crate::symmetric::Symmetric::all_reduce_`].
///
/// The devices are put in an order in which neighbours have the best links ([`super::Topology`]). NCCL does it where
/// [`Pattern::Nccl`] says so, or [`super::measure`] has found it quicker. Queued after what is
/// queued on the current streams of the devices, and before what will be. Where devices do not reach each other, or a
/// current stream captures, the sum is made on the first tensor's device and copied to the others.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::comm::{self, Pattern};
/// use aten_cuda::{DType, Tensor};
///
/// let (one, two) = (Tensor::full(&[3], 1, DType::I64, "cuda:0")?, Tensor::full(&[3], 2, DType::I64, "cuda:1")?);
/// comm::all_reduce_(&[&one, &two], Pattern::Auto)?;
/// assert_eq!((one.to_vec::<i64>()?, two.to_vec::<i64>()?), (vec![3; 3], vec![3; 3]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There are no tensors, one is on the host, two are on one device, one has other sizes or another dtype than the first, there
/// is not enough memory, or a device failed.
pub fn all_reduce_(tensors: &[&Tensor], pattern: Pattern) -> Result<()> {
    let run = || {
        let devices = check(tensors)?;
        if tensors.len() < 2 || tensors[0].numel() == 0 {
            return Ok(());
        }
        if is_nccl(Movement::AllReduce, tensors, pattern == Pattern::Nccl)? && pattern_is_open(pattern) {
            return nccl::all_reduce(tensors, None, nccl::SUM, &nccl::Using::default());
        }
        let named: Vec<Option<DeviceIndex>> = devices.iter().copied().map(Some).collect();
        if is_any_capturing(devices.iter().copied())? || !all_reach_each_other(&named)? {
            return by_one_device(tensors, devices[0]);
        }
        let (order, worst) = Topology::of_numbers(&devices)?.order(0);
        let packed = order.iter().map(|&at| tensors[at].packed()).collect::<Result<Vec<Tensor>>>()?;
        let chosen = LinkModel::of(worst).chosen(pattern, tensors.len(), tensors[0].nbytes());
        by_steps(&packed, chosen)?;
        for (packed, &at) in packed.iter().zip(&order) {
            if packed.data_ptr() != tensors[at].data_ptr() {
                copy(tensors[at], packed)?;
            }
        }
        Ok(())
    };
    run().of("all_reduce", tensors)
}

/// Whether NCCL may be what a pattern means.
fn pattern_is_open(pattern: Pattern) -> bool {
    matches!(pattern, Pattern::Auto | Pattern::Nccl)
}

/// The devices of tensors that can be added.
fn check(tensors: &[&Tensor]) -> Result<Vec<DeviceIndex>> {
    let first = tensors.first().ok_or(CommError::NoInputs)?;
    let mut devices: Vec<DeviceIndex> = Vec::with_capacity(tensors.len());
    for (rank, tensor) in tensors.iter().enumerate() {
        let device = device_of(tensor).ok_or(CommError::InputOnHost)?;
        if devices.contains(&device) {
            return Err(CommError::RepeatedDevice { device }.into());
        }
        if tensor.sizes() != first.sizes() || tensor.dtype() != first.dtype() {
            let (found, expected) =
                ((tensor.sizes().to_vec(), tensor.dtype()), (first.sizes().to_vec(), first.dtype()));
            return Err(CommError::UnlikeTensor { rank, found, expected }.into());
        }
        devices.push(device);
    }
    Ok(devices)
}

/// The sum on the device of the first tensor, and copies of it.
fn by_one_device(tensors: &[&Tensor], device: DeviceIndex) -> Result<()> {
    let sum = reduce_to(tensors, device)?;
    tensors.iter().try_for_each(|tensor| copy(tensor, &sum))
}

/// Tensors that are added, each with a lane, and what has to be waited for.
struct Members {
    flat: Vec<Tensor>,
    lanes: Vec<Lane>,
    parts: usize,
    /// Room for a part that is to be added, on each device that adds.
    rooms: HashMap<usize, Tensor>,
    /// When a member began, and when it last had a part changed.
    changed: HashMap<(usize, Option<usize>), Event>,
    /// Copies that read a part of a member since it changed.
    read: HashMap<(usize, usize), Vec<Event>>,
}

/// Adds contiguous tensors by the steps of a pattern.
fn by_steps(tensors: &[Tensor], pattern: Pattern) -> Result<()> {
    let (parts, steps) = steps(pattern, tensors.len());
    let flat = tensors.iter().map(Tensor::flatten).collect::<Result<Vec<Tensor>>>()?;
    let lanes = tensors.iter().map(|tensor| Lane::begin(device_of(tensor).unwrap_or(0)));
    let lanes = lanes.collect::<Result<Vec<Lane>>>()?;
    let (rooms, changed, read) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut members = Members { flat, lanes, parts, rooms, changed, read };
    let done = members.run(&steps);
    let joined = with_lanes(&members.lanes, || Ok(()));
    done.and(joined)?;
    // What comes later on a device may write what others still read from it.
    let ends = members.lanes.iter().map(|lane| Ok(lane.stream().record_event()?)).collect::<Result<Vec<Event>>>()?;
    for lane in &members.lanes {
        ends.iter().try_for_each(|end| lane.joins().wait_event(end))?;
    }
    Ok(())
}

impl Members {
    fn run(&mut self, steps: &[Step]) -> Result<()> {
        for (member, lane) in self.lanes.iter().enumerate() {
            self.changed.insert((member, None), lane.stream().record_event()?);
        }
        steps.iter().try_for_each(|step| self.step(*step))
    }

    /// The elements of a part.
    fn part(&self, member: usize, part: usize) -> Result<Tensor> {
        let at = |part: usize| {
            let count = u128::try_from(self.flat[member].numel()).unwrap_or(0);
            i64::try_from(count * part as u128 / self.parts as u128).unwrap_or(i64::MAX)
        };
        self.flat[member].narrow(0, at(part), at(part + 1) - at(part))
    }

    fn step(&mut self, Step { from, to, part, adds }: Step) -> Result<()> {
        let (source, target) = (self.part(from, part)?, self.part(to, part)?);
        if source.numel() == 0 {
            return Ok(());
        }
        let room = if adds { self.room(to, &source)? } else { target.clone() };
        let lane = &self.lanes[to];
        let before = self.changed.get(&(from, Some(part))).or(self.changed.get(&(from, None)));
        before.into_iter().try_for_each(|before| lane.stream().wait_event(before))?;
        for read in self.read.remove(&(to, part)).unwrap_or_default() {
            lane.stream().wait_event(&read)?;
        }
        // A member sends one copy after the other: copies at once would share its link, and the one on which most depends would
        // come as late as the last.
        if let Some(sent) = self.read.get(&(from, part)).and_then(|copies| copies.last()) {
            lane.stream().wait_event(sent)?;
        }
        let (Some(read), Some(written)) = (source.storage().buffer(), room.storage().buffer()) else { return Ok(()) };
        let bytes = source.byte_offset()..source.byte_offset() + source.nbytes();
        written.copy_from_buffer_on(room.byte_offset(), read, bytes, lane.stream())?;
        self.read.entry((from, part)).or_default().push(lane.stream().record_event()?);
        if adds {
            lane.run(|| target.add_(&room).map(drop))?;
        } else {
            target.storage().note_write();
        }
        self.changed.insert((to, Some(part)), lane.stream().record_event()?);
        Ok(())
    }

    /// Room on a member's device for a part like this one.
    fn room(&mut self, member: usize, part: &Tensor) -> Result<Tensor> {
        let count = part.numel();
        if self.rooms.get(&member).is_none_or(|room| room.numel() < count) {
            let device = self.flat[member].device();
            let made = self.lanes[member].run(|| empty_strided(&[count], &[1], part.dtype(), device))?;
            self.rooms.insert(member, made);
        }
        self.rooms[&member].narrow(0, 0, count)
    }
}
