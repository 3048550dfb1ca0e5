//! torch.cuda's names for what NVML shows, and for running out of memory.

mod common;

use std::sync::{Arc, Mutex};

use common::{on, with_nvml};
use cuda_api::{
    DeviceBuffer, DeviceError, DeviceIndex, Error, NestedStat, TelemetryError, attach_out_of_memory_observer,
    clock_rate, detach_out_of_memory_observer, device_memory_used, init, is_initialized, list_gpu_processes,
    memory_stats_as_nested_dict, memory_usage, power_draw, temperature, utilization,
};
use cuda_sim::{Config, Fault};
use cuda_sys::CUresult;

const MIB: u64 = 1 << 20;

#[test]
fn a_device_shows_what_it_does() {
    let _rig = with_nvml(Config::default().devices(2).capacity(100 * MIB).other_process(403, 880 * 1024));
    assert_eq!((utilization(1), memory_usage(1), temperature("cuda:1")), (Ok(0), Ok(0), Ok(31)));
    assert_eq!((power_draw(0), clock_rate(0), device_memory_used(0)), (Ok(75_000), Ok(1980), Ok(880 * 1024)));
    assert!(!is_initialized());
    assert_eq!(utilization(None), Ok(0));
    assert!(is_initialized());
    assert_eq!(utilization("cpu").unwrap_err().to_string(), "Expected a cuda device, but got: cpu");
}

#[test]
fn processes_are_listed_in_torchs_words() {
    let _rig = with_nvml(Config::default().devices(2).capacity(100 * MIB).other_process(403, 880 << 10));
    assert_eq!(list_gpu_processes(0).unwrap(), "GPU:0\nprocess        403 uses        0.859 MB GPU memory");
    let _buffer = DeviceBuffer::new(20 << 20, 1).unwrap();
    let this = format!("process {:>10} uses       20.000 MB GPU memory", std::process::id());
    let expected = format!("GPU:1\n{this}\nprocess        403 uses        0.859 MB GPU memory");
    assert_eq!(list_gpu_processes(1).unwrap(), expected);
}

#[test]
fn a_list_without_processes_or_nvml_says_so() {
    let rig = with_nvml(Config::default());
    assert_eq!(list_gpu_processes(0).unwrap(), "GPU:0\nno processes are running");
    drop(rig);
    let rig = with_nvml(Config::default());
    rig.machine.inject(Fault { call: "nvmlInit_v2", occurrence: 1, code: CUresult(9) });
    assert_eq!(list_gpu_processes(0).unwrap(), "cuda driver can't be loaded, is cuda enabled?");
    drop(rig);
    let _rig = on(Config::default());
    assert_eq!(list_gpu_processes(0).unwrap(), "NVML cannot be loaded; it comes with the NVIDIA driver");
    assert!(matches!(clock_rate(0), Err(Error::Telemetry(TelemetryError::Missing { .. }))));
}

#[test]
fn observers_hear_of_memory_that_runs_out() {
    let _rig = on(Config::default().capacity(100 * MIB));
    let told = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&told);
    let observer = attach_out_of_memory_observer(move |device, segment, limit, free| {
        notes.lock().unwrap().push((device, segment, limit, free));
    });
    assert!(DeviceBuffer::new(200 << 20, None).unwrap_err().is_out_of_memory());
    assert_eq!(*told.lock().unwrap(), [(DeviceIndex(0), 200 * MIB, 100 * MIB, 100 * MIB)]);
    assert!(detach_out_of_memory_observer(observer));
    assert!(DeviceBuffer::new(200 << 20, None).unwrap_err().is_out_of_memory());
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn figures_are_a_tree_once_there_are_any() {
    let _rig = on(Config::default());
    assert!(
        memory_stats_as_nested_dict(None).unwrap().is_empty() && memory_stats_as_nested_dict(0).unwrap().is_empty()
    );
    init().unwrap();
    let _buffer = DeviceBuffer::new(1, None).unwrap();
    let tree = memory_stats_as_nested_dict(None).unwrap();
    assert_eq!(tree["allocation"].get("all").and_then(|all| all.get("current")), Some(&NestedStat::Value(1)));
    assert_eq!(memory_stats_as_nested_dict(7), Err(Error::Device(DeviceError::InvalidId)));
}
