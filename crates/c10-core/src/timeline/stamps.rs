//! When work ran on a device: timing events before and after it.
//!
//! Each device has a clock of its own: nanoseconds since its first event, which is recorded on a stream that nobody else
//! uses, so that it passes at once. Times between two events are told in `f32`, so the event that later ones are compared
//! with is replaced by a newer one before the numbers get coarse.
//!
//! **Invariants:** nothing here waits, but [`Stamps::finish`]. No event is recorded on a stream that captures. An event is
//! in one place: spare, with what was begun, or with what waits to be looked at.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::{EventHandle, StreamRef};
use crate::driver::Api;
use crate::runtime::Started;
use crate::state::deferred_destroy::DriverObject;

/// An event that times, and that yields the processor to nobody.
const TIMING: u32 = 0;
/// Nanoseconds after which a newer event becomes the one that others are compared with: `f32` has 24 bits.
const COARSE: i64 = 200_000_000;
/// How much later than the first moment the last must be for the two clocks' rates to be told apart, in nanoseconds.
const LONG: i64 = 5_000_000_000;
/// Rates of clocks differ by less, in nanoseconds of a second.
const LIKELY_DRIFT: i64 = 1_000_000;

/// Nanoseconds from a beginning to an end, since the recording or the clock of a device began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
}

/// An event before some work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp(EventHandle);

/// Work whose times are not known yet.
#[derive(Debug)]
struct Waiting {
    device: DeviceIndex,
    /// The events before and after it; one alone for what takes no time.
    from: Option<EventHandle>,
    to: EventHandle,
    /// Number of the work.
    work: usize,
}

/// A moment by the clock of a device and by that of the host.
#[derive(Clone, Copy, Debug)]
struct Moment {
    device: i64,
    host: i64,
}

/// The clock of one device.
#[derive(Debug, Default)]
struct Clock {
    /// The stream that nobody else uses.
    stream: Option<StreamRef>,
    /// What others are compared with, and when that was.
    reference: Option<(EventHandle, i64)>,
    first: Option<Moment>,
    last: Option<Moment>,
    spare: Vec<EventHandle>,
    /// Whether the device has refused an event, and gets no more of them.
    is_lost: bool,
}

/// Turns times of a device into times of the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToHost {
    device: i64,
    host: i64,
    /// Nanoseconds of the host for a thousand million of the device, less that many.
    drift: i64,
}

impl ToHost {
    pub(super) fn span(self, Span { start, end }: Span) -> Span {
        Span { start: self.time(start), end: self.time(end) }
    }

    fn time(self, device: i64) -> i64 {
        let since = device - self.device;
        let drift = i128::from(since) * i128::from(self.drift) / 1_000_000_000;
        self.host + since + i64::try_from(drift).unwrap_or(0)
    }
}

/// The events of all devices.
#[derive(Debug)]
pub(super) struct Stamps {
    start: Instant,
    clocks: Vec<Clock>,
    waiting: VecDeque<Waiting>,
}

impl Stamps {
    pub(super) fn new(start: Instant) -> Self {
        Self { start, clocks: Vec::new(), waiting: VecDeque::new() }
    }

    /// Nanoseconds since the recording began.
    pub(super) fn now(&self) -> i64 {
        nanos(self.start.elapsed())
    }

    /// Marks the point that a stream has reached, unless a graph captures it.
    pub(super) fn mark(&mut self, ready: &Started, stream: StreamRef) -> Option<Stamp> {
        if !matches!(ready.captures.of(&ready.api, stream), Ok(None)) {
            return None;
        }
        self.clock(ready, stream.device)?.record(ready, stream).ok().map(Stamp)
    }

    /// Notes that a piece of work lies between two points; `from` is missing for what takes no time.
    pub(super) fn between(&mut self, device: DeviceIndex, from: Option<Stamp>, Stamp(to): Stamp, work: usize) {
        self.waiting.push_back(Waiting { device, from: from.map(|Stamp(from)| from), to, work });
    }

