//! Captures work where that is possible, and otherwise does it at once.
//!
//! **Invariant:** the work is done at once only where the capture itself is what failed, and never while the stream captures:
//! then it would be recorded into another graph.

use crate::api::graph::CUDAGraph;
use crate::api::stream::Stream;
use crate::base::error::{Error, GraphError, Result, RuntimeCause};
use crate::base::handles::CaptureMode;
use crate::base::ids::PoolId;

/// What [`CUDAGraph::capture_or_run`] did.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, CaptureOutcome, DeviceBuffer, Stream};
///
/// let (mut graph, stream, buffer) = (CUDAGraph::new(), Stream::new(None, 0)?, DeviceBuffer::new(4, None)?);
/// let outcome = graph.capture_or_run(&stream, None, CaptureMode::Global, || {
///     buffer.fill(.., 7, &stream)?;
///     stream.synchronize() // A capture forbids waiting.
/// })?;
/// assert!(matches!(outcome, CaptureOutcome::RanEagerly { .. }));
/// assert_eq!(buffer.to_vec()?, [7; 4]);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaptureOutcome<T, E = Error> {
    /// The work was captured and waits for a replay. Holds the value that the closure returned.
    Captured(T),
    /// The work was done at once, since it could not be captured; the graph is empty.
    RanEagerly {
        /// The value that the closure returned.
        value: T,
        /// Why nothing was captured.
        error: E,
    },
}

/// Why nothing was captured.
enum Failure<E> {
    /// It would not have happened without a capture.
    OfCapture(E),
    Other(E),
}

impl CUDAGraph {
    /// Captures what `body` queues on `stream` or, where that cannot be captured, lets `body` run once more on `stream`
    /// without a capture, so that the work is done either way. The next call tries to capture again.
    ///
    /// This happens only for failures that the capture itself caused: the driver cannot capture or instantiate, or the
    /// work does what a capture forbids. Any other error of `body` is returned, and the graph is empty then.
    ///
    /// # Errors
    /// The graph has captured already or is capturing, or what `body` returned.
    pub fn capture_or_run<T, E: RuntimeCause>(
        &mut self,
        stream: &Stream,
        pool: Option<PoolId>,
        mode: CaptureMode,
        mut body: impl FnMut() -> Result<T, E>,
    ) -> Result<CaptureOutcome<T, E>, E> {
        let error = match self.try_capture(stream, pool, mode, &mut body) {
            Ok(value) => return Ok(CaptureOutcome::Captured(value)),
            Err(Failure::OfCapture(error)) => error,
            Err(Failure::Other(error)) => return Err(error),
        };
        if self.is_capturing() || stream.is_capturing()? {
            // What would run now would be captured.
            return Err(error);
        }
        let _current = self.runtime.streams().guard(stream)?;
        Ok(CaptureOutcome::RanEagerly { value: body()?, error })
    }

    /// Captures once. An error says whether the capture caused it.
    fn try_capture<T, E: RuntimeCause>(
        &mut self,
        stream: &Stream,
        pool: Option<PoolId>,
        mode: CaptureMode,
        body: &mut impl FnMut() -> Result<T, E>,
    ) -> Result<T, Failure<E>> {
        let capture = match self.capture_guard(stream, pool, mode) {
            Ok(capture) => capture,
            Err(
                error @ (Error::Graph(GraphError::AlreadyCaptured)
                | Error::Graph(GraphError::IsCapturing)
                | Error::OtherRuntime { .. }),
            ) => {
                return Err(Failure::Other(error.into()));
            }
            Err(error) => return Err(Failure::OfCapture(error.into())),
        };
        match body() {
            Ok(value) => capture.end().map(|()| value).map_err(|error| Failure::OfCapture(error.into())),
            Err(error) => {
                let spoilt = capture.discard().is_some_and(|ended| ended.is_caused_by_capture());
                let of_capture = spoilt || error.runtime_cause().is_some_and(Error::is_caused_by_capture);
                Err(if of_capture { Failure::OfCapture(error) } else { Failure::Other(error) })
            }
        }
    }
}
