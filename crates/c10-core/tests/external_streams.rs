//! Streams that were made elsewhere, handles that mean a default stream, and contexts that others make current.
//!
//! # Safety
//! Streams are made and destroyed through the simulated driver's functions, whose duties are the C functions'; those that
//! are wrapped live as long as the wrapper, or are never looked at by the driver once they are gone, which checks every
//! handle it is given.
#![expect(unsafe_code, reason = "streams and contexts of others are made by C functions")]

mod common;

use std::collections::HashSet;
use std::ptr;

use c10_core::{
    CUDAGraph, CaptureMode, Device, DeviceBuffer, DeviceIndex, DeviceType, Error, Event, EventError, EventOptions,
    ExternalStream, Stream, StreamError, StreamId, get_stream_from_external,
};
use common::{DEVICE, Rig, code, config, rig};
use cuda_sim::LiveHandles;
use cuda_sys::CUresult;
use cuda_sys::driver::types::{CUcontext, CUevent, CUgraph, CUstream, CUstreamCaptureMode};

const THERE: DeviceIndex = DeviceIndex(1);

/// The simulated driver, as others in the process use it.
fn driver() -> cuda_sys::Driver {
    cuda_sim::driver().expect("the simulated driver has a version")
}

/// A stream of a device's primary context that somebody else owns.
struct Foreign(CUstream);

impl Foreign {
    fn new(rig: &Rig, device: DeviceIndex, priority: i32) -> Self {
        Self::with_flags(rig, device, 1, priority)
    }

    fn with_flags(rig: &Rig, device: DeviceIndex, flags: u32, priority: i32) -> Self {
        rig.runtime.synchronize(device).expect("an idle device");
        let mut stream = ptr::null_mut();
        // SAFETY: `stream` outlives the call, and the device's context is current after the call before.
        unsafe { driver().cuStreamCreateWithPriority(&mut stream, flags, priority) }.expect("a device with a context");
        Self(stream)
    }

    fn handle(&self) -> usize {
        self.0.addr()
    }

    fn destroy(self) {
        // SAFETY: the stream was made by `new` and is given up here.
        unsafe { driver().cuStreamDestroy_v2(self.0) }.expect("nobody else has destroyed the stream");
    }
}

/// The current context, in whose place comes `context`.
fn exchange_context(context: CUcontext) -> CUcontext {
    let mut before = ptr::null_mut();
    // SAFETY: `before` outlives the call.
    unsafe { driver().cuCtxGetCurrent(&mut before) }.expect("the driver has started");
    // SAFETY: the context is null, or was current before and is retained.
    unsafe { driver().cuCtxSetCurrent(context) }.expect("the context is alive");
    before
}

fn wrap(handle: usize, device: DeviceIndex) -> c10_core::Result<Stream> {
    // SAFETY: see the top of the file.
    unsafe { get_stream_from_external(handle, device) }
}

fn external(handle: usize, device: DeviceIndex, priority: i32) -> c10_core::Result<ExternalStream> {
    // SAFETY: see the top of the file.
    unsafe { ExternalStream::new(handle, device, priority) }
}

