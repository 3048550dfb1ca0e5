//! Products on the host: loops that sum in `f64`, the reference of the tests.

use c10_core::host_memory;
use num_complex::Complex64;

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::base::scalar::Scalar;
use crate::tensor::{Tensor, read_complex, scalar_bytes};

/// Computes the product on the host. Floats are summed in `f64` and rounded once. If `alpha` is `None` (a zero factor),
/// the matrices are not read into the sum, so their NaNs do not propagate.
pub(super) fn product(
    out: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: Option<&Tensor>,
    alpha: Option<Scalar>,
    beta: Scalar,
) -> Result<()> {
    let [batches, m, n] = three(out.sizes());
    let k = three(a.sizes())[2];
    if out.dtype() == DType::Bool && k == 0 {
        // torch multiplies what is added by a number of `i64` then.
        let refused = TensorError::CannotCast { from: DType::I64, to: DType::Bool };
        return if c.is_some() { Err(refused.into()) } else { out.zero_().map(drop) };
    }
    if out.dtype() == DType::Bool {
        return Err(TensorError::NotImplemented { kernel: "addmm_impl_cpu_".to_owned(), dtype: DType::Bool }.into());
    }
    if out.dtype().is_integral() {
        return integers_on_host(out, a, b, c, alpha.unwrap_or(0.into()), beta);
    }
    let (left, right) = (read_complex(a)?, read_complex(b)?);
    let added = c.map(read_complex).transpose()?;
    let number = |scalar: Scalar| Complex64::new(scalar.to_f64(), scalar.imaginary());
    let (factor, beta) = (alpha.map(number), number(beta));
    let mut bytes = host_memory::with_capacity(out.nbytes())?;
    for at in 0..batches * m * n {
        let (row, column) = (at / n, at % n);
        let batch = row / m;
        let products = (0..k).map(|inner| (left[row * k + inner], right[(batch * k + inner) * n + column]));
        let mut value = match factor {
            None => {
                // The addend keeps its sign, even if it is zero.
                let zero = if added.is_some() { -0.0 } else { 0.0 };
                Complex64::new(zero, if out.dtype().is_complex() { zero } else { 0.0 })
            }
            Some(factor) if out.dtype().is_complex() => factor * products.map(|(a, b)| a * b).sum::<Complex64>(),
            Some(factor) => {
                // `f64` sums start at negative zero, so that a sum of one product keeps its sign, as in cuBLAS.
                let zero = if out.dtype() == DType::F64 { -0.0 } else { 0.0 };
                Complex64::from(factor.re * products.fold(zero, |sum, (a, b)| sum + a.re * b.re))
            }
        };
        if let Some(added) = &added {
            value += beta * added[at];
        }
        bytes.extend(scalar_bytes(Scalar::Complex(value), out.dtype()));
    }
    out.plain_storage()?.write(out.byte_offset(), &bytes)
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
    let mut bytes = host_memory::with_capacity(out.nbytes())?;
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
    out.plain_storage()?.write(out.byte_offset(), &bytes)
}

fn three(sizes: &[i64]) -> [usize; 3] {
    [0, 1, 2].map(|dim| usize::try_from(sizes[dim]).unwrap_or(0))
}
