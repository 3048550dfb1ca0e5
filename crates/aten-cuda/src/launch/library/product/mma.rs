//! `kernels/matmul_mma.cu`: products on the tensor cores that compute capability 8.0 brought: of 16-bit floats, and of
//! floats that are rounded to tf32.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use c10_core::{Arg, LaunchConfig};

use super::operand::{self, Lines, is_aligned, lines};
use super::tiled::{Sizes, Strides};
use super::{Problem, is_half};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::{Text, launch, traits, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text = Text { name: "matmul_mma", ptx: include_str!("../../../../kernels/matmul_mma.ptx") };

/// Bytes of the inner dimension that pass through shared memory at a time, and stages of these.
const STEP_BYTES: i64 = 128;
const STAGES: i64 = 3;
/// Steps that a worker has at least.
const LEAST_STEPS: i64 = 4;
/// Small tiles that a multiprocessor computes at once.
const SMALL_AT_ONCE: i64 = 4;

/// What a kernel is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// Tiles of 128 x 256, a block for each.
    Large,
    /// Tiles of 64 x 64, a block for each.
    Small,
    /// Tiles of 128 x 256, whose steps workers share evenly.
    Stream,
    /// As [`Self::Large`], for floats.
    LargeTf32,
    /// As [`Self::Small`], for floats.
    SmallTf32,
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Large => "own_mma_128x256x64_s3",
            Self::Small => "own_mma_64x64x64_s3",
            Self::Stream => "own_mma_stream_128x256x64_s3",
            Self::LargeTf32 => "own_mma_tf32_128x256x32_s3",
            Self::SmallTf32 => "own_mma_tf32_64x64x32_s3",
        }
    }

    fn is_large(self) -> bool {
        !matches!(self, Self::Small | Self::SmallTf32)
    }

    fn is_tf32(self) -> bool {
        matches!(self, Self::LargeTf32 | Self::SmallTf32)
    }

    /// Rows and columns of a tile.
    fn tile(self) -> [i64; 2] {
        if self.is_large() { [128, 256] } else { [64, 64] }
    }

    fn threads(self) -> u32 {
        if self.is_large() { 256 } else { 128 }
    }

    /// Steps along the inner dimension.
    fn steps(self, k: i64) -> i64 {
        operand::tiles(k, if self.is_tf32() { STEP_BYTES / 4 } else { STEP_BYTES / 2 })
    }

    fn shared_bytes(self) -> u32 {
        let [rows, columns] = self.tile();
        // Floats that lie across lines have lines that are longer by 8 of them.
        let more = if self.is_tf32() { 16 } else { 0 };
        u32::try_from(STAGES * (rows + columns + more) * STEP_BYTES).unwrap_or(u32::MAX)
    }
}

/// Whether the device has tensor cores for it, and a block its shared memory, and the result is not too large for one
/// launch.
pub(super) fn can_run(shape: Shape, problem: &Problem<'_>) -> Result<bool> {
    let is_served = if shape.is_tf32() {
        problem.out.dtype() == DType::F32 && problem.allow_tf32
    } else {
        is_half(problem.out.dtype())
    };
    if !is_served || tiles(problem, shape).is_none() || u32::try_from(shape.steps(problem.sizes()[3])).is_err() {
        return Ok(false);
    }
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    let traits = traits(device)?;
    let (major, minor) = traits.capability;
    // Devices of other minor versions have less shared memory.
    let has_room = major >= 8 && (!shape.is_large() || minor == 0);
    Ok(has_room && (shape != Shape::Stream || Shares::of(problem, traits.multiprocessors).is_some()))
}

/// The shape that is likely to be quick, if one serves.
pub(super) fn choose(problem: &Problem<'_>) -> Result<Option<Shape>> {
    let device = problem.out.device().cuda_index()?.unwrap_or(0);
    let is_tf32 = problem.out.dtype() == DType::F32;
    for shape in likely(problem.sizes(), is_tf32, traits(device)?.multiprocessors) {
        if can_run(shape, problem)? {
            return Ok(Some(shape));
        }
    }
    Ok(None)
}

/// Shapes in the order of the time that they are likely to take.
fn likely(sizes: [i64; 4], is_tf32: bool, multiprocessors: i64) -> Vec<Shape> {
    let mut shapes = if is_tf32 {
        vec![Shape::LargeTf32, Shape::SmallTf32]
    } else {
        vec![Shape::Large, Shape::Stream, Shape::Small]
    };
    shapes.sort_by_key(|&shape| likely_time(shape, sizes, multiprocessors));
    shapes
}

