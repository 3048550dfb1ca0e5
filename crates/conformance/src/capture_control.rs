//! Captures seen and steered from outside: what the driver says of one, its dependencies, capture into a graph, and
//! what keeps captures apart.

use super::capture::{Bench, GLOBAL, OK, status_of_capture};
use super::prelude::*;

cases!("capture_control", CASES, Needs::CONTEXT;
    info_of_an_idle_stream, info_of_a_capture, info_v3_of_a_capture, info_with_one_output,
    capture_ids_differ, isolation, isolation_from_outside, merge_of_two_captures,
    update_dependencies_set, update_dependencies_add, update_dependencies_unknown_flags, update_dependencies_idle,
    update_dependencies_v2, to_graph, to_graph_with_dependencies, to_graph_errors,
);

fn info_of_an_idle_stream(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (mut status, mut id) = (CUstreamCaptureStatus(9), 77);
    ok!(cu.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()));
    same!(cu, status.0, 0);
    ok!(cu.cuStreamGetCaptureInfo_v3(
        stream,
        &mut status,
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut()
    ));
    same!(cu, status.0, 0);
    Ok(())
}

/// What the driver says of a capture: status, id, graph, the nodes that the next one will depend on.
fn info(cu: &Cuda<'_>, stream: CUstream) -> CaseResult<(u32, u64, CUgraph, Vec<CUgraphNode>)> {
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus(9), 0, ptr::null_mut());
    let (mut nodes, mut count) = (ptr::null(), 0);
    ok!(cu.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
    let nodes = if count == 0 {
        Vec::new()
    } else {
        // SAFETY: the driver says that so many handles lie there, until the next call on the stream.
        unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()
    };
    Ok((status.0, id, graph, nodes))
}

fn info_of_a_capture(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let (status, id, graph, nodes) = info(cu, bench.main)?;
    same!(cu, (status, nodes.len()), (1, 0));
    that!(cu, id != 0 && !graph.is_null());
    bench.set(1, bench.main)?;
    let (_, same_id, same_graph, nodes) = info(cu, bench.main)?;
    same!(cu, (same_id, same_graph, nodes.len()), (id, graph, 1));
    let ended = bench.expect("set1 |")?;
    same!(cu, ended, graph);
    same!(cu, cu.nodes(ended)?, nodes);
    Ok(())
}

fn info_v3_of_a_capture(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus(9), 0, ptr::null_mut());
    let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
    ok!(cu.cuStreamGetCaptureInfo_v3(bench.main, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count));
    same!(cu, (status.0, count), (1, 1));
    that!(cu, id != 0 && !graph.is_null() && !nodes.is_null());
    bench.expect("set1 |")?;
    Ok(())
}

fn info_with_one_output(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let mut status = CUstreamCaptureStatus(9);
    let none = ptr::null_mut();
    want!(
        SUCCESS,
        cu.cuStreamGetCaptureInfo_v2(bench.main, &mut status, ptr::null_mut(), ptr::null_mut(), none, ptr::null_mut())
    );
    same!(cu, status.0, 1);
    bench.expect("set1 |")?;
    Ok(())
}

fn capture_ids_differ(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let (_, first, _, _) = info(cu, bench.main)?;
    bench.expect("|")?;
    cu.begin(bench.main, GLOBAL)?;
    let (_, second, _, _) = info(cu, bench.main)?;
    bench.expect("|")?;
    that!(cu, first != second);
    Ok(())
}