#[test]
fn a_wrapped_stream_works_like_any_other() {
    let rig = Rig::new(config().devices(2));
    let current = rig.runtime.bind();
    let foreign = Foreign::new(&rig, THERE, -2);
    let stream = external(foreign.handle(), THERE, 0).unwrap();
    assert_eq!((stream.cuda_stream(), stream.native_handle()), (foreign.handle(), foreign.handle()));
    assert_eq!(stream.__cuda_stream__(), (0, foreign.handle()));
    assert_eq!(stream.stream_id(), StreamId(i64::try_from(foreign.handle()).unwrap()));
    assert_eq!((stream.device_index(), stream.priority().unwrap(), stream.is_default()), (THERE, -2, false));
    assert_eq!(stream.to_string(), format!("<torch.cuda.Stream device=cuda:1 cuda_stream={:#x}>", foreign.handle()));
    {
        let _inside = stream.guard();
        assert_eq!(rig.runtime.streams().current(THERE).unwrap(), *stream);
        let buffer = rig.runtime.memory().buffer(1000, &stream).unwrap();
        buffer.fill(0..1000, 3, &stream).unwrap();
        let event = Event::new(EventOptions::default());
        event.record(&stream).unwrap();
        rig.runtime.streams().pooled(DEVICE, 0).unwrap().wait_event(&event).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [3; 1000]);
    }
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
    assert_eq!((stream.device(), stream.device_type()), (Device::cuda(1), DeviceType::Cuda));
    assert_eq!(ExternalStream::priority_range().unwrap(), (0, -3));
    let elsewhere = rig.runtime.streams().pooled(DEVICE, 0).unwrap();
    stream.wait_stream(&elsewhere).unwrap();
    stream.wait_event(&elsewhere.record_event().unwrap()).unwrap();
    assert!(stream.record_event().unwrap().query().is_ok());
    drop(elsewhere);
    let again = wrap(foreign.handle(), THERE).unwrap();
    assert_eq!(Stream::from(stream.clone()), again);
    assert_eq!(HashSet::from([Stream::from(stream), again.clone(), wrap(foreign.handle(), DEVICE).unwrap()]).len(), 2);
    drop(again);
    assert_eq!(rig.machine.live().streams, 33, "it is still its owner's");
    foreign.destroy();
    drop(current);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn pointers_and_priorities_that_mean_something_else() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let foreign = Foreign::new(&rig, DEVICE, 0);
    let refused = external(foreign.handle(), DEVICE, -1).unwrap_err();
    assert_eq!(refused.to_string(), "Priority was explicitly set for a external stream");
    // Pointer 0 asks for a stream of the pool, priority and all.
    let pooled = external(0, DEVICE, -1).unwrap();
    assert_eq!((pooled.priority().unwrap(), pooled.stream_id()), (-1, StreamId(5)));
    for handle in [0, 1] {
        assert_eq!(wrap(handle, DEVICE).unwrap(), rig.runtime.streams().default(DEVICE).unwrap());
    }
    for odd in [3, 5, 0x7f00_0000_0001] {
        let id = i64::try_from(odd).unwrap();
        assert_eq!(wrap(odd, DEVICE), Err(Error::Stream(StreamError::Unknown { id })), "ids of pools are odd");
    }
    assert_eq!(wrap(usize::MAX - 1, DEVICE), Err(Error::Stream(StreamError::Unknown { id: i64::MAX })));
    assert_eq!(code(wrap(foreign.handle(), DeviceIndex(9))), CUresult::CUDA_ERROR_INVALID_DEVICE.0);
    assert_eq!(code(wrap(foreign.handle(), DeviceIndex(-1))), CUresult::CUDA_ERROR_INVALID_DEVICE.0);
    foreign.destroy();
}

/// Torch's id of a stream made elsewhere is its address, from which no safe program can make a stream.
#[test]
fn an_id_alone_makes_no_stream_of_a_pointer() {
    let rig = rig();
    let foreign = Foreign::new(&rig, DEVICE, 0);
    let id = i64::try_from(foreign.handle()).unwrap();
    assert_eq!(rig.runtime.streams().by_id(DEVICE, StreamId(id)), Err(Error::Stream(StreamError::Unknown { id })));
    foreign.destroy();
}

#[test]
fn the_per_thread_stream_is_each_threads_own() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let stream = wrap(2, DEVICE).unwrap();
    assert_eq!((stream.stream_id(), stream.is_default()), (StreamId(2), false));
    rig.runtime.streams().set_current(&stream).unwrap();
    let event = stream.record_event().unwrap();
    std::thread::scope(|scope| {
        let used_elsewhere = scope.spawn(|| {
            let _bound = rig.machine.bind();
            assert!(rig.runtime.streams().current(DEVICE).unwrap().is_default());
            stream.wait_event(&event).and_then(|()| stream.synchronize())
        });
        used_elsewhere.join().unwrap().unwrap();
    });
    assert_eq!(rig.runtime.streams().current(DEVICE).unwrap(), stream);
    event.synchronize().unwrap();
}

