//! The elastic backend: where pages come from, in which order, and that none is ever behind two live places.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::error::{HeldMemory, MemoryHolder};
use crate::base::handles::{PageHandle, StreamHandle};
use crate::caching::tests::scripts::{Bench, POOL, on};

const MIB: u64 = 1 << 20;

fn bench(capacity: u64) -> Bench {
    Bench::with(capacity, "backend:elastic")
}

fn reserved(bench: &Bench) -> u64 {
    u64::try_from(bench.stats().reserved_bytes.all.current).unwrap()
}

fn made(bench: &Bench) -> u64 {
    bench.driver.memory().pages.made()
}

/// The pages that a held name lies in.
fn pages_of(bench: &Bench, name: &str) -> Vec<PageHandle> {
    let (address, memory) = (bench.held[name], bench.driver.memory());
    let end = address + bench.sizes[&address];
    let places = (address / (2 * MIB)..end.div_ceil(2 * MIB)).map(|page| (page * 2 * MIB).max(address));
    places.map(|place| memory.pages.usable_at(place).expect("live memory has a page that can be used")).collect()
}

#[test]
fn small_and_large_blocks_share_pages() {
    let mut bench = bench(1 << 30);
    bench.run("a 1 100, a 2 1000000, a 3 3145728, a 4 3145728");
    assert_eq!((reserved(&bench), made(&bench)), (8 * MIB, 4), "2 MiB of small blocks, 6 MiB of large ones");
    assert_eq!(bench.held["4"], bench.held["3"] + 3 * MIB);
}

#[test]
fn free_pages_move_before_new_ones_are_made() {
    let mut bench = bench(1 << 30);
    bench.run("a 1 8e6, a 2 3e6, a 3 8e6, a 4 3e6, f 1, f 3");
    let before = (pages_of(&bench, "4"), made(&bench));
    bench.run("a 5 12e6");
    assert_eq!(made(&bench), before.1, "the pages of 1 and 3 were enough");
    assert_eq!(pages_of(&bench, "4"), before.0, "live memory stays where it is");
    assert!(bench.driver.events().waits().is_empty(), "a stream does not wait for itself");
    let mapped = bench.driver.memory().pages.mapped_count() as u64;
    assert!(mapped > made(&bench), "the old mappings are still there: {mapped}");
    bench.run("done 0, e");
    assert_eq!(bench.driver.memory().pages.mapped_count() as u64 * 2 * MIB, reserved(&bench));
}

#[test]
fn the_window_with_the_fewest_missing_pages_is_chosen() {
    let mut bench = bench(1 << 30);
    bench.run("a 1 4194304, a 2 4194304, a 3 4194304, f 2");
    let third = bench.held["3"];
    // What is behind the third block is addresses only; 2 MiB more are asked for than the gap has.
    bench.run("a 4 6291456");
    assert_eq!(bench.held["4"], third + 4 * MIB);
    assert_eq!(made(&bench), 7, "two pages moved, one is new");
    bench.run("f 4, a 5 8388608");
    assert_eq!((bench.held["5"], made(&bench)), (third + 4 * MIB, 8), "the free block and one page behind it");
}

#[test]
fn other_streams_give_pages_behind_an_event() {
    let mut bench = bench(1 << 30);
    bench.run("a 1@16 8388608, f 1, a 2@0 6291456");
    assert_eq!((made(&bench), reserved(&bench)), (4, 8 * MIB));
    assert_eq!(bench.driver.events().waits(), [(StreamHandle(0), StreamHandle(16))]);
    // Own pages come first.
    bench.run("f 2, a 3@0 6291456, a 4@32 2097152, f 3, f 4, a 5@0 6291456");
    assert_eq!(bench.driver.events().waits()[1..], [(StreamHandle(32), StreamHandle(16))], "16 had one left");
}

