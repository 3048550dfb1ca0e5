//! Capture and graphs on simulated machines: shapes, launches, and what goes wrong.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ptr;

use cuda_sim::{Config, ReportKind};
use cuda_sys::CUresult;
use cuda_sys::driver::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUmemAllocationType,
    CUmemLocationType, CUstream, CUstreamCaptureMode,
};
use support::{Rig, code};

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

impl Rig {
    fn end(&self, stream: CUstream) -> CUgraph {
        let mut graph = ptr::null_mut();
        call!(self, cuStreamEndCapture(stream, &mut graph)).expect("the capture is whole");
        graph
    }

    fn instantiate(&self, graph: CUgraph) -> CUgraphExec {
        let mut exec = ptr::null_mut();
        call!(self, cuGraphInstantiateWithFlags(&mut exec, graph, 0)).expect("the graph is a DAG");
        exec
    }

    /// Edges as pairs of positions in the order of creation.
    fn edges(&self, graph: CUgraph) -> Vec<(usize, usize)> {
        let nodes = self.nodes(graph);
        let mut count = 0;
        call!(self, cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut count)).expect("a graph");
        let (mut from, mut to) = (vec![ptr::null_mut(); count.max(1)], vec![ptr::null_mut(); count.max(1)]);
        if count > 0 {
            call!(self, cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count)).expect("a graph");
        }
        let place = |node: &CUgraphNode| nodes.iter().position(|other| other == node).expect("an edge joins nodes");
        from.iter().zip(&to).take(count).map(|(from, to)| (place(from), place(to))).collect()
    }

    fn nodes(&self, graph: CUgraph) -> Vec<CUgraphNode> {
        let mut count = 0;
        call!(self, cuGraphGetNodes(graph, ptr::null_mut(), &mut count)).expect("a graph");
        let mut nodes = vec![ptr::null_mut(); count.max(1)];
        if count > 0 {
            call!(self, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)).expect("a graph");
        }
        nodes.truncate(count);
        nodes
    }
}

/// Fork, work on both sides, join, and one more piece of work.
fn fork_and_join(rig: &Rig, memory: u64, streams: [CUstream; 2]) -> CUgraph {
    let [main, side] = streams;
    let (fork, join) = (rig.event(2), rig.event(2));
    call!(rig, cuStreamBeginCapture_v2(main, GLOBAL)).expect("nothing is captured yet");
    call!(rig, cuMemsetD8Async(memory, 1, 64, main)).expect("captured");
    call!(rig, cuEventRecord(fork, main)).expect("captured");
    call!(rig, cuStreamWaitEvent(side, fork, 0)).expect("joins the capture");
    call!(rig, cuMemsetD8Async(memory, 2, 16, side)).expect("captured");
    call!(rig, cuMemsetD8Async(memory + 32, 3, 16, main)).expect("captured");
    call!(rig, cuEventRecord(join, side)).expect("captured");
    call!(rig, cuStreamWaitEvent(main, join, 0)).expect("same capture");
    call!(rig, cuMemcpyDtoDAsync_v2(memory + 64, memory, 64, main)).expect("captured");
    rig.end(main)
}

#[test]
fn a_captured_fork_becomes_a_diamond() {
    let rig = Rig::new(Config::default());
    let memory = rig.alloc(128);
    let graph = fork_and_join(&rig, memory, [rig.stream(1), rig.stream(1)]);
    assert_eq!(rig.edges(graph), [(0, 1), (0, 2), (1, 3), (2, 3)]);
    assert_eq!(rig.machine.reports(), []);
}

#[test]
fn launches_do_the_work_under_every_seed() {
    let expected: Vec<u8> = [[2; 16], [1; 16], [3; 16], [1; 16]].concat();
    for seed in 0..100 {
        let rig = Rig::new(Config::default().seed(seed));
        let memory = rig.alloc(128);
        let streams = [rig.stream(1), rig.stream(1)];
        let exec = rig.instantiate(fork_and_join(&rig, memory, streams));
        for _ in 0..3 {
            call!(rig, cuMemsetD8Async(memory, 0, 128, streams[0])).expect("queued");
            call!(rig, cuGraphLaunch(exec, streams[0])).expect("queued");
            call!(rig, cuStreamSynchronize(streams[0])).expect("finishes");
            assert_eq!(rig.read(memory + 64, 64), expected, "seed {seed}");
        }
    }
}

