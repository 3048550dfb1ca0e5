//! Torch's names that need no tensor: code and devices, addresses, visibility, pools by hand, events of any kind.
//!
//! # Safety
//! Memory is registered and unregistered here, and one function stands in for the simulated driver's.
#![expect(unsafe_code, reason = "functions of the driver's interface")]

mod common;

use common::{on, rig, with_nvml};
use cuda_api::{
    AnyEvent, CompatTable, Device, DeviceBuffer, DeviceError, DeviceIndex, DeviceType, Error, Event, EventError,
    EventOptions, MemPool, MemPoolOptions, MemoryError, PinnedBuffer, PoolError, PoolId, RuntimeGuard, StaleMemory,
    Stream, TelemetryError, VisibleDevices, get_device_from_ptr, get_device_index, init, is_initialized, is_pinned,
    memory_snapshot, with_stream,
};
use cuda_sim::{Bound, Config, Fault, Machine};
use cuda_sys::CUresult;
use cuda_sys::driver::types::{CUdevice, CUdevice_attribute};
use testkit::with_environment;

const MIB: usize = 1 << 20;

#[test]
fn starting_by_its_other_name() {
    let _rig = rig();
    cuda_api::lazy_call(|_| cuda_api::lazy_init()).unwrap();
    assert!(!is_initialized());
    cuda_api::lazy_init().unwrap();
    cuda_api::lazy_init().unwrap();
    assert!(is_initialized());
    let properties: cuda_api::CudaDeviceProperties = cuda_api::get_device_properties(0).unwrap();
    assert_eq!((properties.major, properties.minor), (9, 0));
    assert!(cuda_api::is_compiled());
}

#[test]
fn what_stands_for_a_device() {
    let rig = rig();
    assert_eq!(cuda_api::get_device(1), Ok(Device::cuda(1)));
    assert_eq!(cuda_api::get_device("cuda:1"), Ok(Device::cuda(1)));
    assert_eq!(cuda_api::get_device("cpu").unwrap().to_string(), "cpu");
    assert_eq!(cuda_api::get_device("cuda").unwrap().to_string(), "cuda");
    assert_eq!(cuda_api::get_device(-1).unwrap().to_string(), "cuda");
    assert_eq!(cuda_api::get_device(-2), Err(Error::Device(DeviceError::InvalidId)));
    assert!(matches!(cuda_api::get_device("cuda0"), Err(Error::Device(DeviceError::InvalidString { .. }))));

    assert_eq!(
        (get_device_index(-7, false, false), get_device_index("cuda:3", false, false)),
        (Ok(DeviceIndex(-7)), Ok(DeviceIndex(3)))
    );
    assert_eq!(
        (get_device_index("cpu", false, true), get_device_index(2, true, true)),
        (Ok(DeviceIndex(-1)), Ok(DeviceIndex(2)))
    );
    assert!(matches!(get_device_index("cpu", true, false), Err(Error::Device(DeviceError::NotCuda { .. }))));
    assert!(matches!(get_device_index("cuda", false, true), Err(Error::Device(DeviceError::IndexRequired { .. }))));
    assert!(!is_initialized());
    assert_eq!(get_device_index("cuda", true, false), Ok(DeviceIndex(0)));
    assert!(is_initialized() && rig.machine.live().contexts == 0);
}

