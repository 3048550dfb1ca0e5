//! Allocators that a program brings: a shared object in C as PyTorch loads one, Rust functions, memory resources; as the
//! runtime's allocator and as the source of a pool.
//!
//! # Safety
//! The functions of the shared object have torch's signatures, as its source beside this file shows. Their memory is that of
//! the simulated driver, which checks each address that it is given; the rest of the memory here is never looked at.
#![expect(unsafe_code, reason = "an allocator of C functions, and raw driver calls for its memory")]

mod common;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::transmute;
use std::path::PathBuf;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use c10_core::{
    AllocatorError, AllocatorHook, BackendError, CUDAGraph, CUDAPluggableAllocator, CaptureMode, CurrentAllocator,
    DeviceBuffer, DeviceIndex, DriverResource, Error, FailingResource, HistoryOptions, LimitResource, MemPoolOptions,
    MemoryError, MemoryResource, PoolId, Runtime,
};
use common::{DEVICE, Rig, config, fail_each_call, rig};
use cuda_sys::{CUresult, PluginLibrary};
use testkit::{Fault, LiveHandles};

/// What the shared object has written down.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Log {
    allocs: i64,
    frees: i64,
    held: i64,
    last_device: i64,
    devices: i64,
    resets: i64,
    records: i64,
    begins: i64,
    ends: i64,
    releases: i64,
    taken_by_filter: i64,
    fraction: f64,
    last_stream: u64,
    last_pool: u64,
}

unsafe extern "C" fn take(bytes: usize) -> *mut c_void {
    let mut address = 0;
    // SAFETY: `address` outlives the call; the runtime has made the device's context current.
    let taken = unsafe { cuda_sim::driver().expect("a driver").cuMemAlloc_v2(&mut address, bytes) };
    taken.map_or(ptr::null_mut(), |()| ptr::with_exposed_provenance_mut(usize::try_from(address).expect("64 bits")))
}

unsafe extern "C" fn give(address: *mut c_void) {
    // A free function of C cannot say that it failed, so this one asks twice.
    // SAFETY: the driver checks the address.
    let free = || unsafe { cuda_sim::driver().expect("a driver").cuMemFree_v2(address.expose_provenance() as u64) };
    free().or_else(|_| free()).expect("memory that was taken");
}

/// The shared object of one test.
struct Plug {
    path: PathBuf,
    library: PluginLibrary,
}

/// Builds the shared object once.
fn built() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/allocator.c");
        let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("allocator-{}.so", std::process::id()));
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", source, "-o"]).arg(&object);
        let output = command.output().expect("there is a C compiler where Rust can link");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        object
    })
}

impl Plug {
    /// A copy of the shared object, with variables of its own.
    fn new() -> Self {
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let copy = COPIES.fetch_add(1, Ordering::Relaxed);
        let path = built().with_extension(format!("{copy}.so"));
        std::fs::copy(built(), &path).expect("the folder can be written");
        // SAFETY: it has no initialisers.
        let library = unsafe { PluginLibrary::open(&path) }.expect("it was just built");
        let plug = Self { path, library };
        type Connect =
            unsafe extern "C" fn(unsafe extern "C" fn(usize) -> *mut c_void, unsafe extern "C" fn(*mut c_void));
        // SAFETY: the source says so.
        let connect = unsafe { transmute::<*mut c_void, Connect>(plug.symbol("plug_connect")) };
        // SAFETY: both functions stay.
        unsafe { connect(take, give) };
        plug
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        self.library.symbol(name).expect("the source has it").as_ptr()
    }

