//! Lines as somebody who knows torch writes them. That they compile is the test; each is also checked for what it does.
#![expect(clippy::needless_borrows_for_generic_args, reason = "a reference is one of the ways to name a device")]

mod common;

use std::ops::Bound;

use common::rig;
use cuda_api::{
    CUDAGraph, Device, DeviceBuffer, DeviceIndex, ExternalStream, GraphOptions, MemPool, MemPoolOptions, PinnedBuffer,
    Result, Stream, current_device, current_stream, device, get_device_name, memory_allocated, set_stream, synchronize,
    torch, with_device, with_graph, with_mem_pool, with_stream,
};

#[test]
fn a_device_is_named_as_one_likes() -> Result<()> {
    let _rig = rig();
    let (there, text, number) = (Device::cuda(1), String::from("cuda:1"), 1_u8);
    let there_by_index: Option<DeviceIndex> = there.index;
    let there_if_any = Some(there);
    let buffer = DeviceBuffer::new(100, 1)?;
    let figures = [
        memory_allocated(Some(1))?,
        memory_allocated(1)?,
        memory_allocated(there)?,
        memory_allocated(&there)?,
        memory_allocated("cuda:1")?,
        memory_allocated(&text)?,
        memory_allocated(text.clone())?,
        memory_allocated(number)?,
        memory_allocated(&number)?,
        memory_allocated(there_by_index)?,
        memory_allocated(&there_by_index)?,
        memory_allocated(&there_if_any)?,
        memory_allocated(buffer.device())?,
        memory_allocated(buffer.device_index())?,
    ];
    assert_eq!(figures, [512; 14]);
    assert_eq!((memory_allocated(None)?, memory_allocated(Some(0))?), (0, 0));
    Ok(())
}

#[test]
fn the_current_device_is_a_number() -> torch::Result<()> {
    let _rig = rig();
    assert!(current_device()? == 0);
    let _there = device(1)?;
    assert!(current_device()? == 1);
    let before = current_device()?;
    let name = with_device(Some(0), || {
        assert_eq!(current_device()?, 0);
        Ok(get_device_name(None)?)
    })?;
    assert!(!name.is_empty() && current_device()? == before);
    Ok(())
}

#[test]
fn streams_go_by_value_by_reference_or_not_at_all() -> Result<()> {
    let _rig = rig();
    let (stream, perhaps) = (Stream::new(None, 0)?, Some(Stream::new(None, 0)?));
    let buffer = DeviceBuffer::new(8, None)?;
    buffer.fill(.., 1, None)?;
    current_stream(None)?.synchronize()?;
    buffer.fill(..6, 2, &stream)?;
    stream.synchronize()?;
    buffer.fill(..4, 3, stream.clone())?;
    stream.synchronize()?;
    buffer.fill(..2, 4, &perhaps)?;
    buffer.fill(..1, 5, perhaps.as_ref())?;
    synchronize(None)?;
    assert_eq!(buffer.to_vec()?, [5, 4, 3, 3, 2, 2, 1, 1]);
    set_stream(stream)?;
    set_stream(None)?;
    Ok(())
}

#[test]
fn copies_go_to_the_current_stream_unless_told_otherwise() -> torch::Result<()> {
    let _rig = rig();
    let (host, back) = (PinnedBuffer::new(4)?, PinnedBuffer::new(4)?);
    host.write(0, b"abcd")?;
    let (first, second) = (DeviceBuffer::new(4, None)?, DeviceBuffer::new(4, None)?);
    with_stream(Stream::new(None, 0)?, || {
        first.copy_from_pinned(0, &host, .., None)?;
        second.copy_from_buffer(0, &first, .., None)?;
        second.copy_to_pinned(.., &back, 0, None)?;
        assert!(!current_stream(None)?.is_default());
        Ok(current_stream(None)?.synchronize()?)
    })?;
    assert_eq!(back.to_vec()?, b"abcd");
    Ok(())
}

