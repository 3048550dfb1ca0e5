//! Sets of device memory: three element sizes, one and two dimensions, now and later.

use super::prelude::*;

cases!("set", CASES, Needs::CONTEXT;
    bytes, shorts, words, rows_of_bytes, rows_of_shorts, rows_of_words, async_bytes, async_shorts, async_words,
    async_rows_of_bytes, async_rows_of_shorts, async_rows_of_words, misaligned_shorts, misaligned_words,
    misaligned_rows, nothing, null_is_refused, ordinary_memory_is_refused, beyond_the_allocation, pitch_too_small,
    one_row_ignores_the_pitch, rows_of_nothing, pinned_memory, inside_an_allocation, freed_memory, rows_beyond,
    large, in_order_with_copies, on_default_streams,
);

fn bytes(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.counted(20)?;
    ok!(cu.cuMemsetD8_v2(device + 3, 0xAB, 5));
    let mut want = count_up(20);
    want[3..8].fill(0xAB);
    same!(cu, cu.read(device, 20)?, want);
    Ok(())
}

fn shorts(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(12, 0)?;
    ok!(cu.cuMemsetD16_v2(device + 2, 0x1234, 3));
    same!(cu, cu.read(device, 12)?, vec![0, 0, 0x34, 0x12, 0x34, 0x12, 0x34, 0x12, 0, 0, 0, 0]);
    Ok(())
}

fn words(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(16, 0)?;
    ok!(cu.cuMemsetD32_v2(device + 4, 0x1234_5678, 2));
    same!(cu, cu.read(device, 16)?, vec![0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0]);
    Ok(())
}

/// What three rows 16 bytes apart hold when the first six bytes of each were set to a repeated pattern.
fn three_rows(pattern: &[u8]) -> Vec<u8> {
    let row: Vec<u8> = pattern.iter().copied().cycle().take(8).chain([0; 8]).collect();
    row.repeat(3)
}

fn rows_of_bytes(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(48, 0)?;
    ok!(cu.cuMemsetD2D8_v2(device, 16, 0xCD, 8, 3));
    same!(cu, cu.read(device, 48)?, three_rows(&[0xCD]));
    Ok(())
}

fn rows_of_shorts(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(48, 0)?;
    ok!(cu.cuMemsetD2D16_v2(device, 16, 0x0201, 4, 3));
    same!(cu, cu.read(device, 48)?, three_rows(&[1, 2]));
    Ok(())
}

fn rows_of_words(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(48, 0)?;
    ok!(cu.cuMemsetD2D32_v2(device, 16, 0x0403_0201, 2, 3));
    same!(cu, cu.read(device, 48)?, three_rows(&[1, 2, 3, 4]));
    Ok(())
}

fn async_bytes(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(64, 0)?);
    ok!(cu.cuMemsetD8Async(device, 7, 64, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 64)?, vec![7; 64]);
    Ok(())
}

fn async_shorts(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(64, 0)?);
    ok!(cu.cuMemsetD16Async(device, 0x0101, 32, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 64)?, vec![1; 64]);
    Ok(())
}

fn async_words(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(64, 0)?);
    ok!(cu.cuMemsetD32Async(device, 0x0202_0202, 16, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 64)?, vec![2; 64]);
    Ok(())
}

fn async_rows_of_bytes(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(48, 0)?);
    ok!(cu.cuMemsetD2D8Async(device, 16, 0xCD, 8, 3, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 48)?, three_rows(&[0xCD]));
    Ok(())
}

fn async_rows_of_shorts(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(48, 0)?);
    ok!(cu.cuMemsetD2D16Async(device, 16, 0x0201, 4, 3, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 48)?, three_rows(&[1, 2]));
    Ok(())
}

fn async_rows_of_words(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(48, 0)?);
    ok!(cu.cuMemsetD2D32Async(device, 16, 0x0403_0201, 2, 3, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 48)?, three_rows(&[1, 2, 3, 4]));
    Ok(())
}

fn misaligned_shorts(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(64, 0)?);
    want!(INVALID_VALUE, cu.cuMemsetD16_v2(device + 1, 1, 4));
    want!(INVALID_VALUE, cu.cuMemsetD16Async(device + 1, 1, 4, stream));
    Ok(())
}

fn misaligned_words(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(64, 0)?);
    want!(INVALID_VALUE, cu.cuMemsetD32_v2(device + 2, 1, 4));
    want!(INVALID_VALUE, cu.cuMemsetD32Async(device + 1, 1, 4, stream));
    Ok(())
}

fn misaligned_rows(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(256, 0)?);
    want!(INVALID_VALUE, cu.cuMemsetD2D16_v2(device + 1, 16, 1, 4, 3));
    want!(INVALID_VALUE, cu.cuMemsetD2D16_v2(device, 17, 1, 4, 3));
    want!(INVALID_VALUE, cu.cuMemsetD2D32_v2(device + 2, 16, 1, 2, 3));
    want!(INVALID_VALUE, cu.cuMemsetD2D32_v2(device, 18, 1, 2, 3));
    want!(INVALID_VALUE, cu.cuMemsetD2D16Async(device, 17, 1, 4, 3, stream));
    want!(INVALID_VALUE, cu.cuMemsetD2D32Async(device, 18, 1, 2, 3, stream));
    want!(SUCCESS, cu.cuMemsetD2D8_v2(device + 1, 17, 1, 4, 3));
    Ok(())
}

