//! The history of device memory under torch's names, and what is written to files.
#![expect(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod common;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use common::{on, rig};
use cuda_api::{
    DeviceBuffer, Error, Event, EventOptions, LegacyMemoryHistory, MemoryError, MemoryHistory, Runtime, Stream,
    attach_out_of_memory_observer, caching_allocator_alloc, caching_allocator_delete, detach_out_of_memory_observer,
    dump_snapshot, dump_snapshot_json, dump_snapshot_when_out_of_memory, explain_memory_request, get_memory_metadata,
    host_allocator, memory_fragmentation, memory_stats, memory_stats_prometheus, memory_tables, memory_viz,
    record_memory_history, record_memory_history_impl, record_memory_history_legacy,
    register_callback_for_device_synchronization, register_callback_for_event_creation,
    register_callback_for_event_deletion, register_callback_for_event_record,
    register_callback_for_event_synchronization, register_callback_for_event_wait,
    register_callback_for_memory_allocation, register_callback_for_memory_deallocation,
    register_callback_for_stream_creation, register_callback_for_stream_synchronization, save_memory_usage,
    save_segment_usage, segments, set_allocator_settings, set_memory_metadata, snapshot,
};
use memory_viz::{Action, BlockState, Setting, Snapshot, file};
use testkit::Config;

const MIB: u64 = 1 << 20;

/// A folder of its own for a test's files; removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cuda-api-history-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn actions(snapshot: &Snapshot) -> Vec<&'static str> {
    snapshot.device_traces[0].iter().map(|entry| entry.action.name()).collect()
}

/// Some memory in every state, with its history.
fn scene() -> (Vec<u64>, Stream) {
    record_memory_history(&MemoryHistory { context: Some("alloc"), ..MemoryHistory::default() }).unwrap();
    set_memory_metadata("scene");
    let side = Stream::new(None, 0).unwrap();
    let held = vec![
        caching_allocator_alloc(1000, None, None).unwrap(),
        caching_allocator_alloc(30 * MIB, None, &side).unwrap(),
    ];
    let used = caching_allocator_alloc(3 * MIB, None, None).unwrap();
    Runtime::current().memory().record_stream(used, &side).unwrap();
    DeviceBuffer::new(1 << 20, None).unwrap().fill(.., 1, &side).unwrap();
    caching_allocator_delete(used).unwrap();
    set_memory_metadata("");
    (held, side)
}

#[test]
fn a_snapshot_has_what_torchs_has() {
    let rig = on(Config::default().seed(2).devices(2).late_events(true));
    set_allocator_settings("max_split_size_mb:64,roundup_power2_divisions:4").unwrap();
    let (held, side) = scene();
    let taken = snapshot(None).unwrap();
    assert_eq!((taken.device_traces.len(), taken.segments.len()), (2, rig.machine.live().allocations));
    assert_eq!(actions(&taken).iter().filter(|action| **action == "alloc").count(), 4);
    let states = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive];
    for state in states {
        let has = taken.segments.iter().flat_map(|segment| &segment.blocks).any(|block| block.state == state);
        assert!(has, "{state:?}");
    }
    for segment in &taken.segments {
        let ends = segment.blocks.iter().map(|block| block.address + block.size);
        let begins = segment.blocks.iter().skip(1).map(|block| block.address);
        assert!(ends.zip(begins).all(|(end, begin)| end == begin), "blocks touch each other");
    }
    let reserved = memory_stats(0).unwrap().reserved_bytes.all.current.unsigned_abs();
    assert_eq!(taken.segments.iter().map(|segment| segment.total_size).sum::<u64>(), reserved);
    let first = &taken.device_traces[0][1];
    assert_eq!((first.action, first.addr, first.size), (Action::Alloc, held[0], 1000));
    let text = |id: Option<memory_viz::TextId>| taken.names.text_of(id.unwrap());
    assert_eq!((text(first.compile_context), text(first.user_metadata)), ("N/A", "scene"));
    let frames = taken.names.frames_of(first.stack);
    assert!(frames.iter().any(|id| taken.names.frame_text(*id).contains("scene")), "the stack names this program");
    let side = i64::try_from(side.cuda_stream()).unwrap();
    assert!(taken.segments.iter().any(|segment| segment.stream == side));
    let setting = |name: &str| taken.allocator_settings.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    assert_eq!(setting("max_split_size"), Some(&Setting::Int(64 << 20)));
    let text = "max_split_size_mb:64,roundup_power2_divisions:4".to_owned();
    assert_eq!(setting("PYTORCH_CUDA_ALLOC_CONF"), Some(&Setting::Text(text)));
    let divisions = (0..16).map(|entry| ((1_u32 << entry).to_string(), Setting::Int(4))).collect();
    assert_eq!(setting("roundup_power2_divisions"), Some(&Setting::Map(divisions)));
    let names: Vec<_> = taken.allocator_settings.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "PYTORCH_CUDA_ALLOC_CONF",
        "max_split_size",
        "garbage_collection_threshold",
        "expandable_segments",
        "pinned_num_register_threads",
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse",
        "roundup_power2_divisions",
    ];
    assert_eq!(names, expected);
    assert_eq!(actions(&snapshot(0).unwrap()).last(), Some(&"snapshot"));
    held.into_iter().for_each(|address| caching_allocator_delete(address).unwrap());
}

