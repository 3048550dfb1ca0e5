//! Launches of `kernels/index.cu`: elements moved by index, and accumulated.
//!
//! # Safety
//! A kernel reads and writes where the plan and the indices lead it. The plan is made of the tensors' own sizes and
//! strides; an index outside `Along::size` is left out by the kernel, and the caller says which tensor `size` and
//! `stride` are of.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use c10_core::{Arg, DeviceBuffer, DeviceIndex, Runtime};
use smallvec::SmallVec;

use super::{Packed, Text};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::shape::Dims;
use crate::iterate::Iteration;
use crate::launch::record;
use crate::report::{self, Reporter};
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "index", ptx: include_str!("../../../kernels/index.ptx") };

/// Dimensions of a plan.
const RANK: usize = 16;
const THREADS: u32 = 256;

/// The dimension that indices are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    /// How many places it has.
    pub(crate) size: i64,
    /// Elements from one place to the next.
    pub(crate) stride: i64,
    /// Whether negative indices count from the end.
    pub(crate) wraps: bool,
    /// Who uses the indices.
    pub(crate) operation: Reporter,
}

impl Along {
    /// Tells calls apart that are written down.
    pub(super) fn detail(&self, call: u64) -> Vec<u64> {
        let Self { size, stride, wraps, operation } = *self;
        vec![call, size.cast_unsigned(), stride.cast_unsigned(), u64::from(wraps), operation as u64]
    }
}

/// What is done with the elements that indices point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// They are read: `other` is written.
    Gather,
    /// They are written from `other`.
    Scatter,
    /// `other` is added to them.
    Add,
}

/// A tensor that indices point into, with what goes along. Index, `pointed` and `other` have the same sizes; the first
/// element of `pointed` is that of the tensor, which it does not go through along the dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Indexed<'a> {
    pub(crate) pointed: &'a Tensor,
    pub(crate) along: Along,
    pub(crate) index: &'a Tensor,
    pub(crate) other: &'a Tensor,
}

/// Moves or adds the elements on a device.
pub(crate) fn run(indexed: &Indexed<'_>, action: Action) -> Result<()> {
    let Indexed { pointed, along, index, other } = *indexed;
    let outer: [&Tensor; 3] = match action {
        Action::Gather => [other, index, pointed],
        Action::Scatter | Action::Add => [pointed, index, other],
    };
    let mut iteration = Iteration::new(index.sizes(), &outer, false);
    if iteration.numel == 0 {
        return Ok(());
    }
    if is_recorded(indexed, action)? {
        return Ok(());
    }
    let mut width = pointed.element_size();
    let step = along.stride * bytes(width);
    let kernel = match action {
        Action::Add => adder(pointed.dtype()),
        Action::Gather | Action::Scatter => {
            let bases = [outer[0].data_ptr(), outer[2].data_ptr()];
            width = widen(&mut iteration, width, &[0, 2], Some(1), bases, step);
            let names: [&str; 5] = match action {
                Action::Gather => ["gather_1", "gather_2", "gather_4", "gather_8", "gather_16"],
                _ => ["scatter_1", "scatter_2", "scatter_4", "scatter_8", "scatter_16"],
            };
            names[width.trailing_zeros() as usize]
        }
    };
    let plan = plan(&iteration)?;
    let along = packed_along(&along, step, index, false);
    launch(kernel, iteration.numel, &outer, &[&plan, &along], true)
}

/// Writes the move down where a trace is under way.
fn is_recorded(indexed: &Indexed<'_>, action: Action) -> Result<bool> {
    let Indexed { pointed, along, index, other } = *indexed;
    let detail = along.detail(action as u64);
    if action == Action::Gather {
        return record::call("gather", (&[other], &[pointed, index]), detail, move |outputs, inputs| {
            let ([other], [pointed, index]) = (outputs, inputs) else { return Ok(()) };
            run(&Indexed { pointed, along, index, other }, action)
        });
    }
    // What is pointed to keeps the elements that no index points to.
    record::call("scatter", (&[pointed], &[pointed, index, other]), detail, move |outputs, inputs| {
        let ([pointed], [_, index, other]) = (outputs, inputs) else { return Ok(()) };
        run(&Indexed { pointed, along, index, other }, action)
    })
}