    /// Takes a mark back that nothing came of.
    pub(super) fn take_back(&mut self, device: DeviceIndex, Stamp(event): Stamp) {
        if let Some(clock) = self.clocks.get_mut(position(device)) {
            clock.spare.push(event);
        }
    }

    /// Tells the times of work that is done, of so many pieces at most, in the order in which they were noted.
    pub(super) fn look(&mut self, ready: &Started, most: usize, mut tell: impl FnMut(usize, Span)) {
        if self.waiting.is_empty() {
            return;
        }
        let Ok(_relaxed) = ready.relaxed() else { return };
        for _ in 0..most {
            let Some(next) = self.waiting.front() else { return };
            match ready.api.event_is_done(next.to) {
                Ok(false) => return,
                Ok(true) => self.tell_next(ready, &mut tell),
                Err(_) => self.lose_next(ready),
            }
        }
    }

    /// Waits for all work that was noted and tells its times, then gives up every event. How the times of each device
    /// become those of the host.
    pub(super) fn finish(&mut self, ready: &Started, mut tell: impl FnMut(usize, Span)) -> Vec<ToHost> {
        let Ok(_relaxed) = ready.relaxed() else { return Vec::new() };
        while let Some(next) = self.waiting.front() {
            match ready.api.event_wait_on_host(next.to) {
                Ok(()) => self.tell_next(ready, &mut tell),
                Err(_) => self.lose_next(ready),
            }
        }
        self.give_up(ready)
    }

    /// Gives up every event without waiting for the work that was noted.
    pub(super) fn discard(&mut self, ready: &Started) {
        for Waiting { device, from, to, .. } in std::mem::take(&mut self.waiting) {
            if let Some(clock) = self.clocks.get_mut(position(device)) {
                // Recording a spare event anew replaces what it stood for.
                clock.spare.extend(from.into_iter().chain([to]));
            }
        }
        if let Ok(_relaxed) = ready.relaxed() {
            for (device, clock) in (0..).map(DeviceIndex).zip(std::mem::take(&mut self.clocks)) {
                clock.give_up(ready, device);
            }
        }
    }

    fn give_up(&mut self, ready: &Started) -> Vec<ToHost> {
        let start = self.start;
        let clocks = (0..).map(DeviceIndex).zip(std::mem::take(&mut self.clocks));
        let told = clocks.map(|(device, mut clock)| {
            clock.note_last_moment(ready, || start.elapsed());
            let to_host = clock.to_host();
            clock.give_up(ready, device);
            to_host
        });
        told.collect()
    }

    /// Tells when the work that waits longest ran; its last event has passed.
    fn tell_next(&mut self, ready: &Started, tell: &mut impl FnMut(usize, Span)) {
        let Some(Waiting { device, from, to, work }) = self.waiting.pop_front() else { return };
        let Some(clock) = self.clocks.get_mut(position(device)) else { return };
        clock.spare.extend(from);
        match clock.span(&ready.api, from.unwrap_or(to), to) {
            Some(span) => {
                tell(work, span);
                clock.compare_with(to, span.end);
            }
            None => clock.spare.push(to),
        }
    }

    /// Passes by work whose events the driver refuses to tell of.
    fn lose_next(&mut self, ready: &Started) {
        let Some(Waiting { device, from, to, .. }) = self.waiting.pop_front() else { return };
        from.into_iter().chain([to]).for_each(|event| drop(ready.destroy(DriverObject::Event(event))));
        if let Some(clock) = self.clocks.get_mut(position(device)) {
            clock.is_lost = true;
        }
    }

    /// The clock of a device, which begins when it is first needed.
    fn clock(&mut self, ready: &Started, device: DeviceIndex) -> Option<&mut Clock> {
        let position = position(device);
        if position >= self.clocks.len() {
            self.clocks.resize_with(position + 1, Clock::default);
        }
        if self.clocks[position].reference.is_none() && !self.clocks[position].is_lost {
            let begun = self.clocks[position].begin(ready, device, || self.start.elapsed());
            self.clocks[position].is_lost = begun.is_err();
        }
        Some(&mut self.clocks[position]).filter(|clock| !clock.is_lost)
    }
}

