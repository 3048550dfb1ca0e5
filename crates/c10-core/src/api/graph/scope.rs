//! What can be recorded: the guard of a capture, and the handle that a closure records with.
//!
//! A [`CaptureScope`] has only what a capture allows. It cannot wait for the device, ask whether work is done, or copy
//! plain host memory, and work that it forks to another stream is joined again.
//!
//! **Invariants:** both stay on the thread that began the capture. A guard borrows its graph, which therefore can neither
//! be replayed nor dropped before the capture has ended.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::{CUDAGraph, State};
use crate::api::buffers::DeviceBuffer;
use crate::api::event::Event;
use crate::api::guard::StreamGuard;
use crate::api::pinned::PinnedBuffer;
use crate::api::stream::Stream;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, GraphError, Result};
use crate::base::ids::PoolId;
use crate::base::process;
use crate::base::warning::warning;
use crate::runtime::{Runtime, WeakRuntime};
use crate::state::captures::KeptId;
use crate::state::holds::Held;
use crate::state::pool_pinned::PoolPinned;

/// A capture under way; its stream is the current one meanwhile. Torch's `torch.cuda.graph`.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Stream};
///
/// let (mut graph, stream, buffer) = (CUDAGraph::new(), Stream::new(None, 0)?, DeviceBuffer::new(4, None)?);
/// let capture = graph.capture_guard(&stream, None, CaptureMode::Global)?;
/// capture.scope().fill(&buffer, .., 7)?;
/// capture.end()?;
/// assert_eq!(graph.node_count(), 1);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// Dropping it ends the capture; during a panic it also discards what was captured. It belongs to the thread that made
/// it:
///
/// ```compile_fail,E0277
/// fn ends_elsewhere(capture: c10_core::GraphCapture<'_>) {
///     std::thread::scope(|scope| {
///         scope.spawn(move || capture.end());
///     });
/// }
/// ```
///
/// and keeps the graph from being used before its end:
///
/// ```compile_fail,E0499
/// use c10_core::{CUDAGraph, CaptureMode, Stream};
/// fn replays_too_soon(graph: &mut CUDAGraph, stream: &Stream) -> c10_core::Result<()> {
///     let capture = graph.capture_guard(stream, None, CaptureMode::Global)?;
///     graph.replay()?;
///     capture.end()
/// }
/// ```
#[must_use = "the capture lasts only while the guard lives"]
pub struct GraphCapture<'a> {
    pub(crate) graph: &'a mut CUDAGraph,
    pub(crate) stream: Stream,
    pub(crate) _current: StreamGuard,
    pub(crate) _span: tracing::span::EnteredSpan,
}

impl GraphCapture<'_> {
    /// Ends the capture.
    ///
    /// # Errors
    /// As for [`CUDAGraph::capture_end`].
    pub fn end(self) -> Result<()> {
        self.graph.finish_capture()
    }

    /// What can be recorded, on the stream that captures.
    #[must_use]
    pub fn scope(&self) -> CaptureScope<'_> {
        CaptureScope { stream: &self.stream, thread: PhantomData }
    }

    /// Ends the capture and discards what was captured. Returns the error of ending it, if there was one.
    pub(crate) fn discard(self) -> Option<Error> {
        let ended = self.graph.finish_capture();
        // The error that led here says more than an error from discarding the capture.
        let _ = self.graph.reset();
        ended.err()
    }
}

impl fmt::Debug for GraphCapture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphCapture").field("stream", &self.stream).finish()
    }
}

impl Drop for GraphCapture<'_> {
    fn drop(&mut self) {
        if process::in_bad_fork() || !self.graph.is_capturing() {
            return;
        }
        let ended = if std::thread::panicking() { self.graph.reset() } else { self.graph.finish_capture() };
        if let Err(error) = ended {
            warning!("a capture that was dropped left no graph: {error}");
        }
    }
}

/// What can be recorded on a stream that captures. See [`CUDAGraph::record`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Stream};
///
/// let (mut graph, stream, buffer) = (CUDAGraph::new(), Stream::new(None, 0)?, DeviceBuffer::new(4, None)?);
/// graph.record(&stream, None, CaptureMode::Global, |scope| {
///     let own = scope.buffer(4)?;
///     scope.fill(&own, .., 7)?;
///     scope.copy(&buffer, 0, &own, ..)
/// })?;
/// graph.replay()?;
/// assert_eq!(buffer.to_vec()?, [7; 4]);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// Waiting for the device has no place in a capture:
///
/// ```compile_fail,E0599
/// fn waits(scope: &c10_core::CaptureScope<'_>) -> c10_core::Result<()> {
///     scope.synchronize()
/// }
/// ```
///
/// nor have copies of plain host memory, which nobody would keep for the replays:
///
/// ```compile_fail,E0308
/// use c10_core::{CaptureScope, DeviceBuffer};
/// fn copies(scope: &CaptureScope<'_>, to: &DeviceBuffer, from: &[u8]) -> c10_core::Result<()> {
///     scope.copy_from_pinned(to, 0, from, 0..from.len())
/// }
/// ```
///
/// and a scope does not outlive its capture:
///
/// ```compile_fail,E0521
/// use c10_core::{CUDAGraph, CaptureMode, CaptureScope, Stream};
/// fn escapes(graph: &mut CUDAGraph, stream: &Stream) -> c10_core::Result<()> {
///     let mut kept: Option<&CaptureScope<'_>> = None;
///     graph.record(stream, None, CaptureMode::Global, |scope| {
///         kept = Some(scope);
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Copy)]
pub struct CaptureScope<'c> {
    pub(crate) stream: &'c Stream,
    pub(crate) thread: PhantomData<*const ()>,
}

impl fmt::Debug for CaptureScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureScope").field("stream", self.stream).finish()
    }
}

