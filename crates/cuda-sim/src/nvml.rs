//! NVML of the simulated machine: the C functions of libnvidia-ml that `cuda-sys` binds.
//!
//! They show the same machine as the driver's functions, from outside: they need no `cuInit` and no context, take no
//! simulated time, and work in a forked child. Calls can be made to fail like the driver's.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names: pointers null or valid for what is read and
//! written. A handle is looked up, so a wrong one is an error and no more.
#![expect(unsafe_code, reason = "the C interface of NVML")]

mod health;
mod topology;

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use cuda_sys::Nvml;
use cuda_sys::nvml::Functions;
use cuda_sys::nvml::types::*;

use crate::claim::{IntoModel, Ptr, handle};
use crate::machine::Machine;
use crate::model::{State, profile};
use crate::panics::caught;
use health::{
    clock_limits, codec, compute_mode, ecc_errors, ecc_mode, energy, fan, field_values, graphics_processes, mig_mode,
    name, nvml_version, pcie_generation, pcie_lanes, pcie_replays, pcie_throughput, performance_state,
    persistence_mode, power_limit, process_name, remapped_rows, temperature_threshold,
};
use topology::{
    common_ancestor, nearest, nvlink_capability, nvlink_remote_kind, nvlink_remote_pci, nvlink_state, nvlink_version,
    p2p_status, pci_info,
};

/// What a function answers.
type Answer<T = ()> = Result<T, nvmlReturn_t>;

const INVALID_ARGUMENT: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT;
const INSUFFICIENT_SIZE: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE;

/// Handle of device 0, and how far the others are apart.
const FIRST_HANDLE: u64 = 0x4e56_0100;
const HANDLE_DISTANCE: u64 = 0x100;

/// Version of the display driver, as NVML writes it.
const DRIVER_VERSION: &str = "580.65.06";

