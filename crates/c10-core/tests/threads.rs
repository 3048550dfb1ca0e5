//! The caching allocator with several threads at it: figures that are exact whatever the order, memory that one thread
//! takes and another gives back, the same memory given back twice at the same time, readers, running out.
//!
//! Nothing here depends on who comes first. In each phase of [`Phases`] every figure only rises or only falls, so its
//! highest value is its value at the end of some phase, which a run that is looked at after each phase tells; a run that
//! nobody looks at must have seen the same peaks.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a thread that cannot go on is a failed test, and a test that hangs has to say so"
)]

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use c10_core::{BlockState, Error, MemoryError, Runtime, SegmentType, Stream};
use common::{DEVICE, Rig, config};
use cuda_sim::Machine;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;

const MIB: u64 = 1 << 20;

/// The numbers of a thread: the same in every run, with every version of the package.
fn numbers_of(seed: usize) -> Pcg32 {
    Pcg32::seed_from_u64(u64::try_from(seed).unwrap())
}

/// Ends the program with a message when the action takes longer than anybody waits.
fn watched<R>(what: &str, action: impl FnOnce() -> R) -> R {
    let (done, wait) = mpsc::channel::<()>();
    let what = what.to_owned();
    let watch = std::thread::spawn(move || {
        if wait.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{what}: threads wait for each other");
            std::process::abort();
        }
    });
    let result = action();
    drop(done);
    watch.join().unwrap();
    result
}

/// Runs an action on several threads at once.
fn together(rig: &Rig, count: usize, action: impl Fn(usize, &Runtime) + Sync) {
    let (runtime, machine) = (&rig.runtime, &rig.machine);
    std::thread::scope(|scope| {
        for number in 0..count {
            let action = &action;
            scope.spawn(move || {
                let _bound = machine.bind();
                action(number, runtime);
            });
        }
    });
}

/// Every figure by its name.
fn figures(runtime: &Runtime) -> BTreeMap<String, i64> {
    let flat = runtime.memory().stats(DEVICE).unwrap().flatten();
    flat.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

const FAMILIES: [&str; 9] = [
    "allocation",
    "allocated_bytes",
    "active",
    "active_bytes",
    "requested_bytes",
    "inactive_split",
    "inactive_split_bytes",
    "segment",
    "reserved_bytes",
];
const POOLS: [&str; 3] = ["all", "small_pool", "large_pool"];

/// The equations that every reading fulfils, while threads run or not.
fn assert_consistent(figures: &BTreeMap<String, i64>) {
    let of = |family: &str, pool: &str, leaf: &str| figures[&format!("{family}.{pool}.{leaf}")];
    for family in FAMILIES {
        let current = |pool| of(family, pool, "current");
        assert_eq!(current("all"), current("small_pool") + current("large_pool"), "{family}");
        for pool in POOLS {
            let (current, peak) = (current(pool), of(family, pool, "peak"));
            assert!(0 <= current && current <= peak, "{family}.{pool}: {current}, peak {peak}");
            let net = of(family, pool, "allocated") - of(family, pool, "freed");
            assert_eq!(net, current, "{family}.{pool}: increases less decreases");
        }
    }
    for pool in POOLS {
        let current = |family| of(family, pool, "current");
        assert!(current("active") >= current("allocation"), "{pool}");
        assert!(current("active_bytes") >= current("allocated_bytes"), "{pool}");
        assert!(current("active_bytes") >= current("requested_bytes"), "{pool}");
        assert!(current("reserved_bytes") >= current("active_bytes") + current("inactive_split_bytes"), "{pool}");
    }
}

/// Gives the cache back: nothing may be left, neither in the books nor on the machine.
fn assert_all_given_back(rig: &Rig) {
    rig.runtime.synchronize(DEVICE).unwrap();
    rig.machine.settle();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.runtime.inconsistency(), None);
    let figures = figures(&rig.runtime);
    assert_consistent(&figures);
    for family in FAMILIES {
        assert_eq!(figures[&format!("{family}.all.current")], 0, "{family}");
    }
    let live = rig.machine.live();
    assert_eq!((live.allocations, live.memory_handles), (0, 0));
}

