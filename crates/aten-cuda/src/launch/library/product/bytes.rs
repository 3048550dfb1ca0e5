//! `kernels/matmul_bytes.cu`: products of matrices of bytes with any strides, of integers and of floats with scales.

#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig};

use super::operand::tiles;
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::{Text, launch, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul_bytes", ptx: include_str!("../../../../kernels/matmul_bytes.ptx") };

/// Elements of a tile along one side, and threads of a block.
const TILE: i64 = 64;
const THREADS: u32 = 256;

/// Elements that one scale of a part or of a block is for, along one dimension.
pub(crate) const BLOCK: i64 = 128;

/// What a scale of a factor is for. A factor's lines are its rows on the left and its columns on the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scaling {
    /// The whole factor.
    Whole,
    /// A line.
    Lines,
    /// A part of a line along the inner dimension, [`BLOCK`] elements long.
    Parts,
    /// A square block of [`BLOCK`] lines.
    Blocks,
}

impl Scaling {
    /// Whether there is more than one scale along the inner dimension.
    pub(crate) fn is_divided(self) -> bool {
        matches!(self, Self::Parts | Self::Blocks)
    }
}

/// What follows a product of floats of 8 bits: `f32` scales of both factors, and a bias for each column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales<'a> {
    pub(crate) a: &'a Tensor,
    pub(crate) b: &'a Tensor,
    /// What the scales of `a` and of `b` are for.
    pub(crate) kinds: [Scaling; 2],
    pub(crate) bias: Option<&'a Tensor>,
}

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

/// Steps between the scales of a factor, and lines that share one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ScaleSteps {
    line: i64,
    part: i64,
    shared: i64,
}

impl ScaleSteps {
    const NONE: Self = Self { line: 0, part: 0, shared: 1 };

    /// For scales as (lines, parts) of a factor of as many lines, `inner` long.
    fn of(scale: &Tensor, kind: Scaling, [lines, inner]: [i64; 2]) -> Self {
        assert!(scale.dtype() == DType::F32, "scales are floats");
        let parts = tiles(inner, BLOCK);
        let sizes = match kind {
            Scaling::Whole => {
                assert!(scale.numel() == 1, "there is one scale");
                return Self::NONE;
            }
            Scaling::Lines => [lines, 1],
            Scaling::Parts => [lines, parts],
            Scaling::Blocks => [tiles(lines, BLOCK), parts],
        };
        assert!(scale.sizes() == sizes, "there is a scale for each part");
        let part = if kind.is_divided() { scale.strides()[1] } else { 0 };
        Self { line: scale.strides()[0], part, shared: if kind == Scaling::Blocks { BLOCK } else { 1 } }
    }
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

/// What the kernels call a dtype of floats.
fn kind(dtype: DType) -> Result<i32> {
    Ok(match dtype {
        DType::F8E4M3FN => 0,
        DType::F8E5M2 => 1,
        DType::F16 => 2,
        DType::BF16 => 3,
        DType::F32 => 4,
        _ => return Err(TensorError::NotImplemented { kernel: "_scaled_mm".to_owned(), dtype }.into()),
    })
}

/// `out = a @ b` for `i8` factors and an `i32` result.
pub(crate) fn integers(out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    assert!([a, b].iter().all(|factor| factor.dtype() == DType::I8) && out.dtype() == DType::I32, "they are integers");
    let sizes = Sizes::of(out, a, b);
    let arguments = [whole(out)?, whole(a)?, whole(b)?, (&sizes).into()];
    run("matmul_i8", out, &sizes, &arguments)
}

/// `out = a @ b * scales + bias` for factors of floats of 8 bits.
pub(crate) fn floats(out: &Tensor, a: &Tensor, b: &Tensor, scales: &Scales<'_>) -> Result<()> {
    assert!(a.dtype().is_float8() && b.dtype().is_float8(), "the factors are floats of 8 bits");
    let mut sizes = Sizes::of(out, a, b);
    let [kind_a, kind_b] = scales.kinds;
    sizes.scale_a = ScaleSteps::of(scales.a, kind_a, [sizes.m, sizes.k]);
    let turned = if kind_b == Scaling::Whole { scales.b.clone() } else { scales.b.t()? };
    sizes.scale_b = ScaleSteps::of(&turned, kind_b, [sizes.n, sizes.k]);
    sizes.is_divided = i64::from(scales.kinds.iter().any(|kind| kind.is_divided()));
    let bias_kind = scales.bias.map_or(Ok(0), |bias| kind(bias.dtype()))?;
    sizes.kinds = [kind(a.dtype())?, kind(b.dtype())?, kind(out.dtype())?, bias_kind];
    if let Some(bias) = scales.bias {
        assert!(bias.sizes() == [sizes.n], "the bias has an element for each column");
        sizes.bias = bias.strides()[0];
    }
    let bias = scales.bias.map_or(Ok(Arg::U64(0)), whole)?;
    let arguments = [whole(out)?, whole(a)?, whole(b)?, whole(scales.a)?, whole(scales.b)?, bias, (&sizes).into()];
    run("matmul_f8", out, &sizes, &arguments)
}

fn run(kernel: &'static str, out: &Tensor, sizes: &Sizes, arguments: &[Arg<'_>]) -> Result<()> {
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
