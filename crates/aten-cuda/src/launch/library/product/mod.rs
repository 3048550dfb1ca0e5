//! Products of matrices by the kernels of this crate: `out = activation(alpha * a @ b + beta * c + bias)`.
//!
//! There are several ways to compute a product, each a [`Solution`] with a name that stays: what was found out about a
//! name holds for later versions. [`solutions`] lists those that can compute a problem, [`choose`] names one that is
//! likely to be quick, [`run`] computes.
//!
//! Reading order: this file, `operand` (how a factor lies), `tiled` (any strides, any dtype), `mma` (tensor cores from
//! compute capability 8.0 on, also with the steps of all tiles shared evenly), `wgmma` (those of 9.0), `vector` (a matrix
//! and a vector), `small` (batches of small ones), `direct` (single small ones), `bytes` (8-bit integers and scaled floats,
//! which have solutions of their own).
//!
//! The module is public for programs that compare kernels; others compute products by the operations of tensors.
//!
//! **Invariants:** each solution gives the same bits at every run on one device: sums are taken in an order that follows
//! from sizes and strides. `out` shares no memory with `a`, `b` and `bias`; it may be `c` itself.

pub(crate) mod bytes;
pub(crate) mod direct;
mod mma;
mod operand;
mod small;
mod tiled;
mod vector;
mod wgmma;

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::base::scalar::Scalar;
use crate::tensor::Tensor;

/// What is applied to each element of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// The larger one of the element and zero.
    Relu,
    /// GELU by way of a hyperbolic tangent, the form that cuBLASLt has.
    Gelu,
}

impl Activation {
    /// As kernels and the tuner's names of problems know it.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Relu => 1,
            Self::Gelu => 2,
        }
    }
}

/// A batch of products on one device: `a` is (batch, m, k), `b` (batch, k, n), `c` and `out` (batch, m, n), all of one
/// floating or complex dtype.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The result.
    pub out: &'a Tensor,
    /// The left factor.
    pub a: &'a Tensor,
    /// The right factor.
    pub b: &'a Tensor,
    /// What is added; not read where it is absent, whatever `beta` is.
    pub c: Option<&'a Tensor>,
    /// The factor of the products.
    pub alpha: Scalar,
    /// The factor of `c`.
    pub beta: Scalar,
    /// A vector of n elements that is added to each row.
    pub bias: Option<&'a Tensor>,
    /// What is applied last.
    pub activation: Activation,
    /// Whether factors of `f32` may be rounded to tf32.
    pub allow_tf32: bool,
}

impl<'a> Problem<'a> {
    /// `out = alpha * a @ b + beta * c` in full precision.
    #[must_use]
    pub fn new(
        out: &'a Tensor,
        a: &'a Tensor,
        b: &'a Tensor,
        c: Option<&'a Tensor>,
        alpha: Scalar,
        beta: Scalar,
    ) -> Self {
        Self { out, a, b, c, alpha, beta, bias: None, activation: Activation::None, allow_tf32: false }
    }

    /// Batches, m, n and k.
    fn sizes(&self) -> [i64; 4] {
        let [batches, m, n] = three(self.out.sizes());
        [batches, m, n, three(self.a.sizes())[2]]
    }

    fn check(&self) -> Result<()> {
        let dtype = self.out.dtype();
        if !(dtype.is_floating_point() || dtype.is_complex()) || dtype.itemsize() == 1 {
            return Err(TensorError::NotImplemented { kernel: "addmm_cuda".to_owned(), dtype }.into());
        }
        let [batches, m, n, k] = self.sizes();
        assert!(three(self.a.sizes()) == [batches, m, k], "the left factor fits the result");
        assert!(three(self.b.sizes()) == [batches, k, n], "the factors fit each other");
        assert!(self.c.is_none_or(|c| c.sizes() == self.out.sizes()), "what is added has the result's sizes");
        assert!(self.bias.is_none_or(|bias| bias.sizes() == [n]), "the bias has an element for each column");
        if dtype.is_complex() && self.activation != Activation::None {
            return Err(TensorError::NotImplemented { kernel: "addmm_activation_cuda".to_owned(), dtype }.into());
        }
        let tensors = [Some(self.out), Some(self.a), Some(self.b), self.c, self.bias];
        assert!(tensors.iter().flatten().all(|tensor| tensor.dtype() == dtype), "all have one dtype");
        Ok(())
    }

    /// Whether a bias or an activation follows the product.
    fn is_followed(&self) -> bool {
        self.bias.is_some() || self.activation != Activation::None
    }
}

/// A way to compute products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Solution(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Tiled,
    Small,
    Direct,
    Mma(mma::Shape),
    Vector(vector::Way),
    Wgmma(wgmma::Shape),
}