/// Calls the macro `$callback` with the list of functions: symbol, arguments, who answers.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_nvml_export {
    ($callback:ident) => {
        $callback! {
            nvmlDeviceGetClockInfo (device: nvmlDevice_t, type_: nvmlClockType_t, clock: *mut core::ffi::c_uint) => clock;
            nvmlDeviceGetComputeMode (device: nvmlDevice_t, mode: *mut nvmlComputeMode_t) => compute_mode;
            nvmlDeviceGetComputeRunningProcesses_v2 (device: nvmlDevice_t, infoCount: *mut core::ffi::c_uint, infos: *mut nvmlProcessInfo_v2_t) => processes;
            nvmlDeviceGetComputeRunningProcesses_v3 (device: nvmlDevice_t, infoCount: *mut core::ffi::c_uint, infos: *mut nvmlProcessInfo_t) => processes;
            nvmlDeviceGetCount_v2 (deviceCount: *mut core::ffi::c_uint) => count;
            nvmlDeviceGetCurrPcieLinkGeneration (device: nvmlDevice_t, currLinkGen: *mut core::ffi::c_uint) => pcie_generation;
            nvmlDeviceGetCurrPcieLinkWidth (device: nvmlDevice_t, currLinkWidth: *mut core::ffi::c_uint) => pcie_lanes;
            nvmlDeviceGetCurrentClocksEventReasons (device: nvmlDevice_t, clocksEventReasons: *mut core::ffi::c_ulonglong) => clock_limits;
            nvmlDeviceGetCurrentClocksThrottleReasons (device: nvmlDevice_t, clocksThrottleReasons: *mut core::ffi::c_ulonglong) => clock_limits;
            nvmlDeviceGetDecoderUtilization (device: nvmlDevice_t, utilization: *mut core::ffi::c_uint, samplingPeriodUs: *mut core::ffi::c_uint) => codec;
            nvmlDeviceGetEccMode (device: nvmlDevice_t, current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t) => ecc_mode;
            nvmlDeviceGetEncoderUtilization (device: nvmlDevice_t, utilization: *mut core::ffi::c_uint, samplingPeriodUs: *mut core::ffi::c_uint) => codec;
            nvmlDeviceGetEnforcedPowerLimit (device: nvmlDevice_t, limit: *mut core::ffi::c_uint) => power_limit;
            nvmlDeviceGetFanSpeed (device: nvmlDevice_t, speed: *mut core::ffi::c_uint) => fan;
            nvmlDeviceGetFieldValues (device: nvmlDevice_t, valuesCount: core::ffi::c_int, values: *mut nvmlFieldValue_t) => field_values;
            nvmlDeviceGetGraphicsRunningProcesses_v2 (device: nvmlDevice_t, infoCount: *mut core::ffi::c_uint, infos: *mut nvmlProcessInfo_v2_t) => graphics_processes;
            nvmlDeviceGetGraphicsRunningProcesses_v3 (device: nvmlDevice_t, infoCount: *mut core::ffi::c_uint, infos: *mut nvmlProcessInfo_t) => graphics_processes;
            nvmlDeviceGetHandleByIndex_v2 (index: core::ffi::c_uint, device: *mut nvmlDevice_t) => by_index;
            nvmlDeviceGetHandleByPciBusId_v2 (pciBusId: *const core::ffi::c_char, device: *mut nvmlDevice_t) => by_pci_bus_id;
            nvmlDeviceGetHandleByUUID (uuid: *const core::ffi::c_char, device: *mut nvmlDevice_t) => by_uuid;
            nvmlDeviceGetMaxClockInfo (device: nvmlDevice_t, type_: nvmlClockType_t, clock: *mut core::ffi::c_uint) => clock;
            nvmlDeviceGetMaxPcieLinkGeneration (device: nvmlDevice_t, maxLinkGen: *mut core::ffi::c_uint) => pcie_generation;
            nvmlDeviceGetMaxPcieLinkWidth (device: nvmlDevice_t, maxLinkWidth: *mut core::ffi::c_uint) => pcie_lanes;
            nvmlDeviceGetMemoryInfo (device: nvmlDevice_t, memory: *mut nvmlMemory_t) => memory;
            nvmlDeviceGetMigMode (device: nvmlDevice_t, currentMode: *mut core::ffi::c_uint, pendingMode: *mut core::ffi::c_uint) => mig_mode;
            nvmlDeviceGetName (device: nvmlDevice_t, name: *mut core::ffi::c_char, length: core::ffi::c_uint) => name;
            nvmlDeviceGetNvLinkCapability (device: nvmlDevice_t, link: core::ffi::c_uint, capability: nvmlNvLinkCapability_t, capResult: *mut core::ffi::c_uint) => nvlink_capability;
            nvmlDeviceGetNvLinkRemoteDeviceType (device: nvmlDevice_t, link: core::ffi::c_uint, pNvLinkDeviceType: *mut nvmlIntNvLinkDeviceType_t) => nvlink_remote_kind;
            nvmlDeviceGetNvLinkRemotePciInfo_v2 (device: nvmlDevice_t, link: core::ffi::c_uint, pci: *mut nvmlPciInfo_t) => nvlink_remote_pci;
            nvmlDeviceGetNvLinkState (device: nvmlDevice_t, link: core::ffi::c_uint, isActive: *mut nvmlEnableState_t) => nvlink_state;
            nvmlDeviceGetNvLinkVersion (device: nvmlDevice_t, link: core::ffi::c_uint, version: *mut core::ffi::c_uint) => nvlink_version;
            nvmlDeviceGetP2PStatus (device1: nvmlDevice_t, device2: nvmlDevice_t, p2pIndex: nvmlGpuP2PCapsIndex_t, p2pStatus: *mut nvmlGpuP2PStatus_t) => p2p_status;
            nvmlDeviceGetPciInfo_v3 (device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) => pci_info;
            nvmlDeviceGetPcieReplayCounter (device: nvmlDevice_t, value: *mut core::ffi::c_uint) => pcie_replays;
            nvmlDeviceGetPcieThroughput (device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, value: *mut core::ffi::c_uint) => pcie_throughput;
            nvmlDeviceGetPerformanceState (device: nvmlDevice_t, pState: *mut nvmlPstates_t) => performance_state;
            nvmlDeviceGetPersistenceMode (device: nvmlDevice_t, mode: *mut nvmlEnableState_t) => persistence_mode;
            nvmlDeviceGetPowerUsage (device: nvmlDevice_t, power: *mut core::ffi::c_uint) => power;
            nvmlDeviceGetRemappedRows (device: nvmlDevice_t, corrRows: *mut core::ffi::c_uint, uncRows: *mut core::ffi::c_uint, isPending: *mut core::ffi::c_uint, failureOccurred: *mut core::ffi::c_uint) => remapped_rows;
            nvmlDeviceGetTemperature (device: nvmlDevice_t, sensorType: nvmlTemperatureSensors_t, temp: *mut core::ffi::c_uint) => temperature;
            nvmlDeviceGetTemperatureThreshold (device: nvmlDevice_t, thresholdType: nvmlTemperatureThresholds_t, temp: *mut core::ffi::c_uint) => temperature_threshold;
            nvmlDeviceGetTopologyCommonAncestor (device1: nvmlDevice_t, device2: nvmlDevice_t, pathInfo: *mut nvmlGpuTopologyLevel_t) => common_ancestor;
            nvmlDeviceGetTopologyNearestGpus (device: nvmlDevice_t, level: nvmlGpuTopologyLevel_t, count: *mut core::ffi::c_uint, deviceArray: *mut nvmlDevice_t) => nearest;
            nvmlDeviceGetTotalEccErrors (device: nvmlDevice_t, errorType: nvmlMemoryErrorType_t, counterType: nvmlEccCounterType_t, eccCounts: *mut core::ffi::c_ulonglong) => ecc_errors;
            nvmlDeviceGetTotalEnergyConsumption (device: nvmlDevice_t, energy: *mut core::ffi::c_ulonglong) => energy;
            nvmlDeviceGetUUID (device: nvmlDevice_t, uuid: *mut core::ffi::c_char, length: core::ffi::c_uint) => uuid;
            nvmlDeviceGetUtilizationRates (device: nvmlDevice_t, utilization: *mut nvmlUtilization_t) => utilization;
            nvmlInit_v2 () => init;
            nvmlShutdown () => shutdown;
            nvmlSystemGetDriverVersion (version: *mut core::ffi::c_char, length: core::ffi::c_uint) => driver_version;
            nvmlSystemGetNVMLVersion (version: *mut core::ffi::c_char, length: core::ffi::c_uint) => nvml_version;
            nvmlSystemGetProcessName (pid: core::ffi::c_uint, name: *mut core::ffi::c_char, length: core::ffi::c_uint) => process_name;
        }
    };
}

