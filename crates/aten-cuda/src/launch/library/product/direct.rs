//! `kernels/matmul_direct.cu`: single small products of floats and of floats of 16 bits, also as launches that are prepared
//! once.
//!
//! **Invariant:** [`Numbers`] are made of the factors and the result that the kernel is launched with, so that what it reads
//! and writes lies inside their storages.
#![expect(unsafe_code, reason = "the launch of a kernel that is written in CUDA C++")]

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use c10_core::{DeviceBuffer, DeviceIndex, LaunchConfig, MemoryAccess, PreparedLaunch, Runtime};

use super::{Problem, is_half};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::{Text, launch, prepare, whole};
use crate::tensor::Tensor;

pub(super) static TEXT: Text =
    Text { name: "matmul_direct", ptx: include_str!("../../../../kernels/matmul_direct.ptx") };

/// Elements of a tile, and threads of a block.
const ROWS: u32 = 16;
const COLUMNS: u32 = 32;
const THREADS: u32 = 128;

/// The largest size and the longest step, so that places count in 32 bits.
const MOST: i64 = 1 << 15;

/// Neighbours of the left factor lie along the inner dimension, and those of the right one; their lines consist of vectors of
/// 16 bytes.
const INNER: [u32; 2] = [1, 2];
const VECTORS: [u32; 2] = [4, 8];

/// The numbers that the kernel takes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Numbers {
    m: u32,
    n: u32,
    k: u32,
    flags: u32,
    out_step: u32,
    a_step: u32,
    b_step: u32,
    alpha: f32,
}

impl Numbers {
    /// Those of a product, whose factors are the last two dimensions, and the elements from the first to the last one of each
    /// factor; `None` where the kernel does not compute it. Lines of the result begin so many elements behind each other.
    #[inline]
    pub(crate) fn of(a: &Tensor, b: &Tensor, out_step: Option<i64>, alpha: f64) -> Option<(Self, [usize; 2])> {
        let (left, right) = (Factor::of(a), Factor::of(b));
        let [m, k] = left.sizes;
        let n = right.sizes[1];
        let out_step = out_step.unwrap_or(n);
        if ![m, n, k].iter().all(|size| (1..=MOST).contains(size)) || !(n..=MOST).contains(&out_step) {
            return None;
        }
        let (a_lies, b_lies) = (left.lies(1)?, right.lies(0)?);
        let flags = a_lies.flags(INNER[0], VECTORS[0]) | b_lies.flags(INNER[1], VECTORS[1]);
        let (a_step, b_step) = (a_lies.step, b_lies.step);
        let [m, n, k, out_step] = [m, n, k, out_step].map(narrow);
        #[expect(clippy::cast_possible_truncation, reason = "sums are floats")]
        let alpha = alpha as f32;
        Some((Self { m, n, k, flags, out_step, a_step, b_step, alpha }, [a_lies.extent, b_lies.extent]))
    }

    /// Blocks of the launch.
    fn blocks(&self) -> u32 {
        self.m.div_ceil(ROWS) * self.n.div_ceil(COLUMNS)
    }
}

/// A size or a step, which is not negative and at most [`MOST`].
fn narrow(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// A factor: its last two dimensions.
struct Factor {
    sizes: [i64; 2],
    steps: [i64; 2],
    /// Bits of a number of elements, and of an address, that are 0 where it is one of whole vectors.
    below_vector: i64,
    address: u64,
}

/// How a factor lies.
struct Lies {
    is_inner: bool,
    has_vectors: bool,
    /// From one line to the next.
    step: u32,
    /// Elements from the first to the last one.
    extent: usize,
}

impl Factor {
    #[inline]
    fn of(tensor: &Tensor) -> Self {
        let last = |all: &[i64]| match all {
            [.., first, second] => [*first, *second],
            _ => [0, 0],
        };
        let below_vector = if tensor.dtype() == DType::F32 { 3 } else { 7 };
        let address = tensor.data_ptr();
        Self { sizes: last(tensor.sizes()), steps: last(tensor.strides()), below_vector, address }
    }

    /// How neighbours lie, along the inner dimension first.
    #[inline]
    fn lies(&self, inner: usize) -> Option<Lies> {
        let is_inner = self.steps[inner] == 1 || self.sizes[inner] == 1;
        let fast = if is_inner { inner } else { 1 - inner };
        let slow = 1 - fast;
        let step = if self.sizes[slow] == 1 { 0 } else { self.steps[slow] };
        let is_line = is_inner || self.steps[fast] == 1 || self.sizes[fast] == 1;
        if !is_line || !(0..=MOST).contains(&step) {
            return None;
        }
        let has_vectors = self.address & 15 == 0 && (step | self.sizes[fast]) & self.below_vector == 0;
        let extent = usize::try_from((self.sizes[slow] - 1) * step + self.sizes[fast]).ok()?;
        Some(Lies { is_inner, has_vectors, step: narrow(step), extent })
    }
}

impl Lies {
    #[inline]
    fn flags(&self, inner: u32, vectors: u32) -> u32 {
        (if self.is_inner { inner } else { 0 }) | if self.has_vectors { vectors } else { 0 }
    }
}

fn kernel(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("direct_f32"),
        DType::F16 => Some("direct_f16"),
        DType::BF16 => Some("direct_bf16"),
        _ => None,
    }
}

