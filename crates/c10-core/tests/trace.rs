//! What a runtime reports: the history of device memory against the memory itself, hooks, and who is told in which order.
#![expect(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use c10_core::{
    BlockState, Event, EventOptions, HistoryContext, HistoryOptions, HistoryStacks, MemPoolOptions, MemorySnapshot,
    TraceAction, TraceEntry, TraceEvent, TraceKind, TraceKinds,
};
use common::{DEVICE, Rig, config, rig};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn record(rig: &Rig, options: &HistoryOptions) {
    rig.runtime.memory().record_history(Some(options)).unwrap();
}

fn bare() -> HistoryOptions {
    HistoryOptions { context: HistoryContext::Never, ..HistoryOptions::default() }
}

fn snapshot(rig: &Rig) -> MemorySnapshot {
    rig.runtime.memory().take_snapshot(None, true).unwrap()
}

fn actions(snapshot: &MemorySnapshot) -> Vec<&'static str> {
    snapshot.device_traces[0].iter().map(|entry| entry.action.name()).collect()
}

/// What the entries of a device lead to, from nothing on.
#[derive(Default, Debug, PartialEq)]
struct Replay {
    /// Requested bytes by address.
    allocated: BTreeMap<u64, u64>,
    pending: BTreeMap<u64, u64>,
    segments: BTreeMap<u64, u64>,
}

impl Replay {
    fn of(entries: &[TraceEntry]) -> Self {
        let mut replay = Self::default();
        entries.iter().for_each(|entry| replay.step(entry));
        replay
    }

    fn step(&mut self, &TraceEntry { action, address, size, .. }: &TraceEntry) {
        match action {
            TraceAction::Alloc => {
                let free = !self.pending.contains_key(&address);
                assert!(free && self.allocated.insert(address, size).is_none(), "{address:#x} was in use");
            }
            TraceAction::FreeRequested => {
                assert_eq!(self.allocated.remove(&address), Some(size), "{address:#x} was not handed out");
                self.pending.insert(address, size);
            }
            TraceAction::FreeCompleted => assert_eq!(self.pending.remove(&address), Some(size), "{address:#x}"),
            TraceAction::SegmentAlloc | TraceAction::SegmentMap => self.map(address, size),
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => self.unmap(address, size),
            TraceAction::Snapshot | TraceAction::Oom => {}
        }
    }

    fn map(&mut self, address: u64, size: u64) {
        let (mut from, mut bytes) = (address, size);
        if let Some(after) = self.segments.remove(&(address + size)) {
            bytes += after;
        }
        let before = self.segments.range(..address).next_back().map(|(from, size)| (*from, *size));
        if let Some((begin, size)) = before.filter(|(begin, size)| begin + size >= address) {
            assert_eq!(begin + size, address, "memory was there already");
            (from, bytes) = (begin, bytes + size);
        }
        self.segments.insert(from, bytes);
    }

    fn unmap(&mut self, address: u64, size: u64) {
        let (begin, bytes) = self.segments.range(..=address).next_back().map(|(from, size)| (*from, *size)).unwrap();
        assert!(address + size <= begin + bytes, "no memory was there");
        self.segments.remove(&begin);
        if begin < address {
            self.segments.insert(begin, address - begin);
        }
        if address + size < begin + bytes {
            self.segments.insert(address + size, begin + bytes - address - size);
        }
    }

    /// What a snapshot says, with neighbouring segments as one.
    fn of_segments(snapshot: &MemorySnapshot) -> Self {
        let mut replay = Self::default();
        for segment in &snapshot.segments {
            replay.map(segment.address, segment.total_size);
            for block in &segment.blocks {
                let place = match block.state {
                    BlockState::ActiveAllocated => &mut replay.allocated,
                    BlockState::ActivePendingFree => &mut replay.pending,
                    BlockState::Inactive => continue,
                };
                place.insert(block.address, block.requested_size);
            }
        }
        replay
    }
}

