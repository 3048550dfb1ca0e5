//! The tables of `top`, and the same as JSON.

use memory_viz::analysis::human_bytes;
use serde_json::{Value, json};

use super::state::Choice;
use crate::exports::Exporter;
use crate::machine::{Device, Machine, Pools, Row};
use crate::readings::{Readings, clock_cell};
use crate::table::{Column, Table, number, words};

const DEVICE_COLUMNS: &[Column] = &[
    number("DEV", 0),
    words("NAME", 5),
    number("TEMP", 2),
    number("POWER", 3),
    number("LOAD", 1),
    number("MEMORY", 0),
    number("SM MHz", 6),
    number("MEM MHz", 7),
    words("CLOCKS HELD BY", 4),
];

const PROCESS_COLUMNS: &[Column] = &[
    number("DEV", 2),
    number("PID", 0),
    words("KIND", 6),
    number("MEMORY", 1),
    number("ALLOCATED", 3),
    number("RESERVED", 2),
    number("PEAK", 4),
    number("PINNED", 5),
    number("OOMS", 7),
    words("PROGRAM", 0),
];

/// The devices that are chosen.
pub(super) fn devices(machine: &Machine, choice: Choice, load: impl Fn(&Readings) -> String) -> Table {
    let chosen = machine.devices.iter().filter(|device| choice.shows(Some(device.number)));
    let row = |device: &Device| {
        let number = device.number.to_string();
        match &device.readings {
            Err(why) => vec![number, why.clone()],
            Ok(of) => vec![
                number,
                of.name.clone(),
                of.temperature_cell(),
                of.power_cell(),
                load(of),
                of.memory_cell(),
                clock_cell(of.sm_clock),
                clock_cell(of.memory_clock),
                of.state_cell(),
            ],
        }
    };
    Table { columns: DEVICE_COLUMNS, rows: chosen.map(row).collect() }
}

/// The processes that are chosen.
pub(super) fn processes(rows: &[Row]) -> Table {
    let row = |row: &Row| {
        let pools = |write: fn(Pools) -> String| row.pools.map_or_else(|| "-".to_owned(), write);
        let note = if row.note.is_empty() { String::new() } else { format!(": {}", row.note) };
        vec![
            row.device.map_or_else(|| "-".to_owned(), |device| device.to_string()),
            row.pid.to_string(),
            row.kind.to_owned(),
            row.used.map_or_else(|| "-".to_owned(), human_bytes),
            pools(|pools| human_bytes(pools.allocated)),
            pools(|pools| human_bytes(pools.reserved)),
            pools(|pools| human_bytes(pools.peak_reserved)),
            pools(|pools| human_bytes(pools.pinned)),
            pools(|pools| pools.ooms.to_string()),
            format!("{}{note}", row.name),
        ]
    };
    Table { columns: PROCESS_COLUMNS, rows: rows.iter().map(row).collect() }
}

/// What else has to be said: what could not be had, and why.
pub(super) fn notes(machine: &Machine) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(machine.missing.iter().map(|why| format!("no devices: {why}")));
    let denied = machine.devices.iter().filter_map(|device| {
        let why = device.readings.as_ref().ok()?.processes_missing?;
        Some(format!("device {}: its processes are not known: {why}", device.number))
    });
    notes.extend(denied);
    notes.extend(machine.exports_missing.iter().map(|why| format!("no pools: {why}")));
    notes
}

/// The first line.
pub(super) fn title(machine: &Machine) -> String {
    match &machine.versions {
        Some((driver, nvml)) => format!("driver {driver}, NVML {nvml}"),
        None => "no NVML".to_owned(),
    }
}

/// Both tables as text.
pub(super) fn text(machine: &Machine, choice: Choice) -> String {
    let rows = choice.rows(machine);
    let mut parts = vec![vec![title(machine)]];
    if !machine.devices.is_empty() {
        parts.push(devices(machine, choice, Readings::load_cell).lines(None));
    }
    parts.push(if rows.is_empty() { vec!["no processes".to_owned()] } else { processes(&rows).lines(None) });
    parts.push(notes(machine));
    parts.retain(|lines| !lines.is_empty());
    parts.iter().map(|lines| lines.join("\n") + "\n").collect::<Vec<_>>().join("\n")
}

/// All of it for programs.
pub(super) fn json(machine: &Machine, choice: Choice) -> Value {
    let device = |device: &Device| match &device.readings {
        Ok(of) => {
            let mut object = of.json();
            object["device"] = json!(device.number);
            object
        }
        Err(why) => json!({ "device": device.number, "error": why }),
    };
    let process = |row: &Row| {
        json!({
            "device": row.device,
            "pid": row.pid,
            "kind": row.kind,
            "memory_bytes": row.used,
            "program": row.name,
            "allocated_bytes": row.pools.map(|pools| pools.allocated),
            "reserved_bytes": row.pools.map(|pools| pools.reserved),
            "peak_reserved_bytes": row.pools.map(|pools| pools.peak_reserved),
            "pinned_bytes": row.pools.map(|pools| pools.pinned),
            "ooms": row.pools.map(|pools| pools.ooms),
        })
    };
    let fault = |exporter: &Exporter| {
        let fault = exporter.figures.as_ref().err()?;
        Some(json!({ "pid": exporter.pid, "error": fault.to_string() }))
    };
    let chosen = machine.devices.iter().filter(|device| choice.shows(Some(device.number)));
    json!({
        "driver": machine.versions.as_ref().map(|versions| &versions.0),
        "nvml": machine.versions.as_ref().map(|versions| &versions.1),
        "devices": chosen.map(device).collect::<Vec<_>>(),
        "processes": choice.rows(machine).iter().map(process).collect::<Vec<_>>(),
        "faults": machine.exporters.iter().filter_map(fault).collect::<Vec<_>>(),
        "notes": notes(machine),
    })
}
