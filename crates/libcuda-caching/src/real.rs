//! The driver's own functions.

use std::sync::OnceLock;

use cuda_sys::Driver;

/// The driver, which is loaded already: this library depends on it. None where that is no driver, for example this library
/// under the driver's name.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(|| Driver::load().ok()).as_ref()
}