    fn log(&self) -> Log {
        // SAFETY: the source says so.
        let log = unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> Log>(self.symbol("plug_log")) };
        // SAFETY: no thread calls the allocator meanwhile.
        unsafe { log() }
    }

    fn set_empty(&self, is_empty: bool) {
        // SAFETY: the source says so.
        let set = unsafe { transmute::<*mut c_void, unsafe extern "C" fn(bool)>(self.symbol("plug_empty")) };
        // SAFETY: no thread calls the allocator meanwhile.
        unsafe { set(is_empty) };
    }

    fn allocator(&self) -> CUDAPluggableAllocator {
        load(&self.path, "plug_malloc", "plug_free").expect("the source has both")
    }

    /// One that is told of private pools.
    fn allocator_with_pools(&self) -> CUDAPluggableAllocator {
        let allocator = self.allocator();
        self.hook(&allocator, AllocatorHook::BeginAllocateToPool, "plug_begin");
        self.hook(&allocator, AllocatorHook::EndAllocateToPool, "plug_end");
        self.hook(&allocator, AllocatorHook::ReleasePool, "plug_release");
        allocator
    }

    fn hook(&self, allocator: &CUDAPluggableAllocator, hook: AllocatorHook, name: &str) {
        // SAFETY: the source has the hooks with torch's signatures.
        unsafe { allocator.set_hook(hook, name) }.expect("the source has it");
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        // The copy stays mapped; only its name goes.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn load(path: impl AsRef<std::path::Path>, alloc: &str, free: &str) -> c10_core::Result<CUDAPluggableAllocator> {
    // SAFETY: the functions of these names, where there are any, have torch's signatures.
    unsafe { CUDAPluggableAllocator::new(path, alloc, free) }
}

/// An allocator of Rust functions.
fn of(
    alloc: impl Fn(u64, DeviceIndex, usize) -> u64 + Send + Sync + 'static,
    free: impl Fn(u64, u64, DeviceIndex, usize) + Send + Sync + 'static,
) -> CUDAPluggableAllocator {
    // SAFETY: nobody looks at memory of it that is not the simulated driver's, which checks each access.
    unsafe { CUDAPluggableAllocator::from_functions(alloc, free) }
}

/// One that hands out numbers, each once.
fn numbers() -> CUDAPluggableAllocator {
    let next = AtomicU64::new(1 << 45);
    of(move |bytes, _, _| next.fetch_add(bytes.next_multiple_of(512), Ordering::Relaxed), |_, _, _, _| ())
}

/// A machine whose runtime has the allocator.
fn with(allocator: &CUDAPluggableAllocator) -> Rig {
    let rig = rig();
    rig.runtime.memory().change_current_allocator(allocator).expect("the runtime has not started");
    rig
}

fn allocator_error(error: Error) -> AllocatorError {
    let Error::Allocator(error) = error else { panic!("{error}") };
    error
}

#[test]
fn a_shared_object_serves_the_runtime() {
    let plug = Plug::new();
    let rig = with(&plug.allocator());
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    assert_eq!(memory.backend(), "pluggable");
    let buffer = memory.buffer(1000, &stream).unwrap();
    buffer.fill(0..1000, 7, &stream).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [7; 1000]);
    let log = plug.log();
    assert_eq!((log.allocs, log.held, log.last_device), (1, 1000, 0));
    assert_eq!(log.last_stream, stream.cuda_stream() as u64);

    let stats = memory.stats(DEVICE).unwrap();
    assert_eq!((stats.allocated_bytes.all.current, stats.reserved_bytes.all.current), (1000, 1000));
    assert_eq!((stats.allocation.small_pool.current, stats.segment.all.current), (1, 1));
    let snapshot = memory.snapshot(None);
    assert_eq!((snapshot.len(), snapshot[0].address, snapshot[0].blocks.len()), (1, buffer.address(), 1));
    assert_eq!(memory.take_snapshot(None, false).unwrap().segments, snapshot);
    assert!(memory.buffer(0, &stream).unwrap().is_empty());
    assert_eq!(plug.log().allocs, 1, "no bytes are asked for");

    drop(buffer);
    let log = plug.log();
    assert_eq!((log.frees, log.held), (1, 0));
    assert_eq!(memory.stats(DEVICE).unwrap().allocated_bytes.all.peak, 1000);
    memory.reset_peak_stats(DEVICE).unwrap();
    memory.reset_accumulated_stats(DEVICE).unwrap();
    let stats = memory.stats(DEVICE).unwrap();
    assert_eq!((stats.allocated_bytes.all.peak, stats.allocated_bytes.all.allocated), (0, 0));
    assert_eq!(rig.runtime.inconsistency(), None);
    drop(stream);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn its_hooks_are_called() {
    let plug = Plug::new();
    let allocator = plug.allocator();
    for (hook, name) in [
        (AllocatorHook::Init, "plug_init"),
        (AllocatorHook::Reset, "plug_reset"),
        (AllocatorHook::MemoryFraction, "plug_fraction"),
        (AllocatorHook::RecordStream, "plug_record"),
        (AllocatorHook::BaseAlloc, "plug_wrong_base"),
    ] {
        plug.hook(&allocator, hook, name);
    }
    let rig = Rig::new(config().devices(2));
    let memory = rig.runtime.memory();
    memory.change_current_allocator(&allocator).unwrap();
    assert_eq!(plug.log().devices, 0, "not before the runtime starts");
    let (stream, other) = (rig.stream(), rig.stream());
    assert_eq!(plug.log().devices, 2);
    memory.empty_cache().unwrap();
    assert_eq!(plug.log().resets, 1);
    memory.set_fraction(0.25, DeviceIndex(1)).unwrap();
    assert_eq!((plug.log().fraction, plug.log().last_device), (0.25, 1));
    assert_eq!(memory.fraction(DeviceIndex(1)), Ok(0.25), "what was set is known");
    let buffer = memory.buffer(1000, &stream).unwrap();
    buffer.record_stream(&other).unwrap();
    assert_eq!((plug.log().records, plug.log().last_stream), (1, other.cuda_stream() as u64));
    let address = buffer.address();
    let refused = allocator_error(buffer.share().unwrap_err());
    assert_eq!(refused, AllocatorError::WrongBase { address, base: address + 512, bytes: 1 });
    plug.hook(&allocator, AllocatorHook::BaseAlloc, "plug_base");
    buffer.share().unwrap();
}

