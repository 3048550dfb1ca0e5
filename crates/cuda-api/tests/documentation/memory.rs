//! `torch.cuda.memory`: figures, snapshots, pools, other allocators, and memory shared between processes.
#![expect(deprecated, reason = "torch's older names are shown, too")]

use c10_core::{DriverResource, Runtime};
use cuda_api::multiprocessing::{SharedTensor, reductions, release_ipc_counter};
use cuda_api::torch::Storage;
use cuda_api::{
    CUDAPluggableAllocator, DeviceBuffer, LegacyMemoryHistory, MemPool, MemPoolOptions, MemoryHistory, StaleMemory,
};

use super::{Example, File, ones, run};

#[test]
fn figures() {
    run(FIGURES);
}

#[test]
fn snapshots() {
    run(SNAPSHOTS);
}

#[test]
fn pools() {
    run(POOLS);
}

#[test]
fn callbacks() {
    run(CALLBACKS);
}

const FIGURES: &[Example] = &[
    ("torch.cuda.memory_allocated torch.cuda.max_memory_allocated torch.cuda.reset_peak_memory_stats", || {
        let tensor = ones(&[1000])?;
        assert_eq!(cuda_api::memory_allocated(None)?, 4096);
        drop(tensor);
        assert_eq!((cuda_api::memory_allocated(None)?, cuda_api::max_memory_allocated("cuda:0")?), (0, 4096));
        cuda_api::reset_peak_memory_stats(None)?;
        assert_eq!(cuda_api::max_memory_allocated(0)?, 0);
        Ok(())
    }),
    ("torch.cuda.memory_reserved torch.cuda.max_memory_reserved torch.cuda.empty_cache", || {
        drop(ones(&[1000])?);
        assert_eq!(cuda_api::memory_reserved(None)?, 2 << 20);
        cuda_api::empty_cache()?;
        assert_eq!((cuda_api::memory_reserved(None)?, cuda_api::max_memory_reserved(None)?), (0, 2 << 20));
        Ok(())
    }),
    (
        "torch.cuda.memory_stats torch.cuda.memory_stats_as_nested_dict torch.cuda.reset_accumulated_memory_stats",
        || {
            let _tensor = ones(&[1000])?;
            assert_eq!(cuda_api::memory_stats(None)?["allocated_bytes.all.current"], 4096);
            assert!(cuda_api::memory_stats_as_nested_dict(None)?.contains_key("allocated_bytes"));
            Ok(cuda_api::reset_accumulated_memory_stats(None)?)
        },
    ),
    ("torch.cuda.memory_summary torch.cuda.mem_get_info", || {
        assert!(cuda_api::memory_summary(None, true)?.contains("PyTorch CUDA memory summary"));
        let (free, total) = cuda_api::mem_get_info(None)?;
        assert!(free <= total);
        Ok(())
    }),
    (
        "torch.cuda.host_memory_stats torch.cuda.host_memory_stats_as_nested_dict \
         torch.cuda.reset_peak_host_memory_stats torch.cuda.reset_accumulated_host_memory_stats",
        || {
            let _pinned = ones(&[1000])?.cpu()?.pin_memory()?;
            let _figures = cuda_api::host_memory_stats();
            assert!(!cuda_api::host_memory_stats_as_nested_dict().is_empty());
            cuda_api::reset_peak_host_memory_stats();
            cuda_api::reset_accumulated_host_memory_stats();
            Ok(())
        },
    ),
    ("torch.cuda.get_per_process_memory_fraction torch.cuda.set_per_process_memory_fraction", || {
        cuda_api::set_per_process_memory_fraction(0.5, 0)?;
        assert!((cuda_api::get_per_process_memory_fraction(0)? - 0.5).abs() < 1e-9);
        Ok(())
    }),
    ("torch.cuda.get_allocator_backend torch.cuda.memory._set_allocator_settings", || {
        assert_eq!(cuda_api::get_allocator_backend(), "native");
        cuda_api::set_allocator_settings("max_split_size_mb:64,garbage_collection_threshold:0.8")?;
        Ok(())
    }),
    (
        "torch.cuda.memory_cached torch.cuda.max_memory_cached torch.cuda.reset_max_memory_allocated \
         torch.cuda.reset_max_memory_cached",
        || {
            assert_eq!(cuda_api::memory_cached(None)?, cuda_api::max_memory_cached(None)?);
            cuda_api::reset_max_memory_allocated(None)?;
            cuda_api::reset_max_memory_cached(None)?;
            Ok(())
        },
    ),
    ("torch.cuda.caching_allocator_alloc torch.cuda.caching_allocator_delete", || {
        let address = cuda_api::caching_allocator_alloc(1000, None, None)?;
        Ok(cuda_api::caching_allocator_delete(address)?)
    }),
    ("torch.cuda.caching_allocator_enable", || {
        cuda_api::caching_allocator_enable(false);
        drop(ones(&[4])?);
        assert_eq!(cuda_api::memory_reserved(None)?, 0);
        cuda_api::caching_allocator_enable(true);
        Ok(())
    }),
];