#[test]
fn pinned_memory_is_known_whoever_pinned_it() {
    let rig = rig();
    let plain = vec![0_u8; 3 * 4096];
    assert_eq!(is_pinned(plain.as_ptr()), Ok(false));
    assert!(!is_initialized(), "before the start nothing is pinned");
    init().unwrap();
    assert_eq!(is_pinned(plain.as_ptr()), Ok(false));
    assert_eq!(rig.machine.live().contexts, 0, "an address is looked up without a context");
    let (buffer, device) = (PinnedBuffer::new(100).unwrap(), DeviceBuffer::new(100, None).unwrap());
    assert_eq!((is_pinned(buffer.address()), is_pinned(buffer.address() + 99)), (Ok(true), Ok(true)));
    assert_eq!(
        (is_pinned(device.address()), is_pinned(0_u64), is_pinned(usize::MAX)),
        (Ok(false), Ok(false), Ok(false))
    );
    let cudart = cuda_api::cudart().unwrap();
    let address = plain.as_ptr().expose_provenance();
    // SAFETY: the memory lives until after it is unregistered.
    assert_eq!(unsafe { cudart.cudaHostRegister(address, plain.len(), 0) }, 0);
    assert_eq!(is_pinned(plain.as_ptr()), Ok(true));
    // SAFETY: it was registered right above.
    assert_eq!(unsafe { cudart.cudaHostUnregister(address) }, 0);
    assert_eq!(is_pinned(plain.as_ptr()), Ok(false));
    let code = CUresult::CUDA_ERROR_NOT_PERMITTED;
    rig.machine.inject(Fault { call: "cuPointerGetAttributes", occurrence: 1, code });
    assert_eq!(is_pinned(plain.as_ptr()).unwrap_err().error_code(), Some(800));
}

#[test]
fn the_device_of_an_address() {
    let _rig = rig();
    let (first, second, host) =
        (DeviceBuffer::new(100, 0).unwrap(), DeviceBuffer::new(100, 1).unwrap(), PinnedBuffer::new(100).unwrap());
    assert_eq!(get_device_from_ptr(first.address() + 50), Ok(Device::cuda(0)));
    assert_eq!(get_device_from_ptr(second.address()), Ok(Device::cuda(1)));
    assert_eq!(get_device_from_ptr(host.address()), Ok(Device::cuda(0)));
    let plain = 0_u8;
    let error = get_device_from_ptr(&raw const plain).unwrap_err();
    assert_eq!(error, Error::Memory(MemoryError::PointerOnNoDevice { address: (&raw const plain).addr() as u64 }));
    let text = "The specified pointer resides on host memory and is not registered with any CUDA device.";
    assert_eq!(error.to_string(), text);
}

#[test]
fn types_that_need_newer_devices() {
    let _rig = rig();
    assert_eq!((cuda_api::is_bf16_supported(false), cuda_api::is_bf16_supported(true)), (Ok(true), Ok(true)));
    assert_eq!(cuda_api::is_tf32_supported(), Ok(true));
    let none = on(Config::default().devices(0));
    assert_eq!((cuda_api::is_bf16_supported(true), cuda_api::is_tf32_supported()), (Ok(false), Ok(false)));
    drop(none);
    let (_current, _bound, machine) = with_older_device();
    assert_eq!((cuda_api::is_bf16_supported(false), cuda_api::is_tf32_supported()), (Ok(false), Ok(false)));
    assert_eq!(cuda_api::is_bf16_supported(true), Ok(true), "it holds such numbers");
    cuda_api::empty_cache().unwrap();
    let code = CUresult::CUDA_ERROR_NOT_PERMITTED;
    machine.inject(Fault { call: "cuMemAlloc_v2", occurrence: 1, code });
    assert_eq!(cuda_api::is_bf16_supported(true), Ok(false));
}

/// A machine whose devices are of compute capability 7.5.
fn with_older_device() -> (RuntimeGuard, Bound, Machine) {
    unsafe extern "C" fn attribute(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
        let older = match attribute {
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 7,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 5,
            other => {
                let simulated = cuda_sim::functions().cuDeviceGetAttribute.expect("it is simulated");
                // SAFETY: the caller's own arguments.
                return unsafe { simulated(value, other, device) };
            }
        };
        // SAFETY: the caller gives a place for the value.
        unsafe { value.write(older) };
        CUresult::CUDA_SUCCESS
    }
    let machine = Machine::new(Config::default());
    let bound = machine.bind();
    let mut functions = cuda_sim::functions();
    functions.cuDeviceGetAttribute = Some(attribute);
    // SAFETY: the simulated driver's functions behave as the C functions of their names, and so does the one above.
    let driver = unsafe { cuda_sys::Driver::from_functions(functions) }.expect("the machine tells its version");
    (cuda_api::Runtime::new(driver).bind(), bound, machine)
}

