//! What graphs can do beyond capture and replay: raw handles, debug files, upload, update, child graphs, scopes, reports,
//! capture with a fallback, external events.
#![allow(clippy::unwrap_used, reason = "a failed step of a helper is a failed test")]

mod common;

use std::collections::BTreeMap;

use c10_core::{
    CUDAGraph, CaptureMode, CaptureOutcome, DeviceBuffer, DeviceIndex, Error, Event, EventOptions, GraphError,
    GraphNode, GraphNodeKind, GraphUpdateFailure, PoolId, Result, StartError, Stream,
};
use common::{DEVICE, Rig, code, config, rig};
use cuda_sim::LiveHandles;

const LEN: usize = 1 << 12;
const GLOBAL: CaptureMode = CaptureMode::Global;

fn graph(rig: &Rig) -> CUDAGraph {
    CUDAGraph::on(&rig.runtime, false)
}

fn kept_graph(rig: &Rig) -> CUDAGraph {
    CUDAGraph::on(&rig.runtime, true)
}

fn capture_fill(graph: &mut CUDAGraph, stream: &Stream, buffer: &DeviceBuffer, value: u8) {
    graph.capture(stream, None, GLOBAL, || buffer.fill(0..LEN, value, stream)).unwrap();
}

fn after_replay(rig: &Rig, graph: &mut CUDAGraph, buffer: &DeviceBuffer) -> Vec<u8> {
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    buffer.to_vec().unwrap()
}

fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn raw_handles_are_there_when_torchs_are() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let (mut plain, mut kept) = (graph(&rig), kept_graph(&rig));
    let no_graph =
        "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true";
    let no_exec = "You cannot access the raw cudaGraphExec_t instance until instantiate() has been called";
    assert_eq!(text(plain.raw_cuda_graph()), no_graph);
    assert_eq!(
        text(kept.raw_cuda_graph()),
        "You cannot access the raw cudaGraph_t instance until capture_end() has been called"
    );
    assert_eq!((text(plain.raw_cuda_graph_exec()), text(kept.raw_cuda_graph_exec())), (no_exec.into(), no_exec.into()));
    capture_fill(&mut plain, &stream, &buffer, 1);
    capture_fill(&mut kept, &stream, &buffer, 2);
    assert_eq!(text(plain.raw_cuda_graph()), no_graph);
    assert_ne!(plain.raw_cuda_graph_exec().unwrap(), 0);
    assert_eq!(text(kept.raw_cuda_graph_exec()), no_exec);
    let raw = kept.raw_cuda_graph().unwrap();
    kept.instantiate().unwrap();
    let first = kept.raw_cuda_graph_exec().unwrap();
    kept.instantiate().unwrap();
    assert_ne!(kept.raw_cuda_graph_exec().unwrap(), first, "made anew");
    assert_eq!(kept.raw_cuda_graph().unwrap(), raw);
    kept.reset().unwrap();
    assert_eq!(text(kept.raw_cuda_graph_exec()), no_exec);
}

#[test]
fn graphs_are_written_for_graphviz() {
    let warnings = testkit::Listener::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let folder = tempfile("graphs_are_written");
    let path = folder.join("graph.dot");
    let (mut plain, mut kept) = (graph(&rig), kept_graph(&rig));
    capture_fill(&mut plain, &stream, &buffer, 1);
    assert_eq!(plain.debug_dump(&path), Ok(false));
    assert_eq!(warnings.take_warnings(), ["CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()"]);
    assert_eq!(kept.debug_dump(&path), Ok(false), "nothing was captured");
    capture_fill(&mut kept, &stream, &buffer, 2);
    for _ in 0..2 {
        assert_eq!(kept.debug_dump(&path), Ok(true));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("digraph") && text.contains("MEMSET") && text.contains("handle:"), "{text}");
        std::fs::remove_file(&path).unwrap();
    }
    plain.enable_debug_mode();
    assert_eq!(plain.debug_dump(&path), Ok(false), "what it captured was given up before");
    plain.reset().unwrap();
    capture_fill(&mut plain, &stream, &buffer, 3);
    assert_eq!(rig.machine.live().graphs, 2);
    assert_eq!(code(plain.debug_dump(folder.join("no such folder").join("graph.dot"))), 304);
    assert_eq!(text(plain.debug_dump("a\0b")), "the path a\0b has a NUL inside");
    assert_eq!(plain.debug_dump(&path), Ok(true));
    assert_eq!(rig.machine.live().graphs, 1, "written, it is given up");
    std::fs::remove_file(&path).unwrap();
    assert_eq!((plain.debug_dump(&path), path.exists()), (Ok(false), false));
    assert_eq!(after_replay(&rig, &mut plain, &buffer), [3; LEN]);
    assert_eq!(warnings.take_warnings(), [""; 0]);
    std::fs::remove_dir(&folder).unwrap();
}

