//! An allocator that tells of its blocks by the table of functions, as a program in C would.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr;

use cuda_sim::{Config, KernelChecks, ReportKind};
use cuda_sys::CUresult;
use cuda_sys::driver::{BLOCK_TABLE_ID, BlockTable};
use support::{Rig, code};

/// The table of a machine that looks for something.
fn table(checks: KernelChecks) -> (Rig, &'static BlockTable) {
    let rig = Rig::new(Config::default().checks(checks));
    let mut found: *const c_void = ptr::null();
    call!(rig, cuGetExportTable(&mut found, &BLOCK_TABLE_ID)).expect("there is a table");
    // SAFETY: the table of that identity, which lives as long as the process.
    (rig, unsafe { found.cast::<BlockTable>().as_ref() }.expect("there is a table"))
}

fn kinds(rig: &Rig) -> Vec<ReportKind> {
    rig.machine.settle();
    rig.machine.take_reports().into_iter().map(|report| report.kind).collect()
}

#[test]
fn the_table_is_there_while_something_is_looked_for() {
    let blocks = KernelChecks { blocks: true, ..KernelChecks::default() };
    assert_eq!(table(blocks).1.size, size_of::<BlockTable>());
    for checks in [KernelChecks::default(), KernelChecks { races: true, ..KernelChecks::default() }] {
        let rig = Rig::new(Config::default().checks(checks));
        let mut found: *const c_void = ptr::null();
        let refused = call!(rig, cuGetExportTable(&mut found, &BLOCK_TABLE_ID));
        assert_eq!((code(refused), found.is_null()), (CUresult::CUDA_ERROR_INVALID_VALUE, true));
    }
}

#[test]
fn copies_and_sets_are_looked_at() {
    let (rig, table) = table(KernelChecks::ALL);
    let (segment, stream) = (rig.alloc(2 << 20), rig.stream(1));
    // SAFETY: the functions look up what they are given.
    let hand_out = |address, bytes| unsafe { (table.handed_out)(rig.context, stream, address, bytes) };
    let low = segment + 4096;
    assert_eq!((hand_out(low, 1000), hand_out(low + 1024, 1000)), (CUresult::CUDA_SUCCESS, CUresult::CUDA_SUCCESS));
    assert_eq!(hand_out(4096, 10), CUresult::CUDA_ERROR_INVALID_VALUE, "there is no memory");
    call!(rig, cuMemsetD8Async(low, 1, 1000, stream)).expect("the memory is there");
    call!(rig, cuMemcpyDtoDAsync_v2(low + 1024, low, 1000, stream)).expect("the memory is there");
    assert_eq!(kinds(&rig), []);
    call!(rig, cuMemsetD8Async(low, 1, 1001, stream)).expect("the memory is there");
    assert_eq!(kinds(&rig), [ReportKind::OutOfBounds]);
    call!(rig, cuMemcpyDtoDAsync_v2(low + 1024, low, 1001, stream)).expect("the memory is there");
    assert_eq!(kinds(&rig), [ReportKind::OutOfBounds; 2], "on both sides");
    call!(rig, cuMemsetD8Async(low, 1, 8, stream)).expect("the memory is there");
    // SAFETY: as above.
    unsafe { (table.given_back)(low) };
    assert_eq!(kinds(&rig), [], "the block was there when the work was queued");
    call!(rig, cuMemsetD8Async(low, 1, 8, stream)).expect("the memory is there");
    let (found, text) = (rig.machine.reports().len(), {
        rig.machine.settle();
        rig.machine.reports().last().map(|report| report.message.clone()).unwrap_or_default()
    });
    let wanted = format!("sets 8 bytes, at byte 0 of a block of 1000 bytes at {low:#x}, which was given back");
    assert!(found == 0 && text.contains(&wanted), "{text}");
}

#[test]
fn what_belongs_to_no_block_is_as_it_was() {
    let (rig, _) = table(KernelChecks::ALL);
    let memory = rig.alloc(2 << 20);
    call!(rig, cuMemsetD8_v2(memory, 1, 2 << 20)).expect("the memory is there");
    assert_eq!((rig.read(memory + (1 << 20), 1), kinds(&rig)), (vec![1], vec![]));
}
