//! What errors say to whoever has to mend something: the driver that was named, the device of a stream, queued work.

mod common;

use c10_core::{DeviceIndex, Error, Runtime, StreamError};
use common::{DEVICE, Rig, config, rig};
use cuda_sim::Fault;
use cuda_sys::CUresult;

/// Set in the processes that print an error; says which.
const SCENE: &str = "C10_CORE_TEST_MESSAGES";

/// Prints an error, in the process that is made for it; does nothing in others.
#[test]
fn prints_an_error() {
    match std::env::var(SCENE).as_deref() {
        Ok("start") => println!("{}", Runtime::on_system_driver().init().unwrap_err()),
        Ok("queued work") => {
            let rig = rig();
            let stream = rig.stream();
            let code = CUresult::CUDA_ERROR_LAUNCH_FAILED;
            rig.machine.inject(Fault { call: "cuStreamSynchronize", occurrence: 1, code });
            println!("{}", stream.synchronize().unwrap_err());
        }
        _ => {}
    }
}

/// What such a process prints with this variable.
fn printed(scene: &str, variable: &str, value: &str) -> String {
    common::in_a_process("prints_an_error", &[(SCENE, scene), (variable, value)]).0
}

#[test]
fn a_driver_that_was_named_and_cannot_be_used_is_named() {
    let reasons =
        [("/nonexistent/driver.so", "cannot open shared object file"), ("libc.so.6", "has no cuDriverGetVersion")];
    for (path, reason) in reasons {
        let text = printed("start", "CUDA_SYS_LIBCUDA", path);
        assert!(text.contains("CUDA driver initialization failed, you might not have a CUDA gpu."), "{text}");
        assert!(text.contains("CUDA_SYS_LIBCUDA names a file that cannot be used"), "{text}");
        assert!(text.contains(path) && text.contains(reason), "{text}");
        assert!(!text.contains("Found no NVIDIA driver"), "nothing was looked for: {text}");
    }
}

#[test]
fn where_there_is_no_driver_the_simulated_one_is_mentioned() {
    let error = Runtime::on_driver_file("/nonexistent/libcuda.so.1").init().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("Found no NVIDIA driver on your system."), "{text}");
    assert!(text.contains("cargo build --release -p libcuda-sim") && text.contains("libcuda_sim_driver.so"), "{text}");
}

#[test]
fn errors_of_queued_work_advise_blocking_launches_unless_they_block() {
    for (value, hinted) in [("0", true), ("1", false), ("no", true)] {
        let text = printed("queued work", "CUDA_LAUNCH_BLOCKING", value);
        assert!(text.contains("CUDA error: unspecified launch failure\nCUDA kernel errors might be"), "{text}");
        assert_eq!(text.contains("For debugging consider passing CUDA_LAUNCH_BLOCKING=1"), hinted, "{value}: {text}");
    }
}

#[test]
fn filling_on_a_stream_of_another_device_names_both() {
    let rig = Rig::new(config().devices(2));
    let stream = rig.stream();
    let elsewhere = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    let buffer = rig.runtime.memory().buffer(64, &stream).unwrap();
    let calls = rig.machine.calls();
    let refused = buffer.fill(0..64, 1, &elsewhere);
    assert_eq!(refused, Err(Error::Stream(StreamError::Device { device: DEVICE, stream: DeviceIndex(1) })));
    assert_eq!(rig.machine.calls(), calls, "nothing was called");
    buffer.fill(0..64, 1, &stream).unwrap();
}