// -------------------------------------------------------------------------------------------- phases

/// Memory that was handed out.
#[derive(Clone, Copy, Debug)]
struct Block {
    stream: usize,
    address: u64,
    requested: u64,
    /// Bytes of the block.
    size: u64,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Alloc { stream: usize, requested: u64, size: u64 },
    Free(u64),
}

/// How a run of phases goes.
#[derive(Clone, Copy, Debug)]
struct Phases {
    threads: usize,
    /// Thread t allocates on stream t modulo this.
    streams: usize,
    /// Memory of thread t is given back by thread t plus this.
    shift: usize,
    seed: usize,
}

/// Threads that do in each phase what they are told, all at once.
struct Crew {
    orders: Vec<Sender<Vec<Work>>>,
    done: Receiver<Vec<Block>>,
}

impl Crew {
    fn phase(&self, work: Vec<Vec<Work>>) -> Vec<Block> {
        self.orders.iter().zip(work).for_each(|(order, work)| order.send(work).unwrap());
        self.orders.iter().flat_map(|_| self.done.recv().expect("no thread fails")).collect()
    }
}

fn work(runtime: &Runtime, streams: &[Stream], work: Vec<Work>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for work in work {
        match work {
            Work::Alloc { stream, requested, size } => {
                let address = runtime.memory().alloc(requested, &streams[stream]).unwrap();
                blocks.push(Block { stream, address, requested, size });
            }
            Work::Free(address) => runtime.memory().free(address).unwrap(),
        }
    }
    blocks
}

const LARGE: u64 = 2 * MIB;
/// Blocks of the large pool for each stream: what is left of their segment is as large as one of them.
const LARGE_BLOCKS: usize = 9;

impl Phases {
    /// Runs all phases; `look` is told after each what is live.
    fn run(self, rig: &Rig, look: impl FnMut(&[Block])) {
        let streams: Vec<Stream> = (0..self.streams).map(|_| rig.stream()).collect();
        let (runtime, machine) = (&rig.runtime, &rig.machine);
        let start = Barrier::new(self.threads);
        let (report, done) = mpsc::channel();
        std::thread::scope(|scope| {
            let mut orders = Vec::new();
            for _ in 0..self.threads {
                let (order, to_do) = mpsc::channel::<Vec<Work>>();
                orders.push(order);
                let (streams, start, report) = (&streams, &start, report.clone());
                scope.spawn(move || {
                    let _bound = machine.bind();
                    for orders in to_do {
                        start.wait();
                        report.send(work(runtime, streams, orders)).unwrap();
                    }
                });
            }
            drop(report);
            self.direct(&Crew { orders, done }, look);
        });
    }

    fn direct(self, crew: &Crew, mut look: impl FnMut(&[Block])) {
        let mut numbers = numbers_of(self.seed);
        let unit = 1024 << numbers.random_range(0..4);
        let small_blocks = 20 + numbers.random_range(0..60);
        let mut live: Vec<Block> = Vec::new();

        // One block of each pool and stream: the rest of each segment is a free part.
        let first = |stream| [alloc(stream, unit), alloc(stream, LARGE)];
        live.extend(crew.phase(self.split((0..self.streams).map(|stream| (stream, first(stream))))));
        look(&live);

        // More of them, from the rests.
        let more = |stream| {
            let small = std::iter::repeat_n(alloc(stream, unit), small_blocks);
            small.chain(std::iter::repeat_n(alloc(stream, LARGE), LARGE_BLOCKS - 1))
        };
        let of_streams = (0..self.streams).flat_map(|stream| {
            let sharers: Vec<usize> = (stream..self.threads).step_by(self.streams).collect();
            more(stream).enumerate().map(move |(at, work)| (sharers[at % sharers.len()], [work]))
        });
        live.extend(crew.phase(self.split(of_streams)));
        look(&live);

        // Some that do not touch each other are given back.
        let (holes, kept) = self.choose_holes(&mut numbers, live);
        let given_back = holes.iter().enumerate().map(|(at, block)| {
            let sharers = self.threads / self.streams;
            let owner = block.stream + at % sharers * self.streams;
            ((owner + self.shift) % self.threads, [Work::Free(block.address)])
        });
        crew.phase(self.split(given_back));
        live = kept;
        look(&live);

        // Smaller ones and equal ones go into the holes.
        let filling = self.fill(&mut numbers, &holes, unit);
        live.extend(crew.phase(self.split(filling.into_iter())));
        look(&live);

        // From the end of each segment to its beginning everything but the first block.
        live.sort_by_key(|block| (block.stream, block.size > MIB, block.address));
        let is_first = |at: usize| {
            at == 0 || (live[at].stream, live[at].size > MIB) != (live[at - 1].stream, live[at - 1].size > MIB)
        };
        let (first, others): (Vec<usize>, Vec<usize>) = (0..live.len()).partition(|at| is_first(*at));
        let free = |at: &usize| ((live[*at].stream + self.shift) % self.threads, [Work::Free(live[*at].address)]);
        crew.phase(self.split(others.iter().rev().map(free)));
        look(&first.iter().map(|at| live[*at]).collect::<Vec<_>>());

        // And that.
        crew.phase(self.split(first.iter().map(free)));
        look(&[]);
    }

