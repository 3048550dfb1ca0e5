//! Several threads at one allocator: requests and frees at the same time, in the driver and at a shard's lock.

use super::*;
use crate::base::device::DeviceIndex;
use crate::caching::tests::scripts::{figures, on};

/// A driver that never runs out of memory and lets events pass at once.
fn unlimited() -> FakeDriver {
    FakeDriver::new(1 << 40).without_pending_events()
}

#[test]
fn threads_may_ask_the_driver_at_the_same_time() {
    let driver = unlimited().with_paired_requests();
    let config = AllocatorConfig::default().parse("release_lock_on_cudamalloc:True").unwrap();
    let allocator = CachingAllocator::new(1, &Arc::new(config));
    allocator.set_limit(DeviceIndex(0), Some(64 << 20)).unwrap();
    std::thread::scope(|scope| {
        let ask = |stream| (&driver, &allocator, stream);
        let threads = [ask(0), ask(16)].map(|(driver, allocator, stream)| {
            scope.spawn(move || allocator.alloc(driver, on(stream), 24 << 20).unwrap())
        });
        let addresses = threads.map(|thread| thread.join().unwrap());
        assert_ne!(addresses[0], addresses[1]);
    });
    assert_eq!(allocator.inconsistency(), None);
    let stats = allocator.stats(DeviceIndex(0)).unwrap();
    assert_eq!((stats.reserved_bytes.all.current, stats.num_device_alloc), (48 << 20, 2));
    assert!(allocator.alloc(&driver, on(0), 24 << 20).is_err_and(|error| error.is_out_of_memory()));
}

/// A thread that waits for a shard's lock is served by its holder, if it asks for what the dormant block is.
#[test]
fn a_waiting_request_may_be_served_by_others() {
    for (asked, served) in [(5000, true), (5001, false)] {
        let driver = unlimited();
        let allocator = CachingAllocator::new(1, &Arc::default());
        let address = allocator.alloc(&driver, on(0), 5000).unwrap();
        for _ in 0..2 {
            allocator.free(&driver, address).unwrap();
            assert_eq!(allocator.alloc(&driver, on(0), 5000), Ok(address));
        }
        allocator.free(&driver, address).unwrap();
        let shard = allocator.shared.shard(allocator.shared.pages.slot_at(address).unwrap().0).unwrap();
        let again = std::thread::scope(|scope| {
            let mut locked = shard.lock();
            let waiting = scope.spawn(|| allocator.alloc(&driver, on(0), asked).unwrap());
            while !shard.is_awaited() {
                std::thread::yield_now();
            }
            locked.grant();
            assert_eq!(locked.has_granted(), served);
            drop(locked.flush());
            waiting.join().unwrap()
        });
        assert_eq!((again, allocator.inconsistency()), (address, None));
        let count = allocator.stats(DeviceIndex(0)).unwrap().allocation.all;
        assert_eq!((count.current, count.peak, count.allocated, count.freed), (1, 1, 4, 3));
        allocator.free(&driver, again).unwrap();
    }
}

#[test]
fn threads_allocate_and_free_each_others_memory() {
    let driver = unlimited();
    let allocator = CachingAllocator::new(1, &Arc::default());
    let (give, take) = std::sync::mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (driver, allocator, give) = (&driver, &allocator, give.clone());
            scope.spawn(move || {
                let mut random = random(thread);
                for _ in 0..2000 {
                    let address =
                        allocator.alloc(driver, on(usize::from(thread % 2 == 0)), random.random_range(1..=1 << 22));
                    let address = address.unwrap();
                    allocator.record_stream(address, on(64)).unwrap();
                    give.send(address).unwrap();
                }
            });
        }
        drop(give);
        take.iter().for_each(|address| allocator.free(&driver, address).unwrap());
    });
    assert_eq!(allocator.inconsistency(), None);
    allocator.empty_cache(&driver).unwrap();
    assert_eq!(allocator.stats(DeviceIndex(0)).unwrap().reserved_bytes.all.current, 0);
}

/// Threads whose blocks wait and pass at once, while others look, take everything back and wait for all events.
#[test]
fn threads_may_look_while_blocks_wait() {
    const ROUNDS: u64 = 3000;
    let driver = unlimited();
    let allocator = CachingAllocator::new(1, &Arc::default());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (driver, allocator) = (&driver, &allocator);
            scope.spawn(move || {
                let mut random = random(thread as u64);
                for _ in 0..ROUNDS {
                    let bytes = if random.random_ratio(1, 8) { random.random_range(1..=1 << 21) } else { 5000 };
                    let address = allocator.alloc(driver, on(thread * 16), bytes).unwrap();
                    allocator.record_stream(address, on(64 + thread % 2)).unwrap();
                    allocator.free(driver, address).unwrap();
                }
            });
        }
        let (driver, allocator) = (&driver, &allocator);
        scope.spawn(move || {
            for step in 0..300 {
                let stats = allocator.stats(DeviceIndex(0)).unwrap();
                assert!(stats.active.all.current >= stats.allocation.all.current, "{stats:?}");
                assert!(stats.is_valid(), "{stats:?}");
                if step % 10 == 0 {
                    allocator.empty_cache(driver).unwrap();
                }
            }
        });
    });
    allocator.empty_cache(&driver).unwrap();
    assert_eq!(allocator.inconsistency(), None);
    let stats = allocator.stats(DeviceIndex(0)).unwrap();
    let [current, peak, allocated, freed] = figures(&stats.active);
    assert_eq!((current, allocated, freed), (0, 3 * ROUNDS.cast_signed(), 3 * ROUNDS.cast_signed()));
    assert!((1..=6).contains(&peak), "{peak}");
    assert_eq!(stats.reserved_bytes.all.current, 0);
}
