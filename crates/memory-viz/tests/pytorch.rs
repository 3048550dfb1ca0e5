//! A snapshot that PyTorch recorded, and what PyTorch's own tools make of it.

use std::path::PathBuf;

use memory_viz::analysis::{Reason, flame, fragmentation, shortages, timeline};
use memory_viz::{Action, BlockState, Setting, file};

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/snapshots").join(name)
}

#[test]
fn a_snapshot_of_pytorch_is_read_at_every_protocol() {
    let snapshot = file::read(&data("pytorch-2.11-protocol-4.pickle")).expect("protocol 4 is read");
    for protocol in [2, 5] {
        let other = file::read(&data(&format!("pytorch-2.11-protocol-{protocol}.pickle")));
        assert_eq!(other.expect("so are the others"), snapshot, "protocol {protocol}");
    }
    assert_eq!((snapshot.segments.len(), snapshot.device_traces[0].len()), (4, 95));
    for segment in &snapshot.segments {
        assert_eq!(segment.total_size, segment.blocks.iter().map(|block| block.size).sum::<u64>());
        let allocated = segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated);
        assert_eq!(segment.allocated_size, allocated.map(|block| block.size).sum::<u64>());
    }
    assert_eq!(fragmentation(&snapshot).pending, 3_000_320, "a block waits for the other stream");
    let settings = &snapshot.allocator_settings;
    assert!(settings.contains(&("max_split_size".to_owned(), Setting::Int(-1))));
    assert!(
        matches!(&settings.last(), Some((name, Setting::Map(map))) if name == "roundup_power2_divisions" && map.len() == 16)
    );
    assert!(snapshot.device_traces[0].iter().any(|entry| entry.action == Action::FreeCompleted));
}

#[test]
fn flame_graph_lines_are_those_of_pytorch() {
    let snapshot = file::read(&data("pytorch-2.11-protocol-4.pickle")).expect("it is a snapshot");
    let lines = |name: &str| std::fs::read_to_string(data(name)).expect("the lines are recorded");
    assert_eq!(flame::segments(&snapshot), lines("pytorch-2.11-segments.txt"));
    assert_eq!(flame::memory(&snapshot), lines("pytorch-2.11-memory.txt"));
    assert_eq!(flame::compare(&snapshot, &snapshot), "");
}

#[test]
fn history_and_segments_of_pytorch_agree() {
    let snapshot = file::read(&data("pytorch-2.11-protocol-4.pickle")).expect("it is a snapshot");
    let timeline = timeline(&snapshot, 0);
    assert_eq!((timeline.before, timeline.reserved_before), (0, 0), "the history has all of it");
    let alive: u64 = timeline.lives.iter().filter(|life| life.end.is_none()).map(|life| life.size).sum();
    assert_eq!(alive, fragmentation(&snapshot).requested);
    let failed = shortages(&snapshot);
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].requested, failed[0].reason()), (1 << 50, Reason::Full));
    let top = snapshot.names.frames_of(failed[0].stack)[0];
    assert_eq!(snapshot.names.frame_text(top), "model.py:2:layer");
}
