//! Devices as a whole: which reach each other, which is current, and the runtime API's functions that torch shows.
//!
//! # Safety
//! Registers memory that outlives its registration, and destroys the stream it has made.
#![expect(unsafe_code, reason = "functions that take addresses and handles")]

mod common;

use std::sync::{Arc, Mutex};

use c10_core::{DeviceError, DeviceIndex, Error, Runtime, StartError, check_error};
use common::{DEVICE, Rig, config, rig};
use cuda_sim::Fault;
use cuda_sys::CUresult;

fn count(rig: &Rig, symbol: &str) -> u64 {
    rig.machine.calls().iter().filter(|(call, ..)| *call == symbol).map(|(.., count)| count).sum()
}

#[test]
fn peers_are_asked_for_once() {
    let rig = Rig::new(config().devices(3));
    let runtime = &rig.runtime;
    let can = |device, peer| runtime.devices().can_access_peer(DeviceIndex(device), DeviceIndex(peer));
    let fault = Fault { call: "cuDeviceCanAccessPeer", occurrence: 1, code: CUresult::CUDA_ERROR_UNKNOWN };
    runtime.init().unwrap();
    rig.machine.inject(fault);
    assert_eq!(can(0, 1).unwrap_err().error_code(), Some(999));
    for _ in 0..2 {
        assert_eq!((can(0, 1), can(1, 0), can(2, 2)), (Ok(true), Ok(true), Ok(true)));
    }
    assert_eq!(count(&rig, "cuDeviceCanAccessPeer"), 3, "one failed, one for each pair");
    for bad in [-1, 3, i32::MAX] {
        assert_eq!(can(bad, 0), Err(Error::Device(DeviceError::InvalidId)));
        assert_eq!(can(0, bad), Err(Error::Device(DeviceError::InvalidPeerId)));
    }
    assert_eq!(can(0, 3).unwrap_err().to_string(), "Invalid peer device id");
    assert_eq!(rig.machine.live().contexts, 0);
}

#[test]
fn no_exchange_of_devices_makes_a_context() {
    let rig = Rig::new(config().devices(3));
    let runtime = &rig.runtime;
    let device = DeviceIndex;
    assert_eq!(runtime.exchange_device(device(2)), Ok(device(0)));
    assert_eq!(runtime.maybe_exchange_device(device(1)), Ok(device(2)));
    assert_eq!(runtime.exchange_device(device(-1)), Ok(device(-1)));
    assert_eq!(runtime.maybe_exchange_device(device(-7)), Ok(device(-1)));
    assert_eq!(runtime.current_device(), Ok(device(1)));
    let unknown = runtime.maybe_exchange_device(device(3)).unwrap_err();
    assert_eq!(unknown.error_code(), Some(CUresult::CUDA_ERROR_INVALID_DEVICE.0));
    runtime.set_device(device(0)).unwrap();
    assert_eq!((rig.machine.live().contexts, count(&rig, "cuDevicePrimaryCtxRetain")), (0, 0));
    runtime.set_device(device(2)).unwrap();
    drop(runtime.memory().buffer(100, &runtime.streams().pooled(device(2), 0).unwrap()).unwrap());
    runtime.exchange_device(device(0)).unwrap();
    assert_eq!(rig.machine.live().contexts, 1, "only the device that was used");
}

#[test]
fn the_runtime_api_answers_with_codes() {
    let rig = rig();
    let cudart = rig.runtime.cudart().unwrap();
    assert!(rig.runtime.is_initialized() && !Runtime::is_in_bad_fork());
    assert_eq!(cudart.cudaGetErrorString(0), "no error");
    assert_eq!(cudart.cudaGetErrorString(2), "out of memory");
    assert_eq!((cudart.cudaProfilerStart(), cudart.cudaProfilerStop()), (0, 0));
    assert_eq!((count(&rig, "cuProfilerStart"), count(&rig, "cuProfilerStop")), (1, 1));
    let info = rig.runtime.memory().info(DEVICE).unwrap();
    assert_eq!(cudart.cudaMemGetInfo(0), Ok((info.free, info.total)));
    assert_eq!(cudart.cudaMemGetInfo(1).unwrap_err().error_code(), Some(101));

    let mut stream = 0;
    assert_eq!(cudart.cudaStreamCreate(&mut stream), 0);
    assert!(stream != 0 && rig.machine.live().streams == 1);
    // SAFETY: the stream was just made.
    assert_eq!(unsafe { cudart.cudaStreamDestroy(stream) }, 0);
    assert_eq!(rig.machine.live().streams, 0);

    rig.machine.inject(Fault { call: "cuStreamCreate", occurrence: 1, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY });
    let (mut untouched, code) = (7, cudart.cudaStreamCreate(&mut 0));
    assert_eq!(check_error(code).unwrap_err().to_string(), "out of memory (2)");
    rig.machine.inject(Fault { call: "cuStreamCreate", occurrence: 1, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY });
    assert_eq!((cudart.cudaStreamCreate(&mut untouched), untouched), (2, 7));
}

#[test]
fn memory_of_the_program_is_registered() {
    let rig = rig();
    let cudart = rig.runtime.cudart().unwrap();
    let memory = vec![0u8; 8192];
    let address = memory.as_ptr().expose_provenance();
    // SAFETY: the vector outlives the registration, and no work uses it; as below.
    assert_eq!(unsafe { cudart.cudaHostRegister(address, 8192, 0) }, 0);
    assert_eq!(rig.machine.live().pinned, 1);
    // SAFETY: as above.
    assert_eq!(unsafe { cudart.cudaHostRegister(address, 8192, 0) }, 712, "registered already");
    // SAFETY: as above.
    assert_eq!(unsafe { cudart.cudaHostUnregister(address) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { cudart.cudaHostUnregister(address) }, 713, "not registered");
    assert_eq!(rig.machine.live().pinned, 0);
}

#[test]
fn queued_calls_run_when_the_runtime_starts() {
    let rig = rig();
    let runtime = &rig.runtime;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |number: i32, fails: bool| {
        let (seen, mut fails) = (Arc::clone(&seen), fails);
        move |runtime: &Runtime| {
            seen.lock().unwrap().push((number, runtime.current_device()?));
            if std::mem::take(&mut fails) { check_error(2) } else { Ok(()) }
        }
    };
    runtime.lazy_call(note(1, false)).unwrap();
    runtime.lazy_call(note(2, true)).unwrap();
    let line = line!() - 1;
    runtime.lazy_call(note(3, false)).unwrap();
    assert!(seen.lock().unwrap().is_empty() && !runtime.is_initialized());

    let error = runtime.streams().pooled(DEVICE, 0).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Start(StartError::DeferredCall(_))));
    assert!(text.starts_with("CUDA call failed lazily at initialization with error: out of memory (2)\n"), "{text}");
    assert!(text.ends_with(&format!("CUDA call was originally invoked at:\n\n{}:{line}:13", file!())), "{text}");
    assert_eq!(*seen.lock().unwrap(), [(1, 0), (2, 0)]);
    runtime.lazy_call(note(4, false)).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 0), (2, 0), (4, 0)], "called at once");
    runtime.init().unwrap();
    runtime.init().unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [(1, 0), (2, 0), (4, 0), (2, 0), (3, 0)],
        "what had failed, and what waited behind"
    );
    assert_eq!(runtime.lazy_call(|_| check_error(2)).unwrap_err().to_string(), "out of memory (2)");
}
