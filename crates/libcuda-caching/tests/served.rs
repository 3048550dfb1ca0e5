//! The functions as programs find them, in front of the simulated driver: what is served, what is the driver's, and that
//! their answers are those of the driver.
//!
//! # Safety
//! Addresses come from the functions that are tested; wrong ones are only looked up. Places outlive the calls.
#![expect(unsafe_code, reason = "calls C functions")]

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cuda_sys::driver::types::*;
use cuda_sys::{CUresult, Driver, DriverError};

const MIB: usize = 1 << 20;

/// The calling thread's default stream.
const OWN: CUstream = ptr::without_provenance_mut(2);

/// A shared object that cargo builds next to this test's executable.
fn shared_object(name: &str) -> PathBuf {
    let library = std::env::current_exe().expect("this program has a path").with_file_name(name);
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// The library that is tested, and the driver behind it.
struct Both {
    ours: Driver,
    theirs: Driver,
}

fn both() -> &'static Both {
    static BOTH: OnceLock<Both> = OnceLock::new();
    BOTH.get_or_init(|| {
        // Its name is libcuda.so.1, so that the library's dependency is fulfilled.
        let theirs = Driver::load_from(shared_object("libcuda_sim_driver.so")).expect("the simulated driver");
        let ours = Driver::load_from(shared_object("libcuda_caching.so")).expect("the library");
        // SAFETY: 0 is the only flag.
        unsafe { ours.cuInit(0) }.expect("a driver");
        Both { ours, theirs }
    })
}

/// A thread with device 0's primary context; tests take turns, since the figures are the process's.
struct Program {
    ours: &'static Driver,
    theirs: &'static Driver,
    _turn: MutexGuard<'static, ()>,
}

impl Program {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let Both { ours, theirs } = both();
        enter(ours);
        Self { ours, theirs, _turn: turn }
    }

    fn stream(&self) -> CUstream {
        let mut stream = ptr::null_mut();
        // SAFETY: see the top of the file.
        unsafe { self.ours.cuStreamCreate(&mut stream, 1) }.expect("a stream");
        stream
    }

    fn alloc(&self, size: usize, stream: CUstream) -> CUdeviceptr {
        alloc(self.ours, size, stream).expect("memory")
    }

    fn free(&self, address: CUdeviceptr, stream: CUstream) {
        free(self.ours, address, stream).expect("it was allocated");
    }

    fn destroy(&self, streams: &[CUstream]) {
        for &stream in streams {
            // SAFETY: nobody uses it any more.
            unsafe { self.ours.cuStreamDestroy_v2(stream) }.expect("a stream");
        }
    }
}

fn enter(driver: &Driver) {
    let mut context = ptr::null_mut();
    // SAFETY: see the top of the file.
    unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, 0) }.expect("a device");
    // SAFETY: it is retained.
    unsafe { driver.cuCtxSetCurrent(context) }.expect("a context");
}

fn alloc(driver: &Driver, size: usize, stream: CUstream) -> Result<CUdeviceptr, DriverError> {
    let mut address = 0;
    // SAFETY: see the top of the file.
    unsafe { driver.cuMemAllocAsync(&mut address, size, stream) }.map(|()| address)
}

fn free(driver: &Driver, address: CUdeviceptr, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: see the top of the file.
    unsafe { driver.cuMemFreeAsync(address, stream) }
}

fn code<T>(answer: Result<T, DriverError>) -> CUresult {
    answer.map_or_else(|error| error.status().expect("the driver has the function"), |_| CUresult::CUDA_SUCCESS)
}

#[test]
fn freed_memory_is_used_again_on_its_stream() {
    let program = Program::new();
    let (one, two) = (program.stream(), program.stream());
    let first = program.alloc(MIB, one);
    program.free(first, one);
    let other = program.alloc(MIB, two);
    assert_ne!(other, first, "it belongs to the other stream");
    assert_eq!(program.alloc(MIB, one), first);
    // The driver knows nothing of it.
    assert_eq!(code(free(program.theirs, first + 512, one)), CUresult::CUDA_ERROR_INVALID_VALUE);
    for (address, stream) in [(first, one), (other, two)] {
        // SAFETY: a range that was asked for.
        unsafe { program.ours.cuMemsetD8Async(address, 7, MIB, stream) }.expect("memory");
        program.free(address, stream);
    }
    program.destroy(&[one, two]);
}

