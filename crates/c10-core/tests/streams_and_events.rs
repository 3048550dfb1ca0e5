//! Streams, events, and the order they make.

mod common;

use std::cell::RefCell;

use c10_core::{
    DeviceIndex, DeviceType, Error, Event, EventOptions, Result, RuntimeGuard, SanitizerAction, SanitizerOptions,
    Stream, StreamError, StreamGuard, StreamId,
};
use common::{DEVICE, Rig, config, relay, rig};

#[test]
fn pools_hand_out_32_streams_in_turn() {
    let rig = rig();
    let streams: Vec<_> = (0..33).map(|_| rig.stream()).collect();
    assert_eq!(streams[0], streams[32]);
    assert_eq!(streams[0].cuda_stream(), streams[32].cuda_stream());
    assert_eq!(streams[..32].iter().collect::<std::collections::HashSet<_>>().len(), 32);
    assert_eq!(streams[5].stream_id(), StreamId(5 * 32 + 3));
    assert_eq!(rig.machine.live().streams, 32);
}

#[test]
fn priorities_are_brought_into_range() {
    let rig = rig();
    let (least, greatest) = rig.runtime.streams().priority_range(DEVICE).unwrap();
    assert_eq!(least, 0);
    assert!((-3..0).contains(&greatest));
    for (asked, given) in [(0, 0), (5, 0), (-1, -1), (-100, greatest), (i32::MIN, greatest)] {
        let stream = rig.runtime.streams().pooled(DEVICE, asked).unwrap();
        assert_eq!(stream.priority().unwrap(), given, "{asked}");
    }
}

#[test]
fn an_id_and_a_device_name_a_stream() {
    let rig = rig();
    let stream = rig.runtime.streams().pooled(DEVICE, -1).unwrap();
    assert_eq!(rig.runtime.streams().by_id(DEVICE, stream.stream_id()).unwrap(), stream);
    let default = rig.runtime.streams().default(DEVICE).unwrap();
    assert_eq!((default.stream_id(), default.cuda_stream(), default.is_default()), (StreamId(0), 0, true));
    assert_eq!(rig.runtime.streams().by_id(DEVICE, StreamId(0)).unwrap(), default);
    for nonsense in [1, 2, -5, 4096 + 3] {
        let refused = rig.runtime.streams().by_id(DEVICE, StreamId(nonsense));
        assert_eq!(refused, Err(Error::Stream(StreamError::Unknown { id: nonsense })));
    }
    assert_eq!(default.to_string(), "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>");
}

#[test]
fn guards_restore_stream_and_device() {
    let rig = Rig::new(config().devices(2));
    let there = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    let here = rig.stream();
    let before = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    rig.runtime.streams().set_current(&before).unwrap();
    rig.runtime.streams().set_current(&here).unwrap();
    {
        let _outer = rig.runtime.streams().guard(&there).unwrap();
        assert_eq!(rig.runtime.current_device().unwrap(), DeviceIndex(1));
        assert_eq!(rig.runtime.streams().current(DeviceIndex(1)).unwrap(), there);
        assert_eq!(rig.runtime.streams().current(DEVICE).unwrap(), here);
        let _inner = rig.runtime.streams().guard(&rig.runtime.streams().default(DEVICE).unwrap()).unwrap();
        assert!(rig.runtime.streams().current(DEVICE).unwrap().is_default());
    }
    assert_eq!(rig.runtime.current_device().unwrap(), DEVICE);
    assert_eq!(rig.runtime.streams().current(DEVICE).unwrap(), here);
    assert_eq!(rig.runtime.streams().current(DeviceIndex(1)).unwrap(), before);
}

#[test]
fn current_streams_are_a_matter_of_the_thread() {
    let rig = rig();
    rig.runtime.streams().set_current(&rig.stream()).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _bound = rig.machine.bind();
            rig.runtime.streams().current(DEVICE).unwrap().is_default()
        });
        assert!(other.join().unwrap());
    });
    assert!(!rig.runtime.streams().current(DEVICE).unwrap().is_default());
}

