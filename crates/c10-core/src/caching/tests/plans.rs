//! Plans that learn: what a loop reserves, and that nothing breaks when it does something else.

use std::collections::BTreeMap;

use super::*;
use crate::base::device::DeviceIndex;
use crate::caching::tests::scripts::{Bench, figures, on};

const MIB: u64 = 1 << 20;
const DEVICE: DeviceIndex = DeviceIndex(0);

/// One thing that a step does.
#[derive(Clone, Debug, PartialEq)]
enum Act {
    /// Asks for bytes under a number.
    Take(usize, u64),
    Give(usize),
}

/// A loop: what each step does, and whether it marks steps.
#[derive(Clone)]
struct Loop {
    acts: Vec<Act>,
    marked: bool,
}

impl Loop {
    /// Requests that live for different times, none longer than the step; some last into the next one if `wraps`.
    fn random(seed: u64, count: usize, wraps: bool) -> Self {
        let mut random = random(seed);
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); count];
        let sizes = [700, 40_000, 900_000, 3_000_000, 12_000_000, 25_000_000];
        let mut acts = Vec::new();
        let mut begins = Vec::new();
        for number in 0..count {
            let lasts = random.random_range(1..=if wraps { count - 1 } else { count - number });
            let end = if number + lasts < count { number + lasts } else { (number + lasts) % count };
            ends[end].push(number);
            let size = *sizes.choose(&mut random).unwrap();
            begins.push(size + random.random_range(0..size / 3));
        }
        for (number, bytes) in begins.into_iter().enumerate() {
            acts.extend(ends[number].iter().map(|number| Act::Give(*number)));
            acts.push(Act::Take(number, bytes));
        }
        Self { acts, marked: true }
    }
}

fn bench(capacity: u64, more: &str) -> Bench {
    Bench::with(capacity, &format!("learn_plans:True{more}"))
}

fn stats(bench: &Bench) -> PlanStats {
    bench.allocator.plan_stats(DEVICE).unwrap()
}

fn reserved(bench: &Bench) -> u64 {
    bench.stats().reserved_bytes.all.current.cast_unsigned()
}

/// No two live blocks overlap.
fn check_apart(bench: &Bench) {
    let mut live: Vec<(u64, u64)> = bench.held.values().map(|address| (*address, bench.sizes[address])).collect();
    live.sort_unstable();
    for pair in live.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
    }
}

/// Does one thing, if it can be done: what is held is not taken again.
fn act(bench: &mut Bench, act: &Act) -> Result<()> {
    match act {
        Act::Take(number, bytes) if !bench.held.contains_key(&number.to_string()) => {
            bench.step(&format!("a {number} {bytes}"))?;
            check_apart(bench);
        }
        Act::Take(..) => {}
        Act::Give(number) => bench.step(&format!("f {number}"))?,
    }
    Ok(())
}

fn mark(bench: &mut Bench, looped: &Loop) {
    if looped.marked {
        bench.run("mark");
    }
}

/// Runs a step, and waits for the thread that computes a plan if one does.
fn step(bench: &mut Bench, looped: &Loop) {
    mark(bench, looped);
    looped.acts.iter().for_each(|one| act(bench, one).unwrap());
    settle(bench);
}

fn settle(bench: &Bench) {
    let computes = || {
        let shards = (0..bench.allocator.shared.shard_count())
            .filter_map(|id| bench.allocator.shared.shard(remote::ShardId(id)));
        shards.into_iter().any(|shard| shard.lock().books().plan.as_ref().is_some_and(|plan| plan.is_computing()))
    };
    while computes() {
        std::thread::yield_now();
    }
}

/// Runs steps until a plan is adopted, and some more until what it replaced is gone.
fn learn(bench: &mut Bench, looped: &Loop) {
    for _ in 0..40 {
        step(bench, looped);
        if stats(bench).adopted > 0 {
            (0..3).for_each(|_| step(bench, looped));
            return;
        }
    }
    panic!("no plan after 40 steps: {:?}", stats(bench));
}

/// Gives everything back; then nothing is left.
fn finish(mut bench: Bench) {
    for name in bench.held.keys().cloned().collect::<Vec<_>>() {
        bench.run(&format!("f {name}"));
    }
    bench.run("done 0, done 16, done 32, e, e");
    assert_eq!(reserved(&bench), 0);
    bench.allocator.dismantle(&bench.driver);
    assert_eq!((bench.driver.memory().used(), bench.driver.events().live_count()), (0, 0));
}

