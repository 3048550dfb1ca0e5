//! The caching allocator on the simulated device: figures, reuse, running out, buffers and copies.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use c10_core::{DeviceError, DeviceIndex, Error, MemoryError};
use common::{DEVICE, Rig, code, config, rig};
use cuda_sim::Fault;
use cuda_sys::CUresult;

const MIB: u64 = 1 << 20;

#[test]
fn memory_is_cached_until_the_cache_is_emptied() {
    let rig = rig();
    let stream = rig.runtime.streams().default(DEVICE).unwrap();
    let first = rig.runtime.memory().alloc(1, &stream).unwrap();
    let second = rig.runtime.memory().alloc(600, &stream).unwrap();
    let third = rig.runtime.memory().alloc(MIB, &stream).unwrap();
    assert_eq!((first % 512, second, third), (0, first + 512, first + 512 + 1024));
    assert_eq!((rig.allocated_bytes(), rig.reserved_bytes()), (1_050_112, 2_097_152));
    rig.runtime.memory().free(second).unwrap();
    rig.runtime.memory().free(first).unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!((rig.allocated_bytes(), rig.reserved_bytes()), (1_048_576, 2_097_152));
    rig.runtime.memory().free(third).unwrap();
    assert_eq!(rig.machine.live().allocations, 1);
    rig.runtime.memory().reset_peak_stats(DEVICE).unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!((rig.allocated_bytes(), rig.reserved_bytes(), rig.machine.live().allocations), (0, 0, 0));
    assert_eq!(rig.runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.peak, 0);
    assert!(rig.runtime.is_valid());
}

#[test]
fn unknown_pointers_are_refused() {
    let rig = rig();
    let refused =
        |result: Result<(), Error>| assert_eq!(result.unwrap_err().to_string(), "invalid device pointer: 0x3039");
    refused(rig.runtime.memory().free(12345));
    rig.runtime.init().unwrap();
    refused(rig.runtime.memory().free(12345));
    let stream = rig.stream();
    refused(rig.runtime.memory().record_stream(12345, &stream));
    let address = rig.runtime.memory().alloc(1, &stream).unwrap();
    rig.runtime.memory().free(address).unwrap();
    assert_eq!(rig.runtime.memory().free(address), Err(Error::Memory(MemoryError::InvalidPointer { address })));
    rig.runtime.memory().free(0).unwrap();
}

#[test]
fn an_allocation_larger_than_the_device_is_torchs_out_of_memory() {
    let rig = rig();
    let stream = rig.stream();
    let address = rig.runtime.memory().alloc(100, &stream).unwrap();
    let error = rig.runtime.memory().alloc(4096 << 30, &stream).unwrap_err();
    let Error::OutOfMemory(failed) = &error else { panic!("{error:?}") };
    let figures = failed.figures;
    assert_eq!((figures.requested, figures.segment, figures.allocated), (4096 << 30, 4096 << 30, 512));
    let text = error.to_string();
    let beginning =
        "CUDA out of memory. Tried to allocate 4096.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which ";
    assert!(text.starts_with(beginning), "{text}");
    let end = " is free. Of the allocated memory 512 bytes is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch \
         but unallocated. The request of 4096.00 GiB is larger than the device, which has 139.80 GiB.";
    assert!(text.ends_with(end), "{text}");
    let text = failed.torch_text();
    let end = " is free. Of the allocated memory 512 bytes is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch \
         but unallocated. If reserved but unallocated memory is large try setting \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
         Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html\
         #optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
    assert!(text.ends_with(end), "{text}");
    assert!(error.is_out_of_memory() && !error.context_is_lost());
    rig.runtime.memory().free(address).unwrap();
    assert!(rig.runtime.is_valid());
    rig.runtime.memory().alloc(100, &stream).unwrap();
}

