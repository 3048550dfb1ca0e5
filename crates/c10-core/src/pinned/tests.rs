//! The pinned allocator against a driver made of numbers: every figure beside a naive model, failures of every call,
//! captures, options, threads.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use super::{BlockId, HostStats};
use crate::base::config::AllocatorConfig;
use crate::base::error::Result;
use crate::base::stat::Stat;
use crate::driver::HostDriver;
use crate::pinned::cache::{PinnedCache, Released};
use crate::pinned::model::{DEVICE, Model, stream};

fn config(text: &str) -> AllocatorConfig {
    AllocatorConfig::default().parse(text).unwrap()
}

fn cache() -> PinnedCache {
    PinnedCache::new(&AllocatorConfig::default())
}

fn alloc(cache: &PinnedCache, driver: &Model, bytes: usize) -> BlockId {
    cache.alloc(driver, || DEVICE, bytes).unwrap().0
}

fn release(cache: &PinnedCache, driver: &Model, block: BlockId) -> Released {
    let released = cache.release_if_unused((block, cache.block(block)));
    if released == Released::Waits {
        cache.wait_for_streams(Some(driver), block);
    }
    released
}

fn address(cache: &PinnedCache, block: BlockId) -> usize {
    cache.memory(block, 1).address()
}

fn stat(current: i64, peak: i64, allocated: i64, freed: i64) -> Stat {
    Stat { current, peak, allocated, freed }
}

/// Numbers that look random and follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap()
    }
}

#[test]
fn blocks_are_rounded_up_and_cached() {
    let (cache, driver) = (cache(), Model::default());
    let block = alloc(&cache, &driver, 3000);
    let first = address(&cache, block);
    assert_eq!(driver.state().memory[&first], (4096, false));
    assert_eq!(release(&cache, &driver, block), Released::Cached);
    let calls = driver.state().calls;
    for bytes in [2049, 4096, 3000] {
        let again = alloc(&cache, &driver, bytes);
        assert_eq!(address(&cache, again), first);
        let _ = release(&cache, &driver, again);
    }
    assert_eq!(driver.state().calls, calls, "neither a hit nor giving back calls the driver");
    let stats = cache.stats();
    assert_eq!((stats.num_host_alloc, stats.num_host_free), (1, 0));
    assert_eq!((stats.allocations, stats.allocated_bytes), (stat(1, 1, 1, 0), stat(4096, 4096, 4096, 0)));
    assert_eq!((stats.active_requests, stats.active_bytes), (stat(0, 1, 4, 4), stat(0, 4096, 16384, 16384)));
    cache.empty(&driver).unwrap();
    assert!(driver.state().memory.is_empty());
    let stats = cache.stats();
    assert_eq!((stats.num_host_free, stats.host_free_time.count), (1, 1));
    assert_eq!((stats.allocations, stats.allocated_bytes), (stat(0, 1, 1, 1), stat(0, 4096, 4096, 4096)));
}

#[test]
fn resets_leave_what_is() {
    let (cache, driver) = (cache(), Model::default());
    let (first, second) = (alloc(&cache, &driver, 100), alloc(&cache, &driver, 100));
    let _ = release(&cache, &driver, second);
    cache.reset_accumulated_stats();
    let stats = cache.stats();
    assert_eq!((stats.active_requests, stats.allocations), (stat(1, 2, 0, 0), stat(2, 2, 0, 0)));
    assert_eq!((stats.num_host_alloc, stats.host_alloc_time.count, stats.host_alloc_time.total), (0, 0, 0));
    cache.reset_peak_stats();
    let stats = cache.stats();
    assert_eq!((stats.active_bytes, stats.allocated_bytes), (stat(128, 128, 0, 0), stat(256, 256, 0, 0)));
    assert_eq!((stats.host_alloc_time.max, stats.host_alloc_time.min), (0, 0));
    let _ = release(&cache, &driver, first);
    assert_eq!(cache.stats().active_requests, stat(0, 1, 0, 1));
}

