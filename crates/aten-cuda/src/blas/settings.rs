//! How precisely products are computed, and by which library first; torch's `torch.backends.cuda.matmul` and the like.
//!
//! The settings are the process's. Products read them when they are queued.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::base::error::{Error, Result, invalid};

/// How `f32` is multiplied (`fp32_precision`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fp32Precision {
    /// As the setting above says; where none does, as IEEE 754 says.
    None,
    /// As IEEE 754 says.
    Ieee,
    /// Factors rounded to 10 bits of mantissa, sums in `f32`.
    Tf32,
    /// Factors rounded to 7 bits of mantissa. Not for CUDA.
    Bf16,
}

/// How precisely products of `f32` are to be computed (`torch.set_float32_matmul_precision`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float32MatmulPrecision {
    /// As IEEE 754 says.
    Highest,
    /// With factors in TF32.
    High,
    /// As [`Self::High`] on CUDA devices.
    Medium,
}

/// What products depend on besides their operands, and what programs can ask for of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProductSettings {
    uses_tf32: bool,
    precision: Fp32Precision,
    legacy: Float32MatmulPrecision,
    fp16_reduction: ReducedPrecision,
    bf16_reduction: ReducedPrecision,
    fp16_accumulation: bool,
    library: BlasBackend,
}

impl ProductSettings {
    /// The settings as a number of twelve bits, a different one for each.
    pub(crate) fn bits(self) -> u16 {
        let Self { uses_tf32, precision, legacy, fp16_reduction, bf16_reduction, fp16_accumulation, library } = self;
        let reduction = |of: ReducedPrecision| u16::from(of.is_reduced) | u16::from(of.may_split) << 1;
        u16::from(uses_tf32)
            | u16::from(fp16_accumulation) << 1
            | reduction(fp16_reduction) << 2
            | reduction(bf16_reduction) << 4
            | (library as u16) << 6
            | (precision as u16) << 8
            | (legacy as u16) << 10
    }

    /// Each setting and what it says, in words.
    pub(crate) fn named(self) -> [(&'static str, String); 7] {
        let reduction = |of: ReducedPrecision| match (of.is_reduced, of.may_split) {
            (true, _) => "in 16 bits".to_owned(),
            (false, true) => "in 32 bits".to_owned(),
            (false, false) => "in 32 bits and in one part".to_owned(),
        };
        [
            ("the precision of f32 products", if self.uses_tf32 { "TF32" } else { "IEEE 754" }.to_owned()),
            ("the sum of parts of f16 products", reduction(self.fp16_reduction)),
            ("the sum of parts of bf16 products", reduction(self.bf16_reduction)),
            ("the sum of f16 products", if self.fp16_accumulation { "in 16 bits" } else { "in 32 bits" }.to_owned()),
            ("the library of products", format!("{:?}", self.library)),
            ("what was set for f32 products", format!("{:?}", self.precision)),
            ("the precision that was asked of f32 products", format!("{:?}", self.legacy)),
        ]
    }
}

/// What products depend on now.
pub(crate) fn product_settings() -> ProductSettings {
    let all = settings();
    let precision = all.precision();
    ProductSettings {
        uses_tf32: TF32_OF_THREAD.get().unwrap_or(precision == Fp32Precision::Tf32),
        precision,
        legacy: all.legacy(),
        fp16_reduction: reduction(&all.fp16_reduction),
        bf16_reduction: reduction(&all.bf16_reduction),
        fp16_accumulation: all.fp16_accumulation.load(Ordering::Relaxed) != 0,
        library: all.library(),
    }
}

/// Which library computes products first (`torch.backends.cuda.preferred_blas_library`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlasBackend {
    /// Whatever is quickest: cuBLAS, and kernels of this crate for small products of matrices.
    Default,
    /// cuBLAS.
    Cublas,
    /// cuBLASLt.
    Cublaslt,
}

/// What a product of 16-bit floats may do where its sum is made of parts: whether the parts may be summed in 16 bits, and
/// whether there may be parts at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReducedPrecision {
    /// Whether parts of a sum may be added in the precision of the factors.
    pub is_reduced: bool,
    /// Whether a sum may be split into parts (split-K).
    pub may_split: bool,
}