/// Torch's advice is given if it applies: memory is free, but fragmented.
#[test]
fn torchs_advice_is_given_where_it_fits() {
    let rig = Rig::new(config().capacity(64 * MIB));
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let pieces: Vec<u64> = (0..6).map(|_| memory.alloc(10 * MIB, &stream).unwrap()).collect();
    let text = memory.alloc(20 * MIB, &stream).unwrap_err().to_string();
    assert!(
        text.ends_with("The program uses 60.00 MiB; free memory that is no longer needed, or use smaller batches.")
    );
    assert!(!text.contains("expandable_segments"), "{text}");
    drop(pieces);
    let rig = Rig::new(config().capacity(64 * MIB));
    let (memory, stream) = (rig.runtime.memory(), rig.stream());
    let whole = memory.alloc(60 * MIB, &stream).unwrap();
    memory.free(whole).unwrap();
    let _first = memory.alloc(30 * MIB, &stream).unwrap();
    let Err(Error::OutOfMemory(failed)) = memory.alloc(32 * MIB, &stream) else { panic!("30 of 64 MiB are free") };
    assert_eq!(failed.to_string(), failed.torch_text());
}

type Told = Arc<Mutex<Vec<(&'static str, DeviceIndex, u64, u64, u64)>>>;

fn note(told: &Told, who: &'static str) -> impl Fn(DeviceIndex, u64, u64, u64) + Send + Sync + 'static {
    let told = Arc::clone(told);
    move |device, segment, limit, free| {
        told.lock().expect("nobody panics here").push((who, device, segment, limit, free))
    }
}

#[test]
fn observers_are_told_in_order_before_the_error_is_returned() {
    let rig = Rig::new(config().capacity(100 * MIB));
    let stream = rig.stream();
    let told = Told::default();
    let first = rig.runtime.memory().attach_out_of_memory_observer(note(&told, "first"));
    rig.runtime.memory().attach_out_of_memory_observer(note(&told, "second"));
    assert!(rig.runtime.memory().alloc(200 * MIB, &stream).unwrap_err().is_out_of_memory());
    let expected = |who| (who, DEVICE, 200 * MIB, 100 * MIB, 100 * MIB);
    assert_eq!(*told.lock().unwrap(), [expected("first"), expected("second")]);
    assert!(rig.runtime.memory().detach_out_of_memory_observer(first));
    assert!(!rig.runtime.memory().detach_out_of_memory_observer(first));
    rig.runtime.memory().set_fraction(0.5, DEVICE).unwrap();
    told.lock().unwrap().clear();
    let held = rig.runtime.memory().buffer(30 << 20, &stream).unwrap();
    let error = rig.runtime.memory().buffer(30 << 20, &stream).unwrap_err();
    assert_eq!(*told.lock().unwrap(), [("second", DEVICE, 30 * MIB, 50 * MIB, 70 * MIB)]);
    assert!(error.to_string().contains(" 50.00 MiB allowed; Of the allocated memory 30.00 MiB"), "{error}");
    assert!(format!("{error:?}").ends_with("may hold only 50.00 MiB; raise its memory fraction."), "{error:?}");
    drop(held);
}

#[test]
fn observers_may_use_the_runtime_and_may_panic() {
    let rig = Rig::new(config().capacity(100 * MIB));
    let stream = rig.stream();
    let told = Told::default();
    let _bound = rig.runtime.bind();
    let ooms = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&ooms);
    rig.runtime.memory().attach_out_of_memory_observer(move |device, _, _, _| {
        let runtime = c10_core::Runtime::current();
        seen.store(runtime.memory().stats(device).unwrap().num_ooms, Ordering::Relaxed);
        let address = runtime.memory().alloc(1, &runtime.streams().default(device).unwrap()).unwrap();
        runtime.memory().free(address).unwrap();
    });
    rig.runtime.memory().attach_out_of_memory_observer(|_, _, _, _| panic!("an observer fails"));
    rig.runtime.memory().attach_out_of_memory_observer(note(&told, "last"));
    let error = rig.runtime.memory().alloc(200 * MIB, &stream).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!((ooms.load(Ordering::Relaxed), told.lock().unwrap().len()), (1, 1));
    let driver_refuses = Fault { call: "cuMemAlloc_v2", occurrence: 1, code: CUresult::CUDA_ERROR_LAUNCH_FAILED };
    rig.machine.inject(driver_refuses);
    assert!(!rig.runtime.memory().alloc(20 * MIB, &stream).unwrap_err().is_out_of_memory());
    assert_eq!(told.lock().unwrap().len(), 1, "other errors are none of the observers' business");
}

#[test]
fn figures_can_be_had_as_a_tree() {
    let rig = rig();
    assert!(rig.runtime.memory().stats_as_nested_dict(DEVICE).unwrap().is_empty());
    let _buffer = rig.runtime.memory().buffer(1000, &rig.stream()).unwrap();
    let tree = rig.runtime.memory().stats_as_nested_dict(DEVICE).unwrap();
    assert_eq!(tree["allocated_bytes"].get("small_pool").and_then(|pool| pool.get("current")?.value()), Some(1024));
    assert_eq!(tree, rig.runtime.memory().stats(DEVICE).unwrap().as_nested_dict());
    assert_eq!(rig.runtime.memory().stats_as_nested_dict(DeviceIndex(9)), Err(Error::Device(DeviceError::InvalidId)));
}

#[test]
fn cached_memory_is_given_back_before_running_out() {
    let rig = Rig::new(config().capacity(100 * MIB));
    let stream = rig.stream();
    let first = rig.runtime.memory().alloc(40 * MIB, &stream).unwrap();
    rig.runtime.memory().free(first).unwrap();
    rig.runtime.memory().alloc(70 * MIB, &stream).unwrap();
    let stats = rig.runtime.memory().stats(DEVICE).unwrap();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_device_free), (1, 0, 1));
    let error = rig.runtime.memory().buffer(80 << 20, &stream).unwrap_err();
    assert!(error.to_string().contains("Tried to allocate 80.00 MiB."));
}