#[test]
fn a_block_waits_for_every_stream_and_for_no_other_block() {
    let (cache, driver) = (cache(), Model::default());
    let (slow, quick) = (alloc(&cache, &driver, 100), alloc(&cache, &driver, 100));
    cache.record_stream(slow, stream(1));
    cache.record_stream(slow, stream(2));
    cache.record_stream(slow, stream(2));
    cache.record_stream(quick, stream(2));
    assert_eq!((release(&cache, &driver, slow), release(&cache, &driver, quick)), (Released::Waits, Released::Waits));
    assert_eq!((driver.state().pending.len(), cache.stats().active_requests.current), (3, 2));
    driver.pass(stream(2));
    assert_eq!(alloc(&cache, &driver, 100), quick, "the first block's other stream keeps the first block only");
    assert_ne!(alloc(&cache, &driver, 100), slow);
    driver.pass(stream(1));
    assert_eq!(alloc(&cache, &driver, 100), slow);
    assert_eq!((driver.state().events.len(), cache.stats().active_requests.current), (3, 3));
    cache.record_stream(slow, stream(3));
    assert_eq!(release(&cache, &driver, slow), Released::Waits);
    assert_eq!(driver.state().events.len(), 3, "events are used again");
    assert_eq!(cache.inconsistency(), None);
}

#[test]
fn the_last_owner_gives_a_block_back() {
    let (cache, driver) = (cache(), Model::default());
    let block = alloc(&cache, &driver, 100);
    cache.share(block);
    cache.share(block);
    assert_eq!(
        (release(&cache, &driver, block), release(&cache, &driver, block)),
        (Released::Shared, Released::Shared)
    );
    assert_ne!(alloc(&cache, &driver, 100), block);
    cache.record_stream(block, stream(1));
    assert_eq!(cache.release_if_unused((block, cache.block(block))), Released::Waits);
    cache.wait_for_streams::<Model>(None, block);
    assert!(driver.state().pending.is_empty(), "nothing was called");
    assert_ne!(alloc(&cache, &driver, 100), block, "now the event is recorded");
    assert_eq!(driver.state().pending.len(), 1);
    driver.pass(stream(1));
    assert_eq!(alloc(&cache, &driver, 100), block);
}

#[test]
fn addresses_are_looked_up() {
    let (cache, driver) = (cache(), Model::default());
    let block = alloc(&cache, &driver, 1000);
    let begin = address(&cache, block);
    assert!(!cache.record_address(begin - 1, stream(1)) && !cache.record_address(begin + 1024, stream(1)));
    assert!(!cache.record_address(0, stream(1)));
    assert!(cache.record_address(begin + 1023, stream(1)));
    assert_eq!(release(&cache, &driver, block), Released::Waits);
    assert!(!cache.record_address(begin, stream(1)), "nobody has it");
}

#[test]
fn captures_are_neither_spoilt_nor_asked() {
    let (cache, driver) = (cache(), Model::default());
    let (before, during) = (alloc(&cache, &driver, 100), alloc(&cache, &driver, 100));
    cache.record_stream(before, stream(1));
    cache.record_stream(during, stream(1));
    let _ = release(&cache, &driver, before);
    driver.state().capturing.insert(stream(1));
    driver.state().global_capture = true;
    assert_eq!(release(&cache, &driver, during), Released::Waits);
    assert_eq!(driver.state().pending.len(), 1, "no event goes into the capture");
    driver.pass(stream(1));
    assert_eq!(alloc(&cache, &driver, 100), before, "work from before the capture is done");
    let new = alloc(&cache, &driver, 100);
    assert!(new != before && new != during);
    cache.empty(&driver).unwrap();
    driver.state().capturing.clear();
    driver.state().global_capture = false;
    assert_ne!(alloc(&cache, &driver, 100), during, "now its event is recorded");
    driver.pass(stream(1));
    assert_eq!(alloc(&cache, &driver, 100), during);
    assert_eq!(cache.inconsistency(), None);
}

