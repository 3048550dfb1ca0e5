//! What the driver on an H200 answered to the same calls, and what follows from the data structures.

use std::ffi::c_void;

use cuda_sys::driver::CUresult;
use cuda_sys::driver::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraphEdgeData, CUgraphExecUpdateResult,
    CUgraphInstantiateResult, CUgraphNodeType, CUmemorytype,
};

use super::params::Place;
use super::steps::Step;
use super::*;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const TOPOLOGY: CUgraphExecUpdateResult = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
const TYPE: CUgraphExecUpdateResult = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
const PARAMETERS: CUgraphExecUpdateResult = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;

/// Hands out ids for a whole test.
struct World(u64);

impl World {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn graph(&mut self) -> Graph {
        Graph::new(GraphId(self.next()))
    }

    fn add(&mut self, graph: &mut Graph, kind: NodeKind<Graph>, after: &[NodeId]) -> NodeId {
        let added = graph.add(kind, after, NodeId(self.next())).expect("good dependencies");
        assert!(graph.is_valid());
        added
    }

    fn empty(&mut self, graph: &mut Graph, after: &[NodeId]) -> NodeId {
        self.add(graph, NodeKind::Empty, after)
    }

    fn child(&mut self, graph: &mut Graph, inner: &Graph, after: &[NodeId]) -> NodeId {
        let copy = inner.copy(&mut || self.next());
        self.add(graph, NodeKind::Child(Box::new(copy)), after)
    }

    /// A set, then a copy and a host call beside each other, then an empty node that joins them.
    fn diamond(&mut self, swapped: bool) -> (Graph, [NodeId; 4]) {
        let mut graph = self.graph();
        let a = self.add(&mut graph, NodeKind::Memset(fill(64)), &[]);
        let b = self.add(&mut graph, NodeKind::Memcpy(copy(64)), &[a]);
        let h = self.add(&mut graph, host(), &[a]);
        let both = if swapped { [h, b] } else { [b, h] };
        let e = self.empty(&mut graph, &both);
        (graph, [a, b, h, e])
    }

    /// A graph of sets; each entry lists the places of its dependencies.
    fn fills(&mut self, dependencies: &[&[usize]]) -> (Graph, Vec<NodeId>) {
        let mut graph = self.graph();
        let mut ids = Vec::new();
        for list in dependencies {
            let after: Vec<NodeId> = list.iter().map(|&index: &usize| ids[index]).collect();
            ids.push(self.add(&mut graph, NodeKind::Memset(fill(64)), &after));
        }
        (graph, ids)
    }
}

fn raw_fill() -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: 0x7000_0000, pitch: 0, value: 7, elementSize: 1, width: 64, height: 1 }
}

fn fill(width: usize) -> Fill {
    let raw = CUDA_MEMSET_NODE_PARAMS { width, ..raw_fill() };
    Fill::from_raw(&raw).expect("good parameters").owned_by(Some(0))
}

fn fill_rows(height: usize, pitch: usize) -> Fill {
    let raw = CUDA_MEMSET_NODE_PARAMS { height, pitch, ..raw_fill() };
    Fill::from_raw(&raw).expect("good parameters").owned_by(Some(0))
}

fn raw_copy() -> CUDA_MEMCPY3D {
    let mut raw = Copy3d::linear(0x7000_0000, 0x7100_0000, 256).to_raw();
    raw.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    raw.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    raw.dstHost = std::ptr::without_provenance_mut(0x10_0000);
    raw.dstDevice = 0;
    raw
}

fn copy(width: usize) -> Copy3d {
    let raw = CUDA_MEMCPY3D { WidthInBytes: width, ..raw_copy() };
    Copy3d::from_raw(&raw).expect("good parameters").owned_by(Some(0), None)
}

extern "C" fn nothing(_: *mut c_void) {}

fn host() -> NodeKind<Graph> {
    let raw = CUDA_HOST_NODE_PARAMS { fn_: Some(nothing), userData: std::ptr::without_provenance_mut(1) };
    NodeKind::Host(HostCall::from_raw(&raw).expect("has a function"))
}

fn failure(result: CUgraphExecUpdateResult, node: Option<NodeId>, from: Option<NodeId>) -> Result<(), UpdateFailure> {
    Err(UpdateFailure { result, node, from })
}

fn edges(graph: &Graph) -> Vec<(NodeId, NodeId)> {
    graph.edges().collect()
}

