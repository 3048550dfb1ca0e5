//! What is asked of all operations: deterministic algorithms (`torch.use_deterministic_algorithms` and its like).
//!
//! Which operations take another way then, and which give the same bits at every run anyway, stands in
//! [`aten_cuda::deterministic`].

use aten_cuda::{Error, Result, deterministic};

pub use aten_cuda::deterministic::{
    DeterministicDebugMode, are_deterministic_algorithms_enabled, get_deterministic_debug_mode,
    is_deterministic_algorithms_warn_only_enabled,
};

/// Has operations use deterministic algorithms from now on, or no more; with `warn_only`, which is false by default, those
/// that have none warn rather than fail (`torch.use_deterministic_algorithms`). Every operation here has one.
///
/// ```
/// use cuda_api::torch;
///
/// torch::use_deterministic_algorithms(true, None);
/// assert!(torch::are_deterministic_algorithms_enabled());
/// torch::use_deterministic_algorithms(false, None);
/// ```
pub fn use_deterministic_algorithms(mode: bool, warn_only: impl Into<Option<bool>>) {
    deterministic::use_deterministic_algorithms(mode, warn_only.into().unwrap_or(false));
}

/// Sets [`use_deterministic_algorithms`] by a number, a name or a value (`torch.set_deterministic_debug_mode`): 0 or
/// `"default"`, 1 or `"warn"`, 2 or `"error"`.
///
/// ```
/// use cuda_api::torch::{self, DeterministicDebugMode};
///
/// torch::set_deterministic_debug_mode("warn")?;
/// assert_eq!(torch::get_deterministic_debug_mode(), DeterministicDebugMode::Warn);
/// torch::set_deterministic_debug_mode(0)?;
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// A number or a name that no mode has.
pub fn set_deterministic_debug_mode<M>(mode: M) -> Result<()>
where
    M: TryInto<DeterministicDebugMode, Error: Into<Error>>,
{
    deterministic::set_deterministic_debug_mode(mode)
}
