//! Fourier transforms of one dimension (`torch.fft`): by cuFFT on devices, by loops on the host.
//!
//! `X[k] = sum over j of x[j] exp(-2 pi i j k / n)`, and backward with the other sign and a factor of `1 / n` unless another
//! normalisation is asked for. Reading order: this file (what is refused, in torch's words; lengths and factors), `library`
//! (cuFFT and its plans).

mod library;

use c10_core::host_memory;
use c10_core::{DeviceArg, Runtime};
use cuda_sys::Cufft;
use num_complex::Complex64;
use smallvec::SmallVec;

use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, invalid};
use crate::base::linalg_error::LinalgError;
use crate::base::scalar::Scalar;
use crate::base::shape::{contiguous_strides, wrap_dim};
use crate::tensor::{Tensor, read_complex, scalar_bytes};

pub use library::PlanCache;

/// Which of the two directions has a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Backward, of `1 / n`.
    Backward,
    /// Both, of `1 / sqrt(n)`.
    Ortho,
    /// Forward, of `1 / n`.
    Forward,
}

impl TryFrom<&str> for Norm {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        match text {
            "backward" => Ok(Self::Backward),
            "ortho" => Ok(Self::Ortho),
            "forward" => Ok(Self::Forward),
            _ => Err(invalid(format!("Invalid normalization mode: \"{text}\""))),
        }
    }
}

/// Has the current runtime use this cuFFT from now on: a simulated one, or none. Forgets all plans.
pub fn set_library(cufft: Option<Cufft>) {
    Runtime::with_current(|runtime| library::set(runtime, cufft));
}

/// The version of the cuFFT that the current runtime uses, and where it was loaded from; it is looked for where that was not
/// done. Torch has no such thing.
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// let missing = aten_cuda::fft::loaded_library().unwrap_err();
/// assert!(missing.to_string().starts_with("torch.fft on CUDA tensors needs cuFFT, which is not there"));
/// ```
///
/// # Errors
/// [`LinalgError::Missing`] says what was looked for.
pub fn loaded_library() -> Result<(String, String)> {
    let missing = |reason| LinalgError::Missing { operation: "torch.fft", library: "cuFFT", reason };
    let library = Runtime::with_current(library::find).map_err(missing)?;
    Ok((library.version().to_string(), library.origin().to_owned()))
}

/// The plans that are kept for a device (`torch.backends.cuda.cufft_plan_cache`).
///
/// # Errors
/// There is no such device; the text is torch's.
pub fn plan_cache(device: i64) -> Result<PlanCache> {
    Runtime::with_current(|runtime| {
        let count = i64::try_from(runtime.device_count()).unwrap_or(i64::MAX);
        let place = i8::try_from(device).ok().filter(|_| (0..count).contains(&device));
        let text =
            format!("cufft_plan_cache: expected 0 <= device index < {count}, but got device with index {device}");
        let device = place.ok_or_else(|| invalid(text))?.resolve(runtime)?;
        Ok(PlanCache::new(runtime, device))
    })
}

/// The discrete Fourier transform along a dimension, complex also of real numbers (`torch.fft.fft`). With `n` the signal is
/// cut or filled with zeros to that length. Ordered by the current stream.
///
/// ```
/// use aten_cuda::{Complex64, Tensor, fft};
///
/// let wave = Tensor::from_slice(&[1.0_f64, 0.0, -1.0, 0.0], &[4])?;
/// let found = fft::fft(&wave, None, -1, None)?.to_vec::<Complex64>()?;
/// assert!((found[1] - Complex64::new(2.0, 0.0)).norm() < 1e-12);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// The dtype, length, dimension or normalisation does not fit, or there is no cuFFT for a tensor on a device.
pub fn fft(input: &Tensor, n: Option<i64>, dim: i64, norm: Option<&str>) -> Result<Tensor> {
    if let Some((_inside, [input])) = autocast::cast(const { Policies::of("fft_fft") }, [input])? {
        return fft(&input, n, dim, norm);
    }
    let signal = Signal::of(input, n, dim, norm, |length| length)?;
    let complex = signal.tensor.to_dtype(complex_of(signal.tensor.dtype()))?;
    transform(&Signal { tensor: complex, ..signal }, Kind::Complex { forward: true })
}