/// A new folder of this test program's own.
fn tempfile(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("c10-core-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn an_empty_graph_is_warned_of() {
    let warnings = testkit::Listener::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    let rig = rig();
    let stream = rig.stream();
    let mut graph = graph(&rig);
    graph.capture(&stream, None, GLOBAL, || Ok::<_, Error>(())).unwrap();
    assert_eq!(
        warnings.take_warnings(),
        ["The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device or \
          stream."]
    );
    graph.replay().unwrap();
    let capture_that_fails = |graph: &mut CUDAGraph| -> Result<()> {
        graph.reset()?;
        let _capture = graph.capture_guard(&stream, None, GLOBAL)?;
        let _ = stream.synchronize();
        Ok(())
    };
    capture_that_fails(&mut graph).unwrap();
    let told = warnings.take_warnings();
    assert!(
        told.len() == 1 && told[0].starts_with("a capture that was dropped left no graph: CUDA error: "),
        "{told:?}"
    );
}

#[test]
fn an_upload_comes_before_the_first_replay() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = kept_graph(&rig);
    assert_eq!(text(graph.upload(&stream)), "Called CUDAGraph::upload() without a preceding successful capture.");
    capture_fill(&mut graph, &stream, &buffer, 1);
    graph.upload(&stream).unwrap();
    graph.upload(None).unwrap();
    assert_eq!(rig.machine.live().graph_execs, 1);
    let mut inside = self::graph(&rig);
    let refused = inside.capture(&stream, None, GLOBAL, || graph.upload(&stream));
    assert_eq!(code(refused), 900);
    assert_eq!(after_replay(&rig, &mut graph, &buffer), [1; LEN]);
}

#[test]
fn an_executable_graph_takes_over_a_newer_one_of_its_shape() {
    for version in [11080, 12020, 13000] {
        let rig = Rig::new(config().driver_version(cuda_sys::CudaVersion(version)));
        let stream = rig.stream();
        let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
        let capture = |graph: &mut CUDAGraph, value| -> Result<()> {
            let input = rig.runtime.memory().buffer(LEN, &stream)?;
            input.copy_from_slice(0, &[value; LEN])?;
            graph.capture(&stream, None, GLOBAL, || {
                let between = rig.runtime.memory().buffer(LEN, &stream)?;
                between.copy_from_buffer(0, &input, 0..LEN, &stream)?;
                buffer.copy_from_buffer(0, &between, 0..LEN, &stream)
            })
        };
        let mut running = graph(&rig);
        capture(&mut running, 1).unwrap();
        let exec = running.raw_cuda_graph_exec().unwrap();
        running.replay().unwrap();
        for value in 2..5 {
            let mut newer = kept_graph(&rig);
            capture(&mut newer, value).unwrap();
            let pool = newer.pool().unwrap();
            running.update(&mut newer).unwrap();
            assert_eq!(newer.replay(), Err(Error::Graph(GraphError::ReplayWithoutCapture)), "the other one is empty");
            assert_eq!((running.raw_cuda_graph_exec(), running.pool()), (Ok(exec), Ok(pool)));
            drop(newer);
            rig.runtime.memory().empty_cache().unwrap();
            // Nothing takes the place of what the newer graph reads, and the older one's is free again.
            let intruders = [0, 1, 2].map(|_| rig.runtime.memory().buffer(LEN, &stream).unwrap());
            intruders.iter().for_each(|intruder| intruder.copy_from_slice(0, &[99; LEN]).unwrap());
            assert_eq!(after_replay(&rig, &mut running, &buffer), [value; LEN], "driver {version}");
            assert_eq!(running.report().unwrap().kept_buffers, 2);
        }
        let live = rig.machine.live();
        assert_eq!((live.graphs, live.graph_execs), (0, 1));
        assert!(rig.machine.take_reports().is_empty());
        drop(running);
        rig.runtime.memory().empty_cache().unwrap();
        assert_eq!(rig.reserved_bytes(), 2 << 20, "the pools of all of them are given up");
    }
}

