//! `kernels/matmul_half.cu`: products of matrices of 16-bit floats on tensor cores.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use c10_core::{Arg, LaunchConfig};

use super::matmul::{Sizes, Strides};
use super::{Text, capability, launch, whole};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul_half", ptx: include_str!("../../../kernels/matmul_half.ptx") };

/// Elements of a vector of 16 bytes.
const VECTOR: i64 = 8;
/// Tiles of the large kind from which on they keep a device busy.
const ENOUGH_TILES: i64 = 96;

/// A kind of tile: the kernels for `f16` and `bf16` by how the factors lie, rows and columns of a tile, threads and bytes
/// of shared memory of a block.
struct Kind {
    kernels: [[&'static str; 4]; 2],
    tile: [i64; 2],
    threads: u32,
    shared_bytes: u32,
}

static LARGE: Kind = Kind {
    kernels: [
        ["large_f16_ii", "large_f16_io", "large_f16_oi", "large_f16_oo"],
        ["large_bf16_ii", "large_bf16_io", "large_bf16_oi", "large_bf16_oo"],
    ],
    tile: [128, 256],
    threads: 256,
    shared_bytes: 3 * (128 + 256) * 64 * 2,
};

static SMALL: Kind = Kind {
    kernels: [
        ["small_f16_ii", "small_f16_io", "small_f16_oi", "small_f16_oo"],
        ["small_bf16_ii", "small_bf16_io", "small_bf16_oi", "small_bf16_oo"],
    ],
    tile: [64, 64],
    threads: 128,
    shared_bytes: 3 * (64 + 64) * 64 * 2,
};

/// Computes the product where the device has tensor cores for it and the result is not too large for one launch; says
/// whether it did. The tensors and sizes are those of [`super::matmul::product`].
pub(super) fn product(out: &Tensor, a: &Tensor, b: &Tensor, c: Option<&Tensor>, sizes: &Sizes) -> Result<bool> {
    let device = out.device().cuda_index()?.unwrap_or(0);
    let (major, minor) = capability(device)?;
    if major < 8 {
        return Ok(false);
    }
    // Devices of other minor versions have less shared memory.
    let is_large = minor == 0 && tiles(sizes, &LARGE).is_some_and(|tiles| tiles >= ENOUGH_TILES);
    let kind = if is_large { &LARGE } else { &SMALL };
    let Some(blocks) = tiles(sizes, kind).and_then(|tiles| i32::try_from(tiles).ok()) else { return Ok(false) };
    let (a, b) = (aligned(a, [1, 2])?, aligned(b, [2, 1])?);
    let sizes = Sizes { a: a.steps(), b: b.steps(), ..*sizes };
    let layout = usize::from(!a.lies_inner) * 2 + usize::from(!b.lies_inner);
    let kernel = kind.kernels[usize::from(out.dtype() == DType::BF16)][layout];
    let config = LaunchConfig {
        grid: [blocks.unsigned_abs(), 1, 1],
        block: [kind.threads, 1, 1],
        shared_bytes: kind.shared_bytes,
    };
    let arguments =
        [whole(out)?, whole(&a.tensor)?, whole(&b.tensor)?, c.map_or(Ok(Arg::U64(0)), whole)?, (&sizes).into()];
    // SAFETY: the kernel reads and writes elements at places inside the sizes above, which are those of the views; a view
    // lies inside its storage. Vectors of the factors begin at multiples of 16 bytes and are read as far as the factors
    // go. The kernel adds nothing where the address of `c` is null.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(true)
}

/// How many tiles the results have.
fn tiles(sizes: &Sizes, kind: &Kind) -> Option<i64> {
    let along = |size: i64, tile: i64| size / tile + i64::from(size % tile != 0);
    along(sizes.m, kind.tile[0]).checked_mul(along(sizes.n, kind.tile[1]))?.checked_mul(sizes.batches)
}

/// A factor whose lines begin at multiples of 16 bytes.
struct Factor {
    tensor: Tensor,
    /// Whether neighbours in memory lie along the inner dimension.
    lies_inner: bool,
}

impl Factor {
    /// The steps between lines that are there. The kernel takes all others for multiples of 16 bytes.
    fn steps(&self) -> Strides {
        let [batch, row, column] = [0, 1, 2].map(|dim| step(&self.tensor, dim));
        Strides { batch, row, column }
    }
}

/// The factor as it is, or a copy of it with room behind each line. Dimensions are given as the outer and the inner one.
fn aligned(factor: &Tensor, [outer, inner]: [usize; 2]) -> Result<Factor> {
    let begins = factor.data_ptr().is_multiple_of(16) && step(factor, 0) % VECTOR == 0;
    for (fast, slow) in [(inner, outer), (outer, inner)] {
        let is_next = factor.strides()[fast] == 1 || factor.sizes()[fast] == 1;
        if begins && is_next && step(factor, slow) % VECTOR == 0 {
            return Ok(Factor { tensor: factor.clone(), lies_inner: fast == inner });
        }
    }
    // One matrix may stand for the whole batch.
    let is_repeated = factor.strides()[0] == 0;
    let matrices = if is_repeated { factor.narrow(0, 0, 1)? } else { factor.clone() };
    let [batches, rows, columns] = [0, 1, 2].map(|dim| matrices.sizes()[dim]);
    let padded = (columns + VECTOR - 1) / VECTOR * VECTOR;
    let room = Tensor::empty(&[batches, rows, padded], factor.dtype(), factor)?;
    // The kernel asks for whole vectors, of which it uses what is inside.
    room.narrow(2, columns, padded - columns)?.zero_()?;
    let copy = room.narrow(2, 0, columns)?;
    copy.copy_(&matrices)?;
    let tensor = if is_repeated { copy.expand(factor.sizes())? } else { copy };
    Ok(Factor { tensor, lies_inner: inner == 2 })
}

/// The step along a dimension, which does not matter where there is just one place.
fn step(tensor: &Tensor, dim: usize) -> i64 {
    if tensor.sizes()[dim] <= 1 { 0 } else { tensor.strides()[dim] }
}