#[test]
fn a_capture_tells_the_pool_hooks() {
    let plug = Plug::new();
    let allocator = plug.allocator_with_pools();
    let rig = with(&allocator);
    let (runtime, stream, other) = (&rig.runtime, rig.stream(), rig.stream());
    let source = runtime.memory().buffer(100, &stream).unwrap();
    source.fill(0..100, 5, &stream).unwrap();
    assert_eq!(plug.log().taken_by_filter, 0);
    let mut graph = CUDAGraph::on(runtime, false);
    let mut target = None;
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            let inside = runtime.memory().buffer(100, &stream)?;
            inside.copy_from_buffer(0, &source, 0..100, &stream)?;
            let outside = runtime.memory().buffer(100, &other)?;
            target = Some(inside);
            drop(outside);
            Ok::<(), Error>(())
        })
        .unwrap();
    let log = plug.log();
    assert_eq!((log.begins, log.ends, log.taken_by_filter), (1, 1, 1), "the filter takes the capturing stream alone");
    assert_eq!(log.last_pool, graph.pool().unwrap().1);
    graph.replay().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(target.as_ref().unwrap().to_vec().unwrap(), [5; 100]);
    drop(target);
    assert_eq!(plug.log().held, 200, "the graph keeps what it uses");
    graph.reset().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(plug.log().releases, 1);
    drop((source, graph, stream, other));
    assert_eq!(rig.left(), LiveHandles::default());
    assert_eq!(plug.log().held, 0);
}

#[test]
fn an_allocator_that_is_told_of_pools_keeps_them() {
    let plug = Plug::new();
    let allocator = plug.allocator_with_pools();
    let rig = with(&allocator);
    let (runtime, stream) = (&rig.runtime, rig.stream());
    let pool = runtime.mem_pools().create(MemPoolOptions::default()).unwrap();
    let within = || runtime.mem_pools().with(&pool, DEVICE, || runtime.memory().buffer(100, &stream)).unwrap();
    let buffer = within();
    let log = plug.log();
    assert_eq!((log.begins, log.ends, log.releases, log.taken_by_filter), (1, 1, 1, 1));
    assert_eq!(log.last_pool, pool.id().1);
    drop(runtime.memory().buffer(100, &stream).unwrap());
    assert_eq!(plug.log().taken_by_filter, 1, "outside, no request belongs to the pool");
    let refused = runtime.mem_pools().create_with_allocator(&numbers(), MemPoolOptions::default());
    assert!(matches!(refused, Err(Error::Backend(BackendError::Unsupported { call: "createOrIncrefPool", .. }))));
    drop((pool, buffer));
    assert_eq!((plug.log().releases, plug.log().held), (2, 0));
}

