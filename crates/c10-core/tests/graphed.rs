//! Functions captured once and replayed by each call.
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod common;

use c10_core::{
    DeviceBuffer, DeviceIndex, Error, GraphError, GraphFn, GraphedCallable, GraphedError, GraphedOptions, PoolId,
    Result, Runtime,
};
use common::{DEVICE, Rig, config, fail_each_call, rig};
use std::cell::Cell;

const LEN: usize = 4096;

fn buffer(runtime: &Runtime, value: u8) -> DeviceBuffer {
    let stream = runtime.streams().current(DEVICE).unwrap();
    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
    buffer.fill(0..LEN, value, &stream).unwrap();
    buffer
}

/// A new buffer that holds the first half of one argument and the second half of another.
fn halves(runtime: &Runtime, arguments: &[DeviceBuffer]) -> Result<Vec<DeviceBuffer>> {
    let stream = runtime.streams().current(DEVICE)?;
    let between = runtime.memory().buffer(LEN, &stream)?;
    between.copy_from_buffer(0, &arguments[0], 0..LEN, &stream)?;
    let result = runtime.memory().buffer(LEN, &stream)?;
    result.copy_from_buffer(0, &between, 0..LEN / 2, &stream)?;
    result.copy_from_buffer(LEN / 2, &arguments[1], LEN / 2..LEN, &stream)?;
    Ok(vec![result])
}

fn joined(first: u8, second: u8) -> Vec<u8> {
    [vec![first; LEN / 2], vec![second; LEN / 2]].concat()
}

fn make(rig: &Rig) -> GraphedCallable {
    let runtime = &rig.runtime;
    let callable = |arguments: &[DeviceBuffer]| halves(runtime, arguments);
    let sample = [buffer(runtime, 1), buffer(runtime, 2)];
    let options = GraphedOptions::default();
    GraphedCallable::make(runtime, &[&callable], &[&sample], &options).unwrap().remove(0)
}

#[test]
fn a_call_replays_on_its_arguments() {
    let rig = rig();
    let mut callable = make(&rig);
    assert_eq!(callable.graph().node_count(), 3);
    let outputs = callable.static_outputs()[0].address();
    for (first, second) in [(5, 6), (7, 8), (9, 7)] {
        let arguments = [buffer(&rig.runtime, first), buffer(&rig.runtime, second)];
        let results = callable.call(&arguments).unwrap();
        assert_eq!((results.len(), results[0].address()), (1, outputs));
        assert_eq!(results[0].to_vec().unwrap(), joined(first, second));
    }
    assert!(rig.machine.take_reports().is_empty());
}

#[test]
fn only_arguments_elsewhere_are_copied() {
    let rig = rig();
    let mut callable = make(&rig);
    let copies = |rig: &Rig| {
        let calls = rig.machine.calls();
        calls.iter().filter(|(call, ..)| *call == "cuMemcpyAsync").map(|(.., count)| count).sum::<u64>()
    };
    let inputs = callable.static_inputs().to_vec();
    let other = buffer(&rig.runtime, 9);
    let before = copies(&rig);
    assert_eq!(callable.call(&inputs).unwrap()[0].to_vec().unwrap(), joined(1, 2));
    assert_eq!(copies(&rig), before);
    assert_eq!(callable.call(&[other, inputs[1].clone()]).unwrap()[0].to_vec().unwrap(), joined(9, 2));
    assert_eq!(copies(&rig), before + 1);
    // Each is the other's static input: neither is overwritten before it was read.
    let swapped = [inputs[1].clone(), inputs[0].clone()];
    assert_eq!(callable.call(&swapped).unwrap()[0].to_vec().unwrap(), joined(2, 9));
}

#[test]
fn functions_are_warmed_up_on_a_stream_of_their_own() {
    let rig = rig();
    let runtime = &rig.runtime;
    let (runs, here) = (Cell::new(0), runtime.streams().current(DEVICE).unwrap());
    let callable = |arguments: &[DeviceBuffer]| {
        assert_ne!(runtime.streams().current(DEVICE)?, here);
        runs.set(runs.get() + 1);
        halves(runtime, arguments)
    };
    let sample = [buffer(runtime, 1), buffer(runtime, 2)];
    for (iterations, wanted) in [(3, 4), (11, 12), (0, 1)] {
        runs.set(0);
        let options = GraphedOptions { num_warmup_iters: iterations, ..GraphedOptions::default() };
        GraphedCallable::make(runtime, &[&callable], &[&sample], &options).unwrap();
        assert_eq!(runs.get(), wanted);
    }
    assert_eq!(runtime.streams().current(DEVICE).unwrap(), here);
}