#[test]
fn an_update_leaves_alone_what_earlier_replays_of_both_graphs_read() {
    for (slow, quick) in [(0, 1), (1, 0)] {
        let rig = rig();
        let (stream, sides) = (rig.stream(), [rig.stream(), rig.stream()]);
        let results = [0, 1].map(|_| rig.runtime.memory().buffer(LEN, &stream).unwrap());
        let capture = |value: u8, result: &DeviceBuffer| {
            let input = rig.runtime.memory().buffer(LEN, &stream).unwrap();
            input.copy_from_slice(0, &[value; LEN]).unwrap();
            let mut graph = kept_graph(&rig);
            graph.capture(&stream, None, GLOBAL, || result.copy_from_buffer(0, &input, 0..LEN, &stream)).unwrap();
            graph
        };
        let mut graphs = [capture(3, &results[0]), capture(4, &results[1])];
        rig.runtime.synchronize(DEVICE).unwrap();
        let busy = rig.runtime.memory().buffer(1 << 27, &sides[slow]).unwrap();
        busy.fill(0..1 << 27, 1, &sides[slow]).unwrap();
        for (graph, side) in graphs.iter_mut().zip(&sides) {
            let _current = rig.runtime.streams().guard(side).unwrap();
            graph.replay().unwrap();
        }
        let [mut older, mut newer] = graphs;
        older.update(&mut newer).unwrap();
        drop((older, newer));
        sides[quick].synchronize().unwrap();
        assert!(!sides[slow].query().unwrap(), "one replay is still to come");
        let intruders = [0, 1, 2].map(|_| rig.runtime.memory().buffer(LEN, &stream).unwrap());
        intruders.iter().for_each(|intruder| intruder.fill(0..LEN, 99, &stream).unwrap());
        rig.runtime.synchronize(DEVICE).unwrap();
        let [first, second] = results.map(|result| result.to_vec().unwrap());
        assert_eq!((first, second), (vec![3; LEN], vec![4; LEN]), "the slow one is {slow}");
    }
}

#[test]
fn an_update_that_does_not_fit_says_where() {
    let rig = rig();
    let stream = rig.stream();
    let (buffer, other) =
        (rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap());
    let mut running = graph(&rig);
    let two_fills = || -> Result<()> {
        buffer.fill(0..LEN, 1, &stream)?;
        other.fill(0..LEN, 1, &stream)
    };
    running.capture(&stream, None, GLOBAL, two_fills).unwrap();
    let mut newer = kept_graph(&rig);
    assert_eq!(text(running.update(&mut newer)), "Called CUDAGraph::update() without a preceding successful capture.");
    assert_eq!(newer.update(&mut running), Err(Error::Graph(GraphError::WithoutCapture { call: "update" })));
    newer
        .capture(&stream, None, GLOBAL, || {
            buffer.fill(0..LEN, 2, &stream)?;
            buffer.copy_from_buffer(0, &other, 0..LEN, &stream)
        })
        .unwrap();
    let Err(Error::Graph(GraphError::Update(error))) = running.update(&mut newer) else {
        panic!("another kind of node")
    };
    assert_eq!(error.reason, GraphUpdateFailure::NodeTypeChanged);
    assert_eq!(error.node, Some(GraphNode { index: Some(1), kind: GraphNodeKind::Memcpy }));
    newer.reset().unwrap();
    newer.capture(&stream, None, GLOBAL, || buffer.fill(0..LEN, 2, &stream)).unwrap();
    let Err(Error::Graph(GraphError::Update(error))) = running.update(&mut newer) else { panic!("fewer nodes") };
    assert_eq!((error.reason, error.node), (GraphUpdateFailure::TopologyChanged, None));
    // Both are as they were.
    assert_eq!(after_replay(&rig, &mut running, &other), [1; LEN]);
    assert_eq!(after_replay(&rig, &mut newer, &buffer), [2; LEN]);
    let mut given_up = graph(&rig);
    given_up.capture(&stream, None, GLOBAL, two_fills).unwrap();
    assert_eq!(running.update(&mut given_up), Err(Error::Graph(GraphError::NotKept)));
}

