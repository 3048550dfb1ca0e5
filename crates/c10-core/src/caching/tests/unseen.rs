//! The same script with a look at everything after each step, and without: looking completes what was only noted, so
//! both must answer alike, make the same calls and come to the same figures. Here driver calls fail, segments expand and
//! scopes are open, which the naive allocator knows nothing of.

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError};
use crate::caching::tests::scripts::{Bench, Numbers, Plain, figures, on};

const OPTIONS: [&str; 4] = [
    "",
    "graph_capture_record_stream_reuse:True",
    "expandable_segments:True",
    "max_split_size_mb:20,garbage_collection_threshold:0.3",
];

/// What is given back and asked for, mostly the same again; where a call fails, and which.
fn line(numbers: &mut Numbers, at: u64, newest: &str, held: &[String]) -> String {
    let stream = [0, 0, 0, 16, 100][usize::try_from(numbers.below(5)).unwrap()];
    let other = [32, 32, 32, 16, 101, 0][usize::try_from(numbers.below(6)).unwrap()];
    let bytes = [3000, 3000, 3000, 900_000, 5_000_000, 30_000_000][usize::try_from(numbers.below(6)).unwrap()];
    let any = usize::try_from(numbers.below(1 + held.len() as u64)).unwrap();
    let any = held.get(any).map_or(newest, String::as_str);
    match numbers.below(40) {
        0 => "begin".to_owned(),
        1 | 2 => "end".to_owned(),
        3 => "e".to_owned(),
        4..=6 => format!("done {other}"),
        7 | 8 => format!("f {any}"),
        9 => format!("r {any} {other}"),
        _ => match at % 4 {
            0 => format!("a {at}@{stream} {bytes}"),
            1 => format!("r {newest} {other}"),
            2 => format!("f {newest}"),
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
        let mut numbers = Numbers(seed);
        let options = OPTIONS[usize::try_from(seed % 4).unwrap()];
        let [mut looked, mut unseen] = [(); 2].map(|()| Bench::with(120_000_000, options));
        let limit = (seed % 3 == 0).then_some(100_000_000);
        let (mut newest, mut scoped) = ("none".to_owned(), false);
        for bench in [&looked, &unseen] {
            bench.allocator.set_limit(DeviceIndex(0), limit).unwrap();
        }
        for at in 0..200 {
            let held: Vec<String> = looked.held.keys().cloned().collect();
            let line = line(&mut numbers, at, &newest, &held);
            if (line == "begin" && scoped) || (line == "end" && !scoped) {
                continue;
            }
            let fails = if numbers.below(12) == 0 { 1 + numbers.below(2) } else { 0 };
            for bench in [&looked, &unseen] {
                bench.model.fails.set(if fails > 0 { bench.model.calls.get() + fails } else { 0 });
            }
            let (one, other) = (looked.step(&line), unseen.act(&line.split_whitespace().collect::<Vec<_>>()));
            assert_eq!(one, other, "seed {seed}, {options}: {line}");
            assert_eq!(looked.model.calls.get(), unseen.model.calls.get(), "seed {seed}, {options}: {line}");
            assert_eq!(looked.held, unseen.held, "seed {seed}, {options}: {line}");
            // Also as it is, with the note: this look flushes nothing, so the other checks still mean something.
            assert_eq!(unseen.allocator.inconsistency_as_is(), None, "seed {seed}, {options}: {line}");
            failed += u32::from(one.is_err());
            if line.starts_with('a') && one.is_ok() {
                newest = line[2..].split_once('@').unwrap().0.to_owned();
            }
            scoped = if ["begin", "end"].contains(&line.as_str()) { line == "begin" } else { scoped };
            waited += u32::from(looked.stats().active.all.current > looked.stats().allocation.all.current);
            if numbers.below(40) == 0 {
                assert_eq!(seen(&looked), seen(&unseen), "seed {seed}, {options}: after {line}");
            }
        }
        assert_eq!(unseen.allocator.inconsistency(), None, "seed {seed}");
        assert_eq!(seen(&looked), seen(&unseen), "seed {seed}, {options}");
    }
    println!("{failed} steps failed, blocks waited after {waited}");
    assert!(failed > 500 && waited > 5000, "{failed} {waited}");
}

/// The figures of a block that waits, at each point of its life, when it is the newest change of its shard and when another
/// block was handed out after it.
#[test]
fn a_block_that_waits_counts_as_pending_whether_it_is_the_newest_change_or_not() {
    for newer in [false, true] {
        let mut bench = Bench::with(64 << 30, "");
        bench.run("a 1 5e6, r 1 16, f 1, done 16, a 2 5e6, f 2");
        let count = |bench: &Bench, of: fn(&DeviceStats) -> &StatByPool| figures(of(&bench.stats()))[0];
        let states = |bench: &Bench| {
            let segments = bench.allocator.snapshot(None);
            segments.iter().flat_map(|segment| &segment.blocks).map(|block| block.state).collect::<Vec<_>>()
        };
        let act = |bench: &mut Bench, line: &str| bench.act(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        for round in 0..3 {
            for line in ["a 3 5e6", "r 3 16"] {
                act(&mut bench, line);
            }
            if newer {
                act(&mut bench, "a 4 3e6");
            }
            let (before, other) = (count(&bench, |stats| &stats.allocation), i64::from(newer));
            assert_eq!(before, 1 + other);
            // Looking has woken the shard: once more from the beginning, unseen.
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
            if newer {
                act(&mut bench, "f 4");
            }
        }
        assert_eq!(bench.allocator.inconsistency(), None);
    }
}

/// A use that a scope orders needs no event if the scope is open still when the block comes back, and needs one, sooner or
/// later, if it is not: noted of the newest block, that is so too.
#[test]
fn scopes_order_the_uses_of_the_newest_block() {
    let act = |bench: &mut Bench, script: &str| {
        script.split(", ").try_for_each(|line| bench.act(&line.split_whitespace().collect::<Vec<_>>()))
    };
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
            bench.model.fail_call(2);
        }
        assert_eq!(act(&mut bench, "f 1").is_err(), fails);
        act(&mut bench, "a 2 100").unwrap();
        assert_eq!(active(&bench), 2, "it awaits its event");
        act(&mut bench, "done 16, a 3 100").unwrap();
        assert_eq!((active(&bench), bench.allocator.inconsistency()), (2, None), "which has passed");
    }
}