#[test]
fn the_first_allocation_and_its_free_are_four_entries() {
    let rig = rig();
    record(&rig, &HistoryOptions::default());
    let stream = rig.stream();
    let address = rig.runtime.memory().alloc(3_000_000, &stream).unwrap();
    rig.runtime.memory().free(address).unwrap();
    let first = snapshot(&rig);
    assert_eq!(actions(&first), ["segment_alloc", "alloc", "free_requested", "free_completed"]);
    let of = |entry: &TraceEntry| (entry.address, entry.size, entry.stream);
    let handle = stream.cuda_stream() as u64;
    let entries: Vec<_> = first.device_traces[0].iter().map(of).collect();
    assert_eq!(
        entries,
        [
            (address, 20 * MIB, handle),
            (address, 3_000_000, handle),
            (address, 3_000_000, handle),
            (address, 3_000_000, handle)
        ]
    );
    assert!(first.device_traces[0].is_sorted_by_key(|entry| entry.time_us));
    let second = snapshot(&rig);
    assert_eq!(actions(&second).last(), Some(&"snapshot"), "the first snapshot shows in the second");
    assert_eq!(second.device_traces[0][4].size, 0, "no byte was active");
}

/// The order that PyTorch's allocator showed for the same calls.
#[test]
fn entries_come_in_the_order_of_torch() {
    let rig = rig();
    record(&rig, &bare());
    let (main, side) = (rig.runtime.streams().default(DEVICE).unwrap(), rig.stream());
    let memory = rig.runtime.memory();
    let first = memory.alloc(3_000_000, &main).unwrap();
    let second = memory.alloc(100, &main).unwrap();
    memory.record_stream(first, &side).unwrap();
    memory.free(first).unwrap();
    memory.free(second).unwrap();
    side.synchronize().unwrap();
    memory.alloc(100, &main).unwrap();
    memory.empty_cache().unwrap();
    let taken = snapshot(&rig);
    let said: Vec<_> = taken.device_traces[0].iter().map(|entry| (entry.action.name(), entry.size)).collect();
    let expected = [
        ("segment_alloc", 20 * MIB),
        ("alloc", 3_000_000),
        ("segment_alloc", 2 * MIB),
        ("alloc", 100),
        ("free_requested", 3_000_000),
        ("free_requested", 100),
        ("free_completed", 100),
        ("free_completed", 3_000_000),
        ("alloc", 100),
        ("segment_free", 20 * MIB),
    ];
    assert_eq!(said, expected);
    let blocks: Vec<_> = taken.segments[0].blocks.iter().map(|b| (b.size, b.requested_size, b.state.name())).collect();
    assert_eq!(blocks, [(512, 100, "active_allocated"), (2_096_640, 100, "inactive")]);
}

#[test]
fn nothing_is_recorded_before_and_after() {
    let rig = rig();
    let stream = rig.stream();
    let memory = rig.runtime.memory();
    let held = memory.alloc(100, &stream).unwrap();
    assert_eq!(actions(&snapshot(&rig)), [""; 0]);
    record(&rig, &bare());
    // This thread was handed it out last, which does not keep it from being reported.
    memory.free(held).unwrap();
    assert_eq!(actions(&snapshot(&rig)), ["free_requested", "free_completed"]);
    memory.record_history(None).unwrap();
    let again = memory.alloc(100, &stream).unwrap();
    memory.free(again).unwrap();
    assert_eq!(actions(&snapshot(&rig)), [""; 0]);
    assert!(!memory.records_history() && rig.runtime.is_valid());
}

#[test]
fn a_refused_free_is_no_entry() {
    let rig = rig();
    let memory = rig.runtime.memory();
    let address = allocate_here(&rig);
    record(&rig, &bare());
    let other = allocate_here(&rig);
    memory.free(other).unwrap();
    assert!(memory.free(other).is_err() && memory.free(other).is_err(), "it was given back");
    memory.free(address).unwrap();
    assert!(memory.free(address).is_err());
    let entries = ["alloc", "free_requested", "free_completed", "free_requested", "free_completed"];
    assert_eq!(actions(&snapshot(&rig)), entries);
}

#[test]
fn the_ring_keeps_the_newest() {
    let rig = rig();
    record(&rig, &HistoryOptions { max_entries: 5, ..bare() });
    let stream = rig.stream();
    for bytes in 1..=10 {
        let address = rig.runtime.memory().alloc(bytes, &stream).unwrap();
        rig.runtime.memory().free(address).unwrap();
    }
    let sizes: Vec<_> = snapshot(&rig).device_traces[0].iter().map(|entry| (entry.action, entry.size)).collect();
    use TraceAction::{Alloc, FreeCompleted, FreeRequested};
    assert_eq!(sizes, [(FreeRequested, 9), (FreeCompleted, 9), (Alloc, 10), (FreeRequested, 10), (FreeCompleted, 10)]);
    // Recording again with `clear_history` begins anew; without it, it goes on.
    record(&rig, &HistoryOptions { max_entries: 7, ..bare() });
    assert_eq!(snapshot(&rig).device_traces[0].len(), 5);
    record(&rig, &HistoryOptions { max_entries: 7, clear_history: true, ..bare() });
    assert_eq!(snapshot(&rig).device_traces[0].len(), 0);
}

