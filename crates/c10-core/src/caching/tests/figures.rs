//! Figures of PyTorch's allocator, for scripts small enough to follow by hand: first without options, then with options,
//! pools and limits. `scripts` says what the steps mean.

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, PoolError};
use crate::base::handles::StreamHandle;
use crate::base::ids::PoolId;
use crate::base::stat::Stat;
use crate::caching::tests::scripts::{Bench, figures, on};

const DEVICE: DeviceIndex = DeviceIndex(0);
const GIB_64: u64 = 64 << 30;

fn leaves(stat: &Stat) -> [i64; 4] {
    [stat.current, stat.peak, stat.allocated, stat.freed]
}

#[test]
fn golden_small_pool() {
    let stats = Bench::with(GIB_64, "").run("a 1 1, a 2 600, a 3 1048576, f 2, f 1");
    assert_eq!(figures(&stats.allocation), [1, 3, 3, 2]);
    assert_eq!(figures(&stats.segment), [1, 1, 1, 0]);
    assert_eq!(figures(&stats.active), [1, 3, 3, 2]);
    assert_eq!(figures(&stats.inactive_split), [2, 2, 2, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [1048576, 1050112, 1050112, 1536]);
    assert_eq!(figures(&stats.active_bytes), [1048576, 1050112, 1050112, 1536]);
    assert_eq!(figures(&stats.reserved_bytes), [2097152, 2097152, 2097152, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [1048576, 2096640, 2098176, 1049600]);
    assert_eq!(figures(&stats.requested_bytes), [1048576, 1049177, 1049177, 601]);
    assert_eq!(stats.num_device_alloc, 1);
    assert_eq!(stats.allocation.small_pool, stats.allocation.all);
}

#[test]
fn golden_large_pool() {
    let stats = Bench::with(GIB_64, "").run("a 1 3000000, a 2 9000000, a 3 10485760, a 4 12000000, f 1, a 5 2000000");
    assert_eq!(figures(&stats.allocation), [4, 4, 5, 1]);
    assert_eq!(figures(&stats.segment), [3, 3, 3, 0]);
    assert_eq!(figures(&stats.inactive_split), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [35069440, 35069440, 38069760, 3000320]);
    assert_eq!(figures(&stats.reserved_bytes), [44040192, 44040192, 44040192, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [8970752, 17971200, 20971520, 12000768]);
    assert_eq!(figures(&stats.requested_bytes), [33485760, 34485760, 36485760, 3000000]);
    assert_eq!(stats.num_device_alloc, 3);
    assert_eq!(stats.allocation.large_pool, stats.allocation.all);
}

#[test]
fn golden_streams_do_not_share() {
    let stats = Bench::with(GIB_64, "").run("a 1 5000000, f 1, a 2@16 5000000, e");
    assert_eq!(figures(&stats.allocation), [1, 1, 2, 1]);
    assert_eq!(figures(&stats.segment), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.inactive_split), [1, 1, 2, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [5000192, 5000192, 10000384, 5000192]);
    assert_eq!(figures(&stats.reserved_bytes), [20971520, 41943040, 41943040, 20971520]);
    assert_eq!(figures(&stats.inactive_split_bytes), [15971328, 15971328, 31942656, 15971328]);
    assert_eq!(figures(&stats.requested_bytes), [5000000, 5000000, 10000000, 5000000]);
    assert_eq!((stats.num_sync_all_streams, stats.num_device_alloc, stats.num_device_free), (1, 2, 1));
}

#[test]
fn golden_recorded_blocks_wait_for_their_stream() {
    let stats = Bench::with(GIB_64, "").run("a 1 5000000, r 1 16, f 1, a 2 5000000, done 16, a 3 100");
    assert_eq!(figures(&stats.allocation), [2, 2, 3, 1]);
    assert_eq!(figures(&stats.segment), [2, 2, 2, 0]);
    assert_eq!(figures(&stats.active), [2, 2, 3, 1]);
    assert_eq!(figures(&stats.inactive_split), [3, 3, 3, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [5000704, 5000704, 10000896, 5000192]);
    assert_eq!(figures(&stats.active_bytes), [5000704, 10000384, 10000896, 5000192]);
    assert_eq!(figures(&stats.reserved_bytes), [23068672, 23068672, 23068672, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [18067968, 18067968, 23068160, 5000192]);
    assert_eq!(figures(&stats.requested_bytes), [5000100, 10000000, 10000100, 5000000]);
}

#[test]
fn golden_out_of_memory() {
    let mut bench = Bench::with(100_000_000, "");
    bench.run("a 1 50e6, a 2 30e6, f 2");
    let error = bench.step("a 3 60e6").unwrap_err();
    assert!(error.to_string().starts_with("CUDA out of memory. Tried to allocate 58.00 MiB. GPU 0 has a total"));
    assert!(error.is_out_of_memory());
    let stats = bench.stats();
    assert_eq!(figures(&stats.allocation), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.segment), [1, 2, 2, 1]);
    assert_eq!(figures(&stats.inactive_split), [0, 1, 1, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [50331648, 80331776, 80331776, 30000128]);
    assert_eq!(figures(&stats.reserved_bytes), [50331648, 81788928, 81788928, 31457280]);
    assert_eq!(figures(&stats.inactive_split_bytes), [0, 1457152, 1457152, 1457152]);
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_sync_all_streams), (1, 1, 1));
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (2, 1));
    bench.run("a 4 1e6, f 4, f 1");
}

#[test]
fn golden_private_pool_is_freed_after_its_release() {
    let mut bench = Bench::with(GIB_64, "");
    let stats = bench.run("begin, a 1@100 3e6, end, f 1, e, release, e");
    assert_eq!(figures(&stats.segment), [0, 1, 1, 1]);
    assert_eq!(figures(&stats.inactive_split), [0, 1, 1, 1]);
    assert_eq!(figures(&stats.allocated_bytes), [0, 3000320, 3000320, 3000320]);
    assert_eq!(figures(&stats.reserved_bytes), [0, 20971520, 20971520, 20971520]);
    assert_eq!(figures(&stats.inactive_split_bytes), [0, 17971200, 17971200, 17971200]);
    assert_eq!((stats.num_sync_all_streams, stats.num_device_alloc, stats.num_device_free), (2, 1, 1));
}

#[test]
fn golden_blocks_recorded_before_a_scope_get_their_event_after_it() {
    let stats = Bench::with(GIB_64, "").run("a 1 5e6, r 1 16, begin, f 1, e, a 2 100, end, done 16, a 3 100");
    assert_eq!(figures(&stats.active), [3, 3, 3, 0]);
    assert_eq!(figures(&stats.allocation), [2, 2, 3, 1]);
    assert_eq!(figures(&stats.active_bytes), [5001216, 5001216, 5001216, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [1024, 5000192, 5001216, 5000192]);
    assert_eq!(figures(&stats.inactive_split), [2, 2, 2, 0]);
    assert_eq!(figures(&stats.inactive_split_bytes), [18067456, 18067968, 18067968, 512]);
    assert_eq!(figures(&stats.requested_bytes), [5000200, 5000200, 5000200, 0]);
    assert_eq!(stats.num_sync_all_streams, 0);
}

#[test]
fn blocks_above_the_split_limit_stay_whole() {
    let stats = Bench::with(GIB_64, "max_split_size_mb:32").run("a 1 40e6, f 1, a 2 30e6, a 3 60e6, f 3, a 4 55e6");
    assert_eq!(figures(&stats.allocation), [2, 2, 4, 2]);
    assert_eq!(figures(&stats.segment), [3, 3, 3, 0]);
    assert_eq!(figures(&stats.inactive_split), [1, 1, 1, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [90817536, 90817536, 193577984, 102760448]);
    assert_eq!(figures(&stats.reserved_bytes), [134217728, 134217728, 134217728, 0]);
    assert_eq!(leaves(&stats.oversize_allocations), [1, 1, 3, 2]);
    assert_eq!(leaves(&stats.oversize_segments), [2, 2, 2, 0]);
    assert_eq!(stats.max_split_size, 33554432);
}

#[test]
fn oversize_segments_are_released_before_anything_else() {
    let mut bench = Bench::with(200_000_000, "max_split_size_mb:32");
    let stats = bench.run("a 1 70e6, a 2 70e6, f 1, f 2, a 3 120e6");
    assert_eq!(figures(&stats.segment), [1, 2, 3, 2]);
    assert_eq!(figures(&stats.reserved_bytes), [121634816, 142606336, 264241152, 142606336]);
    assert_eq!(figures(&stats.requested_bytes), [120000000, 140000000, 260000000, 140000000]);
    assert_eq!(leaves(&stats.oversize_segments), [1, 2, 3, 2]);
    assert_eq!((stats.num_device_alloc, stats.num_device_free, stats.num_alloc_retries), (3, 2, 0));
}

/// The option may be lowered while blocks are split that it now calls too large.
#[test]
fn a_part_of_a_segment_is_never_released() {
    let mut bench = Bench::with(200_000_000, "");
    bench.run("a 1 90e6, f 1, a 2 20e6");
    let config = AllocatorConfig::default().parse("max_split_size_mb:20").unwrap();
    bench.allocator.set_config(&Arc::new(config));
    assert!(bench.step("a 3 150e6").unwrap_err().is_out_of_memory());
    assert_eq!(bench.stats().num_device_free, 0);
}

#[test]
fn garbage_is_collected_above_the_threshold() {
    let mut bench = Bench::with(1_000_000_000, "garbage_collection_threshold:0.4");
    bench.allocator.set_limit(DEVICE, Some(500_000_000)).unwrap();
    let stats = bench.run("a 1 100e6, a 2 100e6, f 1, f 2, a 3 50e6, a 4 150e6");
    assert_eq!(figures(&stats.segment), [2, 2, 3, 1]);
    assert_eq!(figures(&stats.reserved_bytes), [251658240, 251658240, 352321536, 100663296]);
    assert_eq!((stats.num_device_alloc, stats.num_device_free, stats.num_sync_all_streams), (3, 1, 0));

    let mut bench = Bench::with(1_000_000_000, "garbage_collection_threshold:0.5");
    bench.allocator.set_limit(DEVICE, Some(500_000_000)).unwrap();
    let stats = bench.run("a 1 60e6, a 2 70e6, a 3 80e6, f 1, a 4 30e6, f 4, f 2, f 3, a 5 90e6, a 6 100e6");
    assert_eq!(figures(&stats.segment), [2, 4, 5, 3]);
    assert_eq!(figures(&stats.inactive_split), [0, 3, 3, 3]);
    assert_eq!(figures(&stats.reserved_bytes), [190840832, 304087040, 404750336, 213909504]);
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (5, 3));
}

#[test]
fn requests_round_to_divisions() {
    let stats = Bench::with(GIB_64, "roundup_power2_divisions:4").run("a 1 1200, a 2 2049, a 3 5e6, a 4 12e6");
    assert_eq!(stats.allocated_bytes.small_pool.current, 4096);
    assert_eq!(stats.allocated_bytes.large_pool.current, 17825792);
    assert_eq!((stats.segment.all.current, stats.reserved_bytes.all.current), (2, 23068672));
    assert_eq!(leaves(&stats.inactive_split_bytes.large_pool), [3145728, 15728640, 15728640, 12582912]);
}

#[test]
fn large_segments_have_the_size_of_the_option() {
    let stats = Bench::with(GIB_64, "large_segment_size_mb:40").run("a 1 3e6, a 2 9e6, a 3 10485760");
    assert_eq!(figures(&stats.segment), [1, 1, 1, 0]);
    assert_eq!((stats.allocated_bytes.all.current, stats.reserved_bytes.all.current), (22486528, 41943040));
    assert_eq!(figures(&stats.inactive_split_bytes), [19456512, 38942720, 38942720, 19486208]);
}

#[test]
fn expandable_segments_give_back_whole_pages() {
    let mut bench = Bench::with(GIB_64, "expandable_segments:True");
    let stats = bench.run("a 1 3e6, a 2 30e6, f 1, e, f 2, e, a 3 1000");
    assert_eq!(figures(&stats.allocation), [1, 2, 3, 2]);
    assert_eq!((stats.segment.all.peak, stats.inactive_split.all.peak), (0, 0));
    assert_eq!(figures(&stats.allocated_bytes), [1024, 33000448, 33001472, 33000448]);
    assert_eq!(figures(&stats.reserved_bytes), [2097152, 41943040, 44040192, 41943040]);
    assert_eq!((stats.num_sync_all_streams, stats.num_device_alloc, stats.num_device_free), (2, 3, 1));
}

#[test]
fn expandable_segments_grow_and_fill_gaps() {
    let mut bench = Bench::with(GIB_64, "expandable_segments:True");
    let stats = bench.run("a 1 20971520, a 2 20971520, a 3 20971520, f 1, e, a 4 41943040, a 5 1000, a 6 2097152");
    assert_eq!(figures(&stats.allocated_bytes), [85984256, 85984256, 106955776, 20971520]);
    assert_eq!(figures(&stats.reserved_bytes), [106954752, 106954752, 127926272, 20971520]);
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (6, 1));

    let mut bench = Bench::with(GIB_64, "expandable_segments:True");
    let stats = bench.run("a 1 20971520, a 2 20971520, a 3 20971520, a 4 20971520, f 1, f 3, e, f 2, a 5 62914560");
    assert_eq!(figures(&stats.allocated_bytes), [83886080, 83886080, 146800640, 62914560]);
    assert_eq!(figures(&stats.reserved_bytes), [83886080, 83886080, 125829120, 41943040]);
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (6, 2));
}

#[test]
fn an_expandable_segment_that_cannot_grow_is_out_of_memory() {
    let mut bench = Bench::with(80_000_000, "expandable_segments:True");
    bench.run("a 1 30e6");
    let error = bench.step("a 2 60e6").unwrap_err();
    assert!(error.to_string().contains("Tried to allocate 58.00 MiB"), "{error}");
    let stats = bench.stats();
    assert_eq!(figures(&stats.reserved_bytes), [41943040, 41943040, 41943040, 0]);
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_sync_all_streams), (1, 1, 1));
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (1, 0));
    assert!(bench.step("a 3 200e6").unwrap_err().is_out_of_memory(), "larger than any range");
}

