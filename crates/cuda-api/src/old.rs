//! Names that torch keeps for old programs.

use c10_core::{DeviceArg, Result};

use crate::memory::{max_memory_reserved, memory_reserved, reset_peak_memory_stats};

/// Bytes held from the driver now, by its former name.
///
/// # Errors
/// As for [`memory_reserved`].
#[deprecated(note = "`memory_cached` has been renamed to `memory_reserved`")]
pub fn memory_cached(device: impl DeviceArg) -> Result<u64> {
    memory_reserved(device)
}

/// Most bytes held from the driver at a time, by its former name.
///
/// # Errors
/// As for [`max_memory_reserved`].
#[deprecated(note = "`max_memory_cached` has been renamed to `max_memory_reserved`")]
pub fn max_memory_cached(device: impl DeviceArg) -> Result<u64> {
    max_memory_reserved(device)
}

/// Sets every peak to its present value, not only that of the memory handed out.
///
/// # Errors
/// As for [`reset_peak_memory_stats`].
#[deprecated(note = "`reset_max_memory_allocated` calls `reset_peak_memory_stats`, which resets all peaks")]
pub fn reset_max_memory_allocated(device: impl DeviceArg) -> Result<()> {
    reset_peak_memory_stats(device)
}

/// Sets every peak to its present value, not only that of the memory held.
///
/// # Errors
/// As for [`reset_peak_memory_stats`].
#[deprecated(note = "`reset_max_memory_cached` calls `reset_peak_memory_stats`, which resets all peaks")]
pub fn reset_max_memory_cached(device: impl DeviceArg) -> Result<()> {
    reset_peak_memory_stats(device)
}
