//! User objects: data of the program that graphs keep, and when it is destroyed.
//!
//! A driver may call the function that destroys one later and on a thread of its own, so cases wait for it.

use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::{Duration, Instant};

use super::prelude::*;

cases!("user_object", CASES, Needs::CONTEXT;
    destroyed_with_the_last_reference, graphs_keep_objects, references_are_moved, clones_keep_objects,
    executable_graphs_keep_objects, launches_keep_objects, child_graphs_keep_objects, updates_replace_objects,
    wrong_flags_and_counts,
);

cases!("user_object", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    references_that_nobody_has, objects_that_are_none, destroyed_when_work_is_done,
);

/// How long a driver may take to destroy an object.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it is watched whether a driver destroys an object that it must not destroy.
const WATCH: Duration = Duration::from_millis(30);

/// An object with references of the case, and the counter that its destruction raises.
fn object(cu: &Cuda<'_>, references: u32) -> CaseResult<(CUuserObject, &'static AtomicU32)> {
    let (destroyed, mut object) = (counter(), ptr::null_mut());
    ok!(cu.cuUserObjectCreate(&mut object, data(destroyed), Some(raise), references, 1));
    that!(cu, !object.is_null());
    Ok((object, destroyed))
}

/// The object is destroyed, once.
fn expect_destroyed(cu: &Cuda<'_>, destroyed: &AtomicU32) {
    let until = Instant::now() + PATIENCE;
    while destroyed.load(Ordering::SeqCst) == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    same!(cu, destroyed.load(Ordering::SeqCst), 1);
}

fn expect_alive(cu: &Cuda<'_>, destroyed: &AtomicU32) {
    thread::sleep(WATCH);
    same!(cu, destroyed.load(Ordering::SeqCst), 0);
}

/// A graph of the case's own, to be destroyed by it.
fn graph(cu: &Cuda<'_>) -> CaseResult<CUgraph> {
    let mut graph = ptr::null_mut();
    ok!(cu.cuGraphCreate(&mut graph, 0));
    Ok(graph)
}

fn executable(cu: &Cuda<'_>, graph: CUgraph) -> CaseResult<CUgraphExec> {
    let mut exec = ptr::null_mut();
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    Ok(exec)
}

fn destroyed_with_the_last_reference(cu: &Cuda<'_>) -> CaseResult {
    let (object, destroyed) = object(cu, 2)?;
    ok!(cu.cuUserObjectRetain(object, 3));
    ok!(cu.cuUserObjectRelease(object, 4));
    expect_alive(cu, destroyed);
    ok!(cu.cuUserObjectRelease(object, 1));
    expect_destroyed(cu, destroyed);
    Ok(())
}

fn graphs_keep_objects(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), graph) = (object(cu, 1)?, graph(cu)?);
    ok!(cu.cuGraphRetainUserObject(graph, object, 2, 0));
    ok!(cu.cuUserObjectRelease(object, 1));
    ok!(cu.cuGraphReleaseUserObject(graph, object, 1));
    expect_alive(cu, destroyed);
    ok!(cu.cuGraphDestroy(graph));
    expect_destroyed(cu, destroyed);
    Ok(())
}

fn references_are_moved(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), graph) = (object(cu, 1)?, cu.graph()?);
    ok!(cu.cuGraphRetainUserObject(graph, object, 1, 1));
    expect_alive(cu, destroyed);
    ok!(cu.cuGraphReleaseUserObject(graph, object, 1));
    expect_destroyed(cu, destroyed);
    Ok(())
}

fn clones_keep_objects(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), graph, mut clone) = (object(cu, 1)?, graph(cu)?, ptr::null_mut());
    ok!(cu.cuGraphRetainUserObject(graph, object, 1, 1));
    ok!(cu.cuGraphClone(&mut clone, graph));
    ok!(cu.cuGraphDestroy(graph));
    expect_alive(cu, destroyed);
    ok!(cu.cuGraphDestroy(clone));
    expect_destroyed(cu, destroyed);
    Ok(())
}

fn executable_graphs_keep_objects(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), graph) = (object(cu, 1)?, graph(cu)?);
    cu.empty_node(graph, &[])?;
    ok!(cu.cuGraphRetainUserObject(graph, object, 1, 1));
    let exec = executable(cu, graph)?;
    ok!(cu.cuGraphDestroy(graph));
    expect_alive(cu, destroyed);
    ok!(cu.cuGraphExecDestroy(exec));
    expect_destroyed(cu, destroyed);
    Ok(())
}

fn launches_keep_objects(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), graph, stream) = (object(cu, 1)?, graph(cu)?, cu.stream()?);
    cu.empty_node(graph, &[])?;
    ok!(cu.cuGraphRetainUserObject(graph, object, 1, 1));
    let exec = executable(cu, graph)?;
    ok!(cu.cuGraphDestroy(graph));
    let gate = cu.hold(stream)?;
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuGraphExecDestroy(exec));
    expect_alive(cu, destroyed);
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    expect_destroyed(cu, destroyed);
    Ok(())
}

