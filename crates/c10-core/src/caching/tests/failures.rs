//! What goes wrong: requests that are refused, each call of the driver failing once, random scripts with failing calls.

use std::collections::BTreeSet;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::error::DeviceError;
use crate::base::error::Error;
use crate::base::error::MemoryError;
use crate::base::handles::StreamRef;
use crate::caching::tests::scripts::{Bench, on};

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let bench = Bench::with(64 << 30, "");
    let Bench { driver, allocator, .. } = &bench;
    assert_eq!(allocator.alloc(driver, on(0), 0), Ok(0));
    assert_eq!(allocator.free(driver, 0), Ok(()));
    assert_eq!(allocator.record_stream(0, on(0)), Ok(()));
    let unknown = Error::Memory(MemoryError::InvalidPointer { address: 12345 });
    assert_eq!(unknown.to_string(), "invalid device pointer: 0x3039");
    assert_eq!(allocator.free(driver, 12345), Err(unknown.clone()));
    assert_eq!(allocator.record_stream(12345, on(0)), Err(unknown));
    let error = allocator.alloc(driver, on(0), 1 << 60).unwrap_err();
    assert_eq!(error.to_string(), "CUDA out of memory. Tried to allocate more than 1EB memory.");
    let address = allocator.alloc(driver, on(0), 100).unwrap();
    assert_eq!(allocator.free(driver, address), Ok(()));
    assert_eq!(allocator.free(driver, address), Err(Error::Memory(MemoryError::InvalidPointer { address })));
    let other = StreamRef { device: DeviceIndex(5), ..on(0) };
    assert_eq!(allocator.alloc(driver, other, 100), Err(Error::Device(DeviceError::InvalidId)));
}

const TOUR: &str = "a 1 5e6, a 2 1000, a 3@16 3e6, r 1 16, r 1 32, r 2 16, f 1, a 4 2e6, done 16, f 2, a 5 5e6, \
     begin, a 6@100 4e6, r 6 101, r 4 16, at 100 1, at 101 2, f 6, f 4, edge 3 1 2, at 100 3, a 7@100 100, end, \
     a 8 100, done 32, done 16, e, f 3, a 9 30e6, a 10 80e6, f 5, f 7, f 8, f 9, release, e, done 16, done 32, e";

/// Every call fails once, at each place where the tour makes it: the books balance after each step, and when the
/// driver works again everything can be given back.
#[test]
fn any_driver_call_may_fail() {
    let (mut points, mut failed) = (0, BTreeSet::new());
    for options in OPTIONS {
        points += fail_each_call(options, &mut failed);
    }
    println!("failed {points} calls of {failed:?}");
    // Events are destroyed only at the end, when failures are passed over.
    assert_eq!(failed.len(), 23, "not every function of the driver has failed: {failed:?}");
    assert!(points > 150, "only {points} calls failed");
}

/// Option mixes that change what the allocator decides.
const OPTIONS: [&str; 6] = [
    "",
    "backend:elastic",
    "graph_capture_record_stream_reuse:True",
    "expandable_segments:True",
    "max_split_size_mb:20,garbage_collection_threshold:0.3",
    "expandable_segments:True,roundup_power2_divisions:4,max_split_size_mb:32,garbage_collection_threshold:0.5",
];

fn fail_each_call(options: &str, failed: &mut BTreeSet<&'static str>) -> u64 {
    let new = || {
        let bench = Bench::with(100_000_000, options);
        bench.allocator.set_limit(DeviceIndex(0), Some(99_000_000)).unwrap();
        bench
    };
    let mut probe = new();
    TOUR.split(',').for_each(|step| drop(probe.step(step)));
    let calls = probe.driver.calls().made();
    assert!(calls > 30, "the tour makes only {calls} calls");
    for failing in 1..=calls {
        let mut bench = new();
        bench.driver.calls().fail(failing);
        let mut errors = 0;
        for step in TOUR.split(',') {
            errors += usize::from(bench.step(step).is_err());
        }
        bench.driver.calls().fail_none();
        failed.extend(bench.driver.calls().take_failed());
        for name in bench.held.keys().cloned().collect::<Vec<_>>() {
            bench.run(&format!("f {name}"));
        }
        let _ = bench.step("release");
        [16, 32, 101].into_iter().for_each(|stream| bench.driver.pass(stream));
        bench.run("e, e");
        assert_eq!(bench.driver.memory().used(), 0, "call {failing} failed, {errors} errors: memory is left");
        bench.allocator.dismantle(&bench.driver);
        assert_eq!(bench.driver.events().live_count(), 0, "call {failing} failed: events are left");
        assert_eq!(bench.driver.memory().pages.range_count(), 0, "call {failing} failed: ranges are left");
    }
    calls
}

/// Random scripts with failing calls: the books balance after each step, and no two live blocks overlap.
#[test]
fn random_scripts_keep_the_books() {
    for seed in 0..200 {
        let mut random = random(seed);
        let mut bench = Bench::with(200_000_000, OPTIONS[usize::try_from(seed % 6).unwrap()]);
        bench.allocator.set_limit(DeviceIndex(0), (seed % 3 == 0).then_some(150_000_000)).unwrap();
        let mut scoped = false;
        for at in 0..150 {
            if random.random_ratio(1, 10) {
                bench.driver.calls().fail(random.random_range(1..=4));
            } else {
                bench.driver.calls().fail_none();
            }
            let Some(step) = random_step(&mut random, at, &bench, scoped) else { continue };
            let worked = bench.step(&step).is_ok();
            match step.as_str() {
                "begin" if worked => scoped = true,
                "end" if worked => {
                    scoped = false;
                    bench.run("release");
                }
                _ => {}
            }
            let mut end = 0;
            for address in bench.held.values().collect::<BTreeSet<_>>() {
                assert!(*address >= end, "seed {seed}: live blocks overlap after {step}");
                end = address + bench.sizes[address];
            }
        }
    }
}

/// A step that may be taken, or none.
fn random_step(random: &mut Pcg32, at: u32, bench: &Bench, scoped: bool) -> Option<String> {
    const BYTES: [u64; 8] = [1, 600, 5000, 900_000, 1_500_000, 5_000_000, 12_000_000, 40_000_000];
    let stream = [0, 0, 0, 16, 32, 100, 101].choose(random).unwrap();
    let bytes = BYTES.choose(random).unwrap() + random.random_range(0..512);
    let held = |position| bench.held.keys().nth(position).map_or("none", String::as_str);
    Some(match random.random_range(0..12) {
        0..=4 if !bench.held.contains_key(&at.to_string()) => format!("a {at}@{stream} {bytes}"),
        5..=7 => format!("f {}", held(random.random_range(0..30))),
        8 => format!("r {} {stream}", held(0)),
        9 => format!("done {stream}"),
        10 if random.random_ratio(1, 4) => "e".to_owned(),
        11 => if scoped { "end" } else { "begin" }.to_owned(),
        _ => return None,
    })
}
