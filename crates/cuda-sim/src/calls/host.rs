//! Pinned host memory.

use std::ffi::c_void;

use crate::call::Call;
use crate::claim::{Ptr, host_pointer};
use crate::codes::{Answer, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE};
use crate::model::memory::DEVICE_MAP;
use crate::report::ReportKind;

/// Portable, device-mapped and write-combined.
const ALLOC_FLAGS: u32 = 0x7;

/// Portable, device-mapped, of an I/O device, read-only.
const REGISTER_FLAGS: u32 = 0xF;

pub(crate) fn alloc(call: &mut Call<'_>, pointer: Ptr<*mut c_void>, bytes: usize) -> Answer {
    alloc_with_flags(call, pointer, bytes, 0)
}

pub(crate) fn alloc_with_flags(call: &mut Call<'_>, pointer: Ptr<*mut c_void>, bytes: usize, flags: u32) -> Answer {
    call.refuse_if_unsafe()?;
    pointer.required()?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    if bytes == 0 {
        return pointer.write(host_pointer(0));
    }
    let context = call.need_context()?;
    let address = call.memory.allocate_pinned(context, bytes as u64, flags | DEVICE_MAP)?;
    pointer.write(host_pointer(address))
}

pub(crate) fn free(call: &mut Call<'_>, pointer: Ptr<c_void>) -> Answer {
    if pointer.is_null() {
        return Ok(());
    }
    call.refuse_if_unsafe()?;
    let address = pointer.address();
    let found = call.memory.pinned_at(address).filter(|(_, pinned)| !pinned.is_registered() && !pinned.is_managed());
    let (base, context) = found.map(|(base, pinned)| (base, pinned.context)).ok_or(INVALID_VALUE)?;
    if base != address {
        return Err(INVALID_VALUE);
    }
    call.usable_context(context)?;
    note_pending_use(call, address)?;
    call.finish_context(context)?;
    call.memory.free_pinned(address)
}

/// Pinned memory that queued work still uses should not be given back, although the driver waits for that work.
fn note_pending_use(call: &mut Call<'_>, address: u64) -> Answer {
    let length = call.memory.pinned_at(address).map_or(0, |(_, pinned)| pinned.length);
    if !call.work_touches(address, length) {
        return Ok(());
    }
    let message = format!("host memory at {address:#x} is given back while queued work still uses it");
    call.report(ReportKind::PinnedFreedWhilePending, message);
    if call.config.strict { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn device_pointer(call: &mut Call<'_>, pointer: Ptr<u64>, host: Ptr<c_void>, flags: u32) -> Answer {
    pointer.required()?;
    let pinned = call.memory.pinned_at(host.address()).is_some_and(|(_, pinned)| !pinned.is_managed());
    if flags != 0 || !pinned {
        return Err(INVALID_VALUE);
    }
    pointer.write(host.address())
}

pub(crate) fn flags(call: &mut Call<'_>, flags: Ptr<u32>, host: Ptr<c_void>) -> Answer {
    flags.required()?;
    host.required()?;
    call.need_init()?;
    let kept = call.memory.pinned_at(host.address()).map(|(_, pinned)| pinned.flags).ok_or(INVALID_VALUE)?;
    flags.write(kept)
}

pub(crate) fn register(call: &mut Call<'_>, pointer: Ptr<c_void>, bytes: usize, flags: u32) -> Answer {
    call.refuse_if_unsafe()?;
    if flags & !REGISTER_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context()?;
    call.memory.register(context, pointer.address(), bytes as u64, flags | DEVICE_MAP)
}

pub(crate) fn unregister(call: &mut Call<'_>, pointer: Ptr<c_void>) -> Answer {
    call.refuse_if_unsafe()?;
    let address = pointer.required()?.address();
    let found = call.memory.pinned_at(address).map(|(base, pinned)| (base, pinned.context, pinned.is_registered()));
    let (base, context, registered) = found.ok_or(HOST_MEMORY_NOT_REGISTERED)?;
    if base != address || !registered {
        return Err(INVALID_VALUE);
    }
    call.usable_context(context)?;
    note_pending_use(call, address)?;
    call.finish_context(context)?;
    call.memory.unregister(address)
}
