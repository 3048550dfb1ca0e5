//! New tensors of random numbers.

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, refuse_float8};
use crate::base::shape;
use crate::iterate;
use crate::launch;
use crate::random::fill::refused;
use crate::random::generator::Generator;
use crate::tensor::{Operand, Tensor, ToDevice, empty_strided};

impl Tensor {
    /// Uniform numbers from 0 up to but without 1 (`torch.rand`).
    ///
    /// # Errors
    /// A size is negative, there is not enough memory, or as for [`Self::uniform_`].
    pub fn rand(sizes: &[i64], dtype: DType, device: impl ToDevice, generator: Option<&Generator>) -> Result<Self> {
        let made = Self::uninitialized(sizes, dtype, device)?;
        made.uniform_(0.0, 1.0, generator)?;
        Ok(made)
    }

    /// Normal numbers of mean 0 and standard deviation 1 (`torch.randn`).
    ///
    /// # Errors
    /// A size is negative, there is not enough memory, or as for [`Self::normal_`].
    pub fn randn(sizes: &[i64], dtype: DType, device: impl ToDevice, generator: Option<&Generator>) -> Result<Self> {
        let made = Self::uninitialized(sizes, dtype, device)?;
        made.normal_(0.0, 1.0, generator)?;
        Ok(made)
    }

    /// Whole numbers from `low` up to but without `high` (`torch.randint`; its dtype is `i64` where none is named).
    ///
    /// # Errors
    /// A size is negative, there is not enough memory, or as for [`Self::random_from_to_`].
    pub fn randint(
        low: i64,
        high: i64,
        sizes: &[i64],
        dtype: DType,
        device: impl ToDevice,
        generator: Option<&Generator>,
    ) -> Result<Self> {
        let made = Self::uninitialized(sizes, dtype, device)?;
        made.random_from_to_(low, Some(high), generator)?;
        Ok(made)
    }

    /// Uniform numbers, as many as here, of the same dtype and layout (`torch.rand_like`).
    ///
    /// # Errors
    /// As for [`Self::rand`].
    pub fn rand_like(&self, generator: Option<&Generator>) -> Result<Self> {
        let made = like(self, self.dtype())?;
        made.uniform_(0.0, 1.0, generator)?;
        Ok(made)
    }

    /// Normal numbers, as many as here, of the same dtype and layout (`torch.randn_like`).
    ///
    /// # Errors
    /// As for [`Self::randn`].
    pub fn randn_like(&self, generator: Option<&Generator>) -> Result<Self> {
        let made = like(self, self.dtype())?;
        made.normal_(0.0, 1.0, generator)?;
        Ok(made)
    }

    /// Whole numbers, as many as here, of the same dtype and layout (`torch.randint_like`).
    ///
    /// # Errors
    /// As for [`Self::randint`].
    pub fn randint_like(&self, low: i64, high: i64, generator: Option<&Generator>) -> Result<Self> {
        let made = like(self, self.dtype())?;
        made.random_from_to_(low, Some(high), generator)?;
        Ok(made)
    }

    /// Normal numbers of this tensor's elements as means, and a standard deviation (`torch.normal`).
    ///
    /// # Errors
    /// As for [`Self::normal_`], or there is not enough memory.
    pub fn normal_about(&self, std: f64, generator: Option<&Generator>) -> Result<Self> {
        if std.is_nan() || std < 0.0 {
            return Err(refused(format!("normal expects std >= 0.0, but found std {std}")));
        }
        let made = Self::uninitialized(self.sizes(), self.dtype(), self.device())?;
        made.normal_(0.0, std, generator)?;
        made.add_(self)?;
        Ok(made)
    }
}

