//! The same script with a look at everything after each step, and without: looking flushes every shard, so both must
//! answer alike, make the same calls and come to the same figures. Here driver calls fail, segments expand and
//! scopes are open, which the naive allocator knows nothing of.

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::error::Error;
use crate::base::error::MemoryError;
use crate::caching::tests::scripts::{Bench, figures, on};

const OPTIONS: [&str; 4] = [
    "",
    "graph_capture_record_stream_reuse:True",
    "expandable_segments:True",
    "max_split_size_mb:20,garbage_collection_threshold:0.3",
];

/// The next step: mostly the block that was allocated last is used on another stream, freed, and asked for again.
fn random_step(random: &mut Pcg32, at: u32, last: &str, held: &[String]) -> String {
    let stream = [0, 0, 0, 16, 100].choose(random).unwrap();
    let other = [32, 32, 32, 16, 101, 0].choose(random).unwrap();
    let bytes = [3000, 3000, 3000, 900_000, 5_000_000, 30_000_000].choose(random).unwrap();
    let any = held.get(random.random_range(0..=held.len())).map_or(last, String::as_str);
    match random.random_range(0..40) {
        0 => "begin".to_owned(),
        1 | 2 => "end".to_owned(),
        3 => "e".to_owned(),
        4..=6 => format!("done {other}"),
        7 | 8 => format!("f {any}"),
        9 => format!("r {any} {other}"),
        _ => match at % 4 {
            0 => format!("a {at}@{stream} {bytes}"),
            1 => format!("r {last} {other}"),
            2 => format!("f {last}"),
            _ => format!("done {other}"),
        },
    }
}

/// Everything there is to see.
fn seen(bench: &Bench) -> String {
    format!("{:?} {:?} {:?}", bench.held, bench.stats(), bench.allocator.snapshot(None))
}

#[test]
fn looking_changes_nothing() {
    let (mut failed, mut waited) = (0, 0);
    for seed in 0..300 {
        let mut random = random(seed);
        let options = OPTIONS[usize::try_from(seed % 4).unwrap()];
        let [mut looked, mut unseen] = [(); 2].map(|()| Bench::with(120_000_000, options));
        let limit = (seed % 3 == 0).then_some(100_000_000);
        let (mut last, mut scoped) = ("none".to_owned(), false);
        for bench in [&looked, &unseen] {
            bench.allocator.set_limit(DeviceIndex(0), limit).unwrap();
        }
        for at in 0..200 {
            let held: Vec<String> = looked.held.keys().cloned().collect();
            let step = random_step(&mut random, at, &last, &held);
            if (step == "begin" && scoped) || (step == "end" && !scoped) {
                continue;
            }
            let fails = random.random_ratio(1, 12).then(|| random.random_range(1..=2));
            for bench in [&looked, &unseen] {
                match fails {
                    Some(number) => bench.driver.calls().fail(number),
                    None => bench.driver.calls().fail_none(),
                }
            }
            let (one, other) = (looked.step(&step), unseen.act(&step));
            assert_eq!(one, other, "seed {seed}, {options}: {step}");
            assert_eq!(looked.driver.calls().made(), unseen.driver.calls().made(), "seed {seed}, {options}: {step}");
            assert_eq!(looked.held, unseen.held, "seed {seed}, {options}: {step}");
            // Also as it is, with the note: this look flushes nothing, so the other checks still mean something.
            assert_eq!(unseen.allocator.inconsistency_as_is(), None, "seed {seed}, {options}: {step}");
            failed += u32::from(one.is_err());
            if step.starts_with('a') && one.is_ok() {
                last = step[2..].split_once('@').unwrap().0.to_owned();
            }
            scoped = if ["begin", "end"].contains(&step.as_str()) { step == "begin" } else { scoped };
            waited += u32::from(looked.stats().active.all.current > looked.stats().allocation.all.current);
            if random.random_ratio(1, 40) {
                assert_eq!(seen(&looked), seen(&unseen), "seed {seed}, {options}: after {step}");
            }
        }
        assert_eq!(unseen.allocator.inconsistency(), None, "seed {seed}");
        assert_eq!(seen(&looked), seen(&unseen), "seed {seed}, {options}");
    }
    println!("{failed} steps failed, blocks waited after {waited}");
    assert!(failed > 500 && waited > 5000, "{failed} {waited}");
}

/// The figures of a block that waits, at each point of its life, when it was allocated last and when another block was
/// allocated after it.
#[test]
fn a_block_that_waits_counts_as_pending_whether_it_was_allocated_last_or_not() {
    for another in [false, true] {
        let mut bench = Bench::with(64 << 30, "");
        bench.run("a 1 5e6, r 1 16, f 1, done 16, a 2 5e6, f 2");
        let count = |bench: &Bench, of: fn(&DeviceStats) -> &StatByPool| figures(of(&bench.stats()))[0];
        let states = |bench: &Bench| {
            let segments = bench.allocator.snapshot(None);
            segments.iter().flat_map(|segment| &segment.blocks).map(|block| block.state).collect::<Vec<_>>()
        };
        let act = |bench: &mut Bench, step: &str| bench.act(step).unwrap();
        for round in 0..3 {
            for step in ["a 3 5e6", "r 3 16"] {
                act(&mut bench, step);
            }
            if another {
                act(&mut bench, "a 4 3e6");
            }
            let (before, other) = (count(&bench, |stats| &stats.allocation), i64::from(another));
            assert_eq!(before, 1 + other);
            // Looking has flushed the shard: once more from the beginning, unseen.
            act(&mut bench, "f 3");
            act(&mut bench, "done 16");
            act(&mut bench, "a 3 5e6");
            act(&mut bench, "r 3 16");
            act(&mut bench, "f 3");
            assert_eq!(states(&bench)[0], BlockState::ActivePendingFree, "round {round}");
            assert_eq!(count(&bench, |stats| &stats.allocation), other);
            assert_eq!(count(&bench, |stats| &stats.active), 1 + other);
            assert_eq!(count(&bench, |stats| &stats.requested_bytes), 5_000_000 + other * 3_000_000);
            act(&mut bench, "done 16");
            // The next request finds it free.
            act(&mut bench, "a 5@32 100");
            assert_eq!(states(&bench)[0], BlockState::Inactive, "round {round}");
            assert_eq!(count(&bench, |stats| &stats.active), 1 + other);
            act(&mut bench, "f 5");
            if another {
                act(&mut bench, "f 4");
            }
        }
        assert_eq!(bench.allocator.inconsistency(), None);
    }
}