#[test]
fn memory_that_another_stream_frees_waits_for_it() {
    let program = Program::new();
    let (owner, user) = (program.stream(), program.stream());
    // So large that each lies in a segment of its own.
    let size = 64 * MIB;
    let (flag, used) = (program.alloc(4, owner), program.alloc(size, owner));
    // SAFETY: a number's place.
    unsafe { program.ours.cuMemsetD32Async(flag, 0, 1, owner) }.expect("memory");
    // SAFETY: a stream.
    unsafe { program.ours.cuStreamSynchronize(owner) }.expect("nothing failed");
    // SAFETY: a number's place; waits until 1 stands there.
    unsafe { program.ours.cuStreamWaitValue32_v2(user, flag, 1, 1) }.expect("a stream");
    program.free(used, user);
    let meanwhile = program.alloc(size, owner);
    assert_ne!(meanwhile, used, "the user is not done with it");
    // SAFETY: a number's place.
    unsafe { program.ours.cuStreamWriteValue32_v2(owner, flag, 1, 0) }.expect("a stream");
    // SAFETY: streams.
    unsafe { program.ours.cuStreamSynchronize(user) }.expect("nothing failed");
    assert_eq!(program.alloc(size, owner), used);
    for address in [flag, used, meanwhile] {
        program.free(address, owner);
    }
    program.destroy(&[owner, user]);
}

#[test]
fn wrong_requests_are_answered_as_by_the_driver() {
    let program = Program::new();
    let stream = program.stream();
    let ours = program.alloc(MIB, stream);
    let theirs = alloc(program.theirs, MIB, stream).expect("memory");
    let answers = [program.ours, program.theirs].map(|driver| {
        // SAFETY: null is refused.
        let no_place = unsafe { driver.cuMemAllocAsync(ptr::null_mut(), MIB, stream) };
        let no_bytes = alloc(driver, 0, stream);
        if let Ok(address) = no_bytes {
            let _ = free(driver, address, stream);
        }
        let wrong = [0, 0x1000, ours + 512, ours + 512 * 1024].map(|wrong| code(free(driver, wrong, stream)));
        (code(no_place), code(no_bytes), code(alloc(driver, 1 << 50, stream)), wrong)
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].2, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    program.free(ours, stream);
    for _ in 0..3 {
        assert_eq!(code(free(program.ours, ours, stream)), CUresult::CUDA_ERROR_INVALID_VALUE, "freed twice");
        // SAFETY: see the top of the file.
        let now = unsafe { program.ours.cuMemFree_v2(ours) };
        assert_eq!(code(now), CUresult::CUDA_ERROR_INVALID_VALUE, "freed twice");
    }
    assert_eq!(program.alloc(MIB, stream), ours, "its segment is still there");
    program.free(ours, stream);
    program.free(theirs, stream);
    program.destroy(&[stream]);
}

#[test]
fn memory_goes_back_where_it_came_from() {
    let program = Program::new();
    let stream = program.stream();
    let (mut plain, served) = (0, program.alloc(MIB, stream));
    // SAFETY: see the top of the file.
    unsafe { program.ours.cuMemAlloc_v2(&mut plain, MIB) }.expect("memory");
    let (mut base, mut size) = (0, 0);
    for (address, length) in [(plain, MIB), (served, MIB)] {
        // SAFETY: see the top of the file.
        unsafe { program.ours.cuMemGetAddressRange_v2(&mut base, &mut size, address + 100) }.expect("memory");
        assert_eq!((base, size), (address, length));
    }
    let mut handle = MaybeUninit::uninit();
    // SAFETY: see the top of the file.
    let refused = unsafe { program.ours.cuIpcGetMemHandle(handle.as_mut_ptr(), served) };
    assert_eq!(code(refused), CUresult::CUDA_ERROR_INVALID_VALUE);
    for address in [plain, served] {
        // SAFETY: nobody uses it any more.
        unsafe { program.ours.cuMemFree_v2(address) }.expect("memory");
    }
    assert_eq!(program.alloc(MIB, stream), served);
    program.free(served, stream);
    program.destroy(&[stream]);
}

#[test]
fn captures_and_contexts_of_others_are_the_drivers() {
    let program = Program::new();
    let (stream, mut graph) = (program.stream(), ptr::null_mut());
    let before = program.alloc(MIB, stream);
    // SAFETY: a stream.
    unsafe { program.ours.cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) }
        .expect("a stream");
    let node = program.alloc(MIB, stream);
    assert_eq!(code(free(program.ours, before, stream)), CUresult::CUDA_ERROR_INVALID_VALUE);
    program.free(node, stream);
    // SAFETY: see the top of the file.
    unsafe { program.ours.cuStreamEndCapture(stream, &mut graph) }.expect("a capture");
    let mut nodes = 0;
    // SAFETY: null asks for the number alone.
    unsafe { program.ours.cuGraphGetNodes(graph, ptr::null_mut(), &mut nodes) }.expect("a graph");
    assert_eq!(nodes, 2, "an allocation and a free");
    // SAFETY: nobody uses it any more.
    unsafe { program.ours.cuGraphDestroy(graph) }.expect("a graph");
    program.free(before, stream);
    let mut context = ptr::null_mut();
    // SAFETY: see the top of the file.
    unsafe { program.ours.cuCtxCreate_v2(&mut context, 0, 0) }.expect("a device");
    let other = program.stream();
    let address = program.alloc(MIB, other);
    let (mut base, mut size) = (0, 0);
    // SAFETY: see the top of the file.
    unsafe { program.theirs.cuMemGetAddressRange_v2(&mut base, &mut size, address) }.expect("the driver's memory");
    assert_eq!((base, size), (address, MIB));
    program.free(address, other);
    program.destroy(&[other]);
    // SAFETY: nobody uses it any more.
    unsafe { program.ours.cuCtxDestroy_v2(context) }.expect("a context");
    enter(program.ours);
    program.destroy(&[stream]);
}

