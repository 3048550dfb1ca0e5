//! Memory of the library's own, and buffers that are registered with a communicator.

use std::ffi::c_void;

use cuda_sys::nccl::types::ncclComm;

use super::{Answer, INVALID_ARGUMENT, UNHANDLED};
use crate::call::Call;
use crate::claim::{Ptr, handle, host_pointer};

pub(super) fn alloc(call: &mut Call<'_>, pointer: Ptr<*mut c_void>, bytes: usize) -> Answer {
    pointer.required().map_err(|_| INVALID_ARGUMENT)?;
    call.refuse_if_unsafe().map_err(|_| UNHANDLED)?;
    let (Ok(context), Ok(device)) = (call.need_context(), call.current_device()) else {
        return Err(call.refuse(UNHANDLED, "no context is current"));
    };
    if bytes == 0 {
        return pointer.write(host_pointer(0)).map_err(|_| INVALID_ARGUMENT);
    }
    let base = match call.memory.allocate(device, context, bytes as u64) {
        Ok(base) => base,
        Err(code) => return Err(call.refuse(UNHANDLED, format!("cannot allocate {bytes} bytes: {code}"))),
    };
    call.nccl.buffers.insert(base);
    pointer.write(host_pointer(base)).map_err(|_| INVALID_ARGUMENT)
}

pub(super) fn free(call: &mut Call<'_>, pointer: Ptr<c_void>) -> Answer {
    let base = pointer.address();
    if base == 0 {
        return Ok(());
    }
    if !call.nccl.buffers.remove(&base) {
        return Err(call.refuse(INVALID_ARGUMENT, format!("{base:#x} was not allocated by ncclMemAlloc")));
    }
    call.finish_users(base);
    call.free_memory(base).map_err(|code| call.refuse(UNHANDLED, format!("cannot free {base:#x}: {code}")))
}

pub(super) fn register(
    call: &mut Call<'_>,
    comm: Ptr<ncclComm>,
    buffer: Ptr<c_void>,
    bytes: usize,
    made: Ptr<*mut c_void>,
) -> Answer {
    call.seat(comm)?;
    made.required().map_err(|_| INVALID_ARGUMENT)?;
    let (address, bytes) = (buffer.address(), bytes as u64);
    let is_known = call.known_range(address).is_some_and(|(base, length)| address + bytes <= base + length);
    if !is_known || bytes == 0 {
        return Err(call.refuse(INVALID_ARGUMENT, format!("{bytes} bytes at {address:#x} are not allocated")));
    }
    let key = call.new_handle();
    call.comm(comm)?.registered.insert(key, (address, bytes));
    made.write(handle(key)).map_err(|_| INVALID_ARGUMENT)
}

pub(super) fn deregister(call: &mut Call<'_>, comm: Ptr<ncclComm>, given: Ptr<c_void>) -> Answer {
    let key = given.address();
    let removed = call.comm(comm)?.registered.remove(&key);
    removed.map(drop).ok_or_else(|| call.refuse(INVALID_ARGUMENT, format!("{key:#x} is no registration")))
}
