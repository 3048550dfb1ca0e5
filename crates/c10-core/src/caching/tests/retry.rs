//! The last attempt before a request fails: cached memory is released, even of pools without users, and blocks whose
//! events have passed are searched. During a capture nothing is released.

use std::sync::Mutex;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::caching::tests::scripts::{Bench, on};

const DEVICE: DeviceIndex = DeviceIndex(0);
const MIB: u64 = 1 << 20;

const BACKENDS: [&str; 4] = ["", "expandable_segments:True", "backend:elastic", "max_split_size_mb:20"];

/// Enters a new pool, as `with_mem_pool` does.
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

/// Leaves a pool and drops its last handle while a block of it is still held, then frees the block.
fn leave_dead_pool(bench: &mut Bench, options: PoolOptions) {
    let pool = enter(bench, options);
    bench.run("a dead 300e6");
    leave(bench, pool);
    bench.allocator.close_pool(&bench.driver, DEVICE, pool).unwrap();
    bench.run("f dead");
}

#[test]
fn memory_of_a_dead_pool_serves_a_request_in_a_new_pool() {
    for options in BACKENDS {
        let mut bench = Bench::with(400_000_000, options);
        leave_dead_pool(&mut bench, PoolOptions::default());
        let pool = enter(&bench, PoolOptions::default());
        bench.step("a 1 300e6").unwrap_or_else(|error| panic!("{options}: {error}"));
        assert_eq!(bench.allocator.owner(bench.held["1"]), Some(pool), "{options}");
        leave(&bench, pool);
        assert_eq!(bench.stats().num_ooms, 0);
    }
}

/// PyTorch 2.15's example of a pool scope without a capture.
#[test]
fn memory_of_the_default_pools_serves_a_request_in_a_pool() {
    for options in BACKENDS {
        let mut bench = Bench::with(400_000_000, options);
        bench.run("a 1 300e6, f 1");
        let pool = enter(&bench, PoolOptions::default());
        let stats = bench.run("a 2 300e6");
        leave(&bench, pool);
        if options != "backend:elastic" {
            assert_eq!((stats.num_alloc_retries, stats.num_sync_all_streams, stats.num_ooms), (1, 1, 0), "{options}");
        }
    }
}

/// A custom source of segments that forwards to the driver.
#[derive(Debug, Default)]
struct OwnSource {
    given: Mutex<BTreeMap<u64, u64>>,
    next: AtomicU64,
}

impl SegmentSource for OwnSource {
    fn alloc(&self, _device: DeviceIndex, bytes: u64, _stream: StreamRef) -> Result<u64> {
        let mut given = self.given.lock().unwrap();
        if given.values().sum::<u64>() + bytes > 400_000_000 {
            return Ok(0);
        }
        let address = 1 << 44 | self.next.fetch_add(1, Ordering::Relaxed) << 32;
        given.insert(address, bytes);
        Ok(address)
    }

    fn free(&self, _device: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        assert_eq!(self.given.lock().unwrap().remove(&address), Some(bytes));
        Ok(())
    }
}

#[test]
fn memory_of_a_dead_pool_goes_back_to_the_program_that_gave_it() {
    let bench = Bench::with(64 << 30, "");
    let source = Arc::new(OwnSource::default());
    let options = || {
        let shared: Source = source.clone();
        PoolOptions { source: Some(shared), ..PoolOptions::default() }
    };
    let (driver, allocator) = (&bench.driver, &bench.allocator);
    let first = enter(&bench, options());
    let dead = allocator.alloc(driver, on(0), 300_000_000).unwrap();
    leave(&bench, first);
    allocator.close_pool(driver, DEVICE, first).unwrap();
    allocator.free(driver, dead).unwrap();
    let second = enter(&bench, options());
    let address = allocator.alloc(driver, on(0), 300_000_000).unwrap();
    leave(&bench, second);
    assert_eq!(source.given.lock().unwrap().len(), 1);
    allocator.free(driver, address).unwrap();
    allocator.close_pool(driver, DEVICE, second).unwrap();
    assert!(source.given.lock().unwrap().is_empty());
    assert_eq!(allocator.inconsistency(), None);
}

#[test]
fn nothing_goes_back_within_a_capture() {
    for options in ["", "expandable_segments:True"] {
        for by_runtime in [false, true] {
            let mut bench = Bench::with(400_000_000, options);
            leave_dead_pool(&mut bench, PoolOptions::default());
            let reserved = bench.stats().reserved_bytes.all.current;
            let pool = PoolId::for_capture();
            let number = Arc::new(AtomicU64::new(7));
            // Stream 100 takes part in capture 7. A capture of the runtime affects every stream.
            let stream = if by_runtime {
                bench.allocator.begin_capture(DEVICE, pool, number).unwrap();
                0
            } else {
                bench.allocator.begin_allocate_to_pool(DEVICE, pool, Filter::Capture(number)).unwrap();
                100
            };
            assert!(bench.step(&format!("a 1@{stream} 300e6")).unwrap_err().is_out_of_memory(), "{options}");
            let stats = bench.stats();
            assert_eq!((stats.reserved_bytes.all.current, stats.num_sync_all_streams), (reserved, 1), "{options}");
            match by_runtime {
                true => bench.allocator.end_capture(DEVICE, pool),
                false => bench.allocator.end_allocate_to_pool(DEVICE, pool).unwrap(),
            }
            bench.run(&format!("a 1@{stream} 300e6"));
        }
    }
}

