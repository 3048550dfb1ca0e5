//! `replay` and `bench` on the simulated driver.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::path::PathBuf;

use common::{folder, program, told};
use memory_viz::{Action, Snapshot, TraceEntry, file};
use serde_json::Value;

fn trace(name: &str, text: &str) -> PathBuf {
    let path = folder(name).join("some.trace");
    std::fs::write(&path, text).unwrap();
    path
}

fn json(words: &[&str]) -> (i32, Value) {
    let (code, text, error) = told(&mut program(words));
    assert_eq!(error, "");
    (code, serde_json::from_str(&text).unwrap())
}

#[test]
fn options_are_compared_on_one_trace() {
    let path = trace("compare", "a 1 1000 0\na 2 2621440 1\nf 1\nf 2\n");
    let path = path.to_str().unwrap();
    let sets = ["replay", path, "-c", "", "-c", "roundup_power2_divisions:2", "--json"];
    let (code, told_json) = json(&sets);
    assert_eq!((code, &told_json["steps"]), (0, &4.into()));
    let (common, rounded) = (&told_json["outcomes"][0], &told_json["outcomes"][1]);
    assert_eq!(common["first"]["peak_requested_bytes"], 1000 + 2_621_440);
    assert_eq!(common["first"]["peak_reserved_bytes"], 22 << 20);
    assert_eq!(common["first"]["segments_taken"], 2);
    assert_eq!(common["again"]["segments_taken"], 0);
    assert_eq!(common["first"]["peak_allocated_bytes"], 1024 + 2_621_440);
    assert_eq!(rounded["first"]["peak_allocated_bytes"], 1024 + (3 << 20));
    let mut command = program(&["replay", path]);
    let (code, text, error) = told(command.env("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:2"));
    assert_eq!((code, error.as_str()), (0, ""), "there is no bar where nobody sees it");
    assert!(text.contains("(as the environment says)") && text.contains("3.0 MiB"), "{text}");
}

#[test]
fn one_set_of_options_that_fails_does_not_hide_the_others() {
    let path = trace("fails", "a 1 41943040 0\n");
    let path = path.to_str().unwrap();
    let mut command = program(&["replay", path, "-c", "per_process_memory_fraction:0.01", "-c", "dance:1", "-c", ""]);
    let (code, text, _) = told(command.env("CUDA_SIM_MEMORY", "1073741824"));
    assert_eq!(code, 1);
    assert!(text.contains("\nper_process_memory_fraction:0.01: step 1 of the trace: CUDA out of memory."), "{text}");
    assert!(text.contains("\ndance:1: "), "{text}");
    assert!(text.contains("40.0 MiB"), "{text}");
}

#[test]
fn the_history_of_a_snapshot_is_a_trace() {
    let entry = |action, addr, size| TraceEntry { action, addr, size, ..TraceEntry::default() };
    let history = vec![
        entry(Action::Alloc, 4096, 1 << 20),
        entry(Action::Alloc, 1 << 24, 1 << 20),
        entry(Action::FreeRequested, 4096, 1 << 20),
        entry(Action::Alloc, 4096, 500),
    ];
    let path = folder("history").join("snapshot.pickle");
    let snapshot = Snapshot { device_traces: vec![Vec::new(), history], ..Snapshot::default() };
    file::write_pickle(&snapshot, &path).unwrap();
    let name = path.to_str().unwrap();
    let (code, told_json) = json(&["replay", name, "--json"]);
    assert_eq!((code, &told_json["steps"]), (0, &4.into()));
    assert_eq!(told_json["outcomes"][0]["first"]["peak_requested_bytes"], 2 << 20);
    let (_, none) = json(&["replay", name, "--json", "--of-device", "0"]);
    assert_eq!(none["steps"], 0);
    let (code, _, error) = told(&mut program(&["replay", name, "--device", "9"]));
    assert_eq!((code, error.as_str()), (1, ""));
}

#[test]
fn files_that_are_no_traces_are_refused_by_their_line() {
    for (text, complaint) in
        [("a 1 512 0\nx\n", "line 2 of the trace is no step: x"), ("\u{1b}[2J", "line 1 of the trace is no step: ?[2J")]
    {
        let path = trace("refused", text);
        let (code, _, error) = told(&mut program(&["replay", path.to_str().unwrap()]));
        assert!(code == 1 && error.contains(complaint), "{error}");
    }
    let (code, out, _) = told(&mut program(&["replay", trace("wrong", "f 1\n").to_str().unwrap()]));
    assert!(code == 1 && out.contains("step 1 of the trace frees 1, which is not allocated"), "{out}");
    let (code, _, error) = told(&mut program(&["replay", "/nowhere.trace.gz"]));
    assert!(code == 1 && error.starts_with("torch-cuda: /nowhere.trace.gz: the trace cannot be read: "), "{error}");
}

#[test]
fn every_figure_is_measured_and_checked() {
    let (code, told_json) = json(&["bench", "--quick", "--json"]);
    assert_eq!((code, &told_json["device"]), (0, &"NVIDIA H200".into()), "{told_json}");
    assert_eq!(told_json["simulated"], true);
    let figures = told_json["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 10);
    for figure in figures {
        let value = |name: &str| figure[name].as_f64().unwrap();
        assert!(0.0 < value("lowest") && value("lowest") <= value("median"), "{figure}");
        assert!(value("median") <= value("highest"), "{figure}");
    }
    let (code, text, _) = told(program(&["bench", "--quick"]).env("CUDA_SIM_FAULTS", "cuGraphLaunch:3:999"));
    assert_eq!(code, 1);
    assert!(
        text.contains("the device is simulated") && text.contains("graph of 20 kernels queued: CUDA error"),
        "{text}"
    );
    let (code, text, _) = told(program(&["bench", "--quick"]).env("CUDA_SYS_LIBCUDA", "/nowhere/libcuda.so.1"));
    assert!(code == 1 && text.contains("cannot be used") && text.contains("/nowhere/libcuda.so.1"), "{text}");
}
