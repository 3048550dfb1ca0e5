//! The elastic backend when the driver fails: each call that it makes, at each place where it makes it, by several codes.
//!
//! Whatever fails: the error is the driver's or a want of memory, the books balance, the pages that the allocator counts
//! are those that the machine has given out, the same program works afterwards, and nothing is left at the end.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Error, MemPoolOptions, Result, Stream};
use common::{DEVICE, Rig, config};
use cuda_sim::{Config, Fault, LiveHandles, Machine};
use cuda_sys::CUresult;

const MIB: usize = 1 << 20;
const PAGE: i64 = 2 << 20;

/// A program, which begins and ends with nothing allocated.
struct Program {
    name: &'static str,
    capacity: usize,
    run: fn(&Rig, &[Stream; 3]) -> Result<()>,
}

const PROGRAMS: [Program; 10] = [
    Program { name: "growth", capacity: 1024, run: growth },
    Program { name: "moves within a stream", capacity: 1024, run: moves_within },
    Program { name: "moves across streams", capacity: 1024, run: moves_across },
    Program { name: "old mappings in batches", capacity: 1024, run: batches },
    Program { name: "empty_cache", capacity: 1024, run: empty },
    Program { name: "out of memory", capacity: 96, run: out_of_memory },
    Program { name: "a limit", capacity: 1024, run: limited },
    Program { name: "a pool", capacity: 1024, run: pool },
    Program { name: "a graph", capacity: 1024, run: graph },
    Program { name: "record_stream", capacity: 1024, run: recorded },
];

/// What the allocator asks the driver for.
const CALLS: [&str; 14] = [
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetInfo_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
];

const CODES: [CUresult; 3] =
    [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_INVALID_HANDLE, CUresult::CUDA_ERROR_UNKNOWN];

/// A buffer whose last bytes hold a byte.
struct Marked(DeviceBuffer, u8);

const MARK: usize = 512;

impl Marked {
    fn new(rig: &Rig, mib: usize, byte: u8, stream: &Stream) -> Result<Self> {
        Self::of(rig, mib * MIB, byte, stream)
    }

    fn of(rig: &Rig, len: usize, byte: u8, stream: &Stream) -> Result<Self> {
        let buffer = rig.runtime.memory().buffer(len, stream)?;
        buffer.fill(len - MARK..len, byte, stream)?;
        Ok(Self(buffer, byte))
    }

    fn check(&self) -> Result<()> {
        let mut found = [0; MARK];
        self.0.copy_to_slice(self.0.len() - MARK, &mut found)?;
        assert!(found == [self.1; MARK], "{} bytes were overwritten", self.0.len());
        Ok(())
    }
}

fn check_all<const N: usize>(rig: &Rig, marked: [&Marked; N]) -> Result<()> {
    rig.runtime.synchronize(DEVICE)?;
    marked.into_iter().try_for_each(Marked::check)
}

fn growth(rig: &Rig, [one, two, _]: &[Stream; 3]) -> Result<()> {
    let (first, second) = (Marked::new(rig, 3, 1, one)?, Marked::new(rig, 20, 2, one)?);
    let (third, small) = (Marked::new(rig, 5, 3, two)?, Marked::of(rig, 5000, 4, two)?);
    check_all(rig, [&first, &second, &third, &small])
}

fn moves_within(rig: &Rig, [one, ..]: &[Stream; 3]) -> Result<()> {
    let (first, between) = (Marked::new(rig, 8, 1, one)?, Marked::new(rig, 3, 2, one)?);
    let (second, after) = (Marked::new(rig, 8, 3, one)?, Marked::new(rig, 3, 4, one)?);
    drop((first, second));
    let third = Marked::new(rig, 12, 5, one)?;
    let fourth = Marked::new(rig, 14, 6, one)?;
    check_all(rig, [&between, &after, &third, &fourth])
}

fn moves_across(rig: &Rig, [one, two, three]: &[Stream; 3]) -> Result<()> {
    let (first, second) = (Marked::new(rig, 10, 1, one)?, Marked::new(rig, 8, 2, two)?);
    drop((first, second));
    let third = Marked::new(rig, 16, 3, three)?;
    let fourth = Marked::new(rig, 7, 4, one)?;
    drop(third);
    let fifth = Marked::new(rig, 12, 5, two)?;
    check_all(rig, [&fourth, &fifth])
}

