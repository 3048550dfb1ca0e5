//! Checkpoints of private pools on the fake driver: what comes back, what is counted, what is refused.

use proptest::prelude::*;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceError, Error, MemoryError, PoolError};
use crate::base::ids::PoolId;
use crate::caching::tests::scripts::{Bench, figures, on};

const DEVICE: DeviceIndex = DeviceIndex(0);
const MIB: u64 = 1 << 20;
const OPTIONS: [&str; 4] =
    ["", "expandable_segments:True", "max_split_size_mb:20", "expandable_segments:True,roundup_power2_divisions:4"];

/// A pool in use.
struct Rig {
    bench: Bench,
    pool: PoolId,
}

impl Rig {
    fn new(options: &str) -> Self {
        let rig = Self { bench: Bench::with(1 << 30, options), pool: PoolId::handle() };
        rig.bench.allocator.use_pool(DEVICE, rig.pool, PoolOptions::default()).unwrap();
        rig
    }

    fn try_alloc(&self, stream: usize, bytes: u64) -> Result<u64> {
        let Bench { driver, allocator, .. } = &self.bench;
        allocator.begin_allocate_to_pool(DEVICE, self.pool, Filter::Thread(thread::number())).unwrap();
        let address = allocator.alloc(driver, on(stream), bytes);
        allocator.end_allocate_to_pool(DEVICE, self.pool).unwrap();
        allocator.release_pool(DEVICE, self.pool).unwrap();
        self.check();
        address
    }

    fn alloc(&self, stream: usize, bytes: u64) -> u64 {
        self.try_alloc(stream, bytes).unwrap()
    }

    fn free(&self, address: u64) {
        self.bench.allocator.free(&self.bench.driver, address).unwrap();
        self.check();
    }

    fn record(&self, address: u64, stream: usize) {
        self.bench.allocator.record_stream(address, on(stream)).unwrap();
        self.check();
    }

    fn try_get(&self) -> Result<PoolCheckpoint> {
        let noted = self.bench.allocator.checkpoint_pool(&self.bench.driver, DEVICE, self.pool);
        self.check();
        noted
    }

    fn get(&self) -> PoolCheckpoint {
        self.try_get().unwrap()
    }

    fn try_set(&self, checkpoint: &PoolCheckpoint) -> Result<RestoreResult> {
        let restored = self.bench.allocator.restore_pool(&self.bench.driver, DEVICE, checkpoint, None);
        self.check();
        restored
    }

    fn set(&self, checkpoint: &PoolCheckpoint) -> RestoreResult {
        self.try_set(checkpoint).unwrap()
    }

    /// Asserts that restoring is refused so and changes nothing.
    fn refuses(&self, checkpoint: &PoolCheckpoint, error: &Error) {
        let before = (self.bench.stats(), self.bench.allocator.snapshot(None));
        assert_eq!(self.try_set(checkpoint).as_ref(), Err(error));
        assert_eq!((self.bench.stats(), self.bench.allocator.snapshot(None)), before);
    }

    fn is_live(&self, addresses: &[u64]) -> bool {
        self.bench.allocator.check_pool_live_allocations(DEVICE, self.pool, addresses).unwrap()
    }

    fn check(&self) {
        assert_eq!(self.bench.allocator.inconsistency(), None);
    }
}

fn addresses(blocks: &[BlockInfo]) -> Vec<u64> {
    blocks.iter().map(|block| block.address).collect()
}

fn without_uses(checkpoint: &PoolCheckpoint) -> Vec<SegmentCheckpoint> {
    let mut segments = checkpoint.segments().to_vec();
    segments.iter_mut().flat_map(|segment| &mut segment.blocks).for_each(|block| block.extra_streams.clear());
    segments
}

#[test]
fn what_was_handed_out_is_so_again() {
    for options in OPTIONS {
        let rig = Rig::new(options);
        let [first, gap, second, large] = [5000, 700, 800_000, 3_000_000].map(|bytes| rig.alloc(0, bytes));
        rig.free(gap);
        let other = rig.alloc(16, 100);
        let noted = rig.get();
        let [late, later] = [100, 30_000_000].map(|bytes| rig.alloc(0, bytes));
        [first, large, other].into_iter().for_each(|address| rig.free(address));
        let mut live = vec![second, late, later];
        assert!(rig.is_live(&live) && !rig.is_live(&live[1..]) && !rig.is_live(&[live.clone(), vec![512]].concat()));

        let restored = rig.set(&noted);
        live.sort_unstable();
        assert_eq!(restored.allocations_freed, live, "{options}");
        let mut expected = vec![first, second, large, other];
        assert!(rig.is_live(&expected));
        expected.sort_unstable();
        let mut created = addresses(&restored.allocations_created);
        created.sort_unstable();
        assert_eq!(created, expected);
        assert!(restored.allocations_created.iter().all(|block| block.requested_size == block.size));
        expected.into_iter().for_each(|address| rig.free(address));
        rig.bench.allocator.close_pool(&rig.bench.driver, DEVICE, rig.pool).unwrap();
        assert_eq!(rig.bench.stats().reserved_bytes.all.current, 0);
    }
}

