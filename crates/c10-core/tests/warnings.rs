//! Warnings reach whoever runs the program: through `tracing`, or on the error output where nobody listens to that.

mod common;

use c10_core::SyncDebugMode;
use common::{DEVICE, rig};

/// Set in the process that warns.
const SCENE: &str = "C10_CORE_TEST_WARNINGS";

const CALLED: &str = "called a synchronizing CUDA operation";
const PROTOTYPE: &str = "Synchronization debug mode is a prototype feature";
const FRACTION: &str = "per_process_memory_fraction has no effect";

/// Ignores everything, but listens.
struct Listener;

impl tracing::Subscriber for Listener {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Warns of everything twice, in the process that is made for it; does nothing in others.
#[test]
fn warns() {
    let Ok(scene) = std::env::var(SCENE) else { return };
    if scene == "heard" {
        tracing::subscriber::set_global_default(Listener).unwrap();
    }
    let (rig, other) = (rig(), common::runtime());
    // Before the start it counts, and nothing is to be said.
    rig.runtime.memory().set_settings("per_process_memory_fraction:0.5").unwrap();
    assert_eq!(rig.runtime.memory().fraction(DEVICE), Ok(0.5));
    for runtime in [&rig.runtime, &other] {
        runtime.sync_debug().set(SyncDebugMode::Warn).unwrap();
        runtime.streams().default(DEVICE).unwrap().synchronize().unwrap();
        runtime.memory().set_settings("per_process_memory_fraction:0.25").unwrap();
    }
    assert_eq!(rig.runtime.memory().fraction(DEVICE), Ok(0.5));
}

/// What a process that warns writes to its error output.
fn written(scene: &str) -> String {
    common::in_a_process("warns", &[(SCENE, scene)]).1
}

#[test]
fn warnings_that_nobody_listens_to_are_written_once() {
    let text = written("unheard");
    for warning in [CALLED, PROTOTYPE, FRACTION] {
        assert_eq!(text.matches(warning).count(), 1, "{warning}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("Warning: ")).count(), 3, "{text}");
}

#[test]
fn a_program_that_listens_is_left_alone() {
    assert_eq!(written("heard"), "");
}