/// Makes a pool, and routes this thread's requests to it.
fn enter(bench: &Bench, options: PoolOptions) -> PoolId {
    let pool = PoolId::handle();
    bench.allocator.use_pool(DEVICE, pool, options).unwrap();
    bench.allocator.begin_allocate_to_pool(DEVICE, pool, Filter::Thread(thread::number())).unwrap();
    pool
}

fn leave(bench: &Bench, pool: PoolId) {
    bench.allocator.end_allocate_to_pool(DEVICE, pool).unwrap();
    bench.allocator.release_pool(DEVICE, pool).unwrap();
}

#[test]
fn a_pool_can_hand_out_whole_blocks() {
    let mut bench = Bench::with(GIB_64, "");
    let pool = enter(&bench, PoolOptions { no_split: true, ..PoolOptions::default() });
    let stats = bench.run("a 1 1000, a 2 3e6, f 2, a 3 2e6");
    leave(&bench, pool);
    assert_eq!(figures(&stats.segment), [2, 2, 2, 0]);
    assert_eq!(stats.inactive_split.all.peak, 0);
    assert_eq!(figures(&stats.allocated_bytes), [23068672, 23068672, 44040192, 20971520]);
    assert_eq!(figures(&stats.requested_bytes), [2001000, 3001000, 5001000, 3000000]);
    assert_eq!(stats.num_device_alloc, 2);
}

