//! Device memory: allocation, sizes, ranges.

use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE, NOT_FOUND};

/// Distance of rows that hardware likes.
const PITCH_ALIGNMENT: usize = 512;

pub(crate) fn alloc(call: &mut Call<'_>, pointer: Ptr<u64>, bytes: usize) -> Answer {
    call.refuse_if_unsafe()?;
    pointer.write(0)?;
    let base = allocate(call, bytes)?;
    pointer.write(base)
}

fn allocate(call: &mut Call<'_>, bytes: usize) -> Answer<u64> {
    let (context, device) = (call.need_context()?, call.current_device()?);
    call.memory.allocate(device, context, bytes as u64)
}

pub(crate) fn alloc_pitch(
    call: &mut Call<'_>,
    pointer: Ptr<u64>,
    pitch: Ptr<usize>,
    width: usize,
    height: usize,
    element_size: u32,
) -> Answer {
    call.refuse_if_unsafe()?;
    pointer.required()?;
    pitch.required()?;
    if !matches!(element_size, 4 | 8 | 16) || width == 0 || height == 0 {
        return Err(INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH_ALIGNMENT).ok_or(INVALID_VALUE)?;
    let base = allocate(call, row.checked_mul(height).ok_or(INVALID_VALUE)?)?;
    pointer.write(base)?;
    pitch.write(row)
}

pub(crate) fn free(call: &mut Call<'_>, pointer: u64) -> Answer {
    if pointer == 0 {
        return Ok(());
    }
    call.refuse_if_unsafe()?;
    if let Some((base, pinned, _)) = call.memory.managed_at(pointer) {
        let (context, length) = (pinned.context, pinned.length);
        return free_managed(call, pointer, base, context, length);
    }
    let owner = call
        .memory
        .allocation_at(pointer)
        .map(|found| (found.base, found.context, found.pool.is_some() || found.graph));
    let (base, context, pooled) = owner.ok_or(INVALID_VALUE)?;
    if call.memory.is_imported(base) {
        return Err(INVALID_VALUE);
    }
    if pooled {
        // Belongs to no context, and is freed without waiting for anything.
        return if base == pointer { call.free_memory(base) } else { Err(INVALID_VALUE) };
    }
    call.usable_context(context)?;
    if base != pointer {
        return Err(INVALID_VALUE);
    }
    // The driver waits for the device here, so work that is queued still finds its memory.
    call.finish_context(context)?;
    call.finish_users(base);
    call.free_memory(base)
}

fn free_managed(call: &mut Call<'_>, pointer: u64, base: u64, context: u64, length: u64) -> Answer {
    call.usable_context(context)?;
    if base != pointer {
        return Err(INVALID_VALUE);
    }
    call.finish_context(context)?;
    call.wait_until(|state| !state.work_touches(base, length));
    call.memory.free_managed(base)
}

pub(crate) fn info(call: &mut Call<'_>, free: Ptr<usize>, total: Ptr<usize>) -> Answer {
    let (free_bytes, total_bytes) = call.memory.info(call.current_device()?);
    free.write_if_wanted(usize::try_from(free_bytes).unwrap_or(usize::MAX));
    total.write_if_wanted(usize::try_from(total_bytes).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) fn address_range(call: &mut Call<'_>, base: Ptr<u64>, size: Ptr<usize>, pointer: u64) -> Answer {
    if base.is_null() && size.is_null() {
        return Ok(());
    }
    call.need_init()?;
    let (start, length) = call.known_range(pointer).ok_or(NOT_FOUND)?;
    base.write_if_wanted(start);
    size.write_if_wanted(usize::try_from(length).unwrap_or(usize::MAX));
    Ok(())
}