fn nothing(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(64, 6)?;
    want!(SUCCESS, cu.cuMemsetD8_v2(device, 1, 0));
    want!(SUCCESS, cu.cuMemsetD32_v2(0x1001, 1, 0));
    same!(cu, cu.read(device, 64)?, vec![6; 64]);
    Ok(())
}

fn null_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(0, 1, 4));
    want!(INVALID_VALUE, cu.cuMemsetD16_v2(0, 1, 4));
    want!(INVALID_VALUE, cu.cuMemsetD32_v2(0, 1, 4));
    want!(INVALID_VALUE, cu.cuMemsetD2D8_v2(0, 16, 1, 4, 2));
    want!(INVALID_VALUE, cu.cuMemsetD8Async(0, 1, 4, stream));
    want!(INVALID_VALUE, cu.cuMemsetD2D8Async(0, 16, 1, 4, 2, stream));
    Ok(())
}

fn ordinary_memory_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let host = [0_u64; 8];
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(address(host.as_ptr()), 1, 64));
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(0x1000, 1, 64));
    Ok(())
}

fn beyond_the_allocation(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(4 << 20, 0)?);
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(device + (2 << 20), 1, 4 << 20));
    want!(INVALID_VALUE, cu.cuMemsetD32Async(device, 1, (4 << 20) + 1, stream));
    Ok(())
}

fn pitch_too_small(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(256, 0)?);
    want!(INVALID_VALUE, cu.cuMemsetD2D8_v2(device, 7, 1, 8, 3));
    want!(INVALID_VALUE, cu.cuMemsetD2D8Async(device, 7, 1, 8, 3, stream));
    want!(INVALID_VALUE, cu.cuMemsetD2D32_v2(device, 4, 1, 2, 3));
    Ok(())
}

fn one_row_ignores_the_pitch(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(64, 0)?;
    want!(SUCCESS, cu.cuMemsetD2D8_v2(device, 0, 5, 8, 1));
    same!(cu, cu.read(device, 10)?, vec![5, 5, 5, 5, 5, 5, 5, 5, 0, 0]);
    Ok(())
}

fn rows_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(64, 6)?;
    want!(SUCCESS, cu.cuMemsetD2D8_v2(device, 16, 1, 0, 3));
    want!(SUCCESS, cu.cuMemsetD2D8_v2(device, 16, 1, 8, 0));
    same!(cu, cu.read(device, 64)?, vec![6; 64]);
    Ok(())
}

fn pinned_memory(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(64)?;
    ok!(cu.cuMemsetD8_v2(pinned.device(), 0x17, 64));
    ok!(cu.cuCtxSynchronize());
    same!(cu, pinned.read(), vec![0x17; 64]);
    Ok(())
}

fn inside_an_allocation(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(3 << 20, 0)?;
    let offset = (1 << 20) + 13;
    ok!(cu.cuMemsetD8_v2(device + offset, 0x55, 100));
    let got = cu.read(device + offset - 1, 102)?;
    same!(cu, (got[0], got[1], got[100], got[101]), (0, 0x55, 0x55, 0));
    Ok(())
}

fn freed_memory(cu: &Cuda<'_>) -> CaseResult {
    let mut device = 0;
    ok!(cu.cuMemAlloc_v2(&mut device, 64 << 20));
    ok!(cu.cuMemFree_v2(device));
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(device, 1, 64));
    Ok(())
}

fn rows_beyond(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(4 << 20, 0)?;
    want!(INVALID_VALUE, cu.cuMemsetD2D8_v2(device, 1 << 20, 1, 1 << 20, 9));
    want!(SUCCESS, cu.cuMemsetD2D8_v2(device, 1 << 20, 1, 1 << 20, 4));
    Ok(())
}

fn large(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.alloc((16 << 20) + 3)?;
    ok!(cu.cuMemsetD8_v2(device, 0x3C, (16 << 20) + 3));
    that!(cu, cu.read(device, (16 << 20) + 3)?.iter().all(|&byte| byte == 0x3C));
    Ok(())
}

fn in_order_with_copies(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (first, second) = (cu.filled(2000, 0)?, cu.filled(2000, 0)?);
    for value in 1..20 {
        ok!(cu.cuMemsetD8Async(first, value, 2000, stream));
        ok!(cu.cuMemcpyDtoDAsync_v2(second, first, 2000, stream));
    }
    ok!(cu.cuMemsetD8Async(first, 99, 2000, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(second, 2000)?, vec![19; 2000]);
    Ok(())
}

fn on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(64, 0)?;
    for (value, stream) in [(1, DEFAULT), (2, LEGACY), (3, PER_THREAD)] {
        ok!(cu.cuMemsetD8Async(device, value, 64, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu, cu.read(device, 64)?, vec![value; 64]);
    }
    Ok(())
}