#[test]
fn a_planned_loop_reserves_what_it_has_live() {
    for (options, wraps) in [("", false), ("", true), (",expandable_segments:True", false), (",backend:elastic", true)]
    {
        for seed in 0..4 {
            let looped = Loop::random(seed, 40, wraps);
            let mut bench = bench(8 << 30, options);
            learn(&mut bench, &looped);
            let before = (bench.driver.calls().made(), stats(&bench));
            bench.allocator.reset_peak_stats(DEVICE).unwrap();
            (0..3).for_each(|_| step(&mut bench, &looped));
            let after = stats(&bench);
            assert_eq!(bench.driver.calls().made(), before.0, "a planned loop asks the driver for nothing");
            let planned = after.planned_requests - before.1.planned_requests;
            assert_eq!((planned, after.other_requests), (120, before.1.other_requests), "seed {seed}: {after:?}");
            let (peak, held) = (bench.stats().allocated_bytes.all.peak, reserved(&bench).cast_signed());
            // What lasts into the next step cannot always be placed without loss.
            let (page, most) = ((2 * MIB).cast_signed(), if wraps { 120 } else { 102 });
            assert!(held * 100 <= peak * most + page * 100, "seed {seed} {options}: {held} reserved for {peak}");
            assert_eq!(reserved(&bench), after.arena_bytes);
            finish(bench);
        }
    }
}

/// A step that leaves lasting memory between its own requests, as the first one of a training does.
fn first_step(bench: &mut Bench, looped: &Loop, seed: u64) {
    let mut random = random(seed);
    mark(bench, looped);
    for (number, one) in looped.acts.iter().enumerate() {
        act(bench, one).unwrap();
        if number % 4 == 0 {
            let bytes = random.random_range(1..9_000_000);
            bench.run(&format!("a lasting{number} {bytes}"));
        }
    }
}

/// Of what lies between lasting memory at least a quarter serves the plan, and nothing else is lost.
fn check_holes_serve(bench: &Bench, looped: &Loop, seed: u64) {
    let peak = bench.stats().allocated_bytes.all.peak.cast_unsigned();
    let lasting: Vec<u64> = bench.held.values().copied().collect();
    let segments = bench.allocator.snapshot(None);
    let keeps = |segment: &&SegmentInfo| {
        let span = segment.address..segment.address + segment.total_size;
        lasting.iter().any(|address| span.contains(address))
    };
    let kept: u64 = segments.iter().filter(keeps).map(|segment| segment.total_size).sum();
    let between = kept - bench.stats().allocated_bytes.all.current.cast_unsigned();
    let lost = reserved(bench) - peak;
    let most = between / 4 * 3 + peak / 50;
    assert!(lost <= most, "seed {seed}, {} acts: {lost} of {peak} lost, {between} between", looped.acts.len());
}

#[test]
fn what_lies_between_lasting_memory_serves_the_plan() {
    for seed in 0..6 {
        let looped = Loop::random(seed, 120, false);
        let mut bench = bench(16 << 30, "");
        first_step(&mut bench, &looped, seed);
        learn(&mut bench, &looped);
        bench.allocator.reset_peak_stats(DEVICE).unwrap();
        (0..3).for_each(|_| step(&mut bench, &looped));
        let rest: Vec<String> = bench.held.keys().filter(|name| !name.starts_with("lasting")).cloned().collect();
        for name in rest {
            bench.run(&format!("f {name}"));
        }
        check_holes_serve(&bench, &looped, seed);
        finish(bench);
    }
}

/// A loop that keeps something of each step: the holes are others each time, and the plan comes all the same.
#[test]
fn holes_may_be_others_each_time() {
    let looped = Loop::random(9, 30, false);
    let mut bench = bench(16 << 30, "");
    first_step(&mut bench, &looped, 9);
    for number in 0..30 {
        mark(&mut bench, &looped);
        for (at, one) in looped.acts.iter().enumerate() {
            act(&mut bench, one).unwrap();
            if at == 20 {
                bench.run(&format!("a kept{number} {}", 1_300_000));
            }
        }
        settle(&bench);
        check_apart(&bench);
    }
    let stats = stats(&bench);
    assert!(stats.adopted == 1 && stats.planned_requests > 300, "{stats:?}");
    finish(bench);
}

