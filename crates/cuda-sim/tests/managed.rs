//! Managed memory of a simulated machine: what only the model shows.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

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

/// Kernel whose threads change words that the host changes too, `ROUNDS` times each: a 32-bit integer, a 64-bit integer
/// and, by a compare-and-swap loop, another 32-bit integer.
const COUNTS: &str = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a) {\n\
                      .reg .b64 %a, %o;\n.reg .b32 %i, %x, %y, %z;\n.reg .pred %p;\nld.param.u64 %a, [a];\nmov.u32 %i, 0;\n\
                      LOOP:\nred.global.sys.add.u32 [%a], 1;\natom.global.sys.add.u64 %o, [%a+8], 1;\n\
                      AGAIN:\nld.relaxed.sys.global.u32 %x, [%a+16];\nadd.u32 %y, %x, 1;\n\
                      atom.global.sys.cas.b32 %z, [%a+16], %x, %y;\nsetp.ne.u32 %p, %z, %x;\n@%p bra AGAIN;\n\
                      add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 500;\n@%p bra LOOP;\nret;\n}\n\0";
const ROUNDS: u32 = 500;

/// Runs the kernel on a warp while a host thread changes the words as well, and checks that no change is lost.
fn count_beside_the_host(rig: &Rig, pointer: u64) {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    call!(rig, cuModuleLoadData(&mut module, COUNTS.as_ptr().cast())).expect("it is PTX");
    call!(rig, cuModuleGetFunction(&mut function, module, c"k".as_ptr())).expect("it has one");
    let mut parameters = [std::ptr::from_ref(&pointer).cast_mut().cast()];
    let (stream, none) = (rig.stream(1), std::ptr::null_mut());
    let at = |offset: u64| usize::try_from(pointer + offset).expect("an address");
    // SAFETY: four aligned bytes of memory that stays allocated, used by atomic operations alone.
    let word = unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at(0))) };
    // SAFETY: eight such bytes.
    let long = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at(8))) };
    // SAFETY: four such bytes.
    let swapped = unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at(16))) };
    word.store(0, Ordering::SeqCst);
    long.store(0, Ordering::SeqCst);
    swapped.store(0, Ordering::SeqCst);
    let (is_over, added) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                word.fetch_add(1, Ordering::SeqCst);
                long.fetch_add(1, Ordering::SeqCst);
                swapped.fetch_add(1, Ordering::SeqCst);
                added.fetch_add(1, Ordering::SeqCst);
            }
        });
        while added.load(Ordering::SeqCst) == 0 {
            std::hint::spin_loop();
        }
        let launched =
            call!(rig, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters.as_mut_ptr(), none));
        let finished = call!(rig, cuStreamSynchronize(stream));
        is_over.store(true, Ordering::SeqCst);
        launched.and(finished).expect("the kernel runs");
    });
    let all = added.load(Ordering::SeqCst) + 32 * ROUNDS;
    let found = (word.load(Ordering::SeqCst), long.load(Ordering::SeqCst), swapped.load(Ordering::SeqCst));
    assert_eq!(found, (all, u64::from(all), all), "no change is lost");
}

#[test]
fn atomic_instructions_and_the_host_lose_no_changes() {
    let rig = Rig::new(Config::default());
    let managed = managed(&rig, PAGE);
    let mut pinned = std::ptr::null_mut();
    call!(rig, cuMemHostAlloc(&mut pinned, PAGE, 2)).expect("there is memory");
    for _ in 0..10 {
        count_beside_the_host(&rig, managed);
        count_beside_the_host(&rig, pinned.expose_provenance() as u64);
    }
}