impl From<bool> for ReducedPrecision {
    fn from(is_reduced: bool) -> Self {
        Self { is_reduced, may_split: true }
    }
}

impl From<(bool, bool)> for ReducedPrecision {
    fn from((is_reduced, may_split): (bool, bool)) -> Self {
        Self { is_reduced, may_split }
    }
}

macro_rules! names {
    ($type:ident, $wrong:expr, $($name:literal => $value:ident,)*) => {
        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($name => Ok(Self::$value),)*
                    other => Err(invalid(($wrong)(other))),
                }
            }
        }

        impl TryFrom<&str> for $type {
            type Error = Error;

            fn try_from(text: &str) -> Result<Self> {
                text.parse()
            }
        }
    };
}

names! { Fp32Precision, |text| format!("Unknown precision: {text}"),
    "none" => None, "ieee" => Ieee, "tf32" => Tf32, "bf16" => Bf16,
}
names! { Float32MatmulPrecision,
    |text| format!("{text} is not one of 'highest', 'high', or 'medium'; the current setFloat32MatmulPrecision call has \
                    no effect."),
    "highest" => Highest, "high" => High, "medium" => Medium,
}
names! { BlasBackend,
    |text| if text == "ck" { "Cannot set preferred blas backend to CK since following platforms are supported: ROCm".to_owned() }
           else { "Unknown input value. Choose from: default, cublas, hipblas, cublaslt, hipblaslt, ck.".to_owned() },
    "default" => Default, "cublas" => Cublas, "hipblas" => Cublas, "cublaslt" => Cublaslt, "hipblaslt" => Cublaslt,
}

impl fmt::Display for Fp32Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Ieee => "ieee",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        })
    }
}

impl fmt::Display for Float32MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Highest => "highest",
            Self::High => "high",
            Self::Medium => "medium",
        })
    }
}

/// The settings, each in an atomic number.
struct Settings {
    /// `torch.backends.fp32_precision`.
    fp32: AtomicU8,
    /// `torch.backends.cuda.matmul.fp32_precision`.
    fp32_of_products: AtomicU8,
    legacy: AtomicU8,
    fp16_reduction: AtomicU8,
    bf16_reduction: AtomicU8,
    fp16_accumulation: AtomicU8,
    backend: AtomicU8,
}

fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let is_set = |name| std::env::var(name).as_deref() == Ok("1");
        let is_tf32 = is_set("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE");
        let precision = if is_tf32 { Fp32Precision::Tf32 } else { Fp32Precision::None };
        let legacy = if is_tf32 { Float32MatmulPrecision::High } else { Float32MatmulPrecision::Highest };
        let prefers_lt = is_set("TORCH_BLAS_PREFER_CUBLASLT") || is_set("TORCH_BLAS_PREFER_HIPBLASLT");
        Settings {
            fp32: AtomicU8::new(Fp32Precision::None as u8),
            fp32_of_products: AtomicU8::new(precision as u8),
            legacy: AtomicU8::new(legacy as u8),
            fp16_reduction: AtomicU8::new(BOTH),
            bf16_reduction: AtomicU8::new(BOTH),
            fp16_accumulation: AtomicU8::new(0),
            backend: AtomicU8::new(if prefers_lt { BlasBackend::Cublaslt } else { BlasBackend::Default } as u8),
        }
    })
}

const BOTH: u8 = 0b11;

fn precision(code: u8) -> Fp32Precision {
    [Fp32Precision::None, Fp32Precision::Ieee, Fp32Precision::Tf32, Fp32Precision::Bf16][usize::from(code & 3)]
}

impl Settings {
    fn legacy(&self) -> Float32MatmulPrecision {
        match self.legacy.load(Ordering::Relaxed) {
            0 => Float32MatmulPrecision::Highest,
            1 => Float32MatmulPrecision::High,
            _ => Float32MatmulPrecision::Medium,
        }
    }

    /// How `f32` is multiplied: what was set for products, or else in general.
    fn precision(&self) -> Fp32Precision {
        let [own, general] = [&self.fp32_of_products, &self.fp32].map(|code| precision(code.load(Ordering::Relaxed)));
        match (own, general) {
            (Fp32Precision::None, Fp32Precision::Bf16) => Fp32Precision::None,
            (Fp32Precision::None, general) => general,
            (own, _) => own,
        }
    }

