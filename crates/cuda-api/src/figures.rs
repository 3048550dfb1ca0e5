//! Figures of memory beyond torch's: fragmentation, tables by stream and pool, what would become of a request, and a text
//! for Prometheus.
//!
//! **Invariant:** nothing changes by asking, and nothing is started: before [`crate::init`] all figures are 0.

use std::fmt::Write as _;

use c10_core::{DeviceArg, DeviceIndex, FigureExport, RequestOutlook, Result, Runtime, StreamArg};
use memory_viz::Snapshot;
use memory_viz::analysis::{self, Fragmentation, human_bytes};

/// How the memory held of a device is used: bytes that are free, that `empty_cache` could not give back, that rounding
/// costs, and the largest free block. All zero before [`crate::init`]. `None` is the current device.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let buffer = cuda_api::DeviceBuffer::new(1000, None)?;
/// let fragmentation = cuda_api::memory_fragmentation(None)?;
/// assert_eq!((fragmentation.reserved, fragmentation.allocated), (2 << 20, 1024));
/// assert_eq!(fragmentation.largest_free, (2 << 20) - 1024);
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// The device does not exist; this process was forked from one that had used a GPU.
pub fn memory_fragmentation(device: impl DeviceArg) -> Result<Fragmentation> {
    Ok(analysis::fragmentation(&of_device(device)?.1))
}

/// The same for each stream and pool, as a table; one line for each that holds memory.
///
/// # Errors
/// As for [`memory_fragmentation`].
pub fn memory_tables(device: impl DeviceArg) -> Result<String> {
    let (device, snapshot) = of_device(device)?;
    let mut table = format!("memory of device {device} by stream and pool\n");
    let _ = write!(table, "{:<18} {:<12} {:<8} {:>8}", "stream", "pool", "serves", "segments");
    for name in ["reserved", "allocated", "pending", "free", "largest", "stuck"] {
        let _ = write!(table, " {name:>11}");
    }
    table.push('\n');
    for (group, of) in analysis::by_group(&snapshot) {
        let stream = format!("{:#x}", group.stream);
        let pool = match group.pool_id {
            (0, 0) => "common".to_owned(),
            (first, second) => format!("({first}, {second})"),
        };
        let serves = if group.is_large { "large" } else { "small" };
        let _ = write!(table, "{stream:<18} {pool:<12} {serves:<8} {:>8}", of.segments);
        for bytes in [of.reserved, of.allocated, of.pending, of.free, of.largest_free, of.free_stuck] {
            let _ = write!(table, " {:>11}", human_bytes(bytes));
        }
        table.push('\n');
    }
    Ok(table)
}

/// What would become of a request for `size` bytes on a stream, the current one for `None`: where the memory would come
/// from, or why it could not be served. Printed, it says so in sentences.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let outlook = cuda_api::explain_memory_request(1 << 50, None)?;
/// assert_eq!(outlook.answer, cuda_api::RequestAnswer::OutOfMemory);
/// assert!(outlook.to_string().contains("cannot be had"));
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// The request is larger than any can be; the stream belongs to another runtime; the driver's error.
pub fn explain_memory_request(size: u64, stream: impl StreamArg) -> Result<RequestOutlook> {
    let runtime = Runtime::current();
    stream.with_stream(|stream| match stream {
        Some(stream) => runtime.memory().outlook(size, stream),
        None => runtime.memory().outlook(size, &runtime.streams().current(runtime.current_device()?)?),
    })
}

/// What is held of one device.
fn of_device(device: impl DeviceArg) -> Result<(DeviceIndex, Snapshot)> {
    let device = device.resolve(&Runtime::current())?;
    let mut snapshot = crate::history::state()?;
    snapshot.segments.retain(|segment| i32::try_from(segment.device) == Ok(device));
    Ok((device, snapshot))
}

/// The figures of all devices and of pinned memory in the text format of Prometheus: current values and peaks as gauges,
/// sums and counts as counters, which begin again when they are reset. Bytes, or microseconds for times.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let buffer = cuda_api::DeviceBuffer::new(1000, None)?;
/// let text = cuda_api::memory_stats_prometheus()?;
/// assert!(text.contains("\ntorch_cuda_allocated_bytes{device=\"0\",pool=\"all\"} 1024\n"));
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// The driver's error.
pub fn memory_stats_prometheus() -> Result<String> {
    Runtime::current().figures_text()
}

/// Lets `torch-cuda top` and `torch-cuda stats` of the same user read this process's figures, as long as the value lives.
/// The environment variable `TORCH_CUDA_EXPORT=1` does the same for a program that does not call this. Beyond torch.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let export = cuda_api::export_figures()?;
/// assert!(cuda_api::figure_exports()?.iter().any(|listed| listed.socket == export.socket()));
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// The folder of exports cannot be used, or no thread be started.
pub fn export_figures() -> Result<FigureExport> {
    Runtime::current().export_figures()
}
