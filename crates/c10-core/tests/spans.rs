//! What takes long is a span of `tracing`: which, where they lie, and that nobody who does not listen hears of them.
#![expect(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod common;

use std::sync::{Arc, Mutex};

use c10_core::{CUDAGraph, CaptureMode, Error, HistoryOptions, MemoryError, Runtime};
use common::{DEVICE, Rig, config};
use testkit::Listener;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const MIB: usize = 1 << 20;

fn spans_of(run: impl FnOnce()) -> Vec<String> {
    let listener = Listener::default();
    listener.during(run);
    listener.take_spans()
}

#[test]
fn growing_running_out_and_giving_back_are_spans() {
    let rig = Rig::new(config().capacity(64 << 20));
    let stream = rig.stream();
    let heard = spans_of(|| drop(rig.runtime.memory().buffer(MIB + 1, &stream).unwrap()));
    assert_eq!(heard, ["grow 20971520", "grow 20971520 > segment_alloc 20971520"]);

    let heard = spans_of(|| drop(rig.runtime.memory().buffer(MIB + 1, &stream).unwrap()));
    assert!(heard.is_empty(), "what the cache serves is no span: {heard:?}");

    let heard = spans_of(|| assert!(rig.runtime.memory().buffer(100 * MIB, &stream).is_err()));
    let grow = "grow 104857600";
    let attempt = format!("{grow} > segment_alloc 104857600");
    let retry = format!("{grow} > retry 104857600");
    let expected = [
        grow.to_owned(),
        attempt,
        retry.clone(),
        format!("{retry} > segment_free"),
        format!("{retry} > segment_alloc 104857600"),
        format!("{grow} > out_of_memory 104857600"),
        // The error tells what other processes hold, as NVML knows.
        "load_library".to_owned(),
    ];
    assert_eq!(heard, expected);

    drop(rig.runtime.memory().buffer(1, &stream).unwrap());
    let heard = spans_of(|| rig.runtime.memory().empty_cache().unwrap());
    assert_eq!(heard, ["empty_cache", "empty_cache > segment_free"]);
}

#[test]
fn starting_capturing_and_looking_are_spans() {
    let rig = Rig::new(config());
    let heard = spans_of(|| drop(rig.stream()));
    assert_eq!(heard, ["start_runtime"]);

    let (stream, mut graph) = (rig.stream(), CUDAGraph::on(&rig.runtime, false));
    let buffer = rig.runtime.memory().buffer(MIB, &stream).unwrap();
    let fill = || buffer.fill(0..MIB, 1, &stream);
    let heard = spans_of(|| graph.capture(&stream, None, CaptureMode::Global, fill).unwrap());
    assert_eq!(heard, ["capture", "capture > instantiate_graph"]);
    let heard = spans_of(|| graph.replay().unwrap());
    assert!(heard.is_empty(), "{heard:?}");

    let heard = spans_of(|| drop(rig.runtime.memory().take_snapshot(None, true).unwrap()));
    assert_eq!(heard, ["snapshot"]);
    let heard = spans_of(|| drop(rig.runtime.pinned().buffer(MIB).unwrap()));
    assert_eq!(heard, [format!("pinned_alloc {MIB}")]);
}

/// Uses the allocator when it is told that it grows.
struct Meddles(Runtime, Arc<Mutex<Vec<Option<Error>>>>);

impl Subscriber for Meddles {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "grow"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn enter(&self, _: &Id) {
        let memory = self.0.memory();
        let stream = self.0.streams().default(DEVICE).unwrap();
        let outcomes = [
            memory.alloc(30 * MIB as u64, &stream).err(),
            memory.empty_cache().err(),
            memory.take_snapshot(None, true).err(),
            memory.record_history(None).err(),
        ];
        self.1.lock().unwrap().extend(outcomes);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_that_uses_the_allocator_is_refused_and_waits_for_nothing() {
    let rig = Rig::new(config());
    let (runtime, stream, outcomes) = (rig.runtime.clone(), rig.stream(), Arc::default());
    runtime.memory().record_history(Some(&HistoryOptions::default())).unwrap();
    let meddles = Meddles(runtime.clone(), Arc::clone(&outcomes));
    let allocate = || runtime.memory().alloc(MIB as u64 + 1, &stream).unwrap();
    let address = tracing::subscriber::with_default(meddles, allocate);
    let refused = Some(Error::Memory(MemoryError::Reentered));
    assert_eq!(*outcomes.lock().unwrap(), vec![refused; 4]);
    runtime.memory().free(address).unwrap();
    runtime.memory().empty_cache().unwrap();
    let actions: Vec<_> = runtime.memory().take_snapshot(None, true).unwrap().device_traces[0]
        .iter()
        .map(|entry| entry.action.name())
        .collect();
    assert_eq!(actions, ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]);
}