#[test]
fn a_pool_can_help_out_when_memory_is_short() {
    let mut bench = Bench::with(100_000_000, "");
    let pool = enter(&bench, PoolOptions { use_on_oom: true, ..PoolOptions::default() });
    bench.run("a 1 60e6");
    leave(&bench, pool);
    let stats = bench.run("f 1, a 2 50e6");
    assert_eq!(figures(&stats.segment), [1, 1, 1, 0]);
    assert_eq!(figures(&stats.inactive_split), [1, 1, 1, 0]);
    assert_eq!(figures(&stats.allocated_bytes), [50000384, 60817408, 110817792, 60817408]);
    assert_eq!(figures(&stats.inactive_split_bytes), [10817024, 10817024, 10817024, 0]);
    assert_eq!((stats.num_alloc_retries, stats.num_sync_all_streams, stats.num_device_alloc), (0, 0, 1));
}

#[test]
fn a_released_pool_with_memory_cannot_be_used_again() {
    let mut bench = Bench::with(GIB_64, "");
    let pool = enter(&bench, PoolOptions::default());
    bench.run("a 1 5e6");
    leave(&bench, pool);
    bench.allocator.release_pool(DEVICE, pool).unwrap();
    let before = bench.stats();
    let again = bench.allocator.begin_allocate_to_pool(DEVICE, pool, Filter::Thread(thread::number()));
    assert_eq!(again, Err(Error::Pool(PoolError::Released)));
    assert_eq!((bench.stats(), bench.allocator.is_scoped()), (before, false));
    bench.run("f 1, e");
    assert_eq!(bench.allocator.pool_use_count(DEVICE, pool), Ok(0));
}

