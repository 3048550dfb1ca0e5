//! `stats`: figures of the allocator, of a process that exports them or of a snapshot, as a table, JSON or for Prometheus.
//!
//! **Invariant:** what is printed was understood first: a process's text is never passed on as it came.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::ArgMatches;
use memory_viz::analysis::human_bytes;
use memory_viz::{BlockState, SegmentKind, Snapshot, file};
use serde_json::{Map, Value, json};

use crate::Error;
use crate::exports::{self, Exporter, Figure, Figures};
use crate::machine;
use crate::table::{Column, Table, number, words};

/// How the metrics of `cuda-api` begin.
const PREFIX: &str = "torch_cuda_";

/// Prints the figures of what is named; without a name those of every process, in short.
pub(crate) fn run(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    let Some(target) = given.get_one::<String>("target") else { return every_process(given, out) };
    let figures = match target.parse() {
        Ok(pid) if !Path::new(target).exists() => of_process(pid)?,
        _ => of_file(Path::new(target))?,
    };
    let text = if given.get_flag("prometheus") {
        figures.to_prometheus()
    } else if given.get_flag("json") {
        format!("{}\n", object(&figures))
    } else {
        tables(&figures)
    };
    out.write_all(text.as_bytes())?;
    Ok(0)
}

fn read_all() -> Result<Vec<Exporter>, Error> {
    exports::read_all().map_err(|error| Error::Exports(machine::one_line(&error.to_string())))
}

fn of_process(pid: u32) -> Result<Figures, Error> {
    let known = read_all()?.into_iter().find(|exporter| exporter.pid == pid);
    let why = match known.map(|exporter| exporter.figures) {
        Some(Ok(figures)) => return Ok(figures),
        Some(Err(fault)) => fault.to_string(),
        None => "it does not export them; TORCH_CUDA_EXPORT=1 makes it".to_owned(),
    };
    Err(Error::Process { pid, why })
}

fn of_file(path: &Path) -> Result<Figures, Error> {
    let snapshot = file::read(path).map_err(|source| Error::Snapshot { file: path.to_owned(), source })?;
    Ok(of_snapshot(&snapshot))
}

/// A line for each process and device; with the options all that each process tells.
fn every_process(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    let exporters = read_all()?;
    if given.get_flag("json") {
        let told = exporters.iter().map(|exporter| {
            let mut told = json!({ "pid": exporter.pid, "program": exporter.program });
            match &exporter.figures {
                Ok(figures) => told["figures"] = object(figures),
                Err(fault) => told["error"] = json!(fault.to_string()),
            }
            told
        });
        writeln!(out, "{}", Value::from_iter(told))?;
        return Ok(0);
    }
    if given.get_flag("prometheus") {
        out.write_all(together(&exporters).to_prometheus().as_bytes())?;
        return Ok(0);
    }
    if exporters.is_empty() {
        writeln!(out, "no process exports its figures; TORCH_CUDA_EXPORT=1 makes one do so")?;
        return Ok(0);
    }
    let rows = exporters.iter().flat_map(short).collect();
    lines(out, &Table { columns: SHORT, rows })?;
    Ok(0)
}

/// The figures of all processes, told apart by their numbers.
fn together(exporters: &[Exporter]) -> Figures {
    let mut all = Vec::new();
    for exporter in exporters {
        for figure in exporter.figures.iter().flat_map(|figures| &figures.0) {
            let mut figure = figure.clone();
            figure.labels.insert(0, ("pid".to_owned(), exporter.pid.to_string()));
            all.push(figure);
        }
    }
    all.sort_by(|one, other| one.metric.cmp(&other.metric));
    Figures(all)
}

const SHORT: &[Column] = &[
    number("PID", 0),
    words("PROGRAM", 0),
    number("DEV", 0),
    number("ALLOCATED", 0),
    number("RESERVED", 0),
    number("PEAK", 0),
    number("PINNED", 0),
    number("OOMS", 0),
];

fn short(exporter: &Exporter) -> Vec<Vec<String>> {
    let name = |note: &str| vec![exporter.pid.to_string(), format!("{}{note}", exporter.program)];
    let figures = match &exporter.figures {
        Ok(figures) => figures,
        Err(fault) => return vec![name(&format!(": {fault}"))],
    };
    let devices = figures.devices();
    if devices.is_empty() {
        return vec![name(": has not started its runtime")];
    }
    let line = |device: u32| {
        let pools = machine::pools(figures, device).unwrap_or_default();
        let bytes = [pools.allocated, pools.reserved, pools.peak_reserved, pools.pinned].map(human_bytes);
        let mut cells = name("");
        cells.push(device.to_string());
        cells.extend(bytes);
        cells.push(pools.ooms.to_string());
        cells
    };
    devices.into_iter().map(line).collect()
}