/// A prepared launch of the kernel of a dtype.
#[derive(Debug)]
pub(crate) struct Direct(PreparedLaunch);

impl Direct {
    /// That of a dtype, which is one that the kernels are there for.
    pub(crate) fn new(dtype: DType, device: DeviceIndex) -> Result<Self> {
        let refused = || TensorError::NotImplemented { kernel: "addmm_cuda".to_owned(), dtype };
        let name = kernel(dtype).ok_or_else(refused)?;
        let words = size_of::<Numbers>() / size_of::<u64>();
        let accesses = [MemoryAccess::Output, MemoryAccess::Reads("self"), MemoryAccess::Reads("mat2")];
        Ok(Self(prepare(&TEXT, name, device, THREADS, (3, words))?.accessing(&accesses)))
    }

    /// Whether there is a kernel for a dtype.
    #[inline]
    pub(crate) fn serves(dtype: DType) -> bool {
        dtype == DType::F32 || is_half(dtype)
    }

    /// Whether it is of this runtime.
    #[inline]
    pub(crate) fn is_of(&self, runtime: &Runtime) -> bool {
        self.0.is_of(runtime)
    }

    /// Queues a product on the current stream: the memory of the result and of the factors, all of the dtype, and the numbers
    /// of exactly these.
    #[inline]
    pub(crate) fn run(
        &self,
        runtime: &Runtime,
        parts: &[(&DeviceBuffer, Range<usize>); 3],
        numbers: &Numbers,
    ) -> Result<()> {
        let words: [u64; 4] = bytemuck::cast(*numbers);
        // SAFETY: the kernel reads and writes elements at places inside the sizes, which are those of the views; a view lies
        // inside its storage. It reads vectors only of factors that consist of whole ones.
        unsafe { self.0.launch(runtime, numbers.blocks(), parts, &words)? };
        Ok(())
    }
}

/// The numbers of a problem; `None` where it is none for the kernel.
fn numbers(problem: &Problem<'_>) -> Option<Numbers> {
    let [batches, _, n, _] = problem.sizes();
    let out = problem.out;
    let is_plain = batches == 1 && problem.c.is_none() && !problem.is_followed() && Direct::serves(out.dtype());
    let lies = out.strides()[2] == 1 || n == 1;
    let step = if out.sizes()[1] == 1 { n } else { out.strides()[1] };
    if !is_plain || !lies {
        return None;
    }
    Numbers::of(problem.a, problem.b, Some(step), problem.alpha.to_f64()).map(|(numbers, _)| numbers)
}

/// Whether it is one product of these dtypes without anything else, of factors that lie in lines.
pub(super) fn can_run(problem: &Problem<'_>) -> bool {
    numbers(problem).is_some()
}

/// Computes a problem that [`can_run`].
pub(super) fn run(problem: &Problem<'_>) -> Result<()> {
    let out = problem.out;
    let refused = || TensorError::NotImplemented { kernel: "addmm_cuda".to_owned(), dtype: out.dtype() };
    let (numbers, kernel) = numbers(problem).zip(kernel(out.dtype())).ok_or_else(refused)?;
    let arguments = [whole(out)?, whole(problem.a)?, whole(problem.b)?, (&numbers).into()];
    let config = LaunchConfig { grid: [numbers.blocks(), 1, 1], block: [THREADS, 1, 1], shared_bytes: 0 };
    let device = out.device().cuda_index()?.unwrap_or(0);
    // SAFETY: as in `Direct::run`.
    unsafe { launch(&TEXT, kernel, device, &config, &arguments)? };
    Ok(())
}
