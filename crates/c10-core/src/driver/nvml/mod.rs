//! NVML: what devices do and who uses them, without CUDA.
//!
//! **Invariant:** NVML is initialised when a value is made and shut down when it is dropped; handles do not leave this
//! folder.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call; handles
//! come from NVML itself.
#![expect(unsafe_code, reason = "calls of C functions")]

mod readings;

use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cuda_sys::nvml::types::{
    NVML_DEVICE_UUID_V2_BUFFER_SIZE, nvmlClockType_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t,
    nvmlGpuTopologyLevel_t, nvmlMemory_t, nvmlProcessInfo_t, nvmlTemperatureSensors_t, nvmlUtilization_t,
};
use cuda_sys::{Nvml as Table, NvmlError, nvmlReturn_t};

use crate::base::error::{ProcessMemory, Result};
use crate::base::links::{CommonAncestor, PeerPath};
use crate::base::process;

/// What devices share of PCIe, by NVML's levels.
const ANCESTORS: [(nvmlGpuTopologyLevel_t, CommonAncestor); 6] = [
    (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_INTERNAL, CommonAncestor::Board),
    (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SINGLE, CommonAncestor::SingleSwitch),
    (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_MULTIPLE, CommonAncestor::MultipleSwitches),
    (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_HOSTBRIDGE, CommonAncestor::HostBridge),
    (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_NODE, CommonAncestor::Node),
    (nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SYSTEM, CommonAncestor::System),
];

/// How many processes are asked for at first, and how many more when that was not enough.
const PROCESSES_AT_FIRST: usize = 32;

/// How often the list is asked for, since processes may come between two questions.
const ATTEMPTS: usize = 8;

/// An initialised NVML.
pub(crate) struct Nvml {
    table: Arc<Table>,
}

impl Nvml {
    /// Initialises NVML.
    pub(crate) fn new(table: Arc<Table>) -> Result<Self> {
        // SAFETY: takes nothing.
        unsafe { table.nvmlInit_v2() }?;
        Ok(Self { table })
    }

