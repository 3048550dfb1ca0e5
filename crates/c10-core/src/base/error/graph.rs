//! Words for the nodes of a graph, and for why an executable graph could not be updated.

use std::fmt;
use std::path::PathBuf;

use cuda_sys::driver::types::CUgraphExecUpdateResult;

use crate::base::device::DeviceIndex;

/// Why a graph could not be captured, changed or replayed.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, Error, GraphError};
///
/// let refused = CUDAGraph::new().replay().unwrap_err();
/// assert_eq!(refused, Error::Graph(GraphError::ReplayWithoutCapture));
/// assert_eq!(refused.to_string(), "Called CUDAGraph::replay without a preceding successful capture.");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The graph object has captured already and was not reset.
    #[error("This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance.")]
    AlreadyCaptured,
    /// The graph object is capturing.
    #[error("This CUDAGraph instance is capturing; end that capture first.")]
    IsCapturing,
    /// The graph object is not capturing.
    #[error("capture_end() called without a preceding capture_begin()")]
    NotCapturing,
    /// Capture was asked for on the default stream.
    #[error(
        "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the default stream.)"
    )]
    OnDefaultStream,
    /// The capture was ended while another stream was current.
    #[error("Capture must end on the same stream it began on.")]
    EndedOnOtherStream,
    /// The driver gave no graph at the end of the capture.
    #[error("Invalid capture.")]
    InvalidCapture,
    /// A text that names no capture mode.
    #[error("Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {text}")]
    UnknownMode {
        /// The text.
        text: String,
    },
    /// A graph was to be replayed that has captured nothing.
    #[error("Called CUDAGraph::replay without a preceding successful capture.")]
    ReplayWithoutCapture,
    /// The memory pool of a graph that has captured nothing was asked for.
    #[error("Called CUDAGraph::pool() without a preceding successful capture.")]
    PoolWithoutCapture,
    /// A graph was to be instantiated that has captured nothing.
    #[error("capture_end() must have been called before calling instantiate")]
    InstantiateWithoutCapture,
    /// Instantiation by hand of a graph that instantiates itself.
    #[error("instantiate() is intended to be called by the user only when keep_graph=true")]
    InstantiateByUser,
    /// A call that needs a captured graph, on a graph object that has captured nothing.
    #[error("Called CUDAGraph::{call}() without a preceding successful capture.")]
    WithoutCapture {
        /// The function.
        call: &'static str,
    },
    /// Two graphs were to be joined that were captured on different devices.
    #[error("the graph was captured on device {graph}, but device {device} was expected")]
    Device {
        /// The device expected.
        device: DeviceIndex,
        /// The graph's device.
        graph: DeviceIndex,
    },
    /// The driver's graph was to be used, but the graph object destroyed it after it was instantiated.
    #[error("the captured graph was given up when it was instantiated; make the CUDAGraph with keep_graph=true")]
    NotKept,
    /// The driver's graph was asked for, but the graph object destroys it after it is instantiated.
    #[error("You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true")]
    RawGraphNotKept,
    /// The driver's graph was asked for before there is one.
    #[error("You cannot access the raw cudaGraph_t instance until capture_end() has been called")]
    RawGraphWithoutCapture,
    /// The executable graph was asked for before there is one.
    #[error("You cannot access the raw cudaGraphExec_t instance until instantiate() has been called")]
    RawExecWithoutInstantiate,
    /// A generator was to be registered with a graph that is capturing.
    #[error("Cannot register the state during capturing stage.")]
    GeneratorDuringCapture,
    /// A graph that draws random numbers was to become a part of another, which would repeat its numbers.
    #[error("a graph that draws random numbers cannot be added to another graph")]
    ChildDraws,
    /// A condition was to be used by another capture than that which made it, or by a node in another body.
    #[error("the condition belongs to another scope of a capture")]
    ConditionOfOtherScope,
    /// A condition was to be set to a number whose address is no multiple of its size.
    #[error("a condition is set to a number at a multiple of 4 bytes, but offset {offset} was given")]
    UnalignedCondition {
        /// Where the number is in its buffer.
        offset: usize,
    },
    /// An executable graph could not take over a newly captured one.
    #[error(transparent)]
    Update(Box<GraphUpdateError>),
    /// A path that the driver cannot be given, since it ends texts at a NUL.
    #[error("the path {} has a NUL inside", path.display())]
    PathWithNul {
        /// The path.
        path: PathBuf,
    },
    /// Memory of the host that is not pinned cannot take part in a graph: nobody keeps it alive until the replay.
    #[error(
        "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU memory is a pinned buffer."
    )]
    UnpinnedCopy,
}

