//! Launches whose blocks all run at once: by their own function and by an attribute, captured and as nodes.

use super::capture::GLOBAL;
use super::function::first_params;
use super::graph::launch;
use super::prelude::*;
use super::ptx::{idle, kernel, pointers_to};

cases!("cooperative", CASES, Needs::CONTEXT;
    device_can_do_it, blocks_meet, blocks_meet_by_an_attribute, more_blocks_than_fit, capture_is_replayed,
);

cases!("cooperative", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    as_many_blocks_as_fit, nodes_stay_cooperative, functions_and_parameters_of_nothing,
);

/// Every block counts itself and waits until all blocks did; then each writes how many it saw.
const MEET: &str = "mov.u32 %r1, %tid.x;\nsetp.ne.u32 %p0, %r1, 0;\n@%p0 bra end;\nmov.u32 %r0, %nctaid.x;\n\
    atom.global.add.u32 %r2, [%i], 1;\nagain: ld.volatile.global.u32 %r3, [%i];\nsetp.lt.u32 %p1, %r3, %r0;\n@%p1 bra again;\n\
    mov.u32 %r4, %ctaid.x;\nmul.wide.u32 %d0, %r4, 4;\nadd.s64 %d1, %o, %d0;\nst.global.u32 [%d1], %r3;\nend:";

/// Blocks of [`MEET`]: more than the model runs at once without being asked.
const BLOCKS: u32 = 64;

fn device_can_do_it(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 0;
    let asked = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH;
    ok!(cu.cuDeviceGetAttribute(&mut value, asked, 0));
    same!(cu, value, 1);
    Ok(())
}

/// The memory that [`MEET`] uses: what it writes, and its counter.
fn room(cu: &Cuda<'_>) -> CaseResult<[u64; 3]> {
    Ok([cu.filled(BLOCKS as usize * 4, 0)?, cu.filled(4, 0)?, 0])
}

fn expect_met(cu: &Cuda<'_>, out: CUdeviceptr) -> CaseResult {
    same!(cu, cu.read_words(out, BLOCKS as usize)?, [BLOCKS; BLOCKS as usize]);
    Ok(())
}

fn blocks_meet(cu: &Cuda<'_>) -> CaseResult {
    let (function, stream, values) = (cu.function(&kernel(MEET))?, cu.stream()?, room(cu)?);
    let mut pointers = pointers_to(&values);
    ok!(cu.cuLaunchCooperativeKernel(function, BLOCKS, 1, 1, 32, 1, 1, 0, stream, pointers.as_mut_ptr()));
    ok!(cu.cuStreamSynchronize(stream));
    expect_met(cu, values[0])
}

fn attribute(cooperative: i32) -> CUlaunchAttribute {
    CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        pad: [0; 4],
        value: CUlaunchAttributeValue { cooperative },
    }
}

fn blocks_meet_by_an_attribute(cu: &Cuda<'_>) -> CaseResult {
    let (function, stream, values) = (cu.function(&kernel(MEET))?, cu.stream()?, room(cu)?);
    let (mut pointers, mut attributes) = (pointers_to(&values), [attribute(1)]);
    let config =
        CUlaunchConfig { gridDimX: BLOCKS, attrs: attributes.as_mut_ptr(), numAttrs: 1, ..launch_config(stream) };
    ok!(cu.cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), ptr::null_mut()));
    ok!(cu.cuStreamSynchronize(stream));
    expect_met(cu, values[0])
}

/// No device runs so many blocks at once; without the attribute they run one after the other.
const TOO_MANY: u32 = 1 << 17;

