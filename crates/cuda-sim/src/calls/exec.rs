//! Executable graphs: instantiation, launch, update.

use cuda_sys::driver::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUctx_st, CUevent_st,
    CUgraph_st, CUgraphExec, CUgraphExec_st, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo,
    CUgraphInstantiateResult, CUgraphNode, CUgraphNode_st, CUstream_st,
};

use super::graph::{copy_kind, event_of, host_kind, set_kind};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, STREAM_CAPTURE_UNSUPPORTED};
use crate::model::Effect;
use crate::model::engine::Timing;
use crate::model::graph::{ExecGraph, Graph, InstantiateFailure, NodeId, NodeKind, UpdateFailure};
use crate::model::graph_memory::MemoryPlan;
use crate::model::graphs::Exec;

/// Free what the graph allocates on launch.
const AUTO_FREE: u64 = 1;

/// Upload after instantiation; only the interface with parameters names a stream for that.
const UPLOAD: u64 = 2;

/// Kernels may launch the graph. No kernel of the model does, but the graph must be such a one.
const DEVICE_LAUNCH: u64 = 4;

/// Use the priorities of nodes, which make no difference here.
const NODE_PRIORITY: u64 = 8;

/// What `cuGraphInstantiateWithFlags` takes.
const FLAGS: u64 = AUTO_FREE | DEVICE_LAUNCH | NODE_PRIORITY;

/// What `cuGraphExecGetFlags` tells of.
const KEPT_FLAGS: u64 = AUTO_FREE | DEVICE_LAUNCH;

/// A failure to instantiate is told apart from wrong arguments.
enum Refused {
    Structure(InstantiateFailure),
    Arguments(cuda_sys::CUresult),
}

fn make(call: &mut Call<'_>, graph: Ptr<CUgraph_st>, flags: u64) -> Result<u64, Refused> {
    call.refuse_if_unsafe().map_err(Refused::Arguments)?;
    let launches_free = flags & AUTO_FREE != 0 && flags & DEVICE_LAUNCH != 0;
    if flags & !FLAGS != 0 || launches_free {
        return Err(Refused::Arguments(INVALID_VALUE));
    }
    let template = call.graph(graph.address()).map_err(Refused::Arguments)?;
    call.refuse_second_exec(template).map_err(Refused::Arguments)?;
    let exec = ExecGraph::new(template).map_err(Refused::Structure)?;
    if flags & DEVICE_LAUNCH != 0 {
        if exec.len() == 0 {
            return Err(Refused::Arguments(INVALID_VALUE));
        }
        let memory = &call.memory;
        let is_reachable = |address| {
            let known = memory.is_device_address(address) || memory.pinned_at(address).is_some();
            known || memory.promised_at(address).is_some()
        };
        exec.check_device_launch(&is_reachable).map_err(Refused::Structure)?;
    }
    let key = call.new_handle();
    call.graph_execs.insert(key, Exec::new(exec, flags & KEPT_FLAGS));
    Ok(key)
}

pub(crate) fn instantiate(call: &mut Call<'_>, exec: Ptr<CUgraphExec>, graph: Ptr<CUgraph_st>, flags: u64) -> Answer {
    exec.required()?;
    let key = make(call, graph, flags).map_err(|refused| match refused {
        Refused::Structure(_) => INVALID_VALUE,
        Refused::Arguments(code) => code,
    })?;
    exec.write(handle(key))
}

pub(crate) fn instantiate_with_params(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec>,
    graph: Ptr<CUgraph_st>,
    params: Ptr<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    exec.required()?;
    let mut told = params.read()?;
    call.need_context()?;
    let made = make_uploaded(call, graph, told.flags, told.hUploadStream.addr() as u64);
    told.hErrNode_out = handle(0);
    told.result_out = match &made {
        Ok(_) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        Err(Refused::Structure(failure)) => {
            told.hErrNode_out = handle(failure.node.0);
            failure.result
        }
        Err(Refused::Arguments(_)) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR,
    };
    params.write(told)?;
    match made {
        Err(Refused::Structure(_)) => Err(INVALID_VALUE),
        Err(Refused::Arguments(code)) => Err(code),
        Ok(key) => exec.write(handle(key)),
    }
}

/// As [`make`], with the upload that is asked for; what cannot be uploaded is not made.
fn make_uploaded(call: &mut Call<'_>, graph: Ptr<CUgraph_st>, flags: u64, stream: u64) -> Result<u64, Refused> {
    let key = make(call, graph, flags & !UPLOAD)?;
    if flags & UPLOAD != 0 {
        let uploaded = upload_on(call, key, stream);
        if let Err(code) = uploaded {
            call.remove_exec(key).map_err(Refused::Arguments)?;
            return Err(Refused::Arguments(code));
        }
    }
    Ok(key)
}

pub(crate) fn destroy(call: &mut Call<'_>, exec: Ptr<CUgraphExec_st>) -> Answer {
    call.remove_exec(exec.address())
}

pub(crate) fn flags(call: &mut Call<'_>, exec: Ptr<CUgraphExec_st>, flags: Ptr<u64>) -> Answer {
    let kept = call.exec_mut(exec.address())?.flags;
    flags.write(kept)
}

