//! `mm`, `addmm`, `bmm` and the like: what torch calls products of matrices and vectors.

use super::linear::is_bias;
use super::product::Product;
use super::{checks, direct};
use crate::autocast::{self, Inside, Policies};
use crate::base::error::{Result, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims};
use crate::tensor::Tensor;

impl Tensor {
    /// The product of two matrices, (m, k) by (k, n) (`torch.mm`).
    ///
    /// # Errors
    /// The operands are no matrices or do not fit each other, or have several dtypes or devices; there is not enough
    /// memory, or the device or a library failed.
    pub fn mm(&self, other: &Self) -> Result<Self> {
        if let Some((_inside, [a, b])) = autocast::cast(const { Policies::of("mm") }, [self, other])? {
            return a.mm(&b);
        }
        checks::matrices("self", self, other)?;
        match direct::product(self, other)? {
            Some(made) => Ok(made),
            None => Product::new(self, other).made(),
        }
    }

    /// [`Self::mm`] into `out` (m, n).
    ///
    /// # Errors
    /// Those of [`Self::mm`]; `out` has another dtype or is on another device.
    pub fn mm_out(&self, other: &Self, out: &Self) -> Result<()> {
        checks::matrices("self", self, other)?;
        checks::output(out, self.dtype(), &[self.sizes()[0], other.sizes()[1]], &[self, other])?;
        Product::new(self, other).written(out)
    }

    /// `beta * self + alpha * mat1 @ mat2`; `self` broadcasts to the product. With `beta` 0 it is not read
    /// (`torch.addmm`).
    ///
    /// # Errors
    /// As for [`Self::mm`], or `self` does not broadcast to the product.
    pub fn addmm(&self, mat1: &Self, mat2: &Self, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        if let Some((_inside, [own, a, b])) = autocast::cast(const { Policies::of("addmm") }, [self, mat1, mat2])? {
            return own.addmm(&a, &b, beta, alpha);
        }
        checks::addmm(self, mat1, mat2)?;
        checks::factors(mat1, [beta, alpha])?;
        if is_bias(self, mat1, mat2, beta) {
            return Product { alpha, bias: Some(self), ..Product::new(mat1, mat2) }.made();
        }
        Product::new(mat1, mat2).plus(self, beta, alpha).made()
    }

    /// [`Self::addmm`] into `out` (m, n), which may be one of the operands.
    ///
    /// # Errors
    /// Those of [`Self::addmm`]; `out` has another dtype or is on another device.
    pub fn addmm_out(
        &self,
        mat1: &Self,
        mat2: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
        out: &Self,
    ) -> Result<()> {
        let (beta, alpha) = (beta.into(), alpha.into());
        checks::addmm(self, mat1, mat2)?;
        checks::output(out, mat1.dtype(), &[mat1.sizes()[0], mat2.sizes()[1]], &[self, mat1, mat2])?;
        checks::factors(mat1, [beta, alpha])?;
        Product::new(mat1, mat2).plus(self, beta, alpha).written(out)
    }

    /// [`Self::addmm`] in place.
    ///
    /// # Errors
    /// As there, or `self` has not the sizes of the product.
    pub fn addmm_(&self, mat1: &Self, mat2: &Self, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<&Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        checks::addmm(self, mat1, mat2)?;
        checks::in_place(self, &[mat1.sizes()[0], mat2.sizes()[1]])?;
        checks::factors(mat1, [beta, alpha])?;
        Product::new(mat1, mat2).plus(self, beta, alpha).written(self)?;
        Ok(self)
    }

    /// The products of two batches of matrices, (b, m, k) by (b, k, n) (`torch.bmm`).
    ///
    /// # Errors
    /// The operands are no batches of matrices or do not fit each other, or have several dtypes or devices; there is
    /// not enough memory, or the device or a library failed.
    pub fn bmm(&self, other: &Self) -> Result<Self> {
        if let Some((_inside, [a, b])) = autocast::cast(const { Policies::of("bmm") }, [self, other])? {
            return a.bmm(&b);
        }
        checks::batches(self, other)?;
        if checks::is_of_nothing(self, other) && !self.dtype().is_float8() {
            return Self::zeros(&[self.sizes()[0], self.sizes()[1], other.sizes()[2]], other.dtype(), self);
        }
        Product::new(self, other).made()
    }