/// A block that waits for an event of another stream is part of a segment that stays (pytorch#189504).
#[test]
fn a_block_that_waits_for_an_event_serves_the_first_request() {
    let script = "a 1 8e6, a 2 8e6, r 1 16, f 1";
    for (options, capacity) in
        [("", 24), ("expandable_segments:True", 24), ("backend:elastic", 16), ("max_split_size_mb:40", 24)]
    {
        for in_pool in [false, true] {
            let mut bench = Bench::with(capacity * MIB, options);
            let pool = in_pool.then(|| enter(&bench, PoolOptions::default()));
            bench.run(script);
            let (waits, ours) = (bench.stats().active.all.current, bench.held["2"]);
            assert_eq!(waits, 2, "one waits");
            bench.step("a 3 8e6").unwrap_or_else(|error| panic!("{options}: {error}"));
            let stats = bench.stats();
            assert_eq!((stats.num_ooms, stats.num_sync_all_streams), (0, 1), "{options}");
            assert!(bench.held["3"].abs_diff(ours) < 24 * MIB, "beside the block that stays");
            pool.into_iter().for_each(|pool| leave(&bench, pool));
        }
    }
}

#[test]
fn a_lender_is_searched_again_after_events_were_waited_for() {
    let mut bench = Bench::with(24 * MIB, "");
    let pool = enter(&bench, PoolOptions { use_on_oom: true, ..PoolOptions::default() });
    bench.run("a 1 8e6, a 2 8e6");
    leave(&bench, pool);
    bench.run("r 1 16, f 1, a 3 8e6");
    assert_eq!((bench.allocator.owner(bench.held["3"]), bench.stats().num_ooms), (Some(pool), 0));
}

/// A block used on a capturing stream is not waited for: its event would become part of the graph.
#[test]
fn a_block_of_a_stream_that_captures_stays_deferred() {
    let mut bench = Bench::with(24 * MIB, "");
    bench.run("a 1 8e6, a 2 8e6");
    let pool = enter(&bench, PoolOptions::default());
    bench.run("r 1 101, f 1");
    assert!(bench.step("a 3 8e6").unwrap_err().is_out_of_memory());
    assert_eq!(bench.stats().active.all.current, 2);
    leave(&bench, pool);
    bench.run("a 4 8e6");
}

/// A failed request fails again if it is repeated: the first attempt did everything that could help the second.
#[test]
fn no_request_fails_that_succeeds_at_the_second_attempt() {
    const OPTIONS: [&str; 6] = [
        "",
        "expandable_segments:True",
        "backend:elastic",
        "max_split_size_mb:20,garbage_collection_threshold:0.3",
        "learn_plans:True",
        "graph_capture_record_stream_reuse:True",
    ];
    const BYTES: [usize; 7] = [600, 900_000, 1_500_000, 5_000_000, 8_000_000, 12_000_000, 40_000_000];
    let (mut failed, mut retried) = (0, 0);
    for seed in 0..600_u64 {
        let options = OPTIONS[usize::try_from(seed % 6).unwrap()];
        let mut random = random(seed);
        let mut bench = Bench::with(100_000_000, options);
        bench.allocator.set_limit(DEVICE, (seed % 5 == 0).then_some(80_000_000)).unwrap();
        let (mut pool, mut scoped) = (None, false);
        for at in 0..120 {
            let held = |random: &mut Pcg32| bench.held.keys().nth(random.random_range(0..8)).cloned();
            let stream = [0, 0, 0, 16, 32, 100].choose(&mut random).copied().unwrap();
            match random.random_range(0..16) {
                0..=6 => {
                    let step = format!("a {at:03}@{stream} {}", BYTES.choose(&mut random).unwrap());
                    let before = bench.stats().num_alloc_retries;
                    if bench.step(&step).is_err() {
                        let again = bench.step(&step);
                        assert!(again.is_err_and(|error| error.is_out_of_memory()), "seed {seed}, {options}: {step}");
                        failed += 1;
                    } else {
                        retried += u32::from(bench.stats().num_alloc_retries > before);
                    }
                }
                kind @ 7..=12 => {
                    if let Some(name) = held(&mut random) {
                        bench.run(&if kind < 11 { format!("f {name}") } else { format!("r {name} {stream}") });
                    }
                }
                13 => {
                    bench.run(&format!("done {stream}"));
                }
                14 => match pool.take() {
                    Some(entered) => {
                        leave(&bench, entered);
                        if random.random_ratio(2, 3) {
                            bench.allocator.close_pool(&bench.driver, DEVICE, entered).unwrap();
                        }
                    }
                    None => {
                        let use_on_oom = random.random_ratio(1, 3);
                        pool = Some(enter(&bench, PoolOptions { use_on_oom, ..PoolOptions::default() }));
                    }
                },
                _ if scoped => {
                    bench.run("end, release");
                    scoped = false;
                }
                _ => scoped = bench.step("begin").is_ok(),
            }
        }
    }
    println!("{failed} requests failed twice, {retried} succeeded at the last attempt");
    assert!(failed > 200 && retried > 200, "{failed} {retried}");
}