#[test]
fn skipped_actions_have_no_entries_and_reach_subscribers() {
    let rig = rig();
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    rig.runtime.subscribe(TraceKind::Memory.into(), move |event| {
        count.fetch_add(u64::from(matches!(event, TraceEvent::FreeRequested(_))), Ordering::Relaxed);
    });
    let skip_actions = vec![TraceAction::FreeRequested, TraceAction::SegmentAlloc];
    record(&rig, &HistoryOptions { skip_actions, ..bare() });
    let address = rig.runtime.memory().alloc(1, &rig.stream()).unwrap();
    rig.runtime.memory().free(address).unwrap();
    assert_eq!(actions(&snapshot(&rig)), ["alloc", "free_completed"]);
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[inline(never)]
fn allocate_here(rig: &Rig) -> u64 {
    let address = rig.runtime.memory().alloc(1000, &rig.runtime.streams().default(DEVICE).unwrap()).unwrap();
    std::hint::black_box(address)
}

#[inline(never)]
fn free_there(rig: &Rig, address: u64) {
    rig.runtime.memory().free(address).unwrap();
    std::hint::black_box(address);
}

/// Whether the stacks of the live block, of the entry about it, and of the entry about its free name those functions.
fn names(context: HistoryContext, stacks: HistoryStacks) -> [bool; 5] {
    let rig = rig();
    record(&rig, &HistoryOptions { context, stacks, ..HistoryOptions::default() });
    let address = allocate_here(&rig);
    let during = snapshot(&rig);
    free_there(&rig, address);
    let after = snapshot(&rig);
    let has = |frames: &[c10_core::TraceFrame], name: &str| frames.iter().any(|frame| frame.name.ends_with(name));
    let entry = |action| after.device_traces[0].iter().find(|entry| entry.action == action).unwrap();
    assert_eq!(after.frames_of_block(address), [], "a stack goes with its block");
    let freed = &entry(TraceAction::FreeRequested).frames;
    [
        has(during.frames_of_block(address), "allocate_here"),
        has(during.frames_of_segment(address), "allocate_here"),
        has(&entry(TraceAction::Alloc).frames, "allocate_here"),
        has(freed, "allocate_here"),
        has(freed, "free_there"),
    ]
}

#[test]
fn each_level_records_stacks_where_it_says() {
    use HistoryContext::{All, Alloc, Never, State};
    for stacks in [HistoryStacks::All, HistoryStacks::Program] {
        assert_eq!(names(Never, stacks), [false; 5]);
        assert_eq!(names(State, stacks), [true, true, false, false, false]);
        assert_eq!(names(Alloc, stacks), [true, true, true, true, false]);
        assert_eq!(names(All, stacks), [true, true, true, false, true]);
    }
}

fn named(frames: &[c10_core::TraceFrame]) -> bool {
    frames.iter().any(|frame| frame.name.ends_with("allocate_here"))
}

#[test]
fn what_lives_keeps_its_stack_when_the_history_ends() {
    let rig = rig();
    let memory = rig.runtime.memory();
    record(&rig, &HistoryOptions { context: HistoryContext::Alloc, ..HistoryOptions::default() });
    let (kept, freed) = (allocate_here(&rig), allocate_here(&rig));
    memory.record_history(None).unwrap();
    let ended = snapshot(&rig);
    assert_eq!(actions(&ended), [""; 0]);
    assert!([kept, freed].iter().all(|address| named(ended.frames_of_block(*address))));
    assert!(named(ended.frames_of_segment(kept)));
    for _ in 0..3 {
        memory.free(freed).unwrap();
        assert_eq!(allocate_here(&rig), freed, "the same block serves again");
    }
    let later = snapshot(&rig);
    assert_eq!(later.frames_of_block(freed), [], "nobody recorded who made this one");
    assert!(named(later.frames_of_block(kept)) && named(later.frames_of_segment(kept)));
    memory.record_history(None).unwrap();
    assert_eq!(snapshot(&rig).frames_of_block(freed), [], "ending twice marks nothing anew");
    record(&rig, &HistoryOptions { context: HistoryContext::Alloc, ..HistoryOptions::default() });
    let again = snapshot(&rig);
    assert!(named(again.frames_of_block(kept)) && again.frames_of_block(freed).is_empty());
    memory.free(kept).unwrap();
    assert!(named(&snapshot(&rig).device_traces[0][1].frames), "the free has the stack of the allocation");
}

#[test]
fn a_new_segment_has_no_stack_of_one_that_went_while_nobody_recorded() {
    let rig = rig();
    let memory = rig.runtime.memory();
    record(&rig, &HistoryOptions::default());
    let address = allocate_here(&rig);
    memory.record_history(None).unwrap();
    memory.free(address).unwrap();
    assert!(named(snapshot(&rig).frames_of_segment(address)), "the segment is still there");
    memory.empty_cache().unwrap();
    assert_eq!(allocate_here(&rig), address, "the driver gives the same address again");
    assert_eq!(snapshot(&rig).frames_of_segment(address), []);
    record(&rig, &HistoryOptions::default());
    let again = snapshot(&rig);
    assert_eq!((again.frames_of_segment(address), again.frames_of_block(address)), (&[][..], &[][..]));
}

proptest! {
    /// Blocks have stacks exactly if they were allocated while the history was recorded, however often it ended since.
    #[test]
    fn stacks_are_those_of_what_lives(steps in prop::collection::vec((0_u8..8, any::<prop::sample::Index>()), 1..120)) {
        let rig = rig();
        let (memory, stream) = (rig.runtime.memory(), rig.stream());
        let (mut held, mut on) = (Vec::<(u64, bool)>::new(), false);
        for (step, index) in steps {
            match step {
                0 => {
                    on = !on;
                    let options = HistoryOptions { context: HistoryContext::State, ..HistoryOptions::default() };
                    memory.record_history(on.then_some(&options)).unwrap();
                }
                1..=4 => held.push((memory.alloc([500, 3000, 2 << 20][index.index(3)], &stream).unwrap(), on)),
                5 if !held.is_empty() => memory.free(held.swap_remove(index.index(held.len())).0).unwrap(),
                6 => held.pop().into_iter().for_each(|(address, _)| memory.free(address).unwrap()),
                7 if !held.is_empty() => std::thread::scope(|scope| {
                    let (address, _) = held.swap_remove(index.index(held.len()));
                    let (machine, runtime) = (&rig.machine, &rig.runtime);
                    scope.spawn(move || {
                        let _bound = machine.bind();
                        runtime.memory().free(address).unwrap();
                    });
                }),
                _ => {}
            }
            let taken = memory.state().unwrap();
            for (address, recorded) in &held {
                prop_assert_eq!(!taken.frames_of_block(*address).is_empty(), *recorded, "{:#x}", address);
            }
        }
        prop_assert!(rig.runtime.is_valid());
    }
}

#[test]
fn frames_have_files_and_lines_and_the_program_is_told_from_its_libraries() {
    let rig = rig();
    record(&rig, &HistoryOptions { stacks: HistoryStacks::Program, ..HistoryOptions::default() });
    let address = allocate_here(&rig);
    let taken = snapshot(&rig);
    let frames = taken.frames_of_block(address);
    let here = frames.iter().find(|frame| frame.name.ends_with("allocate_here")).unwrap();
    assert!(here.filename.ends_with("trace.rs") && here.line > 100, "{here:?}");
    let foreign = |name: &str| name.starts_with("std::") || name.starts_with("c10_core::");
    assert!(!frames.iter().any(|frame| foreign(&frame.name)), "{frames:?}");
}

#[test]
fn texts_go_with_what_the_thread_does() {
    let rig = rig();
    record(&rig, &HistoryOptions { compile_context: true, global_record_annotations: true, ..bare() });
    let memory = rig.runtime.memory();
    assert_eq!(memory.metadata(), "");
    memory.set_metadata("layer 3");
    assert_eq!(
        (memory.metadata(), std::thread::spawn(|| c10_core::Runtime::current().memory().metadata()).join().unwrap()),
        ("layer 3".to_owned(), String::new())
    );
    let outer = memory.compile_context("outer");
    let inner = memory.compile_context("inner");
    let first = memory.alloc(1, &rig.stream()).unwrap();
    drop(inner);
    let scope = memory.annotate("step").unwrap();
    memory.free(first).unwrap();
    drop((scope, outer));
    memory.set_metadata("");
    let second = memory.alloc(1, &rig.stream()).unwrap();
    let taken = snapshot(&rig);
    let of = |entry: &TraceEntry| {
        (entry.action.name(), entry.compile_context.as_deref().map(str::to_owned), entry.user_metadata.to_string())
    };
    let said: Vec<_> = taken.device_traces[0].iter().map(of).collect();
    let say = |name, context: Option<&str>, text: &str| (name, context.map(str::to_owned), text.to_owned());
    let mut expected = vec![say("segment_alloc", Some("inner"), "layer 3"), say("alloc", Some("inner"), "layer 3")];
    expected.extend(["free_requested", "free_completed"].map(|name| say(name, Some("outer"), "layer 3")));
    assert_eq!(said[..4], expected);
    assert_eq!(said.last(), Some(&say("alloc", None, "")));
    let annotations: Vec<_> = taken.external_annotations.iter().map(|a| (&*a.name, a.is_end, a.device)).collect();
    assert_eq!(annotations, [("step", false, DEVICE), ("step", true, DEVICE)]);
    memory.free(second).unwrap();
}

#[test]
fn running_out_is_an_entry_with_the_free_bytes() {
    let rig = Rig::new(config().capacity(64 * MIB));
    record(&rig, &bare());
    assert!(rig.runtime.memory().alloc(100 * MIB, &rig.stream()).is_err());
    let taken = snapshot(&rig);
    let oom = taken.device_traces[0].iter().find(|entry| entry.action == TraceAction::Oom).unwrap();
    assert_eq!((oom.size, oom.address), (100 * MIB, rig.runtime.memory().info(DEVICE).unwrap().free));
}

#[test]
fn hooks_are_called_in_order_and_a_panic_stops_nobody() {
    let rig = rig();
    let runtime = &rig.runtime;
    let log: Arc<Mutex<Vec<(&str, u64)>>> = Arc::default();
    let note = |what: &'static str| {
        let log = Arc::clone(&log);
        move |number: u64| log.lock().unwrap().push((what, number))
    };
    let (before, failing, after) = (note("before"), note("failing"), note("after"));
    runtime.register_callback_for_memory_allocation(before);
    let id = runtime.register_callback_for_memory_allocation(move |address| {
        failing(address);
        panic!("a hook fails");
    });
    runtime.register_callback_for_memory_allocation(after);
    runtime.register_callback_for_memory_deallocation(note("freed"));
    let stream = runtime.streams().default(DEVICE).unwrap();
    let take = || std::mem::take(&mut *log.lock().unwrap());
    let address = runtime.memory().alloc(10, &stream).unwrap();
    assert_eq!(take(), [("before", address), ("failing", address), ("after", address)]);
    runtime.memory().free(address).unwrap();
    assert_eq!(take(), [("freed", address)]);
    assert!(runtime.unsubscribe(id) && !runtime.unsubscribe(id));
    let address = runtime.memory().alloc(10, &stream).unwrap();
    assert_eq!(take(), [("before", address), ("after", address)]);
    runtime.memory().free(address).unwrap();
}

