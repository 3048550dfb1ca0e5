//! Products of matrices of 8-bit integers (`torch._int_mm`).

use super::{bytes, host};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::shape::{contiguous_strides, wrap_dim};
use crate::launch::byte_products::Problem;
use crate::launch::common_device;
use crate::tensor::{Context, Tensor, empty_strided, is_host};

impl Tensor {
    /// The product of two matrices of `i8`, (m, k) by (k, n), as `i32`; sums wrap around (`torch._int_mm`).
    ///
    /// On a device `m` is above 16, and `k` and `n` are multiples of 8, as torch has it. Work is queued on the current
    /// stream. Factors whose inner dimension is not the one that lies one after another are copied for cuBLASLt.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let a = Tensor::full(&[17, 8], -3, DType::I8, "cuda")?;
    /// let b = Tensor::full(&[8, 8], 100, DType::I8, "cuda")?;
    /// assert_eq!(a.int_mm(&b)?.to_vec::<i32>()?[0], -2400);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The operands are no such matrices, do not fit each other, or are on several devices; there is not enough memory, or
    /// the device or the library failed.
    #[doc(alias = "_int_mm")]
    pub fn int_mm(&self, mat2: &Self) -> Result<Self> {
        let run = || {
            let device = common_device([self, mat2])?.unwrap_or(self.device());
            let rows = self.sizes().get(wrap_dim(0, self.dim())?).copied().unwrap_or(0);
            let columns = mat2.sizes()[wrap_dim(1, mat2.dim())?];
            check(self, mat2)?;
            let sizes = [rows, columns];
            check_dtypes(self, mat2)?;
            let out = empty_strided(&sizes, &contiguous_strides(&sizes), DType::I32, device)?;
            compute(&out, self, mat2)?;
            Ok(out)
        };
        run().of("_int_mm", &[self, mat2])
    }

    /// [`Self::int_mm`] into `out` (m, n), which is contiguous.
    ///
    /// # Errors
    /// As there, or `out` is no such matrix of `i32`.
    #[doc(alias = "_int_mm_out")]
    pub fn int_mm_out(&self, mat2: &Self, out: &Self) -> Result<()> {
        let run = || {
            common_device([out, self, mat2])?;
            check(self, mat2)?;
            check_out(self, mat2, out)?;
            check_dtypes(self, mat2)?;
            if [self, mat2].iter().any(|factor| factor.storage().is_same(out.storage())) {
                return out.copy_(&self.int_mm(mat2)?).map(drop);
            }
            compute(out, self, mat2)
        };
        run().of("_int_mm", &[out, self, mat2])
    }
}

/// What torch writes before its messages about tensors of the host.
fn prefix(tensor: &Tensor) -> &'static str {
    if is_host(tensor.device()) { "int_mm_out_cpu: " } else { "" }
}

fn check(a: &Tensor, b: &Tensor) -> Result<()> {
    let prefix = prefix(a);
    for (name, matrix) in [("self", a), ("mat2", b)] {
        if matrix.dim() != 2 {
            return Err(invalid(format!("{prefix}Expected {name} to be of dimension 2 but got {}", matrix.dim())));
        }
    }
    let ([m, k], [inner, n]) = ([a.sizes()[0], a.sizes()[1]], [b.sizes()[0], b.sizes()[1]]);
    let is_on_device = !is_host(a.device());
    if is_on_device && m <= 16 {
        return Err(invalid(format!("self.size(0) needs to be greater than 16, but got {m}")));
    }
    let multiple = |name: &str, size: i64| match size {
        _ if !is_on_device || (size > 0 && size % 8 == 0) => Ok(()),
        _ => Err(invalid(format!("{name}.size(1) needs to be greater than 0 and a multiple of 8, but got {size}"))),
    };
    multiple("self", k)?;
    if k != inner {
        return Err(invalid(format!("{prefix}self.size(1) needs to match mat2.size(0) but got {k} and {inner}")));
    }
    multiple("mat2", n)
}

fn check_dtypes(a: &Tensor, b: &Tensor) -> Result<()> {
    for (name, matrix) in [("self", a), ("mat2", b)] {
        let dtype = matrix.dtype();
        if dtype == DType::I8 {
            continue;
        }
        return Err(invalid(if is_host(matrix.device()) {
            format!("{}Expected {name} dtype to be of type int8 but got {}", prefix(matrix), dtype.meta_name())
        } else {
            format!("expected scalar type Char but found {}", dtype.scalar_type_name())
        }));
    }
    Ok(())
}

fn check_out(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    let prefix = prefix(a);
    if out.dtype() != DType::I32 {
        let found = out.dtype().meta_name();
        return Err(invalid(format!("{prefix}Expected result dtype to be of type kInt but got {found}")));
    }
    for (dim, wanted) in [(0, a.sizes()[0]), (1, b.sizes()[1])] {
        let found = out.sizes()[wrap_dim(dim, out.dim())?];
        if found != wanted {
            return Err(invalid(format!("{prefix}Expected result.size({dim}) to be {wanted} but got {found}")));
        }
    }
    if out.dim() != 2 {
        return Err(invalid(format!("{prefix}Expected result to be of dimension 2 but got {}", out.dim())));
    }
    if !out.is_contiguous() {
        return Err(invalid(format!("{prefix}Expected result to be contiguous.")));
    }
    Ok(())
}

fn compute(out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    if is_host(out.device()) {
        return host::product(&out.unsqueeze(0)?, &a.unsqueeze(0)?, &b.unsqueeze(0)?, None, Some(1.into()), 0.into());
    }
    bytes::compute(&Problem { out, a, b, scales: None, fast: false })
}
