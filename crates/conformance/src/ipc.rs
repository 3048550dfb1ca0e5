//! Memory and events for other processes, as far as one process shows it. Two take part in `c10-core`'s tests.

use super::prelude::*;
use super::vmm::{mapped, unmapped};

cases!("ipc", CASES, Needs::CONTEXT;
    own_memory_is_not_opened, own_event_is_not_opened, event_must_be_interprocess, mapped_memory_is_not_exported,
    host_memory_is_not_exported, the_flag_must_be_given, no_handle_is_opened, closing_what_is_not_open, null_results,
);

/// `CU_EVENT_INTERPROCESS`
const INTERPROCESS: u32 = 4;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`
const LAZY: u32 = 1;

fn no_memory() -> CUipcMemHandle {
    CUipcMemHandle { reserved: [0; 64] }
}

fn no_event() -> CUipcEventHandle {
    CUipcEventHandle { reserved: [0; 64] }
}

fn own_memory_is_not_opened(cu: &Cuda<'_>) -> CaseResult {
    for bytes in [4096, 4 << 20] {
        let memory = cu.filled(bytes, 1)?;
        let (mut handle, mut opened) = (no_memory(), 0);
        ok!(cu.cuIpcGetMemHandle(&mut handle, memory));
        that!(cu, handle.reserved != [0; 64]);
        want!(INVALID_CONTEXT, cu.cuIpcOpenMemHandle_v2(&mut opened, handle, LAZY));
        ok!(cu.cuIpcGetMemHandle(&mut handle, memory));
    }
    Ok(())
}

fn own_event_is_not_opened(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event_with(NO_TIMING | INTERPROCESS)?;
    let (mut handle, mut opened) = (no_event(), ptr::null_mut());
    ok!(cu.cuIpcGetEventHandle(&mut handle, event));
    that!(cu, handle.reserved != [0; 64]);
    want!(INVALID_CONTEXT, cu.cuIpcOpenEventHandle(&mut opened, handle));
    ok!(cu.cuEventRecord(event, cu.stream()?));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    want!(SUCCESS, cu.cuEventQuery(event));
    Ok(())
}

fn event_must_be_interprocess(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event_with(NO_TIMING)?;
    want!(INVALID_HANDLE, cu.cuIpcGetEventHandle(&mut no_event(), event));
    Ok(())
}

fn mapped_memory_is_not_exported(cu: &Cuda<'_>) -> CaseResult {
    let mapping = mapped(cu, 1)?;
    want!(INVALID_VALUE, cu.cuIpcGetMemHandle(&mut no_memory(), mapping.0));
    unmapped(cu, 1, mapping)
}

fn host_memory_is_not_exported(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    want!(INVALID_VALUE, cu.cuIpcGetMemHandle(&mut no_memory(), pinned.device()));
    Ok(())
}

/// The one flag must be there, and is looked at before whose handle it is; other flags are not looked at.
fn the_flag_must_be_given(cu: &Cuda<'_>) -> CaseResult {
    let memory = cu.filled(4096, 1)?;
    let mut handle = no_memory();
    ok!(cu.cuIpcGetMemHandle(&mut handle, memory));
    for flags in [0, 2] {
        want!(INVALID_VALUE, cu.cuIpcOpenMemHandle_v2(&mut 0, handle, flags));
    }
    want!(INVALID_CONTEXT, cu.cuIpcOpenMemHandle_v2(&mut 0, handle, 3));
    Ok(())
}

fn no_handle_is_opened(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuIpcOpenMemHandle_v2(&mut 0, no_memory(), LAZY));
    want!(MAP_FAILED, cu.cuIpcOpenEventHandle(&mut ptr::null_mut(), no_event()));
    Ok(())
}

fn closing_what_is_not_open(cu: &Cuda<'_>) -> CaseResult {
    let memory = cu.filled(4096, 1)?;
    want!(INVALID_VALUE, cu.cuIpcCloseMemHandle(memory));
    that!(cu, cu.read(memory, 4096)?.iter().all(|&byte| byte == 1));
    Ok(())
}

fn null_results(cu: &Cuda<'_>) -> CaseResult {
    let memory = cu.filled(4096, 1)?;
    want!(INVALID_VALUE, cu.cuIpcGetMemHandle(ptr::null_mut(), memory));
    want!(INVALID_VALUE, cu.cuIpcGetEventHandle(ptr::null_mut(), cu.event_with(NO_TIMING | INTERPROCESS)?));
    Ok(())
}
