//! Regions: entered, and left when a guard is dropped.

use std::marker::PhantomData;

use c10_core::{DeviceType, Runtime};

use super::{ToDeviceType, cache, cast, check_dtype, state};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

/// The options of a region, with torch's defaults. `()` stands for the defaults, and a dtype for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autocast {
    /// The dtype of operations for which 16 bits are enough; [`super::get_autocast_dtype`] for `None`.
    pub dtype: Option<DType>,
    /// Whether operations are cast at all; a region without stands inside of one with.
    pub enabled: bool,
    /// Whether casts of parameters are kept; as outside of the region for `None`.
    pub cache_enabled: Option<bool>,
}

impl Default for Autocast {
    fn default() -> Self {
        Self { dtype: None, enabled: true, cache_enabled: None }
    }
}

impl From<()> for Autocast {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<DType> for Autocast {
    fn from(dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..Self::default() }
    }
}

/// Leaves a region of autocast when it is dropped: everything is set as it was outside, and behind the outermost region the
/// casts are dropped. It stays in its thread.
#[derive(Debug)]
#[must_use = "the region ends when the guard is dropped"]
pub struct AutocastGuard {
    kind: DeviceType,
    before: (bool, DType, bool),
    in_thread: PhantomData<*const ()>,
}

/// Enters a region in which operations on devices of a kind choose their dtypes (`torch.amp.autocast`, `torch.autocast`).
///
/// Regions nest: the inner one decides, and with `enabled: false` operations run in the dtypes of their operands. As in
/// torch a region for the host with another dtype than `bf16` or `f16` warns and is disabled, and so is one for CUDA devices
/// where there are none.
///
/// ```
/// use aten_cuda::autocast::{Autocast, autocast};
/// use aten_cuda::{DType, Tensor};
///
/// let ones = Tensor::ones(&[2, 2], DType::F32, "cpu")?;
/// let _region = autocast("cpu", DType::F16)?;
/// assert_eq!(ones.mm(&ones)?.dtype(), DType::F16);
/// {
///     let _exact = autocast("cpu", Autocast { enabled: false, ..Autocast::default() })?;
///     assert_eq!(ones.mm(&ones)?.dtype(), DType::F32);
/// }
/// assert_eq!(ones.mm(&ones)?.dtype(), DType::F16);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no autocast for such devices, or the dtype is no float of 16 bits or more.
pub fn autocast(device_type: impl ToDeviceType, options: impl Into<Autocast>) -> Result<AutocastGuard> {
    let (kind, options) = (device_type.to_device_type()?, options.into());
    let dtype = options.dtype.unwrap_or_else(|| state::dtype(kind));
    let enabled = options.enabled && can_be_enabled(kind, dtype)?;
    let before = (state::is_enabled(kind), state::dtype(kind), state::keeps_casts());
    state::set_enabled(kind, enabled);
    state::set_dtype(kind, dtype);
    state::nest(1);
    state::set_keeps_casts(options.cache_enabled.unwrap_or(before.2));
    Ok(AutocastGuard { kind, before, in_thread: PhantomData })
}

/// Calls `body` in a region ([`autocast()`]).
///
/// # Errors
/// As there; what `body` returns is returned.
pub fn with_autocast<T>(
    device_type: impl ToDeviceType,
    options: impl Into<Autocast>,
    body: impl FnOnce() -> T,
) -> Result<T> {
    let _region = autocast(device_type, options)?;
    Ok(body())
}

impl Drop for AutocastGuard {
    fn drop(&mut self) {
        if state::nest(-1) == 0 {
            cache::clear();
        }
        let (enabled, dtype, keeps_casts) = self.before;
        state::set_enabled(self.kind, enabled);
        state::set_dtype(self.kind, dtype);
        state::set_keeps_casts(keeps_casts);
    }
}

/// Whether a region that is asked for can be; if not, that is said.
fn can_be_enabled(kind: DeviceType, dtype: DType) -> Result<bool> {
    if kind == DeviceType::Cuda {
        check_dtype(dtype)?;
        let is_available = Runtime::with_current(Runtime::is_available);
        if !is_available {
            c10_core::warn("CUDA is not available or torch_xla is imported. Disabling autocast.");
        }
        return Ok(is_available);
    }
    let is_short = matches!(dtype, DType::BF16 | DType::F16);
    if !is_short {
        c10_core::warn(
            "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n\
             CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
        );
    }
    Ok(is_short)
}

/// How a forward function ran, for its backward function ([`custom_fwd`], [`custom_bwd`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FwdContext {
    kind: DeviceType,
    /// Whether the function's operations were cast.
    pub used_autocast: bool,
    /// The dtype of the region.
    pub dtype: DType,
}

/// Calls the forward function of a pair that a program has written (`torch.amp.custom_fwd`), and returns what
/// [`custom_bwd`] needs beside its result.
///
/// With `cast_inputs`, and in a region, the inputs on devices of the kind are cast to that dtype, and the function runs
/// without autocast; without, it runs as the region wants. Outside of a region it is called with its inputs as they are.
///
/// ```
/// use aten_cuda::autocast::{autocast, custom_bwd, custom_fwd};
/// use aten_cuda::{DType, Tensor};
///
/// let ones = Tensor::ones(&[2, 2], DType::F32, "cpu")?;
/// let (product, context) = {
///     let _region = autocast("cpu", ())?;
///     custom_fwd("cpu", DType::F32, &[&ones.to_dtype(DType::BF16)?], |inputs| inputs[0].mm(&inputs[0]))?
/// };
/// assert_eq!(product.dtype(), DType::F32);
/// let gradient = custom_bwd(&context, || product.mm(&ones.t()?))??;
/// assert_eq!(gradient.dtype(), DType::F32);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no autocast for such devices, an input cannot be cast, or what `forward` returned.
pub fn custom_fwd<T>(
    device_type: impl ToDeviceType,
    cast_inputs: impl Into<Option<DType>>,
    inputs: &[&Tensor],
    forward: impl FnOnce(&[Tensor]) -> Result<T>,
) -> Result<(T, FwdContext)> {
    let kind = device_type.to_device_type()?;
    let (dtype, enabled) = (state::dtype(kind), state::is_enabled(kind));
    let mut given: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    let Some(to) = cast_inputs.into() else {
        return Ok((forward(&given)?, FwdContext { kind, used_autocast: enabled, dtype }));
    };
    let context = FwdContext { kind, used_autocast: false, dtype };
    if !enabled {
        return Ok((forward(&given)?, context));
    }
    let _exact = autocast(kind, Autocast { enabled: false, ..Autocast::default() })?;
    for input in &mut given {
        *input = cast::forced(input, to, kind)?;
    }
    Ok((forward(&given)?, context))
}

/// Calls a backward function as its forward function ran (`torch.amp.custom_bwd`).
///
/// # Errors
/// As for [`autocast()`]; what `backward` returns is returned.
pub fn custom_bwd<T>(context: &FwdContext, backward: impl FnOnce() -> T) -> Result<T> {
    let options = Autocast { dtype: Some(context.dtype), enabled: context.used_autocast, cache_enabled: None };
    with_autocast(context.kind, options, backward)
}
