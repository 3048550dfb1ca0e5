//! The sync debug mode: which operations it polices, and that a refused one does nothing.

mod common;

use std::cell::RefCell;
use std::fmt;
use std::sync::Once;

use c10_core::{Error, Event, EventOptions, SyncDebugError, SyncDebugMode};
use common::{DEVICE, rig};
use cuda_sys::CUresult;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

thread_local! {
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Takes down the texts of warnings, for each thread.
struct Listener;

/// From now on warnings are taken down. One listener for the process: tracing asks the first comer of a place once.
fn listen() {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| tracing::subscriber::set_global_default(Listener).expect("no other listener"));
}

/// The warnings of this thread since it was asked last.
fn heard() -> Vec<String> {
    HEARD.take()
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        HEARD.with_borrow_mut(|heard| heard.push(message.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const PROTOTYPE: &str =
    "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations";
const CALLED: &str = "called a synchronizing CUDA operation";

#[test]
fn modes_are_numbers_and_names() {
    listen();
    let rig = rig();
    let runtime = &rig.runtime;
    assert_eq!(runtime.sync_debug().mode(), Ok(SyncDebugMode::Default));
    assert!(runtime.is_initialized(), "asking starts the runtime");
    for (number, name, mode) in
        [(1, "warn", SyncDebugMode::Warn), (2, "error", SyncDebugMode::Error), (0, "default", SyncDebugMode::Default)]
    {
        runtime.sync_debug().set(number).unwrap();
        assert_eq!(runtime.sync_debug().mode(), Ok(mode));
        runtime.sync_debug().set(0).unwrap();
        runtime.sync_debug().set(name).unwrap();
        assert_eq!(runtime.sync_debug().mode(), Ok(mode));
        runtime.sync_debug().set(mode).unwrap();
        assert_eq!(mode as i32, number);
    }
    for number in [-1, 3, i32::MAX] {
        let error = runtime.sync_debug().set(number).unwrap_err();
        assert_eq!(error.to_string(), "invalid value of debug_mode, expected one of 0,1,2");
    }
    let error = runtime.sync_debug().set("Warn").unwrap_err();
    assert_eq!(error.to_string(), "invalid value of debug_mode, expected one of `default`, `warn`, `error`");
    assert_eq!(runtime.sync_debug().mode(), Ok(SyncDebugMode::Default), "a refused mode changes nothing");
}

#[test]
fn warnings_come_from_copies_and_streams_only() {
    listen();
    let rig = rig();
    let (runtime, stream) = (&rig.runtime, rig.stream());
    let buffer = runtime.memory().buffer(64, &stream).unwrap();
    buffer.copy_from_slice(0, &[1; 64]).unwrap();
    assert_eq!(heard(), [""; 0], "the mode is off");
    runtime.sync_debug().set("warn").unwrap();
    runtime.sync_debug().set(1).unwrap();
    assert_eq!(heard(), [PROTOTYPE], "said once");

    buffer.copy_from_slice(0, &[2; 64]).unwrap();
    assert_eq!(heard(), [CALLED]);
    assert_eq!(buffer.to_vec().unwrap(), [2; 64]);
    assert_eq!(heard(), [CALLED]);
    stream.synchronize().unwrap();
    assert_eq!(heard(), [CALLED]);

    let event = Event::on(runtime, EventOptions::default());
    let pinned = runtime.pinned().buffer(64).unwrap();
    event.record(&stream).unwrap();
    event.synchronize().unwrap();
    runtime.synchronize(DEVICE).unwrap();
    buffer.copy_from_pinned(0, &pinned, 0..64, &stream).unwrap();
    buffer.copy_from_slice(0, &[]).unwrap();
    stream.query().unwrap();
    runtime.memory().empty_cache().unwrap();
    assert_eq!(heard(), [""; 0], "nothing else is policed");
}

#[test]
fn a_refused_operation_does_nothing() {
    listen();
    let rig = rig();
    let (runtime, stream) = (&rig.runtime, rig.stream());
    let buffer = runtime.memory().buffer(64, &stream).unwrap();
    buffer.copy_from_slice(0, &[1; 64]).unwrap();
    runtime.sync_debug().set(2).unwrap();
    let waits = || {
        let made = |call: &&(&str, CUresult, u64)| call.0.starts_with("cuMemcpy") || call.0 == "cuStreamSynchronize";
        rig.machine.calls().iter().filter(made).map(|(.., count)| count).sum::<u64>()
    };
    let before = waits();
    let mut bytes = [9; 64];
    for refused in [buffer.copy_from_slice(0, &[7; 64]), buffer.copy_to_slice(0, &mut bytes), stream.synchronize()] {
        assert_eq!(refused, Err(Error::SyncDebug(SyncDebugError::SynchronizingOperation)));
        assert_eq!(refused.unwrap_err().to_string(), CALLED);
    }
    assert_eq!((waits(), bytes), (before, [9; 64]));

    // On every thread, and only on this runtime.
    let other = common::runtime();
    let elsewhere = other.streams().pooled(DEVICE, 0).unwrap();
    elsewhere.synchronize().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(stream.synchronize(), Err(Error::SyncDebug(SyncDebugError::SynchronizingOperation))));
    });
    runtime.synchronize(DEVICE).unwrap();
    runtime.sync_debug().set("default").unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1; 64]);
}
