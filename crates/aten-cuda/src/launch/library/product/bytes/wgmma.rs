//! `kernels/matmul_bytes_wgmma.cu`: products of matrices of bytes on the tensor cores of compute capability 9.0.

#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig, TensorMap, TensorMapDim, TensorMapElement, TensorMapLayout};

use super::{NarrowSteps, Numbers, Problem, Scaling, in_lines, is_for_tensor_cores, line_bytes, scale_arguments};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::product::operand::tiles;
use crate::launch::library::{Text, launch_early, traits, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text =
    Text { name: "matmul_bytes_wgmma", ptx: include_str!("../../../../../kernels/matmul_bytes_wgmma.ptx") };

/// Rows of a tile of a block; the two blocks of a cluster take tiles below each other.
const ROWS: i64 = 128;
const CLUSTER: i64 = 2;
/// Bytes of the inner dimension that a stage has.
const STEP: i64 = 128;
const THREADS: u32 = 3 * 128;
/// Tiles that blocks at work together go down before they go across.
const BAND: u32 = 4;

/// A kernel with the columns of its tiles and the stages of its ring.
struct Kernel {
    name: &'static str,
    columns: i64,
    stages: u32,
}

impl Kernel {
    const fn exact(name: &'static str) -> Self {
        Self { name, columns: 128, stages: 6 }
    }

    const fn wide(name: &'static str) -> Self {
        Self { name, columns: 256, stages: 4 }
    }

    /// The kernel of a problem, if there is one.
    fn of(problem: &Problem<'_>) -> Option<Self> {
        let Some(scales) = &problem.scales else { return Some(Self::wide("i8")) };
        let dtypes = (problem.a.dtype(), problem.b.dtype());
        let is_fine = dtypes == (DType::F8E4M3FN, DType::F8E4M3FN);
        if scales.are_divided() {
            let name = if scales.kinds[1] == Scaling::Blocks { "f8_fine_blocks" } else { "f8_fine_parts" };
            return is_fine.then_some(Self::exact(name));
        }
        Some(match dtypes {
            _ if is_fine && problem.fast => Self::wide("f8_fine_fast"),
            _ if is_fine => Self::exact("f8_fine"),
            (DType::F8E5M2, _) => Self::exact("f8_coarse_fine"),
            _ => Self::exact("f8_fine_coarse"),
        })
    }

    fn shared_bytes(&self) -> u32 {
        let stage = u32::try_from((ROWS + self.columns) * STEP).unwrap_or(u32::MAX);
        self.stages * (stage + 16) + 2 * 16_384
    }

    /// Tiles of clusters, if they are not too many.
    fn tiles(&self, problem: &Problem<'_>) -> Option<i64> {
        let [m, n, _] = problem.sizes();
        let all = tiles(m, ROWS * CLUSTER).checked_mul(tiles(n, self.columns))?;
        i32::try_from(all.checked_mul(CLUSTER)?).is_ok().then_some(all)
    }
}

/// The numbers that the kernels take.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    sizes: [u32; 3],
    band: u32,
    scale_a: NarrowSteps,
    scale_b: NarrowSteps,
    bias_step: u32,
    kind_out: u32,
    kind_bias: u32,
}

/// Whether the device multiplies so, there is a kernel, and the result is not too large for one launch.
pub(super) fn can_run(problem: &Problem<'_>) -> Result<bool> {
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    if !traits(device)?.has_wgmma || !is_for_tensor_cores(problem) {
        return Ok(false);
    }
    let has_kernel = Kernel::of(problem).is_some_and(|kernel| kernel.tiles(problem).is_some());
    Ok(has_kernel && sizes(problem)?.is_some())
}

/// The numbers; `None` where one is too large, or scales lie in a way that the kernels do not take.
fn sizes(problem: &Problem<'_>) -> Result<Option<Sizes>> {
    let Some(numbers) = Numbers::of(problem)? else { return Ok(None) };
    let Numbers { sizes, scale_a, scale_b, bias_step, kind_out, kind_bias } = numbers;
    if let Some(scales) = &problem.scales {
        // Scales of two columns are read at once.
        let in_pairs = scale_b.line == 1 && scale_b.part.is_multiple_of(2) && scales.b.data_ptr().is_multiple_of(8);
        if scales.kinds[1] == Scaling::Parts && !in_pairs {
            return Ok(None);
        }
    }
    Ok(Some(Sizes { sizes, band: BAND, scale_a, scale_b, bias_step, kind_out, kind_bias }))
}

/// Computes a problem that [`can_run`].
pub(super) fn run(problem: &Problem<'_>) -> Result<()> {
    let refused = || TensorError::Invalid("the product has no kernel".to_owned());
    let kernel = Kernel::of(problem).ok_or_else(refused)?;
    let sizes = sizes(problem)?.ok_or_else(refused)?;
    let (a, b) = (in_lines(problem.a)?, in_lines(&problem.b.t()?)?);
    let (a_map, b_map) = (map(&a, ROWS)?, map(&b, kernel.columns / CLUSTER)?);
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    let most = (traits(device)?.multiprocessors / CLUSTER).max(1);
    let blocks = kernel.tiles(problem).ok_or_else(refused)?.min(most) * CLUSTER;
    let config = LaunchConfig {
        grid: [u32::try_from(blocks).map_err(|_| refused())?, 1, 1],
        block: [THREADS, 1, 1],
        shared_bytes: kernel.shared_bytes(),
    };
    let [scale_a, scale_b, bias] = scale_arguments(problem)?;
    let arguments = [
        whole(problem.out)?,
        whole(&a)?,
        whole(&b)?,
        scale_a,
        scale_b,
        bias,
        Arg::Plain(a_map.bytes()),
        Arg::Plain(b_map.bytes()),
        (&sizes).into(),
    ];
    // The kernel waits for its turn before it touches memory, and the grid is a multiple of the cluster. Scales and bias have
    // an element for each place that is asked for, or one with no step; integers have none.
    // SAFETY: it reads the factors by their maps, which cover the views and no more, scales and bias as said above, and writes
    // the result at places inside the sizes, which are those of the view.
    unsafe { launch_early(&TEXT, kernel.name, device, &config, &arguments)? };
    Ok(())
}

/// The map of a factor in lines, of which a block asks for so many at once.
fn map(factor: &Tensor, lines: i64) -> Result<TensorMap> {
    let on_host = || TensorError::Invalid("the tensor is on the host".to_owned());
    let buffer = factor.plain_storage()?.buffer().ok_or_else(on_host)?;
    let part = |size: i64| u32::try_from(size).unwrap_or(0);
    let step = line_bytes(factor).ok_or_else(|| TensorError::Invalid("a factor does not lie in lines".to_owned()))?;
    let [count, length] = [factor.sizes()[0], factor.sizes()[1]].map(i64::unsigned_abs);
    let dims = [
        TensorMapDim { size: length, step: 1, tile: part(STEP) },
        TensorMapDim { size: count, step: step.unsigned_abs(), tile: part(lines) },
    ];
    let range = factor.byte_offset()..factor.byte_offset() + factor.byte_extent();
    Ok(TensorMap::new(buffer, range, &TensorMapLayout { element: TensorMapElement::U8, dims: &dims })?)
}

#[cfg(test)]
mod tests {
    use super::Kernel;

    #[test]
    fn blocks_fit_a_multiprocessor() {
        for kernel in [Kernel::exact("f8_fine"), Kernel::wide("i8")] {
            assert!(kernel.shared_bytes() <= 227 * 1024, "{}", kernel.name);
        }
    }
}