const SNAPSHOTS: &[Example] = &[
    ("torch.cuda.memory_snapshot torch.cuda.memory._snapshot torch.cuda.memory._segments", || {
        let _tensor = ones(&[4])?;
        assert_eq!(cuda_api::memory_snapshot(None)?.len(), 1);
        assert!(!cuda_api::segments(&cuda_api::snapshot(None)?).is_empty());
        Ok(())
    }),
    (
        "torch.cuda.memory._record_memory_history torch.cuda.memory._record_memory_history_impl \
         torch.cuda.memory._dump_snapshot",
        || {
            let file = File::new("snapshot.pickle");
            cuda_api::record_memory_history(&MemoryHistory { max_entries: 100_000, ..MemoryHistory::default() })?;
            drop(ones(&[4])?);
            cuda_api::dump_snapshot(&file.0)?;
            cuda_api::record_memory_history_impl(&MemoryHistory { enabled: None, ..MemoryHistory::default() })?;
            assert!(file.0.is_file());
            Ok(())
        },
    ),
    ("torch.cuda.memory._record_memory_history_legacy", || {
        cuda_api::record_memory_history_legacy(&LegacyMemoryHistory::new(true))?;
        cuda_api::record_memory_history_legacy(&LegacyMemoryHistory::new(false))?;
        Ok(())
    }),
    ("torch.cuda.memory._save_memory_usage torch.cuda.memory._save_segment_usage", || {
        let (usage, segments) = (File::new("usage.svg"), File::new("segments.svg"));
        let _tensor = ones(&[4])?;
        cuda_api::save_memory_usage(&usage.0, None)?;
        cuda_api::save_segment_usage(&segments.0, Some(&cuda_api::snapshot(None)?))?;
        Ok(())
    }),
    ("torch.cuda.memory._set_memory_metadata torch.cuda.memory._get_memory_metadata", || {
        cuda_api::set_memory_metadata("epoch 1");
        assert_eq!(cuda_api::get_memory_metadata(), "epoch 1");
        Ok(())
    }),
    ("torch.cuda.memory._host_allocator", || {
        let _allocator = cuda_api::host_allocator();
        Ok(())
    }),
];

const POOLS: &[Example] = &[
    ("torch.cuda.MemPool torch.cuda.use_mem_pool MemPool.id MemPool.snapshot MemPool.use_count", || {
        let pool = MemPool::new(MemPoolOptions::default())?;
        let inside = {
            let _pool = cuda_api::use_mem_pool(&pool, None)?;
            ones(&[1 << 20])?
        };
        let sum = cuda_api::with_mem_pool(&pool, None, || inside.add(1))?;
        assert!(!pool.snapshot().is_empty());
        assert_eq!((pool.use_count(), sum.to_vec::<f32>()?[0]), (1, 2.0));
        assert!(cuda_api::memory_snapshot(Some(pool.id()))?.iter().all(|segment| segment.device == 0));
        Ok(())
    }),
    (
        "torch.cuda.memory._cuda_beginAllocateToPool torch.cuda.memory._cuda_endAllocateToPool \
         torch.cuda.memory._cuda_releasePool torch.cuda.memory._cuda_beginAllocateCurrentThreadToPool \
         _cuda_beginAllocateCurrentStreamToPool",
        || {
            let begins = [
                cuda_api::begin_allocate_to_pool,
                cuda_api::begin_allocate_current_thread_to_pool,
                cuda_api::begin_allocate_current_stream_to_pool,
            ];
            for begin in begins {
                let pool = cuda_api::graph_pool_handle();
                begin(0, pool)?;
                let _inside = ones(&[4])?;
                cuda_api::end_allocate_to_pool(0, pool)?;
                cuda_api::release_pool(0, pool)?;
            }
            Ok(())
        },
    ),
    ("_cuda_getCheckpointState _cuda_setCheckpointPoolState", || {
        let pool = MemPool::new(MemPoolOptions::default())?;
        let kept = cuda_api::with_mem_pool(&pool, None, || Ok(DeviceBuffer::new(512, None)?))?;
        let checkpoint = cuda_api::checkpoint_pool_state(None, pool.id())?;
        let stale = cuda_api::with_mem_pool(&pool, None, || Ok(DeviceBuffer::new(512, None)?))?;
        let mut stale = StaleMemory { buffers: vec![stale], ..StaleMemory::default() };
        cuda_api::set_checkpoint_pool_state(None, &checkpoint, &mut stale)?;
        assert!(cuda_api::check_pool_live_allocations(None, pool.id(), &[kept.address()])?);
        Ok(())
    }),
    (
        "torch.cuda.CUDAPluggableAllocator torch.cuda.memory.change_current_allocator \
         torch.cuda.memory._get_current_allocator",
        || {
            let allocator = CUDAPluggableAllocator::from_resource(DriverResource::new(&Runtime::current()));
            cuda_api::change_current_allocator(&allocator)?;
            drop(ones(&[4])?);
            assert_eq!(cuda_api::get_current_allocator().name(), "pluggable");
            Ok(())
        },
    ),
    ("_construct_storage_from_data_pointer", || {
        let memory = DeviceBuffer::new(64, None)?;
        // SAFETY: the memory is held to the end of this example.
        let storage = unsafe { cuda_api::construct_storage_from_data_pointer(memory.address(), 0, 64) }?;
        assert_eq!((storage.address(), storage.len()), (memory.address(), 64));
        Ok(())
    }),
    (
        "multiprocessing.reductions.reduce_tensor multiprocessing.reductions.rebuild_cuda_tensor Tensor.is_shared \
         UntypedStorage._release_ipc_counter",
        || {
            let tensor = ones(&[4])?;
            let bytes = reductions::reduce_tensor(&tensor)?.to_bytes();
            let there = reductions::rebuild_cuda_tensor(&SharedTensor::from_bytes(&bytes)?)?;
            assert!(there.is_shared() && there.data_ptr() == tensor.data_ptr());
            release_ipc_counter(reductions::reduce_tensor(&tensor)?.memory())
        },
    ),
    ("UntypedStorage._share_cuda_ UntypedStorage._new_shared_cuda", || {
        let tensor = ones(&[4])?;
        let shared = tensor.storage().share_cuda()?;
        assert_eq!(Storage::new_shared_cuda(&shared)?.nbytes(), tensor.storage().nbytes());
        Ok(())
    }),
];

