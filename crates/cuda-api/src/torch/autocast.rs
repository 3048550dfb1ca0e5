//! What autocast is set to in this thread; regions are in [`crate::amp`].

use aten_cuda::{DType, Result};

pub use aten_cuda::autocast::{
    autocast, autocast_decrement_nesting, autocast_increment_nesting, clear_autocast_cache, get_autocast_dtype,
    is_any_autocast_enabled, is_autocast_cache_enabled, is_autocast_enabled, set_autocast_cache_enabled,
    set_autocast_dtype, set_autocast_enabled, with_autocast,
};

/// [`get_autocast_dtype`] for CUDA devices.
///
/// # Errors
/// None.
#[deprecated(
    note = "torch.get_autocast_gpu_dtype() is deprecated. Please use torch.get_autocast_dtype('cuda') instead."
)]
pub fn get_autocast_gpu_dtype() -> Result<DType> {
    get_autocast_dtype("cuda")
}

/// [`set_autocast_dtype`] for CUDA devices.
///
/// # Errors
/// As there.
#[deprecated(
    note = "torch.set_autocast_gpu_dtype(dtype) is deprecated. Please use torch.set_autocast_dtype('cuda', dtype) instead."
)]
pub fn set_autocast_gpu_dtype(dtype: DType) -> Result<()> {
    set_autocast_dtype("cuda", dtype)
}

/// [`is_autocast_enabled`] for the host.
///
/// # Errors
/// None.
#[deprecated(
    note = "torch.is_autocast_cpu_enabled() is deprecated. Please use torch.is_autocast_enabled('cpu') instead."
)]
pub fn is_autocast_cpu_enabled() -> Result<bool> {
    is_autocast_enabled("cpu")
}

/// [`set_autocast_enabled`] for the host.
///
/// # Errors
/// None.
#[deprecated(
    note = "torch.set_autocast_cpu_enabled(enabled) is deprecated. Please use torch.set_autocast_enabled('cpu', enabled) instead."
)]
pub fn set_autocast_cpu_enabled(enabled: bool) -> Result<()> {
    set_autocast_enabled("cpu", enabled)
}

/// [`get_autocast_dtype`] for the host.
///
/// # Errors
/// None.
#[deprecated(
    note = "torch.get_autocast_cpu_dtype() is deprecated. Please use torch.get_autocast_dtype('cpu') instead."
)]
pub fn get_autocast_cpu_dtype() -> Result<DType> {
    get_autocast_dtype("cpu")
}

/// [`set_autocast_dtype`] for the host.
///
/// # Errors
/// As there.
#[deprecated(
    note = "torch.set_autocast_cpu_dtype(dtype) is deprecated. Please use torch.set_autocast_dtype('cpu', dtype) instead."
)]
pub fn set_autocast_cpu_dtype(dtype: DType) -> Result<()> {
    set_autocast_dtype("cpu", dtype)
}
