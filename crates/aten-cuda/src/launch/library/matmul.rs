//! `kernels/matmul.cu`: products of matrices with any strides.

#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig};

use super::{Text, launch, matmul_half, whole};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::base::scalar::Scalar;
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul", ptx: include_str!("../../../kernels/matmul.ptx") };

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
    fn of(tensor: &Tensor) -> Self {
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
}

/// `out = alpha * a @ b + beta * c` for batches of matrices on one device: `a` is (batch, m, k), `b` (batch, k, n), `c`
/// and `out` (batch, m, n), all of one floating or complex dtype. `out` shares no memory with the others.
pub(crate) fn product(
    out: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: Option<&Tensor>,
    alpha: Scalar,
    beta: Scalar,
) -> Result<()> {
    let kernel = match out.dtype() {
        DType::F16 => "matmul_f16",
        DType::BF16 => "matmul_bf16",
        DType::F32 => "matmul_f32",
        DType::F64 => "matmul_f64",
        DType::C64 => "matmul_c64",
        DType::C128 => "matmul_c128",
        dtype => return Err(TensorError::NotImplemented { kernel: "addmm_cuda".to_owned(), dtype }.into()),
    };
    let [batches, m, n] = three(out.sizes());
    let [_, _, k] = three(a.sizes());
    assert!(three(a.sizes()) == [batches, m, k] && three(b.sizes()) == [batches, k, n], "the factors fit each other");
    assert!(c.is_none_or(|c| c.sizes() == out.sizes()), "what is added has the result's sizes");
    let tensors = [Some(out), Some(a), Some(b), c];
    assert!(tensors.iter().flatten().all(|tensor| tensor.dtype() == out.dtype()), "all have one dtype");
    if out.numel() == 0 {
        return Ok(());
    }
    let sizes = Sizes {
        batches,
        m,
        n,
        k,
        out: Strides::of(out),
        a: Strides::of(a),
        b: Strides::of(b),
        c: c.map_or_else(Strides::zeroed, Strides::of),
        alpha: [alpha.to_f64(), alpha.imaginary()],
        beta: [beta.to_f64(), beta.imaginary()],
    };
    let is_half = matches!(out.dtype(), DType::F16 | DType::BF16);
    if is_half && matmul_half::product(out, a, b, c, &sizes)? {
        return Ok(());
    }
    let tiles = (m + TILE - 1) / TILE * ((n + TILE - 1) / TILE);
    let too_large = || TensorError::TooLarge { sizes: out.sizes().to_vec() };
    let grid = [
        u32::try_from(tiles).map_err(|_| too_large())?,
        u32::try_from(batches.min(MOST_BATCHES)).map_err(|_| too_large())?,
        1,
    ];
    let mut arguments = Vec::with_capacity(5);
    for tensor in tensors {
        arguments.push(tensor.map_or(Ok(Arg::U64(0)), whole)?);
    }
    arguments.push((&sizes).into());
    let config = LaunchConfig { grid, block: [THREADS, 1, 1], shared_bytes: 0 };
    let device = out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: the kernel reads and writes elements at places inside the sizes above, which are those of the views; a view
    // lies inside its storage. It adds nothing where the address of `c` is null.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}

fn three(sizes: &[i64]) -> [i64; 3] {
    let mut found = [0; 3];
    assert!(sizes.len() == 3, "a batch of matrices has three dimensions");
    found.copy_from_slice(sizes);
    found
}