/// Adds an index times a number of elements to combined places, or begins them.
pub(crate) fn combine(places: &Tensor, index: &Tensor, along: Along, first: bool) -> Result<()> {
    let iteration = Iteration::new(places.sizes(), &[places, index], false);
    if iteration.numel == 0 {
        return Ok(());
    }
    if record::call("combine", (&[places], &[places, index]), along.detail(first.into()), move |outputs, inputs| {
        let ([places], [_, index]) = (outputs, inputs) else { return Ok(()) };
        combine(places, index, along, first)
    })? {
        return Ok(());
    }
    let plan = plan(&iteration)?;
    let along = packed_along(&along, along.stride, index, first);
    launch("combine", iteration.numel, &[places, index], &[&plan, &along], true)
}

/// Reports indices of 64 bits that are outside `size`, but for `none`, as the operation.
pub(crate) fn check_places(index: &Tensor, size: i64, none: i64, operation: Reporter) -> Result<()> {
    let iteration = Iteration::new(index.sizes(), &[index], false);
    if iteration.numel == 0 {
        return Ok(());
    }
    let detail = vec![size.cast_unsigned(), none.cast_unsigned(), operation as u64];
    if record::call("check_places", (&[], &[index]), detail, move |_, inputs| {
        inputs.iter().try_for_each(|index| check_places(index, size, none, operation))
    })? {
        return Ok(());
    }
    let plan = plan(&iteration)?;
    let along = packed_along(&Along { size, stride: 0, wraps: false, operation }, 0, index, false);
    let mut none_packed = Packed::default();
    none_packed.word(none);
    launch("check_places", iteration.numel, &[index], &[&plan, &along, &none_packed], true)
}

/// Copies elements along other steps than the source's own: of each dimension that is named from its end to its
/// beginning. The source has elements; both tensors have the same sizes.
pub(crate) fn reversed(out: &Tensor, source: &Tensor, dims: &[usize]) -> Result<()> {
    let own = dims.to_vec();
    let detail = dims.iter().map(|&dim| dim as u64).collect();
    if record::pure_call("flip", (&[out], &[source]), detail, move |outputs, inputs| {
        let ([out], [source]) = (outputs, inputs) else { return Ok(()) };
        reversed(out, source, &own)
    })? {
        return Ok(());
    }
    let width = source.element_size();
    let strides = |tensor: &Tensor| tensor.strides().iter().rev().map(|stride| stride * bytes(width)).collect();
    let mut iteration = Iteration {
        numel: source.numel(),
        sizes: source.sizes().iter().rev().copied().collect(),
        strides: SmallVec::from_iter([strides(out), strides(source)]),
    };
    let mut start = source.storage_offset();
    for &dim in dims {
        let at = source.dim() - 1 - dim;
        iteration.strides[1][at] = -iteration.strides[1][at];
        start += (source.sizes()[dim] - 1) * source.strides()[dim];
    }
    if iteration.sizes.is_empty() {
        iteration.sizes.push(1);
        iteration.strides.iter_mut().for_each(|strides| strides.push(bytes(width)));
    }
    let mut iteration = iteration.joined();
    let one = Dims::from_elem(1, 1);
    let from = source.with_layout(one.clone(), one, start)?;
    let width = widen(&mut iteration, width, &[0, 1], None, [out.data_ptr(), from.data_ptr()], 0);
    let plan = plan(&iteration)?;
    let kernel = ["move_1", "move_2", "move_4", "move_8", "move_16"][width.trailing_zeros() as usize];
    launch(kernel, iteration.numel, &[out, &from], &[&plan], false)
}