#[test]
fn a_stream_that_is_gone_gives_errors_and_nothing_hangs() {
    let rig = rig();
    let current = rig.runtime.bind();
    let foreign = Foreign::new(&rig, DEVICE, 0);
    let stream = wrap(foreign.handle(), DEVICE).unwrap();
    let (mine, used) = (
        rig.runtime.memory().buffer(1 << 20, &stream).unwrap(),
        rig.runtime.memory().buffer(600, &rig.stream()).unwrap(),
    );
    let event = stream.record_event().unwrap();
    used.record_stream(&stream).unwrap();
    rig.runtime.streams().set_current(&stream).unwrap();
    foreign.destroy();
    let gone = CUresult::CUDA_ERROR_INVALID_HANDLE.0;
    assert_eq!(code(stream.synchronize()), gone);
    assert_eq!(code(stream.query()), gone);
    assert_eq!(code(stream.record_event()), gone);
    assert_eq!(code(stream.wait_stream(&rig.stream())), gone);
    assert_eq!(code(stream.priority()), gone);
    assert_eq!(code(stream.is_capturing()), gone);
    assert_eq!(code(event.record(None)), gone);
    assert_eq!(code(mine.fill(0..10, 1, &stream)), gone);
    event.synchronize().unwrap();
    // The last use cannot be waited for any more; the memory goes back all the same, at the latest with the runtime.
    drop((mine, used));
    let _ = rig.runtime.memory().empty_cache();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(rig.runtime.inconsistency(), None);
    drop((stream, event));
    drop(current);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn contexts_of_others_are_neither_relied_on_nor_taken_away() {
    let rig = Rig::new(config().devices(2));
    let (here, there) = (rig.stream(), rig.runtime.streams().pooled(THERE, 0).unwrap());
    let default = rig.runtime.streams().default(DEVICE).unwrap();
    let event = Event::on(&rig.runtime, EventOptions::default());
    event.record(&here).unwrap();
    let elsewhere = Event::on(&rig.runtime, EventOptions::default());
    elsewhere.record(&there).unwrap();
    let ours = exchange_context(ptr::null_mut());
    for current in [ptr::null_mut(), ours] {
        exchange_context(current);
        for (event, stream) in [(&event, &here), (&elsewhere, &there)] {
            event.record(stream).unwrap();
            event.query().unwrap();
            event.wait(&here).unwrap();
            event.synchronize().unwrap();
            stream.query().unwrap();
            stream.synchronize().unwrap();
            assert!(!stream.is_capturing().unwrap());
        }
        assert_eq!(exchange_context(current), current, "what names its context changes nothing");
    }
    for device in [DEVICE, THERE] {
        // A default stream is that of the current context, so here it must be the right one.
        exchange_context(ptr::null_mut());
        let default = rig.runtime.streams().default(device).unwrap();
        Event::on(&rig.runtime, EventOptions::default()).record(&default).unwrap();
        default.synchronize().unwrap();
        assert!(!exchange_context(ptr::null_mut()).is_null());
    }
    let mixed = elsewhere.record(&default);
    assert_eq!(mixed, Err(Error::Event(EventError::Device { event: THERE, stream: DEVICE })));
    assert_eq!(default.priority().unwrap(), 0);
}

/// Begins a capture as others do.
fn begin_capture(stream: CUstream) {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    unsafe { driver().cuStreamBeginCapture_v2(stream, mode) }.expect("a stream that can capture");
}

/// Ends it, and gives the graph up.
fn end_capture(stream: CUstream) {
    let mut graph: CUgraph = ptr::null_mut();
    // SAFETY: the stream is alive and `graph` outlives the call.
    unsafe { driver().cuStreamEndCapture(stream, &mut graph) }.expect("a capture that is whole");
    // SAFETY: nobody else knows of the graph.
    unsafe { driver().cuGraphDestroy(graph) }.expect("a graph");
}

/// Uses pinned memory and a buffer on a stream that is captured, and drops them. Whether they were kept, although the
/// capture is over by then.
fn are_kept(rig: &Rig, buffer: DeviceBuffer, captured: &Stream, end: impl FnOnce()) -> bool {
    let pinned = rig.runtime.pinned().buffer(4096).expect("pinned memory");
    buffer.copy_from_pinned(0, &pinned, 0..4096, captured).expect("a captured copy");
    drop((buffer, pinned));
    end();
    rig.runtime.synchronize(DEVICE).expect("an idle device");
    let host = rig.runtime.pinned().stats().active_requests.current;
    assert_eq!(host > 0, rig.allocated_bytes() > 0, "both or neither");
    host > 0
}

#[test]
fn captures_that_others_begin_are_noticed_however_they_come_by_a_stream() {
    // By the handle of a stream of a pool; by a stream of their own; by an event that they record in their capture.
    for way in ["no capture", "handle", "stream", "event"] {
        let rig = rig();
        let current = rig.runtime.bind();
        let stream = rig.stream();
        let buffer = rig.runtime.memory().buffer(4096, &stream).expect("a buffer");
        let foreign = Foreign::new(&rig, DEVICE, 0);
        let kept = match way {
            "handle" => {
                let handle: CUstream = ptr::with_exposed_provenance_mut(stream.cuda_stream());
                begin_capture(handle);
                are_kept(&rig, buffer, &stream, || end_capture(handle))
            }
            "stream" => {
                let wrapped = wrap(foreign.handle(), DEVICE).expect("a stream");
                begin_capture(foreign.0);
                are_kept(&rig, buffer, &wrapped, || end_capture(foreign.0))
            }
            "event" => {
                let [joins, ends] = [(); 2].map(|()| stream.record_event().expect("an event"));
                let [join, end]: [CUevent; 2] =
                    [&joins, &ends].map(|event| ptr::with_exposed_provenance_mut(event.cuda_event()));
                begin_capture(foreign.0);
                // SAFETY: event and stream are alive.
                unsafe { driver().cuEventRecord(join, foreign.0) }.expect("a captured record");
                stream.wait_event(&joins).expect("the stream joins the capture");
                are_kept(&rig, buffer, &stream, || {
                    ends.record(&stream).expect("a captured record");
                    // SAFETY: event and stream are alive.
                    unsafe { driver().cuStreamWaitEvent(foreign.0, end, 0) }.expect("a captured wait");
                    end_capture(foreign.0);
                })
            }
            _ => are_kept(&rig, buffer, &stream, || ()),
        };
        assert_eq!(kept, way != "no capture", "{way}");
        drop(current);
        foreign.destroy();
        drop(stream);
        assert_eq!(rig.left(), LiveHandles::default(), "{way}");
    }
}

#[test]
fn queueing_asks_the_driver_for_nothing_that_is_known() {
    let count = |rig: &Rig| rig.machine.calls().iter().map(|(.., count)| count).sum::<u64>();
    let cost = |rig: &Rig, stream: &Stream, buffer: &DeviceBuffer| {
        let before = count(rig);
        buffer.fill(0..1, 1, stream).expect("a fill");
        count(rig) - before
    };
    let rig = rig();
    let (stream, side) = (rig.stream(), rig.stream());
    let buffer = rig.runtime.memory().buffer(4096, &stream).expect("a buffer");
    assert_eq!(cost(&rig, &stream, &buffer), 2, "whose context is current, and the fill");
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let captured = graph.record::<_, Error>(&stream, None, CaptureMode::Global, |scope| {
        assert_eq!(cost(&rig, &stream, &buffer), 2, "this runtime began the capture");
        scope.fork(&side, |_| {
            assert_eq!(cost(&rig, &side, &buffer), 4, "whether the stream captures, and which capture it is");
            assert_eq!(cost(&rig, &side, &buffer), 2, "it cannot leave the capture before the end");
            Ok(())
        })
    });
    captured.expect("a graph");
    assert_eq!([cost(&rig, &stream, &buffer), cost(&rig, &side, &buffer)], [2; 2], "it is over");
    let _door = side.cuda_stream();
    assert_eq!(cost(&rig, &stream, &buffer), 3, "others may have brought the stream into a capture");
    assert!(rig.machine.take_reports().is_empty());
}

#[test]
fn emptying_the_cache_of_pinned_memory_does_not_spoil_captures_of_others() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let (stream, foreign) = (rig.stream(), Foreign::new(&rig, DEVICE, 0));
    let buffer = rig.runtime.memory().buffer(4096, &stream).expect("a buffer");
    let pinned = rig.runtime.pinned().buffer(4096).expect("pinned memory");
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let copies = || buffer.copy_from_pinned(0, &pinned, 0..4096, &stream);
    graph.capture(&stream, None, CaptureMode::Global, copies).expect("a graph");
    let free = rig.runtime.pinned().buffer(1 << 20).expect("pinned memory");
    stream.sleep(1 << 30).expect("a kernel");
    graph.replay().expect("a replay");
    // One waits for the replay's event, one is free.
    drop((graph, free));
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream is alive.
    unsafe { driver().cuStreamBeginCapture_v2(foreign.0, mode) }.expect("a stream that can capture");
    rig.runtime.pinned().empty_cache().expect("memory goes back");
    assert_eq!(rig.machine.live().pinned, 1, "what the buffer has");
    end_capture(foreign.0);
    foreign.destroy();
    assert!(rig.machine.take_reports().is_empty());
}