#[test]
fn threads_free_for_each_other() {
    let program = Program::new();
    let streams: Vec<_> = (0..4).map(|_| program.stream().expose_provenance()).collect();
    let pile = Mutex::new(Vec::new());
    let (ours, shared) = (program.ours, &pile);
    std::thread::scope(|scope| {
        for &stream in &streams {
            scope.spawn(move || {
                enter(ours);
                let stream = ptr::with_exposed_provenance_mut(stream);
                for turn in 1..=500 {
                    let address = alloc(ours, turn % 40 * 50_000 + 1, stream).expect("memory");
                    let of_another = {
                        let mut pile = shared.lock().expect("no thread failed");
                        pile.push(address);
                        pile.swap_remove(0)
                    };
                    free(ours, of_another, stream).expect("it was allocated");
                }
            });
        }
    });
    assert!(pile.into_inner().expect("no thread failed").is_empty());
    let streams: Vec<_> = streams.into_iter().map(ptr::with_exposed_provenance_mut).collect();
    program.destroy(&streams);
}

/// Runs `body` on a thread of its own, with the context.
fn on_a_thread<R: Send>(ours: &'static Driver, body: impl FnOnce() -> R + Send) -> R {
    let enter_first = || {
        enter(ours);
        body()
    };
    std::thread::scope(|scope| scope.spawn(enter_first).join()).expect("it does not panic")
}

fn synchronize(driver: &Driver, stream: CUstream) {
    // SAFETY: a stream.
    unsafe { driver.cuStreamSynchronize(stream) }.expect("nothing failed");
}

#[test]
fn threads_use_again_what_was_their_own() {
    let program = Program::new();
    let ours = program.ours;
    let first = program.alloc(MIB, OWN);
    program.free(first, OWN);
    let of_another = on_a_thread(ours, || {
        let address = alloc(ours, MIB, OWN).expect("memory");
        free(ours, address, OWN).expect("it was allocated");
        assert_eq!(alloc(ours, MIB, OWN).expect("memory"), address);
        free(ours, address, OWN).expect("it was allocated");
        address
    });
    assert_ne!(of_another, first, "two threads' streams have one name");
    assert_eq!(program.alloc(MIB, OWN), first);
    // The driver knows nothing of it.
    assert_eq!(code(free(program.theirs, first + 512, OWN)), CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code(free(ours, first + 512, OWN)), CUresult::CUDA_ERROR_INVALID_VALUE);
    program.free(first, OWN);
    assert_eq!(code(free(ours, first, OWN)), CUresult::CUDA_ERROR_INVALID_VALUE, "freed twice");
}

