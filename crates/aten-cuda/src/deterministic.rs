//! Whether operations have to give the same bits at every run; torch's `use_deterministic_algorithms`.
//!
//! # What it changes
//! - Operations that write or add at places that an index tells (`scatter`, `scatter_add`, `index_add`, `index_copy`,
//!   `index_put`) sort the index on a device and take the elements in its order, as the host does always. Without it
//!   blocks write and add in the order in which they come. Where that makes no difference, as for sums of integers, nothing
//!   is sorted.
//! - Factorisations by cuSOLVER are queued on the device's default stream, which waits for the current one before and is
//!   waited for after: the library takes other ways on one stream than on another.
//! - Tensors that are made without values have some: see [`fill_uninitialized_memory`].
//!
//! # What is deterministic always
//! Everything else gives the same bits at every run of the same program on the same device: reductions, scans, sorts,
//! products, attention and random numbers go in an order that follows from sizes, strides and seeds alone. So no operation
//! here refuses to run, also where torch has no deterministic one (`cross_entropy` of images, for example). Products by
//! cuBLAS and cuBLASLt have workspaces of their own for every handle and stream, which is what they need for it; as in
//! PyTorch 2.11, `CUBLAS_WORKSPACE_CONFIG` need not be set. A tuner that is enabled chooses by measuring: two processes
//! take the same way when they read the same results.
//!
//! # Invariants
//! The settings are the process's. Operations read them when they are queued, by one relaxed load.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::base::error::{Error, Result, TensorError, invalid};
use c10_core::locks::Mutex;

const IS_ENABLED: u8 = 1;
const WARNS_ONLY: u8 = 2;
const FILLS: u8 = 4;

static SETTINGS: AtomicU8 = AtomicU8::new(FILLS);

/// How much is made of operations without a deterministic algorithm (`torch.set_deterministic_debug_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeterministicDebugMode {
    /// Nothing; deterministic algorithms are not asked for (0, `"default"`).
    Default = 0,
    /// They warn (1, `"warn"`).
    Warn = 1,
    /// They fail (2, `"error"`).
    Error = 2,
}

impl TryFrom<&str> for DeterministicDebugMode {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        match text {
            "default" => Ok(Self::Default),
            "warn" => Ok(Self::Warn),
            "error" => Ok(Self::Error),
            other => Err(invalid(format!(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {other}"
            ))),
        }
    }
}

impl TryFrom<i32> for DeterministicDebugMode {
    type Error = Error;

    fn try_from(number: i32) -> Result<Self> {
        match number {
            0 => Ok(Self::Default),
            1 => Ok(Self::Warn),
            2 => Ok(Self::Error),
            other => Err(invalid(format!("invalid value of debug_mode, expected 0, 1, or 2, but got {other}"))),
        }
    }
}

fn has(bit: u8) -> bool {
    SETTINGS.load(Ordering::Relaxed) & bit != 0
}

fn change(bits: u8, to: u8) {
    // The closure always gives a value.
    let _ = SETTINGS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & !bits | to));
}

/// All settings as one number, for those who compare them.
pub(crate) fn settings() -> u8 {
    SETTINGS.load(Ordering::Relaxed)
}

/// What such a number says, in words.
pub(crate) fn described(settings: u8) -> String {
    let mode = match (settings & IS_ENABLED != 0, settings & WARNS_ONLY != 0) {
        (false, _) => "off",
        (true, true) => "warning",
        (true, false) => "on",
    };
    let fills = if settings & FILLS != 0 { "" } else { ", without filling new memory" };
    format!("{mode}{fills}")
}

/// Has operations use deterministic algorithms from now on, or no more (`torch.use_deterministic_algorithms`).
///
/// With `warn_only`, an operation that has none warns, else it fails with [`TensorError::NotDeterministic`].
///
/// ```
/// use aten_cuda::deterministic;
///
/// deterministic::use_deterministic_algorithms(true, false);
/// assert!(deterministic::are_deterministic_algorithms_enabled());
/// deterministic::use_deterministic_algorithms(false, false);
/// ```
pub fn use_deterministic_algorithms(mode: bool, warn_only: bool) {
    let on = if mode { IS_ENABLED } else { 0 };
    change(IS_ENABLED | WARNS_ONLY, on | if warn_only { WARNS_ONLY } else { 0 });
}