#[test]
fn nodes_and_edges_come_in_order_of_creation() {
    let mut world = World(0);
    let mut graph = world.graph();
    let a = world.empty(&mut graph, &[]);
    let b = world.empty(&mut graph, &[a]);
    let c = world.empty(&mut graph, &[b, a]);
    assert_eq!(graph.nodes().map(|(id, _)| id).collect::<Vec<_>>(), [a, b, c]);
    assert_eq!(graph.roots().collect::<Vec<_>>(), [a]);
    assert_eq!(graph.sinks(), [c]);
    assert_eq!(edges(&graph), [(a, b), (a, c), (b, c)]);
    assert_eq!(graph.node(c).expect("there").dependencies(), [b, a]);
    assert_eq!(graph.node(a).expect("there").dependents(), [b, c]);
    assert_eq!(graph.node(a).expect("there").kind().node_type(), CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY);
}

#[test]
fn bad_dependencies_add_nothing() {
    let mut world = World(0);
    let (mut graph, mut other) = (world.graph(), world.graph());
    let a = world.empty(&mut graph, &[]);
    let foreign = world.empty(&mut other, &[]);
    for list in [&[a, a][..], &[foreign], &[a, foreign], &[NodeId(0)]] {
        assert_eq!(graph.add(NodeKind::Empty, list, NodeId(world.next())), Err(INVALID));
    }
    assert_eq!(graph.len(), 1);
    assert_eq!(graph.sinks(), [a]);
    assert!(graph.is_valid());
}

#[test]
fn edge_lists_are_worked_through_until_one_is_refused() {
    let mut world = World(0);
    let mut graph = world.graph();
    let a = world.empty(&mut graph, &[]);
    let b = world.empty(&mut graph, &[a]);
    let c = world.empty(&mut graph, &[b, a]);
    let d = world.empty(&mut graph, &[]);
    assert_eq!(graph.add_dependencies(&[]), Ok(()));
    for (from, to) in [(a, b), (a, a), (a, NodeId(999)), (NodeId(999), a)] {
        assert_eq!(graph.add_dependencies(&[(from, to)]), Err(INVALID));
    }
    assert_eq!(graph.add_dependencies(&[(a, d), (a, b)]), Err(INVALID));
    assert_eq!(edges(&graph), [(a, b), (a, c), (a, d), (b, c)]);
    assert_eq!(graph.add_dependencies(&[(b, d), (b, d)]), Err(INVALID));
    assert_eq!(graph.remove_dependencies(&[(a, b), (d, a)]), Err(INVALID));
    assert_eq!(edges(&graph), [(a, c), (a, d), (b, c), (b, d)]);
    assert_eq!(graph.remove_dependencies(&[(a, c), (a, c)]), Err(INVALID));
    assert_eq!(graph.add_dependencies(&[(d, c), (a, c)]), Ok(()));
    assert_eq!(graph.node(c).expect("there").dependencies(), [b, d, a]);
    assert_eq!(graph.node(a).expect("there").dependents(), [d, c]);
    assert!(graph.is_valid());
}

#[test]
fn only_plain_edges_pass() {
    let plain = CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
    assert!(is_plain_edge(&plain));
    assert!(!is_plain_edge(&CUgraphEdgeData { from_port: 1, ..plain }));
    assert!(!is_plain_edge(&CUgraphEdgeData { type_: 1, ..plain }));
    assert!(!is_plain_edge(&CUgraphEdgeData { reserved: [0, 0, 0, 0, 1], ..plain }));
}