#[test]
fn code_is_compared_with_the_devices() {
    let _rig = rig();
    assert!(cuda_api::get_arch_list().contains(&"compute_75"));
    assert_eq!(cuda_api::get_gencode_flags(), c10_core::gencode_flags(cuda_api::get_arch_list()).unwrap());
    assert!(cuda_api::get_gencode_flags().contains("-gencode compute=compute_75,code=compute_75"));
    assert_eq!(cuda_api::extract_arch_version("sm_90a"), Ok(90));
    let table = CompatTable::default();
    assert_eq!(cuda_api::check_capability(cuda_api::get_arch_list(), &table).unwrap(), []);
    assert_eq!(cuda_api::check_cubins(cuda_api::get_arch_list()).unwrap(), []);
    let found = cuda_api::check_capability(&["sm_75", "sm_86"], &table).unwrap();
    assert_eq!(found.iter().map(|one| one.device.index).collect::<Vec<_>>(), [DeviceIndex(0), DeviceIndex(1)]);
    let text = found[1].to_string();
    assert!(text.starts_with("Found GPU1 ") && text.contains(" compute capability (CC) 9.0."), "{text}");
    assert!(
        text.ends_with(
            "\n- 7.5 which supports hardware CC >=7.5,<8.0\n- 8.6 which supports hardware CC >=8.6,<9.0 \
        except {8.7}\nTo use this GPU, install a PyTorch release that supports one of these CUDA versions: \
        12.6, 12.8, 13.0"
        ),
        "{text}"
    );
    assert_eq!(cuda_api::check_cubins(&["sm_80"]).unwrap().len(), 2);
    assert!(matches!(cuda_api::check_cubins(&["sm80"]), Err(Error::Device(DeviceError::InvalidArch { .. }))));
    let mut own = table;
    own.releases = vec![("99.1".to_owned(), [90].into())];
    let said = cuda_api::warn_unsupported_code(0, 90, &[80], &own).unwrap();
    assert_eq!(said.releases, ["99.1"]);
    assert_eq!(cuda_api::warn_unsupported_code(9, 90, &[80], &own), Err(Error::Device(DeviceError::InvalidId)));
    assert!(cuda_api::code_compatible_with_device(89, 86) && cuda_api::code_compatible_with_device(141, 140));
    assert!(!cuda_api::code_compatible_with_device(87, 86));
}

#[test]
fn visible_devices_are_read_at_each_call() {
    let variables = [("CUDA_VISIBLE_DEVICES", "1, 0, -4, 2"), ("PYTORCH_NVML_BASED_CUDA_CHECK", "1")];
    with_environment("visible_devices_are_read_at_each_call", &variables, || {
        let _rig = with_nvml(Config::default().devices(3));
        assert_eq!(cuda_api::parse_visible_devices(), VisibleDevices::Ordinals(vec![1, 0]));
        assert!(cuda_api::nvml_based_avail());
        assert_eq!((cuda_api::raw_device_count_nvml(), cuda_api::device_count_nvml()), (Ok(3), Some(2)));
        assert_eq!(cuda_api::get_nvml_device_index(0), Ok(1));
        let uuids = cuda_api::raw_device_uuid_nvml().unwrap();
        assert_eq!((uuids.len(), uuids[0].as_str()), (3, "GPU-63756461-2d73-696d-2064-657669636530"));
        assert_eq!(cuda_api::transform_uuid_to_ordinals(&[&uuids[2], &uuids[0]], &uuids), [2, 0]);
        assert_eq!(cuda_api::transform_uuid_to_ordinals(&[&uuids[2], &uuids[2]], &uuids), Vec::<i64>::new());
        assert!(!is_initialized());
    });
}

#[test]
fn without_nvml_the_raw_figures_are_errors() {
    let rig = rig();
    assert!(matches!(cuda_api::raw_device_count_nvml(), Err(Error::Telemetry(TelemetryError::Missing { .. }))));
    assert!(matches!(cuda_api::raw_device_uuid_nvml(), Err(Error::Telemetry(TelemetryError::Missing { .. }))));
    drop(rig);
    let rig = with_nvml(Config::default());
    rig.machine.inject(Fault { call: "nvmlInit_v2", occurrence: 1, code: CUresult(9) });
    assert_eq!(cuda_api::raw_device_count_nvml(), Err(Error::Telemetry(TelemetryError::DriverNotLoaded)));
    assert_eq!(cuda_api::raw_device_count_nvml(), Ok(1));
}

