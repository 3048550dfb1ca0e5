//! Copies between devices, and the order of what several devices do.
//!
//! A copy between two devices waits for the current streams of both and is waited for by both, so that copies one after
//! another never overlap. What may go on at once has lanes: streams of a device beside its current one, which begin after
//! that and are joined to it again.
//!
//! **Invariant:** a lane that was begun is joined, whatever fails in it.

use c10_core::{DeviceIndex, Event, PinnedBuffer, Runtime, Stream};

use super::device_of;
use crate::base::error::Result;
use crate::tensor::{Tensor, check_overlap};

/// Bytes from which on a lane is worth its events.
pub(super) const LARGE: usize = 1 << 20;

/// Bytes that go through pinned memory at once.
const STAGE: usize = 4 << 20;

/// Copies elements without waiting, unless they go to memory of the host that is not pinned.
pub(super) fn copy(to: &Tensor, from: &Tensor) -> Result<()> {
    if let (Some(target), Some(source)) = (device_of(to), device_of(from))
        && target != source
        && !can_reach(target, source)?
        && from.nbytes() > 0
    {
        return staged(to, from);
    }
    to.copy_non_blocking_(from).map(drop)
}

/// Whether one of two devices reaches the other's memory, so that the driver copies directly.
fn can_reach(one: DeviceIndex, other: DeviceIndex) -> Result<bool> {
    Runtime::with_current(|runtime| {
        let devices = runtime.devices();
        Ok(devices.can_access_peer(one, other)? || devices.can_access_peer(other, one)?)
    })
}

/// Copies through pinned memory, in two halves: while one is filled, the other one is emptied.
fn staged(to: &Tensor, from: &Tensor) -> Result<()> {
    check_overlap(to, &[])?;
    let source = from.expand(to.sizes())?.to_dtype(to.dtype())?.packed()?;
    let is_direct = to.is_contiguous() && to.signs() == source.signs();
    let target = if is_direct { to.clone() } else { Tensor::uninitialized(to.sizes(), to.dtype(), to)? };
    let (Some(read), Some(written)) = (source.storage().buffer(), target.storage().buffer()) else { return Ok(()) };
    let (sends, takes) = (current(read.device_index())?, current(written.device_index())?);
    // What was queued on the target is done with it before the first bytes come.
    let bytes = source.nbytes();
    let halves = [PinnedBuffer::new(bytes.min(STAGE))?, PinnedBuffer::new(bytes.min(STAGE))?];
    let mut emptied: [Option<Event>; 2] = [None, None];
    for (number, start) in (0..bytes).step_by(STAGE).enumerate() {
        let (half, length) = (&halves[number % 2], STAGE.min(bytes - start));
        if let Some(emptied) = &emptied[number % 2] {
            sends.wait_event(emptied)?;
        }
        let first = source.byte_offset() + start;
        read.copy_to_pinned(first..first + length, half, 0, None)?;
        takes.wait_event(&sends.record_event()?)?;
        written.copy_from_pinned(target.byte_offset() + start, half, ..length, None)?;
        emptied[number % 2] = Some(takes.record_event()?);
    }
    target.storage().note_write();
    if is_direct { Ok(()) } else { to.copy_non_blocking_(&target).map(drop) }
}

/// The current stream of a device.
pub(super) fn current(device: DeviceIndex) -> Result<Stream> {
    Ok(Runtime::with_current(|runtime| runtime.streams().current(device))?)
}

/// Whether the current stream of a device is captured. A graph waits for no streams but those of its own capture.
pub(super) fn is_any_capturing(devices: impl IntoIterator<Item = DeviceIndex>) -> Result<bool> {
    devices.into_iter().try_fold(false, |any, device| Ok(any || current(device)?.is_capturing()?))
}

/// Runs what queues work on the current stream of a device that uses memory of others too: after what is queued on their
/// current streams, and before what will be. Streams that are not of the same capture are left out: a graph waits for no
/// others.
pub(super) fn among<R>(
    device: DeviceIndex,
    others: impl IntoIterator<Item = DeviceIndex>,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let own = current(device)?;
    let captures = own.is_capturing()?;
    let mut around: Vec<Stream> = Vec::new();
    for other in others {
        let stream = current(other)?;
        if other != device && !around.contains(&stream) && stream.is_capturing()? == captures {
            around.push(stream);
        }
    }
    around.iter().try_for_each(|other| own.wait_stream(other))?;
    let done = run();
    let event = own.record_event()?;
    around.iter().try_for_each(|other| other.wait_event(&event))?;
    done
}

/// A stream of a device beside its current one.
pub(super) struct Lane {
    side: Stream,
    joins: Stream,
}

impl Lane {
    /// Begins after what is queued on the current stream of the device.
    pub(super) fn begin(device: DeviceIndex) -> Result<Self> {
        let joins = current(device)?;
        let side = Runtime::with_current(|runtime| runtime.streams().pooled(device, 0))?;
        side.wait_stream(&joins)?;
        Ok(Self { side, joins })
    }

    /// Runs with the lane as the current stream of its device.
    pub(super) fn run<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let _current = self.side.guard();
        run()
    }

    /// The lane's stream.
    pub(super) fn stream(&self) -> &Stream {
        &self.side
    }

    /// The stream that was current.
    pub(super) fn joins(&self) -> &Stream {
        &self.joins
    }

    /// Has what comes later on the stream that was current wait for the lane.
    pub(super) fn join(&self) -> Result<()> {
        Ok(self.joins.wait_stream(&self.side)?)
    }
}

/// Runs with lanes, and joins all of them whether it fails or not; the first failure is told.
pub(super) fn with_lanes<R>(lanes: &[Lane], run: impl FnOnce() -> Result<R>) -> Result<R> {
    let done = run();
    let joined = lanes.iter().map(Lane::join).fold(Ok(()), Result::and);
    done.and_then(|done| joined.map(|()| done))
}

/// Copies several tensors, each to its own place. Where several are large, those that come from other devices go on at once,
/// and beside what is copied on the device itself.
pub(super) fn copy_all(pairs: &[(Tensor, Tensor)]) -> Result<()> {
    let is_large = |to: &Tensor, from: &Tensor| to.is_cuda() && from.is_cuda() && to.nbytes() >= LARGE;
    if pairs.iter().filter(|(to, from)| is_large(to, from)).count() < 2 {
        return pairs.iter().try_for_each(|(to, from)| copy(to, from));
    }
    let (far, near): (Vec<_>, Vec<_>) =
        pairs.iter().partition(|(to, from)| is_large(to, from) && to.device() != from.device());
    let lanes = far.iter().map(|(to, _)| Lane::begin(to.device().index.unwrap_or(0))).collect::<Result<Vec<_>>>()?;
    with_lanes(&lanes, || {
        far.iter().zip(&lanes).try_for_each(|((to, from), lane)| lane.run(|| copy(to, from)))?;
        near.iter().try_for_each(|(to, from)| copy(to, from))
    })
}