#[test]
fn nothing_moves_in_a_steady_loop() {
    let mut bench = bench(1 << 30);
    let step = "a 1 30e6, a 2 5e6, a 3 100000, f 1, a 4 22e6, a 5 9e6, f 2, f 4, a 6 40e6, f 3, f 5, f 6";
    for _ in 0..20 {
        bench.run(step);
    }
    let (before, stats) = (bench.driver.calls().made(), bench.stats());
    for _ in 0..20 {
        bench.run(step);
    }
    assert_eq!(bench.driver.calls().made(), before, "a loop that repeats asks the driver for nothing");
    assert!(stats.pages_moved > 0, "{stats:?}");
    assert_eq!(stats.pages_made, made(&bench));
}

#[test]
fn old_mappings_are_dropped_in_batches_when_their_events_have_passed() {
    let mut bench = bench(1 << 30);
    bench.run("a 1 60e6, a 2 100e6, f 1, a 3 200e6");
    let mapped = |bench: &Bench| bench.driver.memory().pages.mapped_count() as u64;
    let twice = mapped(&bench) - made(&bench);
    assert!(twice >= 20, "{twice}");
    bench.run("f 2, a 4 220e6");
    assert!(mapped(&bench) - made(&bench) > twice, "events that have not passed hold up nothing and free nothing");
    bench.run("done 0, f 4, a 5 230e6");
    assert!(mapped(&bench) - made(&bench) < 32 + twice, "what has passed is dropped with the next growth");
}

const DEVICE: DeviceIndex = DeviceIndex(0);

/// A pool that takes what is allocated on streams from 48 on, as long as its scope is open.
fn with_pool(capacity: u64, options: &str, elastic: Option<bool>) -> Bench {
    let bench = Bench::with(capacity, options);
    bench.allocator.use_pool(DEVICE, POOL, PoolOptions { elastic, ..PoolOptions::default() }).unwrap();
    enter(&bench);
    bench
}

fn enter(bench: &Bench) {
    let filter = Filter::Where(Predicate(Arc::new(|stream| stream >= 48)));
    bench.allocator.begin_allocate_to_pool(DEVICE, POOL, filter).unwrap();
    bench.allocator.release_pool(DEVICE, POOL).unwrap();
}

fn close(bench: &Bench) {
    bench.allocator.close_pool(&bench.driver, DEVICE, POOL).unwrap();
    assert_eq!(bench.allocator.inconsistency(), None);
}

#[test]
fn captures_take_only_pages_that_nobody_uses_any_more() {
    let mut bench = bench(64 * MIB);
    bench.run("a 1 20e6, f 1, begin, a 2@100 10e6");
    assert!(bench.driver.events().waits().is_empty());
    let made_before = made(&bench);
    assert_eq!(made_before, 10 + 5, "a capture does not take pages that queued work may use");
    bench.run("f 2, end, a 3 24e6");
    assert_eq!(made(&bench), made_before + 2, "what the pool holds is not taken");
}

#[test]
fn pages_of_a_graph_that_is_gone_go_where_they_are_needed() {
    let mut bench = bench(64 * MIB);
    bench.run("begin, a 1@100 20e6, f 1, end");
    // The capture is over, and its graph has been replayed on two streams.
    bench.driver.captures().capturing = Capturing::Nothing;
    bench.run("a 2 10e6");
    assert_eq!(made(&bench), 15, "the graph keeps its pages");
    let replayed_on = [on(16), on(32)].into_iter().collect();
    bench.allocator.release_pool_of_graph(DEVICE, POOL, &replayed_on).unwrap();
    bench.run("a 3 20e6");
    assert_eq!((made(&bench), bench.stats().pages_moved), (15, 10));
    let behind: Vec<StreamHandle> = bench.driver.events().waits().iter().map(|(_, of)| *of).collect();
    assert_eq!(behind, [100, 16, 32].map(StreamHandle), "all that may still use them are waited for");
    bench.run("f 3, e");
    assert_eq!(reserved(&bench), 10 * MIB, "and the addresses are given back with the pool");
}

