//! Allocators of a program by torch's names.
//!
//! # Safety
//! The memory of the allocators here is never looked at.
#![expect(unsafe_code, reason = "an allocator whose memory is made of numbers")]

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_api::{
    AllocatorError, CUDAPluggableAllocator, CurrentAllocator, DriverResource, Error, LimitResource, MemPool,
    MemPoolOptions, Runtime, StatisticsResource,
};
use testkit::{Config, Simulation};

/// An allocator that hands out numbers.
fn numbers() -> CUDAPluggableAllocator {
    let next = AtomicU64::new(1 << 45);
    let alloc = move |bytes: u64, _, _| next.fetch_add(bytes.next_multiple_of(512), Ordering::Relaxed);
    // SAFETY: see the top of the file.
    unsafe { CUDAPluggableAllocator::from_functions(alloc, |_, _, _, _| ()) }
}

#[test]
fn the_allocator_is_changed_once_and_before_the_first_use() {
    let simulation = Simulation::new(Config::default());
    let _entered = simulation.enter();
    assert_eq!(cuda_api::get_current_allocator().name(), "native");
    let allocator = numbers();
    cuda_api::change_current_allocator(&allocator).unwrap();
    assert_eq!(cuda_api::get_current_allocator(), CurrentAllocator::Pluggable(allocator.clone()));
    let address = cuda_api::caching_allocator_alloc(1000, 0, None).unwrap();
    assert_eq!(cuda_api::memory_allocated(0).unwrap(), 1000);
    assert_eq!(cuda_api::memory_stats(0).unwrap()["num_device_alloc"], 1);
    assert_eq!((cuda_api::get_allocator_backend(), cuda_api::memory_snapshot(None).unwrap().len()), ("pluggable", 1));
    let late = cuda_api::change_current_allocator(&allocator).unwrap_err();
    assert_eq!(late, Error::Allocator(AllocatorError::AlreadyInitialized));
    assert_eq!(late.to_string(), "Can't swap an already initialized allocator");
    cuda_api::caching_allocator_delete(address).unwrap();
    assert_eq!(allocator.stats(0).allocated_bytes.all.current, 0);
}

#[test]
fn a_pool_takes_segments_of_a_stack_of_resources() {
    let simulation = Simulation::new(Config::default());
    let _entered = simulation.enter();
    let counted = std::sync::Arc::new(StatisticsResource::new(DriverResource::new(&Runtime::current())));
    let allocator = CUDAPluggableAllocator::from_resource(LimitResource::new(counted.clone(), 2 << 20));
    let pool = MemPool::with_allocator(&allocator, MemPoolOptions::default()).unwrap();
    assert_eq!(pool.allocator(), Some(&allocator));
    let within = |len| cuda_api::with_mem_pool(&pool, None, || Ok(cuda_api::DeviceBuffer::new(len, None)?));
    let buffers = [within(1000).unwrap(), within(2000).unwrap()];
    assert_eq!(counted.stats().allocations.allocated, 1, "both are in one segment");
    assert!(within(2 << 20).is_err_and(|error| error.is_out_of_memory()));
    drop((buffers, pool));
    cuda_api::empty_cache().unwrap();
    assert_eq!(counted.stats().bytes.current, 0);
}
