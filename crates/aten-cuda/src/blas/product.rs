//! One product, by whoever computes it best.
//!
//! **Invariant:** the result is contiguous and shares no memory with the factors. Whoever computes it, it is rounded once
//! from a sum in the precision that the settings ask for.

use std::sync::Arc;

use c10_core::Runtime;
use smallvec::SmallVec;

use super::candidates::{self, Way, Ways};
use super::direct::Small;
use super::followed::{NAME, ProductCall, Taken};
use super::library::gemm::{self, Gemm};
use super::library::handle::Blas;
use super::library::lt::{self, Algorithm, Epilogue};
use super::operand::is_better_conjugated;
use super::settings::{self, BlasBackend};
use super::{Activation, host, tune};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::contiguous_strides;
use crate::launch::own_products::{self, Problem, Solution};
use crate::launch::{self, record};
use crate::tensor::{Context, Tensor, empty_strided, is_host};

/// `activation(alpha * a @ b + beta * c + bias)`: `a` is (m, k) and `b` (k, n), or both have a dimension of batches in
/// front. They fit each other and have one dtype.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) a: &'a Tensor,
    pub(super) b: &'a Tensor,
    /// What is added, which broadcasts to the result.
    pub(super) c: Option<&'a Tensor>,
    pub(super) alpha: Scalar,
    pub(super) beta: Scalar,
    /// A vector that is added to each row.
    pub(super) bias: Option<&'a Tensor>,
    pub(super) activation: Activation,
    /// Which of these were operations of their own.
    pub(super) taken: Taken,
    /// Whether `b` is the vector of `addmv`, whose host kernels of complex numbers multiply by an `alpha` of zero too.
    pub(super) is_by_vector: bool,
}

impl<'a> Product<'a> {
    /// `a @ b`.
    pub(super) fn new(a: &'a Tensor, b: &'a Tensor) -> Self {
        let (activation, taken) = (Activation::None, Taken::Nothing);
        Self { a, b, c: None, alpha: 1.into(), beta: 0.into(), bias: None, activation, taken, is_by_vector: false }
    }

    /// With something added. What is multiplied by zero is not read: it may be anything.
    pub(super) fn plus(self, c: &'a Tensor, beta: Scalar, alpha: Scalar) -> Self {
        Self { c: Some(c).filter(|_| beta.is_true()), alpha, beta, ..self }
    }

    /// With `b` as the vector of `addmv`.
    pub(super) fn by_vector(self) -> Self {
        Self { is_by_vector: true, ..self }
    }

    /// The sizes of the result.
    fn sizes(&self) -> crate::base::shape::Dims {
        let mut sizes: crate::base::shape::Dims = self.a.sizes().into();
        if let (Some(last), Some(&columns)) = (sizes.last_mut(), self.b.sizes().last()) {
            *last = columns;
        }
        sizes
    }

    /// The result in a new tensor.
    pub(super) fn made(self) -> Result<Tensor> {
        if self.has_negatives() {
            return self.without_negatives(|product| product.made());
        }
        let run = || {
            let operands = [Some(self.a), Some(self.b), self.c, self.bias].into_iter().flatten();
            let device = launch::common_device(operands)?.unwrap_or(self.a.device());
            let sizes = self.sizes();
            let out = empty_strided(&sizes, &contiguous_strides(&sizes), self.a.dtype(), device)?;
            self.compute(&out)?;
            Ok(out)
        };
        run().of("matmul", &[self.a, self.b])
    }

    /// The result in a tensor of the caller's, which has the sizes and the dtype of the result. It may be one of the
    /// operands.
    pub(super) fn written(self, out: &Tensor) -> Result<()> {
        out.storage().note_write();
        if self.has_negatives() {
            return self.without_negatives(|product| product.written(out));
        }
        if out.is_conj() && !out.is_neg() {
            return self.conjugated(|product| product.written(&out.conj()));
        }
        let shares = |tensor: &Tensor| tensor.storage().is_same(out.storage());
        let is_added = self.c.is_some_and(|c| shares(c) && !is_same_view(c, out));
        if out.is_contiguous()
            && !out.is_neg()
            && !shares(self.a)
            && !shares(self.b)
            && !self.bias.is_some_and(shares)
            && !is_added
        {
            let run = || {
                launch::common_device([out, self.a, self.b].into_iter().chain(self.c).chain(self.bias))?;
                self.compute(out)
            };
            return run().of("matmul", &[out, self.a, self.b]);
        }
        out.copy_(&self.made()?).map(drop)
    }

    fn has_negatives(&self) -> bool {
        [Some(self.a), Some(self.b), self.c, self.bias].into_iter().flatten().any(Tensor::is_neg)
    }

