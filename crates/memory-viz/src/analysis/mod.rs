//! Questions about snapshots, answered as tables and as text.
//!
//! Nothing here trusts a snapshot: sums saturate, and a block outside its segment is counted where it says it is.

mod compare;
pub mod flame;
mod fragmentation;
mod frames;
mod holders;
mod report;
mod shortage;
mod timeline;

pub use compare::{Change, SegmentChanges, changes, segment_changes};
pub use fragmentation::{Fragmentation, Group, by_group, fragmentation};
pub(crate) use frames::program_places;
pub use frames::{is_program, lack_lines, program_frames};
pub use holders::{Holder, holders};
pub use report::{
    Frames, bytes as human_bytes, compare as compare_report, compare_with as compare_report_with, report, report_with,
    unknown,
};
pub use shortage::{Holes, Reason, Shortage, shortages};
pub use timeline::{Life, Timeline, timeline};
