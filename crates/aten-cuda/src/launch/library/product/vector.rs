//! `kernels/matmul_vector.cu` and `kernels/matmul_vector_cluster.cu`: products of a matrix and a vector, in batches.
//!
//! The matrix is either factor where the other one is a single row or column.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use bytemuck::{Pod, Zeroable};
use c10_core::{Arg, LaunchConfig};

use super::Problem;
use super::operand::{Lines, is_aligned, lines, step, tiles};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::{Text, launch, traits, whole};
use crate::tensor::Tensor;

static TEXT: Text = Text { name: "matmul_vector", ptx: include_str!("../../../../kernels/matmul_vector.ptx") };
static CLUSTER_TEXT: Text =
    Text { name: "matmul_vector_cluster", ptx: include_str!("../../../../kernels/matmul_vector_cluster.ptx") };

/// The texts of the kernels.
pub(super) fn texts() -> [&'static Text; 2] {
    [&TEXT, &CLUSTER_TEXT]
}

/// Threads of a block, and its rows; threads of a block that adds shares.
const THREADS: u32 = 256;
const ROWS: i64 = 8;
const FINISH_THREADS: u32 = 128;
/// Chunks of a line that a block takes where neighbours lie along the result; elements where chunks are single ones.
const LANES: i64 = 8;
const ANY_LANES: i64 = 32;
/// The most batches: blocks along the second axis of a grid.
const MOST_BATCHES: i64 = 65_535;
/// Lines are shared among blocks until there are so many of these, each with at least so many lines.
const ENOUGH_BLOCKS: i64 = 264;
const SHARE_LINES: i64 = 256;

/// How the matrix lies, and who adds the sums of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// Neighbours along the inner dimension: a warp for each row.
    Rows,
    /// Neighbours along the result: blocks share the lines, and a second kernel adds their sums.
    Columns,
    /// The same by clusters of blocks, without a second kernel.
    Cluster,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rows => "own_vector_rows",
            Self::Columns => "own_vector_columns",
            Self::Cluster => "own_vector_columns_cluster",
        }
    }
}

/// Elements from one matrix of the batch to the next, and from one element of a vector to the next.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Steps {
    batch: i64,
    element: i64,
}

/// The numbers that the kernels take.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sizes {
    n: i64,
    k: i64,
    matrix_batch: i64,
    line: i64,
    x: Steps,
    out: Steps,
    c: Steps,
    bias: Steps,
    alpha: f64,
    beta: f64,
    shares: u32,
    activation: u32,
}

/// A problem as a matrix and a vector. Dimensions are those of the matrix along the result and along the inner one, and
/// that of the result.
struct Split<'a> {
    matrix: &'a Tensor,
    x: &'a Tensor,
    dims: [usize; 2],
    along: usize,
}

impl<'a> Split<'a> {
    fn of(problem: &Problem<'a>) -> Option<Self> {
        let [_, m, n, _] = problem.sizes();
        if m == 1 {
            Some(Self { matrix: problem.b, x: problem.a, dims: [2, 1], along: 2 })
        } else if n == 1 {
            Some(Self { matrix: problem.a, x: problem.b, dims: [1, 2], along: 1 })
        } else {
            None
        }
    }

    /// How the matrix lies: by vectors of 16 bytes if it can be read so.
    fn lines(&self, lies_inner: bool) -> Option<(Lines, bool)> {
        let found = lines(self.matrix, self.dims).find(|lines| lines.lies_inner == lies_inner)?;
        Some((found, is_aligned(self.matrix, &found)))
    }

    /// The steps of a tensor with the result's sizes.
    fn steps(&self, tensor: &Tensor) -> Steps {
        Steps { batch: step(tensor, 0), element: step(tensor, self.along) }
    }

    /// The vector's dimension of length k.
    fn inner(&self) -> usize {
        if self.along == 2 { 2 } else { 1 }
    }
}

/// Elements of a chunk of 16 bytes.
fn chunk(dtype: DType) -> i64 {
    i64::try_from(16 / dtype.itemsize()).unwrap_or(1)
}