#[test]
fn files_say_what_the_snapshot_says() {
    let _rig = rig();
    let (held, _side) = scene();
    let folder = Folder::new("files");
    let (pickle, json) = (folder.file("dump_snapshot.pickle"), folder.file("dump_snapshot.json"));
    dump_snapshot(&pickle).unwrap();
    dump_snapshot_json(&json).unwrap();
    let (from_pickle, from_json) = (file::read(&pickle).unwrap(), file::read(&json).unwrap());
    assert_eq!(from_pickle.segments.len(), from_json.segments.len());
    assert_eq!(from_pickle.segments.len(), snapshot(None).unwrap().segments.len());
    // The first file is one entry shorter: it is a snapshot itself.
    assert_eq!(from_pickle.device_traces[0].len() + 1, from_json.device_traces[0].len());
    let stack = |snapshot: &Snapshot| {
        let entry = &snapshot.device_traces[0][1];
        let frames = snapshot.names.frames_of(entry.stack).iter();
        frames.map(|id| snapshot.names.frame_text(*id)).collect::<Vec<_>>()
    };
    assert!(!stack(&from_pickle).is_empty());
    assert_eq!(stack(&from_pickle), stack(&from_json));
    let missing = folder.file("no/such/folder");
    assert!(dump_snapshot(missing).unwrap_err().to_string().contains("cannot write"));
    let lines = segments(&from_pickle);
    let bytes = lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(bytes.sum::<u64>(), from_pickle.segments.iter().map(|segment| segment.total_size).sum::<u64>());
    let (by_segment, by_memory) = (folder.file("segments.svg"), folder.file("memory.svg"));
    save_segment_usage(&by_segment, None).unwrap();
    save_memory_usage(&by_memory, Some(&from_pickle)).unwrap();
    for path in [by_segment, by_memory] {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("<svg") && text.contains("active_allocated"));
    }
    held.into_iter().for_each(|address| caching_allocator_delete(address).unwrap());
}

