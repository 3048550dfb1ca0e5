//! Copies of every kind: between host and device, in one and more dimensions, now and later.

use super::prelude::*;

cases!("copy", CASES, Needs::CONTEXT;
    to_device_and_back, within_the_device, unified_in_all_directions, between_host_buffers, zero_bytes_with_bad_pointers,
    to_null_is_refused, beyond_the_allocation_is_refused, to_freed_memory_is_refused, host_where_device_is_meant,
    device_where_host_is_meant, odd_sizes_and_offsets, overlapping_ranges_are_accepted, large_copy,
    async_is_in_stream_order, async_to_device_and_back, async_unified, async_reads_pinned_memory_when_it_runs,
    async_copies_pageable_memory_at_once, async_refuses_bad_pointers, async_on_default_streams,
    async_zero_bytes, synchronous_copy_follows_default_stream, peer_on_one_device, peer_with_null_contexts, peer_async_on_one_device,
    pinned_to_pinned, two_dimensions, two_dimensions_with_offsets, two_dimensions_unaligned,
    two_dimensions_async, two_dimensions_unified, two_dimensions_between_hosts, two_dimensions_of_nothing,
    two_dimensions_pitch_too_small, two_dimensions_pitch_zero, two_dimensions_unknown_type, two_dimensions_array_missing,
    two_dimensions_null_addresses, two_dimensions_huge_pitch, two_dimensions_beyond_the_allocation,
    three_dimensions, three_dimensions_async, three_dimensions_height_too_small, three_dimensions_of_nothing,
    three_dimensions_unknown_type, three_dimensions_peer, three_dimensions_peer_async,
    three_dimensions_ignores_reserved_fields,
);

const HOST: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_HOST;
const DEVICE: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_DEVICE;
const ARRAY: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_ARRAY;
const UNIFIED: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_UNIFIED;

fn to_device_and_back(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.alloc(1000)?;
    let sent = count_up(1000);
    let mut back = vec![0; 1000];
    ok!(cu.cuMemcpyHtoD_v2(device, sent.as_ptr().cast(), 1000));
    ok!(cu.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), device, 1000));
    that!(cu, back == sent);
    Ok(())
}

fn within_the_device(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(3000)?, cu.filled(3000, 0)?);
    ok!(cu.cuMemcpyDtoD_v2(to, from, 3000));
    that!(cu, cu.read(to, 3000)? == count_up(3000));
    Ok(())
}

fn unified_in_all_directions(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.filled(256, 0)?, cu.filled(256, 0)?);
    let sent = count_up(256);
    let back = [0_u8; 256];
    ok!(cu.cuMemcpy(first, address(sent.as_ptr()), 256));
    ok!(cu.cuMemcpy(second, first, 256));
    ok!(cu.cuMemcpy(address(back.as_ptr()), second, 256));
    that!(cu, cu.read(second, 256)? == sent);
    // SAFETY: the array is alive; volatile, since the driver wrote to it behind the compiler's back.
    let back = unsafe { (&raw const back).read_volatile() };
    that!(cu, back.to_vec() == sent);
    Ok(())
}

fn between_host_buffers(cu: &Cuda<'_>) -> CaseResult {
    let sent = count_up(300);
    let mut got = vec![0_u8; 300];
    ok!(cu.cuMemcpy(address(got.as_mut_ptr()), address(sent.as_ptr()), 300));
    that!(cu, got == sent);
    Ok(())
}

fn zero_bytes_with_bad_pointers(cu: &Cuda<'_>) -> CaseResult {
    want!(SUCCESS, cu.cuMemcpyDtoD_v2(0x1000, 0x2000, 0));
    want!(SUCCESS, cu.cuMemcpyHtoD_v2(0x1000, ptr::null(), 0));
    want!(SUCCESS, cu.cuMemcpyDtoH_v2(ptr::null_mut(), 0x1000, 0));
    want!(SUCCESS, cu.cuMemcpy(0x1000, 0x2000, 0));
    Ok(())
}