#[test]
fn buffers_give_their_memory_back_and_wait_for_other_streams() {
    let rig = rig();
    let (stream, other) = (rig.stream(), rig.stream());
    let buffer = rig.runtime.memory().buffer(1 << 20, &stream).unwrap();
    let address = buffer.address();
    buffer.fill(0..1 << 20, 1, &other).unwrap();
    let copy = buffer.clone();
    drop(buffer);
    assert_eq!(rig.allocated_bytes(), 1 << 20);
    drop(copy);
    assert_eq!(rig.allocated_bytes(), 0);
    assert_eq!(rig.runtime.memory().stats(DEVICE).unwrap().active.all.current, 1, "the other stream still uses it");
    other.synchronize().unwrap();
    let again = rig.runtime.memory().buffer(1 << 20, &stream).unwrap();
    assert_eq!(again.address(), address);
    assert!(rig.runtime.is_valid());
}

#[test]
fn copies_move_the_right_bytes() {
    let rig = rig();
    let stream = rig.stream();
    let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let first = rig.runtime.memory().buffer(10_000, &stream).unwrap();
    let second = rig.runtime.memory().buffer(10_000, &stream).unwrap();
    first.copy_from_slice(0, &bytes).unwrap();
    second.fill(0..10_000, 0, &stream).unwrap();
    second.copy_from_buffer(100, &first, 200..1200, &stream).unwrap();
    let pinned = rig.runtime.pinned().buffer(10_000).unwrap();
    second.copy_to_pinned(0..10_000, &pinned, 0, &stream).unwrap();
    stream.synchronize().unwrap();
    let mut expected = vec![0; 10_000];
    expected[100..1100].copy_from_slice(&bytes[200..1200]);
    assert_eq!(pinned.to_vec().unwrap(), expected);
    assert_eq!(first.to_vec().unwrap(), bytes);
    let mut middle = [0; 7];
    first.copy_to_slice(300, &mut middle).unwrap();
    assert_eq!(middle, bytes[300..307]);
}