    /// Work by thread.
    fn split<const N: usize>(self, work: impl Iterator<Item = (usize, [Work; N])>) -> Vec<Vec<Work>> {
        let mut lists = vec![Vec::new(); self.threads];
        work.for_each(|(thread, work)| lists[thread].extend(work));
        lists
    }

    /// Blocks with neighbours that stay: not the first and the last of a segment.
    fn choose_holes(self, numbers: &mut Pcg32, mut live: Vec<Block>) -> (Vec<Block>, Vec<Block>) {
        live.sort_by_key(|block| (block.stream, block.size, block.address));
        let (mut holes, mut kept, mut place) = (Vec::new(), Vec::new(), 0);
        for at in 0..live.len() {
            let group = |at: usize| live.get(at).map(|block| (block.stream, block.size));
            place = if at > 0 && group(at - 1) == group(at) { place + 1 } else { 0 };
            let is_hole = place % 2 == 1 && group(at + 1) == group(at) && numbers.random_range(0..8) > 0;
            if is_hole { holes.push(live[at]) } else { kept.push(live[at]) }
        }
        (holes, kept)
    }

    /// Requests that all find room in the holes: two halves take a small one, one and a half MiB a large one.
    fn fill(self, numbers: &mut Pcg32, holes: &[Block], unit: u64) -> Vec<(usize, [Work; 1])> {
        let mut filling = Vec::new();
        for stream in 0..self.streams {
            let of =
                |large: bool| holes.iter().filter(|hole| hole.stream == stream && (hole.size > MIB) == large).count();
            let (small, large) = (of(false), of(true));
            let halved = numbers.random_range(0..small + 1);
            let halves = (halved * 2).saturating_sub(numbers.random_range(0..2));
            let equal = numbers.random_range(0..small - halved + 1);
            let whole = Work::Alloc { stream, requested: LARGE * 3 / 4, size: LARGE };
            let works = std::iter::repeat_n(alloc(stream, unit / 2), halves);
            let works = works.chain(std::iter::repeat_n(alloc(stream, unit), equal));
            let works = works.chain(std::iter::repeat_n(whole, numbers.random_range(0..large + 1)));
            let sharers: Vec<usize> = (stream..self.threads).step_by(self.streams).collect();
            filling.extend(works.enumerate().map(|(at, work)| (sharers[at % sharers.len()], [work])));
        }
        filling
    }
}

fn alloc(stream: usize, size: u64) -> Work {
    Work::Alloc { stream, requested: size - 7, size }
}

