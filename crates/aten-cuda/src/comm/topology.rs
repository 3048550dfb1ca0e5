//! How the devices of a list are connected, and what their links are like.
//!
//! **Invariant:** what driver and NVML have said of a list of devices is kept by the runtime, and they are not asked again.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use c10_core::locks::Mutex;
use c10_core::{DeviceArg, DeviceIndex, PeerLink, PeerPath, Runtime};

use super::pattern::LinkModel;
use super::resolved;
use crate::base::error::Result;

/// What a link between two devices is, the best one first.
///
/// ```
/// use aten_cuda::comm::LinkClass;
///
/// assert!(LinkClass::NvLink < LinkClass::Pcie && LinkClass::Pcie < LinkClass::Host);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LinkClass {
    /// NVLink, or what the driver ranks as the best link of a machine on which NVML says nothing.
    NvLink,
    /// PCIe, on which the devices reach each other's memory.
    Pcie,
    /// By memory of the host: the devices do not reach each other.
    Host,
}

/// How some devices are connected to each other, by the driver (`cuDeviceGetP2PAttribute`) and by NVML where it is there.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default().devices(2)).with_nvml().here();
/// use aten_cuda::comm::{LinkClass, Topology};
///
/// let topology = Topology::of(&["cuda:0", "cuda:1"])?;
/// assert!(topology.link(0, 1).access && topology.path(0, 1).is_some());
/// assert_eq!(topology.class(0, 0), LinkClass::NvLink);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    devices: Vec<DeviceIndex>,
    /// From each device to each, row by row.
    links: Vec<PeerLink>,
    /// The same of NVML, where it says something.
    paths: Option<Vec<PeerPath>>,
}

/// What is known, by lists of devices.
#[derive(Debug, Default)]
struct Known(Mutex<BTreeMap<Vec<DeviceIndex>, Arc<Topology>>>);

impl Topology {
    /// The devices' topology, which is read when it is first asked for. Makes no context and waits for nothing.
    ///
    /// # Errors
    /// A device does not exist, or the driver's error. NVML may be missing.
    pub fn of<D: DeviceArg + Clone>(devices: &[D]) -> Result<Arc<Self>> {
        Self::of_numbers(&resolved(devices)?)
    }

    pub(super) fn of_numbers(devices: &[DeviceIndex]) -> Result<Arc<Self>> {
        Runtime::with_current(|runtime| {
            let known = runtime.extension::<Known>();
            let found = known.0.lock().unwrap_or_else(PoisonError::into_inner).get(devices).cloned();
            if let Some(found) = found {
                return Ok(found);
            }
            let read = Arc::new(Self::read(runtime, devices)?);
            known.0.lock().unwrap_or_else(PoisonError::into_inner).insert(devices.to_vec(), Arc::clone(&read));
            Ok(read)
        })
    }

    fn read(runtime: &Runtime, devices: &[DeviceIndex]) -> Result<Self> {
        let pairs = || devices.iter().flat_map(|&one| devices.iter().map(move |&other| (one, other)));
        let link = |(one, other)| Ok(runtime.devices().peer_link(one, other)?);
        let links = pairs().map(link).collect::<Result<Vec<PeerLink>>>()?;
        // Without NVML, or with an old one, the driver alone has to do.
        let path = |(one, other)| runtime.telemetry().peer_path(one, other).ok();
        Ok(Self { devices: devices.to_vec(), links, paths: pairs().map(path).collect() })
    }

    /// The devices, as they were named.
    #[must_use]
    pub fn devices(&self) -> &[DeviceIndex] {
        &self.devices
    }

    /// What the driver says of the link from one device to another, by their places in the list.
    ///
    /// # Panics
    /// There is no such place.
    #[must_use]
    pub fn link(&self, from: usize, to: usize) -> PeerLink {
        self.links[from * self.devices.len() + to]
    }

    /// What NVML says of the way between two devices; nothing where it is not there or does not know.
    ///
    /// # Panics
    /// There is no such place.
    #[must_use]
    pub fn path(&self, from: usize, to: usize) -> Option<PeerPath> {
        self.paths.as_ref().map(|paths| paths[from * self.devices.len() + to])
    }

    /// What the link is.
    ///
    /// # Panics
    /// There is no such place.
    #[must_use]
    pub fn class(&self, from: usize, to: usize) -> LinkClass {
        let link = self.link(from, to);
        let is_best = self.path(from, to).map_or(link.rank == 0, |path| path.nvlink);
        match link.access {
            false => LinkClass::Host,
            true if is_best || from == to => LinkClass::NvLink,
            true => LinkClass::Pcie,
        }
    }

    /// The places in an order that begins with `first`, in which each is followed by the one with the best link of those that
    /// are left; and the worst link in it, back to the first included.
    pub(super) fn order(&self, first: usize) -> (Vec<usize>, LinkClass) {
        let count = self.devices.len();
        let key = |one: usize, other: usize| {
            let ancestor = self.path(one, other).and_then(|path| path.ancestor);
            (self.class(one, other), self.link(one, other).rank, ancestor, other)
        };
        let mut order = vec![first];
        while order.len() < count {
            let last = order[order.len() - 1];
            let left = (0..count).filter(|at| !order.contains(at));
            let Some(next) = left.min_by_key(|&at| key(last, at)) else { break };
            order.push(next);
        }
        let steps = order.iter().zip(order.iter().cycle().skip(1));
        let worst = steps.map(|(&one, &other)| self.class(one, other)).max();
        (order, worst.unwrap_or(LinkClass::NvLink))
    }
}

impl LinkModel {
    /// What links of a kind are like.
    pub(super) fn of(class: LinkClass) -> Self {
        // A copy that waits for an event begins about ten microseconds after it.
        match class {
            LinkClass::NvLink => Self { latency_ns: 10_000.0, bytes_per_ns: 360.0 },
            LinkClass::Pcie => Self { latency_ns: 15_000.0, bytes_per_ns: 25.0 },
            LinkClass::Host => Self { latency_ns: 30_000.0, bytes_per_ns: 12.0 },
        }
    }
}
