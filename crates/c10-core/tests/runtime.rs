//! Start, devices, contexts, guards, and everything that can be wrong with a driver.

mod common;

use c10_core::{DeviceError, DeviceIndex, Error, Runtime, StartError};
use common::{DEVICE, Rig, code, config, rig};
use cuda_sim::{Config, Fault};
use cuda_sys::{CUresult, CudaVersion};

#[test]
fn nothing_is_started_before_it_is_needed() {
    let rig = rig();
    assert!(!rig.runtime.is_initialized());
    assert_eq!(rig.runtime.memory().stats(DEVICE).unwrap(), Default::default());
    rig.runtime.memory().empty_cache().unwrap();
    rig.runtime.memory().reset_peak_stats(DEVICE).unwrap();
    assert!(!rig.runtime.is_initialized());
    assert!(!rig.machine.calls().iter().any(|(symbol, ..)| *symbol == "cuInit"));
    assert_eq!(rig.runtime.device_count(), 1);
    assert!(rig.runtime.is_available() && !rig.runtime.is_initialized());
    assert_eq!(rig.runtime.current_device(), Ok(DEVICE));
    assert!(rig.runtime.is_initialized());
}

#[test]
fn only_used_devices_get_a_context_and_get_it_once() {
    let rig = Rig::new(config().devices(3));
    rig.runtime.init().unwrap();
    rig.runtime.set_device(DeviceIndex(2)).unwrap();
    {
        let _guard = rig.runtime.device_guard(DeviceIndex(1)).unwrap();
        assert_eq!(rig.runtime.current_device().unwrap(), DeviceIndex(1));
        rig.runtime.devices().properties(DeviceIndex(1)).unwrap();
    }
    assert_eq!(rig.runtime.current_device().unwrap(), DeviceIndex(2));
    assert!(!rig.runtime.streams().is_current_capturing().unwrap());
    assert_eq!(rig.machine.live().contexts, 0);
    for _ in 0..2 {
        let stream = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
        rig.runtime.memory().buffer(100, &stream).unwrap();
    }
    assert_eq!(rig.machine.live().contexts, 1);
    assert!(rig.runtime.devices().is_used(DeviceIndex(1)) && !rig.runtime.devices().is_used(DeviceIndex(0)));
    let retained = rig.machine.calls().into_iter().find(|(symbol, ..)| *symbol == "cuDevicePrimaryCtxRetain");
    assert_eq!(retained, Some(("cuDevicePrimaryCtxRetain", CUresult::CUDA_SUCCESS, 1)));
    assert_eq!(rig.left().contexts, 0);
}

#[test]
fn a_device_out_of_range_is_the_drivers_invalid_ordinal() {
    let rig = rig();
    let error = rig.runtime.set_device(DeviceIndex(99)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
    );
    assert_eq!(error.error_code(), Some(101));
    assert!(!error.context_is_lost());
    assert_eq!(code(rig.runtime.device_guard(DeviceIndex(1)).map(drop)), 101);
    assert_eq!(code(rig.runtime.streams().pooled(DeviceIndex(7), 0)), 101);
    assert_eq!(rig.runtime.devices().name(DeviceIndex(99)), Err(Error::Device(DeviceError::InvalidId)));
    assert_eq!(rig.runtime.devices().properties(DeviceIndex(-1)), Err(Error::Device(DeviceError::InvalidId)));
    assert_eq!(rig.runtime.memory().stats(DeviceIndex(99)), Err(Error::Device(DeviceError::InvalidId)));
    rig.runtime.synchronize(DEVICE).unwrap();
}

#[test]
fn negative_devices_change_nothing() {
    let rig = Rig::new(config().devices(2));
    rig.runtime.set_device(DeviceIndex(1)).unwrap();
    rig.runtime.set_device(DeviceIndex(-1)).unwrap();
    let guard = rig.runtime.device_guard(DeviceIndex(-3)).unwrap();
    assert_eq!(guard.previous(), None);
    drop(guard);
    assert_eq!(rig.runtime.current_device().unwrap(), DeviceIndex(1));
    assert_eq!(rig.runtime.exchange_device(DeviceIndex(-1)).unwrap(), DeviceIndex(-1));
}

#[test]
fn the_current_device_is_a_matter_of_the_thread() {
    let rig = Rig::new(config().devices(2));
    rig.runtime.set_device(DeviceIndex(1)).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _bound = rig.machine.bind();
            rig.runtime.current_device().unwrap()
        });
        assert_eq!(other.join().unwrap(), DeviceIndex(0));
    });
}

#[test]
fn properties_are_those_of_an_h200() {
    let rig = rig();
    let properties = rig.runtime.devices().properties(DEVICE).unwrap();
    assert_eq!((properties.major, properties.minor), rig.runtime.devices().capability(DEVICE).unwrap());
    assert_eq!(properties.name, rig.runtime.devices().name(DEVICE).unwrap());
    assert_eq!((properties.major, properties.minor, properties.multi_processor_count), (9, 0, 132));
    assert_eq!(properties.max_threads_per_multi_processor, 2048);
    assert_eq!(properties.total_memory, 150_109_880_320);
    let text = properties.to_string();
    assert!(text.contains("major=9, minor=0, total_memory=143155MB, multi_processor_count=132, uuid="), "{text}");
    let uuid = properties.uuid.to_string();
    assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    assert_eq!(rig.machine.live().contexts, 0);
}

#[test]
fn no_driver_is_an_error_that_lists_what_was_tried() {
    let runtime = Runtime::on_driver_file("/nonexistent/libcuda.so.1");
    assert_eq!(runtime.device_count(), 0);
    let error = runtime.init().unwrap_err();
    assert!(error.to_string().starts_with("Found no NVIDIA driver on your system"), "{error}");
    assert!(error.to_string().contains("/nonexistent/libcuda.so.1"));
    assert!(!runtime.is_initialized());
    assert!(runtime.current_device().is_err());
}