fn child_graphs_keep_objects(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), parent, child) = (object(cu, 1)?, graph(cu)?, graph(cu)?);
    cu.empty_node(child, &[])?;
    ok!(cu.cuGraphRetainUserObject(child, object, 1, 1));
    super::graph::child_node(cu, parent, &[], child)?;
    ok!(cu.cuGraphDestroy(child));
    let exec = executable(cu, parent)?;
    ok!(cu.cuGraphDestroy(parent));
    expect_alive(cu, destroyed);
    ok!(cu.cuGraphExecDestroy(exec));
    expect_destroyed(cu, destroyed);
    Ok(())
}

fn updates_replace_objects(cu: &Cuda<'_>) -> CaseResult {
    let ((old, old_destroyed), (new, new_destroyed)) = (object(cu, 1)?, object(cu, 1)?);
    let (first, second) = (graph(cu)?, graph(cu)?);
    for (graph, object) in [(first, old), (second, new)] {
        cu.empty_node(graph, &[])?;
        ok!(cu.cuGraphRetainUserObject(graph, object, 1, 1));
    }
    let exec = executable(cu, first)?;
    ok!(cu.cuGraphDestroy(first));
    let mut info = CUgraphExecUpdateResultInfo::zeroed();
    ok!(cu.cuGraphExecUpdate_v2(exec, second, &mut info));
    ok!(cu.cuGraphDestroy(second));
    expect_destroyed(cu, old_destroyed);
    expect_alive(cu, new_destroyed);
    ok!(cu.cuGraphExecDestroy(exec));
    expect_destroyed(cu, new_destroyed);
    Ok(())
}

fn wrong_flags_and_counts(cu: &Cuda<'_>) -> CaseResult {
    let (destroyed, mut made, graph) = (counter(), ptr::null_mut(), cu.graph()?);
    for (references, flags) in [(1, 0), (1, 2), (0, 1)] {
        want!(INVALID_VALUE, cu.cuUserObjectCreate(&mut made, data(destroyed), Some(raise), references, flags));
    }
    // Only new objects may have so many references at once.
    ok!(cu.cuUserObjectCreate(&mut made, data(destroyed), Some(raise), 1 << 31, 1));
    ok!(cu.cuUserObjectRelease(made, (1 << 31) - 1));
    ok!(cu.cuUserObjectRelease(made, 1));
    want!(INVALID_VALUE, cu.cuUserObjectCreate(ptr::null_mut(), data(destroyed), Some(raise), 1, 1));
    let (object, destroyed) = object(cu, 1)?;
    for count in [0, 1 << 31] {
        want!(INVALID_VALUE, cu.cuUserObjectRetain(object, count));
        want!(INVALID_VALUE, cu.cuUserObjectRelease(object, count));
        want!(INVALID_VALUE, cu.cuGraphRetainUserObject(graph, object, count, 0));
    }
    want!(INVALID_VALUE, cu.cuGraphRetainUserObject(graph, object, 1, 2));
    ok!(cu.cuUserObjectRelease(object, 1));
    expect_destroyed(cu, destroyed);
    Ok(())
}

/// Hardware does not say what happens then.
fn references_that_nobody_has(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), graph) = (object(cu, 1)?, cu.graph()?);
    want!(INVALID_VALUE, cu.cuUserObjectRelease(object, 2));
    want!(INVALID_VALUE, cu.cuGraphReleaseUserObject(graph, object, 1));
    want!(INVALID_VALUE, cu.cuGraphRetainUserObject(graph, object, 2, 1));
    ok!(cu.cuGraphRetainUserObject(graph, object, 1, 0));
    want!(INVALID_VALUE, cu.cuGraphReleaseUserObject(graph, object, 2));
    ok!(cu.cuUserObjectRelease(object, 1));
    // The graph's reference lets the program have one again.
    ok!(cu.cuUserObjectRetain(object, 1));
    ok!(cu.cuGraphReleaseUserObject(graph, object, 1));
    same!(cu, destroyed.load(Ordering::SeqCst), 0);
    ok!(cu.cuUserObjectRelease(object, 1));
    same!(cu, destroyed.load(Ordering::SeqCst), 1);
    want!(INVALID_VALUE, cu.cuUserObjectRetain(object, 1));
    Ok(())
}

fn objects_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (graph, nothing) = (cu.graph()?, ptr::without_provenance_mut(0xDEAD_BEE8));
    want!(INVALID_VALUE, cu.cuUserObjectRetain(nothing, 1));
    want!(INVALID_VALUE, cu.cuUserObjectRelease(nothing, 1));
    want!(INVALID_VALUE, cu.cuGraphRetainUserObject(graph, nothing, 1, 0));
    want!(INVALID_VALUE, cu.cuUserObjectCreate(&mut ptr::null_mut(), ptr::null_mut(), None, 1, 1));
    Ok(())
}

/// The model destroys objects before the call returns that lets them go.
fn destroyed_when_work_is_done(cu: &Cuda<'_>) -> CaseResult {
    let ((object, destroyed), graph, stream) = (object(cu, 1)?, cu.graph()?, cu.stream()?);
    cu.empty_node(graph, &[])?;
    ok!(cu.cuGraphRetainUserObject(graph, object, 1, 1));
    let exec = executable(cu, graph)?;
    ok!(cu.cuGraphReleaseUserObject(graph, object, 1));
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, destroyed.load(Ordering::SeqCst), 1);
    Ok(())
}
