//! Calls that were queued before the runtime started and failed when it did.

use std::panic::Location;

use crate::base::error::Error;

/// A call that was queued before the runtime started failed when it did; torch's `DeferredCudaCallError`.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, Runtime, StartError};
///
/// let runtime = Runtime::current();
/// runtime.lazy_call(|runtime| runtime.set_device(9))?;
/// let Err(Error::Start(StartError::DeferredCall(failed))) = runtime.init() else { panic!("there is no device 9") };
/// assert_eq!(failed.error.error_code(), Some(101));
/// println!("queued at {}", failed.place);
/// # Ok::<(), c10_core::Error>(())
/// ```
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
