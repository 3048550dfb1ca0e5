//! All figures of a device at once. A figure that the device does not tell is no error.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call; handles
//! come from NVML itself.

use std::ffi::CStr;

use cuda_sys::nvml::types::*;
use cuda_sys::{NvmlError, nvmlReturn_t};

use super::Nvml;
use crate::base::error::Result;
use crate::base::readings::{
    ClockLimits, ClockReadings, ComputeMode, DeviceReadings, EccReadings, LoadReadings, MemoryReadings, NoReading,
    NvLinkReadings, OfMax, PcieReadings, PcieThroughput, PowerReadings, Reading, RemappedRows, TemperatureReadings,
};

/// Makes a reading of a call. What says that the device or this user cannot have it is a reason; all else is an error.
fn reading<T>(answered: Result<T, NvmlError>) -> Result<Reading<T>> {
    let error = match answered {
        Ok(value) => return Ok(Ok(value)),
        Err(error) => error,
    };
    match error.status() {
        None | Some(nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND) => Ok(Err(NoReading::TooOld)),
        // A link or a sensor that is not there is an invalid argument to some versions.
        Some(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED | nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT) => {
            Ok(Err(NoReading::NotSupported))
        }
        Some(nvmlReturn_t::NVML_ERROR_NO_PERMISSION) => Ok(Err(NoReading::NoPermission)),
        Some(_) => Err(error.into()),
    }
}

/// Calls a function that fills one value: `ask!(self.nvmlName(device, arguments, _ = 0))` is the value.
macro_rules! ask {
    ($nvml:ident.$function:ident($($argument:expr),*; $empty:expr)) => {{
        let mut value = $empty;
        // SAFETY: `value` outlives the call.
        unsafe { $nvml.table.$function($($argument,)* &mut value) }.map(|()| value)
    }};
}

fn is_on(state: nvmlEnableState_t) -> bool {
    state == nvmlEnableState_t::NVML_FEATURE_ENABLED
}

const DISABLED: nvmlEnableState_t = nvmlEnableState_t::NVML_FEATURE_DISABLED;

impl Nvml {
    /// All figures of a device but those that take time to measure.
    pub(crate) fn readings(&self, index: u32) -> Result<DeviceReadings> {
        let device = self.device(index)?;
        Ok(DeviceReadings {
            index,
            name: self.name(device)?,
            uuid: Ok(self.uuid(index)?),
            memory: reading(
                ask!(self.nvmlDeviceGetMemoryInfo(device; nvmlMemory_t { total: 0, free: 0, used: 0 }))
                    .map(|memory| MemoryReadings { total: memory.total, free: memory.free, used: memory.used }),
            )?,
            load: self.load(device)?,
            temperature: self.temperatures(device)?,
            fan_speed: reading(ask!(self.nvmlDeviceGetFanSpeed(device; 0)))?,
            power: PowerReadings {
                draw: reading(ask!(self.nvmlDeviceGetPowerUsage(device; 0)))?,
                limit: reading(ask!(self.nvmlDeviceGetEnforcedPowerLimit(device; 0)))?,
                energy: reading(ask!(self.nvmlDeviceGetTotalEnergyConsumption(device; 0)))?,
            },
            clocks: ClockReadings {
                sm: self.clock(device, nvmlClockType_t::NVML_CLOCK_SM)?,
                memory: self.clock(device, nvmlClockType_t::NVML_CLOCK_MEM)?,
                graphics: self.clock(device, nvmlClockType_t::NVML_CLOCK_GRAPHICS)?,
            },
            performance_state: reading(
                ask!(self.nvmlDeviceGetPerformanceState(device; nvmlPstates_t::NVML_PSTATE_UNKNOWN))
                    .map(|state| state.0),
            )?,
            clock_limits: self.clock_limits(device)?,
            ecc: self.ecc(device)?,
            remapped_rows: self.remapped_rows(device)?,
            pcie: self.pcie(device)?,
            nvlink: self.nvlink(device)?,
            mig: reading(self.mig(device))?,
            persistence: reading(ask!(self.nvmlDeviceGetPersistenceMode(device; DISABLED)).map(is_on))?,
            compute_mode: self.compute_mode(device)?,
            compute_processes: reading(self.list(|count, infos| self.compute_processes(device, count, infos)))?,
            graphics_processes: reading(self.list(|count, infos| self.graphics_processes(device, count, infos)))?,
        })
    }

