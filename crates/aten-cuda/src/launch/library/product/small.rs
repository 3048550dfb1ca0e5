//! `kernels/matmul_small.cu`: batches of small products of floats.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig};

use super::Problem;
use super::operand::{Lines, is_aligned, lines};
use super::tiled::Strides;
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::{Text, launch, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul_small", ptx: include_str!("../../../../kernels/matmul_small.ptx") };

/// The largest size of a product along any dimension, and the threads of a block.
const SIDE: i64 = 64;
const THREADS: u32 = 128;
/// Elements of a vector of 16 bytes.
const VECTOR: i64 = 4;

/// The numbers that the kernel takes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    m: i64,
    n: i64,
    k: i64,
    out: Strides,
    a: Strides,
    b: Strides,
    c: Strides,
    bias_step: i64,
    alpha: f32,
    beta: f32,
    activation: i64,
}

/// Whether the products are small enough, of floats, and not too many for one launch.
pub(super) fn can_run(problem: &Problem<'_>) -> bool {
    let [batches, m, n, k] = problem.sizes();
    problem.out.dtype() == DType::F32 && [m, n, k].iter().all(|&size| size <= SIDE) && i32::try_from(batches).is_ok()
}

/// Computes a problem that [`can_run`].
pub(super) fn run(problem: &Problem<'_>) -> Result<()> {
    let out = problem.out;
    let [batches, m, n, k] = problem.sizes();
    let ways = [vectors(problem.a, [1, 2]), vectors(problem.b, [2, 1])];
    let kernel = match ways.map(|lines| lines.map(|lines| lines.lies_inner)) {
        [Some(true), Some(true)] => "small_f32_ii",
        [Some(true), Some(false)] => "small_f32_io",
        [Some(false), Some(true)] => "small_f32_oi",
        [Some(false), Some(false)] => "small_f32_oo",
        _ => "small_f32_any",
    };
    let sizes = Sizes {
        m,
        n,
        k,
        out: Strides::of(out),
        a: Strides::of(problem.a),
        b: Strides::of(problem.b),
        c: problem.c.map_or_else(Strides::zeroed, Strides::of),
        bias_step: problem.bias.map_or(0, |bias| bias.strides()[0]),
        #[expect(clippy::cast_possible_truncation, reason = "sums are floats")]
        alpha: problem.alpha.to_f64() as f32,
        #[expect(clippy::cast_possible_truncation, reason = "sums are floats")]
        beta: problem.beta.to_f64() as f32,
        activation: problem.activation.code().into(),
    };
    let too_large = |_| TensorError::TooLarge { sizes: out.sizes().to_vec() };
    let grid = [u32::try_from(batches).map_err(too_large)?, 1, 1];
    let config = LaunchConfig { grid, block: [THREADS, 1, 1], shared_bytes: 0 };
    let arguments = [
        whole(out)?,
        whole(problem.a)?,
        whole(problem.b)?,
        problem.c.map_or(Ok(Arg::U64(0)), whole)?,
        problem.bias.map_or(Ok(Arg::U64(0)), whole)?,
        (&sizes).into(),
    ];
    let device = out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: the kernel reads and writes elements at places inside the sizes above, which are those of the views; a view
    // lies inside its storage. It reads vectors only of factors that consist of whole ones, and nothing where an address
    // is null.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}

/// How a factor lies, if it consists of whole vectors that begin at multiples of 16 bytes.
fn vectors(factor: &Tensor, [outer, inner]: [usize; 2]) -> Option<Lines> {
    lines(factor, [outer, inner]).find(|lines| {
        let along = factor.sizes()[if lines.lies_inner { inner } else { outer }];
        along % VECTOR == 0 && is_aligned(factor, lines)
    })
}
