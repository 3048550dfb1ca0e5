//! The elastic backend: where pages come from, in which order, and that none is ever behind two live places.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::handles::{PageHandle, StreamHandle};
use crate::caching::tests::scripts::Bench;

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

#[test]
fn private_pools_keep_their_pages_and_captures_take_only_new_ones() {
    let mut bench = bench(64 * MIB);
    bench.run("a 1 20e6, f 1, begin, a 2@100 10e6");
    assert!(bench.driver.events().waits().is_empty());
    let made_before = made(&bench);
    assert_eq!(made_before, 10 + 5, "a capture does not take pages that queued work may use");
    bench.run("f 2, end, a 3 24e6");
    assert_eq!(made(&bench), made_before + 2, "what the pool holds is not taken");
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
