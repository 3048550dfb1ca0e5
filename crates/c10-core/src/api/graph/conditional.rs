//! Conditional nodes: parts of a graph that run, or run again, depending on a value on the device.
//!
//! **Invariants:** a body is recorded on a side stream, into a graph that the node owns; for the allocator, and for
//! what graphs keep alive, it is a part of the capture around it. However a body ends, also by an error or a panic, its
//! stream stops capturing before the capture around it goes on.

use std::fmt;
use std::marker::PhantomData;

use crate::api::buffers::DeviceBuffer;
use crate::api::graph::CaptureScope;
use crate::api::launch::launch_set_condition;
use crate::api::stream::Stream;
use crate::base::error::{Error, GraphError, Result};
use crate::base::handles::StreamRef;
use crate::base::process;
use crate::driver::{Api, ConditionHandle, ConditionalKind, GraphHandle, check_range};

/// A value on the device that a conditional node looks at. Made by [`CaptureScope::condition`].
///
/// It is set by kernels: by the one that [`CaptureScope::set_condition`] records, or by those of the program. In CUDA C++
/// a kernel calls `cudaGraphSetConditional(handle, value)`. In PTX it declares
/// `.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);` and calls that; the driver resolves
/// the name when the module is loaded, nothing has to be linked.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Stream};
///
/// let (mut graph, stream, side) = (CUDAGraph::new(), Stream::new(None, 0)?, Stream::new(None, 0)?);
/// let (flag, buffer) = (DeviceBuffer::from_slice(&[1_u32])?, DeviceBuffer::new(4, None)?);
/// graph.record(&stream, None, CaptureMode::Global, |scope| {
///     let condition = scope.condition(0)?;
///     scope.set_condition(condition, &flag, 0)?;
///     scope.if_node(condition, &side, |body| body.fill(&buffer, .., 7))
/// })?;
/// graph.replay()?;
/// assert_eq!(buffer.to_vec()?, [7; 4]);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "a condition that no node has keeps the graph from being instantiated"]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    handle: ConditionHandle,
    /// The number of the outermost capture.
    whole: u64,
}

impl Condition {
    /// The condition's CUDA handle (`CUgraphConditionalHandle`), to be given to kernels that set it.
    #[must_use]
    pub fn handle(&self) -> u64 {
        self.handle.number
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition {{ handle: {:#x} }}", self.handle())
    }
}

/// The capture of a body, which ends when this is dropped.
struct Body<'r> {
    api: &'r Api,
    /// The stream that captures the body, and that of the capture around it.
    streams: (StreamRef, StreamRef),
    number: u64,
    is_open: bool,
}

impl Body<'_> {
    fn end(mut self) -> Result<()> {
        self.is_open = false;
        self.api.end_body(self.streams, self.number)
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        if self.is_open && !process::in_bad_fork() {
            // The panic that led here ends the capture around it, which says more.
            let _ = self.api.end_body(self.streams, self.number);
        }
    }
}

impl CaptureScope<'_> {
    /// Makes a condition for one conditional node of this scope. Each replay begins with the value `default`.
    ///
    /// # Errors
    /// The driver is older than CUDA 12.3 ([`Error::Unavailable`]), or its error.
    pub fn condition(&self, default: u32) -> Result<Condition> {
        let (ready, stream) = (self.stream.ready()?, self.stream.reference());
        let whole = ready.api.stream_capture_id(stream)?.ok_or(Error::Graph(GraphError::InvalidCapture))?;
        Ok(Condition { handle: ready.api.capture_condition(stream, default)?, whole })
    }

    /// Records a kernel that sets a condition to the four bytes at `offset` of a buffer, as a number. In the body of a
    /// WHILE node this decides whether it runs again.
    ///
    /// # Errors
    /// The condition is of another capture ([`crate::GraphError::ConditionOfOtherScope`]), the bytes leave the buffer,
    /// `offset` is no multiple of 4 ([`crate::GraphError::UnalignedCondition`]), or the driver's error.
    pub fn set_condition(&self, condition: Condition, buffer: &DeviceBuffer, offset: usize) -> Result<()> {
        check_range(offset, size_of::<u32>(), buffer.len())?;
        if !buffer.at(offset).is_multiple_of(size_of::<u32>() as u64) {
            return Err(Error::Graph(GraphError::UnalignedCondition { offset }));
        }
        let (_, _, capture) = buffer.use_on(Some(self.stream))?;
        if capture.map(|capture| capture.id) != Some(condition.whole) {
            return Err(Error::Graph(GraphError::ConditionOfOtherScope));
        }
        launch_set_condition(self.runtime(), condition.handle(), buffer.at(offset), self.stream)
    }