#[test]
fn a_cycle_is_found_at_instantiation() {
    let mut world = World(0);
    let (mut graph, ids) = world.fills(&[&[], &[0], &[1], &[2]]);
    assert_eq!(graph.add_dependencies(&[(ids[2], ids[1])]), Ok(()));
    assert!(graph.is_valid());
    let failure = ExecGraph::new(&graph).expect_err("has a cycle");
    assert_eq!(failure.result, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    assert!([ids[1], ids[2]].contains(&failure.node));
    let mut outer = world.graph();
    world.child(&mut outer, &graph, &[]);
    assert!(ExecGraph::new(&outer).is_err());
}

#[test]
fn kernels_launch_graphs_of_their_own_work_only() {
    let mut world = World(0);
    let refused = |graph: &Graph, reachable: bool| {
        let exec = ExecGraph::new(graph).expect("a good graph");
        exec.check_device_launch(&|_| reachable).err().map(|failure| (failure.result, failure.node))
    };
    let unsupported = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    let mut inner = world.graph();
    let copied = world.add(&mut inner, NodeKind::Memcpy(copy(64)), &[]);
    world.add(&mut inner, NodeKind::Memset(fill(64)), &[copied]);
    assert_eq!(refused(&inner, true), None);
    assert_eq!(refused(&inner, false), Some((unsupported, copied)));
    let mut outer = world.graph();
    world.child(&mut outer, &inner, &[]);
    assert_eq!(refused(&outer, true), None);
    assert!(refused(&outer, false).is_some());
    let called = world.add(&mut outer, host(), &[]);
    assert_eq!(refused(&outer, true), Some((unsupported, called)));
}

#[test]
fn removing_a_node_takes_its_edges_along() {
    let mut world = World(0);
    let (mut graph, [a, b, h, e]) = world.diamond(false);
    assert!(matches!(graph.remove(b), Ok(NodeKind::Memcpy(_))));
    assert_eq!(edges(&graph), [(a, h), (h, e)]);
    assert_eq!(graph.remove(b).map(|_| ()), Err(INVALID));
    graph.remove(e).expect("there");
    assert_eq!(graph.sinks(), [h]);
    assert!(graph.is_valid());
}

#[test]
fn memset_parameters() {
    let check = |raw: CUDA_MEMSET_NODE_PARAMS| Fill::from_raw(&raw).map(|fill| fill.span().expect("checked"));
    let raw = raw_fill();
    assert_eq!(check(raw), Ok(64));
    for element in [3, 8, 0] {
        assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { elementSize: element, ..raw }), Err(INVALID));
    }
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { width: 0, ..raw }), Err(INVALID));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { height: 0, ..raw }), Err(INVALID));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { dst: 0, ..raw }), Err(INVALID));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { dst: raw.dst + 1, elementSize: 4, ..raw }), Err(INVALID));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { height: 2, ..raw }), Err(INVALID));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { height: 2, pitch: 32, ..raw }), Err(INVALID));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { height: 2, pitch: 128, ..raw }), Ok(192));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { width: usize::MAX, elementSize: 4, ..raw }), Err(INVALID));
    assert_eq!(check(CUDA_MEMSET_NODE_PARAMS { width: usize::MAX, ..raw }), Err(INVALID));
    let wide = Fill::from_raw(&CUDA_MEMSET_NODE_PARAMS { value: 300, ..raw }).expect("high bits are ignored");
    assert_eq!(wide.to_raw().value, 300);
    assert_eq!((wide.row_bytes(), wide.to_raw().width, wide.to_raw().pitch), (64, 64, 0));
}

#[test]
fn memcpy_parameters() {
    let check = |change: &dyn Fn(&mut CUDA_MEMCPY3D)| {
        let mut raw = raw_copy();
        change(&mut raw);
        Copy3d::from_raw(&raw).map(|copy| copy.first_bytes().expect("checked").0)
    };
    let place = |address, pitch, slice, span| Ok(Place { address, pitch, slice, span });
    assert_eq!(check(&|_| {}), place(0x7100_0000, 256, 256, 256));
    assert_eq!(check(&|raw| raw.WidthInBytes = 0), Err(INVALID));
    assert_eq!(check(&|raw| raw.Height = 0), Err(INVALID));
    assert_eq!(check(&|raw| raw.Depth = 0), Err(INVALID));
    for memory_type in [0, 9, 3] {
        assert_eq!(check(&|raw| raw.srcMemoryType = CUmemorytype(memory_type)), Err(INVALID));
    }
    assert_eq!(check(&|raw| raw.dstHost = std::ptr::null_mut()), Err(INVALID));
    assert_eq!(check(&|raw| raw.srcDevice = 0), Err(INVALID));
    assert_eq!(check(&|raw| raw.Height = 2), place(0x7100_0000, 256, 512, 512));
    assert_eq!(check(&|raw| (raw.Height, raw.srcPitch) = (2, 128)), Err(INVALID));
    assert_eq!(check(&|raw| (raw.Height, raw.srcPitch) = (2, 512)), place(0x7100_0000, 512, 1024, 768));
    assert_eq!(
        check(&|raw| (raw.srcXInBytes, raw.srcY, raw.srcZ, raw.srcPitch, raw.srcHeight) = (8, 1, 1, 512, 4)),
        place(0x7100_0000 + 4 * 512 + 512 + 8, 512, 2048, 256)
    );
    assert_eq!(check(&|raw| raw.WidthInBytes = usize::MAX), Err(INVALID));
    assert_eq!(check(&|raw| raw.srcLOD = 1), place(0x7100_0000, 256, 256, 256));
}