    /// [`Self::bmm`] into `out` (b, m, n).
    ///
    /// # Errors
    /// Those of [`Self::bmm`]; `out` has another dtype or is on another device.
    pub fn bmm_out(&self, other: &Self, out: &Self) -> Result<()> {
        checks::batches(self, other)?;
        checks::same_type(self, other)?;
        checks::output(out, self.dtype(), &[self.sizes()[0], self.sizes()[1], other.sizes()[2]], &[self, other])?;
        Product::new(self, other).written(out)
    }

    /// `beta * self + alpha * batch1 @ batch2`, for batches; `self` broadcasts to the products (`torch.baddbmm`).
    ///
    /// # Errors
    /// As for [`Self::bmm`], or `self` does not broadcast to the products.
    pub fn baddbmm(
        &self,
        batch1: &Self,
        batch2: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        let policies = const { Policies::of("baddbmm") };
        if let Some((_inside, [own, a, b])) = autocast::cast(policies, [self, batch1, batch2])? {
            return own.baddbmm(&a, &b, beta, alpha);
        }
        checks::baddbmm(self, batch1, batch2)?;
        checks::factors(batch1, [beta, alpha])?;
        Product::new(batch1, batch2).plus(self, beta, alpha).made()
    }

    /// [`Self::baddbmm`] into `out` (b, m, n), which may be one of the operands.
    ///
    /// # Errors
    /// Those of [`Self::baddbmm`]; `out` has another dtype or is on another device.
    pub fn baddbmm_out(
        &self,
        batch1: &Self,
        batch2: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
        out: &Self,
    ) -> Result<()> {
        let (beta, alpha) = (beta.into(), alpha.into());
        checks::baddbmm(self, batch1, batch2)?;
        let sizes = [batch1.sizes()[0], batch1.sizes()[1], batch2.sizes()[2]];
        checks::output(out, batch1.dtype(), &sizes, &[self, batch1, batch2])?;
        checks::factors(batch1, [beta, alpha])?;
        Product::new(batch1, batch2).plus(self, beta, alpha).written(out)
    }

    /// [`Self::baddbmm`] in place.
    ///
    /// # Errors
    /// As there, or `self` has not the sizes of the products.
    pub fn baddbmm_(
        &self,
        batch1: &Self,
        batch2: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<&Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        checks::baddbmm(self, batch1, batch2)?;
        checks::in_place(self, &[batch1.sizes()[0], batch1.sizes()[1], batch2.sizes()[2]])?;
        checks::factors(batch1, [beta, alpha])?;
        Product::new(batch1, batch2).plus(self, beta, alpha).written(self)?;
        Ok(self)
    }

    /// `beta * self` plus `alpha` times the sum of the products of two batches of matrices, (b, m, k) by (b, k, n) to
    /// (m, n) (`torch.addbmm`).
    ///
    /// # Errors
    /// As for [`Self::bmm`], or `self` does not broadcast to the sum.
    pub fn addbmm(
        &self,
        batch1: &Self,
        batch2: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        let policies = const { Policies::of("addbmm") };
        if let Some((_inside, [own, a, b])) = autocast::cast(policies, [self, batch1, batch2])? {
            return own.addbmm(&a, &b, beta, alpha);
        }
        checks::addbmm(self, batch1, batch2)?;
        checks::factors(batch1, [beta, alpha])?;
        // The sum over batches is part of the sum over the inner dimension.
        let [batches, rows, inner] = [0, 1, 2].map(|dim| batch1.sizes()[dim]);
        let columns = batch2.sizes()[2];
        let wide = batch1.permute(&[1, 0, 2])?.reshape(&[rows, batches * inner])?;
        let tall = batch2.reshape(&[batches * inner, columns])?;
        Product::new(&wide, &tall).plus(self, beta, alpha).made()
    }

    /// The product of a matrix (m, k) and a vector (k) (`torch.mv`).
    ///
    /// # Errors
    /// The operands are no matrix and vector or do not fit each other, or have several dtypes or devices; there is not
    /// enough memory, or the device or a library failed.
    pub fn mv(&self, vector: &Self) -> Result<Self> {
        if let Some((_inside, [a, b])) = autocast::cast(const { Policies::of("mv") }, [self, vector])? {
            return a.mv(&b);
        }
        checks::mv(self, vector, None)?;
        if checks::is_of_nothing(self, vector) && !self.dtype().is_float8() {
            return Self::zeros(&[self.sizes()[0]], vector.dtype(), self);
        }
        Product::new(self, &vector.unsqueeze(1)?).made()?.squeeze(Some(1))
    }