#[test]
fn memory_that_another_thread_frees_waits_for_its_stream() {
    let program = Program::new();
    let (ours, writer, size) = (program.ours, program.stream(), 64 * MIB);
    let (flag, used) = (program.alloc(4, OWN), program.alloc(size, OWN));
    // SAFETY: a number's place.
    unsafe { ours.cuMemsetD32Async(flag, 0, 1, OWN) }.expect("memory");
    synchronize(ours, OWN);
    on_a_thread(ours, || {
        // SAFETY: a number's place; waits until 1 stands there.
        unsafe { ours.cuStreamWaitValue32_v2(OWN, flag, 1, 1) }.expect("a stream");
        free(ours, used, OWN).expect("it was allocated");
    });
    let meanwhile = program.alloc(size, OWN);
    assert_ne!(meanwhile, used, "the other thread's stream is not done with it");
    // SAFETY: a number's place.
    unsafe { ours.cuStreamWriteValue32_v2(writer, flag, 1, 0) }.expect("a stream");
    // SAFETY: waits for the context that is current.
    unsafe { ours.cuCtxSynchronize() }.expect("nothing failed");
    assert_eq!(program.alloc(size, OWN), used);
    // A stream that is no thread's gives back a thread's memory, which goes to that thread.
    program.free(used, writer);
    synchronize(ours, writer);
    assert_eq!(program.alloc(size, OWN), used);
    for address in [flag, used, meanwhile] {
        program.free(address, OWN);
    }
    program.destroy(&[writer]);
}

#[test]
fn threads_leave_their_memory_to_later_ones() {
    let program = Program::new();
    let ours = program.ours;
    let begin_and_end = || {
        let address = alloc(ours, 64 * MIB, OWN).expect("memory");
        // SAFETY: a range that was asked for.
        unsafe { ours.cuMemsetD8Async(address, 7, 64, OWN) }.expect("memory");
        free(ours, address, OWN).expect("it was allocated");
        synchronize(ours, OWN);
        address
    };
    let places: HashSet<_> = (0..40).map(|_| on_a_thread(ours, begin_and_end)).collect();
    assert!(places.len() < 10, "{} places for 40 threads, of which one runs at a time", places.len());
}

