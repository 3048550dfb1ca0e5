//! Events that were recorded on streams, and what waits for each of them.
//!
//! Each stream has a queue, the oldest event first. Work of a stream is done in order, so an event that has not passed tells
//! that none behind it has: only the oldest is asked for. A stream that is behind does not hold up others. An event is named
//! by its stream and its position in that queue, where 0 is the oldest.
//!
//! **Invariants:** an event is in exactly one place: a queue, the stock of spare events, or with the caller. An event that
//! has passed goes to the stock. Nothing here takes a lock or decides what a passed event means: that is the caller's,
//! who also chooses whether the driver is called under a lock.

use std::collections::VecDeque;

use crate::base::error::Result;
use crate::base::handles::{EventHandle, StreamRef};
use crate::driver::Driver;
use crate::events::stock::SpareEvents;

/// Queues of events with what waits for them.
#[derive(Debug)]
pub(crate) struct EventQueues<T> {
    /// By stream, sorted.
    queues: Vec<Queue<T>>,
    /// The queue that was used last.
    last: usize,
    /// Events to use again.
    pub(crate) spare: SpareEvents,
}

/// The events of a stream, the oldest first.
#[derive(Debug)]
struct Queue<T> {
    stream: StreamRef,
    entries: VecDeque<(EventHandle, T)>,
}

impl<T> Default for EventQueues<T> {
    fn default() -> Self {
        Self { queues: Vec::new(), last: 0, spare: SpareEvents::default() }
    }
}

impl<T> EventQueues<T> {
    /// Records an event behind the work of a stream, and then asks `waits` for what waits for it. After an error nothing
    /// has changed, and nothing was asked for.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "most blocks that another stream used come here, and it is short")]
    pub(crate) fn record<D: Driver>(&mut self, driver: &D, stream: StreamRef, waits: impl FnOnce() -> T) -> Result<()> {
        let event = match self.spare.take(stream.device) {
            Some(event) => event,
            None => driver.event_create(stream.device)?,
        };
        match driver.event_record(event, stream) {
            Ok(()) => {
                self.push(stream, event, waits());
                Ok(())
            }
            Err(error) => {
                self.spare.keep(stream.device, event);
                Err(error)
            }
        }
    }

    /// Takes in an event that the caller has recorded on the stream, behind all that were.
    #[inline]
    pub(crate) fn push(&mut self, stream: StreamRef, event: EventHandle, waits: T) {
        self.queue_of(stream).entries.push_back((event, waits));
    }

    #[inline]
    fn queue_of(&mut self, stream: StreamRef) -> &mut Queue<T> {
        let is_last = self.queues.get(self.last).is_some_and(|queue| queue.stream == stream);
        if !is_last {
            self.turn_to(stream);
        }
        &mut self.queues[self.last]
    }

    #[inline(never)]
    fn turn_to(&mut self, stream: StreamRef) {
        let found = self.queues.binary_search_by_key(&stream, |queue| queue.stream);
        self.last = found.unwrap_or_else(|position| {
            self.queues.insert(position, Queue { stream, entries: VecDeque::new() });
            position
        });
    }

    /// Asks `has_passed` for the oldest event of each stream, as long as that has passed, and hands over what waited for
    /// it.
    ///
    /// # Errors
    /// The first error of `has_passed`; what has passed before was handed over.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "each request for memory comes here while blocks wait for events")]
    pub(crate) fn poll(
        &mut self,
        mut has_passed: impl FnMut(EventHandle) -> Result<bool>,
        mut passed: impl FnMut(T),
    ) -> Result<()> {
        for Queue { stream, entries } in &mut self.queues {
            while let Some((event, _)) = entries.front()
                && has_passed(*event)?
                && let Some((event, waited)) = entries.pop_front()
            {
                self.spare.keep(stream.device, event);
                passed(waited);
            }
        }
        Ok(())
    }