/// What a node of a graph does (`CUgraphNodeType`).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, GraphNodeKind, Stream};
///
/// let (mut graph, stream, buffer) = (CUDAGraph::with_keep_graph(), Stream::new(None, 0)?, DeviceBuffer::new(4, None)?);
/// graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(.., 7, &stream))?;
/// let kinds = graph.report()?.nodes.expect("the graph was kept");
/// assert_eq!(kinds[&GraphNodeKind::Memset], 1);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum GraphNodeKind {
    /// Runs a kernel.
    Kernel,
    /// Copies memory.
    Memcpy,
    /// Sets memory.
    Memset,
    /// Calls a function of the host.
    Host,
    /// Runs another graph.
    Graph,
    /// Does nothing but order.
    Empty,
    /// Waits for an event.
    WaitEvent,
    /// Records an event.
    EventRecord,
    /// Signals semaphores of other interfaces.
    SemaphoresSignal,
    /// Waits for semaphores of other interfaces.
    SemaphoresWait,
    /// Allocates memory of the driver's pools.
    MemAlloc,
    /// Frees such memory.
    MemFree,
    /// Writes or waits for values in memory.
    BatchMemOp,
    /// Runs its body depending on a value.
    Conditional,
    /// Something that a newer driver knows, by its number.
    Other(u32),
}

impl From<u32> for GraphNodeKind {
    fn from(number: u32) -> Self {
        const KINDS: [GraphNodeKind; 14] = [
            GraphNodeKind::Kernel,
            GraphNodeKind::Memcpy,
            GraphNodeKind::Memset,
            GraphNodeKind::Host,
            GraphNodeKind::Graph,
            GraphNodeKind::Empty,
            GraphNodeKind::WaitEvent,
            GraphNodeKind::EventRecord,
            GraphNodeKind::SemaphoresSignal,
            GraphNodeKind::SemaphoresWait,
            GraphNodeKind::MemAlloc,
            GraphNodeKind::MemFree,
            GraphNodeKind::BatchMemOp,
            GraphNodeKind::Conditional,
        ];
        let known = usize::try_from(number).ok().and_then(|number| KINDS.get(number));
        known.copied().unwrap_or(Self::Other(number))
    }
}

impl fmt::Display for GraphNodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A node of a captured graph.
///
/// ```
/// use c10_core::{GraphNode, GraphNodeKind};
///
/// let node = GraphNode { index: Some(3), kind: GraphNodeKind::Kernel };
/// assert_eq!(node.to_string(), "node 3 (Kernel)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphNode {
    /// Its place among the graph's nodes in the order of their capture, from 0; `None` for a node of a child graph.
    pub index: Option<usize>,
    /// What it does.
    pub kind: GraphNodeKind,
}

impl fmt::Display for GraphNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "node {index} ({})", self.kind),
            None => write!(f, "a node of a child graph ({})", self.kind),
        }
    }
}

/// What about a new graph does not fit an executable one (`CUgraphExecUpdateResult`).
///
/// ```
/// use c10_core::GraphUpdateFailure;
///
/// assert_eq!(GraphUpdateFailure::TopologyChanged.to_string(), "it has other nodes or edges");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GraphUpdateFailure {
    /// The driver does not say.
    Unspecified,
    /// There are other nodes or edges. Drivers before CUDA 12 call this "not supported".
    TopologyChanged,
    /// A node does something else.
    NodeTypeChanged,
    /// A node runs another kernel, and the driver cannot change that.
    FunctionChanged,
    /// A node's parameters changed in a way that the driver does not allow.
    ParametersChanged,
    /// Something about a node cannot be changed.
    NotSupported,
    /// A node runs another kernel of a kind that it cannot change to.
    UnsupportedFunctionChange,
    /// A node's attributes changed in a way that the driver does not allow.
    AttributesChanged,
    /// Something that a newer driver knows, by its number.
    Other(u32),
}

