//! How many blocks of a kernel run at once. Kernels here have few registers, so that threads, blocks and shared memory
//! decide, of which devices of one compute capability have as much.

use super::prelude::*;
use super::ptx::{idle, with_directives};

cases!("occupancy", CASES, Needs::CONTEXT;
    blocks_by_threads, blocks_by_shared_memory, size_that_fills_a_multiprocessor, size_by_a_function, flags,
);

cases!("occupancy", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    blocks_that_do_not_run, sizes_with_a_limit, shared_memory_that_is_left, null_arguments, handles_that_are_none,
    registers_are_counted, clusters_of_one_block,
);

/// Whether device 0 is of the compute capability that the figures below are for.
fn is_9_0(cu: &Cuda<'_>) -> CaseResult<bool> {
    let mut found = [0; 2];
    ok!(cu.cuDeviceGetAttribute(&mut found[0], CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    ok!(cu.cuDeviceGetAttribute(&mut found[1], CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    Ok(found == [9, 0])
}

fn need_9_0(cu: &Cuda<'_>) -> CaseResult {
    if is_9_0(cu)? { Ok(()) } else { Err(Stop::Skip("needs a device of compute capability 9.0".to_owned())) }
}

fn blocks(cu: &Cuda<'_>, function: CUfunction, threads: i32, shared: usize) -> CaseResult<i32> {
    let mut found = -7;
    ok!(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut found, function, threads, shared));
    Ok(found)
}

fn blocks_by_threads(cu: &Cuda<'_>) -> CaseResult {
    need_9_0(cu)?;
    let function = cu.function(&idle())?;
    for (threads, wanted) in [(1024, 2), (1000, 2), (512, 4), (128, 16), (64, 32), (32, 32), (1, 32)] {
        same!(cu, (threads, blocks(cu, function, threads, 0)?), (threads, wanted));
    }
    Ok(())
}

const DYNAMIC: CUfunction_attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

fn blocks_by_shared_memory(cu: &Cuda<'_>) -> CaseResult {
    need_9_0(cu)?;
    let function = cu.function(&idle())?;
    same!(cu, blocks(cu, function, 64, 48 << 10)?, 4);
    same!(cu, blocks(cu, function, 64, 20 << 10)?, 10);
    ok!(cu.cuFuncSetAttribute(function, DYNAMIC, 120 << 10));
    same!(cu, blocks(cu, function, 64, 120 << 10)?, 1);
    Ok(())
}

fn multiprocessors(cu: &Cuda<'_>) -> CaseResult<i32> {
    let mut count = 0;
    ok!(cu.cuDeviceGetAttribute(&mut count, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    Ok(count)
}

fn size_that_fills_a_multiprocessor(cu: &Cuda<'_>) -> CaseResult {
    need_9_0(cu)?;
    let (function, mut grid, mut size) = (cu.function(&idle())?, 0, 0);
    ok!(cu.cuOccupancyMaxPotentialBlockSize(&mut grid, &mut size, function, None, 0, 0));
    same!(cu, (grid, size), (2 * multiprocessors(cu)?, 1024));
    Ok(())
}

/// 64 bytes for each thread, so that shared memory ends before threads do.
unsafe extern "C" fn by_threads(threads: i32) -> usize {
    usize::try_from(threads).unwrap_or(0) * 64
}

fn size_by_a_function(cu: &Cuda<'_>) -> CaseResult {
    need_9_0(cu)?;
    let (function, mut grid, mut size) = (cu.function(&idle())?, 0, 0);
    ok!(cu.cuOccupancyMaxPotentialBlockSize(&mut grid, &mut size, function, Some(by_threads), 0, 0));
    let found = usize::try_from(size).unwrap_or(0);
    that!(cu, found > 0 && found * 64 <= 48 << 10);
    same!(cu, grid, multiprocessors(cu)? * blocks(cu, function, size, found * 64)?);
    Ok(())
}

fn flags(cu: &Cuda<'_>) -> CaseResult {
    let (function, mut found, mut size) = (cu.function(&idle())?, 0, 0);
    for flags in [0, 1] {
        ok!(cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut found, function, 256, 0, flags));
        same!(cu, found, blocks(cu, function, 256, 0)?);
        ok!(cu.cuOccupancyMaxPotentialBlockSizeWithFlags(&mut found, &mut size, function, None, 0, 0, flags));
        same!(cu, size, 1024);
    }
    Ok(())
}

/// More threads or shared memory than a launch may have.
fn blocks_that_do_not_run(cu: &Cuda<'_>) -> CaseResult {
    let (function, mut found) = (cu.function(&with_directives(".maxntid 256, 1, 1\n", ""))?, 0);
    same!(cu, blocks(cu, function, 257, 0)?, 0);
    same!(cu, blocks(cu, function, 256, 60_000)?, 0);
    want!(INVALID_VALUE, cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut found, function, 0, 0));
    want!(INVALID_VALUE, cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut found, function, 256, 0, 2));
    want!(INVALID_VALUE, cu.cuOccupancyMaxPotentialBlockSizeWithFlags(&mut found, &mut 0, function, None, 0, 0, 2));
    want!(INVALID_VALUE, cu.cuOccupancyMaxPotentialBlockSize(&mut found, &mut 0, function, None, 0, -1));
    Ok(())
}

fn sizes_with_a_limit(cu: &Cuda<'_>) -> CaseResult {
    let (function, mut grid, mut size) = (cu.function(&idle())?, 0, 0);
    ok!(cu.cuOccupancyMaxPotentialBlockSize(&mut grid, &mut size, function, None, 0, 300));
    same!(cu, (grid, size), (8 * 132, 256));
    ok!(cu.cuOccupancyMaxPotentialBlockSize(&mut grid, &mut size, function, None, 60_000, 0));
    same!(cu, (grid, size), (0, 0));
    Ok(())
}

fn shared_memory_that_is_left(cu: &Cuda<'_>) -> CaseResult {
    let (function, mut bytes) = (cu.function(&idle())?, 0);
    ok!(cu.cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, 1, 256));
    same!(cu, bytes, 48 << 10);
    for count in [1, 3, 8] {
        ok!(cu.cuFuncSetAttribute(function, DYNAMIC, 232_448));
        ok!(cu.cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, count, 256));
        same!(cu, blocks(cu, function, 256, bytes)?, count);
    }
    want!(INVALID_VALUE, cu.cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, 9, 256));
    want!(INVALID_VALUE, cu.cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, 0, 256));
    Ok(())
}

