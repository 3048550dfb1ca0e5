//! Memory resources: one small trait for whatever gives device memory, and adaptors that are put together over it.
//!
//! # Streams
//! A resource is called on the host and orders memory by streams:
//! - memory of `allocate(bytes, stream)` may be used by work that is queued on `stream` from then on. Work of another stream
//!   must wait for an event of `stream` first;
//! - `deallocate(memory, stream)` may be called while work that uses the memory is still queued on `stream`. Whoever used the
//!   memory on other streams makes `stream` wait for them first;
//! - so a resource may hand the same memory out again at once for the same stream, and for another one only when that has
//!   been made to wait.
//!
//! **Invariants:** what is given back was taken: an [`Allocation`] is moved in, and comes back with the error where the
//! resource refuses it. A call that fails changes nothing. Adaptors call what is beneath them at most once for each call,
//! except the arena.

mod allocation;
mod arena;
mod failing;
mod limit;
mod logging;
mod statistics;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use allocation::{Allocation, NotDeallocated, StreamView};
pub use arena::ArenaResource;
pub use failing::{FailingResource, ResourceCall};
pub use limit::LimitResource;
pub use logging::{LoggingResource, ResourceAction, ResourceEvent};
pub use statistics::{ResourceStats, StatisticsResource};

use crate::base::error::Result;

/// Something that gives device memory and takes it back, in the order of streams.
///
/// Usable from any thread. References, boxes and [`Arc`]s of resources are resources too, so that one can be shared.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DriverResource, LimitResource, MemoryResource, Runtime, StatisticsResource, Stream};
///
/// // Statistics of what is asked, over a limit, over the driver.
/// let memory = StatisticsResource::new(LimitResource::new(DriverResource::new(&Runtime::current()), 1 << 20));
/// let stream = Stream::new(None, 0)?;
/// let first = memory.allocate(1 << 20, stream.view())?;
/// assert!(memory.allocate(1, stream.view()).is_err_and(|error| error.is_out_of_memory()));
/// memory.deallocate(first, stream.view())?;
/// assert_eq!((memory.stats().bytes.peak, memory.stats().bytes.current, memory.stats().refused), (1 << 20, 0, 1));
/// # Ok::<(), c10_core::Error>(())
/// ```
pub trait MemoryResource: fmt::Debug + Send + Sync {
    /// Memory of at least `bytes` bytes of the stream's device, first for use on `stream`; none for no bytes. Its address is a
    /// multiple of 512.
    ///
    /// # Errors
    /// There is not so much memory ([`crate::Error::is_out_of_memory`] says so), or the resource's own. Nothing is taken then.
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation>;

    /// Takes memory back, of which this resource gave every byte. Work that is queued on `stream` may still use it.
    ///
    /// # Errors
    /// The memory is not of this resource, or cannot be taken back now. It comes back with the error, and is still taken.
    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated>;
}

macro_rules! pass_on {
    ($($pointer:ty),*) => {$(
        impl<R: MemoryResource + ?Sized> MemoryResource for $pointer {
            fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
                (**self).allocate(bytes, stream)
            }

            fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
                (**self).deallocate(memory, stream)
            }
        }
    )*};
}

pass_on!(&R, Box<R>, Arc<R>);
