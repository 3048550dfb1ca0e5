//! Recording a time line changes nothing: no failure of a driver call is new, none leaves anything behind, and nothing is
//! recorded wrongly where threads record at once.
#![expect(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod common;

use std::collections::BTreeMap;

use c10_core::{CUDAGraph, CaptureMode, Error, Event, EventOptions, Result, StartError, Timeline, TimelineOptions};
use common::{DEVICE, Rig, config, fail_each_call};
use cuda_sim::{Fault, LiveHandles};
use serde_json::Value;

const LEN: usize = 1 << 16;

fn events(timeline: &Timeline) -> Vec<Value> {
    let mut text = Vec::new();
    timeline.write_to(&mut text).unwrap();
    let file: Value = serde_json::from_slice(&text).expect("the file is JSON");
    file["traceEvents"].as_array().unwrap().clone()
}

/// A bit of everything that is recorded.
fn program(rig: &Rig) -> Result<Timeline> {
    let runtime = &rig.runtime;
    let recorder = runtime.record_timeline(&TimelineOptions::default())?;
    let streams = runtime.streams();
    let (first, second) = (streams.pooled(DEVICE, 0)?, streams.pooled(DEVICE, 0)?);
    let buffer = runtime.memory().buffer(LEN, &first)?;
    buffer.fill(0..LEN, 7, &first)?;
    let event = Event::on(runtime, EventOptions::default());
    event.record(&first)?;
    event.wait(&second)?;
    buffer.record_stream(&second)?;
    let mut graph = CUDAGraph::on(runtime, false);
    graph.capture(&second, None, CaptureMode::Global, || buffer.fill(0..LEN, 5, &second))?;
    {
        let _current = streams.guard(&second)?;
        graph.replay()?;
    }
    second.synchronize()?;
    assert_eq!(buffer.to_vec()?, [5; LEN]);
    graph.reset()?;
    drop((buffer, event, graph));
    runtime.memory().empty_cache()?;
    Ok(recorder.finish())
}

/// Runs the program with one failing call. Tells whether the failure was noticed.
fn run_with(fault: Fault) -> bool {
    let context = format!("{fault:?}");
    let rig = Rig::new(config());
    rig.machine.inject(fault);
    let result = program(&rig);
    rig.machine.clear_faults();
    match &result {
        Ok(timeline) => assert!(events(timeline).len() > 10, "{context}"),
        Err(error) => {
            let told = error.error_code().is_some() || error.is_out_of_memory();
            assert!(told || *error == Error::Start(StartError::NoDevices), "{context}: {error:?}");
        }
    }
    rig.runtime.synchronize(DEVICE).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert_eq!(rig.runtime.inconsistency(), None, "{context}");
    let is_err = result.is_err();
    drop(result);
    assert_eq!(rig.left(), LiveHandles::default(), "{context}");
    is_err
}

#[test]
fn any_call_may_fail_while_a_time_line_is_recorded() {
    let rig = Rig::new(config());
    let timeline = program(&rig).unwrap();
    let slices = events(&timeline).into_iter().filter(|event| event["ph"] == "X" && event["cat"] != "cuda_driver");
    let names: Vec<_> = slices.map(|slice| slice["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        names,
        ["Memset", "event record", "event wait", "graph replay", "event record", "event wait", "Memcpy DtoH"]
    );
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    let (tried, noticed) = fail_each_call(&calls, run_with);
    println!("{noticed} of {tried} failures were noticed");
    assert!(tried > 100, "only {tried} places");
}

#[test]
fn threads_record_at_once() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 100;
    let rig = Rig::new(config());
    let recorder = rig.runtime.record_timeline(&TimelineOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (machine, runtime) = (rig.machine.clone(), rig.runtime.clone());
            scope.spawn(move || {
                let _bound = machine.bind();
                let stream = runtime.streams().pooled(DEVICE, 0).unwrap();
                for round in 0..ROUNDS {
                    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
                    buffer.fill(0..LEN, u8::try_from(round).unwrap(), &stream).unwrap();
                }
            });
        }
    });
    let timeline = recorder.finish();
    let mut fills: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for slice in events(&timeline).iter().filter(|event| event["name"] == "Memset") {
        let start = slice["ts"].as_f64().unwrap();
        let end = start + slice["dur"].as_f64().unwrap();
        fills.entry(slice["tid"].as_u64().unwrap()).or_default().push((start, end));
    }
    assert_eq!(fills.values().map(Vec::len).collect::<Vec<_>>(), [ROUNDS; THREADS]);
    for spans in fills.values() {
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6), "{spans:?}");
    }
    let figures = events(&timeline);
    let last = figures.iter().rev().find(|event| event["name"] == "allocated bytes").unwrap();
    assert_eq!(last["args"]["bytes"], 0);
}