/// How long a shape is likely to take, in hundredths of a step of a large tile, as measured on a device with 132
/// multiprocessors. Beginning and finishing a tile takes as long as some steps.
fn likely_time(shape: Shape, [batches, m, n, k]: [i64; 4], multiprocessors: i64) -> i64 {
    let ([rows, columns], steps) = (shape.tile(), shape.steps(k));
    let all = operand::tiles(m, rows).saturating_mul(operand::tiles(n, columns)).saturating_mul(batches);
    match shape {
        Shape::Large | Shape::LargeTf32 => {
            operand::tiles(all, multiprocessors).saturating_mul(steps.saturating_add(4)).saturating_mul(100)
        }
        Shape::Stream => {
            // Steps take a little longer. Sums are left and waited for, and those of each further worker at a tile are added.
            let work = all.saturating_mul(steps.saturating_add(4)).saturating_mul(105) / multiprocessors;
            work.saturating_add(1000).saturating_add(200 * multiprocessors / all.max(1))
        }
        Shape::Small | Shape::SmallTf32 => {
            let at_once = SMALL_AT_ONCE * multiprocessors;
            let rest = operand::tiles(all % at_once, multiprocessors);
            let last = if rest == 0 { 0 } else { (20 * rest).max(26) };
            (all / at_once).saturating_mul(78).saturating_add(last).saturating_mul(steps.saturating_add(3))
        }
    }
}

/// Computes a problem that [`can_run`].
pub(super) fn run(shape: Shape, problem: &Problem<'_>) -> Result<()> {
    let out = problem.out;
    let device = out.device().cuda_index()?.unwrap_or(0);
    let (a, b) = (aligned(problem.a, [1, 2])?, aligned(problem.b, [2, 1])?);
    let sizes = Sizes { a: a.strides([1, 2]), b: b.strides([2, 1]), ..Sizes::of(problem) };
    let kernel = kernel(shape, out.dtype(), &a.lines, &b.lines);
    let config = |blocks: i64| LaunchConfig {
        grid: [u32::try_from(blocks).unwrap_or(0), 1, 1],
        block: [shape.threads(), 1, 1],
        shared_bytes: shape.shared_bytes(),
    };
    let [c, bias] = [problem.c, problem.bias].map(|tensor| tensor.map_or(Ok(Arg::U64(0)), whole));
    let mut arguments = vec![whole(out)?, whole(&a.tensor)?, whole(&b.tensor)?, c?, bias?];
    if shape != Shape::Stream {
        arguments.push((&sizes).into());
        // SAFETY: the kernel reads and writes elements at places inside the sizes above, which are those of the views; a
        // view lies inside its storage. Vectors of the factors begin at multiples of 16 bytes and are read as far as the
        // factors go. Nothing is read where an address is null.
        unsafe { launch(&TEXT, kernel, device, &config(tiles(problem, shape).unwrap_or(0)), &arguments)? };
        return Ok(());
    }
    let refused = || TensorError::Invalid("the product has no steps that workers could share".to_owned());
    let shares = Shares::of(problem, traits(device)?.multiprocessors).ok_or_else(refused)?;
    let [rows, columns] = shape.tile();
    let left = Tensor::uninitialized(&[shares.workers, rows * columns], DType::F32, out)?;
    // A word for each worker and the ticket.
    let told = Tensor::uninitialized(&[shares.workers + 1], DType::I32, out)?;
    if let Some(buffer) = told.storage().buffer() {
        buffer.fill(.., 0, None)?;
    }
    arguments.extend([whole(&left)?, whole(&told)?, (&sizes).into(), Arg::U32(shares.tiles)]);
    // SAFETY: as above. Each worker has room for the sums of a tile and a word, which is zero before the launch, as the
    // ticket is.
    unsafe { launch(&TEXT, kernel, device, &config(shares.workers), &arguments)? };
    Ok(())
}

/// How workers share the steps of the tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    workers: i64,
    /// Tiles whose steps are shared; of the others each worker has as many.
    tiles: u32,
}

