//! The time line as a file: what Perfetto demands of it, and that it tells the truth about the simulated device.
#![expect(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::rig;
use cuda_api::timeline::{self, Timeline, TimelineOptions};
use cuda_api::{CUDAGraph, DeviceBuffer, Event, EventOptions, Stream, torch};
use serde_json::Value;

/// The file of a time line.
struct File(Value);

impl File {
    fn of(timeline: &Timeline) -> Self {
        let mut text = Vec::new();
        timeline.write_to(&mut text).unwrap();
        Self(serde_json::from_slice(&text).expect("the file is JSON"))
    }

    fn record(run: impl FnOnce()) -> Self {
        let recorder = timeline::record(&TimelineOptions::default()).unwrap();
        run();
        Self::of(&recorder.finish())
    }

    fn phase<'a>(&'a self, phase: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0["traceEvents"].as_array().unwrap().iter().filter(move |event| event["ph"] == phase)
    }

    /// Slices of streams.
    fn slices(&self) -> Vec<&Value> {
        self.phase("X").filter(|event| event["cat"] != "cuda_driver").collect()
    }

    fn named(&self, name: &str) -> Vec<&Value> {
        self.slices().into_iter().filter(|event| event["name"] == name).collect()
    }
}

/// Nanoseconds of a time of the file, which has three digits behind the point.
fn nanos(time: &Value) -> i64 {
    Duration::from_secs_f64(time.as_f64().unwrap().max(0.0) / 1e6).as_nanos().try_into().unwrap()
}

fn place(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())
}

fn span(slice: &Value) -> (i64, i64) {
    let start = nanos(&slice["ts"]);
    (start, start + nanos(&slice["dur"]))
}

/// What holds of every file.
fn check(file: &File) {
    let mut by_stream: BTreeMap<_, Vec<(i64, i64)>> = BTreeMap::new();
    for slice in file.phase("X") {
        assert!(nanos(&slice["dur"]) >= 0 && slice["name"].is_string() && slice["args"].is_object(), "{slice}");
    }
    for slice in file.slices() {
        by_stream.entry(place(slice)).or_default().push(span(slice));
    }
    for spans in by_stream.values_mut() {
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "slices of a stream overlap: {spans:?}");
        assert!(spans.iter().all(|(start, end)| end > start));
    }
    // Everything lies on a thread that has a name, and no thread has two.
    let named: Vec<_> = file.phase("M").filter(|event| event["name"] == "thread_name").map(place).collect();
    let places: BTreeSet<_> = named.iter().copied().collect();
    assert_eq!(places.len(), named.len());
    let processes: BTreeSet<_> =
        file.phase("M").filter(|event| event["name"] == "process_name").map(|event| event["pid"].as_u64()).collect();
    assert!(places.iter().all(|(process, _)| processes.contains(&Some(*process))));
    assert!(file.phase("X").chain(file.phase("i")).all(|event| places.contains(&place(event))));
    let threads: BTreeSet<_> = places.iter().map(|(_, thread)| thread).collect();
    assert_eq!(threads.len(), places.len(), "a number of a thread is used twice");
    // An arrow begins in one slice and ends in a later one.
    let starts: BTreeMap<_, _> = file.phase("s").map(|event| (event["id"].as_u64(), event)).collect();
    assert_eq!(starts.len(), file.phase("f").count(), "every arrow that begins ends");
    for end in file.phase("f") {
        let start = starts[&end["id"].as_u64()];
        for point in [start, end] {
            let (at, place) = (nanos(&point["ts"]), place(point));
            assert!(by_stream[&place].iter().any(|(start, end)| (*start..*end).contains(&at)), "{point}");
        }
        assert!(nanos(&start["ts"]) <= nanos(&end["ts"]), "{start} {end}");
    }
}