#[test]
fn copies_between_devices() {
    let rig = Rig::new(config().devices(2));
    let here = rig.stream();
    let there = rig.runtime.streams().pooled(DeviceIndex(1), 0).unwrap();
    let from = rig.runtime.memory().buffer(5000, &here).unwrap();
    let to = rig.runtime.memory().buffer(5000, &there).unwrap();
    from.copy_from_slice(0, &[5; 5000]).unwrap();
    to.copy_from_buffer(0, &from, 0..5000, &there).unwrap();
    there.synchronize().unwrap();
    assert_eq!(to.to_vec().unwrap(), [5; 5000]);
    assert_eq!(to.device().to_string(), "cuda:1");
}

#[test]
fn ranges_outside_a_buffer_are_refused_before_anything_is_called() {
    let rig = rig();
    let stream = rig.stream();
    let (buffer, pinned) =
        (rig.runtime.memory().buffer(100, &stream).unwrap(), rig.runtime.pinned().buffer(50).unwrap());
    let calls = rig.machine.calls();
    let outside = |offset, bytes, len| Err(Error::Memory(MemoryError::OutOfRange { offset, bytes, len }));
    assert_eq!(buffer.fill(90..101, 0, &stream), outside(90, 11, 100));
    assert_eq!(buffer.copy_from_slice(usize::MAX, &[1, 2]), outside(usize::MAX, 2, 100));
    assert_eq!(buffer.copy_to_slice(99, &mut [0; 2]), outside(99, 2, 100));
    assert_eq!(buffer.copy_from_pinned(0, &pinned, 0..51, &stream), outside(0, 51, 50));
    assert_eq!(buffer.copy_to_pinned(0..51, &pinned, 0, &stream), outside(0, 51, 50));
    assert_eq!(buffer.copy_from_buffer(60, &buffer, 0..50, &stream), outside(60, 50, 100));
    assert_eq!(pinned.write(49, &[1, 2]), outside(49, 2, 50));
    assert_eq!(pinned.read(51, &mut []), outside(51, 0, 50));
    let (start, end) = (10, 5);
    let reversed = || Err(Error::Memory(MemoryError::ReversedRange { start, end }));
    assert_eq!(buffer.fill(start..end, 0, &stream), reversed());
    assert_eq!(buffer.copy_from_pinned(0, &pinned, start..end, &stream), reversed());
    assert_eq!(buffer.copy_to_pinned(start..end, &pinned, 0, &stream), reversed());
    assert_eq!(buffer.copy_from_buffer(0, &buffer, start..end, &stream), reversed());
    let text = buffer.fill(start..end, 0, &stream).unwrap_err().to_string();
    assert_eq!(text, "the range 10..5 of a buffer ends before it begins");
    assert_eq!(rig.machine.calls(), calls);
    let text = buffer.fill(90..101, 0, &stream).unwrap_err().to_string();
    assert_eq!(text, "11 bytes at offset 90 are not within a buffer of 100 bytes");
}

#[test]
fn empty_buffers_and_copies_are_nothing() {
    let rig = rig();
    let stream = rig.stream();
    let (buffer, pinned) = (rig.runtime.memory().buffer(0, &stream).unwrap(), rig.runtime.pinned().buffer(0).unwrap());
    assert!(buffer.is_empty() && pinned.is_empty() && buffer.address() == 0);
    buffer.copy_from_slice(0, &[]).unwrap();
    buffer.copy_from_pinned(0, &pinned, 0..0, &stream).unwrap();
    buffer.copy_to_pinned(0..0, &pinned, 0, &stream).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), []);
    assert_eq!(rig.runtime.memory().stats(DEVICE).unwrap().allocation.all.allocated, 0);
}

#[test]
fn copies_hold_their_pinned_memory_until_they_are_done() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(1 << 20, &stream).unwrap();
    let pinned = rig.runtime.pinned().buffer(1 << 20).unwrap();
    let address = pinned.address();
    pinned.write(0, &vec![3; 1 << 20]).unwrap();
    buffer.copy_from_pinned(0, &pinned, 0..1 << 20, &stream).unwrap();
    drop(pinned);
    let other = rig.runtime.pinned().buffer(1 << 20).unwrap();
    if !stream.query().unwrap() {
        assert_ne!(other.address(), address, "memory was handed out while a copy reads it");
    }
    other.write(0, &vec![4; 1 << 20]).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), vec![3; 1 << 20]);
    assert_eq!(rig.runtime.pinned().buffer((1 << 20) - 5).unwrap().address(), address, "done: cached and used again");
    drop(other);
    rig.runtime.pinned().empty_cache().unwrap();
    assert_eq!(rig.machine.live().pinned, 0);
}

