//! A started runtime: the driver and everything that is kept for it.
//!
//! **Invariant:** the functions here relax the capture mode before they call the driver, where a capture of this
//! runtime may be under way. So the calls neither fail because of that capture nor spoil it.

use std::sync::{Arc, OnceLock};

use crate::backend::{Allocator, DriverPools, Other};
use crate::base::config::{AllocatorConfig, Backend};
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result, StartError, launch_blocking};
use crate::base::uuid::Uuid;
use crate::driver::{Api, ModuleHandle, Relaxed};
use crate::events::stock::SharedSpareEvents;
use crate::plugin::PluggableBackend;
use crate::runtime::home::Home;
use crate::state::captures::Captures;
use crate::state::deferred_destroy::{DeferredDestroy, DriverObject};
use crate::state::graph_events::GraphEvents;
use crate::state::green_contexts::GreenContexts;
use crate::state::holds::Holds;
use crate::state::ipc::IpcState;
use crate::state::launches::Launches;
use crate::state::modules::Modules;
use crate::state::peer::Peers;
use crate::state::pool_routes::PoolRoutes;
use crate::state::stream_pools::StreamPools;
use crate::state::wakers::Wakers;
use crate::trace::TraceKind;

/// A started runtime.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) api: Api,
    pub(crate) allocator: Allocator,
    pub(crate) streams: StreamPools,
    pub(crate) green: GreenContexts,
    pub(crate) spare_events: SharedSpareEvents,
    pub(crate) graph_events: GraphEvents,
    pub(crate) holds: Holds,
    pub(crate) pinned: &'static Home,
    pub(crate) captures: Captures,
    pub(crate) modules: Modules,
    pub(crate) launches: Launches,
    pub(crate) deferred: DeferredDestroy,
    pub(crate) peers: Peers,
    pub(crate) pool_routes: PoolRoutes,
    pub(crate) wakers: Wakers,
    pub(crate) ipc: IpcState,
    /// Identities of the devices, once somebody has asked.
    uuids: OnceLock<Vec<Uuid>>,
}

impl Started {
    pub(crate) fn new(api: Api, config: &Arc<AllocatorConfig>, plugged: Option<PluggableBackend>) -> Self {
        let devices = api.device_count();
        let other = match (plugged, config.backend) {
            (Some(plugged), _) => Some(Other::Program(Box::new(plugged))),
            (None, Backend::Native | Backend::Elastic) => None,
            (None, Backend::CudaMallocAsync) => Some(Other::DriverPools(Box::new(DriverPools::new(devices)))),
        };
        let allocator = Allocator::new(&api, config, other);
        Self {
            api,
            allocator,
            streams: StreamPools::new(devices),
            green: GreenContexts::default(),
            spare_events: SharedSpareEvents::new(devices),
            graph_events: GraphEvents::default(),
            holds: Holds::default(),
            pinned: Home::open(config),
            captures: Captures::default(),
            modules: Modules::default(),
            launches: Launches::new(devices, launch_blocking()),
            deferred: DeferredDestroy::default(),
            peers: Peers::new(devices),
            pool_routes: PoolRoutes::default(),
            wakers: Wakers::default(),
            ipc: IpcState::default(),
            uuids: OnceLock::new(),
        }
    }

    /// Somebody begins or ends to listen.
    pub(crate) fn follow_trace(&self) {
        self.allocator.choose_way();
        self.pinned.hear(self.api.trace.wants(TraceKind::Pinned));
    }

    /// Identities of the devices, in order. The driver is asked once.
    pub(crate) fn uuids(&self) -> Result<&[Uuid]> {
        if let Some(known) = self.uuids.get() {
            return Ok(known);
        }
        let devices = (0..).map(DeviceIndex).take(self.api.device_count());
        let asked = devices.map(|device| Ok(Uuid { bytes: self.api.gpu_uuid(device)? })).collect::<Result<_>>()?;
        Ok(self.uuids.get_or_init(|| asked))
    }

    /// Limits every device to the fraction of its memory that the options name.
    pub(crate) fn set_first_limits(&self, fraction: f64) -> Result<()> {
        if fraction >= 1.0 {
            return Ok(());
        }
        let mut devices = (0..).map(DeviceIndex).take(self.api.device_count());
        devices.try_for_each(|device| self.limit_memory(device, fraction))
    }

    /// Whether every device can do what the backend needs; one that the program has brought needs nothing.
    pub(crate) fn check_backend(&self, is_plugged: bool, config: &AllocatorConfig) -> Result<()> {
        let mut devices = (0..).map(DeviceIndex).take(self.api.device_count());
        match config.backend {
            Backend::Native => Ok(()),
            _ if is_plugged => Ok(()),
            Backend::Elastic => devices.try_for_each(|device| self.check_pages(device)),
            Backend::CudaMallocAsync => {
                devices.try_for_each(|device| require_pools(device, self.api.has_memory_pools(device)))
            }
        }
    }

    /// Whether a device can put memory behind addresses, which pages that move need.
    pub(crate) fn check_pages(&self, device: DeviceIndex) -> Result<()> {
        require_virtual_memory(device, self.api.has_virtual_memory(device))
    }