    /// Records an IF node. `body` records on `side`, which is the current stream meanwhile. In a replay its work runs
    /// if the condition is not 0 when the node is reached. Later work of this stream comes after the node.
    ///
    /// A body may use memory of the graph, kernels, copies and sets on the device, forks and conditional nodes; not
    /// host functions and external events. `side` must not be used by a body that may run at the same time. If `body`
    /// fails and the capture goes on all the same, the work that it has recorded stays in the node.
    ///
    /// # Errors
    /// What `body` returned, else: the driver is older than CUDA 12.3 ([`Error::Unavailable`]), the condition is of
    /// another scope ([`crate::GraphError::ConditionOfOtherScope`]), `side` is the default stream, capturing, or of
    /// another device or runtime, or the driver's error, for example for a condition that a node has already.
    pub fn if_node<T, E: From<Error>>(
        &self,
        condition: Condition,
        side: &Stream,
        body: impl FnOnce(&CaptureScope<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut bodies = self.conditional(condition, ConditionalKind::If, 1, side)?.into_iter();
        self.next_body(&mut bodies, side, body)
    }

    /// Records an IF node with two bodies: `otherwise` runs if the condition is 0. Needs CUDA 12.8. Otherwise as
    /// [`Self::if_node`].
    ///
    /// # Errors
    /// As for [`Self::if_node`].
    pub fn if_else_node<T, U, E: From<Error>>(
        &self,
        condition: Condition,
        side: &Stream,
        then: impl FnOnce(&CaptureScope<'_>) -> Result<T, E>,
        otherwise: impl FnOnce(&CaptureScope<'_>) -> Result<U, E>,
    ) -> Result<(T, U), E> {
        let mut bodies = self.conditional(condition, ConditionalKind::If, 2, side)?.into_iter();
        let then = self.next_body(&mut bodies, side, then)?;
        Ok((then, self.next_body(&mut bodies, side, otherwise)?))
    }

    /// Records a WHILE node: the work that `body` records runs again and again as long as the condition is not 0, which
    /// is checked before each turn. A body that never sets it to 0 runs forever. Otherwise as [`Self::if_node`].
    ///
    /// # Errors
    /// As for [`Self::if_node`].
    pub fn while_node<T, E: From<Error>>(
        &self,
        condition: Condition,
        side: &Stream,
        body: impl FnOnce(&CaptureScope<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut bodies = self.conditional(condition, ConditionalKind::While, 1, side)?.into_iter();
        self.next_body(&mut bodies, side, body)
    }

    /// Records a SWITCH node with `count` bodies. In a replay the body runs whose number, counted from 0, is the value
    /// of the condition; none if there is no such body. `body` records each in turn. Needs CUDA 12.8. Otherwise as
    /// [`Self::if_node`].
    ///
    /// # Errors
    /// As for [`Self::if_node`]; the driver refuses a node without bodies.
    pub fn switch_node<T, E: From<Error>>(
        &self,
        condition: Condition,
        side: &Stream,
        count: u32,
        mut body: impl FnMut(u32, &CaptureScope<'_>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut bodies = self.conditional(condition, ConditionalKind::Switch, count, side)?.into_iter();
        (0..count).map(|index| self.next_body(&mut bodies, side, |scope| body(index, scope))).collect()
    }

    /// Adds the node and returns its bodies.
    fn conditional(
        &self,
        condition: Condition,
        kind: ConditionalKind,
        count: u32,
        side: &Stream,
    ) -> Result<Vec<GraphHandle>> {
        self.runtime().check_same(side.runtime(), "stream")?;
        let (stream, aside) = (self.stream.reference(), side.reference());
        if aside.device != stream.device {
            return Err(Error::Graph(GraphError::Device { device: stream.device, graph: aside.device }));
        }
        if side.is_default() {
            return Err(Error::Graph(GraphError::OnDefaultStream));
        }
        self.stream.ready()?.api.capture_conditional(stream, condition.handle, kind, count)
    }

    /// Records the next body of a node.
    fn next_body<T, E: From<Error>>(
        &self,
        bodies: &mut impl Iterator<Item = GraphHandle>,
        side: &Stream,
        body: impl FnOnce(&CaptureScope<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let graph = bodies.next().ok_or(Error::Graph(GraphError::InvalidCapture))?;
        let (ready, streams) = (self.stream.ready()?, (side.reference(), self.stream.reference()));
        let api = &ready.api;
        let whole = api.stream_capture_id(self.stream.reference())?.ok_or(Error::Graph(GraphError::InvalidCapture))?;
        let _streams = ready.captures.ask_again_after(whole);
        let number = api.begin_body(streams, graph, whole)?;
        let capture = Body { api, streams, number, is_open: true };
        let current = self.runtime().streams().guard(side)?;
        let done = body(&CaptureScope { stream: side, thread: PhantomData });
        drop(current);
        let ended = capture.end();
        let value = done?;
        ended?;
        Ok(value)
    }
}