/// The inverse of [`fft`] (`torch.fft.ifft`).
///
/// # Errors
/// As [`fft`].
pub fn ifft(input: &Tensor, n: Option<i64>, dim: i64, norm: Option<&str>) -> Result<Tensor> {
    if let Some((_inside, [input])) = autocast::cast(const { Policies::of("fft_ifft") }, [input])? {
        return ifft(&input, n, dim, norm);
    }
    let signal = Signal::of(input, n, dim, norm, |length| length)?;
    let complex = signal.tensor.to_dtype(complex_of(signal.tensor.dtype()))?;
    transform(&Signal { tensor: complex, ..signal }, Kind::Complex { forward: false })
}

/// The first half of the transform of real numbers, `n / 2 + 1` of them; the rest are their conjugates backward
/// (`torch.fft.rfft`).
///
/// # Errors
/// As [`fft`], or the numbers are complex.
pub fn rfft(input: &Tensor, n: Option<i64>, dim: i64, norm: Option<&str>) -> Result<Tensor> {
    if let Some((_inside, [input])) = autocast::cast(const { Policies::of("fft_rfft") }, [input])? {
        return rfft(&input, n, dim, norm);
    }
    if input.dtype().is_complex() {
        let name = input.dtype().scalar_type_name();
        return Err(invalid(format!("rfft expects a real input tensor, but got {name}")));
    }
    let signal = Signal::of(input, n, dim, norm, |length| length)?;
    transform(&signal, Kind::Forward)
}

/// The inverse of [`rfft`]: `n` real numbers, of which `n / 2 + 1` frequencies are read (`torch.fft.irfft`). Without `n` there
/// are twice as many as frequencies, less two.
///
/// # Errors
/// As [`fft`].
pub fn irfft(input: &Tensor, n: Option<i64>, dim: i64, norm: Option<&str>) -> Result<Tensor> {
    if let Some((_inside, [input])) = autocast::cast(const { Policies::of("fft_irfft") }, [input])? {
        return irfft(&input, n, dim, norm);
    }
    let at = check_dim(input, dim)?;
    let length = n.unwrap_or(2 * (input.sizes()[at] - 1));
    let signal = Signal::of(input, Some(length), dim, norm, |length| length / 2 + 1)?;
    let complex = signal.tensor.to_dtype(complex_of(signal.tensor.dtype()))?;
    transform(&Signal { tensor: complex, ..signal }, Kind::Inverse)
}

/// What is transformed into what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Complex numbers into complex ones.
    Complex {
        /// With the sign of the forward transform.
        forward: bool,
    },
    /// Real numbers into the first half of their frequencies.
    Forward,
    /// The first half of frequencies into real numbers.
    Inverse,
}

impl Kind {
    fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::Complex { forward: true })
    }
}

/// A contiguous signal with the transformed dimension last, trimmed or zero-padded to its length. The other dimensions
/// are sorted by stride, largest first, which is the memory order of the result.
struct Signal {
    tensor: Tensor,
    /// Numbers of a whole signal.
    length: i64,
    /// Dimensions of the input, in the order of this tensor's dimensions.
    order: SmallVec<[i64; 6]>,
    norm: Norm,
}

impl Signal {
    fn of(input: &Tensor, n: Option<i64>, dim: i64, norm: Option<&str>, kept: impl FnOnce(i64) -> i64) -> Result<Self> {
        let norm = norm.map_or(Ok(Norm::Backward), Norm::try_from)?;
        let dtype = promoted(input.dtype())?;
        let dim = check_dim(input, dim)?;
        let length = n.unwrap_or(input.sizes()[dim]);
        if length < 1 {
            return Err(invalid(format!("Invalid number of data points ({length}) specified")));
        }
        let (input, kept) = (input.to_dtype(dtype)?, kept(length));
        // A padded signal is a contiguous copy.
        let is_filled = input.sizes()[dim] < kept;
        let strides = if is_filled { contiguous_strides(input.sizes()) } else { input.strides().into() };
        let mut order: SmallVec<[usize; 6]> = (0..input.dim()).filter(|&other| other != dim).collect();
        order.sort_by_key(|&other| std::cmp::Reverse(strides[other]));
        order.push(dim);
        let order: SmallVec<[i64; 6]> = order.into_iter().map(|dim| i64::try_from(dim).unwrap_or(0)).collect();
        let tensor = fitted(&input.permute(&order)?, kept)?.packed()?;
        Ok(Self { tensor, length, order, norm })
    }
}

fn check_dim(input: &Tensor, dim: i64) -> Result<usize> {
    if input.dim() == 0 {
        return Err(invalid(format!("Dimension specified as {dim} but tensor has no dimensions")));
    }
    wrap_dim(dim, input.dim())
}

