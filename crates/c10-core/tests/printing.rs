//! What public types print: handles one short line that shows no insides, values what a person wants to read.
#![allow(clippy::unwrap_used, reason = "a failed step of a helper is a failed test")]

use std::fmt::{Debug, Display};

use c10_core::{
    AllocatorConfig, AnyEvent, Arg, Backend, BlockState, CUDAGraph, CaptureMode, CheckedDevice, CompatSet, Device,
    DeviceBuffer, DeviceSlice, DeviceStats, DeviceType, Dim3, DurationStat, Event, EventOptions, GraphNodeKind,
    GraphedCallable, GraphedOptions, HostStats, LaunchConfig, MemInfo, MemPool, MemPoolOptions, Module, ModuleLoading,
    NestedStat, PinnedBuffer, PointerKind, PoolId, ProcessMemory, Result, Runtime, SegmentType, Stat, StatByPool,
    Stream, StreamId, SyncDebugMode, Uuid,
};
use testkit::{Config, SimulatedRuntime};

const GLOBAL: CaptureMode = CaptureMode::Global;

/// A kernel that does nothing.
const TEXT: &str = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";

fn simulated() -> SimulatedRuntime {
    SimulatedRuntime::new(Config::default().devices(2))
}

/// Asserts texts, of which `*` stands for one number: an address, or one that another test of the process changes.
#[track_caller]
fn check(texts: &[(String, &str)]) {
    for (text, expected) in texts {
        let mut rest = text.as_str();
        let parts: Vec<&str> = expected.split('*').collect();
        for (position, part) in parts.iter().enumerate() {
            rest = rest.strip_prefix(part).unwrap_or_else(|| panic!("{text}\nis not\n{expected}"));
            if position + 1 < parts.len() {
                rest = rest.trim_start_matches("0x").trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
            }
        }
        assert_eq!(rest, "", "{text}\nis not\n{expected}");
    }
}

/// What is short enough for a line of a log.
#[track_caller]
fn debug(value: impl Debug) -> String {
    let text = format!("{value:?}");
    assert!(text.len() <= 100 && !text.contains('\n'), "{text}");
    text
}

fn display(value: &impl Display) -> String {
    value.to_string()
}

#[test]
fn handles_print_one_short_line() -> Result<()> {
    let simulated = simulated();
    let runtime = simulated.runtime();
    let (stream, other) = (Stream::new(0, 0)?, Stream::new(1, -1)?);
    let (buffer, pinned) = (DeviceBuffer::new(16, 0)?, PinnedBuffer::new(16)?);
    let (event, recorded) = (Event::default(), stream.record_event()?);
    let done = recorded.done();
    check(&[
        (debug(runtime), "Runtime { id: *, driver: function table }"),
        (debug(runtime.memory()), "Memory(Runtime { id: *, driver: function table })"),
        (debug(&runtime.cudart()?), "Cudart { runtime: Runtime { id: *, driver: function table } }"),
        (debug(Runtime::on_system_driver()), "Runtime { id: *, driver: not loaded }"),
        (debug(&stream), "Stream { id: 3, device: cuda:0 }"),
        (debug(&other), "Stream { id: 5, device: cuda:1 }"),
        (debug(&event), "Event { device: none yet, recorded: false }"),
        (debug(&recorded), "Event { device: cuda:0, recorded: true }"),
        (debug(&done), "EventFuture { event: Event { device: cuda:0, recorded: true }, .. }"),
        (debug(AnyEvent::from(event)), "AnyEvent { device: cuda, recorded: false }"),
        (debug(AnyEvent::new(DeviceType::Cpu, EventOptions::default())), "AnyEvent { device: cpu, recorded: false }"),
        (debug(&buffer), "DeviceBuffer { 16 bytes at * on cuda:0 }"),
        (debug(&buffer.elements::<u32>()?), "DeviceSlice { [u32; 4] at * on cuda:0 }"),
        (debug(&DeviceSlice::<f64>::zeros(0, 1)?), "DeviceSlice { [f64; 0] at * on cuda:1 }"),
        (debug(&pinned), "PinnedBuffer { 16 bytes at * }"),
        (debug(pinned.cursor()), "PinnedCursor { buffer: PinnedBuffer { 16 bytes at * }, position: 0 }"),
        (debug(&buffer.share()?), "SharedBuffer { 16 bytes of the sender's cuda:0 }"),
        (debug(Arg::from(7_u8)), "7_u8"),
        (debug(Arg::from(-1.5_f32)), "-1.5_f32"),
        (debug(Arg::from(&[0_u64; 100])), "a value of 800 bytes"),
        (debug(Arg::range(&buffer, 4..8)), "4..8 of DeviceBuffer { 16 bytes at * on cuda:0 }"),
    ]);
    Ok(())
}