/// PyTorch asserts when a pool of expandable segments gives back more ranges than it served requests.
#[test]
fn pools_and_expandable_segments_work_together() {
    let mut bench = Bench::with(GIB_64, "expandable_segments:True");
    let pool = enter(&bench, PoolOptions::default());
    bench.run("a 1 20971520, a 2 20971520, a 3 20971520, a 4 1000");
    leave(&bench, pool);
    bench.run("f 1, f 3");
    bench.allocator.close_pool(&bench.driver, DEVICE, pool).unwrap();
    assert_eq!(bench.stats().reserved_bytes.all.current, 20971520 + (2 << 20));
    let shown = bench.allocator.snapshot(Some(pool));
    assert!(shown.len() == 2 && shown.iter().all(|segment| segment.is_expandable && segment.pool == pool));
    bench.run("f 2, f 4, e");
    assert!(bench.allocator.snapshot(None).is_empty());
    assert_eq!(bench.driver.memory().pages.range_count(), 0);
}

#[test]
fn a_scope_takes_only_its_own_thread() {
    let bench = Bench::with(GIB_64, "");
    let pool = enter(&bench, PoolOptions::default());
    let request = |thread| Request { stream: on(0), asked: Asked::new(1, Owner::Program), capture: None, thread };
    let filter = Filter::Thread(thread::number());
    let scopes = [pools::Scope { pool, filter }];
    assert_eq!(pools::route(&scopes, &request(Some(thread::number()))), Some(pool));
    let other = std::thread::scope(|scope| scope.spawn(thread::number).join().unwrap());
    assert_eq!(pools::route(&scopes, &request(Some(other))), None);
    leave(&bench, pool);
}

