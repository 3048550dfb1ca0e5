//! What autocast is set to in a thread.
//!
//! **Invariant:** while nothing is enabled, an operation reads one byte of the thread's and nothing else.

use std::cell::Cell;

use c10_core::DeviceType;

use crate::base::dtype::DType;

/// The bits of the kinds of devices in [`ENABLED`].
const CUDA: u8 = 1;
const CPU: u8 = 2;

/// Everything besides what is enabled.
#[derive(Clone, Copy)]
struct Settings {
    /// The dtypes for CUDA devices and for the host.
    cuda: DType,
    cpu: DType,
    keeps_casts: bool,
    nesting: i32,
}

thread_local! {
    /// For which kinds of devices it is enabled.
    static ENABLED: Cell<u8> = const { Cell::new(0) };
    static SETTINGS: Cell<Settings> = const {
        Cell::new(Settings { cuda: DType::F16, cpu: DType::BF16, keeps_casts: true, nesting: 0 })
    };
}

const fn bit(kind: DeviceType) -> u8 {
    match kind {
        DeviceType::Cuda => CUDA,
        _ => CPU,
    }
}

/// Whether any operation has to ask further.
#[inline]
pub(crate) fn is_active() -> bool {
    ENABLED.get() != 0
}

pub(super) fn is_enabled(kind: DeviceType) -> bool {
    ENABLED.get() & bit(kind) != 0
}

pub(super) fn set_enabled(kind: DeviceType, enabled: bool) {
    let others = ENABLED.get() & !bit(kind);
    ENABLED.set(if enabled { others | bit(kind) } else { others });
}

pub(super) fn dtype(kind: DeviceType) -> DType {
    let Settings { cuda, cpu, .. } = SETTINGS.get();
    if kind == DeviceType::Cuda { cuda } else { cpu }
}

pub(super) fn set_dtype(kind: DeviceType, dtype: DType) {
    let settings = SETTINGS.get();
    SETTINGS.set(match kind {
        DeviceType::Cuda => Settings { cuda: dtype, ..settings },
        _ => Settings { cpu: dtype, ..settings },
    });
}

pub(super) fn keeps_casts() -> bool {
    SETTINGS.get().keeps_casts
}

pub(super) fn set_keeps_casts(keeps_casts: bool) {
    SETTINGS.set(Settings { keeps_casts, ..SETTINGS.get() });
}

/// Moves the depth of nesting by a number, and returns it.
pub(super) fn nest(by: i32) -> i32 {
    let settings = SETTINGS.get();
    let nesting = settings.nesting.saturating_add(by);
    SETTINGS.set(Settings { nesting, ..settings });
    nesting
}

/// The inside of an operation: until this is dropped, nothing is cast that it calls.
#[derive(Debug)]
pub(crate) struct Inside(u8);

impl Inside {
    pub(crate) fn new() -> Self {
        Self(ENABLED.replace(0))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        ENABLED.set(self.0);
    }
}