#[test]
fn an_illegal_address_loses_the_context_and_says_so() {
    let rig = rig();
    let stream = rig.stream();
    rig.machine.inject(Fault {
        call: "cuStreamSynchronize",
        occurrence: 1,
        code: CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    });
    let error = stream.synchronize().unwrap_err();
    assert!(error.context_is_lost());
    assert_eq!(error.accelerator().unwrap().call(), "cuStreamSynchronize");
    assert!(error.to_string().starts_with("CUDA error: an illegal memory access was encountered\n"));
    assert_eq!(code(Err::<(), _>(error)), 700);
}

#[test]
fn only_a_buffer_gives_its_memory_back() {
    for cached in [true, false] {
        let rig = rig();
        let memory = rig.runtime.memory();
        memory.enable_caching(cached);
        let stream = rig.runtime.streams().default(DEVICE).unwrap();
        for others in 0..3 {
            let buffer = memory.buffer(4096, &stream).unwrap();
            let refused = Err(Error::Memory(MemoryError::OwnedByBuffer { address: buffer.address() }));
            // It is found as the last allocation, and as another one; by this thread and by another.
            let raw: Vec<u64> = (0..others).map(|_| memory.alloc(4096, &stream).unwrap()).collect();
            assert_eq!(memory.free(buffer.address()), refused);
            let elsewhere = std::thread::scope(|scope| {
                let simulation = rig.machine.clone();
                scope
                    .spawn(move || {
                        let _bound = simulation.bind();
                        memory.free(buffer.address()).map(|()| buffer)
                    })
                    .join()
                    .unwrap()
            });
            assert_eq!(elsewhere.map(drop), refused);
            raw.into_iter().for_each(|address| memory.free(address).unwrap());
        }
        // Memory that a buffer had serves the program, and the other way round.
        let address = memory.buffer(4096, &stream).unwrap().address();
        let raw = memory.alloc(4096, &stream).unwrap();
        assert!(raw == address || !cached, "what the driver gives without a cache is its own choice");
        memory.free(raw).unwrap();
        let buffer = memory.buffer(4096, &stream).unwrap();
        assert_ne!(memory.free(buffer.address()), Ok(()));
        drop(buffer);
        assert_eq!(rig.allocated_bytes(), 0);
        assert!(rig.runtime.is_valid());
    }
}

#[test]
fn an_observer_that_runs_out_of_memory_itself_gets_the_error() {
    let rig = Rig::new(config().capacity(100 * MIB));
    let stream = rig.stream();
    let _bound = rig.runtime.bind();
    let (told, refused) = (Told::default(), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&refused);
    let greedy = move |device, _, _, _| {
        let runtime = c10_core::Runtime::current();
        let stream = runtime.streams().default(device).unwrap();
        let more = runtime.memory().alloc(300 * MIB, &stream);
        seen.fetch_add(u64::from(more.is_err_and(|error| error.is_out_of_memory())), Ordering::Relaxed);
    };
    rig.runtime.memory().attach_out_of_memory_observer(greedy);
    rig.runtime.memory().attach_out_of_memory_observer(note(&told, "last"));
    for round in 1..=2 {
        let error = rig.runtime.memory().alloc(200 * MIB, &stream).unwrap_err();
        assert!(error.to_string().contains("Tried to allocate 200.00 MiB"), "{error}");
        assert_eq!(refused.load(Ordering::Relaxed), round);
        assert_eq!(
            told.lock().unwrap().len(),
            usize::try_from(round).unwrap(),
            "the failure in the observer is not told"
        );
    }
}
