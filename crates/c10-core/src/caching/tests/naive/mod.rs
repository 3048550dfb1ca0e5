//! The allocator against a naive one that was written from the rules alone. Random scripts run on both; after each step
//! the answers agree, and at each look every figure, every block of the snapshot and the books do.
//!
//! Two threads make the steps in turn, one after the other. So there is one right answer, and there are remote frees.
//! Looking flushes every shard and applies its remote frees, so some scripts look after each step and some only now and
//! then: peaks in between must be neither missed nor made up.

mod last_alloc;
mod model;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

use proptest::prelude::*;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::handles::StreamHandle;
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::base::stat::Stat;
use model::{Naive, Takes};

const DEVICE: DeviceIndex = DeviceIndex(0);
const MIB: u64 = 1 << 20;
/// Streams from this handle on take part in capture 7.
const CAPTURED: usize = 100;
const STREAMS: [usize; 5] = [0, 16, 32, CAPTURED, CAPTURED + 1];
const POOLS: [PoolId; 3] = [PoolId(0, 1), PoolId(1, 0), PoolId(2, 0)];

/// A step that either of two threads can make.
#[derive(Clone, Debug)]
enum Step {
    Alloc { stream: usize, bytes: u64 },
    Free(u64),
    Record { address: u64, stream: usize },
    Empty,
}

/// Numbers that a script is made of; each decides one step.
type Quad = [u16; 4];

const SIZES: [u64; 15] = [
    1,
    500,
    512,
    1000,
    5000,
    100_000,
    MIB - 512,
    MIB,
    MIB + 1,
    3 * MIB,
    9 * MIB,
    10 * MIB - 100,
    21 * MIB,
    33 * MIB,
    43 * MIB,
];

const OPTIONS: [&str; 8] = [
    "",
    "max_split_size_mb:20",
    "max_split_size_mb:32,max_non_split_rounding_mb:40",
    "garbage_collection_threshold:0.3",
    "garbage_collection_threshold:0.6,max_split_size_mb:25",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:8,4:2,>:1],large_segment_size_mb:24",
    "large_segment_size_mb:30,garbage_collection_threshold:0.2",
];

/// How a script is run.
#[derive(Clone, Copy, Debug)]
struct Way {
    options: usize,
    /// Steps from one look at the figures to the next.
    look_each: usize,
    /// In how many steps of 8 the second thread is the one that frees.
    other_hand: u16,
    /// Whether pools, scopes, limits and options change on the way.
    changes: bool,
}

/// Nothing, or the first difference.
type Agreed = std::result::Result<(), String>;

type Answer = Result<u64>;

fn perform(allocator: &CachingAllocator, driver: &FakeDriver, step: &Step) -> Answer {
    let on = |stream| StreamRef { device: DEVICE, handle: StreamHandle(stream) };
    match step {
        Step::Alloc { stream, bytes } => allocator.alloc(driver, on(*stream), *bytes),
        Step::Free(address) => allocator.free(driver, *address).map(|()| 0),
        Step::Record { address, stream } => allocator.record_stream(*address, on(*stream)).map(|()| 0),
        Step::Empty => allocator.empty_cache(driver).map(|()| 0),
    }
}

/// The second thread: it makes the steps it is told to, one after the other.
struct Hand {
    steps: mpsc::SyncSender<Step>,
    answers: mpsc::Receiver<Answer>,
    number: u64,
}

struct Duel<'a> {
    allocator: &'a CachingAllocator,
    driver: &'a FakeDriver,
    other: Hand,
    naive: Naive,
    way: Way,
    /// Where segments have been put.
    places: Vec<u64>,
    /// The stream, bytes and address of the last request.
    last: (usize, u64, u64),
    /// The last addresses that were freed.
    gone: VecDeque<u64>,
}