/// Whether one factor is a vector and the other one lies as the way asks for.
pub(super) fn can_run(way: Way, problem: &Problem<'_>) -> Result<bool> {
    let Some(split) = Split::of(problem) else { return Ok(false) };
    let [batches, m, n, k] = problem.sizes();
    let is_small = batches <= MOST_BATCHES && k > 0 && i32::try_from(m.max(n)).is_ok();
    if !is_small || !matches!(problem.out.dtype(), DType::F16 | DType::BF16 | DType::F32 | DType::F64) {
        return Ok(false);
    }
    Ok(match (way, split.lines(way == Way::Rows)) {
        (_, None) => false,
        (Way::Rows | Way::Columns, Some(_)) => true,
        (Way::Cluster, Some((_, is_aligned))) => {
            let device = problem.out.device().cuda_index()?.unwrap_or(0);
            is_aligned && m.max(n) % chunk(problem.out.dtype()) == 0 && traits(device)?.has_clusters
        }
    })
}

/// The way that is likely to be quick, if one serves. Where both serve a matrix is read along its lines of more elements.
pub(super) fn choose(problem: &Problem<'_>) -> Result<Option<Way>> {
    let [_, m, n, k] = problem.sizes();
    let ways =
        if k >= m.max(n) { [Way::Rows, Way::Cluster, Way::Columns] } else { [Way::Cluster, Way::Columns, Way::Rows] };
    for way in ways {
        if can_run(way, problem)? {
            return Ok(Some(way));
        }
    }
    Ok(None)
}

/// Computes a problem that [`can_run`].
pub(super) fn run(way: Way, problem: &Problem<'_>) -> Result<()> {
    let refused = || TensorError::Invalid("neither factor is a vector".to_owned());
    let split = Split::of(problem).ok_or_else(refused)?;
    let (lines, is_aligned) = split.lines(way == Way::Rows).ok_or_else(refused)?;
    let [batches, m, n, k] = problem.sizes();
    let columns_of_out = m.max(n);
    let inner = split.inner();
    // A row is multiplied by chunks of the vector, which then lie together.
    let is_apart = way == Way::Rows && is_aligned && step(split.x, inner) > 1;
    let x = if is_apart { split.x.contiguous()? } else { split.x.clone() };
    let x_steps = Steps { batch: step(&x, 0), element: step(&x, inner) };
    let x_aligned = x.data_ptr().is_multiple_of(16) && x_steps.batch % chunk(x.dtype()) == 0;
    let by_chunks = is_aligned && (way != Way::Rows || x_aligned);
    let sizes = Sizes {
        n: columns_of_out,
        k,
        matrix_batch: lines.batch,
        line: lines.step,
        x: x_steps,
        out: split.steps(problem.out),
        c: problem.c.map_or_else(Steps::zeroed, |c| split.steps(c)),
        // Of a result with one column all elements get the bias of that column.
        bias: problem.bias.map_or_else(Steps::zeroed, |bias| Steps { batch: 0, element: step(bias, 0) }),
        alpha: problem.alpha.to_f64(),
        beta: problem.beta.to_f64(),
        shares: 1,
        activation: problem.activation.code(),
    };
    Launch { problem, matrix: split.matrix, x: &x, batches }.run(way, by_chunks, sizes)
}

/// What all kernels take.
struct Launch<'a> {
    problem: &'a Problem<'a>,
    matrix: &'a Tensor,
    x: &'a Tensor,
    batches: i64,
}