#[test]
fn guards_take_any_order_of_devices_and_leave_what_they_found() {
    let rig = Rig::new(config().devices(2));
    let streams: Vec<_> =
        [0, 1, 1, 0].map(|device| rig.runtime.streams().pooled(DeviceIndex(device), 0).unwrap()).into();
    let current = || {
        let of = |device| rig.runtime.streams().current(DeviceIndex(device)).unwrap();
        (rig.runtime.current_device().unwrap(), of(0), of(1))
    };
    rig.runtime.streams().set_current(&streams[2]).unwrap();
    let first = current();
    for outer in &streams {
        let _outer = outer.guard();
        let second = current();
        for inner in &streams {
            let guard = rig.runtime.streams().guard(inner).unwrap();
            assert_eq!(guard.previous_device(), second.0);
            assert_eq!(current().0, inner.device_index());
            // What is set inside goes with the guard, for the devices that it is about.
            rig.runtime.streams().set_current(&rig.runtime.streams().default(inner.device_index()).unwrap()).unwrap();
            drop(guard);
            assert_eq!(current(), second);
        }
    }
    assert_eq!(current(), first);
}

#[test]
fn several_streams_become_current_at_once() {
    let rig = Rig::new(config().devices(3));
    let stream = |device| rig.runtime.streams().pooled(DeviceIndex(device), 0).unwrap();
    let (here, there, there_too) = (stream(0), stream(1), stream(1));
    let current = |device| rig.runtime.streams().current(DeviceIndex(device)).unwrap();
    rig.runtime.set_device(DeviceIndex(2)).unwrap();
    {
        let _all = rig.runtime.streams().guard_all([&here, &there, &there_too]).unwrap();
        assert_eq!((current(0), current(1)), (here.clone(), there_too.clone()));
        assert!(current(2).is_default());
        assert_eq!(rig.runtime.current_device().unwrap(), DeviceIndex(2));
        let _none = rig.runtime.streams().guard_all([]).unwrap();
    }
    assert!((0..3).all(|device| current(device).is_default()));
    let other = common::runtime();
    let strange = other.streams().pooled(DEVICE, 0).unwrap();
    let refused = rig.runtime.streams().guard_all([&here, &strange]).map(drop);
    assert_eq!(refused, Err(Error::OtherRuntime { what: "stream" }));
    assert!(current(0).is_default(), "nothing is changed by what is refused");
}

#[test]
fn streams_of_another_runtime_become_current_there_only() {
    let (rig, other) = (rig(), common::runtime());
    let (ours, theirs) = (rig.stream(), other.streams().pooled(DEVICE, 0).unwrap());
    assert_eq!(rig.runtime.streams().set_current(&theirs), Err(Error::OtherRuntime { what: "stream" }));
    assert_eq!(rig.runtime.streams().guard(&theirs).map(drop), Err(Error::OtherRuntime { what: "stream" }));
    assert_ne!(ours, theirs, "the same id on the same device, of another runtime");
    let (_ours, _theirs) = (ours.guard(), theirs.guard());
    assert_eq!(rig.runtime.streams().current(DEVICE).unwrap(), ours);
    assert_eq!(other.streams().current(DEVICE).unwrap(), theirs);
}

#[test]
fn ids_of_the_current_runtime_name_streams() {
    let rig = rig();
    let _bound = rig.runtime.bind();
    let stream = rig.runtime.streams().pooled(DEVICE, -3).unwrap();
    let again = Stream::from_id(stream.stream_id(), stream.device_index(), stream.device_type());
    assert_eq!(again.unwrap(), stream);
    let on_host = Stream::from_id(stream.stream_id(), DEVICE, DeviceType::Cpu).unwrap_err();
    assert_eq!(on_host.to_string(), "Expected a cuda device, but got: cpu:0");
    assert!(Stream::from_id(StreamId(0), DeviceIndex(5), DeviceType::Cuda).is_err());
}

