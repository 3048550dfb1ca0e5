//! Functions of the host that a stream calls.

use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::time::Duration;

use super::prelude::*;

cases!("callback", CASES, Needs::CONTEXT;
    host_function_runs, host_function_null, host_functions_run_in_order, host_function_after_a_set,
    host_function_before_a_copy, host_function_on_default_streams, host_function_may_not_call, add_callback_runs, add_callback_flags,
    add_callback_null, synchronize_waits_for_host_functions, event_waits_for_host_functions, both_kinds_in_order,
    blocked_function_holds_up_its_stream, functions_of_a_context_take_turns, contexts_do_not_wait_for_each_other,
);

fn host_function_runs(cu: &Cuda<'_>) -> CaseResult {
    let (stream, count) = (cu.stream()?, counter());
    ok!(cu.cuLaunchHostFunc(stream, Some(raise), data(count)));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, count.load(Ordering::SeqCst), 1);
    Ok(())
}

fn host_function_null(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(INVALID_VALUE, cu.cuLaunchHostFunc(stream, None, ptr::null_mut()));
    Ok(())
}

/// Appends a digit to a decimal number: 3 becomes 31, which tells the order of calls.
unsafe extern "C" fn append_one(data: *mut c_void) {
    // SAFETY: `data` is the address of a counter that is never freed.
    let number = unsafe { &*data.cast::<AtomicU32>() };
    number.store(number.load(Ordering::SeqCst) * 10 + 1, Ordering::SeqCst);
}

/// As `append_one`, with another digit.
unsafe extern "C" fn append_two(data: *mut c_void) {
    // SAFETY: `data` is the address of a counter that is never freed.
    let number = unsafe { &*data.cast::<AtomicU32>() };
    number.store(number.load(Ordering::SeqCst) * 10 + 2, Ordering::SeqCst);
}

fn host_functions_run_in_order(cu: &Cuda<'_>) -> CaseResult {
    let (stream, number) = (cu.stream()?, counter());
    for function in [append_one, append_two, append_two, append_one] {
        ok!(cu.cuLaunchHostFunc(stream, Some(function), data(number)));
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, number.load(Ordering::SeqCst), 1221);
    Ok(())
}

/// Doubles the first byte of pinned memory, whose address is its argument.
unsafe extern "C" fn double_byte(data: *mut c_void) {
    let byte = data.cast::<u8>();
    // SAFETY: the address of pinned memory that lives until the stream is done.
    let value = unsafe { byte.read_volatile() };
    // SAFETY: as above.
    unsafe { byte.write_volatile(value * 2) };
}

fn host_function_after_a_set(cu: &Cuda<'_>) -> CaseResult {
    let (stream, pinned) = (cu.stream()?, cu.pinned(64)?);
    ok!(cu.cuMemsetD8Async(pinned.device(), 21, 64, stream));
    ok!(cu.cuLaunchHostFunc(stream, Some(double_byte), pinned.host()));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, pinned.read()[..2].to_vec(), vec![42, 21]);
    Ok(())
}

fn host_function_before_a_copy(cu: &Cuda<'_>) -> CaseResult {
    let (stream, pinned, device) = (cu.stream()?, cu.pinned(64)?, cu.filled(64, 0)?);
    pinned.fill(4);
    ok!(cu.cuLaunchHostFunc(stream, Some(double_byte), pinned.host()));
    ok!(cu.cuMemcpyHtoDAsync_v2(device, pinned.host(), 64, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 2)?, vec![8, 4]);
    Ok(())
}

fn host_function_on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    let count = counter();
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        ok!(cu.cuLaunchHostFunc(stream, Some(raise), data(count)));
        ok!(cu.cuStreamSynchronize(stream));
    }
    same!(cu, count.load(Ordering::SeqCst), 3);
    Ok(())
}

/// A function of the driver, handed to a host function that calls it.
type Query = unsafe extern "C" fn(*mut CUcontext) -> CUresult;

/// What `call_the_driver` needs and gives back.
struct Call {
    function: AtomicPtr<Query>,
    status: AtomicU32,
}

/// Calls `cuCtxGetCurrent`, as host functions must not.
unsafe extern "C" fn call_the_driver(data: *mut c_void) {
    // SAFETY: `data` is the address of a `Call` that is never freed.
    let call = unsafe { &*data.cast::<Call>() };
    // SAFETY: the pointer to the driver's function lives as long as the `Call`.
    let function = unsafe { *call.function.load(Ordering::SeqCst) };
    let mut context = ptr::null_mut();
    // SAFETY: `context` outlives the call; drivers answer calls from host functions with an error.
    let status = unsafe { function(&mut context) };
    call.status.store(status.0, Ordering::SeqCst);
}

fn host_function_may_not_call(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let Some(function) = cu.driver().functions().cuCtxGetCurrent else {
        return Err(Stop::Skip("the driver has no cuCtxGetCurrent".to_owned()));
    };
    let function: &'static mut Query = Box::leak(Box::new(function));
    let call: &'static Call =
        Box::leak(Box::new(Call { function: AtomicPtr::new(function), status: AtomicU32::new(9999) }));
    ok!(cu.cuLaunchHostFunc(stream, Some(call_the_driver), ptr::from_ref(call).cast_mut().cast()));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, CUresult(call.status.load(Ordering::SeqCst)), CUresult::CUDA_ERROR_NOT_PERMITTED);
    Ok(())
}