fn more_blocks_than_fit(cu: &Cuda<'_>) -> CaseResult {
    let (function, none) = (cu.function(&idle())?, ptr::null_mut());
    want!(
        COOPERATIVE_LAUNCH_TOO_LARGE,
        cu.cuLaunchCooperativeKernel(function, TOO_MANY, 1, 1, 1, 1, 1, 0, DEFAULT, none)
    );
    let mut attributes = [attribute(1)];
    let config =
        CUlaunchConfig { gridDimX: TOO_MANY, attrs: attributes.as_mut_ptr(), numAttrs: 1, ..launch_config(DEFAULT) };
    want!(COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuLaunchKernelEx(&config, function, none, ptr::null_mut()));
    attributes[0] = attribute(0);
    let config = CUlaunchConfig { attrs: attributes.as_mut_ptr(), ..config };
    want!(SUCCESS, cu.cuLaunchKernelEx(&config, function, none, ptr::null_mut()));
    Ok(())
}

fn captured(cu: &Cuda<'_>, function: CUfunction, values: &[u64]) -> CaseResult<(CUgraph, CUgraphNode)> {
    let (stream, mut pointers) = (cu.stream()?, pointers_to(values));
    cu.begin(stream, GLOBAL)?;
    ok!(cu.cuLaunchCooperativeKernel(function, BLOCKS, 1, 1, 32, 1, 1, 0, stream, pointers.as_mut_ptr()));
    let graph = cu.end(stream)?;
    Ok((graph, cu.nodes(graph)?[0]))
}

fn capture_is_replayed(cu: &Cuda<'_>) -> CaseResult {
    let (function, values) = (cu.function(&kernel(MEET))?, room(cu)?);
    let (graph, _) = captured(cu, function, &values)?;
    let exec = cu.instantiate(graph)?;
    launch(cu, exec)?;
    expect_met(cu, values[0])
}

/// 132 multiprocessors with 2 blocks of 1024 threads each.
fn as_many_blocks_as_fit(cu: &Cuda<'_>) -> CaseResult {
    let (function, none) = (cu.function(&idle())?, ptr::null_mut());
    want!(SUCCESS, cu.cuLaunchCooperativeKernel(function, 264, 1, 1, 1024, 1, 1, 0, DEFAULT, none));
    want!(
        COOPERATIVE_LAUNCH_TOO_LARGE,
        cu.cuLaunchCooperativeKernel(function, 265, 1, 1, 1024, 1, 1, 0, DEFAULT, none)
    );
    Ok(())
}

/// Parameters do not say whether a node is cooperative, so it stays what it was.
fn nodes_stay_cooperative(cu: &Cuda<'_>) -> CaseResult {
    let (function, first, second) = (cu.function(&kernel(MEET))?, room(cu)?, room(cu)?);
    let (graph, node) = captured(cu, function, &first)?;
    let exec = cu.instantiate(graph)?;
    let mut pointers = pointers_to(&second);
    let new = CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: BLOCKS,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: pointers.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    };
    ok!(cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &new));
    launch(cu, exec)?;
    expect_met(cu, second[0])?;
    let large = CUDA_KERNEL_NODE_PARAMS { gridDimX: TOO_MANY, ..new };
    let old = first_params(&large);
    want!(COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &large));
    want!(COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuGraphExecKernelNodeSetParams(exec, node, &old));
    want!(COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuGraphKernelNodeSetParams_v2(node, &large));
    want!(COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuGraphKernelNodeSetParams(node, &old));
    ok!(cu.cuGraphKernelNodeSetParams_v2(node, &new));
    ok!(cu.cuMemsetD8_v2(second[0], 0, BLOCKS as usize * 4));
    ok!(cu.cuMemsetD8_v2(second[1], 0, 4));
    ok!(cu.cuCtxSynchronize());
    let again = cu.instantiate(graph)?;
    launch(cu, again)?;
    expect_met(cu, second[0])
}

fn functions_and_parameters_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let (nothing, none) = (ptr::without_provenance_mut(0xDEAD_BEE8), ptr::null_mut());
    want!(INVALID_HANDLE, cu.cuLaunchCooperativeKernel(nothing, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none));
    let function = cu.function(&kernel(""))?;
    want!(INVALID_VALUE, cu.cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none));
    Ok(())
}