    /// Traffic of the link to the host, each way measured over 20 milliseconds.
    pub(crate) fn pcie_throughput(&self, index: u32) -> Result<PcieThroughput> {
        let device = self.device(index)?;
        let counter = |counter| reading(ask!(self.nvmlDeviceGetPcieThroughput(device, counter; 0)));
        Ok(PcieThroughput {
            sent: counter(nvmlPcieUtilCounter_t::NVML_PCIE_UTIL_TX_BYTES)?,
            received: counter(nvmlPcieUtilCounter_t::NVML_PCIE_UTIL_RX_BYTES)?,
        })
    }

    /// The program of a process.
    pub(crate) fn process_name(&self, pid: u32) -> Result<Reading<String>> {
        let mut bytes = [0_u8; 256];
        // SAFETY: the buffer has as many bytes as the call is told and outlives it.
        let answered = unsafe { self.table.nvmlSystemGetProcessName(pid, bytes.as_mut_ptr().cast(), 256) };
        reading(answered.map(|()| text(&bytes)))
    }

    /// Versions of the display driver and of NVML.
    pub(crate) fn versions(&self) -> Result<(String, String)> {
        let (mut driver, mut nvml) = ([0_u8; 80], [0_u8; 80]);
        // SAFETY: the buffer has as many bytes as the call is told and outlives it.
        unsafe { self.table.nvmlSystemGetDriverVersion(driver.as_mut_ptr().cast(), 80) }?;
        // SAFETY: as above.
        unsafe { self.table.nvmlSystemGetNVMLVersion(nvml.as_mut_ptr().cast(), 80) }?;
        Ok((text(&driver), text(&nvml)))
    }

    fn name(&self, device: nvmlDevice_t) -> Result<Reading<String>> {
        let mut bytes = [0_u8; NVML_DEVICE_NAME_V2_BUFFER_SIZE as usize];
        let buffer = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has as many bytes as the call is told and outlives it.
        let answered = unsafe { self.table.nvmlDeviceGetName(device, buffer, NVML_DEVICE_NAME_V2_BUFFER_SIZE) };
        reading(answered.map(|()| text(&bytes)))
    }

    fn load(&self, device: nvmlDevice_t) -> Result<LoadReadings> {
        let none = nvmlUtilization_t { gpu: 0, memory: 0 };
        let rates = reading(ask!(self.nvmlDeviceGetUtilizationRates(device; none)))?;
        let (mut encoder, mut decoder, mut period) = (0, 0, 0);
        // SAFETY: both numbers outlive the call.
        let encoded = unsafe { self.table.nvmlDeviceGetEncoderUtilization(device, &mut encoder, &mut period) };
        // SAFETY: both numbers outlive the call.
        let decoded = unsafe { self.table.nvmlDeviceGetDecoderUtilization(device, &mut decoder, &mut period) };
        Ok(LoadReadings {
            kernels: rates.map(|rates| rates.gpu),
            memory: rates.map(|rates| rates.memory),
            encoder: reading(encoded.map(|()| encoder))?,
            decoder: reading(decoded.map(|()| decoder))?,
        })
    }

