//! `kernels/matmul.cu`: products of matrices with any strides.

#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig};

use super::operand::tiles;
use super::{Problem, three};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::{Text, launch, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul", ptx: include_str!("../../../../kernels/matmul.ptx") };

/// Elements of a tile along one side, and threads of a block.
const TILE: i64 = 64;
const THREADS: u32 = 256;
/// The most blocks along the second axis of a grid; further matrices are taken by the same blocks in turn.
const MOST_BATCHES: i64 = 65_535;

/// Steps between elements of a batch of matrices.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Strides {
    pub(super) batch: i64,
    pub(super) row: i64,
    pub(super) column: i64,
}

impl Strides {
    /// Those of a batch of matrices.
    pub(super) fn of(tensor: &Tensor) -> Self {
        let [batch, row, column] = three(tensor.strides());
        Self { batch, row, column }
    }
}

/// The numbers that the kernel takes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Sizes {
    pub(super) batches: i64,
    pub(super) m: i64,
    pub(super) n: i64,
    pub(super) k: i64,
    pub(super) out: Strides,
    pub(super) a: Strides,
    pub(super) b: Strides,
    pub(super) c: Strides,
    pub(super) alpha: [f64; 2],
    pub(super) beta: [f64; 2],
    pub(super) bias_step: i64,
    pub(super) activation: i64,
}

impl Sizes {
    /// Those of a problem.
    pub(super) fn of(problem: &Problem<'_>) -> Self {
        let [batches, m, n, k] = problem.sizes();
        Self {
            batches,
            m,
            n,
            k,
            out: Strides::of(problem.out),
            a: Strides::of(problem.a),
            b: Strides::of(problem.b),
            c: problem.c.map_or_else(Strides::zeroed, Strides::of),
            alpha: [problem.alpha.to_f64(), problem.alpha.imaginary()],
            beta: [problem.beta.to_f64(), problem.beta.imaginary()],
            bias_step: problem.bias.map_or(0, |bias| bias.strides()[0]),
            activation: problem.activation.code().into(),
        }
    }
}

/// Computes the problem, which has no activation if it is one of complex numbers.
pub(super) fn run(problem: &Problem<'_>) -> Result<()> {
    let out = problem.out;
    let kernel = match out.dtype() {
        DType::F16 => "matmul_f16",
        DType::BF16 => "matmul_bf16",
        DType::F32 => "matmul_f32",
        DType::F64 => "matmul_f64",
        DType::C64 => "matmul_c64",
        DType::C128 => "matmul_c128",
        dtype => return Err(TensorError::NotImplemented { kernel: "addmm_cuda".to_owned(), dtype }.into()),
    };
    let sizes = Sizes::of(problem);
    let tiles = tiles(sizes.m, TILE).checked_mul(tiles(sizes.n, TILE));
    let too_large = || TensorError::TooLarge { sizes: out.sizes().to_vec() };
    let grid = [
        tiles.and_then(|tiles| i32::try_from(tiles).ok()).ok_or_else(too_large)?.unsigned_abs(),
        u32::try_from(sizes.batches.min(MOST_BATCHES)).map_err(|_| too_large())?,
        1,
    ];
    // The kernel is told which operands are conjugates.
    let operands = [Some(problem.a), Some(problem.b), problem.c, problem.bias];
    let is_conj = |operand: &Option<&Tensor>| operand.is_some_and(Tensor::is_conj);
    let conjugated =
        operands.iter().enumerate().fold(0, |bits, (at, operand)| bits | u32::from(is_conj(operand)) << at);
    let stored =
        operands.map(|operand| operand.map(|tensor| if is_conj(&operand) { tensor.conj() } else { tensor.clone() }));
    let mut arguments = Vec::with_capacity(7);
    arguments.push(whole(out)?);
    for tensor in &stored {
        arguments.push(tensor.as_ref().map_or(Ok(Arg::U64(0)), whole)?);
    }
    arguments.extend([(&sizes).into(), Arg::U32(conjugated)]);
    let config = LaunchConfig { grid, block: [THREADS, 1, 1], shared_bytes: 0 };
    let device = out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: the kernel reads and writes elements at places inside the sizes above, which are those of the views; a view
    // lies inside its storage. Nothing is read where an address is null.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}
