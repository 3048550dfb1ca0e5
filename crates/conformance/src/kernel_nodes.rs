//! Attributes of kernel nodes: what they are at first, and that nodes keep them.

use super::function::first_params;
use super::prelude::*;
use super::ptx::idle;

cases!("kernel_nodes", CASES, Needs::CONTEXT;
    cooperative_is_an_attribute, priority_is_an_attribute, attributes_are_copied, attributes_stay_with_their_node,
    other_nodes_have_none,
);

cases!("kernel_nodes", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    attributes_at_first, clusters_of_one_block, more_blocks_than_fit, captured_priority, attributes_of_nothing,
);

const COOPERATIVE: CUkernelNodeAttrID = CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
const PRIORITY: CUkernelNodeAttrID = CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
const CLUSTER: CUkernelNodeAttrID = CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
const DOMAINS: CUkernelNodeAttrID = CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
const CARVEOUT: CUkernelNodeAttrID = CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;

fn params(function: CUfunction, blocks: u32) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    }
}

/// A node of a kernel that does nothing, in so many blocks of one thread.
fn node_of(cu: &Cuda<'_>, graph: CUgraph, blocks: u32) -> CaseResult<CUgraphNode> {
    let (function, mut node) = (cu.function(&idle())?, ptr::null_mut());
    ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, ptr::null(), 0, &params(function, blocks)));
    Ok(node)
}

/// The first words of an attribute.
fn words(cu: &Cuda<'_>, node: CUgraphNode, name: CUkernelNodeAttrID) -> CaseResult<[u32; 3]> {
    let mut value = CUkernelNodeAttrValue { pad: [0x55; 64] };
    ok!(cu.cuGraphKernelNodeGetAttribute(node, name, &mut value));
    // SAFETY: any bytes are three numbers.
    let found = unsafe { value.clusterDim };
    Ok([found.x, found.y, found.z])
}

fn value(words: [u32; 3]) -> CUkernelNodeAttrValue {
    let [x, y, z] = words;
    let mut value = CUlaunchAttributeValue::zeroed();
    value.clusterDim = CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
    value
}

fn cooperative_is_an_attribute(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let node = node_of(cu, graph, 4)?;
    for cooperative in [0, 1, 0] {
        ok!(cu.cuGraphKernelNodeSetAttribute(node, COOPERATIVE, &value([cooperative, 0, 0])));
        same!(cu, words(cu, node, COOPERATIVE)?[0], cooperative);
    }
    Ok(())
}

fn priority_is_an_attribute(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let node = node_of(cu, graph, 1)?;
    same!(cu, words(cu, node, PRIORITY)?[0], 0);
    ok!(cu.cuGraphKernelNodeSetAttribute(node, PRIORITY, &value([(-2_i32).cast_unsigned(), 0, 0])));
    same!(cu, words(cu, node, PRIORITY)?[0].cast_signed(), -2);
    Ok(())
}

fn attributes_are_copied(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (from, to) = (node_of(cu, graph, 4)?, node_of(cu, graph, 4)?);
    ok!(cu.cuGraphKernelNodeSetAttribute(from, COOPERATIVE, &value([1, 0, 0])));
    ok!(cu.cuGraphKernelNodeSetAttribute(from, PRIORITY, &value([(-1_i32).cast_unsigned(), 0, 0])));
    ok!(cu.cuGraphKernelNodeCopyAttributes(to, from));
    same!(cu, words(cu, to, COOPERATIVE)?[0], 1);
    same!(cu, words(cu, to, PRIORITY)?[0].cast_signed(), -1);
    Ok(())
}

/// Other parameters do not change them, and a clone has them.
fn attributes_stay_with_their_node(cu: &Cuda<'_>) -> CaseResult {
    let (graph, function) = (cu.graph()?, cu.function(&idle())?);
    let node = node_of(cu, graph, 4)?;
    ok!(cu.cuGraphKernelNodeSetAttribute(node, PRIORITY, &value([(-1_i32).cast_unsigned(), 0, 0])));
    ok!(cu.cuGraphKernelNodeSetParams_v2(node, &params(function, 2)));
    same!(cu, words(cu, node, PRIORITY)?[0].cast_signed(), -1);
    let mut clone = ptr::null_mut();
    ok!(cu.cuGraphClone(&mut clone, graph));
    cu.later(Cleanup::Graph(clone));
    let copied = cu.nodes(clone)?[0];
    same!(cu, words(cu, copied, PRIORITY)?[0].cast_signed(), -1);
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphExecKernelNodeSetParams(exec, node, &first_params(&params(function, 1))));
    super::graph::launch(cu, exec)
}

