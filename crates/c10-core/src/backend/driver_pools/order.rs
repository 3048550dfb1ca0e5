//! Freeing memory in order: behind all streams that use it, inside captures and beside them.
//!
//! Inside a capture, memory that it allocated becomes a node that frees it. Memory from outside waits for the end of the
//! capture, if one of its streams captures: the free would become a part of the graph. Memory of a capture that is over is
//! freed in the order of its stream, as any other.

use crate::backend::driver_pools::device::DevicePool;
use crate::backend::driver_pools::live::Live;
use crate::backend::driver_pools::{DriverPools, Late};
use crate::base::error::Result;
use crate::base::handles::StreamRef;
use crate::base::warning::warning;
use crate::driver::{Api, Driver};
use crate::sync::lock;

impl DriverPools {
    /// Frees memory that is used on several streams or was allocated in a capture, or while a capture is under way.
    #[cold]
    pub(super) fn free_specially(&self, api: &Api, address: u64, live: Live) -> Result<()> {
        let freed = self.free_by_rules(api, address, live);
        api.trace.deliver_order();
        freed
    }

    fn free_by_rules(&self, api: &Api, address: u64, live: Live) -> Result<()> {
        let _relaxed = self.relaxed(api).inspect_err(|_| self.keep_late(address, &live))?;
        if self.captures.pool_of(live.capture()).is_some() {
            return self.free_inside(api, address, live);
        }
        if self.captures.any() {
            let captures = self.is_captured(api, &live).inspect_err(|_| self.keep_late(address, &live))?;
            if captures {
                return self.free_after_capture(api, address, live);
            }
        }
        if live.capture() != 0 {
            warning!(
                "Attempting uncaptured free of a captured allocation with address {address:#x}\nThis is allowed; its \
                 contents cannot be looked at any more after later replays of the graph."
            );
        }
        self.free_outside(api, address, &live)
    }

    /// Keeps memory from outside until the capture that one of its streams takes part in ends.
    fn free_after_capture(&self, api: &Api, address: u64, live: Live) -> Result<()> {
        if self.captures.shall_warn() {
            warning!(
                "freeAsync() was called on an uncaptured allocation during graph capture (address = {address:#x}). It is \
                 freed when the capture ends. If the graph uses that memory, its replays will read and write memory that \
                 serves others."
            );
        }
        match self.captures.defer(address, live) {
            None => Ok(()),
            Some(live) => self.free_outside(api, address, &live),
        }
    }

    /// Whether one of the streams that use memory captures.
    fn is_captured(&self, api: &Api, live: &Live) -> Result<bool> {
        for stream in streams(live) {
            if api.capture_id(stream)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees memory of the capture under way in that.
    fn free_inside(&self, api: &Api, address: u64, live: Live) -> Result<()> {
        match self.free_as_node(api, address, &live) {
            Ok(freed_on) => self.captures.freed_on(freed_on),
            Err(error) => {
                self.captures.keep_unfreed(address, live);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The same; the stream on which it is freed. Streams that use the memory and take no part in the capture are not
    /// waited for: they could not use it before the graph is replayed.
    fn free_as_node(&self, api: &Api, address: u64, live: &Live) -> Result<StreamRef> {
        let joined = self.streams_of_capture(api, live)?;
        if joined.is_empty() {
            return api.free_in_order(address, live.stream()).map(|()| live.stream());
        }
        let device = self.device(live.stream().device)?;
        let hidden = device.pool().map_or_else(|| device.set_up(api), Ok)?.hidden;
        for stream in std::iter::once(live.stream()).chain(joined) {
            self.device(stream.device)?.join(api, stream, hidden, true)?;
            self.captures.freed_on(hidden);
        }
        api.free_in_order(address, hidden).map(|()| hidden)
    }

    /// Of the other streams that use memory of a capture those that take part in it.
    fn streams_of_capture(&self, api: &Api, live: &Live) -> Result<Vec<StreamRef>> {
        let mut taking_part = Vec::new();
        for stream in live.uses() {
            if api.capture_id(*stream)? == Some(live.capture()) {
                taking_part.push(*stream);
            }
        }
        Ok(taking_part)
    }

    /// Makes the stream that a capture began on follow every stream on which it freed memory, and frees there what could
    /// not be freed before. Goes on after a failure and returns the first.
    pub(super) fn finish(&self, api: &Api, origin: StreamRef) -> Result<()> {
        let (freed_on, unfreed) = self.captures.take_freed();
        let mut finished = Ok(());
        for stream in freed_on.into_iter().filter(|stream| *stream != origin) {
            finished = finished.and(self.device(stream.device)?.join(api, stream, origin, true));
        }
        for (address, live) in unfreed {
            finished = finished.and(self.free_on(api, address, &live, origin));
        }
        finished
    }

    /// Frees memory of a capture on the stream where that began, behind all others that use it.
    fn free_on(&self, api: &Api, address: u64, live: &Live, origin: StreamRef) -> Result<()> {
        let users = self.streams_of_capture(api, live)?.into_iter().chain([live.stream()]);
        for stream in users.filter(|stream| *stream != origin) {
            self.device(stream.device)?.join(api, stream, origin, true)?;
        }
        api.free_in_order(address, origin)
    }

    /// Frees memory in order, outside of captures.
    pub(super) fn free_outside(&self, api: &Api, address: u64, live: &Live) -> Result<()> {
        match self.release(api, address, live) {
            // A graph that was not replayed, or has freed its memory, does not hold it.
            Err(error) if live.capture() != 0 && error.is_invalid_value() => Ok(()),
            released => released.inspect_err(|_| self.keep_late(address, live)),
        }
    }

    /// The same; where several streams use the memory, the hidden stream waits for them on the device, and no other.
    fn release(&self, api: &Api, address: u64, live: &Live) -> Result<()> {
        if live.uses().is_empty() {
            return api.free_in_order(address, live.stream());
        }
        let device = self.device(live.stream().device)?;
        let hidden = device.pool().map_or_else(|| device.set_up(api), Ok)?.hidden;
        for stream in streams(live) {
            match self.device(stream.device)?.join(api, stream, hidden, false) {
                // Its owner has destroyed it, and answers for its work.
                Err(error) if error.is_invalid_handle() => {}
                joined => joined?,
            }
        }
        api.free_in_order(address, hidden)
    }

    /// Notes memory that the driver did not take back.
    #[cold]
    pub(super) fn keep_late(&self, address: u64, live: &Live) {
        lock(&self.late).push(Late { address, device: live.stream().device, of_graph: live.capture() != 0 });
    }

    /// Offers the driver again what it did not take back of a device, whose work is done. Memory of graphs only at the
    /// `end`: their addresses may have passed to other graphs, which is past by then.
    pub(super) fn free_late(&self, api: &Api, device: &DevicePool, end: bool) {
        let Some(pool) = device.pool() else { return };
        let is_due = |late: &mut Late| late.device == device.index() && (end || !late.of_graph);
        let due: Vec<Late> = lock(&self.late).extract_if(.., is_due).collect();
        let refused = due.into_iter().filter(|late| match api.free_in_order(late.address, pool.hidden) {
            Ok(()) => false,
            // The driver does not have it.
            Err(error) => !error.is_invalid_value(),
        });
        let refused: Vec<Late> = refused.collect();
        lock(&self.late).extend(refused);
    }
}

/// The streams that use memory.
fn streams(live: &Live) -> impl Iterator<Item = StreamRef> {
    std::iter::once(live.stream()).chain(live.uses().iter().copied())
}