impl Clock {
    /// Makes the stream, and records the first event on it.
    fn begin(&mut self, ready: &Started, device: DeviceIndex, elapsed: impl Fn() -> Duration) -> Result<()> {
        let _relaxed = ready.relaxed()?;
        let stream = match self.stream {
            Some(stream) => stream,
            None => *self.stream.insert(StreamRef { device, handle: ready.api.stream_create(device, 0)? }),
        };
        let event = self.record(ready, stream)?;
        self.reference = Some((event, 0));
        self.first = Some(Moment { device: 0, host: nanos(elapsed()) });
        Ok(())
    }

    /// Records a spare event.
    fn record(&mut self, ready: &Started, stream: StreamRef) -> Result<EventHandle> {
        let event = match self.spare.pop().or_else(|| ready.spare_events.take(stream.device, TIMING)) {
            Some(event) => event,
            None => ready.api.event_create_with_flags(stream.device, TIMING)?,
        };
        let recorded = ready.api.event_record_with_flags(event, stream, 0);
        recorded.map(|()| event).inspect_err(|_| drop(ready.destroy(DriverObject::Event(event))))
    }

    /// From one event that has passed to another, on this clock.
    fn span(&self, api: &Api, from: EventHandle, to: EventHandle) -> Option<Span> {
        let (reference, at) = self.reference?;
        let start = at + nanos_of(api.event_elapsed_ms(reference, from).ok()?);
        let end = if from == to { start } else { start + nanos_of(api.event_elapsed_ms(from, to).ok()?) };
        Some(Span { start, end })
    }

    /// Takes an event that passed at a known time to compare others with, once the one before is long ago.
    fn compare_with(&mut self, event: EventHandle, at: i64) {
        match &mut self.reference {
            Some(reference) if at - reference.1 > COARSE => {
                self.spare.push(std::mem::replace(reference, (event, at)).0);
            }
            _ => self.spare.push(event),
        }
    }

    /// Reads both clocks once more; waits for an event on the stream that nobody else uses.
    fn note_last_moment(&mut self, ready: &Started, elapsed: impl Fn() -> Duration) -> Option<()> {
        let event = self.record(ready, self.stream.filter(|_| !self.is_lost)?).ok()?;
        ready.api.event_wait_on_host(event).ok()?;
        let host = nanos(elapsed());
        let device = self.span(&ready.api, event, event)?.start;
        self.last = Some(Moment { device, host });
        self.spare.push(event);
        Some(())
    }

    /// How times of this clock become those of the host.
    fn to_host(&self) -> ToHost {
        let Some(first) = self.first else { return ToHost::default() };
        let far = self.last.filter(|last| last.host - first.host >= LONG && last.device - first.device >= LONG);
        let drift = far.map_or(0, |last| {
            let (host, device) = (i128::from(last.host - first.host), i128::from(last.device - first.device));
            i64::try_from((host - device) * 1_000_000_000 / device).unwrap_or(0)
        });
        // Two real clocks differ by some millionths; a simulated device has a time of its own.
        let drift = if drift.abs() <= LIKELY_DRIFT { drift } else { 0 };
        ToHost { device: first.device, host: first.host, drift }
    }

    /// Gives the events and the stream up.
    fn give_up(self, ready: &Started, device: DeviceIndex) {
        let reference = self.reference.map(|(event, _)| event);
        for event in self.spare.into_iter().chain(reference) {
            if let Err(event) = ready.spare_events.keep(device, TIMING, event) {
                // There is nobody to tell; what cannot be destroyed now is tried again later.
                let _ = ready.destroy(DriverObject::Event(event));
            }
        }
        if let Some(stream) = self.stream {
            // A stream that cannot be destroyed ends with its context.
            let _ = ready.api.stream_destroy(stream);
        }
    }
}

fn position(device: DeviceIndex) -> usize {
    usize::try_from(device).unwrap_or(0)
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "a time that is out of bounds becomes the bound")]
fn nanos_of(milliseconds: f32) -> i64 {
    (f64::from(milliseconds) * 1e6).round() as i64
}
