//! Streams, events and capture states.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call. Stream
//! and event handles come from the functions here, or were vouched for by the caller of an unsafe function above;
//! streams of pools live as long as the runtime, events as long as their owner, which calls nothing after destroying
//! them.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::sync::Arc;
use std::{ptr, slice};

use cuda_sys::driver::types::{
    CUevent, CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use cuda_sys::{CUresult, CallError, DriverError};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::{CaptureMode, CapturePoint, EventHandle, NodeHandle, StreamHandle, StreamRef};
use crate::driver::Api;
use crate::sync::tracked::assert_none_held;
use crate::trace::{TraceEvent, TraceKind};

/// Waiting for the event yields the processor (`CU_EVENT_BLOCKING_SYNC`).
pub(crate) const EVENT_BLOCKING_SYNC: u32 = 1;
/// The event only orders (`CU_EVENT_DISABLE_TIMING`).
pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;
/// The event can be handed to other processes (`CU_EVENT_INTERPROCESS`).
pub(crate) const EVENT_INTERPROCESS: u32 = 4;
/// Record or wait by a node of the graph (`CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`).
pub(crate) const EVENT_EXTERNAL: u32 = 1;
/// The greatest handle that names a default stream, of whichever context is current (`CU_STREAM_PER_THREAD`). All others
/// belong to a context, and the calls that only look at streams and events, or launch a graph, work whatever is current.
const PER_THREAD: usize = 2;
/// The stream does not wait for the default stream (`CU_STREAM_NON_BLOCKING`).
const NON_BLOCKING: u32 = 1;

impl Api {
    /// Makes a stream that does not wait for the default stream.
    pub(crate) fn stream_create(&self, device: DeviceIndex, priority: i32) -> Result<StreamHandle> {
        self.bind(device)?;
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: `stream` outlives the call.
        unsafe { self.table.cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, priority) }?;
        Ok(StreamHandle(stream.expose_provenance()))
    }

    /// Destroys a stream that nobody uses any more; its queued work still runs.
    pub(crate) fn stream_destroy(&self, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        // SAFETY: the pool that owns the stream is going away.
        Ok(unsafe { self.table.cuStreamDestroy_v2(raw(stream)) }?)
    }

    /// Makes the device's context current if the stream's handle does not name it.
    #[inline]
    pub(super) fn bind_unless_named(&self, stream: StreamRef) -> Result<()> {
        if stream.handle.0 > PER_THREAD { Ok(()) } else { self.bind_for_default(stream.device) }
    }

    /// A separate function, so that the usual path of other streams stays short.
    #[inline(never)]
    fn bind_for_default(&self, device: DeviceIndex) -> Result<()> {
        self.bind(device)
    }

    /// Whether all work queued on the stream is done.
    pub(crate) fn stream_query(&self, stream: StreamRef) -> Result<bool> {
        let _spared = self.spare_others()?;
        self.bind_unless_named(stream)?;
        // SAFETY: the stream is alive.
        let is_done = ready(unsafe { self.table.cuStreamQuery(raw(stream)) })?;
        if is_done {
            self.trace.report(TraceKind::Order, || TraceEvent::StreamSeen(stream.into()));
        }
        Ok(is_done)
    }

    /// Blocks until all work queued on the stream is done.
    pub(crate) fn stream_wait_on_host(&self, stream: StreamRef) -> Result<()> {
        assert_none_held("cuStreamSynchronize");
        self.stream_wait_after_launch(stream)
    }

    /// [`Self::stream_wait_on_host`] after each launch under `CUDA_LAUNCH_BLOCKING`, allowed while locks for queueing
    /// work are held.
    pub(crate) fn stream_wait_after_launch(&self, stream: StreamRef) -> Result<()> {
        let _spared = self.spare_others()?;
        self.bind_unless_named(stream)?;
        // SAFETY: the stream is alive.
        unsafe { self.table.cuStreamSynchronize(raw(stream)) }?;
        self.trace.report(TraceKind::Order, || TraceEvent::StreamSeen(stream.into()));
        Ok(())
    }

    /// Makes later work of the stream wait for the event.
    pub(crate) fn stream_wait_event(&self, stream: StreamRef, event: EventHandle, flags: u32) -> Result<()> {
        self.bind_unless_named(stream)?;
        // SAFETY: stream and event are alive.
        unsafe { self.table.cuStreamWaitEvent(raw(stream), raw_event(event), flags) }?;
        let awaited = || TraceEvent::MarkAwaited { event: event.0 as u64, stream: stream.into() };
        self.trace.report(TraceKind::Order, awaited);
        Ok(())
    }

    /// Priority of the stream; a lower number is more urgent.
    pub(crate) fn stream_priority(&self, stream: StreamRef) -> Result<i32> {
        self.bind_unless_named(stream)?;
        let mut priority = 0;
        // SAFETY: the stream is alive; `priority` outlives the call.
        unsafe { self.table.cuStreamGetPriority(raw(stream), &mut priority) }?;
        Ok(priority)
    }

    /// Whether the stream can take part in a capture, and has to be asked which. Asks with one call where that is enough.
    #[inline]
    pub(crate) fn may_capture(&self, stream: StreamRef) -> Result<bool> {
        if stream.handle.0 > PER_THREAD { self.stream_is_capturing(stream) } else { Ok(true) }
    }

    /// Number of the capture the stream takes part in; while it records a body of a conditional node, of the one around it.
    pub(crate) fn stream_capture_id(&self, stream: StreamRef) -> Result<Option<u64>> {
        self.bind_unless_named(stream)?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut id = 0;
        if takes_part(self.capture_info(stream, &mut status, &mut id))?.is_none() {
            return Ok(None);
        }
        Ok((status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE).then(|| self.bodies.whole(id)))
    }

    /// Whether an event can be recorded on the stream, and waited for there, without touching a capture.
    pub(crate) fn stream_takes_events(&self, stream: StreamRef) -> Result<bool> {
        self.bind_unless_named(stream)?;
        let (mut status, mut id) = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0);
        let told = takes_part(self.capture_info(stream, &mut status, &mut id))?;
        Ok(told.is_some() && status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The point that the stream has reached in the capture that it takes part in.
    pub(crate) fn stream_capture_point(&self, stream: StreamRef) -> Result<Option<CapturePoint>> {
        self.bind_unless_named(stream)?;
        let Some(state) = takes_part(self.capture_state(stream))? else { return Ok(None) };
        let is_active = state.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if !is_active || state.count == 0 {
            return Ok(is_active.then(|| CapturePoint { capture: state.id, nodes: Vec::new() }));
        }
        // SAFETY: the driver's array has `count` nodes and stays until the next call about this stream.
        let nodes = unsafe { slice::from_raw_parts(state.nodes, state.count) };
        let nodes = nodes.iter().map(|node| NodeHandle(node.expose_provenance()));
        Ok(Some(CapturePoint { capture: state.id, nodes: nodes.collect() }))
    }

    /// All that the driver tells of a capture, by the newest function that it has.
    pub(super) fn capture_state(&self, stream: StreamRef) -> Result<CaptureState, DriverError> {
        let mut state = CaptureState {
            status: CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
            id: 0,
            graph: ptr::null_mut(),
            nodes: ptr::null(),
            count: 0,
        };
        let mut edges: *const CUgraphEdgeData = ptr::null();
        let CaptureState { status, id, graph, nodes, count } = &mut state;
        // SAFETY: the stream is alive, and all results outlive the call.
        match unsafe { self.table.cuStreamGetCaptureInfo_v3(raw(stream), status, id, graph, nodes, &mut edges, count) }
        {
            Err(CallError::Missing(_)) => {}
            answer => return answer.map(|()| state),
        }
        // SAFETY: as above.
        unsafe { self.table.cuStreamGetCaptureInfo_v2(raw(stream), status, id, graph, nodes, count) }?;
        Ok(state)
    }

    /// Asks for a capture's state through the newest function that the driver has.
    fn capture_info(
        &self,
        stream: StreamRef,
        status: &mut CUstreamCaptureStatus,
        id: &mut u64,
    ) -> Result<(), DriverError> {
        let no = ptr::null_mut;
        let (graph, nodes, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream is alive, `status` and `id` outlive the call, and the other results are optional.
        match unsafe { self.table.cuStreamGetCaptureInfo_v3(raw(stream), status, id, graph, nodes, no(), count) } {
            Err(CallError::Missing(_)) => {}
            answer => return answer,
        }
        // SAFETY: as above.
        unsafe { self.table.cuStreamGetCaptureInfo_v2(raw(stream), status, id, graph, nodes, count) }
    }

    /// Answers which capture a stream of any device takes part in, also when this is gone.
    pub(crate) fn asks_captures(&self) -> impl Fn(usize) -> Option<u64> + Send + Sync + use<> {
        let table = Arc::clone(&self.table);
        move |stream| {
            let (mut status, mut id) = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0);
            let stream = ptr::with_exposed_provenance_mut(stream);
            let (no, count) = (ptr::null_mut, ptr::null_mut());
            // SAFETY: the caller knows the stream; `status` and `id` outlive the call, and the others are optional.
            let asked =
                unsafe { table.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, no(), ptr::null_mut(), count) };
            let takes_part = asked.is_ok() && status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
            takes_part.then_some(id)
        }
    }

    /// Whether the stream takes part in a capture, valid or not.
    pub(crate) fn stream_is_capturing(&self, stream: StreamRef) -> Result<bool> {
        self.bind_unless_named(stream)?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive; `status` outlives the call.
        unsafe { self.table.cuStreamIsCapturing(raw(stream), &mut status) }?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Sets this thread's capture mode and returns the mode before.
    pub(crate) fn thread_exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let mut mode = mode_to_raw(mode);
        // SAFETY: `mode` outlives the call.
        unsafe { self.table.cuThreadExchangeStreamCaptureMode(&mut mode) }?;
        Ok(mode_from_raw(mode))
    }

    /// Makes an event.
    pub(crate) fn event_create_with_flags(&self, device: DeviceIndex, flags: u32) -> Result<EventHandle> {
        self.bind(device)?;
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: `event` outlives the call.
        unsafe { self.table.cuEventCreate(&mut event, flags) }?;
        Ok(EventHandle(event.expose_provenance()))
    }

    /// Destroys an event; work that waits for it still does.
    pub(crate) fn event_destroy_handle(&self, event: EventHandle) -> Result<()> {
        // SAFETY: the owner gives the event up.
        Ok(unsafe { self.table.cuEventDestroy_v2(raw_event(event)) }?)
    }

    /// Records an event.
    pub(crate) fn event_record_with_flags(&self, event: EventHandle, stream: StreamRef, flags: u32) -> Result<()> {
        self.bind_unless_named(stream)?;
        if flags == 0 {
            // SAFETY: event and stream are alive.
            unsafe { self.table.cuEventRecord(raw_event(event), raw(stream)) }?;
        } else {
            // SAFETY: event and stream are alive.
            unsafe { self.table.cuEventRecordWithFlags(raw_event(event), raw(stream), flags) }?;
        }
        let placed = || TraceEvent::MarkPlaced { event: event.0 as u64, stream: stream.into() };
        self.trace.report(TraceKind::Order, placed);
        Ok(())
    }

    /// Whether the work before the event is done.
    pub(crate) fn event_is_done(&self, event: EventHandle) -> Result<bool> {
        let _spared = self.spare_others()?;
        // SAFETY: the event is alive.
        let is_done = ready(unsafe { self.table.cuEventQuery(raw_event(event)) })?;
        if is_done {
            self.trace.report(TraceKind::Order, || TraceEvent::MarkSeen { event: event.0 as u64 });
        }
        Ok(is_done)
    }

    /// Blocks until the work before the event is done.
    pub(crate) fn event_wait_on_host(&self, event: EventHandle) -> Result<()> {
        assert_none_held("cuEventSynchronize");
        let _spared = self.spare_others()?;
        // SAFETY: the event is alive.
        unsafe { self.table.cuEventSynchronize(raw_event(event)) }?;
        self.trace.report(TraceKind::Order, || TraceEvent::MarkSeen { event: event.0 as u64 });
        Ok(())
    }

    /// Milliseconds between two events, by the newest function that the driver has.
    pub(crate) fn event_elapsed_ms(&self, start: EventHandle, end: EventHandle) -> Result<f32> {
        let mut time = 0.0;
        // SAFETY: both events are alive; `time` outlives the call.
        match unsafe { self.table.cuEventElapsedTime_v2(&mut time, raw_event(start), raw_event(end)) } {
            Err(CallError::Missing(_)) => {}
            answer => return answer.map(|()| time).map_err(Into::into),
        }
        // SAFETY: as above.
        unsafe { self.table.cuEventElapsedTime(&mut time, raw_event(start), raw_event(end)) }?;
        Ok(time)
    }
}

