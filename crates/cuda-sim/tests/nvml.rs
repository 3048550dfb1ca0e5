//! NVML shows the machine that the driver's functions work on.
//!
//! # Safety
//! Every block is one call through a table of the simulated machine's functions, with locals that outlive it.
#![expect(unsafe_code, reason = "calls of C functions")]
#![expect(clippy::unwrap_used, reason = "a failed call is a failed test")]

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use cuda_sim::{Bound, Config, Fault, Machine};
use cuda_sys::nvml::types::*;
use cuda_sys::{CUresult, Driver, Nvml, NvmlError};

const GIB: u64 = 1 << 30;

struct Rig {
    nvml: Nvml,
    driver: Driver,
    machine: Machine,
    _bound: Bound,
}

fn rig(config: Config) -> Rig {
    let machine = Machine::new(config);
    let bound = machine.bind();
    Rig { nvml: cuda_sim::nvml(), driver: cuda_sim::driver().unwrap(), machine, _bound: bound }
}

fn started(config: Config) -> Rig {
    let rig = rig(config);
    // SAFETY: takes nothing.
    unsafe { rig.nvml.nvmlInit_v2() }.unwrap();
    rig
}

impl Rig {
    fn device(&self, index: u32) -> Result<nvmlDevice_t, NvmlError> {
        let mut device = ptr::null_mut();
        // SAFETY: `device` outlives the call.
        unsafe { self.nvml.nvmlDeviceGetHandleByIndex_v2(index, &mut device) }?;
        Ok(device)
    }

    fn processes(&self, device: nvmlDevice_t, room: usize) -> Result<Vec<(u32, u64)>, (nvmlReturn_t, u32)> {
        let empty = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        let mut infos = vec![empty; room];
        let mut count = u32::try_from(room).unwrap();
        // SAFETY: the array has as many elements as `count` says.
        let called =
            unsafe { self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, infos.as_mut_ptr()) };
        called.map_err(|error| (error.status().unwrap(), count))?;
        Ok(infos.iter().take(count as usize).map(|info| (info.pid, info.usedGpuMemory)).collect())
    }

    fn memory(&self, device: nvmlDevice_t) -> nvmlMemory_t {
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: `memory` outlives the call.
        unsafe { self.nvml.nvmlDeviceGetMemoryInfo(device, &mut memory) }.unwrap();
        memory
    }

    fn use_device(&self, bytes: usize) -> u64 {
        let (mut context, mut address) = (ptr::null_mut(), 0);
        // SAFETY: no pointers.
        unsafe { self.driver.cuInit(0) }.unwrap();
        // SAFETY: `context` outlives the call.
        unsafe { self.driver.cuDevicePrimaryCtxRetain(&mut context, 0) }.unwrap();
        // SAFETY: a context just retained.
        unsafe { self.driver.cuCtxSetCurrent(context) }.unwrap();
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAlloc_v2(&mut address, bytes) }.unwrap();
        address
    }
}

fn code<T>(result: Result<T, NvmlError>) -> nvmlReturn_t {
    result.err().and_then(|error| error.status()).unwrap()
}

#[test]
fn nothing_answers_before_it_is_initialised() {
    let rig = rig(Config::default());
    assert_eq!(code(rig.device(0)), nvmlReturn_t::NVML_ERROR_UNINITIALIZED);
    // SAFETY: takes nothing.
    assert_eq!(code(unsafe { rig.nvml.nvmlShutdown() }), nvmlReturn_t::NVML_ERROR_UNINITIALIZED);
    for _ in 0..2 {
        // SAFETY: takes nothing.
        unsafe { rig.nvml.nvmlInit_v2() }.unwrap();
    }
    // SAFETY: takes nothing.
    unsafe { rig.nvml.nvmlShutdown() }.unwrap();
    rig.device(0).unwrap();
}