#[test]
fn pages_stay_with_the_default_stream_while_others_capture_on_a_blocking_one() {
    let rig = rig();
    rig.runtime.memory().set_settings("backend:elastic").expect("the runtime has not started");
    let _current = rig.runtime.bind();
    let (default, stream) = (rig.runtime.streams().default(DEVICE).expect("a stream"), rig.stream());
    let memory = |stream: &Stream| rig.runtime.memory().buffer(8 << 20, stream).expect("a buffer");
    drop(memory(&default));
    rig.runtime.synchronize(DEVICE).expect("an idle device");
    let mut blocking: CUstream = ptr::null_mut();
    // SAFETY: `blocking` outlives the call, and the device's context is current.
    unsafe { driver().cuStreamCreate(&mut blocking, 0) }.expect("a stream");
    let wrapped = wrap(blocking.addr(), DEVICE).expect("a stream");
    begin_capture(blocking);
    let held = [memory(&stream), memory(&wrapped)];
    let moved = || rig.runtime.memory().stats(DEVICE).expect("figures").pages_moved;
    assert_eq!(moved(), 0, "an event on the default stream would spoil the capture");
    end_capture(blocking);
    let last = memory(&stream);
    assert_eq!(moved(), 4);
    drop((held, last));
    rig.runtime.memory().empty_cache().expect("memory goes back");
    assert_eq!(rig.reserved_bytes(), 0);
    Foreign(blocking).destroy();
    assert!(rig.machine.take_reports().is_empty());
}

