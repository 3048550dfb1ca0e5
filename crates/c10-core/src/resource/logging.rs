//! Telling what was asked of a resource.
//!
//! **Invariant:** a sink is told after the call it is told of, with no lock held, and cannot make the call fail.

use std::fmt;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::base::panics::caught;
use crate::resource::{Allocation, MemoryResource, NotDeallocated, StreamView};

/// Which of the two calls of a resource.
///
/// ```
/// assert_eq!(c10_core::ResourceAction::Allocate.to_string(), "allocate");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ResourceAction {
    /// Memory was asked for.
    Allocate,
    /// Memory was given back.
    Deallocate,
}

impl fmt::Display for ResourceAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocate => "allocate",
            Self::Deallocate => "deallocate",
        })
    }
}

/// A call of a resource that has returned. `Display` writes it as a line of [`Self::HEADER`].
///
/// ```
/// use c10_core::ResourceEvent;
///
/// assert_eq!(ResourceEvent::HEADER, "seconds,action,address,bytes,device,stream,error");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceEvent {
    /// When it returned, since the adaptor was made.
    pub time: Duration,
    /// What was asked.
    pub action: ResourceAction,
    /// Address of the memory; 0 where none was given.
    pub address: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// The stream it was asked for.
    pub stream: StreamView,
    /// Why it failed.
    pub error: Option<Error>,
}

impl ResourceEvent {
    /// Names of what `Display` writes.
    pub const HEADER: &'static str = "seconds,action,address,bytes,device,stream,error";
}

impl fmt::Display for ResourceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, action, address, bytes, stream, error } = self;
        let (seconds, device, handle) = (time.as_secs_f64(), stream.device(), stream.cuda_stream());
        write!(f, "{seconds:.6},{action},{address:#x},{bytes},{device},{handle:#x},")?;
        // One line, and one column, whatever an error says.
        let text = error.as_ref().map(Error::to_string).unwrap_or_default();
        let line: Vec<&str> = text.split([',', '\n', '\r']).map(str::trim).collect();
        f.write_str(&line.join(" "))
    }
}

/// Tells a function each call after it has returned, with its answer.
///
/// For finding out who asks for how much, or for replaying it later. The function is called on the calling thread; what it
/// panics with is dropped.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::sync::mpsc;
///
/// use c10_core::{DriverResource, LoggingResource, MemoryResource, ResourceAction, Runtime, Stream};
///
/// let (told, log) = mpsc::channel();
/// let sink = move |event: &_| told.send(ToOwned::to_owned(event)).unwrap();
/// let memory = LoggingResource::new(DriverResource::new(&Runtime::current()), sink);
/// let stream = Stream::new(None, 0)?;
/// memory.deallocate(memory.allocate(1000, stream.view())?, stream.view())?;
/// let log: Vec<c10_core::ResourceEvent> = log.try_iter().collect();
/// assert_eq!((log[0].action, log[0].bytes), (ResourceAction::Allocate, 1000));
/// assert!(log[1].to_string().contains(",deallocate,0x"));
/// # Ok::<(), c10_core::Error>(())
/// ```
pub struct LoggingResource<R> {
    upstream: R,
    sink: Box<dyn Fn(&ResourceEvent) + Send + Sync>,
    begin: Instant,
}

impl<R: MemoryResource> LoggingResource<R> {
    /// Tells `sink` of each call of `upstream`.
    pub fn new(upstream: R, sink: impl Fn(&ResourceEvent) + Send + Sync + 'static) -> Self {
        Self { upstream, sink: Box::new(sink), begin: Instant::now() }
    }

    /// What is beneath.
    pub fn upstream(&self) -> &R {
        &self.upstream
    }

    fn tell(&self, action: ResourceAction, (address, bytes): (u64, u64), stream: StreamView, error: Option<&Error>) {
        let event = ResourceEvent { time: self.begin.elapsed(), action, address, bytes, stream, error: error.cloned() };
        // A panic would lose the memory that the call was about.
        let _ = caught(|| (self.sink)(&event));
    }
}

impl<R: MemoryResource> MemoryResource for LoggingResource<R> {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        let taken = self.upstream.allocate(bytes, stream);
        let address = taken.as_ref().map_or(0, Allocation::address);
        self.tell(ResourceAction::Allocate, (address, bytes), stream, taken.as_ref().err());
        taken
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        let place = (memory.address(), memory.bytes());
        let given = self.upstream.deallocate(memory, stream);
        self.tell(ResourceAction::Deallocate, place, stream, given.as_ref().err().map(|refused| &refused.error));
        given
    }
}

impl<R: fmt::Debug> fmt::Debug for LoggingResource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoggingResource({:?})", self.upstream)
    }
}
