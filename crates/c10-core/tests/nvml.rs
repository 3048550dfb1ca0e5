//! What NVML shows, beside a runtime and inside its errors.

mod common;

use c10_core::{
    ClockLimits, ComputeMode, DeviceIndex, Error, NoReading, OfMax, OutOfMemoryHint, ProcessMemory, TelemetryError,
};
use common::{DEVICE, Rig, config};
use cuda_sim::{Config, Fault};
use cuda_sys::CUresult;
use testkit::with_environment;

const MIB: u64 = 1 << 20;

fn rig(config: Config) -> Rig {
    let rig = Rig::new(config);
    rig.runtime.telemetry().set_nvml(cuda_sim::nvml());
    rig
}

#[test]
fn running_out_of_memory_names_the_processes() {
    let rig = rig(config().capacity(100 * MIB).other_process(77, 60 * MIB));
    let stream = rig.stream();
    let _held = rig.runtime.memory().buffer(2 << 20, &stream).unwrap();
    let error = rig.runtime.memory().alloc(50 * MIB, &stream).unwrap_err();
    let Error::OutOfMemory(failed) = &error else { panic!("{error:?}") };
    let other = ProcessMemory { pid: 77, used_bytes: Some(60 * MIB) };
    let this = ProcessMemory { pid: std::process::id(), used_bytes: Some(20 * MIB) };
    assert_eq!(failed.processes, [this, other]);
    assert_eq!(failed.hint(), OutOfMemoryHint::OtherProcesses(vec![other]));
    let text = error.to_string();
    let middle = "of which 20.00 MiB is free. Including non-PyTorch memory, this process has 20.00 MiB memory in use. \
        Process 77 has 60.00 MiB memory in use. Of the allocated memory 2.00 MiB is allocated by PyTorch, and";
    assert!(text.contains(middle), "{text}");
}

#[test]
fn the_error_does_not_depend_on_nvml() {
    let failing: [(&str, u32); 3] =
        [("nvmlInit_v2", 9), ("nvmlDeviceGetHandleByUUID", 6), ("nvmlDeviceGetComputeRunningProcesses_v3", 3)];
    for (call, code) in failing {
        let rig = rig(config().capacity(100 * MIB));
        let stream = rig.stream();
        rig.machine.inject(Fault { call, occurrence: 1, code: CUresult(code) });
        let processes = || {
            let error = rig.runtime.memory().alloc(200 * MIB, &stream).unwrap_err();
            let Error::OutOfMemory(failed) = error else { panic!("{error:?}") };
            failed.processes.len()
        };
        assert_eq!((processes(), processes()), (0, 1), "{call}");
    }
}

#[test]
fn telemetry_starts_nothing() {
    let rig = rig(config().devices(2).other_process(5, MIB));
    assert_eq!(rig.runtime.telemetry().utilization(DEVICE), Ok(0));
    assert_eq!(rig.runtime.telemetry().memory_usage(DEVICE), Ok(0));
    assert_eq!(rig.runtime.telemetry().temperature(DeviceIndex(1)), Ok(31));
    assert_eq!(rig.runtime.telemetry().power_draw(DEVICE), Ok(75_000));
    assert_eq!(rig.runtime.telemetry().clock_rate(DEVICE), Ok(1980));
    assert_eq!(rig.runtime.telemetry().memory_used(DEVICE), Ok(MIB));
    assert_eq!(rig.runtime.telemetry().processes(DEVICE).unwrap()[0].pid, 5);
    assert_eq!(
        (rig.runtime.telemetry().device_count(), rig.runtime.telemetry().device_index(DeviceIndex(1))),
        (Some(2), Ok(1))
    );
    assert!(!rig.runtime.is_initialized());
    let buffer = rig.runtime.memory().buffer(1 << 20, &rig.stream()).unwrap();
    buffer.fill(0..1 << 20, 1, rig.stream()).unwrap();
    assert_eq!(
        (rig.runtime.telemetry().utilization(DEVICE), rig.runtime.telemetry().memory_usage(DEVICE)),
        (Ok(100), Ok(50))
    );
}

