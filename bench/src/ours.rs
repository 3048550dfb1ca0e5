//! The runtime: what is measured.

use std::hint::black_box;

use cuda_api::{Event, Stream};

use crate::FIRST_BYTES;
use crate::raw::Failure;

/// A stream and an event of the runtime.
#[derive(Debug)]
pub(crate) struct Ours {
    stream: Stream,
    event: Event,
}

impl Ours {
    /// Takes a stream, and an event that has been recorded once.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn new() -> Result<Self, Failure> {
        let stream = Stream::new(None, 0)?;
        let event = stream.record_event()?;
        Ok(Self { stream, event })
    }

    /// What a program does first: takes memory. In a process that has done nothing yet.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn first_use() -> Result<(), Failure> {
        black_box(cuda_api::caching_allocator_alloc(FIRST_BYTES as u64, None, None)?);
        Ok(())
    }

    /// Takes memory from the cache and gives it back.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn alloc_and_free(&self, bytes: usize) -> Result<(), Failure> {
        let address = cuda_api::caching_allocator_alloc(bytes as u64, None, &self.stream)?;
        Ok(cuda_api::caching_allocator_delete(black_box(address))?)
    }

    /// Records the event on the stream.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn event_record(&self) -> Result<(), Failure> {
        Ok(self.event.record(&self.stream)?)
    }

    /// Lets the stream wait for the event.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn wait_event(&self) -> Result<(), Failure> {
        Ok(self.stream.wait_event(&self.event)?)
    }

    /// Asks whether the event has happened.
    ///
    /// # Errors
    /// The runtime's, or it has not.
    pub(crate) fn event_query(&self) -> Result<(), Failure> {
        if self.event.query()? { Ok(()) } else { Err("an event of an idle device is not done".into()) }
    }

    /// Asks whether the stream is idle.
    ///
    /// # Errors
    /// The runtime's, or it is not.
    pub(crate) fn stream_query(&self) -> Result<(), Failure> {
        if self.stream.query()? { Ok(()) } else { Err("a stream of an idle device is not done".into()) }
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn stream_synchronize(&self) -> Result<(), Failure> {
        Ok(self.stream.synchronize()?)
    }

    /// Makes an event, records it and drops it.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn event_new_and_drop(&self) -> Result<(), Failure> {
        let event = Event::default();
        event.record(&self.stream)?;
        drop(black_box(event));
        Ok(())
    }
}