/// What was called, with which numbers.
type Log = Arc<Mutex<Vec<(&'static str, Vec<u64>)>>>;

#[test]
fn every_hook_is_called_for_its_event() {
    let rig = rig();
    let runtime = &rig.runtime;
    let log: Log = Arc::default();
    let one = |what: &'static str| {
        let log = Arc::clone(&log);
        move |number: u64| log.lock().unwrap().push((what, vec![number]))
    };
    let two = |what: &'static str| {
        let log = Arc::clone(&log);
        move |event: u64, stream: u64| log.lock().unwrap().push((what, vec![event, stream]))
    };
    let stream = rig.stream();
    runtime.register_callback_for_event_creation(one("creation"));
    runtime.register_callback_for_event_deletion(one("deletion"));
    runtime.register_callback_for_event_record(two("record"));
    runtime.register_callback_for_event_wait(two("wait"));
    runtime.register_callback_for_stream_creation(one("stream"));
    runtime.register_callback_for_stream_synchronization(one("stream sync"));
    runtime.register_callback_for_event_synchronization(one("event sync"));
    let told = Arc::clone(&log);
    runtime.register_callback_for_device_synchronization(move || told.lock().unwrap().push(("device sync", vec![])));
    let take = || std::mem::take(&mut *log.lock().unwrap());
    let event = Event::on(runtime, EventOptions::default());
    event.record(&stream).unwrap();
    let (handle, queue) = (event.cuda_event() as u64, stream.cuda_stream() as u64);
    event.wait(&stream).unwrap();
    event.synchronize().unwrap();
    stream.synchronize().unwrap();
    runtime.synchronize(DEVICE).unwrap();
    drop(event);
    let expected = [
        ("creation", vec![handle]),
        ("record", vec![handle, queue]),
        ("wait", vec![handle, queue]),
        ("event sync", vec![handle]),
        ("stream sync", vec![queue]),
        ("device sync", vec![]),
        ("deletion", vec![handle]),
    ];
    assert_eq!(take(), expected);
    runtime.streams().pooled(DEVICE, -1).unwrap();
    let made = take().iter().filter(|(what, _)| *what == "stream").count();
    assert_eq!(made, 3 * 32, "the pools of the other levels are made at once");
    let buffer = runtime.memory().buffer(8, &stream).unwrap();
    buffer.copy_from_slice(0, &[1; 8]).unwrap();
    let calls: Vec<_> = take().into_iter().map(|(what, _)| what).collect();
    assert_eq!(
        calls,
        ["creation", "record", "wait", "deletion", "stream sync"],
        "a copy that follows the stream of its buffer"
    );
}

