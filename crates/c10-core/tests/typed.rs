//! Memory with a type: elements on the device, pinned memory in place and as a file.

mod common;

use std::io::{Read, Seek, SeekFrom, Write};

use bytemuck::{Pod, Zeroable};
use c10_core::{BufferError, CUDAGraph, CaptureMode, DeviceBuffer, DeviceSlice, Error, PinnedBuffer};
use common::{DEVICE, config, rig};

#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
#[repr(C)]
struct Point {
    x: f64,
    y: f32,
    tag: [u8; 4],
}

#[test]
fn elements_go_to_the_device_and_back() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let numbers = DeviceSlice::from_slice(&[1.5_f32, -2.0, f32::INFINITY]).unwrap();
    assert_eq!(
        (numbers.to_vec().unwrap(), numbers.len(), numbers.is_empty()),
        (vec![1.5, -2.0, f32::INFINITY], 3, false)
    );
    let points = [Point { x: 1.0, y: 2.0, tag: *b"abcd" }, Point { x: -3.0, y: 4.0, tag: *b"efgh" }];
    let there = DeviceSlice::from_slice_on(&points, DEVICE).unwrap();
    assert_eq!(there.to_vec().unwrap(), points);
    let bytes = DeviceBuffer::from_slice(&points).unwrap();
    assert_eq!((bytes.len(), bytes.to_vec_of::<Point>().unwrap()), (32, points.to_vec()));
    assert_eq!(bytes.elements::<Point>().unwrap().slice(1..).unwrap().to_vec().unwrap(), points[1..]);
    let none = DeviceSlice::<u64>::from_slice(&[]).unwrap();
    assert_eq!((none.is_empty(), none.to_vec().unwrap(), none.address()), (true, vec![], 0));
    assert_eq!(format!("{numbers:?}"), format!("DeviceSlice {{ [f32; 3] at {:#x} on cuda:0 }}", numbers.address()));
}

#[test]
fn parts_are_the_same_memory() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let all = DeviceSlice::<u32>::zeros(8, None).unwrap();
    let middle = all.slice(2..6).unwrap();
    middle.fill(1..=2, 7, None).unwrap();
    middle.slice(3..).unwrap().copy_from_slice(0, &[9]).unwrap();
    middle.copy_from(0, &all, 3..4, None).unwrap();
    assert_eq!(all.to_vec().unwrap(), [0, 0, 7, 7, 7, 9, 0, 0]);
    let mut two = [0; 2];
    middle.copy_to_slice(2, &mut two).unwrap();
    assert_eq!((two, middle.byte_range(), middle.address() - all.address()), ([7, 9], 8..24, 8));
    for refused in [
        all.slice(7..10).map(drop),
        all.copy_from_slice(7, &[1, 2]),
        middle.copy_from_slice(usize::MAX, &[1]),
        middle.fill(..5, 0, None),
        all.copy_from(6, &all, ..3, None),
    ] {
        assert!(matches!(refused, Err(Error::Memory(c10_core::MemoryError::OutOfRange { .. }))), "{refused:?}");
    }
    let halves = DeviceBuffer::from_slice(&[0_u16; 4]).unwrap().elements::<i16>().unwrap();
    halves.fill(1.., -2, None).unwrap();
    assert_eq!(halves.to_vec().unwrap(), [0, -2, -2, -2]);
}

#[test]
fn bytes_that_are_no_elements_are_refused() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let odd = DeviceBuffer::new(10, None).unwrap();
    let refused = BufferError::ElementSize { bytes: 10, element: 4 };
    assert_eq!(odd.elements::<f32>().unwrap_err(), Error::Buffer(refused));
    assert_eq!(refused.to_string(), "10 bytes are not a whole number of elements of 4 bytes");
    let host = PinnedBuffer::new(10).unwrap();
    let floats = DeviceSlice::<f32>::new(2, None).unwrap();
    assert_eq!(floats.copy_from_pinned(0, &host, .., None), Err(Error::Buffer(refused)));
    assert!(matches!(
        DeviceSlice::<u64>::new(usize::MAX / 4, None),
        Err(Error::Memory(c10_core::MemoryError::RequestTooLarge { .. }))
    ));
}