impl Tensor {
    /// Normal numbers, each of its own mean and standard deviation (`torch.normal`). At least one of them is a tensor, and
    /// tensors broadcast. The result is contiguous, and has the dtype and the device of the mean where that is a tensor.
    ///
    /// Waits for the device where the deviation is a tensor, to check it.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::Tensor;
    ///
    /// let mean = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[3])?.cuda(None)?;
    /// let certain = Tensor::normal(&mean, 0.0, None)?;
    /// assert_eq!(certain.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// Both are numbers, a deviation is below zero or complex, the sizes do not broadcast, the tensors are on several
    /// devices, there is not enough memory, or as for [`Self::normal_`].
    pub fn normal<'a>(
        mean: impl Into<Operand<'a>>,
        std: impl Into<Operand<'a>>,
        generator: Option<&Generator>,
    ) -> Result<Self> {
        let (mean, std) = (mean.into(), std.into());
        match (&mean, &std) {
            (Operand::Tensor(mean), Operand::Number(std)) => mean.normal_about(std.to_f64(), generator),
            (Operand::Number(mean), Operand::Tensor(std)) => {
                let made = scaled(std.sizes(), std, std, generator)?;
                made.add_(*mean)?;
                Ok(made)
            }
            (Operand::Tensor(mean), Operand::Tensor(std)) => {
                let sizes = shape::broadcast(mean.sizes(), std.sizes())?;
                let made = scaled(&sizes, mean, std, generator)?;
                made.add_(*mean)?;
                Ok(made)
            }
            (Operand::Number(_), Operand::Number(_)) => {
                Err(refused("normal: mean or std is a tensor; normal_ fills one from numbers".to_owned()))
            }
        }
    }
}

/// Normal numbers of mean zero, times their deviations, with the dtype and the device of a tensor.
fn scaled(sizes: &[i64], like: &Tensor, std: &Tensor, generator: Option<&Generator>) -> Result<Tensor> {
    if std.dtype().is_complex() {
        return Err(refused("normal expects standard deviation to be non-complex".to_owned()));
    }
    launch::common_device([like, std])?;
    if std.numel() > 0 && !std.min()?.ge(0)?.item()?.is_true() {
        return Err(refused("normal expects all elements of std >= 0.0".to_owned()));
    }
    let made = Tensor::uninitialized(sizes, like.dtype(), like)?;
    made.normal_(0.0, 1.0, generator)?;
    made.mul_(std)?;
    Ok(made)
}

/// A new tensor of the same sizes, laid out in the same way as far as that leaves no gap (`torch.preserve_format`).
pub(super) fn like(tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    let dense = shape::is_non_overlapping_and_dense(tensor.sizes(), tensor.strides());
    if dense {
        return empty_strided(tensor.sizes(), tensor.strides(), dtype, tensor.device());
    }
    empty_strided(tensor.sizes(), &iterate::result_strides(tensor.sizes(), &[tensor], false), dtype, tensor.device())
}

/// Checks that a dtype holds the numbers below `n`, as torch does before it makes a permutation.
pub(super) fn check_holds(n: i64, dtype: DType) -> Result<()> {
    let too_large = |text: &str| Err(refused(text.to_owned()));
    let last = (n - 1).max(0);
    let overflows = |name: &str| Err(refused(format!("value cannot be converted to type {name} without overflow")));
    match dtype {
        DType::F16 if n > (1 << 11) + 1 => too_large("n cannot be greater than 2049 for Half type."),
        DType::F32 if n > (1 << 24) + 1 => too_large("n cannot be greater than 2^24+1 for Float type."),
        DType::F64 if n > (1 << 53) + 1 => too_large("n cannot be greater than 2^53+1 for Double type."),
        DType::U8 if u8::try_from(last).is_err() => overflows("uint8_t"),
        DType::I8 if i8::try_from(last).is_err() => overflows("int8_t"),
        DType::I16 if i16::try_from(last).is_err() => overflows("int16_t"),
        DType::I32 if i32::try_from(last).is_err() => overflows("int"),
        DType::F8E4M3FN | DType::F8E5M2 => refuse_float8("arange_cuda", dtype),
        DType::Bool | DType::C32 | DType::C64 | DType::C128 => {
            Err(TensorError::NotImplemented { kernel: "randperm".to_owned(), dtype }.into())
        }
        _ => Ok(()),
    }
}