#[test]
#[expect(deprecated, reason = "these names are")]
fn old_names_do_what_they_became() {
    let _rig = rig();
    drop(DeviceBuffer::new(30 * MIB, None).unwrap());
    assert_eq!((cuda_api::memory_cached(None), cuda_api::max_memory_cached(0)), (Ok(30 << 20), Ok(30 << 20)));
    cuda_api::empty_cache().unwrap();
    assert_eq!((cuda_api::memory_cached(None), cuda_api::max_memory_cached(0)), (Ok(0), Ok(30 << 20)));
    cuda_api::reset_max_memory_cached(0).unwrap();
    assert_eq!((cuda_api::max_memory_cached(0), cuda_api::max_memory_allocated(0)), (Ok(0), Ok(0)));
    drop(DeviceBuffer::new(30 * MIB, None).unwrap());
    cuda_api::reset_max_memory_allocated(0).unwrap();
    assert_eq!((cuda_api::max_memory_cached(0), cuda_api::max_memory_allocated(0)), (Ok(30 << 20), Ok(0)));
}

#[test]
fn the_summary_shows_the_figures() {
    let _rig = rig();
    let _held = (DeviceBuffer::new(3_000_000, 1).unwrap(), DeviceBuffer::new(100, 1).unwrap());
    let summary = cuda_api::memory_summary(1, false).unwrap();
    assert_eq!(summary.lines().count(), 47);
    assert!(summary.lines().all(|line| line.len() == 77 && line.starts_with('|') && line.ends_with('|')), "{summary}");
    for row in [
        "| Allocated memory      |   2930 KiB |   2930 KiB |   2930 KiB |      0 B   |",
        "|       from small pool |      0 KiB |      0 KiB |      0 KiB |      0 B   |",
        "| GPU reserved segments |       2    |       2    |       2    |       0    |",
    ] {
        assert!(summary.contains(row), "{row}\n{summary}");
    }
    assert_eq!(cuda_api::memory_summary(9, true), Err(Error::Device(DeviceError::InvalidId)));
}

#[test]
fn an_event_is_recorded_once() {
    let rig = rig();
    let (first, second) = (Stream::new(None, 0).unwrap(), Stream::new(1, 0).unwrap());
    let event = Event::new(EventOptions::default());
    assert!(!event.is_recorded());
    event.record_once(&first).unwrap();
    let before_ns = rig.machine.now_ns();
    with_stream(&first, || Ok(cuda_api::sleep(1_980_000_000)?)).unwrap();
    event.record_once(&first).unwrap();
    event.record_once(&second).unwrap();
    assert_eq!((event.is_recorded(), event.device()), (true, Some(Device::cuda(0))));
    event.synchronize().unwrap();
    assert!(rig.machine.now_ns() - before_ns < 1_000_000_000, "it stands for what was queued before");
    assert!(event.record(&second).is_err());
}