    /// Hands on the product with copies of operands that are negatives of what lies in memory.
    fn without_negatives<R>(&self, f: impl FnOnce(Product<'_>) -> Result<R>) -> Result<R> {
        let (a, b) = (self.a.resolve_neg()?, self.b.resolve_neg()?);
        let (c, bias) = (self.c.map(Tensor::resolve_neg).transpose()?, self.bias.map(Tensor::resolve_neg).transpose()?);
        f(Product { a: &a, b: &b, c: c.as_ref(), bias: bias.as_ref(), ..*self })
    }

    /// Hands on the product whose result is the conjugate of this one's.
    fn conjugated<R>(&self, f: impl FnOnce(Product<'_>) -> Result<R>) -> Result<R> {
        let (a, b) = (self.a.conj(), self.b.conj());
        let (c, bias) = (self.c.map(Tensor::conj), self.bias.map(Tensor::conj));
        let (alpha, beta) = (self.alpha.conj(), self.beta.conj());
        f(Product { a: &a, b: &b, c: c.as_ref(), bias: bias.as_ref(), alpha, beta, ..*self })
    }

    pub(super) fn compute(&self, out: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        if is_host(out.device()) {
            return self.on_host(out);
        }
        if self.a.numel() == 0 && self.c.is_none() && self.bias.is_none() {
            // There is nothing to add up, whatever the dtype.
            return out.zero_().map(drop);
        }
        if !matches!(out.dtype(), DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128) {
            let kernel = if self.a.dim() == 3 { "baddbmm_cuda" } else { "addmm_cuda" }.to_owned();
            return Err(TensorError::NotImplemented { kernel, dtype: out.dtype() }.into());
        }
        if self.is_recorded(out)? || self.one_after_another(out)? {
            return Ok(());
        }
        if self.a.numel() == 0 {
            return self.by_own_kernels(out, None);
        }
        if tune::may_be_enabled()
            && self.taken == Taken::Nothing
            && let Some(way) = self.tuned(out)?
        {
            return self.by(&way, out);
        }
        self.by(&Way::Default, out)
    }

    /// Writes the product down where a trace is under way.
    fn is_recorded(&self, out: &Tensor) -> Result<bool> {
        let inputs: SmallVec<[&Tensor; 4]> = [self.a, self.b].into_iter().chain(self.c).chain(self.bias).collect();
        let call = ProductCall::of(self);
        record::pure_call(NAME, (&[out], &inputs), call.detail(), move |outputs, inputs| call.run(outputs, inputs))
    }

    /// The way that the tuner has found; `None` for the usual one.
    fn tuned(&self, out: &Tensor) -> Result<Option<Arc<Way>>> {
        let device = out.device().cuda_index()?.unwrap_or_default();
        let Some(problem) = candidates::problem(self, out) else { return Ok(None) };
        tune::choose(&problem, device, || Ok(Ways { product: *self, out }))
    }

    /// The result by one of the ways to it.
    pub(super) fn by(&self, way: &Way, out: &Tensor) -> Result<()> {
        let is_done = match way {
            Way::Default => {
                self.directly(out)?
                    || self.by_library(out, Asked::Either)?
                    || self.by_own_kernels(out, None).map(|()| true)?
            }
            Way::Cublas => self.by_library(out, Asked::Cublas)?,
            Way::Lt(algorithm) => self.by_library(out, Asked::Lt(algorithm))?,
            Way::Own(solution) => self.by_own_kernels(out, Some(*solution)).map(|()| true)?,
        };
        if is_done { Ok(()) } else { Err(invalid("no library computes this product so")) }
    }

    /// By the short way, if it is a small product with nothing else; else `false`, and nothing was done.
    fn directly(&self, out: &Tensor) -> Result<bool> {
        self.small().map_or(Ok(false), |small| small.write(out).map(|()| true))
    }

    /// Whether it goes the short way.
    pub(super) fn is_direct(&self) -> bool {
        self.small().is_some()
    }

    fn small(&self) -> Option<Small<'a>> {
        let is_plain = self.c.is_none() && self.bias.is_none() && self.activation == Activation::None;
        if is_plain { Small::of(self.a, self.b, self.alpha.to_f64()) } else { None }
    }

    /// What follows the product.
    pub(super) fn epilogue(&self) -> Epilogue<'a> {
        Epilogue { bias: self.bias, activation: self.activation, c: None }
    }

