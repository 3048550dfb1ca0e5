//! CUDA graphs: work that is recorded once and replayed as one.
//!
//! **Invariants:** allocations made on the capturing streams come from the graph's private pool, and that pool, the
//! pinned memory and the buffers that captured copies use live until the graph is reset or dropped. However a capture
//! ends, in order, by an error or by a panic, the stream stops capturing, the routing to the pool ends and, unless
//! there is a graph, the pool is released.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::caching::{Filter, PoolId};
use crate::device::DeviceIndex;
use crate::driver::{CaptureMode, Driver, GraphExecHandle, GraphHandle, StreamRef};
use crate::error::{Error, Result};
use crate::guard::StreamGuard;
use crate::pinned::Held;
use crate::process;
use crate::remains::Doomed;
use crate::runtime::{Ready, Runtime};
use crate::stream::Stream;

impl FromStr for CaptureMode {
    type Err = Error;

    /// Reads torch's names of the modes.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "global" => Ok(Self::Global),
            "thread_local" => Ok(Self::ThreadLocal),
            "relaxed" => Ok(Self::Relaxed),
            _ => Err(Error::UnknownCaptureMode { text: text.to_owned() }),
        }
    }
}

/// What captures under way must keep alive, by the capture's number.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    kept: Mutex<HashMap<u64, Vec<Held>>>,
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Held>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps something as long as the graph that the capture becomes. A capture that this runtime did not begin is
    /// never heard of again; what it uses is kept as long as the runtime.
    pub(crate) fn keep(&self, capture: u64, held: Held) {
        self.lock().entry(capture).or_default().push(held);
    }

    fn take(&self, capture: u64) -> Vec<Held> {
        self.lock().remove(&capture).unwrap_or_default()
    }

    /// Lets go of everything, at the end of the runtime.
    pub(crate) fn clear(&self) {
        let kept = std::mem::take(&mut *self.lock());
        drop(kept);
    }
}

/// A graph of work; torch's `CUDAGraph`. Captures once, then replays until it is reset.
pub struct CUDAGraph {
    runtime: Runtime,
    keep_graph: bool,
    state: State,
}

enum State {
    Empty,
    Capturing(Capturing),
    Captured(Captured),
}

struct Capturing {
    stream: Stream,
    pool: PoolId,
    id: u64,
}

struct Captured {
    device: DeviceIndex,
    pool: PoolId,
    node_count: usize,
    graph: Option<GraphHandle>,
    exec: Option<GraphExecHandle>,
    kept: Vec<Held>,
    /// Streams that may still be running a replay.
    replayed_on: BTreeSet<StreamRef>,
}

