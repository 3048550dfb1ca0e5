//! The answers as text for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::frames::{is_program, lack_lines, program_texts};
use super::{Fragmentation, by_group, changes, flame, fragmentation, holders, segment_changes, shortages};
use crate::model::{Action, FrameId, Names, Segment, Snapshot, StackId};

/// How many stacks a report lists.
const LISTED_MAX: usize = 20;

/// A number of things, in the singular where there is one.
fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// How many frames of a stack a report shows.
const FRAMES_MAX: usize = 6;

/// A number of bytes for people, such as `1.5 GiB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(count: u64) -> String {
    let mut amount = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

/// Frames of a stack that a report shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Frames {
    /// Frames of the program, without those of the runtime, the standard library and libc.
    #[default]
    Program,
    /// All frames.
    All,
}

/// Returns [`report_with`] for the program's frames.
#[must_use]
pub fn report(snapshot: &Snapshot) -> String {
    report_with(snapshot, Frames::Program)
}

/// Summarises one snapshot: sums, fragmentation by pool and stream, the largest holders, failed requests.
#[must_use]
pub fn report_with(snapshot: &Snapshot, frames: Frames) -> String {
    let mut text = String::new();
    let all = fragmentation(snapshot);
    let entries: usize = snapshot.device_traces.iter().map(Vec::len).sum();
    let _ = writeln!(text, "{} segments, {} blocks in use, {entries} entries of history", all.segments, all.blocks);
    sums(&mut text, &all);
    text.push_str("\nBy what can serve a request\n");
    let _ = writeln!(
        text,
        "{:>6} {:>9} {:>18} {:>5} {:>11} {:>11} {:>11} {:>12} {:>7}",
        "device", "pool", "stream", "kind", "reserved", "in use", "free", "largest free", "unused"
    );
    for (group, sums) in by_group(snapshot) {
        let _ = writeln!(
            text,
            "{:>6} {:>9} {:>18} {:>5} {:>11} {:>11} {:>11} {:>12} {:>6.1}%",
            group.device,
            format!("{}.{}", group.pool_id.0, group.pool_id.1),
            format!("{:#x}", group.stream),
            if group.is_large { "large" } else { "small" },
            bytes(sums.reserved),
            bytes(sums.active()),
            bytes(sums.free),
            bytes(sums.largest_free),
            100.0 * sums.unused()
        );
    }
    held(&mut text, snapshot, frames);
    failed(&mut text, snapshot, frames);
    if lack_lines(&snapshot.names) {
        text.push_str(LINE_TABLES);
    }
    others(&mut text, snapshot);
    text
}

/// Advice on how to get files and lines for stacks.
const LINE_TABLES: &str = "\nThe stacks have no files and lines: the program was built without line tables. In Cargo.toml, \
     `debug = \"line-tables-only\"` in the profile that it is built with records them.\n";

/// Returns a line for each action and key of a file that this version does not know.
#[must_use]
pub fn unknown(snapshot: &Snapshot) -> Vec<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in snapshot.device_traces.iter().flatten() {
        if let Action::Other(name) = entry.action {
            *counts.entry(snapshot.names.text_of(name)).or_default() += 1;
        }
    }
    let actions = counts.into_iter().map(|(name, count)| match count {
        1 => format!("{name}: 1 entry"),
        count => format!("{name}: {count} entries"),
    });
    actions.chain(snapshot.unknown.lines()).collect()
}

fn others(text: &mut String, snapshot: &Snapshot) {
    let lines = unknown(snapshot);
    if !lines.is_empty() {
        text.push_str("\nNot known to this version, and written again as it is\n");
    }
    for line in lines.iter().take(LISTED_MAX) {
        let _ = writeln!(text, "  {line}");
    }
    if lines.len() > LISTED_MAX {
        let _ = writeln!(text, "  and {} more", lines.len() - LISTED_MAX);
    }
}

fn sums(text: &mut String, all: &Fragmentation) {
    let lost = all.active().saturating_sub(all.requested);
    for (name, value) in [
        ("reserved", all.reserved),
        ("in use", all.allocated),
        ("waiting for streams", all.pending),
        ("lost to rounding", lost),
        ("free", all.free),
        ("free beside blocks in use", all.free_stuck),
        ("largest free block", all.largest_free),
    ] {
        let _ = writeln!(text, "{name:<26} {:>12}", bytes(value));
    }
    let _ = writeln!(text, "{:<26} {:>11.1}%", "free, but not in one block", 100.0 * all.of_free());
}

fn held(text: &mut String, snapshot: &Snapshot, frames: Frames) {
    let holders = holders(snapshot);
    let _ = writeln!(text, "\nWho holds the memory ({} stacks)", holders.len());
    for holder in holders.iter().take(LISTED_MAX) {
        let _ = writeln!(text, "{:>12} in {}", bytes(holder.bytes), counted(holder.blocks, "block"));
        stack(text, &snapshot.names, holder.stack, frames);
    }
}

fn failed(text: &mut String, snapshot: &Snapshot, frames: Frames) {
    let shortages = shortages(snapshot);
    if shortages.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nRequests that could not be served ({})", shortages.len());
    for shortage in shortages.iter().rev().take(LISTED_MAX) {
        let _ = writeln!(
            text,
            "device {}, entry {}: {} asked for; {shortage}",
            shortage.device,
            shortage.entry,
            bytes(shortage.requested)
        );
        stack(text, &snapshot.names, shortage.stack, frames);
    }
}

fn stack(text: &mut String, names: &Names, id: StackId, frames: Frames) {
    let shown: Vec<FrameId> = match frames {
        Frames::All => names.frames_of(id).to_vec(),
        Frames::Program => {
            let own: Vec<FrameId> = flame::shown(names, id).filter(|frame| is_program(names, *frame)).collect();
            if own.is_empty() { flame::shown(names, id).collect() } else { own }
        }
    };
    let texts: Vec<String> = shown.into_iter().map(|frame| names.frame_text(frame)).collect();
    list(text, &texts, frames);
}

