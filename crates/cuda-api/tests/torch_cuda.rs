//! The names of torch.cuda: what they answer and how they fail.

mod common;

use common::{on, rig};
use cuda_api::multiprocessing::{reductions, release_ipc_counter};
use cuda_api::{
    CUDAGraph, CaptureMode, Device, DeviceBuffer, DeviceError, DeviceGuard, DeviceType, Error, Event, EventOptions,
    GraphOptions, GreenContext, GreenContextError, IpcError, MemPool, MemPoolOptions, PinnedBuffer, PoolError, Result,
    Runtime, StaleMemory, Stream, StreamError, StreamId, caching_allocator_alloc, caching_allocator_delete,
    current_device, current_stream, default_stream, device, device_count, device_of, empty_cache,
    get_device_capability, get_device_name, get_device_properties, graph, graph_pool_handle, init, is_available,
    is_current_stream_capturing, is_initialized, max_memory_allocated, max_memory_reserved, mem_get_info,
    memory_allocated, memory_reserved, memory_stats, reset_peak_memory_stats, set_device, set_stream, set_stream_by_id,
    stream, synchronize, with_device, with_graph, with_stream,
};
use cuda_sim::Config;

fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.expect_err("this call must fail").to_string()
}

#[test]
fn sleeping_keeps_the_current_stream_busy() {
    let rig = rig();
    let stream = Stream::new(None, 0).unwrap();
    let before_ns = rig.machine.now_ns();
    with_stream(&stream, || Ok(cuda_api::sleep(1_980_000_000)?)).unwrap();
    assert!(current_stream(None).unwrap().query().unwrap());
    assert!(!stream.query().unwrap());
    stream.synchronize().unwrap();
    assert!(rig.machine.now_ns() - before_ns >= 1_000_000_000, "the device runs at 1.98 GHz");
}

#[test]
fn starting_is_lazy_and_repeatable() {
    let rig = rig();
    assert!(!is_initialized());
    assert_eq!((memory_allocated(None), memory_reserved(0), max_memory_allocated("cuda:1")), (Ok(0), Ok(0), Ok(0)));
    empty_cache().unwrap();
    reset_peak_memory_stats(None).unwrap();
    assert!(!is_initialized());
    init().unwrap();
    init().unwrap();
    assert!(is_initialized() && is_available());
    assert_eq!(device_count(), 2);
    assert_eq!(rig.machine.live().contexts, 0);
}

#[test]
fn without_a_device_asking_is_allowed() {
    let _rig = on(Config::default().devices(0));
    assert!(!is_available());
    assert_eq!(device_count(), 0);
    assert_eq!(text(init()), "No CUDA GPUs are available");
    assert_eq!(text(current_device()), "No CUDA GPUs are available");
    assert_eq!(memory_allocated(None), Ok(0));
    assert!(!is_initialized());
}

#[test]
fn devices_are_named_in_every_way() {
    let _rig = rig();
    for _ in [set_device(1), set_device(1u8), set_device("cuda:1"), set_device(Device::cuda(1)), set_device(1usize)] {
        assert_eq!(current_device().unwrap(), 1);
    }
    set_device(-1).unwrap();
    set_device(i64::MIN).unwrap();
    assert_eq!(current_device().unwrap(), 1);
    assert_eq!(get_device_name(None).unwrap(), get_device_name(&Some(Device::cuda(0))).unwrap());
    assert_eq!(get_device_capability("cuda").unwrap(), (9, 0));
    assert_eq!(text(set_device("cpu")), "Expected a cuda device, but got: cpu");
    assert_eq!(text(set_device("cuda0")), "Invalid device string: 'cuda0'");
    assert_eq!(text(set_device("cuda")), "Expected a torch.device with a specified index or an integer, but got:cuda");
    assert_eq!(text(synchronize("cpu")), "Expected a cuda device, but got: cpu");
    assert_eq!(text(current_stream("cpu")), "Expected a cuda device, but got: cpu");
}