#[test]
fn a_library_that_does_not_load_says_why() {
    let refused = |path: &str, alloc: &str, free: &str| {
        let error = allocator_error(load(path, alloc, free).unwrap_err());
        let AllocatorError::Library(why) = error else { panic!("{error}") };
        *why
    };
    assert!(refused("/no/such.so", "a", "b").to_string().starts_with("/no/such.so cannot be opened: "));
    let plug = Plug::new();
    let path = plug.path.display().to_string();
    let why = refused(&path, "plug_malloc", "no_such_function");
    assert_eq!((why.path.as_str(), why.symbol.as_deref()), (path.as_str(), Some("no_such_function")));
    assert!(why.to_string().contains("has no function no_such_function: "), "{why}");
    assert_eq!(refused(&path, "with a \0 zero", "plug_free").reason, "a name of a function has no zero byte");
    let text = std::env::current_exe().unwrap().with_extension("d");
    assert!(refused(&text.display().to_string(), "a", "b").symbol.is_none(), "a file that is no shared object");

    // SAFETY: neither address is that of a function, and both are refused.
    let null = unsafe { CUDAPluggableAllocator::from_addresses(0, 0) };
    assert_eq!(allocator_error(null.unwrap_err()), AllocatorError::NullFunction { function: "alloc" });
    let allocator = plug.allocator();
    // SAFETY: as above.
    let null = unsafe { allocator.set_hook_at(AllocatorHook::Init, 0) };
    assert_eq!(allocator_error(null.unwrap_err()), AllocatorError::NullFunction { function: "set_init_fn" });
    // SAFETY: there is no such function.
    let missing = unsafe { numbers().set_hook(AllocatorHook::Init, "plug_init") };
    assert!(matches!(allocator_error(missing.unwrap_err()), AllocatorError::Library(_)));
}

#[test]
fn addresses_of_functions_serve_as_names_do() {
    let plug = Plug::new();
    let at = |name: &str| plug.symbol(name).expose_provenance();
    // SAFETY: the source has both with torch's signatures.
    let allocator = unsafe { CUDAPluggableAllocator::from_addresses(at("plug_malloc"), at("plug_free")) }.unwrap();
    // SAFETY: as above.
    unsafe { allocator.set_hook_at(AllocatorHook::Reset, at("plug_reset")) }.unwrap();
    let rig = with(&allocator);
    let address = rig.runtime.memory().alloc(600, &rig.stream()).unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!((plug.log().held, plug.log().resets), (600, 1));
    assert_eq!(rig.left(), LiveHandles::default(), "what the program has not given back goes back in the end");
    assert_eq!((plug.log().held, address % 512), (0, 0));
}

#[test]
fn null_is_out_of_memory() {
    let plug = Plug::new();
    let rig = with(&plug.allocator());
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    memory.attach_out_of_memory_observer(move |_, bytes, _, _| note.lock().unwrap().push(bytes));
    let held = memory.buffer(1 << 20, &stream).unwrap();
    plug.set_empty(true);
    let Err(Error::OutOfMemory(error)) = memory.buffer(3000, &stream) else { panic!("null is no memory") };
    assert_eq!((error.figures.requested, error.figures.allocated, error.figures.reserved), (3000, 1 << 20, 1 << 20));
    assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate 2.93 KiB."), "{error}");
    assert_eq!(*seen.lock().unwrap(), [3000]);
    assert_eq!(memory.stats(DEVICE).unwrap().num_ooms, 1);
    plug.set_empty(false);
    assert_eq!(memory.buffer(3000, &stream).unwrap().len(), 3000);
    drop(held);
}

#[test]
fn a_fraction_limits_an_allocator_that_has_no_hook_for_it() {
    let rig = with(&numbers());
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let total = memory.info(DEVICE).unwrap().total;
    memory.set_fraction(0.5, DEVICE).unwrap();
    let half = memory.alloc(total / 2, &stream).unwrap();
    let Err(Error::OutOfMemory(error)) = memory.alloc(1, &stream) else { panic!("half of it may be used") };
    assert_eq!(error.figures.allowed, Some(total / 2));
    memory.set_fraction(1.0, DEVICE).unwrap();
    assert!(memory.alloc(1, &stream).is_ok());
    memory.free(half).unwrap();
}