#[test]
fn a_pool_may_have_pages_that_move_whatever_the_others_have() {
    for options in ["", "expandable_segments:True", "max_split_size_mb:20"] {
        let mut bench = with_pool(1 << 30, options, Some(true));
        bench.run("a 1@48 30e6, a 2 30e6, f 1, a 3@48 50e6");
        let stats = bench.stats();
        assert_eq!(
            (stats.pages_made, stats.pages_moved, stats.has_pages),
            (24, 0, true),
            "{options}: the free block grew"
        );
        bench.run("f 3, a 4@64 20e6, f 2");
        assert_eq!(bench.stats().pages_moved, 10, "{options}: a stream of the pool gets free pages of another one");
        assert_eq!(bench.driver.events().waits(), [(StreamHandle(64), StreamHandle(48))]);
        bench.run("a 5 20e6, a 6@64 9e6");
        assert_eq!(made(&bench), 24, "{options}: the default pools have no pages, and the pool has enough");
        bench.run("f 4, f 6");
        bench.allocator.end_allocate_to_pool(DEVICE, POOL).unwrap();
        close(&bench);
        assert_eq!(
            bench.driver.memory().pages.mapped_count(),
            if options.starts_with("exp") { 2 } else { 0 },
            "{options}"
        );
        bench.run("f 5, e");
        assert_eq!((reserved(&bench), bench.driver.memory().pages.range_count()), (0, 0), "{options}");
    }
}

#[test]
fn a_pool_may_go_without_pages_that_move() {
    let mut bench = with_pool(1 << 30, "backend:elastic", Some(false));
    bench.run("a 1@48 30e6, a 2@48 3e6, f 1, f 2, a 3@48 12e6");
    assert_eq!((made(&bench), reserved(&bench)), (0, 50 * MIB), "segments as the native backend has them");
    let expandable = |pool| bench.allocator.snapshot(Some(pool)).iter().any(|segment| segment.is_expandable);
    assert!(!expandable(POOL));
    bench.run("a 4 3e6");
    assert!(bench.allocator.snapshot(Some(PoolId(0, 0))).iter().all(|segment| segment.is_expandable));
    assert_eq!(made(&bench), 2);
}

#[test]
fn a_pool_of_a_graph_moves_nothing_of_its_own() {
    let mut bench = with_pool(1 << 30, "backend:elastic", None);
    bench.run("a 1@48 20e6, f 1, a 2@64 10e6");
    assert_eq!((made(&bench), bench.stats().pages_moved), (10, 5), "no graph knows the pool yet");
    // Streams from 100 on capture.
    bench.run("a 3@100 8e6, f 3, a 4@64 4e6");
    assert_eq!((made(&bench), bench.stats().pages_moved), (10 + 4 + 2, 5));
}

#[test]
fn a_pool_that_helps_out_gives_its_pages_when_there_are_no_others() {
    let mut bench = Bench::with(64 * MIB, "backend:elastic");
    bench.allocator.use_pool(DEVICE, POOL, PoolOptions { use_on_oom: true, ..PoolOptions::default() }).unwrap();
    enter(&bench);
    bench.run("a 1@48 40e6, f 1, a 2 20e6");
    assert_eq!((bench.stats().pages_moved, made(&bench)), (0, 30));
    bench.run("a 3@16 44000000");
    assert_eq!((bench.stats().pages_moved, made(&bench), bench.stats().num_alloc_retries), (19, 32, 0));
}

fn held_after(bench: &mut Bench, step: &str) -> Vec<HeldMemory> {
    let Err(Error::OutOfMemory(error)) = bench.step(step) else { panic!("{step} is too much") };
    let text = error.to_string();
    let lines: Vec<String> = error.held.iter().map(ToString::to_string).collect();
    assert!(text.ends_with(&format!(" {}\n{}", error.hint(), lines.join("\n"))), "{text}");
    error.held
}

