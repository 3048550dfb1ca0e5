//! Torch's rules case by case. A case tells a checker what a runtime would report.

use super::*;
use crate::base::ids::PoolId;

const DEVICE: DeviceIndex = DeviceIndex(0);

fn stream(handle: u64) -> TraceStream {
    TraceStream { device: DEVICE, handle }
}

fn access(address: u64, is_write: bool) -> TraceAccess {
    TraceAccess {
        work: 0,
        rest: 0,
        stream: None,
        operation: "schema",
        argument: "",
        address,
        size: 8,
        is_write,
        is_output: false,
        is_on_host: false,
    }
}

/// Tensors are 1, 2, 3; streams 0 to 3; events 1, 2, 3.
struct Case {
    checker: Checker,
    told: u64,
}

impl Case {
    fn new(mode: SanitizerMode) -> Self {
        Self { checker: Checker::new(mode), told: 0 }
    }

    fn tell(&mut self, event: TraceEvent) {
        let mut races = Vec::new();
        self.checker.observe(&event, HostThread(0), None, &mut races);
        assert!(races.is_empty(), "{event:?} brings no races");
    }

    fn tell_all<const N: usize>(&mut self, events: [TraceEvent; N]) {
        events.into_iter().for_each(|event| self.tell(event));
    }

    /// A kernel on a stream; the races that it brings.
    fn kernel(&mut self, handle: u64, reads: &[u64], writes: &[u64]) -> Vec<Race> {
        self.told += 1;
        let reads = reads.iter().map(|&tensor| access(tensor * 8, false));
        let accesses: Vec<_> = reads.chain(writes.iter().map(|&tensor| access(tensor * 8, true))).collect();
        let mut races = Vec::new();
        for (position, access) in accesses.iter().enumerate() {
            let rest = u32::try_from(accesses.len() - 1 - position).unwrap_or(0);
            let access = TraceAccess { work: self.told, rest, stream: Some(stream(handle)), ..*access };
            self.checker.observe(&TraceEvent::Accessed(access), HostThread(0), None, &mut races);
        }
        races
    }

    #[track_caller]
    fn passes(&mut self, handle: u64, reads: &[u64], writes: &[u64]) {
        self.races(handle, reads, writes, 0);
    }

    #[track_caller]
    fn races(&mut self, handle: u64, reads: &[u64], writes: &[u64], count: usize) {
        assert_eq!(self.kernel(handle, reads, writes).len(), count);
    }
}

fn torch() -> Case {
    Case::new(SanitizerMode::Tensors)
}

fn created(event: u64) -> TraceEvent {
    TraceEvent::EventCreated { event, device: DEVICE }
}

fn deleted(event: u64) -> TraceEvent {
    TraceEvent::EventDeleted { event, device: DEVICE }
}

fn recorded(event: u64, on: u64) -> TraceEvent {
    TraceEvent::EventRecorded { event, stream: stream(on) }
}

fn waited(event: u64, by: u64) -> TraceEvent {
    TraceEvent::EventWaited { event, stream: stream(by) }
}

fn allocated(tensor: u64) -> TraceEvent {
    let (address, pool) = (tensor * 8, PoolId(0, 0));
    TraceEvent::Allocated(TraceBlock { device: DEVICE, address, requested: 8, size: 8, stream: 0, pool })
}

fn freed(tensor: u64) -> TraceEvent {
    let (address, pool) = (tensor * 8, PoolId(0, 0));
    TraceEvent::FreeRequested(TraceBlock { device: DEVICE, address, requested: 8, size: 8, stream: 0, pool })
}

#[test]
fn work_without_memory_brings_nothing() {
    torch().passes(0, &[], &[]);
}

#[test]
fn reads_on_two_streams_pass_and_a_write_beside_them_does_not() {
    let mut case = torch();
    case.passes(1, &[1], &[]);
    case.passes(2, &[1], &[]);
    case.races(3, &[], &[1], 2);
}

#[test]
fn work_of_one_stream_is_in_order() {
    let mut case = torch();
    case.passes(1, &[1, 2], &[3]);
    case.passes(1, &[3], &[1]);
    case.passes(1, &[], &[1, 2, 3]);
}

#[test]
fn an_event_puts_streams_in_order() {
    let mut case = torch();
    case.passes(1, &[], &[1]);
    case.tell_all([created(1), recorded(1, 1), waited(1, 2)]);
    case.passes(2, &[1], &[]);
    case.races(3, &[1], &[], 1);
}

#[test]
fn a_read_is_compared_with_the_last_write_alone() {
    let mut case = torch();
    case.passes(1, &[], &[1]);
    case.tell_all([recorded(1, 1), waited(1, 2)]);
    case.passes(2, &[1], &[]);
    // The read on stream 2 is no reason against another read.
    case.tell(waited(1, 3));
    case.passes(3, &[1], &[]);
}