#[test]
fn figures_move_along() {
    let rig = Rig::new("");
    let address = rig.alloc(0, 1);
    let noted = rig.get();
    rig.free(address);
    rig.alloc(0, 1024);
    rig.set(&noted);
    // Besides the two requests there are the block that was noted and the free rest of its segment.
    let stats = rig.bench.stats();
    assert_eq!(figures(&stats.allocation), [1, 2, 4, 3]);
    assert_eq!(figures(&stats.active), [1, 2, 4, 3]);
    assert_eq!(figures(&stats.allocated_bytes), [512, 2097152, 2098688, 2098176]);
    assert_eq!(figures(&stats.requested_bytes), [512, 2097152, 2098177, 2097665]);
    assert_eq!(figures(&stats.inactive_split), [1, 1, 4, 3]);
    assert_eq!(figures(&stats.inactive_split_bytes), [2096640, 2096640, 8386048, 6289408]);
    assert_eq!(figures(&stats.segment), [1, 1, 1, 0]);
    assert_eq!((stats.num_device_alloc, stats.num_sync_all_streams), (1, 0));
}

#[test]
fn a_checkpoint_describes_every_block() {
    let rig = Rig::new("");
    let (first, second) = (rig.alloc(16, 1000), rig.alloc(16, 3_000_000));
    rig.record(second, 32);
    let noted = rig.get();
    assert_eq!((noted.device(), noted.pool()), (DEVICE, rig.pool));
    let [small, large] = noted.segments() else { panic!("two segments: {noted:?}") };
    assert_eq!((small.stream, small.segment_type, small.is_expandable), (16, SegmentType::Small, false));
    assert_eq!((large.stream, large.segment_type, large.blocks.len()), (16, SegmentType::Large, 2));
    let block = |address, size, allocated| BlockCheckpoint {
        address,
        size,
        allocated,
        mapped: true,
        extra_streams: Vec::new(),
    };
    assert_eq!(small.blocks, [block(first, 1024, true), block(first + 1024, 2 * MIB - 1024, false)]);
    assert_eq!(large.blocks[0].extra_streams, [(DEVICE, 32)]);
    assert_eq!(large.blocks[1], block(second + 3_000_320, 20 * MIB - 3_000_320, false));
}

#[test]
fn the_sizes_are_those_noted_whatever_the_options_say() {
    let rig = Rig::new("");
    rig.free(rig.alloc(0, 20 * MIB));
    let set = |options: &str| {
        rig.bench.allocator.set_config(&Arc::new(AllocatorConfig::default().parse(options).unwrap()));
    };
    // With expandable segments on, more blocks are split than otherwise, those of other segments too.
    set("expandable_segments:True");
    let address = rig.alloc(0, 20 * MIB - 512);
    let noted = rig.get();
    assert_eq!(noted.segments()[0].blocks.len(), 2);
    rig.free(address);
    set("");
    assert_eq!(rig.alloc(0, 20 * MIB - 512), address);
    assert_eq!(rig.get().segments()[0].blocks.len(), 1);
    rig.set(&noted);
    assert_eq!(rig.get(), noted);
}

#[test]
fn what_a_pool_got_since_stays_free() {
    for (options, extra) in [("", 1), ("expandable_segments:True", 0)] {
        let rig = Rig::new(options);
        let kept = rig.alloc(0, 20 * MIB);
        let noted = rig.get();
        let more = rig.alloc(0, 60 * MIB);
        assert_eq!(rig.set(&noted).allocations_freed, [kept, more]);
        let now = rig.get();
        assert_eq!(now.segments().len(), noted.segments().len() + extra);
        assert!(rig.is_live(&[kept]));
        assert_eq!(rig.bench.stats().reserved_bytes.all.current, 80 << 20);
        assert_eq!(rig.alloc(0, 60 * MIB), more, "{options}: it is there for the next request");
    }
}

#[test]
fn blocks_freed_by_other_threads_are_free() {
    let rig = Rig::new("");
    let (first, second) = (rig.alloc(0, 1000), rig.alloc(0, 1000));
    let noted = rig.get();
    let free = |address: u64| {
        let Bench { driver, allocator, .. } = &rig.bench;
        std::thread::scope(|scope| {
            scope.spawn(move || allocator.free(driver, address)).join().unwrap().unwrap();
        });
    };
    free(first);
    assert!(rig.is_live(&[second]));
    free(second);
    assert_eq!(rig.set(&noted).allocations_freed, []);
    assert_eq!(rig.get(), noted);
    free(first);
    rig.free(second);
}

