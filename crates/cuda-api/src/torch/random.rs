//! Random numbers: `torch.rand`, `torch.manual_seed` and the like. They come from the default generator of the device; the
//! methods of [`Tensor`] take another one.

use aten_cuda::{DType, Result, Tensor, ToDevice};

/// Numbers from 0 up to 1, by the default generator of the device (`torch.rand`).
///
/// # Errors
/// As for [`empty`], the dtype is no float, or the device failed.
pub fn rand(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::rand(sizes, dtype, device, None)
}

/// Numbers of the normal distribution with mean 0 and deviation 1, by the default generator of the device
/// (`torch.randn`).
///
/// # Errors
/// As for [`rand`].
pub fn randn(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::randn(sizes, dtype, device, None)
}

/// Integers from `low` up to `high`, which is not among them, by the default generator of the device (`torch.randint`).
///
/// # Errors
/// As for [`empty`], the range has no integer, or the device failed.
pub fn randint(low: i64, high: i64, sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::randint(low, high, sizes, dtype, device, None)
}

/// The numbers below `n` in random order (`torch.randperm`; its dtype is `i64` where none is named).
///
/// # Errors
/// `n` is negative or too large for the dtype, there is not enough memory, or the device failed.
pub fn randperm(n: i64, dtype: impl Into<Option<DType>>, device: impl ToDevice) -> Result<Tensor> {
    Tensor::randperm(n, dtype.into().unwrap_or(DType::I64), device, None)
}

/// [`rand`] like another tensor (`torch.rand_like`).
///
/// # Errors
/// As for [`rand`].
pub fn rand_like(input: &Tensor) -> Result<Tensor> {
    input.rand_like(None)
}

/// [`randn`] like another tensor (`torch.randn_like`).
///
/// # Errors
/// As for [`randn`].
pub fn randn_like(input: &Tensor) -> Result<Tensor> {
    input.randn_like(None)
}

/// [`randint`] like another tensor (`torch.randint_like`).
///
/// # Errors
/// As for [`randint`].
pub fn randint_like(input: &Tensor, low: i64, high: i64) -> Result<Tensor> {
    input.randint_like(low, high, None)
}

/// Ones, each of the probability that `input` has there, and zeros (`torch.bernoulli`); see [`Tensor::bernoulli`].
///
/// # Errors
/// As for the method.
pub fn bernoulli(input: &Tensor) -> Result<Tensor> {
    input.bernoulli(None)
}

/// Categories of each row of probabilities (`torch.multinomial`); see [`Tensor::multinomial`].
///
/// # Errors
/// As for the method.
pub fn multinomial(input: &Tensor, num_samples: i64, replacement: bool) -> Result<Tensor> {
    input.multinomial(num_samples, replacement, None)
}

/// Dropout, and the mask of the elements that are kept (`torch.native_dropout`); see [`Tensor::native_dropout`].
///
/// # Errors
/// As for the method.
pub fn native_dropout(input: &Tensor, p: f64, train: Option<bool>) -> Result<(Tensor, Tensor)> {
    input.native_dropout(p, train)
}
