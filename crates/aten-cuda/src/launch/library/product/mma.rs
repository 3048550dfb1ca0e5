//! `kernels/matmul_half.cu`: products of matrices of 16-bit floats on tensor cores.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use c10_core::{Arg, LaunchConfig};

use super::operand::{self, Lines, is_aligned, lines};
use super::tiled::{Sizes, Strides};
use super::{Problem, is_half};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::launch::library::{Text, launch, traits, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul_half", ptx: include_str!("../../../../kernels/matmul_half.ptx") };

/// Elements of a vector of 16 bytes.
const VECTOR: i64 = 8;
/// Tiles of the large kind from which on they keep a device busy.
const ENOUGH_TILES: i32 = 96;

/// Rows and columns of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// 128 x 256.
    Large,
    /// 64 x 64.
    Small,
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Large => "own_mma_128x256x64_s3",
            Self::Small => "own_mma_64x64x64_s3",
        }
    }

    fn kind(self) -> &'static Kind {
        match self {
            Self::Large => &LARGE,
            Self::Small => &SMALL,
        }
    }
}

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

/// Whether the device has tensor cores for it, and a block its shared memory, and the result is not too large for one
/// launch.
pub(super) fn can_run(shape: Shape, problem: &Problem<'_>) -> Result<bool> {
    if !is_half(problem.out.dtype()) || problem.is_followed() || tiles(problem, shape.kind()).is_none() {
        return Ok(false);
    }
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    let (major, minor) = traits(device)?.capability;
    // Devices of other minor versions have less shared memory.
    Ok(major >= 8 && (shape == Shape::Small || minor == 0))
}

/// The shape that is likely to be quick.
pub(super) fn likely(problem: &Problem<'_>) -> Shape {
    if tiles(problem, &LARGE).is_some_and(|tiles| tiles >= ENOUGH_TILES) { Shape::Large } else { Shape::Small }
}

/// Computes a problem that [`can_run`].
pub(super) fn run(shape: Shape, problem: &Problem<'_>) -> Result<()> {
    let kind = shape.kind();
    let blocks = tiles(problem, kind).unwrap_or(0);
    let out = problem.out;
    let device = out.device().cuda_index()?.unwrap_or(0);
    let (a, b) = (aligned(problem.a, [1, 2])?, aligned(problem.b, [2, 1])?);
    let sizes = Sizes { a: a.strides([1, 2]), b: b.strides([2, 1]), ..Sizes::of(problem) };
    let layout = usize::from(!a.lines.lies_inner) * 2 + usize::from(!b.lines.lies_inner);
    let kernel = kind.kernels[usize::from(out.dtype() == DType::BF16)][layout];
    let config = LaunchConfig {
        grid: [blocks.unsigned_abs(), 1, 1],
        block: [kind.threads, 1, 1],
        shared_bytes: kind.shared_bytes,
    };
    let c = problem.c.map_or(Ok(Arg::U64(0)), whole)?;
    let arguments = [whole(out)?, whole(&a.tensor)?, whole(&b.tensor)?, c, (&sizes).into()];
    // SAFETY: the kernel reads and writes elements at places inside the sizes above, which are those of the views; a view
    // lies inside its storage. Vectors of the factors begin at multiples of 16 bytes and are read as far as the factors
    // go. The kernel adds nothing where the address of `c` is null.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}

/// How many tiles the results have, if not too many for one launch.
fn tiles(problem: &Problem<'_>, kind: &Kind) -> Option<i32> {
    let [batches, m, n, _] = problem.sizes();
    let tiles = operand::tiles(m, kind.tile[0]).checked_mul(operand::tiles(n, kind.tile[1]))?.checked_mul(batches)?;
    i32::try_from(tiles).ok()
}

/// A factor whose lines begin at multiples of 16 bytes.
struct Factor {
    tensor: Tensor,
    lines: Lines,
}

impl Factor {
    /// The steps between lines. The kernel takes all others for multiples of 16 bytes. Dimensions are given as the outer
    /// and the inner one.
    fn strides(&self, [outer, inner]: [usize; 2]) -> Strides {
        let mut steps = [self.lines.batch, 0, 0];
        steps[if self.lines.lies_inner { outer } else { inner }] = self.lines.step;
        Strides { batch: steps[0], row: steps[1], column: steps[2] }
    }
}

/// The factor as it is, or a copy of it with room behind each line. Dimensions are given as the outer and the inner one.
fn aligned(factor: &Tensor, dims: [usize; 2]) -> Result<Factor> {
    if let Some(lines) = lines(factor, dims).find(|lines| is_aligned(factor, lines)) {
        return Ok(Factor { tensor: factor.clone(), lines });
    }
    // One matrix may stand for the whole batch.
    let is_repeated = factor.strides()[0] == 0;
    let matrices = if is_repeated { factor.narrow(0, 0, 1)? } else { factor.clone() };
    let [batches, rows, columns] = [0, 1, 2].map(|dim| matrices.sizes()[dim]);
    let padded = (columns + VECTOR - 1) / VECTOR * VECTOR;
    let room = Tensor::uninitialized(&[batches, rows, padded], factor.dtype(), factor)?;
    // The kernel asks for whole vectors, of which it uses what is inside.
    room.narrow(2, columns, padded - columns)?.zero_()?;
    let copy = room.narrow(2, 0, columns)?;
    copy.copy_(&matrices)?;
    let tensor = if is_repeated { copy.expand(factor.sizes())? } else { copy };
    let step = |dim| operand::step(&tensor, dim);
    let lines = Lines { lies_inner: dims[1] == 2, step: step(1), batch: step(0) };
    Ok(Factor { tensor, lines })
}