#[test]
fn registered_memory_goes_back_as_it_came() {
    let (cache, driver) = (cache(), Model::default());
    let plain = alloc(&cache, &driver, 5000);
    cache.set_config(&config("pinned_use_cuda_host_register:True,pinned_num_register_threads:8"));
    let registered = alloc(&cache, &driver, 5000);
    assert_eq!(driver.state().threads, [8]);
    cache.set_config(&config(""));
    let _ = (release(&cache, &driver, plain), release(&cache, &driver, registered));
    cache.empty(&driver).unwrap();
    assert!(driver.state().memory.is_empty());
    assert_eq!((cache.stats().num_host_alloc, cache.stats().num_host_free), (2, 2));
}

#[test]
fn a_reserved_segment_is_made_once_and_used_up() {
    let (cache, driver) = (PinnedCache::new(&config("pinned_reserve_segment_size_mb:1")), Model::default());
    let blocks: Vec<BlockId> = [1, 5000, 500_000].map(|bytes| alloc(&cache, &driver, bytes)).into();
    assert_eq!(driver.state().memory.len(), 1);
    let base = *driver.state().memory.keys().next().unwrap();
    let addresses: Vec<usize> = blocks.iter().map(|block| address(&cache, *block) - base).collect();
    assert_eq!(addresses, [0, 4096, 4096 + 8192]);
    let outside = alloc(&cache, &driver, 500_000);
    assert_eq!((driver.state().memory.len(), cache.stats().num_host_alloc), (2, 2));
    assert_eq!(cache.stats().allocated_bytes.current, 1 + 8192 + 2 * (1 << 19));
    blocks.iter().for_each(|block| assert_eq!(release(&cache, &driver, *block), Released::Cached));
    let _ = release(&cache, &driver, outside);
    cache.empty(&driver).unwrap();
    assert_eq!((driver.state().memory.len(), cache.stats().allocations.current), (1, 3), "the segment's blocks stay");
    assert_eq!(alloc(&cache, &driver, 400_000), blocks[2]);
    let _ = release(&cache, &driver, blocks[2]);
    assert_eq!(cache.inconsistency(), None);
    cache.dismantle(&driver);
    assert!(driver.state().memory.is_empty());
}

/// Blocks that wait for streams are waited for before a request fails; otherwise a second request would succeed.
#[test]
fn blocks_in_use_by_streams_are_waited_for_before_there_is_none() {
    for (held, wanted) in [(8 << 10, 8 << 10), (8 << 10, 4 << 10), (4 << 10, 8 << 10)] {
        let (cache, driver) = (cache(), Model::default());
        driver.state().capacity = Some(8 << 10);
        let block = alloc(&cache, &driver, held);
        cache.record_stream(block, stream(1));
        assert_eq!(release(&cache, &driver, block), Released::Waits);
        let found = cache.alloc(&driver, || DEVICE, wanted);
        assert!(found.is_ok(), "{held} bytes waited for {wanted}: {:?}", found.map(drop));
        assert_eq!(cache.inconsistency(), None);
        // Memory in use stays unavailable, however often it is requested.
        assert!(cache.alloc(&driver, || DEVICE, 16 << 10).is_err());
    }
    let (cache, driver) = (cache(), Model::default());
    driver.state().capacity = Some(8 << 10);
    let block = alloc(&cache, &driver, 8 << 10);
    cache.record_stream(block, stream(1));
    driver.state().capturing.insert(stream(1));
    assert_eq!(release(&cache, &driver, block), Released::Waits);
    assert!(cache.alloc(&driver, || DEVICE, 8 << 10).is_err(), "its event would become a part of the graph");
    driver.state().capturing.clear();
    assert!(cache.alloc(&driver, || DEVICE, 8 << 10).is_ok());
}

#[test]
fn cached_memory_goes_back_before_there_is_none() {
    let (cache, driver) = (cache(), Model::default());
    driver.state().capacity = Some(10 << 10);
    let block = alloc(&cache, &driver, 8 << 10);
    assert_eq!(cache.alloc(&driver, || DEVICE, 4 << 10).map(|_| ()).unwrap_err().error_code(), Some(2));
    let _ = release(&cache, &driver, block);
    let smaller = alloc(&cache, &driver, 4 << 10);
    assert_eq!((cache.stats().num_host_alloc, cache.stats().num_host_free), (2, 1));
    let _ = release(&cache, &driver, smaller);
    assert_eq!(cache.inconsistency(), None);
}