/// Sets both up and lets `action` make steps.
fn fight<R>(way: Way, action: impl FnOnce(&mut Duel<'_>) -> R) -> R {
    let config = Arc::new(AllocatorConfig::default().parse(OPTIONS[way.options]).unwrap());
    let allocator = CachingAllocator::new(1, &config);
    let capacity = 120 * MIB;
    let driver = FakeDriver::new(capacity)
        .with_prescribed_segments_only()
        .without_ranges()
        .with_captures(Capturing::From { first: CAPTURED, id: 7 });
    let (steps, to_do) = mpsc::sync_channel::<Step>(1);
    let (answer, answers) = mpsc::sync_channel(1);
    let (tell, number) = mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let (allocator, driver) = (&allocator, &driver);
        scope.spawn(move || {
            tell.send(thread::number()).unwrap();
            to_do.iter().for_each(|step| answer.send(perform(allocator, driver, &step)).unwrap());
        });
        let naive = Naive::new(capacity, &config);
        let other = Hand { steps, answers, number: number.recv().unwrap() };
        action(&mut Duel {
            allocator,
            driver,
            other,
            naive,
            way,
            places: Vec::new(),
            last: (0, 1, 0),
            gone: VecDeque::new(),
        })
    })
}

/// Runs a script on both: what happened in it, or the first difference.
fn duel(way: Way, script: &[Quad]) -> std::result::Result<BTreeSet<&'static str>, String> {
    fight(way, |duel| {
        for (at, quad) in script.iter().enumerate() {
            duel.step(quad).map_err(|difference| format!("step {at}: {difference}"))?;
            if (at + 1) % way.look_each == 0 {
                duel.look().map_err(|difference| format!("after step {at}: {difference}"))?;
            }
        }
        duel.look().map_err(|difference| format!("at the end: {difference}"))?;
        Ok(std::mem::take(&mut duel.naive.reached))
    })
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, naive: &T) -> Agreed {
    if real == naive { Ok(()) } else { Err(format!("{what}: {real:?}, and naively {naive:?}")) }
}

fn pick<T: Copy>(from: &[T], by: u16) -> T {
    from[usize::from(by) % from.len()]
}