#[test]
fn devices_out_of_range() {
    let _rig = rig();
    for error in [set_device(99).unwrap_err(), set_device(u64::MAX).unwrap_err(), Stream::new(99, 0).unwrap_err()] {
        assert!(error.to_string().starts_with("CUDA error: invalid device ordinal\nGPU device may be out of range"));
        assert_eq!(error.error_code(), Some(101));
    }
    for index in [99, -1] {
        assert_eq!(text(get_device_name(index)), "Invalid device id");
        assert_eq!(text(get_device_properties(index)), "Invalid device id");
        assert_eq!(text(get_device_capability(index)), "Invalid device id");
    }
}

#[test]
fn guards_and_closures_restore_the_device() {
    let rig = rig();
    {
        let _guard = device("cuda:1").unwrap();
        assert_eq!(current_device().unwrap(), 1);
        let _nothing = device(-1).unwrap();
        let _same = device(None).unwrap();
        assert_eq!(current_device().unwrap(), 1);
    }
    let inside = with_device(1, || Ok(current_device()?)).unwrap();
    assert_eq!((inside, current_device().unwrap()), (1, 0));
    let failed = with_device(1, || Err::<(), _>(Error::Device(DeviceError::InvalidId).into())).unwrap_err();
    assert_eq!((failed.runtime(), current_device().unwrap()), (Some(&Error::Device(DeviceError::InvalidId)), 0));
    assert_eq!(rig.machine.live().contexts, 0, "guards use no device");
}

#[test]
fn properties_read_as_torch_prints_them() {
    let _rig = rig();
    let properties = get_device_properties(0).unwrap();
    let head = format!(
        "_CudaDeviceProperties(name='{}', major=9, minor=0, total_memory=143155MB, multi_processor_count=132, uuid=",
        properties.name
    );
    let printed = properties.to_string();
    assert!(printed.starts_with(&head), "{printed}");
    assert!(printed.contains(", pci_bus_id=") && printed.ends_with("MB)"), "{printed}");
    assert_eq!(properties.gcn_arch_name(), properties.name);
    let (free, total) = mem_get_info(None).unwrap();
    assert!(free <= total && total <= properties.total_memory);
}

#[test]
fn streams_and_what_is_current() {
    let _rig = rig();
    let (first, second) = (Stream::new(None, 0).unwrap(), Stream::new("cuda:1", -1).unwrap());
    assert_eq!(Stream::new(-1, 0).unwrap().device_index(), 0);
    assert_eq!(current_stream(None).unwrap(), default_stream(None).unwrap());
    set_stream(None).unwrap();
    with_stream(&first, || {
        assert_eq!(current_stream(None)?, first);
        let _inner = stream(&second)?;
        assert_eq!((current_device()?, current_stream(None)?), (1, second.clone()));
        Ok(())
    })
    .unwrap();
    assert!(stream(None).unwrap().is_none());
    assert_eq!(current_stream(None).unwrap(), default_stream(0).unwrap());
    set_stream(&second).unwrap();
    assert_eq!((current_device().unwrap(), current_stream("cuda:1").unwrap()), (1, second.clone()));
    assert_eq!(
        second.to_string(),
        format!("<torch.cuda.Stream device=cuda:1 cuda_stream={:#x}>", second.cuda_stream())
    );
    assert_eq!(Stream::priority_range().unwrap().0, 0);
    assert!(first.query().unwrap());
}

#[test]
fn what_is_on_a_device_makes_it_current() {
    let rig = rig();
    let there = Stream::new(1, 0).unwrap();
    let (buffer, host) =
        (with_stream(&there, || Ok(DeviceBuffer::new(100, None)?)).unwrap(), PinnedBuffer::new(100).unwrap());
    let event = Event::default();
    let current_in = |guard: Result<DeviceGuard>| guard.map(|_guard| current_device().unwrap()).unwrap();
    assert_eq!(current_in(device_of(&buffer)), 1);
    assert_eq!(current_in(device_of(&there)), 1);
    assert_eq!(current_in(device_of(&Device::cuda(1))), 1);
    let _one = device(1).unwrap();
    assert_eq!(current_in(device_of(&event)), 1, "on no device yet");
    event.record(default_stream(0).unwrap()).unwrap();
    assert_eq!(current_in(device_of(&event)), 0);
    assert_eq!(current_in(device_of(&host)), 1, "the host's");
    assert_eq!(current_in(device_of(&Device { kind: DeviceType::Cpu, index: None })), 1);
    assert_eq!(text(device_of(&Device::cuda(7))), text(device(7)));
    drop(rig);
}