    fn library(&self) -> BlasBackend {
        let asked = self.backend.load(Ordering::Relaxed);
        if asked == BlasBackend::Cublaslt as u8 { BlasBackend::Cublaslt } else { BlasBackend::Cublas }
    }
}

fn legacy() -> Float32MatmulPrecision {
    settings().legacy()
}

const SEE: &str =
    "See also: https://pytorch.org/docs/main/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices";

/// How `f32` is multiplied where nothing more special says so (`torch.backends.fp32_precision`).
#[must_use]
pub fn fp32_precision() -> Fp32Precision {
    precision(settings().fp32.load(Ordering::Relaxed))
}

/// Sets [`fp32_precision`].
///
/// # Errors
/// A text that names no precision.
pub fn set_fp32_precision<P: TryInto<Fp32Precision, Error: Into<Error>>>(value: P) -> Result<()> {
    let value = value.try_into().map_err(Into::into)?;
    settings().fp32.store(value as u8, Ordering::Relaxed);
    Ok(())
}

/// How products of `f32` are computed on CUDA devices (`torch.backends.cuda.matmul.fp32_precision`): what was set, or
/// else what [`fp32_precision`] says.
#[must_use]
pub fn matmul_fp32_precision() -> Fp32Precision {
    settings().precision()
}

/// Sets [`matmul_fp32_precision`].
///
/// # Errors
/// A text that names no precision, or one that CUDA does not have.
pub fn set_matmul_fp32_precision<P: TryInto<Fp32Precision, Error: Into<Error>>>(value: P) -> Result<()> {
    let value = value.try_into().map_err(Into::into)?;
    if value == Fp32Precision::Bf16 {
        return Err(invalid("backend 'cuda' does not support precision 'bf16'"));
    }
    settings().fp32_of_products.store(value as u8, Ordering::Relaxed);
    Ok(())
}

/// Whether products of `f32` may use TF32, as a product asks.
pub(crate) fn uses_tf32() -> bool {
    TF32_OF_THREAD.get().unwrap_or_else(|| matmul_fp32_precision() == Fp32Precision::Tf32)
}