#[test]
fn parameters_survive_the_round_trip() {
    let raw = CUDA_MEMCPY3D { srcXInBytes: 1, srcY: 2, dstZ: 3, srcPitch: 512, dstHeight: 9, ..raw_copy() };
    let copy = Copy3d::from_raw(&raw).expect("good parameters");
    assert_eq!(Copy3d::from_raw(&copy.to_raw()), Ok(copy));
    assert_eq!(copy.to_raw().dstHost, raw.dstHost);
    assert_eq!((copy.to_raw().srcY, copy.to_raw().dstZ, copy.to_raw().dstHeight), (2, 3, 9));
    let NodeKind::Host(call) = host() else { panic!("a host node") };
    assert_eq!(call.to_raw().userData.addr(), 1);
    assert!(call.to_raw().fn_.is_some());
    let none = CUDA_HOST_NODE_PARAMS { fn_: None, userData: std::ptr::null_mut() };
    assert_eq!(HostCall::from_raw(&none).map(|_| ()), Err(INVALID));
}

#[test]
fn a_node_keeps_its_kind() {
    let mut world = World(0);
    let (mut graph, [a, ..]) = world.diamond(false);
    assert_eq!(graph.set_params(a, NodeKind::Memset(fill(8))), Ok(()));
    assert!(matches!(graph.node(a).expect("there").kind(), NodeKind::Memset(fill) if fill.width == 8));
    assert_eq!(graph.set_params(a, NodeKind::Memcpy(copy(8))), Err(INVALID));
    assert_eq!(graph.set_params(NodeId(999), NodeKind::Empty), Err(INVALID));
    let inner = world.graph();
    let child = world.child(&mut graph, &inner, &[]);
    assert_eq!(graph.set_params(child, NodeKind::Child(Box::new(inner))), Err(INVALID));
}

#[test]
fn clones_know_what_they_were_made_of() {
    let mut world = World(0);
    let (original, [a, b, ..]) = world.diamond(false);
    let mut first = original.copy(&mut || world.next());
    let second = first.copy(&mut || world.next());
    assert!(first.is_valid() && second.is_valid());
    assert_eq!(first.origin(), Some(original.id()));
    let found = first.find_in_clone(a).expect("cloned");
    assert_eq!(Some(found), first.roots().next());
    assert_eq!(original.find_in_clone(a), Err(INVALID));
    assert_eq!(second.find_in_clone(a), Err(INVALID));
    assert!(second.find_in_clone(found).is_ok());
    first.remove(found).expect("there");
    assert_eq!(first.find_in_clone(a), Err(INVALID));
    assert!(first.find_in_clone(b).is_ok());
    assert_eq!(original.len(), 4);
    let shape = |graph: &Graph| {
        let ids: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        let place = |id| ids.iter().position(|&other| other == id);
        graph.edges().map(|(from, to)| (place(from), place(to))).collect::<Vec<_>>()
    };
    assert_eq!(shape(&original), shape(&second));
}

#[test]
fn a_child_graph_is_a_copy_that_can_be_changed_in_place() {
    let mut world = World(0);
    let (inner, [a, ..]) = world.diamond(false);
    let mut outer = world.graph();
    let node = world.child(&mut outer, &inner, &[]);
    let embedded = outer.child(node).expect("a child graph").id();
    assert_ne!(embedded, inner.id());
    assert_eq!(outer.len(), 1);
    assert_eq!(outer.graph_ids(), [outer.id(), embedded]);
    assert_eq!(outer.node_ids().len(), 5);
    let inside = outer.child(node).expect("a child graph").find_in_clone(a).expect("a clone of it");
    assert_eq!(outer.graph_of(inside).map(Graph::id), Some(embedded));
    assert_eq!(outer.graph_of(node).map(Graph::id), Some(outer.id()));
    assert!(outer.graph_of(a).is_none());
    outer.graph_of_mut(inside).expect("there").remove(inside).expect("there");
    assert_eq!(outer.find(embedded).map(Graph::len), Some(3));
    assert!(outer.find_mut(embedded).is_some() && outer.find(inner.id()).is_none());
    assert_eq!(inner.len(), 4);
    let copy = outer.copy(&mut || world.next());
    let mut all = outer.node_ids();
    all.extend(copy.node_ids());
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8);
    // Only the clone of the very graph that a node is in knows it.
    assert_eq!(outer.child(a).map(|_| ()), Err(INVALID));
    assert!(copy.is_valid());
}

