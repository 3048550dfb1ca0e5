//! What the program and the devices did, on one time line; torch's `torch.profiler` in small, without CUPTI.
//!
//! A recorder notes the calls of the program (launches, copies, graphs, events, waits), allocations with the figures of the
//! allocator after each, and when devices ran what was queued, by timing events. [`export_chrome_trace`] writes it as a file
//! for <https://ui.perfetto.dev> and `chrome://tracing`: the program with its threads, each device with its streams and with
//! counters of memory, and arrows from the record of an event to the waits for it.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::{timeline, torch};
//!
//! let recorder = timeline::record(&timeline::TimelineOptions::default())?;
//! let ones = torch::ones(&[1000], torch::float32, "cuda")?;
//! let twos = torch::add(&ones, &ones)?;
//! let timeline = recorder.finish();
//! let path = std::env::temp_dir().join(format!("timeline-{}.json", std::process::id()));
//! timeline::export_chrome_trace(&timeline, &path)?;
//! assert!(std::fs::read_to_string(&path)?.contains("cuLaunchKernel"));
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use c10_core::{Result, Runtime};
use memory_viz::file;

pub use c10_core::{Timeline, TimelineOptions, TimelineRecorder};

/// Begins to record. Can be called before [`crate::init`].
///
/// # Errors
/// This process was forked from one that had used a GPU.
pub fn record(options: &TimelineOptions) -> Result<TimelineRecorder> {
    Runtime::current().record_timeline(options)
}

/// Writes a timeline to a file in Chrome's Trace Event Format, with the names of torch's profiler. An existing file is
/// replaced only when the new one is complete.
///
/// # Errors
/// The file cannot be written: an external error that holds a [`memory_viz::Error`].
pub fn export_chrome_trace(timeline: &Timeline, path: impl AsRef<Path>) -> aten_cuda::Result<()> {
    file::write_with(path.as_ref(), |out| timeline.write_to(out)).map_err(aten_cuda::Error::external)
}