impl CUDAGraph {
    /// A graph of nothing, of the current runtime. Calls nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::on(&Runtime::current(), false)
    }

    /// A graph of nothing that will keep what it captures beside its executable form, which is made by the first
    /// replay or by [`Self::instantiate`]. Calls nothing.
    #[must_use]
    pub fn with_keep_graph() -> Self {
        Self::on(&Runtime::current(), true)
    }

    /// A graph of nothing, of a runtime. With `keep_graph` the captured graph is kept beside its executable form, which then is made
    /// by the first replay or by [`Self::instantiate`]. Calls nothing.
    #[must_use]
    pub fn on(runtime: &Runtime, keep_graph: bool) -> Self {
        Self { runtime: runtime.clone(), keep_graph, state: State::Empty }
    }

    /// Starts to record what is queued on the current stream, and on streams that come to depend on it, instead of
    /// doing it. Memory allocated on those streams comes from `pool`, or from a pool of this graph's own.
    ///
    /// # Errors
    /// The graph has captured already, the current stream is the default one, or the driver's error.
    pub fn capture_begin(&mut self, pool: Option<PoolId>, mode: CaptureMode) -> Result<()> {
        match &self.state {
            State::Empty => {}
            State::Capturing(_) => return Err(Error::GraphIsCapturing),
            State::Captured(_) => return Err(Error::GraphAlreadyCaptured),
        }
        let stream = self.runtime.current_stream(self.runtime.current_device()?)?;
        if stream.is_default() {
            return Err(Error::CaptureOnDefaultStream);
        }
        let ready = self.runtime.ready()?;
        let pool = pool.unwrap_or_else(PoolId::for_capture);
        let number = Arc::new(AtomicU64::new(0));
        // Before the capture, so that no allocation of it can miss the pool.
        ready.allocator.begin_allocate_to_pool(stream.device_index(), pool, Filter::Capture(Arc::clone(&number)))?;
        match begin(ready, stream.reference(), mode) {
            Ok(id) => {
                number.store(id, Ordering::Release);
                self.state = State::Capturing(Capturing { stream, pool, id });
                Ok(())
            }
            Err(error) => {
                close_pool(ready, stream.device_index(), pool);
                Err(error)
            }
        }
    }

    /// Ends the capture that [`Self::capture_begin`] began. On an error other than "wrong stream" or "wrong thread"
    /// the capture is over all the same and the graph can capture again.
    ///
    /// # Errors
    /// No capture is under way, another stream is current, something forbidden was done during the capture, or the
    /// driver's error.
    pub fn capture_end(&mut self) -> Result<()> {
        let State::Capturing(capturing) = &self.state else { return Err(Error::GraphNotCapturing) };
        if self.runtime.current_stream(self.runtime.current_device()?)? != capturing.stream {
            return Err(Error::CaptureEndedElsewhere);
        }
        self.finish_capture()
    }

    /// Makes `stream` current and captures until the guard is ended or dropped.
    ///
    /// # Errors
    /// As for [`Self::capture_begin`].
    pub fn capture_guard(
        &mut self,
        stream: &Stream,
        pool: Option<PoolId>,
        mode: CaptureMode,
    ) -> Result<GraphCapture<'_>> {
        let current = self.runtime.stream_guard(stream)?;
        self.capture_begin(pool, mode)?;
        Ok(GraphCapture { graph: self, _current: current })
    }

    /// Captures what `body` queues on `stream`, which is current meanwhile. The capture ends on every way out of
    /// `body`; after an error or a panic the graph is empty.
    ///
    /// # Errors
    /// What `body` returned, else as for [`Self::capture_begin`] and [`Self::capture_end`].
    pub fn capture<T, E: From<Error>>(
        &mut self,
        stream: &Stream,
        pool: Option<PoolId>,
        mode: CaptureMode,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let capture = self.capture_guard(stream, pool, mode)?;
        match body() {
            Ok(value) => capture.end().map(|()| value).map_err(E::from),
            Err(error) => {
                capture.discard();
                Err(error)
            }
        }
    }

    /// Ends the capture on the stream it began on, whatever is current.
    fn finish_capture(&mut self) -> Result<()> {
        let State::Capturing(capturing) = &self.state else { return Err(Error::GraphNotCapturing) };
        let ready = self.runtime.ready()?;
        let stream = capturing.stream.reference();
        let ended = ready.api.end_capture(stream);
        if ended.is_err() && ready.api.stream_is_capturing(stream).unwrap_or(false) {
            // The wrong thread, for example: the capture goes on and can still be ended.
            return ended.map(|_| ());
        }
        let (device, pool, id) = (stream.device, capturing.pool, capturing.id);
        self.state = State::Empty;
        let kept = ready.captures.take(id);
        let graph = match ended.and_then(|graph| graph.ok_or(Error::InvalidCapture)) {
            Ok(graph) => graph,
            Err(error) => {
                close_pool(ready, device, pool);
                return Err(error);
            }
        };
        let _ = ready.allocator.end_allocate_to_pool(device, pool);
        let mut captured = Captured {
            device,
            pool,
            node_count: 0,
            graph: Some(graph),
            exec: None,
            kept,
            replayed_on: BTreeSet::new(),
        };
        if let Err(error) = captured.complete(ready, self.keep_graph) {
            let _ = captured.discard(ready);
            return Err(error);
        }
        self.state = State::Captured(captured);
        Ok(())
    }

    /// Makes the executable form anew. Only for graphs made with `keep_graph`; the others do it by themselves.
    ///
    /// # Errors
    /// Nothing was captured, the graph was made without `keep_graph`, or the driver's error.
    pub fn instantiate(&mut self) -> Result<()> {
        let State::Captured(captured) = &mut self.state else { return Err(Error::InstantiateWithoutCapture) };
        if !self.keep_graph {
            return Err(Error::InstantiateByUser);
        }
        captured.instantiate(self.runtime.ready()?)
    }

    /// Queues the whole graph on the current stream of the device it was captured on. Returns before it is done.
    ///
    /// # Errors
    /// Nothing was captured, or the driver's error.
    pub fn replay(&mut self) -> Result<()> {
        let State::Captured(captured) = &mut self.state else { return Err(Error::ReplayWithoutCapture) };
        let ready = self.runtime.ready()?;
        let exec = match captured.exec {
            Some(exec) => exec,
            None => {
                captured.instantiate(ready)?;
                captured.exec.ok_or(Error::ReplayWithoutCapture)?
            }
        };
        let stream = self.runtime.current_stream(captured.device)?.reference();
        ready.api.graph_launch(exec, stream)?;
        captured.replayed_on.insert(stream);
        Ok(())
    }

    /// Gives up what was captured, so that the graph can capture again; ends a capture under way. Memory that the
    /// program still holds from the pool stays valid.
    ///
    /// # Errors
    /// The first driver error; the graph is empty all the same, unless a capture could not be ended.
    pub fn reset(&mut self) -> Result<()> {
        if matches!(self.state, State::Capturing(_)) {
            let ended = self.finish_capture();
            if matches!(self.state, State::Capturing(_)) {
                return ended;
            }
        }
        match std::mem::replace(&mut self.state, State::Empty) {
            State::Captured(mut captured) => captured.discard(self.runtime.ready()?),
            State::Empty | State::Capturing(_) => Ok(()),
        }
    }

    /// Name of the graph's memory pool, for other graphs to share. Graphs that share one must be replayed in the order
    /// they were captured in, and not at the same time.
    ///
    /// # Errors
    /// Nothing was captured.
    pub fn pool(&self) -> Result<PoolId> {
        match &self.state {
            State::Captured(captured) => Ok(captured.pool),
            State::Empty | State::Capturing(_) => Err(Error::PoolWithoutCapture),
        }
    }

    /// Number of nodes that were captured; 0 before. A graph of no nodes usually means that the work went to another
    /// stream or device.
    #[must_use]
    pub fn node_count(&self) -> usize {
        match &self.state {
            State::Captured(captured) => captured.node_count,
            State::Empty | State::Capturing(_) => 0,
        }
    }

    /// Whether a capture is under way.
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        matches!(self.state, State::Capturing(_))
    }
}