#[test]
fn nobody_waits_for_the_work_of_a_thread_that_has_ended() {
    let program = Program::new();
    let (ours, stream) = (program.ours, program.stream());
    let flag = program.alloc(4, stream);
    // SAFETY: a number's place.
    unsafe { ours.cuMemsetD32Async(flag, 0, 1, stream) }.expect("memory");
    synchronize(ours, stream);
    let take_and_free = move || {
        let address = alloc(ours, 21 * MIB, OWN).expect("memory");
        free(ours, address, OWN).expect("it was allocated");
        address
    };
    let left = on_a_thread(ours, || {
        // SAFETY: a number's place; waits until 1 stands there.
        unsafe { ours.cuStreamWaitValue32_v2(OWN, flag, 1, 1) }.expect("a stream");
        take_and_free()
    });
    // As many threads as there can be stand-ins of other tests, all at once.
    let all_have = std::sync::Barrier::new(50);
    let all_have = &all_have;
    let later: Vec<_> = std::thread::scope(|scope| {
        let take_while_others_do = move || {
            enter(ours);
            let address = take_and_free();
            all_have.wait();
            synchronize(ours, OWN);
            address
        };
        let threads: Vec<_> = (0..50).map(|_| scope.spawn(take_while_others_do)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    assert!(!later.contains(&left), "its thread's stream is not done with it");
    // SAFETY: a number's place.
    unsafe { ours.cuStreamWriteValue32_v2(stream, flag, 1, 0) }.expect("a stream");
    // SAFETY: waits for the context that is current.
    unsafe { ours.cuCtxSynchronize() }.expect("nothing failed");
    program.free(flag, stream);
    program.destroy(&[stream]);
}

#[test]
fn threads_free_for_each_other_on_their_own_streams() {
    let program = Program::new();
    let pile = Mutex::new(Vec::new());
    let (ours, shared) = (program.ours, &pile);
    let work = move |thread: u32| {
        enter(ours);
        for turn in 1..=100_u32 {
            let (length, number) = (turn as usize % 40 * 5_000 + 1, thread << 16 | turn);
            let address = alloc(ours, length * 4, OWN).expect("memory");
            let mut found = vec![0_u32; length];
            // SAFETY: a range that was asked for.
            unsafe { ours.cuMemsetD32Async(address, number, length, OWN) }.expect("memory");
            // SAFETY: a range that was asked for, and `found` outlives the wait.
            unsafe { ours.cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), address, length * 4, OWN) }.expect("memory");
            synchronize(ours, OWN);
            assert!(found.iter().all(|&word| word == number), "somebody else wrote there");
            let (of_another, its_length) = {
                let mut pile = shared.lock().expect("no thread failed");
                pile.push((address, length));
                pile.swap_remove(0)
            };
            // Still queued when it is freed.
            // SAFETY: a range that its owner has given away.
            unsafe { ours.cuMemsetD32Async(of_another, u32::MAX, its_length, OWN) }.expect("memory");
            free(ours, of_another, OWN).expect("it was allocated");
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    assert!(pile.into_inner().expect("no thread failed").is_empty());
}

#[test]
fn work_that_was_queued_comes_before_the_next_use() {
    let program = Program::new();
    let other = program.stream();
    for (giver, taker) in [(OWN, other), (other, OWN)] {
        give_and_take(&program, giver, taker);
    }
    program.destroy(&[other]);
}

/// One stream gives memory back that it has yet to write to; another one asks for memory and writes at once.
fn give_and_take(program: &Program, giver: CUstream, taker: CUstream) {
    let (ours, writer, words) = (program.ours, program.stream(), 16 * MIB);
    let flag = program.alloc(4, writer);
    // SAFETY: a number's place.
    unsafe { ours.cuMemsetD32Async(flag, 0, 1, writer) }.expect("memory");
    synchronize(ours, writer);
    let first = program.alloc(words * 4, giver);
    // SAFETY: a number's place; waits until 1 stands there.
    unsafe { ours.cuStreamWaitValue32_v2(giver, flag, 1, 1) }.expect("a stream");
    // SAFETY: a range that was asked for.
    unsafe { ours.cuMemsetD32Async(first, u32::MAX, words, giver) }.expect("memory");
    program.free(first, giver);
    let second = program.alloc(words * 4, taker);
    // SAFETY: a range that was asked for.
    unsafe { ours.cuMemsetD32Async(second, 7, words, taker) }.expect("memory");
    // SAFETY: a number's place.
    unsafe { ours.cuStreamWriteValue32_v2(writer, flag, 1, 0) }.expect("a stream");
    // SAFETY: waits for the context that is current.
    unsafe { ours.cuCtxSynchronize() }.expect("nothing failed");
    let mut found = 0_u32;
    // SAFETY: a number's place.
    unsafe { ours.cuMemcpyDtoH_v2(ptr::from_mut(&mut found).cast(), second, 4) }.expect("memory");
    assert_eq!(found, 7, "the giver wrote there after it had given the memory back");
    program.free(second, taker);
    program.free(flag, writer);
    program.destroy(&[writer]);
}

/// The variable that sets the allocator up.
const OPTIONS: &str = "PYTORCH_CUDA_ALLOC_CONF";

#[test]
fn other_backends_order_threads_too() {
    if std::env::var_os(OPTIONS).is_some() {
        return;
    }
    let this = std::env::current_exe().expect("this program has a path");
    for options in ["backend:elastic", "expandable_segments:True", "backend:cudaMallocAsync"] {
        let mut again = std::process::Command::new(&this);
        again.args(["--exact", "threads_free_for_each_other_on_their_own_streams"]);
        again.arg("work_that_was_queued_comes_before_the_next_use").env(OPTIONS, options);
        let ended = again.output().expect("this program runs");
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && told.contains("2 passed"), "{options}: {told}");
    }
}

#[test]
fn the_end_of_a_thread_frees() {
    struct Held(&'static Driver, CUdeviceptr);
    impl Drop for Held {
        fn drop(&mut self) {
            free(self.0, self.1, OWN).expect("it was allocated");
        }
    }
    thread_local! {
        static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    }
    let program = Program::new();
    let ours = program.ours;
    let held = on_a_thread(ours, || {
        // Made first and so dropped last, when the library's own part of the thread is gone.
        HELD.set(None);
        let address = alloc(ours, 64 * MIB, OWN).expect("memory");
        HELD.set(Some(Held(ours, address)));
        address
    });
    assert_eq!(code(free(ours, held, OWN)), CUresult::CUDA_ERROR_INVALID_VALUE, "the thread has freed it");
}
