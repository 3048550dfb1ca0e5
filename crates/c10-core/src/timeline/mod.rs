//! What the host and the devices did, on one time line, for Perfetto.
//!
//! **Invariants:** a recorder is a subscriber like any other: nobody records, and nothing is done. Nothing waits while it
//! records, and nothing that it does fails what it records: a device that refuses its events has no times.

mod books;
mod chrome;
mod stamps;

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result, StartError};
use crate::base::process;
use crate::runtime::{Runtime, Started};
use crate::sync::Mutex;
use crate::sync::lock;
use crate::trace::{SubscriptionId, TraceKind, TraceKinds};
use books::{Books, Records};

/// What a [`TimelineRecorder`] records.
///
/// ```
/// use c10_core::TimelineOptions;
///
/// let host_alone = TimelineOptions { device_times: false, ..TimelineOptions::default() };
/// assert!(host_alone.max_records > 100_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimelineOptions {
    /// The sorts of events that are recorded.
    pub kinds: TraceKinds,
    /// Whether the work of streams is timed, by two events of the driver for each piece of work. Without them the time line
    /// shows the calls of the program alone.
    pub device_times: bool,
    /// Calls and allocations that are kept at most; those after them are counted. One takes about 150 bytes.
    pub max_records: usize,
}

impl Default for TimelineOptions {
    fn default() -> Self {
        Self { kinds: TraceKinds::ALL, device_times: true, max_records: 1_000_000 }
    }
}

/// Records what the threads of the program ask of a runtime, and when devices do it.
///
/// Launches, copies, fills and replays of graphs lie between two timing events on their streams, which are taken from a
/// stock and looked at later. A stream does no two things at once then: kernels that would have overlapped on a stream
/// (programmatic dependent launches) come one after the other. What a stream captures is recorded as calls alone.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, TimelineOptions};
///
/// let recorder = Runtime::current().record_timeline(&TimelineOptions::default())?;
/// let buffer = DeviceBuffer::new(1 << 20, None)?;
/// buffer.fill(.., 7, None)?;
/// let timeline = recorder.finish();
///
/// let mut text = Vec::new();
/// timeline.write_to(&mut text)?;
/// let text = String::from_utf8(text)?;
/// assert!(text.contains(r#""name":"Memset""#) && text.contains(r#""name":"allocated bytes""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TimelineRecorder {
    runtime: Runtime,
    subscription: SubscriptionId,
    books: Arc<Mutex<Books>>,
}

impl Runtime {
    /// Begins to record a time line. Does not start the runtime. See [`TimelineRecorder`].
    ///
    /// # Errors
    /// This process was forked from one that had used a GPU.
    pub fn record_timeline(&self, options: &TimelineOptions) -> Result<TimelineRecorder> {
        if process::in_bad_fork() {
            return Err(Error::Start(StartError::BadFork));
        }
        let books = Arc::new(Mutex::new(Books::new(options.device_times, options.max_records)));
        let (runtime, notes) = (self.downgrade(), Arc::clone(&books));
        let subscription = self.subscribe(options.kinds.and(TraceKind::Begin), move |event| {
            if let Some(runtime) = Self::upgrade(&runtime) {
                lock(&notes).note(&runtime, event);
            }
        });
        Ok(TimelineRecorder { runtime: self.clone(), subscription, books })
    }
}

impl TimelineRecorder {
    /// Ends the recording. Waits until the devices have done what was recorded.
    #[must_use]
    pub fn finish(self) -> Timeline {
        self.runtime.unsubscribe(self.subscription);
        let ready = self.runtime.started().filter(|_| !process::in_bad_fork());
        // The books are taken out of the lock, since a host function may record something while their end is waited
        // for.
        let mut books = std::mem::replace(&mut *lock(&self.books), Books::finished());
        let records = books.finish(ready);
        Timeline { records, devices: ready.map(names).unwrap_or_default() }
    }
}

/// Names of the devices.
fn names(ready: &Started) -> Vec<String> {
    let devices = (0..).map(DeviceIndex).take(ready.api.device_count());
    devices.map(|device| ready.api.name(device).unwrap_or_default()).collect()
}

impl Drop for TimelineRecorder {
    fn drop(&mut self) {
        if !process::in_bad_fork() {
            self.runtime.unsubscribe(self.subscription);
            lock(&self.books).discard(self.runtime.started());
        }
    }
}

impl fmt::Debug for TimelineRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimelineRecorder {{ subscription: {:?} }}", self.subscription)
    }
}

/// What a [`TimelineRecorder`] has recorded.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, TimelineOptions};
///
/// let options = TimelineOptions { max_records: 2, ..TimelineOptions::default() };
/// let recorder = Runtime::current().record_timeline(&options)?;
/// let buffer = DeviceBuffer::new(1 << 20, None)?;
/// buffer.fill(.., 7, None)?;
/// let timeline = recorder.finish();
/// assert_eq!((timeline.len(), timeline.dropped()), (2, 1), "a segment, a block; no room for the fill");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Timeline {
    records: Records,
    /// Names of the devices.
    devices: Vec<String>,
}

impl Timeline {
    /// Calls, and things that happened to memory, that were recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.works.len() + self.records.memory.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many more there were than were to be kept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.records.dropped
    }

    /// Writes the time line in Chrome's Trace Event Format, as one object of JSON, which Perfetto and `chrome://tracing`
    /// show. It comes in small pieces.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        chrome::write(&self.records, &self.devices, out)
    }
}