#[test]
fn a_file_that_is_no_driver_is_told_from_a_missing_one() {
    let runtime = Runtime::on_driver_file("libc.so.6");
    let error = runtime.init().unwrap_err();
    assert!(error.to_string().starts_with("CUDA driver initialization failed, you might not have a CUDA gpu."));
    assert!(matches!(&error, Error::Start(StartError::NoDriver(driver)) if !driver.is_not_installed()));
}

#[test]
fn a_stub_library_is_refused_as_no_driver() {
    let rig = rig();
    let code = CUresult::CUDA_ERROR_STUB_LIBRARY;
    rig.machine.inject(Fault { call: "cuDriverGetVersion", occurrence: 1, code });
    let error = Error::from(cuda_sim::driver().unwrap_err());
    assert!(error.to_string().starts_with("CUDA driver initialization failed, you might not have a CUDA gpu."));
    assert!(error.to_string().contains("CUDA_ERROR_STUB_LIBRARY"), "{error}");
}

#[test]
fn an_old_driver_is_refused_with_its_version() {
    let rig = Rig::new(config().driver_version(CudaVersion(11040)));
    assert_eq!(rig.runtime.device_count(), 0);
    let error = rig.runtime.init().unwrap_err();
    assert_eq!(error, Error::Start(StartError::DriverTooOld { found: 11040 }));
    assert!(
        error.to_string().starts_with("The NVIDIA driver on your system is too old (found version 11040)"),
        "{error}"
    );
}

#[test]
fn no_device_and_a_driver_that_does_not_start() {
    let cases = [
        (CUresult::CUDA_ERROR_NO_DEVICE, "No CUDA GPUs are available"),
        (CUresult::CUDA_ERROR_UNKNOWN, "CUDA unknown error - this may be due to an incorrectly set up environment"),
        (
            CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
            "CUDA driver initialization failed, you might not have a CUDA gpu.",
        ),
    ];
    for (code, text) in cases {
        let rig = Rig::new(config().fault(Fault { call: "cuInit", occurrence: 1, code }));
        let error = rig.runtime.init().unwrap_err();
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!(rig.runtime.device_count(), 1, "the next need starts it after all");
    }
    let rig = Rig::new(config().devices(0));
    assert_eq!(rig.runtime.init(), Err(Error::Start(StartError::NoDevices)));
    assert_eq!(rig.runtime.device_count(), 0);
    assert_eq!(rig.runtime.current_device(), Err(Error::Start(StartError::NoDevices)));
}

#[test]
fn supported_drivers_work_end_to_end() {
    for version in [11080, 12020, 13000] {
        let rig = Rig::new(config().driver_version(CudaVersion(version)));
        assert_eq!(rig.runtime.driver_version().unwrap().0, version);
        let stream = rig.stream();
        let buffer = rig.runtime.memory().buffer(1 << 16, &stream).unwrap();
        buffer.fill(0..1 << 16, 3, &stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(buffer.to_vec().unwrap(), vec![3; 1 << 16]);
        rig.runtime.devices().properties(DEVICE).unwrap();
    }
}

#[test]
fn runtimes_do_not_mix() {
    let rig = rig();
    let other = common::runtime();
    let stream = rig.stream();
    assert_eq!(other.memory().alloc(1, &stream), Err(Error::OtherRuntime { what: "stream" }));
    assert_eq!(other.streams().set_current(&stream), Err(Error::OtherRuntime { what: "stream" }));
    let buffer = rig.runtime.memory().buffer(10, &stream).unwrap();
    let foreign = other.pinned().buffer(10).unwrap();
    let refused = buffer.copy_from_pinned(0, &foreign, 0..10, &stream);
    assert_eq!(refused, Err(Error::OtherRuntime { what: "pinned buffer" }));
}

#[test]
fn a_runtime_is_current_on_its_thread_while_bound() {
    let first = rig();
    let second = common::runtime();
    let guard = first.runtime.bind();
    assert_eq!(c10_core::Stream::new(None, 0).unwrap().runtime(), &first.runtime);
    {
        let _inner = second.bind();
        assert_eq!(c10_core::Stream::new(None, 0).unwrap().runtime(), &second);
    }
    assert_eq!(Runtime::current(), first.runtime);
    assert_ne!(Runtime::current(), second);
    drop(guard);
}

#[test]
fn what_is_shared_between_threads_can_be() {
    fn shared<T: Send + Sync>() {}
    shared::<Runtime>();
    shared::<c10_core::Stream>();
    shared::<c10_core::Event>();
    shared::<c10_core::DeviceBuffer>();
    shared::<c10_core::PinnedBuffer>();
    shared::<c10_core::CUDAGraph>();
    shared::<Error>();
}

#[test]
fn dropping_the_runtime_leaves_nothing() {
    let rig = Rig::new(Config::default().seed(3).devices(2));
    for device in [DeviceIndex(0), DeviceIndex(1)] {
        let stream = rig.runtime.streams().pooled(device, -1).unwrap();
        let other = rig.runtime.streams().pooled(device, 0).unwrap();
        let buffer = rig.runtime.memory().buffer(1 << 20, &stream).unwrap();
        let pinned = rig.runtime.pinned().buffer(1 << 20).unwrap();
        buffer.copy_from_pinned(0, &pinned, 0..1 << 20, &other).unwrap();
        rig.runtime.memory().alloc(100, &stream).unwrap();
    }
    let live = rig.left();
    assert_eq!(live, Default::default());
}
