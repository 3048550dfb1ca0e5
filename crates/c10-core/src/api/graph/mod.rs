//! CUDA graphs: work that is recorded once and replayed as one.
//!
//! Reading order: this file ([`CUDAGraph`], whose functions decide by its state), `scope` and `conditional` (what can
//! be recorded), `fallback` (capture, or do the work at once), `capture` (from begin to end), `captured` (the result:
//! replay, update, dump), then what these use: `generator` (random numbers) and `report`.
//!
//! **Invariants:** allocations made on the capturing streams come from the graph's private pool, and that pool, the
//! pinned memory and the buffers that captured copies use live until the graph is reset or dropped. However a capture
//! ends, in order, by an error or by a panic, the stream stops capturing, the routing to the pool ends and, unless
//! there is a graph, the pool is released.

mod capture;
mod captured;
mod conditional;
mod fallback;
mod generator;
pub(crate) mod replays;
mod report;
mod scope;

pub use conditional::Condition;
pub use fallback::CaptureOutcome;
pub use generator::GeneratorState;
pub use replays::graph_replays;
pub use report::GraphReport;
pub use scope::{CaptureScope, GraphCapture};

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::api::arg::StreamArg;
use crate::api::stream::Stream;
use crate::base::error::{Error, GraphError, Result};
use crate::base::handles::CaptureMode;
use crate::base::ids::PoolId;
use crate::base::process;
use crate::base::warning::warning;
use crate::runtime::Runtime;
use crate::thread::pending::PuttingOff;
use capture::{Capturing, Ended};
use captured::Captured;
use generator::Generators;

/// What torch says when a graph is to be written that was not kept.
const NO_DEBUG: &str = "CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()";

/// A graph of work; torch's `CUDAGraph`. Captures once, then replays until it is reset.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Stream};
///
/// let (mut graph, stream, buffer) = (CUDAGraph::new(), Stream::new(None, 0)?, DeviceBuffer::new(4, None)?);
/// graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(.., 7, &stream))?;
/// assert_eq!((graph.node_count(), format!("{graph:?}")), (1, "CUDAGraph { captured, 1 nodes }".to_owned()));
/// graph.replay()?;
/// assert_eq!(buffer.to_vec()?, [7; 4]);
/// # Ok::<(), c10_core::Error>(())
/// ```
pub struct CUDAGraph {
    runtime: Runtime,
    keep_graph: bool,
    generators: Generators,
    state: State,
}

enum State {
    Empty,
    Capturing(Capturing),
    Captured(Captured),
}

impl CUDAGraph {
    /// An empty graph of the current runtime. Makes no driver call.
    #[must_use]
    pub fn new() -> Self {
        Self::on(&Runtime::current(), false)
    }

    /// An empty graph of the current runtime that keeps the captured graph beside its executable form. The first replay
    /// or [`Self::instantiate`] makes the executable form. Makes no driver call.
    #[must_use]
    pub fn with_keep_graph() -> Self {
        Self::on(&Runtime::current(), true)
    }

    /// An empty graph of a runtime. With `keep_graph` the captured graph is kept beside its executable form, and the
    /// first replay or [`Self::instantiate`] makes the executable form. Makes no driver call.
    #[must_use]
    pub fn on(runtime: &Runtime, keep_graph: bool) -> Self {
        Self { runtime: runtime.clone(), keep_graph, generators: Generators::default(), state: State::Empty }
    }

    /// Registers the state of a random number generator: captures and replays advance it as long as this graph object
    /// lives. A state that is registered already is not registered twice.
    ///
    /// # Errors
    /// The graph is capturing ([`crate::GraphError::GeneratorDuringCapture`]) or has captured already.
    pub fn register_generator_state(&mut self, state: Arc<dyn GeneratorState>) -> Result<()> {
        match &self.state {
            State::Empty => {
                self.generators.register(state);
                Ok(())
            }
            State::Capturing(_) => Err(Error::Graph(GraphError::GeneratorDuringCapture)),
            State::Captured(_) => Err(Error::Graph(GraphError::AlreadyCaptured)),
        }
    }

    /// Begins a capture: work that is queued on the current stream, or on a stream that comes to depend on it, is
    /// recorded and not run. Memory allocated on those streams comes from `pool`, or for `None` from a pool of this
    /// graph's own.
    ///
    /// # Errors
    /// The graph has captured already, the current stream is the default one or capturing, a capture under way allocates
    /// from the same pool, a registered generator's error, or the driver's.
    pub fn capture_begin(&mut self, pool: Option<PoolId>, mode: CaptureMode) -> Result<()> {
        PuttingOff::settle("a capture begins");
        match &self.state {
            State::Empty => {}
            State::Capturing(_) => return Err(Error::Graph(GraphError::IsCapturing)),
            State::Captured(_) => return Err(Error::Graph(GraphError::AlreadyCaptured)),
        }
        self.state = State::Capturing(Capturing::begin(&self.runtime, &self.generators, pool, mode)?);
        Ok(())
    }