/// What the driver tells of a capture, on one of its streams.
pub(super) struct CaptureState {
    pub(super) status: CUstreamCaptureStatus,
    pub(super) id: u64,
    pub(super) graph: CUgraph,
    /// What is captured next comes after these; valid until the next call about the stream.
    pub(super) nodes: *const CUgraphNode,
    pub(super) count: usize,
}

/// The answer to a question about a capture. `None` for the default stream while another, blocking stream captures: the
/// default stream does not take part itself.
fn takes_part<T>(answer: Result<T, DriverError>) -> Result<Option<T>> {
    match answer {
        Ok(told) => Ok(Some(told)),
        Err(error) if error.status() == Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads "not ready" as an answer, not as an error.
pub(super) fn ready(answer: Result<(), DriverError>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.status() == Some(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn mode_to_raw(mode: CaptureMode) -> CUstreamCaptureMode {
    match mode {
        CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}

pub(super) fn mode_from_raw(mode: CUstreamCaptureMode) -> CaptureMode {
    match mode {
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => CaptureMode::Relaxed,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => CaptureMode::ThreadLocal,
        _ => CaptureMode::Global,
    }
}

fn raw(stream: StreamRef) -> CUstream {
    ptr::with_exposed_provenance_mut(stream.handle.0)
}

pub(super) fn raw_event(event: EventHandle) -> CUevent {
    ptr::with_exposed_provenance_mut(event.0)
}