#[test]
fn a_thread_of_its_own_looks_at_events() {
    // The thread may look at it for as long as the process lives.
    static CACHE: OnceLock<PinnedCache> = OnceLock::new();
    let cache = CACHE.get_or_init(|| PinnedCache::new(&config("pinned_use_background_threads:True")));
    let driver = Arc::new(Model::default());
    let block = alloc(cache, &driver, 100);
    cache.record_stream(block, stream(1));
    let _ = release(cache, &driver, block);
    cache.wake_background(|| Shared(Arc::clone(&driver)));
    assert_ne!(alloc(cache, &driver, 100), block, "whoever allocates does not ask");
    driver.pass(stream(1));
    let begin = Instant::now();
    while cache.stats().active_requests.current > 1 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody looks at the events");
        std::thread::yield_now();
    }
    assert_eq!(alloc(cache, &driver, 100), block);
    cache.set_config(&config("pinned_use_background_threads:False"));
    assert_eq!(Arc::strong_count(&driver), 1, "the thread has ended");
    cache.record_stream(block, stream(1));
    let _ = release(cache, &driver, block);
    driver.pass(stream(1));
    assert_eq!(alloc(cache, &driver, 100), block, "now whoever allocates asks");
}

/// The model as a thread of its own has it.
struct Shared(Arc<Model>);

impl crate::driver::EventQuery for Shared {
    fn query(&self, event: crate::driver::EventHandle) -> Result<bool> {
        self.0.query(event)
    }

    fn exchange_mode(&self, mode: crate::driver::CaptureMode) -> Result<crate::driver::CaptureMode> {
        self.0.exchange_mode(mode)
    }
}

/// What the allocator should do, in the plainest words.
#[derive(Default)]
struct Naive {
    free: BTreeMap<usize, Vec<usize>>,
    /// Blocks that wait: their address, size, and the streams with the number of their event.
    waiting: Vec<(usize, usize, BTreeMap<usize, u64>)>,
    queues: BTreeMap<usize, VecDeque<u64>>,
    passed: BTreeSet<u64>,
    next_event: u64,
    stats: HostStats,
}

impl Naive {
    fn alloc(&mut self, bytes: usize) -> Option<usize> {
        self.look();
        let size = bytes.next_power_of_two();
        let found = self.free.get_mut(&size).and_then(Vec::pop);
        change([&mut self.stats.active_requests, &mut self.stats.active_bytes], 1, size);
        if found.is_none() {
            change([&mut self.stats.allocations, &mut self.stats.allocated_bytes], 1, size);
            self.stats.num_host_alloc += 1;
        }
        found
    }

    fn give(&mut self, address: usize, size: usize, streams: &[usize]) {
        if streams.is_empty() {
            return self.cache(address, size);
        }
        let mut events = BTreeMap::new();
        for stream in streams {
            if !events.contains_key(stream) {
                events.insert(*stream, self.next_event);
                self.queues.entry(*stream).or_default().push_back(self.next_event);
                self.next_event += 1;
            }
        }
        self.waiting.push((address, size, events));
    }

    fn cache(&mut self, address: usize, size: usize) {
        self.free.entry(size).or_default().push(address);
        change([&mut self.stats.active_requests, &mut self.stats.active_bytes], -1, size);
    }

    fn pass(&mut self, stream: usize) {
        self.passed.extend(self.queues.get(&stream).into_iter().flatten());
    }

    /// Streams in their order, the oldest event of each first.
    fn look(&mut self) {
        for stream in self.queues.keys().copied().collect::<Vec<_>>() {
            while let Some(event) =
                self.queues.get_mut(&stream).and_then(|queue| queue.pop_front_if(|event| self.passed.contains(event)))
            {
                self.waiting.iter_mut().for_each(|(_, _, events)| events.retain(|_, other| *other != event));
                let done = self.waiting.iter().position(|(_, _, events)| events.is_empty());
                if let Some((address, size, _)) = done.map(|position| self.waiting.remove(position)) {
                    self.cache(address, size);
                }
            }
        }
    }