#[test]
fn a_write_is_compared_with_all_reads_since_the_last_write() {
    let mut case = torch();
    case.passes(1, &[1], &[]);
    case.passes(2, &[1], &[]);
    case.passes(3, &[1], &[]);
    case.tell_all([recorded(1, 1), recorded(2, 2), waited(1, 0), waited(2, 0)]);
    case.races(0, &[], &[1], 1);
    // That write is remembered, although it raced.
    case.races(3, &[], &[1], 1);
}

#[test]
fn order_passes_on_from_stream_to_stream() {
    let mut case = torch();
    case.passes(0, &[], &[1]);
    case.tell_all([recorded(1, 0), waited(1, 1), recorded(2, 1), waited(2, 2), recorded(3, 2), waited(3, 3)]);
    case.passes(3, &[], &[1]);
}

#[test]
fn two_branches_of_an_event_are_not_in_order_with_each_other() {
    let mut case = torch();
    case.passes(0, &[], &[1]);
    case.tell_all([recorded(1, 0), waited(1, 1), waited(1, 2)]);
    case.passes(1, &[1], &[]);
    case.passes(2, &[1], &[]);
    case.passes(1, &[], &[2]);
    case.races(2, &[2], &[], 1);
}

#[test]
fn a_mark_covers_what_was_queued_before_it() {
    let mut case = torch();
    case.tell(recorded(1, 1));
    case.passes(1, &[], &[1]);
    case.tell(waited(1, 2));
    case.races(2, &[1], &[], 1);
}

#[test]
fn the_last_record_of_an_event_counts() {
    let mut case = torch();
    case.passes(1, &[1], &[]);
    case.tell(recorded(1, 1));
    case.passes(2, &[2], &[]);
    case.tell_all([recorded(1, 2), waited(1, 3)]);
    case.races(3, &[], &[1], 1);
    case.passes(3, &[], &[2]);
}

#[test]
fn waits_for_several_events_add_up() {
    let mut case = torch();
    case.passes(1, &[1], &[]);
    case.passes(2, &[2], &[]);
    case.tell_all([recorded(1, 1), recorded(2, 2), waited(1, 3), waited(2, 3)]);
    case.passes(3, &[], &[1, 2]);
}

#[test]
fn an_event_that_is_made_anew_or_deleted_marks_nothing() {
    for gone in [created(1), deleted(1)] {
        let mut case = torch();
        case.passes(1, &[], &[1]);
        case.tell_all([created(1), recorded(1, 1), gone, waited(1, 2)]);
        case.races(2, &[1], &[], 1);
    }
}

#[test]
fn every_tensor_of_a_kernel_is_compared() {
    let mut case = torch();
    case.passes(1, &[1], &[2, 3]);
    let races = case.kernel(2, &[2], &[1, 3]);
    let found: Vec<_> = races.iter().map(|race| (race.address / 8, race.previous.is_write)).collect();
    assert_eq!(found, [(2, true), (1, false), (3, true)], "what is only read comes first");
}

#[test]
fn waiting_for_a_device_puts_everything_before_it_in_order() {
    let mut case = torch();
    case.passes(1, &[], &[1]);
    case.passes(2, &[], &[2]);
    case.tell(TraceEvent::DeviceSynchronized(DEVICE));
    case.passes(3, &[1], &[2]);
    case.passes(1, &[], &[3]);
    case.races(2, &[], &[3], 1);
}

#[test]
fn waiting_for_a_stream_or_an_event_counts_for_all_streams() {
    let mut case = torch();
    case.passes(1, &[], &[1]);
    case.passes(2, &[], &[2]);
    case.tell(TraceEvent::StreamSynchronized(stream(1)));
    case.passes(3, &[1], &[]);
    case.races(3, &[2], &[], 1);
    case.passes(2, &[], &[3]);
    case.tell_all([recorded(1, 2), TraceEvent::EventSynchronized { event: 1, device: DEVICE }]);
    case.passes(0, &[], &[3]);
}

#[test]
fn a_new_stream_knows_what_the_host_knows() {
    let mut case = torch();
    case.passes(1, &[], &[1]);
    case.tell_all([TraceEvent::DeviceSynchronized(DEVICE), TraceEvent::StreamCreated(stream(2))]);
    case.passes(2, &[], &[1]);
    case.tell(TraceEvent::StreamCreated(stream(3)));
    case.races(3, &[], &[1], 1);
}

#[test]
fn freed_memory_is_forgotten() {
    let mut case = torch();
    case.tell(allocated(1));
    case.passes(1, &[], &[1]);
    case.tell_all([freed(1), allocated(1)]);
    case.passes(2, &[], &[1]);
    // By bytes it is not: nothing has waited for the write.
    let mut case = Case::new(SanitizerMode::Ranges);
    case.tell(allocated(1));
    case.passes(1, &[], &[1]);
    case.tell_all([freed(1), allocated(1)]);
    let races = case.kernel(2, &[], &[1]);
    assert!(races.len() == 1 && races[0].is_reused);
}