#[test]
fn several_functions_share_one_pool_and_feed_one_another() {
    let rig = rig();
    let runtime = &rig.runtime;
    let callable = |arguments: &[DeviceBuffer]| halves(runtime, arguments);
    let samples = [[buffer(runtime, 0), buffer(runtime, 0)], [buffer(runtime, 0), buffer(runtime, 0)]];
    let functions: [&GraphFn<'_>; 2] = [&callable, &callable];
    let options = GraphedOptions { pool: Some(PoolId::handle()), ..GraphedOptions::default() };
    let mut made = GraphedCallable::make(runtime, &functions, &[&samples[0], &samples[1]], &options).unwrap();
    let pools: Vec<_> = made.iter().map(|callable| callable.graph().pool().unwrap()).collect();
    assert_eq!(pools, vec![options.pool.unwrap(); 2]);
    let (mut second, mut first) = (made.remove(1), made.remove(0));
    for value in [3, 30] {
        let between = first.call(&[buffer(runtime, value), buffer(runtime, value + 1)]).unwrap()[0].clone();
        let last = second.call(&[buffer(runtime, value + 2), between]).unwrap()[0].to_vec().unwrap();
        assert_eq!(last, joined(value + 2, value + 1));
    }
}

#[test]
fn calls_on_other_streams_come_after_one_another() {
    for seed in 0..8 {
        let rig = Rig::new(config().seed(seed));
        let (mut callable, side) = (make(&rig), rig.stream());
        let first = [buffer(&rig.runtime, 5), buffer(&rig.runtime, 6)];
        let second = [buffer(&rig.runtime, 7), buffer(&rig.runtime, 8)];
        rig.runtime.synchronize(DEVICE).unwrap();
        callable.call(&first).unwrap();
        {
            let _side = rig.runtime.streams().guard(&side).unwrap();
            callable.call(&second).unwrap();
        }
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(callable.static_outputs()[0].to_vec().unwrap(), joined(7, 8), "seed {seed}");
    }
}

fn kind<T: std::fmt::Debug>(refused: Result<T>) -> GraphedError {
    let Err(Error::Graphed(error)) = refused else { panic!("{refused:?}") };
    *error
}

#[test]
fn what_does_not_fit_is_refused() {
    let rig = Rig::new(config().devices(2));
    let runtime = &rig.runtime;
    let mut callable = make(&rig);
    let right = [buffer(runtime, 5), buffer(runtime, 6)];
    assert_eq!(kind(callable.call(&right[..1])), GraphedError::ArgumentCount { expected: 2, found: 1 });
    let stream = runtime.streams().current(DEVICE).unwrap();
    let short = [right[0].clone(), runtime.memory().buffer(7, &stream).unwrap()];
    assert_eq!(kind(callable.call(&short)), GraphedError::ArgumentSize { index: 1, expected: LEN, found: 7 });
    let elsewhere = runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    let far = [runtime.memory().buffer(LEN, &elsewhere).unwrap(), right[1].clone()];
    let of_another = GraphedError::Device { index: 0, expected: DEVICE, found: DeviceIndex(1) };
    assert_eq!(kind(callable.call(&far)), of_another);
    assert_eq!(callable.call(&right).unwrap()[0].to_vec().unwrap(), joined(5, 6), "usable after errors");

    let (function, options) = (|arguments: &[DeviceBuffer]| halves(runtime, arguments), GraphedOptions::default());
    let samples = kind(GraphedCallable::make(runtime, &[&function], &[], &options));
    assert_eq!(samples, GraphedError::Samples { callables: 1, samples: 0 });
    let twice = [right[0].clone(), right[0].clone()];
    let same = kind(GraphedCallable::make(runtime, &[&function], &[&twice], &options));
    assert_eq!(same, GraphedError::SameMemory { callable: 0, first: 0, second: 1 });
    assert!(GraphedCallable::make(runtime, &[], &[], &options).unwrap().is_empty());
}

#[test]
fn after_a_failure_nothing_is_left_captured() {
    let rig = rig();
    let runtime = &rig.runtime;
    let runs = Cell::new(0);
    let good = |arguments: &[DeviceBuffer]| halves(runtime, arguments);
    let bad = |arguments: &[DeviceBuffer]| {
        runs.set(runs.get() + 1);
        // Warm-up is three runs; what is forbidden in a capture comes with the fourth.
        if runs.get() > 3 {
            arguments[0].to_vec()?;
        }
        halves(runtime, arguments)
    };
    let samples = [[buffer(runtime, 0), buffer(runtime, 0)], [buffer(runtime, 0), buffer(runtime, 0)]];
    let functions: [&GraphFn<'_>; 2] = [&good, &bad];
    let options = GraphedOptions::default();
    let refused = GraphedCallable::make(runtime, &functions, &[&samples[0], &samples[1]], &options);
    assert!(matches!(refused.unwrap_err(), Error::Graph(GraphError::UnpinnedCopy)));
    let live = rig.machine.live();
    assert_eq!((live.graphs, live.graph_execs), (0, 0));
    assert!(!runtime.streams().is_current_capturing().unwrap() && runtime.is_valid());
    let mut after = make(&rig);
    let arguments = [buffer(runtime, 3), buffer(runtime, 4)];
    assert_eq!(after.call(&arguments).unwrap()[0].to_vec().unwrap(), joined(3, 4));
}

fn program(rig: &Rig) -> Result<()> {
    let runtime = &rig.runtime;
    let stream = runtime.streams().pooled(DEVICE, 0)?;
    let _current = runtime.streams().guard(&stream)?;
    let (first, second) = (runtime.memory().buffer(LEN, &stream)?, runtime.memory().buffer(LEN, &stream)?);
    let callable = |arguments: &[DeviceBuffer]| halves(runtime, arguments);
    let sample = [first.clone(), second.clone()];
    let mut made = GraphedCallable::make(runtime, &[&callable], &[&sample], &GraphedOptions::default())?;
    made[0].call(&[second, first])?;
    runtime.synchronize(DEVICE)
}

#[test]
fn every_driver_call_may_fail() {
    let plain = rig();
    program(&plain).unwrap();
    let calls = plain.machine.calls();
    drop(plain);
    let (tried, noticed) = fail_each_call(&calls, |fault| {
        let rig = rig();
        rig.machine.inject(fault);
        let result = program(&rig);
        assert!(rig.runtime.is_valid(), "{fault:?}: {result:?}");
        rig.machine.clear_faults();
        program(&rig).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let left = rig.left();
        assert!(
            (left.graphs, left.graph_execs, left.allocations) == (0, 0, 0) || left.contexts > 0,
            "{fault:?}: {left:?}"
        );
        result.is_err()
    });
    assert!(tried > 60 && noticed > tried / 2, "{noticed} of {tried} faults were noticed");
}
