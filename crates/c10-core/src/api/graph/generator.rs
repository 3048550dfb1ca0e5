//! Random number generators in graphs.
//!
//! Work that a graph repeats must draw new numbers each time, so captured work reads a generator's seed and offset from
//! the device, where each replay writes them first. The generator decides what is written; a graph only tells it when.
//!
//! **Invariant:** each prologue of a capture is followed by exactly one epilogue, also when the capture fails or a
//! generator does.

use std::fmt;
use std::sync::Arc;

use crate::api::stream::Stream;
use crate::base::error::Result;

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
    /// A capture is about to begin on `stream`, which is not capturing yet: from now on work counts its place in the
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

/// States that wait for the end of a capture. Dropped, they are told that it is over.
pub(crate) struct Prepared(Vec<Arc<dyn GeneratorState>>);

impl Prepared {
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
