//! Rows on a device: one kernel, or for few long rows two.

use c10_core::{Device, LaunchConfig};
use kernel_ir::reduce::{self, Meta, Numbers, Reduction, Schedule};
use kernel_ir::{GraphError, Type};

use super::plan::{self, Plan};
use super::{Frame, Part, RowWork};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::base::shape::{self, Dims, contiguous_strides};
use crate::launch::device::{self, Step};
use crate::launch::module::Written;
use crate::launch::prepared::Whose;
use crate::launch::{Keeps, Prepared};
use crate::storage::Storage;
use crate::tensor::Tensor;

/// Launches the kernels on the current stream of the device. Launches that are kept are the answer.
pub(super) fn run(
    work: &RowWork<'_>,
    frame: &Frame,
    parts: &[Part<'_>],
    device: Device,
    keeps: Keeps,
) -> Result<Option<Box<Prepared>>> {
    let plan = plan::plan(&work.reduction, frame, parts);
    if plan.parts == 1 {
        let strides = strides(frame, parts, &[]);
        let step = (Step::Whole, keeps);
        return launch(work, &work.reduction, step, &plan, frame, (parts, &strides), device);
    }
    split(work, frame, parts, &plan, (device, keeps))
}

/// Parts of rows first, then what they came to.
fn split(
    work: &RowWork<'_>,
    frame: &Frame,
    parts: &[Part<'_>],
    plan: &Plan,
    (device, keeps): (Device, Keeps),
) -> Result<Option<Box<Prepared>>> {
    let outputs = work.reduction.output_types().len();
    let partial = work.reduction.partial()?;
    let types = partial.output_types();
    let made = scratch(plan.parts, frame.counts().0, &types, device)?;
    let bytes = made.first().map_or(0, |tensor| tensor.storage().nbytes());
    let stored: Vec<Part<'_>> = types
        .iter()
        .zip(&made)
        .enumerate()
        .map(|(operand, (&ty, tensor))| Part { tensor, operand, offset: tensor.byte_offset(), ty, is_turned: false })
        .collect();
    let first: Vec<Part<'_>> = stored.iter().chain(&parts[outputs..]).cloned().collect();
    let mut strides = strides(frame, &first[types.len()..], &types);
    let contiguous = contiguous_strides_of(frame);
    for (own, ty) in strides.iter_mut().zip(&types) {
        let bytes = i64::try_from(ty.bytes()).unwrap_or(0);
        own[..contiguous.len()].copy_from_slice(&contiguous.iter().map(|stride| stride * bytes).collect::<Vec<_>>());
        if let Some(over_parts) = own.last_mut() {
            *over_parts = frame.kept.numel * bytes;
        }
    }
    let partly = launch(work, &partial, (Step::Partial, keeps), plan, frame, (&first, &strides), device)?;
    let merged = merge(work, frame, parts, &stored, (device, keeps))?;
    // The results of the first launch are the last operands of the second.
    let of_first = |buffer: usize| match buffer.checked_sub(types.len()) {
        Some(input) => Whose::Operand(parts[outputs + input].operand),
        None => Whose::Scratch,
    };
    let of_second =
        |buffer: usize| parts[..outputs].get(buffer).map_or(Whose::Scratch, |part| Whose::Operand(part.operand));
    let both = partly.zip(merged);
    Ok(both.map(|(partly, merged)| partly.over(of_first).then(*merged.over(of_second), (bytes, device))))
}

/// From the accumulators of parts, laid out part by part, to the results.
fn merge(
    work: &RowWork<'_>,
    frame: &Frame,
    parts: &[Part<'_>],
    stored: &[Part<'_>],
    (device, keeps): (Device, Keeps),
) -> Result<Option<Box<Prepared>>> {
    let outputs = work.reduction.output_types().len();
    let reduction = work.reduction.merge()?;
    let first = stored.first().map(|part| part.tensor.sizes()[0]).unwrap_or(0);
    let mut merged = Frame { kept: frame.kept.clone(), reduced: frame.kept.clone() };
    merged.reduced.numel = first;
    merged.reduced.sizes = Dims::from_elem(first, 1);
    let contiguous = contiguous_strides_of(frame);
    merged.kept.strides.truncate(0);
    merged.reduced.strides.clear();
    let mut operands: Vec<Part<'_>> = Vec::new();
    for part in &parts[..outputs] {
        merged.kept.strides.push(frame.kept.strides[part.operand].clone());
        merged.reduced.strides.push(Dims::from_elem(0, 1));
        operands.push(Part { operand: operands.len(), ..part.clone() });
    }
    for part in stored {
        let bytes = i64::try_from(part.ty.bytes()).unwrap_or(0);
        merged.kept.strides.push(contiguous.iter().map(|stride| stride * bytes).collect());
        merged.reduced.strides.push(Dims::from_elem(frame.kept.numel * bytes, 1));
        operands.push(Part { operand: operands.len(), ..part.clone() });
    }
    let plan = plan::plan_whole(&reduction, &merged, &operands);
    let strides = strides(&merged, &operands, &[]);
    launch(work, &reduction, (Step::Merge, keeps), &plan, &merged, (&operands, &strides), device)
}

/// Strides, in elements, of rows one after another in the order of the frame.
fn contiguous_strides_of(frame: &Frame) -> Dims {
    let mut stride = 1;
    frame
        .kept
        .sizes
        .iter()
        .map(|size| {
            let own = stride;
            stride *= size;
            own
        })
        .collect()
}

/// What each accumulator of a row begins at a multiple of, so that none shares a line of the cache with another.
const ALIGNMENT: usize = 512;

/// Memory for the accumulators of each part of each row, one after another in one storage.
fn scratch(parts: u64, rows: u64, types: &[Type], device: Device) -> Result<Vec<Tensor>> {
    let sizes = [i64::try_from(parts).unwrap_or(i64::MAX), i64::try_from(rows).unwrap_or(i64::MAX)];
    let numel = usize::try_from(shape::checked_numel(&sizes)?).unwrap_or(usize::MAX);
    // `numel` is at most a sixteenth of `i64::MAX`, so rounding up does not overflow.
    let bytes_of = |ty: &Type| numel.saturating_mul(dtype_of(*ty).itemsize()).next_multiple_of(ALIGNMENT);
    let storage = Storage::new(types.iter().map(bytes_of).sum(), device)?;
    let mut start = 0;
    let made = types.iter().map(|ty| {
        let (dtype, own) = (dtype_of(*ty), start);
        start += bytes_of(ty);
        let offset = i64::try_from(own / dtype.itemsize()).unwrap_or(i64::MAX);
        let strides = contiguous_strides(&sizes);
        Tensor::view_of(storage.clone(), dtype, Dims::from_slice(&sizes), strides, offset)
    });
    made.collect()
}

fn dtype_of(ty: Type) -> DType {
    if ty.bytes() == 8 { DType::F64 } else { DType::F32 }
}

/// The strides of each operand over rows, elements and parts; zeros for the first ones, which are not of the frame.
fn strides(frame: &Frame, parts: &[Part<'_>], new: &[Type]) -> Vec<Vec<i64>> {
    let length = frame.kept.sizes.len() + frame.reduced.sizes.len() + 1;
    let known = parts.iter().map(|part| {
        let (kept, reduced) = (&frame.kept.strides[part.operand], &frame.reduced.strides[part.operand]);
        kept.iter().chain(reduced).copied().chain([0]).collect()
    });
    new.iter().map(|_| vec![0; length]).chain(known).collect()
}

fn launch(
    work: &RowWork<'_>,
    reduction: &Reduction,
    (step, keeps): (Step, Keeps),
    plan: &Plan,
    frame: &Frame,
    (parts, strides): (&[Part<'_>], &[Vec<i64>]),
    device: Device,
) -> Result<Option<Box<Prepared>>> {
    let (rows, extent) = frame.counts();
    let mut schedule = plan.schedule.for_target(device::target(device)?);
    if work.key.is_fused() {
        schedule = schedule.for_fused(reduction, extent);
    }
    let unsigned = |sizes: &[i64]| -> Vec<u64> { sizes.iter().map(|&size| size.unsigned_abs()).collect() };
    let (kept, reduced) = (unsigned(&frame.kept.sizes), unsigned(&frame.reduced.sizes));
    let (part, scalars) = (plan.part, work.scalars);
    let numbers = Numbers { rows, extent, part, scalars, kept: &kept, reduced: &reduced, strides };
    let numbers = Meta::of(reduction, &schedule).write(&numbers);
    let too_large = || TensorError::TooLarge { sizes: frame.kept.sizes.to_vec() };
    let blocks = u32::try_from(rows.div_ceil(schedule.rows_of_block())).map_err(|_| too_large())?;
    let over_parts = u32::try_from(plan.parts).map_err(|_| too_large())?;
    let block = [u32::from(schedule.block()), 1, 1];
    let config = LaunchConfig { grid: [blocks, over_parts, 1], block, shared_bytes: 0 };
    let write = || written(reduction, &schedule, work.key.operation);
    let parts = (parts, reduction.output_types().len());
    let key = (work.key, device::Plan::Rows(schedule, step), device);
    device::run_rows(key, write, parts, (&numbers, &config), keeps)
}

/// The text of a kernel; where that is of a fused program and long, with a shorter one for the first launches.
fn written(reduction: &Reduction, schedule: &Schedule, name: &str) -> std::result::Result<Written, GraphError> {
    let (text, _) = reduce::write(reduction, schedule, name)?;
    if !schedule.fused || !schedule.is_long(&text) {
        return Ok(text.into());
    }
    let short = schedule.shortened();
    let (first, _) = reduce::write(reduction, &short, name)?;
    if first.len() >= text.len() {
        return Ok(text.into());
    }
    Ok(Written { text, sooner: Some((first, u32::from(short.block() / schedule.block()))) })
}
