//! NVML shows the machine that the driver's functions work on.
//!
//! # Safety
//! Every block is one call through a table of the simulated machine's functions, with locals that outlive it.
#![expect(unsafe_code, reason = "calls of C functions")]
#![expect(clippy::unwrap_used, reason = "a failed call is a failed test")]

mod processes;

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use cuda_sim::{Bound, Config, Fault, Machine, Topology};
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

/// What NVML tells of two devices, or of a device and its links.
impl Rig {
    fn level(&self, one: u32, other: u32) -> nvmlGpuTopologyLevel_t {
        let mut level = nvmlGpuTopologyLevel_t(77);
        let (one, other) = (self.device(one).unwrap(), self.device(other).unwrap());
        // SAFETY: `level` outlives the call.
        unsafe { self.nvml.nvmlDeviceGetTopologyCommonAncestor(one, other, &mut level) }.unwrap();
        level
    }

    fn nearest(&self, device: u32, level: nvmlGpuTopologyLevel_t, room: u32) -> Result<(u32, Vec<u32>), nvmlReturn_t> {
        let (mut count, mut devices) = (room, [ptr::null_mut(); 8]);
        let device = self.device(device).unwrap();
        // SAFETY: the array has at least as many elements as `count` says.
        unsafe { self.nvml.nvmlDeviceGetTopologyNearestGpus(device, level, &mut count, devices.as_mut_ptr()) }
            .map_err(|error| error.status().unwrap())?;
        let index = |device| (0..8).find(|&index| self.device(index).unwrap() == device).unwrap();
        let written = devices.iter().filter(|device| !device.is_null());
        Ok((count, written.map(|&device| index(device)).collect()))
    }

    fn p2p(&self, one: u32, other: u32) -> [nvmlGpuP2PStatus_t; 5] {
        let (one, other) = (self.device(one).unwrap(), self.device(other).unwrap());
        [0, 1, 2, 3, 4].map(|ability| {
            let mut status = nvmlGpuP2PStatus_t(77);
            let ability = nvmlGpuP2PCapsIndex_t(ability);
            // SAFETY: `status` outlives the call.
            unsafe { self.nvml.nvmlDeviceGetP2PStatus(one, other, ability, &mut status) }.unwrap();
            status
        })
    }

    fn is_up(&self, device: u32, link: u32) -> bool {
        let mut state = nvmlEnableState_t(77);
        // SAFETY: `state` outlives the call.
        unsafe { self.nvml.nvmlDeviceGetNvLinkState(self.device(device).unwrap(), link, &mut state) }.unwrap();
        state == nvmlEnableState_t::NVML_FEATURE_ENABLED
    }

    /// What is at the other end of a link: its kind, and how the PCI bus knows it.
    fn other_end(&self, device: u32, link: u32) -> Result<(nvmlIntNvLinkDeviceType_t, String), nvmlReturn_t> {
        let device = self.device(device).unwrap();
        let mut kind = nvmlIntNvLinkDeviceType_t::NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
        // SAFETY: `kind` outlives the call.
        unsafe { self.nvml.nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &mut kind) }
            .map_err(|error| error.status().unwrap())?;
        let mut pci = blank();
        // SAFETY: `pci` outlives the call.
        unsafe { self.nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &mut pci) }.unwrap();
        Ok((kind, words(&pci.busId)))
    }

    fn can(&self, device: u32, link: u32, capability: nvmlNvLinkCapability_t) -> u32 {
        let mut can = 77;
        let device = self.device(device).unwrap();
        // SAFETY: `can` outlives the call.
        unsafe { self.nvml.nvmlDeviceGetNvLinkCapability(device, link, capability, &mut can) }.unwrap();
        can
    }
}

fn blank() -> nvmlPciInfo_t {
    nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 9,
        bus: 9,
        device: 9,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: [0; 32],
    }
}

fn words(text: &[c_char]) -> String {
    // SAFETY: NVML ends its texts, and the array is alive.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned()
}

const OK: nvmlGpuP2PStatus_t = nvmlGpuP2PStatus_t::NVML_P2P_STATUS_OK;
const NO: nvmlGpuP2PStatus_t = nvmlGpuP2PStatus_t::NVML_P2P_STATUS_NOT_SUPPORTED;
const OFF: nvmlGpuP2PStatus_t = nvmlGpuP2PStatus_t::NVML_P2P_STATUS_DISABLED_BY_REGKEY;
const SINGLE: nvmlGpuTopologyLevel_t = nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SINGLE;
const BRIDGE: nvmlGpuTopologyLevel_t = nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_HOSTBRIDGE;
const SWITCH: nvmlIntNvLinkDeviceType_t = nvmlIntNvLinkDeviceType_t::NVML_NVLINK_DEVICE_TYPE_SWITCH;
const GPU: nvmlIntNvLinkDeviceType_t = nvmlIntNvLinkDeviceType_t::NVML_NVLINK_DEVICE_TYPE_GPU;
const LINKS: u32 = NVML_NVLINK_MAX_LINKS;
const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED;

