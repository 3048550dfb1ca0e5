//! Simulated machines as programs see them: order of work, determinism, faults, versions, misuse.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use cuda_sim::{Config, Fault, LiveHandles, Machine, ReportKind};
use cuda_sys::driver::types::CUstreamCaptureMode;
use cuda_sys::{CUresult, CudaVersion};
use support::{Rig, code};

/// One stream writes, another reads; with or without the event between them. What the reader saw.
fn pass_on(seed: u64, with_event: bool) -> Vec<u8> {
    let rig = Rig::new(Config::default().seed(seed));
    let (from, to) = (rig.alloc(64), rig.alloc(64));
    rig.write(from, &[0; 64]);
    rig.write(to, &[0; 64]);
    let (writer, reader) = (rig.stream(1), rig.stream(1));
    let done = rig.event(2);
    call!(rig, cuMemsetD8Async(from, 7, 64, writer)).expect("queued");
    call!(rig, cuEventRecord(done, writer)).expect("queued");
    if with_event {
        call!(rig, cuStreamWaitEvent(reader, done, 0)).expect("queued");
    }
    call!(rig, cuMemcpyDtoDAsync_v2(to, from, 64, reader)).expect("queued");
    call!(rig, cuCtxSynchronize()).expect("finishes");
    rig.read(to, 64)
}

/// A driver that a thread keeps until its end.
struct Kept(cuda_sys::Driver);

impl Drop for Kept {
    fn drop(&mut self) {
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        unsafe { self.0.cuDriverGetVersion(&mut version) }.expect("answers");
        ANSWERED.store(version, Ordering::Relaxed);
    }
}