fn to_null_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.alloc(64)?;
    let host = [0_u8; 64];
    want!(INVALID_VALUE, cu.cuMemcpyHtoD_v2(0, host.as_ptr().cast(), 64));
    want!(INVALID_VALUE, cu.cuMemcpyHtoD_v2(device, ptr::null(), 64));
    want!(INVALID_VALUE, cu.cuMemcpyDtoH_v2(ptr::null_mut(), device, 64));
    want!(INVALID_VALUE, cu.cuMemcpyDtoD_v2(0, device, 64));
    want!(INVALID_VALUE, cu.cuMemcpyDtoD_v2(device, 0, 64));
    want!(INVALID_VALUE, cu.cuMemcpy(0, device, 64));
    want!(INVALID_VALUE, cu.cuMemcpy(device, 0, 64));
    Ok(())
}

fn beyond_the_allocation_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(4 << 20, 0)?;
    let mut host = vec![0_u8; 8 << 20];
    want!(INVALID_VALUE, cu.cuMemcpyHtoD_v2(device + (2 << 20), host.as_ptr().cast(), 4 << 20));
    want!(INVALID_VALUE, cu.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), device + (2 << 20), 4 << 20));
    want!(INVALID_VALUE, cu.cuMemcpyDtoD_v2(device, device + 1, 4 << 20));
    Ok(())
}

fn to_freed_memory_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut device = 0;
    ok!(cu.cuMemAlloc_v2(&mut device, 64 << 20));
    ok!(cu.cuMemFree_v2(device));
    let mut host = [0_u8; 64];
    want!(INVALID_VALUE, cu.cuMemcpyHtoD_v2(device, host.as_ptr().cast(), 64));
    want!(INVALID_VALUE, cu.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), device, 64));
    want!(INVALID_VALUE, cu.cuMemcpyDtoD_v2(device, device + 1000, 64));
    Ok(())
}

fn host_where_device_is_meant(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.alloc(64)?;
    let mut host = [0_u8; 64];
    let place = address(host.as_mut_ptr());
    want!(INVALID_VALUE, cu.cuMemcpyDtoD_v2(place, device, 64));
    want!(INVALID_VALUE, cu.cuMemcpyDtoD_v2(device, place, 64));
    want!(INVALID_VALUE, cu.cuMemcpyHtoD_v2(place, host.as_ptr().cast(), 64));
    Ok(())
}

fn device_where_host_is_meant(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.filled(64, 5)?, cu.filled(64, 0)?);
    let as_host = ptr::without_provenance_mut::<c_void>(usize::try_from(from).unwrap_or(0));
    want!(SUCCESS, cu.cuMemcpyHtoD_v2(to, as_host.cast_const(), 64));
    same!(cu, cu.read(to, 64)?, vec![5; 64]);
    Ok(())
}

fn odd_sizes_and_offsets(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(300)?, cu.filled(300, 0xFF)?);
    ok!(cu.cuMemcpyDtoD_v2(to + 3, from + 1, 7));
    ok!(cu.cuMemcpyDtoD_v2(to + 201, from + 99, 33));
    let got = cu.read(to, 300)?;
    same!(cu, got[..12].to_vec(), vec![255, 255, 255, 1, 2, 3, 4, 5, 6, 7, 255, 255]);
    same!(cu, got[201..234].to_vec(), (99..132).collect::<Vec<u8>>());
    Ok(())
}

fn overlapping_ranges_are_accepted(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(1000, 4)?;
    want!(SUCCESS, cu.cuMemcpyDtoD_v2(device + 10, device, 500));
    want!(SUCCESS, cu.cuMemcpyDtoD_v2(device, device, 1000));
    same!(cu, cu.read(device, 1000)?, vec![4; 1000]);
    Ok(())
}

fn large_copy(cu: &Cuda<'_>) -> CaseResult {
    let bytes = (24 << 20) + 5;
    let (from, to) = (cu.counted(bytes)?, cu.filled(bytes, 0)?);
    ok!(cu.cuMemcpyDtoD_v2(to, from, bytes));
    that!(cu, cu.read(to, bytes)? == count_up(bytes));
    Ok(())
}