#[test]
fn a_graph_can_be_a_node_of_another() {
    for version in [11080, 12020, 13000] {
        let rig = Rig::new(config().driver_version(cuda_sys::CudaVersion(version)));
        let (stream, side) = (rig.stream(), rig.stream());
        let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
        let mut child = kept_graph(&rig);
        {
            let input = rig.runtime.memory().buffer(LEN, &stream).unwrap();
            input.copy_from_slice(0, &[3; LEN]).unwrap();
            child
                .capture(&stream, None, GLOBAL, || {
                    let between = rig.runtime.memory().buffer(LEN, &stream)?;
                    between.copy_from_buffer(0, &input, 0..LEN, &stream)?;
                    buffer.copy_from_buffer(0, &between, 0..LEN, &stream)
                })
                .unwrap();
        }
        let mut parent = kept_graph(&rig);
        parent
            .record(&stream, None, GLOBAL, |scope| {
                scope.fill(&buffer, 0..LEN, 9)?;
                scope.add_child(&child)?;
                scope.fill(&buffer, 0..8, 5)?;
                scope.fork(&side, |scope| scope.add_child(&child).map(drop))?;
                scope.fill(&buffer, 8..16, 6)
            })
            .unwrap();
        let nodes = parent.report().unwrap().nodes.unwrap();
        assert_eq!(nodes, BTreeMap::from([(GraphNodeKind::Memset, 3), (GraphNodeKind::Graph, 2)]));
        let edges_before = parent.node_count();
        drop(child);
        rig.runtime.memory().empty_cache().unwrap();
        // Nothing takes the place of what the child used.
        let intruder = rig.runtime.memory().buffer(LEN, &stream).unwrap();
        intruder.copy_from_slice(0, &[8; LEN]).unwrap();
        let expected: Vec<u8> = [vec![3; 8], vec![6; 8], vec![3; LEN - 16]].concat();
        assert_eq!(after_replay(&rig, &mut parent, &buffer), expected, "driver {version}");
        assert_eq!(edges_before, 5);
        assert!(rig.machine.take_reports().is_empty());
        drop((parent, buffer, intruder));
        rig.runtime.memory().empty_cache().unwrap();
        assert_eq!((rig.reserved_bytes(), rig.runtime.is_valid()), (0, true));
        drop((stream, side));
        assert_eq!(rig.left(), LiveHandles::default());
    }
}

#[test]
fn graphs_of_two_devices_are_not_joined() {
    let rig = Rig::new(config().devices(2));
    let streams = [0, 1].map(|device| rig.runtime.streams().pooled(DeviceIndex(device), 0).unwrap());
    let buffers = streams.each_ref().map(|stream| rig.runtime.memory().buffer(LEN, stream).unwrap());
    let [mut first, mut second] = [kept_graph(&rig), kept_graph(&rig)];
    capture_fill(&mut first, &streams[0], &buffers[0], 1);
    capture_fill(&mut second, &streams[1], &buffers[1], 2);
    let refused = Err(Error::Graph(GraphError::Device { device: DeviceIndex(0), graph: DeviceIndex(1) }));
    assert_eq!(first.update(&mut second), refused);
    let mut parent = graph(&rig);
    assert_eq!(parent.record(&streams[0], None, GLOBAL, |scope| scope.add_child(&second)), refused);
    second.replay().unwrap();
    rig.runtime.synchronize(DeviceIndex(1)).unwrap();
    assert_eq!(buffers[1].to_vec().unwrap(), [2; LEN]);
}