#[test]
fn memory_that_other_streams_use_is_in_the_way() {
    let rig = Rig::new("");
    let address = rig.alloc(0, 1000);
    let noted = rig.get();
    rig.record(address, 32);
    let error = Error::Pool(PoolError::CheckpointOfPendingMemory { address });
    rig.refuses(&noted, &error);
    assert!(rig.try_get().is_ok(), "only noting is possible");
    rig.free(address);
    rig.refuses(&noted, &error);
    assert_eq!(rig.try_get(), Err(error));
    rig.bench.driver.pass(32);
    assert!(rig.is_live(&[]));
    assert_eq!(addresses(&rig.set(&noted).allocations_created), [address]);
    assert_eq!(rig.get(), noted);
}

#[test]
fn only_pools_in_use_have_checkpoints() {
    let rig = Rig::new("");
    let Bench { driver, allocator, .. } = &rig.bench;
    let address = rig.alloc(0, 1000);
    let noted = rig.get();
    let unknown = PoolId(77, 77);
    let error = allocator.checkpoint_pool(driver, DEVICE, unknown).unwrap_err();
    assert_eq!(error.to_string(), "Could not find pool of id (77, 77)");
    assert_eq!(allocator.check_pool_live_allocations(DEVICE, unknown, &[]), Err(error));
    assert_eq!(allocator.checkpoint_pool(driver, DeviceIndex(1), rig.pool), Err(Error::Device(DeviceError::InvalidId)));
    allocator.release_pool(DEVICE, rig.pool).unwrap();
    let error = rig.try_get().unwrap_err();
    assert_eq!(error.to_string(), "Not expected to checkpoint freeable graph");
    rig.refuses(&noted, &error);
    assert!(rig.is_live(&[address]), "this can be asked of it still");
    rig.free(address);
    allocator.empty_cache(driver).unwrap();
    rig.refuses(&noted, &Error::Pool(PoolError::NotFound { pool: rig.pool }));
}

#[test]
fn a_checkpoint_is_of_one_device_and_allocator() {
    let config = Arc::default();
    let (ours, theirs) = (CachingAllocator::new(2, &config), CachingAllocator::new(2, &config));
    let driver = FakeDriver::new(1 << 30);
    let pool = PoolId::handle();
    for allocator in [&ours, &theirs] {
        for device in [DEVICE, DeviceIndex(1)] {
            allocator.use_pool(device, pool, PoolOptions::default()).unwrap();
        }
    }
    let noted = ours.checkpoint_pool(&driver, DEVICE, pool).unwrap();
    assert_eq!(ours.restore_pool(&driver, DEVICE, &noted, None), Ok(RestoreResult::default()));
    assert_eq!(theirs.restore_pool(&driver, DEVICE, &noted, None), Err(Error::OtherRuntime { what: "checkpoint" }));
    let error = Error::Pool(PoolError::CheckpointDevice { checkpoint: DEVICE, device: DeviceIndex(1) });
    assert_eq!(ours.restore_pool(&driver, DeviceIndex(1), &noted, None), Err(error));
}

#[test]
fn a_checkpoint_of_segments_that_are_gone_is_refused() {
    let rig = Rig::new("max_split_size_mb:20");
    let (small, large) = (rig.alloc(0, 1000), rig.alloc(0, 30 * MIB));
    let noted = rig.get();
    rig.free(large);
    rig.bench.driver.memory().capacity = 80 * MIB;
    rig.try_alloc(0, 90 * MIB).unwrap_err();
    rig.refuses(&noted, &Error::Pool(PoolError::CheckpointIsStale { address: large }));
    assert!(rig.is_live(&[small]));
}

#[test]
fn a_driver_that_fails_changes_nothing() {
    let rig = Rig::new("");
    let (first, second) = (rig.alloc(0, 1000), rig.alloc(0, 1000));
    let noted = rig.get();
    rig.record(first, 32);
    rig.free(first);
    for _ in 0..2 {
        rig.bench.driver.calls().fail(1);
        assert!(rig.try_get().is_err_and(|error| error.accelerator().is_some()));
        rig.bench.driver.calls().fail(1);
        assert!(rig.try_set(&noted).is_err_and(|error| error.accelerator().is_some()));
        assert!(rig.is_live(&[second]));
    }
    rig.bench.driver.pass(32);
    rig.set(&noted);
    assert_eq!(rig.get(), noted);
}

