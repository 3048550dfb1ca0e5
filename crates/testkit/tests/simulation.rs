//! What a simulation promises: which machine a thread talks to, what is left at the end, one process-wide runtime.

use testkit::c10_core::{DeviceIndex, Runtime};
use testkit::{AlreadyChosen, CUresult, Config, Fault, LiveHandles, SimulatedRuntime, Simulation, make_default};

const DEVICE: DeviceIndex = DeviceIndex(0);

#[test]
fn what_a_test_makes_is_current_on_its_thread_alone() {
    let outer = testkit::simulated_runtime();
    assert_eq!(&Runtime::current(), outer.runtime());
    {
        let inner = SimulatedRuntime::new(Config::default().devices(3));
        assert_eq!((&Runtime::current(), Runtime::current().device_count()), (inner.runtime(), 3));
    }
    assert_eq!((&Runtime::current(), Runtime::current().device_count()), (outer.runtime(), 1));
}

#[test]
fn threads_that_enter_share_the_machine() {
    let simulated = SimulatedRuntime::new(Config::default().devices(2).capacity(1 << 30));
    let threads: Vec<_> = (0..4_u8)
        .map(|number| {
            let there = simulated.simulation().clone();
            std::thread::spawn(move || {
                let _here = there.enter();
                let stream = Runtime::current().streams().pooled(DEVICE, 0).unwrap();
                let buffer = Runtime::current().memory().buffer(1000, &stream).unwrap();
                buffer.copy_from_slice(0, &[number; 1000]).unwrap();
                assert_eq!(buffer.to_vec().unwrap(), [number; 1000]);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(simulated.runtime().memory().stats(DEVICE).unwrap().allocated_bytes.all.peak >= 1024);
    simulated.close_clean();
}

#[test]
fn the_last_handle_cleans_up_from_any_thread() {
    let simulation = Simulation::new(Config::default());
    let machine = simulation.machine().clone();
    simulation.clone().here().runtime().synchronize(DEVICE).unwrap();
    assert_eq!(machine.live().contexts, 1);
    std::thread::spawn(move || drop(simulation)).join().unwrap();
    assert_eq!(machine.live(), LiveHandles::default());
}

#[test]
fn what_is_left_is_said() {
    let simulated = testkit::simulated_runtime();
    let stream = simulated.runtime().streams().default(DEVICE).unwrap();
    let buffer = simulated.runtime().memory().buffer(1, &stream).unwrap();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulated.close_clean())).unwrap_err();
    let text = refused.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("left on the simulated machine: 1 allocations"), "{text}");
    drop(buffer);
    drop(stream);
    let simulated = testkit::simulated_runtime();
    simulated.runtime().synchronize(DEVICE).unwrap();
    assert_eq!(simulated.close(), LiveHandles::default());
}

#[test]
fn nvml_is_there_for_those_who_ask() {
    let without = testkit::simulated_runtime();
    assert!(without.runtime().telemetry().temperature(DEVICE).is_err());
    let with = Simulation::new(Config::default()).with_nvml().here();
    assert!(with.runtime().telemetry().temperature(DEVICE).is_ok());
}

#[test]
fn the_process_wide_runtime_is_chosen_once() {
    let machine = make_default(Config::default().devices(5)).unwrap();
    assert_eq!(Runtime::default_runtime().device_count(), 5);
    assert_eq!(make_default(Config::default()).unwrap_err(), AlreadyChosen);
    machine.inject(Fault { call: "cuCtxSynchronize", occurrence: 1, code: CUresult::CUDA_ERROR_UNKNOWN });
    let counted = std::thread::spawn(|| Runtime::current().device_count());
    assert_eq!(counted.join().unwrap(), 5);
}

#[test]
fn the_environment_sets_the_seed_of_every_machine() {
    testkit::with_environment("the_environment_sets_the_seed_of_every_machine", &[("TESTKIT_SEED", "9")], || {
        assert_eq!(SimulatedRuntime::new(Config::default().seed(3)).machine().seed(), 9);
        assert_eq!(testkit::make_default_exactly(Config::default().seed(3)).unwrap().seed(), 3);
    });
}

/// Queues two fills of overlapping bytes that nothing orders.
fn race() -> c10_core::Result<()> {
    let simulated = testkit::simulated_runtime();
    let streams = [0, 1].map(|_| simulated.runtime().streams().pooled(DEVICE, 0).expect("there are streams"));
    let buffer = simulated.runtime().memory().buffer(8, &streams[0])?;
    buffer.fill(.., 1, &streams[0])?;
    buffer.fill(4.., 2, &streams[1])
}

#[test]
fn races_are_let_pass() {
    assert!(race().is_ok());
}

#[test]
fn the_environment_has_races_raised() {
    testkit::with_environment("the_environment_has_races_raised", &[("TESTKIT_SANITIZER", "1")], || {
        assert!(race().unwrap_err().to_string().contains("detected 1 errors"), "the bytes from 4 on race");
    });
}

/// A stream's host function is called although the program, which waits for it, makes no call.
#[test]
fn a_program_that_waits_by_a_channel_goes_on() {
    let simulated = testkit::simulated_runtime();
    let stream = simulated.runtime().streams().pooled(DEVICE, 0).unwrap();
    let buffer = simulated.runtime().memory().buffer(1 << 20, &stream).unwrap();
    buffer.fill(.., 1, &stream).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    stream.launch_host_func(move || tell.send(7).unwrap()).unwrap();
    assert_eq!(told.recv(), Ok(7));
}