/// Threads that set, look and leave at the same time, on two runtimes in turn, see their own streams only.
#[test]
fn each_thread_has_its_own_current_streams() {
    let rig = Rig::new(config().devices(2));
    let other = common::runtime();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (runtime, other, machine) = (&rig.runtime, &other, &rig.machine);
            scope.spawn(move || {
                let _bound = machine.bind();
                let device = DeviceIndex(number % 2);
                let (mine, too) =
                    (runtime.streams().pooled(device, 0).unwrap(), other.streams().pooled(device, 0).unwrap());
                for _ in 0..200 {
                    let _mine = mine.guard();
                    assert!(other.streams().current(device).unwrap().is_default());
                    let _too = too.guard();
                    assert_eq!(runtime.streams().current(device).unwrap(), mine);
                    assert_eq!(other.streams().current(device).unwrap(), too);
                    assert_eq!((runtime.current_device(), other.current_device()), (Ok(device), Ok(device)));
                }
                assert!(runtime.streams().current(device).unwrap().is_default());
            });
        }
    });
}

thread_local! {
    /// Goes with the thread, before or after what the runtime keeps for it.
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

struct Late {
    guard: Option<(StreamGuard, RuntimeGuard)>,
    stream: Stream,
}

impl Drop for Late {
    fn drop(&mut self) {
        self.guard = None;
        let runtime = self.stream.runtime();
        let _again = (runtime.bind(), self.stream.guard());
        assert_eq!(runtime.streams().current(DEVICE), Ok(self.stream.clone()));
    }
}

#[test]
fn guards_may_outlive_what_their_thread_keeps() {
    let rig = rig();
    for made_first in [true, false] {
        let stream = rig.stream();
        let outlived = std::thread::spawn(move || {
            if made_first {
                LATE.with_borrow(Option::is_none);
            }
            let guard = Some((stream.guard(), stream.runtime().bind()));
            LATE.set(Some(Late { guard, stream }));
        });
        assert!(outlived.join().is_ok());
    }
    assert!(rig.runtime.streams().current(DEVICE).unwrap().is_default());
}

#[test]
fn making_a_pool_of_streams_fails_whole() {
    use cuda_sys::CUresult;
    let rig = rig();
    let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    rig.machine.inject(cuda_sim::Fault { call: "cuStreamCreateWithPriority", occurrence: 20, code });
    assert_eq!(common::code(rig.runtime.streams().pooled(DEVICE, 0)), code.0);
    assert_eq!(rig.machine.live().streams, 0);
    assert_eq!(rig.stream().stream_id(), StreamId(3), "the next request makes all of them");
    assert_eq!(rig.machine.live().streams, 32);
    assert_eq!(rig.left().streams, 0);
}

#[test]
fn an_event_that_was_never_recorded_is_done() {
    let rig = rig();
    let event = Event::on(&rig.runtime, EventOptions::default());
    assert!(event.query().unwrap());
    event.synchronize().unwrap();
    event.wait(rig.stream()).unwrap();
    assert_eq!((event.device(), event.cuda_event()), (None, 0));
    assert_eq!(event.to_string(), "<torch.cuda.Event uninitialized>");
    assert_eq!(rig.machine.live().events, 0);
}

#[test]
fn elapsed_time_needs_timing_records_and_completion() {
    let rig = rig();
    let stream = rig.stream();
    let event = |options| Event::on(&rig.runtime, options);
    let (plain, start, end) =
        (event(EventOptions::default()), event(EventOptions::TIMING), event(EventOptions::TIMING));
    let text = |result: Result<f32>| result.unwrap_err().to_string();
    let timing = "Both events must be created with argument 'enable_timing=True'.";
    assert_eq!(text(plain.elapsed_time(&end)), timing);
    assert_eq!(text(start.elapsed_time(&plain)), timing);
    let recorded = "Both events must be recorded before calculating elapsed time.";
    assert_eq!(text(start.elapsed_time(&end)), recorded);
    start.record(&stream).unwrap();
    assert_eq!(text(start.elapsed_time(&end)), recorded);
    let buffer = rig.runtime.memory().buffer(64 << 20, &stream).unwrap();
    buffer.fill(0..64 << 20, 1, &stream).unwrap();
    end.record(&stream).unwrap();
    if !end.query().unwrap() {
        assert_eq!(text(start.elapsed_time(&end)), "Both events must be completed before calculating elapsed time.");
    }
    end.synchronize().unwrap();
    let time = start.elapsed_time(&end).unwrap();
    assert!(time > 0.0, "{time} ms");
}

#[test]
fn an_event_stays_on_its_device() {
    let rig = Rig::new(config().devices(2));
    let event = Event::on(&rig.runtime, EventOptions::default());
    event.record(rig.stream()).unwrap();
    let elsewhere = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    let error = event.record(&elsewhere).unwrap_err();
    assert_eq!(error.to_string(), "Event device 0 does not match recording stream's device 1.");
    event.wait(&elsewhere).unwrap();
    event.synchronize().unwrap();
}

/// `ordered` says whether the second stream waits for the first.
fn relay_in_turn(seed: u64, ordered: bool) -> Result<bool> {
    relay(seed, |_, first, second| if ordered { second.wait_stream(first) } else { Ok(()) })
}

#[test]
fn waiting_orders_streams_under_every_seed_and_not_waiting_does_not() {
    assert!((0..30).all(|seed| relay_in_turn(seed, true).unwrap()));
    assert!((0..30).any(|seed| !relay_in_turn(seed, false).unwrap()), "a forgotten wait is never noticed");
}

#[test]
fn waiting_for_an_idle_stream_is_one_call() {
    let rig = rig();
    let stream = rig.stream();
    let pool = rig.runtime.mem_pools().create(c10_core::MemPoolOptions::default()).unwrap();
    stream.synchronize().unwrap();
    let calls = || rig.machine.calls().iter().map(|(.., count)| count).sum::<u64>();
    let before = calls();
    stream.synchronize().unwrap();
    // While memory is routed, the thread's capture mode is changed around what a sweep calls; here there is nothing.
    let _routed = rig.runtime.mem_pools().enter(&pool, DEVICE).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(calls() - before, 2);
}

#[test]
fn a_stream_outside_the_pools_is_ones_own() {
    let rig = rig();
    let streams = rig.runtime.streams();
    let own = streams.unpooled(DEVICE, -1).unwrap();
    let (id, copy) = (own.stream_id(), own.clone());
    assert_eq!((own.priority(), own.is_default()), (Ok(-1), false));
    let buffer = rig.runtime.memory().buffer(4, &own).unwrap();
    buffer.fill(.., 7, &own).unwrap();
    drop(own);
    assert_ne!(streams.unpooled(DEVICE, -1).unwrap().stream_id(), id, "another handle is there");
    copy.sleep(1 << 20).unwrap();
    drop(copy);
    let others: Vec<_> = (0..3).map(|_| streams.unpooled(DEVICE, -1).unwrap()).collect();
    assert!(others.iter().all(|other| other.stream_id() != id), "its work is not done");
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_ne!(streams.unpooled(DEVICE, 0).unwrap().stream_id(), id, "its priority is another");
    assert_eq!(streams.unpooled(DEVICE, -1).unwrap().stream_id(), id);
    assert_eq!(buffer.to_vec().unwrap(), [7; 4]);
    drop((others, buffer));
    assert_eq!(rig.left().streams, 0);
}

/// Reading a buffer waits for the stream that the buffer was allocated on, whichever stream is current.
#[test]
fn copies_of_host_memory_follow_the_stream_of_the_buffer() {
    for seed in 0..32 {
        let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().seed(seed));
        let runtime = simulated.runtime();
        let options = SanitizerOptions { action: SanitizerAction::Collect, ..SanitizerOptions::ranges() };
        let sanitizer = runtime.enable_sanitizer(options);
        for stream in [runtime.streams().pooled(DEVICE, 0).unwrap(), runtime.streams().unpooled(DEVICE, 0).unwrap()] {
            let buffer = runtime.memory().buffer(1 << 20, &stream).unwrap();
            buffer.fill(.., 7, &stream).unwrap();
            assert!(buffer.to_vec().unwrap().iter().all(|&byte| byte == 7), "seed {seed}: it is read after the fill");
            buffer.fill(.., 8, &stream).unwrap();
            buffer.copy_from_slice(0, &[9; 4]).unwrap();
            buffer.copy_from_buffer(4, &buffer.clone(), ..4, &stream).unwrap();
            assert_eq!(buffer.to_vec().unwrap()[..9], [9, 9, 9, 9, 9, 9, 9, 9, 8], "seed {seed}");
        }
        assert_eq!(sanitizer.take_errors(), [], "seed {seed}");
    }
}