/// What is live counts exactly, and free parts are those of the snapshot.
fn assert_exact(rig: &Rig, live: &[Block]) -> BTreeMap<String, i64> {
    let figures = figures(&rig.runtime);
    assert_consistent(&figures);
    let snapshot = rig.runtime.memory().snapshot(None);
    for (pool, kind) in [("small_pool", SegmentType::Small), ("large_pool", SegmentType::Large)] {
        let live = || live.iter().filter(|block| (block.size > MIB) == (kind == SegmentType::Large));
        let segments = || snapshot.iter().filter(|segment| segment.segment_type == kind);
        let split = segments().filter(|segment| segment.blocks.len() > 1).flat_map(|segment| &segment.blocks);
        let parts: Vec<u64> =
            split.filter(|block| block.state == BlockState::Inactive).map(|block| block.size).collect();
        let (count, bytes) = (live().count() as u64, live().map(|block| block.size).sum());
        let expected = [
            ("allocation", count),
            ("allocated_bytes", bytes),
            ("active", count),
            ("active_bytes", bytes),
            ("requested_bytes", live().map(|block| block.requested).sum()),
            ("inactive_split", parts.len() as u64),
            ("inactive_split_bytes", parts.iter().sum()),
            ("segment", segments().count() as u64),
            ("reserved_bytes", segments().map(|segment| segment.total_size).sum()),
        ];
        for (family, value) in expected {
            assert_eq!(figures[&format!("{family}.{pool}.current")], value.cast_signed(), "{family}.{pool}");
        }
    }
    figures
}

/// Peaks are those that the phases force, whether anybody looks in between or not.
#[test]
fn no_peak_is_missed_and_none_is_made_up() {
    let mut runs = 0;
    for (threads, streams) in [(2, 2), (2, 1), (4, 4), (4, 2), (4, 1), (8, 8)] {
        for (shift, seed) in (0..30).map(|run| (run % threads.min(3), run)) {
            let phases = Phases { threads, streams, shift, seed };
            watched(&format!("{phases:?}"), || {
                let mut highest = BTreeMap::<String, i64>::new();
                for looks in [true, false] {
                    let rig = Rig::new(config());
                    phases.run(&rig, |live| {
                        if !looks {
                            return;
                        }
                        for (name, value) in assert_exact(&rig, live) {
                            if let Some(stat) = name.strip_suffix(".current") {
                                let before = highest.entry(stat.to_owned()).or_default();
                                *before = value.max(*before);
                            }
                        }
                    });
                    let figures = assert_exact(&rig, &[]);
                    for (stat, value) in &highest {
                        let peak = figures[&format!("{stat}.peak")];
                        assert_eq!(peak, *value, "{stat} of {phases:?}, looked at: {looks}");
                    }
                    assert_all_given_back(&rig);
                }
            });
            runs += 1;
        }
    }
    println!("{runs} runs");
}

// -------------------------------------------------------------------------------------------- producers and consumers

const PRODUCERS: usize = 3;
const CONSUMERS: usize = 3;
/// Blocks that a producer may have out at a time.
const CREDIT: usize = 40;

