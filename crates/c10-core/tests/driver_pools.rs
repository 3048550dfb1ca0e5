//! `backend:cudaMallocAsync` on a simulated machine: the driver's pools by torch's rules, figures and refusals.

#![allow(clippy::unwrap_used, reason = "a failed step of a helper is a failed test")]

mod common;

use c10_core::{
    Backend, BackendError, CUDAGraph, CaptureMode, DeviceIndex, Error, MemPoolOptions, MemoryError, Result, Stream,
};
use common::{DEVICE, Rig, config, fail_each_call};
use testkit::{Config, Fault, LiveHandles};

const MIB: usize = 1 << 20;

fn pools(config: Config) -> Rig {
    let rig = Rig::new(config);
    rig.runtime.memory().set_settings("backend:cudaMallocAsync").expect("the backend can be chosen");
    rig
}

/// What torch has figures of: allocated and reserved bytes, each now and at most.
fn figures(rig: &Rig) -> [i64; 4] {
    let stats = rig.runtime.memory().stats(DEVICE).unwrap();
    assert_eq!((stats.active_bytes, stats.segment.all.current), (stats.allocated_bytes, 0));
    let (allocated, reserved) = (stats.allocated_bytes.all, stats.reserved_bytes.all);
    [allocated.current, allocated.peak, reserved.current, reserved.peak]
}

#[test]
fn the_driver_serves_and_tells_the_figures() {
    let rig = pools(config());
    assert_eq!(rig.runtime.memory().config().backend, Backend::CudaMallocAsync);
    assert_eq!(rig.runtime.memory().backend(), "cudaMallocAsync");
    rig.runtime.init().unwrap();
    assert_eq!(figures(&rig), [0; 4], "nothing was needed yet");
    assert!(!rig.runtime.devices().is_used(DEVICE), "asking makes no context");
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(3 * MIB, &stream).unwrap();
    buffer.fill(.., 7, &stream).unwrap();
    let [allocated, _, reserved, _] = figures(&rig);
    assert!(allocated >= 3 << 20 && reserved >= allocated, "{allocated} of {reserved}");
    drop(buffer);
    stream.synchronize().unwrap();
    let after = figures(&rig);
    assert_eq!(after, [0, allocated, reserved, reserved], "what was freed is kept");
    rig.runtime.memory().reset_peak_stats(DEVICE).unwrap();
    assert_eq!(figures(&rig), [0, 0, reserved, reserved]);
    rig.runtime.memory().empty_cache().unwrap();
    rig.runtime.memory().reset_peak_stats(DEVICE).unwrap();
    assert_eq!(figures(&rig), [0; 4]);
    let sums = || {
        let stats = rig.runtime.memory().stats(DEVICE).unwrap();
        let bytes = stats.allocated_bytes.all;
        (stats.num_device_alloc, stats.num_device_free, bytes.allocated, bytes.freed)
    };
    assert_eq!(sums(), (1, 1, 3 << 20, 3 << 20), "which torch does not tell");
    rig.runtime.memory().reset_accumulated_stats(DEVICE).unwrap();
    assert_eq!(sums(), (0, 0, 0, 0));
    assert!(rig.runtime.is_valid());
    drop(stream);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn every_address_goes_back_once_and_by_its_owner() {
    let rig = pools(config());
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    assert_eq!(memory.alloc(0, &stream).unwrap(), 0);
    memory.free(0).unwrap();
    let address = memory.alloc(1000, &stream).unwrap();
    memory.free(address).unwrap();
    let invalid = Error::Memory(MemoryError::InvalidPointer { address });
    assert_eq!(memory.free(address), Err(invalid.clone()));
    assert_eq!(memory.record_stream(address, &stream), Err(invalid));
    let buffer = memory.buffer(1000, &stream).unwrap();
    let owned = Error::Memory(MemoryError::OwnedByBuffer { address: buffer.address() });
    assert_eq!(memory.free(buffer.address()), Err(owned));
    let too_large = Error::Memory(MemoryError::RequestTooLarge { requested: 1 << 60 });
    assert_eq!(memory.alloc(1 << 60, &stream), Err(too_large));
    assert!(rig.runtime.is_valid());
}

#[test]
fn the_limit_is_this_backends_own() {
    let rig = pools(config().capacity(64 << 20));
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    assert!((memory.fraction(DEVICE).unwrap() - 1.0).abs() < f64::EPSILON);
    memory.set_fraction(0.25, DEVICE).unwrap();
    assert!((memory.fraction(DEVICE).unwrap() - 0.25).abs() < f64::EPSILON);
    let kept = memory.buffer(12 * MIB, &stream).unwrap();
    let Err(Error::OutOfMemory(error)) = memory.buffer(5 * MIB, &stream) else { panic!("17 of 16 MiB") };
    let free = memory.info(DEVICE).unwrap().free as f64 / MIB as f64;
    let text = format!(
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 12.00 MiB\n\
         Requested               : 5.00 MiB\nDevice limit            : 64.00 MiB\nFree (according to CUDA): {free:.2} MiB\n\
         PyTorch limit (set by user-supplied memory fraction)\n                        : 16.00 MiB"
    );
    assert_eq!(error.torch_text(), text);
    assert_eq!(error.to_string(), format!("{text}\n{}", error.hint()));
    drop(kept);
    drop(memory.buffer(16 * MIB, &stream).unwrap());
    memory.set_fraction(1.0, DEVICE).unwrap();
    let Err(Error::OutOfMemory(error)) = memory.buffer(65 * MIB, &stream) else { panic!("65 of 64 MiB") };
    assert!(error.torch_text().ends_with(": none"), "{error}");
    let stats = memory.stats(DEVICE).unwrap();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries), (2, 1), "the driver is asked again, the limit is not");
}