fn async_is_in_stream_order(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (first, second) = (cu.filled(4096, 1)?, cu.filled(4096, 2)?);
    let gate = cu.hold(stream)?;
    ok!(cu.cuMemsetD8Async(first, 9, 4096, stream));
    ok!(cu.cuMemcpyDtoDAsync_v2(second, first, 4096, stream));
    ok!(cu.cuMemsetD8Async(first, 1, 4096, stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(second, 4096)?, vec![9; 4096]);
    same!(cu, cu.read(first, 4096)?, vec![1; 4096]);
    Ok(())
}

fn async_to_device_and_back(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let device = cu.filled(5000, 0)?;
    let (sent, got) = (cu.pinned(5000)?, cu.pinned(5000)?);
    sent.fill(0x21);
    ok!(cu.cuMemcpyHtoDAsync_v2(device, sent.host(), 5000, stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(got.host(), device, 5000, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, got.read(), vec![0x21; 5000]);
    Ok(())
}

fn async_unified(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let device = cu.filled(5000, 0)?;
    let (sent, got) = (cu.pinned(5000)?, cu.pinned(5000)?);
    sent.fill(0x22);
    ok!(cu.cuMemcpyAsync(device, sent.device(), 5000, stream));
    ok!(cu.cuMemcpyAsync(got.device(), device, 5000, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, got.read(), vec![0x22; 5000]);
    Ok(())
}

fn async_reads_pinned_memory_when_it_runs(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let device = cu.filled(5000, 0)?;
    let sent = cu.pinned(5000)?;
    sent.fill(1);
    let gate = cu.hold(stream)?;
    ok!(cu.cuMemcpyHtoDAsync_v2(device, sent.host(), 5000, stream));
    sent.fill(2);
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 5000)?, vec![2; 5000]);
    Ok(())
}

fn async_copies_pageable_memory_at_once(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let device = cu.filled(5000, 0)?;
    let mut sent = vec![1_u8; 5000];
    let gate = cu.hold(stream)?;
    ok!(cu.cuMemcpyHtoDAsync_v2(device, sent.as_ptr().cast(), 5000, stream));
    sent.fill(2);
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 5000)?, vec![1; 5000]);
    Ok(())
}

fn async_refuses_bad_pointers(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let device = cu.alloc(64)?;
    let host = [0_u8; 64];
    want!(INVALID_VALUE, cu.cuMemcpyHtoDAsync_v2(0, host.as_ptr().cast(), 64, stream));
    want!(INVALID_VALUE, cu.cuMemcpyHtoDAsync_v2(device, ptr::null(), 64, stream));
    want!(INVALID_VALUE, cu.cuMemcpyDtoHAsync_v2(ptr::null_mut(), device, 64, stream));
    want!(INVALID_VALUE, cu.cuMemcpyDtoDAsync_v2(0x1000, device, 64, stream));
    want!(INVALID_VALUE, cu.cuMemcpyAsync(0, device, 64, stream));
    Ok(())
}

fn async_on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.filled(700, 3)?, cu.filled(700, 0)?);
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        ok!(cu.cuMemsetD8Async(to, 0, 700, stream));
        ok!(cu.cuMemcpyDtoDAsync_v2(to, from, 700, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu, cu.read(to, 700)?, vec![3; 700]);
    }
    Ok(())
}

fn async_zero_bytes(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(SUCCESS, cu.cuMemcpyAsync(0x1000, 0x2000, 0, stream));
    want!(SUCCESS, cu.cuMemcpyHtoDAsync_v2(0, ptr::null(), 0, stream));
    want!(SUCCESS, cu.cuMemcpyDtoHAsync_v2(ptr::null_mut(), 0, 0, stream));
    want!(SUCCESS, cu.cuMemcpyDtoDAsync_v2(0, 0, 0, stream));
    Ok(())
}