macro_rules! define_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $model:ident;)*) => {
        /// The functions that answer with a status, sorted by symbol. `nvmlErrorString` is the only other one.
        pub const NVML_EXPORTS: &[&str] = &[$(stringify!($symbol)),*];

        /// The functions themselves.
        #[expect(non_snake_case, reason = "named after C functions")]
        pub(crate) mod functions {
            use super::*;
            $(
                #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
                ///
                /// # Safety
                /// - The duties of the C function.
                pub unsafe extern "C" fn $symbol($($argument: $type),*) -> nvmlReturn_t {
                    enter(stringify!($symbol), |state| {
                        super::$model(
                            state,
                            // SAFETY: the caller keeps the C function's duties for this argument.
                            $(unsafe { $argument.into_model() }),*
                        )
                    })
                }
            )*

            /// `nvmlErrorString` of the simulated machine.
            pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
                error_string(result)
            }
        }

        /// All functions as a table.
        #[must_use]
        pub fn nvml_functions() -> Functions {
            nvml_functions_without(&[])
        }

        fn nvml_functions_without(missing: &[&str]) -> Functions {
            Functions {
                nvmlErrorString: Some(functions::nvmlErrorString),
                $($symbol: if missing.contains(&stringify!($symbol)) { None } else { Some(functions::$symbol) },)*
            }
        }
    };
}

for_each_nvml_export!(define_functions);

/// The simulated NVML, to be used like any other; each call goes to the machine of the thread that makes it.
#[must_use]
pub fn nvml() -> Nvml {
    nvml_without(&[])
}