/// Steps that are marked where much is held: the arena is taken where little is, and so uses what lies between.
#[test]
fn marks_may_be_anywhere_in_a_step() {
    for seed in 0..4 {
        let mut looped = Loop::random(seed, 60, false);
        let count = looped.acts.len();
        looped.acts.rotate_left(count / 2 + usize::try_from(seed).unwrap());
        let mut bench = bench(16 << 30, "");
        first_step(&mut bench, &looped, seed);
        learn(&mut bench, &looped);
        bench.allocator.reset_peak_stats(DEVICE).unwrap();
        let before = stats(&bench);
        (0..3).for_each(|_| step(&mut bench, &looped));
        assert_eq!(stats(&bench).planned_requests - before.planned_requests, 180, "{before:?}");
        let rest: Vec<String> = bench.held.keys().filter(|name| !name.starts_with("lasting")).cloned().collect();
        for name in rest {
            bench.run(&format!("f {name}"));
        }
        check_holes_serve(&bench, &looped, seed);
        finish(bench);
    }
}

#[test]
fn periods_are_found_without_marks() {
    for seed in 0..6 {
        let looped = Loop { marked: false, ..Loop::random(seed, 30, seed % 2 == 0) };
        let mut bench = bench(8 << 30, "");
        learn(&mut bench, &looped);
        let before = stats(&bench);
        (0..4).for_each(|_| step(&mut bench, &looped));
        let after = stats(&bench);
        assert_eq!(after.planned_requests - before.planned_requests, 120, "seed {seed}: {after:?}");
        // Marks that come later are what counts from then on.
        let looped = Loop { marked: true, ..looped };
        (0..6).for_each(|_| step(&mut bench, &looped));
        assert_eq!((stats(&bench).adopted, stats(&bench).dropped), (2, 1));
        finish(bench);
    }
}

/// What else may happen at a position of a planned step.
const SURPRISES: [&str; 9] = [
    "a x 5000000",
    "a x 700, f x",
    "f 3",
    "r 2 16",
    "r 5 16, r 5 32, f 5, done 16",
    "e",
    "mark",
    "a x 9999999, a y 30000000, a z 512",
    "a x@16 4000000, f x",
];

#[test]
fn a_surprise_at_any_position_breaks_nothing() {
    let looped = Loop::random(3, 12, true);
    let mut planned_again = 0;
    for surprise in SURPRISES {
        for position in 0..looped.acts.len() {
            let mut bench = bench(8 << 30, "");
            learn(&mut bench, &looped);
            mark(&mut bench, &looped);
            for (at, one) in looped.acts.iter().enumerate() {
                if at == position {
                    bench.run(surprise);
                    check_apart(&bench);
                }
                act(&mut bench, one).unwrap();
            }
            bench.run("f x, f y, f z, done 16, done 32");
            let before = stats(&bench).planned_requests;
            (0..6).for_each(|_| step(&mut bench, &looped));
            planned_again += usize::from(stats(&bench).planned_requests > before);
            finish(bench);
        }
    }
    assert_eq!(planned_again, SURPRISES.len() * looped.acts.len(), "plans are followed, or learned, again");
}

/// Requests that are left out, come in another order, or have other sizes.
#[test]
fn random_mismatches_break_nothing() {
    for seed in 0..30 {
        let looped = Loop { marked: seed % 2 == 0, ..Loop::random(seed, 16, true) };
        let mut bench = bench(8 << 30, if seed % 3 == 0 { ",backend:elastic" } else { "" });
        learn(&mut bench, &looped);
        let mut random = random(seed);
        for _ in 0..10 {
            let mut changed = looped.clone();
            for _ in 0..random.random_range(0..4) {
                let (from, to) =
                    (random.random_range(0..changed.acts.len()), random.random_range(0..changed.acts.len()));
                match random.random_range(0..4) {
                    0 => changed.acts.swap(from, to),
                    1 => drop(changed.acts.remove(from)),
                    2 => changed.acts.insert(to, Act::Take(100 + from, 512 * (1 + to as u64 * 999))),
                    _ => {
                        if let Act::Take(_, bytes) = &mut changed.acts[from] {
                            *bytes = *bytes / 2 + 1;
                        }
                    }
                }
            }
            step(&mut bench, &changed);
            let strays: Vec<String> = bench.held.keys().filter(|name| name.len() > 2).cloned().collect();
            for name in strays {
                bench.run(&format!("f {name}"));
            }
        }
        finish(bench);
    }
}