const CALLBACKS: &[Example] = &[
    ("_cuda_attach_out_of_memory_observer", || {
        let observer = cuda_api::attach_out_of_memory_observer(|device, _wanted, _total, _free| assert_eq!(device, 0));
        assert!(ones(&[1 << 42]).is_err_and(|error| error.is_out_of_memory()));
        assert!(cuda_api::detach_out_of_memory_observer(observer));
        Ok(())
    }),
    (
        "register_callback_for_event_creation register_callback_for_event_deletion \
         register_callback_for_event_record register_callback_for_event_wait \
         register_callback_for_event_synchronization",
        || {
            cuda_api::register_callback_for_event_creation(|event| assert_ne!(event, 0));
            cuda_api::register_callback_for_event_deletion(|event| assert_ne!(event, 0));
            cuda_api::register_callback_for_event_record(|event, _stream| assert_ne!(event, 0));
            cuda_api::register_callback_for_event_wait(|event, _stream| assert_ne!(event, 0));
            cuda_api::register_callback_for_event_synchronization(|event| assert_ne!(event, 0));
            let event = cuda_api::current_stream(None)?.record_event()?;
            event.wait(&cuda_api::Stream::new(None, 0)?)?;
            Ok(event.synchronize()?)
        },
    ),
    (
        "register_callback_for_memory_allocation register_callback_for_memory_deallocation \
         register_callback_for_stream_creation register_callback_for_stream_synchronization \
         register_callback_for_device_synchronization",
        || {
            cuda_api::register_callback_for_memory_allocation(|address| assert_ne!(address, 0));
            cuda_api::register_callback_for_memory_deallocation(|address| assert_ne!(address, 0));
            cuda_api::register_callback_for_stream_creation(|stream| assert_ne!(stream, 0));
            cuda_api::register_callback_for_stream_synchronization(|_stream| ());
            cuda_api::register_callback_for_device_synchronization(|| ());
            drop(ones(&[4])?);
            cuda_api::Stream::new(None, 0)?.synchronize()?;
            Ok(cuda_api::synchronize(None)?)
        },
    ),
    ("_sanitizer.enable_cuda_sanitizer", || {
        let sanitizer = cuda_api::sanitizer::enable_cuda_sanitizer();
        let (a, other) = (ones(&[4])?, cuda_api::Stream::new(None, 0)?);
        let raced = cuda_api::with_stream(&other, || a.mul_(5.0).map(drop));
        assert!(raced.is_err_and(|raced| raced.to_string().contains("detected 1 errors")));
        assert!(sanitizer.disable());
        Ok(())
    }),
];
