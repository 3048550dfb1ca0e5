//! Scripts: the runner that most tests here use, and what its steps mean.
//!
//! Scripts are lists of steps: `a k n` allocates n bytes as k on stream 0 (`a k@16 n` on stream 16), `f k` frees,
//! `mark` begins a step of the program, `r k s` records k on stream s, `done s` lets all events of stream s pass, `e` empties the cache, `begin` and `end`
//! route allocations of capture 7 (streams from 100 on) to private pool (1, 0), `release` gives up one use of it;
//! `at s n…` says which nodes of the capture a stream has come to, `edge n m…` which nodes one follows.
//!
//! **Invariant:** a name stands for nothing until it was allocated and after it was freed; freeing or recording nothing
//! does nothing.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::handles::{NodeHandle, StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::base::stat::Stat;

/// The pool of the steps `begin`, `end` and `release`.
pub(crate) const POOL: PoolId = PoolId(1, 0);

/// A stream of device 0.
pub(crate) fn on(stream: usize) -> StreamRef {
    StreamRef { device: DeviceIndex(0), handle: StreamHandle(stream) }
}

/// A fake driver, an allocator on it, and what a script holds.
pub(crate) struct Bench {
    pub(crate) driver: FakeDriver,
    pub(crate) allocator: CachingAllocator,
    /// Addresses by name.
    pub(crate) held: BTreeMap<String, u64>,
    /// Bytes asked for at each address, the last time it was handed out.
    pub(crate) sizes: BTreeMap<u64, u64>,
}

impl Bench {
    /// An allocator with these options, on a device with that many bytes.
    pub(crate) fn with(capacity: u64, options: &str) -> Self {
        Self {
            driver: FakeDriver::new(capacity).with_captures(Capturing::From { first: 100, id: 7 }),
            allocator: CachingAllocator::new(1, &Arc::new(AllocatorConfig::default().parse_at_start(options).unwrap())),
            held: BTreeMap::new(),
            sizes: BTreeMap::new(),
        }
    }

    /// Runs a script of steps that must all succeed.
    pub(crate) fn run(&mut self, script: &str) -> DeviceStats {
        for step in script.split(',') {
            self.step(step).unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        self.stats()
    }

    /// The figures of device 0.
    pub(crate) fn stats(&self) -> DeviceStats {
        self.allocator.stats(DeviceIndex(0)).unwrap()
    }

    /// Does one step and checks the books, whatever it answered. Checking flushes every shard.
    pub(crate) fn step(&mut self, step: &str) -> Result<()> {
        let result = self.act(step);
        assert_eq!(self.allocator.inconsistency(), None, "after {step}");
        let reserved = u64::try_from(self.stats().reserved_bytes.all.current).unwrap();
        assert_eq!(reserved, self.driver.memory().used(), "after {step}");
        result
    }

    /// Does one step and checks nothing, so that no shard is flushed.
    pub(crate) fn act(&mut self, step: &str) -> Result<()> {
        let Self { driver, allocator, held, sizes } = self;
        let nodes = |words: &[&str]| words.iter().map(|node| NodeHandle(number(node))).collect();
        match step.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["a", name, bytes] => {
                let (name, stream) = name.split_once('@').map_or((*name, 0), |(name, on)| (name, number(on)));
                let address = allocator.alloc(driver, on(stream), number(bytes) as u64)?;
                assert_eq!(held.insert(name.to_owned(), address), None);
                sizes.insert(address, number(bytes) as u64);
            }
            ["f", name] => held.remove(*name).map_or(Ok(()), |address| allocator.free(driver, address))?,
            ["r", name, stream] => {
                held.get(*name).map_or(Ok(()), |address| allocator.record_stream(*address, on(number(stream))))?;
            }
            ["done", stream] => driver.pass(number(stream)),
            ["e"] => allocator.empty_cache(driver)?,
            ["mark"] => allocator.mark_step(DeviceIndex(0))?,
            ["at", stream, at @ ..] => driver.captures().set_point(StreamHandle(number(stream)), nodes(at)),
            ["edge", node, before @ ..] => driver.captures().set_edges(NodeHandle(number(node)), nodes(before)),
            ["begin"] => {
                let filter = Filter::Capture(Arc::new(AtomicU64::new(7)));
                allocator.begin_allocate_to_pool(DeviceIndex(0), POOL, filter)?;
            }
            ["end"] => allocator.end_allocate_to_pool(DeviceIndex(0), POOL)?,
            ["release"] => allocator.release_pool(DeviceIndex(0), POOL)?,
            other => panic!("no step {other:?}"),
        }
        Ok(())
    }
}

/// Reads `5e6` and the like.
fn number(text: &str) -> usize {
    let (digits, zeros) = text.split_once('e').unwrap_or((text, "0"));
    digits.parse::<usize>().unwrap() * 10_usize.pow(zeros.parse().unwrap())
}

/// The most bytes to hold when a part of the device's memory may be held.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of the device's memory"
)]
pub(crate) fn limit(total: u64, part: f64) -> Option<u64> {
    (part < 1.0).then_some((total as f64 * part) as u64)
}

/// Both pools' current value, peak, and sums of what came and went.
pub(crate) fn figures(stat: &StatByPool) -> [i64; 4] {
    let Stat { current, peak, allocated, freed } = stat.all;
    [current, peak, allocated, freed]
}