#[test]
fn memory_that_waits_for_other_streams_serves_before_memory_runs_out() {
    let rig = pools(config().seed(3).late_events(true).capacity(64 << 20));
    let (memory, first, second) = (rig.runtime.memory(), rig.stream(), rig.stream());
    let buffer = memory.buffer(40 * MIB, &first).unwrap();
    buffer.fill(.., 1, &second).unwrap();
    drop(buffer);
    let again = memory.buffer(40 * MIB, &first).unwrap();
    again.fill(.., 2, &first).unwrap();
    assert!(again.to_vec().unwrap().iter().all(|&byte| byte == 2));
}

#[test]
fn what_only_the_caching_allocator_does_is_refused_in_torchs_words() {
    let rig = pools(config());
    let refused = |call| Error::Backend(BackendError::Unsupported { backend: "cudaMallocAsync", call });
    assert_eq!(rig.runtime.memory().record_history(Some(&Default::default())), Err(refused("recordHistory")));
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let buffer = memory.buffer(1000, &stream).unwrap();
    assert_eq!(memory.record_history(Some(&Default::default())), Err(refused("recordHistory")));
    let text = memory.take_snapshot(None, true).unwrap_err().to_string();
    assert!(text.starts_with("Calling snapshot with backend:cudaMallocAsync is not meaningful."), "{text}");
    assert_eq!(memory.snapshot(None), []);
    assert_eq!(memory.outlook(1, &stream).unwrap_err(), refused("outlook"));
    assert_eq!(buffer.share().unwrap_err(), refused("shareIpcHandle"));
    let pools = rig.runtime.mem_pools();
    assert_eq!(pools.create(MemPoolOptions::default()).unwrap_err(), refused("createOrIncrefPool"));
    let pool = c10_core::PoolId::handle();
    assert_eq!(pools.checkpoint(DEVICE, pool).unwrap_err(), refused("getCheckpointState"));
    assert_eq!(pools.check_live_allocations(DEVICE, pool, &[]).unwrap_err(), refused("checkPoolLiveAllocations"));
    assert_eq!(pools.begin_allocate(DEVICE, pool).unwrap_err(), refused("beginAllocateToPool"));
    let changed = memory.set_settings("backend:native").unwrap_err().to_string();
    assert_eq!(changed, "Allocator backend parsed at runtime != allocator backend parsed at load time");
    memory.set_settings("backend:cudaMallocAsync,max_split_size_mb:64").unwrap();
}

/// Memory is filled on one stream and read on another, and given back at once; the next owner must not disturb that.
fn hand_over(seed: u64) -> bool {
    let rig = pools(config().seed(seed).late_events(true));
    let (first, second) = (rig.stream(), rig.stream());
    let target = rig.runtime.pinned().buffer(MIB).unwrap();
    let buffer = rig.runtime.memory().buffer(MIB, &first).unwrap();
    buffer.fill(.., 9, &first).unwrap();
    second.wait_stream(&first).unwrap();
    buffer.copy_to_pinned(.., &target, 0, &second).unwrap();
    drop(buffer);
    let next = rig.runtime.memory().buffer(MIB, &first).unwrap();
    next.fill(.., 1, &first).unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    target.to_vec().unwrap().iter().all(|&byte| byte == 9)
}

#[test]
fn memory_is_not_used_again_before_every_stream_is_done_with_it() {
    assert!((0..30).all(hand_over));
}

const LEN: usize = 1 << 16;

fn graph(rig: &Rig) -> CUDAGraph {
    CUDAGraph::on(&rig.runtime, false)
}

