//! Each call of the driver fails once, at each of its occurrences in a session of PyTorch's: nothing panics, the books
//! balance, every block can be given back, and the same requests are served afterwards.

mod common;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

use common::{MIB, Torch, alloc, figure, handle, last_error, record, set, taken_error};
use testkit::c10_core::Stream;
use testkit::{CUresult, Config, Fault};
use torch_allocator::figures::*;
use torch_allocator::hooks::*;

const SETTINGS: [&str; 4] = ["backend:native", "expandable_segments:True", "backend:elastic", "max_split_size_mb:64"];

/// Of calls that come very often, the later ones are like the first.
const OCCURRENCES_MAX: u64 = 40;

fn free(address: *mut c_void) {
    torch_allocator_free(address, 0, 0, ptr::null_mut());
}

/// What PyTorch does in a few steps; calls may fail. What is still handed out is given back at the end.
fn session(streams: &[Stream; 2]) {
    torch_allocator_init(1);
    let [main, side] = streams.each_ref().map(handle);
    let mut held = Vec::new();
    for round in 0..2 {
        for size in [512, 3000, MIB, 3 * MIB, 30 * MIB, 70 * MIB] {
            for stream in [ptr::null_mut(), main, side] {
                held.push(alloc(size, 0, stream));
            }
        }
        for (at, &address) in held.iter().enumerate() {
            if at % 3 == 0 && !address.is_null() {
                record(address, &streams[1]);
            }
        }
        // Every other block goes, so that what is free is in pieces.
        held = held
            .chunks(2)
            .filter_map(|pair| {
                free(pair[0]);
                pair.get(1).copied()
            })
            .collect();
        held.push(alloc(100 * MIB, 0, main));
        held.push(alloc(1 << 50, 0, main));
        if round == 0 {
            torch_allocator_reset();
        }
    }
    held.into_iter().for_each(free);
    torch_allocator_memory_fraction(0.9, 0);
    torch_allocator_memory_fraction(1.0, 0);
    torch_allocator_reset();
}

/// A machine on which `session` runs under some settings, with at most one fault.
fn run(settings: &str, fault: Option<Fault>) -> BTreeMap<&'static str, u64> {
    let torch = Torch::unstarted(Config::default().capacity(2 << 30));
    set(settings);
    // Streams are PyTorch's own and not what is tested.
    let streams = [torch.stream(), torch.stream()];
    let machine = torch.simulated.machine().clone();
    let count = || {
        machine.calls().into_iter().fold(BTreeMap::new(), |mut counts: BTreeMap<_, u64>, (call, _, count)| {
            *counts.entry(call).or_default() += count;
            counts
        })
    };
    let before = count();
    if let Some(fault) = fault {
        machine.inject(fault);
    }
    session(&streams);
    assert!(!last_error().contains("panicked"), "{settings} {fault:?}: {}", last_error());
    let mut made = count();
    made.iter_mut().for_each(|(call, count)| *count -= before.get(call).copied().unwrap_or(0));
    check(settings, fault, &streams);
    assert_eq!(machine.take_reports(), [], "{settings} {fault:?}");
    made
}

/// After the fault everything works, and nothing is left.
fn check(settings: &str, fault: Option<Fault>, streams: &[Stream; 2]) {
    let what = || format!("{settings} {fault:?}: {}", last_error());
    assert_eq!(torch_allocator_is_valid(), 1, "{}", what());
    assert_eq!(figure("allocated_bytes.all.current"), 0, "{}", what());
    torch_allocator_forget_error();
    streams.iter().for_each(|stream| stream.synchronize().expect("no work failed"));
    for size in [512, MIB, 100 * MIB] {
        let address = alloc(size, 0, handle(&streams[0]));
        assert!(!address.is_null(), "{}", what());
        free(address);
    }
    torch_allocator_reset();
    assert_eq!(taken_error(), "", "{settings} {fault:?}");
    assert_eq!(figure("reserved_bytes.all.current"), 0, "{settings} {fault:?}");
    assert_eq!(torch_allocator_is_valid(), 1, "{}", what());
}

#[test]
fn every_call_may_fail() {
    let mut faults = 0;
    for settings in SETTINGS {
        for (call, count) in run(settings, None) {
            for occurrence in 1..=count.min(OCCURRENCES_MAX) {
                for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_NOT_SUPPORTED] {
                    run(settings, Some(Fault { call, occurrence, code }));
                    faults += 1;
                }
            }
        }
    }
    println!("{faults} faults");
    assert!(faults > 500, "{faults}");
}
