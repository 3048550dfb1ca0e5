//! Products of matrices and vectors.
//!
//! Everything here is one product of batches, [`product`], with views as its operands: on the host loops that sum in
//! `f64`, on a device the kernel of `launch::library::matmul`.

use num_complex::Complex64;

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims, contiguous_strides};
use crate::launch;
use crate::tensor::{Context, Tensor, empty_strided, is_host, read_complex, scalar_bytes};

impl Tensor {
    /// The product of two matrices, (m, k) by (k, n) (`torch.mm`).
    ///
    /// # Errors
    /// The operands are no matrices or do not fit each other, or have several dtypes or devices; there is not enough
    /// memory, or the device failed.
    pub fn mm(&self, other: &Self) -> Result<Self> {
        check_matrices("self", self, other)?;
        product_2d(self, other, None, 1.into(), 0.into())
    }

    /// `beta * self + alpha * mat1 @ mat2`; `self` broadcasts to the product. With `beta` 0 it is not read
    /// (`torch.addmm`).
    ///
    /// # Errors
    /// As for [`Self::mm`], or `self` does not broadcast to the product.
    pub fn addmm(&self, mat1: &Self, mat2: &Self, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Self> {
        check_matrices("mat1", mat1, mat2)?;
        check_dtypes("self and mat2", self, mat2)?;
        product_2d(mat1, mat2, Some(self), alpha.into(), beta.into())
    }

    /// The products of two batches of matrices, (b, m, k) by (b, k, n) (`torch.bmm`).
    ///
    /// # Errors
    /// The operands are no batches of matrices or do not fit each other, or have several dtypes or devices; there is
    /// not enough memory, or the device failed.
    pub fn bmm(&self, other: &Self) -> Result<Self> {
        check_batches(self, other)?;
        product(self, other, None, 1.into(), 0.into())
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
        check_batches(batch1, batch2)?;
        check_dtypes("self and batch2", self, batch2)?;
        product(batch1, batch2, Some(self), alpha.into(), beta.into())
    }

    /// The product of a matrix (m, k) and a vector (k) (`torch.mv`).
    ///
    /// # Errors
    /// The operands are no matrix and vector or do not fit each other, or have several dtypes or devices; there is not
    /// enough memory, or the device failed.
    pub fn mv(&self, vector: &Self) -> Result<Self> {
        if self.dim() != 2 || vector.dim() != 1 {
            let (first, second) = (self.dim(), vector.dim());
            return Err(invalid(format!("vector + matrix @ vector expected, got 1, {first}, {second}")));
        }
        if self.sizes()[1] != vector.sizes()[0] {
            let (rows, columns, length) = (self.sizes()[0], self.sizes()[1], vector.sizes()[0]);
            return Err(invalid(format!("size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({length})")));
        }
        check_dtypes("self and vec", self, vector)?;
        product_2d(self, &vector.unsqueeze(1)?, None, 1.into(), 0.into())?.squeeze(Some(1))
    }

    /// The sum of the products of two vectors' elements (`torch.dot`). Complex numbers are not conjugated.
    ///
    /// # Errors
    /// The operands are no vectors of one length, or have several dtypes or devices; there is not enough memory, or the
    /// device failed.
    pub fn dot(&self, other: &Self) -> Result<Self> {
        if self.dim() != 1 || other.dim() != 1 {
            let (first, second) = (self.dim(), other.dim());
            return Err(invalid(format!("1D tensors expected, but got {first}D and {second}D tensors")));
        }
        if self.dtype() != other.dtype() {
            let (first, second) = (self.dtype().scalar_type_name(), other.dtype().scalar_type_name());
            return Err(invalid(format!(
                "dot : expected both vectors to have same dtype, but found {first} and {second}"
            )));
        }
        if self.numel() != other.numel() {
            let (first, second) = (self.numel(), other.numel());
            return Err(invalid(format!(
                "inconsistent tensor size, expected tensor [{first}] and src [{second}] to have the same number of \
                 elements, but got {first} and {second} elements respectively"
            )));
        }
        product_2d(&self.unsqueeze(0)?, &other.unsqueeze(1)?, None, 1.into(), 0.into())?.reshape(&[])
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
    /// memory, or the device failed.
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        match (self.dim(), other.dim()) {
            (first @ 0, second) | (first, second @ 0) => Err(invalid(format!(
                "both arguments to matmul need to be at least 1D, but they are {first}D and {second}D"
            ))),
            (1, 1) => self.dot(other),
            (2, 1) => self.mv(other),
            (2, 2) => self.mm(other),
            (1, _) => {
                let made = self.unsqueeze(0)?.matmul(other)?;
                made.squeeze(Some(-2))
            }
            (_, 1) => {
                let made = self.matmul(&other.unsqueeze(1)?)?;
                made.squeeze(Some(-1))
            }
            _ => broadcast_product(self, other),
        }
    }
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

fn check_matrices(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dim() != 2 {
        return Err(invalid(format!("{name} must be a matrix")));
    }
    if b.dim() != 2 {
        return Err(invalid("mat2 must be a matrix"));
    }
    if a.sizes()[1] != b.sizes()[0] {
        let (m, k, other, n) = (a.sizes()[0], a.sizes()[1], b.sizes()[0], b.sizes()[1]);
        return Err(invalid(format!("mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {other}x{n})")));
    }
    check_dtypes("mat1 and mat2", a, b)
}

fn check_batches(a: &Tensor, b: &Tensor) -> Result<()> {
    for (name, tensor) in [("batch1", a), ("batch2", b)] {
        if tensor.dim() != 3 {
            return Err(invalid(format!("{name} must be a 3D tensor")));
        }
    }
    let (batches, k) = (a.sizes()[0], a.sizes()[2]);
    if b.sizes()[0] != batches || b.sizes()[1] != k {
        let (other, inner) = (b.sizes()[0], b.sizes()[1]);
        return Err(invalid(format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{batches}, {k}] but got: [{other}, {inner}]."
        )));
    }
    check_dtypes("batch1 and batch2", a, b)
}

