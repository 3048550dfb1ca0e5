//! Memory that processes hand to each other as file descriptors. This program is its own second process: it starts itself
//! with a variable set, and the descriptor as its standard input.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr;

use cuda_sim::Config;
use cuda_sys::driver::types::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};
use support::Rig;

const ROLE: &str = "CUDA_SIM_TEST_ROLE";
const GRANULE: usize = 2 << 20;
const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const ON_DEVICE: CUmemLocation = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };

/// Runs a function of this file in a process of its own, which must end well.
fn in_another_process(role: &str, given: &OwnedFd) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture"]).env(ROLE, role);
    let done = command.stdin(Stdio::from(given.try_clone().unwrap())).output().unwrap();
    assert!(done.status.success(), "{role}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The descriptor that this process was started with, under a number of its own: no handle is the number 0.
fn given() -> OwnedFd {
    std::io::stdin().as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn the_other_process() {
    if std::env::var(ROLE).as_deref() == Ok("memory") {
        reads_and_writes_memory();
    }
}

fn rig() -> Rig {
    Rig::new(Config::default())
}

fn free(rig: &Rig) -> usize {
    let (mut free, mut total) = (0, 0);
    call!(rig, cuMemGetInfo_v2(&mut free, &mut total)).unwrap();
    free
}

fn create(rig: &Rig, bytes: usize) -> u64 {
    let wanted = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FILE,
        location: ON_DEVICE,
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    let mut handle = 0;
    call!(rig, cuMemCreate(&mut handle, bytes, &wanted, 0)).unwrap();
    handle
}

fn map(rig: &Rig, handle: u64, bytes: usize) -> u64 {
    let grant = CUmemAccessDesc { location: ON_DEVICE, flags: CUmemAccess_flags(3) };
    let mut base = 0;
    call!(rig, cuMemAddressReserve(&mut base, bytes, 0, 0, 0)).unwrap();
    call!(rig, cuMemMap(base, bytes, 0, handle, 0)).unwrap();
    call!(rig, cuMemSetAccess(base, bytes, &grant, 1)).unwrap();
    base
}

fn export(rig: &Rig, handle: u64) -> OwnedFd {
    let mut file = -1_i32;
    call!(rig, cuMemExportToShareableHandle((&raw mut file).cast(), handle, FILE, 0)).unwrap();
    // SAFETY: the driver made it for this program.
    unsafe { OwnedFd::from_raw_fd(file) }
}

fn import(rig: &Rig, file: &OwnedFd) -> u64 {
    let (mut handle, number) = (0, usize::try_from(file.as_raw_fd()).unwrap());
    call!(rig, cuMemImportFromShareableHandle(&mut handle, ptr::without_provenance_mut(number), FILE)).unwrap();
    handle
}

#[test]
fn two_processes_share_physical_memory() {
    let rig = rig();
    let handle = create(&rig, 2 * GRANULE);
    let base = map(&rig, handle, 2 * GRANULE);
    rig.write(base + 100, b"from the first");
    let file = export(&rig, handle);
    in_another_process("memory", &file);
    assert_eq!(rig.read(base + 100, 14), b"from the other");
    assert_eq!(rig.read(base + 2 * (2 << 20) - 1, 1), [77]);
}

#[test]
fn memory_outlives_the_process_that_made_it() {
    let rig = rig();
    let handle = create(&rig, 2 * GRANULE);
    let base = map(&rig, handle, 2 * GRANULE);
    rig.write(base + 100, b"from the first");
    let file = export(&rig, handle);
    call!(rig, cuMemUnmap(base, 2 * GRANULE)).unwrap();
    call!(rig, cuMemRelease(handle)).unwrap();
    in_another_process("memory", &file);
    let base = map(&rig, import(&rig, &file), 2 * GRANULE);
    assert_eq!(rig.read(base + 100, 14), b"from the other");
}

fn reads_and_writes_memory() {
    let (rig, file) = (rig(), given());
    let before = free(&rig);
    let handle = import(&rig, &file);
    drop(file);
    assert_eq!(free(&rig), before, "the memory is the first process's");
    let base = map(&rig, handle, 2 * GRANULE);
    assert_eq!(rig.read(base + 100, 14), b"from the first");
    rig.write(base + 100, b"from the other");
    rig.write(base + 2 * (2 << 20) - 1, &[77]);
    call!(rig, cuMemUnmap(base, 2 * GRANULE)).unwrap();
    call!(rig, cuMemRelease(handle)).unwrap();
    assert_eq!(free(&rig), before);
}

#[test]
fn memory_is_taken_once_for_all_handles_of_it() {
    let rig = rig();
    let before = free(&rig);
    let handle = create(&rig, GRANULE);
    let file = export(&rig, handle);
    let other = import(&rig, &file);
    call!(rig, cuMemRelease(handle)).unwrap();
    assert_eq!(free(&rig), before - GRANULE);
    call!(rig, cuMemRelease(other)).unwrap();
    assert_eq!(free(&rig), before);
    let again = import(&rig, &file);
    assert_eq!(free(&rig), before - GRANULE, "this process has it again");
    call!(rig, cuMemRelease(again)).unwrap();
    assert_eq!(free(&rig), before);
}
