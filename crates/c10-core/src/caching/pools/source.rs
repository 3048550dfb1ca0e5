//! Where a pool's segments come from: the driver, or a source of the pool's own, such as a program's allocator.
//!
//! **Invariants:** a segment goes back to the source it came from, whatever happened since; only what is cached is ever
//! asked of a source, in whole segments. A source is called with the lock of `cold` held and no other, so it must not
//! ask this allocator for anything, and neither may its end.

use std::fmt;
use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, PoolError, Result};
use crate::base::handles::StreamRef;
use crate::driver::Driver;

/// Gives segments and takes them back.
pub(crate) trait SegmentSource: fmt::Debug {
    /// Memory of `bytes` bytes that nobody else uses, first for use on `stream`. Its address is a multiple of 512;
    /// it is 0 when there is none, as for an error that says so.
    ///
    /// # Errors
    /// The source's own.
    fn alloc(&self, device: DeviceIndex, bytes: u64, stream: StreamRef) -> Result<u64>;

    /// Takes memory back that it gave, with as many bytes.
    ///
    /// # Errors
    /// The source's own; the memory then still counts as taken.
    fn free(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()>;
}

/// A source that pools share.
pub(crate) type Source = Arc<dyn SegmentSource + Send + Sync>;

/// The driver as a source.
pub(crate) struct FromDriver<'a, D>(pub(crate) &'a D);

impl<D> fmt::Debug for FromDriver<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromDriver")
    }
}

impl<D: Driver> SegmentSource for FromDriver<'_, D> {
    fn alloc(&self, device: DeviceIndex, bytes: u64, _: StreamRef) -> Result<u64> {
        self.0.mem_alloc(device, bytes)
    }

    fn free(&self, device: DeviceIndex, address: u64, _: u64) -> Result<()> {
        self.0.mem_free(device, address)
    }
}