#[test]
fn a_replay_makes_no_calls_but_the_launch() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    capture_fill(&mut graph, &stream, &buffer, 1);
    let total = || -> BTreeMap<&str, u64> {
        rig.machine.calls().into_iter().fold(BTreeMap::new(), |mut total, (call, _, count)| {
            *total.entry(call).or_insert(0) += count;
            total
        })
    };
    let before = total();
    for _ in 0..20 {
        graph.replay().unwrap();
    }
    let made = total().into_iter().map(|(call, count)| (call, count - before.get(call).unwrap_or(&0)));
    let made: Vec<_> = made.filter(|(_, count)| *count > 0).collect();
    assert_eq!(made, [("cuCtxGetCurrent", 20), ("cuGraphLaunch", 20)]);
}

#[test]
fn graphs_that_cannot_be_nodes_are_refused() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let (empty, mut given_up, mut parent) = (kept_graph(&rig), graph(&rig), graph(&rig));
    capture_fill(&mut given_up, &stream, &buffer, 1);
    parent
        .record(&stream, None, GLOBAL, |scope| {
            assert_eq!(scope.add_child(&empty), Err(Error::Graph(GraphError::WithoutCapture { call: "add_child" })));
            assert_eq!(scope.add_child(&given_up), Err(Error::Graph(GraphError::NotKept)));
            scope.fill(&buffer, 0..LEN, 2)
        })
        .unwrap();
    assert_eq!(parent.node_count(), 1);
    let mut kept = kept_graph(&rig);
    capture_fill(&mut kept, &stream, &buffer, 1);
    let spoilt = parent.reset().and_then(|()| {
        parent.record(&stream, None, GLOBAL, |scope| {
            let _ = stream.synchronize();
            scope.add_child(&kept)
        })
    });
    assert_eq!(spoilt, Err(Error::Graph(GraphError::InvalidCapture)));
    assert_eq!(after_replay(&rig, &mut kept, &buffer), [1; LEN]);
}

#[test]
fn a_scope_records_everything_a_capture_allows() {
    let rig = rig();
    let (stream, side) = (rig.stream(), rig.stream());
    let (input, output) = (rig.runtime.pinned().buffer(LEN).unwrap(), rig.runtime.pinned().buffer(LEN).unwrap());
    let mark = Event::on(&rig.runtime, EventOptions::default());
    let mut graph = graph(&rig);
    let result = graph
        .record(&stream, None, GLOBAL, |scope| {
            let (first, second) = (scope.buffer(LEN)?, scope.buffer(LEN)?);
            scope.copy_from_pinned(&first, 0, &input, 0..LEN)?;
            scope.record_event(&mark)?;
            scope.fork(&side, |scope| {
                scope.wait_event(&mark)?;
                scope.copy(&second, 0, &first, 0..LEN)
            })?;
            scope.fill(&second, 0..1, 1)?;
            scope.copy_to_pinned(&second, 0..LEN, &output, 0)?;
            Ok::<_, Error>(second)
        })
        .unwrap();
    for value in [4, 5] {
        input.write(0, &[value; LEN]).unwrap();
        let mut expected = vec![value; LEN];
        expected[0] = 1;
        assert_eq!(after_replay(&rig, &mut graph, &result), expected);
        assert_eq!(output.to_vec().unwrap(), expected);
    }
    // A failed fork joins too, so the capture can go on.
    graph.reset().unwrap();
    graph
        .record(&stream, None, GLOBAL, |scope| {
            let failed: Result<()> = scope.fork(&side, |scope| {
                scope.fill(&result, 0..LEN, 7)?;
                Err(Error::Start(StartError::NoDevices))
            });
            assert_eq!(failed, Err(Error::Start(StartError::NoDevices)));
            scope.fill(&result, 0..1, 8)
        })
        .unwrap();
    assert_eq!(graph.node_count(), 2);
}