#[test]
fn an_error_says_who_holds_the_memory() {
    let mut bench = bench(64 * MIB);
    bench.run("begin, a 1@100 20971520, a 2@100 4194304, a 3@100 4194304, f 1, f 3, end, a 4 10485760, a 5 6291456");
    bench.run("r 5 16, f 4");
    bench.allocator.use_pool(DEVICE, PoolId(0, 9), PoolOptions::default()).unwrap();
    bench.allocator.begin_allocate_to_pool(DEVICE, PoolId(0, 9), Filter::Stream(StreamHandle(32))).unwrap();
    bench.run("a 6@32 2097152, f 5");
    // The stream is capturing, so nothing is waited for.
    let held = held_after(&mut bench, "a 7@100 41943040");
    let of = |holder, in_use, reserved, free, run| (holder, in_use * MIB, reserved * MIB, free * MIB, run * MIB);
    let figures: Vec<_> =
        held.iter().map(|held| (held.holder, held.in_use, held.reserved, held.free, held.largest_free_run)).collect();
    let program = of(MemoryHolder::Program, 6, 14, 8, 8);
    let graphs = of(MemoryHolder::Graphs { pool: POOL }, 4, 28, 24, 20);
    let pool = of(MemoryHolder::Pool { pool: PoolId(0, 9) }, 2, 2, 0, 0);
    let stream = of(MemoryHolder::Stream { handle: 16 }, 6, 6, 0, 0);
    assert_eq!(figures, [program, pool, graphs, stream]);
    let lines: Vec<String> = held.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "The program uses 6.00 MiB of 14.00 MiB; 8.00 MiB are free, at most 8.00 MiB in one run.",
            "Memory pool (0, 9) keeps 2.00 MiB, of which 2.00 MiB are in use.",
            "Graphs of pool (1, 0) keep 28.00 MiB, of which 4.00 MiB are in use; 24.00 MiB are free, at most 20.00 MiB in one run.",
            "Work on stream 0x10 has to pass before 6.00 MiB that were given back are free.",
        ]
    );
    // The 20 MiB that the driver has and the 8 MiB that are free.
    bench.run("a 8 29360128");
    let mut native = Bench::with(64 * MIB, "");
    let Err(Error::OutOfMemory(error)) = native.step("a 1 80e6") else { panic!("it is more than there is") };
    assert!(error.held.is_empty() && !error.to_string().contains('\n'));
}

#[test]
fn free_pages_behind_late_events_are_enough() {
    let mut bench = bench(64 * MIB);
    // All memory is free on four streams, whose work has not passed; another scope forbids that the host waits.
    bench.run("a 1@16 16e6, a 2@32 16e6, a 3@48 16e6, a 4@64 16000000, f 1, f 2, f 3, f 4, begin");
    bench.run("a 5 67108864");
    assert_eq!(bench.driver.events().waits().len(), 4);
    assert_eq!((bench.stats().num_alloc_retries, made(&bench)), (0, 32));
}

#[test]
fn all_that_is_free_serves_a_request_before_it_fails() {
    for seed in 0..60 {
        let mut random = random(seed);
        let capacity = 128 * MIB;
        let mut bench = bench(capacity);
        for at in 0..60 {
            let stream = [0, 0, 16, 32].choose(&mut random).unwrap();
            let bytes = [600, 200_000, 1_500_000, 5_000_000, 12_000_000].choose(&mut random).unwrap();
            let _ = bench.step(&format!("a {at}@{stream} {}", bytes + random.random_range(0..50_000)));
            if random.random_ratio(1, 2) {
                let held = bench.held.keys().nth(random.random_range(0..bench.held.len().max(1))).cloned();
                if let Some(name) = held {
                    bench.run(&format!("f {name}"));
                }
            }
        }
        // Pages without live blocks, in the allocator's hands or in the driver's.
        let live: BTreeSet<PageHandle> =
            bench.held.keys().cloned().collect::<Vec<_>>().iter().flat_map(|name| pages_of(&bench, name)).collect();
        let free = capacity - live.len() as u64 * 2 * MIB;
        let asked = free.max(2 * MIB);
        if seed % 2 == 0 {
            // While a scope is open nothing is given back for a request, so that pages alone can serve it.
            bench.run("begin");
        }
        let answer = bench.step(&format!("a last@16 {asked}"));
        assert_eq!(answer.is_ok(), free > 0, "seed {seed}: {free} bytes are free: {answer:?}");
    }
}