/// A subscriber may use the runtime, of which it is told nothing.
#[test]
fn subscribers_hold_no_lock() {
    let rig = rig();
    let seen: Arc<Mutex<Vec<TraceEvent>>> = Arc::default();
    let (told, runtime) = (Arc::clone(&seen), rig.runtime.clone());
    let id = rig.runtime.subscribe(TraceKinds::ALL, move |event| {
        told.lock().unwrap().push(*event);
        let stream = runtime.streams().pooled(DEVICE, 0).unwrap();
        drop(runtime.memory().buffer(1 << 22, &stream).unwrap());
        runtime.memory().empty_cache().unwrap();
    });
    let stream = rig.runtime.streams().default(DEVICE).unwrap();
    let buffer = rig.runtime.memory().buffer(100, &stream).unwrap();
    buffer.fill(.., 3, &stream).unwrap();
    drop(rig.runtime.pinned().buffer(100).unwrap());
    let kinds: Vec<_> = seen.lock().unwrap().iter().map(TraceEvent::kind).collect();
    use TraceKind::{Access, Begin, Copy, Memory, Pinned};
    assert_eq!(kinds, [Memory, Memory, Begin, Copy, Access, Pinned, Pinned]);
    assert!(rig.runtime.unsubscribe(id));
    drop(buffer);
    assert_eq!(seen.lock().unwrap().len(), 7);
}

