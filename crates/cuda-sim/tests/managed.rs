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

fn free(rig: &Rig) -> usize {
    let (mut free, mut total) = (0, 0);
    call!(rig, cuMemGetInfo_v2(&mut free, &mut total)).expect("has a context");
    free
}

/// A kernel that writes a word at the address that it is given, and one `bytes` further on.
const WRITES: &str = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {\n\
                      .reg .b64 %a, %b;\nld.param.u64 %a, [a];\nld.param.u64 %b, [b];\nadd.s64 %b, %a, %b;\n\
                      st.global.u32 [%a], 7;\nst.global.u32 [%b], 8;\nret;\n}\n\0";

#[test]
fn devices_take_memory_for_what_they_touch() {
    const SLAB: usize = 128 << 20;
    let rig = Rig::new(Config::default());
    let before = free(&rig);
    let pointer = managed(&rig, 3 * SLAB);
    assert_eq!(free(&rig), before);
    call!(rig, cuMemsetD8_v2(pointer, 9, 1 << 20)).expect("reached");
    call!(rig, cuCtxSynchronize()).expect("finishes");
    assert_eq!(before - free(&rig), SLAB);
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    call!(rig, cuModuleLoadData(&mut module, WRITES.as_ptr().cast())).expect("it is PTX");
    call!(rig, cuModuleGetFunction(&mut function, module, c"k".as_ptr())).expect("it has one");
    let values = [pointer, (2 * SLAB + 4) as u64];
    let mut parameters = values.each_ref().map(|value| std::ptr::from_ref(value).cast_mut().cast());
    let (stream, none) = (rig.stream(1), std::ptr::null_mut());
    call!(rig, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), none)).expect("runs");
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    assert_eq!(before - free(&rig), SLAB, "two blocks fit into a slab");
    assert_eq!(rig.read(pointer + values[1], 4), [8, 0, 0, 0]);
    call!(rig, cuMemPrefetchAsync(pointer, 3 * SLAB, 0, stream)).expect("queued");
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    assert_eq!(before - free(&rig), 3 * SLAB);
    call!(rig, cuMemPrefetchAsync(pointer, 3 * SLAB, -1, stream)).expect("queued");
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
    assert_eq!(before - free(&rig), 3 * SLAB, "the device keeps the place");
    call!(rig, cuMemFree_v2(pointer)).expect("allocated");
    assert_eq!(free(&rig), before);
}
