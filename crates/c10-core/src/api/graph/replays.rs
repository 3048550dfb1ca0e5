//! How many graphs were replayed.
//!
//! **Invariant:** a replay is counted once it is queued, before the call returns.

use std::sync::atomic::{AtomicU64, Ordering};

static REPLAYS: AtomicU64 = AtomicU64::new(0);

/// How many graphs this process has replayed, on whatever device. Replays write to memory without naming it: who keeps
/// something that was computed of memory may compare this number.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Runtime, graph_replays};
///
/// let runtime = Runtime::current();
/// let buffer = DeviceBuffer::new(1024, None)?;
/// let (mut graph, side) = (CUDAGraph::new(), runtime.streams().pooled(0, 0)?);
/// graph.capture(&side, None, CaptureMode::Global, || buffer.fill(.., 1, None))?;
/// let before = graph_replays();
/// graph.replay()?;
/// assert_eq!(graph_replays(), before + 1);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use]
pub fn graph_replays() -> u64 {
    REPLAYS.load(Ordering::Relaxed)
}

#[inline]
pub(super) fn count() {
    REPLAYS.fetch_add(1, Ordering::Relaxed);
}
