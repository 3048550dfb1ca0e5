//! `kernels/scan.cu`: running sums and products of long rows.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use super::{Packed, Text, launch, memory, row};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::launch::record;
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "scan", ptx: include_str!("../../../kernels/scan.ptx") };

/// Tiles of a group.
const GROUP: i64 = 32;

/// What runs along a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// `cumsum`.
    Sum,
    /// `cumprod`.
    Product,
}

/// How a dtype is scanned.
struct Kernels {
    names: [&'static str; 2],
    /// Threads of a block.
    threads: u32,
    /// Elements of a tile.
    tile: i64,
    /// Words of 64 bits that tell an accumulator.
    words: i64,
}

fn kernels(dtype: DType) -> Option<Kernels> {
    let (names, threads, vectors, words) = match dtype {
        DType::F16 => (["cumsum_f16", "cumprod_f16"], 256, 8, 1),
        DType::BF16 => (["cumsum_bf16", "cumprod_bf16"], 256, 8, 1),
        DType::F32 => (["cumsum_f32", "cumprod_f32"], 512, 12, 1),
        DType::F64 => (["cumsum_f64", "cumprod_f64"], 256, 12, 2),
        DType::I64 => (["cumsum_i64", "cumprod_i64"], 256, 12, 2),
        DType::C64 => (["cumsum_c64", "cumprod_c64"], 256, 12, 2),
        DType::C128 => (["cumsum_c128", "cumprod_c128"], 256, 8, 4),
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::C32 => return None,
        DType::F8E4M3FN | DType::F8E5M2 => return None,
    };
    let tile = i64::from(threads) * vectors * 16 / i64::try_from(dtype.itemsize()).unwrap_or(16);
    Some(Kernels { names, threads, tile, words })
}

/// Whether rows of `n` elements of a dtype are so long that several blocks should share one.
pub(crate) fn is_long(n: i64, dtype: DType) -> bool {
    kernels(dtype).is_some_and(|kernels| n >= 2 * kernels.tile)
}

/// Scans the rows, along the last dimension, of a contiguous tensor into a contiguous one of the same dtype and sizes,
/// which may be the same tensor. Says whether it did: there is no kernel for every dtype, nor for more tiles than a
/// launch has blocks.
pub(crate) fn scan(running: Running, out: &Tensor, input: &Tensor) -> Result<bool> {
    assert!(input.is_contiguous() && out.is_contiguous() && out.sizes() == input.sizes(), "rows one after another");
    assert!(input.dtype() == out.dtype(), "the tensors have one dtype");
    let (Some(kernels), Some(&n @ 1..)) = (kernels(input.dtype()), input.sizes().last()) else { return Ok(false) };
    let rows = input.numel() / n;
    let tiles = n / kernels.tile + i64::from(n % kernels.tile != 0);
    let groups = (tiles + GROUP - 1) / GROUP;
    let Ok(blocks) = i32::try_from(tiles * rows) else { return Ok(false) };
    if record::pure_call("scan", (&[out], &[input]), vec![running as u64], move |outputs, inputs| {
        let ([out], [input]) = (outputs, inputs) else { return Ok(()) };
        scan(running, out, input).map(drop)
    })? {
        return Ok(true);
    }
    let told = rows * (tiles + groups) * kernels.words;
    // What is told, and behind it the ticket.
    let scratch = Tensor::uninitialized(&[told + 1], DType::I64, input)?;
    if let Some(buffer) = scratch.storage().buffer() {
        buffer.fill(.., 0, None)?;
    }
    let bytes = i64::try_from(input.nbytes()).unwrap_or(1) / rows;
    let is_aligned = [input, out].iter().all(|tensor| tensor.data_ptr().is_multiple_of(16)) && bytes % 16 == 0;
    let mut packed = Packed::default();
    [n, told].iter().for_each(|&number| packed.word(number));
    [i32::try_from(tiles).unwrap_or(0), is_aligned.into()].iter().for_each(|&number| packed.half(number));
    let config = row(u64::from(blocks.unsigned_abs()) * u64::from(kernels.threads), kernels.threads)?;
    let device = input.device().cuda_index()?.unwrap_or(0);
    let kernel = kernels.names[usize::from(running == Running::Product)];
    let arguments = [memory(out)?, memory(input)?, memory(&scratch)?, packed.argument()];
    // SAFETY: `rows` times `n` elements in both tensors, and words for every tile and group of every row. The tensors
    // live until the work that is queued here is done.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(true)
}