fn synchronous_copy_follows_default_stream(cu: &Cuda<'_>) -> CaseResult {
    let blocking = cu.stream_with(0)?;
    let device = cu.filled(1 << 20, 0)?;
    ok!(cu.cuMemsetD8Async(device, 8, 1 << 20, blocking));
    let mut host = vec![0_u8; 1 << 20];
    ok!(cu.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), device, 1 << 20));
    that!(cu, host.iter().all(|&byte| byte == 8));
    Ok(())
}

fn peer_on_one_device(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(900)?, cu.filled(900, 0)?);
    let context = cu.current()?;
    ok!(cu.cuMemcpyPeer(to, context, from, context, 900));
    that!(cu, cu.read(to, 900)? == count_up(900));
    Ok(())
}

fn peer_with_null_contexts(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(900)?, cu.filled(900, 0)?);
    let (context, none) = (cu.current()?, ptr::null_mut());
    want!(SUCCESS, cu.cuMemcpyPeer(to, none, from, context, 450));
    want!(SUCCESS, cu.cuMemcpyPeer(to + 450, context, from + 450, none, 450));
    that!(cu, cu.read(to, 900)? == count_up(900));
    Ok(())
}

fn peer_async_on_one_device(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(900)?, cu.filled(900, 0)?);
    let (context, stream) = (cu.current()?, cu.stream()?);
    ok!(cu.cuMemcpyPeerAsync(to, context, from, context, 900, stream));
    ok!(cu.cuStreamSynchronize(stream));
    that!(cu, cu.read(to, 900)? == count_up(900));
    want!(INVALID_VALUE, cu.cuMemcpyPeerAsync(0x1000, context, from, context, 900, stream));
    want!(INVALID_VALUE, cu.cuMemcpyPeer(0x1000, context, from, context, 900));
    Ok(())
}

fn pinned_to_pinned(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.pinned(300)?, cu.pinned(300)?);
    from.fill(0x61);
    ok!(cu.cuMemcpy(to.device(), from.device(), 300));
    same!(cu, to.read(), vec![0x61; 300]);
    Ok(())
}

/// 4 rows of 10 bytes between device buffers, 32 bytes apart in the source and 16 in the target.
fn rows(to: CUdeviceptr, from: CUdeviceptr) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: DEVICE,
        srcDevice: from,
        srcPitch: 32,
        dstMemoryType: DEVICE,
        dstDevice: to,
        dstPitch: 16,
        WidthInBytes: 10,
        Height: 4,
        ..CUDA_MEMCPY2D::zeroed()
    }
}

/// What `rows` leaves in a target of 64 bytes 0xFF, when it took from `first` on.
fn rows_result(first: u8) -> Vec<u8> {
    let mut want = vec![0xFF; 64];
    for row in 0..4_u8 {
        for column in 0..10_u8 {
            want[usize::from(row) * 16 + usize::from(column)] = first + row * 32 + column;
        }
    }
    want
}

fn two_dimensions(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    ok!(cu.cuMemcpy2D_v2(&rows(to, from)));
    same!(cu, cu.read(to, 64)?, rows_result(0));
    Ok(())
}

fn two_dimensions_with_offsets(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(112, 0xFF)?);
    let copy = CUDA_MEMCPY2D { srcXInBytes: 5, srcY: 2, dstXInBytes: 3, dstY: 1, ..rows(to, from) };
    ok!(cu.cuMemcpy2D_v2(&copy));
    let got = cu.read(to, 112)?;
    same!(cu, got[19..19 + 61].to_vec(), rows_result(69)[..61].to_vec());
    Ok(())
}

fn two_dimensions_unaligned(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    ok!(cu.cuMemcpy2DUnaligned_v2(&rows(to, from)));
    same!(cu, cu.read(to, 64)?, rows_result(0));
    Ok(())
}