#[test]
fn ranges_are_of_any_kind() -> Result<()> {
    let _rig = rig();
    let buffer = DeviceBuffer::new(8, None)?;
    buffer.fill(.., 0, None)?;
    buffer.fill(0..1, 1, None)?;
    buffer.fill(6.., 2, None)?;
    buffer.fill(..=1, 3, None)?;
    buffer.fill(3..=4, 4, None)?;
    buffer.fill((Bound::Excluded(6), Bound::Unbounded), 5, None)?;
    assert_eq!(buffer.to_vec()?, [3, 3, 0, 4, 4, 0, 2, 5]);
    assert!(buffer.fill(..9, 0, None).is_err() && buffer.fill(9.., 0, None).is_err());
    Ok(())
}

#[test]
fn closures_need_no_types() -> torch::Result<()> {
    let _rig = rig();
    let (stream, buffer) = (Stream::new(None, 0)?, DeviceBuffer::new(8, None)?);
    with_stream(&stream, || {
        buffer.fill(.., 1, None)?;
        Ok(())
    })?;
    with_device(0, || {
        buffer.fill(.., 2, None)?;
        Ok(())
    })?;
    let mut graph = CUDAGraph::new();
    with_graph(&mut graph, GraphOptions::default(), || {
        buffer.fill(.., 3, None)?;
        Ok(())
    })?;
    graph.replay()?;
    synchronize(None)?;
    assert_eq!(buffer.to_vec()?, [3; 8]);
    Ok(())
}

#[test]
fn pools_take_options_and_no_second_question_mark() -> torch::Result<()> {
    let _rig = rig();
    let pool = MemPool::new(MemPoolOptions { no_split: true, ..MemPoolOptions::default() })?;
    let inside = with_mem_pool(&pool, None, || Ok(DeviceBuffer::new(1 << 20, None)?))?;
    let total = with_mem_pool(&pool, Some(0), || {
        let second = DeviceBuffer::new(1 << 20, None)?;
        Ok(inside.len() + second.len())
    })?;
    assert_eq!((total, pool.snapshot().len()), (2 << 20, 2));
    Ok(())
}

#[test]
fn modules_have_the_names_that_the_root_has() -> Result<()> {
    let rig = rig();
    let stream = cuda_api::streams::default_stream(None)?;
    assert!(cuda_api::streams::stream(&stream)?.is_some());
    assert_eq!(cuda_api::memory::memory_reserved(0), cuda_api::memory_reserved(0));
    assert!(!cuda_api::graphs::is_current_stream_capturing()?);
    assert!(device::device_count() > 0);
    let shared: Option<cuda_api::buffers::SharedBuffer> = None;
    assert!(shared.is_none());
    drop(DeviceBuffer::new(1, stream.device())?);
    let launch: cuda_api::LaunchConfig = cuda_api::kernels::LaunchConfig::default();
    assert_eq!((launch.grid, rig.machine.live().contexts), ([1; 3], 1));
    Ok(())
}

#[test]
fn figures_have_torchs_names() -> Result<()> {
    let _rig = rig();
    let (buffer, host) = (DeviceBuffer::new(1000, None)?, PinnedBuffer::new(1000)?);
    let stats = cuda_api::memory_stats(None)?;
    assert_eq!(stats["allocated_bytes.all.current"], 1024);
    assert_eq!(cuda_api::memory_stats(Some(1))?["allocation.all.current"], 0);
    assert_eq!(cuda_api::host_memory_stats()["allocated_bytes.current"], 1024);
    assert_eq!((stats.get("allocated.all.current"), buffer.len(), host.len()), (None, 1000, 1000));
    Ok(())
}

/// A stream that was made elsewhere is given as any other.
fn _external(stream: &ExternalStream) -> Result<()> {
    set_stream(stream)?;
    set_stream(stream.clone())
}
