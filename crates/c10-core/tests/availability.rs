//! Asking whether there are devices and how many: nobody is started, nothing is kept, and no option is looked at.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use c10_core::{Error, Runtime, StartError};
use common::{DEVICE, Rig, config, in_a_process, runtime};
use cuda_sim::{Fault, Machine};
use cuda_sys::CUresult;

/// Set in the processes that these tests start.
const CHILD: &str = "AVAILABILITY_CHILD";

fn calls_to(machine: &Machine, call: &str) -> u64 {
    machine.calls().iter().filter(|(name, ..)| *name == call).map(|(.., count)| count).sum()
}

#[test]
fn counting_starts_nothing_and_runs_nothing() {
    let rig = Rig::new(config().devices(2));
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let queued = move |_: &Runtime| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(Error::Start(StartError::NoDevices))
    };
    rig.runtime.lazy_call(queued).unwrap();
    for _ in 0..2 {
        assert_eq!((rig.runtime.is_available(), rig.runtime.device_count()), (true, 2));
    }
    assert!(!rig.runtime.is_initialized());
    assert_eq!((runs.load(Ordering::Relaxed), rig.machine.live().contexts), (0, 0));
    assert_eq!(rig.runtime.memory().stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
    assert!(matches!(rig.runtime.init(), Err(Error::Start(StartError::DeferredCall(_)))));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn nvml_is_asked_for_the_count_and_the_driver_for_availability() {
    let rig = Rig::new(config().devices(3));
    rig.runtime.telemetry().set_nvml(cuda_sim::nvml());
    assert_eq!((rig.runtime.device_count(), calls_to(&rig.machine, "cuInit")), (3, 0));
    assert!(rig.runtime.is_available());
    assert_eq!((calls_to(&rig.machine, "cuInit"), rig.runtime.is_initialized()), (1, false));
    rig.machine.inject(Fault { call: "nvmlDeviceGetCount_v2", occurrence: 1, code: CUresult(999) });
    assert_eq!(rig.runtime.device_count(), 3, "what NVML cannot tell the driver tells");
}

#[test]
fn a_count_is_kept_only_once_the_runtime_has_started() {
    let rig = Rig::new(config().devices(2));
    rig.runtime.telemetry().set_nvml(cuda_sim::nvml());
    assert_eq!(rig.runtime.device_count(), 2);
    let fail = || {
        let failing = Fault { call: "nvmlDeviceGetCount_v2", occurrence: 1, code: CUresult(999) };
        rig.machine.inject(failing);
    };
    fail();
    assert_eq!(
        (rig.runtime.device_count(), calls_to(&rig.machine, "cuInit")),
        (2, 1),
        "NVML was asked anew, and failed"
    );
    rig.runtime.init().unwrap();
    fail();
    assert_eq!(rig.runtime.device_count(), 2);
    assert!(rig.runtime.telemetry().raw_device_count().is_err(), "nobody has met the failure before");
}

#[test]
fn a_driver_that_does_not_start_is_no_device_until_it_starts() {
    let rig = Rig::new(config().fault(Fault { call: "cuInit", occurrence: 1, code: CUresult::CUDA_ERROR_UNKNOWN }));
    assert!(!rig.runtime.is_available());
    assert!(rig.runtime.is_available() && !rig.runtime.is_initialized());
}

/// The count, whether there is a device, and what the start of a runtime says.
fn told_by(variable: &str, text: &str) -> (usize, bool, String) {
    let (said, _) = in_a_process("what_a_process_is_told", &[(CHILD, "1"), (variable, text)]);
    let line = said.lines().find_map(|line| line.split_once("told:")).expect("the child says it").1;
    let mut parts = line.splitn(3, '|');
    let mut next = || parts.next().expect("three parts");
    (next().parse().expect("a number of devices"), next() == "true", next().to_owned())
}

#[test]
fn what_a_process_is_told() {
    if std::env::var_os(CHILD).is_some() {
        let rig = Rig::new(config().devices(2));
        let started = rig.runtime.init().map_or_else(|error| error.to_string(), |()| "started".to_owned());
        // The second runtime counts before anything was refused.
        let fresh = runtime();
        println!("told:{}|{}|{started}", fresh.device_count(), fresh.is_available());
    }
}

#[test]
fn options_that_are_refused_hide_no_device() {
    let cases = [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True", "expandable_segment", "True"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:30,backend:xyz", "backend", "xyz"),
        ("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:[256:3,>:2]", "roundup_power2_divisions", "[256:3,>:2]"),
    ];
    for (variable, text, key, value) in cases {
        let (count, is_available, error) = told_by(variable, text);
        assert_eq!((count, is_available), (2, true), "{text}");
        let place = format!("(the environment variable {variable} sets '{key}' to '{value}')");
        assert!(error.ends_with(&place), "{error}");
    }
    assert_eq!(told_by("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), (2, true, "started".to_owned()));
}
