//! Streams, events, and the order they make.

mod common;

use c10_core::{DeviceIndex, Error, Event, EventOptions, Result, StreamId};
use common::{DEVICE, Rig, config, rig};

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
    let (least, greatest) = rig.runtime.priority_range_of(DEVICE).unwrap();
    assert_eq!(least, 0);
    assert!((-3..0).contains(&greatest));
    for (asked, given) in [(0, 0), (5, 0), (-1, -1), (-100, greatest), (i32::MIN, greatest)] {
        let stream = rig.runtime.new_stream(DEVICE, asked).unwrap();
        assert_eq!(stream.priority().unwrap(), given, "{asked}");
    }
}

#[test]
fn an_id_and_a_device_name_a_stream() {
    let rig = rig();
    let stream = rig.runtime.new_stream(DEVICE, -1).unwrap();
    assert_eq!(rig.runtime.stream_from_id(DEVICE, stream.stream_id()).unwrap(), stream);
    let default = rig.runtime.default_stream(DEVICE).unwrap();
    assert_eq!((default.stream_id(), default.cuda_stream(), default.is_default()), (StreamId(0), 0, true));
    assert_eq!(rig.runtime.stream_from_id(DEVICE, StreamId(0)).unwrap(), default);
    for nonsense in [1, 2, -5, 4096 + 3] {
        let refused = rig.runtime.stream_from_id(DEVICE, StreamId(nonsense));
        assert_eq!(refused, Err(Error::UnknownStream { id: nonsense }));
    }
    assert_eq!(default.to_string(), "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>");
}

#[test]
fn guards_restore_stream_and_device() {
    let rig = Rig::new(config().devices(2));
    let there = rig.runtime.new_stream(DeviceIndex(1), 0).unwrap();
    let here = rig.stream();
    let before = rig.runtime.new_stream(DeviceIndex(1), 0).unwrap();
    rig.runtime.set_stream(&before).unwrap();
    rig.runtime.set_stream(&here).unwrap();
    {
        let _outer = rig.runtime.stream_guard(&there).unwrap();
        assert_eq!(rig.runtime.current_device().unwrap(), DeviceIndex(1));
        assert_eq!(rig.runtime.current_stream(DeviceIndex(1)).unwrap(), there);
        assert_eq!(rig.runtime.current_stream(DEVICE).unwrap(), here);
        let _inner = rig.runtime.stream_guard(&rig.runtime.default_stream(DEVICE).unwrap()).unwrap();
        assert!(rig.runtime.current_stream(DEVICE).unwrap().is_default());
    }
    assert_eq!(rig.runtime.current_device().unwrap(), DEVICE);
    assert_eq!(rig.runtime.current_stream(DEVICE).unwrap(), here);
    assert_eq!(rig.runtime.current_stream(DeviceIndex(1)).unwrap(), before);
}

#[test]
fn current_streams_are_a_matter_of_the_thread() {
    let rig = rig();
    rig.runtime.set_stream(&rig.stream()).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _bound = rig.machine.bind();
            rig.runtime.current_stream(DEVICE).unwrap().is_default()
        });
        assert!(other.join().unwrap());
    });
    assert!(!rig.runtime.current_stream(DEVICE).unwrap().is_default());
}

#[test]
fn an_event_that_was_never_recorded_is_done() {
    let rig = rig();
    let event = Event::on(&rig.runtime, EventOptions::default());
    assert!(event.query().unwrap());
    event.synchronize().unwrap();
    event.wait(&rig.stream()).unwrap();
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
    let buffer = rig.runtime.buffer(64 << 20, &stream).unwrap();
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
    event.record(&rig.stream()).unwrap();
    let elsewhere = rig.runtime.new_stream(DeviceIndex(1), 0).unwrap();
    let error = event.record(&elsewhere).unwrap_err();
    assert_eq!(error.to_string(), "Event device 0 does not match recording stream's device 1.");
    event.wait(&elsewhere).unwrap();
    event.synchronize().unwrap();
}

/// Copies through two streams; `ordered` says whether the second waits for the first.
fn relay(seed: u64, ordered: bool) -> Result<bool> {
    const LEN: usize = 1 << 20;
    let rig = Rig::new(config().seed(seed).late_events(true));
    let (first, second) = (rig.stream(), rig.stream());
    let source = rig.runtime.pinned(LEN)?;
    let target = rig.runtime.pinned(LEN)?;
    source.write(0, &vec![9; LEN])?;
    target.write(0, &vec![0; LEN])?;
    let buffer = rig.runtime.buffer(LEN, &first)?;
    buffer.fill(0..LEN, 1, &first)?;
    first.synchronize()?;
    buffer.copy_from_pinned(0, &source, 0..LEN, &first)?;
    if ordered {
        second.wait_stream(&first)?;
    }
    buffer.copy_to_pinned(0..LEN, &target, 0, &second)?;
    second.synchronize()?;
    Ok(target.to_vec()?.iter().all(|&byte| byte == 9))
}

#[test]
fn waiting_orders_streams_under_every_seed_and_not_waiting_does_not() {
    assert!((0..30).all(|seed| relay(seed, true).unwrap()));
    assert!((0..30).any(|seed| !relay(seed, false).unwrap()), "a forgotten wait is never noticed");
}
