//! Waiting without blocking: events as futures, functions that a stream calls, durations.

mod common;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use c10_core::{CUDAGraph, CaptureMode, Error, Event, EventOptions, Result};
use common::{DEVICE, Rig, config, rig};

struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Runs a future on this thread; what it gave, and how often it was polled and woken.
fn block_on<F: IntoFuture>(future: F) -> (F::Output, usize, usize) {
    let woken = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future.into_future());
    for polls in 1.. {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (done, polls, woken.1.load(Ordering::SeqCst));
        }
        std::thread::park_timeout(Duration::from_secs(20));
    }
    unreachable!("the range has no end")
}

/// A machine on which events are seen late, so that futures have to wait.
fn late() -> Rig {
    Rig::new(config().late_events(true))
}

#[test]
fn an_event_is_awaited() {
    let rig = late();
    let stream = rig.stream();
    let event = Event::on(&rig.runtime, EventOptions::default());
    assert_eq!(block_on(event.done()).0, Ok(()), "never recorded, nothing to wait for");
    stream.sleep(1 << 24).unwrap();
    event.record(&stream).unwrap();
    let (done, polls, woken) = block_on(&event);
    assert_eq!((done, event.query()), (Ok(()), Ok(true)));
    assert!(polls > 1 && woken > 0, "{polls} polls, woken {woken} times");
    stream.sleep(1 << 24).unwrap();
    assert_eq!(block_on(stream.done().unwrap()).0, Ok(()));
    assert_eq!(stream.query(), Ok(true));
    assert_eq!(block_on(stream.record_event().unwrap()).0, Ok(()));
}

#[test]
fn many_wait_and_some_give_up() {
    let rig = late();
    let streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    let mut waiting = Vec::new();
    let waker = Waker::noop();
    for (index, stream) in (0_usize..).zip(streams.iter().cycle().take(40)) {
        stream.sleep(1 << 16).unwrap();
        let mut future = stream.done().unwrap();
        let _ = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(waker));
        if index.is_multiple_of(3) {
            drop(future);
        } else {
            waiting.push(future);
        }
    }
    for future in waiting {
        assert_eq!(block_on(future).0, Ok(()));
    }
    drop(streams);
    assert_eq!(rig.left().events, 0);
}

#[test]
fn a_future_goes_to_another_thread() {
    let rig = late();
    let stream = rig.stream();
    stream.sleep(1 << 20).unwrap();
    let future = stream.done().unwrap();
    let machine = rig.machine.clone();
    let done = std::thread::spawn(move || {
        let _bound = machine.bind();
        block_on(future).0
    });
    assert_eq!(done.join().unwrap(), Ok(()));
}

#[test]
fn a_failed_event_is_told() {
    let rig = rig();
    let stream = rig.stream();
    let event = Event::on(&rig.runtime, EventOptions::default());
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let failed: Result<()> = graph.capture(&stream, None, CaptureMode::Relaxed, || {
        event.record(&stream)?;
        block_on(event.done()).0
    });
    assert!(failed.unwrap_err().error_code().is_some(), "what a graph records never passes");
}

#[test]
fn functions_are_called_in_order() {
    let rig = rig();
    let (stream, (tell, told)) = (rig.stream(), mpsc::channel());
    for number in 0..5 {
        let tell = tell.clone();
        stream.launch_host_func(move || tell.send(number).unwrap()).unwrap();
    }
    drop(tell);
    stream.synchronize().unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_panic_stays_in_the_function() {
    let rig = rig();
    let (stream, (tell, told)) = (rig.stream(), mpsc::channel());
    let guard = tell.clone();
    stream
        .launch_host_func(move || {
            let _dropped = guard;
            panic!("on purpose");
        })
        .unwrap();
    stream.launch_host_func(move || tell.send(1).unwrap()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), [1], "the channel is closed: both functions are gone");
}

#[test]
fn graphs_call_functions_at_each_replay() {
    let rig = rig();
    let (stream, count) = (rig.stream(), Arc::new(AtomicUsize::new(0)));
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let (counts, once) = (Arc::clone(&count), Arc::clone(&count));
    let refused = graph
        .record(&stream, None, CaptureMode::Global, |scope| {
            let refused = stream.launch_host_func(move || drop(once));
            scope.launch_host_func(move || {
                counts.fetch_add(1, Ordering::SeqCst);
            })?;
            Ok::<_, Error>(refused)
        })
        .unwrap();
    assert_eq!(
        (refused, Arc::strong_count(&count)),
        (Err(Error::Stream(c10_core::StreamError::HostFunctionDuringCapture)), 2)
    );
    for _ in 0..3 {
        graph.replay().unwrap();
    }
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3);
    drop(graph);
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(Arc::strong_count(&count), 1, "the graph kept the function no longer than itself");
}

#[test]
fn a_function_that_cannot_be_queued_is_dropped() {
    let rig = rig();
    let (stream, held) = (rig.stream(), Arc::new(()));
    let code = cuda_sys::CUresult::CUDA_ERROR_NOT_PERMITTED;
    rig.machine.inject(cuda_sim::Fault { call: "cuLaunchHostFunc", occurrence: 1, code });
    let function = Arc::clone(&held);
    assert_eq!(common::code(stream.launch_host_func(move || drop(function))), code.0);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn durations_are_what_milliseconds_are() {
    let rig = rig();
    let stream = rig.stream();
    let [first, last] = [(); 2].map(|()| Event::on(&rig.runtime, EventOptions::TIMING));
    first.record(&stream).unwrap();
    stream.sleep(1_980_000).unwrap();
    last.record(&stream).unwrap();
    last.synchronize().unwrap();
    let (milliseconds, duration) = (first.elapsed_time(&last).unwrap(), first.elapsed(&last).unwrap());
    assert!((duration.as_secs_f64() * 1e3 - f64::from(milliseconds)).abs() < 1e-3, "{duration:?}, {milliseconds} ms");
    assert!(duration >= Duration::from_millis(1));
    assert_eq!(last.elapsed(&first), Err(Error::Event(c10_core::EventError::Reversed)));
}

/// Value whose destructor panics with another such value.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(Self));
    }
}

#[test]
fn a_payload_that_panics_when_it_is_dropped_stays_in_the_function() {
    let rig = rig();
    let (stream, (tell, told)) = (rig.stream(), mpsc::channel());
    stream.launch_host_func(|| std::panic::resume_unwind(Box::new(Bomb))).unwrap();
    // Captured values of the function are dropped behind the same guard.
    let owned = Bomb;
    stream.launch_host_func(move || drop(owned)).unwrap();
    stream.launch_host_func(move || tell.send(1).unwrap()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(told.recv(), Ok(1));
}

#[test]
fn a_function_of_a_graph_may_panic_when_it_is_dropped() {
    let rig = rig();
    let (stream, count) = (rig.stream(), Arc::new(AtomicUsize::new(0)));
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let counts = Arc::clone(&count);
    let owned = Bomb;
    graph
        .record(&stream, None, CaptureMode::Global, |scope| {
            scope.launch_host_func(move || {
                let _ = &owned;
                counts.fetch_add(1, Ordering::SeqCst);
                std::panic::resume_unwind(Box::new(Bomb));
            })?;
            Ok::<_, Error>(())
        })
        .unwrap();
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    drop(graph);
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}
