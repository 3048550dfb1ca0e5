//! Products that take along what follows them: a bias, a sum with a matrix, an activation.
//!
//! A compiled function writes such a product down anew with what follows it ([`ProductCall`]). Whoever computes it, cuBLASLt or
//! a kernel of this crate, adds and activates what is not rounded yet, and memory is written once.
//!
//! **Invariant:** a product that takes something along exactly ([`Taken::Exactly`]) has the bits of the operations one after
//! another: where another way computes the product alone when it runs, the operations do run one after another.

use std::sync::Arc;

use c10_core::Runtime;

use super::library::handle::Blas;
use super::product::Product;
use super::{Activation, direct, tune};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::launch::record::{Beyond, CallFn, Recorded};
use crate::tensor::Tensor;

/// The name of products that are written down.
pub(super) const NAME: &str = "matmul";

/// What a product has taken along that the function did by operations of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing.
    #[default]
    Nothing,
    /// One sum, with the bits that the operations give one after another.
    Exactly(Follower),
    /// Something, with fewer roundings.
    Widely,
}

/// What may follow a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follower {
    /// A vector that is added to each row.
    Bias,
    /// A matrix of the result's sizes that is added, or a batch of them.
    Sum,
    /// The larger one of each element and zero.
    Relu,
    /// GELU by way of a hyperbolic tangent.
    Gelu,
}

/// Why a product of a compiled function does not take along what follows it, or reads a copy that was made for it.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::compile::{Declined, compile};
/// use aten_cuda::{DType, Tensor};
///
/// let f = compile(|x: &[Tensor]| Ok(vec![x[0].mm(&x[0])?.sigmoid()?]));
/// f.call(&[&Tensor::ones(&[8, 8], DType::F32, "cuda")?])?;
/// assert_eq!(f.report().programs[0].epilogues[0].refused, Some(Declined::Operation));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// The results would have other bits, and that was not asked for.
    Bits,
    /// Nothing that follows a product in its own kernel does what the operation does.
    Operation,
    /// What computes products here has no such kernels.
    Library,
    /// No kernel does so for matrices of these sizes, or for operands that lie so.
    Shape,
    /// Somebody else reads the product, or the copy, as well.
    Read,
    /// The operation, or the copy, is part of a kernel that moves as many bytes all the same: nothing would be saved.
    Fused,
    /// Between the two something is overwritten that one of them reads, or streams are ordered.
    Order,
}

/// A product as it is written down, without its operands: the factors, what is added, the bias.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductCall {
    alpha: Scalar,
    beta: Scalar,
    activation: Activation,
    pub(crate) has_c: bool,
    pub(crate) has_bias: bool,
    taken: Taken,
}

/// The sizes of one of a batch of products, (m, k) by (k, n), and its dtype.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub(crate) m: i64,
    pub(crate) k: i64,
    pub(crate) n: i64,
    pub(crate) is_batch: bool,
    pub(crate) dtype: DType,
}

impl ProductCall {
    /// That of a product as it is computed without a trace.
    pub(super) fn of(product: &Product<'_>) -> Self {
        let Product { alpha, beta, activation, c, bias, taken, .. } = *product;
        Self { alpha, beta, activation, has_c: c.is_some(), has_bias: bias.is_some(), taken }
    }

    /// The product that was written down under a name, if it is one of real numbers.
    pub(crate) fn read(name: &str, work: &Recorded) -> Option<Self> {
        let Recorded::Call { detail, .. } = work else { return None };
        let &[alpha, 0, beta, 0, activation, has_c, has_bias] = detail.as_slice() else { return None };
        let number = |bits| Scalar::Float(f64::from_bits(bits));
        let all = [Activation::None, Activation::Relu, Activation::Gelu];
        let activation = all.into_iter().find(|known| u64::from(known.code()) == activation)?;
        let (alpha, beta, has_c, has_bias) = (number(alpha), number(beta), has_c != 0, has_bias != 0);
        (name == NAME).then_some(Self { alpha, beta, activation, has_c, has_bias, taken: Taken::Nothing })
    }

    /// What tells it apart from other products.
    pub(super) fn detail(&self) -> Vec<u64> {
        let numbers = [self.alpha, self.beta].into_iter().flat_map(|number| [number.to_f64(), number.imaginary()]);
        let mut detail: Vec<u64> = numbers.map(f64::to_bits).collect();
        detail.extend([u64::from(self.activation.code()), u64::from(self.has_c), u64::from(self.has_bias)]);
        detail
    }

    /// Computes it over a result and its operands, in their order.
    pub(super) fn run(&self, outputs: &[Tensor], inputs: &[Tensor]) -> Result<()> {
        let ([out], [a, b, more @ ..]) = (outputs, inputs) else { return Ok(()) };
        let &Self { alpha, beta, activation, has_c, has_bias, taken } = self;
        let (c, bias) = (more.first().filter(|_| has_c), more.last().filter(|_| has_bias));
        Product { a, b, c, alpha, beta, bias, activation, taken, is_by_vector: false }.compute(out)
    }