#[test]
fn devices_at_a_switch_have_links_to_it() {
    for config in [Config::default(), Config::default().topology(Topology::nvlink(450, 1_000).failed(0, 2))] {
        let rig = started(config.clone().devices(8));
        assert!((0..LINKS).all(|link| rig.is_up(0, link)));
        assert_eq!(rig.other_end(7, 17), Ok((SWITCH, "00000000:05:00.0".to_owned())));
        assert_eq!(rig.p2p(0, 1), [OK, OK, OK, OK, NO]);
        assert_eq!((rig.level(0, 1), rig.level(3, 3).0), (BRIDGE, 0));
        assert_eq!(rig.nearest(1, BRIDGE, 8), Ok((7, vec![0, 2, 3, 4, 5, 6, 7])));
        assert_eq!(rig.can(0, 0, nvmlNvLinkCapability_t::NVML_NVLINK_CAP_P2P_ATOMICS), 1);
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetNvLinkVersion(rig.device(0).unwrap(), 3, &mut version) }.unwrap();
        assert_eq!(version, nvmlNvlinkVersion_t::NVML_NVLINK_VERSION_4_0.0);
        let failed = config != Config::default();
        assert_eq!(rig.p2p(0, 2) == [NO; 5], failed);
    }
    let alone = started(Config::default());
    assert!((0..LINKS).all(|link| !alone.is_up(0, link)));
    assert_eq!(alone.other_end(0, 0), Err(NOT_SUPPORTED));
    let closed = started(Config::default().devices(2).peer_access(false));
    assert_eq!((closed.p2p(0, 1), closed.is_up(0, 0)), ([OFF; 5], true));
}

#[test]
fn devices_behind_pcie_switches_are_near_those_behind_the_same() {
    let rig = started(Config::default().devices(8).topology(Topology::pcie(64, 1_000, 4)));
    assert_eq!((rig.level(0, 3), rig.level(3, 4)), (SINGLE, BRIDGE));
    assert_eq!(rig.nearest(5, SINGLE, 0), Ok((3, vec![])));
    assert_eq!(rig.nearest(5, SINGLE, 2), Ok((2, vec![4, 6])));
    assert_eq!(rig.nearest(5, BRIDGE, 8), Ok((4, vec![0, 1, 2, 3])));
    let refused = nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT;
    assert_eq!(rig.nearest(5, nvmlGpuTopologyLevel_t(15), 8), Err(refused));
    assert_eq!((rig.p2p(0, 1), rig.p2p(0, 7)), ([OK, OK, NO, NO, OK], [OK, OK, NO, NO, OK]));
    assert!((0..LINKS).all(|link| !rig.is_up(0, link)));
    assert_eq!(rig.can(0, 0, nvmlNvLinkCapability_t::NVML_NVLINK_CAP_P2P_SUPPORTED), 0);
    let (device, mut status) = (rig.device(0).unwrap(), OK);
    let ability = nvmlGpuP2PCapsIndex_t::NVML_P2P_CAPS_INDEX_READ;
    // SAFETY: `status` outlives the call.
    let itself = unsafe { rig.nvml.nvmlDeviceGetP2PStatus(device, device, ability, &mut status) };
    assert_eq!(code(itself), refused);
    let mut state = nvmlEnableState_t(0);
    // SAFETY: `state` outlives the call.
    let beyond = unsafe { rig.nvml.nvmlDeviceGetNvLinkState(device, LINKS, &mut state) };
    assert_eq!(code(beyond), refused);
}

#[test]
fn links_of_pairs_lead_to_the_other_device() {
    let rig = started(Config::default().devices(8).topology(Topology::pairs(100, 1_000, &[(0, 1), (3, 2), (0, 4)])));
    let pci = |device: u32| {
        let mut pci = blank();
        // SAFETY: `pci` outlives the call.
        unsafe { rig.nvml.nvmlDeviceGetPciInfo_v3(rig.device(device).unwrap(), &mut pci) }.unwrap();
        assert_eq!((pci.domain, pci.bus, pci.device, words(&pci.busIdLegacy).len()), (0, 0, 6 + device, 12));
        words(&pci.busId)
    };
    assert_eq!(rig.other_end(2, 17), Ok((GPU, pci(3))));
    // Half of the links of a device with two neighbours lead to each.
    assert_eq!((rig.other_end(0, 8), rig.other_end(0, 9)), (Ok((GPU, pci(1))), Ok((GPU, pci(4)))));
    assert_eq!((rig.p2p(4, 0), rig.p2p(1, 4)), ([OK, OK, OK, OK, NO], [OK, OK, NO, NO, OK]));
    assert!(!rig.is_up(5, 0));
    let by_text = CString::new(pci(3)).unwrap();
    let mut found = ptr::null_mut();
    // SAFETY: a C string and a local that outlives the call.
    unsafe { rig.nvml.nvmlDeviceGetHandleByPciBusId_v2(by_text.as_ptr(), &mut found) }.unwrap();
    assert_eq!(found, rig.device(3).unwrap());
}
