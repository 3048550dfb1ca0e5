//! Memory and events of other processes.
//!
//! A process cannot open what it exports itself: `CUDA_ERROR_INVALID_CONTEXT`, as on hardware. Only memory of `cuMemAlloc`
//! can be exported, and by its first address; small allocations share a granule, so their handles show all of it to the
//! other process, which is told where its part begins. An event is shared from the moment its handle is asked for.
//!
//! A node of a graph that waits for an event sees only recordings of its own process.

use std::ffi::c_char;
use std::fs::File;
use std::sync::Arc;

use cuda_sys::driver::types::{CUevent, CUevent_st, CUipcEventHandle, CUipcMemHandle};

use super::event::INTERPROCESS;
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, MAP_FAILED, OUT_OF_MEMORY};
use crate::model::Import;
use crate::model::event::{DISABLE_TIMING, Event};
use crate::model::memory::bytes::{Backing, memory_file};
use crate::model::shared::{EVENT_BYTES, HandleKind, SharedEvent, SharedHandle};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which must be set.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

fn to_c(bytes: [u8; 64]) -> [c_char; 64] {
    bytes.map(|byte| c_char::from_ne_bytes([byte]))
}

fn from_c(bytes: [c_char; 64]) -> [u8; 64] {
    bytes.map(|byte| byte.to_ne_bytes()[0])
}

pub(crate) fn memory_handle(call: &mut Call<'_>, written: Ptr<CUipcMemHandle>, pointer: u64) -> Answer {
    written.required()?;
    call.need_context()?;
    let shared = call.memory.share(pointer).ok_or(INVALID_VALUE)??;
    written.write(CUipcMemHandle { reserved: to_c(shared.encode(HandleKind::Memory)) })
}

pub(crate) fn open_memory(call: &mut Call<'_>, pointer: Ptr<u64>, given: CUipcMemHandle, flags: u32) -> Answer {
    pointer.required()?;
    let context = call.need_context()?;
    // Other flags are not looked at.
    if flags & LAZY_ENABLE_PEER_ACCESS == 0 {
        return Err(INVALID_VALUE);
    }
    let shared = SharedHandle::decode(from_c(given.reserved), HandleKind::Memory).ok_or(INVALID_VALUE)?;
    if shared.is_own() {
        return Err(INVALID_CONTEXT);
    }
    if shared.device >= call.config.devices {
        return Err(INVALID_VALUE);
    }
    if let Some(import) = call.imports.iter_mut().find(|import| import.handle == shared) {
        import.opened += 1;
        let base = import.base;
        return pointer.write(base);
    }
    let length = usize::try_from(shared.file_bytes).map_err(|_| OUT_OF_MEMORY)?;
    let file = shared.open().ok_or(INVALID_VALUE)?;
    let backing = Backing::of_file(file, length).ok_or(OUT_OF_MEMORY)?;
    let base = call.memory.import(context, &shared, backing)?;
    call.imports.push(Import { handle: shared, base, opened: 1 });
    pointer.write(base)
}

pub(crate) fn close_memory(call: &mut Call<'_>, pointer: u64) -> Answer {
    let index = call.imports.iter().position(|import| import.base == pointer).ok_or(INVALID_VALUE)?;
    call.imports[index].opened -= 1;
    if call.imports[index].opened > 0 {
        return Ok(());
    }
    // As for `cuMemFree`: work that is queued still finds its memory.
    let context = call.need_context()?;
    call.finish_context(context)?;
    call.finish_users(pointer);
    call.imports.retain(|import| import.base != pointer);
    call.memory.free(pointer)
}

pub(crate) fn event_handle(call: &mut Call<'_>, written: Ptr<CUipcEventHandle>, event: Ptr<CUevent_st>) -> Answer {
    written.required()?;
    call.need_context()?;
    let key = call.named_event(event)?;
    if call.event(key)?.flags & INTERPROCESS == 0 {
        return Err(INVALID_HANDLE);
    }
    if call.event(key)?.shared.is_none() {
        let length = usize::try_from(EVENT_BYTES).map_err(|_| OUT_OF_MEMORY)?;
        let file = File::from(memory_file(length).map_err(|_| OUT_OF_MEMORY)?);
        call.event_mut(key)?.share(Arc::new(SharedEvent::new(file)));
    }
    let shared = call.event(key)?.shared.as_ref().and_then(|(shared, _)| shared.handle()).ok_or(OUT_OF_MEMORY)?;
    written.write(CUipcEventHandle { reserved: to_c(shared.encode(HandleKind::Event)) })
}

pub(crate) fn open_event(call: &mut Call<'_>, event: Ptr<CUevent>, given: CUipcEventHandle) -> Answer {
    event.required()?;
    let context = call.need_context()?;
    let shared = SharedHandle::decode(from_c(given.reserved), HandleKind::Event).ok_or(MAP_FAILED)?;
    if shared.is_own() {
        return Err(INVALID_CONTEXT);
    }
    let file = shared.open().ok_or(MAP_FAILED)?;
    let mut opened = Event::new(context, INTERPROCESS | DISABLE_TIMING);
    opened.shared = Some((Arc::new(SharedEvent::new(file)), 0));
    let key = call.new_handle();
    call.events.insert(key, opened);
    event.write(handle(key))
}
