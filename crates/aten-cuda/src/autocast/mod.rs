//! Regions in which operations choose their dtypes (`torch.amp.autocast`).
//!
//! In such a region products of matrices run in 16 bits, and what needs the range or the precision of `f32` runs in that,
//! whatever dtypes they are given. Which operation does what stands in torch's lists ([`operations`], [`policy`]); others run
//! in the dtypes of their operands. As in torch only operations that make their results are cast, not those in place or
//! with `out`; floats of 64 bits and tensors on devices of another kind are left as they are; and what an operation calls
//! itself is not cast again.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use aten_cuda::{DType, Tensor, autocast};
//!
//! let weight = Tensor::ones(&[2, 2], DType::F32, "cuda")?.as_parameter();
//! let sum = autocast::with_autocast("cuda", DType::BF16, || {
//!     let product = weight.matmul(&weight)?;
//!     assert_eq!(product.dtype(), DType::BF16);
//!     product.sum((), false, None)
//! })??;
//! assert_eq!((sum.dtype(), sum.to_vec::<f32>()?), (DType::F32, vec![8.0]));
//! # Ok::<(), aten_cuda::Error>(())
//! ```
//!
//! # Casts that are kept
//! torch keeps the casts of leaves that require a gradient until the outermost region ends. Nothing here requires
//! gradients: the casts of tensors that a program calls parameters are kept ([`Tensor::as_parameter`]), of `f32` to the
//! dtype of the region. A write by an operation, in this thread or another, drops the cast, and so does the replay of any
//! graph; on another stream, and while the stream captures, a parameter is cast anew. What writes to the memory by its
//! address (a kernel of the program's own, another library, another process) is not seen: [`clear_autocast_cache`] follows
//! it, or the parameter is not marked.
//!
//! Everything here is of the calling thread. Reading order: `lists` (which operation does what), `state` (what is set),
//! `cast` (what operations ask), `cache` (casts that are kept), `region` (regions).

mod cache;
mod cast;
mod lists;
mod region;
mod state;

use c10_core::{Device, DeviceType};

pub(crate) use cast::{cast, cast_all, cast_operands, cast_optional, with_dtype};
pub(crate) use lists::Policies;
pub use lists::{Policy, operations, policy};
pub use region::{Autocast, AutocastGuard, FwdContext, autocast, custom_bwd, custom_fwd, with_autocast};
pub(crate) use state::{Inside, is_active};

use crate::base::amp_error::AmpError;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

/// What may be given where torch takes a `device_type`: a text such as `"cuda"`, a kind, or a device for its kind.
pub trait ToDeviceType {
    /// The kind of devices.
    ///
    /// # Errors
    /// A text that names none for which there is autocast.
    fn to_device_type(self) -> Result<DeviceType>;
}

impl ToDeviceType for &str {
    fn to_device_type(self) -> Result<DeviceType> {
        match self {
            "cuda" => Ok(DeviceType::Cuda),
            "cpu" => Ok(DeviceType::Cpu),
            name => Err(AmpError::DeviceType { name: name.to_owned() }.into()),
        }
    }
}

impl ToDeviceType for DeviceType {
    fn to_device_type(self) -> Result<DeviceType> {
        Ok(self)
    }
}

impl ToDeviceType for Device {
    fn to_device_type(self) -> Result<DeviceType> {
        Ok(self.kind)
    }
}

/// What autocast is set to in a thread, to be compared: what runs the same operations under equal values casts the same.
///
/// ```
/// use aten_cuda::DType;
/// use aten_cuda::autocast::{AutocastState, autocast};
///
/// let outside = AutocastState::current();
/// assert_eq!((outside.cuda, outside.cpu), (None, None));
/// {
///     let _region = autocast("cpu", DType::F16)?;
///     assert_eq!(AutocastState::current(), AutocastState { cpu: Some(DType::F16), ..outside });
/// }
/// assert_eq!(AutocastState::current(), outside);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AutocastState {
    /// The dtype for CUDA devices; `None` where operations there are not cast.
    pub cuda: Option<DType>,
    /// The dtype for the host; `None` where operations there are not cast.
    pub cpu: Option<DType>,
    /// Whether casts of parameters are kept, which changes no result.
    pub cache_enabled: bool,
}

impl AutocastState {
    /// That of the calling thread now.
    #[must_use]
    pub fn current() -> Self {
        let dtype = |kind| state::is_enabled(kind).then(|| state::dtype(kind));
        Self { cuda: dtype(DeviceType::Cuda), cpu: dtype(DeviceType::Cpu), cache_enabled: state::keeps_casts() }
    }
}

/// Whether there is autocast for devices of a kind (`torch.amp.is_autocast_available`).
///
/// ```
/// use aten_cuda::autocast::is_autocast_available;
///
/// assert!(is_autocast_available("cuda") && is_autocast_available("cpu") && !is_autocast_available("mps"));
/// ```
#[must_use]
pub fn is_autocast_available(device_type: &str) -> bool {
    device_type.to_device_type().is_ok()
}