#[test]
fn changes_of_executable_nodes() {
    let mut world = World(0);
    let (graph, [a, b, h, e]) = world.diamond(false);
    let mut exec = ExecGraph::new(&graph).expect("no cycle");
    let set = |exec: &mut ExecGraph, kind| exec.set_params(a, NodeKind::Memset(kind));
    assert_eq!(set(&mut exec, fill(32)), Ok(()));
    assert_eq!(set(&mut exec, fill_rows(2, 128)), Err(INVALID));
    assert_eq!(set(&mut exec, fill(64).owned_by(None)), Ok(()));
    assert_eq!(set(&mut exec, fill(64)), Ok(()));
    assert_eq!(set(&mut exec, fill(64).owned_by(Some(1))), Err(INVALID));
    let mut copy_to = |change: &dyn Fn(&mut Copy3d)| {
        let mut new = copy(64);
        change(&mut new);
        exec.set_params(b, NodeKind::Memcpy(new))
    };
    assert_eq!(copy_to(&|new| new.width_bytes = 8), Ok(()));
    assert_eq!(copy_to(&|new| new.dst.host = 0x20_0000), Ok(()));
    assert_eq!(copy_to(&|new| new.src.x_bytes = 4), Ok(()));
    assert_eq!(copy_to(&|new| new.height = 2), Err(INVALID));
    assert_eq!(copy_to(&|new| new.src.memory_type = CUmemorytype::CU_MEMORYTYPE_UNIFIED), Err(INVALID));
    assert_eq!(copy_to(&|new| new.src.owner = Some(1)), Err(INVALID));
    assert_eq!(exec.set_params(h, host()), Ok(()));
    assert_eq!(exec.set_params(a, host()), Err(INVALID));
    assert_eq!(exec.set_params(NodeId(999), host()), Err(INVALID));
    assert!(matches!(graph.node(a).expect("there").kind(), NodeKind::Memset(fill) if fill.width == 64));
    assert_eq!((exec.set_enabled(a, false), exec.is_enabled(a)), (Ok(()), Ok(false)));
    assert_eq!((exec.set_enabled(h, false), exec.is_enabled(h)), (Err(INVALID), Err(INVALID)));
    assert_eq!((exec.set_enabled(e, false), exec.is_enabled(e)), (Err(INVALID), Err(INVALID)));
    assert_eq!(set(&mut exec, fill(8)), Ok(()));
    assert_eq!(exec.update(&graph), Ok(()));
    assert_eq!(exec.is_enabled(a), Ok(false));
}

#[test]
fn several_rows_hardly_change_once_instantiated() {
    let mut world = World(0);
    let mut graph = world.graph();
    let set = world.add(&mut graph, NodeKind::Memset(fill_rows(2, 128)), &[]);
    let pitched = Copy3d::from_raw(&CUDA_MEMCPY3D { Height: 2, srcPitch: 512, dstPitch: 512, ..raw_copy() });
    let pitched = pitched.expect("good parameters").owned_by(Some(0), None);
    let copied = world.add(&mut graph, NodeKind::Memcpy(pitched), &[]);
    let mut exec = ExecGraph::new(&graph).expect("no cycle");
    let mut fill_to = |change: &dyn Fn(&mut Fill)| {
        let mut new = fill_rows(2, 128);
        change(&mut new);
        exec.set_params(set, NodeKind::Memset(new))
    };
    assert_eq!(fill_to(&|_| {}), Ok(()));
    assert_eq!(fill_to(&|new| new.dst += 4096), Ok(()));
    assert_eq!(fill_to(&|new| new.value = 1), Ok(()));
    assert_eq!(fill_to(&|new| new.height = 3), Err(INVALID));
    assert_eq!(fill_to(&|new| new.height = 1), Err(INVALID));
    assert_eq!(fill_to(&|new| new.width = 32), Err(INVALID));
    assert_eq!(fill_to(&|new| new.pitch = 256), Err(INVALID));
    assert_eq!(fill_to(&|new| (new.element_bytes, new.width) = (4, 16)), Err(INVALID));
    let mut copy_to = |change: &dyn Fn(&mut Copy3d)| {
        let mut new = pitched;
        change(&mut new);
        exec.set_params(copied, NodeKind::Memcpy(new))
    };
    assert_eq!(copy_to(&|_| {}), Ok(()));
    assert_eq!(copy_to(&|new| new.width_bytes = 64), Err(INVALID));
    assert_eq!(copy_to(&|new| new.src.device += 4096), Err(INVALID));
}

