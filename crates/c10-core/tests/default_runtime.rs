//! The process-wide runtime, whose handles are not counted. One test, alone in its process.

mod common;

use c10_core::{CUDAGraph, CaptureMode, Event, EventOptions, Runtime, Stream};
use common::DEVICE;
use cuda_sim::{Config, Machine};

/// A bit of everything that holds on to a runtime or refers to it.
fn program() -> c10_core::Result<()> {
    let runtime = Runtime::default_runtime();
    let stream = Stream::new(DEVICE, 0)?;
    let _current = stream.guard();
    assert_eq!(runtime.streams().current(DEVICE)?, stream);
    let buffer = runtime.memory().buffer(1 << 20, &stream)?;
    let external = Event::new(EventOptions { external: true, ..EventOptions::default() });
    let mut graph = CUDAGraph::new();
    graph.capture(&stream, None, CaptureMode::ThreadLocal, || {
        external.record(None)?;
        buffer.fill(0..1 << 20, 5, &stream)
    })?;
    graph.replay()?;
    stream.record_event()?.synchronize()?;
    assert!(buffer.to_vec()?.iter().all(|&byte| byte == 5));
    graph.reset()?;
    stream.synchronize()
}

#[test]
fn the_process_wide_runtime_is_one_whoever_holds_it() {
    let machine = Machine::new(Config::default().seed(1));
    machine.make_default();
    let given = common::runtime();
    given.clone().make_default().unwrap();
    assert!(common::runtime().make_default().is_err());
    assert_eq!((Runtime::current(), Runtime::default_runtime()), (given.clone(), given.clone()));
    // A stream of a counted handle, looked at through one that is not, and the other way round.
    let stream = given.streams().pooled(DEVICE, 0).unwrap();
    let again = Stream::from_id(stream.stream_id(), DEVICE, stream.device_type()).unwrap();
    assert_eq!(stream, again);
    Event::default().record(&stream).unwrap();
    Event::on(&given, EventOptions::default()).record(&again).unwrap();
    drop((stream, again, given));
    program().unwrap();
    std::thread::scope(|scope| {
        let programs: Vec<_> = (0..4).map(|_| scope.spawn(program)).collect();
        programs.into_iter().for_each(|program| program.join().unwrap().unwrap());
    });
    {
        let other = common::runtime();
        let _bound = other.bind();
        assert_eq!(Runtime::current(), other);
    }
    let runtime = Runtime::current();
    assert!(runtime.is_initialized(), "it outlives every handle");
    runtime.synchronize(DEVICE).unwrap();
    assert_eq!(runtime.inconsistency(), None);
    assert_eq!(runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current, 0);
}