/// All there are; those that are quick where they serve come first.
const ALL: [Kind; 20] = [
    Kind::Vector(vector::Way::Rows),
    Kind::Vector(vector::Way::Cluster),
    Kind::Vector(vector::Way::Columns),
    Kind::Small,
    Kind::Direct,
    Kind::Wgmma(wgmma::Shape::Large),
    Kind::Wgmma(wgmma::Shape::Middle),
    Kind::Wgmma(wgmma::Shape::Small),
    Kind::Wgmma(wgmma::Shape::Whole),
    Kind::Wgmma(wgmma::Shape::Undivided),
    Kind::Wgmma(wgmma::Shape::Halved),
    Kind::Wgmma(wgmma::Shape::Quartered),
    Kind::Wgmma(wgmma::Shape::LargeTf32),
    Kind::Wgmma(wgmma::Shape::MiddleTf32),
    Kind::Mma(mma::Shape::Large),
    Kind::Mma(mma::Shape::Small),
    Kind::Mma(mma::Shape::Stream),
    Kind::Mma(mma::Shape::LargeTf32),
    Kind::Mma(mma::Shape::SmallTf32),
    Kind::Tiled,
];

impl Solution {
    /// Its name, which stays the same for good.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Tiled => "own_tiled_64x64x16",
            Kind::Small => "own_small_64x64x64",
            Kind::Direct => "own_direct_16x32x64",
            Kind::Mma(shape) => shape.name(),
            Kind::Vector(way) => way.name(),
            Kind::Wgmma(shape) => shape.name(),
        }
    }

    /// The solution of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().map(Self).find(|solution| solution.name() == name)
    }

    /// Whether it can compute a problem on the device where that is.
    ///
    /// # Errors
    /// The driver does not tell what the device is.
    pub fn can_run(self, problem: &Problem<'_>) -> Result<bool> {
        match self.0 {
            Kind::Tiled => Ok(true),
            Kind::Small => Ok(small::can_run(problem)),
            Kind::Direct => Ok(direct::can_run(problem)),
            Kind::Mma(shape) => mma::can_run(shape, problem),
            Kind::Vector(way) => vector::can_run(way, problem),
            Kind::Wgmma(shape) => wgmma::can_run(shape, problem),
        }
    }
}

/// The solutions that can compute a problem. There is one for each.
///
/// # Errors
/// The dtype is neither floating nor complex, or complex with an activation, or the driver does not tell what the device is.
pub fn solutions(problem: &Problem<'_>) -> Result<Vec<Solution>> {
    problem.check()?;
    let mut found = Vec::new();
    for solution in ALL.into_iter().map(Solution) {
        if solution.can_run(problem)? {
            found.push(solution);
        }
    }
    Ok(found)
}

/// A solution that is likely to be quick for the problem.
///
/// # Errors
/// Those of [`solutions`].
pub fn choose(problem: &Problem<'_>) -> Result<Solution> {
    problem.check()?;
    if let Some(way) = vector::choose(problem)? {
        return Ok(Solution(Kind::Vector(way)));
    }
    if let Some(shape) = wgmma::choose(problem)? {
        return Ok(Solution(Kind::Wgmma(shape)));
    }
    if small::can_run(problem) {
        return Ok(Solution(Kind::Small));
    }
    let tensor_cores = mma::choose(problem)?.map(Kind::Mma);
    Ok(Solution(tensor_cores.unwrap_or(Kind::Tiled)))
}

/// Computes the problem. Returns before that is done: it is queued on the current stream of the device.
///
/// # Errors
/// The solution cannot compute the problem, there is no memory for what it needs besides, the result is too large for one
/// launch, or the launch fails.
pub fn run(solution: Solution, problem: &Problem<'_>) -> Result<()> {
    problem.check()?;
    if !solution.can_run(problem)? {
        let name = solution.name();
        return Err(TensorError::Invalid(format!("{name} cannot compute this product on this device")).into());
    }
    if problem.out.numel() == 0 {
        return Ok(());
    }
    match solution.0 {
        Kind::Tiled => tiled::run(problem),
        Kind::Small => small::run(problem),
        Kind::Direct => direct::run(problem),
        Kind::Mma(shape) => mma::run(shape, problem),
        Kind::Vector(way) => vector::run(way, problem),
        Kind::Wgmma(shape) => wgmma::run(shape, problem),
    }
}

fn three(sizes: &[i64]) -> [i64; 3] {
    let mut found = [0; 3];
    assert!(sizes.len() == 3, "a batch of matrices has three dimensions");
    found.copy_from_slice(sizes);
    found
}

/// The texts of all kernels.
pub(super) fn texts() -> [&'static super::Text; 10] {
    let [vector, cluster] = vector::texts();
    let [bytes, bytes_mma, bytes_wgmma] = bytes::texts();
    let (small, direct) = (&small::TEXT, &direct::TEXT);
    [&tiled::TEXT, &mma::TEXT, &wgmma::TEXT, small, direct, vector, cluster, bytes, bytes_mma, bytes_wgmma]
}

/// Whether a dtype is one of 16 bits.
fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

#[cfg(test)]
mod tests {
    use super::{ALL, Kind, Solution};

    #[test]
    fn names_are_unique_and_found() {
        for kind in ALL {
            let solution = Solution(kind);
            assert_eq!(Solution::named(solution.name()), Some(solution));
            assert!(solution.name().starts_with("own_") && !solution.name().contains(','), "{}", solution.name());
        }
        assert_eq!(Solution::named("own_tiled_64x64x16"), Some(Solution(Kind::Tiled)));
        assert_eq!(Solution::named("Default"), None);
    }
}
