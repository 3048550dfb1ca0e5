//! Managed memory of a simulated machine: what only the model shows.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use cuda_sim::{Config, Machine};
use cuda_sys::driver::types::CUmem_advise;
use support::Rig;

const PAGE: usize = 4096;

fn managed(rig: &Rig, bytes: usize) -> u64 {
    let mut pointer = 0;
    call!(rig, cuMemAllocManaged(&mut pointer, bytes, 1)).expect("there is memory");
    pointer
}

fn moved(machine: &Machine) -> u64 {
    machine.settle();
    machine.moved_pages()
}

#[test]
fn pages_that_prefetches_move_are_counted() {
    let rig = Rig::new(Config::default().devices(2));
    let (pointer, stream) = (managed(&rig, 100 * PAGE), rig.stream(1));
    call!(rig, cuMemPrefetchAsync(pointer, 10 * PAGE, 0, stream)).expect("queued");
    assert_eq!(moved(&rig.machine), 10);
    call!(rig, cuMemPrefetchAsync(pointer, 100 * PAGE, 0, stream)).expect("queued");
    assert_eq!(moved(&rig.machine), 100);
    call!(rig, cuMemPrefetchAsync(pointer, 100 * PAGE, 1, stream)).expect("queued");
    assert_eq!(moved(&rig.machine), 200);
    call!(rig, cuMemPrefetchAsync(pointer + PAGE as u64, 1, -1, stream)).expect("queued");
    assert_eq!(moved(&rig.machine), 201);
    call!(rig, cuMemAdvise(pointer, 100 * PAGE, CUmem_advise(3), 0)).expect("kept");
    assert_eq!(moved(&rig.machine), 201);
    assert_eq!(rig.machine.live().managed, 1);
    call!(rig, cuMemFree_v2(pointer)).expect("allocated");
    assert_eq!((rig.machine.live().managed, rig.machine.live().pinned), (0, 0));
}

#[test]
fn a_prefetch_moves_pages_when_it_runs() {
    let rig = Rig::new(Config::default());
    let (pointer, stream) = (managed(&rig, 3 * PAGE), rig.stream(1));
    let gate = managed(&rig, 64);
    call!(rig, cuStreamWaitValue32_v2(stream, gate, 1, 0)).expect("queued");
    call!(rig, cuMemPrefetchAsync(pointer, 3 * PAGE, 0, stream)).expect("queued");
    assert_eq!(rig.machine.moved_pages(), 0);
    let word: *mut u32 = std::ptr::with_exposed_provenance_mut(usize::try_from(gate).expect("an address"));
    // SAFETY: four aligned bytes of managed memory, which is real memory at that address.
    unsafe { word.write_volatile(1) };
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    assert_eq!(rig.machine.moved_pages(), 3);
}

#[test]
fn a_reset_takes_managed_memory_away() {
    let rig = Rig::new(Config::default());
    managed(&rig, PAGE);
    call!(rig, cuDevicePrimaryCtxReset_v2(0)).expect("there is a device");
    assert_eq!(rig.machine.live().managed, 0);
}

#[test]
fn every_device_reaches_it() {
    let rig = Rig::new(Config::default().devices(2));
    let pointer = managed(&rig, PAGE);
    let mut other = std::ptr::null_mut();
    call!(rig, cuDevicePrimaryCtxRetain(&mut other, 1)).expect("there is a device");
    call!(rig, cuCtxSetCurrent(other)).expect("retained");
    call!(rig, cuMemsetD8_v2(pointer, 4, PAGE)).expect("reached");
    call!(rig, cuCtxSynchronize()).expect("finishes");
    assert_eq!(rig.read(pointer, 16), [4; 16]);
}