impl Shares {
    /// A worker for each multiprocessor, or fewer where they would have little to do. Of more tiles than workers, as many
    /// as can be are left whole, so that a worker still has more steps than a tile to share. `None` where there are none,
    /// or too many to count.
    fn of(problem: &Problem<'_>, multiprocessors: i64) -> Option<Self> {
        let tiles = tiles(problem, Shape::Stream)?;
        Self::of_steps(tiles, Shape::Stream.steps(problem.sizes()[3]), multiprocessors)
    }

    fn of_steps(tiles: i64, steps: i64, multiprocessors: i64) -> Option<Self> {
        let all = tiles.checked_mul(steps)?;
        // The kernel multiplies them with the number of a worker.
        all.checked_mul(multiprocessors.max(1))?;
        if all == 0 {
            return None;
        }
        let workers = multiprocessors.min(all / LEAST_STEPS).max(1);
        let shared = match tiles % workers {
            0 => 0,
            rest if tiles < workers => rest,
            rest => rest + workers,
        };
        Some(Self { workers, tiles: u32::try_from(shared).ok()? })
    }
}

/// The kernels for `f16` and `bf16`, or for floats, by how the factors lie.
fn kernel(shape: Shape, dtype: DType, a: &Lines, b: &Lines) -> &'static str {
    macro_rules! layouts {
        ($name:literal) => {
            [concat!($name, "_ii"), concat!($name, "_io"), concat!($name, "_oi"), concat!($name, "_oo")]
        };
    }
    let is_brain = dtype == DType::BF16;
    let names = match shape {
        Shape::Large if is_brain => layouts!("large_bf16"),
        Shape::Large => layouts!("large_f16"),
        Shape::Small if is_brain => layouts!("small_bf16"),
        Shape::Small => layouts!("small_f16"),
        Shape::Stream if is_brain => layouts!("stream_bf16"),
        Shape::Stream => layouts!("stream_f16"),
        Shape::LargeTf32 => layouts!("large_tf32"),
        Shape::SmallTf32 => layouts!("small_tf32"),
    };
    names[usize::from(!a.lies_inner) * 2 + usize::from(!b.lies_inner)]
}

/// How many tiles the results have, if not too many for one launch.
fn tiles(problem: &Problem<'_>, shape: Shape) -> Option<i64> {
    let ([batches, m, n, _], [rows, columns]) = (problem.sizes(), shape.tile());
    let tiles = operand::tiles(m, rows).checked_mul(operand::tiles(n, columns))?.checked_mul(batches)?;
    i32::try_from(tiles).ok().map(i64::from)
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
    // Elements of 16 bytes.
    let vector = i64::try_from(16 / factor.element_size()).unwrap_or(1);
    let padded = operand::tiles(columns, vector) * vector;
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

#[cfg(test)]
mod tests {
    use super::{Shape, Shares, likely};

    #[test]
    fn the_shape_follows_from_the_number_of_tiles() {
        let first = |sizes| likely(sizes, false, 132)[0];
        assert_eq!(first([1, 8192, 8192, 8192]), Shape::Large);
        assert_eq!(first([1, 2048, 2048, 2048]), Shape::Large);
        assert_eq!(first([1, 4096, 4608, 4096]), Shape::Stream);
        assert_eq!(first([1, 1280, 1280, 8192]), Shape::Stream);
        assert_eq!(first([1, 512, 512, 16384]), Shape::Stream);
        assert_eq!(first([1, 1024, 1024, 4096]), Shape::Small);
        assert_eq!(first([1, 64, 64, 64]), Shape::Small);
        assert_eq!(likely([1, 8192, 8192, 8192], true, 132)[0], Shape::LargeTf32);
        assert_eq!(likely([i64::MAX; 4], false, 132).len(), 3);
    }

    #[test]
    fn steps_are_shared_evenly() {
        let of = |tiles, steps| Shares::of_steps(tiles, steps, 132).map(|shares| (shares.workers, shares.tiles));
        assert_eq!(of(576, 64), Some((132, 180)));
        assert_eq!(of(264, 64), Some((132, 0)));
        assert_eq!(of(50, 128), Some((132, 50)));
        assert_eq!(of(1, 3), Some((1, 0)));
        assert_eq!(of(2, 12), Some((6, 2)));
        assert_eq!(of(2, 0), None);
        assert_eq!(of(i64::MAX, 2), None);
    }
}