#[test]
fn elements_go_through_pinned_memory() {
    let rig = rig();
    let _current = rig.runtime.bind();
    let (mut from, mut to) = (PinnedBuffer::new(16).unwrap(), PinnedBuffer::new(16).unwrap());
    from.as_mut_slice_of().unwrap().copy_from_slice(&[1_i32, 2, 3, 4]);
    let there = DeviceSlice::<i32>::zeros(3, None).unwrap();
    there.copy_from_pinned(1, &from, 2.., None).unwrap();
    there.copy_to_pinned(.., &to, 1, None).unwrap();
    to.wait_until_idle().unwrap();
    assert_eq!(to.as_slice_of::<i32>().unwrap()[1..], [0, 3, 4]);
    assert!(there.copy_to_pinned(.., &to, 2, None).is_err());
}

#[test]
fn pinned_memory_in_place_waits_for_nobody() {
    let rig = common::Rig::new(config().late_events(true));
    let stream = rig.stream();
    let mut host = rig.runtime.pinned().buffer(1 << 20).unwrap();
    let buffer = rig.runtime.memory().buffer(1 << 20, &stream).unwrap();
    host.as_mut_slice().unwrap().fill(3);
    buffer.copy_from_pinned(0, &host, .., &stream).unwrap();
    stream.sleep(1 << 20).unwrap();
    let in_use = Err(Error::Buffer(BufferError::PinnedInUse { device: DEVICE }));
    assert_eq!(host.as_slice().map(<[u8]>::len), in_use);
    host.wait_until_idle().unwrap();
    assert!(host.as_slice().unwrap().iter().all(|&byte| byte == 3));

    let other = host.clone();
    let shared = Err(Error::Buffer(BufferError::PinnedShared));
    assert_eq!(host.as_mut_slice().map(|bytes| bytes.len()), shared);
    drop(other);
    host.as_mut_slice().unwrap()[0] = 4;
    let mut one = [0];
    host.read(0, &mut one).unwrap();
    assert_eq!(one, [4]);
    let mut none = rig.runtime.pinned().buffer(0).unwrap();
    assert!(none.as_mut_slice().unwrap().is_empty());
}

/// A graph may write the memory at each replay.
#[test]
fn what_a_graph_captured_is_not_in_place() {
    let rig = rig();
    let stream = rig.stream();
    let mut host = rig.runtime.pinned().buffer(4).unwrap();
    let buffer = rig.runtime.memory().buffer(4, &stream).unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || buffer.copy_to_pinned(.., &host, 0, &stream)).unwrap();
    assert_eq!(host.as_slice(), Err(Error::Buffer(BufferError::PinnedShared)));
    drop(graph);
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(host.as_slice().map(<[u8]>::len), Ok(4));
}

#[test]
fn pinned_memory_outlives_its_runtime_in_place() {
    let rig = rig();
    let stream = rig.stream();
    let mut host = rig.runtime.pinned().buffer(64).unwrap();
    let buffer = rig.runtime.memory().buffer(64, &stream).unwrap();
    buffer.fill(.., 5, &stream).unwrap();
    buffer.copy_to_pinned(.., &host, 0, &stream).unwrap();
    drop((buffer, stream));
    let machine = rig.machine.clone();
    assert_eq!(rig.left().pinned, 1, "the runtime is gone, the buffer is not");
    let _bound = machine.bind();
    assert_eq!(host.as_slice().unwrap(), [5; 64]);
    drop(host);
    assert_eq!(machine.live().pinned, 0);
}

#[test]
fn pinned_memory_is_a_file() {
    let rig = rig();
    let host = rig.runtime.pinned().buffer(10).unwrap();
    let mut file = host.cursor();
    file.write_all(b"0123456789").unwrap();
    assert_eq!((file.write(b"more").unwrap(), file.position()), (0, 10));
    file.seek(SeekFrom::End(-3)).unwrap();
    let mut end = String::new();
    file.read_to_string(&mut end).unwrap();
    assert_eq!(end, "789");
    file.seek(SeekFrom::Current(-5)).unwrap();
    file.write_all(b"xy").unwrap();
    assert_eq!(host.to_vec().unwrap(), b"01234xy789");
    file.seek(SeekFrom::Start(1 << 40)).unwrap();
    assert_eq!(file.read(&mut [0; 4]).unwrap(), 0);
    assert!(file.seek(SeekFrom::End(-11)).is_err());
    assert_eq!(file.position(), 1 << 40);
}