    fn empty(&mut self) {
        self.look();
        for (size, blocks) in std::mem::take(&mut self.free) {
            for _ in blocks {
                change([&mut self.stats.allocations, &mut self.stats.allocated_bytes], -1, size);
                self.stats.num_host_free += 1;
            }
        }
    }
}

fn change([count, bytes]: [&mut Stat; 2], by: i64, size: usize) {
    count.change(by);
    bytes.change(by * i64::try_from(size).unwrap());
}

/// Figures without the times.
fn figures(stats: &HostStats) -> HostStats {
    HostStats { host_alloc_time: Default::default(), host_free_time: Default::default(), ..*stats }
}

#[test]
fn random_scripts_agree_with_the_naive_model() {
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let (cache, driver, mut naive) = (cache(), Model::default(), Naive::default());
        let mut live: Vec<(BlockId, usize, Vec<usize>)> = Vec::new();
        for step in 0..800 {
            let context = format!("seed {seed}, step {step}");
            match numbers.below(100) {
                0..45 => {
                    let most = 1 << numbers.below(14);
                    let bytes = 1 + numbers.index(most);
                    let expected = naive.alloc(bytes);
                    let block = alloc(&cache, &driver, bytes);
                    let size = bytes.next_power_of_two();
                    if let Some(expected) = expected {
                        assert_eq!(address(&cache, block), expected, "{context}");
                    }
                    assert!(driver.state().memory[&address(&cache, block)].0 == size, "{context}");
                    live.push((block, size, Vec::new()));
                }
                45..82 if !live.is_empty() => {
                    let (block, size, streams) = live.swap_remove(numbers.index(live.len()));
                    naive.give(address(&cache, block), size, &streams);
                    let released = release(&cache, &driver, block);
                    let expected = if streams.is_empty() { Released::Cached } else { Released::Waits };
                    assert_eq!(released, expected, "{context}");
                }
                82..92 if !live.is_empty() => {
                    let (index, used) = (numbers.index(live.len()), 1 + numbers.index(3));
                    live[index].2.push(used);
                    cache.record_stream(live[index].0, stream(used));
                }
                92..97 => {
                    let done = 1 + numbers.index(3);
                    naive.pass(done);
                    driver.pass(stream(done));
                }
                97 => {
                    naive.empty();
                    cache.empty(&driver).unwrap();
                }
                98 => {
                    let stats = &mut naive.stats;
                    for stat in [
                        &mut stats.allocations,
                        &mut stats.allocated_bytes,
                        &mut stats.active_requests,
                        &mut stats.active_bytes,
                    ] {
                        stat.peak = stat.current;
                    }
                    cache.reset_peak_stats();
                }
                _ => {}
            }
            assert_eq!(figures(&cache.stats()), naive.stats, "{context}");
            assert_eq!(cache.inconsistency(), None, "{context}");
        }
        let memory: usize = driver.state().memory.values().map(|(bytes, _)| bytes).sum();
        assert_eq!(i64::try_from(memory).unwrap(), naive.stats.allocated_bytes.current, "seed {seed}");
    }
}

/// A bit of everything; goes on after errors, as a program may, and says whether there were any.
fn program(cache: &PinnedCache, driver: &Model) -> bool {
    let mut failed = false;
    let mut take = |bytes| cache.alloc(driver, || DEVICE, bytes).inspect_err(|_| failed = true).ok().map(|(id, _)| id);
    let blocks: Vec<_> = [100, 100, 5000, 1 << 20].into_iter().filter_map(&mut take).collect();
    for (number, block) in blocks.into_iter().enumerate() {
        if number > 0 {
            cache.record_stream(block, stream(number % 2));
            cache.record_stream(block, stream(2));
        }
        let _ = release(cache, driver, block);
    }
    driver.pass(stream(0));
    driver.pass(stream(2));
    let again: Vec<_> = [5000, 100, 100].into_iter().filter_map(&mut take).collect();
    for block in again {
        let _ = release(cache, driver, block);
    }
    driver.pass(stream(1));
    failed |= cache.empty(driver).is_err();
    failed
}