#[test]
fn ids_make_streams_current() {
    let _rig = rig();
    let there = Stream::new(1, -1).unwrap();
    set_stream_by_id(there.stream_id(), there.device_index(), there.device_type()).unwrap();
    assert_eq!((current_device().unwrap(), current_stream(None).unwrap()), (1, there.clone()));
    set_stream_by_id(StreamId(0), 1, DeviceType::Cuda).unwrap();
    assert_eq!(current_stream(1).unwrap(), default_stream(1).unwrap());
    let nonsense = set_stream_by_id(StreamId(1), 0, DeviceType::Cuda);
    assert_eq!((nonsense, current_device()), (Err(Error::Stream(StreamError::Unknown { id: 1 })), Ok(1)));
    assert_eq!((there.native_handle(), there.__cuda_stream__()), (there.cuda_stream(), (0, there.cuda_stream())));
}

#[test]
fn events_measure_and_order() {
    let _rig = rig();
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    assert_eq!(text(start.elapsed_time(&end)), "Both events must be recorded before calculating elapsed time.");
    assert_eq!(
        text(start.elapsed_time(&Event::default())),
        "Both events must be created with argument 'enable_timing=True'."
    );
    let side = Stream::new(None, 0).unwrap();
    let buffer = DeviceBuffer::new(1 << 20, None).unwrap();
    start.record(None).unwrap();
    buffer.fill(0..1 << 20, 1, current_stream(None).unwrap()).unwrap();
    end.record(current_stream(None).unwrap()).unwrap();
    end.wait(&side).unwrap();
    side.wait_event(&end).unwrap();
    end.synchronize().unwrap();
    assert!(end.query().unwrap() && start.elapsed_time(&end).unwrap() > 0.0);
    assert_eq!(end.device(), Some(Device::cuda(0)));
    assert!(side.record_event().unwrap().to_string().starts_with("<torch.cuda.Event 0x"));
}

#[test]
fn memory_figures_and_raw_allocation() {
    let rig = rig();
    let address = caching_allocator_alloc(1_000_000, None, None).unwrap();
    assert_ne!(address, 0);
    assert_eq!(caching_allocator_alloc(0, None, None), Ok(0));
    assert_eq!((memory_allocated(None), memory_reserved("cuda:0")), (Ok(1_000_448), Ok(2 << 20)));
    let side = Stream::new(1, 0).unwrap();
    let other = caching_allocator_alloc(5_000_000, None, &side).unwrap();
    assert_eq!((memory_allocated(1), memory_reserved(1)), (Ok(5_000_192), Ok(20 << 20)));
    assert_eq!(caching_allocator_alloc(1, 0, &side), Err(Error::Stream(StreamError::Device { device: 0, stream: 1 })));
    caching_allocator_delete(address).unwrap();
    caching_allocator_delete(other).unwrap();
    caching_allocator_delete(0).unwrap();
    assert_eq!(text(caching_allocator_delete(12345)), "invalid device pointer: 0x3039");
    assert_eq!(
        (memory_allocated(0), max_memory_allocated(0), max_memory_reserved(0)),
        (Ok(0), Ok(1_000_448), Ok(2 << 20))
    );
    reset_peak_memory_stats(0).unwrap();
    assert_eq!((max_memory_allocated(0), max_memory_reserved(0)), (Ok(0), Ok(2 << 20)));
    empty_cache().unwrap();
    assert_eq!((memory_reserved(0), memory_reserved(1), rig.machine.live().allocations), (Ok(0), Ok(0), 0));
    assert_eq!(memory_stats(0).unwrap().num_device_free, 1);
    let error = caching_allocator_alloc(4096 << 30, None, None).unwrap_err();
    assert!(error.is_out_of_memory());
    assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate 4096.00 GiB. GPU 0 has a total"));
    assert_eq!(
        text(caching_allocator_alloc(u64::MAX, None, None)),
        "CUDA out of memory. Tried to allocate more than 1EB memory."
    );
}