pub(crate) fn upload(call: &mut Call<'_>, exec: Ptr<CUgraphExec_st>, stream: Ptr<CUstream_st>) -> Answer {
    upload_on(call, exec.address(), stream.address())
}

fn upload_on(call: &mut Call<'_>, exec: u64, stream: u64) -> Answer {
    let key = call.stream_named(stream)?;
    call.exec_mut(exec)?;
    refuse_capturing(call, key)?;
    let steps = call.exec_mut(exec)?.graph.steps();
    call.back_graph_memory(&MemoryPlan::of(steps.iter().map(|step| &step.work)))?;
    call.enqueue(key, &[], Timing::default(), Effect::Nothing)?;
    Ok(())
}

/// Executable graphs cannot be captured.
fn refuse_capturing(call: &mut Call<'_>, key: u64) -> Answer {
    call.refuse_implicit(key)?;
    let Some(capturing) = call.stream(key)?.capturing.clone() else { return Ok(()) };
    call.invalidate_capture(capturing.capture);
    Err(STREAM_CAPTURE_UNSUPPORTED)
}

pub(crate) fn launch(call: &mut Call<'_>, exec: Ptr<CUgraphExec_st>, stream: Ptr<CUstream_st>) -> Answer {
    let key = call.named_stream(stream)?;
    call.exec_mut(exec.address())?;
    refuse_capturing(call, key)?;
    call.launch_graph(exec.address(), key)
}

/// Updates the whole graph; what went wrong, if anything.
fn update_all(call: &mut Call<'_>, exec: Ptr<CUgraphExec_st>, graph: Ptr<CUgraph_st>) -> Answer<Option<UpdateFailure>> {
    let template = call.graph(graph.address())?.clone();
    call.change_exec(exec.address(), |exec| exec.update(&template).err())
}

pub(crate) fn update(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    graph: Ptr<CUgraph_st>,
    node: Ptr<CUgraphNode>,
    result: Ptr<CUgraphExecUpdateResult>,
) -> Answer {
    result.required()?;
    let failure = update_all(call, exec, graph)?;
    node.write_if_wanted(handle(failure.as_ref().and_then(|failure| failure.node).map_or(0, |node| node.0)));
    // This older interface has another word for a changed topology.
    let told = match result_of(failure.as_ref()) {
        CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED => {
            CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED
        }
        other => other,
    };
    result.write(told)?;
    if failure.is_none() { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
}

fn result_of(failure: Option<&UpdateFailure>) -> CUgraphExecUpdateResult {
    failure.map_or(CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS, |failure| failure.result)
}

pub(crate) fn update_v2(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    graph: Ptr<CUgraph_st>,
    info: Ptr<CUgraphExecUpdateResultInfo>,
) -> Answer {
    let failure = update_all(call, exec, graph)?;
    let node =
        |which: fn(&UpdateFailure) -> Option<NodeId>| handle(failure.as_ref().and_then(which).map_or(0, |node| node.0));
    info.write_if_wanted(CUgraphExecUpdateResultInfo {
        result: result_of(failure.as_ref()),
        errorNode: node(|failure| failure.node),
        errorFromNode: node(|failure| failure.from),
    });
    if failure.is_none() { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
}

pub(super) fn set_params(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    kind: NodeKind<Graph>,
) -> Answer {
    call.exec_mut(exec.address())?.graph.set_params(NodeId(node.address()), kind)
}

pub(crate) fn set_memcpy(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_MEMCPY3D>,
    _context: Ptr<CUctx_st>,
) -> Answer {
    let kind = copy_kind(call, &params.read()?)?;
    set_params(call, exec, node, kind)
}

pub(crate) fn set_memset(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_MEMSET_NODE_PARAMS>,
    _context: Ptr<CUctx_st>,
) -> Answer {
    let kind = set_kind(call, &params.read()?)?;
    set_params(call, exec, node, kind)
}

pub(crate) fn set_host(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    let kind = host_kind(&params.read()?)?;
    set_params(call, exec, node, kind)
}

pub(crate) fn set_child(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    child: Ptr<CUgraph_st>,
) -> Answer {
    let child = call.graph(child.address())?.clone();
    call.change_exec(exec.address(), |exec| exec.set_child(NodeId(node.address()), &child))?
}

pub(crate) fn set_record_event(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    event: Ptr<CUevent_st>,
) -> Answer {
    let event = event_of(call, event)?;
    set_params(call, exec, node, NodeKind::EventRecord(event))
}

pub(crate) fn set_wait_event(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    event: Ptr<CUevent_st>,
) -> Answer {
    let event = event_of(call, event)?;
    set_params(call, exec, node, NodeKind::EventWait(event))
}

pub(crate) fn set_enabled(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    enabled: u32,
) -> Answer {
    call.exec_mut(exec.address())?.graph.set_enabled(NodeId(node.address()), enabled != 0)
}

pub(crate) fn is_enabled(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    enabled: Ptr<u32>,
) -> Answer {
    let is_enabled = call.exec_mut(exec.address())?.graph.is_enabled(NodeId(node.address()))?;
    enabled.write(u32::from(is_enabled))
}