fn check_dtypes(names: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dtype() == b.dtype() {
        return Ok(());
    }
    let (first, second) = (a.dtype().cpp_name(), b.dtype().cpp_name());
    Err(invalid(format!("expected {names} to have the same dtype, but got: {first} != {second}")))
}

/// The product of two matrices, as a batch of one.
fn product_2d(a: &Tensor, b: &Tensor, c: Option<&Tensor>, alpha: Scalar, beta: Scalar) -> Result<Tensor> {
    product(&a.unsqueeze(0)?, &b.unsqueeze(0)?, c, alpha, beta)?.squeeze(Some(0))
}

/// `alpha * a @ b + beta * c` as a new tensor (b, m, n).
fn product(a: &Tensor, b: &Tensor, c: Option<&Tensor>, alpha: Scalar, beta: Scalar) -> Result<Tensor> {
    let run = || {
        let sizes = [a.sizes()[0], a.sizes()[1], b.sizes()[2]];
        let device = launch::common_device([a, b].into_iter().chain(c))?.unwrap_or(a.device());
        // What is multiplied by zero is not read: it may be anything.
        let c = c.filter(|_| beta.is_true()).map(|c| expanded(c, &sizes)).transpose()?;
        let out = empty_strided(&sizes, &contiguous_strides(&sizes), a.dtype(), device)?;
        if is_host(device) {
            on_host(&out, a, b, c.as_ref(), alpha, beta)?;
        } else {
            launch::library::matmul::product(&out, a, b, c.as_ref(), alpha, beta)?;
        }
        Ok(out)
    };
    run().of("matmul", &[a, b])
}

/// What is added, broadcast to the product; a matrix to every product of the batch.
fn expanded(c: &Tensor, sizes: &[i64; 3]) -> Result<Tensor> {
    c.expand(sizes).map_err(|_| {
        let (found, m, n) = (c.sizes(), sizes[1], sizes[2]);
        invalid(format!("expand(size {found:?}): what is added does not broadcast to the product ({m}x{n})"))
    })
}

/// The product on the host. Floats are summed in `f64`, so that the result is rounded once.
fn on_host(out: &Tensor, a: &Tensor, b: &Tensor, c: Option<&Tensor>, alpha: Scalar, beta: Scalar) -> Result<()> {
    let [batches, m, n] = three(out.sizes());
    let k = three(a.sizes())[2];
    if out.dtype() == DType::Bool {
        return Err(TensorError::NotImplemented { kernel: "addmm_impl_cpu_".to_owned(), dtype: DType::Bool }.into());
    }
    if out.dtype().is_integral() {
        return integers_on_host(out, a, b, c, alpha, beta);
    }
    let (left, right) = (read_complex(a)?, read_complex(b)?);
    let added = c.map(read_complex).transpose()?;
    let number = |scalar: Scalar| Complex64::new(scalar.to_f64(), scalar.imaginary());
    let (alpha, beta) = (number(alpha), number(beta));
    let mut bytes = Vec::with_capacity(out.nbytes());
    for at in 0..batches * m * n {
        let (row, column) = (at / n, at % n);
        let batch = row / m;
        let products = (0..k).map(|inner| (left[row * k + inner], right[(batch * k + inner) * n + column]));
        let mut value = if out.dtype().is_complex() {
            alpha * products.map(|(a, b)| a * b).sum::<Complex64>()
        } else {
            // Of `f64` from a negative zero on, so that a sum of one product keeps its sign: as cuBLAS has it.
            let zero = if out.dtype() == DType::F64 { -0.0 } else { 0.0 };
            Complex64::from(alpha.re * products.fold(zero, |sum, (a, b)| sum + a.re * b.re))
        };
        if let Some(added) = &added {
            value += beta * added[at];
        }
        bytes.extend(scalar_bytes(Scalar::Complex(value), out.dtype()));
    }
    out.storage().write(out.byte_offset(), &bytes)
}

fn integers_on_host(
    out: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: Option<&Tensor>,
    alpha: Scalar,
    beta: Scalar,
) -> Result<()> {
    let [batches, m, n] = three(out.sizes());
    let k = three(a.sizes())[2];
    let read = |tensor: &Tensor| tensor.to_dtype(DType::I64)?.to_vec::<i64>();
    let (left, right, added) = (read(a)?, read(b)?, c.map(read).transpose()?);
    let mut bytes = Vec::with_capacity(out.nbytes());
    for at in 0..batches * m * n {
        let (row, column) = (at / n, at % n);
        let batch = row / m;
        let sum = (0..k).fold(0_i64, |sum, inner| {
            sum.wrapping_add(left[row * k + inner].wrapping_mul(right[(batch * k + inner) * n + column]))
        });
        let before = added.as_ref().map_or(0, |added| added[at].wrapping_mul(beta.to_i64()));
        let value = alpha.to_i64().wrapping_mul(sum).wrapping_add(before);
        bytes.extend(scalar_bytes(Scalar::Int(value), out.dtype()));
    }
    out.storage().write(out.byte_offset(), &bytes)
}

fn three(sizes: &[i64]) -> [usize; 3] {
    [0, 1, 2].map(|dim| usize::try_from(sizes[dim]).unwrap_or(0))
}