fn lines(out: &mut dyn Write, table: &Table) -> Result<(), Error> {
    table.lines(None).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

/// How the metrics of one figure end, in the order of the columns.
const LEAVES: [&str; 4] = ["", "_peak", "_increases_total", "_decreases_total"];

const FULL: &[Column] =
    &[words("FIGURE", 0), words("OF", 0), number("NOW", 0), number("PEAK", 0), number("ADDED", 0), number("TAKEN", 0)];

/// What a figure is of: its name and pool, and its values in the order of [`LEAVES`].
type Group = BTreeMap<(String, String), [Option<i64>; 4]>;

/// A table for each device and one for pinned memory.
fn tables(figures: &Figures) -> String {
    let mut groups: BTreeMap<Option<u32>, Group> = BTreeMap::new();
    for figure in figures.0.iter().filter(|figure| !figure.metric.ends_with("_info")) {
        let name = figure.metric.strip_prefix(PREFIX).unwrap_or(&figure.metric);
        let (name, leaf) =
            (1..LEAVES.len()).find_map(|leaf| Some((name.strip_suffix(LEAVES.get(leaf)?)?, leaf))).unwrap_or((name, 0));
        let of = figure.label("pool").unwrap_or_default().to_owned();
        let device = figure.label("device").and_then(|device| device.parse().ok());
        let group = groups.entry(device).or_default();
        if let Some(place) = group.entry((name.to_owned(), of)).or_default().get_mut(leaf) {
            *place = Some(figure.value);
        }
    }
    let tables = groups.into_iter().map(|(device, group)| {
        let title = device.map_or_else(|| "pinned memory of the host".to_owned(), |device| format!("device {device}"));
        let lines = table(group).lines(None).into_iter();
        std::iter::once(title).chain(lines).map(|line| line + "\n").collect::<String>()
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn table(group: Group) -> Table {
    let row = |((name, of), values): ((String, String), [Option<i64>; 4])| {
        let cells = values.map(|value| value.map_or_else(String::new, |value| amount(&name, value)));
        [name, of].into_iter().chain(cells).collect()
    };
    Table { columns: FULL, rows: group.into_iter().map(row).collect() }
}

/// A value; bytes as people read them.
fn amount(name: &str, value: i64) -> String {
    match u64::try_from(value) {
        Ok(bytes) if name.ends_with("bytes") => human_bytes(bytes),
        _ => value.to_string(),
    }
}

/// The figures as a list of objects.
fn object(figures: &Figures) -> Value {
    let one = |figure: &Figure| {
        let mut object = Map::new();
        object.insert("metric".to_owned(), json!(figure.metric));
        object.extend(figure.labels.iter().map(|(name, value)| (name.clone(), json!(value))));
        object.insert("value".to_owned(), json!(figure.value));
        Value::Object(object)
    };
    figures.0.iter().map(one).collect()
}

/// The figures that a snapshot holds, under the names that a process exports them by.
fn of_snapshot(snapshot: &Snapshot) -> Figures {
    let mut sums: BTreeMap<(&str, u32, &str), u64> = BTreeMap::new();
    for segment in &snapshot.segments {
        let kind = if segment.kind == SegmentKind::Small { "small_pool" } else { "large_pool" };
        let mut add = |metric: &'static str, amount: u64| {
            for pool in ["all", "large_pool", "small_pool"] {
                let sum = sums.entry((metric, segment.device, pool)).or_default();
                *sum = sum.saturating_add(if pool == "all" || pool == kind { amount } else { 0 });
            }
        };
        add("segment", 1);
        add("reserved_bytes", segment.total_size);
        for block in &segment.blocks {
            let is_active = block.state.is_active();
            for (metric, bytes, is_counted) in [
                ("allocation", "allocated_bytes", block.state == BlockState::ActiveAllocated),
                ("active", "active_bytes", is_active),
                ("inactive_split", "inactive_split_bytes", !is_active && block.size < segment.total_size),
            ] {
                add(metric, u64::from(is_counted));
                add(bytes, if is_counted { block.size } else { 0 });
            }
            add("requested_bytes", if is_active { block.requested_size } else { 0 });
        }
    }
    let figure = |((metric, device, pool), sum): ((&str, u32, &str), u64)| Figure {
        metric: format!("{PREFIX}{metric}"),
        labels: vec![("device".to_owned(), device.to_string()), ("pool".to_owned(), pool.to_owned())],
        value: i64::try_from(sum).unwrap_or(i64::MAX),
    };
    let mut figures: Vec<Figure> = sums.into_iter().map(figure).collect();
    figures.sort_by(|one, other| (&one.metric, &one.labels).cmp(&(&other.metric, &other.labels)));
    Figures(figures)
}