#[test]
fn sums_are_reset_and_counting_goes_on() {
    let mut bench = Bench::with(GIB_64, "");
    bench.run("a 1 5e6, a 2 5e6, f 1");
    bench.allocator.reset_accumulated_stats(DEVICE).unwrap();
    let stats = bench.run("f 2");
    assert_eq!(figures(&stats.allocation), [0, 2, 0, 1]);
    assert_eq!((stats.num_device_alloc, stats.segment.all.current), (0, 1));
    let names: Vec<&str> = stats.flatten().into_iter().map(|(name, _)| name).collect();
    assert!(names.is_sorted() && names.len() == 9 * 12 + 2 * 4 + 6, "{} names", names.len());
}

#[test]
fn snapshots_show_every_block() {
    let mut bench = Bench::with(GIB_64, "");
    bench.run("a 1 3e6, a 2@16 100, r 1 16, f 1, f 2");
    let shown = bench.allocator.snapshot(None);
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].total_size, shown[0].active_size, shown[0].requested_size), (20971520, 3000320, 3000000));
    assert_eq!((shown[0].segment_type, shown[0].stream, shown[0].pool), (SegmentType::Large, 0, PoolId(0, 0)));
    let states: Vec<&str> = shown[0].blocks.iter().map(|block| block.state.name()).collect();
    assert_eq!(states, ["active_pending_free", "inactive"]);
    assert_eq!((shown[1].stream, shown[1].blocks[0].requested_size), (StreamHandle(16).0 as u64, 100));
}