#[test]
fn memory_of_a_capture_becomes_nodes_of_the_graph() {
    let rig = pools(config());
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let (from, to) = (memory.buffer(LEN, &stream).unwrap(), memory.buffer(LEN, &stream).unwrap());
    let mut graph = graph(&rig);
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            let between = memory.buffer(LEN, &stream)?;
            between.copy_from_buffer(0, &from, .., &stream)?;
            to.copy_from_buffer(0, &between, .., &stream)
        })
        .unwrap();
    assert_eq!(graph.node_count(), 4, "an allocation, two copies and a free");
    for value in [5, 6, 7] {
        from.copy_from_slice(0, &[value; LEN]).unwrap();
        graph.replay().unwrap();
        assert_eq!(to.to_vec().unwrap(), [value; LEN]);
    }
    drop((graph, from, to, stream));
    assert!(rig.runtime.is_valid());
    assert!(rig.machine.take_reports().is_empty());
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn memory_that_outlives_its_capture_is_there_after_each_replay() {
    let rig = pools(config());
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let mut graph = graph(&rig);
    let made = graph.capture(&stream, None, CaptureMode::Global, || {
        let made = memory.buffer(LEN, &stream)?;
        made.fill(.., 4, &stream)?;
        Ok::<_, Error>(made)
    });
    let made = made.unwrap();
    for _ in 0..3 {
        graph.replay().unwrap();
        assert_eq!(made.to_vec().unwrap(), [4; LEN]);
    }
    drop(made);
    assert!(rig.runtime.is_valid());
    graph.replay().unwrap();
    drop(graph);
    let stats = memory.stats(DEVICE).unwrap();
    assert_eq!(stats.num_device_alloc, stats.num_device_free);
}

#[test]
fn memory_of_a_graph_that_was_never_replayed_can_be_dropped() {
    let rig = pools(config());
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let mut graph = graph(&rig);
    let address = graph.capture(&stream, None, CaptureMode::Global, || memory.alloc(LEN as u64, &stream)).unwrap();
    memory.free(address).unwrap();
    assert_eq!(memory.free(address), Err(Error::Memory(MemoryError::InvalidPointer { address })));
    assert!(rig.runtime.is_valid());
}

#[test]
fn memory_from_outside_is_freed_when_the_capture_ends() {
    let rig = pools(config());
    let (memory, stream, other) = (rig.runtime.memory(), rig.stream(), rig.stream());
    let outside = [&stream, &other].map(|stream| memory.alloc(1 << 20, stream).unwrap());
    let used = || memory.stats(DEVICE).unwrap().allocated_bytes.all.current;
    let mut graph = graph(&rig);
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            memory.free(outside[0])?;
            assert_eq!(used(), 2 << 20, "its stream captures");
            assert_eq!(
                memory.free(outside[0]).unwrap_err().to_string(),
                format!("invalid device pointer: {:#x}", outside[0])
            );
            memory.free(outside[1])?;
            assert_eq!(used(), 1 << 20, "its stream does not");
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!((graph.node_count(), used()), (0, 0));
    assert!(rig.runtime.is_valid());
    drop((graph, stream, other));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn streams_on_which_a_capture_freed_memory_are_joined() {
    let rig = pools(config());
    let (memory, stream, side) = (rig.runtime.memory(), rig.stream(), rig.stream());
    let to = memory.buffer(LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            side.wait_stream(&stream)?;
            let made = memory.buffer(LEN, &side)?;
            let both = memory.buffer(LEN, &stream)?;
            made.fill(.., 3, &side)?;
            both.fill(.., 5, &side)?;
            stream.wait_stream(&side)?;
            to.copy_from_buffer(0, &made, .., &stream)?;
            // After the program has joined the side stream: the frees are on it, and on the hidden stream.
            drop((made, both));
            Ok::<_, Error>(())
        })
        .unwrap();
    for _ in 0..2 {
        graph.replay().unwrap();
        assert_eq!(to.to_vec().unwrap(), [3; LEN]);
    }
    drop((graph, to, stream, side));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn one_capture_at_a_time() {
    let rig = pools(config());
    let (first, second) = (rig.stream(), rig.stream());
    let mut outer = graph(&rig);
    let text = outer.capture(&first, None, CaptureMode::Relaxed, || {
        let refused = graph(&rig).capture(&second, None, CaptureMode::Relaxed, || Ok::<_, Error>(()));
        Ok::<_, Error>(refused.unwrap_err().to_string())
    });
    assert_eq!(text.unwrap(), "Only one capture at a time is allowed in a process.");
    graph(&rig).capture(&second, None, CaptureMode::Relaxed, || Ok::<_, Error>(())).unwrap();
}

#[test]
fn two_devices_have_a_pool_each_and_reach_each_other() {
    let rig = pools(config().devices(2));
    let streams = [0, 1].map(|device| rig.runtime.streams().pooled(device, 0).unwrap());
    let [from, to] = [0, 1].map(|device| rig.runtime.memory().buffer(LEN, &streams[device]).unwrap());
    from.fill(.., 8, &streams[0]).unwrap();
    streams[0].synchronize().unwrap();
    to.copy_from_buffer(0, &from, .., &streams[1]).unwrap();
    drop(from);
    assert_eq!(to.to_vec().unwrap(), [8; LEN]);
    let grants = rig.machine.calls().iter().find(|(call, ..)| *call == "cuMemPoolSetAccess").map(|(.., count)| *count);
    assert_eq!(grants, Some(2), "each pool once");
    let freed = |device| rig.runtime.memory().stats(device).unwrap().num_device_free;
    assert_eq!([freed(DeviceIndex(0)), freed(DeviceIndex(1))], [1, 0]);
    drop((to, streams));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn threads_allocate_and_free_each_others_memory() {
    const THREADS: usize = 4;
    let rig = pools(config());
    let streams: Vec<Stream> = (0..THREADS).map(|_| rig.stream()).collect();
    let (runtime, machine) = (&rig.runtime, &rig.machine);
    let passed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, stream) in streams.iter().enumerate() {
            let passed = &passed;
            scope.spawn(move || {
                let _bound = machine.bind();
                for step in 0..200 {
                    let buffer = runtime.memory().buffer(100 + 700 * ((number + step) % 5), stream).unwrap();
                    let mut passed = passed.lock().unwrap();
                    passed.push(buffer);
                    if step % 3 > 0 {
                        let at = step % passed.len();
                        let buffer = passed.swap_remove(at);
                        drop(passed);
                        buffer.record_stream(stream).unwrap();
                    }
                }
            });
        }
    });
    assert!(runtime.is_valid(), "{:?}", runtime.inconsistency());
    let passed = passed.into_inner().unwrap();
    let freed = || runtime.memory().stats(DEVICE).unwrap().num_device_free;
    assert_eq!(freed(), 4 * 200 - passed.len() as u64);
    drop(passed);
    assert_eq!(freed(), 4 * 200);
    drop(streams);
    assert_eq!(rig.left(), LiveHandles::default());
}