impl From<u32> for GraphUpdateFailure {
    fn from(number: u32) -> Self {
        use CUgraphExecUpdateResult as Code;
        match CUgraphExecUpdateResult(number) {
            Code::CU_GRAPH_EXEC_UPDATE_ERROR => Self::Unspecified,
            Code::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED => Self::TopologyChanged,
            Code::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED => Self::NodeTypeChanged,
            Code::CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED => Self::FunctionChanged,
            Code::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED => Self::ParametersChanged,
            Code::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED => Self::NotSupported,
            Code::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE => Self::UnsupportedFunctionChange,
            Code::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED => Self::AttributesChanged,
            _ => Self::Other(number),
        }
    }
}

impl fmt::Display for GraphUpdateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "the driver gives no reason",
            Self::TopologyChanged => "it has other nodes or edges",
            Self::NodeTypeChanged => "a node is of another kind",
            Self::FunctionChanged | Self::UnsupportedFunctionChange => "a node runs another kernel",
            Self::ParametersChanged => "a node's parameters changed too much",
            Self::NotSupported => "the driver cannot change this",
            Self::AttributesChanged => "a node's attributes changed",
            Self::Other(number) => return write!(f, "the driver's reason {number}"),
        })
    }
}

/// An executable graph could not take over a newly captured one. It stays as it was.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Error, GraphError, GraphUpdateFailure, Stream};
///
/// let (stream, buffer) = (Stream::new(None, 0)?, DeviceBuffer::new(4, None)?);
/// let capture = |fills| {
///     let mut graph = CUDAGraph::with_keep_graph();
///     let fill = || (0..fills).try_for_each(|_| buffer.fill(.., 7, &stream));
///     graph.capture(&stream, None, CaptureMode::Global, fill).map(|()| graph)
/// };
/// let Err(Error::Graph(GraphError::Update(refused))) = capture(1)?.update(&mut capture(2)?) else { panic!() };
/// assert_eq!(refused.reason, GraphUpdateFailure::TopologyChanged);
/// println!("{refused}");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GraphUpdateError {
    /// What does not fit.
    pub reason: GraphUpdateFailure,
    /// The node of the new graph that does not fit, where it is one.
    pub node: Option<GraphNode>,
    /// The node that an edge to [`Self::node`] comes from, where that edge does not fit.
    pub from: Option<GraphNode>,
}

impl fmt::Display for GraphUpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the executable graph cannot be updated with the new graph: {}", self.reason)?;
        self.node.map_or(Ok(()), |node| write!(f, ", at {node}"))?;
        self.from.map_or(Ok(()), |from| write!(f, ", in the edge from {from}"))
    }
}

impl std::error::Error for GraphUpdateError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_newer_drivers_are_kept() {
        assert_eq!(GraphNodeKind::from(4), GraphNodeKind::Graph);
        assert_eq!(GraphNodeKind::from(13), GraphNodeKind::Conditional);
        assert_eq!(GraphNodeKind::from(77), GraphNodeKind::Other(77));
        assert_eq!(GraphUpdateFailure::from(2), GraphUpdateFailure::TopologyChanged);
        assert_eq!(GraphUpdateFailure::from(99), GraphUpdateFailure::Other(99));
    }

    #[test]
    fn an_update_that_failed_names_the_node() {
        let node = |index| Some(GraphNode { index, kind: GraphNodeKind::Memset });
        let error =
            GraphUpdateError { reason: GraphUpdateFailure::ParametersChanged, node: node(Some(3)), from: node(None) };
        assert_eq!(
            error.to_string(),
            "the executable graph cannot be updated with the new graph: a node's parameters changed too much, at node 3 \
             (Memset), in the edge from a node of a child graph (Memset)"
        );
    }
}