#[test]
fn an_update_takes_over_parameters_and_names() {
    let mut world = World(0);
    let (graph, [a, ..]) = world.diamond(false);
    let mut exec = ExecGraph::new(&graph).expect("no cycle");
    let (mut newer, [newer_a, ..]) = world.diamond(false);
    newer.set_params(newer_a, NodeKind::Memset(fill(16))).expect("same kind");
    assert_eq!(exec.set_params(newer_a, NodeKind::Memset(fill(8))), Err(INVALID));
    assert_eq!(exec.update(&newer), Ok(()));
    assert!(matches!(exec.steps()[0].work, Work::Memset(fill) if fill.width == 16));
    for name in [a, newer_a] {
        assert_eq!(exec.set_params(name, NodeKind::Memset(fill(8))), Ok(()));
    }
    let copy = graph.copy(&mut || world.next());
    let in_copy = copy.find_in_clone(a).expect("cloned");
    assert_eq!(exec.set_params(in_copy, NodeKind::Memset(fill(8))), Err(INVALID));
}

#[test]
fn updates_that_are_refused() {
    let mut world = World(0);
    let (graph, _) = world.diamond(false);
    let exec = ExecGraph::new(&graph).expect("no cycle");
    let update = |new: &Graph| exec.clone().update(new);

    let (new, [_, _, h, _]) = world.diamond(true);
    assert_eq!(update(&new), failure(TYPE, Some(h), None));
    let (mut new, _) = world.diamond(false);
    world.empty(&mut new, &[]);
    assert_eq!(update(&new), failure(TOPOLOGY, None, None));
    let (mut new, [_, _, h, e]) = world.diamond(false);
    new.remove_dependencies(&[(h, e)]).expect("an edge");
    assert_eq!(update(&new), failure(TOPOLOGY, Some(e), None));
    let (mut new, [a, _, _, e]) = world.diamond(false);
    new.add_dependencies(&[(a, e)]).expect("no edge yet");
    assert_eq!(update(&new), failure(TOPOLOGY, Some(e), None));
    let (mut new, [a, b, h, _]) = world.diamond(false);
    new.remove_dependencies(&[(a, h)]).expect("an edge");
    new.add_dependencies(&[(b, h)]).expect("no edge yet");
    assert_eq!(update(&new), failure(TOPOLOGY, Some(h), Some(b)));
    let (mut new, [a, b, h, _]) = world.diamond(false);
    new.remove_dependencies(&[(a, h), (a, b)]).expect("edges");
    new.add_dependencies(&[(a, h), (a, b)]).expect("no edges yet");
    assert_eq!(update(&new), Ok(()));
    let (mut new, [a, ..]) = world.diamond(false);
    new.set_params(a, NodeKind::Memset(fill_rows(2, 128))).expect("same kind");
    assert_eq!(update(&new), failure(PARAMETERS, Some(a), None));
    let (mut new, [_, b, ..]) = world.diamond(false);
    new.set_params(b, NodeKind::Memcpy(Copy3d::linear(0x7000_0000, 0x7100_0000, 64))).expect("same kind");
    assert_eq!(update(&new), failure(PARAMETERS, Some(b), None));
    let (mut new, [a, _, _, e]) = world.diamond(false);
    new.add_dependencies(&[(e, a)]).expect("cycles pass");
    assert_eq!(update(&new), failure(TOPOLOGY, None, None));
    let empty = world.graph();
    assert_eq!(update(&empty), failure(TOPOLOGY, None, None));
}