/// Stores the status it is called with, plus one, in a counter.
unsafe extern "C" fn note_status(_stream: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: `data` is the address of a counter that is never freed.
    let number = unsafe { &*data.cast::<AtomicU32>() };
    number.store(status.0 + 1, Ordering::SeqCst);
}

fn add_callback_runs(cu: &Cuda<'_>) -> CaseResult {
    for stream in [cu.stream()?, DEFAULT] {
        let number = counter();
        ok!(cu.cuStreamAddCallback(stream, Some(note_status), data(number), 0));
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu, number.load(Ordering::SeqCst), 1);
    }
    Ok(())
}

fn add_callback_flags(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(INVALID_VALUE, cu.cuStreamAddCallback(stream, Some(note_status), data(counter()), 1));
    Ok(())
}

fn add_callback_null(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(INVALID_VALUE, cu.cuStreamAddCallback(stream, None, ptr::null_mut(), 0));
    Ok(())
}

fn synchronize_waits_for_host_functions(cu: &Cuda<'_>) -> CaseResult {
    let (stream, count) = (cu.stream()?, counter());
    for _ in 0..50 {
        ok!(cu.cuLaunchHostFunc(stream, Some(raise), data(count)));
    }
    ok!(cu.cuCtxSynchronize());
    same!(cu, count.load(Ordering::SeqCst), 50);
    Ok(())
}

fn event_waits_for_host_functions(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event, count) = (cu.stream()?, cu.event()?, counter());
    ok!(cu.cuLaunchHostFunc(stream, Some(raise), data(count)));
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventSynchronize(event));
    same!(cu, count.load(Ordering::SeqCst), 1);
    Ok(())
}

/// Waits until the counter is raised, though not for ever.
unsafe extern "C" fn await_raise(data: *mut c_void) {
    // SAFETY: `data` is the address of a counter that is never freed.
    let opened = unsafe { &*data.cast::<AtomicU32>() };
    for _ in 0..10_000 {
        if opened.load(Ordering::SeqCst) != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Opens when the case ends, however it ends.
struct Door(&'static AtomicU32);

impl Door {
    fn open(&self) {
        self.0.store(1, Ordering::SeqCst);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.open();
    }
}

/// A stream held by a function of the host until the door is opened.
fn held(cu: &Cuda<'_>) -> CaseResult<(CUstream, Door)> {
    let (stream, door) = (cu.stream()?, Door(counter()));
    ok!(cu.cuLaunchHostFunc(stream, Some(await_raise), data(door.0)));
    Ok((stream, door))
}

fn blocked_function_holds_up_its_stream(cu: &Cuda<'_>) -> CaseResult {
    let (memory, other, event) = (cu.filled(64, 0)?, cu.stream()?, cu.event()?);
    let (stream, door) = held(cu)?;
    ok!(cu.cuEventRecord(event, stream));
    for _ in 0..100 {
        want!(NOT_READY, cu.cuStreamQuery(stream));
        want!(NOT_READY, cu.cuEventQuery(event));
    }
    ok!(cu.cuMemsetD8Async(memory, 3, 64, other));
    ok!(cu.cuStreamSynchronize(other));
    want!(NOT_READY, cu.cuStreamQuery(stream));
    door.open();
    ok!(cu.cuEventSynchronize(event));
    ok!(cu.cuStreamSynchronize(stream));
    want!(SUCCESS, cu.cuStreamQuery(stream));
    same!(cu, cu.read(memory, 64)?, vec![3; 64]);
    Ok(())
}

fn functions_of_a_context_take_turns(cu: &Cuda<'_>) -> CaseResult {
    let (other, count) = (cu.stream()?, counter());
    let (stream, door) = held(cu)?;
    // By then the function has begun, on a real driver and in simulated time.
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..100 {
        want!(NOT_READY, cu.cuStreamQuery(stream));
    }
    ok!(cu.cuLaunchHostFunc(other, Some(raise), data(count)));
    std::thread::sleep(Duration::from_millis(50));
    want!(NOT_READY, cu.cuStreamQuery(other));
    same!(cu, count.load(Ordering::SeqCst), 0);
    door.open();
    ok!(cu.cuCtxSynchronize());
    same!(cu, count.load(Ordering::SeqCst), 1);
    Ok(())
}

fn contexts_do_not_wait_for_each_other(cu: &Cuda<'_>) -> CaseResult {
    let (_, door) = held(cu)?;
    let (mut context, mut stream, count) = (ptr::null_mut(), ptr::null_mut(), counter());
    ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
    ok!(cu.cuStreamCreate(&mut stream, NON_BLOCKING));
    ok!(cu.cuLaunchHostFunc(stream, Some(raise), data(count)));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, count.load(Ordering::SeqCst), 1);
    ok!(cu.cuCtxDestroy_v2(context));
    door.open();
    ok!(cu.cuCtxSynchronize());
    Ok(())
}

fn both_kinds_in_order(cu: &Cuda<'_>) -> CaseResult {
    let (stream, number) = (cu.stream()?, counter());
    ok!(cu.cuStreamAddCallback(stream, Some(note_status), data(number), 0));
    ok!(cu.cuLaunchHostFunc(stream, Some(append_two), data(number)));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, number.load(Ordering::SeqCst), 12);
    Ok(())
}
