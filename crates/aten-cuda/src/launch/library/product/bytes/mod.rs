//! Products of matrices of bytes: of 8-bit integers into 32-bit ones, and of 8-bit floats with scales.
//!
//! As for other products there are several ways, each a [`Solution`] with a name that stays. `tiled` takes any strides on any
//! device, `mma` tensor cores from compute capability 8.0 on, `wgmma` those of 9.0.
//!
//! **Invariant:** sums of integers are the same whoever computes them. Those of floats are taken in the order of the inner
//! dimension, on CUDA cores with each step rounded to `f32`, on tensor cores as exactly as these are.

mod mma;
mod tiled;
mod wgmma;

use bytemuck::{Pod, Zeroable};
use c10_core::Arg;

use super::operand::tiles;
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::launch::library::whole;
use crate::tensor::Tensor;

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

impl Scales<'_> {
    /// Whether some differ along the inner dimension.
    fn are_divided(&self) -> bool {
        self.kinds.iter().any(|kind| kind.is_divided())
    }

    /// Those of the right factor by its lines.
    fn turned(&self) -> Result<Tensor> {
        if self.kinds[1] == Scaling::Whole { Ok(self.b.clone()) } else { self.b.t() }
    }
}

/// A product `out = a @ b`, with scales and a bias where the factors are floats. Both are matrices on one device that fit
/// each other, and the result is contiguous.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) out: &'a Tensor,
    pub(crate) a: &'a Tensor,
    pub(crate) b: &'a Tensor,
    /// Of floats.
    pub(crate) scales: Option<Scales<'a>>,
    /// Whether sums of floats may be less exact.
    pub(crate) fast: bool,
}

impl Problem<'_> {
    /// m, n and k.
    pub(crate) fn sizes(&self) -> [i64; 3] {
        [self.out.sizes()[0], self.out.sizes()[1], self.a.sizes()[1]]
    }

    fn check(&self) {
        let Self { out, a, b, .. } = self;
        assert!(out.dim() == 2 && a.dim() == 2 && b.dim() == 2, "they are matrices");
        let [m, n, k] = self.sizes();
        assert!(a.sizes() == [m, k] && b.sizes() == [k, n], "the factors fit the result and each other");
        assert!(out.is_contiguous(), "the result is contiguous");
        let Some(scales) = &self.scales else {
            assert!([a, b].iter().all(|factor| factor.dtype() == DType::I8) && out.dtype() == DType::I32, "integers");
            return;
        };
        assert!(a.dtype().is_float8() && b.dtype().is_float8(), "the factors are floats of 8 bits");
        assert!(scales.bias.is_none_or(|bias| bias.sizes() == [n]), "the bias has an element for each column");
    }
}

/// A way to compute products of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Solution(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Wgmma,
    Mma,
    Tiled,
}

/// All there are; those that are quick where they serve come first.
const ALL: [Kind; 3] = [Kind::Wgmma, Kind::Mma, Kind::Tiled];

impl Solution {
    /// Its name, which stays the same for good.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            Kind::Wgmma => "own_bytes_wgmma_c2",
            Kind::Mma => "own_bytes_mma_128x128x128_s2",
            Kind::Tiled => "own_bytes_tiled_64x64",
        }
    }

    /// Whether it can compute a problem on the device where that is.
    fn can_run(self, problem: &Problem<'_>) -> Result<bool> {
        match self.0 {
            Kind::Wgmma => wgmma::can_run(problem),
            Kind::Mma => mma::can_run(problem),
            Kind::Tiled => Ok(true),
        }
    }
}

/// The solutions that can compute a problem, the one that is likely to be the quickest first. There is always one.
///
/// # Errors
/// The driver does not tell what the device is.
pub(crate) fn solutions(problem: &Problem<'_>) -> Result<Vec<Solution>> {
    problem.check();
    let mut found = Vec::new();
    for solution in ALL.map(Solution) {
        if solution.can_run(problem)? {
            found.push(solution);
        }
    }
    Ok(found)
}

/// Computes a problem by one of its [`solutions`], or by the one that is likely to be the quickest. Returns before that is
/// done: it is queued on the current stream of the device.
///
/// # Errors
/// The solution cannot compute the problem, there is no memory for what it needs besides, the result is too large for one
/// launch, or the launch fails.
pub(crate) fn run(problem: &Problem<'_>, solution: Option<Solution>) -> Result<()> {
    let all = solutions(problem)?;
    let chosen = solution.or_else(|| all.first().copied()).unwrap_or(Solution(Kind::Tiled));
    if !all.contains(&chosen) {
        let name = chosen.name();
        return Err(TensorError::Invalid(format!("{name} cannot compute this product on this device")).into());
    }
    match chosen.0 {
        Kind::Wgmma => wgmma::run(problem),
        Kind::Mma => mma::run(problem),
        Kind::Tiled => tiled::run(problem),
    }
}

/// Whether the tensor cores of compute capability 9.0 compute a problem.
///
/// # Errors
/// The driver does not tell what the device is.
pub(crate) fn is_for_wgmma(problem: &Problem<'_>) -> Result<bool> {
    wgmma::can_run(problem)
}

