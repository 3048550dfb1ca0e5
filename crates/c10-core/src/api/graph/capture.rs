//! A capture from its begin to its end.
//!
//! **Invariants:** from the moment a capture has begun to the moment it is over, its allocations go to its pool and nothing
//! else does; the routing is opened before the driver begins, so that no allocation can miss the pool. However the
//! capture ends, the routing is closed, the generators hear of it and, unless there is a graph, the pool is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::graph::captured::Captured;
use crate::api::graph::generator::{Generators, Prepared};
use crate::api::pinned::KeptBlock;
use crate::api::stream::Stream;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, GraphError, Result};
use crate::base::handles::{CaptureMode, StreamRef};
use crate::base::ids::PoolId;
use crate::driver::Driver;
use crate::runtime::{Runtime, Started};
use crate::state::captures::Kept;
use crate::state::deferred_destroy::DriverObject;
use crate::state::pool_pinned::PoolPinned;

/// A capture under way.
#[derive(Debug)]
pub(crate) struct Capturing {
    pub(crate) stream: Stream,
    pool: PoolId,
    /// Pinned blocks that captures into the pool used.
    pinned: Arc<PoolPinned>,
    /// The driver's number of the capture.
    pub(crate) id: u64,
    generators: Prepared,
}

/// The outcome of an attempt to end a capture.
pub(crate) enum Ended {
    /// It is over, with a graph or without one.
    Over(Result<Captured>),
    /// It goes on: the driver did not end it.
    GoesOn(Capturing, Error),
}

impl Capturing {
    /// Begins a capture on the current stream; after an error no stream captures that did not before.
    pub(crate) fn begin(
        runtime: &Runtime,
        generators: &Generators,
        pool: Option<PoolId>,
        mode: CaptureMode,
    ) -> Result<Self> {
        let stream = runtime.streams().current(runtime.current_device()?)?;
        if stream.is_default() {
            return Err(Error::Graph(GraphError::OnDefaultStream));
        }
        let ready = runtime.ready()?;
        ready.captures.sweep(&ready.api, &ready.deferred);
        let prepared = generators.prologue(&stream)?;
        // Torch's name for no pool.
        let pool = pool.filter(|pool| *pool != PoolId(0, 0)).unwrap_or_else(PoolId::for_capture);
        let number = Arc::new(AtomicU64::new(0));
        ready.allocator.begin_capture(stream.device_index(), pool, Arc::clone(&number))?;
        ready.api.captures().begin(stream.device_index());
        match begin(ready, stream.reference(), mode) {
            Ok(id) => {
                number.store(id, Ordering::Release);
                ready.captures.begin(stream.reference(), id, pool);
                let pinned = ready.captures.pinned.of(stream.device_index(), pool);
                Ok(Self { stream, pool, pinned, id, generators: prepared })
            }
            Err(error) => {
                ready.api.captures().end(stream.device_index());
                close_pool(ready, stream.device_index(), pool);
                Err(error)
            }
        }
    }

    /// Ends the capture on the stream it began on, whatever is current.
    pub(crate) fn end(self, ready: &Started) -> Ended {
        let stream = self.stream.reference();
        // Where this fails and matters, the driver does not accept the capture.
        let finished = ready.allocator.finish_capture(&ready.api, stream);
        let ended = ready.api.end_capture(stream).map_err(|error| finished.err().unwrap_or(error));
        match ended.and_then(|graph| graph.ok_or(Error::Graph(GraphError::InvalidCapture))) {
            Ok(graph) => {
                ready.allocator.end_capture(&ready.api, stream.device, self.pool);
                let kept = self.end_keeping(ready);
                let increments = self.generators.with_joined(self.stream.runtime(), self.id).epilogue();
                Ended::Over(Ok(Captured::new((stream.device, self.pool), graph, (kept, self.pinned), increments)))
            }
            // The driver may have refused without ending it.
            Err(error) if ready.api.stream_is_capturing(stream).unwrap_or(false) => Ended::GoesOn(self, error),
            Err(error) => {
                self.close(ready);
                Ended::Over(Err(error))
            }
        }
    }

    /// Forgets a capture that the driver does not end: allocations are what they were before it, and the stream's
    /// capture is ended as soon as that can be done.
    pub(crate) fn abandon(self, ready: &Started) {
        ready.captures.give_up(self.stream.reference());
        self.close(ready);
    }

    /// Forgets the capture and returns what its graph keeps alive. The pool keeps the pinned blocks of it as well.
    fn end_keeping(&self, ready: &Started) -> Kept {
        let kept = ready.captures.end(self.id);
        ready.api.captures().end(self.stream.device_index());
        self.pinned.keep(kept.iter().filter(|(_, held)| held.is::<KeptBlock>()));
        kept
    }

    fn close(self, ready: &Started) {
        drop(self.end_keeping(ready));
        drop(self.generators.with_joined(self.stream.runtime(), self.id));
        close_pool(ready, self.stream.device_index(), self.pool);
    }
}

/// Begins a capture and returns its number. After an error the stream does not capture.
fn begin(ready: &Started, stream: StreamRef, mode: CaptureMode) -> Result<u64> {
    ready.api.begin_capture(stream, mode)?;
    let id = ready.api.capture_id(stream).and_then(|id| id.ok_or(Error::Graph(GraphError::InvalidCapture)));
    if id.is_err() {
        match ready.api.end_capture(stream) {
            Ok(graph) => drop(graph.map(|graph| ready.destroy(DriverObject::Graph(graph)))),
            Err(_) => ready.captures.give_up(stream),
        }
    }
    id
}

/// Ends the routing to the pool of a capture that left no graph, and releases the pool.
fn close_pool(ready: &Started, device: DeviceIndex, pool: PoolId) {
    ready.allocator.end_capture(&ready.api, device, pool);
    // It cannot fail: there is such a device.
    let _ = ready.allocator.release_pool(device, pool);
}