    fn temperatures(&self, device: nvmlDevice_t) -> Result<TemperatureReadings> {
        let threshold = |kind| reading(ask!(self.nvmlDeviceGetTemperatureThreshold(device, kind; 0)));
        let chip = nvmlTemperatureSensors_t::NVML_TEMPERATURE_GPU;
        Ok(TemperatureReadings {
            now: reading(ask!(self.nvmlDeviceGetTemperature(device, chip; 0)))?,
            slowdown: threshold(nvmlTemperatureThresholds_t::NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)?,
            shutdown: threshold(nvmlTemperatureThresholds_t::NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)?,
        })
    }

    fn clock(&self, device: nvmlDevice_t, kind: nvmlClockType_t) -> Result<Reading<OfMax>> {
        of_max(
            ask!(self.nvmlDeviceGetClockInfo(device, kind; 0)),
            ask!(self.nvmlDeviceGetMaxClockInfo(device, kind; 0)),
        )
    }

    /// The function has a newer name since driver 535, and the older one will go.
    fn clock_limits(&self, device: nvmlDevice_t) -> Result<Reading<ClockLimits>> {
        let has_newest = self.table.functions().nvmlDeviceGetCurrentClocksEventReasons.is_some();
        let bits = if has_newest {
            ask!(self.nvmlDeviceGetCurrentClocksEventReasons(device; 0))
        } else {
            ask!(self.nvmlDeviceGetCurrentClocksThrottleReasons(device; 0))
        };
        reading(bits.map(ClockLimits))
    }

    fn ecc(&self, device: nvmlDevice_t) -> Result<Reading<EccReadings>> {
        let (mut current, mut pending) = (DISABLED, DISABLED);
        // SAFETY: both values outlive the call.
        let mode = unsafe { self.table.nvmlDeviceGetEccMode(device, &mut current, &mut pending) };
        if let Err(reason) = reading(mode)? {
            return Ok(Err(reason));
        }
        if !is_on(current) {
            return Ok(Err(NoReading::NotSupported));
        }
        let count = |kind, since| reading(ask!(self.nvmlDeviceGetTotalEccErrors(device, kind, since; 0)));
        let corrected = nvmlMemoryErrorType_t::NVML_MEMORY_ERROR_TYPE_CORRECTED;
        let uncorrected = nvmlMemoryErrorType_t::NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
        let (loaded, ever) = (nvmlEccCounterType_t::NVML_VOLATILE_ECC, nvmlEccCounterType_t::NVML_AGGREGATE_ECC);
        Ok(Ok(EccReadings {
            corrected: count(corrected, loaded)?,
            uncorrected: count(uncorrected, loaded)?,
            corrected_ever: count(corrected, ever)?,
            uncorrected_ever: count(uncorrected, ever)?,
        }))
    }

    fn remapped_rows(&self, device: nvmlDevice_t) -> Result<Reading<RemappedRows>> {
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        let table = &self.table;
        // SAFETY: the four numbers outlive the call.
        let answered = unsafe {
            table.nvmlDeviceGetRemappedRows(device, &mut corrected, &mut uncorrected, &mut pending, &mut failed)
        };
        let rows = RemappedRows { corrected, uncorrected, pending: pending != 0, failed: failed != 0 };
        reading(answered.map(|()| rows))
    }

    fn pcie(&self, device: nvmlDevice_t) -> Result<PcieReadings> {
        Ok(PcieReadings {
            generation: of_max(
                ask!(self.nvmlDeviceGetCurrPcieLinkGeneration(device; 0)),
                ask!(self.nvmlDeviceGetMaxPcieLinkGeneration(device; 0)),
            )?,
            lanes: of_max(
                ask!(self.nvmlDeviceGetCurrPcieLinkWidth(device; 0)),
                ask!(self.nvmlDeviceGetMaxPcieLinkWidth(device; 0)),
            )?,
            replays: reading(ask!(self.nvmlDeviceGetPcieReplayCounter(device; 0)))?,
        })
    }

