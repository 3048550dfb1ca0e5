//! Which devices reach each other's memory, and by what.
//!
//! **Invariant:** the driver's answers, NVML's and the way of a copy follow from one [`crate::Topology`]. Without one, devices
//! are what those behind a switch of NVLink are, but that copies between them never wait.

use super::State;
use super::engine::Timing;
use super::flows::Flow;
use super::memory::{Source, Traffic, Transfer};
use crate::topology::{Connection, Topology, Way};

impl State {
    /// Whether one device reaches the memory of another.
    pub(crate) fn reaches(&self, one: u32, other: u32) -> bool {
        self.config.peer_access && self.topology().is_none_or(|topology| topology.reaches(one, other))
    }

    /// How two devices are connected, whether that works or not.
    pub(crate) fn connection(&self, one: u32, other: u32) -> Connection {
        self.topology().map_or(Connection::Switch, |topology| topology.connection(one, other))
    }

    /// How good the way between two devices is: 0 is the best.
    pub(crate) fn peer_rank(&self, one: u32, other: u32) -> i32 {
        self.topology().map_or(0, |topology| topology.rank(one, other))
    }

    /// Whether two devices reach each other by NVLink.
    pub(crate) fn joined_by_nvlink(&self, one: u32, other: u32) -> bool {
        self.reaches(one, other) && self.peer_rank(one, other) == 0
    }

    /// The devices to which working NVLinks of a device lead, in order, whether it may use them or not.
    pub(crate) fn nvlink_peers(&self, device: u32) -> Vec<u32> {
        let is_joined = |&other: &u32| other != device && self.peer_rank(device, other) == 0;
        (0..self.config.devices).filter(is_joined).collect()
    }

    /// The links as they are now.
    pub(crate) fn topology(&self) -> Option<&Topology> {
        self.engine.flows.topology()
    }

    /// Lets links change whose time has come, before they are asked about or used.
    pub(crate) fn change_links(&mut self) {
        self.engine.change_links(self.clock_ns);
    }

    /// A time for a copy whose bytes take so many picoseconds each, unless links say otherwise.
    pub(crate) fn copy_timing(&mut self, transfer: &Transfer, picoseconds: u64) -> Timing {
        let timing = self.draw_timing(transfer.bytes(), picoseconds);
        self.change_links();
        let Some(topology) = self.topology() else { return timing };
        let device = |address: u64| {
            let (_, region) = self.memory.region_at(address)?;
            self.memory.is_device_address(address).then_some(region.device)
        };
        let from = if let Source::Memory(side) = &transfer.from { device(side.address) } else { None };
        let over = |way: Way, latency_ns: u64| Timing {
            latency_ns: timing.latency_ns + latency_ns,
            duration_ns: 0,
            way,
            bytes: transfer.bytes(),
        };
        match (from, device(transfer.to.address)) {
            (Some(from), Some(to)) if from != to => over(topology.way(from, to), topology.latency_ns(from, to)),
            (Some(device), None) => over(topology.way_of_host(device, true), 0),
            (None, Some(device)) => over(topology.way_of_host(device, false), 0),
            (Some(_), Some(_)) | (None, None) => timing,
        }
    }

    /// What a kernel read from other devices and wrote to them, as flows that begin at `now_ns` or later; none where it reached
    /// over a link that is down.
    pub(crate) fn flows_of(&self, traffic: &Traffic, now_ns: u64) -> Option<Vec<(Flow, u64)>> {
        let Some(topology) = self.topology() else { return Some(Vec::new()) };
        let flow = |(&(from, to), &bytes): (&(u32, u32), &u64)| {
            let flow = Flow { way: topology.way(from, to), bytes };
            topology.reaches(from, to).then(|| (flow, now_ns + topology.latency_ns(from, to)))
        };
        traffic.iter().map(flow).collect()
    }
}
