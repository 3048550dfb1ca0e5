//! Calls that were queued before the runtime started and failed when it did.

use std::panic::Location;

use crate::base::error::Error;

/// A call that was queued before the runtime started failed when it did; torch's `DeferredCudaCallError`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "CUDA call failed lazily at initialization with error: {error}\n\nCUDA call was originally invoked at:\n\n{place}"
)]
pub struct DeferredCudaCallError {
    /// What it answered.
    pub error: Error,
    /// Where it was queued.
    pub place: &'static Location<'static>,
}