#[test]
fn graphs_in_every_form() {
    let rig = rig();
    let buffer = DeviceBuffer::new(4096, None).unwrap();
    let host = PinnedBuffer::new(4096).unwrap();
    assert_eq!(text(CUDAGraph::new().replay()), "Called CUDAGraph::replay without a preceding successful capture.");
    assert!(text(CUDAGraph::new().capture_begin(None, CaptureMode::Global)).starts_with(
        "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the"
    ));
    let mut first = CUDAGraph::new();
    with_graph(&mut first, GraphOptions::default(), || {
        assert!(is_current_stream_capturing()?);
        Ok(buffer.fill(0..4096, 6, &current_stream(None)?)?)
    })
    .unwrap();
    let mut second = CUDAGraph::with_keep_graph();
    let side = Stream::new(None, 0).unwrap();
    let options = GraphOptions {
        pool: Some(graph_pool_handle()),
        stream: Some(&side),
        capture_error_mode: CaptureMode::ThreadLocal,
    };
    let capture = graph(&mut second, options).unwrap();
    assert_eq!(current_stream(None).unwrap(), side);
    buffer.copy_to_pinned(0..4096, &host, 0, &side).unwrap();
    capture.end().unwrap();
    assert!(!is_current_stream_capturing().unwrap());
    first.replay().unwrap();
    second.replay().unwrap();
    synchronize(None).unwrap();
    assert_eq!(host.to_vec().unwrap(), [6; 4096]);
    drop((first, second, buffer));
    empty_cache().unwrap();
    let live = rig.machine.live();
    assert_eq!((live.graphs, live.graph_execs, live.allocations), (0, 0, 0));
}

#[test]
fn graphs_that_share_a_pool_share_its_memory() {
    let _rig = rig();
    let pool = graph_pool_handle();
    let options = || GraphOptions { pool: Some(pool), ..GraphOptions::default() };
    let (mut first, mut second, mut third) = (CUDAGraph::new(), CUDAGraph::new(), CUDAGraph::new());
    let address = |graph: &mut CUDAGraph| {
        cuda_api::record_graph(graph, options(), |scope| Ok(scope.buffer(4096)?.address())).unwrap()
    };
    assert_eq!(address(&mut first), address(&mut second), "captured on the same stream");
    let outcome = cuda_api::capture_or_run(&mut third, options(), || Ok(synchronize(None)?));
    assert!(matches!(outcome, Ok(cuda_api::CaptureOutcome::RanEagerly { .. })), "{outcome:?}");
}

#[test]
fn the_allocator_is_set_up_as_torchs() {
    let rig = rig();
    assert_eq!(text(cuda_api::set_allocator_settings("foo:1")), "Unrecognized key 'foo' in CUDA allocator config.");
    cuda_api::set_allocator_settings("max_split_size_mb:64").unwrap();
    assert!(!is_initialized());
    assert_eq!(cuda_api::get_allocator_backend(), "native");
    assert!(cuda_api::memory_snapshot(None).unwrap().is_empty());
    init().unwrap();
    assert_eq!(memory_stats(None).unwrap().max_split_size, 64 << 20);
    cuda_api::set_allocator_settings("expandable_segments:True").unwrap();
    assert_eq!(Runtime::current().memory().config().max_split_size, None, "each text begins with the defaults");
    let address = caching_allocator_alloc(1000, None, None).unwrap();
    let segments = cuda_api::memory_snapshot(None).unwrap();
    assert!(segments[0].is_expandable && segments[0].address == address && segments[0].total_size == 2 << 20);
    caching_allocator_delete(address).unwrap();
    empty_cache().unwrap();
    assert_eq!((cuda_api::memory_snapshot(None).unwrap().len(), rig.machine.live().allocations), (0, 0));
}