#[test]
fn guards_pools_graphs_and_kernels_print_one_short_line() -> Result<()> {
    let simulated = simulated();
    let runtime = simulated.runtime();
    let (stream, other) = (Stream::new(0, 0)?, Stream::new(1, 0)?);
    let pool = MemPool::new(MemPoolOptions::default())?;
    let (mut graph, buffer) = (CUDAGraph::with_keep_graph(), DeviceBuffer::new(16, 0)?);
    let empty = debug(&graph);
    let capture = graph.capture_guard(&stream, None, GLOBAL)?;
    capture.scope().fill(&buffer, .., 7)?;
    let captures = [debug(&capture), debug(capture.scope())];
    let condition = debug(capture.scope().condition(0)?);
    drop(capture);
    let copy = |inputs: &[DeviceBuffer]| Ok(inputs.to_vec());
    let sample = [DeviceBuffer::new(4, 0)?];
    let graphed = GraphedCallable::make(runtime, &[&copy], &[&sample], &GraphedOptions::default())?;
    let kernel = Module::from_ptx(runtime, 1, TEXT)?.kernel("nothing")?;
    let [capture, scope] = captures;
    check(&[
        (debug(runtime.bind()), "RuntimeGuard { runtime: * }"),
        (debug(runtime.device_guard(1)?), "DeviceGuard { previous: Some(0) }"),
        (debug(runtime.device_guard(-1)?), "DeviceGuard { previous: None }"),
        (debug(other.guard()), "StreamGuard { device: cuda:1, previous device: cuda:0 }"),
        (debug(runtime.streams().guard_all([&stream, &other])?), "MultiStreamGuard { devices: [0, 1] }"),
        (debug(&pool), "MemPool { id: (0, *), device: cuda:0 }"),
        (debug(runtime.mem_pools().enter(&pool, 0)?), "MemPoolGuard { pool: (0, *), device: cuda:0 }"),
        (empty, "CUDAGraph { empty, 0 nodes }"),
        (debug(&graph), "CUDAGraph { captured, 1 nodes }"),
        (capture, "GraphCapture { stream: Stream { id: 3, device: cuda:0 } }"),
        (scope, "CaptureScope { stream: Stream { id: 3, device: cuda:0 } }"),
        (condition, "Condition { handle: * }"),
        (debug(&graphed), "[GraphedCallable { inputs: 1, outputs: 1 }]"),
        (debug(kernel.module()), "Module { device: cuda:1 }"),
        (debug(&kernel), "Kernel { name: nothing, device: cuda:1 }"),
        (
            debug(kernel.launch_builder(None).cover(1000, 256)),
            "LaunchBuilder { nothing<<<(4, 1, 1), (256, 1, 1), 0>>>, 0 arguments }",
        ),
    ]);
    Ok(())
}