    /// Number of devices that NVML shows, which does not depend on `CUDA_VISIBLE_DEVICES`.
    pub(crate) fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        unsafe { self.table.nvmlDeviceGetCount_v2(&mut count) }?;
        Ok(count)
    }

    /// Identities of the machine's devices, in NVML's order.
    pub(crate) fn uuids(&self) -> Result<Vec<String>> {
        (0..self.device_count()?).map(|index| self.uuid(index)).collect()
    }

    /// The text that identifies a device: `GPU-` and hexadecimal digits.
    pub(crate) fn uuid(&self, index: u32) -> Result<String> {
        let device = self.device(index)?;
        let mut bytes = [0u8; NVML_DEVICE_UUID_V2_BUFFER_SIZE as usize];
        let text = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has as many bytes as the call is told and outlives it.
        unsafe { self.table.nvmlDeviceGetUUID(device, text, NVML_DEVICE_UUID_V2_BUFFER_SIZE) }?;
        Ok(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Bytes of the device that are in use, by anybody.
    pub(crate) fn memory_used(&self, index: u32) -> Result<u64> {
        let device = self.device(index)?;
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: `memory` outlives the call.
        unsafe { self.table.nvmlDeviceGetMemoryInfo(device, &mut memory) }?;
        Ok(memory.used)
    }

    /// Percent of time in which a kernel ran, and in which memory was read or written.
    pub(crate) fn utilization(&self, index: u32) -> Result<(u32, u32)> {
        let device = self.device(index)?;
        let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
        // SAFETY: `rates` outlives the call.
        unsafe { self.table.nvmlDeviceGetUtilizationRates(device, &mut rates) }?;
        Ok((rates.gpu, rates.memory))
    }

    /// The way between two devices.
    pub(crate) fn peer_path(&self, index: u32, peer: u32) -> Result<PeerPath> {
        if index == peer {
            return Ok(PeerPath { ancestor: Some(CommonAncestor::Board), nvlink: false });
        }
        let (device, peer) = (self.device(index)?, self.device(peer)?);
        let mut level = nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SYSTEM;
        // SAFETY: `level` outlives the call.
        unsafe { self.table.nvmlDeviceGetTopologyCommonAncestor(device, peer, &mut level) }?;
        let (of_nvlink, mut status) =
            (nvmlGpuP2PCapsIndex_t::NVML_P2P_CAPS_INDEX_NVLINK, nvmlGpuP2PStatus_t::NVML_P2P_STATUS_UNKNOWN);
        // SAFETY: `status` outlives the call.
        unsafe { self.table.nvmlDeviceGetP2PStatus(device, peer, of_nvlink, &mut status) }?;
        let known = ANCESTORS.iter().find(|(known, _)| *known == level);
        let nvlink = status == nvmlGpuP2PStatus_t::NVML_P2P_STATUS_OK;
        Ok(PeerPath { ancestor: known.map(|(_, ancestor)| *ancestor), nvlink })
    }

    /// Degrees Celsius of the chip.
    pub(crate) fn temperature(&self, index: u32) -> Result<u32> {
        let device = self.device(index)?;
        let sensor = nvmlTemperatureSensors_t::NVML_TEMPERATURE_GPU;
        let mut celsius = 0;
        // SAFETY: `celsius` outlives the call.
        unsafe { self.table.nvmlDeviceGetTemperature(device, sensor, &mut celsius) }?;
        Ok(celsius)
    }

    /// Milliwatts that the device draws.
    pub(crate) fn power_draw(&self, index: u32) -> Result<u32> {
        let device = self.device(index)?;
        let mut milliwatts = 0;
        // SAFETY: `milliwatts` outlives the call.
        unsafe { self.table.nvmlDeviceGetPowerUsage(device, &mut milliwatts) }?;
        Ok(milliwatts)
    }

    /// MHz of the multiprocessors' clock.
    pub(crate) fn clock_rate(&self, index: u32) -> Result<u32> {
        let device = self.device(index)?;
        let mut mhz = 0;
        // SAFETY: `mhz` outlives the call.
        unsafe { self.table.nvmlDeviceGetClockInfo(device, nvmlClockType_t::NVML_CLOCK_SM, &mut mhz) }?;
        Ok(mhz)
    }

    /// Processes that compute on a device.
    pub(crate) fn processes(&self, index: u32) -> Result<Vec<ProcessMemory>> {
        self.processes_of(self.device(index)?)
    }

    /// Processes that compute on the device with that identity.
    pub(crate) fn processes_by_uuid(&self, uuid: &str) -> Result<Vec<ProcessMemory>> {
        let name = CString::new(uuid).unwrap_or_default();
        let mut device = ptr::null_mut();
        // SAFETY: a C string and a local, both outlive the call.
        unsafe { self.table.nvmlDeviceGetHandleByUUID(name.as_ptr(), &mut device) }?;
        self.processes_of(device)
    }

    fn device(&self, index: u32) -> Result<nvmlDevice_t> {
        let mut device = ptr::null_mut();
        // SAFETY: `device` outlives the call.
        unsafe { self.table.nvmlDeviceGetHandleByIndex_v2(index, &mut device) }?;
        Ok(device)
    }

    fn processes_of(&self, device: nvmlDevice_t) -> Result<Vec<ProcessMemory>> {
        Ok(self.list(|count, infos| self.compute_processes(device, count, infos))?)
    }

    /// Asks for a list of processes with more and more room, until it is enough.
    fn list(
        &self,
        ask: impl Fn(&mut u32, *mut nvmlProcessInfo_t) -> Result<(), NvmlError>,
    ) -> Result<Vec<ProcessMemory>, NvmlError> {
        let mut room = PROCESSES_AT_FIRST;
        for _ in 1..ATTEMPTS {
            match list_once(&ask, room) {
                Err(error) if error.status() == Some(nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE) => room *= 2,
                answered => return answered,
            }
        }
        list_once(&ask, room)
    }

    /// Fills in processes that compute. `infos` has room for as many as `count` says.
    fn compute_processes(
        &self,
        device: nvmlDevice_t,
        count: &mut u32,
        infos: *mut nvmlProcessInfo_t,
    ) -> Result<(), NvmlError> {
        if self.table.functions().nvmlDeviceGetComputeRunningProcesses_v3.is_some() {
            // SAFETY: the array has as many elements as `count` says; both outlive the call.
            return unsafe { self.table.nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos) };
        }
        // SAFETY: as above; the older function fills the same structure.
        unsafe { self.table.nvmlDeviceGetComputeRunningProcesses_v2(device, count, infos) }
    }
}

/// At most `room` processes; an error of its own when there are more.
fn list_once(
    ask: impl Fn(&mut u32, *mut nvmlProcessInfo_t) -> Result<(), NvmlError>,
    room: usize,
) -> Result<Vec<ProcessMemory>, NvmlError> {
    let empty = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut infos = vec![empty; room];
    let mut count = u32::try_from(room).unwrap_or(u32::MAX);
    ask(&mut count, infos.as_mut_ptr())?;
    let known = infos.iter().take(usize::try_from(count).unwrap_or(room));
    // All ones stand for an amount that the driver does not know.
    let used = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    Ok(known.map(|info| ProcessMemory { pid: info.pid, used_bytes: used(info.usedGpuMemory) }).collect())
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        // SAFETY: takes nothing. A failure leaves NVML as it is, and there is nobody to tell.
        let _ = unsafe { self.table.nvmlShutdown() };
    }
}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvml").field("table", &self.table).finish()
    }
}