#[test]
fn an_arena_serves_what_finds_no_other_memory() {
    let looped = Loop::random(1, 20, false);
    let mut bench = bench(8 << 30, "");
    learn(&mut bench, &looped);
    let arena = stats(&bench).arena_bytes;
    let half = looped.acts.len() / 2;
    mark(&mut bench, &looped);
    looped.acts[..half].iter().for_each(|one| act(&mut bench, one).unwrap());
    // All that the device has left; the rest is in the arena.
    let free = (8 << 30) - reserved(&bench);
    bench.run(&format!("a all {free}, a more 1100000"));
    assert_eq!((stats(&bench).dropped, stats(&bench).arena_bytes), (1, 0));
    let snapshot = bench.allocator.snapshot(None);
    let segment = snapshot.iter().find(|segment| segment.total_size == arena).unwrap();
    assert!(segment.blocks.len() > 2, "{segment:?}");
    assert!((segment.address..segment.address + arena).contains(&bench.held["more"]));
    finish(bench);
}

#[test]
fn arenas_are_described_as_segments() {
    let looped = Loop::random(2, 20, false);
    let mut bench = bench(8 << 30, "");
    learn(&mut bench, &looped);
    let arena = stats(&bench).arena_bytes;
    mark(&mut bench, &looped);
    for one in &looped.acts {
        act(&mut bench, one).unwrap();
        let snapshot = bench.allocator.snapshot(None);
        let segment = snapshot.iter().find(|segment| segment.total_size == arena).unwrap();
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "blocks touch");
            at += block.size;
        }
        assert_eq!(at, segment.address + arena);
        let live = segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated);
        let live: Vec<u64> = live.map(|block| block.address).collect();
        assert!(bench.held.values().all(|address| live.contains(address)), "{segment:?}");
    }
    finish(bench);
}

#[test]
fn figures_are_those_without_a_plan() {
    let looped = Loop::random(7, 30, false);
    let run = |options: &str| {
        let mut bench = Bench::with(8 << 30, options);
        (0..8).for_each(|_| step(&mut bench, &looped));
        let stats = bench.stats();
        let sums = [&stats.allocation, &stats.active, &stats.requested_bytes].map(figures);
        finish(bench);
        sums
    };
    assert_eq!(run("learn_plans:True"), run(""));
}

#[test]
fn captures_and_pools_get_nothing_of_a_plan() {
    let looped = Loop::random(4, 16, false);
    let mut bench = bench(8 << 30, "");
    learn(&mut bench, &looped);
    let before = stats(&bench);
    bench.run("begin");
    for act in &looped.acts {
        match act {
            Act::Take(number, bytes) => bench.run(&format!("a c{number}@100 {bytes}")),
            Act::Give(number) => bench.run(&format!("f c{number}")),
        };
    }
    assert_eq!(stats(&bench), before);
    bench.run("end");
    for name in bench.held.keys().cloned().collect::<Vec<_>>() {
        bench.run(&format!("f {name}"));
    }
    bench.run("release");
    step(&mut bench, &looped);
    assert!(stats(&bench).planned_requests > before.planned_requests);
    finish(bench);
}

/// The option may be switched off while places are in use.
#[test]
fn plans_can_be_switched_off_and_on() {
    let looped = Loop::random(6, 20, true);
    let mut bench = bench(8 << 30, "");
    learn(&mut bench, &looped);
    let config = |text: &str| Arc::new(AllocatorConfig::default().parse(text).unwrap());
    bench.allocator.set_config(&config("learn_plans:False"));
    let before = stats(&bench);
    assert_eq!((before.dropped, before.arena_bytes), (1, 0));
    step(&mut bench, &looped);
    assert_eq!(stats(&bench).planned_requests, before.planned_requests);
    bench.allocator.set_config(&config("learn_plans:True"));
    (0..8).for_each(|_| step(&mut bench, &looped));
    assert!(stats(&bench).planned_requests > before.planned_requests);
    finish(bench);
}