/// Each producer begins with as much as it may have out, which makes the highest number of blocks; from then on it
/// allocates only when something was given back.
fn produce_and_consume(seed: usize, shared: bool) {
    let rig = Rig::new(config());
    let streams: Vec<Stream> = (0..if shared { 1 } else { PRODUCERS }).map(|_| rig.stream()).collect();
    let (begin, most) = (Barrier::new(PRODUCERS + CONSUMERS), AtomicUsize::new(0));
    let (ways, ends): (Vec<_>, Vec<_>) = (0..CONSUMERS).map(|_| mpsc::channel::<(usize, u64)>()).unzip();
    let (backs, credits): (Vec<_>, Vec<_>) = (0..PRODUCERS).map(|_| mpsc::channel::<()>()).unzip();
    std::thread::scope(|scope| {
        let (runtime, machine, begin, most, streams) = (&rig.runtime, &rig.machine, &begin, &most, &streams);
        for (number, credit) in credits.into_iter().enumerate() {
            let ways = ways.clone();
            scope.spawn(move || {
                let _bound = machine.bind();
                let mut numbers = numbers_of(seed * 100 + number);
                let mut alloc = |first: bool| {
                    let bytes = match numbers.random_range(0..10) {
                        0 => 1 + numbers.random_range(0..3 * MIB),
                        _ => 1 + numbers.random_range(0..40_000),
                    };
                    if first {
                        most.fetch_add(usize::try_from(bytes).unwrap(), Ordering::Relaxed);
                    }
                    runtime.memory().alloc(bytes, &streams[number % streams.len()]).unwrap()
                };
                let first: Vec<u64> = (0..CREDIT).map(|_| alloc(true)).collect();
                begin.wait();
                let mut next = numbers_of(seed * 100 + 50 + number);
                first
                    .into_iter()
                    .for_each(|address| ways[next.random_range(0..CONSUMERS)].send((number, address)).unwrap());
                for _ in 0..300 {
                    credit.recv().unwrap();
                    ways[next.random_range(0..CONSUMERS)].send((number, alloc(false))).unwrap();
                }
            });
        }
        drop(ways);
        for end in ends {
            let backs = backs.clone();
            scope.spawn(move || {
                let _bound = machine.bind();
                begin.wait();
                for (producer, address) in end {
                    runtime.memory().free(address).unwrap();
                    // A producer that is done listens no more.
                    let _ = backs[producer].send(());
                }
            });
        }
    });
    let figures = figures(&rig.runtime);
    assert_consistent(&figures);
    let blocks = i64::try_from(PRODUCERS * CREDIT).unwrap();
    for family in ["allocation", "active"] {
        assert_eq!(figures[&format!("{family}.all.peak")], blocks, "{family} of seed {seed}");
        assert_eq!(figures[&format!("{family}.all.allocated")], blocks + 300 * PRODUCERS as i64);
    }
    let (requested, most) = (figures["requested_bytes.all.peak"], i64::try_from(most.into_inner()).unwrap());
    assert!(most <= requested && requested <= blocks * (3 << 20), "{requested} bytes of at least {most}");
    assert_all_given_back(&rig);
}

#[test]
fn memory_is_given_back_by_other_threads() {
    let seeds = 48;
    for seed in 0..seeds {
        watched("producers and consumers", || produce_and_consume(seed, seed % 2 == 0));
    }
    println!("{seeds} seeds");
}

// -------------------------------------------------------------------------------------------- twice

/// Asks another thread to give memory back, and waits.
fn elsewhere(rig: &Rig, address: u64) -> Result<(), Error> {
    let (runtime, machine) = (&rig.runtime, &rig.machine);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _bound = machine.bind();
            runtime.memory().free(address)
        });
        other.join().unwrap()
    })
}

#[test]
fn what_was_given_back_cannot_be_given_back_again() {
    let rig = Rig::new(config());
    let (stream, other) = (rig.stream(), rig.stream());
    let here = |address| rig.runtime.memory().free(address);
    for bytes in [1, 5000, 3 * MIB, 30 * MIB] {
        for (first_here, second_here) in [(true, true), (true, false), (false, true), (false, false)] {
            for used in [false, true] {
                let address = rig.runtime.memory().alloc(bytes, &stream).unwrap();
                if used {
                    rig.runtime.memory().record_stream(address, &other).unwrap();
                }
                let free = |is_here: bool| if is_here { here(address) } else { elsewhere(&rig, address) };
                let case = format!("{bytes} bytes, {first_here} {second_here} {used}");
                assert_eq!(free(first_here), Ok(()), "{case}");
                assert_eq!(free(second_here), Err(Error::Memory(MemoryError::InvalidPointer { address })), "{case}");
                let recorded = rig.runtime.memory().record_stream(address, &other);
                assert_eq!(recorded, Err(Error::Memory(MemoryError::InvalidPointer { address })), "{case}");
            }
        }
    }
    assert_all_given_back(&rig);
}

/// More than a shard takes note of at once, while its own thread does nothing.
#[test]
fn any_number_can_be_given_back_by_another_thread() {
    let rig = Rig::new(config());
    let stream = rig.stream();
    let blocks: Vec<u64> = (0..1500).map(|_| rig.runtime.memory().alloc(512, &stream).unwrap()).collect();
    together(&rig, 1, |_, runtime| {
        // Holes first, of which all are there at once.
        let (holes, others): (Vec<usize>, Vec<usize>) = (1..blocks.len() - 1).partition(|at| at % 2 == 1);
        let free = |at: usize| runtime.memory().free(blocks[at]).unwrap();
        holes.into_iter().for_each(free);
        others.into_iter().for_each(free);
    });
    let figures = figures(&rig.runtime);
    assert_consistent(&figures);
    // And what was never handed out.
    assert_eq!((figures["allocation.all.current"], figures["inactive_split.all.peak"]), (2, 749 + 1));
    [blocks[0], blocks[1499]].into_iter().for_each(|address| rig.runtime.memory().free(address).unwrap());
    assert_all_given_back(&rig);
}