    /// [`Self::mv`] into `out` (m).
    ///
    /// # Errors
    /// Those of [`Self::mv`]; `out` has another dtype or is on another device.
    pub fn mv_out(&self, vector: &Self, out: &Self) -> Result<()> {
        checks::mv(self, vector, None)?;
        checks::same_type(self, vector)?;
        checks::output(out, self.dtype(), &[self.sizes()[0]], &[self, vector])?;
        Product::new(self, &vector.unsqueeze(1)?).written(&out.unsqueeze(1)?)
    }

    /// `beta * self + alpha * matrix @ vector`, for a `self` of (m), of (1) or without dimensions (`torch.addmv`).
    ///
    /// # Errors
    /// As for [`Self::mv`], or `self` does not broadcast to the product.
    pub fn addmv(
        &self,
        matrix: &Self,
        vector: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Self> {
        let (beta, alpha) = (beta.into(), alpha.into());
        let policies = const { Policies::of("addmv") };
        if let Some((_inside, [own, matrix, vector])) = autocast::cast(policies, [self, matrix, vector])? {
            return own.addmv(&matrix, &vector, beta, alpha);
        }
        checks::mv(matrix, vector, Some(self))?;
        checks::same_type(matrix, vector)?;
        checks::vector_factors(matrix, [beta, alpha])?;
        let added = self.to_dtype(matrix.dtype())?.expand(&[matrix.sizes()[0]])?.unsqueeze(1)?;
        let vector = vector.unsqueeze(1)?;
        Product::new(matrix, &vector).by_vector().plus(&added, beta, alpha).made()?.squeeze(Some(1))
    }

    /// [`Self::addmv`] into `out` (m), which may be one of the operands.
    ///
    /// # Errors
    /// Those of [`Self::addmv`]; `out` has another dtype or is on another device.
    pub fn addmv_out(
        &self,
        matrix: &Self,
        vector: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
        out: &Self,
    ) -> Result<()> {
        let (beta, alpha) = (beta.into(), alpha.into());
        checks::mv(matrix, vector, Some(self))?;
        checks::same_type(matrix, vector)?;
        checks::output(out, matrix.dtype(), &[matrix.sizes()[0]], &[self, matrix, vector])?;
        checks::vector_factors(matrix, [beta, alpha])?;
        let added = self.to_dtype(matrix.dtype())?.expand(&[matrix.sizes()[0]])?.unsqueeze(1)?;
        let vector = vector.unsqueeze(1)?;
        Product::new(matrix, &vector).by_vector().plus(&added, beta, alpha).written(&out.unsqueeze(1)?)
    }

    /// [`Self::addmv`] in place.
    ///
    /// # Errors
    /// As there, or `self` has not the sizes of the product.
    pub fn addmv_(
        &self,
        matrix: &Self,
        vector: &Self,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<&Self> {
        checks::mv(matrix, vector, Some(self))?;
        checks::in_place(self, &[matrix.sizes()[0]])?;
        self.addmv_out(matrix, vector, beta, alpha, self)?;
        Ok(self)
    }

    /// The sum of the products of two vectors' elements (`torch.dot`). Complex numbers are not conjugated.
    ///
    /// # Errors
    /// The operands are no vectors of one length, or have several dtypes or devices; there is not enough memory, or the
    /// device or a library failed.
    pub fn dot(&self, other: &Self) -> Result<Self> {
        if let Some((_inside, [a, b])) = autocast::cast(const { Policies::of("dot") }, [self, other])? {
            return a.dot(&b);
        }
        checks::dot(self, other)?;
        Product::new(&self.unsqueeze(0)?, &other.unsqueeze(1)?).made()?.reshape(&[])
    }

    /// [`Self::dot`] with the first vector conjugated (`torch.vdot`).
    ///
    /// # Errors
    /// As there.
    pub fn vdot(&self, other: &Self) -> Result<Self> {
        if let Some((_inside, [a, b])) = autocast::cast(const { Policies::of("vdot") }, [self, other])? {
            return a.vdot(&b);
        }
        checks::dot(self, other)?;
        self.conj().dot(other)
    }

    /// Every product of an element of one vector and one of another, (m) and (n) to (m, n) (`torch.outer`).
    ///
    /// # Errors
    /// The operands are no vectors, or are on several devices; there is not enough memory, or the device failed.
    pub fn outer(&self, other: &Self) -> Result<Self> {
        for (name, vector) in [("self", self), ("vec2", other)] {
            if vector.dim() != 1 {
                let dim = vector.dim();
                return Err(invalid(format!("outer: Expected 1-D argument {name}, but got {dim}-D")));
            }
        }
        self.unsqueeze(1)?.mul(other)
    }

    /// The product of two tensors: of vectors their dot product, of matrices their product; further dimensions in front
    /// are batches and broadcast (`torch.matmul`).
    ///
    /// # Errors
    /// The operands have no dimension or do not fit each other, or have several dtypes or devices; there is not enough
    /// memory, or the device or a library failed.
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        if let Some((_inside, [a, b])) = autocast::cast(const { Policies::of("matmul") }, [self, other])? {
            return a.matmul(&b);
        }
        match (self.dim(), other.dim()) {
            (first @ 0, second) | (first, second @ 0) => Err(invalid(format!(
                "both arguments to matmul need to be at least 1D, but they are {first}D and {second}D"
            ))),
            (1, 1) => self.dot(other),
            (2, 1) => self.mv(other),
            (2, 2) => self.mm(other),
            // Without elements torch multiplies the turned matrices by the vector.
            (1, 3..) if other.numel() == 0 => {
                let turned = other.transpose(-2, -1)?;
                let (inner, lead) = last_and_others(turned.sizes());
                turned.reshape(&[lead.iter().product(), inner])?.mv(self)?.view(lead)
            }
            (1, _) => {
                let made = self.unsqueeze(0)?.matmul(other)?;
                made.squeeze(Some(-2))
            }
            (_, 1) if folds(self) => {
                let (inner, lead) = last_and_others(self.sizes());
                self.reshape(&[lead.iter().product(), inner])?.mv(other)?.view(lead)
            }
            (_, 1) => {
                let made = self.matmul(&other.unsqueeze(1)?)?;
                made.squeeze(Some(-1))
            }
            (_, 2) if folds(self) => rows_product(self, other),
            _ => broadcast_product(self, other),
        }
    }

    /// [`Self::matmul`] into `out`.
    ///
    /// # Errors
    /// Those of [`Self::matmul`]; `out` has another dtype or is on another device.
    pub fn matmul_out(&self, other: &Self, out: &Self) -> Result<()> {
        if (self.dim(), other.dim()) == (2, 2) {
            return self.mm_out(other, out);
        }
        // With `out` nothing is cast.
        let _inside = Inside::new();
        let made = self.matmul(other)?;
        checks::output(out, made.dtype(), made.sizes(), &[self, other])?;
        out.copy_(&made).map(drop)
    }
}

/// Whether the rows of all batches follow each other at one distance, so that they are rows of one matrix.
fn folds(tensor: &Tensor) -> bool {
    let (sizes, strides) = (tensor.sizes(), tensor.strides());
    tensor.numel() == 0 || (0..tensor.dim() - 2).all(|dim| strides[dim] == strides[dim + 1] * sizes[dim + 1])
}

/// The last size and those before it.
fn last_and_others(sizes: &[i64]) -> (i64, &[i64]) {
    sizes.split_last().map_or((1, &[]), |(&last, others)| (last, others))
}

/// Batches by one matrix: all rows of all batches are rows of one product.
fn rows_product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (inner, lead) = last_and_others(a.sizes());
    let made = a.reshape(&[lead.iter().product(), inner])?.mm(b)?;
    let sizes: Dims = lead.iter().copied().chain([b.sizes()[1]]).collect();
    made.view(&sizes)
}

/// Batches of matrices whose leading dimensions broadcast.
fn broadcast_product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (a_lead, a_matrix) = a.sizes().split_at(a.dim() - 2);
    let (b_lead, b_matrix) = b.sizes().split_at(b.dim() - 2);
    let lead = shape::broadcast(a_lead, b_lead)?;
    let batches = shape::numel(&lead);
    let flat = |tensor: &Tensor, matrix: &[i64]| {
        let whole: Dims = lead.iter().chain(matrix).copied().collect();
        tensor.expand(&whole)?.reshape(&[batches, matrix[0], matrix[1]])
    };
    let made = flat(a, a_matrix)?.bmm(&flat(b, b_matrix)?)?;
    let sizes: Dims = lead.iter().copied().chain([a_matrix[0], b_matrix[1]]).collect();
    made.view(&sizes)
}
