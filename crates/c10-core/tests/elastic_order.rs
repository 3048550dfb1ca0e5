//! The order of work on pages that move, on a simulated machine that notices what hardware lets pass: memory that two
//! streams use by two addresses at once, and mappings that go too early. With the allocator's waits it notices nothing,
//! whatever the seed; without them it does.
#![expect(clippy::print_stdout, reason = "how many programs were run, and what they showed, is a result")]

mod common;

use std::collections::BTreeMap;
use std::ops::Range;

use c10_core::{DeviceBuffer, Result, Stream};
use common::{DEVICE, Rig, config};
use cuda_sim::{Fault, ReportKind};
use cuda_sys::CUresult;

const MIB: usize = 1 << 20;
const PAGE: usize = 2 * MIB;

/// The next of a row of numbers that follows from the first.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 40).expect("24 bits")
}

/// A buffer of which 512 bytes in each page are written, so that a page that is used twice is seen.
struct Paged {
    buffer: DeviceBuffer,
    byte: u8,
}

impl Paged {
    fn offsets(&self) -> impl Iterator<Item = usize> {
        (0..self.buffer.len() - 512).step_by(PAGE)
    }

    fn new(rig: &Rig, len: usize, byte: u8, stream: &Stream) -> Result<Self> {
        let paged = Self { buffer: rig.runtime.memory().buffer(len, stream)?, byte };
        paged.touch(stream)?;
        Ok(paged)
    }

    fn touch(&self, stream: &Stream) -> Result<()> {
        self.offsets().try_for_each(|at| self.buffer.fill(at..at + 512, self.byte, stream))
    }

    fn is_whole(&self) -> bool {
        let mut found = [0; 512];
        self.offsets().all(|at| self.buffer.copy_to_slice(at, &mut found).is_ok() && found == [self.byte; 512])
    }
}

/// Random buffers on several streams, used by others too, in a cache that is emptied now and then; what is live is read
/// at the end: whether all of it was as it was written. `scale` makes buffers larger.
fn program(rig: &Rig, streams: &[Stream], seed: u64, scale: usize) -> Result<bool> {
    let (mut state, mut live) = (seed.wrapping_mul(77) + 1, BTreeMap::new());
    for step in 0..40 {
        let stream = &streams[next(&mut state) % streams.len()];
        let held = live.keys().nth(next(&mut state) % live.len().max(1)).copied();
        match (next(&mut state) % 40, held) {
            (0..=19, _) | (_, None) => {
                let len = [PAGE, 2 * PAGE, 3 * PAGE, 3 * MIB][next(&mut state) % 4] * scale;
                live.insert(step, Paged::new(rig, len, u8::try_from(step).expect("below 256"), stream)?);
            }
            (20..=33, Some(key)) => drop(live.remove(&key)),
            (34..=36, Some(key)) => {
                // Another stream may use it only after the work before, which the host waits for.
                rig.runtime.synchronize(DEVICE)?;
                live[&key].touch(stream)?;
                live[&key].buffer.record_stream(stream)?;
            }
            (37, _) => rig.runtime.memory().empty_cache()?,
            _ => stream.synchronize()?,
        }
    }
    rig.runtime.synchronize(DEVICE)?;
    Ok(live.values().all(Paged::is_whole))
}

/// How a program under a seed goes when some of the allocator's calls are answered without being made: whether all was
/// as it was written, and what the machine noticed.
fn played(seed: u64, scale: usize, skipped: &[&'static str]) -> (Result<bool>, Vec<ReportKind>, u64) {
    let rig = Rig::new(config().seed(seed).late_events(true).capacity(1 << 30));
    rig.runtime.memory().set_settings("backend:elastic").expect("the backend is known");
    let streams = [
        rig.stream(),
        rig.stream(),
        rig.stream(),
        rig.runtime.streams().default(DEVICE).expect("the machine has a device"),
    ];
    for call in skipped {
        let skip = |occurrence| rig.machine.inject(Fault { call, occurrence, code: CUresult::CUDA_SUCCESS });
        (1..400).for_each(skip);
    }
    let whole = program(&rig, &streams, seed, scale);
    rig.machine.clear_faults();
    assert_eq!(rig.runtime.inconsistency(), None, "seed {seed}");
    let kinds = rig.machine.take_reports().iter().map(|report| report.kind).collect();
    (whole, kinds, rig.runtime.memory().stats(DEVICE).expect("the machine has a device").pages_moved)
}

/// Random programs under these seeds.
fn in_order(seeds: Range<u64>) {
    let (count, mut moved) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        let (whole, reports, moves) = played(seed, 1, &[]);
        assert_eq!((whole, reports), (Ok(true), Vec::new()), "seed {seed}");
        moved += moves;
    }
    println!("{count} programs moved {moved} pages, all behind the work at their old places");
    assert!(moved > 10 * count, "{moved}");
}

// A thousand programs, side by side.

#[test]
fn no_page_is_used_before_the_work_at_its_old_place_is_done() {
    in_order(0..250);
}

#[test]
fn nor_in_the_second_quarter() {
    in_order(250..500);
}

#[test]
fn nor_in_the_third() {
    in_order(500..750);
}

#[test]
fn nor_in_the_last() {
    in_order(750..1000);
}

#[test]
fn the_wait_left_out_is_noticed() {
    const SEEDS: u64 = 100;
    let (mut noticed, mut overwritten) = (0, 0);
    for seed in 0..SEEDS {
        let (whole, reports, _) = played(seed, 1, &["cuStreamWaitEvent"]);
        noticed += u64::from(reports.contains(&ReportKind::UnorderedMappings));
        overwritten += u64::from(whole == Ok(false));
    }
    println!("{SEEDS} programs without waits: {noticed} are reported, {overwritten} lose what was written");
    assert!(noticed > SEEDS / 2, "only {noticed} were noticed");
    assert!(overwritten > 0 && overwritten <= noticed, "{overwritten} of {noticed}");
}

#[test]
fn a_mapping_that_is_dropped_too_early_is_noticed() {
    const SEEDS: u64 = 30;
    // Old mappings are dropped by many at a time, so buffers are large.
    for (call, scale) in [("cuEventQuery", 5), ("cuStreamSynchronize", 1)] {
        let early = |seed: &u64| played(*seed, scale, &[call]).1.contains(&ReportKind::UnmappedWhilePending);
        let noticed = (0..SEEDS).filter(early).count();
        println!("{SEEDS} programs without answers of {call}: {noticed} are reported");
        assert!(noticed > 0, "{call}");
    }
}