/// The texts of all kernels.
pub(super) fn texts() -> [&'static crate::launch::library::Text; 3] {
    [&tiled::TEXT, &mma::TEXT, &wgmma::TEXT]
}

/// What the kernels call a dtype.
fn kind(dtype: DType) -> Result<i32> {
    Ok(match dtype {
        DType::F8E4M3FN => 0,
        DType::F8E5M2 => 1,
        DType::F16 => 2,
        DType::BF16 => 3,
        DType::F32 => 4,
        DType::I32 => 5,
        _ => return Err(TensorError::NotImplemented { kernel: "_scaled_mm".to_owned(), dtype }.into()),
    })
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

/// The same with 32 bits for each number.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NarrowSteps {
    line: u32,
    part: u32,
    shared: u32,
}

impl NarrowSteps {
    /// `None` where a number has more bits.
    fn of(steps: &ScaleSteps) -> Option<Self> {
        let narrow = |number: i64| u32::try_from(number).ok();
        Some(Self { line: narrow(steps.line)?, part: narrow(steps.part)?, shared: narrow(steps.shared)? })
    }
}

/// What kernels for tensor cores are told of sizes, scales, bias and dtypes.
struct Numbers {
    sizes: [u32; 3],
    scale_a: NarrowSteps,
    scale_b: NarrowSteps,
    bias_step: u32,
    kind_out: u32,
    kind_bias: u32,
}

impl Numbers {
    /// `None` where one has more bits.
    fn of(problem: &Problem<'_>) -> Result<Option<Self>> {
        let [m, n, k] = problem.sizes();
        let mut steps = [ScaleSteps::NONE; 2];
        let (mut kind_bias, mut bias_step) = (0, 0);
        if let Some(scales) = &problem.scales {
            let [kind_a, kind_b] = scales.kinds;
            steps = [ScaleSteps::of(scales.a, kind_a, [m, k]), ScaleSteps::of(&scales.turned()?, kind_b, [n, k])];
            if let Some(bias) = scales.bias {
                (kind_bias, bias_step) = (kind(bias.dtype())?, bias.strides()[0]);
            }
        }
        let [scale_a, scale_b] = steps.map(|steps| NarrowSteps::of(&steps));
        let (Some(scale_a), Some(scale_b), Ok(bias_step)) = (scale_a, scale_b, u32::try_from(bias_step)) else {
            return Ok(None);
        };
        Ok(Some(Self {
            sizes: [m, n, k].map(|size| u32::try_from(size).unwrap_or(0)),
            scale_a,
            scale_b,
            bias_step,
            kind_out: kind(problem.out.dtype())?.unsigned_abs(),
            kind_bias: kind_bias.unsigned_abs(),
        }))
    }
}

/// The scales of both factors and the bias, null where there are none.
fn scale_arguments<'a>(problem: &'a Problem<'_>) -> Result<[Arg<'a>; 3]> {
    let Some(scales) = &problem.scales else { return Ok([0; 3].map(Arg::U64)) };
    Ok([whole(scales.a)?, whole(scales.b)?, scales.bias.map_or(Ok(Arg::U64(0)), whole)?])
}

/// How often a line of a factor begins, in bytes, where its elements lie one after another and lines begin at multiples of 16
/// bytes; `None` where they do not. The factor is given by its lines.
fn line_bytes(factor: &Tensor) -> Option<i64> {
    let ([lines, length], [line, along]) =
        ([factor.sizes()[0], factor.sizes()[1]], [factor.strides()[0], factor.strides()[1]]);
    let is_line = (along == 1 || length == 1) && (line >= length || lines == 1) && factor.data_ptr().is_multiple_of(16);
    let step = if lines == 1 { tiles(length, 16) * 16 } else { line };
    Some(step).filter(|step| is_line && step % 16 == 0)
}

/// A factor, given by its lines, so that these have [`line_bytes`]: itself or a copy.
fn in_lines(factor: &Tensor) -> Result<Tensor> {
    if line_bytes(factor).is_some() {
        return Ok(factor.clone());
    }
    let [lines, length] = [factor.sizes()[0], factor.sizes()[1]];
    let room = Tensor::uninitialized(&[lines, tiles(length, 16) * 16], factor.dtype(), factor.device())?;
    let copy = room.narrow(1, 0, length)?;
    copy.copy_(factor)?;
    Ok(copy)
}

/// Whether the kernels for tensor cores take a result and its numbers: they store 8 elements of a row at once.
fn is_for_tensor_cores(problem: &Problem<'_>) -> bool {
    let fits = problem.sizes().iter().all(|&size| size > 0 && i32::try_from(size).is_ok());
    let both_coarse = [problem.a, problem.b].iter().all(|factor| factor.dtype() == DType::F8E5M2);
    fits && problem.sizes()[1] % 8 == 0 && problem.out.data_ptr().is_multiple_of(16) && !both_coarse
}

#[cfg(test)]
mod tests {
    use super::{ALL, Solution};

    #[test]
    fn names_are_unique() {
        let names = ALL.map(|kind| Solution(kind).name());
        assert!(names.iter().all(|name| name.starts_with("own_bytes_") && !name.contains(',')));
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
    }
}