fn isolation(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::new(cu)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.side));
    cu.begin(bench.main, GLOBAL)?;
    want!(STREAM_CAPTURE_ISOLATION, cu.cuStreamWaitEvent(bench.main, event, 0));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn isolation_from_outside(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (inside, outside) = (cu.event()?, cu.event()?);
    ok!(cu.cuEventRecord(inside, bench.main));
    ok!(cu.cuStreamWaitEvent(bench.side, inside, 0));
    ok!(cu.cuEventRecord(outside, bench.third));
    want!(STREAM_CAPTURE_ISOLATION, cu.cuStreamWaitEvent(bench.side, outside, 0));
    same!(cu, status_of_capture(cu, bench.main)?, 2);
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn merge_of_two_captures(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    cu.begin(bench.side, GLOBAL)?;
    bench.set(1, bench.main)?;
    bench.set(2, bench.side)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.side));
    want!(STREAM_CAPTURE_MERGE, cu.cuStreamWaitEvent(bench.main, event, 0));
    let mut graph = ptr::null_mut();
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(bench.side, &mut graph));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn update_dependencies_set(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (_, _, _, mut first) = info(cu, bench.main)?;
    bench.set(2, bench.main)?;
    ok!(cu.cuStreamUpdateCaptureDependencies(bench.main, first.as_mut_ptr(), 1, 1));
    bench.set(3, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3")?;
    Ok(())
}

fn update_dependencies_add(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (_, _, graph, _) = info(cu, bench.main)?;
    let mut empty = [cu.empty_node(graph, &[])?];
    ok!(cu.cuStreamUpdateCaptureDependencies(bench.main, empty.as_mut_ptr(), 1, 0));
    bench.set(2, bench.main)?;
    bench.expect("empty set1 set2 | empty->set2 set1->set2")?;
    Ok(())
}

fn update_dependencies_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    want!(INVALID_VALUE, cu.cuStreamUpdateCaptureDependencies(bench.main, ptr::null_mut(), 0, 2));
    bench.set(1, bench.main)?;
    want!(SUCCESS, cu.cuStreamUpdateCaptureDependencies(bench.main, ptr::null_mut(), 0, 1));
    bench.set(2, bench.main)?;
    let mut null = [ptr::null_mut()];
    want!(INVALID_VALUE, cu.cuStreamUpdateCaptureDependencies(bench.main, null.as_mut_ptr(), 1, 0));
    bench.expect_end(OK)
}

fn update_dependencies_idle(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(ILLEGAL_STATE, cu.cuStreamUpdateCaptureDependencies(stream, ptr::null_mut(), 0, 0));
    want!(ILLEGAL_STATE, cu.cuStreamUpdateCaptureDependencies_v2(stream, ptr::null_mut(), ptr::null(), 0, 0));
    Ok(())
}

fn update_dependencies_v2(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (_, _, _, mut first) = info(cu, bench.main)?;
    bench.set(2, bench.main)?;
    ok!(cu.cuStreamUpdateCaptureDependencies_v2(bench.main, first.as_mut_ptr(), ptr::null(), 1, 0));
    bench.set(3, bench.main)?;
    want!(INVALID_VALUE, cu.cuStreamUpdateCaptureDependencies_v2(bench.main, ptr::null_mut(), ptr::null(), 0, 2));
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn to_graph(cu: &Cuda<'_>) -> CaseResult {
    let (bench, graph) = (Bench::new(cu)?, cu.graph()?);
    ok!(cu.cuStreamBeginCaptureToGraph(bench.main, graph, ptr::null(), ptr::null(), 0, GLOBAL));
    bench.set(1, bench.main)?;
    let mut ended = ptr::null_mut();
    ok!(cu.cuStreamEndCapture(bench.main, &mut ended));
    same!(cu, ended, graph);
    same!(cu, cu.shape(graph)?, "set1 |");
    Ok(())
}

fn to_graph_with_dependencies(cu: &Cuda<'_>) -> CaseResult {
    let (bench, graph) = (Bench::new(cu)?, cu.graph()?);
    let before = [cu.empty_node(graph, &[])?];
    ok!(cu.cuStreamBeginCaptureToGraph(bench.main, graph, before.as_ptr(), ptr::null(), 1, GLOBAL));
    bench.set(1, bench.main)?;
    let mut ended = ptr::null_mut();
    ok!(cu.cuStreamEndCapture(bench.main, &mut ended));
    same!(cu, cu.shape(graph)?, "empty set1 | empty->set1");
    Ok(())
}

fn to_graph_errors(cu: &Cuda<'_>) -> CaseResult {
    let (bench, graph) = (Bench::new(cu)?, cu.graph()?);
    let none = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuStreamBeginCaptureToGraph(bench.main, none, ptr::null(), ptr::null(), 0, GLOBAL));
    want!(
        INVALID_VALUE,
        cu.cuStreamBeginCaptureToGraph(bench.main, graph, ptr::null(), ptr::null(), 0, CUstreamCaptureMode(3))
    );
    want!(
        STREAM_CAPTURE_UNSUPPORTED,
        cu.cuStreamBeginCaptureToGraph(LEGACY, graph, ptr::null(), ptr::null(), 0, GLOBAL)
    );
    cu.begin(bench.main, GLOBAL)?;
    want!(ILLEGAL_STATE, cu.cuStreamBeginCaptureToGraph(bench.main, graph, ptr::null(), ptr::null(), 0, GLOBAL));
    bench.expect("|")?;
    Ok(())
}