#[test]
fn a_fraction_limits_a_device() {
    let _rig = rig();
    let bad = cuda_api::set_per_process_memory_fraction(2.0, None);
    assert_eq!(text(bad), "Invalid fraction value: 2.0. Allowed range: 0~1");
    assert!(cuda_api::set_per_process_memory_fraction(f64::NAN, 0).is_err());
    assert_eq!(text(cuda_api::set_per_process_memory_fraction(0.5, 9)), "Invalid device id");
    assert_eq!(cuda_api::get_per_process_memory_fraction(None), Ok(1.0));
    let total = mem_get_info(0).unwrap().1;
    cuda_api::set_per_process_memory_fraction(0.25, 0).unwrap();
    assert_eq!(cuda_api::get_per_process_memory_fraction(0), Ok(0.25));
    assert_eq!(cuda_api::get_per_process_memory_fraction(1), Ok(1.0));
    let error = text(caching_allocator_alloc(total / 2, 0, None));
    assert!(error.contains(" allowed; Of the allocated memory 0 bytes is"), "{error}");
    caching_allocator_delete(caching_allocator_alloc(total / 2, 1, None).unwrap()).unwrap();
}

#[test]
fn without_caching_every_request_goes_to_the_driver() {
    let rig = rig();
    cuda_api::caching_allocator_enable(false);
    let address = caching_allocator_alloc(1000, None, None).unwrap();
    assert_eq!((memory_allocated(None), rig.machine.live().allocations), (Ok(0), 1));
    Runtime::current().memory().record_stream(address, &Stream::new(None, 0).unwrap()).unwrap();
    cuda_api::caching_allocator_enable(true);
    caching_allocator_delete(address).unwrap();
    assert_eq!(rig.machine.live().allocations, 0);
    assert_eq!(text(caching_allocator_delete(address)), format!("invalid device pointer: {address:#x}"));
}

#[test]
fn pools_keep_their_memory_to_themselves() {
    let rig = rig();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    assert_eq!((pool.use_count(), pool.snapshot().len()), (1, 0));
    let guard = cuda_api::use_mem_pool(&pool, None).unwrap();
    assert_eq!(text(cuda_api::use_mem_pool(&pool, None)), "beginAllocateToPool: already recording to mempool_id");
    assert_eq!(pool.use_count(), 2);
    let inside = caching_allocator_alloc(5000, None, None).unwrap();
    drop(guard);
    let outside = caching_allocator_alloc(5000, None, None).unwrap();
    assert_eq!(pool.use_count(), 1);
    let mine = pool.snapshot();
    assert_eq!((mine.len(), mine[0].pool, mine[0].blocks[0].address), (1, pool.id(), inside));
    caching_allocator_delete(inside).unwrap();
    empty_cache().unwrap();
    assert_eq!(pool.snapshot().len(), 1, "a pool in use keeps its memory");
    drop(pool);
    assert_eq!(cuda_api::memory_snapshot(None).unwrap().len(), 1);
    caching_allocator_delete(outside).unwrap();
    empty_cache().unwrap();
    assert_eq!(rig.machine.live().allocations, 0);
    assert!(Runtime::current().is_valid());
}

