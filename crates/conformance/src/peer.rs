//! Two devices: access to each other's memory, copies between them, work on both.

use super::prelude::*;

cases!("peer", CASES, Needs::TWO_DEVICES;
    can_access, enable_and_disable, enable_twice, disable_before_enable, enable_with_flags, enable_oneself, copy_between_devices, copy_async_between_devices,
    unified_copy_between_devices, pointers_tell_their_device, events_cross_devices, event_of_another_device, stream_of_another_device, memory_is_per_device, ordinals, performance_rank,
    access_attributes, three_dimensions_between_devices, pool_access, set_needs_the_right_context,
);

/// The primary context of the second device. It stays retained, as the first one's does.
fn second(cu: &Cuda<'_>) -> CaseResult<CUcontext> {
    cu.primary(1)
}

/// Runs calls with another context current.
fn within<T>(cu: &Cuda<'_>, context: CUcontext, body: impl FnOnce() -> CaseResult<T>) -> CaseResult<T> {
    ok!(cu.cuCtxPushCurrent_v2(context));
    let result = body();
    let mut popped = ptr::null_mut();
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    result
}

fn alloc_there(cu: &Cuda<'_>, context: CUcontext, bytes: usize, value: u8) -> CaseResult<CUdeviceptr> {
    within(cu, context, || {
        let mut pointer = 0;
        ok!(cu.cuMemAlloc_v2(&mut pointer, bytes));
        ok!(cu.cuMemsetD8_v2(pointer, value, bytes));
        ok!(cu.cuCtxSynchronize());
        Ok(pointer)
    })
}

fn free_there(cu: &Cuda<'_>, context: CUcontext, pointer: CUdeviceptr) -> CaseResult {
    within(cu, context, || {
        ok!(cu.cuMemFree_v2(pointer));
        Ok(())
    })
}

fn can_access(cu: &Cuda<'_>) -> CaseResult {
    for (device, peer) in [(0, 1), (1, 0)] {
        let mut able = 77;
        ok!(cu.cuDeviceCanAccessPeer(&mut able, device, peer));
        same!(cu, able, 1);
    }
    Ok(())
}

fn enable_and_disable(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    ok!(cu.cuCtxEnablePeerAccess(other, 0));
    ok!(cu.cuCtxDisablePeerAccess(other));
    Ok(())
}

fn enable_twice(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    ok!(cu.cuCtxEnablePeerAccess(other, 0));
    want!(PEER_ACCESS_ALREADY_ENABLED, cu.cuCtxEnablePeerAccess(other, 0));
    ok!(cu.cuCtxDisablePeerAccess(other));
    Ok(())
}

fn disable_before_enable(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    want!(PEER_ACCESS_NOT_ENABLED, cu.cuCtxDisablePeerAccess(other));
    Ok(())
}

fn enable_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    want!(INVALID_VALUE, cu.cuCtxEnablePeerAccess(other, 1));
    Ok(())
}

fn enable_oneself(cu: &Cuda<'_>) -> CaseResult {
    want!(PEER_ACCESS_UNSUPPORTED, cu.cuCtxEnablePeerAccess(cu.current()?, 0));
    Ok(())
}

fn copy_between_devices(cu: &Cuda<'_>) -> CaseResult {
    let (here, other) = (cu.current()?, second(cu)?);
    let (near, far) = (cu.counted(3000)?, alloc_there(cu, other, 3000, 0)?);
    ok!(cu.cuMemcpyPeer(far, other, near, here, 3000));
    let back = cu.filled(3000, 0)?;
    ok!(cu.cuMemcpyPeer(back, here, far, other, 3000));
    that!(cu, cu.read(back, 3000)? == count_up(3000));
    free_there(cu, other, far)?;
    Ok(())
}