#[test]
fn names_and_sizes_are_written_for_people() {
    let stat = |current| Stat { current, peak: 4096, allocated: 5000, freed: 5000 - current };
    let by_pool = StatByPool { all: stat(3000), small_pool: stat(1000), large_pool: stat(2000) };
    let mut device = DeviceStats::default();
    (device.allocated_bytes, device.allocation.all, device.num_ooms) = (by_pool, stat(2), 1);
    let mut host = HostStats::default();
    (host.allocated_bytes, host.allocations, host.num_host_alloc) = (stat(2048), stat(2), 2);
    let family = NestedStat::Nested([("all".to_owned(), NestedStat::Value(7))].into());
    check(&[
        (display(&Device::cuda(1)), "cuda:1"),
        (display(&DeviceType::Cpu), "cpu"),
        (display(&StreamId(3)), "3"),
        (display(&PoolId(0, 7)), "(0, 7)"),
        (display(&Uuid { bytes: [1; 16] }), "01010101-0101-0101-0101-010101010101"),
        (display(&CaptureMode::ThreadLocal), "thread_local"),
        (display(&CaptureMode::Relaxed), "relaxed"),
        (display(&SyncDebugMode::Default), "default"),
        (display(&SyncDebugMode::Warn), "warn"),
        (display(&ModuleLoading::Lazy), "LAZY"),
        (display(&ModuleLoading::Eager), "EAGER"),
        (display(&Backend::Native), "native"),
        (display(&BlockState::ActivePendingFree), "active_pending_free"),
        (display(&SegmentType::Large), "large"),
        (display(&PointerKind::Managed), "managed"),
        (display(&GraphNodeKind::Memset), "Memset"),
        (display(&CompatSet::new([75, 101])), "{7.5, 10.1}"),
        (display(&CheckedDevice { index: 2, name: "GPU".to_owned(), capability: 90 }), "GPU2 GPU (9.0)"),
        (display(&Dim3::from((8, 2))), "(8, 2, 1)"),
        (display(&LaunchConfig::linear(1000, 256)), "<<<(4, 1, 1), (256, 1, 1), 0>>>"),
        (display(&MemInfo { free: 3 << 30, total: 80 << 30 }), "3.00 GiB free of 80.00 GiB"),
        (display(&ProcessMemory { pid: 7, used_bytes: None }), "process 7 has an unknown amount"),
        (display(&stat(3000)), "3000 (peak 4096, allocated 5000, freed 2000)"),
        (display(&by_pool), "3000 (small pool 1000, large pool 2000)"),
        (display(&family), "{'all': 7}"),
        (
            display(&device),
            "2.93 KiB allocated in 2 blocks (peak 4.00 KiB), 0 bytes reserved in 0 segments (peak 0 bytes), 0 retries, \
             1 out of memory",
        ),
        (display(&host), "0 bytes in 0 blocks in use, 2.00 KiB in 2 blocks held, 2 driver allocations, 0 driver frees"),
        (
            display(&DurationStat { total: 12, max: 9, min: 3, count: 2, avg: 6 }),
            "2 calls in 12 us (3 to 9 us, 6 us on average)",
        ),
        (display(&AllocatorConfig::default()), ""),
    ]);
}

#[test]
fn what_the_runtime_reports_prints_one_line() -> Result<()> {
    let simulated = simulated();
    let runtime = simulated.runtime();
    let pool = MemPool::new(MemPoolOptions::default())?;
    let buffer = runtime.mem_pools().with(&pool, 0, || DeviceBuffer::new(2000, 0))?;
    let (segment, pinned) = (&pool.snapshot()[0], PinnedBuffer::new(16)?);
    let known = c10_core::PointerInfo::of(runtime, pinned.address())?.unwrap();
    let checkpoint = runtime.mem_pools().checkpoint(0, pool.id())?;
    let (noted, stream) = (&checkpoint.segments()[0], Stream::new(0, 0)?);
    let (mut graph, event) = (CUDAGraph::new(), stream.record_event()?);
    graph.capture(&stream, None, GLOBAL, || buffer.fill(.., 7, &stream))?;
    check(&[
        (display(segment), "small segment of 2.00 MiB at * on cuda:0, 2.00 KiB in use, 2 blocks, pool (0, *)"),
        (display(&segment.blocks[0]), "2.00 KiB at *, active_allocated"),
        (display(&segment.blocks[1]), "2.00 MiB at *, inactive"),
        (display(&checkpoint), "checkpoint of pool (0, *) on cuda:0: 1 segments"),
        (display(noted), "small segment of 2 blocks"),
        (display(&noted.blocks[0]), "2.00 KiB at *, allocated"),
        (display(&known), "pinned memory of cuda:0"),
        (display(&stream), "<torch.cuda.Stream device=cuda:0 cuda_stream=*>"),
        (display(&event), "<torch.cuda.Event *>"),
        (display(&Event::default()), "<torch.cuda.Event uninitialized>"),
    ]);
    let report = graph.report()?.to_string();
    assert!(report.starts_with("graph of 1 nodes on cuda:0, instantiated; pool ("), "{report}");
    assert!(report.ends_with("keeps 1.95 KiB in 1 buffers and 0 bytes in 0 pinned blocks"), "{report}");
    Ok(())
}