fn other_nodes_have_none(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (empty, node) = (cu.empty_node(graph, &[])?, node_of(cu, graph, 1)?);
    let mut found = value([0; 3]);
    want!(INVALID_VALUE, cu.cuGraphKernelNodeGetAttribute(empty, PRIORITY, &mut found));
    want!(INVALID_VALUE, cu.cuGraphKernelNodeSetAttribute(empty, PRIORITY, &found));
    want!(INVALID_VALUE, cu.cuGraphKernelNodeCopyAttributes(empty, node));
    want!(INVALID_VALUE, cu.cuGraphKernelNodeCopyAttributes(node, empty));
    Ok(())
}

fn attributes_at_first(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let node = node_of(cu, graph, 1)?;
    for (name, wanted) in [
        (COOPERATIVE, [0; 3]),
        (PRIORITY, [0; 3]),
        (CLUSTER, [0; 3]),
        (DOMAINS, [256, 0, 0]),
        (CARVEOUT, [u32::MAX, 0, 0]),
    ] {
        same!(cu, (name, words(cu, node, name)?), (name, wanted));
    }
    ok!(cu.cuGraphKernelNodeSetAttribute(node, CARVEOUT, &value([50, 0, 0])));
    same!(cu, words(cu, node, CARVEOUT)?, [50, 0, 0]);
    Ok(())
}

/// Clusters are not modelled, so there are none of more blocks than one.
fn clusters_of_one_block(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let node = node_of(cu, graph, 4)?;
    ok!(cu.cuGraphKernelNodeSetAttribute(node, CLUSTER, &value([1, 1, 1])));
    same!(cu, words(cu, node, CLUSTER)?, [1, 1, 1]);
    for axes in [[2, 1, 1], [1, 4, 1], [1, 1, 2]] {
        want!(NOT_SUPPORTED, cu.cuGraphKernelNodeSetAttribute(node, CLUSTER, &value(axes)));
    }
    same!(cu, words(cu, node, CLUSTER)?, [1, 1, 1]);
    Ok(())
}

fn more_blocks_than_fit(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (large, small) = (node_of(cu, graph, 1 << 17)?, node_of(cu, graph, 4)?);
    want!(COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuGraphKernelNodeSetAttribute(large, COOPERATIVE, &value([1, 0, 0])));
    same!(cu, words(cu, large, COOPERATIVE)?[0], 0);
    ok!(cu.cuGraphKernelNodeSetAttribute(small, COOPERATIVE, &value([1, 0, 0])));
    want!(COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuGraphKernelNodeCopyAttributes(large, small));
    Ok(())
}

/// A captured node has the priority of its stream.
fn captured_priority(cu: &Cuda<'_>) -> CaseResult {
    let (function, mut stream) = (cu.function(&idle())?, ptr::null_mut());
    ok!(cu.cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, -3));
    cu.later(Cleanup::Stream(stream));
    cu.begin(stream, super::capture::GLOBAL)?;
    cu.launch(function, [super::ptx::ONE; 2], 0, stream, &[])?;
    let graph = cu.end(stream)?;
    let node = cu.nodes(graph)?[0];
    same!(cu, words(cu, node, PRIORITY)?[0].cast_signed(), -3);
    Ok(())
}

fn attributes_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (node, nothing) = (node_of(cu, graph, 1)?, ptr::without_provenance_mut(0xDEAD_BEE8));
    let mut found = value([0; 3]);
    for name in [CUkernelNodeAttrID(0), CUkernelNodeAttrID(3), CUkernelNodeAttrID(99)] {
        want!(INVALID_VALUE, cu.cuGraphKernelNodeGetAttribute(node, name, &mut found));
        want!(INVALID_VALUE, cu.cuGraphKernelNodeSetAttribute(node, name, &found));
    }
    want!(INVALID_VALUE, cu.cuGraphKernelNodeGetAttribute(node, PRIORITY, ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuGraphKernelNodeSetAttribute(node, PRIORITY, ptr::null()));
    want!(INVALID_VALUE, cu.cuGraphKernelNodeGetAttribute(nothing, PRIORITY, &mut found));
    Ok(())
}
