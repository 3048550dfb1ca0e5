//! Faults of work on a device: the launches that the errors name, launches that are waited for, and what kernels refuse.
//!
//! # Safety
//! Each kernel launched here touches no memory, or an address where nothing is, which the simulated device notices.
#![expect(unsafe_code, reason = "launches of kernels")]
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use c10_core::{
    CUDAGraph, CaptureMode, DeviceAssertionError, DeviceFaultError, Error, Event, EventOptions, Kernel, LaunchConfig,
    Module, Stream,
};
use common::{DEVICE, Rig, rig};

/// Set in the process whose launches are waited for.
const SCENE: &str = "C10_CORE_TEST_FAULTS";

/// `nothing()` does nothing; `fail()` writes where nothing is.
const TEXT: &str = "
.version 7.8
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry fail() { .reg .b64 %d; mov.u64 %d, 4096; st.global.u32 [%d], 0; ret; }
";

fn kernels(rig: &Rig) -> [Kernel; 2] {
    let module = Module::from_ptx(&rig.runtime, DEVICE, TEXT).unwrap();
    ["nothing", "fail"].map(|name| module.kernel(name).unwrap())
}

fn launch(kernel: &Kernel, blocks: u32, stream: &Stream) -> c10_core::Result<()> {
    // SAFETY: the kernel touches no memory of anybody's; the simulated device finds out.
    unsafe { kernel.launch(&LaunchConfig { grid: [blocks, 1, 1], ..LaunchConfig::default() }, &[], stream) }
}

fn fault(error: Error) -> DeviceFaultError {
    let Error::DeviceFault(fault) = error else { panic!("another error: {error}") };
    *fault
}

#[test]
fn a_fault_names_the_last_launches_whoever_tells_it() {
    let tellers: [fn(&Rig, &Stream) -> c10_core::Result<()>; 5] = [
        |_, stream| stream.synchronize(),
        |rig, _| rig.runtime.synchronize(DEVICE),
        |rig, stream| {
            let event = Event::on(&rig.runtime, EventOptions::default());
            event.record(stream)?;
            event.synchronize()
        },
        |_, stream| stream.sleep(1).and_then(|()| stream.query().map(drop)),
        |rig, stream| rig.runtime.memory().buffer(8, stream)?.copy_to_slice(0, &mut [0; 8]),
    ];
    for tell in tellers {
        let rig = rig();
        let (stream, [nothing, fail]) = (rig.stream(), kernels(&rig));
        let _buffer = rig.runtime.memory().buffer(8, &stream).unwrap();
        (1..=20).for_each(|blocks| launch(&nothing, blocks, &stream).unwrap());
        launch(&fail, 3, &stream).unwrap();
        launch(&nothing, 21, &stream).unwrap();
        stream.synchronize().unwrap_err();
        let told = fault(tell(&rig, &stream).and_then(|()| rig.runtime.synchronize(DEVICE)).unwrap_err());
        assert_eq!((told.accelerator().error_code(), told.device(), told.culprit()), (700, DEVICE, None));
        let last = told.launches();
        assert_eq!((last.len(), last[0].number, last[0].grid), (22, 22, [21, 1, 1]));
        assert_eq!(last[1].kernel.as_deref(), Some("fail"));
        assert_eq!(last[1].stream, stream.cuda_stream() as u64);
        assert_eq!(rig.runtime.last_launches(DEVICE).unwrap(), last);
        let text = told.to_string();
        let expected = "The last launches on cuda:0, the newest first:\n- kernel 'nothing' with 21 x 1 x 1 blocks";
        assert!(text.starts_with("CUDA error: an illegal memory access was encountered\n"), "{text}");
        assert!(
            text.contains(expected) && text.contains("\n- kernel 'fail' with 3 x 1 x 1 blocks of 1 x 1 x 1"),
            "{text}"
        );
        assert_eq!(text.matches("\n- ").count(), 8, "{text}");
        let debug = format!("{:?}", Error::from(told));
        assert!(debug.contains("answered CUDA_ERROR_ILLEGAL_ADDRESS)"), "{debug}");
        assert!(rig.runtime.is_valid());
    }
}

#[test]
fn captured_launches_are_named_by_their_replay() {
    let rig = rig();
    let (stream, [nothing, _]) = (rig.stream(), kernels(&rig));
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || launch(&nothing, 1, &stream)).unwrap();
    assert_eq!(rig.runtime.last_launches(DEVICE).unwrap(), []);
    graph.replay().unwrap();
    let last = rig.runtime.last_launches(DEVICE).unwrap();
    assert_eq!((last.len(), last[0].kernel.clone()), (1, None));
    assert!(last[0].to_string().starts_with("replay of a graph on stream 0x"), "{}", last[0]);
}

/// The launches of a process in which `CUDA_LAUNCH_BLOCKING` is set; does nothing in others. The simulated machine here
/// does not know the variable, so that it is this crate that waits.
#[test]
fn launches_with_the_variable() {
    if std::env::var_os(SCENE).is_none() {
        return;
    }
    let rig = rig();
    let (stream, [nothing, fail]) = (rig.stream(), kernels(&rig));
    stream.sleep(1 << 30).unwrap();
    launch(&nothing, 1, &stream).unwrap();
    assert!(stream.query().unwrap(), "the launch was waited for, and what was queued before it");
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || launch(&nothing, 2, &stream)).unwrap();
    let told = fault(launch(&fail, 5, &stream).unwrap_err());
    let culprit = told.culprit().expect("the launch was waited for");
    assert_eq!((culprit.kernel.as_deref(), culprit.grid), (Some("fail"), [5, 1, 1]));
    println!("{told}");
    let later = fault(launch(&nothing, 1, &stream).unwrap_err());
    assert_eq!(later.culprit(), None, "the device was lost before");
}

#[test]
fn a_launch_that_is_waited_for_is_named_alone() {
    let (text, _) = common::in_a_process("launches_with_the_variable", &[(SCENE, "1"), ("CUDA_LAUNCH_BLOCKING", "1")]);
    let expected =
        "The launch that failed on cuda:0: kernel 'fail' with 5 x 1 x 1 blocks of 1 x 1 x 1 threads on stream 0x";
    assert!(text.contains(expected) && !text.contains("For debugging consider passing"), "{text}");
}

#[test]
fn what_waits_tells_what_kernels_refused() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(8, &stream).unwrap();
    let event = Event::on(&rig.runtime, EventOptions::default());
    event.record(&stream).unwrap();
    let refused = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&refused);
    rig.runtime.check_after_waiting(move |device| {
        let found = Arc::new(std::fmt::Error);
        let error = DeviceAssertionError { device, operation: "gather", element: 3, value: "9".to_owned(), found };
        seen.swap(false, Ordering::Relaxed).then_some(error)
    });
    let waits: [&dyn Fn() -> c10_core::Result<()>; 5] = [
        &|| stream.synchronize(),
        &|| event.synchronize(),
        &|| rig.runtime.synchronize(DEVICE),
        &|| buffer.copy_to_slice(0, &mut [0; 8]),
        &|| buffer.copy_from_slice(0, &[0; 8]),
    ];
    for wait in waits {
        refused.store(true, Ordering::Relaxed);
        let Err(Error::DeviceAssertion(told)) = wait() else { panic!("the refusal is told") };
        assert_eq!((told.device, told.operation, told.element, told.value.as_str()), (DEVICE, "gather", 3, "9"));
        assert!(told.cause::<std::fmt::Error>().is_some());
        wait().unwrap();
    }
    assert!(!rig.runtime.synchronize(DEVICE).is_err_and(|error| error.context_is_lost()));
}