fn null_arguments(cu: &Cuda<'_>) -> CaseResult {
    let (function, none) = (cu.function(&idle())?, ptr::null_mut());
    want!(INVALID_VALUE, cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(none, function, 1, 0));
    want!(INVALID_VALUE, cu.cuOccupancyMaxPotentialBlockSize(none, &mut 0, function, None, 0, 0));
    want!(INVALID_VALUE, cu.cuOccupancyMaxPotentialBlockSize(&mut 0, none, function, None, 0, 0));
    want!(INVALID_VALUE, cu.cuOccupancyAvailableDynamicSMemPerBlock(ptr::null_mut(), function, 1, 32));
    Ok(())
}

fn handles_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (mut a, mut b, mut bytes) = (0, 0, 0);
    for wrong in [0, 0xDEAD_BEE8] {
        let function = ptr::without_provenance_mut(wrong);
        want!(INVALID_HANDLE, cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut a, function, 1, 0));
        want!(INVALID_HANDLE, cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut a, function, 1, 0, 0));
        want!(INVALID_HANDLE, cu.cuOccupancyMaxPotentialBlockSize(&mut a, &mut b, function, None, 0, 0));
        want!(INVALID_HANDLE, cu.cuOccupancyMaxPotentialBlockSizeWithFlags(&mut a, &mut b, function, None, 0, 0, 0));
        want!(INVALID_HANDLE, cu.cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, 1, 32));
    }
    Ok(())
}

/// A text that allows few registers runs in more blocks than one that needs many at once.
fn registers_are_counted(cu: &Cuda<'_>) -> CaseResult {
    // All are read before the first is used.
    let reads: String =
        (0..196).map(|index| format!("ld.volatile.global.u32 %q{index}, [%i+{}];\n", 4 * index)).collect();
    let sums: String = (0..195).map(|index| format!("add.u32 %q195, %q195, %q{index};\n")).collect();
    let body = format!(".reg .b32 %q<196>;\n{reads}{sums}st.global.u32 [%o], %q195;");
    let many = cu.function(&with_directives(".maxntid 256, 1, 1\n", &body))?;
    let few = cu.function(&with_directives(".maxntid 256, 1, 1\n.maxnreg 32\n", &body))?;
    same!(cu, (blocks(cu, many, 256, 0)?, blocks(cu, few, 256, 0)?), (1, 8));
    Ok(())
}

/// What the model says where clusters are asked about: it has none of more blocks than one.
fn clusters_of_one_block(cu: &Cuda<'_>) -> CaseResult {
    let (function, mut found) = (cu.function(&idle())?, -7);
    let mut attributes = [CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { clusterDim: CUlaunchAttributeValue_union__bindgen_ty_1 { x: 1, y: 1, z: 1 } },
    }];
    let plain = CUlaunchConfig { blockDimX: 1024, ..launch_config(DEFAULT) };
    ok!(cu.cuOccupancyMaxPotentialClusterSize(&mut found, function, &plain));
    same!(cu, found, 1);
    want!(INVALID_CLUSTER_SIZE, cu.cuOccupancyMaxActiveClusters(&mut found, function, &plain));
    let config = CUlaunchConfig { attrs: attributes.as_mut_ptr(), numAttrs: 1, ..plain };
    ok!(cu.cuOccupancyMaxActiveClusters(&mut found, function, &config));
    same!(cu, found, 264);
    ok!(cu.cuLaunchKernelEx(&config, function, ptr::null_mut(), ptr::null_mut()));
    attributes[0].value.clusterDim = CUlaunchAttributeValue_union__bindgen_ty_1 { x: 2, y: 1, z: 1 };
    let pairs = CUlaunchConfig { attrs: attributes.as_mut_ptr(), ..config };
    want!(INVALID_CLUSTER_SIZE, cu.cuOccupancyMaxActiveClusters(&mut found, function, &pairs));
    want!(NOT_SUPPORTED, cu.cuLaunchKernelEx(&pairs, function, ptr::null_mut(), ptr::null_mut()));
    let (none, nothing) = (ptr::null_mut(), ptr::without_provenance_mut(0xDEAD_BEE8));
    want!(INVALID_VALUE, cu.cuOccupancyMaxPotentialClusterSize(none, function, &plain));
    want!(INVALID_VALUE, cu.cuOccupancyMaxActiveClusters(none, function, &plain));
    want!(INVALID_HANDLE, cu.cuOccupancyMaxPotentialClusterSize(&mut found, nothing, &plain));
    want!(INVALID_HANDLE, cu.cuOccupancyMaxActiveClusters(&mut found, nothing, &plain));
    Ok(())
}
