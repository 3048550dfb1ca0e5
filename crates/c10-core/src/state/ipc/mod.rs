//! What a runtime has sent to other processes and received from them.
//!
//! Reading order: `ledger` (the file that counts users), `users` (the receiver's side of it), `sent` (what is kept for
//! receivers), `offers` (descriptors of pages on a socket), this file (what was received).
//!
//! **Invariants:** a segment of another process is mapped once for a device, as long as a buffer here uses it: opens and
//! closes are counted under one lock. Memory that is received once more while it is here is the same memory. Pages of another
//! process are mapped for each memory, and no more of them than it lies in.

mod ledger;
mod offers;
mod sent;
mod users;

use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, Weak};

pub(crate) use ledger::{SlotName, is_own};
pub(crate) use offers::fetch_descriptors;
pub(crate) use sent::{Sendings, Sent};
pub(crate) use users::ReceiverLock;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::driver::{Api, IpcHandle};
use crate::state::deferred_destroy::{DeferredDestroy, DriverObject};
use crate::sync::{Mutex, MutexGuard};

/// Memory of another process: the file of that process, what the memory is called there, and the device here.
pub(crate) type ReceivedName = (PathBuf, u64, DeviceIndex);

/// What a runtime has sent and received.
#[derive(Debug, Default)]
pub(crate) struct IpcState {
    pub(crate) sendings: Sendings,
    received: Mutex<BTreeMap<ReceivedName, Weak<dyn Any + Send + Sync>>>,
    segments: Mutex<BTreeMap<(DeviceIndex, IpcHandle), Segment>>,
    /// Ranges that pages of other processes are behind: device, bytes, and bytes of each page.
    ranges: Mutex<BTreeMap<u64, (DeviceIndex, u64, u64)>>,
}

/// A segment of another process, mapped here.
#[derive(Debug)]
struct Segment {
    base: u64,
    /// How often it is open.
    users: usize,
}

impl IpcState {
    fn lock_segments(&self) -> MutexGuard<'_, BTreeMap<(DeviceIndex, IpcHandle), Segment>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_ranges(&self) -> MutexGuard<'_, BTreeMap<u64, (DeviceIndex, u64, u64)>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_received(&self) -> MutexGuard<'_, BTreeMap<ReceivedName, Weak<dyn Any + Send + Sync>>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory that was received before and is still used here.
    pub(crate) fn received(&self, name: &ReceivedName) -> Option<Arc<dyn Any + Send + Sync>> {
        self.lock_received().get(name)?.upgrade()
    }

    /// Notes memory that was received.
    pub(crate) fn add_received(&self, name: ReceivedName, memory: &Arc<dyn Any + Send + Sync>) {
        let mut received = self.lock_received();
        received.retain(|_, memory| memory.strong_count() > 0);
        received.insert(name, Arc::downgrade(memory));
    }

    /// Opens another process's segment and returns the address that it is mapped at.
    pub(crate) fn open(&self, api: &Api, device: DeviceIndex, handle: IpcHandle) -> Result<u64> {
        let mut segments = self.lock_segments();
        if let Some(segment) = segments.get_mut(&(device, handle)) {
            segment.users += 1;
            return Ok(segment.base);
        }
        let base = api.ipc_open_memory(device, &handle)?;
        segments.insert((device, handle), Segment { base, users: 1 });
        Ok(base)
    }

    /// Undoes one [`Self::open`]; the last one unmaps the segment.
    pub(crate) fn close(&self, api: &Api, deferred: &DeferredDestroy, name: (DeviceIndex, IpcHandle)) {
        let mut segments = self.lock_segments();
        let Some(segment) = segments.get_mut(&name) else { return };
        segment.users -= 1;
        if segment.users == 0 {
            // What fails is tried again later. The lock is held, so that no other thread opens the segment meanwhile.
            let _ = deferred.destroy(api, DriverObject::Import(name.0, segment.base));
            segments.remove(&name);
        }
    }

    /// Puts pages of another process behind a range of their own; its address.
    pub(crate) fn open_pages(
        &self,
        api: &Api,
        deferred: &DeferredDestroy,
        device: DeviceIndex,
        page: u64,
        descriptors: Vec<OwnedFd>,
    ) -> Result<u64> {
        let bytes = descriptors.len() as u64 * page;
        let base = api.address_reserve(device, bytes)?;
        if let Err(error) = api.map_imported(device, base, page, descriptors) {
            // What fails is tried again later.
            let _ = deferred.destroy(api, DriverObject::MappedRange(device, base, bytes, page));
            return Err(error);
        }
        self.lock_ranges().insert(base, (device, bytes, page));
        Ok(base)
    }

    /// Notes a range with pieces of memory behind it, which [`Self::close_pages`] or the end of the runtime gives back.
    pub(crate) fn keep_range(&self, base: u64, device: DeviceIndex, bytes: u64, piece: u64) {
        self.lock_ranges().insert(base, (device, bytes, piece));
    }

    /// Undoes [`Self::open_pages`], or gives a range back that was kept.
    pub(crate) fn close_pages(&self, api: &Api, deferred: &DeferredDestroy, base: u64) {
        let range = self.lock_ranges().remove(&base);
        if let Some((device, bytes, page)) = range {
            // What fails is tried again later.
            let _ = deferred.destroy(api, DriverObject::MappedRange(device, base, bytes, page));
        }
    }

    /// Frees everything, at the end of the runtime, when the devices are idle, even if receivers still use shared
    /// memory.
    pub(crate) fn dismantle(&self, api: &Api) {
        self.sendings.dismantle(api);
        // A buffer that is still held was held for work that is done by now. It finds no runtime when it is dropped.
        let segments = std::mem::take(&mut *self.lock_segments());
        for ((device, _), segment) in segments {
            let _ = api.ipc_close_memory(device, segment.base);
        }
        let ranges = std::mem::take(&mut *self.lock_ranges());
        for (base, (device, bytes, page)) in ranges {
            let _ = api.release_imported(device, base, bytes, page);
        }
    }
}