/// Two threads give the same memory back at the same time: of each block at least one succeeds, and it counts once. The
/// first of them allocates again at once, often the same addresses, which must be nobody else's.
#[test]
fn memory_given_back_twice_at_once_counts_once() {
    const BLOCKS: usize = 50;
    let rounds = 2000;
    let rig = Rig::new(config());
    let (stream, other) = (rig.stream(), rig.stream());
    let (runtime, machine) = (&rig.runtime, &rig.machine);
    let (mut both_succeeded, mut only_there, ready) = (0, 0, &AtomicUsize::new(0));
    watched("giving back twice", || {
        std::thread::scope(|scope| {
            let (give, take) = mpsc::sync_channel::<Vec<u64>>(0);
            let (tell, told) = mpsc::sync_channel::<Vec<Result<(), Error>>>(1);
            // They meet in a loop: a lock would wake one after the other.
            let meet = move |round: usize| {
                ready.fetch_add(1, Ordering::SeqCst);
                let mut looks = 0;
                while ready.load(Ordering::SeqCst) < 2 * round {
                    looks += 1;
                    if looks % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
                }
            };
            let free_all =
                |addresses: &[u64]| addresses.iter().map(|address| runtime.memory().free(*address)).collect::<Vec<_>>();
            scope.spawn(move || {
                let _bound = machine.bind();
                for (round, addresses) in (1..).zip(take) {
                    meet(round);
                    // From the other end, so that they come across each other.
                    let backwards: Vec<u64> = addresses.into_iter().rev().collect();
                    tell.send(free_all(&backwards)).unwrap();
                }
            });
            let mut numbers = numbers_of(3);
            for round in 1..=rounds {
                let mut alloc = || {
                    let bytes = [100, 100, 100, 3 * MIB][numbers.random_range(0..4)];
                    let address = runtime.memory().alloc(bytes, &stream).unwrap();
                    if numbers.random_range(0..16) == 0 {
                        runtime.memory().record_stream(address, &other).unwrap();
                    }
                    address
                };
                let addresses: Vec<u64> = (0..BLOCKS).map(|_| alloc()).collect();
                give.send(addresses.clone()).unwrap();
                meet(round);
                let here = free_all(&addresses);
                let there = told.recv().unwrap();
                for ((address, here), there) in addresses.iter().zip(here).zip(there.into_iter().rev()) {
                    let refused = Err(Error::Memory(MemoryError::InvalidPointer { address: *address }));
                    let right = [&here, &there].into_iter().all(|answer| answer.is_ok() || *answer == refused);
                    assert!(right && (here.is_ok() || there.is_ok()), "{here:?} {there:?}");
                    both_succeeded += usize::from(here.is_ok() && there.is_ok());
                    only_there += usize::from(here.is_err());
                }
                // Nobody knows these yet.
                let fresh: Vec<u64> = (0..BLOCKS).map(|_| runtime.memory().alloc(100, &stream).unwrap()).collect();
                let current = runtime.memory().stats(DEVICE).unwrap().allocation.all.current;
                assert_eq!(current, i64::try_from(BLOCKS).unwrap(), "round {round}");
                fresh.into_iter().for_each(|address| runtime.memory().free(address).unwrap());
            }
        });
    });
    assert_eq!(figures(runtime)["allocation.all.freed"], i64::try_from(2 * rounds * BLOCKS).unwrap());
    assert_all_given_back(&rig);
    println!(
        "{rounds} rounds of {BLOCKS} blocks: both succeeded {both_succeeded} times, the second alone {only_there}"
    );
}

// -------------------------------------------------------------------------------------------- readers