#[test]
fn memory_past_the_cache_is_told_and_has_no_entry() {
    let rig = rig();
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    for is_free in [false, true] {
        let seen = Arc::clone(&seen);
        let note = move |address| seen.lock().unwrap().push(address * 2 + u64::from(is_free));
        match is_free {
            false => rig.runtime.register_callback_for_memory_allocation(note),
            true => rig.runtime.register_callback_for_memory_deallocation(note),
        };
    }
    record(&rig, &bare());
    rig.runtime.memory().enable_caching(false);
    let address = rig.runtime.memory().alloc(100, &rig.stream()).unwrap();
    rig.runtime.memory().free(address).unwrap();
    assert_eq!(*seen.lock().unwrap(), [address * 2, address * 2 + 1]);
    assert_eq!(actions(&snapshot(&rig)), [""; 0]);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { bytes: u64, stream: usize },
    Free(usize),
    Use { block: usize, stream: usize },
    Synchronize(usize),
    Empty,
    Remote(usize),
    Pool(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1..2000_u64, 1..3 * MIB, 1..40 * MIB];
    let step = prop_oneof![
        8 => (bytes, 0..3_usize).prop_map(|(bytes, stream)| Step::Alloc { bytes, stream }),
        6 => any::<usize>().prop_map(Step::Free),
        3 => (any::<usize>(), 0..3_usize).prop_map(|(block, stream)| Step::Use { block, stream }),
        1 => (0..3_usize).prop_map(Step::Synchronize),
        1 => Just(Step::Empty),
        2 => any::<usize>().prop_map(Step::Remote),
        1 => (1..3 * MIB).prop_map(Step::Pool),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Runs a program and compares what its history leads to with what is there.
fn check_replay(steps: &[Step], settings: &str) {
    let rig = Rig::new(config().late_events(true));
    let memory = rig.runtime.memory();
    memory.set_settings(settings).unwrap();
    record(&rig, &bare());
    let streams = [rig.runtime.streams().default(DEVICE).unwrap(), rig.stream(), rig.stream()];
    let pool = rig.runtime.mem_pools().create(MemPoolOptions::default()).unwrap();
    let mut live: Vec<u64> = Vec::new();
    for step in steps {
        match *step {
            Step::Alloc { bytes, stream } => live.extend(memory.alloc(bytes, &streams[stream])),
            Step::Pool(bytes) => {
                let _scope = rig.runtime.mem_pools().enter(&pool, DEVICE).unwrap();
                live.extend(memory.alloc(bytes, &streams[1]));
            }
            Step::Free(block) if !live.is_empty() => memory.free(live.swap_remove(block % live.len())).unwrap(),
            Step::Remote(block) if !live.is_empty() => {
                let (address, runtime) = (live.swap_remove(block % live.len()), rig.runtime.clone());
                let machine = rig.machine.clone();
                std::thread::spawn(move || {
                    let _bound = machine.bind();
                    runtime.memory().free(address).unwrap();
                })
                .join()
                .unwrap();
            }
            Step::Use { block, stream } if !live.is_empty() => {
                memory.record_stream(live[block % live.len()], &streams[stream]).unwrap();
            }
            Step::Synchronize(stream) => streams[stream].synchronize().unwrap(),
            Step::Empty => memory.empty_cache().unwrap(),
            Step::Free(_) | Step::Remote(_) | Step::Use { .. } => {}
        }
    }
    let taken = snapshot(&rig);
    assert_eq!(Replay::of(&taken.device_traces[0]), Replay::of_segments(&taken));
    check_sums(&rig, &taken);
    assert!(rig.runtime.is_valid());
}

/// Sums over the snapshot give the statistics back.
fn check_sums(rig: &Rig, taken: &MemorySnapshot) {
    let stats = rig.runtime.memory().stats(DEVICE).unwrap();
    let sum =
        |of: fn(&c10_core::SegmentInfo) -> u64| i64::try_from(taken.segments.iter().map(of).sum::<u64>()).unwrap();
    assert_eq!(sum(|segment| segment.total_size), stats.reserved_bytes.all.current);
    assert_eq!(sum(|segment| segment.allocated_size), stats.allocated_bytes.all.current);
    assert_eq!(sum(|segment| segment.active_size), stats.active_bytes.all.current);
    assert_eq!(sum(|segment| segment.requested_size), stats.requested_bytes.all.current);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_history_leads_to_what_is_there(steps in steps()) {
        check_replay(&steps, "");
    }

    #[test]
    fn the_same_with_segments_that_expand(steps in steps()) {
        check_replay(&steps, "expandable_segments:True");
    }

    #[test]
    fn the_same_with_blocks_that_are_not_split(steps in steps()) {
        check_replay(&steps, "max_split_size_mb:21,release_lock_on_cudamalloc:True");
    }
}

/// Threads that take each other's memory: no entry comes too late.
#[test]
fn entries_of_threads_are_in_the_order_of_what_happened() {
    let rig = rig();
    record(&rig, &bare());
    let stream = rig.runtime.streams().default(DEVICE).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _bound = rig.machine.bind();
                for round in 0..300 {
                    let held: Vec<_> = (0..4)
                        .map(|size| rig.runtime.memory().alloc(1 + size * 600 + round % 5, &stream).unwrap())
                        .collect();
                    held.into_iter().for_each(|address| rig.runtime.memory().free(address).unwrap());
                }
            });
        }
    });
    let taken = snapshot(&rig);
    assert_eq!(Replay::of(&taken.device_traces[0]), Replay::of_segments(&taken));
    assert_eq!(taken.device_traces[0].iter().filter(|entry| entry.action == TraceAction::Alloc).count(), 4 * 300 * 4);
}