/// A thread that is about to queue a remote free may be overtaken by the restoring.
#[test]
fn frees_by_another_thread_meanwhile_keep_the_books() {
    let rig = Rig::new("");
    let Bench { driver, allocator, .. } = &rig.bench;
    let (give, take) = std::sync::mpsc::channel::<Vec<u64>>();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for address in take.into_iter().flatten() {
                let freed = allocator.free(driver, address);
                assert!(matches!(freed, Ok(()) | Err(Error::Memory(MemoryError::InvalidPointer { .. }))), "{freed:?}");
                done.send(()).unwrap();
            }
        });
        for _ in 0..500 {
            let blocks: Vec<u64> = (0..8).map(|number| rig.alloc(0, 1000 + number * 200_000)).collect();
            let noted = rig.get();
            give.send(blocks.clone()).unwrap();
            let restored = allocator.restore_pool(driver, DEVICE, &noted, None).unwrap();
            assert_eq!(restored.allocations_created.len(), blocks.len());
            blocks.iter().for_each(|_| is_done.recv().unwrap());
            rig.check();
            let live = blocks.into_iter().filter(|address| allocator.owner(*address).is_some());
            live.for_each(|address| rig.free(address));
            assert!(rig.is_live(&[]));
        }
        drop(give);
    });
}

#[derive(Clone, Debug)]
enum Act {
    Alloc(usize, u64),
    Free(usize),
    Record(usize, usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let bytes = prop_oneof![1..5000_u64, 100_000..1_500_000_u64, 1_500_000..30_000_000_u64];
    let stream = prop_oneof![Just(0_usize), Just(0), Just(16)];
    let act = prop_oneof![
        4 => (stream, bytes).prop_map(|(stream, bytes)| Act::Alloc(stream, bytes)),
        3 => any::<usize>().prop_map(Act::Free),
        1 => (any::<usize>(), Just(32)).prop_map(|(block, stream)| Act::Record(block, stream)),
    ];
    prop::collection::vec(act, 0..40)
}

/// Does what can be done of it; recorded uses pass at once.
fn play(rig: &Rig, live: &mut Vec<u64>, acts: &[Act], records: bool) {
    for act in acts {
        match act {
            Act::Alloc(stream, bytes) => live.extend(rig.try_alloc(*stream, *bytes)),
            Act::Free(block) if !live.is_empty() => rig.free(live.swap_remove(block % live.len())),
            Act::Record(block, stream) if records && !live.is_empty() => {
                let address = live.swap_remove(block % live.len());
                rig.record(address, *stream);
                rig.free(address);
            }
            Act::Free(_) | Act::Record(..) => {}
        }
    }
}

/// A segment up to its last allocated block, and its bytes: an expandable one may have got more memory since.
fn up_to_last(segment: &SegmentCheckpoint) -> (&[BlockCheckpoint], u64) {
    let end = segment.blocks.iter().rposition(|block| block.allocated).map_or(0, |last| last + 1);
    (&segment.blocks[..end], segment.blocks.iter().map(|block| block.size).sum())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to a pool, it can be brought back.
    #[test]
    fn a_pool_comes_back(before in acts(), after in acts(), option in 0..OPTIONS.len(), later in 0..OPTIONS.len()) {
        let rig = Rig::new(OPTIONS[option]);
        rig.bench.driver.events().set_idle(on(32).handle);
        let mut live = Vec::new();
        play(&rig, &mut live, &before, true);
        live.sort_unstable();
        let noted = rig.get();
        // With the limit on splits, segments of the noted state could go back to the driver when memory runs out.
        rig.bench.driver.memory().capacity = 1 << 40;
        rig.bench.allocator.set_config(&Arc::new(AllocatorConfig::default().parse(OPTIONS[later]).unwrap()));
        let mut now = live.clone();
        play(&rig, &mut now, &after, true);
        let restored = rig.set(&noted);
        let mut freed = restored.allocations_freed.clone();
        freed.sort_unstable();
        now.sort_unstable();
        prop_assert_eq!(freed, now);
        prop_assert_eq!(addresses(&restored.allocations_created), live.clone());
        prop_assert!(rig.is_live(&live));
        let back = rig.get();
        for segment in without_uses(&back) {
            let address = segment.blocks[0].address;
            let noted = without_uses(&noted).into_iter().find(|noted| noted.blocks[0].address == address);
            match noted {
                Some(noted) if noted.is_expandable => prop_assert_eq!(up_to_last(&segment), up_to_last(&noted)),
                Some(noted) => prop_assert_eq!(segment, noted),
                None => prop_assert!(segment.blocks.iter().all(|block| !block.allocated)),
            }
        }
        let again = rig.set(&back);
        prop_assert_eq!(&again.allocations_created, &restored.allocations_created);
        prop_assert_eq!(&rig.get(), &back);
        live.into_iter().for_each(|address| rig.free(address));
        rig.bench.allocator.close_pool(&rig.bench.driver, DEVICE, rig.pool).unwrap();
        prop_assert_eq!(rig.bench.stats().reserved_bytes.all.current, 0);
    }
}