/// A segment of a source; `None` when it has no memory.
pub(crate) fn new_segment(
    source: &dyn SegmentSource,
    device: DeviceIndex,
    bytes: u64,
    stream: StreamRef,
) -> Result<Option<u64>> {
    let address = match source.alloc(device, bytes, stream) {
        Ok(0) => return Ok(None),
        Ok(address) => address,
        Err(error) if error.driver_is_out_of_memory() || error.is_out_of_memory() => return Ok(None),
        Err(error) => return Err(error),
    };
    if address.is_multiple_of(512) && address.checked_add(bytes).is_some() {
        return Ok(Some(address));
    }
    source.free(device, address, bytes)?;
    Err(Error::Pool(PoolError::UnusableSegment { address }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use rand::RngExt as _;
    use rand::seq::IndexedRandom as _;

    use super::*;
    use crate::base::error::StartError;
    use crate::base::ids::PoolId;
    use crate::caching::tests::random;
    use crate::caching::tests::scripts::{Bench, on};
    use crate::caching::{DeviceStats, Filter, PoolOptions};
    use crate::thread;

    const DEVICE: DeviceIndex = DeviceIndex(0);
    const MIB: u64 = 1 << 20;
    const OPTIONS: [&str; 3] = ["", "expandable_segments:True", "max_split_size_mb:20"];

    /// Hands numbers out, none of which is a multiple of 1 MiB.
    #[derive(Debug, Default)]
    struct Shelf(Mutex<Held>);

    #[derive(Debug, Default)]
    struct Held {
        segments: BTreeMap<u64, u64>,
        given: u64,
        capacity: u64,
        /// What the next call answers.
        fails: Option<Error>,
        /// Address of the next segment.
        next: Option<u64>,
    }

    impl SegmentSource for Shelf {
        fn alloc(&self, device: DeviceIndex, bytes: u64, stream: StreamRef) -> Result<u64> {
            assert_eq!((device, stream.device), (DEVICE, DEVICE));
            let mut held = self.0.lock().unwrap();
            held.fails.take().map_or(Ok(()), Err)?;
            if held.segments.values().sum::<u64>() + bytes > held.capacity {
                return Ok(0);
            }
            held.given += 1;
            let address = (1 << 40) + held.given * 1000 * MIB + held.given * 512;
            let address = held.next.take().unwrap_or(address);
            held.segments.insert(address, bytes);
            Ok(address)
        }

        fn free(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
            assert_eq!(device, DEVICE);
            let mut held = self.0.lock().unwrap();
            held.fails.take().map_or(Ok(()), Err)?;
            assert_eq!(held.segments.remove(&address), Some(bytes), "only whole segments of this source come back");
            Ok(())
        }
    }

    struct Rig {
        bench: Bench,
        pool: PoolId,
        shelf: Arc<Shelf>,
    }

    impl Rig {
        /// A pool whose segments come from a shelf, or from the driver.
        fn new(options: &str, capacity: u64, own: bool) -> Self {
            let rig = Self { bench: Bench::with(1 << 40, options), pool: PoolId::handle(), shelf: Arc::default() };
            rig.shelf.0.lock().unwrap().capacity = capacity;
            let shelf: Source = Arc::<Shelf>::clone(&rig.shelf);
            let source = own.then_some(shelf);
            let options = PoolOptions { source, ..PoolOptions::default() };
            rig.bench.allocator.use_pool(DEVICE, rig.pool, options).unwrap();
            rig
        }

        fn alloc(&self, bytes: u64) -> Result<u64> {
            let Bench { driver, allocator, .. } = &self.bench;
            allocator.begin_allocate_to_pool(DEVICE, self.pool, Filter::Thread(thread::number())).unwrap();
            let address = allocator.alloc(driver, on(0), bytes);
            allocator.end_allocate_to_pool(DEVICE, self.pool).unwrap();
            allocator.release_pool(DEVICE, self.pool).unwrap();
            assert_eq!(allocator.inconsistency(), None);
            address
        }

        fn free(&self, address: u64) {
            self.bench.allocator.free(&self.bench.driver, address).unwrap();
            assert_eq!(self.bench.allocator.inconsistency(), None);
        }

        fn close(&self) -> Result<()> {
            let closed = self.bench.allocator.close_pool(&self.bench.driver, DEVICE, self.pool);
            assert_eq!(self.bench.allocator.inconsistency(), None);
            closed
        }

        fn fail_next(&self, error: Error) {
            self.shelf.0.lock().unwrap().fails = Some(error);
        }

        /// Bytes that the source has given.
        fn given(&self) -> u64 {
            self.shelf.0.lock().unwrap().segments.values().sum()
        }

        fn reserved(&self) -> u64 {
            u64::try_from(self.bench.stats().reserved_bytes.all.current).unwrap()
        }
    }

    /// Random requests and frees; the figures after each step, and where each request's memory lies in its segment.
    fn play(rig: &Rig, seed: u64) -> (Vec<DeviceStats>, Vec<u64>) {
        let (mut random, mut live) = (random(seed), Vec::new());
        let (mut stats, mut offsets) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            if random.random_ratio(2, 3) {
                let size = [100, 5000, 900_000, 3_000_000, 9_000_000, 21_000_000].choose(&mut random).unwrap();
                let address = rig.alloc(size + random.random_range(0..2000)).unwrap();
                let shown = rig.bench.allocator.snapshot(Some(rig.pool));
                let segment = shown.iter().rfind(|segment| segment.address <= address).unwrap();
                offsets.push(address - segment.address);
                live.push(address);
            } else if !live.is_empty() {
                rig.free(live.swap_remove(random.random_range(0..live.len())));
            }
            stats.push(rig.bench.stats());
        }
        live.into_iter().for_each(|address| rig.free(address));
        rig.close().unwrap();
        stats.push(rig.bench.stats());
        (stats, offsets)
    }

    #[test]
    fn a_source_changes_where_segments_come_from_and_nothing_else() {
        for seed in 0..10 {
            let (own, drivers) = (Rig::new("", 1 << 40, true), Rig::new("", 1 << 40, false));
            let answers = play(&own, seed);
            assert_eq!(answers, play(&drivers, seed), "seed {seed}");
            assert!(own.bench.driver.memory().log().is_empty(), "the driver was asked for a segment");
            assert!(own.shelf.0.lock().unwrap().given > 2);
            assert_eq!((own.given(), own.reserved()), (0, 0));
        }
    }

    #[test]
    fn segments_of_a_source_do_not_expand() {
        let (own, plain) = (Rig::new("expandable_segments:True", 1 << 40, true), Rig::new("", 1 << 40, false));
        assert_eq!(play(&own, 5), play(&plain, 5), "expandable segments change how blocks are split, too");
        assert_eq!(own.bench.driver.memory().pages.range_count(), 0);
    }

    #[test]
    fn what_a_source_gave_is_held_until_the_pool_is_given_up() {
        for options in OPTIONS {
            let rig = Rig::new(options, 1 << 40, true);
            let (small, large) = (rig.alloc(1000).unwrap(), rig.alloc(3_000_000).unwrap());
            assert_eq!(rig.given(), 22 * MIB);
            rig.free(small);
            assert_eq!(rig.alloc(800), Ok(small), "cached");
            [small, large].into_iter().for_each(|address| rig.free(address));
            rig.bench.allocator.empty_cache(&rig.bench.driver).unwrap();
            assert_eq!(rig.given(), 22 * MIB, "a pool in use keeps its memory");
            rig.close().unwrap();
            assert_eq!((rig.given(), rig.reserved()), (0, 0));
        }
    }

    #[test]
    fn a_source_that_fails_is_heard() {
        let rig = Rig::new("", 1 << 40, true);
        rig.fail_next(Error::Start(StartError::NoDevices));
        let before = rig.bench.stats();
        assert_eq!(rig.alloc(1000), Err(Error::Start(StartError::NoDevices)));
        assert_eq!(rig.bench.stats(), before);
        let address = rig.alloc(1000).unwrap();
        rig.free(address);
        rig.fail_next(Error::Start(StartError::NoDevices));
        assert_eq!(rig.close(), Err(Error::Start(StartError::NoDevices)));
        assert_eq!((rig.given(), rig.reserved()), (2 * MIB, 2 * MIB), "what was not taken back is still held");
        rig.bench.allocator.empty_cache(&rig.bench.driver).unwrap();
        assert_eq!((rig.given(), rig.reserved()), (0, 0));
    }

    #[test]
    fn a_source_without_memory_is_asked_again_after_something_was_given_back() {
        let rig = Rig::new("max_split_size_mb:20", 70 * MIB, true);
        let first = rig.alloc(60 * MIB).unwrap();
        let error = rig.alloc(40 * MIB).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
        rig.free(first);
        let second = rig.alloc(30 * MIB).unwrap();
        assert_eq!(rig.given(), 30 * MIB, "the unused segment went back to make room");
        let full = crate::base::error::OutOfMemory {
            device: DEVICE,
            requested: 1,
            segment: 1,
            total: 1,
            free: 0,
            allowed: None,
            allocated: 0,
            reserved: 0,
            cached_in_private_pools: 0,
            largest_free_block: 0,
        };
        rig.fail_next(full.into());
        let before = rig.bench.stats();
        let third = rig.alloc(25 * MIB).unwrap();
        assert_eq!(rig.bench.stats().num_alloc_retries, before.num_alloc_retries + 1, "it is asked again");
        assert!(matches!(rig.alloc(24 * MIB), Err(Error::OutOfMemory(error)) if error.figures.requested == 24 * MIB));
        assert_eq!(rig.bench.stats().num_ooms, before.num_ooms + 1);
        [second, third].into_iter().for_each(|address| rig.free(address));
        rig.close().unwrap();
        assert_eq!((rig.given(), rig.reserved()), (0, 0));
    }

    #[test]
    fn memory_that_cannot_be_handed_out_goes_back() {
        let rig = Rig::new("", 1 << 40, true);
        for address in [(1 << 40) + 256, u64::MAX - 511] {
            rig.shelf.0.lock().unwrap().next = Some(address);
            assert_eq!(rig.alloc(1000), Err(Error::Pool(PoolError::UnusableSegment { address })));
            assert_eq!((rig.given(), rig.reserved()), (0, 0));
        }
        rig.alloc(1000).unwrap();
    }

    #[test]
    fn at_the_end_everything_goes_back_to_where_it_came_from() {
        let rig = Rig::new("", 1 << 40, true);
        let Bench { driver, allocator, .. } = &rig.bench;
        rig.alloc(1000).unwrap();
        rig.alloc(30 * MIB).unwrap();
        allocator.alloc(driver, on(0), 1000).unwrap();
        assert_eq!((rig.given(), rig.reserved()), (32 * MIB, 34 * MIB));
        allocator.dismantle(driver);
        assert_eq!(rig.given(), 0);
        assert_eq!(driver.memory().log().last().map(|line| line.starts_with("segment_free")), Some(true));
    }

    #[test]
    fn a_source_is_given_up_with_its_pool() {
        let rig = Rig::new("", 1 << 40, true);
        let address = rig.alloc(1000).unwrap();
        rig.close().unwrap();
        assert_eq!(Arc::strong_count(&rig.shelf), 2, "memory of it is handed out");
        rig.free(address);
        rig.bench.allocator.empty_cache(&rig.bench.driver).unwrap();
        assert_eq!(Arc::strong_count(&rig.shelf), 1);
    }
}