impl Duel<'_> {
    fn step(&mut self, &[kind, a, b, c]: &Quad) -> Agreed {
        let live = self.naive.live();
        let other = b % 8 < self.way.other_hand;
        match kind % 32 {
            0..=11 => {
                let (mut stream, mut bytes) = (pick(&STREAMS, b), pick(&SIZES, a) + u64::from(c % 3) * 700);
                // Often as much as the last time, which may just have been freed.
                if a % 8 < 3 {
                    (stream, bytes) = (self.last.0, self.last.1 + u64::from(a / 8 % 4 == 0));
                }
                // The other thread allocates now and then: it then owns what it allocated from.
                let address = self.both(Step::Alloc { stream, bytes }, other && c % 4 == 0, c)?;
                self.last = (stream, bytes, address);
                address
            }
            12..=20 => {
                let address = match a % 16 {
                    0 => self.gone.get(usize::from(c) % 8).copied().unwrap_or(0x3039),
                    1 => live.first().map_or(512, |address| address + 512 * u64::from(c % 5)),
                    2..=6 => self.last.2,
                    _ if live.is_empty() => return Ok(()),
                    _ => pick(&live, a >> 4),
                };
                self.both(Step::Free(address), other, c)?
            }
            21..=23 if !live.is_empty() => {
                // Often what was handed out last.
                let last = Some(self.last.2).filter(|address| c % 2 == 0 && *address > 0);
                let address = last.unwrap_or_else(|| pick(&live, a));
                let stream = pick(&STREAMS, b >> 3);
                self.both(Step::Record { address, stream }, other, c)?
            }
            24 | 25 => {
                self.pass(pick(&STREAMS, a), u64::from(b % 4));
                0
            }
            26 if a % 3 == 0 => self.both(Step::Empty, other, c)?,
            27..=31 if self.way.changes => return self.change(kind, a, b),
            _ => 0,
        };
        Ok(())
    }

    /// Makes a step on both sides; the address they agree on.
    fn both(&mut self, step: Step, other: bool, chance: u16) -> std::result::Result<u64, String> {
        let place = self.place(chance);
        self.driver.memory().prescribe_only(place);
        let real = if other {
            self.other.steps.send(step.clone()).unwrap();
            self.other.answers.recv().unwrap()
        } else {
            perform(self.allocator, self.driver, &step)
        };
        let naive = match step {
            Step::Alloc { stream, bytes } => {
                let hand = if other { self.other.number } else { thread::number() };
                self.naive.alloc(hand, stream, bytes, place)
            }
            Step::Free(address) => self.naive.free(address).map(|()| 0),
            Step::Record { address, stream } => self.naive.record_stream(address, stream).map(|()| 0),
            Step::Empty => {
                self.naive.empty_cache();
                Ok(0)
            }
        };
        if let Step::Free(address) = step {
            self.gone.push_front(address);
            self.gone.truncate(8);
        }
        if self.naive.held.contains_key(&place) && !self.places.contains(&place) {
            self.places.push(place);
        }
        same(&format!("{step:?}"), &real, &naive)?;
        Ok(real.unwrap_or(0))
    }

    /// Where the next segment goes: where one was before, or somewhere new. Some places are not at a page, and some are
    /// beyond what the table of pages covers.
    fn place(&self, chance: u16) -> u64 {
        let vacant =
            self.places.iter().filter(|place| !self.naive.held.contains_key(place)).copied().collect::<Vec<_>>();
        if !vacant.is_empty() && chance & 1 == 0 {
            return pick(&vacant, chance >> 1);
        }
        let number = self.places.len() as u64 + 1;
        let offset = [0, 0, 0, 2 * MIB, MIB - 512, 1 << 49][usize::from(chance >> 1) % 6];
        (number << 30) + offset
    }

    /// Lets events of a stream pass.
    fn pass(&mut self, stream: usize, events: u64) {
        let recorded = self.naive.recorded.get(&StreamHandle(stream)).copied().unwrap_or(0);
        let passed = self.naive.passed.entry(stream).or_default();
        *passed = (*passed + events).min(recorded);
        self.driver.events().pass_up_to(StreamHandle(stream), *passed);
    }

    /// Pools, scopes, limits, options, resets.
    fn change(&mut self, kind: u16, a: u16, b: u16) -> Agreed {
        let (allocator, naive, pool) = (self.allocator, &mut self.naive, pick(&POOLS, a));
        let is_open = naive.scopes.iter().any(|scope| scope.0 == pool);
        let last_use = naive.private.get(&pool).is_some_and(|private| private.uses == 1);
        match (kind ^ b) % 10 {
            0 | 1 => {
                let (mine, other) = (thread::number(), self.other.number);
                let takes = pick(&[Takes::Captured, Takes::Hand(mine), Takes::Hand(other)], b >> 4);
                let filter = match takes {
                    Takes::Captured => Filter::Capture(Arc::new(AtomicU64::new(7))),
                    Takes::Hand(hand) => Filter::Thread(hand),
                };
                same("begin", &allocator.begin_allocate_to_pool(DEVICE, pool, filter), &naive.begin(pool, takes))
            }
            2 | 3 => same("end", &allocator.end_allocate_to_pool(DEVICE, pool), &naive.end(pool)),
            4 if !(is_open && last_use) => {
                naive.give_up(pool);
                naive.forget_if_unused(pool);
                same("release", &allocator.release_pool(DEVICE, pool), &Ok(()))
            }
            5 => {
                let options = PoolOptions { use_on_oom: b & 16 != 0, no_split: b & 32 != 0, ..PoolOptions::default() };
                same("use", &allocator.use_pool(DEVICE, pool, options.clone()), &naive.use_pool(pool, &options))
            }
            6 if !(is_open && last_use) => {
                naive.close(pool);
                same("close", &allocator.close_pool(self.driver, DEVICE, pool), &Ok(()))
            }
            7 => {
                naive.limit = (b & 48 != 0).then_some(u64::from(b >> 6) % 100 * MIB);
                same("limit", &allocator.set_limit(DEVICE, naive.limit), &Ok(()))
            }
            8 => {
                naive.config = Arc::new(AllocatorConfig::default().parse(pick(&OPTIONS, b >> 4)).unwrap());
                allocator.set_config(&naive.config);
                Ok(())
            }
            9 if b & 16 == 0 => {
                let Stats { all, single } = leaves(&mut naive.stats);
                all.into_iter().chain(single).for_each(|stat| stat.peak = stat.current);
                same("reset peaks", &allocator.reset_peak_stats(DEVICE), &Ok(()))
            }
            9 => {
                let Stats { all, single } = leaves(&mut naive.stats);
                all.into_iter().chain(single).for_each(|stat| (stat.allocated, stat.freed) = (0, 0));
                let stats = &mut naive.stats;
                (stats.num_alloc_retries, stats.num_ooms, stats.num_sync_all_streams) = (0, 0, 0);
                (stats.num_device_alloc, stats.num_device_free) = (0, 0);
                same("reset sums", &allocator.reset_accumulated_stats(DEVICE), &Ok(()))
            }
            _ => Ok(()),
        }
    }

    /// Compares all that can be seen.
    fn look(&self) -> Agreed {
        let real = self.allocator.stats(DEVICE).map_err(|error| error.to_string())?;
        for (real, naive) in real.flatten().iter().zip(&self.naive.stats.flatten()) {
            same("figure", real, naive)?;
        }
        same("books", &self.allocator.inconsistency(), &None)?;
        let shown = self.allocator.snapshot(None);
        let blocks = shown.iter().flat_map(|segment| &segment.blocks);
        let mut blocks: Vec<_> =
            blocks.map(|block| (block.address, block.size, block.requested_size, block.state.name())).collect();
        blocks.sort_unstable();
        same("blocks", &blocks, &self.naive.shown())?;
        same("segments", self.driver.memory().segments(), &self.naive.held)?;
        same("events", self.driver.events().recorded(), &self.naive.recorded)?;
        for pool in POOLS {
            let uses = self.naive.private.get(&pool).map_or(0, |private| private.uses);
            same("uses", &self.allocator.pool_use_count(DEVICE, pool), &Ok(uses))?;
        }
        Ok(())
    }
}