/// As [`nvml`], of an older library that lacks the functions with these names.
#[must_use]
pub fn nvml_without(missing: &[&str]) -> Nvml {
    // SAFETY: these functions have the signatures and duties of the C functions they are named after, and live as long
    // as the process.
    unsafe { Nvml::from_functions(nvml_functions_without(missing)) }
}

/// Answers a call on the calling thread's machine; a panic inside becomes `NVML_ERROR_UNKNOWN`.
fn enter(symbol: &'static str, function: impl FnOnce(&mut State) -> Answer) -> nvmlReturn_t {
    let machine = Machine::current();
    let answered = caught(|| {
        let mut state = machine.shared().lock();
        if let Some(code) = state.fault_for(symbol) {
            return nvmlReturn_t(code.0);
        }
        if state.nvml_users == 0 && symbol != "nvmlInit_v2" {
            return nvmlReturn_t::NVML_ERROR_UNINITIALIZED;
        }
        function(&mut state).err().unwrap_or(nvmlReturn_t::NVML_SUCCESS)
    });
    answered.unwrap_or(nvmlReturn_t::NVML_ERROR_UNKNOWN)
}

fn error_string(result: nvmlReturn_t) -> *const c_char {
    static TEXTS: OnceLock<BTreeMap<u32, CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let known = (0..100).chain([999]).filter_map(|code| Some((code, nvmlReturn_t(code).text()?)));
        known.filter_map(|(code, text)| Some((code, CString::new(text).ok()?))).collect()
    });
    let unknown = &nvmlReturn_t::NVML_ERROR_UNKNOWN.0;
    texts.get(&result.0).or_else(|| texts.get(unknown)).map_or(std::ptr::null(), |text| text.as_ptr())
}

fn init(state: &mut State) -> Answer {
    state.nvml_users += 1;
    Ok(())
}

fn shutdown(state: &mut State) -> Answer {
    state.nvml_users -= 1;
    Ok(())
}

fn count(state: &mut State, count: Ptr<u32>) -> Answer {
    put(count, state.config.devices)
}

fn by_index(state: &mut State, index: u32, device: Ptr<nvmlDevice_t>) -> Answer {
    find(device, (index < state.config.devices).then_some(index).ok_or(INVALID_ARGUMENT))
}

fn by_pci_bus_id(state: &mut State, text: Ptr<c_char>, device: Ptr<nvmlDevice_t>) -> Answer {
    let text = text.read_string().map_err(|_| INVALID_ARGUMENT)?;
    // The domain has four digits for CUDA and eight for NVML.
    let short = text.strip_prefix("0000").filter(|rest| rest.starts_with("0000:")).unwrap_or(&text);
    let found = profile::device_with_pci_bus_id(short, state.config.devices);
    find(device, found.ok_or(nvmlReturn_t::NVML_ERROR_NOT_FOUND))
}

fn by_uuid(state: &mut State, text: Ptr<c_char>, device: Ptr<nvmlDevice_t>) -> Answer {
    let text = text.read_string().map_err(|_| INVALID_ARGUMENT)?;
    let found = (0..state.config.devices).find(|&index| uuid_of(index).eq_ignore_ascii_case(&text));
    find(device, found.ok_or(nvmlReturn_t::NVML_ERROR_NOT_FOUND))
}

fn uuid(state: &mut State, device: Ptr<nvmlDevice_st>, text: Ptr<c_char>, length: u32) -> Answer {
    put_text(&uuid_of(index_of(state, device)?), text, length)
}

fn memory(state: &mut State, device: Ptr<nvmlDevice_st>, memory: Ptr<nvmlMemory_t>) -> Answer {
    let (free, total) = state.memory.info(index_of(state, device)?);
    put(memory, nvmlMemory_t { total, free, used: total - free })
}

fn utilization(state: &mut State, device: Ptr<nvmlDevice_st>, rates: Ptr<nvmlUtilization_t>) -> Answer {
    let (gpu, memory) = state.utilization(index_of(state, device)?);
    put(rates, nvmlUtilization_t { gpu, memory })
}

