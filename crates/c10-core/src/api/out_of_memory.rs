//! Running out of memory: completes the error and tells the observers.
//!
//! **Invariants:** everything here happens after the allocator has returned, with no lock held, so an observer may use
//! the runtime. Whatever observers do, the caller gets the error.

use crate::base::error::Error;
use crate::driver::Api;
use crate::runtime::Runtime;

/// Adds to the allocator's error what it could not know, and tells the observers. Other errors pass through.
#[cold]
pub(crate) fn complete(runtime: &Runtime, api: &Api, error: Error) -> Error {
    let Error::OutOfMemory(mut failed) = error else { return error };
    failed.processes = runtime.telemetry().processes_for_message(api, failed.figures.device);
    failed.expandable_segments = runtime.config().expands();
    runtime.observers().tell(&failed.figures);
    Error::OutOfMemory(failed)
}
