//! Launches of `kernels/amp.cu`: gradients of several tensors in one launch, and the scale moved on.
//!
//! # Safety
//! Each function gives a kernel whole tensors whose elements fill their memory without a gap, with their counts, and
//! numbers of one element each; it checks both.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use c10_core::{Arg, DeviceIndex, LaunchConfig};

use super::{Packed, Text, memory, ready, whole};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "amp", ptx: include_str!("../../../kernels/amp.ptx") };

/// Tensors of one launch.
const TENSORS: usize = 128;
const THREADS: u32 = 256;
/// Elements of a block.
const PIECE: u64 = 8192;

/// The kernel for a dtype.
fn kernel(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("unscale_f32"),
        DType::F64 => Some("unscale_f64"),
        DType::F16 => Some("unscale_f16"),
        DType::BF16 => Some("unscale_bf16"),
        _ => None,
    }
}

/// Multiplies every element of every tensor by `factor`, and sets `found` to one if an element is no finite number. The
/// tensors are on one device, of one dtype, and each fills its memory without a gap.
pub(crate) fn unscale(tensors: &[&Tensor], found: &Tensor, factor: &Tensor, device: DeviceIndex) -> Result<()> {
    check_single(found, DType::F32)?;
    check_single(factor, DType::F32)?;
    let with_elements: Vec<&Tensor> = tensors.iter().copied().filter(|tensor| tensor.numel() > 0).collect();
    for some in with_elements.chunks(TENSORS) {
        let dtype = some.first().map_or(DType::F32, |first| first.dtype());
        let not_there =
            || TensorError::NotImplemented { kernel: "amp_non_finite_check_and_unscale_cuda".to_owned(), dtype };
        let kernel = kernel(dtype).ok_or_else(not_there)?;
        let (packed, blocks) = packed(some)?;
        let config = LaunchConfig { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared_bytes: 0 };
        let written = some.iter().map(|&tensor| whole(tensor)).collect::<Result<Vec<_>>>()?;
        let ready = ready(&TEXT, kernel, device, &config)?;
        let launch = ready.launch_builder(None).grid(blocks).block(THREADS);
        let launch = launch.args([memory(found)?, memory(factor)?, packed.argument()]);
        let launch = launch.writes(memory(found)?).reads(memory(factor)?);
        let launch = written.into_iter().fold(launch, |launch, tensor| launch.writes(tensor));
        // SAFETY: each address is that of a tensor of so many elements without gaps, which the launch is told of; the
        // blocks are those of all pieces. The other two are numbers of one element.
        unsafe { launch.launch()? };
    }
    Ok(())
}

/// The addresses, counts and pieces of tensors as the kernel takes them, and how many pieces there are.
fn packed(tensors: &[&Tensor]) -> Result<(Packed, u32)> {
    let mut packed = Packed::default();
    let addresses: Vec<i64> = tensors.iter().map(|tensor| tensor.data_ptr().cast_signed()).collect();
    let counts: Vec<i64> = tensors.iter().map(|tensor| tensor.numel()).collect();
    packed.words(&addresses, TENSORS);
    packed.words(&counts, TENSORS);
    let too_large = |count: i64| TensorError::TooLarge { sizes: vec![count] };
    let mut pieces: u64 = 0;
    for at in 0..TENSORS {
        if let Some(&count) = counts.get(at) {
            pieces += count.unsigned_abs().div_ceil(PIECE);
            packed.half(i32::try_from(pieces).map_err(|_| too_large(count))?);
        } else {
            packed.half(0);
        }
    }
    packed.half(i32::try_from(tensors.len()).unwrap_or(0));
    packed.half(0);
    Ok((packed, u32::try_from(pieces).map_err(|_| too_large(i64::MAX))?))
}

/// Moves a scale on, after `found` tells whether any gradient was no finite number.
pub(crate) fn update(
    (scale, tracker): (&Tensor, &Tensor),
    found: &Tensor,
    (growth, backoff, interval): (f64, f64, i32),
    device: DeviceIndex,
) -> Result<()> {
    check_single(scale, DType::F32)?;
    check_single(found, DType::F32)?;
    check_single(tracker, DType::I32)?;
    let config = LaunchConfig { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    let numbers = [Arg::F64(growth), Arg::F64(backoff), Arg::I32(interval)];
    let [growth, backoff, interval] = numbers;
    let arguments = [memory(scale)?, memory(tracker)?, memory(found)?, growth, backoff, interval];
    // SAFETY: three numbers of one element, of the types that the kernel takes.
    unsafe { super::launch(&TEXT, "update_scale", device, &config, &arguments)? };
    Ok(())
}

fn check_single(tensor: &Tensor, dtype: DType) -> Result<()> {
    if tensor.numel() == 1 && tensor.dtype() == dtype && tensor.is_cuda() {
        return Ok(());
    }
    Err(invalid(format!(
        "expected one element of {dtype} on a device, but got {} of {}",
        tensor.numel(),
        tensor.dtype()
    )))
}