#[test]
fn arguments_that_are_one_tensor_are_one_access() {
    let mut case = torch();
    case.passes(1, &[], &[1]);
    let told = |rest, argument, is_write| TraceAccess {
        work: 9,
        rest,
        stream: Some(stream(2)),
        argument,
        is_output: is_write,
        ..access(8, is_write)
    };
    let mut races = Vec::new();
    for access in [told(2, "self", false), told(1, "other", false), told(0, "", true)] {
        case.checker.observe(&TraceEvent::Accessed(access), HostThread(0), None, &mut races);
    }
    let text = races[0].described().to_string();
    assert_eq!(races.len(), 1);
    assert!(text.contains("during kernel:\nschema\nwriting to argument(s) self, other, and to the output\n"), "{text}");
    assert!(text.contains("Previous access by stream 1 during kernel:\nschema\nwriting to\nWith stack trace:\n\n"));
}

#[test]
fn devices_have_default_streams_of_their_own_unless_torch_is_asked() {
    for (mode, count) in [(SanitizerMode::Tensors, 0), (SanitizerMode::Ranges, 1)] {
        let mut case = Case::new(mode);
        let on = |device, is_write| TraceAccess {
            stream: Some(TraceStream { device: DeviceIndex(device), handle: 0 }),
            ..access(8, is_write)
        };
        let mut races = Vec::new();
        for access in [on(0, true), on(1, false)] {
            case.checker.observe(&TraceEvent::Accessed(access), HostThread(0), None, &mut races);
        }
        assert_eq!(races.len(), count);
    }
}

#[test]
fn bytes_beside_each_other_do_not_race_and_common_ones_are_told() {
    let mut case = Case::new(SanitizerMode::Ranges);
    case.passes(1, &[], &[1, 2, 3]);
    case.passes(2, &[], &[4]);
    let races = case.kernel(2, &[2], &[]);
    assert_eq!((races[0].address, races[0].bytes, races.len()), (16, Some(8), 1));
    let mut all = Vec::new();
    let whole = TraceAccess { stream: Some(stream(3)), size: 32, ..access(8, true) };
    case.checker.observe(&TraceEvent::Accessed(whole), HostThread(0), None, &mut all);
    let found: Vec<_> = all.iter().map(|race| (race.previous.work, race.address, race.bytes)).collect();
    let eight = Some(8);
    assert_eq!(found, [(1, 8, eight), (1, 16, eight), (3, 16, eight), (1, 24, eight), (2, 32, eight)]);
}

fn captured(graph: u64, exec: u64, on: u64) -> [TraceEvent; 3] {
    [
        TraceEvent::CaptureEnded(stream(on)),
        TraceEvent::GraphCaptured { graph, stream: stream(on) },
        TraceEvent::GraphInstantiated { graph, exec },
    ]
}

impl Case {
    /// Launches a graph and returns the number of races found.
    fn replay(&mut self, exec: u64, on: u64) -> usize {
        let mut races = Vec::new();
        let event = TraceEvent::GraphReplayed { graph: exec, stream: stream(on) };
        self.checker.observe(&event, HostThread(0), None, &mut races);
        races.len()
    }
}

#[test]
fn captured_work_belongs_to_the_stream_that_launches_the_graph() {
    for mode in [SanitizerMode::Tensors, SanitizerMode::Ranges] {
        let mut case = Case::new(mode);
        case.passes(0, &[], &[1]);
        case.tell(TraceEvent::CaptureBegun(stream(1)));
        case.passes(1, &[1], &[2]);
        case.tell_all(captured(7, 8, 1));
        case.passes(0, &[1], &[]);
        assert_eq!(case.replay(8, 0), 0);
        case.passes(0, &[2], &[1]);
        assert_eq!(case.replay(8, 2), 2, "1 is read too early, and 2 is written while it is read: {mode:?}");
    }
}

#[test]
fn streams_that_join_a_capture_are_compared_within_it() {
    for mode in [SanitizerMode::Tensors, SanitizerMode::Ranges] {
        let waits = |case: &mut Case, from, by| match mode {
            SanitizerMode::Tensors => case.tell_all([recorded(1, from), waited(1, by)]),
            SanitizerMode::Ranges => case.tell_all([
                TraceEvent::MarkPlaced { event: 1, stream: stream(from) },
                TraceEvent::MarkAwaited { event: 1, stream: stream(by) },
            ]),
        };
        let mut case = Case::new(mode);
        case.passes(2, &[], &[1, 2]);
        case.tell(TraceEvent::CaptureBegun(stream(1)));
        case.passes(1, &[], &[1]);
        waits(&mut case, 1, 2);
        case.passes(2, &[1], &[]);
        case.races(1, &[], &[1], 1);
        waits(&mut case, 2, 1);
        case.tell_all(captured(7, 8, 1));
        assert_eq!(case.replay(8, 2), 0);
        assert_eq!(case.replay(8, 3), 0, "a graph comes after its last launch");
        case.races(2, &[1], &[], 1);
    }
}