    /// Work of each of two devices shall reach memory of the other, where it can.
    pub(crate) fn let_reach_each_other(&self, one: DeviceIndex, other: DeviceIndex) -> Result<()> {
        self.let_reach(one, other)?;
        self.let_reach(other, one).map(drop)
    }

    /// Work of `device` shall reach memory of `peer`; whether it does.
    pub(crate) fn let_reach(&self, device: DeviceIndex, peer: DeviceIndex) -> Result<bool> {
        if self.peers.is_enabled(device, peer) && self.allocator.other_name().is_none() {
            return Ok(true);
        }
        let _relaxed = self.relaxed()?;
        let does = self.peers.enable(&self.api, device, peer)?;
        if does && self.allocator.other_name().is_some() {
            self.allocator.let_reach(&self.api, device, peer)?;
        }
        Ok(does)
    }

    /// Limits a device to a fraction of its memory.
    pub(crate) fn limit_memory(&self, device: DeviceIndex, fraction: f64) -> Result<()> {
        let total = self.api.total_memory_of(device)?;
        self.allocator.set_fraction(device, fraction, (fraction < 1.0).then(|| part(total, fraction)))
    }

    /// Allows calls that a capture of another thread would forbid, while a capture of this runtime is under way.
    pub(crate) fn relaxed(&self) -> Result<Relaxed<'_, Api>> {
        Relaxed::new(&self.api, self.allocator.is_scoped())
    }

    /// Frees memory whose copies are done, and destroys objects that could not be destroyed before.
    #[inline]
    pub(crate) fn sweep(&self) {
        let any_memory = self.holds.any() || self.pinned.cache.any_waiting();
        if any_memory || self.deferred.any() || self.captures.any_given_up() {
            self.sweep_all();
        }
    }

    #[inline(never)]
    fn sweep_all(&self) {
        // If the mode cannot be changed now, the next sweep tries again.
        if let Ok(_relaxed) = self.relaxed() {
            self.holds.sweep(&self.api);
            self.pinned.cache.sweep(&self.api);
            self.deferred.sweep(&self.api);
            self.captures.sweep(&self.api, &self.deferred);
        }
        self.api.trace.deliver_order();
    }

    /// Waits for the work that memory is held for, and frees that memory. Returns whether there was any.
    pub(crate) fn wait_for_held(&self) -> Result<bool> {
        let _relaxed = self.relaxed()?;
        self.holds.wait(&self.api)
    }

    /// Unloads modules that nobody can use any more.
    pub(crate) fn unload(&self, modules: &[ModuleHandle]) {
        if !modules.is_empty()
            && let Ok(_relaxed) = self.relaxed()
        {
            self.modules.unload(&self.api, modules);
        }
    }

    /// Destroys an object of the driver, now or, if that fails, later.
    pub(crate) fn destroy(&self, object: DriverObject) -> Result<()> {
        self.deferred.destroy(&self.api, object)
    }

    /// A device for calls that concern the host: the current one if it is in use, else one that is, so that no context
    /// is made for it.
    pub(crate) fn host_device(&self, current: DeviceIndex) -> DeviceIndex {
        let devices = (0..).map(DeviceIndex).take(self.api.device_count());
        let mut used = std::iter::once(current).chain(devices).filter(|device| self.api.is_used(*device));
        used.next().unwrap_or(current)
    }
}

/// A part of a number of bytes, rounded down.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction between 0 and 1 of a device's memory, as torch computes it"
)]
fn part(total: u64, fraction: f64) -> u64 {
    (total as f64 * fraction) as u64
}

/// Refuses a device that has no pools of stream-ordered memory.
fn require_pools(device: DeviceIndex, has: Result<bool>) -> Result<()> {
    if has? { Ok(()) } else { Err(Error::Start(StartError::NoMemoryPools { device })) }
}

/// Refuses a device that cannot put memory behind addresses.
fn require_virtual_memory(device: DeviceIndex, has: Result<bool>) -> Result<()> {
    if has? { Ok(()) } else { Err(Error::Start(StartError::NoVirtualMemory { device })) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_virtual_memory_is_named() {
        assert_eq!(require_virtual_memory(DeviceIndex(1), Ok(true)), Ok(()));
        let error = require_virtual_memory(DeviceIndex(1), Ok(false)).unwrap_err();
        assert_eq!(error, Error::Start(StartError::NoVirtualMemory { device: DeviceIndex(1) }));
        assert!(error.to_string().ends_with("which device 1 has not, use native"), "{error}");
        let lost = || Error::Start(StartError::NoDevices);
        assert_eq!(require_virtual_memory(DeviceIndex(1), Err(lost())), Err(lost()));
        let error = require_pools(DeviceIndex(2), Ok(false)).unwrap_err();
        assert_eq!(error, Error::Start(StartError::NoMemoryPools { device: DeviceIndex(2) }));
        assert_eq!(require_pools(DeviceIndex(2), Ok(true)), Ok(()));
    }
}