#[test]
fn a_panic_is_an_error_of_the_call() {
    let panics = Arc::new(AtomicUsize::new(0));
    let (in_alloc, in_free) = (Arc::clone(&panics), Arc::clone(&panics));
    let next = AtomicU64::new(1 << 45);
    let allocator = of(
        move |_, _, _| {
            assert!(in_alloc.load(Ordering::Relaxed) != 1, "no memory for {}", "this test");
            next.fetch_add(512, Ordering::Relaxed)
        },
        move |_, _, _, _| assert!(in_free.load(Ordering::Relaxed) != 2, "it stays"),
    );
    allocator.set_reset_fn(|| panic!("no reset"));
    allocator.set_record_stream_fn(|_, _| std::panic::panic_any(7));
    let rig = with(&allocator);
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let text = |result: c10_core::Result<()>| allocator_error(result.unwrap_err()).to_string();

    panics.store(1, Ordering::Relaxed);
    let refused = memory.alloc(100, &stream).map(drop);
    assert_eq!(text(refused), "the alloc function of the allocator panicked: no memory for this test");
    panics.store(2, Ordering::Relaxed);
    let address = memory.alloc(100, &stream).unwrap();
    let other = rig.stream();
    assert!(text(memory.record_stream(address, &other)).ends_with("panicked: with something that is no text"));
    assert_eq!(text(memory.free(address)), "the free function of the allocator panicked: it stays");
    let again = memory.free(address).unwrap_err();
    assert_eq!(again, Error::Memory(MemoryError::InvalidPointer { address }), "it counts as given back");
    assert_eq!(text(memory.empty_cache()), "set_reset_fn of the allocator panicked: no reset");
    assert_eq!(rig.runtime.inconsistency(), None);

    let allocator = numbers();
    allocator.set_init_fn(|_| panic!("no devices"));
    let rig = with(&allocator);
    assert!(text(rig.runtime.init()).ends_with("no devices"), "the runtime does not start");
    allocator.set_init_fn(|_| ());
    rig.runtime.init().unwrap();
}

#[test]
fn the_allocator_is_chosen_before_the_runtime_starts() {
    let (first, second) = (numbers(), numbers());
    let rig = rig();
    let memory = rig.runtime.memory();
    assert_eq!(memory.current_allocator().name(), "native");
    memory.change_current_allocator(&first).unwrap();
    memory.change_current_allocator(&second).unwrap();
    assert_eq!(memory.current_allocator(), CurrentAllocator::Pluggable(second.clone()));
    rig.runtime.init().unwrap();
    let late = memory.change_current_allocator(&first).unwrap_err();
    assert_eq!(late.to_string(), "Can't swap an already initialized allocator");
    assert_eq!(memory.current_allocator(), CurrentAllocator::Pluggable(second));
}

#[test]
fn what_it_does_not_do_is_refused_by_name() {
    let rig = with(&numbers());
    let (runtime, memory) = (&rig.runtime, rig.runtime.memory());
    let text = "CUDAPluggableAllocator does not yet support recordHistory. If you need it, please file an issue \
                describing your use case.";
    let history = HistoryOptions::default();
    assert_eq!(memory.record_history(Some(&history)).unwrap_err().to_string(), text);
    runtime.init().unwrap();
    let refused = |result: c10_core::Result<()>| {
        let error = result.unwrap_err();
        let Error::Backend(BackendError::Unsupported { backend, call }) = error else { panic!("{error}") };
        assert_eq!(backend, "CUDAPluggableAllocator");
        call
    };
    assert_eq!(refused(memory.record_history(Some(&history))), "recordHistory");
    assert_eq!(refused(runtime.mem_pools().create(MemPoolOptions::default()).map(drop)), "createOrIncrefPool");
    assert_eq!(refused(runtime.mem_pools().checkpoint(DEVICE, PoolId(0, 9)).map(drop)), "getCheckpointState");
    let live = runtime.mem_pools().check_live_allocations(DEVICE, PoolId(0, 9), &[]);
    assert_eq!(refused(live.map(drop)), "checkPoolLiveAllocations");
}