/// The dtype that a signal is transformed in, before it may become complex.
fn promoted(dtype: DType) -> Result<DType> {
    match dtype {
        DType::F32 | DType::F64 | DType::C64 | DType::C128 => Ok(dtype),
        DType::F16 | DType::BF16 => Err(invalid(format!("Unsupported dtype {}", dtype.scalar_type_name()))),
        dtype if dtype.is_integral() || dtype == DType::Bool => Ok(DType::F32),
        dtype => Err(invalid(format!("Unsupported dtype {}", dtype.scalar_type_name()))),
    }
}

fn complex_of(dtype: DType) -> DType {
    match dtype {
        DType::F32 => DType::C64,
        DType::F64 => DType::C128,
        other => other,
    }
}

fn real_of(dtype: DType) -> DType {
    match dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        other => other,
    }
}

/// The last dimension cut or filled with zeros.
fn fitted(tensor: &Tensor, length: i64) -> Result<Tensor> {
    let given = tensor.sizes()[tensor.dim() - 1];
    if given >= length {
        return tensor.narrow(-1, 0, length);
    }
    let mut sizes = tensor.sizes().to_vec();
    if let Some(last) = sizes.last_mut() {
        *last = length;
    }
    let filled = Tensor::zeros(&sizes, tensor.dtype(), tensor)?;
    filled.narrow(-1, 0, given)?.copy_(tensor)?;
    Ok(filled)
}

fn transform(signal: &Signal, kind: Kind) -> Result<Tensor> {
    let (length, dtype) = (signal.length, signal.tensor.dtype());
    let (last, dtype) = match kind {
        Kind::Complex { .. } => (length, dtype),
        Kind::Forward => (length / 2 + 1, complex_of(dtype)),
        Kind::Inverse => (length, real_of(dtype)),
    };
    let mut sizes = signal.tensor.sizes().to_vec();
    if let Some(size) = sizes.last_mut() {
        *size = last;
    }
    let out = Tensor::uninitialized(&sizes, dtype, &signal.tensor)?;
    if out.numel() > 0 {
        if out.is_cuda() {
            library::transform(&signal.tensor, &out, length, kind)?;
        } else {
            on_host(&signal.tensor, &out, length, kind)?;
        }
    }
    let scaled = match factor(signal.norm, kind.is_forward(), length) {
        None => out,
        Some(factor) => out.mul(factor)?,
    };
    let mut back: SmallVec<[i64; 6]> = SmallVec::from_elem(0, signal.order.len());
    for (place, &dim) in signal.order.iter().enumerate() {
        back[usize::try_from(dim).unwrap_or(0)] = i64::try_from(place).unwrap_or(0);
    }
    scaled.permute(&back)
}

/// What a result is multiplied by.
#[expect(clippy::cast_precision_loss, reason = "a length that is less than 2^53")]
fn factor(norm: Norm, forward: bool, length: i64) -> Option<f64> {
    match (norm, forward) {
        (Norm::Ortho, _) => Some(1.0 / (length as f64).sqrt()),
        (Norm::Forward, true) | (Norm::Backward, false) => Some(1.0 / length as f64),
        (Norm::Forward, false) | (Norm::Backward, true) => None,
    }
}

/// The transform on the host: every sum by itself, in `f64`.
fn on_host(input: &Tensor, out: &Tensor, length: i64, kind: Kind) -> Result<()> {
    let size = |tensor: &Tensor| usize::try_from(tensor.sizes()[tensor.dim() - 1]).unwrap_or(0);
    let (given, wanted, length) = (size(input), size(out), usize::try_from(length).unwrap_or(1));
    let sign = if kind.is_forward() { -1.0 } else { 1.0 };
    #[expect(clippy::cast_precision_loss, reason = "a length that is less than 2^53")]
    let angle = |turns: usize| sign * std::f64::consts::TAU * turns as f64 / length as f64;
    let turn = |turns: usize| {
        let (sine, cosine) = angle(turns).sin_cos();
        Complex64::new(cosine, sine)
    };
    let turns: Vec<Complex64> = host_memory::collected(length, (0..length).map(turn))?;
    let mut bytes = host_memory::with_capacity(out.nbytes())?;
    for line in read_complex(input)?.chunks_exact(given) {
        // Of the frequencies that are not given, each is the conjugate of one that is.
        let number = |at: usize| if at < given { line[at] } else { line[length - at].conj() };
        for frequency in 0..wanted {
            let sum: Complex64 = (0..length).map(|at| number(at) * turns[at * frequency % length]).sum();
            bytes.extend(scalar_bytes(Scalar::Complex(sum), out.dtype()));
        }
    }
    out.plain_storage()?.write(out.byte_offset(), &bytes)
}