impl CaptureScope<'_> {
    pub(crate) fn runtime(&self) -> &Runtime {
        self.stream.runtime()
    }

    /// Allocates `len` bytes of device memory from the graph's pool. The memory stays valid as long as the buffer
    /// lives; it holds what the last replay wrote.
    ///
    /// # Errors
    /// Not enough memory, or the driver's error.
    pub fn buffer(&self, len: usize) -> Result<DeviceBuffer> {
        self.runtime().memory().buffer(len, self.stream)
    }

    /// Records a fill: sets bytes of a buffer to `value`.
    ///
    /// # Errors
    /// The range leaves the buffer, or the driver's error.
    pub fn fill(&self, buffer: &DeviceBuffer, range: impl RangeBounds<usize>, value: u8) -> Result<()> {
        buffer.fill(range, value, self.stream)
    }

    /// Records a copy of bytes of a buffer into another one at `offset`.
    ///
    /// # Errors
    /// The range leaves a buffer, or the driver's error.
    pub fn copy(
        &self,
        to: &DeviceBuffer,
        offset: usize,
        from: &DeviceBuffer,
        range: impl RangeBounds<usize>,
    ) -> Result<()> {
        to.copy_from_buffer(offset, from, range, self.stream)
    }

    /// Records a copy of pinned bytes into a buffer at `offset`. Each replay reads them anew.
    ///
    /// # Errors
    /// The range leaves a buffer, or the driver's error.
    pub fn copy_from_pinned(
        &self,
        to: &DeviceBuffer,
        offset: usize,
        from: &PinnedBuffer,
        range: impl RangeBounds<usize>,
    ) -> Result<()> {
        to.copy_from_pinned(offset, from, range, self.stream)
    }

    /// Records a copy of a buffer's bytes into pinned memory at `offset`.
    ///
    /// # Errors
    /// The range leaves a buffer, or the driver's error.
    pub fn copy_to_pinned(
        &self,
        from: &DeviceBuffer,
        range: impl RangeBounds<usize>,
        to: &PinnedBuffer,
        offset: usize,
    ) -> Result<()> {
        from.copy_to_pinned(range, to, offset, self.stream)
    }

    /// Records an event. An external event becomes a node of the graph and is recorded by each replay; any other is a
    /// marker inside the capture.
    ///
    /// # Errors
    /// The driver's error.
    pub fn record_event(&self, event: &Event) -> Result<()> {
        event.record(self.stream)
    }

    /// Makes work that is recorded next wait for an event. For an external event a node of the graph waits at each
    /// replay.
    ///
    /// # Errors
    /// The driver's error, for example for an event that was recorded outside of the capture.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        event.wait(self.stream)
    }

    /// Records the work that `body` queues on `side`, which is the current stream meanwhile, as a branch beside this
    /// stream. Later work of this stream waits for the branch.
    ///
    /// # Errors
    /// What `body` returned, else the driver's error.
    pub fn fork<T, E: From<Error>>(
        &self,
        side: &Stream,
        body: impl FnOnce(&CaptureScope<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        side.wait_stream(self.stream)?;
        let current = self.runtime().streams().guard(side)?;
        let done = body(&CaptureScope { stream: side, thread: PhantomData });
        drop(current);
        // Joined even if `body` failed: else the whole capture could not end.
        let joined = self.stream.wait_stream(side);
        let value = done?;
        joined?;
        Ok(value)
    }

    /// Records another graph as one node. That graph has to be made with `keep_graph`; it is copied, so that later
    /// changes to it have no effect here. Its memory is kept as long as the graph that this capture becomes.
    ///
    /// # Errors
    /// [`crate::GraphError::NotKept`]; its work draws random numbers ([`crate::GraphError::ChildDraws`]); it is of
    /// another runtime, or captured on another device ([`crate::GraphError::Device`]); the driver's error.
    pub fn add_child(&self, child: &CUDAGraph) -> Result<()> {
        self.runtime().check_same(&child.runtime, "graph")?;
        let State::Captured(captured) = &child.state else {
            return Err(Error::Graph(GraphError::WithoutCapture { call: "add_child" }));
        };
        let graph = captured.template.ok_or(Error::Graph(GraphError::NotKept))?;
        if captured.increments.draw() {
            return Err(Error::Graph(GraphError::ChildDraws));
        }
        let (device, stream) = (captured.device, self.stream.reference());
        if device != stream.device {
            return Err(Error::Graph(GraphError::Device { device: stream.device, graph: device }));
        }
        let ready = self.stream.ready()?;
        let capture = ready.api.stream_capture_id(stream)?.ok_or(Error::Graph(GraphError::NotCapturing))?;
        ready.allocator.share_pool(device, captured.pool)?;
        let pinned = ready.captures.pinned.of(device, captured.pool);
        let home = self.runtime().downgrade();
        let pool: Held = Arc::new(PoolUse { home, device, pool: captured.pool, _pinned: pinned });
        ready.api.capture_child(stream, graph)?;
        ready.captures.keep(capture, KeptId::of(&pool), || pool);
        captured.kept.iter().for_each(|(id, held)| ready.captures.keep(capture, id, || Arc::clone(held)));
        Ok(())
    }
}

/// One use of a private pool, given up when dropped.
#[derive(Debug)]
struct PoolUse {
    home: WeakRuntime,
    device: DeviceIndex,
    pool: PoolId,
    _pinned: Arc<PoolPinned>,
}

impl Drop for PoolUse {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        let runtime = Runtime::upgrade(&self.home);
        let ready = runtime.as_ref().and_then(Runtime::started);
        // Without the runtime the pool is gone already.
        let _ = ready.map(|ready| ready.allocator.release_pool(self.device, self.pool));
    }
}