    /// What is added, where cuBLASLt may read it where it lies: a matrix that the product has taken along.
    fn c_in_place(&self, out: &Tensor) -> Option<&'a Tensor> {
        let lies_so = |c: &&Tensor| c.is_contiguous() && c.sizes() == out.sizes() && c.dtype() == out.dtype();
        self.c.filter(|_| self.taken == Taken::Widely).filter(lies_so)
    }

    /// By cuBLASLt or cuBLAS; `false` where it is not there or does not compute it, and nothing was done.
    fn by_library(&self, out: &Tensor, asked: Asked<'_>) -> Result<bool> {
        Runtime::with_current(|runtime| {
            let blas = Blas::of(runtime);
            let device = out.device().cuda_index()?.unwrap_or_default();
            let Some(handle) = blas.handle(runtime, device)? else { return Ok(false) };
            if is_better_conjugated(out, self.a, self.b) {
                let is_done = self.conjugated(|product| product.by_library(out, asked))?;
                return if is_done { out.copy_(&out.conj()).map(|_| true) } else { Ok(false) };
            }
            let Some(gemm) = Gemm::new(out, self.a, self.b, self.alpha, self.beta)? else { return Ok(false) };
            let epilogue = self.epilogue();
            if let Asked::Either = asked
                && let Some(c) = self.c_in_place(out)
                && lt::run(runtime, &blas, &handle, &gemm, Epilogue { c: Some(c), ..epilogue }, None)?
            {
                return Ok(true);
            }
            if let Some(c) = self.c.filter(|c| !is_same_view(c, out)) {
                out.copy_(c)?;
            }
            let by_lt = |algorithm| lt::run(runtime, &blas, &handle, &gemm, epilogue, algorithm);
            match asked {
                Asked::Lt(algorithm) => return by_lt(Some(algorithm)),
                Asked::Either if self.prefers_lt(out) && by_lt(None)? => return Ok(true),
                Asked::Either | Asked::Cublas => {}
            }
            gemm::run(runtime, &blas, &handle, &gemm)?;
            self.finish(out)?;
            Ok(true)
        })
    }

    /// Whether cuBLASLt is asked first: where something follows the product, or the settings say so.
    fn prefers_lt(&self, out: &Tensor) -> bool {
        let may_split = match out.dtype() {
            DType::F16 => settings::fp16_reduction().may_split,
            DType::BF16 => settings::bf16_reduction().may_split,
            _ => true,
        };
        let is_followed = self.bias.is_some() || self.activation != Activation::None;
        let is_lt_real = !out.dtype().is_complex();
        is_lt_real && (is_followed || !may_split || settings::preferred_blas_library() == BlasBackend::Cublaslt)
    }

    /// By a kernel of this crate: that of a solution, or of the one that is likely to be quick.
    fn by_own_kernels(&self, out: &Tensor, solution: Option<Solution>) -> Result<()> {
        self.for_own_kernels(out, |problem| {
            let solution = solution.map_or_else(|| own_products::choose(problem), Ok)?;
            own_products::run(solution, problem)
        })
    }

    /// The solutions of this crate.
    pub(super) fn own_solutions(&self, out: &Tensor) -> Result<Vec<Solution>> {
        self.for_own_kernels(out, own_products::solutions)
    }

    /// Hands on the product as the kernels of this crate take it.
    fn for_own_kernels<R>(&self, out: &Tensor, f: impl FnOnce(&Problem<'_>) -> Result<R>) -> Result<R> {
        let (out, a, b) = (batched(out)?, batched(self.a)?, batched(self.b)?);
        let c = self.c.map(|c| c.expand(out.sizes())).transpose()?;
        let bias = self.bias.map(|bias| bias.expand(&[out.sizes()[2]])).transpose()?;
        f(&Problem {
            allow_tf32: settings::uses_tf32(),
            bias: bias.as_ref(),
            activation: self.activation,
            ..Problem::new(&out, &a, &b, c.as_ref(), self.alpha, self.beta)
        })
    }

    fn on_host(&self, out: &Tensor) -> Result<()> {
        let (out3, a, b) = (batched(out)?, batched(self.a)?, batched(self.b)?);
        let c = self.c.map(|c| c.expand(out3.sizes())).transpose()?;
        // torch's host leaves out factors of zero but in batches, in 16 bits and in products of complex numbers with a
        // vector, so that their NaNs do not count.
        let is_wide = match out.dtype() {
            DType::F32 | DType::F64 => true,
            DType::C64 | DType::C128 => !self.is_by_vector,
            _ => false,
        };
        let alpha = Some(self.alpha).filter(|alpha| alpha.is_true() || self.a.dim() == 3 || !is_wide);
        host::product(&out3, &a, &b, c.as_ref(), alpha, self.beta)?;
        self.finish(out)
    }

    /// What follows the product, where it was not computed along with it.
    fn finish(&self, out: &Tensor) -> Result<()> {
        if let Some(bias) = self.bias {
            out.add_(bias)?;
        }
        self.activation.apply(out)
    }
}

/// Which library computes a product.
#[derive(Clone, Copy)]
enum Asked<'a> {
    /// The one that the settings prefer.
    Either,
    Cublas,
    /// cuBLASLt by this algorithm.
    Lt(&'a Algorithm),
}

/// A matrix as a batch of one; a batch as it is.
fn batched(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dim() == 2 { tensor.unsqueeze(0) } else { Ok(tensor.clone()) }
}

/// Whether two tensors are the same elements.
pub(super) fn is_same_view(a: &Tensor, b: &Tensor) -> bool {
    a.storage().is_same(b.storage())
        && a.storage_offset() == b.storage_offset()
        && a.sizes() == b.sizes()
        && a.strides() == b.strides()
        && a.dtype() == b.dtype()
        && a.signs() == b.signs()
}