fn two_dimensions_async(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    ok!(cu.cuMemcpy2DAsync_v2(&rows(to, from), stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(to, 64)?, rows_result(0));
    Ok(())
}

fn two_dimensions_unified(cu: &Cuda<'_>) -> CaseResult {
    let to = cu.filled(64, 0xFF)?;
    let host = count_up(256);
    let copy = CUDA_MEMCPY2D { srcMemoryType: UNIFIED, dstMemoryType: UNIFIED, ..rows(to, address(host.as_ptr())) };
    ok!(cu.cuMemcpy2D_v2(&copy));
    same!(cu, cu.read(to, 64)?, rows_result(0));
    Ok(())
}

fn two_dimensions_between_hosts(cu: &Cuda<'_>) -> CaseResult {
    let (from, mut to) = (count_up(256), vec![0xFF_u8; 64]);
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: HOST,
        srcHost: from.as_ptr().cast(),
        dstMemoryType: HOST,
        dstHost: to.as_mut_ptr().cast(),
        ..rows(0, 0)
    };
    ok!(cu.cuMemcpy2D_v2(&copy));
    same!(cu, to, rows_result(0));
    Ok(())
}

fn two_dimensions_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    want!(SUCCESS, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { Height: 0, ..rows(to, from) }));
    want!(SUCCESS, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { WidthInBytes: 0, ..rows(to, from) }));
    want!(SUCCESS, cu.cuMemcpy2DAsync_v2(&CUDA_MEMCPY2D { Height: 0, ..rows(to, from) }, stream));
    same!(cu, cu.read(to, 64)?, vec![0xFF; 64]);
    Ok(())
}

fn two_dimensions_pitch_too_small(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcPitch: 9, ..rows(to, from) }));
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { dstPitch: 9, ..rows(to, from) }));
    want!(INVALID_VALUE, cu.cuMemcpy2DUnaligned_v2(&CUDA_MEMCPY2D { dstPitch: 9, ..rows(to, from) }));
    want!(INVALID_VALUE, cu.cuMemcpy2DAsync_v2(&CUDA_MEMCPY2D { dstPitch: 9, ..rows(to, from) }, stream));
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcXInBytes: 23, ..rows(to, from) }));
    Ok(())
}

fn two_dimensions_pitch_zero(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    want!(SUCCESS, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcPitch: 0, dstPitch: 0, Height: 1, ..rows(to, from) }));
    same!(cu, cu.read(to, 12)?, vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xFF, 0xFF]);
    Ok(())
}

fn two_dimensions_unknown_type(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    for kind in [0, 5, 77] {
        want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcMemoryType: CUmemorytype(kind), ..rows(to, from) }));
        want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { dstMemoryType: CUmemorytype(kind), ..rows(to, from) }));
    }
    Ok(())
}

fn two_dimensions_array_missing(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcMemoryType: ARRAY, ..rows(to, from) }));
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { dstMemoryType: ARRAY, ..rows(to, from) }));
    Ok(())
}

fn two_dimensions_null_addresses(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&rows(0, from)));
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&rows(to, 0)));
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcMemoryType: HOST, ..rows(to, from) }));
    Ok(())
}

fn two_dimensions_huge_pitch(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(64, 0xFF)?);
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcPitch: 1 << 31, Height: 2, ..rows(to, from) }));
    Ok(())
}

fn two_dimensions_beyond_the_allocation(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.filled(4 << 20, 0)?, cu.filled(4 << 20, 0)?);
    let copy = CUDA_MEMCPY2D { srcPitch: 1 << 20, dstPitch: 1 << 20, WidthInBytes: 1 << 20, ..rows(to, from) };
    want!(SUCCESS, cu.cuMemcpy2D_v2(&copy));
    want!(INVALID_VALUE, cu.cuMemcpy2D_v2(&CUDA_MEMCPY2D { Height: 9, ..copy }));
    Ok(())
}

/// 2 slices of 3 rows of 4 bytes: rows 8 bytes and slices 4 rows apart in the source, 5 bytes and 3 rows in the target.
fn slices(to: CUdeviceptr, from: CUdeviceptr) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcPitch: 8,
        srcHeight: 4,
        dstPitch: 5,
        dstHeight: 3,
        Height: 3,
        Depth: 2,
        ..line_copy(to, from, 4)
    }
}

