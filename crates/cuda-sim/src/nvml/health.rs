//! What NVML tells of a device's limits, links and errors: of a device in good health.
//!
//! **Invariant:** figures that this machine has are the machine's (power, load, processes); the others are those of an H200
//! on which nothing has gone wrong. What an H200 does not have, such as a fan, is not supported here either.

use std::ffi::c_char;

use cuda_sys::nvml::types::*;

use super::{Answer, INVALID_ARGUMENT, index_of, put, put_text};
use crate::claim::Ptr;
use crate::model::{State, profile};

type Device = Ptr<nvmlDevice_st>;

const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED;
const ENABLED: nvmlEnableState_t = nvmlEnableState_t::NVML_FEATURE_ENABLED;

/// Version of NVML's interface before the version of the driver.
const NVML_VERSION: &str = "13.580.65.06";

/// Microseconds over which the load of encoders and decoders is measured.
const SAMPLING_MICROSECONDS: u32 = 167_000;

/// Milliwatts that the device may draw.
const POWER_LIMIT_MILLIWATTS: u32 = 700_000;

const PCIE_GENERATION: u32 = 5;
const PCIE_LANES: u32 = 16;

pub(super) fn nvml_version(_: &mut State, text: Ptr<c_char>, length: u32) -> Answer {
    put_text(NVML_VERSION, text, length)
}

/// The program of a process of this machine.
pub(super) fn process_name(_: &mut State, pid: u32, text: Ptr<c_char>, length: u32) -> Answer {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| nvmlReturn_t::NVML_ERROR_NOT_FOUND)?;
    let program = command.split(|&byte| byte == 0).next().unwrap_or_default();
    put_text(&String::from_utf8_lossy(program), text, length)
}

pub(super) fn name(state: &mut State, device: Device, text: Ptr<c_char>, length: u32) -> Answer {
    index_of(state, device)?;
    put_text(profile::NAME, text, length)
}

/// Load of the encoders and decoders, which nothing here uses.
pub(super) fn codec(state: &mut State, device: Device, percent: Ptr<u32>, period: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    put(percent, 0)?;
    put(period, SAMPLING_MICROSECONDS)
}

pub(super) fn temperature_threshold(
    state: &mut State,
    device: Device,
    threshold: nvmlTemperatureThresholds_t,
    celsius: Ptr<u32>,
) -> Answer {
    index_of(state, device)?;
    let known = match threshold {
        nvmlTemperatureThresholds_t::NVML_TEMPERATURE_THRESHOLD_SHUTDOWN => 92,
        nvmlTemperatureThresholds_t::NVML_TEMPERATURE_THRESHOLD_SLOWDOWN => 89,
        nvmlTemperatureThresholds_t::NVML_TEMPERATURE_THRESHOLD_MEM_MAX => 95,
        nvmlTemperatureThresholds_t::NVML_TEMPERATURE_THRESHOLD_GPU_MAX => 87,
        _ => return Err(NOT_SUPPORTED),
    };
    put(celsius, known)
}

/// The device has no fan.
pub(super) fn fan(state: &mut State, device: Device, _percent: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    Err(NOT_SUPPORTED)
}

pub(super) fn power_limit(state: &mut State, device: Device, milliwatts: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    put(milliwatts, POWER_LIMIT_MILLIWATTS)
}

/// Millijoules since the machine began, as if it had always drawn what it draws now.
pub(super) fn energy(state: &mut State, device: Device, millijoules: Ptr<u64>) -> Answer {
    let milliwatts = state.power_milliwatts(index_of(state, device)?);
    put(millijoules, u64::from(milliwatts) * state.clock_ns / 1_000_000_000)
}

/// A device that works runs at its highest clocks, and they never fall.
pub(super) fn performance_state(state: &mut State, device: Device, found: Ptr<nvmlPstates_t>) -> Answer {
    index_of(state, device)?;
    put(found, nvmlPstates_t::NVML_PSTATE_0)
}