#[test]
fn addresses_that_it_did_not_give_are_refused() {
    let twice = of(|_, _, _| 1 << 45, |_, _, _, _| ());
    let rig = with(&twice);
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let unknown = |address| Error::Memory(MemoryError::InvalidPointer { address });
    assert_eq!(memory.free(512).unwrap_err(), unknown(512));
    assert_eq!(memory.record_stream(512, &stream).unwrap_err(), unknown(512));
    let address = memory.alloc(100, &stream).unwrap();
    let again = memory.alloc(100, &stream).unwrap_err();
    assert_eq!(allocator_error(again), AllocatorError::GivenTwice { address });
    memory.free(address).unwrap();
    let buffer = memory.buffer(100, &stream).unwrap();
    assert_eq!(memory.free(address).unwrap_err(), Error::Memory(MemoryError::OwnedByBuffer { address }));
    drop(buffer);
    assert_eq!(rig.runtime.inconsistency(), None);
}

#[test]
fn an_allocator_that_asks_its_own_runtime_is_refused() {
    let found = Arc::new(Mutex::new(Vec::new()));
    // A runtime holds its allocator, so what the allocator asks is taken out at the end.
    let asked = Arc::new(Mutex::new(None::<Runtime>));
    let asks = |runtime: &Runtime| {
        *asked.lock().unwrap() = Some(runtime.clone());
        let (asked, found) = (Arc::clone(&asked), Arc::clone(&found));
        of(
            move |_, device, _| {
                let runtime = asked.lock().unwrap().clone().expect("the test still runs");
                let asked = runtime.memory().alloc_on_current_stream(100, device);
                let emptied = runtime.memory().empty_cache();
                found.lock().unwrap().extend([asked.map(drop), emptied]);
                0
            },
            |_, _, _, _| (),
        )
    };
    let rig = rig();
    let allocator = asks(&rig.runtime);
    rig.runtime.memory().change_current_allocator(&allocator).unwrap();
    assert!(rig.runtime.memory().alloc(100, &rig.stream()).is_err_and(|error| error.is_out_of_memory()));
    let reentered = || Err(Error::Allocator(AllocatorError::Reentered));
    assert_eq!(*found.lock().unwrap(), [reentered(), Ok(())]);

    found.lock().unwrap().clear();
    let rig = common::rig();
    let pool = rig.runtime.mem_pools().create_with_allocator(&asks(&rig.runtime), MemPoolOptions::default()).unwrap();
    let stream = rig.stream();
    let refused = rig.runtime.mem_pools().with(&pool, DEVICE, || rig.runtime.memory().buffer(100, &stream));
    assert!(refused.is_err_and(|error| error.is_out_of_memory()));
    let found = found.lock().unwrap();
    assert!(found.iter().all(|answer| *answer == reentered()), "{found:?}");
    asked.lock().unwrap().take();
}

/// What a stream-ordered allocator keeps: addresses by size and stream.
type Shelf = Arc<Mutex<BTreeMap<(u64, usize), Vec<u64>>>>;

/// An allocator that gives memory to the next request of its stream at once, and how often it did.
fn reusing() -> (CUDAPluggableAllocator, Arc<AtomicUsize>) {
    let (shelf, reused) = (Shelf::default(), Arc::<AtomicUsize>::default());
    let (free, count) = (Arc::clone(&shelf), Arc::clone(&reused));
    let alloc = move |bytes, _, stream| {
        let kept = shelf.lock().ok().and_then(|mut shelf| shelf.get_mut(&(bytes, stream)).and_then(Vec::pop));
        count.fetch_add(usize::from(kept.is_some()), Ordering::Relaxed);
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the driver checks the size.
        kept.unwrap_or_else(|| unsafe { take(size) }.expose_provenance() as u64)
    };
    let free = move |address, bytes, _, stream| {
        if let Ok(mut free) = free.lock() {
            free.entry((bytes, stream)).or_default().push(address);
        }
    };
    (of(alloc, free), reused)
}