#[test]
fn no_page_is_behind_two_live_places() {
    for seed in 0..40 {
        let mut random = random(seed);
        let mut bench = bench(1 << 30);
        for at in 0..120 {
            let stream = [0, 0, 16, 32].choose(&mut random).unwrap();
            let step = match random.random_range(0..10) {
                0..=5 => {
                    let bytes = [600, 200_000, 1_500_000, 5_000_000, 40_000_000].choose(&mut random).unwrap();
                    format!("a {at}@{stream} {}", bytes + random.random_range(0..bytes / 2))
                }
                6..=8 => {
                    let held = bench.held.keys().nth(random.random_range(0..bench.held.len().max(1)));
                    format!("f {}", held.map_or("none", String::as_str))
                }
                _ => format!("done {stream}"),
            };
            let before: BTreeMap<String, Vec<PageHandle>> =
                bench.held.keys().map(|name| (name.clone(), pages_of(&bench, name))).collect();
            bench.run(&step);
            for (name, pages) in before.iter().filter(|(name, _)| bench.held.contains_key(*name)) {
                assert_eq!(&pages_of(&bench, name), pages, "seed {seed}: {step} moved live memory");
            }
            // Blocks share a page only where they are neighbours, in which case it has one place.
            let mut places: BTreeMap<PageHandle, u64> = BTreeMap::new();
            for name in bench.held.keys() {
                let first = bench.held[name] / (2 * MIB);
                for (place, page) in (first..).zip(pages_of(&bench, name)) {
                    assert_eq!(
                        *places.entry(page).or_insert(place),
                        place,
                        "seed {seed}, {step}: a page in two places"
                    );
                }
            }
        }
        let names: Vec<String> = bench.held.keys().cloned().collect();
        for name in names {
            bench.run(&format!("f {name}"));
        }
        bench.run("done 0, done 16, done 32, e");
        assert_eq!((reserved(&bench), bench.driver.memory().pages.range_count()), (0, 0), "seed {seed}");
        bench.allocator.dismantle(&bench.driver);
        assert_eq!(bench.driver.events().live_count(), 0);
    }
}

const TOUR: &str = "a 1 24e6, a 2@16 30e6, a 3 100, a 4 3e6, f 1, f 2, a 5 40e6, a 6@16 9e6, f 5, done 0, a 7@16 80e6, \
     done 16, f 6, f 7, a 8@32 99e6, f 8, a 9 90e6, done 0, done 16, done 32, f 3, f 4, f 9, a 10@16 5e6, \
     begin, a 11@100 4e6, f 11, a 12 70e6, end, e, f 10, f 12, release, e, done 0, done 16, done 32, e";

/// Every call fails once, at each place where the tour makes it, as a failure and as a want of memory.
#[test]
fn any_call_may_fail() {
    let new = || bench(110_000_000);
    let mut probe = new();
    TOUR.split(',').for_each(|step| drop(probe.step(step)));
    let calls = probe.driver.calls().made();
    let mut failed = BTreeSet::new();
    for failing in 1..=calls {
        let mut bench = new();
        bench.driver.calls().fail(failing);
        TOUR.split(',').for_each(|step| drop(bench.step(step)));
        bench.driver.calls().fail_none();
        failed.extend(bench.driver.calls().take_failed());
        for name in bench.held.keys().cloned().collect::<Vec<_>>() {
            bench.run(&format!("f {name}"));
        }
        let _ = bench.step("end");
        let _ = bench.step("release");
        [0, 16, 32, 100].into_iter().for_each(|stream| bench.driver.pass(stream));
        bench.run("e, e");
        assert_eq!(bench.driver.memory().used(), 0, "call {failing} failed: memory is left");
        assert_eq!(bench.driver.memory().pages.mapped_count(), 0, "call {failing} failed: mappings are left");
        bench.allocator.dismantle(&bench.driver);
        assert_eq!(bench.driver.events().live_count(), 0, "call {failing} failed: events are left");
        assert_eq!(bench.driver.memory().pages.range_count(), 0, "call {failing} failed: ranges are left");
    }
    for call in ["create_page", "map_page", "allow_access", "unmap_page", "release_page", "stream_wait", "event_record"]
    {
        assert!(failed.contains(call), "{call} has not failed: {failed:?}");
    }
    assert!(calls > 200, "the tour makes only {calls} calls");
}