#[test]
fn there_is_no_plan_where_there_is_no_memory_for_it() {
    let looped = Loop::random(8, 20, true);
    let mut probe = bench(8 << 30, "");
    (0..2).for_each(|_| step(&mut probe, &looped));
    let needed = probe.stats().reserved_bytes.all.peak.cast_unsigned();
    finish(probe);
    let mut bench = bench(needed, "");
    bench.run("a weights 30000000, f weights");
    for _ in 0..12 {
        step(&mut bench, &looped);
    }
    finish(bench);
}

#[test]
fn streams_have_plans_of_their_own_and_threads_may_free() {
    let driver = FakeDriver::new(1 << 40).without_pending_events();
    let config = AllocatorConfig::default().parse("learn_plans:True").unwrap();
    let allocator = CachingAllocator::new(1, &Arc::new(config));
    std::thread::scope(|scope| {
        for stream in [0, 16, 32] {
            let (give, take) = std::sync::mpsc::channel::<u64>();
            let (driver, allocator) = (&driver, &allocator);
            scope.spawn(move || take.iter().for_each(|address| allocator.free(driver, address).unwrap()));
            scope.spawn(move || {
                for round in 0..400 {
                    let mut mine = Vec::new();
                    for turn in 0..24_u64 {
                        let address = allocator.alloc(driver, on(stream), 1000 + turn * 300_000).unwrap();
                        if turn % 6 == 5 {
                            allocator.record_stream(address, on(64)).unwrap();
                        }
                        // Others give back a part, sooner or later.
                        if turn % 4 == 3 && round % 3 == 0 {
                            give.send(address).unwrap();
                        } else {
                            mine.push(address);
                        }
                        if turn % 3 == 2 {
                            allocator.free(driver, mine.remove(0)).unwrap();
                        }
                    }
                    mine.into_iter().for_each(|address| allocator.free(driver, address).unwrap());
                    if round % 50 == 49 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(allocator.inconsistency(), None);
    assert!(allocator.plan_stats(DEVICE).unwrap().planned_requests > 0);
    allocator.empty_cache(&driver).unwrap();
    assert_eq!(allocator.inconsistency(), None);
    assert_eq!(allocator.stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
}

/// The steps of a recorded workload: an allocation's name and bytes, or the name of what is given back.
fn recorded(name: &str) -> Vec<(u64, Option<u64>)> {
    use std::io::Read as _;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces").join(name);
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let step = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[1].parse().unwrap(), words.get(2).map(|bytes| bytes.parse().unwrap()))
    };
    lines.map(step).collect()
}

/// A recorded training of GPT-2, whose steps are found by their sizes: from the fifth of ten steps on it reserves what it has
/// live at peak, and a fiftieth, also where lasting memory lies in segments that cannot shrink.
#[test]
fn a_recorded_training_reserves_what_it_has_live() {
    let steps = recorded("gpt2_fixed.trace.gz");
    let half = steps.len() * 6 / 10;
    for options in ["", ",expandable_segments:True", ",backend:elastic"] {
        let bench = bench(80 << 30, options);
        let mut live = BTreeMap::new();
        for (number, (name, bytes)) in steps.iter().enumerate() {
            match bytes {
                Some(bytes) => drop(live.insert(name, bench.allocator.alloc(&bench.driver, on(0), *bytes).unwrap())),
                None => bench.allocator.free(&bench.driver, live.remove(name).unwrap()).unwrap(),
            }
            if number % 100 == 0 {
                settle(&bench);
            }
            if number == half {
                bench.allocator.reset_peak_stats(DEVICE).unwrap();
            }
        }
        assert_eq!(bench.allocator.inconsistency(), None);
        let (figures, plans) = (bench.stats(), stats(&bench));
        let (reserved, peak) = (figures.reserved_bytes.all.peak, figures.allocated_bytes.all.peak);
        assert!(reserved * 100 <= peak * 102, "{options}: {reserved} reserved for {peak}: {plans:?}");
        assert_eq!((plans.adopted, plans.dropped), (1, 0));
        assert!(options.is_empty() || plans.arena_bytes == plans.load_bytes.next_multiple_of(2 * MIB), "{plans:?}");
        assert!(plans.planned_requests > 6000, "{plans:?}");
    }
}