/// What `slices` leaves in a target of 30 bytes 0xFF.
fn slices_result() -> Vec<u8> {
    let mut want = vec![0xFF; 30];
    for slice in 0..2_u8 {
        for row in 0..3_u8 {
            for column in 0..4_u8 {
                want[usize::from(slice * 15 + row * 5 + column)] = slice * 32 + row * 8 + column;
            }
        }
    }
    want
}

fn three_dimensions(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    ok!(cu.cuMemcpy3D_v2(&slices(to, from)));
    same!(cu, cu.read(to, 30)?, slices_result());
    Ok(())
}

fn three_dimensions_async(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    ok!(cu.cuMemcpy3DAsync_v2(&slices(to, from), stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(to, 30)?, slices_result());
    Ok(())
}

fn three_dimensions_height_too_small(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    want!(INVALID_VALUE, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { srcHeight: 2, ..slices(to, from) }));
    want!(INVALID_VALUE, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { dstPitch: 3, ..slices(to, from) }));
    want!(INVALID_VALUE, cu.cuMemcpy3DAsync_v2(&CUDA_MEMCPY3D { dstPitch: 3, ..slices(to, from) }, stream));
    Ok(())
}

fn three_dimensions_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    want!(SUCCESS, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { Depth: 0, ..slices(to, from) }));
    want!(SUCCESS, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { Height: 0, ..slices(to, from) }));
    want!(SUCCESS, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { WidthInBytes: 0, ..slices(to, from) }));
    same!(cu, cu.read(to, 30)?, vec![0xFF; 30]);
    Ok(())
}

fn three_dimensions_unknown_type(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    want!(INVALID_VALUE, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { srcMemoryType: CUmemorytype(9), ..slices(to, from) }));
    want!(INVALID_VALUE, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { dstMemoryType: ARRAY, ..slices(to, from) }));
    Ok(())
}

fn three_dimensions_ignores_reserved_fields(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    let reserved0 = ptr::without_provenance_mut(8);
    want!(SUCCESS, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { reserved0, ..slices(to, from) }));
    want!(SUCCESS, cu.cuMemcpy3D_v2(&CUDA_MEMCPY3D { srcLOD: 1, ..slices(to, from) }));
    Ok(())
}

fn peer_slices(cu: &Cuda<'_>, to: CUdeviceptr, from: CUdeviceptr) -> CaseResult<CUDA_MEMCPY3D_PEER> {
    let plain = slices(to, from);
    let context = cu.current()?;
    Ok(CUDA_MEMCPY3D_PEER {
        srcMemoryType: DEVICE,
        srcDevice: from,
        srcContext: context,
        srcPitch: plain.srcPitch,
        srcHeight: plain.srcHeight,
        dstMemoryType: DEVICE,
        dstDevice: to,
        dstContext: context,
        dstPitch: plain.dstPitch,
        dstHeight: plain.dstHeight,
        WidthInBytes: plain.WidthInBytes,
        Height: plain.Height,
        Depth: plain.Depth,
        ..CUDA_MEMCPY3D_PEER::zeroed()
    })
}

fn three_dimensions_peer(cu: &Cuda<'_>) -> CaseResult {
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    let copy = peer_slices(cu, to, from)?;
    ok!(cu.cuMemcpy3DPeer(&copy));
    same!(cu, cu.read(to, 30)?, slices_result());
    want!(INVALID_VALUE, cu.cuMemcpy3DPeer(&CUDA_MEMCPY3D_PEER { dstPitch: 3, ..copy }));
    Ok(())
}

fn three_dimensions_peer_async(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (from, to) = (cu.counted(256)?, cu.filled(30, 0xFF)?);
    let copy = peer_slices(cu, to, from)?;
    ok!(cu.cuMemcpy3DPeerAsync(&copy, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(to, 30)?, slices_result());
    want!(INVALID_VALUE, cu.cuMemcpy3DPeerAsync(&CUDA_MEMCPY3D_PEER { dstPitch: 3, ..copy }, stream));
    Ok(())
}
