//! Failures by choice.
//!
//! **Invariant:** a call that is made to fail does not reach what is beneath.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::{AllocatorError, Error, Result};
use crate::resource::{Allocation, MemoryResource, NotDeallocated, ResourceAction, StreamView};

/// A call that a rule decides about.
///
/// ```
/// use c10_core::{ResourceAction, ResourceCall};
///
/// fn is_large(call: &ResourceCall) -> bool {
///     call.action == ResourceAction::Allocate && call.bytes > 1 << 20
/// }
/// # let _ = is_large;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceCall {
    /// Number of the call, from 0 on; both kinds are counted together.
    pub number: u64,
    /// What is asked.
    pub action: ResourceAction,
    /// Bytes of the memory.
    pub bytes: u64,
    /// The stream.
    pub stream: StreamView,
}

type Rule = dyn Fn(&ResourceCall) -> Option<Error> + Send + Sync;

/// Makes chosen calls fail.
///
/// For tests of what a program does when memory runs out at any one place.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DriverResource, FailingResource, MemoryResource, Runtime, Stream};
///
/// let memory = FailingResource::at(DriverResource::new(&Runtime::current()), 1);
/// let stream = Stream::new(None, 0)?;
/// let taken = memory.allocate(1000, stream.view())?;
/// let refused = memory.deallocate(taken, stream.view()).unwrap_err();
/// assert_eq!(refused.to_string(), "call 1 of the resource was made to fail");
/// memory.deallocate(refused.memory, stream.view())?;
/// # Ok::<(), c10_core::Error>(())
/// ```
pub struct FailingResource<R> {
    upstream: R,
    rule: Box<Rule>,
    calls: AtomicU64,
}

impl<R: MemoryResource> FailingResource<R> {
    /// Fails where `rule` answers with an error. It is called before each call.
    pub fn new(upstream: R, rule: impl Fn(&ResourceCall) -> Option<Error> + Send + Sync + 'static) -> Self {
        Self { upstream, rule: Box::new(rule), calls: AtomicU64::new(0) }
    }

    /// Makes the call of that number fail, and no other.
    pub fn at(upstream: R, number: u64) -> Self {
        Self::new(upstream, move |call| {
            (call.number == number).then(|| AllocatorError::Injected { call: call.number }.into())
        })
    }

    /// Makes every request for memory fail as a device without memory does, once so many have been served.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DriverResource, FailingResource, MemoryResource, Runtime, Stream};
    ///
    /// let memory = FailingResource::out_of_memory_after(DriverResource::new(&Runtime::current()), 0);
    /// let stream = Stream::new(None, 0)?;
    /// assert!(memory.allocate(1000, stream.view()).is_err_and(|error| error.is_out_of_memory()));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    pub fn out_of_memory_after(upstream: R, served: u64) -> Self {
        let requests = AtomicU64::new(0);
        Self::new(upstream, move |call| {
            let counts = call.action == ResourceAction::Allocate;
            let fails = counts && requests.fetch_add(1, Ordering::Relaxed) >= served;
            let (device, requested) = (call.stream.device(), call.bytes);
            fails.then(|| AllocatorError::NoMemory { device, requested }.into())
        })
    }

    /// How many calls were made, with those that failed.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// What is beneath.
    pub fn upstream(&self) -> &R {
        &self.upstream
    }

    fn check(&self, action: ResourceAction, bytes: u64, stream: StreamView) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        (self.rule)(&ResourceCall { number, action, bytes, stream }).map_or(Ok(()), Err)
    }
}

impl<R: MemoryResource> MemoryResource for FailingResource<R> {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        self.check(ResourceAction::Allocate, bytes, stream)?;
        self.upstream.allocate(bytes, stream)
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        match self.check(ResourceAction::Deallocate, memory.bytes(), stream) {
            Ok(()) => self.upstream.deallocate(memory, stream),
            Err(error) => Err(NotDeallocated { memory, error }),
        }
    }
}

impl<R: fmt::Debug> fmt::Debug for FailingResource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailingResource({:?})", self.upstream)
    }
}
