//! Which devices reach each other's memory, and by what.
//!
//! **Invariant:** the driver's answers, NVML's and the way of a copy follow from one [`crate::Topology`]. Without one, devices
//! are what those behind a switch of NVLink are, but that copies between them never wait.

use super::State;
use crate::topology::Connection;

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

    fn topology(&self) -> Option<&crate::Topology> {
        self.config.topology.as_ref()
    }
}