#[test]
fn options_are_torchs() {
    let _rig = rig();
    let refused = |arguments: &MemoryHistory<'_>| match record_memory_history_impl(arguments) {
        Err(Error::Memory(error @ MemoryError::HistoryOption { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let default = MemoryHistory::default;
    let cases = [
        (MemoryHistory { enabled: Some("on"), ..default() }, "expected state to be 'state', 'all', or None, not 'on'"),
        (
            MemoryHistory { context: Some(""), ..default() },
            "expected context to be 'state', 'alloc', 'all', or None, not ''",
        ),
        (MemoryHistory { stacks: "rust", ..default() }, "expected stacks to be 'python', or 'all', not 'rust'"),
        (
            MemoryHistory { skip_actions: &["alloc", "malloc"], ..default() },
            "expected skip_actions to be names of actions, such as 'free_requested', not 'malloc'",
        ),
    ];
    for (arguments, text) in cases {
        assert_eq!(refused(&arguments), text);
    }
    let after = |record: &dyn Fn()| {
        record_memory_history(&MemoryHistory::OFF).unwrap();
        record();
        drop(DeviceBuffer::new(1000, None).unwrap());
        actions(&snapshot(None).unwrap()).len()
    };
    assert_eq!(after(&|| ()), 0);
    assert_eq!(after(&|| record_memory_history(&MemoryHistory { enabled: Some("state"), ..default() }).unwrap()), 1);
    assert_eq!(after(&|| record_memory_history(&MemoryHistory { max_entries: 2, ..default() }).unwrap()), 2);
    assert_eq!(after(&|| record_memory_history(&default()).unwrap()), 3);
    let skip_actions = &["free_completed"][..];
    assert_eq!(after(&|| record_memory_history(&MemoryHistory { skip_actions, ..default() }).unwrap()), 2);
    assert_eq!(after(&|| record_memory_history_legacy(&LegacyMemoryHistory::new(true)).unwrap()), 1);
    let longer = LegacyMemoryHistory { trace_alloc_max_entries: 9, ..LegacyMemoryHistory::new(true) };
    assert_eq!(after(&|| record_memory_history_legacy(&longer).unwrap()), 3);
    assert_eq!(after(&|| record_memory_history_legacy(&LegacyMemoryHistory::new(false)).unwrap()), 0);
}

#[test]
fn recording_begins_before_the_runtime_does() {
    let _rig = rig();
    record_memory_history(&MemoryHistory::default()).unwrap();
    assert!(snapshot(None).unwrap().device_traces.is_empty() && !Runtime::current().is_initialized());
    drop(DeviceBuffer::new(1000, None).unwrap());
    assert_eq!(actions(&snapshot(None).unwrap()), ["segment_alloc", "alloc", "free_requested", "free_completed"]);
}

#[test]
fn metadata_is_the_threads_own() {
    let _rig = rig();
    assert_eq!(get_memory_metadata(), "");
    set_memory_metadata("mine");
    assert_eq!(get_memory_metadata(), "mine");
    assert_eq!(std::thread::spawn(get_memory_metadata).join().unwrap(), "");
    set_memory_metadata("");
    assert_eq!(get_memory_metadata(), "");
}

#[test]
fn running_out_leaves_a_snapshot() {
    let _rig = on(Config::default().capacity(64 << 20));
    let folder = Folder::new("oom");
    let path = folder.file("oom.pickle");
    record_memory_history(&MemoryHistory::default()).unwrap();
    let id = dump_snapshot_when_out_of_memory(&path);
    let unwritten = attach_out_of_memory_observer(|_, _, _, _| {});
    assert!(caching_allocator_alloc(100 * MIB, None, None).is_err());
    let taken = file::read(&path).unwrap();
    let oom = taken.device_traces[0].iter().find(|entry| entry.action == Action::OutOfMemory).unwrap();
    assert_eq!((oom.size, oom.addr), (100 * MIB, 0));
    assert_eq!(oom.device_free, cuda_api::mem_get_info(None).unwrap().0);
    assert!(detach_out_of_memory_observer(id) && detach_out_of_memory_observer(unwritten));
    std::fs::remove_file(&path).unwrap();
    assert!(caching_allocator_alloc(100 * MIB, None, None).is_err());
    assert!(!path.exists());
}

#[test]
fn pinned_memory_has_an_allocator() {
    let _rig = rig();
    let allocator = host_allocator();
    let buffer = allocator.memory().buffer(1000).unwrap();
    assert_eq!(allocator.memory().stats().active_requests.current, 1);
    drop(buffer);
    assert_eq!(allocator.memory().stats().active_requests.current, 0);
}

#[test]
fn figures_beyond_torchs_agree_with_the_statistics() {
    let _rig = rig();
    assert!(memory_stats_prometheus().unwrap().contains("torch_cuda_host_allocations 0\n"));
    let (held, side) = scene();
    let stats = memory_stats(0).unwrap();
    let text = memory_stats_prometheus().unwrap();
    for (device, stats) in [(0, stats), (1, memory_stats(1).unwrap())] {
        for (name, value) in stats.flatten().into_iter().filter(|(name, _)| name.ends_with(".current")) {
            let mut parts = name.split('.');
            let (family, pool) = (parts.next().unwrap(), parts.next().filter(|part| *part != "current"));
            let pool = pool.map_or_else(String::new, |pool| format!(",pool=\"{pool}\""));
            let line = format!("\ntorch_cuda_{family}{{device=\"{device}\"{pool}}} {value}\n");
            assert!(text.contains(&line), "{line} is missing in {text}");
        }
    }
    assert!(text.contains("\n# TYPE torch_cuda_num_ooms_total counter\ntorch_cuda_num_ooms_total{device=\"0\"} 0\n"));
    let types =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| line.split(' ').next().unwrap());
    let types: Vec<_> = types.collect();
    assert!(types.is_sorted() && types.windows(2).all(|pair| pair[0] != pair[1]), "each metric has one type");
    let of = memory_fragmentation(0).unwrap();
    let bytes = |figure: i64| figure.unsigned_abs();
    assert_eq!(of.reserved, bytes(stats.reserved_bytes.all.current));
    assert_eq!(of.allocated, bytes(stats.allocated_bytes.all.current));
    assert_eq!(of.allocated + of.pending, bytes(stats.active_bytes.all.current));
    assert_eq!(of.free + of.allocated + of.pending, of.reserved);
    assert!(of.largest_free <= of.free);
    let table = memory_tables(0).unwrap();
    assert!(table.contains(&format!("{:#x}", side.cuda_stream())), "{table}");
    assert!(table.lines().count() >= 4, "a line for each stream and size: {table}");
    assert_eq!(memory_tables(1).unwrap().lines().count(), 2, "nothing is held of the other device");
    let outlook = explain_memory_request(of.largest_free, None).unwrap();
    assert_eq!(outlook.requested, of.largest_free);
    held.into_iter().for_each(|address| caching_allocator_delete(address).unwrap());
}

/// All ten hooks of torch by their names.
#[test]
fn hooks_hear_of_the_ten_things() {
    let _rig = rig();
    let log: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let one = |what: &'static str| {
        let log = Arc::clone(&log);
        move |_: u64| log.lock().unwrap().push(what)
    };
    let two = |what: &'static str| {
        let log = Arc::clone(&log);
        move |_: u64, _: u64| log.lock().unwrap().push(what)
    };
    let none = {
        let log = Arc::clone(&log);
        move || log.lock().unwrap().push("device synchronization")
    };
    register_callback_for_event_creation(one("event creation"));
    register_callback_for_event_deletion(one("event deletion"));
    register_callback_for_event_record(two("event record"));
    register_callback_for_event_wait(two("event wait"));
    register_callback_for_memory_allocation(one("memory allocation"));
    register_callback_for_memory_deallocation(one("memory deallocation"));
    register_callback_for_stream_creation(one("stream creation"));
    register_callback_for_device_synchronization(none);
    register_callback_for_stream_synchronization(one("stream synchronization"));
    register_callback_for_event_synchronization(one("event synchronization"));
    let stream = Stream::new(None, 0).unwrap();
    let event = Event::new(EventOptions::default());
    let buffer = DeviceBuffer::new(100, None).unwrap();
    event.record(&stream).unwrap();
    event.wait(None).unwrap();
    event.synchronize().unwrap();
    stream.synchronize().unwrap();
    cuda_api::synchronize(None).unwrap();
    drop((buffer, event));
    let mut heard = std::mem::take(&mut *log.lock().unwrap());
    assert_eq!(heard.iter().filter(|what| **what == "stream creation").count(), 4 * 32, "of each level");
    heard.dedup();
    let expected = [
        "stream creation",
        "memory allocation",
        "event creation",
        "event record",
        "event wait",
        "event synchronization",
        "stream synchronization",
        "device synchronization",
        "memory deallocation",
        "event deletion",
    ];
    assert_eq!(heard, expected);
}