/// Begins a capture and returns its number; on an error nothing is capturing.
fn begin(ready: &Ready, stream: StreamRef, mode: CaptureMode) -> Result<u64> {
    ready.api.begin_capture(stream, mode)?;
    let id = ready.api.capture_id(stream).and_then(|id| id.ok_or(Error::InvalidCapture));
    if id.is_err() {
        let ended = ready.api.end_capture(stream);
        let _ = ended.map(|graph| graph.map(|graph| ready.destroy(Doomed::Graph(graph))));
    }
    id
}

/// Ends the routing to a pool that no graph came of, and releases the pool.
fn close_pool(ready: &Ready, device: DeviceIndex, pool: PoolId) {
    // Neither can fail: the pool was begun on this device and not ended since.
    let _ = ready.allocator.end_allocate_to_pool(device, pool);
    let _ = ready.allocator.release_pool(device, pool);
}

impl Captured {
    /// What is left to do when the driver has made the graph.
    fn complete(&mut self, ready: &Ready, keep_graph: bool) -> Result<()> {
        if let Some(graph) = self.graph {
            self.node_count = ready.api.graph_node_count(graph)?;
        }
        if keep_graph {
            return Ok(());
        }
        self.instantiate(ready)?;
        self.graph.take().map_or(Ok(()), |graph| ready.destroy(Doomed::Graph(graph)))
    }