#[test]
fn a_report_names_what_a_graph_holds() {
    let rig = rig();
    let stream = rig.stream();
    let (from, host) =
        (rig.runtime.memory().buffer(3 * LEN, &stream).unwrap(), rig.runtime.pinned().buffer(LEN).unwrap());
    let mut graph = kept_graph(&rig);
    assert_eq!(graph.report(), Err(Error::Graph(GraphError::WithoutCapture { call: "report" })));
    let inside = graph
        .record(&stream, None, GLOBAL, |scope| {
            let (inside, dropped) = (scope.buffer(3 << 20)?, scope.buffer(LEN)?);
            scope.fill(&dropped, 0..LEN, 1)?;
            for _ in 0..3 {
                scope.copy(&inside, 0, &from, 0..LEN)?;
                scope.copy_to_pinned(&inside, 0..LEN, &host, 0)?;
            }
            Ok::<_, Error>(inside)
        })
        .unwrap();
    let report = graph.report().unwrap();
    assert_eq!((report.device, report.pool), (DEVICE, graph.pool().unwrap()));
    assert_eq!((report.reserved_bytes, report.allocated_bytes, report.active_bytes), (22 << 20, 3 << 20, 3 << 20));
    assert_eq!((report.kept_buffers, report.kept_bytes), (1, 3 * LEN as u64), "once, though used three times");
    assert_eq!((report.kept_host_blocks, report.kept_host_bytes), (1, LEN as u64));
    assert_eq!(report.nodes, Some(BTreeMap::from([(GraphNodeKind::Memset, 1), (GraphNodeKind::Memcpy, 6)])));
    assert_eq!((report.node_count, report.is_instantiated, report.live_execs), (7, false, 0));
    let mut plain = self::graph(&rig);
    capture_fill(&mut plain, &stream, &from, 1);
    graph.instantiate().unwrap();
    graph.instantiate().unwrap();
    let plain_report = plain.report().unwrap();
    assert_eq!((plain_report.nodes, plain_report.node_count, plain_report.live_execs), (None, 1, 2));
    drop((plain, inside));
    let report = graph.report().unwrap();
    assert_eq!((report.allocated_bytes, report.is_instantiated, report.live_execs), (0, true, 1));
}