/// Fills memory on one stream and reads it on another, whose work may be late, again and again at the same addresses.
fn play_on_two_streams(seed: u64) -> c10_core::Result<(bool, usize)> {
    const LEN: usize = 1 << 20;
    let (allocator, reused) = reusing();
    let rig = Rig::new(config().seed(seed).late_events(true));
    rig.runtime.memory().change_current_allocator(&allocator)?;
    let (memory, stream, side) = (rig.runtime.memory(), rig.stream(), rig.stream());
    let results = (0..4).map(|_| rig.runtime.pinned().buffer(LEN)).collect::<c10_core::Result<Vec<_>>>()?;
    for (round, result) in (1_u8..).zip(&results) {
        let buffer = memory.buffer(LEN, &stream)?;
        buffer.fill(0..LEN, round, &stream)?;
        side.wait_stream(&stream)?;
        // This notes that the other stream uses the memory.
        buffer.copy_to_pinned(0..LEN, result, 0, &side)?;
    }
    rig.runtime.synchronize(DEVICE)?;
    let mut is_right = true;
    for (round, result) in (1_u8..).zip(&results) {
        is_right &= result.to_vec()?.iter().all(|byte| *byte == round);
    }
    Ok((is_right, reused.load(Ordering::Relaxed)))
}

#[test]
fn memory_goes_back_behind_the_streams_that_have_used_it() {
    for seed in 0..20 {
        let (is_right, reused) = play_on_two_streams(seed).unwrap();
        assert!(is_right, "seed {seed}: memory was reused too early");
        assert_eq!(reused, 3, "the allocator reuses at once");
    }
}