#[test]
fn updates_pair_nodes_from_the_youngest_sink() {
    let mut world = World(0);
    let (chain, _) = world.fills(&[&[], &[0], &[1]]);
    let exec = ExecGraph::new(&chain).expect("no cycle");
    for (shape, culprit) in
        [(&[&[][..], &[0], &[0]], 1), (&[&[], &[0], &[]], 1), (&[&[], &[], &[]], 1), (&[&[], &[], &[0, 1]], 2)]
    {
        let (new, ids) = world.fills(shape);
        assert_eq!(exec.clone().update(&new), failure(TOPOLOGY, Some(ids[culprit]), None));
    }
    let (pairs, _) = world.fills(&[&[], &[], &[0], &[1]]);
    let exec = ExecGraph::new(&pairs).expect("no cycle");
    let (crossed, _) = world.fills(&[&[], &[], &[1], &[0]]);
    assert_eq!(exec.clone().update(&crossed), Ok(()));
    let (shared, ids) = world.fills(&[&[], &[], &[0], &[0]]);
    assert_eq!(exec.clone().update(&shared), failure(TOPOLOGY, Some(ids[1]), None));
    let (shared, ids) = world.fills(&[&[], &[0], &[1], &[1]]);
    assert_eq!(exec.clone().update(&shared), failure(TOPOLOGY, Some(ids[2]), Some(ids[1])));
    let (roots, _) = world.fills(&[&[], &[]]);
    let exec = ExecGraph::new(&roots).expect("no cycle");
    let (chain, _) = world.fills(&[&[], &[0]]);
    assert_eq!(exec.clone().update(&chain), failure(TOPOLOGY, None, None));
}

#[test]
fn a_refused_update_changes_nothing() {
    let mut world = World(0);
    let (graph, _) = world.diamond(false);
    let mut exec = ExecGraph::new(&graph).expect("no cycle");
    let (mut new, [a, b, h, _]) = world.diamond(false);
    new.set_params(b, NodeKind::Memcpy(copy(8))).expect("same kind");
    new.remove_dependencies(&[(a, h)]).expect("an edge");
    assert!(exec.update(&new).is_err());
    assert!(exec.steps().iter().all(|step| !matches!(step.work, Work::Memcpy(copy) if copy.width_bytes == 8)));
    assert_eq!(exec.set_params(b, NodeKind::Memcpy(copy(8))), Err(INVALID));
}

#[test]
fn child_graphs_are_updated_with_their_parent() {
    let mut world = World(0);
    let (mut inner, _) = world.fills(&[&[]]);
    let mut graph = world.graph();
    let node = world.child(&mut graph, &inner, &[]);
    let mut exec = ExecGraph::new(&graph).expect("no cycle");
    let only = inner.roots().next().expect("one node");
    inner.set_params(only, NodeKind::Memset(fill(8))).expect("same kind");
    assert_eq!(exec.set_child(node, &inner), Ok(()));
    assert!(exec.steps().iter().any(|step| matches!(step.work, Work::Memset(fill) if fill.width == 8)));
    let empty = world.graph();
    assert_eq!(exec.set_child(node, &empty), Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE));
    let embedded = graph.child(node).expect("a child").roots().next().expect("one node");
    assert_eq!(exec.set_child(embedded, &inner), Err(INVALID));
    assert_eq!(exec.set_params(embedded, NodeKind::Memset(fill(4))), Ok(()));
    assert!(exec.steps().iter().any(|step| matches!(step.work, Work::Memset(fill) if fill.width == 4)));

    let mut other = world.graph();
    let mut joins = world.graph();
    world.empty(&mut joins, &[]);
    let child = world.child(&mut other, &joins, &[]);
    let culprit = other.child(child).expect("a child").roots().next();
    assert_eq!(exec.update(&other), failure(TYPE, culprit, None));
    let mut other = world.graph();
    world.child(&mut other, &empty, &[]);
    assert_eq!(exec.update(&other), failure(TOPOLOGY, None, None));
}

#[test]
fn nested_children_are_paired_level_by_level() {
    let mut world = World(0);
    let mut nest = |widths: [usize; 3]| {
        let mut leaf = world.graph();
        world.add(&mut leaf, NodeKind::Memset(fill(widths[0])), &[]);
        let mut middle = world.graph();
        let inner = world.child(&mut middle, &leaf, &[]);
        world.add(&mut middle, NodeKind::Memset(fill(widths[1])), &[inner]);
        let mut outer = world.graph();
        let first = world.child(&mut outer, &middle, &[]);
        let second = world.child(&mut outer, &leaf, &[first]);
        world.add(&mut outer, NodeKind::Memset(fill(widths[2])), &[second]);
        outer
    };
    let mut exec = ExecGraph::new(&nest([1, 2, 3])).expect("no cycle");
    assert_eq!(exec.update(&nest([4, 5, 6])), Ok(()));
    let widths = |exec: &ExecGraph| {
        let width = |step: Step| if let Work::Memset(fill) = step.work { Some(fill.width) } else { None };
        exec.steps().into_iter().filter_map(width).collect::<Vec<_>>()
    };
    assert_eq!(widths(&exec), [4, 5, 4, 6]);
}

