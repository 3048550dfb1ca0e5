//! Buffers over memory that something else holds; torch's `_construct_storage_from_data_pointer`.
#![expect(unsafe_code, reason = "a test names addresses of memory that it holds")]

mod common;

use c10_core::{DeviceIndex, Error, IpcError, MemoryError, construct_storage_from_data_pointer};
use common::{DEVICE, rig};

#[test]
fn a_borrowed_buffer_is_the_same_memory_and_gives_nothing_back() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let stream = rig.stream();
    let owner = rig.runtime.memory().buffer(4096, &stream).unwrap();
    owner.fill(0..4096, 1, &stream).unwrap();
    // SAFETY: `owner` holds the memory longer than the buffer is used, and one stream orders the work on both.
    let part = unsafe { construct_storage_from_data_pointer(owner.address() + 512, DEVICE, 1024) }.unwrap();
    assert!(part.is_borrowed() && !owner.is_borrowed());
    part.fill(0..1024, 2, &stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(part.to_vec().unwrap(), [2; 1024]);
    let bytes = owner.to_vec().unwrap();
    assert_eq!((bytes[511], bytes[512], bytes[1535], bytes[1536]), (1, 2, 2, 1));
    assert_eq!(part.share().unwrap_err(), Error::Ipc(IpcError::SharedTwice));
    assert!(matches!(part.copy_from_slice(1000, &[0; 25]), Err(Error::Memory(MemoryError::OutOfRange { .. }))));
    drop(part);
    assert_eq!(rig.allocated_bytes(), 4096);
    drop(owner);
    assert_eq!(rig.allocated_bytes(), 0);
    assert!(rig.runtime.is_valid());
}

/// Memory that the allocator does not know is used on any stream; memory that it knows waits for that stream.
#[test]
fn other_streams_are_noted_where_the_allocator_knows_the_memory() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let (first, second) = (rig.stream(), rig.stream());
    let owner = rig.runtime.memory().buffer(1 << 20, &first).unwrap();
    // SAFETY: the memory is held by `owner`, and nothing else uses it.
    let whole = unsafe { construct_storage_from_data_pointer(owner.address(), DEVICE, 1 << 20) }.unwrap();
    second.sleep(1 << 30).unwrap();
    whole.fill(0..1 << 20, 5, &second).unwrap();
    let address = owner.address();
    drop(owner);
    let next = rig.runtime.memory().buffer(1 << 20, &first).unwrap();
    assert_ne!(next.address(), address, "the other stream still writes there");
    // SAFETY: an address in the middle of memory that `next` holds, and that nothing else uses.
    let inner = unsafe { construct_storage_from_data_pointer(next.address() + 512, DEVICE, 512) }.unwrap();
    inner.fill(0..512, 5, &second).unwrap();
    second.synchronize().unwrap();
}

#[test]
fn the_device_must_be_there() {
    let rig = rig();
    let _current = rig.runtime.bind();
    // SAFETY: a buffer of no bytes uses no memory.
    let missing = unsafe { construct_storage_from_data_pointer(0, DeviceIndex(9), 0) };
    assert_eq!(missing.unwrap_err().error_code(), Some(101));
    // SAFETY: as above.
    let empty = unsafe { construct_storage_from_data_pointer(0, DEVICE, 0) }.unwrap();
    assert!(empty.is_empty() && empty.to_vec().unwrap().is_empty());
}
