//! Functions of the program on a simulated machine: they run on threads of their own, and history follows from the seed.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module. What functions of the host are given lives as long
//! as the process.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use cuda_sim::Config;
use cuda_sys::CUresult;
use support::{Rig, code};

/// What a function of the host does: waits until the gate is open, and notes its number and its thread.
struct Task {
    gate: &'static AtomicU32,
    number: u32,
    notes: &'static Mutex<Vec<(u32, ThreadId)>>,
}

unsafe extern "C" fn perform(data: *mut c_void) {
    // SAFETY: the address of a task that is never freed.
    let task = unsafe { &*data.cast::<Task>() };
    while task.gate.load(Ordering::SeqCst) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    task.notes.lock().expect("nobody panics").push((task.number, thread::current().id()));
}

/// Keeps a value until the process ends, where a checker of leaks can see it.
fn keep<T: Send + Sync>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let kept: &'static T = Box::leak(Box::new(value));
    KEPT.lock().expect("nobody panics").push(ptr::from_ref(kept).expose_provenance());
    kept
}

fn gate(open: bool) -> &'static AtomicU32 {
    keep(AtomicU32::new(u32::from(open)))
}

fn data(task: &'static Task) -> *mut c_void {
    ptr::from_ref(task).cast_mut().cast()
}

#[test]
fn a_function_that_waits_for_the_program_holds_up_only_its_stream() {
    let rig = Rig::new(Config::default());
    let (held, other, memory) = (rig.stream(1), rig.stream(1), rig.alloc(64));
    let (gate, notes) = (gate(false), keep(Mutex::new(Vec::new())));
    let task = keep(Task { gate, number: 1, notes });
    call!(rig, cuLaunchHostFunc(held, Some(perform), data(task))).expect("queued");
    call!(rig, cuMemsetD8Async(memory, 5, 64, held)).expect("queued");
    for _ in 0..200 {
        assert_eq!(code(call!(rig, cuStreamQuery(held))), CUresult::CUDA_ERROR_NOT_READY);
    }
    call!(rig, cuMemsetD8Async(memory, 4, 64, other)).expect("queued");
    call!(rig, cuStreamSynchronize(other)).expect("finishes");
    let seen_elsewhere = thread::scope(|scope| {
        let (machine, handle) = (rig.machine.clone(), held.addr());
        let ask = move || {
            let _bound = machine.bind();
            let driver = cuda_sim::driver().expect("the table has a version");
            // SAFETY: the machine looks the handle up.
            code(unsafe { driver.cuStreamQuery(ptr::without_provenance_mut(handle)) })
        };
        scope.spawn(ask).join().expect("no panic")
    });
    assert_eq!(seen_elsewhere, CUresult::CUDA_ERROR_NOT_READY);
    assert!(notes.lock().expect("nobody panics").is_empty());
    gate.store(1, Ordering::SeqCst);
    call!(rig, cuStreamSynchronize(held)).expect("finishes");
    assert_eq!(rig.read(memory, 64), [5; 64]);
    let notes = notes.lock().expect("nobody panics");
    assert!(notes.len() == 1 && notes[0].1 != thread::current().id());
}