#[test]
fn every_reading_is_consistent_while_threads_run() {
    const THREADS: usize = 3;
    const MOST: usize = 30;
    const READINGS: usize = 50;
    let (mut readings, seeds) = (0, 8);
    for seed in 0..seeds {
        let rig = Rig::new(config());
        let streams: Vec<Stream> = (0..2).map(|_| rig.stream()).collect();
        let (running, read) = (AtomicUsize::new(THREADS), AtomicUsize::new(0));
        watched("readers", || {
            together(&rig, THREADS + 1, |number, runtime| {
                if number == THREADS {
                    let mut before = figures(runtime);
                    while running.load(Ordering::SeqCst) > 0 {
                        let now = figures(runtime);
                        assert_consistent(&now);
                        let most = i64::try_from(THREADS * MOST).unwrap();
                        assert!(now["allocation.all.peak"] <= most && now["active.all.peak"] <= 2 * most);
                        assert!(now["requested_bytes.all.peak"] <= 2 * most * (3 << 20));
                        // Nothing is reset, so that these only rise.
                        let rise = |(name, value): (&String, &i64)| {
                            let rises = !name.ends_with(".current");
                            assert!(!rises || before[name] <= *value, "{name} fell to {value}");
                        };
                        now.iter().for_each(rise);
                        before = now;
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                    return;
                }
                let mut numbers = numbers_of(seed * 10 + number);
                let mut live = VecDeque::new();
                let mut steps = 0;
                while steps < 1500 || read.load(Ordering::Relaxed) < READINGS {
                    steps += 1;
                    if live.len() == MOST || numbers.random_range(0..5) < 2 && !live.is_empty() {
                        let at = numbers.random_range(0..live.len());
                        runtime.memory().free(live.swap_remove_back(at).unwrap()).unwrap();
                        continue;
                    }
                    let most = if numbers.random_range(0..20) == 0 { 3 * MIB } else { 9000 };
                    let bytes = 1 + numbers.random_range(0..most);
                    let stream = &streams[numbers.random_range(0..2)];
                    live.push_back(runtime.memory().alloc(bytes, stream).unwrap());
                }
                live.into_iter().for_each(|address| runtime.memory().free(address).unwrap());
                running.fetch_sub(1, Ordering::SeqCst);
            });
        });
        assert_all_given_back(&rig);
        readings += read.into_inner();
    }
    println!("{readings} readings, {seeds} seeds");
}

// -------------------------------------------------------------------------------------------- everything at once

/// What one thread does in [`churn`].
struct Worker<'a> {
    runtime: &'a Runtime,
    streams: &'a [Stream],
    numbers: Pcg32,
    live: Vec<u64>,
    /// Threads that give this one's memory back.
    ways: Vec<Sender<u64>>,
    given: Receiver<u64>,
    refused: usize,
}

impl Worker<'_> {
    fn step(&mut self) {
        let runtime = self.runtime;
        let stream = &self.streams[self.numbers.random_range(0..self.streams.len())];
        match self.numbers.random_range(0..20) {
            0..=8 => {
                let most = [2000, 700_000, 5 * MIB, 22 * MIB][self.numbers.random_range(0..4)];
                let bytes = 1 + self.numbers.random_range(0..most);
                match runtime.memory().alloc(bytes, stream) {
                    Ok(address) => self.live.push(address),
                    Err(error) => {
                        assert!(error.is_out_of_memory(), "{error}");
                        self.refused += 1;
                        // Room for the others.
                        self.live.drain(..).for_each(|address| runtime.memory().free(address).unwrap());
                    }
                }
            }
            9..=11 if !self.live.is_empty() => {
                let at = self.numbers.random_range(0..self.live.len());
                runtime.memory().record_stream(self.live[at], stream).unwrap();
            }
            12..=14 if !self.live.is_empty() => {
                let at = self.numbers.random_range(0..self.live.len());
                let to = self.numbers.random_range(0..self.ways.len());
                self.ways[to].send(self.live.swap_remove(at)).unwrap();
            }
            15..=17 if !self.live.is_empty() => {
                let at = self.numbers.random_range(0..self.live.len());
                runtime.memory().free(self.live.swap_remove(at)).unwrap();
            }
            18 if self.numbers.random_range(0..4) == 0 => runtime.memory().empty_cache().unwrap(),
            19 if self.numbers.random_range(0..4) == 0 => assert_consistent(&figures(runtime)),
            _ => {}
        }
        self.give_back_others();
    }

    fn give_back_others(&self) {
        self.given.try_iter().for_each(|address| self.runtime.memory().free(address).unwrap());
    }
}