/// Torch's `_cuda_getCheckpointState`, `_cuda_setCheckpointPoolState` and `_cuda_checkPoolLiveAllocations`.
#[test]
fn pools_come_back_to_a_checkpoint() {
    let rig = rig();
    let pool = MemPool::new(MemPoolOptions::default()).unwrap();
    let alloc = |size| cuda_api::with_mem_pool(&pool, None, || Ok(caching_allocator_alloc(size, None, None)?)).unwrap();
    let (first, second) = (alloc(5000), alloc(3 << 20));
    let noted = cuda_api::checkpoint_pool_state(None, pool.id()).unwrap();
    assert_eq!((noted.device(), noted.pool(), noted.segments().len()), (0, pool.id(), 2));
    caching_allocator_delete(first).unwrap();
    let third = alloc(30 << 20);
    let live = |addresses: &[u64]| cuda_api::check_pool_live_allocations(None, pool.id(), addresses).unwrap();
    assert!(live(&[second, third]) && !live(&[second]));
    let mut stale = StaleMemory { addresses: vec![third], ..StaleMemory::default() };
    assert_eq!(
        text(cuda_api::set_checkpoint_pool_state(1, &noted, &mut stale)),
        "the checkpoint is of device 0, but device 1 was asked for"
    );
    let refused = cuda_api::set_checkpoint_pool_state(0, &noted, &mut StaleMemory::default()).unwrap_err();
    assert_eq!(refused, Error::Pool(PoolError::StaleMemory { address: third }));
    assert!(live(&[second, third]), "nothing has changed");
    let restored = cuda_api::set_checkpoint_pool_state("cuda:0", &noted, &mut stale).unwrap();
    assert!(stale.addresses.is_empty() && live(&[first, second]));
    assert_eq!((restored.allocations_freed.len(), restored.allocations_created.len()), (2, 2));
    assert_eq!(text(caching_allocator_delete(third)), format!("invalid device pointer: {third:#x}"));
    assert_eq!(restored.buffers.iter().map(|buffer| buffer.address()).collect::<Vec<_>>(), [first]);
    drop(restored);
    assert!(live(&[second]), "what nobody held has a holder now, what was held keeps its own");
    caching_allocator_delete(second).unwrap();

    let id = pool.id();
    drop(pool);
    assert_eq!(text(cuda_api::checkpoint_pool_state(0, id)), format!("Could not find pool of id ({}, {})", id.0, id.1));
    assert_eq!(rig.machine.live().allocations, 0);
    assert!(Runtime::current().is_valid());
}

#[test]
fn a_pool_can_help_out() {
    let _rig = rig();
    let total = mem_get_info(None).unwrap().1;
    let pool = MemPool::new(MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() }).unwrap();
    let kept = cuda_api::with_mem_pool(&pool, None, || Ok(caching_allocator_alloc(total / 2, None, None)?)).unwrap();
    caching_allocator_delete(kept).unwrap();
    let lent = caching_allocator_alloc(total / 2, None, None).unwrap();
    assert_eq!(lent, kept);
    assert_eq!(memory_stats(None).unwrap().num_alloc_retries, 0, "the pool was asked before the cache was emptied");
    caching_allocator_delete(lent).unwrap();
    assert_eq!(pool.snapshot().len(), 1, "a lent block goes back to its pool");
}

#[test]
fn peers_and_exchanges() {
    let rig = rig();
    assert_eq!(cuda_api::can_device_access_peer(0, "cuda:1"), Ok(true));
    assert_eq!(cuda_api::can_device_access_peer(None, 0), Ok(true));
    assert_eq!(text(cuda_api::can_device_access_peer(2, 0)), "Invalid device id");
    assert_eq!(text(cuda_api::can_device_access_peer(0, -1)), "Invalid peer device id");
    assert!(matches!(cuda_api::can_device_access_peer(0, None), Err(Error::Device(DeviceError::IndexRequired { .. }))));
    assert_eq!(cuda_api::exchange_device(1), Ok(0));
    assert_eq!(cuda_api::maybe_exchange_device(0), Ok(1));
    assert_eq!(cuda_api::maybe_exchange_device(-1), Ok(-1));
    assert_eq!(rig.machine.live().contexts, 0);
    assert!(!cuda_api::is_in_bad_fork());
}