#[test]
fn steps_run_a_child_between_its_neighbours() {
    let mut world = World(0);
    let (inner, _) = world.fills(&[&[], &[]]);
    let nothing_inside = world.graph();
    let mut graph = world.graph();
    let first = world.add(&mut graph, NodeKind::EventRecord(11), &[]);
    let full = world.child(&mut graph, &inner, &[first]);
    let hollow = world.child(&mut graph, &nothing_inside, &[full]);
    let last = world.add(&mut graph, NodeKind::EventWait(12), &[hollow]);
    let exec = ExecGraph::new(&graph).expect("no cycle");
    assert_eq!(exec.events(), [11, 12]);
    let steps = exec.steps();
    assert!(steps.iter().enumerate().all(|(index, step)| step.dependencies.iter().all(|&before| before < index)));
    let mut reached = vec![false; steps.len()];
    let mut open = vec![steps.iter().position(|step| step.node == last).expect("last")];
    while let Some(index) = open.pop() {
        reached[index] = true;
        open.extend(steps[index].dependencies.iter().copied());
    }
    assert!(reached.iter().all(|&reached| reached), "everything comes before the last step");
    let sets = steps.iter().filter(|step| matches!(step.work, Work::Memset(_)));
    assert!(sets.clone().count() == 2 && sets.into_iter().all(|step| !step.dependencies.is_empty()));
}

#[test]
fn a_disabled_node_does_nothing() {
    let mut world = World(0);
    let (graph, ids) = world.fills(&[&[], &[0]]);
    let mut exec = ExecGraph::new(&graph).expect("no cycle");
    exec.set_enabled(ids[0], false).expect("a set");
    assert!(matches!(exec.steps()[0].work, Work::Empty));
    exec.set_enabled(ids[0], true).expect("a set");
    assert!(matches!(exec.steps()[0].work, Work::Memset(_)));
}

#[test]
fn dot_has_a_cluster_for_each_graph() {
    let mut world = World(0);
    let (mut graph, [_, _, h, _]) = world.diamond(false);
    let (inner, _) = world.fills(&[&[]]);
    let child = world.child(&mut graph, &inner, &[h]);
    let name = format!("graph_{}", graph.id().0);
    let inner_name = format!("graph_{}", graph.child(child).expect("a child").id().0);
    let brief = graph.to_dot(0);
    assert!(brief.starts_with("digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\""), "{brief}");
    assert!(brief.ends_with("}\n}\n"));
    assert_eq!(brief.matches("subgraph").count(), 2);
    assert_eq!(brief.matches('{').count(), brief.matches('}').count());
    for text in [
        "label=\"0\\nMEMSET\\n(7,64)\"",
        "label=\"1\\nMEMCPY\\n(DtoH,64)\"",
        "label=\"2\\nHOST\"",
        "label=\"3\\nEMPTY\"",
        &format!("label=\"4\\n{inner_name}\""),
        &format!("\"{name}_node_0\" -> \"{name}_node_1\";"),
        &format!("\"{name}_node_2\" -> \"{name}_node_3\";"),
        &format!("\"{inner_name}_node_0\""),
    ] {
        assert!(brief.contains(text), "{text} in {brief}");
    }
    let verbose = graph.to_dot(1);
    assert!(verbose.contains(&format!("\"{name}_node_2\" -> \"{name}_node_3\" [headlabel=1];")), "{verbose}");
    for text in ["4 (topoId: 0)", "3 (topoId: 1)", "2 (topoId: 2)", "1 (topoId: 3)", "0 (topoId: 4)", "userData: 0x1"] {
        assert!(verbose.contains(text), "{text} in {verbose}");
    }
}

#[test]
fn graphs_may_move_between_threads() {
    fn is_free<T: Send + Sync>() {}
    is_free::<Graph>();
    is_free::<ExecGraph>();
}