    fn nvlink(&self, device: nvmlDevice_t) -> Result<NvLinkReadings> {
        let mut links = Err(NoReading::NotSupported);
        for link in 0..NVML_NVLINK_MAX_LINKS {
            match reading(ask!(self.nvmlDeviceGetNvLinkState(device, link; DISABLED)))? {
                Ok(state) => {
                    let known: OfMax = links.unwrap_or(OfMax { now: 0, max: 0 });
                    links = Ok(OfMax { now: known.now + u32::from(is_on(state)), max: known.max + 1 });
                }
                // Devices answer so for links beyond their last.
                Err(reason) if links.is_err() => links = Err(reason),
                Err(_) => {}
            }
        }
        Ok(NvLinkReadings {
            links,
            sent: self.field(device, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)?,
            received: self.field(device, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)?,
        })
    }

    /// A figure of NVLink that has a number instead of a function, summed over all links.
    fn field(&self, device: nvmlDevice_t, field: u32) -> Result<Reading<u64>> {
        let mut value = nvmlFieldValue_t {
            fieldId: field,
            // All links.
            scopeId: u32::MAX,
            timestamp: 0,
            latencyUsec: 0,
            valueType: nvmlValueType_t::NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
            nvmlReturn: nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED,
            value: nvmlValue_t { ullVal: 0 },
        };
        // SAFETY: the one field outlives the call.
        let asked = unsafe { self.table.nvmlDeviceGetFieldValues(device, 1, &mut value) };
        if let Err(reason) = reading(asked)? {
            return Ok(Err(reason));
        }
        if value.nvmlReturn != nvmlReturn_t::NVML_SUCCESS {
            return reading(Err(NvmlError::Failed { call: "nvmlDeviceGetFieldValues", status: value.nvmlReturn }));
        }
        // SAFETY: every bit pattern is a number of 64 bits, and the union began as one.
        Ok(Ok(unsafe { value.value.ullVal }))
    }

    fn mig(&self, device: nvmlDevice_t) -> Result<bool, NvmlError> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: both numbers outlive the call.
        unsafe { self.table.nvmlDeviceGetMigMode(device, &mut current, &mut pending) }?;
        Ok(current != 0)
    }

    fn compute_mode(&self, device: nvmlDevice_t) -> Result<Reading<ComputeMode>> {
        let default = nvmlComputeMode_t::NVML_COMPUTEMODE_DEFAULT;
        reading(ask!(self.nvmlDeviceGetComputeMode(device; default)).map(|mode| match mode {
            nvmlComputeMode_t::NVML_COMPUTEMODE_DEFAULT => ComputeMode::Default,
            nvmlComputeMode_t::NVML_COMPUTEMODE_EXCLUSIVE_PROCESS => ComputeMode::ExclusiveProcess,
            nvmlComputeMode_t::NVML_COMPUTEMODE_PROHIBITED => ComputeMode::Prohibited,
            other => ComputeMode::Other(other.0),
        }))
    }

    /// Fills in processes that draw. `infos` has room for as many as `count` says.
    fn graphics_processes(
        &self,
        device: nvmlDevice_t,
        count: &mut u32,
        infos: *mut nvmlProcessInfo_t,
    ) -> Result<(), NvmlError> {
        if self.table.functions().nvmlDeviceGetGraphicsRunningProcesses_v3.is_some() {
            // SAFETY: the array has as many elements as `count` says; both outlive the call.
            return unsafe { self.table.nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, infos) };
        }
        // SAFETY: as above; the older function fills the same structure.
        unsafe { self.table.nvmlDeviceGetGraphicsRunningProcesses_v2(device, count, infos) }
    }
}

fn of_max(now: Result<u32, NvmlError>, max: Result<u32, NvmlError>) -> Result<Reading<OfMax>> {
    Ok(match (reading(now)?, reading(max)?) {
        (Ok(now), Ok(max)) => Ok(OfMax { now, max }),
        (Err(reason), _) | (_, Err(reason)) => Err(reason),
    })
}

/// The text before the first zero byte.
fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned()
}
