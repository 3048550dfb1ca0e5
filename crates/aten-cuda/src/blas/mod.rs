//! Products of matrices, and how the fastest way to each is found.

pub(crate) mod tune;

use c10_core::Runtime;

/// What the results of the tuner depend on, beside the driver and the device: keys and values of their validators.
pub(crate) fn versions(_: &Runtime) -> Vec<(String, String)> {
    let kernels = crate::launch::library::products_fingerprint();
    vec![("KERNELS".to_owned(), format!("{kernels:032x}"))]
}