#[test]
fn the_sync_debug_mode_is_set_by_number_and_name() {
    let _rig = rig();
    let buffer = DeviceBuffer::new(8, None).unwrap();
    cuda_api::set_sync_debug_mode("error").unwrap();
    assert_eq!(cuda_api::get_sync_debug_mode().unwrap() as i32, 2);
    assert_eq!(text(buffer.to_vec()), "called a synchronizing CUDA operation");
    synchronize(None).unwrap();
    cuda_api::set_sync_debug_mode(0).unwrap();
    buffer.to_vec().unwrap();
    assert_eq!(text(cuda_api::set_sync_debug_mode(3)), "invalid value of debug_mode, expected one of 0,1,2");
}

#[test]
fn codes_of_the_runtime_api() {
    let _rig = rig();
    let cudart = cuda_api::cudart().unwrap();
    cuda_api::check_error(cudart.cudaProfilerStart()).unwrap();
    assert_eq!(cudart.cudaProfilerStop(), cuda_api::cudaStatus::SUCCESS);
    assert_eq!(text(cuda_api::check_error(2)), "out of memory (2)");
    assert_eq!(cudart.cudaMemGetInfo(None), mem_get_info(None));
}

#[test]
fn memory_and_events_are_named_for_other_processes() {
    let _rig = rig();
    let shared = DeviceBuffer::new(8, None).unwrap().share().unwrap();
    assert_eq!(memory_allocated(None), Ok(512), "the other process may still come");
    cuda_api::ipc_collect().unwrap();
    assert_eq!(memory_allocated(None), Ok(512));
    assert_eq!(DeviceBuffer::open_shared(&shared).unwrap().len(), 8, "it comes back to its sender");
    cuda_api::ipc_collect().unwrap();
    assert_eq!(memory_allocated(None), Ok(0));
    assert_eq!(DeviceBuffer::open_shared(&shared).unwrap_err(), Error::Ipc(IpcError::Released));
    let tensor = cuda_api::torch::ones(&[2], cuda_api::torch::float32, "cuda").unwrap();
    let shared = reductions::reduce_tensor(&tensor).unwrap();
    assert!(tensor.is_shared());
    let back = reductions::rebuild_cuda_tensor(&shared).unwrap();
    assert!(back.storage().is_same(tensor.storage()));
    let storage = tensor.storage().share_cuda().unwrap();
    assert!(cuda_api::torch::Storage::new_shared_cuda(&storage).unwrap().is_same(tensor.storage()));
    let unopened = reductions::reduce_tensor(&tensor).unwrap();
    release_ipc_counter(unopened.memory()).unwrap();
    drop((tensor, back));
    cuda_api::ipc_collect().unwrap();
    assert_eq!(memory_allocated(None), Ok(0));
    let event = Event::new(EventOptions { interprocess: true, ..EventOptions::default() });
    let handle = event.ipc_handle().unwrap();
    assert_eq!(Event::from_ipc_handle(0, &handle).unwrap_err().error_code(), Some(201));
    let short = text(Event::from_ipc_handle(0, &[]));
    assert_eq!(short, "cudaIpcEventHandle_t expects byte-like object of size 64, but got 0");
}

#[test]
fn green_contexts_take_a_part_of_a_device() {
    let _rig = rig();
    set_device(1).unwrap();
    let part = GreenContext::create(20, None).unwrap();
    assert_eq!((part.num_sms(), part.device()), (24, Device::cuda(1)));
    let there = GreenContext::create(8, "cuda:0").unwrap();
    let buffer = DeviceBuffer::new(4, 0).unwrap();
    there.set_context().unwrap();
    assert_eq!(current_device(), Ok(0));
    assert_ne!(current_stream(None).unwrap(), default_stream(None).unwrap());
    buffer.fill(.., 7, None).unwrap();
    there.pop_context().unwrap();
    assert_eq!(current_device(), Ok(1));
    synchronize(0).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [7; 4]);
    with_stream(there.stream().unwrap(), || Ok(buffer.fill(.., 8, None)?)).unwrap();
    assert_eq!(
        text(GreenContext::create(500, 0)),
        "Invalid number of SMs requested for green context: 500 (device has 132 SMs)"
    );
    assert_eq!(there.pop_context(), Err(Error::GreenContext(GreenContextError::NotCurrent)));
}