thread_local! {
    /// What holds for the products of a thread, whatever the settings say.
    static TF32_OF_THREAD: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Has the products of the calling thread use TF32 or not while `run` runs: offline tuning goes by what a file says.
pub(super) fn with_tf32<R>(allows: bool, run: impl FnOnce() -> R) -> R {
    struct Outer(Option<bool>);
    impl Drop for Outer {
        fn drop(&mut self) {
            TF32_OF_THREAD.set(self.0);
        }
    }
    let _outer = Outer(TF32_OF_THREAD.replace(Some(allows)));
    run()
}

/// Whether products of `f32` may round their factors to TF32 (`torch.backends.cuda.matmul.allow_tf32`).
///
/// # Errors
/// The older and the newer settings contradict each other.
pub fn allow_tf32() -> Result<bool> {
    let is_allowed = uses_tf32();
    if is_allowed != (legacy() != Float32MatmulPrecision::Highest) {
        return Err(invalid(format!(
            "PyTorch is checking whether allow_tf32_new is enabled for cuBlas matmul,Current status indicate that you have \
             used mix of the legacy and new APIs to set the TF32 status for cublas matmul. We suggest only using the new \
             API to set the TF32 flag. {SEE}"
        )));
    }
    Ok(is_allowed)
}

/// Sets [`allow_tf32`], and with it [`float32_matmul_precision`] to `high` or `highest`.
pub fn set_allow_tf32(allow: bool) {
    let precision = if allow { Float32MatmulPrecision::High } else { Float32MatmulPrecision::Highest };
    store_legacy(precision);
}

fn store_legacy(value: Float32MatmulPrecision) {
    let of_products = if value == Float32MatmulPrecision::Highest { Fp32Precision::Ieee } else { Fp32Precision::Tf32 };
    settings().legacy.store(value as u8, Ordering::Relaxed);
    settings().fp32_of_products.store(of_products as u8, Ordering::Relaxed);
}

/// How precisely products of `f32` are to be computed (`torch.get_float32_matmul_precision`).
///
/// # Errors
/// The older and the newer settings contradict each other.
pub fn float32_matmul_precision() -> Result<Float32MatmulPrecision> {
    let found = legacy();
    if uses_tf32() && found == Float32MatmulPrecision::Highest {
        return Err(invalid(format!(
            "PyTorch is checking the matmul precision without a specific backend name,Current status indicate that you \
             have used mix of the legacy and new APIs to set the matmul precision. We suggest only using the new API for \
             matmul precision. {SEE}"
        )));
    }
    Ok(found)
}

/// Sets [`float32_matmul_precision`] (`torch.set_float32_matmul_precision`).
///
/// # Errors
/// A text that names no precision; nothing is changed then. torch warns instead.
pub fn set_float32_matmul_precision<P: TryInto<Float32MatmulPrecision, Error: Into<Error>>>(value: P) -> Result<()> {
    store_legacy(value.try_into().map_err(Into::into)?);
    Ok(())
}

fn reduction(of: &AtomicU8) -> ReducedPrecision {
    let code = of.load(Ordering::Relaxed);
    ReducedPrecision { is_reduced: code & 1 != 0, may_split: code & 2 != 0 }
}

fn set_reduction(of: &AtomicU8, value: ReducedPrecision) -> Result<()> {
    if value.is_reduced && !value.may_split {
        return Err(invalid("allow_splitk=False is not supported when reduced precision reductions are enabled"));
    }
    of.store(u8::from(value.is_reduced) | u8::from(value.may_split) << 1, Ordering::Relaxed);
    Ok(())
}

/// What products of `f16` may do (`torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction`, and `…_split_k`).
#[must_use]
pub fn fp16_reduction() -> ReducedPrecision {
    reduction(&settings().fp16_reduction)
}

/// Sets [`fp16_reduction`]: whether parts of sums may be reduced in 16 bits, or that and whether there may be parts.
///
/// # Errors
/// Reduced precision without parts.
pub fn set_fp16_reduction(value: impl Into<ReducedPrecision>) -> Result<()> {
    set_reduction(&settings().fp16_reduction, value.into())
}

/// What products of `bf16` may do (`torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction`, and
/// `…_split_k`).
#[must_use]
pub fn bf16_reduction() -> ReducedPrecision {
    reduction(&settings().bf16_reduction)
}

/// Sets [`bf16_reduction`]: whether parts of sums may be reduced in 16 bits, or that and whether there may be parts.
///
/// # Errors
/// Reduced precision without parts.
pub fn set_bf16_reduction(value: impl Into<ReducedPrecision>) -> Result<()> {
    set_reduction(&settings().bf16_reduction, value.into())
}

/// Whether products of `f16` may be summed in `f16` (`torch.backends.cuda.matmul.allow_fp16_accumulation`).
#[must_use]
pub fn allow_fp16_accumulation() -> bool {
    settings().fp16_accumulation.load(Ordering::Relaxed) != 0
}

/// Sets [`allow_fp16_accumulation`].
pub fn set_allow_fp16_accumulation(allow: bool) {
    settings().fp16_accumulation.store(u8::from(allow), Ordering::Relaxed);
}

/// Which library computes products first (`torch.backends.cuda.preferred_blas_library()`). Where none was asked for, that is
/// cuBLAS, as torch has it.
#[must_use]
pub fn preferred_blas_library() -> BlasBackend {
    settings().library()
}

/// Whether this is what was asked for last, or [`BlasBackend::Default`] and nothing was.
#[inline]
pub(super) fn asks_for(backend: BlasBackend) -> bool {
    settings().backend.load(Ordering::Relaxed) == backend as u8
}

/// Sets [`preferred_blas_library`]. torch takes `ck` too, which is for AMD devices; here that is an error.
///
/// # Errors
/// A text that names no library.
pub fn set_preferred_blas_library<B: TryInto<BlasBackend, Error: Into<Error>>>(value: B) -> Result<()> {
    let value = value.try_into().map_err(Into::into)?;
    settings().backend.store(value as u8, Ordering::Relaxed);
    Ok(())
}