#[test]
fn events_of_any_kind_of_device() {
    let _rig = rig();
    let stream = Stream::new(1, 0).unwrap();
    let [start, end] = [(); 2].map(|()| AnyEvent::new(DeviceType::Cuda, EventOptions::TIMING));
    assert_eq!((start.device_type(), start.device_index(), start.event_id()), (DeviceType::Cuda, None, 0));
    assert_eq!((start.query(), start.elapsed_time(&end)), (Ok(true), Err(Error::Event(EventError::NotRecorded))));
    start.record(&stream).unwrap();
    with_stream(&stream, || Ok(cuda_api::sleep(1_980_000)?)).unwrap();
    end.record_once(&stream).unwrap();
    end.wait(None).unwrap();
    assert_eq!(end.query(), Ok(false));
    end.synchronize().unwrap();
    assert!(start.elapsed_time(&end).unwrap() >= 1.0 && end.is_recorded());
    assert_eq!((end.device(), end.event_id() != 0), (Device::cuda(1), true));
    assert!(end.to_string().starts_with("torch.Event device_type=cuda, device_index=1, event_flag=1, event_id=0x"));
    assert!(AnyEvent::from(Event::default()).as_cuda().is_some());

    let host = AnyEvent::new(DeviceType::Cpu, EventOptions::TIMING);
    assert_eq!(host.record(None).unwrap_err().to_string(), "cpu backend doesn't support events.");
    assert_eq!(host.record_once(&stream), Err(Error::Event(EventError::NoEvents { kind: DeviceType::Cpu })));
    assert_eq!((host.wait(&stream), host.synchronize(), host.query()), (Ok(()), Ok(()), Ok(true)));
    assert_eq!((host.device().to_string(), host.is_recorded(), host.event_id()), ("cpu".to_owned(), false, 0));
    let kinds = Error::Event(EventError::Kind { first: DeviceType::Cuda, last: DeviceType::Cpu });
    assert_eq!(
        (start.elapsed_time(&host), host.elapsed_time(&host)),
        (Err(kinds), Err(Error::Event(EventError::NotRecorded)))
    );
}

fn segments(pool: PoolId) -> usize {
    memory_snapshot(Some(pool)).expect("the blocks are known").len()
}

/// Torch's `_cuda_beginAllocateToPool`, `_cuda_beginAllocateCurrentThreadToPool`, `_cuda_endAllocateToPool`,
/// `_cuda_releasePool`.
#[test]
fn requests_go_to_a_pool_between_two_calls() {
    let rig = rig();
    let (all, thread) = (cuda_api::graph_pool_handle(), cuda_api::graph_pool_handle());
    let other_thread = || {
        let runtime = cuda_api::Runtime::current();
        let machine = rig.machine.clone();
        std::thread::spawn(move || {
            let _machine = machine.bind();
            let _runtime = runtime.bind();
            DeviceBuffer::new(MIB, 1).unwrap()
        })
        .join()
        .unwrap()
    };
    cuda_api::begin_allocate_to_pool(1, all).unwrap();
    cuda_api::begin_allocate_current_thread_to_pool(1, thread).unwrap();
    assert_eq!(cuda_api::begin_allocate_to_pool(1, all), Err(Error::Pool(PoolError::AlreadyRecording)));
    let held = [DeviceBuffer::new(MIB, 1).unwrap(), other_thread(), DeviceBuffer::new(MIB, 0).unwrap()];
    assert_eq!((segments(thread), segments(all)), (1, 1), "the newest route that takes a request counts");
    cuda_api::end_allocate_to_pool(1, thread).unwrap();
    let more = DeviceBuffer::new(MIB, 1).unwrap();
    cuda_api::end_allocate_to_pool(1, all).unwrap();
    let blocks: usize = memory_snapshot(Some(all)).unwrap().iter().map(|segment| segment.blocks.len()).sum();
    assert_eq!((segments(all), blocks), (1, 2));
    assert_eq!(cuda_api::end_allocate_to_pool(1, all), Err(Error::Pool(PoolError::NotRecording)));
    drop((held, more));
    cuda_api::empty_cache().unwrap();
    assert_eq!((segments(thread), segments(all)), (1, 1), "a pool in use keeps its memory");
    [thread, all].into_iter().for_each(|pool| cuda_api::release_pool(1, pool).unwrap());
    assert_eq!(cuda_api::release_pool(1, all), Err(Error::Pool(PoolError::NotFound { pool: all })));
    cuda_api::empty_cache().unwrap();
    assert_eq!((segments(thread), segments(all), rig.machine.live().allocations), (0, 0, 0));
    assert!(cuda_api::Runtime::current().is_valid());
}