fn copy_async_between_devices(cu: &Cuda<'_>) -> CaseResult {
    let (here, other, stream) = (cu.current()?, second(cu)?, cu.stream()?);
    let (near, far) = (cu.filled(3000, 0)?, alloc_there(cu, other, 3000, 0x77)?);
    ok!(cu.cuMemcpyPeerAsync(near, here, far, other, 3000, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(near, 3000)?, vec![0x77; 3000]);
    free_there(cu, other, far)?;
    Ok(())
}

fn unified_copy_between_devices(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    let (near, far) = (cu.filled(3000, 0)?, alloc_there(cu, other, 3000, 0x78)?);
    ok!(cu.cuMemcpy(near, far, 3000));
    same!(cu, cu.read(near, 3000)?, vec![0x78; 3000]);
    ok!(cu.cuMemcpyDtoD_v2(near, far, 100));
    free_there(cu, other, far)?;
    Ok(())
}

fn pointers_tell_their_device(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    let (far, mut ordinal) = (alloc_there(cu, other, 3000, 0)?, 77_i32);
    let name = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    ok!(cu.cuPointerGetAttribute((&raw mut ordinal).cast(), name, far));
    same!(cu, ordinal, 1);
    free_there(cu, other, far)?;
    Ok(())
}

fn events_cross_devices(cu: &Cuda<'_>) -> CaseResult {
    let (other, near) = (second(cu)?, cu.stream()?);
    within(cu, other, || {
        let (far, event) = (cu.stream()?, cu.event()?);
        let gate = cu.hold(far)?;
        ok!(cu.cuEventRecord(event, far));
        ok!(cu.cuStreamWaitEvent(near, event, 0));
        want!(NOT_READY, cu.cuStreamQuery(near));
        gate.open();
        want!(SUCCESS, cu.cuStreamSynchronize(near));
        Ok(())
    })?;
    Ok(())
}

fn event_of_another_device(cu: &Cuda<'_>) -> CaseResult {
    let (other, event) = (second(cu)?, cu.event()?);
    within(cu, other, || {
        let far = cu.stream()?;
        want!(INVALID_HANDLE, cu.cuEventRecord(event, far));
        Ok(())
    })?;
    Ok(())
}

fn stream_of_another_device(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    let far = within(cu, other, || cu.stream())?;
    let mut context = ptr::null_mut();
    ok!(cu.cuStreamGetCtx(far, &mut context));
    same!(cu, context, other);
    want!(SUCCESS, cu.cuStreamSynchronize(far));
    Ok(())
}

fn memory_is_per_device(cu: &Cuda<'_>) -> CaseResult {
    let (other, mut before, mut after, mut total) = (second(cu)?, 0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut before, &mut total));
    let far = alloc_there(cu, other, 64 << 20, 0)?;
    ok!(cu.cuMemGetInfo_v2(&mut after, &mut total));
    same!(cu, before, after);
    free_there(cu, other, far)?;
    Ok(())
}

fn ordinals(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    within(cu, other, || {
        let mut device = 77;
        ok!(cu.cuCtxGetDevice(&mut device));
        same!(cu, device, 1);
        Ok(())
    })?;
    Ok(())
}

fn p2p(cu: &Cuda<'_>, attribute: CUdevice_P2PAttribute) -> CaseResult<i32> {
    let mut value = 77;
    ok!(cu.cuDeviceGetP2PAttribute(&mut value, attribute, 0, 1));
    Ok(value)
}

fn performance_rank(cu: &Cuda<'_>) -> CaseResult {
    that!(cu, (0..10).contains(&p2p(cu, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?));
    Ok(())
}

fn access_attributes(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, p2p(cu, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)?, 1);
    same!(cu, p2p(cu, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)?, 1);
    Ok(())
}

fn three_dimensions_between_devices(cu: &Cuda<'_>) -> CaseResult {
    let (here, other) = (cu.current()?, second(cu)?);
    let (near, far) = (cu.filled(64, 0)?, alloc_there(cu, other, 64, 0x31)?);
    let copy = CUDA_MEMCPY3D_PEER {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: far,
        srcContext: other,
        srcPitch: 16,
        srcHeight: 4,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: near,
        dstContext: here,
        dstPitch: 8,
        dstHeight: 4,
        WidthInBytes: 8,
        Height: 4,
        Depth: 1,
        ..CUDA_MEMCPY3D_PEER::zeroed()
    };
    ok!(cu.cuMemcpy3DPeer(&copy));
    same!(cu, cu.read(near, 34)?, [vec![0x31; 32], vec![0; 2]].concat());
    free_there(cu, other, far)?;
    Ok(())
}

fn pool_access(cu: &Cuda<'_>) -> CaseResult {
    let (mut pool, mut flags) = (ptr::null_mut(), CUmemAccess_flags(77));
    ok!(cu.cuDeviceGetDefaultMemPool(&mut pool, 0));
    let mut place = super::vmm::location(1);
    ok!(cu.cuMemPoolGetAccess(&mut flags, pool, &mut place));
    same!(cu, flags.0, 0);
    for wanted in [3, 0] {
        ok!(cu.cuMemPoolSetAccess(pool, &super::vmm::access(1, CUmemAccess_flags(wanted)), 1));
        ok!(cu.cuMemPoolGetAccess(&mut flags, pool, &mut place));
        same!(cu, flags.0, wanted);
    }
    Ok(())
}

fn set_needs_the_right_context(cu: &Cuda<'_>) -> CaseResult {
    let other = second(cu)?;
    let far = alloc_there(cu, other, 4096, 1)?;
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(far, 2, 4096));
    free_there(cu, other, far)?;
    Ok(())
}