/// A use that a scope orders needs no event if the scope is still open when the block is freed, and needs one, sooner or
/// later, if it is not: also where the use is a part of a shard's note of its last allocation.
#[test]
fn scopes_order_the_uses_of_the_block_allocated_last() {
    let act = |bench: &mut Bench, script: &str| script.split(", ").try_for_each(|step| bench.act(step));
    let active = |bench: &Bench| figures(&bench.stats().active)[0];
    // The same use once before the scope and once in it.
    let mut bench = Bench::with(64 << 30, "");
    act(&mut bench, "a 0 5e6, f 0, a 1 5e6, r 1 16, begin, r 1 16, f 1, end, a 2 100").unwrap();
    assert_eq!(active(&bench), 1, "the scope orders it");
    for fails in [false, true] {
        let mut bench = Bench::with(64 << 30, "");
        act(&mut bench, "a 0 5e6, f 0, a 1 5e6, begin, r 1 16, end").unwrap();
        if fails {
            // The first call makes an event, the second records it.
            bench.driver.calls().fail(2);
        }
        assert_eq!(act(&mut bench, "f 1").is_err(), fails);
        act(&mut bench, "a 2 100").unwrap();
        assert_eq!(active(&bench), 2, "it awaits its event");
        act(&mut bench, "done 16, a 3 100").unwrap();
        assert_eq!((active(&bench), bench.allocator.inconsistency()), (2, None), "which has passed");
    }
}

/// Freeing twice, and using what was freed, is refused in each state of the block that was allocated last; also to another
/// thread.
#[test]
fn what_waits_or_is_dormant_cannot_be_freed_or_used() {
    for (passes, remote) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::with(64 << 30, "");
        let (driver, allocator) = (&bench.driver, &bench.allocator);
        let mut address = 0;
        for _ in 0..3 {
            address = allocator.alloc(driver, on(0), 5000).unwrap();
            allocator.record_stream(address, on(16)).unwrap();
            allocator.free(driver, address).unwrap();
            if passes {
                driver.pass(16);
                // Another stream's request makes the block dormant.
                allocator.alloc(driver, on(32), 100).unwrap();
            }
        }
        let invalid = Err(Error::Memory(MemoryError::InvalidPointer { address }));
        if remote {
            // As if another thread had allocated last.
            thread::forget_handed_out();
            let shard = allocator.shared.shard(allocator.shared.pages.slot_at(address).unwrap().0).unwrap();
            shard.set_owner(u64::MAX);
        }
        assert_eq!(allocator.free(driver, address), invalid);
        assert_eq!(allocator.record_stream(address, on(16)), invalid);
        assert_eq!(allocator.free(driver, address), invalid);
        assert_eq!(allocator.owner(address), None);
        assert_eq!(allocator.inconsistency(), None);
        assert_eq!(figures(&bench.stats().allocation)[2..], [3 + 3 * i64::from(passes), 3]);
    }
}

/// A block that was used on another stream and handed out again is freed by a thread that finds its slot marked in vain.
#[test]
fn a_mark_that_is_left_over_does_no_harm() {
    for (asks_first, remote) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::with(64 << 30, "");
        let (driver, allocator) = (&bench.driver, &bench.allocator);
        for _ in 0..2 {
            let address = allocator.alloc(driver, on(0), 5000).unwrap();
            allocator.record_stream(address, on(16)).unwrap();
            allocator.free(driver, address).unwrap();
            driver.pass(16);
        }
        let address = allocator.alloc(driver, on(0), 5000).unwrap();
        let place = allocator.shared.pages.find(address).unwrap();
        assert!(place.is_used(), "the mark is left over");
        if asks_first {
            // It is no longer the last allocation.
            allocator.alloc(driver, on(0), 700).unwrap();
            assert!(!place.again().unwrap().is_used(), "and taken away when the shard is flushed");
        }
        thread::forget_handed_out();
        if remote {
            allocator.shared.shard(place.shard).unwrap().set_owner(u64::MAX);
        }
        let calls = driver.calls().made();
        assert_eq!(allocator.free(driver, address), Ok(()));
        assert_eq!(driver.calls().made(), calls, "it awaits nothing");
        assert_eq!(allocator.free(driver, address), Err(Error::Memory(MemoryError::InvalidPointer { address })));
        assert_eq!(allocator.inconsistency(), None);
        let other = i64::from(asks_first);
        assert_eq!(figures(&bench.stats().active), [other, 1 + other, 3 + other, 3]);
    }
}