#[test]
fn any_call_may_fail() {
    for text in ["", "pinned_use_cuda_host_register:True", "pinned_reserve_segment_size_mb:1"] {
        let whole = Model::default();
        assert!(!program(&PinnedCache::new(&config(text)), &whole));
        let mut failed = BTreeSet::new();
        for call in 1..=whole.state().calls {
            let (cache, driver) = (PinnedCache::new(&config(text)), Model::default());
            driver.state().fails = call;
            program(&cache, &driver);
            assert_eq!(cache.inconsistency(), None, "{text}: call {call}");
            driver.state().fails = 0;
            for number in 0..3 {
                driver.pass(stream(number));
            }
            cache.sweep(&driver);
            (0..3).for_each(|number| driver.pass(stream(number)));
            cache.empty(&driver).unwrap();
            let left = if text.contains("reserve") { 1 } else { 0 };
            assert!(driver.state().memory.len() <= left, "{text}: call {call} leaks {:?}", driver.state().memory);
            let stats = cache.stats();
            assert_eq!((stats.active_requests.current, stats.active_bytes.current), (0, 0), "{text}: call {call}");
            assert!(!program(&cache, &driver), "{text}: call {call}, the second time");
            assert_eq!(cache.inconsistency(), None, "{text}: call {call}");
            cache.dismantle(&driver);
            let state = driver.state();
            assert!(state.memory.is_empty() && state.events.is_empty(), "{text}: call {call} leaves {state:?}");
            failed.extend(state.failed.iter().copied());
        }
        assert!(failed.len() >= 6, "only {failed:?} failed");
    }
}

#[test]
fn threads_share_the_cache_and_every_figure_is_exact() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 4000;
    let (cache, driver) = (cache(), Model::default());
    let owners: Vec<AtomicU64> = (0..4096).map(|_| AtomicU64::new(0)).collect();
    let (taken, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let begin = Barrier::new(usize::try_from(THREADS).unwrap());
    let work = |number: u64| {
        let mut numbers = Numbers(number);
        let mut mine: Vec<BlockId> = Vec::new();
        begin.wait();
        for _ in 0..ROUNDS {
            if mine.len() < 6 && numbers.below(2) == 0 {
                let size = 1 << numbers.below(4);
                let block = alloc(&cache, &driver, size);
                taken.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(size as u64, Ordering::Relaxed);
                let before = owners[block.0 as usize].swap(number, Ordering::AcqRel);
                assert_eq!(before, 0, "two threads have {block:?}");
                mine.push(block);
            } else if !mine.is_empty() {
                let block = mine.swap_remove(numbers.index(mine.len()));
                if numbers.below(8) == 0 {
                    cache.record_stream(block, stream(numbers.index(3)));
                }
                assert_eq!(owners[block.0 as usize].swap(0, Ordering::AcqRel), number);
                let _ = release(&cache, &driver, block);
            }
            match numbers.below(256) {
                0..32 => driver.pass(stream(numbers.index(3))),
                32 => cache.empty(&driver).unwrap(),
                33 => {
                    let stats = cache.stats();
                    assert!(stats.active_requests.peak >= stats.active_requests.current);
                    assert!(stats.active_requests.current <= stats.allocations.peak);
                }
                _ => {}
            }
        }
        for block in mine {
            owners[block.0 as usize].store(0, Ordering::Release);
            let _ = release(&cache, &driver, block);
        }
    };
    std::thread::scope(|scope| (1..=THREADS).for_each(|number| drop(scope.spawn(move || work(number)))));
    (0..3).for_each(|number| driver.pass(stream(number)));
    cache.sweep(&driver);
    assert_eq!(cache.inconsistency(), None);
    let stats = cache.stats();
    let signed = |value: &AtomicU64| i64::try_from(value.load(Ordering::Relaxed)).unwrap();
    let requests = Stat { peak: stats.active_requests.peak, ..stat(0, 0, signed(&taken), signed(&taken)) };
    assert_eq!(stats.active_requests, requests);
    assert_eq!((stats.active_bytes.allocated, stats.active_bytes.freed), (signed(&bytes), signed(&bytes)));
    assert_eq!(
        (stats.active_bytes.current, stats.allocations.current),
        (0, {
            let memory: HashSet<usize> = driver.state().memory.keys().copied().collect();
            i64::try_from(memory.len()).unwrap()
        })
    );
    assert!(stats.active_requests.peak <= i64::try_from(THREADS * 6 * 8).unwrap());
    cache.dismantle(&driver);
    assert!(driver.state().memory.is_empty() && driver.state().events.is_empty());
}