#[test]
fn forbidden_calls_spoil_the_capture() {
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let mut pointer = 0;
    call!(rig, cuStreamBeginCapture_v2(stream, GLOBAL)).expect("nothing is captured yet");
    let refused = code(call!(rig, cuMemAlloc_v2(&mut pointer, 16)));
    assert_eq!(refused, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let mut graph = ptr::null_mut();
    let ended = code(call!(rig, cuStreamEndCapture(stream, &mut graph)));
    assert_eq!(ended, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    call!(rig, cuStreamBeginCapture_v2(stream, RELAXED)).expect("the last one is over");
    call!(rig, cuMemAlloc_v2(&mut pointer, 16)).expect("relaxed capture forbids nothing");
    rig.end(stream);
    assert_eq!(rig.machine.live().graphs, 1);
}

/// A graph that sets memory, which is freed before the launch. With a neighbour the memory stays mapped.
fn launch_into_freed_memory(rig: &Rig, bytes: usize) -> Result<(), cuda_sys::DriverError> {
    let (memory, stream) = (rig.alloc(bytes), rig.stream(1));
    let mut graph = ptr::null_mut();
    call!(rig, cuGraphCreate(&mut graph, 0)).expect("graphs can be made");
    let params = CUDA_MEMSET_NODE_PARAMS { dst: memory, pitch: 0, value: 1, elementSize: 1, width: 16, height: 1 };
    let mut node = ptr::null_mut();
    call!(rig, cuGraphAddMemsetNode(&mut node, graph, ptr::null(), 0, &params, rig.context)).expect("memory is there");
    let exec = rig.instantiate(graph);
    call!(rig, cuMemFree_v2(memory)).expect("allocated");
    call!(rig, cuGraphLaunch(exec, stream)).expect("queued");
    call!(rig, cuStreamSynchronize(stream))
}

#[test]
fn memory_that_is_gone_loses_the_context() {
    let rig = Rig::new(Config::default());
    assert_eq!(code(launch_into_freed_memory(&rig, 8 << 20)), CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let mut pointer = 0;
    for _ in 0..2 {
        let lost = code(call!(rig, cuMemAlloc_v2(&mut pointer, 16)));
        assert_eq!(lost, CUresult::CUDA_ERROR_LAUNCH_FAILED);
    }
    let mut count = 0;
    call!(rig, cuDeviceGetCount(&mut count)).expect("needs no context");
    call!(rig, cuDevicePrimaryCtxReset_v2(0)).expect("always works");
    let destroyed = code(call!(rig, cuMemAlloc_v2(&mut pointer, 16)));
    assert_eq!(destroyed, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_eq!(rig.machine.live().allocations, 0);
}

#[test]
fn memory_that_is_freed_but_mapped_is_reported_and_refused_in_strict_mode() {
    for strict in [false, true] {
        let rig = Rig::new(Config::default().strict(strict));
        rig.alloc(16);
        let launched = launch_into_freed_memory(&rig, 16);
        assert_eq!(launched.is_err(), strict, "{launched:?}");
        assert_eq!(rig.machine.reports()[0].kind, ReportKind::UseAfterFree);
    }
}

#[test]
fn another_process_can_map_device_memory() {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    let rig = Rig::new(Config::default());
    rig.alloc(100);
    let memory = rig.alloc(100);
    rig.write(memory, &[5; 100]);
    let (file, offset) = rig.machine.memory_file(memory).expect("memory has a file");
    let mut bytes = [0; 100];
    File::from(file).read_exact_at(&mut bytes, offset).expect("the file is that long");
    assert_eq!(bytes, [5; 100]);
    assert!(rig.machine.memory_file(0x1234).is_none());
}

#[test]
fn queued_misuse_is_an_error_in_strict_mode() {
    for strict in [false, true] {
        let rig = Rig::new(Config::default().strict(strict));
        // Both lie in one piece of physical memory, so hardware would not notice that one of them is freed.
        let (memory, _neighbour, stream) = (rig.alloc(16), rig.alloc(16), rig.stream(1));
        let mut graph = ptr::null_mut();
        call!(rig, cuStreamBeginCapture_v2(stream, RELAXED)).expect("can be captured");
        call!(rig, cuStreamWriteValue32_v2(stream, memory, 1, 0)).expect("captured");
        call!(rig, cuStreamEndCapture(stream, &mut graph)).expect("was begun");
        let exec = rig.instantiate(graph);
        call!(rig, cuMemFree_v2(memory)).expect("allocated");
        call!(rig, cuGraphLaunch(exec, stream)).expect("queued");
        let first = call!(rig, cuStreamSynchronize(stream));
        let mut pointer = 0;
        let next = call!(rig, cuMemAlloc_v2(&mut pointer, 16));
        for answer in [first, next] {
            let expected = strict.then_some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            assert_eq!(answer.err().and_then(|error| error.status()), expected);
        }
        assert_eq!(rig.machine.reports()[0].kind, ReportKind::UseAfterFree);
    }
}

/// Adds a node that allocates so many bytes; its address.
fn alloc_node(rig: &Rig, graph: CUgraph, node: &mut CUgraphNode, bytes: usize) -> u64 {
    // SAFETY: a plain structure for which zeros are a value.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    call!(rig, cuGraphAddMemAllocNode(node, graph, ptr::null(), 0, &mut params)).expect("the device is large enough");
    params.dptr
}

/// Sets memory of a graph in a node that does not wait for the one that allocates it. Whether that was noticed, and
/// whether the launch went wrong.
fn set_without_waiting(seed: u64, strict: bool) -> (bool, bool) {
    let rig = Rig::new(Config::default().seed(seed).strict(strict));
    let (mut graph, mut node, stream) = (ptr::null_mut(), ptr::null_mut(), rig.stream(1));
    call!(rig, cuGraphCreate(&mut graph, 0)).expect("graphs can be made");
    let address = alloc_node(&rig, graph, &mut node, 64);
    let set = CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value: 1, elementSize: 1, width: 16, height: 1 };
    call!(rig, cuGraphAddMemsetNode(&mut node, graph, ptr::null(), 0, &set, rig.context)).expect("is promised");
    let exec = rig.instantiate(graph);
    call!(rig, cuGraphLaunch(exec, stream)).expect("queued");
    let failed = call!(rig, cuStreamSynchronize(stream)).is_err();
    let reports = rig.machine.reports();
    (reports.iter().any(|report| report.kind == ReportKind::UseBeforeAllocation), failed)
}

#[test]
fn a_forgotten_dependency_on_an_allocation_shows_under_some_seed() {
    let faithful: Vec<(bool, bool)> = (0..50).map(|seed| set_without_waiting(seed, false)).collect();
    assert!(faithful.iter().any(|&(noticed, _)| noticed) && faithful.iter().any(|&(noticed, _)| !noticed));
    assert!(faithful.iter().all(|&(_, failed)| !failed), "hardware does not notice");
    assert!((0..50).map(|seed| set_without_waiting(seed, true)).all(|(noticed, failed)| noticed == failed));
}

#[test]
fn memory_of_graphs_is_taken_at_the_launch_and_can_be_trimmed() {
    let rig = Rig::new(Config::default().capacity(64 << 20));
    let stream = rig.stream(1);
    let graphs: Vec<(CUgraphExec, u64)> = (0..2)
        .map(|_| {
            let (mut graph, mut node) = (ptr::null_mut(), ptr::null_mut());
            call!(rig, cuGraphCreate(&mut graph, 0)).expect("graphs can be made");
            let address = alloc_node(&rig, graph, &mut node, 40 << 20);
            (rig.instantiate(graph), address)
        })
        .collect();
    let (first, second) = (graphs[0], graphs[1]);
    call!(rig, cuGraphLaunch(first.0, stream)).expect("there is memory");
    assert_eq!(code(call!(rig, cuGraphLaunch(second.0, stream))), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(code(call!(rig, cuGraphUpload(second.0, stream))), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(rig.machine.live().allocations, 1);
    call!(rig, cuMemFreeAsync(first.1, stream)).expect("was allocated");
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    // What nobody uses any more is taken from the graph that had it.
    call!(rig, cuGraphLaunch(second.0, stream)).expect("there is memory again");
    call!(rig, cuMemFree_v2(second.1)).expect("was allocated");
    call!(rig, cuCtxSynchronize()).expect("finishes");
    call!(rig, cuDeviceGraphMemTrim(0)).expect("always works");
    let (mut free, mut total) = (0, 0);
    call!(rig, cuMemGetInfo_v2(&mut free, &mut total)).expect("has a context");
    assert_eq!((free, rig.machine.live().allocations), (total, 0));
}
