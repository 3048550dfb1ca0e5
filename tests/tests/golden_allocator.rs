//! What PyTorch's native allocator answered on an H200, script by script: every figure, address, outcome and layout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tests::replay::{Outcome, measure, replay};
use tests::script::{self, Action, Script};

/// Scripts of each class, which is the name less its number.
const SCRIPTS_PER_CLASS: usize = 5;
const CLASSES: usize = 19;

fn scripts() -> BTreeMap<String, Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/allocator");
    let mut classes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the scripts are part of the package") {
        let path = entry.expect("the folder can be listed").path();
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        let bare = name.strip_suffix(".script.gz").expect("nothing but scripts");
        let (class, _number) = bare.rsplit_once('.').expect("a class and a number");
        classes.entry(class.to_owned()).or_default().push(path);
    }
    classes.values_mut().for_each(|paths| paths.sort());
    classes
}

#[test]
fn every_script_agrees() {
    let classes = scripts();
    assert_eq!(classes.len(), CLASSES, "{:?}", classes.keys());
    let (mut passed, mut failed) = (0, Vec::new());
    for (class, paths) in classes {
        assert_eq!(paths.len(), SCRIPTS_PER_CLASS, "{class}");
        for path in paths {
            let outcome = replay(&script::read(&path).expect("it is well formed"));
            let line = outcome.report(&path.file_name().expect("it has a name").to_string_lossy());
            println!("{line}");
            if outcome.is_passed() { passed += 1 } else { failed.push(line) }
        }
    }
    assert!(failed.is_empty(), "{passed} passed, {} failed\n{}", failed.len(), failed.join("\n"));
}

/// A script in which one answer was changed must fail at that line.
fn expect_failure(name: &str, key: &str, change: impl Fn(&mut Action) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/allocator");
    let mut script: Script = script::read(&folder.join(name)).expect("it is well formed");
    let changed = script.lines.iter_mut().rev().find_map(|line| change(&mut line.action).then_some(line.number));
    match replay(&script) {
        Outcome::Failed { line, difference } => {
            assert_eq!(Some(line), changed, "{name}");
            assert!(difference.key.contains(key), "{name}: {difference:?}");
        }
        passed @ (Outcome::Passed | Outcome::PassedButForOrder(_)) => {
            panic!("{name} passed with another {key}: {passed:?}")
        }
    }
}

#[test]
fn a_changed_answer_is_noticed() {
    for name in ["default.pools.00.script.gz", "expandable.graphs.00.script.gz", "pow2div4.plain.00.script.gz"] {
        expect_failure(name, "address", |action| {
            let Action::Alloc { address, .. } = action else { return false };
            *address += 512;
            true
        });
        expect_failure(name, "reserved_bytes.all.peak", |action| {
            let Action::Stats(figures) = action else { return false };
            figures.get_mut("reserved_bytes.all.peak").map(|peak| *peak += 1).is_some()
        });
        expect_failure(name, "snapshot", |action| {
            let Action::Snapshot(segments) = action else { return false };
            segments[0].blocks[0].requested_size += 1;
            true
        });
    }
}

#[test]
fn another_outcome_is_noticed() {
    expect_failure("default.oom.00.script.gz", "outcome", |action| {
        let Action::OutOfMemory { bytes, .. } = action else { return false };
        *bytes = 512;
        true
    });
}

/// Peak of allocated over peak of reserved bytes that PyTorch reached with the recorded workloads, by default and with
/// expandable segments, to three digits.
const UTILISATION: [(&str, f64, f64); 4] = [
    ("gpt2_fixed", 0.819, 0.874),
    ("llama_varlen", 0.512, 0.929),
    ("resnet_multiscale", 0.846, 0.994),
    ("gnn_sampled", 0.360, 0.674),
];

#[test]
fn recorded_workloads_need_as_much_memory_as_they_did() {
    for (name, default, expandable) in UTILISATION {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/traces/{name}.trace.gz"));
        let steps = trace_replay::read(&path).expect("it is well formed");
        for (conf, expected) in [("", default), ("expandable_segments:True", expandable)] {
            let got = measure(&steps, conf).expect("the device has enough memory").first.figures.utilisation();
            assert!((got - expected).abs() < 0.0006, "{name} with `{conf}`: {got:.4} instead of {expected}");
        }
    }
}
