//! The rule of the elastic backend beside a plain count of pages: a request is served whenever free pages suffice.
//!
//! Free pages are those that the device has left under the limit, mapped pages behind no address, and whole pages of
//! ranges that may release them. While no scope is open, all pages without a live block are free, since the cache is
//! released before a request fails. While a scope is open, pages of private pools are not free, and a stream that is
//! capturing gets only pages that were never used. The native backend runs the same requests: where it refuses although
//! fewer bytes are live than the limit allows, the reason is fragmentation.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::handles::PageHandle;
use crate::caching::tests::scripts::Bench;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;
const CAPACITY: u64 = 128 * MIB;
const STREAMS: [usize; 4] = [0, 0, 16, 32];
/// A stream that captures.
const CAPTURED: usize = 100;
const BYTES: [u64; 6] = [600, 200_000, 1_500_000, 5_000_000, 12_000_000, 30_000_000];

/// A step of a script, by what it is drawn from.
type Drawn = (u8, u8, u16);

/// What happened in scripts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    served: u64,
    /// Refused by both backends.
    refused: u64,
    /// Served here and refused by the native backend for fragmentation.
    saved: u64,
}

/// The elastic backend, and the native one beside it.
struct Duel {
    elastic: Bench,
    native: Bench,
    budget: u64,
    scoped: bool,
    /// A pool that was released is used no more.
    was_scoped: bool,
    /// Pages that private pools have taken.
    private: BTreeSet<PageHandle>,
    counts: Counts,
}

impl Duel {
    fn new(limit: Option<u64>) -> Self {
        let new = |options| {
            let bench = Bench::with(CAPACITY, options);
            bench.allocator.set_limit(DeviceIndex(0), limit).unwrap();
            bench
        };
        Self {
            elastic: new("backend:elastic"),
            native: new(""),
            budget: limit.unwrap_or(CAPACITY),
            scoped: false,
            was_scoped: false,
            private: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// The pages that a held name lies in.
    fn pages_of(&self, name: &str) -> BTreeSet<PageHandle> {
        let (address, memory) = (self.elastic.held[name], self.elastic.driver.memory());
        let end = address + self.elastic.sizes[&address];
        let places = (address / PAGE..end.div_ceil(PAGE)).map(|page| (page * PAGE).max(address));
        places.map(|place| memory.pages.usable_at(place).expect("live memory has pages")).collect()
    }

    /// How many pages are free for a request of a stream.
    fn free_pages(&self, stream: usize) -> u64 {
        let budget = self.budget / PAGE;
        if stream == CAPTURED {
            return budget - self.elastic.driver.memory().used() / PAGE;
        }
        let mut used: BTreeSet<PageHandle> = self.elastic.held.keys().flat_map(|name| self.pages_of(name)).collect();
        if self.scoped {
            let memory = self.elastic.driver.memory();
            used.extend(self.private.iter().filter(|page| memory.pages.is_live(**page)));
        }
        budget - used.len() as u64
    }

    /// Both do a step that works on both.
    fn both(&mut self, step: &str) {
        self.elastic.step(step).unwrap();
        self.native.step(step).unwrap();
    }

    fn alloc(&mut self, name: &str, stream: usize, bytes: u64) -> std::result::Result<(), String> {
        let free = self.free_pages(stream);
        let step = format!("a {name}@{stream} {bytes}");
        let (ours, native) = (self.elastic.step(&step), self.native.step(&step));
        let needed = bytes.next_multiple_of(512).div_ceil(PAGE);
        match &ours {
            Ok(()) => self.counts.served += 1,
            Err(error) if !error.is_out_of_memory() => return Err(format!("{step}: {error:?}")),
            Err(_) if needed <= free => return Err(format!("{step}: refused, and {free} pages are free")),
            Err(_) => self.counts.refused += u64::from(native.is_err()),
        }
        if ours.is_ok() && stream == CAPTURED {
            let pages = self.pages_of(name);
            self.private.extend(pages);
        }
        let live: u64 = self.native.held.values().map(|address| self.native.sizes[address]).sum();
        self.counts.saved += u64::from(ours.is_ok() && native.is_err() && live + bytes <= self.budget);
        Ok(())
    }

    fn free(&mut self, name: &str) {
        self.both(&format!("f {name}"));
    }

    fn step(&mut self, at: usize, (kind, which, size): Drawn) -> std::result::Result<(), String> {
        let held: BTreeSet<&String> = self.elastic.held.keys().chain(self.native.held.keys()).collect();
        let name = held.iter().nth(usize::from(which) % held.len().max(1)).map(|name| (*name).clone());
        match (kind % 32, name) {
            (0..=15, _) | (_, None) => {
                let capture = self.scoped && which % 3 == 0;
                let stream = if capture { CAPTURED } else { STREAMS[usize::from(which) % STREAMS.len()] };
                let bytes = BYTES[usize::from(size) % BYTES.len()] + u64::from(size) * 7;
                self.alloc(&format!("{at:03}"), stream, bytes)?;
            }
            (16..=25, Some(name)) => self.free(&name),
            (26 | 27, Some(name)) => self.both(&format!("r {name} {}", STREAMS[usize::from(size) % STREAMS.len()])),
            (28, _) => self.both(&format!("done {}", STREAMS[usize::from(size) % STREAMS.len()])),
            (29, _) => self.both("e"),
            (30, _) if !self.was_scoped => {
                self.both("begin");
                (self.scoped, self.was_scoped) = (true, true);
            }
            (31, _) if self.scoped => {
                self.both("end");
                self.both("release");
                self.scoped = false;
            }
            _ => {}
        }
        Ok(())
    }
}

fn play(limited: bool, script: &[Drawn]) -> std::result::Result<Counts, String> {
    let mut duel = Duel::new(limited.then_some(101 * MIB));
    script.iter().enumerate().try_for_each(|(at, drawn)| duel.step(at, *drawn))?;
    Ok(duel.counts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_request_is_served_if_free_pages_suffice(
        limited in any::<bool>(),
        script in prop::collection::vec(any::<Drawn>(), 0..150),
    ) {
        let played = play(limited, &script);
        prop_assert!(played.is_ok(), "{:?}", played);
    }
}

/// The same for fixed seeds, counted.
#[test]
fn what_native_refuses_for_fragmentation_is_served() {
    const SEEDS: u64 = 200;
    let mut all = Counts::default();
    for seed in 0..SEEDS {
        let mut random = random(seed);
        let script: Vec<Drawn> = (0..200).map(|_| random.random()).collect();
        match play(seed % 2 == 0, &script) {
            Ok(counts) => {
                all.served += counts.served;
                all.refused += counts.refused;
                all.saved += counts.saved;
            }
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
    }
    println!("{SEEDS} scripts: {all:?}");
    assert!(all.saved > 100 && all.refused > 100, "{all:?}");
}