#[test]
fn a_pool_keeps_all_caching_and_outlives_its_handles() {
    let plug = Plug::new();
    let rig = rig();
    let (runtime, stream, allocator) = (&rig.runtime, rig.stream(), plug.allocator());
    let pool = runtime.mem_pools().create_with_allocator(&allocator, MemPoolOptions::default()).unwrap();
    assert_eq!(pool.allocator(), Some(&allocator));
    let within = |len| runtime.mem_pools().with(&pool, DEVICE, || runtime.memory().buffer(len, &stream)).unwrap();
    let (first, second) = (within(1000), within(2000));
    first.fill(0..1000, 3, &stream).unwrap();
    assert_eq!(first.to_vec().unwrap(), [3; 1000]);
    assert_eq!((plug.log().allocs, plug.log().held), (1, 2 << 20), "small requests share a segment");
    drop(second);
    let again = within(2000);
    assert_eq!(plug.log().allocs, 1, "what was given back serves again");
    assert_eq!(pool.snapshot().len(), 1);
    let outside = runtime.memory().buffer(1000, &stream).unwrap();
    assert_eq!(plug.log().allocs, 1, "other memory comes from the driver");
    assert_eq!(rig.reserved_bytes(), 4 << 20, "figures count both");

    drop((pool, allocator, again));
    runtime.memory().empty_cache().unwrap();
    assert_eq!(plug.log().frees, 0, "a buffer of the segment lives");
    assert_eq!(first.to_vec().unwrap(), [3; 1000]);
    drop(first);
    runtime.memory().empty_cache().unwrap();
    assert_eq!(
        (plug.log().frees, plug.log().held),
        (1, 0),
        "it goes back to the function that gave it, later than all"
    );
    drop((outside, stream));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn a_pool_whose_allocator_has_nothing_runs_out_of_memory() {
    let plug = Plug::new();
    let rig = rig();
    let (runtime, stream, allocator) = (&rig.runtime, rig.stream(), plug.allocator());
    let pool = runtime.mem_pools().create_with_allocator(&allocator, MemPoolOptions::default()).unwrap();
    let within = |len| runtime.mem_pools().with(&pool, DEVICE, || runtime.memory().buffer(len, &stream));
    plug.set_empty(true);
    let Err(Error::OutOfMemory(error)) = within(1000) else { panic!("null is no memory") };
    assert_eq!((error.figures.requested, error.figures.segment), (1000, 2 << 20));
    plug.set_empty(false);
    assert_eq!(within(1000).unwrap().len(), 1000);
    assert_eq!(runtime.inconsistency(), None);
}

#[test]
fn a_resource_is_an_allocator() {
    let rig = rig();
    let (runtime, stream) = (&rig.runtime, rig.stream());
    let other = common::runtime();
    let limited = LimitResource::new(DriverResource::new(&other), 4 << 20);
    let pool_of = |resource: LimitResource<DriverResource>| {
        let allocator = CUDAPluggableAllocator::from_resource(resource);
        runtime.mem_pools().create_with_allocator(&allocator, MemPoolOptions::default()).unwrap()
    };
    let pool = pool_of(limited);
    let within = |len| runtime.mem_pools().with(&pool, DEVICE, || runtime.memory().buffer(len, &stream));
    let held = within(3 << 20).unwrap_err();
    assert!(held.is_out_of_memory(), "a segment of 20 MiB is beyond the limit");
    let (first, second) = (within(1000).unwrap(), within(1 << 20).unwrap());
    assert_eq!(within(1 << 20).map(|third| third.len()), Ok(1 << 20));
    drop((first, second));
}

#[test]
fn a_resource_that_refuses_memory_gets_it_again() {
    let next = AtomicU64::new(0);
    let resource = FailingResource::new(Made(AtomicU64::new(1 << 45)), move |call| {
        let fails = call.action == c10_core::ResourceAction::Deallocate && next.fetch_add(1, Ordering::Relaxed) == 0;
        fails.then(|| Error::Allocator(AllocatorError::Injected { call: call.number }))
    });
    let rig = with(&CUDAPluggableAllocator::from_resource(resource));
    let memory = rig.runtime.memory();
    let address = memory.alloc(1000, &rig.stream()).unwrap();
    assert!(matches!(allocator_error(memory.free(address).unwrap_err()), AllocatorError::Injected { .. }));
    assert_eq!(memory.free(address).unwrap_err(), Error::Memory(MemoryError::InvalidPointer { address }));
    memory.empty_cache().unwrap();
    assert_eq!(rig.runtime.inconsistency(), None);
}

/// A resource of numbers.
#[derive(Debug)]
struct Made(AtomicU64);

impl MemoryResource for Made {
    fn allocate(&self, bytes: u64, stream: c10_core::StreamView) -> c10_core::Result<c10_core::Allocation> {
        let address = self.0.fetch_add(bytes.next_multiple_of(512), Ordering::Relaxed);
        // SAFETY: nobody looks at the memory.
        Ok(unsafe { c10_core::Allocation::from_raw(address, bytes, stream.device()) })
    }

    fn deallocate(&self, _: c10_core::Allocation, _: c10_core::StreamView) -> Result<(), c10_core::NotDeallocated> {
        Ok(())
    }
}

/// A bit of everything with the shared object as the allocator.
fn program(rig: &Rig) -> c10_core::Result<()> {
    let (runtime, memory) = (&rig.runtime, rig.runtime.memory());
    runtime.init()?;
    let (stream, side) = (runtime.streams().pooled(DEVICE, 0)?, runtime.streams().pooled(DEVICE, -1)?);
    let (first, second) = (memory.buffer(3000, &stream)?, memory.buffer(5000, &side)?);
    first.fill(0..3000, 1, &stream)?;
    second.copy_from_buffer(0, &first, 0..3000, &side)?;
    first.record_stream(&side)?;
    drop(first);
    let mut graph = CUDAGraph::on(runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || {
        let inside = memory.buffer(100, &stream)?;
        inside.fill(0..100, 3, &stream)
    })?;
    graph.replay()?;
    stream.synchronize()?;
    graph.reset()?;
    let third: DeviceBuffer = memory.buffer(100, &stream)?;
    drop((second, third));
    runtime.synchronize(DEVICE)?;
    memory.empty_cache()
}

/// The program with one fault, if any; what was noticed. Afterwards the books balance, and nothing is left.
fn run(fault: Option<Fault>) -> (Vec<(&'static str, CUresult, u64)>, bool) {
    let plug = Plug::new();
    let rig = with(&plug.allocator());
    let what = format!("{fault:?}");
    fault.into_iter().for_each(|fault| rig.machine.inject(fault));
    let first = program(&rig);
    assert_eq!(rig.runtime.inconsistency(), None, "{what}");
    rig.machine.clear_faults();
    let calls = rig.machine.calls();
    program(&rig).unwrap_or_else(|error| panic!("{what}: afterwards {error}"));
    assert_eq!(rig.allocated_bytes(), 0, "{what}");
    assert_eq!(rig.left(), LiveHandles::default(), "{what}");
    assert_eq!(plug.log().held, 0, "{what}: everything went back to the allocator");
    (calls, first.is_err())
}

#[test]
fn every_driver_call_can_fail() {
    let (calls, failed) = run(None);
    assert!(!failed);
    let (tried, noticed) = fail_each_call(&calls, |fault| run(Some(fault)).1);
    assert!(tried > 100 && noticed * 2 > tried, "{noticed} of {tried} faults were noticed");
}