    /// Ends the capture that [`Self::capture_begin`] began. After an error the capture is over as well and the graph
    /// can capture again, unless another stream is current or the driver refused to end the capture.
    ///
    /// # Errors
    /// No capture is under way, another stream is current, something forbidden was done during the capture, or the
    /// driver's error.
    pub fn capture_end(&mut self) -> Result<()> {
        let State::Capturing(capturing) = &self.state else { return Err(Error::Graph(GraphError::NotCapturing)) };
        if self.runtime.streams().current(self.runtime.current_device()?)? != capturing.stream {
            return Err(Error::Graph(GraphError::EndedOnOtherStream));
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
        let span = tracing::debug_span!("capture", device = stream.device_index()).entered();
        let current = self.runtime.streams().guard(stream)?;
        self.capture_begin(pool, mode)?;
        Ok(GraphCapture { graph: self, stream: stream.clone(), _current: current, _span: span })
    }

    /// Captures the work that `body` queues on `stream`, which is the current stream meanwhile. The capture ends
    /// however `body` ends; after an error or a panic the graph is empty.
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
        self.record(stream, pool, mode, |_| body())
    }

    /// Captures the work that `body` records with the scope it is given. The scope offers only what a capture allows.
    /// Otherwise as [`Self::capture`].
    ///
    /// # Errors
    /// As for [`Self::capture`].
    pub fn record<T, E: From<Error>>(
        &mut self,
        stream: &Stream,
        pool: Option<PoolId>,
        mode: CaptureMode,
        body: impl FnOnce(&CaptureScope<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let capture = self.capture_guard(stream, pool, mode)?;
        match body(&capture.scope()) {
            Ok(value) => capture.end().map(|()| value).map_err(E::from),
            Err(error) => {
                capture.discard();
                Err(error)
            }
        }
    }

    /// Ends the capture on the stream it began on, whatever is current.
    fn finish_capture(&mut self) -> Result<()> {
        let ready = self.runtime.ready()?;
        let capturing = match std::mem::replace(&mut self.state, State::Empty) {
            State::Capturing(capturing) => capturing,
            other @ (State::Empty | State::Captured(_)) => {
                self.state = other;
                return Err(Error::Graph(GraphError::NotCapturing));
            }
        };
        let mut captured = match capturing.end(ready) {
            Ended::Over(ended) => ended?,
            Ended::GoesOn(capturing, error) => {
                self.state = State::Capturing(capturing);
                return Err(error);
            }
        };
        if let Err(error) = captured.complete(ready, self.keep_graph, self.runtime.graph_debug()) {
            // The error that led here says more.
            let _ = captured.discard(ready);
            return Err(error);
        }
        self.state = State::Captured(captured);
        Ok(())
    }

    fn captured(&mut self, call: &'static str) -> Result<&mut Captured> {
        match &mut self.state {
            State::Captured(captured) => Ok(captured),
            State::Empty | State::Capturing(_) => Err(Error::Graph(GraphError::WithoutCapture { call })),
        }
    }

    /// Makes the executable form anew. Only for graphs made with `keep_graph`; other graphs make it at the end of the
    /// capture.
    ///
    /// # Errors
    /// Nothing was captured, the graph was made without `keep_graph`, or the driver's error.
    pub fn instantiate(&mut self) -> Result<()> {
        let State::Captured(captured) = &mut self.state else {
            return Err(Error::Graph(GraphError::InstantiateWithoutCapture));
        };
        if !self.keep_graph {
            return Err(Error::Graph(GraphError::InstantiateByUser));
        }
        captured.instantiate(self.runtime.ready()?).map(|_| ())
    }

    /// Moves what a replay needs to the device now, in the order of `stream` (the current one for `None`), so that the first
    /// replay does not have to. Makes the executable form if need be.
    ///
    /// # Errors
    /// Nothing was captured, the stream belongs to another runtime or captures, or the driver's error.
    pub fn upload(&mut self, stream: impl StreamArg) -> Result<()> {
        let runtime = self.runtime.clone();
        let captured = self.captured("upload")?;
        let stream = stream.resolve(&runtime)?;
        runtime.check_same(stream.runtime(), "stream")?;
        captured.upload(runtime.ready()?, stream.reference())
    }

    /// Queues the whole graph on the current stream of the device it was captured on. Returns before it is done.
    ///
    /// # Errors
    /// Nothing was captured, a registered generator's error, or the driver's.
    #[inline]
    pub fn replay(&mut self) -> Result<()> {
        PuttingOff::settle("a CUDA graph is launched");
        match &mut self.state {
            State::Captured(captured) => captured.replay(&self.runtime),
            State::Empty | State::Capturing(_) => Err(Error::Graph(GraphError::ReplayWithoutCapture)),
        }
    }

    /// Updates the executable form with the parameters of another graph that was captured since and has the same shape,
    /// which is cheaper than making it anew. This graph takes over the memory pool of the other and everything that it
    /// keeps alive; the other is empty afterwards.
    ///
    /// # Errors
    /// [`crate::GraphError::Update`] when the graphs do not fit each other; one of them has captured nothing, the other
    /// was made without `keep_graph` ([`crate::GraphError::NotKept`]) or captured on another device
    /// ([`crate::GraphError::Device`]); the driver's error. Both graphs are then as they were. An error from freeing
    /// what the update replaced is returned after the update was made.
    pub fn update(&mut self, newer: &mut Self) -> Result<()> {
        self.runtime.check_same(&newer.runtime, "graph")?;
        let ready = self.runtime.ready()?;
        let State::Captured(captured) = &mut self.state else {
            return Err(Error::Graph(GraphError::WithoutCapture { call: "update" }));
        };
        let taken = newer.captured("update")?;
        if taken.device != captured.device {
            return Err(Error::Graph(GraphError::Device { device: captured.device, graph: taken.device }));
        }
        captured.check_update(ready, taken)?;
        match std::mem::replace(&mut newer.state, State::Empty) {
            State::Captured(taken) => captured.become_updated(ready, taken, self.keep_graph),
            State::Empty | State::Capturing(_) => Ok(()),
        }
    }

    /// Discards what was captured, so that the graph can capture again. Ends a capture under way. Memory that the
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
            State::Empty | State::Capturing(_) => Err(Error::Graph(GraphError::PoolWithoutCapture)),
        }
    }

    /// From now on all graphs of this runtime keep the captured graph until [`Self::debug_dump`] has written it once,
    /// also without `keep_graph`. Makes no driver call.
    pub fn enable_debug_mode(&self) {
        self.runtime.enable_graph_debug();
    }

    /// Writes everything about the captured graph into a file that Graphviz reads. Returns whether there was anything
    /// to write. Needs `keep_graph`, or debug mode during the capture, when the graph can be written once. Without both
    /// there is only a warning.
    ///
    /// # Errors
    /// The path cannot be given to the driver ([`crate::GraphError::PathWithNul`]), or the driver's error.
    pub fn debug_dump(&mut self, debug_path: impl AsRef<Path>) -> Result<bool> {
        if !(self.keep_graph || self.runtime.graph_debug()) {
            warning!("{NO_DEBUG}");
            return Ok(false);
        }
        match &mut self.state {
            State::Captured(captured) => captured.dump(self.runtime.ready()?, debug_path.as_ref(), self.keep_graph),
            State::Empty | State::Capturing(_) => Ok(false),
        }
    }

    /// The captured graph's CUDA handle (`CUgraph`) as a number. An escape hatch: whoever passes it to the driver is
    /// responsible for what happens. It is valid until this graph is reset, updated or dropped.
    ///
    /// # Errors
    /// The graph was made without `keep_graph`, or nothing was captured.
    pub fn raw_cuda_graph(&self) -> Result<usize> {
        if !self.keep_graph {
            return Err(Error::Graph(GraphError::RawGraphNotKept));
        }
        match &self.state {
            State::Captured(Captured { template: Some(graph), .. }) => Ok(graph.0),
            State::Empty | State::Capturing(_) | State::Captured(_) => {
                Err(Error::Graph(GraphError::RawGraphWithoutCapture))
            }
        }
    }

    /// The executable form's CUDA handle (`CUgraphExec`) as a number. An escape hatch: whoever passes it to the driver
    /// is responsible for what happens. It is valid until this graph is reset, instantiated anew or dropped.
    ///
    /// # Errors
    /// There is no executable form yet.
    pub fn raw_cuda_graph_exec(&self) -> Result<usize> {
        match &self.state {
            State::Captured(Captured { exec: Some(exec), .. }) => Ok(exec.0),
            State::Empty | State::Capturing(_) | State::Captured(_) => {
                Err(Error::Graph(GraphError::RawExecWithoutInstantiate))
            }
        }
    }

    /// What the graph holds: its nodes, its memory and what it keeps alive.
    ///
    /// # Errors
    /// Nothing was captured, or the driver's error.
    pub fn report(&self) -> Result<GraphReport> {
        let State::Captured(captured) = &self.state else {
            return Err(Error::Graph(GraphError::WithoutCapture { call: "report" }));
        };
        GraphReport::of(self.runtime.ready()?, captured)
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

impl Default for CUDAGraph {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CUDAGraph {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        if let Err(error) = self.reset() {
            // What the graph held is given up all the same, or tried again later.
            warning!("a graph was dropped: {error}");
        }
        if let (State::Capturing(capturing), Ok(ready)) =
            (std::mem::replace(&mut self.state, State::Empty), self.runtime.ready())
        {
            capturing.abandon(ready);
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
        write!(f, "CUDAGraph {{ {state}, {nodes} nodes }}")
    }
}