fn temperature(
    state: &mut State,
    device: Ptr<nvmlDevice_st>,
    sensor: nvmlTemperatureSensors_t,
    celsius: Ptr<u32>,
) -> Answer {
    let index = index_of(state, device)?;
    if sensor != nvmlTemperatureSensors_t::NVML_TEMPERATURE_GPU {
        return Err(INVALID_ARGUMENT);
    }
    put(celsius, state.temperature_celsius(index))
}

fn power(state: &mut State, device: Ptr<nvmlDevice_st>, milliwatts: Ptr<u32>) -> Answer {
    put(milliwatts, state.power_milliwatts(index_of(state, device)?))
}

fn clock(state: &mut State, device: Ptr<nvmlDevice_st>, clock: nvmlClockType_t, mhz: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    put(mhz, state.clock_mhz(clock.0).ok_or(INVALID_ARGUMENT)?)
}

fn processes(
    state: &mut State,
    device: Ptr<nvmlDevice_st>,
    count: Ptr<u32>,
    infos: Ptr<nvmlProcessInfo_v2_t>,
) -> Answer {
    let found = state.processes(index_of(state, device)?);
    let room = count.read().map_err(|_| INVALID_ARGUMENT)?;
    let needed = u32::try_from(found.len()).unwrap_or(u32::MAX);
    put(count, needed)?;
    if needed > room {
        return Err(INSUFFICIENT_SIZE);
    }
    for (index, (pid, bytes)) in found.into_iter().enumerate() {
        // Outside of multi-instance mode the instances have the number of no instance.
        let info =
            nvmlProcessInfo_v2_t { pid, usedGpuMemory: bytes, gpuInstanceId: u32::MAX, computeInstanceId: u32::MAX };
        infos.write_at(index, info).map_err(|_| INVALID_ARGUMENT)?;
    }
    Ok(())
}

fn driver_version(_: &mut State, text: Ptr<c_char>, length: u32) -> Answer {
    put_text(DRIVER_VERSION, text, length)
}

/// Identity of a device, as NVML writes it.
fn uuid_of(index: u32) -> String {
    let digits: String = profile::uuid(index).iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("GPU-{}", parts.join("-"))
}

/// Gives out the handle of a device.
fn find(device: Ptr<nvmlDevice_t>, found: Answer<u32>) -> Answer {
    if device.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    put(device, handle(FIRST_HANDLE + HANDLE_DISTANCE * u64::from(found?)))
}

/// The device that a handle names.
fn index_of(state: &State, device: Ptr<nvmlDevice_st>) -> Answer<u32> {
    let offset = device.address().checked_sub(FIRST_HANDLE).ok_or(INVALID_ARGUMENT)?;
    let index = u32::try_from(offset / HANDLE_DISTANCE).map_err(|_| INVALID_ARGUMENT)?;
    let known = offset % HANDLE_DISTANCE == 0 && index < state.config.devices;
    known.then_some(index).ok_or(INVALID_ARGUMENT)
}

fn put<T>(pointer: Ptr<T>, value: T) -> Answer {
    pointer.write(value).map_err(|_| INVALID_ARGUMENT)
}

fn put_text(text: &str, pointer: Ptr<c_char>, length: u32) -> Answer {
    let capacity = usize::try_from(length).unwrap_or(usize::MAX);
    if capacity <= text.len() && !pointer.is_null() {
        return Err(INSUFFICIENT_SIZE);
    }
    pointer.write_string(text, capacity).map_err(|_| INVALID_ARGUMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_the_bindings_without_the_text_of_errors() {
        let bound = Functions::ALL.iter().map(|info| info.symbol).filter(|symbol| *symbol != "nvmlErrorString");
        assert_eq!(NVML_EXPORTS, bound.collect::<Vec<_>>());
    }

    #[test]
    fn identities_are_written_as_nvml_does() {
        assert_eq!(uuid_of(0), "GPU-63756461-2d73-696d-2064-657669636530");
        assert_ne!(uuid_of(0), uuid_of(1));
    }
}