fn churn(seed: usize) -> usize {
    const THREADS: usize = 4;
    let rig = Rig::new(config().capacity(64 * MIB).late_events(seed.is_multiple_of(2)).seed(seed as u64));
    let options = ["", "expandable_segments:True", "max_split_size_mb:20,garbage_collection_threshold:0.5"][seed % 3];
    rig.runtime.memory().set_settings(options).unwrap();
    rig.runtime.memory().set_fraction(if seed.is_multiple_of(4) { 0.9 } else { 1.0 }, DEVICE).unwrap();
    let streams: Vec<Stream> = (0..3).map(|_| rig.stream()).collect();
    let (ways, ends): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<u64>()).unzip();
    let (refused, done) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let running = AtomicUsize::new(THREADS);
    std::thread::scope(|scope| {
        let (runtime, machine, streams) = (&rig.runtime, &rig.machine, &streams);
        for (number, given) in ends.into_iter().enumerate() {
            let (ways, refused, running, done) = (ways.clone(), &refused, &running, Arc::clone(&done));
            scope.spawn(move || {
                let _bound: cuda_sim::Bound = Machine::bind(machine);
                let numbers = numbers_of(seed * 10 + number);
                let mut worker = Worker { runtime, streams, numbers, live: Vec::new(), ways, given, refused: 0 };
                (0..250).for_each(|_| worker.step());
                worker.live.drain(..).for_each(|address| runtime.memory().free(address).unwrap());
                // Nobody sends any more once all have come here.
                if running.fetch_sub(1, Ordering::SeqCst) == 1 {
                    done.store(true, Ordering::SeqCst);
                }
                while !done.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                worker.give_back_others();
                refused.fetch_add(worker.refused, Ordering::Relaxed);
            });
        }
    });
    assert_all_given_back(&rig);
    drop(streams);
    let left = rig.left();
    assert_eq!((left.allocations, left.memory_handles, left.reservations, left.events), (0, 0, 0, 0));
    refused.into_inner()
}

#[test]
fn threads_use_other_streams_empty_the_cache_and_run_out() {
    let seeds = 48;
    let refused: usize = (0..seeds).map(|seed| watched("everything at once", || churn(seed))).sum();
    println!("{seeds} seeds, {refused} times out of memory");
    assert!(refused > 0);
}

/// One thread needs new memory, for which what is old is released, while others take and give back the very memory whose
/// age is looked at.
#[test]
fn garbage_is_collected_while_threads_allocate() {
    const THREADS: usize = 3;
    let seeds = 20;
    for seed in 0..seeds {
        let rig = Rig::new(config().capacity(400 * MIB));
        rig.runtime.memory().set_settings("garbage_collection_threshold:0.1").unwrap();
        rig.runtime.memory().set_fraction(0.9, DEVICE).unwrap();
        let streams: Vec<Stream> = (0..THREADS).map(|_| rig.stream()).collect();
        let done = AtomicBool::new(false);
        watched("collecting garbage", || {
            together(&rig, THREADS, |number, runtime| {
                let alloc = |bytes| runtime.memory().alloc(bytes, &streams[number]);
                let free = |address| runtime.memory().free(address).unwrap();
                let mut numbers = numbers_of(seed);
                for _ in 0..4000 * usize::from(number == 0) {
                    match alloc((10 + numbers.random_range(0..50)) * 2 * MIB) {
                        Ok(address) => free(address),
                        Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                    }
                }
                done.fetch_or(number == 0, Ordering::SeqCst);
                while !done.load(Ordering::SeqCst) {
                    let some: Vec<u64> = (0..4).map_while(|_| alloc(12 * MIB).ok()).collect();
                    some.into_iter().for_each(free);
                }
            });
        });
        assert_all_given_back(&rig);
    }
    println!("{seeds} seeds");
}