/// More than what is dropped at once, and mappings whose events have not passed.
fn batches(rig: &Rig, [one, two, _]: &[Stream; 3]) -> Result<()> {
    drop((Marked::new(rig, 40, 1, one)?, Marked::new(rig, 50, 2, two)?));
    let (third, kept) = (Marked::new(rig, 84, 3, one)?, Marked::new(rig, 3, 4, two)?);
    rig.runtime.synchronize(DEVICE)?;
    let fourth = Marked::new(rig, 9, 5, one)?;
    drop(third);
    let fifth = Marked::new(rig, 70, 6, two)?;
    check_all(rig, [&kept, &fourth, &fifth])
}

fn empty(rig: &Rig, [one, two, _]: &[Stream; 3]) -> Result<()> {
    let (first, second) = (Marked::new(rig, 9, 1, one)?, Marked::new(rig, 6, 2, one)?);
    let third = Marked::new(rig, 6, 3, two)?;
    drop((first, third));
    let fourth = Marked::new(rig, 12, 4, one)?;
    rig.runtime.memory().empty_cache()?;
    check_all(rig, [&second, &fourth])?;
    drop(fourth);
    rig.runtime.memory().empty_cache()?;
    check_all(rig, [&second])
}

/// Refused for certain, and served only by what another stream and a pending block have.
fn out_of_memory(rig: &Rig, [one, two, _]: &[Stream; 3]) -> Result<()> {
    let first = Marked::new(rig, 20, 1, one)?;
    match rig.runtime.memory().buffer(90 * MIB, two) {
        Err(error) if error.is_out_of_memory() => {}
        other => return other.map(|_| panic!("more than there is was served")),
    }
    drop(Marked::new(rig, 40, 2, one)?);
    let pending = Marked::new(rig, 10, 3, one)?;
    pending.0.record_stream(two)?;
    drop(pending);
    let second = Marked::new(rig, 60, 4, two)?;
    check_all(rig, [&first, &second])
}

fn limited(rig: &Rig, [one, two, _]: &[Stream; 3]) -> Result<()> {
    // 64 MiB.
    rig.runtime.memory().set_fraction(0.0625, DEVICE)?;
    let (first, second) = (Marked::new(rig, 30, 1, one)?, Marked::new(rig, 20, 2, two)?);
    drop(first);
    let third = Marked::new(rig, 40, 3, two)?;
    check_all(rig, [&second, &third])
}

fn pool(rig: &Rig, [one, two, _]: &[Stream; 3]) -> Result<()> {
    let pools = rig.runtime.mem_pools();
    drop(Marked::new(rig, 10, 1, one)?);
    let pool = pools.create(MemPoolOptions::default())?;
    let inside = pools.with(&pool, DEVICE, || Marked::new(rig, 14, 2, two))?;
    let outside = Marked::new(rig, 6, 3, two)?;
    check_all(rig, [&inside, &outside])?;
    drop((inside, pool));
    rig.runtime.memory().empty_cache()?;
    let again = Marked::new(rig, 12, 4, one)?;
    check_all(rig, [&outside, &again])
}

fn graph(rig: &Rig, [one, two, _]: &[Stream; 3]) -> Result<()> {
    drop(Marked::new(rig, 10, 1, two)?);
    let outside = Marked::new(rig, 4, 2, one)?;
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(one, None, CaptureMode::Global, || {
        let inside = Marked::new(rig, 8, 3, one)?;
        outside.0.copy_from_buffer(0, &inside.0, (8 << 20) - MARK..8 << 20, one)
    })?;
    // It runs on the current stream, which is none of these.
    one.synchronize()?;
    graph.replay()?;
    rig.runtime.synchronize(DEVICE)?;
    let mut found = [0; MARK];
    outside.0.copy_to_slice(0, &mut found)?;
    assert!(found == [3; MARK], "the graph has not run");
    graph.reset()?;
    rig.runtime.memory().empty_cache()?;
    let after = Marked::new(rig, 16, 4, two)?;
    check_all(rig, [&after])
}

fn recorded(rig: &Rig, [one, two, three]: &[Stream; 3]) -> Result<()> {
    let first = Marked::new(rig, 12, 1, one)?;
    first.0.record_stream(two)?;
    drop(first);
    let second = Marked::new(rig, 12, 2, three)?;
    two.synchronize()?;
    let third = Marked::new(rig, 14, 3, two)?;
    check_all(rig, [&second, &third])
}

