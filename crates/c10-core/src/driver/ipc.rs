//! Handles of memory and events for other processes.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call; memory and
//! events are the caller's own, and alive. A handle's bytes are the driver's to judge.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::c_char;
use std::ptr;

use cuda_sys::driver::types::{CUevent, CUipcEventHandle, CUipcMemHandle};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::EventHandle;
use crate::driver::Api;
use crate::driver::stream::raw_event;

/// The bytes with which the driver names memory or an event to other processes.
pub(crate) type IpcHandle = [u8; 64];

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which the driver wants to be set.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

const EMPTY: [c_char; 64] = [0; 64];

fn from_c(bytes: [c_char; 64]) -> IpcHandle {
    bytes.map(|byte| byte.to_ne_bytes()[0])
}

fn to_c(bytes: &IpcHandle) -> [c_char; 64] {
    bytes.map(|byte| c_char::from_ne_bytes([byte]))
}

impl Api {
    /// The begin and the size of the driver's allocation that an address lies in.
    pub(crate) fn address_range(&self, device: DeviceIndex, address: u64) -> Result<(u64, u64)> {
        self.bind(device)?;
        let (mut base, mut size) = (0, 0usize);
        // SAFETY: both outlive the call.
        unsafe { self.table.cuMemGetAddressRange_v2(&mut base, &mut size, address) }?;
        Ok((base, size as u64))
    }

    /// The handle of an allocation of the driver, by its first address.
    pub(crate) fn ipc_memory_handle(&self, device: DeviceIndex, base: u64) -> Result<IpcHandle> {
        self.bind(device)?;
        let mut handle = CUipcMemHandle { reserved: EMPTY };
        // SAFETY: `handle` outlives the call; the memory is the caller's.
        unsafe { self.table.cuIpcGetMemHandle(&mut handle, base) }?;
        Ok(from_c(handle.reserved))
    }

    /// Maps memory of another process and returns its address here. Each opening is closed once.
    pub(crate) fn ipc_open_memory(&self, device: DeviceIndex, handle: &IpcHandle) -> Result<u64> {
        self.bind(device)?;
        let handle = CUipcMemHandle { reserved: to_c(handle) };
        let mut base = 0;
        // SAFETY: `base` outlives the call.
        unsafe { self.table.cuIpcOpenMemHandle_v2(&mut base, handle, LAZY_ENABLE_PEER_ACCESS) }?;
        Ok(base)
    }

    /// Closes one opening.
    pub(crate) fn ipc_close_memory(&self, device: DeviceIndex, base: u64) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the mapping is the caller's, and no work uses it any more.
        Ok(unsafe { self.table.cuIpcCloseMemHandle(base) }?)
    }

    /// The handle of an event that was made for other processes.
    pub(crate) fn ipc_event_handle(&self, device: DeviceIndex, event: EventHandle) -> Result<IpcHandle> {
        self.bind(device)?;
        let mut handle = CUipcEventHandle { reserved: EMPTY };
        // SAFETY: `handle` outlives the call; the event is alive.
        unsafe { self.table.cuIpcGetEventHandle(&mut handle, raw_event(event)) }?;
        Ok(from_c(handle.reserved))
    }

    /// Opens an event of another process; destroyed like any other.
    pub(crate) fn ipc_open_event(&self, device: DeviceIndex, handle: &IpcHandle) -> Result<EventHandle> {
        self.bind(device)?;
        let handle = CUipcEventHandle { reserved: to_c(handle) };
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: `event` outlives the call.
        unsafe { self.table.cuIpcOpenEventHandle(&mut event, handle) }?;
        Ok(EventHandle(event.expose_provenance()))
    }
}