    /// The streams that something waits for, sorted.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamRef> {
        self.queues.iter().filter(|queue| !queue.entries.is_empty()).map(|queue| queue.stream)
    }

    /// An event of a stream, and what waits for it.
    pub(crate) fn get(&self, stream: StreamRef, position: usize) -> Option<(EventHandle, &T)> {
        let queue = self.queues.binary_search_by_key(&stream, |queue| queue.stream).ok()?;
        let (event, waits) = self.queues[queue].entries.get(position)?;
        Some((*event, waits))
    }

    /// An event of a stream has passed; what waited for it.
    pub(crate) fn pass(&mut self, stream: StreamRef, position: usize) -> Option<T> {
        let (event, waited) = self.queue_of(stream).entries.remove(position)?;
        self.spare.keep(stream.device, event);
        Some(waited)
    }

    /// Every event with what waits for it, by stream, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EventHandle, &T)> {
        self.queues.iter().flat_map(|queue| &queue.entries).map(|(event, waits)| (*event, waits))
    }

    /// Everything that waits, with the stream of its event.
    pub(crate) fn by_stream(&self) -> impl Iterator<Item = (StreamRef, &T)> {
        self.queues.iter().flat_map(|queue| queue.entries.iter().map(|(_, waits)| (queue.stream, waits)))
    }

    /// Gives up every event, in a queue or spare, and what waits.
    pub(crate) fn take(&mut self) -> (Vec<EventHandle>, Vec<T>) {
        let queued = std::mem::take(&mut self.queues).into_iter().flat_map(|queue| queue.entries);
        let (mut events, waiting): (Vec<_>, Vec<_>) = queued.unzip();
        events.extend(self.spare.clear());
        self.last = 0;
        (events, waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::device::DeviceIndex;
    use crate::base::error::{DeviceError, Error};
    use crate::base::handles::StreamHandle;

    fn stream(handle: usize) -> StreamRef {
        StreamRef { device: DeviceIndex(0), handle: StreamHandle(handle) }
    }

    /// Two streams with events of two digits, the first of them the stream's.
    fn queues() -> EventQueues<char> {
        let mut queues = EventQueues::default();
        for (handle, event, waits) in [(2, 21, 'c'), (1, 11, 'a'), (2, 22, 'd'), (1, 12, 'b')] {
            queues.push(stream(handle), EventHandle(event), waits);
        }
        queues
    }

    #[test]
    fn only_the_oldest_events_are_asked_for() {
        let mut queues = queues();
        let (mut asked, mut passed) = (Vec::new(), Vec::new());
        let polled = queues.poll(
            |event| {
                asked.push(event.0);
                Ok(event.0 < 20)
            },
            |waited| passed.push(waited),
        );
        assert_eq!((polled, asked, passed), (Ok(()), vec![11, 12, 21], vec!['a', 'b']));
        assert_eq!(queues.streams().collect::<Vec<_>>(), [stream(2)]);
        let oldest = |handle| queues.get(stream(handle), 0);
        assert_eq!((oldest(2), oldest(1), oldest(3)), (Some((EventHandle(21), &'c')), None, None));
    }

    #[test]
    fn what_passed_before_an_error_has_passed() {
        let mut queues = queues();
        let mut passed = Vec::new();
        let fails =
            |event: EventHandle| if event.0 == 12 { Err(Error::Device(DeviceError::InvalidId)) } else { Ok(true) };
        assert_eq!(queues.poll(fails, |waited| passed.push(waited)), Err(Error::Device(DeviceError::InvalidId)));
        assert_eq!((passed, queues.pass(stream(1), 0)), (vec!['a'], Some('b')));
        assert_eq!(queues.iter().map(|(_, waits)| *waits).collect::<String>(), "cd");
    }

    #[test]
    fn an_event_may_pass_before_older_ones() {
        let mut queues = queues();
        queues.push(stream(1), EventHandle(13), 'e');
        assert_eq!((queues.pass(stream(1), 1), queues.pass(stream(1), 2)), (Some('b'), None));
        assert_eq!(queues.get(stream(1), 1), Some((EventHandle(13), &'e')));
        assert_eq!(queues.iter().map(|(_, waits)| *waits).collect::<String>(), "aecd");
    }

    #[test]
    fn each_event_is_in_one_place() {
        let mut queues = queues();
        assert_eq!(queues.pass(stream(2), 0), Some('c'));
        assert_eq!(queues.spare.take(DeviceIndex(0)), Some(EventHandle(21)));
        queues.spare.keep(DeviceIndex(0), EventHandle(21));
        let (mut events, waiting) = queues.take();
        events.sort_unstable();
        assert_eq!((events, waiting), ([11, 12, 21, 22].map(EventHandle).to_vec(), vec!['a', 'b', 'd']));
        assert!(queues.take().0.is_empty());
    }
}