/// A way without options and changes.
const PLAIN: Way = Way { options: 0, look_each: 1, other_hand: 0, changes: false };

impl Duel<'_> {
    fn alloc(&mut self, stream: usize, bytes: u64) -> u64 {
        self.both(Step::Alloc { stream, bytes }, false, 1).unwrap()
    }
}

/// Every stat there is.
struct Stats<'a> {
    all: Vec<&'a mut Stat>,
    single: [&'a mut Stat; 2],
}

fn leaves(stats: &mut DeviceStats) -> Stats<'_> {
    let families = [
        &mut stats.allocation,
        &mut stats.segment,
        &mut stats.active,
        &mut stats.inactive_split,
        &mut stats.allocated_bytes,
        &mut stats.reserved_bytes,
        &mut stats.active_bytes,
        &mut stats.inactive_split_bytes,
        &mut stats.requested_bytes,
    ];
    let mut all = Vec::new();
    for StatByPool { all: both, small_pool, large_pool } in families {
        all.extend([both, small_pool, large_pool]);
    }
    Stats { all, single: [&mut stats.oversize_allocations, &mut stats.oversize_segments] }
}

fn ways() -> impl Strategy<Value = Way> {
    (0..OPTIONS.len(), prop::sample::select(vec![1, 3, 10, 1000]), 0..=8_u16, any::<bool>())
        .prop_map(|(options, look_each, other_hand, changes)| Way { options, look_each, other_hand, changes })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_script_goes_as_the_naive_allocator_says(
        way in ways(),
        script in prop::collection::vec(any::<Quad>(), 0..250),
    ) {
        let fought = duel(way, &script);
        prop_assert!(fought.is_ok(), "{:?}", fought);
    }
}