#[test]
fn devices_are_found_in_every_way() {
    let rig = started(Config::default().devices(2));
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    unsafe { rig.nvml.nvmlDeviceGetCount_v2(&mut count) }.unwrap();
    assert_eq!(count, 2);
    assert_eq!(code(rig.device(2)), nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT);
    let second = rig.device(1).unwrap();
    let mut text = [0; 96];
    // SAFETY: the buffer has so many bytes.
    unsafe { rig.nvml.nvmlDeviceGetUUID(second, text.as_mut_ptr(), 96) }.unwrap();
    // SAFETY: as above, of which it may use ten.
    let short = unsafe { rig.nvml.nvmlDeviceGetUUID(second, text.as_mut_ptr(), 10) };
    assert_eq!(code(short), nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE);
    let by_uuid = |name: *const c_char| {
        let mut device = ptr::null_mut();
        // SAFETY: a C string and a local that outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetHandleByUUID(name, &mut device) }.map(|()| device)
    };
    assert_eq!(by_uuid(text.as_ptr()).unwrap(), second);
    assert_eq!(code(by_uuid(c"GPU-0".as_ptr())), nvmlReturn_t::NVML_ERROR_NOT_FOUND);
    let mut bytes = [0; 32];
    // SAFETY: no pointers.
    unsafe { rig.driver.cuInit(0) }.unwrap();
    // SAFETY: the buffer has so many bytes.
    unsafe { rig.driver.cuDeviceGetPCIBusId(bytes.as_mut_ptr(), 32, 1) }.unwrap();
    // SAFETY: the driver wrote a C string.
    let pci = unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_owned();
    for name in [pci.clone(), CString::new(format!("0000{}", pci.to_str().unwrap())).unwrap()] {
        let mut device = ptr::null_mut();
        // SAFETY: a C string and a local that outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetHandleByPciBusId_v2(name.as_ptr(), &mut device) }.unwrap();
        assert_eq!(device, second);
    }
}

#[test]
fn processes_hold_the_memory_that_is_not_free() {
    let rig = started(Config::default().capacity(10 * GIB).other_process(77, 3 * GIB));
    let device = rig.device(0).unwrap();
    assert_eq!(rig.processes(device, 4).unwrap(), [(77, 3 * GIB)]);
    rig.use_device(1 << 30);
    assert_eq!(rig.processes(device, 0), Err((nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE, 2)));
    assert_eq!(rig.processes(device, 2).unwrap(), [(std::process::id(), GIB), (77, 3 * GIB)]);
    let memory = rig.memory(device);
    assert_eq!((memory.total, memory.free, memory.used), (10 * GIB, 6 * GIB, 4 * GIB));
    let (mut free, mut total) = (0, 0);
    // SAFETY: both outlive the call.
    unsafe { rig.driver.cuMemGetInfo_v2(&mut free, &mut total) }.unwrap();
    assert_eq!((free as u64, total as u64), (6 * GIB, 10 * GIB));
    let mut address = 0;
    // SAFETY: `address` outlives the call.
    let refused = unsafe { rig.driver.cuMemAlloc_v2(&mut address, 7 << 30) }.unwrap_err();
    assert_eq!(refused.status(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
}

#[test]
fn load_follows_from_the_queued_work() {
    let rig = started(Config::default());
    let device = rig.device(0).unwrap();
    let look = || {
        let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
        let (mut heat, mut power, mut clock) = (0, 0, 0);
        // SAFETY: `rates` outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetUtilizationRates(device, &mut rates) }.unwrap();
        let sensor = nvmlTemperatureSensors_t::NVML_TEMPERATURE_GPU;
        // SAFETY: `heat` outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetTemperature(device, sensor, &mut heat) }.unwrap();
        // SAFETY: `power` outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetPowerUsage(device, &mut power) }.unwrap();
        // SAFETY: `clock` outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetClockInfo(device, nvmlClockType_t::NVML_CLOCK_SM, &mut clock) }.unwrap();
        (rates.gpu, rates.memory, heat, power, clock)
    };
    assert_eq!(look(), (0, 0, 30, 75_000, 1980));
    let address = rig.use_device(1 << 30);
    // SAFETY: the memory was allocated, and the stream is the default one.
    unsafe { rig.driver.cuMemsetD8Async(address, 1, 1 << 20, ptr::null_mut()) }.unwrap();
    assert_eq!(look(), (100, 50, 55, 575_000, 1980));
    rig.machine.settle();
    assert_eq!(look(), (0, 0, 30, 75_000, 1980));
    let mut clock = 0;
    // SAFETY: `clock` outlives the call.
    let none = unsafe { rig.nvml.nvmlDeviceGetClockInfo(device, nvmlClockType_t::NVML_CLOCK_COUNT, &mut clock) };
    assert_eq!(code(none), nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT);
}

#[test]
fn calls_can_be_made_to_fail_and_codes_have_words() {
    let rig = rig(Config::default());
    rig.machine.inject(Fault { call: "nvmlInit_v2", occurrence: 1, code: CUresult(9) });
    // SAFETY: takes nothing.
    let refused = code(unsafe { rig.nvml.nvmlInit_v2() });
    assert_eq!(refused, nvmlReturn_t::NVML_ERROR_DRIVER_NOT_LOADED);
    let words = |code| {
        // SAFETY: takes a number; the answer is a C string that stays.
        let text = unsafe { rig.nvml.nvmlErrorString(code) }.unwrap();
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    };
    assert_eq!(words(refused), "Driver Not Loaded");
    assert_eq!(words(nvmlReturn_t(4242)), "Unknown Error");
}