/// Nothing holds the clocks back but having nothing to do.
pub(super) fn clock_limits(state: &mut State, device: Device, reasons: Ptr<u64>) -> Answer {
    let (load, _) = state.utilization(index_of(state, device)?);
    let reason = if load == 0 { nvmlClocksEventReasonGpuIdle } else { nvmlClocksEventReasonNone };
    put(reasons, u64::from(reason))
}

pub(super) fn ecc_mode(
    state: &mut State,
    device: Device,
    current: Ptr<nvmlEnableState_t>,
    pending: Ptr<nvmlEnableState_t>,
) -> Answer {
    index_of(state, device)?;
    put(current, ENABLED)?;
    put(pending, ENABLED)
}

pub(super) fn ecc_errors(
    state: &mut State,
    device: Device,
    _kind: nvmlMemoryErrorType_t,
    _counter: nvmlEccCounterType_t,
    count: Ptr<u64>,
) -> Answer {
    index_of(state, device)?;
    put(count, 0)
}

pub(super) fn remapped_rows(
    state: &mut State,
    device: Device,
    corrected: Ptr<u32>,
    uncorrected: Ptr<u32>,
    pending: Ptr<u32>,
    failed: Ptr<u32>,
) -> Answer {
    index_of(state, device)?;
    [corrected, uncorrected, pending, failed].into_iter().try_for_each(|figure| put(figure, 0))
}

pub(super) fn pcie_generation(state: &mut State, device: Device, generation: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    put(generation, PCIE_GENERATION)
}

pub(super) fn pcie_lanes(state: &mut State, device: Device, lanes: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    put(lanes, PCIE_LANES)
}

pub(super) fn pcie_throughput(
    state: &mut State,
    device: Device,
    counter: nvmlPcieUtilCounter_t,
    kilobytes: Ptr<u32>,
) -> Answer {
    index_of(state, device)?;
    if counter.0 >= nvmlPcieUtilCounter_t::NVML_PCIE_UTIL_COUNT.0 {
        return Err(INVALID_ARGUMENT);
    }
    put(kilobytes, 0)
}

pub(super) fn pcie_replays(state: &mut State, device: Device, count: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    put(count, 0)
}

/// Answers each field by itself, as NVML does: one that is not known here is not supported.
pub(super) fn field_values(state: &mut State, device: Device, count: i32, values: Ptr<nvmlFieldValue_t>) -> Answer {
    let device = index_of(state, device)?;
    let has_links = !state.nvlink_peers(device).is_empty();
    for index in 0..usize::try_from(count).map_err(|_| INVALID_ARGUMENT)? {
        let mut value = values.read_at(index).map_err(|_| INVALID_ARGUMENT)?;
        let counts_links =
            matches!(value.fieldId, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX | NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX);
        let known = counts_links && has_links;
        value.nvmlReturn = if known { nvmlReturn_t::NVML_SUCCESS } else { NOT_SUPPORTED };
        value.valueType = nvmlValueType_t::NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        value.value = nvmlValue_t { ullVal: 0 };
        values.write_at(index, value).map_err(|_| INVALID_ARGUMENT)?;
    }
    Ok(())
}

pub(super) fn mig_mode(state: &mut State, device: Device, current: Ptr<u32>, pending: Ptr<u32>) -> Answer {
    index_of(state, device)?;
    put(current, 0)?;
    put(pending, 0)
}

pub(super) fn persistence_mode(state: &mut State, device: Device, mode: Ptr<nvmlEnableState_t>) -> Answer {
    index_of(state, device)?;
    put(mode, ENABLED)
}

pub(super) fn compute_mode(state: &mut State, device: Device, mode: Ptr<nvmlComputeMode_t>) -> Answer {
    index_of(state, device)?;
    put(mode, nvmlComputeMode_t::NVML_COMPUTEMODE_DEFAULT)
}

/// Nothing is drawn here.
pub(super) fn graphics_processes(
    state: &mut State,
    device: Device,
    count: Ptr<u32>,
    _infos: Ptr<nvmlProcessInfo_v2_t>,
) -> Answer {
    index_of(state, device)?;
    put(count, 0)
}
