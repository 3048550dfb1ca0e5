//! The driver's events beneath events: made, pooled, kept for graphs, given up, whatever fails.

mod common;

use std::sync::Barrier;

use c10_core::{
    CUDAGraph, CaptureMode, DeviceIndex, Error, Event, EventError, EventOptions, Result, Runtime, StartError, Stream,
};
use common::{DEVICE, Rig, code, config, fail_each_call, relay, rig};
use cuda_sim::{Fault, LiveHandles};
use cuda_sys::CUresult;

const PLAIN: EventOptions =
    EventOptions { enable_timing: false, blocking: false, interprocess: false, external: false };

fn recorded(runtime: &Runtime, options: EventOptions, stream: &Stream) -> Event {
    let event = Event::on(runtime, options);
    event.record(stream).expect("nothing fails here");
    event
}

fn made(rig: &Rig) -> u64 {
    let calls = rig.machine.calls();
    let count = |symbol| calls.iter().find(|(call, code, _)| (*call, code.0) == (symbol, 0)).map_or(0, |call| call.2);
    count("cuEventCreate")
}

#[test]
fn a_dropped_event_serves_the_next() {
    let rig = rig();
    let stream = rig.stream();
    for _ in 0..100 {
        recorded(&rig.runtime, PLAIN, &stream);
        stream.wait_stream(&stream).unwrap();
    }
    assert_eq!((made(&rig), rig.machine.live().events), (1, 1));
    let held: Vec<_> = (0..10).map(|_| recorded(&rig.runtime, PLAIN, &stream)).collect();
    assert_eq!(rig.machine.live().events, 10);
    drop((held, stream));
    assert_eq!(rig.machine.live().events, 10);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn kinds_and_devices_are_not_mixed() {
    let rig = Rig::new(config().devices(2));
    let (here, there) = (rig.stream(), rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap());
    let blocking = EventOptions { blocking: true, ..PLAIN };
    for _ in 0..2 {
        for options in [PLAIN, EventOptions::TIMING, blocking] {
            recorded(&rig.runtime, options, &here);
            recorded(&rig.runtime, options, &there);
        }
    }
    assert_eq!(made(&rig), 6);
    let (start, end) =
        (recorded(&rig.runtime, EventOptions::TIMING, &there), recorded(&rig.runtime, EventOptions::TIMING, &there));
    end.synchronize().unwrap();
    assert!(start.elapsed_time(&end).unwrap() >= 0.0);
    assert_eq!(made(&rig), 7);
    drop((start, end, here, there));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn an_event_from_the_pool_stands_for_nothing_yet() {
    let rig = rig();
    let stream = rig.stream();
    let first = recorded(&rig.runtime, EventOptions::TIMING, &stream);
    let handle = first.cuda_event();
    drop(first);
    let second = Event::on(&rig.runtime, EventOptions::TIMING);
    assert_eq!((second.cuda_event(), second.device(), second.query()), (0, None, Ok(true)));
    assert_eq!(second.elapsed_time(&second), Err(Error::Event(EventError::NotRecorded)));
    second.record(&stream).unwrap();
    assert_eq!((second.cuda_event(), second.event_id()), (handle, handle));
    assert_eq!(second.to_string(), format!("<torch.cuda.Event {handle:#x}>"));
}

#[test]
fn events_of_other_processes_are_destroyed() {
    let rig = rig();
    let stream = rig.stream();
    drop(recorded(&rig.runtime, EventOptions { interprocess: true, ..PLAIN }, &stream));
    assert_eq!(rig.machine.live().events, 0);
    let refused = Event::on(&rig.runtime, EventOptions { interprocess: true, ..EventOptions::TIMING });
    assert_eq!(code(refused.record(&stream)), CUresult::CUDA_ERROR_INVALID_VALUE.0);
    assert_eq!((refused.device(), refused.query()), (None, Ok(true)));
}

/// The second stream waits for the first by an event that is dropped at once and serves another before the copy runs.
fn relay_by_dropped_event(seed: u64, ordered: bool) -> Result<bool> {
    relay(seed, |rig, first, second| {
        let event = first.record_event()?;
        if ordered {
            second.wait_event(&event)?;
        }
        let handle = event.cuda_event();
        drop(event);
        let next = rig.stream().record_event()?;
        assert_eq!(next.cuda_event(), handle);
        Ok(())
    })
}

#[test]
fn whoever_waits_still_does_when_the_event_serves_another() {
    assert!((0..30).all(|seed| relay_by_dropped_event(seed, true).unwrap()));
    assert!((0..30).any(|seed| !relay_by_dropped_event(seed, false).unwrap()), "a forgotten wait is never noticed");
}

/// Captures what `body` queues on a stream of its own.
fn captured(rig: &Rig, body: impl FnOnce(&Stream) -> Result<()>) -> CUDAGraph {
    let stream = rig.stream();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(&stream, None, CaptureMode::ThreadLocal, || body(&stream)).expect("nothing fails here");
    graph
}

#[test]
fn events_that_a_capture_saw_do_not_come_back() {
    let rig = rig();
    let side = rig.stream();
    let before = recorded(&rig.runtime, PLAIN, &side);
    let graph = captured(&rig, |main| {
        before.record(main)?;
        side.wait_event(&before)?;
        main.wait_stream(&side)
    });
    drop(before);
    assert_eq!(rig.machine.live().events, 0);
    drop((graph, side));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn a_graph_keeps_the_external_events_it_names() {
    let rig = rig();
    let external = |options| EventOptions { external: true, ..options };
    let (start, end) = (external(EventOptions::TIMING), external(EventOptions::TIMING));
    let (start, end) = (Event::on(&rig.runtime, start), Event::on(&rig.runtime, end));
    let awaited = recorded(&rig.runtime, external(PLAIN), &rig.stream());
    let buffer = rig.runtime.memory().buffer(1 << 20, &rig.stream()).unwrap();
    let mut graph = captured(&rig, |main| {
        start.record(main)?;
        main.wait_event(&awaited)?;
        buffer.fill(0..1 << 20, 7, main)?;
        end.record(main)
    });
    graph.replay().unwrap();
    end.synchronize().unwrap();
    assert!(start.elapsed_time(&end).unwrap() > 0.0);
    drop((start, end, awaited));
    assert_eq!(rig.machine.live().events, 3);
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), vec![7; 1 << 20]);
    drop(graph);
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(
        rig.machine.live().events,
        2,
        "the runtime's own: one told the end of the replays, one ordered the copy"
    );
    drop(buffer);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn an_external_event_outside_captures_is_like_any_other() {
    let rig = rig();
    let stream = rig.stream();
    for _ in 0..3 {
        let event = recorded(&rig.runtime, EventOptions { external: true, ..PLAIN }, &stream);
        stream.wait_event(&event).unwrap();
        event.synchronize().unwrap();
    }
    assert_eq!(made(&rig), 1);
}

#[test]
fn an_event_that_outlives_its_graph_is_destroyed_once() {
    let rig = rig();
    let event = Event::on(&rig.runtime, EventOptions { external: true, ..PLAIN });
    drop(captured(&rig, |main| event.record(main)));
    rig.runtime.synchronize(DEVICE).unwrap();
    event.record(rig.stream()).unwrap();
    event.synchronize().unwrap();
    assert_eq!(rig.machine.live().events, 1);
    drop(event);
    assert_eq!(rig.machine.live().events, 0);
}

fn fault(call: &'static str) -> Fault {
    Fault { call, occurrence: 1, code: CUresult::CUDA_ERROR_NOT_PERMITTED }
}

#[test]
fn a_failed_record_spoils_the_event_only() {
    let rig = rig();
    let stream = rig.stream();
    let event = recorded(&rig.runtime, PLAIN, &stream);
    rig.machine.inject(fault("cuEventRecord"));
    assert_eq!(code(event.record(&stream)), CUresult::CUDA_ERROR_NOT_PERMITTED.0);
    assert!(event.query().is_ok(), "it stands for what it stood for");
    event.record(&stream).unwrap();
    drop(event);
    assert_eq!(rig.machine.live().events, 0, "nobody else is given it");
}

#[test]
fn an_event_that_cannot_be_made_is_made_by_the_next_record() {
    let rig = rig();
    let (stream, event) = (rig.stream(), Event::on(&rig.runtime, PLAIN));
    rig.machine.inject(fault("cuEventCreate"));
    assert_eq!(code(event.record(&stream)), CUresult::CUDA_ERROR_NOT_PERMITTED.0);
    assert_eq!((event.query(), event.cuda_event()), (Ok(true), 0));
    event.record(&stream).unwrap();
    event.synchronize().unwrap();
}

/// Every way for an event to go.
fn program(rig: &Rig) -> Result<()> {
    let runtime = &rig.runtime;
    let (stream, side) = (runtime.streams().pooled(DEVICE, 0)?, runtime.streams().pooled(DEVICE, 0)?);
    let event = |options| Event::on(runtime, options);
    let external = event(EventOptions { external: true, ..PLAIN });
    let shared = event(EventOptions { interprocess: true, ..PLAIN });
    shared.record(&stream)?;
    drop(shared);
    for _ in 0..3 {
        side.wait_stream(&stream)?;
    }
    let mut graph = CUDAGraph::on(runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || {
        external.record(&stream)?;
        side.wait_stream(&stream)?;
        stream.wait_stream(&side)
    })?;
    graph.replay()?;
    drop(external);
    graph.reset()?;
    stream.synchronize()?;
    let (start, end) = (event(EventOptions::TIMING), event(EventOptions::TIMING));
    start.record(&stream)?;
    end.record(&stream)?;
    end.synchronize()?;
    start.elapsed_time(&end).map(drop)
}

fn survives(fault: Fault) -> bool {
    let rig = rig();
    rig.machine.inject(fault);
    let result = program(&rig);
    rig.machine.clear_faults();
    assert!(
        result.as_ref().err().is_none_or(|error| error.error_code().is_some()
            || error.is_out_of_memory()
            || *error == Error::Start(StartError::NoDevices)),
        "{fault:?}: {result:?}"
    );
    program(&rig).unwrap_or_else(|error| panic!("{fault:?}, then {error:?}"));
    assert_eq!(rig.left(), LiveHandles::default(), "{fault:?}: {result:?}");
    result.is_err()
}

#[test]
fn any_call_about_events_may_fail() {
    let rig = rig();
    program(&rig).unwrap();
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    let (tried, noticed) = fail_each_call(&calls, survives);
    assert!(tried > 60 && noticed * 10 > tried * 6, "{noticed} of {tried}");
}

#[test]
fn threads_share_what_is_pooled() {
    const THREADS: usize = 8;
    let rig = rig();
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _bound = rig.machine.bind();
                let stream = rig.runtime.streams().pooled(DEVICE, 0).unwrap();
                barrier.wait();
                for _ in 0..200 {
                    let (first, second) =
                        (recorded(&rig.runtime, PLAIN, &stream), recorded(&rig.runtime, PLAIN, &stream));
                    assert_ne!(first.cuda_event(), second.cuda_event());
                    stream.wait_event(&first).unwrap();
                }
            });
        }
    });
    assert!(made(&rig) <= 2 * THREADS as u64 + THREADS as u64, "{} events for {THREADS} threads", made(&rig));
    assert_eq!(made(&rig), rig.machine.live().events as u64);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn one_event_may_be_recorded_first_by_many_threads() {
    const THREADS: usize = 4;
    let rig = rig();
    for _ in 0..50 {
        let (event, barrier) = (Event::on(&rig.runtime, PLAIN), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let _bound = rig.machine.bind();
                    let stream = rig.runtime.streams().pooled(DEVICE, 0).unwrap();
                    barrier.wait();
                    event.record(&stream).unwrap();
                });
            }
        });
        event.synchronize().unwrap();
    }
    assert!(made(&rig) <= THREADS as u64);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn objects_of_another_runtime_are_refused() {
    let rig = rig();
    let other = common::runtime();
    let (ours, theirs) = (rig.stream(), other.streams().pooled(DEVICE, 0).unwrap());
    let event = recorded(&rig.runtime, EventOptions::TIMING, &ours);
    let strange = Event::on(&other, EventOptions::TIMING);
    let refused = |what| Err(Error::OtherRuntime { what });
    assert_eq!(event.record(&theirs), refused("stream"));
    assert_eq!(event.wait(&theirs), refused("stream"));
    assert_eq!(theirs.wait_event(&event), refused("stream"));
    assert_eq!(theirs.wait_stream(&ours), refused("stream"));
    assert_eq!(event.elapsed_time(&strange), Err(Error::OtherRuntime { what: "event" }));
    assert_eq!((strange.device(), event.query()), (None, Ok(true)));
}

/// An event made through the runtime bound to the thread follows that one's current stream.
#[test]
fn the_current_stream_is_meant_by_none() {
    let rig = Rig::new(config().devices(2));
    let _bound = rig.runtime.bind();
    assert_eq!(Runtime::current(), rig.runtime);
    let there = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    let event = Event::new(PLAIN);
    {
        let _current = there.guard();
        event.record(None).unwrap();
        event.wait(None).unwrap();
    }
    assert_eq!(event.device().and_then(|device| device.index), Some(DeviceIndex(1)));
    let wrong = event.record(None).unwrap_err();
    assert_eq!(wrong, Error::Event(EventError::Device { event: DeviceIndex(1), stream: DEVICE }));
}
