//! Asking an allocator for memory and giving it back, whatever it is made of.
//!
//! **Invariants:** a panic of a function becomes an error. Null, or address 0, is "no memory".

use std::fmt;
use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, Error, Result};
use crate::base::panics::caught;
use crate::resource::{Allocation, MemoryResource, StreamView};

/// `alloc(bytes, device, stream)` answers with an address, 0 for none.
pub(super) type AllocFn = dyn Fn(u64, DeviceIndex, usize) -> u64 + Send + Sync;
/// `free(address, bytes, device, stream)`.
pub(super) type FreeFn = dyn Fn(u64, u64, DeviceIndex, usize) + Send + Sync;

/// What an allocator is made of.
pub(super) enum Functions {
    /// Two functions that deal in addresses.
    Plain { alloc: Box<AllocFn>, free: Box<FreeFn> },
    /// A memory resource.
    Resource(Arc<dyn MemoryResource>),
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { .. } => f.write_str("functions"),
            Self::Resource(resource) => resource.fmt(f),
        }
    }
}

/// Calls a function of the program; a panic of it is an error.
pub(super) fn guarded<T>(function: &'static str, call: impl FnOnce() -> T) -> Result<T> {
    caught(call).map_err(|panic| AllocatorError::Panicked { function, text: panic.text.into_boxed_str() }.into())
}

impl Functions {
    /// Memory for a stream; `None` where the allocator has none. No bytes are asked for as they are.
    pub(super) fn alloc(&self, bytes: u64, stream: StreamView) -> Result<Option<Allocation>> {
        let device = stream.device();
        match self {
            Self::Plain { alloc, .. } => {
                let address = guarded("the alloc function", || alloc(bytes, device, stream.cuda_stream()))?;
                Ok((address != 0).then(|| Allocation::new(address, bytes, device)))
            }
            Self::Resource(resource) => match guarded("allocate", || resource.allocate(bytes, stream))? {
                Ok(memory) => Ok(Some(memory).filter(|memory| memory.address() != 0)),
                Err(error) if error.is_out_of_memory() || error.driver_is_out_of_memory() => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Gives memory back. `None` with the error where the function panicked: nobody knows whether it was given back, so it
    /// is not tried again.
    pub(super) fn free(&self, memory: Allocation, stream: StreamView) -> Result<(), (Option<Allocation>, Error)> {
        let (address, bytes, device) = (memory.address(), memory.bytes(), memory.device());
        match self {
            Self::Plain { free, .. } => {
                guarded("the free function", || free(address, bytes, device, stream.cuda_stream()))
                    .map_err(|error| (None, error))
            }
            Self::Resource(resource) => match guarded("deallocate", || resource.deallocate(memory, stream)) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(refused)) => Err((Some(refused.memory), refused.error)),
                Err(error) => Err((None, error)),
            },
        }
    }
}