/// The peak of a phase in which threads hold a known number of blocks at once.
#[test]
fn peaks_of_several_threads_are_exact() {
    let (cache, driver) = (cache(), Model::default());
    let (all, done) = (Barrier::new(4), Barrier::new(4));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (cache, driver, all, done) = (&cache, &driver, &all, &done);
            scope.spawn(move || {
                for round in 0..200 {
                    let size = 1 << ((number + round) % 4);
                    let blocks: Vec<BlockId> = (0..5).map(|_| alloc(cache, driver, size)).collect();
                    all.wait();
                    blocks.into_iter().for_each(|block| assert_eq!(release(cache, driver, block), Released::Cached));
                    done.wait();
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!((stats.active_requests.peak, stats.active_bytes.peak), (20, 5 * (1 + 2 + 4 + 8)));
    assert_eq!(stats.active_requests, stat(0, 20, 4000, 4000));
}

#[test]
fn a_cache_can_begin_anew() {
    let (cache, driver) = (cache(), Model::default());
    for round in 0..50 {
        let (kept, used) = (alloc(&cache, &driver, 100), alloc(&cache, &driver, 5000));
        assert!(cache.is_owned());
        cache.record_stream(used, stream(1));
        let _ = (release(&cache, &driver, kept), release(&cache, &driver, used));
        assert!(!cache.is_owned());
        assert_eq!(cache.stats().active_requests, stat(1, 2, 2, 1), "round {round}");
        cache.dismantle(&driver);
        cache.restart(&AllocatorConfig::default());
        assert_eq!((cache.stats(), cache.inconsistency()), (HostStats::default(), None));
        assert!(driver.state().memory.is_empty() && driver.state().events.is_empty());
        driver.state().pending.clear();
    }
    assert!(alloc(&cache, &driver, 1).0 < 2, "numbers are used again");
    let block = alloc(&cache, &driver, 1);
    let _ = release(&cache, &driver, block);
    cache.empty(&driver).unwrap();
    assert_eq!(alloc(&cache, &driver, 5000), block);
}

#[test]
fn memory_that_another_thread_gave_back_is_found() {
    let (cache, driver) = (cache(), Model::default());
    let blocks: Vec<BlockId> = (0..50).map(|_| alloc(&cache, &driver, 100)).collect();
    std::thread::scope(|scope| {
        for part in blocks.chunks(10) {
            let (cache, driver) = (&cache, &driver);
            scope.spawn(move || {
                for block in part {
                    let _ = release(cache, driver, *block);
                }
            });
        }
    });
    assert_eq!(cache.inconsistency(), None);
    let again: BTreeSet<BlockId> = (0..50).map(|_| alloc(&cache, &driver, 100)).collect();
    assert_eq!((again, cache.stats().num_host_alloc), (blocks.into_iter().collect(), 50));
    assert_eq!(cache.stats().active_requests, stat(50, 50, 100, 50));
}

/// `HostDriver` is what the tests and the driver have in common.
#[test]
fn devices_are_asked_for_only_when_the_driver_is() {
    fn takes<D: HostDriver>(cache: &PinnedCache, driver: &D, asked: &AtomicU64) -> BlockId {
        let device = || {
            asked.fetch_add(1, Ordering::Relaxed);
            DEVICE
        };
        cache.alloc(driver, device, 10).unwrap().0
    }
    let (cache, driver, asked) = (cache(), Model::default(), AtomicU64::new(0));
    let block = takes(&cache, &driver, &asked);
    let _ = release(&cache, &driver, block);
    takes(&cache, &driver, &asked);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
