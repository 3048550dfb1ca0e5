//! Random number generators in graphs.
//!
//! Work that a graph repeats must draw new numbers each time, so captured work reads a generator's seed and offset from
//! the device, where each replay writes them first. The generator decides what is written; a graph only tells it when.
//!
//! **Invariant:** each prologue of a capture is followed by exactly one epilogue, also when the capture fails or a
//! generator does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::api::stream::Stream;
use crate::base::error::{Error, GraphError, Result};
use crate::runtime::Runtime;
use crate::sync::Mutex;

/// The state of a random number generator that captured work draws from; torch's `CUDAGeneratorState`, as a graph sees
/// it.
///
/// A state may be registered with several graphs. Its functions are called by the thread that captures or replays.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, GeneratorState, Result, Stream};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// #[derive(Default)]
/// struct Offset(AtomicU64);
/// impl GeneratorState for Offset {
///     fn capture_prologue(&self, _: &Stream) -> Result<()> { Ok(()) }
///     fn capture_epilogue(&self) -> u64 { 4 }
///     fn replay_prologue(&self, increment: u64, _: &Stream) -> Result<()> {
///         self.0.fetch_add(increment, Ordering::Relaxed);
///         Ok(())
///     }
/// }
/// let (mut graph, stream, offset) = (CUDAGraph::new(), Stream::new(None, 0)?, Arc::new(Offset::default()));
/// let buffer = DeviceBuffer::new(4, None)?;
/// graph.register_generator_state(offset.clone())?;
/// graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(.., 7, &stream))?;
/// (graph.replay()?, graph.replay()?);
/// assert_eq!(offset.0.load(Ordering::Relaxed), 8);
/// # Ok::<(), c10_core::Error>(())
/// ```
pub trait GeneratorState: Send + Sync {
    /// A capture is about to begin on `stream`, which is not capturing yet, or is under way there and the state joins
    /// it: from now on work counts its place in the
    /// sequence from the begin of the graph, and reads the rest from the device.
    ///
    /// # Errors
    /// Any error keeps the capture from beginning; the epilogue is not called then.
    fn capture_prologue(&self, stream: &Stream) -> Result<()>;

    /// The capture is over. Returns how far one replay of the whole graph advances the generator; the number is ignored
    /// if the capture failed.
    fn capture_epilogue(&self) -> u64;

    /// A replay is about to be queued on `stream`. Queues on that stream what tells the device where the generator
    /// stands, and advances the generator by `whole_graph_increment`. For 0 nothing needs to be written.
    ///
    /// # Errors
    /// Any error keeps the replay from being queued.
    fn replay_prologue(&self, whole_graph_increment: u64, stream: &Stream) -> Result<()>;
}

/// The states registered with a graph.
#[derive(Clone, Default)]
pub(crate) struct Generators(Vec<Arc<dyn GeneratorState>>);

impl Generators {
    /// Adds a state that is not there yet.
    pub(crate) fn register(&mut self, state: Arc<dyn GeneratorState>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, &state)) {
            self.0.push(state);
        }
    }

    /// Tells every state that a capture begins.
    pub(crate) fn prologue(&self, stream: &Stream) -> Result<Prepared> {
        let mut prepared = Prepared(Vec::with_capacity(self.0.len()));
        for state in &self.0 {
            state.capture_prologue(stream)?;
            prepared.0.push(Arc::clone(state));
        }
        Ok(prepared)
    }
}

/// States that joined captures under way, by the driver's number of the capture.
#[derive(Default)]
pub(crate) struct Joined(Mutex<BTreeMap<u64, Vec<Arc<dyn GeneratorState>>>>);

impl Joined {
    fn add(&self, capture: u64, state: Arc<dyn GeneratorState>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(capture).or_default().push(state);
    }

    fn take(&self, capture: u64) -> Vec<Arc<dyn GeneratorState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&capture).unwrap_or_default()
    }
}

impl Stream {
    /// The driver's number of the capture that the stream takes part in.
    ///
    /// # Errors
    /// The driver's error.
    pub fn capture_id(&self) -> Result<Option<u64>> {
        let ready = self.runtime().ready()?;
        Ok(ready.captures.of(&ready.api, self.reference())?.map(|capture| capture.id))
    }

    /// Registers the state of a random number generator with the capture that the stream takes part in, as
    /// [`CUDAGraph::register_generator_state`](crate::CUDAGraph::register_generator_state) does before it begins. The
    /// state hears of the end of the capture, and of replays of the graph.
    ///
    /// # Errors
    /// The stream takes part in no capture that this runtime began, the state's own error, or the driver's.
    pub fn join_capture(&self, state: Arc<dyn GeneratorState>) -> Result<()> {
        let ready = self.runtime().ready()?;
        let capture = ready.captures.of(&ready.api, self.reference())?.filter(|capture| capture.is_own());
        let capture = capture.ok_or(Error::Graph(GraphError::NotCapturing))?;
        state.capture_prologue(self)?;
        self.runtime().extension::<Joined>().add(capture.id, state);
        Ok(())
    }
}

/// States that wait for the end of a capture. Dropped, they are told that it is over.
pub(crate) struct Prepared(Vec<Arc<dyn GeneratorState>>);

impl Prepared {
    /// Adds the states that joined the capture since it began.
    pub(crate) fn with_joined(mut self, runtime: &Runtime, capture: u64) -> Self {
        self.0.extend(runtime.extension::<Joined>().take(capture));
        self
    }

    /// Tells every state that the capture is over.
    pub(crate) fn epilogue(mut self) -> Increments {
        let states = std::mem::take(&mut self.0).into_iter();
        Increments(states.map(|state| (state.capture_epilogue(), state)).collect())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for state in &self.0 {
            // The capture came to nothing.
            let _ = state.capture_epilogue();
        }
    }
}

/// How far a replay advances each state.
#[derive(Default)]
pub(crate) struct Increments(Vec<(u64, Arc<dyn GeneratorState>)>);

impl Increments {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether captured work drew any numbers.
    pub(crate) fn draw(&self) -> bool {
        self.0.iter().any(|(increment, _)| *increment > 0)
    }

    /// Tells every state that a replay follows on a stream.
    pub(crate) fn prologue(&self, stream: &Stream) -> Result<()> {
        self.0.iter().try_for_each(|(increment, state)| state.replay_prologue(*increment, stream))
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prepared").field(&self.0.len()).finish()
    }
}