/// Torch's `_cuda_beginAllocateCurrentStreamToPool`.
#[test]
fn requests_for_a_stream_go_to_a_pool() {
    let _rig = rig();
    let (pool, stream) = (cuda_api::graph_pool_handle(), Stream::new(0, 0).unwrap());
    let begin = || Ok(cuda_api::begin_allocate_current_stream_to_pool(0, pool)?);
    with_stream(&stream, begin).unwrap();
    let outside = DeviceBuffer::new(MIB, 0).unwrap();
    assert_eq!(segments(pool), 0);
    let inside = with_stream(&stream, || Ok(DeviceBuffer::new(MIB, 0)?)).unwrap();
    assert_eq!(memory_snapshot(Some(pool)).unwrap()[0].blocks[0].address, inside.address());
    cuda_api::end_allocate_to_pool(0, pool).unwrap();
    assert_eq!(segments(pool), 1);
    drop((inside, outside));
    cuda_api::release_pool(0, pool).unwrap();
}

#[test]
fn only_what_was_begun_by_hand_is_ended_by_hand() {
    let _rig = rig();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    let guard = cuda_api::use_mem_pool(&pool, None).unwrap();
    assert_eq!(cuda_api::end_allocate_to_pool(None, pool.id()), Err(Error::Pool(PoolError::NotRecording)));
    assert_eq!(cuda_api::release_pool(None, pool.id()), Err(Error::Pool(PoolError::NotFound { pool: pool.id() })));
    drop(guard);
    cuda_api::begin_allocate_to_pool(None, pool.id()).unwrap();
    assert_eq!(pool.use_count(), 2);
    assert_eq!(cuda_api::release_pool(None, pool.id()), Err(Error::Pool(PoolError::StillRecording)));
    cuda_api::end_allocate_to_pool(None, pool.id()).unwrap();
    cuda_api::release_pool(None, pool.id()).unwrap();
    assert_eq!(pool.use_count(), 1);
    let default = PoolId(0, 0);
    assert_eq!(
        cuda_api::begin_allocate_to_pool(None, default),
        Err(Error::Pool(PoolError::NotFound { pool: default }))
    );
    assert_eq!(cuda_api::begin_allocate_to_pool(9, pool.id()), Err(Error::Device(DeviceError::InvalidId)));
}

/// The stale storages of torch's `_cuda_setCheckpointPoolState`.
#[test]
fn buffers_are_given_up_when_a_pool_goes_back() {
    let rig = rig();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    let new = |len| cuda_api::with_mem_pool(&pool, None, || Ok(DeviceBuffer::new(len, None)?)).unwrap();
    let (first, kept) = (new(5000), new(5000));
    let noted = cuda_api::checkpoint_pool_state(None, pool.id()).unwrap();
    let address = first.address();
    drop(first);
    let (small, large, outside) = (new(512), new(3 * MIB), DeviceBuffer::new(100, None).unwrap());
    assert_eq!(small.address(), address, "the first block was cut");
    let restore = |stale: &mut StaleMemory| cuda_api::set_checkpoint_pool_state(None, &noted, stale);
    assert_eq!(
        restore(&mut StaleMemory::default()).unwrap_err(),
        Error::Pool(PoolError::StaleMemory { address: large.address() })
    );

    let refused = |buffer: &DeviceBuffer| Error::Pool(PoolError::BufferNotGivenUp { address: buffer.address() });
    let mut shared = StaleMemory { buffers: vec![large.clone()], ..StaleMemory::default() };
    assert_eq!((restore(&mut shared).unwrap_err(), shared.buffers.len()), (refused(&large), 1));
    let expected = refused(&outside);
    let mut others = StaleMemory { buffers: vec![outside], ..StaleMemory::default() };
    assert_eq!(restore(&mut others).unwrap_err(), expected);
    drop((shared, others));

    let mut addresses = StaleMemory { addresses: vec![large.address()], ..StaleMemory::default() };
    assert_eq!(
        restore(&mut addresses).unwrap_err(),
        Error::Memory(MemoryError::OwnedByBuffer { address: large.address() })
    );

    let large_address = large.address();
    let mut stale = StaleMemory { buffers: vec![large], ..StaleMemory::default() };
    let restored = restore(&mut stale).unwrap();
    assert!(stale.buffers.is_empty());
    assert_eq!(restored.allocations_freed.len(), 3);
    assert!(restored.buffers.is_empty(), "{restored:?}: whoever holds a part of the first block holds all of it now");
    let live = |expected: &[u64]| cuda_api::check_pool_live_allocations(None, pool.id(), expected).unwrap();
    assert!(live(&[address, kept.address()]));
    drop(small);
    assert!(live(&[kept.address()]));
    let again = new(3 * MIB);
    assert_eq!(again.address(), large_address, "what was given up is free");
    drop((again, kept, pool));
    assert_eq!(rig.machine.live().allocations, 1, "that of the buffer outside, cached");
    assert!(cuda_api::Runtime::current().is_valid());
}