#[test]
fn what_cannot_be_captured_runs_eagerly() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    let mut runs = 0;
    // The body waits for the stream until it has learnt better.
    let waits = std::cell::Cell::new(true);
    let mut body = || {
        runs += 1;
        buffer.fill(0..LEN, runs, &stream)?;
        if waits.get() { stream.synchronize().map(|()| runs) } else { Ok(runs) }
    };
    let outcome = graph.capture_or_run(&stream, None, GLOBAL, &mut body).unwrap();
    let CaptureOutcome::RanEagerly { value: 2, error } = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.error_code(), Some(900));
    assert_eq!(buffer.to_vec().unwrap(), [2; LEN], "the work was done");
    assert_eq!(graph.replay(), Err(Error::Graph(GraphError::ReplayWithoutCapture)));
    waits.set(false);
    assert_eq!(graph.capture_or_run(&stream, None, GLOBAL, &mut body), Ok(CaptureOutcome::Captured(3)));
    assert_eq!(graph.capture_or_run(&stream, None, GLOBAL, &mut body), Err(Error::Graph(GraphError::AlreadyCaptured)));
    assert_eq!(after_replay(&rig, &mut graph, &buffer), [3; LEN]);
    graph.reset().unwrap();
    // An error that a capture has nothing to do with is the caller's.
    let fails = graph.capture_or_run(&stream, None, GLOBAL, || Err::<(), _>(Error::Start(StartError::NoDevices)));
    assert_eq!(fails, Err(Error::Start(StartError::NoDevices)));
    // An error that was passed over shows at the end.
    let outcome = graph.capture_or_run(&stream, None, GLOBAL, || {
        let _ = stream.query();
        Ok::<_, Error>(())
    });
    assert!(matches!(outcome, Ok(CaptureOutcome::RanEagerly { error, .. }) if error.error_code() == Some(901)));
    // So does one that the body tells in its own words.
    let outcome = graph.capture_or_run(&stream, None, GLOBAL, || match stream.query() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Start(StartError::NoDevices)),
    });
    assert_eq!(outcome, Ok(CaptureOutcome::RanEagerly { value: (), error: Error::Start(StartError::NoDevices) }));
    // Plain host memory and the default stream have no place in a capture.
    let on_current = rig.runtime.streams().guard(&stream).unwrap();
    let outcome = graph.capture_or_run(&stream, None, GLOBAL, || buffer.copy_from_slice(0, &[6; LEN]));
    let error = Error::Graph(GraphError::UnpinnedCopy);
    assert_eq!(outcome, Ok(CaptureOutcome::RanEagerly { value: (), error }));
    drop(on_current);
    let default = rig.runtime.streams().default(DEVICE).unwrap();
    let outcome = graph.capture_or_run(&default, None, GLOBAL, || buffer.to_vec()).unwrap();
    assert_eq!(
        outcome,
        CaptureOutcome::RanEagerly { value: vec![6; LEN], error: Error::Graph(GraphError::OnDefaultStream) }
    );
    // Inside another capture nothing can run eagerly.
    let mut outer = self::graph(&rig);
    let nested = outer.capture(&stream, None, GLOBAL, || graph.capture_or_run(&stream, None, GLOBAL, || Ok(())));
    assert_eq!(code(nested), 401);
    assert!(!stream.is_capturing().unwrap() && rig.runtime.is_valid());
}

#[test]
fn external_events_are_nodes_that_act_at_each_replay() {
    let rig = rig();
    let (stream, other) = (rig.stream(), rig.stream());
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let options = EventOptions { external: true, ..EventOptions::TIMING };
    let (start, end, gate) =
        (Event::on(&rig.runtime, options), Event::on(&rig.runtime, options), Event::on(&rig.runtime, options));
    gate.record(&other).unwrap();
    let mut graph = kept_graph(&rig);
    graph
        .record(&stream, None, GLOBAL, |scope| {
            scope.wait_event(&gate)?;
            scope.record_event(&start)?;
            scope.fill(&buffer, 0..LEN, 1)?;
            scope.record_event(&end)
        })
        .unwrap();
    let nodes =
        BTreeMap::from([(GraphNodeKind::Memset, 1), (GraphNodeKind::WaitEvent, 1), (GraphNodeKind::EventRecord, 2)]);
    assert_eq!(graph.report().unwrap().nodes, Some(nodes));
    for value in 1..4 {
        // Each replay waits for the record before it.
        let slow = rig.runtime.memory().buffer(64 << 20, &other).unwrap();
        slow.fill(0..64 << 20, value, &other).unwrap();
        gate.record(&other).unwrap();
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        assert!(start.elapsed_time(&end).unwrap() > 0.0);
        assert!(gate.elapsed_time(&start).unwrap() >= 0.0, "the graph waited");
    }
    assert!(rig.machine.take_reports().is_empty());
}

#[test]
fn a_shared_pool_is_reported_as_one() {
    let rig = rig();
    let stream = rig.stream();
    let pool = PoolId::handle();
    let (mut first, mut second) = (graph(&rig), graph(&rig));
    let body = || -> Result<()> { rig.runtime.memory().buffer(LEN, &stream)?.fill(0..LEN, 1, &stream) };
    first.capture(&stream, Some(pool), GLOBAL, body).unwrap();
    second.capture(&stream, Some(pool), GLOBAL, body).unwrap();
    let (one, other) = (first.report().unwrap(), second.report().unwrap());
    assert_eq!((one.pool, one.reserved_bytes), (other.pool, other.reserved_bytes));
    assert_eq!(one.reserved_bytes, 2 << 20);
}