/// Giving back twice, and using what was given back, is refused in each state of the newest block; also by another thread.
#[test]
fn what_waits_or_sleeps_cannot_be_given_back_or_used() {
    for (passes, afar) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::with(64 << 30, "");
        let (model, allocator) = (&bench.model, &bench.allocator);
        let mut address = 0;
        for _ in 0..3 {
            address = allocator.alloc(model, on(0), 5000).unwrap();
            allocator.record_stream(address, on(16)).unwrap();
            allocator.free(model, address).unwrap();
            if passes {
                model.pass(16);
                // Another stream's request lets the block sleep.
                allocator.alloc(model, on(32), 100).unwrap();
            }
        }
        let invalid = Err(Error::Memory(MemoryError::InvalidPointer { address }));
        if afar {
            // As if another thread had allocated last.
            thread::forget_handed_out();
            let shard = allocator.shared.shard(allocator.shared.pages.slot_at(address).unwrap().0).unwrap();
            shard.set_owner(u64::MAX);
        }
        assert_eq!(allocator.free(model, address), invalid);
        assert_eq!(allocator.record_stream(address, on(16)), invalid);
        assert_eq!(allocator.free(model, address), invalid);
        assert_eq!(allocator.owner(address), None);
        assert_eq!(allocator.inconsistency(), None);
        assert_eq!(figures(&bench.stats().allocation)[2..], [3 + 3 * i64::from(passes), 3]);
    }
}

/// A block that was used elsewhere and handed out again is given back by a thread that finds its slot marked in vain.
#[test]
fn a_mark_that_is_left_over_does_no_harm() {
    for (asks_first, afar) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::with(64 << 30, "");
        let (model, allocator) = (&bench.model, &bench.allocator);
        for _ in 0..2 {
            let address = allocator.alloc(model, on(0), 5000).unwrap();
            allocator.record_stream(address, on(16)).unwrap();
            allocator.free(model, address).unwrap();
            model.pass(16);
        }
        let address = allocator.alloc(model, on(0), 5000).unwrap();
        let place = allocator.shared.pages.find(address).unwrap();
        assert!(place.is_used(), "the mark is left over");
        if asks_first {
            // It is the newest change no more.
            allocator.alloc(model, on(0), 700).unwrap();
            assert!(!place.again().unwrap().is_used(), "and taken away when the shard is woken");
        }
        thread::forget_handed_out();
        if afar {
            allocator.shared.shard(place.shard).unwrap().set_owner(u64::MAX);
        }
        let calls = model.calls.get();
        assert_eq!(allocator.free(model, address), Ok(()));
        assert_eq!(model.calls.get(), calls, "it awaits nothing");
        assert_eq!(allocator.free(model, address), Err(Error::Memory(MemoryError::InvalidPointer { address })));
        assert_eq!(allocator.inconsistency(), None);
        let other = i64::from(asks_first);
        assert_eq!(figures(&bench.stats().active), [other, 1 + other, 3 + other, 3]);
    }
}

/// Threads whose blocks wait and pass at once, while others look, take everything back and wait for all events.
#[test]
fn threads_may_look_while_blocks_wait() {
    const ROUNDS: u64 = 3000;
    let driver = Plain::new(false);
    let allocator = CachingAllocator::new(1, &Arc::default());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (driver, allocator) = (&driver, &allocator);
            scope.spawn(move || {
                let mut numbers = Numbers(thread as u64);
                for _ in 0..ROUNDS {
                    let bytes = if numbers.below(8) == 0 { 1 + numbers.below(1 << 21) } else { 5000 };
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
