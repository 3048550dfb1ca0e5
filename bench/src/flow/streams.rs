//! What is current, guards, events and pinned memory.

use std::hint::black_box;
use std::time::Instant;

use cuda_api::{DeviceIndex, Stream};

use crate::flow::report::Row;
use crate::measure::{BURSTS, alone, beside};
use crate::ours::Ours;
use crate::raw::{Failure, Raw};

/// Bytes of the pinned row.
const PINNED: usize = 1 << 20;
/// Bytes of the pinned row that nothing is cached for.
const PINNED_COLD: usize = 8 << 30;

/// How often it is measured.
const COLD_ROUNDS: usize = 2;
/// The most threads that touch it.
const MOST_THREADS: usize = 128;
/// How pinned memory is had by default.
const USUAL: &str = "pinned_use_cuda_host_register:False,pinned_num_register_threads:1";

/// Measures all rows.
///
/// # Errors
/// The runtime's or the driver's.
pub(crate) fn measure(cold: bool, take: &mut impl FnMut(Row)) -> Result<(), Failure> {
    let (raw, ours) = (Raw::new()?, Ours::new()?);
    current(take)?;
    events(&raw, &ours, take)?;
    // The first one is new. What the calls do outside shows that they were made: nothing need hold the buffer.
    let pinned = || {
        drop(cuda_api::PinnedBuffer::new(PINNED)?);
        Ok::<(), Failure>(())
    };
    pinned()?;
    let pair = alone(BURSTS, || Ok(()), pinned)?;
    take(Row::new("pinned 1 MiB pair", pair).torch("pinned_pair_1MiB"));
    if cold {
        pinned_cold(&raw, take)?;
    }
    Ok(())
}

/// What is current, and making something else so for a while. No driver is asked, except for another device.
fn current(take: &mut impl FnMut(Row)) -> Result<(), Failure> {
    let stream = Stream::new(None, 0)?;
    let get = dropped(|| Ok(cuda_api::current_stream(None)?))?;
    take(Row::new("current stream", get).torch("get_current_stream"));
    let next = dropped(|| Ok(Stream::new(None, 0)?))?;
    take(Row::new("stream from the pool", next).torch("get_stream_from_pool"));
    let guard = dropped(|| Ok(cuda_api::stream(&stream)?))?;
    take(Row::new("stream guard", guard).torch("stream_guard"));
    let guard = dropped(|| Ok(cuda_api::device(DeviceIndex(0))?))?;
    take(Row::new("device guard, same device", guard).torch("device_guard_same_device"));
    if cuda_api::device_count() > 1 {
        let guard = dropped(|| Ok(cuda_api::device(DeviceIndex(1))?))?;
        take(Row::new("device guard, another device", guard));
    }
    Ok(())
}

fn events(raw: &Raw, ours: &Ours, take: &mut impl FnMut(Row)) -> Result<(), Failure> {
    let settle = || Ok::<(), Failure>(raw.synchronize()?);
    let row = beside(("event record", "cuEventRecord"), settle, || ours.event_record(), || Ok(raw.event_record()?))?;
    take(Row::new(row.name, row.ours_ns).raw(row.raw_name, row.raw_ns).torch("event_record"));
    let row = beside(("event query", "cuEventQuery"), settle, || ours.event_query(), || Ok(raw.event_query()?))?;
    take(Row::new(row.name, row.ours_ns).raw(row.raw_name, row.raw_ns).torch("event_query"));
    let names = ("wait for event", "cuStreamWaitEvent");
    let row = beside(names, settle, || ours.wait_event(), || Ok(raw.stream_wait_event()?))?;
    take(Row::new(row.name, row.ours_ns).raw(row.raw_name, row.raw_ns).torch("stream_wait_event"));
    let names = ("event new+record+drop", "cuEvent create+record+destroy");
    let row = beside(names, settle, || ours.event_new_and_drop(), || Ok(raw.event_create_and_destroy()?))?;
    take(Row::new(row.name, row.ours_ns).raw(row.raw_name, row.raw_ns).torch("event_create_record_destroy"));
    let names = ("stream synchronize, idle", "cuStreamSynchronize");
    let row = beside(names, settle, || ours.stream_synchronize(), || Ok(raw.stream_synchronize()?))?;
    take(Row::new(row.name, row.ours_ns).raw(row.raw_name, row.raw_ns).torch("stream_synchronize_idle"));
    Ok(())
}

/// The median of making something and dropping it, which queues nothing.
fn dropped<T>(mut make: impl FnMut() -> Result<T, Failure>) -> Result<f64, Failure> {
    let body = || {
        drop(black_box(make()?));
        Ok(())
    };
    alone(BURSTS, || Ok(()), body)
}

/// Pinned memory that nothing is cached for: by the driver as usual, and by registration of the system's memory, which
/// threads have touched. The sides take turns; the quickest of each counts, since the system's own work varies.
fn pinned_cold(raw: &Raw, take: &mut impl FnMut(Row)) -> Result<(), Failure> {
    let threads = std::thread::available_parallelism()?.get().min(MOST_THREADS);
    let threads = 1 << threads.ilog2();
    let registered = format!("pinned_use_cuda_host_register:True,pinned_num_register_threads:{threads}");
    let [mut usual_ns, mut registered_ns, mut raw_ns] = [f64::INFINITY; 3];
    for _ in 0..COLD_ROUNDS {
        raw_ns = raw_ns.min(timed(|| Ok(raw.host_free(raw.host_alloc(PINNED_COLD)?)?))?);
        for (settings, best_ns) in [(USUAL, &mut usual_ns), (registered.as_str(), &mut registered_ns)] {
            cuda_api::set_allocator_settings(settings)?;
            let whole = || {
                drop(cuda_api::PinnedBuffer::new(PINNED_COLD)?);
                Ok(cuda_api::host_empty_cache()?)
            };
            *best_ns = best_ns.min(timed(whole)?);
        }
    }
    cuda_api::set_allocator_settings(USUAL)?;
    take(Row::new("pinned 8 GiB, cold", usual_ns).raw("cuMemHostAlloc, cuMemFreeHost", raw_ns));
    let name = format!("pinned 8 GiB, {threads} threads touch it");
    take(Row::new(name, registered_ns).raw("cuMemHostAlloc, cuMemFreeHost", raw_ns));
    Ok(())
}

fn timed(body: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let begin = Instant::now();
    body()?;
    Ok(begin.elapsed().as_secs_f64() * 1e9)
}
