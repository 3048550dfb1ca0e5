//! The page put together: template, looks, programs, names and tables as JSON, the packed history.

use std::fmt::Write as _;

use super::pack::pack;
use crate::analysis::{Fragmentation, changes, fragmentation, program_places, segment_changes, shortages, unknown};
use crate::json::quote;
use crate::model::{Segment, Setting, Snapshot};

/// What a page shows, and under which names.
#[derive(Debug, Clone, Copy)]
pub struct Page<'snapshot> {
    /// The snapshot.
    pub snapshot: &'snapshot Snapshot,
    /// What it is called, such as the name of its file.
    pub title: &'snapshot str,
    /// An earlier snapshot to compare it with, and what that is called.
    pub before: Option<(&'snapshot Snapshot, &'snapshot str)>,
}

/// How many stacks a page compares at most: those that changed most.
const CHANGES_MAX: usize = 5000;

/// One HTML file that shows a snapshot in a browser. It loads nothing and sends nothing.
#[must_use]
pub fn page(page: &Page<'_>) -> String {
    let traced = page.snapshot.device_traces.iter().rposition(|trace| !trace.is_empty()).map_or(0, |last| last + 1);
    let used = page.snapshot.segments.iter().map(|segment| segment.device as usize + 1).max().unwrap_or(0);
    // A file may name device 4,000,000,000: the page shows those that have something to show.
    let devices = traced.max(used).clamp(1, 256);
    let mut html = String::new();
    for part in include_str!("../../viewer/page.html").split_inclusive("-->") {
        let Some((before, name)) = part.strip_suffix("-->").and_then(|part| part.split_once("<!--")) else {
            html.push_str(part);
            continue;
        };
        html.push_str(before);
        match name.trim() {
            "title" => html.push_str(&escaped(page.title)),
            "style" => html.push_str(include_str!("../../viewer/style.css")),
            "worker" => {
                html.push_str(include_str!("../../viewer/look.js"));
                html.push_str(include_str!("../../viewer/unpack.js"));
                html.push_str(include_str!("../../viewer/engine.js"));
                html.push_str(include_str!("../../viewer/worker.js"));
            }
            "viewer" => {
                html.push_str(include_str!("../../viewer/look.js"));
                html.push_str(include_str!("../../viewer/draw.js"));
                html.push_str(include_str!("../../viewer/tables.js"));
                html.push_str(include_str!("../../viewer/viewer.js"));
                html.push_str(include_str!("../../viewer/input.js"));
            }
            "names" => html.push_str(&names(page, devices)),
            "data" => html.push_str(&pack(page.snapshot, devices).base64()),
            _ => {}
        }
    }
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// What travels as JSON.
fn names(page: &Page<'_>, devices: usize) -> String {
    let texts: Vec<String> = page.snapshot.names.texts().map(quote).collect();
    let settings = page.snapshot.allocator_settings.iter().map(|(name, value)| (name.as_str(), setting(value)));
    let unknown = unknown(page.snapshot).into_iter().map(|line| ("not known to this version", line));
    let settings: Vec<String> =
        settings.chain(unknown).map(|(name, value)| format!("[{},{}]", quote(name), quote(&value))).collect();
    let shortages: Vec<String> = shortages(page.snapshot)
        .iter()
        .filter(|shortage| shortage.device < devices)
        .map(|one| {
            format!(
                "{{\"device\":{},\"entry\":{},\"time\":{},\"requested\":{},\"device_free\":{},\"reserved\":{},\"live\":{},\
                 \"stack\":{},\"reason\":{}}}",
                one.device,
                one.entry,
                one.time_us,
                one.requested,
                one.device_free,
                one.reserved,
                one.live,
                one.stack.index(),
                quote(&one.to_string())
            )
        })
        .collect();
    let annotations: Vec<String> = page
        .snapshot
        .external_annotations
        .iter()
        .map(|one| {
            let (name, stage) = (page.snapshot.names.text_of(one.name), page.snapshot.names.text_of(one.stage));
            format!("[{},{},{},{}]", quote(name), quote(stage), one.device, one.time_us)
        })
        .collect();
    format!(
        "{{\"title\":{},\"devices\":{devices},\"settings\":[{}],\"shortages\":[{}],\"annotations\":[{}],\"now\":{},\
         \"compare\":{},\"texts\":[{}]}}",
        quote(page.title),
        settings.join(","),
        shortages.join(","),
        annotations.join(","),
        sums(&fragmentation(page.snapshot)),
        compared(page),
        texts.join(",")
    )
}

fn setting(value: &Setting) -> String {
    match value {
        Setting::None => "none".to_owned(),
        Setting::Bool(value) => value.to_string(),
        Setting::Int(value) => value.to_string(),
        Setting::Float(value) => value.to_string(),
        Setting::Text(text) => text.clone(),
        Setting::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(name, value)| format!("{name}: {}", setting(value))).collect();
            entries.join(", ")
        }
    }
}

fn sums(sums: &Fragmentation) -> String {
    format!(
        "{{\"reserved\":{},\"allocated\":{},\"pending\":{},\"requested\":{},\"free\":{},\"free_stuck\":{},\
         \"largest_free\":{},\"segments\":{},\"blocks\":{},\"holes\":{}}}",
        sums.reserved,
        sums.allocated,
        sums.pending,
        sums.requested,
        sums.free,
        sums.free_stuck,
        sums.largest_free,
        sums.segments,
        sums.blocks,
        sums.holes
    )
}

/// The comparison as JSON, or `null`.
fn compared(page: &Page<'_>) -> String {
    let Some((before, title)) = page.before else { return "null".to_owned() };
    let mut rows = changes(before, page.snapshot);
    rows.sort_by_key(|change| std::cmp::Reverse(change.bytes().unsigned_abs()));
    let mut text = format!("{{\"title\":{},\"before\":{},\"rows\":[", quote(title), sums(&fragmentation(before)));
    for (index, change) in rows.iter().take(CHANGES_MAX).enumerate() {
        let frames: Vec<String> = change.frames.iter().map(|frame| quote(frame)).collect();
        let own: Vec<String> = program_places(&change.frames).iter().map(usize::to_string).collect();
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(
            text,
            "{comma}{{\"frames\":[{}],\"own\":[{}],\"before\":[{},{}],\"after\":[{},{}]}}",
            frames.join(","),
            own.join(","),
            change.before.0,
            change.before.1,
            change.after.0,
            change.after.1
        );
    }
    let segments = segment_changes(before, page.snapshot);
    let sum = |segments: &[&Segment]| segments.iter().fold(0_u64, |sum, one| sum.saturating_add(one.total_size));
    let _ = write!(
        text,
        "],\"left_out\":{},\"only_before\":[{},{}],\"only_after\":[{},{}]}}",
        rows.len().saturating_sub(CHANGES_MAX),
        segments.only_before.len(),
        sum(&segments.only_before),
        segments.only_after.len(),
        sum(&segments.only_after)
    );
    text
}