/// Whether operations on devices of a kind are cast in this thread now (`torch.is_autocast_enabled`).
///
/// ```
/// use aten_cuda::autocast;
///
/// let region = autocast::autocast("cpu", ())?;
/// assert!(autocast::is_autocast_enabled("cpu")? && !autocast::is_autocast_enabled("cuda")?);
/// drop(region);
/// assert!(!autocast::is_autocast_enabled("cpu")?);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no autocast for such devices.
pub fn is_autocast_enabled(device_type: impl ToDeviceType) -> Result<bool> {
    Ok(state::is_enabled(device_type.to_device_type()?))
}

/// Whether operations on any device are cast in this thread now (`torch.is_any_autocast_enabled`).
#[must_use]
pub fn is_any_autocast_enabled() -> bool {
    is_active()
}

/// Sets [`is_autocast_enabled`] for this thread, without a region (`torch.set_autocast_enabled`).
///
/// # Errors
/// There is no autocast for such devices.
pub fn set_autocast_enabled(device_type: impl ToDeviceType, enabled: bool) -> Result<()> {
    state::set_enabled(device_type.to_device_type()?, enabled);
    Ok(())
}

/// The dtype that operations on devices of a kind are cast to where 16 bits are enough (`torch.get_autocast_dtype`): at
/// first `f16` for CUDA devices and `bf16` for the host.
///
/// ```
/// use aten_cuda::{DType, autocast};
///
/// assert_eq!(autocast::get_autocast_dtype("cuda")?, DType::F16);
/// assert_eq!(autocast::get_autocast_dtype("cpu")?, DType::BF16);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There is no autocast for such devices.
pub fn get_autocast_dtype(device_type: impl ToDeviceType) -> Result<DType> {
    Ok(state::dtype(device_type.to_device_type()?))
}

/// Sets [`get_autocast_dtype`] for this thread, without a region (`torch.set_autocast_dtype`).
///
/// # Errors
/// There is no autocast for such devices, or the dtype is no float of 16 bits or more.
pub fn set_autocast_dtype(device_type: impl ToDeviceType, dtype: DType) -> Result<()> {
    check_dtype(dtype)?;
    state::set_dtype(device_type.to_device_type()?, dtype);
    Ok(())
}

/// Whether casts of parameters are kept in this thread (`torch.is_autocast_cache_enabled`); true at first.
#[must_use]
pub fn is_autocast_cache_enabled() -> bool {
    state::keeps_casts()
}

/// Sets [`is_autocast_cache_enabled`] for this thread (`torch.set_autocast_cache_enabled`).
pub fn set_autocast_cache_enabled(enabled: bool) {
    state::set_keeps_casts(enabled);
}

/// Drops the casts that this thread keeps (`torch.clear_autocast_cache`).
pub fn clear_autocast_cache() {
    cache::clear();
}

/// How many casts of parameters this thread keeps.
///
/// ```
/// use aten_cuda::{DType, Tensor, autocast};
///
/// let weight = Tensor::ones(&[2, 2], DType::F32, "cpu")?.as_parameter();
/// autocast::with_autocast("cpu", (), || {
///     weight.mm(&weight)?;
///     assert_eq!(autocast::cached_casts(), 1);
///     weight.add_(1)?;
///     assert_eq!(weight.mm(&weight)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [8.0; 4]);
///     Ok::<(), aten_cuda::Error>(())
/// })??;
/// assert_eq!(autocast::cached_casts(), 0);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[must_use]
pub fn cached_casts() -> usize {
    cache::len()
}

/// Goes one region deeper without entering one, and returns how deep that is (`torch.autocast_increment_nesting`).
pub fn autocast_increment_nesting() -> i32 {
    state::nest(1)
}

/// Goes one region back, and returns how deep that is; at 0 casts are to be dropped (`torch.autocast_decrement_nesting`).
pub fn autocast_decrement_nesting() -> i32 {
    state::nest(-1)
}

fn check_dtype(dtype: DType) -> Result<()> {
    if dtype.is_floating_point() && !dtype.is_float8() { Ok(()) } else { Err(AmpError::Dtype { dtype }.into()) }
}

impl Tensor {
    /// This tensor as a parameter of a model: regions of autocast keep its casts (see [`crate::autocast`]). It is the same
    /// memory; clones are parameters too, views are not.
    ///
    /// ```
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let weight = Tensor::ones(&[2, 2], DType::F32, "cpu")?.as_parameter();
    /// assert!(weight.is_parameter() && weight.clone().is_parameter() && !weight.t()?.is_parameter());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    #[doc(alias("Parameter", "requires_grad_"))]
    pub fn as_parameter(&self) -> Self {
        self.marked_parameter()
    }
}