fn list(text: &mut String, frames: &[String], which: Frames) {
    let most = if which == Frames::All { usize::MAX } else { FRAMES_MAX };
    if frames.is_empty() {
        text.push_str("                 (no stack recorded)\n");
    }
    for frame in frames.iter().take(most) {
        let _ = writeln!(text, "                 {frame}");
    }
    if frames.len() > most {
        let _ = writeln!(text, "                 and {} more", frames.len() - most);
    }
}

/// Returns [`compare_with`] for the program's frames.
#[must_use]
pub fn compare(before: &Snapshot, after: &Snapshot) -> String {
    compare_with(before, after, Frames::Program)
}

/// Summarises the changes from one snapshot to another: sums, the stacks that grew and shrank most, segments.
#[must_use]
pub fn compare_with(before: &Snapshot, after: &Snapshot, frames: Frames) -> String {
    let mut text = String::new();
    let (one, two) = (fragmentation(before), fragmentation(after));
    for (name, first, second) in [
        ("reserved", one.reserved, two.reserved),
        ("in use", one.allocated, two.allocated),
        ("free", one.free, two.free),
        ("largest free block", one.largest_free, two.largest_free),
    ] {
        let change = signed(i128::from(second) - i128::from(first));
        let _ = writeln!(text, "{name:<20} {:>12} -> {:>12}  {change:>13}", bytes(first), bytes(second));
    }
    let changed: Vec<_> = changes(before, after).into_iter().filter(|change| change.bytes() != 0).collect();
    let (grew, shrank): (Vec<_>, Vec<_>) = changed.into_iter().partition(|change| change.bytes() > 0);
    for (title, changes) in [("Grew", grew), ("Shrank", shrank.into_iter().rev().collect())] {
        let _ = writeln!(text, "\n{title} ({} stacks)", changes.len());
        for change in changes.iter().take(LISTED_MAX) {
            let blocks = i128::from(change.after.1) - i128::from(change.before.1);
            let _ = writeln!(text, "{:>13}, {blocks:+} blocks", signed(change.bytes()));
            let own = if frames == Frames::All { change.frames.clone() } else { program_texts(&change.frames) };
            list(&mut text, &own, frames);
        }
    }
    let segments = segment_changes(before, after);
    let sum = |segments: &[&Segment]| segments.iter().fold(0_u64, |sum, one| sum.saturating_add(one.total_size));
    let _ = writeln!(
        text,
        "\nSegments: {} of the first alone ({}), {} of the second alone ({})",
        segments.only_before.len(),
        bytes(sum(&segments.only_before)),
        segments.only_after.len(),
        bytes(sum(&segments.only_after))
    );
    text
}

fn signed(change: i128) -> String {
    let amount = bytes(u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX));
    if change < 0 { format!("-{amount}") } else { format!("+{amount}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Block, BlockState, Frame};

    /// Two holders with equal innermost frames are distinguished by the frames shown.
    #[test]
    fn stacks_begin_at_the_programs_frame_and_callers_are_listed_apart() {
        let mut snapshot = Snapshot::default();
        let names = &mut snapshot.names;
        let internal: Vec<String> = (0..10).map(|depth| format!("c10_core::caching::step{depth}")).collect();
        let outer = ["app::main", "std::rt::lang_start", "__libc_start_main"];
        let mut stack = |caller: &str| {
            let inner = internal.iter().map(String::as_str);
            let all: Vec<&str> = inner.chain(["app::buffer", caller]).chain(outer).collect();
            let frames: Vec<FrameId> = all
                .into_iter()
                .map(|name| {
                    let (name, filename) = (names.text(name), names.text(""));
                    names.frame(Frame { name, filename, line: 0 })
                })
                .collect();
            names.stack(&frames)
        };
        let stacks = [stack("app::weights"), stack("app::cache")];
        let block = |stack| Block { size: 512, state: BlockState::ActiveAllocated, stack, ..Block::default() };
        snapshot.segments = vec![Segment { blocks: stacks.map(block).to_vec(), ..Segment::default() }];
        let folded = report(&snapshot);
        assert!(folded.contains("Who holds the memory (2 stacks)"));
        for caller in ["app::weights", "app::cache"] {
            let lines = ["app::buffer", caller, "app::main"].map(|name| format!("                 {name}\n")).concat();
            assert!(folded.contains(&format!("512 B in 1 block\n{lines}")), "{folded}");
        }
        assert!(!folded.contains("c10_core") && !folded.contains("lang_start") && folded.contains("line-tables-only"));
        let all = report_with(&snapshot, Frames::All);
        assert!(all.contains("c10_core::caching::step9") && all.contains("__libc_start_main"));
    }

    /// Found by the property tests.
    #[test]
    fn sums_beyond_64_bits_do_not_overflow() {
        let block = |state| Block { size: u64::MAX, requested_size: u64::MAX, state, ..Block::default() };
        let blocks = vec![block(BlockState::ActiveAllocated), block(BlockState::ActivePendingFree)];
        let segment = Segment { total_size: u64::MAX, blocks, ..Segment::default() };
        let snapshot = Snapshot { segments: vec![segment.clone(), segment], ..Snapshot::default() };
        assert!(report(&snapshot).contains("16777216.0 TiB"));
    }

    #[test]
    fn bytes_are_told_in_the_largest_unit_that_leaves_a_whole() {
        let told: Vec<String> = [0, 1023, 1024, 1536, 1 << 30, 5 << 40].into_iter().map(bytes).collect();
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB", "5.0 TiB"]);
    }
}