#[test]
fn streams_events_copies_and_kernels_lie_on_one_line() {
    let _rig = rig();
    let (first, second) = (Stream::new(None, 0).unwrap(), Stream::new(None, 0).unwrap());
    let file = File::record(|| {
        let (a, b) = cuda_api::with_stream(&first, || {
            let a = torch::ones(&[1 << 16], torch::float32, "cuda")?;
            let b = torch::add(&a, &a)?;
            Ok((a, b))
        })
        .unwrap();
        let event = Event::new(EventOptions::default());
        event.record(&first).unwrap();
        event.wait(&second).unwrap();
        cuda_api::with_stream(&second, || torch::mul(&a, &b)).unwrap();
        let buffer = DeviceBuffer::new(1 << 20, None).unwrap();
        buffer.fill(.., 7, &second).unwrap();
        buffer.copy_from_slice(0, &[1; 1000]).unwrap();
        assert_eq!(buffer.to_vec().unwrap().len(), 1 << 20);
        second.synchronize().unwrap();
        cuda_api::synchronize(None).unwrap();
    });
    check(&file);
    let names: Vec<_> = file.slices().iter().map(|slice| slice["name"].as_str().unwrap()).collect();
    for name in ["Memset", "Memcpy HtoD", "Memcpy DtoH", "event record", "event wait"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let kernels: Vec<_> = file.slices().into_iter().filter(|slice| slice["cat"] == "kernel").collect();
    assert_eq!(kernels.len(), 3);
    assert!(kernels.iter().all(|kernel| kernel["name"] != "kernel" && kernel["args"]["kernel"] == kernel["name"]));
    assert_eq!((file.phase("s").count(), file.named("event wait").len()), (1, 1));
    let calls: BTreeSet<_> = file.phase("X").map(|slice| slice["name"].as_str().unwrap()).collect();
    assert!(calls.contains("cuStreamSynchronize") && calls.contains("cuCtxSynchronize"));
    // The wait ends when the other stream has come to the record.
    let (record, wait) = (span(file.named("event record")[0]), span(file.named("event wait")[0]));
    assert!(wait.1 >= record.0, "{record:?} {wait:?}");
}

#[test]
fn times_are_those_of_events_around_the_work() {
    let _rig = rig();
    let buffer = DeviceBuffer::new(64 << 20, None).unwrap();
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    let file = File::record(|| {
        start.record(None).unwrap();
        buffer.fill(.., 7, None).unwrap();
        end.record(None).unwrap();
    });
    check(&file);
    let expected = i64::try_from(start.elapsed(&end).unwrap().as_nanos()).unwrap();
    let (from, to) = span(file.named("Memset")[0]);
    // The program's events lie around those of the recorder, each of which takes some microseconds itself.
    assert!((0..=12_000).contains(&(expected - (to - from))), "{} and {expected}", to - from);
}

#[test]
fn counters_are_the_figures_of_the_allocator() {
    let _rig = rig();
    let held = DeviceBuffer::new(3 << 20, None).unwrap();
    let mut expected = Vec::new();
    let file = File::record(|| {
        let mut kept = Vec::new();
        for size in [1 << 10, 5 << 20, 700, 30 << 20] {
            kept.push(DeviceBuffer::new(size, None).unwrap());
            expected.push(cuda_api::memory_allocated(None).unwrap());
            if size == 700 {
                kept.remove(0);
                expected.push(cuda_api::memory_allocated(None).unwrap());
            }
        }
        drop(kept);
        cuda_api::empty_cache().unwrap();
    });
    check(&file);
    let counter = |name| -> Vec<u64> {
        let values = file.phase("C").filter(|event| event["name"] == name);
        values.map(|event| event["args"]["bytes"].as_u64().unwrap()).collect()
    };
    let allocated = counter("allocated bytes");
    let mut at = 0;
    for value in &expected {
        let found = allocated[at..].iter().position(|known| known == value);
        at += found.unwrap_or_else(|| panic!("{value} is not in {allocated:?} after {at}"));
    }
    assert_eq!(allocated.last().copied(), Some(cuda_api::memory_allocated(None).unwrap()));
    assert_eq!(counter("reserved bytes").last().copied(), Some(cuda_api::memory_reserved(None).unwrap()));
    let instants = file.phase("i").filter(|event| event["name"] == "[memory]");
    let actions: BTreeSet<_> = instants.map(|event| event["args"]["Action"].as_str().unwrap()).collect();
    let all = ["alloc", "free_completed", "free_requested", "segment_alloc", "segment_free"];
    assert_eq!(actions, BTreeSet::from(all));
    drop(held);
}

#[test]
fn what_a_graph_captures_is_one_slice_a_replay() {
    let _rig = rig();
    let stream = Stream::new(None, 0).unwrap();
    let buffer = DeviceBuffer::new(1 << 20, None).unwrap();
    let mut graph = CUDAGraph::new();
    let file = File::record(|| {
        graph
            .capture(&stream, None, cuda_api::CaptureMode::Global, || -> cuda_api::Result<()> {
                buffer.fill(..1000, 1, &stream)?;
                buffer.fill(1000.., 2, &stream)
            })
            .unwrap();
        for _ in 0..3 {
            cuda_api::with_stream(&stream, || Ok(graph.replay()?)).unwrap();
        }
    });
    check(&file);
    assert_eq!((file.named("graph replay").len(), file.named("Memset").len()), (3, 0));
    assert_eq!(file.phase("X").filter(|slice| slice["name"] == "cuMemsetAsync").count(), 2, "the calls are there");
}

#[test]
fn nothing_is_left_and_nothing_is_recorded_afterwards() {
    let rig = rig();
    let buffer = DeviceBuffer::new(1 << 20, None).unwrap();
    buffer.fill(.., 1, None).unwrap();
    let streams = rig.machine.live().streams;
    let recorder = timeline::record(&TimelineOptions::default()).unwrap();
    buffer.fill(.., 2, None).unwrap();
    drop(recorder);
    let recorder = timeline::record(&TimelineOptions::default()).unwrap();
    buffer.fill(.., 3, None).unwrap();
    let timeline = recorder.finish();
    buffer.fill(.., 4, None).unwrap();
    assert_eq!((timeline.len(), timeline.dropped()), (1, 0));
    assert_eq!(rig.machine.live().streams, streams, "the recorder's own stream is gone");
}

#[test]
fn threads_and_devices_have_lines_of_their_own() {
    let _rig = rig();
    let other = Stream::new(1, 0).unwrap();
    let file = File::record(|| {
        let buffer = DeviceBuffer::new(1 << 10, None).unwrap();
        buffer.fill(.., 1, None).unwrap();
        let far = cuda_api::with_stream(&other, || Ok(DeviceBuffer::new(1 << 10, None)?)).unwrap();
        far.fill(.., 1, &other).unwrap();
    });
    check(&file);
    let devices: BTreeSet<_> = file.named("Memset").iter().map(|slice| slice["pid"].as_u64()).collect();
    assert_eq!(devices.len(), 2);
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let _rig = rig();
    let recorder = timeline::record(&TimelineOptions { device_times: false, ..TimelineOptions::default() }).unwrap();
    let timeline = recorder.finish();
    assert!(timeline.is_empty());
    let path = std::env::temp_dir().join("there/is/no/such/folder/timeline.json");
    assert!(timeline::export_chrome_trace(&timeline, path).is_err());
}