/// Joins neighbouring elements to wider ones, of at most 16 bytes, where every operand that has elements allows it and
/// all of them have one index.
fn widen(
    iteration: &mut Iteration,
    mut width: usize,
    data: &[usize],
    index: Option<usize>,
    bases: [u64; 2],
    step: i64,
) -> usize {
    while width < 16 {
        let wide = bytes(width) * 2;
        let fits = |strides: &[i64]| strides[0] == bytes(width) && strides[1..].iter().all(|stride| stride % wide == 0);
        let fine = iteration.sizes[0] % 2 == 0
            && index.is_none_or(|index| iteration.strides[index][0] == 0)
            && data.iter().all(|&operand| fits(&iteration.strides[operand]))
            && bases.iter().all(|base| base.is_multiple_of(wide.unsigned_abs()))
            && step % wide == 0;
        if !fine {
            break;
        }
        width *= 2;
        iteration.sizes[0] /= 2;
        iteration.numel /= 2;
        for &operand in data {
            iteration.strides[operand][0] = wide;
        }
    }
    width
}

fn launch(kernel: &'static str, numel: i64, tensors: &[&Tensor], structs: &[&Packed], reports: bool) -> Result<()> {
    let mut buffers: SmallVec<[(&DeviceBuffer, &Tensor); 3]> = SmallVec::new();
    for tensor in tensors {
        buffers.extend(tensor.plain_storage()?.buffer().map(|buffer| (buffer, *tensor)));
    }
    let Some(&(first, _)) = buffers.first() else { return Ok(()) };
    let device: DeviceIndex = first.device_index();
    let mut arguments: SmallVec<[Arg<'_>; 6]> = buffers
        .iter()
        .map(|(buffer, tensor)| Arg::range(buffer, tensor.byte_offset()..tensor.storage().nbytes()))
        .collect();
    arguments.extend(structs.iter().map(|packed| packed.argument()));
    if reports {
        arguments.push(Arg::U64(Runtime::with_current(|runtime| report::slot(runtime, device))?));
    }
    let config = super::row(numel.unsigned_abs(), THREADS)?;
    // SAFETY: the plan is of these tensors, whose elements lie in their storages; the kernel keeps indices to their
    // dimension. The slot of reports lives as long as the runtime.
    unsafe { super::launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}

fn adder(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "add_bool",
        DType::U8 | DType::I8 => "add_byte",
        DType::I16 => "add_short",
        DType::I32 => "add_int",
        DType::I64 => "add_long",
        DType::F16 => "add_half",
        DType::BF16 => "add_brain",
        DType::F32 => "add_float",
        DType::F64 => "add_double",
        DType::C32 => "add_half_pair",
        DType::C64 => "add_float_pair",
        DType::C128 => "add_double_pair",
        // Sums of these are made in `f32`.
        DType::F8E4M3FN | DType::F8E5M2 => "add_float",
    }
}

/// `struct Plan` of the source.
pub(super) fn plan(iteration: &Iteration) -> Result<Packed> {
    let rank = iteration.sizes.len();
    if rank > RANK {
        return Err(invalid(format!(
            "tensors of more than {RANK} dimensions that cannot be joined are not supported here"
        )));
    }
    let mut packed = Packed::default();
    packed.word(iteration.numel);
    packed.half(i32::try_from(rank).unwrap_or(0));
    packed.half(i32::try_from(iteration.strides.len()).unwrap_or(0));
    packed.words(&iteration.sizes, RANK);
    for operand in 0..3 {
        packed.words(iteration.strides.get(operand).map_or(&[], |strides| strides.as_slice()), RANK);
    }
    Ok(packed)
}

/// `struct Along` of the source.
pub(super) fn packed_along(along: &Along, step: i64, index: &Tensor, first: bool) -> Packed {
    let mut packed = Packed::default();
    packed.word(along.size);
    packed.word(step);
    packed.half(i32::try_from(index.element_size()).unwrap_or(0));
    packed.half(i32::from(along.wraps));
    packed.half(along.operation as i32);
    packed.half(i32::from(first));
    packed
}

fn bytes(width: usize) -> i64 {
    i64::try_from(width).unwrap_or(i64::MAX)
}
