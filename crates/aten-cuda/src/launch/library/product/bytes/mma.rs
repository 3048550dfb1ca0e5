//! `kernels/matmul_bytes_mma.cu`: products of matrices of bytes on tensor cores from compute capability 8.0 on.

#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::LaunchConfig;

use super::{NarrowSteps, Numbers, Problem, in_lines, is_for_tensor_cores, line_bytes, scale_arguments};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::product::operand::tiles;
use crate::launch::library::{Text, launch, traits, whole};

pub(super) static TEXT: Text =
    Text { name: "matmul_bytes_mma", ptx: include_str!("../../../../../kernels/matmul_bytes_mma.ptx") };

/// Elements of a tile along one side, and threads of a block.
const TILE: i64 = 128;
const THREADS: u32 = 256;
/// Bytes of shared memory: two stages of both factors.
const SHARED_BYTES: u32 = 2 * 2 * 128 * 128;

/// The numbers that the kernels take.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    sizes: [u32; 3],
    is_divided: u32,
    scale_a: NarrowSteps,
    scale_b: NarrowSteps,
    bias_step: u32,
    kind_out: u32,
    kind_bias: u32,
    unused: u32,
    a_line: i64,
    b_line: i64,
}

/// Whether the device has tensor cores for it, and the result is not too large for one launch.
pub(super) fn can_run(problem: &Problem<'_>) -> Result<bool> {
    if !is_for_tensor_cores(problem) || blocks(problem).is_none() || sizes(problem)?.is_none() {
        return Ok(false);
    }
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    Ok(traits(device)?.capability.0 >= 8)
}

fn blocks(problem: &Problem<'_>) -> Option<u32> {
    let [m, n, _] = problem.sizes();
    let blocks = tiles(m, TILE).checked_mul(tiles(n, TILE))?;
    Some(i32::try_from(blocks).ok()?.unsigned_abs())
}

/// The numbers but for those of the factors; `None` where one is too large.
fn sizes(problem: &Problem<'_>) -> Result<Option<Sizes>> {
    let Some(numbers) = Numbers::of(problem)? else { return Ok(None) };
    let Numbers { sizes, scale_a, scale_b, bias_step, kind_out, kind_bias } = numbers;
    let is_divided = problem.scales.as_ref().is_some_and(|scales| scales.are_divided()).into();
    Ok(Some(Sizes {
        sizes,
        is_divided,
        scale_a,
        scale_b,
        bias_step,
        kind_out,
        kind_bias,
        unused: 0,
        a_line: 0,
        b_line: 0,
    }))
}

/// Computes a problem that [`can_run`].
pub(super) fn run(problem: &Problem<'_>) -> Result<()> {
    let refused = || TensorError::Invalid("a number of the product is too large".to_owned());
    let (a, b) = (in_lines(problem.a)?, in_lines(&problem.b.t()?)?);
    let (a_line, b_line) = (line_bytes(&a).ok_or_else(refused)?, line_bytes(&b).ok_or_else(refused)?);
    let sizes = Sizes { a_line, b_line, ..sizes(problem)?.ok_or_else(refused)? };
    let kernel = match (problem.a.dtype(), problem.b.dtype()) {
        (DType::I8, _) => "mma_i8",
        (DType::F8E5M2, _) => "mma_f8_coarse_fine",
        (_, DType::F8E5M2) => "mma_f8_fine_coarse",
        _ => "mma_f8_fine",
    };
    let grid = [blocks(problem).ok_or_else(refused)?, 1, 1];
    let config = LaunchConfig { grid, block: [THREADS, 1, 1], shared_bytes: SHARED_BYTES };
    let [scale_a, scale_b, bias] = scale_arguments(problem)?;
    let arguments = [whole(problem.out)?, whole(&a)?, whole(&b)?, scale_a, scale_b, bias, (&sizes).into()];
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: the kernel reads and writes elements at places inside the sizes, which are those of the views, and views lie
    // inside their storages. Of each line it reads vectors of 16 bytes, which begin at multiples of them, as far as the line
    // goes. Scales and bias have an element for each place that is asked for, or one with no step; integers have none.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}