/// Whether operations use deterministic algorithms (`torch.are_deterministic_algorithms_enabled`).
#[inline]
#[must_use]
pub fn are_deterministic_algorithms_enabled() -> bool {
    has(IS_ENABLED)
}

/// Whether operations without a deterministic algorithm warn rather than fail
/// (`torch.is_deterministic_algorithms_warn_only_enabled`).
#[must_use]
pub fn is_deterministic_algorithms_warn_only_enabled() -> bool {
    has(WARNS_ONLY)
}

/// Sets [`use_deterministic_algorithms`] by a number, a name or a value (`torch.set_deterministic_debug_mode`).
///
/// ```
/// use aten_cuda::deterministic::{self, DeterministicDebugMode};
///
/// deterministic::set_deterministic_debug_mode("warn")?;
/// assert_eq!(deterministic::get_deterministic_debug_mode(), DeterministicDebugMode::Warn);
/// deterministic::set_deterministic_debug_mode(0)?;
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// A number or a name that no mode has; nothing is changed then.
pub fn set_deterministic_debug_mode<M>(mode: M) -> Result<()>
where
    M: TryInto<DeterministicDebugMode, Error: Into<Error>>,
{
    match mode.try_into().map_err(Into::into)? {
        DeterministicDebugMode::Default => use_deterministic_algorithms(false, false),
        DeterministicDebugMode::Warn => use_deterministic_algorithms(true, true),
        DeterministicDebugMode::Error => use_deterministic_algorithms(true, false),
    }
    Ok(())
}

/// The mode that [`use_deterministic_algorithms`] amounts to (`torch.get_deterministic_debug_mode`).
#[must_use]
pub fn get_deterministic_debug_mode() -> DeterministicDebugMode {
    match (has(IS_ENABLED), has(WARNS_ONLY)) {
        (false, _) => DeterministicDebugMode::Default,
        (true, true) => DeterministicDebugMode::Warn,
        (true, false) => DeterministicDebugMode::Error,
    }
}

/// Whether tensors that are made without values (`empty`, `empty_like`, `empty_strided`) are filled while deterministic
/// algorithms are used, so that reading them gives the same at every run: with NaN, the largest integer, or true
/// (`torch.utils.deterministic.fill_uninitialized_memory`). True at first.
#[must_use]
pub fn fill_uninitialized_memory() -> bool {
    has(FILLS)
}

/// Sets [`fill_uninitialized_memory`].
pub fn set_fill_uninitialized_memory(fills: bool) {
    change(FILLS, if fills { FILLS } else { 0 });
}

/// Whether a tensor that is made without values is to be filled.
#[inline]
pub(crate) fn fills() -> bool {
    SETTINGS.load(Ordering::Relaxed) & (IS_ENABLED | FILLS) == IS_ENABLED | FILLS
}

/// Says that an operation has no deterministic algorithm, for operations that are written outside this crate
/// (`at::Context::alertNotDeterministic`). Those of this crate have one each.
///
/// Does nothing unless deterministic algorithms are asked for. With `warn_only` it warns, once for each operation in a
/// process.
///
/// ```
/// use aten_cuda::deterministic;
///
/// # fn sum_in_any_order() {}
/// # fn run() -> aten_cuda::Result<()> {
/// deterministic::alert_not_deterministic("my_sum")?;
/// sum_in_any_order();
/// # Ok(())
/// # }
/// # run().unwrap();
/// ```
///
/// # Errors
/// [`TensorError::NotDeterministic`] while deterministic algorithms are asked for without `warn_only`.
pub fn alert_not_deterministic(operation: &'static str) -> Result<()> {
    match get_deterministic_debug_mode() {
        DeterministicDebugMode::Default => Ok(()),
        DeterministicDebugMode::Warn => {
            static WARNED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
            if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(operation) {
                c10_core::warn(&format!(
                    "{operation} does not have a deterministic implementation, but you set \
                     'torch.use_deterministic_algorithms(True, warn_only=True)'. You can file an issue at \
                     https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for \
                     this operation."
                ));
            }
            Ok(())
        }
        DeterministicDebugMode::Error => Err(TensorError::NotDeterministic { operation }.into()),
    }
}
