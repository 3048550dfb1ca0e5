//! `kernels/transpose.cu`: copies between tensors whose neighbours in memory lie along different dimensions.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use c10_core::LaunchConfig;

use super::{Packed, Text, launch, whole};
use crate::base::error::Result;
use crate::iterate::Iteration;
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "transpose", ptx: include_str!("../../../kernels/transpose.ptx") };

/// Dimensions of a batch.
const RANK: usize = 16;
/// Bytes of a vector.
const VECTOR: i64 = 16;
/// Bytes along both dimensions below which lines are so short that tiles would be mostly empty.
const SHORTEST: i64 = 32;

/// How an element size is copied: the kernels for aligned and for other memory, with the elements of a tile along the
/// source and along the target, and the threads of a block.
struct Kernels {
    vectors: (&'static str, [i64; 2], u32),
    singly: &'static str,
}

/// The tile and the threads of every kernel that moves single elements.
const SINGLY: ([i64; 2], u32) = ([32, 32], 256);

static KERNELS: [Kernels; 5] = [
    Kernels { vectors: ("transpose_1", [256, 128], 128), singly: "transpose_singly_1" },
    Kernels { vectors: ("transpose_2", [128, 128], 256), singly: "transpose_singly_2" },
    Kernels { vectors: ("transpose_4", [64, 64], 256), singly: "transpose_singly_4" },
    Kernels { vectors: ("transpose_8", [32, 32], 256), singly: "transpose_singly_8" },
    Kernels { vectors: ("transpose_16", [16, 32], 256), singly: "transpose_singly_16" },
];

/// Copies the elements where neighbours of the source lie along another dimension than those of the target. Says whether
/// they do, and are so many that this is the way to copy them.
///
/// The tensors have the same sizes, dtype and device. No two elements of the target share memory.
pub(crate) fn copy(target: &Tensor, source: &Tensor) -> Result<bool> {
    assert!(target.sizes() == source.sizes() && target.dtype() == source.dtype(), "the tensors fit each other");
    let Some(plan) = Plan::of(target, source) else { return Ok(false) };
    let config = LaunchConfig { grid: [plan.blocks, 1, 1], block: [plan.threads, 1, 1], shared_bytes: 0 };
    let device = target.device().cuda_index()?.unwrap_or(0);
    let arguments = [whole(target)?, whole(source)?, plan.shape.argument()];
    // SAFETY: the kernel reads and writes elements at places inside the sizes of the iteration over these two tensors,
    // which lie inside their storages. Vectors of 16 bytes are used only where every line begins at a multiple of that.
    unsafe { launch(&TEXT, plan.kernel, device, &config, &arguments)? };
    Ok(true)
}

/// A launch.
struct Plan {
    kernel: &'static str,
    blocks: u32,
    threads: u32,
    /// `Shape` of the source.
    shape: Packed,
}

impl Plan {
    fn of(target: &Tensor, source: &Tensor) -> Option<Self> {
        let bytes = i64::try_from(target.element_size()).ok()?;
        let Iteration { sizes, strides, .. } = Iteration::new(target.sizes(), &[target, source], false);
        let (to, from) = (&strides[0], &strides[1]);
        let across = (1..sizes.len()).find(|&dim| from[dim] == bytes && to[dim] != 0)?;
        let is_worth_it = sizes[0] * bytes >= SHORTEST && sizes[across] * bytes >= SHORTEST;
        if to[0] != bytes || from[0] == bytes || from[0] == 0 || !is_worth_it {
            return None;
        }
        let batch = || (1..sizes.len()).filter(|&dim| dim != across);
        let steps_fit = batch().chain([0, across]).all(|dim| {
            let is_aligned = |step: i64| step % VECTOR == 0;
            (dim == 0 || is_aligned(to[dim])) && (dim == across || is_aligned(from[dim]))
        });
        let is_aligned = steps_fit && [target, source].iter().all(|tensor| tensor.data_ptr().is_multiple_of(16));
        let kernels = &KERNELS[bytes.trailing_zeros() as usize];
        let (kernel, [tile_across, tile_down], threads) =
            if is_aligned { kernels.vectors } else { (kernels.singly, SINGLY.0, SINGLY.1) };
        let tiles = |size: i64, tile: i64| i32::try_from(size.unsigned_abs().div_ceil(tile.unsigned_abs())).ok();
        let (tiles_across, tiles_down) = (tiles(sizes[across], tile_across)?, tiles(sizes[0], tile_down)?);
        let count = batch().try_fold(i64::from(tiles_across), |count, dim| count.checked_mul(sizes[dim]))?;
        let blocks = i32::try_from(count.checked_mul(tiles_down.into())?).ok()?;
        if batch().count() > RANK {
            return None;
        }
        let mut shape = Packed::default();
        [sizes[across], sizes[0], from[0], to[across]].iter().for_each(|&number| shape.word(number));
        [tiles_across, tiles_down, i32::try_from(batch().count()).ok()?, 0].iter().for_each(|&part| shape.half(part));
        for numbers in [&sizes, from, to] {
            shape.words(&batch().map(|dim| numbers[dim]).collect::<Vec<i64>>(), RANK);
        }
        Some(Self { kernel, blocks: blocks.unsigned_abs(), threads, shape })
    }
}