impl Launch<'_> {
    fn run(&self, way: Way, by_chunks: bool, sizes: Sizes) -> Result<()> {
        let dtype = self.problem.out.dtype();
        let names = names(dtype);
        let columns = if by_chunks { LANES * chunk(dtype) } else { ANY_LANES };
        match way {
            Way::Rows => {
                let name = if by_chunks { names.rows } else { names.rows_any };
                self.queue(&TEXT, name, [tiles(sizes.n, ROWS), self.batches, 1], THREADS, &[], &sizes)
            }
            Way::Cluster => {
                let sizes = Sizes { shares: names.cluster.1, ..sizes };
                let blocks = tiles(sizes.n, columns) * i64::from(sizes.shares);
                self.queue(&CLUSTER_TEXT, names.cluster.0, [blocks, self.batches, 1], THREADS, &[], &sizes)
            }
            Way::Columns => {
                let name = if by_chunks { names.columns } else { names.columns_any };
                self.in_shares(name, names.finish, columns, sizes)
            }
        }
    }

    /// Blocks share the lines where there would be few of them.
    fn in_shares(&self, name: &'static str, finish: &'static str, columns: i64, sizes: Sizes) -> Result<()> {
        let blocks = tiles(sizes.n, columns);
        let wanted = ENOUGH_BLOCKS / (blocks * self.batches).max(1);
        let shares = wanted.min(sizes.k / SHARE_LINES).clamp(1, 64);
        let sizes = Sizes { shares: u32::try_from(shares).unwrap_or(1), ..sizes };
        let grid = [blocks, self.batches, shares];
        if shares == 1 {
            return self.queue(&TEXT, name, grid, THREADS, &[Arg::U64(0)], &sizes);
        }
        let dtype = if self.problem.out.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let room = Tensor::uninitialized(&[shares, self.batches, sizes.n], dtype, self.problem.out)?;
        self.queue(&TEXT, name, grid, THREADS, &[whole(&room)?], &sizes)?;
        let grid = [tiles(sizes.n, FINISH_THREADS.into()), self.batches, 1];
        self.queue_finish(finish, grid, &whole(&room)?, &sizes)
    }

    fn config(&self, grid: [i64; 3], threads: u32) -> Result<LaunchConfig> {
        let too_large = |_| TensorError::TooLarge { sizes: self.problem.out.sizes().to_vec() };
        let [x, y, z] = grid.map(|size| i32::try_from(size).map(i32::unsigned_abs).map_err(too_large));
        Ok(LaunchConfig { grid: [x?, y?, z?], block: [threads, 1, 1], shared_bytes: 0 })
    }

    fn queue(
        &self,
        text: &'static Text,
        kernel: &'static str,
        grid: [i64; 3],
        threads: u32,
        room: &[Arg<'_>],
        sizes: &Sizes,
    ) -> Result<()> {
        let problem = self.problem;
        let mut arguments = vec![
            whole(problem.out)?,
            whole(self.matrix)?,
            whole(self.x)?,
            problem.c.map_or(Ok(Arg::U64(0)), whole)?,
            problem.bias.map_or(Ok(Arg::U64(0)), whole)?,
        ];
        arguments.extend_from_slice(room);
        arguments.push(sizes.into());
        let device = problem.out.device().cuda_index()?.unwrap_or(0);
        // SAFETY: the kernel reads and writes elements at places inside the sizes, which are those of the views; a view
        // lies inside its storage. Chunks begin at multiples of 16 bytes and are read as far as lines go. The room has a
        // sum for each share, product and place. Nothing is read where an address is null.
        unsafe { launch(text, kernel, device, &self.config(grid, threads)?, &arguments)? };
        Ok(())
    }

    fn queue_finish(&self, kernel: &'static str, grid: [i64; 3], room: &Arg<'_>, sizes: &Sizes) -> Result<()> {
        let problem = self.problem;
        let arguments = [
            whole(problem.out)?,
            problem.c.map_or(Ok(Arg::U64(0)), whole)?,
            problem.bias.map_or(Ok(Arg::U64(0)), whole)?,
            room.clone(),
            sizes.into(),
        ];
        let device = problem.out.device().cuda_index()?.unwrap_or(0);
        // SAFETY: the kernel reads the room, which has a sum for each share, product and place, and elements inside the
        // sizes, which are those of the views. Nothing is read where an address is null.
        unsafe { launch(&TEXT, kernel, device, &self.config(grid, FINISH_THREADS)?, &arguments)? };
        Ok(())
    }
}

/// The kernels of a dtype.
struct Names {
    rows: &'static str,
    rows_any: &'static str,
    columns: &'static str,
    columns_any: &'static str,
    finish: &'static str,
    /// With the blocks of a cluster.
    cluster: (&'static str, u32),
}

fn names(dtype: DType) -> Names {
    macro_rules! names {
        ($dtype:literal, $shares:literal) => {
            Names {
                rows: concat!("rows_", $dtype),
                rows_any: concat!("rows_", $dtype, "_any"),
                columns: concat!("columns_", $dtype),
                columns_any: concat!("columns_", $dtype, "_any"),
                finish: concat!("finish_", $dtype),
                cluster: (concat!("cluster_", $dtype), $shares),
            }
        };
    }
    match dtype {
        DType::F16 => names!("f16", 4),
        DType::BF16 => names!("bf16", 4),
        DType::F64 => names!("f64", 2),
        _ => names!("f32", 2),
    }
}
