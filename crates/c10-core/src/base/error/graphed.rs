//! Why functions could not be captured into replayable callables.

use crate::base::device::DeviceIndex;
use crate::base::error::Error;

/// Why functions could not be captured together, or a callable not be called.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{GraphedCallable, GraphedOptions, Runtime};
///
/// let refused = GraphedCallable::make(&Runtime::current(), &[], &[&[]], &GraphedOptions::default()).unwrap_err();
/// assert_eq!(refused.to_string(), "0 callables with sample arguments for 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphedError {
    /// Each function needs its sample arguments.
    #[error("{callables} callables with sample arguments for {samples}")]
    Samples {
        /// Functions.
        callables: usize,
        /// Lists of arguments.
        samples: usize,
    },
    /// One buffer is two arguments, which could not be told apart by calls.
    #[error("sample arguments {first} and {second} of callable {callable} are the same memory")]
    SameMemory {
        /// Which function, counted from 0.
        callable: usize,
        /// The first of the arguments.
        first: usize,
        /// The second.
        second: usize,
    },
    /// A buffer is of another device than the others.
    #[error("buffer {index} is of device {found}, but the graph is of device {expected}")]
    Device {
        /// Which argument or result, counted from 0.
        index: usize,
        /// Device of the graph.
        expected: DeviceIndex,
        /// Device of the buffer.
        found: DeviceIndex,
    },
    /// A call with more or fewer arguments than the function was captured with.
    #[error("{found} arguments for a graph that was captured with {expected}")]
    ArgumentCount {
        /// Arguments of the capture.
        expected: usize,
        /// Arguments of the call.
        found: usize,
    },
    /// An argument of another size than the function was captured with.
    #[error("argument {index} has {found} bytes, but the graph was captured with {expected}")]
    ArgumentSize {
        /// Which one, counted from 0.
        index: usize,
        /// Bytes of the static input.
        expected: usize,
        /// Bytes of the argument.
        found: usize,
    },
}

impl From<GraphedError> for Error {
    fn from(error: GraphedError) -> Self {
        Self::Graphed(Box::new(error))
    }
}