fn started(program: &Program) -> Result<(Rig, [Stream; 3])> {
    let rig = Rig::new(Config::capacity(config().late_events(true).strict(true), (program.capacity * MIB) as u64));
    rig.runtime.memory().set_settings("backend:elastic")?;
    rig.runtime.init()?;
    let streams = [rig.stream(), rig.stream(), rig.runtime.streams().default(DEVICE)?];
    rig.runtime.memory().info(DEVICE)?;
    Ok((rig, streams))
}

/// The books balance, and what they count is what the machine has given out.
fn check_books(rig: &Rig, context: &str) {
    assert_eq!(rig.runtime.inconsistency(), None, "{context}");
    let pages = i64::try_from(rig.machine.live().memory_handles).expect("few");
    assert_eq!(rig.reserved_bytes(), pages * PAGE, "{context}: reserved, and what the machine has given out");
    let stats = rig.runtime.memory().stats(DEVICE).expect("the device exists");
    let reserved = stats.reserved_bytes.all;
    assert!(
        reserved.peak
            <= i64::try_from(rig.runtime.memory().info(DEVICE).expect("the device exists").total).expect("below 2^63"),
        "{context}"
    );
    assert_eq!(reserved.allocated - reserved.freed, reserved.current, "{context}");
}

/// Runs a program while calls fail, and again while none does; whether the failure was noticed.
fn fail(program: &Program, faults: &[Fault]) -> bool {
    let context = format!("{}: {:?}", program.name, faults[0]);
    let (rig, streams) = started(program).expect("nothing fails yet");
    faults.iter().for_each(|fault| rig.machine.inject(*fault));
    let result = (program.run)(&rig, &streams);
    rig.machine.clear_faults();
    if let Err(error) = &result {
        let told = faults.iter().any(|fault| error.error_code() == Some(fault.code.0)) || error.is_out_of_memory();
        assert!(told, "{context}: {error:?}");
    }
    check_books(&rig, &context);
    rig.runtime.synchronize(DEVICE).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    rig.runtime.memory().set_fraction(1.0, DEVICE).expect("nothing fails any more");
    (program.run)(&rig, &streams).unwrap_or_else(|error| panic!("{context}, then {result:?}; then {error:?}"));
    check_books(&rig, &context);
    assert_eq!(
        rig.runtime.memory().stats(DEVICE).expect("the device exists").allocated_bytes.all.current,
        0,
        "{context}"
    );
    assert_eq!(rig.machine.take_reports(), [], "{context}");
    drop(streams);
    rig.runtime.memory().empty_cache().expect("nothing fails any more");
    assert_eq!(rig.reserved_bytes(), 0, "{context}: memory that cannot be given back");
    assert_eq!(rig.left(), LiveHandles::default(), "{context}: {result:?}");
    result.is_err()
}

fn counts(machine: &Machine) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for (call, _, count) in machine.calls() {
        *counts.entry(call).or_default() += count;
    }
    counts
}

/// How often a program makes each call, or the end of the runtime after it.
fn calls_of(program: &Program, at_end: bool) -> Vec<(&'static str, u64)> {
    let (rig, streams) = started(program).expect("nothing fails yet");
    let before = counts(&rig.machine);
    (program.run)(&rig, &streams).unwrap_or_else(|error| panic!("{}: {error:?}", program.name));
    let after = counts(&rig.machine);
    let machine = rig.machine.clone();
    check_books(&rig, program.name);
    let (from, to) = if at_end {
        let from = counts(&machine);
        drop(streams);
        assert_eq!(rig.left(), LiveHandles::default(), "{}", program.name);
        (from, counts(&machine))
    } else {
        (before, after)
    };
    let made = |call: &&'static str| to.get(call).copied().unwrap_or(0) - from.get(call).copied().unwrap_or(0);
    CALLS.iter().map(|call| (*call, made(call))).filter(|(_, count)| *count > 0).collect()
}

/// The symbol of a function that takes part in questions about captures differs between drivers' versions.
fn capture_calls(program: &Program) -> Vec<(&'static str, u64)> {
    let (rig, streams) = started(program).expect("nothing fails yet");
    let before = counts(&rig.machine);
    (program.run)(&rig, &streams).expect("nothing fails");
    let made = counts(&rig.machine).into_iter().filter(|(call, _)| call.starts_with("cuStreamGetCaptureInfo"));
    made.map(|(call, count)| (call, count - before.get(call).copied().unwrap_or(0))).collect()
}