#[test]
fn more_processes_than_expected_are_all_listed() {
    let many = (1..=100).fold(config(), |config, pid| config.other_process(pid, 1));
    let listed = rig(many).runtime.telemetry().processes(DEVICE).unwrap();
    assert_eq!(listed.iter().map(|process| process.pid).collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
}

#[test]
fn failures_are_torchs() {
    let without = Rig::new(config());
    let error = without.runtime.telemetry().temperature(DEVICE).unwrap_err();
    let beginning = "NVML, which tells what devices do, cannot be loaded. It comes with the NVIDIA driver.\n";
    assert!(
        matches!(error, Error::Telemetry(TelemetryError::Missing { .. })) && error.to_string().starts_with(beginning),
        "{error}"
    );
    assert_eq!(without.runtime.telemetry().device_count(), None);
    let rig = rig(config());
    let text = |call, code| {
        rig.machine.inject(Fault { call, occurrence: 1, code: CUresult(code) });
        rig.runtime.telemetry().temperature(DEVICE).unwrap_err().to_string()
    };
    assert_eq!(text("nvmlInit_v2", 9), "cuda driver can't be loaded, is cuda enabled?");
    let unsupported = text("nvmlDeviceGetTemperature", 3);
    assert_eq!(unsupported, "Not Supported (nvmlDeviceGetTemperature: NVML_ERROR_NOT_SUPPORTED)");
    let hidden = rig.runtime.telemetry().utilization(DeviceIndex(64)).unwrap_err().to_string();
    assert!(hidden.starts_with("device 64 is not visible (CUDA_VISIBLE_DEVICES=[0, 1, 2, "), "{hidden}");
    assert_eq!(
        rig.runtime.telemetry().utilization(DeviceIndex(1)),
        Err(Error::Telemetry(TelemetryError::Failed { call: "nvmlDeviceGetHandleByIndex_v2", code: 2 }))
    );
    let missing = ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses_v3"];
    without.runtime.telemetry().set_nvml(cuda_sim::nvml_without(&missing));
    let lacking = without.runtime.telemetry().power_draw(DEVICE).unwrap_err().to_string();
    assert_eq!(lacking, "Function Not Found (nvmlDeviceGetPowerUsage: NVML_ERROR_FUNCTION_NOT_FOUND)");
    assert_eq!(without.runtime.telemetry().processes(DEVICE), Ok(vec![]), "an older function serves");
}

#[test]
fn devices_are_numbered_as_the_process_sees_them() {
    with_environment("devices_are_numbered_as_the_process_sees_them", &[("CUDA_VISIBLE_DEVICES", "2,0,9,1")], || {
        let rig = rig(config().devices(3));
        assert_eq!(rig.runtime.telemetry().device_count(), Some(2));
        let index = |device| rig.runtime.telemetry().device_index(DeviceIndex(device));
        assert_eq!((index(0), index(1), index(2)), (Ok(2), Ok(0), Ok(9)));
        assert_eq!(rig.runtime.telemetry().temperature(DEVICE), Ok(32));
        assert_eq!(index(-1).unwrap_err().to_string(), "device -1 is not visible (CUDA_VISIBLE_DEVICES=[2, 0, 9, 1])");
    });
}

#[test]
fn devices_are_found_by_their_identity() {
    let second = "GPU-63756461-2d73-696d-2064-657669636531,GPU-63756461-2d73-696d-2064-657669636530";
    with_environment("devices_are_found_by_their_identity", &[("CUDA_VISIBLE_DEVICES", second)], || {
        let rig = rig(config().devices(3));
        let index = |device| rig.runtime.telemetry().device_index(DeviceIndex(device));
        assert_eq!((rig.runtime.telemetry().device_count(), index(0), index(1)), (Some(2), Ok(1), Ok(0)));
        assert!(index(2).unwrap_err().to_string().ends_with("(CUDA_VISIBLE_DEVICES=[1, 0])"));
        rig.machine.inject(Fault { call: "nvmlDeviceGetUUID", occurrence: 1, code: CUresult(999) });
        assert_eq!(index(0).unwrap_err().to_string(), "Can't get device UUIDs");
    });
}

#[test]
fn availability_can_be_asked_without_the_driver() {
    let variables = [("PYTORCH_NVML_BASED_CUDA_CHECK", "1"), ("CUDA_VISIBLE_DEVICES", "1")];
    with_environment("availability_can_be_asked_without_the_driver", &variables, || {
        let rig = rig(config().devices(2));
        assert_eq!((rig.runtime.is_available(), rig.runtime.device_count()), (true, 1));
        assert!(!rig.runtime.is_initialized() && rig.machine.calls().iter().all(|(call, ..)| *call != "cuInit"));
        rig.machine.inject(Fault { call: "nvmlDeviceGetCount_v2", occurrence: 1, code: CUresult(999) });
        assert_eq!(rig.runtime.device_count(), 2, "what NVML cannot tell the driver tells");
        assert!(!rig.runtime.is_initialized() && rig.machine.calls().iter().any(|(call, ..)| *call == "cuInit"));
        let without = Rig::new(config());
        assert!(without.runtime.is_available() && !without.runtime.is_initialized());
    });
}

#[test]
fn readings_say_for_each_figure_why_there_is_none() {
    let rig = rig(config().devices(2).other_process(5, MIB));
    let telemetry = rig.runtime.telemetry();
    let readings = telemetry.readings(DEVICE).unwrap();
    assert_eq!(readings.memory.unwrap().used, MIB);
    assert_eq!(readings.power.limit, Ok(700_000));
    assert_eq!(readings.clocks.memory, Ok(OfMax { now: 3201, max: 3201 }));
    assert_eq!(readings.nvlink.links, Ok(OfMax { now: 18, max: 18 }));
    assert_eq!(readings.nvlink.sent, Ok(0));
    assert_eq!(
        (readings.mig, readings.persistence, readings.compute_mode),
        (Ok(false), Ok(true), Ok(ComputeMode::Default))
    );
    assert_eq!(readings.remapped_rows.map(|rows| (rows.pending, rows.failed)), Ok((false, false)));
    assert_eq!(readings.compute_processes.unwrap()[0].pid, 5);
    assert_eq!(readings.graphics_processes, Ok(vec![]));
    assert_eq!((readings.fan_speed, readings.clock_limits), (Err(NoReading::NotSupported), Ok(ClockLimits(1))));
    assert!(!rig.runtime.is_initialized());
    let fault = |call, code| rig.machine.inject(Fault { call, occurrence: 1, code: CUresult(code) });
    fault("nvmlDeviceGetTotalEccErrors", 4);
    fault("nvmlDeviceGetFieldValues", 3);
    let refused = telemetry.readings(DEVICE).unwrap();
    let ecc = refused.ecc.unwrap();
    assert_eq!((ecc.corrected, ecc.uncorrected), (Err(NoReading::NoPermission), Ok(0)));
    assert_eq!((refused.nvlink.sent, refused.nvlink.received), (Err(NoReading::NotSupported), Ok(0)));
    fault("nvmlDeviceGetName", 15);
    let lost = telemetry.readings(DEVICE).unwrap_err().to_string();
    assert_eq!(lost, "GPU is lost (nvmlDeviceGetName: NVML_ERROR_GPU_IS_LOST)");
    let buffer = rig.runtime.memory().buffer(1 << 20, &rig.stream()).unwrap();
    buffer.fill(0..1 << 20, 1, rig.stream()).unwrap();
    assert_eq!(telemetry.readings(DEVICE).unwrap().clock_limits, Ok(ClockLimits(0)), "the device works");
}

#[test]
fn readings_of_an_older_nvml_lack_what_is_newer() {
    let rig = rig(config());
    assert_eq!(rig.runtime.telemetry().readings(DEVICE).unwrap().nvlink.links, Ok(OfMax { now: 0, max: 18 }));
    let missing = [
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetFieldValues",
    ];
    rig.runtime.telemetry().set_nvml(cuda_sim::nvml_without(&missing));
    let readings = rig.runtime.telemetry().readings(DEVICE).unwrap();
    assert_eq!(readings.clock_limits, Ok(ClockLimits(1)), "the older name serves");
    assert_eq!(readings.graphics_processes, Ok(vec![]), "the older function serves");
    assert_eq!((readings.remapped_rows, readings.nvlink.sent), (Err(NoReading::TooOld), Err(NoReading::TooOld)));
}