/// The same for fixed seeds, so that a run repeats the one before.
#[test]
fn seeded_scripts_go_as_the_naive_allocator_says() {
    const SEEDS: u64 = 160;
    let mut reached = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut random = random(seed);
        let way = Way {
            options: random.random_range(0..OPTIONS.len()),
            look_each: *[1, 3, 10, 1000].choose(&mut random).unwrap(),
            other_hand: random.random_range(0..=8),
            changes: random.random(),
        };
        let script: Vec<Quad> = (0..400).map(|_| random.random()).collect();
        match duel(way, &script) {
            Ok(more) => reached.extend(more),
            Err(difference) => panic!("seed {seed}, {way:?}: {difference}"),
        }
    }
    println!("{SEEDS} scripts: {reached:?}");
    assert_eq!(reached.len(), 16, "not everything has happened: {reached:?}");
}

/// Memory of one stream, freed by another thread, becomes a part of its segment; then a part of another stream's
/// segment goes. The first made a peak.
#[test]
fn remote_frees_make_peaks_in_their_order() {
    fight(PLAIN, |duel| {
        let whole = duel.alloc(16, 1000);
        let (hole, _rest) = (duel.alloc(0, 1000), duel.alloc(0, 1000));
        duel.both(Step::Free(hole), true, 1).unwrap();
        duel.both(Step::Free(whole), true, 1).unwrap();
        assert_eq!(duel.look(), Ok(()));
    });
}

/// The first request of a stream finds no memory, and is a search of its pool like any other: what was freed before it
/// is older than what was freed after it.
#[test]
fn the_first_search_of_a_stream_counts() {
    let way = Way { options: OPTIONS.iter().position(|options| options.contains("threshold:0.6")).unwrap(), ..PLAIN };
    fight(way, |duel| {
        duel.naive.limit = Some(100 * MIB);
        duel.allocator.set_limit(DEVICE, duel.naive.limit).unwrap();
        let (older, newer) = (duel.alloc(0, 22 * MIB), duel.alloc(0, 20 * MIB));
        duel.both(Step::Free(older), false, 1).unwrap();
        duel.alloc(16, 3 * MIB);
        duel.both(Step::Free(newer), false, 1).unwrap();
        duel.alloc(32, 30 * MIB);
        assert_eq!(duel.look(), Ok(()));
    });
}

/// Of two threads that free the same memory at the same time one is refused, whichever comes first.
#[test]
fn memory_is_freed_by_one_thread() {
    fight(PLAIN, |duel| {
        for other in [false, true, false] {
            let address = duel.alloc(0, 1000);
            let shared = &duel.allocator.shared;
            let place = shared.pages.find(address).unwrap();
            let shard = shared.shard(place.shard).unwrap();
            assert!(place.free_remotely(shard.remote_frees()), "as another thread would");
            duel.allocator.devices[0].cache.remote_frees.set(shard.flag());
            assert!(!place.withdraw() && !place.free_remotely(shard.remote_frees()));
            duel.naive.free(address).unwrap();
            assert_eq!(duel.both(Step::Free(address), other, 1), Ok(0), "refused on both sides");
            assert_eq!(duel.look(), Ok(()));
        }
    });
}

/// A reading, then a reset that touches no shard, then a reading.
#[test]
fn a_reset_shows_in_the_next_reading() {
    let way = Way { options: 0, look_each: 1, other_hand: 0, changes: true };
    let fought = duel(way, &[[762, 10074, 0, 0], [37691, 0, 47228, 0]]);
    assert!(fought.is_ok(), "{fought:?}");
}