/// Memory on two streams and in a capture, figures, limits and the rest, on one device.
fn program(rig: &Rig) -> Result<()> {
    let (memory, streams) = (rig.runtime.memory(), rig.runtime.streams());
    let (stream, side) = (streams.pooled(DEVICE, 0)?, streams.pooled(DEVICE, 0)?);
    let (plain, used) = (memory.buffer(LEN, &stream)?, memory.buffer(LEN, &stream)?);
    used.fill(.., 1, &side)?;
    drop(used);
    memory.stats(DEVICE)?;
    memory.reset_peak_stats(DEVICE)?;
    memory.set_fraction(0.5, DEVICE)?;
    let outside = memory.buffer(LEN, &stream)?;
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let kept = graph.capture(&stream, None, CaptureMode::Global, || {
        let (inside, kept) = (memory.buffer(LEN, &stream)?, memory.buffer(LEN, &stream)?);
        side.wait_stream(&stream)?;
        inside.fill(.., 2, &side)?;
        stream.wait_stream(&side)?;
        plain.copy_from_buffer(0, &inside, .., &stream)?;
        drop(inside);
        drop(outside);
        Ok::<_, Error>(kept)
    })?;
    graph.replay()?;
    drop(kept);
    if plain.to_vec()? != [2; LEN] {
        return Err(Error::Memory(MemoryError::InvalidPointer { address: plain.address() }));
    }
    drop((graph, plain));
    memory.empty_cache()
}

#[test]
fn whatever_fails_the_books_balance_and_nothing_is_left() {
    let fresh = || pools(config());
    let rig = fresh();
    program(&rig).unwrap();
    let calls = rig.machine.calls();
    let run = |fault: Fault| {
        let rig = fresh();
        let what = format!("{fault:?}");
        rig.machine.inject(fault);
        let outcome = program(&rig);
        assert!(rig.runtime.is_valid(), "{what}: {:?}", rig.runtime.inconsistency());
        let again = program(&rig);
        assert_eq!(again, Ok(()), "{what}: the same program works afterwards");
        let stats = rig.runtime.memory().stats(DEVICE).unwrap();
        assert_eq!(stats.num_device_alloc, stats.num_device_free, "{what}");
        let left = rig.left();
        assert_eq!(left, LiveHandles::default(), "{what}");
        outcome.is_err()
    };
    let (tried, noticed) = fail_each_call(&calls, run);
    println!("{tried} faults, {noticed} of them noticed");
    assert!(tried > 200 && noticed > tried / 2, "{noticed} of {tried}");
}
