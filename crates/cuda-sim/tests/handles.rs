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
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::ptr;

use cuda_sim::Config;
use cuda_sys::driver::types::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPoolProps,
    CUmemPoolPtrExportData, CUmemoryPool, CUstream,
};
use support::Rig;

const ROLE: &str = "CUDA_SIM_TEST_ROLE";
const DATA: &str = "CUDA_SIM_TEST_DATA";
const GRANULE: usize = 2 << 20;
const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const ON_DEVICE: CUmemLocation = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };

/// Runs a function of this file in a process of its own, which must end well.
fn in_another_process(role: &str, given: &OwnedFd, data: &[CUmemPoolPtrExportData]) {
    let digits: String = data.iter().flat_map(|data| data.reserved).map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture"]).env(ROLE, role).env(DATA, digits);
    let done = command.stdin(Stdio::from(given.try_clone().unwrap())).output().unwrap();
    assert!(done.status.success(), "{role}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The descriptor that this process was started with, under a number of its own: no handle is the number 0.
fn given() -> OwnedFd {
    std::io::stdin().as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn the_other_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("memory") => reads_and_writes_memory(),
        Ok("pool") => reads_and_writes_pool(),
        _ => {}
    }
}

/// The pointers that this process was told of.
fn told() -> Vec<CUmemPoolPtrExportData> {
    let digits = std::env::var(DATA).unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.chunks_exact(64).map(|data| CUmemPoolPtrExportData { reserved: data.try_into().unwrap() }).collect()
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
    in_another_process("memory", &file, &[]);
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
    in_another_process("memory", &file, &[]);
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

fn pool(rig: &Rig) -> CUmemoryPool {
    let wanted = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: FILE,
        location: ON_DEVICE,
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let mut pool = ptr::null_mut();
    call!(rig, cuMemPoolCreate(&mut pool, &wanted)).unwrap();
    pool
}

fn alloc(rig: &Rig, pool: CUmemoryPool, bytes: usize, stream: CUstream) -> u64 {
    let mut pointer = 0;
    call!(rig, cuMemAllocFromPoolAsync(&mut pointer, bytes, pool, stream)).unwrap();
    pointer
}

fn export_pool(rig: &Rig, pool: CUmemoryPool) -> OwnedFd {
    let mut file = -1_i32;
    call!(rig, cuMemPoolExportToShareableHandle((&raw mut file).cast(), pool, FILE, 0)).unwrap();
    // SAFETY: the driver made it for this program.
    unsafe { OwnedFd::from_raw_fd(file) }
}

fn import_pool(rig: &Rig, file: &OwnedFd) -> CUmemoryPool {
    let (mut pool, number) = (ptr::null_mut(), usize::try_from(file.as_raw_fd()).unwrap());
    let nothing = ptr::without_provenance_mut(number);
    call!(rig, cuMemPoolImportFromShareableHandle(&mut pool, nothing, FILE, 0)).unwrap();
    pool
}

fn export_pointer(rig: &Rig, pointer: u64) -> CUmemPoolPtrExportData {
    let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
    call!(rig, cuMemPoolExportPointer(&mut data, pointer)).unwrap();
    data
}

fn import_pointer(rig: &Rig, pool: CUmemoryPool, mut data: CUmemPoolPtrExportData) -> u64 {
    let mut pointer = 0;
    call!(rig, cuMemPoolImportPointer(&mut pointer, pool, &mut data)).unwrap();
    pointer
}

/// An allocation that lies in two chunks of the pool, behind a small one.
const LARGE: usize = 40 << 20;

#[test]
fn two_processes_share_a_pool() {
    let rig = rig();
    let (pool, stream) = (pool(&rig), rig.stream(1));
    let (small, large) = (alloc(&rig, pool, 100, stream), alloc(&rig, pool, LARGE, stream));
    rig.write(small, b"from the first");
    rig.write(large + (LARGE - 1) as u64, &[7]);
    let file = export_pool(&rig, pool);
    let data = [small, large].map(|pointer| export_pointer(&rig, pointer));
    in_another_process("pool", &file, &data);
    assert_eq!(rig.read(small, 14), b"from the other");
    assert_eq!(rig.read(large + (LARGE - 1) as u64, 1), [77]);
}

fn reads_and_writes_pool() {
    let (rig, file, data) = (rig(), given(), told());
    let (before, stream) = (free(&rig), rig.stream(1));
    let pool = import_pool(&rig, &file);
    assert_eq!(import_pool(&rig, &file), pool);
    drop(file);
    let (small, large) = (import_pointer(&rig, pool, data[0]), import_pointer(&rig, pool, data[1]));
    assert_eq!(free(&rig), before, "the memory is the first process's");
    assert_eq!(rig.read(small, 14), b"from the first");
    assert_eq!(rig.read(large + (LARGE - 1) as u64, 1), [7]);
    rig.write(small, b"from the other");
    call!(rig, cuMemsetD8Async(large, 77, LARGE, stream)).unwrap();
    for pointer in [small, large] {
        call!(rig, cuMemFreeAsync(pointer, stream)).unwrap();
    }
    call!(rig, cuStreamSynchronize(stream)).unwrap();
    call!(rig, cuMemPoolDestroy(pool)).unwrap();
    assert_eq!(rig.machine.live().allocations, 0);
    assert_eq!(rig.machine.reports(), []);
}

#[test]
fn only_chunks_that_imports_are_in_are_mapped() {
    let rig = rig();
    let (pool, stream) = (pool(&rig), rig.stream(1));
    let (small, large) = (alloc(&rig, pool, 100, stream), alloc(&rig, pool, LARGE, stream));
    let imported = import_pool(&rig, &export_pool(&rig, pool));
    let data = [small, large].map(|pointer| export_pointer(&rig, pointer));
    let (near, far) = (import_pointer(&rig, imported, data[0]), import_pointer(&rig, imported, data[1]));
    let is_mapped = |address: u64| rig.machine.memory_file(address).is_some();
    let end = far + (LARGE - 1) as u64;
    assert!(is_mapped(near) && is_mapped(end));
    call!(rig, cuMemFree_v2(far)).unwrap();
    assert!(is_mapped(near) && !is_mapped(end), "the small one is still in the first chunk");
    call!(rig, cuMemFree_v2(near)).unwrap();
    assert!(!is_mapped(near));
    rig.write(small, &[1; 100]);
}

#[test]
fn a_trimmed_pool_gives_real_memory_back() {
    let rig = rig();
    let (pool, stream) = (pool(&rig), rig.stream(1));
    let blocks = || std::fs::File::from(export_pool(&rig, pool)).metadata().unwrap().blocks();
    let large = alloc(&rig, pool, LARGE, stream);
    let before = blocks();
    call!(rig, cuMemsetD8_v2(large, 1, LARGE)).unwrap();
    call!(rig, cuCtxSynchronize()).unwrap();
    assert!(blocks() >= before + (LARGE as u64) / 512);
    call!(rig, cuMemFreeAsync(large, stream)).unwrap();
    call!(rig, cuStreamSynchronize(stream)).unwrap();
    assert_eq!(blocks(), before);
}