/// Whoever lends a stream must keep it as long as memory that was used on it; here nobody does.
#[test]
fn a_stream_destroyed_against_its_contract_spoils_nothing_later() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let (own, foreign) = (rig.stream(), Foreign::new(&rig, DEVICE, 0));
    let lent = wrap(foreign.handle(), DEVICE).unwrap();
    let (buffer, pinned) =
        (rig.runtime.memory().buffer(3 << 20, &own).unwrap(), rig.runtime.pinned().buffer(64).unwrap());
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let capture = || buffer.copy_from_pinned(0, &pinned, 0..64, &own);
    graph.capture(&own, None, CaptureMode::Global, capture).unwrap();
    {
        let _lent = lent.guard();
        graph.replay().unwrap();
    }
    buffer.fill(0..100, 1, &lent).unwrap();
    buffer.copy_from_pinned(0, &pinned, 0..64, &lent).unwrap();
    rig.runtime.memory().set_settings("expandable_segments:True").unwrap();
    let expandable = rig.runtime.memory().buffer(30 << 20, &lent).unwrap();
    lent.synchronize().unwrap();
    foreign.destroy();
    drop((expandable, graph, pinned, buffer));
    for _ in 0..2 {
        assert_eq!(rig.runtime.memory().empty_cache(), Ok(()));
        assert_eq!(rig.runtime.pinned().empty_cache(), Ok(()));
    }
    assert_eq!(rig.runtime.inconsistency(), None);
    let figures = rig.runtime.memory().stats(DEVICE).unwrap();
    assert_eq!((figures.active_bytes.all.current, rig.runtime.pinned().stats().active_bytes.current), (0, 0));
    assert_eq!(rig.runtime.pinned().stats().allocations.current, 0);
    rig.runtime.memory().set_settings("expandable_segments:False").unwrap();
    drop(rig.runtime.memory().buffer(3 << 20, &own).unwrap());
    drop((lent, own));
}

/// Pages of the default stream, and pages for it, would need an event there, which would end a capture on a stream that
/// it orders itself with.
#[test]
fn pages_are_not_taken_from_a_stream_that_a_capture_forbids() {
    const LEN: usize = 10 << 20;
    let rig = Rig::new(config());
    let _current = rig.runtime.bind();
    rig.runtime.memory().set_settings("backend:elastic").unwrap();
    let foreign = Foreign::with_flags(&rig, DEVICE, 0, 0);
    let blocking = wrap(foreign.handle(), DEVICE).unwrap();
    let (side, default) = (rig.stream(), rig.runtime.streams().default(DEVICE).unwrap());
    let memory = rig.runtime.memory();
    drop((memory.buffer(LEN, &default).unwrap(), memory.buffer(LEN, &side).unwrap()));
    let target = memory.buffer(LEN, &blocking).unwrap();
    target.fill(0..LEN, 1, &blocking).unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let captured = graph.capture(&blocking, None, CaptureMode::Relaxed, || {
        target.fill(0..LEN, 2, &blocking)?;
        // More than the stream itself has.
        let (more, other) = (memory.buffer(2 * LEN, &side)?, memory.buffer(3 * LEN, &default)?);
        drop((more, other));
        target.fill(0..100, 3, &blocking)
    });
    captured.unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    let found = target.to_vec().unwrap();
    assert!(found[..100] == [3; 100] && found[100..].iter().all(|byte| *byte == 2));
    assert_eq!(rig.runtime.inconsistency(), None);
}