#[test]
fn only_the_first_call_waits_for_a_function_that_takes_long() {
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let (gate, notes) = (gate(false), keep(Mutex::new(Vec::new())));
    for number in 0..3 {
        let task = keep(Task { gate, number, notes });
        call!(rig, cuLaunchHostFunc(stream, Some(perform), data(task))).expect("queued");
    }
    while rig.machine.now_ns() < 10_000_000 {
        assert_eq!(code(call!(rig, cuStreamQuery(stream))), CUresult::CUDA_ERROR_NOT_READY);
    }
    let begin = Instant::now();
    for _ in 0..100 {
        assert_eq!(code(call!(rig, cuStreamQuery(stream))), CUresult::CUDA_ERROR_NOT_READY);
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "each query waited");
    gate.store(1, Ordering::SeqCst);
    call!(rig, cuCtxSynchronize()).expect("finishes");
    let numbers: Vec<u32> = notes.lock().expect("nobody panics").iter().map(|note| note.0).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn each_context_has_a_thread_for_its_functions() {
    let rig = Rig::new(Config::default());
    let notes = keep(Mutex::new(Vec::new()));
    let (closed, open) = (gate(false), gate(true));
    let first = rig.stream(1);
    let blocked = keep(Task { gate: closed, number: 1, notes });
    call!(rig, cuLaunchHostFunc(first, Some(perform), data(blocked))).expect("queued");
    let behind = rig.stream(1);
    let queued = keep(Task { gate: open, number: 2, notes });
    call!(rig, cuLaunchHostFunc(behind, Some(perform), data(queued))).expect("queued");
    let mut context = ptr::null_mut();
    call!(rig, cuCtxCreate_v2(&mut context, 0, 0)).expect("there is a device");
    let elsewhere = rig.stream(1);
    let free = keep(Task { gate: open, number: 3, notes });
    call!(rig, cuLaunchHostFunc(elsewhere, Some(perform), data(free))).expect("queued");
    call!(rig, cuStreamSynchronize(elsewhere)).expect("finishes");
    closed.store(1, Ordering::SeqCst);
    call!(rig, cuCtxDestroy_v2(context)).expect("it is there");
    call!(rig, cuCtxSynchronize()).expect("finishes");
    let notes = notes.lock().expect("nobody panics");
    let thread_of = |number| notes.iter().find(|note| note.0 == number).map(|note| note.1).expect("it ran");
    assert_eq!(notes[0].0, 3, "{notes:?}");
    assert_eq!(thread_of(1), thread_of(2));
    assert_ne!(thread_of(1), thread_of(3));
}

/// The order of functions on several streams, with copies between them.
fn history(seed: u64) -> (Vec<u32>, u64) {
    let rig = Rig::new(Config::default().seed(seed));
    let (gate, notes, memory) = (gate(true), keep(Mutex::new(Vec::new())), rig.alloc(1 << 16));
    let streams = [0; 4].map(|_| rig.stream(1));
    for round in 0..6 {
        for (index, &stream) in (0..).zip(&streams) {
            let task = keep(Task { gate, number: round * 10 + index, notes });
            call!(rig, cuMemsetD8Async(memory, 1, 1 << 14, stream)).expect("queued");
            call!(rig, cuLaunchHostFunc(stream, Some(perform), data(task))).expect("queued");
        }
    }
    call!(rig, cuCtxSynchronize()).expect("finishes");
    let order = notes.lock().expect("nobody panics").iter().map(|note| note.0).collect();
    (order, rig.machine.now_ns())
}

#[test]
fn the_order_of_functions_follows_from_the_seed() {
    let mut orders: Vec<Vec<u32>> = (0..10)
        .map(|seed| {
            let first = history(seed);
            assert_eq!(first, history(seed), "seed {seed}");
            first.0
        })
        .collect();
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 5, "all seeds give the same order");
}

/// Sends on a channel on which the program waits.
unsafe extern "C" fn send(data: *mut c_void) {
    // SAFETY: the address of a sender that is never freed.
    let sender = unsafe { &*data.cast::<Mutex<mpsc::Sender<u32>>>() };
    sender.lock().expect("nobody panics").send(7).expect("the program waits");
}

#[test]
fn a_program_that_waits_by_a_channel_does_not_stand_still() {
    let rig = Rig::new(Config::default());
    let (stream, (sender, receiver)) = (rig.stream(1), mpsc::channel());
    let sender = keep(Mutex::new(sender));
    call!(rig, cuLaunchHostFunc(stream, Some(send), ptr::from_ref(sender).cast_mut().cast())).expect("queued");
    assert_eq!(receiver.recv(), Ok(7));
}

#[test]
fn a_program_that_polls_a_pinned_word_does_not_stand_still() {
    let rig = Rig::new(Config::default());
    let (stream, memory) = (rig.stream(1), rig.alloc(4));
    let mut pinned = ptr::null_mut();
    call!(rig, cuMemHostAlloc(&mut pinned, 4, 0)).expect("there is memory");
    // SAFETY: four aligned bytes of memory that stays allocated; the machine alone writes them meanwhile.
    let word = unsafe { AtomicU32::from_ptr(pinned.cast()) };
    word.store(0, Ordering::SeqCst);
    rig.write(memory, &[1, 2, 3, 4]);
    call!(rig, cuMemcpyDtoHAsync_v2(pinned, memory, 4, stream)).expect("queued");
    while word.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    assert_eq!(word.load(Ordering::SeqCst), 0x0403_0201);
}
