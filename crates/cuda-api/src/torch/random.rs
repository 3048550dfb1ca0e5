//! Random numbers: `torch.rand`, `torch.manual_seed` and the like. They come from the default generator of the device; the
//! methods of [`Tensor`] take another one.

use aten_cuda::{DType, Generator, Operand, Result, Tensor, ToDevice};

/// Seeds the default generators of the host and of all CUDA devices (`torch.manual_seed`), and returns the host's. Starts
/// nothing.
///
/// ```
/// use cuda_api::torch;
///
/// torch::manual_seed(0)?;
/// assert_eq!(torch::rand(&[2], torch::float32, "cpu")?.to_vec::<f32>()?, [0.49625659, 0.7682218]);
/// assert_eq!(torch::initial_seed()?, 0);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// The seed has more than 64 bits, or a device's current stream captures and the seed is another one.
pub fn manual_seed(seed: impl Into<i128>) -> Result<Generator> {
    let seed = seed.into();
    aten_cuda::random::manual_seed_all(seed)?;
    let host = aten_cuda::random::default_host_generator();
    host.manual_seed(seed)?;
    Ok(host)
}

/// Seeds the default generators of the host and of all CUDA devices with one number that nobody can foresee, and returns
/// that (`torch.seed`).
///
/// # Errors
/// A device's current stream captures.
pub fn seed() -> Result<u64> {
    let seed = aten_cuda::random::default_host_generator().seed()?;
    aten_cuda::random::manual_seed_all(seed)?;
    Ok(seed)
}

/// The seed of the host's default generator (`torch.initial_seed`).
///
/// # Errors
/// None.
pub fn initial_seed() -> Result<u64> {
    aten_cuda::random::default_host_generator().initial_seed()
}

/// The state of the host's default generator, 5,056 bytes (`torch.get_rng_state`).
///
/// # Errors
/// None.
pub fn get_rng_state() -> Result<Tensor> {
    aten_cuda::random::default_host_generator().get_state()
}

/// Sets the state of the host's default generator (`torch.set_rng_state`).
///
/// # Errors
/// The state is no contiguous host tensor of 5,056 bytes, or none that such a generator can have.
pub fn set_rng_state(new_state: &Tensor) -> Result<()> {
    aten_cuda::random::default_host_generator().set_state(new_state)
}

/// Normal numbers, each of its own mean and standard deviation; one of them may be a number (`torch.normal`). See
/// [`Tensor::normal`].
///
/// # Errors
/// As for the method.
pub fn normal<'a>(mean: impl Into<Operand<'a>>, std: impl Into<Operand<'a>>) -> Result<Tensor> {
    Tensor::normal(mean, std, None)
}

/// Numbers from 0 up to 1, by the default generator of the device (`torch.rand`).
///
/// # Errors
/// As for [`empty`](super::empty), the dtype is no float, or the device failed.
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
/// As for [`empty`](super::empty), the range has no integer, or the device failed.
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
