//! `kernels/matmul_bytes.cu`: products of matrices of bytes with any strides.

#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig};

use super::{Problem, ScaleSteps, kind};
use crate::base::error::{Result, TensorError};
use crate::launch::library::product::operand::tiles;
use crate::launch::library::{Text, launch, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text =
    Text { name: "matmul_bytes", ptx: include_str!("../../../../../kernels/matmul_bytes.ptx") };

/// Elements of a tile along one side, and threads of a block.
const TILE: i64 = 64;
const THREADS: u32 = 256;

/// Steps between elements of a matrix.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Strides {
    row: i64,
    column: i64,
}

impl Strides {
    fn of(tensor: &Tensor) -> Self {
        Self { row: tensor.strides()[0], column: tensor.strides()[1] }
    }
}

/// The numbers that the kernels take.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    m: i64,
    n: i64,
    k: i64,
    out: Strides,
    a: Strides,
    b: Strides,
    scale_a: ScaleSteps,
    scale_b: ScaleSteps,
    bias: i64,
    kinds: [i32; 4],
    is_divided: i64,
}

impl Sizes {
    fn of(out: &Tensor, a: &Tensor, b: &Tensor) -> Self {
        assert!(out.dim() == 2 && a.dim() == 2 && b.dim() == 2, "they are matrices");
        let ([m, n], k) = ([out.sizes()[0], out.sizes()[1]], a.sizes()[1]);
        assert!(a.sizes() == [m, k] && b.sizes() == [k, n], "the factors fit the result and each other");
        let [out, a, b] = [out, a, b].map(Strides::of);
        let (scale_a, scale_b) = (ScaleSteps::NONE, ScaleSteps::NONE);
        Self { m, n, k, out, a, b, scale_a, scale_b, bias: 0, kinds: [0; 4], is_divided: 0 }
    }
}

/// Computes a problem.
pub(super) fn run(problem: &Problem<'_>) -> Result<()> {
    let Problem { out, a, b, .. } = *problem;
    let mut sizes = Sizes::of(out, a, b);
    let Some(scales) = &problem.scales else {
        let arguments = [whole(out)?, whole(a)?, whole(b)?, (&sizes).into()];
        return launched("matmul_i8", out, &sizes, &arguments);
    };
    let [kind_a, kind_b] = scales.kinds;
    sizes.scale_a = ScaleSteps::of(scales.a, kind_a, [sizes.m, sizes.k]);
    sizes.scale_b = ScaleSteps::of(&scales.turned()?, kind_b, [sizes.n, sizes.k]);
    sizes.is_divided = i64::from(scales.are_divided());
    let bias_kind = scales.bias.map_or(Ok(0), |bias| kind(bias.dtype()))?;
    sizes.kinds = [kind(a.dtype())?, kind(b.dtype())?, kind(out.dtype())?, bias_kind];
    sizes.bias = scales.bias.map_or(0, |bias| bias.strides()[0]);
    let bias = scales.bias.map_or(Ok(Arg::U64(0)), whole)?;
    let arguments = [whole(out)?, whole(a)?, whole(b)?, whole(scales.a)?, whole(scales.b)?, bias, (&sizes).into()];
    launched("matmul_f8", out, &sizes, &arguments)
}

fn launched(kernel: &'static str, out: &Tensor, sizes: &Sizes, arguments: &[Arg<'_>]) -> Result<()> {
    let too_large = || TensorError::TooLarge { sizes: out.sizes().to_vec() };
    let blocks = tiles(sizes.m, TILE).checked_mul(tiles(sizes.n, TILE)).and_then(|tiles| i32::try_from(tiles).ok());
    let grid = [blocks.ok_or_else(too_large)?.unsigned_abs(), 1, 1];
    let config = LaunchConfig { grid, block: [THREADS, 1, 1], shared_bytes: 0 };
    let device = out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: the kernels read and write elements at places inside the sizes, which are those of the views, and views lie
    // inside their storages. Scales and bias have an element for each place that is asked for, or one with no step.
    unsafe { launch(&TEXT, kernel, device, &config, arguments)? };
    Ok(())
}