#[test]
fn any_call_may_fail() {
    let (mut tried, mut noticed, mut failed) = (0, 0, BTreeSet::new());
    for program in &PROGRAMS {
        let mut of_program = 0;
        for (call, count) in calls_of(program, false).into_iter().chain(capture_calls(program)) {
            failed.insert(call);
            for code in CODES {
                for occurrence in 1..=count {
                    noticed += usize::from(fail(program, &[Fault { call, occurrence, code }]));
                    of_program += 1;
                }
            }
        }
        println!("{}: {of_program} faults", program.name);
        tried += of_program;
    }
    println!("injected {tried} faults, {noticed} of which a program noticed");
    assert!(CALLS.iter().all(|call| failed.contains(call)), "{failed:?}");
    assert!(tried > 2000 && noticed * 2 > tried, "{noticed} of {tried}");
}

/// What is tried to undo a failure fails too: nothing can be unmapped, or given back.
#[test]
fn undoing_a_failure_may_fail() {
    let mut tried = 0;
    for program in &PROGRAMS {
        for (call, count) in calls_of(program, false) {
            for also in ["cuMemUnmap", "cuMemRelease"] {
                for occurrence in 1..=count {
                    let code = CUresult::CUDA_ERROR_UNKNOWN;
                    let others = (1..200).map(|occurrence| Fault { call: also, occurrence, code });
                    let faults: Vec<Fault> = [Fault { call, occurrence, code }].into_iter().chain(others).collect();
                    fail(program, &faults);
                    tried += 1;
                }
            }
        }
    }
    println!("injected {tried} faults that could not be undone");
    assert!(tried > 500, "{tried}");
}

/// At the end nobody can be told. What fails once is tried again.
#[test]
fn the_end_of_a_runtime_may_fail() {
    let mut tried = 0;
    for program in &PROGRAMS {
        for (call, count) in calls_of(program, true) {
            for occurrence in 1..=count {
                let (rig, streams) = started(program).unwrap();
                (program.run)(&rig, &streams).unwrap();
                drop(streams);
                let fault = Fault { call, occurrence, code: CUresult::CUDA_ERROR_UNKNOWN };
                rig.machine.inject(fault);
                assert_eq!(rig.left(), LiveHandles::default(), "{}: {fault:?}", program.name);
                tried += 1;
            }
        }
    }
    println!("injected {tried} faults at the end");
    assert!(tried > 200, "{tried}");
}

#[test]
fn requests_of_any_size_are_answered() {
    let (rig, [one, ..]) = started(&PROGRAMS[0]).unwrap();
    let memory = rig.runtime.memory();
    let none = memory.buffer(0, &one).unwrap();
    assert_eq!((none.len(), none.address()), (0, 0));
    for len in [1025 * MIB, 1 << 41, 1 << 60, isize::MAX.unsigned_abs(), usize::MAX - 511, usize::MAX] {
        let error = memory.buffer(len, &one).expect_err("no device has that much");
        assert!(error.is_out_of_memory() || matches!(error, Error::Memory(_)), "{len}: {error:?}");
        check_books(&rig, &format!("{len} bytes"));
    }
    let served = Marked::new(&rig, 900, 1, &one).unwrap();
    check_all(&rig, [&served]).unwrap();
}

#[test]
fn a_device_without_virtual_memory_is_told() {
    let rig = Rig::new(config().virtual_memory(false));
    rig.runtime.memory().set_settings("backend:elastic").unwrap();
    let refused = rig.runtime.init().unwrap_err();
    assert!(matches!(refused, Error::Start(_)), "{refused:?}");
    assert!(refused.to_string().ends_with("needs virtual memory management, which device 0 has not, use native"));
    // As that says.
    rig.runtime.memory().set_settings("backend:native").unwrap();
    rig.runtime.init().unwrap();
    let stream = rig.stream();
    Marked::new(&rig, 3, 1, &stream).unwrap().check().unwrap();
    drop(stream);
    assert_eq!(rig.left(), LiveHandles::default());
}

/// The device says that it has virtual memory, but no such call works.
#[test]
fn a_device_whose_virtual_memory_fails_says_so() {
    for call in ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        let (rig, [one, ..]) = started(&PROGRAMS[0]).unwrap();
        let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        (1..20).for_each(|occurrence| rig.machine.inject(Fault { call, occurrence, code }));
        for _ in 0..3 {
            let error = rig.runtime.memory().buffer(5 * MIB, &one).expect_err("nothing can be mapped");
            assert_eq!(error.error_code(), Some(code.0), "{call}: {error:?}");
            check_books(&rig, call);
        }
        rig.machine.clear_faults();
        growth(&rig, &[one, rig.stream(), rig.stream()]).unwrap();
        assert_eq!(rig.left(), LiveHandles::default(), "{call}");
    }
}