    /// The product as a call of a graph.
    pub(crate) fn recorded(self) -> Recorded {
        let run: Arc<CallFn> = Arc::new(move |outputs: &[Tensor], inputs: &[Tensor]| self.run(outputs, inputs));
        Recorded::Call { run, detail: self.detail(), beyond: Beyond::Nothing }
    }

    /// The product with what follows it. `may_widen` allows sums that are rounded once, where the operations round them one
    /// after another.
    pub(crate) fn with(
        self,
        follower: Follower,
        problem: &Problem,
        may_widen: bool,
    ) -> std::result::Result<Self, Declined> {
        let taken = if may_widen { self.widely(follower, problem)? } else { self.exactly(follower, problem)? };
        let mut made = Self { taken, ..self };
        match follower {
            Follower::Bias => made.has_bias = true,
            Follower::Sum => (made.has_c, made.beta) = (true, Scalar::Float(1.0)),
            Follower::Relu => made.activation = Activation::Relu,
            Follower::Gelu => made.activation = Activation::Gelu,
        }
        Ok(made)
    }

    /// What a kernel has no place for: two of a kind, and whatever comes behind an activation.
    fn has_place(&self, follower: Follower) -> bool {
        let is_free = match follower {
            Follower::Bias => !self.has_bias,
            Follower::Sum => !self.has_c,
            Follower::Relu | Follower::Gelu => true,
        };
        is_free && self.activation == Activation::None
    }

    fn widely(&self, follower: Follower, problem: &Problem) -> std::result::Result<Taken, Declined> {
        if !self.has_place(follower) {
            return Err(Declined::Operation);
        }
        // GELU of 32 or 64 bits is as exact as the operation nowhere.
        if follower == Follower::Gelu && !matches!(problem.dtype, DType::F16 | DType::BF16) {
            return Err(Declined::Bits);
        }
        match libraries() {
            [false, _] => {}
            [true, false] => return Err(Declined::Library),
            // torch's conditions for a bias of cuBLASLt.
            [true, true] if problem.m <= 1 || problem.n <= 1 || problem.k < 1 => return Err(Declined::Shape),
            [true, true] => {}
        }
        Ok(Taken::Widely)
    }

    /// Sums of a kernel of this crate have the precision of these dtypes, so that a further summand that comes last is added
    /// as an operation adds it. An activation may give a zero another sign.
    fn exactly(&self, follower: Follower, problem: &Problem) -> std::result::Result<Taken, Declined> {
        if !self.has_place(follower) {
            return Err(Declined::Operation);
        }
        let is_summand = matches!(follower, Follower::Bias | Follower::Sum);
        let is_last = follower == Follower::Bias || !self.has_bias;
        let is_plain = self.taken == Taken::Nothing && self.alpha.to_f64() == 1.0;
        let is_own = libraries() == [false, false] && !tune::may_be_enabled();
        if !is_summand || !is_last || !is_plain || !is_own || !matches!(problem.dtype, DType::F32 | DType::F64) {
            return Err(Declined::Bits);
        }
        let is_alone = !self.has_c && !self.has_bias && !problem.is_batch;
        if problem.k < 1 || (is_alone && direct::is_small(problem)) {
            return Err(Declined::Shape);
        }
        Ok(Taken::Exactly(follower))
    }
}

/// Whether there are cuBLAS and cuBLASLt; the latter is not asked without the former.
fn libraries() -> [bool; 2] {
    Runtime::with_current(|runtime| {
        let blas = Blas::of(runtime);
        let has_cublas = blas.libraries.cublas(runtime).is_ok();
        [has_cublas, has_cublas && blas.libraries.lt(runtime).is_ok()]
    })
}

impl Product<'_> {
    /// Where something was taken along exactly and another way than this crate's kernels computes the product alone: computes
    /// it so, and then what was taken along. Else `false`, and nothing was done.
    pub(super) fn one_after_another(&self, out: &Tensor) -> Result<bool> {
        let Taken::Exactly(follower) = self.taken else { return Ok(false) };
        let plain = Self { taken: Taken::Nothing, ..*self };
        let (alone, summand) = match follower {
            Follower::Bias => (Self { bias: None, ..plain }, self.bias),
            Follower::Sum | Follower::Relu | Follower::Gelu => (Self { c: None, beta: 0.into(), ..plain }, self.c),
        };
        if libraries() == [false, false] && !tune::may_be_enabled() && !alone.is_direct() {
            return Ok(false);
        }
        alone.compute(out)?;
        summand.map_or(Ok(()), |summand| out.add_(summand).map(drop))?;
        Ok(true)
    }
}