    fn instantiate(&mut self, ready: &Ready) -> Result<()> {
        let graph = self.graph.ok_or(Error::InstantiateWithoutCapture)?;
        let _relaxed = ready.relaxed()?;
        ready.api.bind(self.device)?;
        let exec = ready.api.graph_instantiate(graph)?;
        match self.exec.replace(exec) {
            Some(old) => ready.destroy(Doomed::GraphExec(old)),
            None => Ok(()),
        }
    }

    /// Gives everything up; goes on after an error and returns the first.
    fn discard(&mut self, ready: &Ready) -> Result<()> {
        let _relaxed = ready.relaxed();
        let exec = self.exec.take().map_or(Ok(()), |exec| ready.destroy(Doomed::GraphExec(exec)));
        let graph = self.graph.take().map_or(Ok(()), |graph| ready.destroy(Doomed::Graph(graph)));
        let pool = ready.allocator.release_pool(self.device, self.pool);
        let kept = self.hold_for_replays(ready);
        exec.and(graph).and(pool).and(kept)
    }

    /// Hands what the graph kept over to the streams that may still be replaying it.
    fn hold_for_replays(&mut self, ready: &Ready) -> Result<()> {
        let kept = std::mem::take(&mut self.kept);
        if kept.is_empty() {
            return Ok(());
        }
        let kept: Held = Arc::new(kept);
        let streams = std::mem::take(&mut self.replayed_on).into_iter();
        let each = streams.map(|stream| ready.holds.hold(&ready.api, stream, Arc::clone(&kept)));
        let held = each.fold(Ok(()), Result::and);
        ready.sweep();
        held
    }
}

/// A capture under way on a stream that is current meanwhile; torch's `torch.cuda.graph`.
///
/// Dropping it ends the capture; during a panic what was captured is given up.
#[must_use = "the capture lasts only while the guard lives"]
#[derive(Debug)]
pub struct GraphCapture<'a> {
    graph: &'a mut CUDAGraph,
    _current: StreamGuard,
}

impl GraphCapture<'_> {
    /// Ends the capture.
    ///
    /// # Errors
    /// As for [`CUDAGraph::capture_end`].
    pub fn end(self) -> Result<()> {
        self.graph.finish_capture()
    }

    /// Ends the capture and gives up what was captured.
    fn discard(self) {
        // The error that led here says more than one from ending a capture that nobody wants.
        let _ = self.graph.reset();
    }
}

impl Drop for GraphCapture<'_> {
    fn drop(&mut self) {
        if self.graph.is_capturing() {
            // Whoever wants the error calls `end`; a replay will say that nothing was captured.
            let _ = if std::thread::panicking() { self.graph.reset() } else { self.graph.finish_capture() };
        }
    }
}

impl Default for CUDAGraph {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CUDAGraph {
    fn drop(&mut self) {
        if !process::in_bad_fork() {
            // There is nobody to tell; what the graph held is given up either way.
            let _ = self.reset();
        }
    }
}

impl fmt::Debug for CUDAGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Empty => "empty",
            State::Capturing(_) => "capturing",
            State::Captured(_) => "captured",
        };
        let nodes = self.node_count();
        f.debug_struct("CUDAGraph").field("state", &state).field("nodes", &nodes).finish_non_exhaustive()
    }
}
