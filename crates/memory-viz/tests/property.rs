//! Any snapshot is read as it was written, in both formats.

use memory_viz::{
    Action, Annotation, Block, BlockState, Frame, Segment, SegmentKind, Setting, Snapshot, StackId, TraceEntry,
    analysis, file,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Stacks as texts and lines; they are put into the names of a snapshot.
type Stacks = Vec<Vec<(String, String, u64)>>;

fn stacks() -> impl Strategy<Value = Stacks> {
    vec(vec((".{0,12}", "[a-z/]{1,8}\\.py", 1..u64::MAX / 2), 0..4), 1..5)
}

/// Numbers at which a format changes its form.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..70_000_u64, Just(u64::from(u32::MAX)), Just(1 << 31), Just(1 << 63)]
}

fn setting() -> impl Strategy<Value = Setting> {
    let plain = prop_oneof![
        Just(Setting::None),
        any::<bool>().prop_map(Setting::Bool),
        any::<i64>().prop_map(Setting::Int),
        (-1e300..1e300).prop_map(Setting::Float),
        ".{0,300}".prop_map(Setting::Text),
    ];
    let inner = plain.clone();
    prop_oneof![4 => plain, 1 => vec((".{0,5}", inner), 0..4).prop_map(Setting::Map)]
}

prop_compose! {
    fn block(stacks: Vec<StackId>)(
        sizes in (1..u64::MAX, number(), number()), state in 0..3_usize, at in any::<prop::sample::Index>(), forward in any::<prop::sample::Index>(),
    ) -> Block {
        let states = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive];
        Block {
            address: sizes.0, size: sizes.1, requested_size: sizes.2, state: states[state],
            stack: *at.get(&stacks), forward_stack: *forward.get(&stacks),
        }
    }
}

prop_compose! {
    fn segment(stacks: Vec<StackId>)(
        numbers in (any::<u32>(), number(), number(), number(), number(), number(), any::<i64>(), number(), number()),
        flags in any::<(bool, bool)>(), at in any::<prop::sample::Index>(), blocks in vec(block(stacks.clone()), 0..6),
    ) -> Segment {
        let (device, address, total_size, allocated_size, active_size, requested_size, stream, first, second) = numbers;
        Segment {
            device, address, total_size, allocated_size, active_size, requested_size, stream,
            kind: if flags.0 { SegmentKind::Small } else { SegmentKind::Large },
            pool_id: (first, second), is_expandable: flags.1, stack: *at.get(&stacks), blocks,
        }
    }
}

prop_compose! {
    fn entry(stacks: Vec<StackId>)(
        numbers in (0..9_usize, number(), number(), any::<i64>(), any::<i64>()), pool_id in proptest::option::of((number(), number())),
        at in any::<prop::sample::Index>(), forward in any::<prop::sample::Index>(),
    ) -> TraceEntry {
        let (action, place, size, stream, time_us) = numbers;
        let action = Action::ALL[action];
        let is_shortage = action == Action::OutOfMemory;
        TraceEntry {
            action, size, stream, time_us, pool_id,
            addr: if is_shortage { 0 } else { place }, device_free: if is_shortage { place } else { 0 },
            stack: *at.get(&stacks), forward_stack: *forward.get(&stacks), ..TraceEntry::default()
        }
    }
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    stacks().prop_flat_map(|texts| {
        let mut base = Snapshot::default();
        let mut ids = vec![StackId::EMPTY];
        for stack in texts {
            let mut frames = Vec::new();
            for (name, filename, line) in stack {
                let (name, filename) = (base.names.text(&name), base.names.text(&filename));
                frames.push(base.names.frame(Frame { name, filename, line }));
            }
            ids.push(base.names.stack(&frames));
        }
        let parts = (
            vec(segment(ids.clone()), 0..4),
            vec(vec(entry(ids), 0..30), 0..3),
            vec((".{0,20}", setting()), 0..5),
            vec((any::<i64>(), any::<i64>()), 0..3),
        );
        parts.prop_map(move |(segments, device_traces, allocator_settings, annotations)| {
            let mut made = Snapshot { segments, device_traces, allocator_settings, ..base.clone() };
            for (device, time_us) in annotations {
                let (name, stage) = (made.names.text("range"), made.names.text("END"));
                made.external_annotations.push(Annotation { name, stage, device, time_us });
            }
            made
        })
    })
}

fn pickled(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    file::pickle_to(snapshot, &mut bytes).expect("memory takes all bytes");
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(snapshot in snapshot()) {
        let bytes = pickled(&snapshot);
        let again = file::parse(&bytes)?;
        // Texts and stacks are numbered in the order they are met; the second time that order is the same.
        prop_assert_eq!(&pickled(&again), &bytes);
        let mut json = Vec::new();
        file::json_to(&again, &mut json)?;
        let from_json = file::parse(&json)?;
        prop_assert_eq!(&from_json, &again);
        let stack_text = |snapshot: &Snapshot, id| -> Vec<String> {
            snapshot.names.frames_of(id).iter().map(|frame| snapshot.names.frame_text(*frame)).collect()
        };
        for (one, other) in snapshot.segments.iter().zip(&again.segments) {
            prop_assert_eq!((one.address, one.total_size, one.stream, one.pool_id), (other.address, other.total_size, other.stream, other.pool_id));
            prop_assert_eq!(stack_text(&snapshot, one.stack), stack_text(&again, other.stack));
            for (one, other) in one.blocks.iter().zip(&other.blocks) {
                prop_assert_eq!((one.address, one.size, one.requested_size, one.state), (other.address, other.size, other.requested_size, other.state));
                prop_assert_eq!(stack_text(&snapshot, one.forward_stack), stack_text(&again, other.forward_stack));
            }
        }
        for (one, other) in snapshot.device_traces.iter().flatten().zip(again.device_traces.iter().flatten()) {
            prop_assert_eq!(TraceEntry { stack: other.stack, forward_stack: other.forward_stack, ..*one }, *other);
            prop_assert_eq!(stack_text(&snapshot, one.stack), stack_text(&again, other.stack));
        }
        prop_assert_eq!(&snapshot.allocator_settings, &again.allocator_settings);
    }

    #[test]
    fn analyses_take_any_snapshot(snapshot in snapshot()) {
        let sums = analysis::fragmentation(&snapshot);
        let held = analysis::holders(&snapshot).iter().fold(0_u64, |sum, one| sum.saturating_add(one.bytes));
        prop_assert_eq!(held, sums.active());
        for device in 0..snapshot.device_traces.len() {
            let timeline = analysis::timeline(&snapshot, device);
            for life in &timeline.lives {
                prop_assert!(life.begin.is_none_or(|begin| life.end.is_none_or(|end| begin < end)));
            }
            prop_assert!(timeline.lives[timeline.before..].iter().map(|life| life.begin).is_sorted());
        }
        prop_assert!(analysis::report(&snapshot).contains("Who holds the memory"));
        prop_assert!(analysis::compare_report(&snapshot, &snapshot).contains("Grew (0 stacks)"));
    }

    #[test]
    fn any_bytes_are_a_snapshot_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let mut pickle = b"\x80\x04".to_vec();
        pickle.extend(&bytes);
        for file in [&bytes, &pickle] {
            if let Ok(snapshot) = file::parse(file) {
                prop_assert!(file::parse(&pickled(&snapshot)).is_ok());
            }
        }
    }
}