static ANSWERED: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_may_call_while_it_ends() {
    let thread = std::thread::spawn(|| {
        // First, so that it is dropped last.
        KEPT.set(None);
        let _bound = Machine::new(Config::default()).bind();
        KEPT.set(Some(Kept(cuda_sim::driver().expect("a driver"))));
    });
    thread.join().expect("ends");
    assert!(ANSWERED.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_forgotten_wait_shows_under_some_seed() {
    let wrong = (0..200).filter(|&seed| pass_on(seed, false) != [7; 64]).count();
    assert!(wrong > 0, "no seed of 200 shows the missing wait");
    assert!(wrong < 200, "every seed shows it, so the order is not left open");
}

#[test]
fn the_right_program_is_right_under_every_seed() {
    for seed in 0..200 {
        assert_eq!(pass_on(seed, true), [7; 64], "seed {seed}");
    }
}

/// Some work on two streams, with its times.
fn history(seed: u64) -> (u64, f32) {
    let rig = Rig::new(Config::default().seed(seed).late_events(true));
    let memory = rig.alloc(1 << 20);
    let streams = [rig.stream(0), rig.stream(1)];
    let (begin, end) = (rig.event(0), rig.event(0));
    call!(rig, cuEventRecord(begin, streams[0])).expect("queued");
    for round in 0..20 {
        call!(rig, cuMemsetD8Async(memory, round, 1 << 20, streams[usize::from(round) % 2])).expect("queued");
    }
    call!(rig, cuEventRecord(end, streams[0])).expect("queued");
    while call!(rig, cuEventQuery(end)).is_err() {}
    call!(rig, cuEventSynchronize(begin)).expect("finishes");
    let mut milliseconds = 0.0;
    call!(rig, cuEventElapsedTime(&mut milliseconds, begin, end)).expect("both were reached");
    call!(rig, cuCtxSynchronize()).expect("finishes");
    (rig.machine.now_ns(), milliseconds)
}

#[test]
fn same_seed_same_history() {
    assert_eq!(history(5), history(5));
    let different = (0..10).map(history).collect::<Vec<_>>();
    assert!(different.windows(2).any(|pair| pair[0] != pair[1]), "seeds make no difference: {different:?}");
    assert!(different.iter().all(|&(_, milliseconds)| milliseconds > 0.0));
}

#[test]
fn an_asynchronous_copy_reads_its_source_when_it_runs() {
    let rig = Rig::new(Config::default());
    let to = rig.alloc(16);
    let mut host = ptr::null_mut();
    call!(rig, cuMemAllocHost_v2(&mut host, 16)).expect("there is memory");
    let stream = rig.stream(1);
    // SAFETY: 16 bytes of pinned memory that nothing else uses yet.
    unsafe { host.cast::<u8>().write_bytes(1, 16) };
    call!(rig, cuMemcpyHtoDAsync_v2(to, host, 16, stream)).expect("queued");
    // SAFETY: as above; the copy has not run, since nobody let time pass.
    unsafe { host.cast::<u8>().write_bytes(2, 16) };
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    assert_eq!(rig.read(to, 16), [2; 16]);
    let pageable = [3_u8; 16];
    call!(rig, cuMemcpyHtoDAsync_v2(to, pageable.as_ptr().cast(), 16, stream)).expect("queued");
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    assert_eq!(rig.read(to, 16), [3; 16]);
    call!(rig, cuMemFreeHost(host)).expect("allocated");
}

#[test]
fn the_legacy_stream_orders_itself_with_blocking_streams() {
    for seed in 0..50 {
        let rig = Rig::new(Config::default().seed(seed));
        let memory = rig.alloc(1 << 20);
        let blocking = rig.stream(0);
        call!(rig, cuMemsetD8Async(memory, 1, 1 << 20, blocking)).expect("queued");
        call!(rig, cuMemsetD8Async(memory, 2, 1 << 20, ptr::null_mut())).expect("queued");
        call!(rig, cuMemsetD8Async(memory, 3, 16, blocking)).expect("queued");
        call!(rig, cuCtxSynchronize()).expect("finishes");
        let bytes = rig.read(memory, 32);
        assert_eq!((bytes[0], bytes[31]), (3, 2), "seed {seed}");
    }
}

#[test]
fn faults_happen_once_at_their_occurrence() {
    let rig = Rig::new(Config::default());
    rig.machine.inject(Fault { call: "cuMemAlloc_v2", occurrence: 2, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY });
    let mut pointer = 0;
    call!(rig, cuMemAlloc_v2(&mut pointer, 16)).expect("the first one works");
    let refused = code(call!(rig, cuMemAlloc_v2(&mut pointer, 16)));
    assert_eq!(refused, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    call!(rig, cuMemAlloc_v2(&mut pointer, 16)).expect("the third one works");
    assert_eq!(rig.machine.live().allocations, 2);
}

#[test]
fn older_drivers_hide_newer_functions() {
    for (version, has_id, has_elapsed_v2) in [(11080, false, false), (12020, true, false), (13000, true, true)] {
        let rig = Rig::new(Config::default().driver_version(CudaVersion(version)));
        assert_eq!(rig.driver.version(), CudaVersion(version));
        assert_eq!(rig.driver.functions().cuStreamGetId.is_some(), has_id, "{version}");
        assert_eq!(rig.driver.functions().cuEventElapsedTime_v2.is_some(), has_elapsed_v2, "{version}");
    }
}

#[test]
fn capacity_is_what_was_asked_for() {
    let rig = Rig::new(Config::default().capacity(64 << 20));
    let mut pointer = 0;
    let refused = code(call!(rig, cuMemAlloc_v2(&mut pointer, 65 << 20)));
    assert_eq!(refused, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let all = rig.alloc(64 << 20);
    let (mut free, mut total) = (1, 0);
    call!(rig, cuMemGetInfo_v2(&mut free, &mut total)).expect("has a context");
    assert_eq!((free, total), (0, 64 << 20));
    call!(rig, cuMemFree_v2(all)).expect("allocated");
}

#[test]
fn pinned_memory_given_back_too_early_is_reported() {
    for strict in [false, true] {
        let rig = Rig::new(Config::default().strict(strict));
        let (to, stream) = (rig.alloc(16), rig.stream(1));
        let mut host = ptr::null_mut();
        call!(rig, cuMemAllocHost_v2(&mut host, 16)).expect("there is memory");
        call!(rig, cuMemcpyHtoDAsync_v2(to, host, 16, stream)).expect("queued");
        let freed = call!(rig, cuMemFreeHost(host));
        assert_eq!(freed.is_err(), strict);
        assert_eq!(rig.machine.take_reports()[0].kind, ReportKind::PinnedFreedWhilePending);
    }
}

#[test]
fn machines_do_not_know_each_other() {
    let first = Rig::new(Config::default());
    first.alloc(16);
    {
        let second = Rig::new(Config::default());
        assert_eq!(second.machine.live().allocations, 0);
    }
    assert_eq!(first.machine.live().allocations, 1);
    call!(first, cuDevicePrimaryCtxReset_v2(0)).expect("there is a context");
    assert_eq!(first.machine.live(), LiveHandles::default());
}

#[test]
fn another_thread_uses_the_machine_it_binds() {
    let rig = Rig::new(Config::default());
    let machine = rig.machine.clone();
    std::thread::spawn(move || {
        let _bound = machine.bind();
        assert_eq!(Machine::current().seed(), machine.seed());
    })
    .join()
    .expect("the thread finishes");
}

#[test]
fn host_functions_run_in_order_and_may_not_call_the_driver() {
    unsafe extern "C" fn note(data: *mut std::ffi::c_void) {
        let mut count = 0;
        // SAFETY: `cuDeviceGetCount` of the simulated driver with a live out pointer.
        let answer = unsafe { cuda_sim::functions().cuDeviceGetCount.expect("exported")(&mut count) };
        // SAFETY: the test passes a pointer to a number that outlives the stream's work.
        unsafe { *data.cast::<u32>() = answer.0 };
    }
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let mut answer = 0_u32;
    call!(rig, cuLaunchHostFunc(stream, Some(note), (&raw mut answer).cast())).expect("queued");
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    assert_eq!(CUresult(answer), CUresult::CUDA_ERROR_NOT_PERMITTED);
}

#[test]
fn a_stream_waits_for_a_value_that_another_one_writes() {
    let rig = Rig::new(Config::default());
    let (flag, data) = (rig.alloc(4), rig.alloc(16));
    rig.write(flag, &[0; 4]);
    let (waiting, writing) = (rig.stream(1), rig.stream(1));
    call!(rig, cuStreamWaitValue32_v2(waiting, flag, 5, 0)).expect("queued");
    call!(rig, cuMemsetD8Async(data, 9, 16, waiting)).expect("queued");
    assert_eq!(code(call!(rig, cuStreamQuery(waiting))), CUresult::CUDA_ERROR_NOT_READY);
    call!(rig, cuStreamWriteValue32_v2(writing, flag, 5, 0)).expect("queued");
    call!(rig, cuStreamSynchronize(waiting)).expect("finishes");
    assert_eq!(rig.read(data, 16), [9; 16]);
}

#[test]
fn settling_makes_late_events_visible() {
    for seed in 0..50 {
        let rig = Rig::new(Config::default().seed(seed).late_events(true));
        let (stream, event) = (rig.stream(1), rig.event(0));
        call!(rig, cuEventRecord(event, stream)).expect("queued");
        rig.machine.settle();
        call!(rig, cuEventQuery(event)).expect("a long time has passed");
    }
}

#[test]
fn the_version_call_can_fail() {
    let machine = Machine::new(Config::default());
    let _bound = machine.bind();
    machine.inject(Fault { call: "cuDriverGetVersion", occurrence: 1, code: CUresult::CUDA_ERROR_UNKNOWN });
    assert!(cuda_sim::driver().is_err());
    assert!(cuda_sim::driver().is_ok());
}

#[test]
fn blocking_launches_are_done_when_they_return() {
    let rig = Rig::new(Config::default().launch_blocking(true));
    let (from, to) = (rig.alloc(1 << 20), rig.alloc(1 << 20));
    let stream = rig.stream(1);
    call!(rig, cuMemsetD8Async(from, 7, 1 << 20, stream)).expect("done");
    assert_eq!(rig.machine.live().pending, 0);
    call!(rig, cuMemcpyDtoDAsync_v2(to, from, 1 << 20, stream)).expect("done");
    assert_eq!(rig.machine.live().pending, 0);

    // A capture takes the work as ever; the launch of the graph is waited for.
    let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
    call!(rig, cuStreamBeginCapture_v2(stream, CUstreamCaptureMode(0))).expect("begins");
    call!(rig, cuMemsetD8Async(to, 9, 1 << 20, stream)).expect("captured");
    call!(rig, cuStreamEndCapture(stream, &mut graph)).expect("ends");
    call!(rig, cuGraphInstantiateWithFlags(&mut exec, graph, 0)).expect("instantiates");
    call!(rig, cuGraphLaunch(exec, stream)).expect("done");
    assert_eq!(rig.machine.live().pending, 0);
    assert_eq!(rig.read(to, 4), [9; 4]);

    // Events are no launches.
    let event = rig.event(2);
    call!(rig, cuEventRecord(event, stream)).expect("queued");
    assert_eq!(rig.machine.live().pending, 1);
}

#[test]
fn a_blocking_launch_answers_with_its_own_fault() {
    // Memory that is gone when the graph runs: only the work itself finds out.
    let fault = |blocking: bool| {
        let rig = Rig::new(Config::default().launch_blocking(blocking));
        let memory = rig.alloc(4 << 20);
        let stream = rig.stream(1);
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        call!(rig, cuStreamBeginCapture_v2(stream, CUstreamCaptureMode(0))).expect("begins");
        call!(rig, cuMemsetD8Async(memory, 9, 4 << 20, stream)).expect("captured");
        call!(rig, cuStreamEndCapture(stream, &mut graph)).expect("ends");
        call!(rig, cuGraphInstantiateWithFlags(&mut exec, graph, 0)).expect("instantiates");
        call!(rig, cuMemFree_v2(memory)).expect("frees");
        let launched = call!(rig, cuGraphLaunch(exec, stream));
        (launched.is_ok(), call!(rig, cuStreamSynchronize(stream)).is_ok())
    };
    assert_eq!(fault(false), (true, false));
    assert_eq!(fault(true), (false, false));
}

/// The system puts libraries and large pieces of memory elsewhere in a process whose stack may be large.
#[test]
fn host_memory_is_never_taken_for_device_memory() {
    const NAME: &str = "host_memory_is_never_taken_for_device_memory";
    const INNER: &str = "CUDA_SIM_LARGE_STACK";
    if std::env::var_os(INNER).is_some() {
        let rig = Rig::new(Config::default());
        let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let address = rig.alloc(bytes.len());
        rig.write(address, &bytes);
        assert!(rig.read(address, bytes.len()) == bytes, "what was written is read");
        return;
    }
    let program = std::env::current_exe().expect("this program has a path");
    for kilobytes in ["unlimited", "100000000000"] {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -s $1 || exit 77; exec \"$0\" \"$2\" --exact"]).arg(&program);
        let output = shell.args([kilobytes, NAME]).env(INNER, "1").output().expect("there is a shell");
        if output.status.code() == Some(77) {
            println!("skipped: a stack of {kilobytes} kilobytes is refused here");
            continue;
        }
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{kilobytes}: {said}");
    }
}