#[test]
fn memory_that_shrinks_must_be_given_up() {
    let _rig = rig();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    let new = |len| cuda_api::with_mem_pool(&pool, None, || Ok(DeviceBuffer::new(len, None)?)).unwrap();
    let (first, second) = (new(512), new(512));
    let noted = cuda_api::checkpoint_pool_state(None, pool.id()).unwrap();
    let address = first.address();
    drop((first, second));
    let wide = new(1024);
    assert_eq!(wide.address(), address);
    let mut stale = StaleMemory::default();
    let error = cuda_api::set_checkpoint_pool_state(None, &noted, &mut stale).unwrap_err();
    assert_eq!(error, Error::Pool(PoolError::StaleMemory { address }));
    stale.buffers.push(wide);
    let restored = cuda_api::set_checkpoint_pool_state(None, &noted, &mut stale).unwrap();
    let buffers: Vec<(u64, usize)> = restored.buffers.iter().map(|buffer| (buffer.address(), buffer.len())).collect();
    assert_eq!(buffers, [(address, 512), (address + 512, 512)]);
    restored.buffers[1].fill(0..512, 3, cuda_api::current_stream(None).unwrap()).unwrap();
    assert_eq!(restored.buffers[1].to_vec().unwrap(), [3; 512]);
}

#[test]
fn figures_of_pinned_memory_by_torchs_names() {
    let _rig = rig();
    assert!(cuda_api::host_memory_stats_as_nested_dict().is_empty());
    let held = PinnedBuffer::new(3000).unwrap();
    let bytes = |leaf: &str| {
        let tree = cuda_api::host_memory_stats_as_nested_dict();
        tree["active_bytes"].get(leaf).and_then(cuda_api::NestedStat::value)
    };
    assert_eq!((cuda_api::host_memory_stats().active_bytes.current, bytes("current")), (4096, Some(4096)));
    drop(held);
    assert_eq!((bytes("current"), bytes("peak"), bytes("freed")), (Some(0), Some(4096), Some(4096)));
    cuda_api::reset_peak_host_memory_stats();
    cuda_api::reset_accumulated_host_memory_stats();
    assert_eq!((bytes("peak"), bytes("allocated"), bytes("freed")), (Some(0), Some(0), Some(0)));
}

#[test]
fn callables_of_buffers_are_captured() {
    let _rig = rig();
    let copy = |arguments: &[DeviceBuffer]| {
        let to = DeviceBuffer::new(4, None)?;
        to.copy_from_buffer(0, &arguments[0], 0..4, &cuda_api::current_stream(None)?)?;
        Ok(vec![to])
    };
    let sample = [DeviceBuffer::new(4, None).unwrap()];
    let options = cuda_api::GraphedOptions::default();
    let runtime = cuda_api::Runtime::current();
    let mut callables = cuda_api::GraphedCallable::make(&runtime, &[&copy], &[&sample], &options).unwrap();
    let argument = DeviceBuffer::new(4, None).unwrap();
    argument.copy_from_slice(0, b"abcd").unwrap();
    assert_eq!(callables[0].call(&[argument]).unwrap()[0].to_vec().unwrap(), b"abcd");
}

#[test]
fn when_the_driver_loads_code() {
    let lazy = rig();
    assert_eq!(cuda_api::module_loading(), Ok(cuda_api::ModuleLoading::Lazy));
    assert!(is_initialized() && lazy.machine.live().contexts == 0);
    drop(lazy);
    let _eager = on(Config::default().eager_loading(true));
    assert_eq!(cuda_api::module_loading(), Ok(cuda_api::ModuleLoading::Eager));
}
