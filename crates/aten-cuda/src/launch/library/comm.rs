//! Launches of `kernels/comm.cu`: many small tensors are written one after another to one memory.
//!
//! # Safety
//! The function here gives the kernel whole tensors whose elements lie one after another, where each ends in the result,
//! and a result that has as many units as that; it checks all of it.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use c10_core::{DeviceIndex, LaunchConfig};

use super::{Packed, Text, memory, ready};
use crate::base::error::{Result, invalid};
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "comm", ptx: include_str!("../../../kernels/comm.ptx") };

/// Tensors of one launch.
pub(crate) const TENSORS: usize = 320;
/// Bytes of a unit; each tensor begins at one.
pub(crate) const UNIT: usize = 16;
const THREADS: u32 = 256;
/// Units of a block.
const PIECE: u64 = 1024;

/// Bytes that a tensor takes in the result, with those up to the next unit.
pub(crate) fn room(tensor: &Tensor) -> usize {
    tensor.nbytes().next_multiple_of(UNIT)
}

/// Writes tensors one after another to `out`, on the current stream of the device, by one launch. At most [`TENSORS`] of
/// them, contiguous, each with elements; `out` has just the bytes that they take, fewer than 2^32.
pub(crate) fn flatten(tensors: &[&Tensor], out: &Tensor, device: DeviceIndex) -> Result<()> {
    let total: usize = tensors.iter().map(|tensor| room(tensor)).sum();
    let is_whole = |tensor: &&Tensor| tensor.is_contiguous() && tensor.nbytes() > 0;
    let fits = tensors.iter().all(is_whole) && !tensors.is_empty() && tensors.len() <= TENSORS;
    if !fits || !out.is_contiguous() || out.nbytes() != total || u32::try_from(total).is_err() {
        return Err(invalid(format!("{} tensors cannot be brought together in {} bytes", tensors.len(), out.nbytes())));
    }
    let units = (total / UNIT) as u64;
    let packed = packed(tensors, units);
    let blocks = u32::try_from(units.div_ceil(PIECE)).unwrap_or(u32::MAX);
    let config = LaunchConfig { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared_bytes: 0 };
    let read = tensors.iter().map(|&tensor| memory(tensor)).collect::<Result<Vec<_>>>()?;
    let ready = ready(&TEXT, "flatten", device, &config)?;
    let launch = ready.launch_builder(None).grid(blocks).block(THREADS);
    let launch = launch.args([memory(out)?, packed.argument()]).writes(memory(out)?);
    let launch = read.into_iter().fold(launch, |launch, tensor| launch.reads(tensor));
    // SAFETY: each address is that of a contiguous tensor of so many bytes as lie between its beginning and its end in the
    // result, which has room for all of them; the blocks are those of all units.
    unsafe { launch.launch()? };
    Ok(())
}

/// The addresses and ends of tensors as the kernel takes them.
fn packed(tensors: &[&Tensor], units: u64) -> Packed {
    let mut packed = Packed::default();
    let addresses: Vec<i64> = tensors.iter().map(|tensor| tensor.data_ptr().cast_signed()).collect();
    packed.words(&addresses, TENSORS);
    let half = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).cast_signed();
    let mut start = 0;
    for tensor in tensors {
        packed.half(half(start + tensor.nbytes()));
        start += room(tensor);
    }
    (tensors.len()..TENSORS).for_each(|_| packed.half(0));
    packed.half(half(tensors.len()));
    packed.half(u32::try_from(units).unwrap_or(u32::MAX).cast_signed());
    packed
}
