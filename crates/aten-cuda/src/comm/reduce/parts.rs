//! Sums of large tensors: parts are copied, while those that have come are added.
//!
//! A kernel that reads another device's memory moves less over the link than the device's copying does, by 6 % on NVLink.
//! So the tensors come part after part. Their own devices send them, since a copy begins sooner where it is queued on the
//! sender; each by two lanes in turn, so that one copy begins while the other one runs.
//!
//! **Invariant:** a lane writes to a place only after the sum of what lay there before, and the sum reads only what has
//! come.

use c10_core::{DeviceIndex, Event};

use super::super::transfer::{Lane, among, copy_part, current, is_any_capturing, with_lanes};
use super::{add_some, device_of};
use crate::base::error::Result;
use crate::tensor::{Signs, Tensor};

/// Bytes of a part. Adding the last one is not hidden, and each has its cost.
const PART: usize = 32 << 20;

/// Bytes of a tensor from which on parts are worth their cost.
const LEAST: usize = 4 * PART;

/// Lanes of a tensor.
const LANES: usize = 2;

/// Places for parts of a tensor.
const PLACES: usize = 2 * LANES;

/// Whether tensors that a device reaches are large, and lie alike, so that their bytes can be counted off alike.
pub(super) fn fit(inputs: &[&Tensor]) -> Result<bool> {
    let is_alike = |other: &&Tensor| other.strides() == inputs[0].strides() && other.signs() == Signs::PLAIN;
    if inputs[0].nbytes() < LEAST || !inputs.iter().all(is_alike) {
        return Ok(false);
    }
    Ok(!is_any_capturing(inputs.iter().filter_map(|input| device_of(input)))?)
}

/// The sum on the device of the first tensor.
pub(super) fn sum(inputs: &[&Tensor]) -> Result<Tensor> {
    let out = inputs[0].uninitialized_like()?;
    let device = device_of(&out).unwrap_or(0);
    let far: Vec<DeviceIndex> =
        inputs.iter().filter_map(|input| device_of(input)).filter(|other| *other != device).collect();
    among(device, far.clone(), || {
        let lanes = far.iter().flat_map(|&other| [other; LANES]).map(Lane::begin).collect::<Result<Vec<_>>>()?;
        let done = with_lanes(&lanes, || sum_in_turn(&out, inputs, (device, &lanes)));
        // Where something failed, copies may be under way that nothing has waited for.
        let own = current(device)?;
        lanes.iter().try_for_each(|lane| own.wait_stream(lane.stream()))?;
        done
    })?;
    Ok(out)
}

/// Copies the parts of other devices by their lanes, and adds them on the current stream.
fn sum_in_turn(out: &Tensor, inputs: &[&Tensor], (device, lanes): (DeviceIndex, &[Lane])) -> Result<()> {
    let stream = current(device)?;
    let bytes = out.dtype().itemsize();
    let (count, of_part) = (out.nbytes() / bytes, PART / bytes);
    let is_far = |input: &Tensor| device_of(input) != Some(device);
    let place = || -> Result<Vec<Option<Tensor>>> {
        let make = || Tensor::uninitialized(&[signed(of_part)], out.dtype(), out);
        inputs.iter().map(|input| is_far(input).then(make).transpose()).collect()
    };
    // The memory is taken on the current stream, which has waited for every part before it is given back.
    let places = (0..PLACES).map(|_| place()).collect::<Result<Vec<_>>>()?;
    let begun = stream.record_event()?;
    lanes.iter().try_for_each(|lane| lane.stream().wait_event(&begun))?;
    let mut added: [Option<Event>; PLACES] = [const { None }; PLACES];
    for (number, first) in (0..count).step_by(of_part).enumerate() {
        let (turn, length) = (number % PLACES, of_part.min(count - first));
        let mut of_turn = lanes.iter().skip(number % LANES).step_by(LANES);
        let mut operands = Vec::with_capacity(inputs.len());
        for (input, memory) in inputs.iter().zip(&places[turn]) {
            let (Some(memory), Some(lane)) = (memory, memory.as_ref().and_then(|_| of_turn.next())) else {
                operands.push(part_of(input, first, length)?);
                continue;
            };
            if let Some(added) = &added[turn] {
                lane.stream().wait_event(added)?;
            }
            copy_part((input, first * bytes..(first + length) * bytes), (memory, 0), lane)?;
            stream.wait_event(&lane.stream().record_event()?)?;
            operands.push(part_of(memory, 0, length)?);
        }
        add_some(&part_of(out, first, length)?, &operands.iter().collect::<Vec<_>>())?;
        added[turn] = Some(stream.record_event()?);
    }
    Ok(())
}

/// So many elements of a tensor without gaps, in the order of memory.
fn part_of(tensor: &Tensor, first: usize, length: usize) -> Result<Tensor> {
    tensor.as_strided(&[signed(length)], &[1], Some(tensor.storage_offset() + signed(first)))
}

/// A number of elements of a tensor, which is below 2^63.
const fn signed(count: usize) -> i64 {
    count.cast_signed() as i64
}
