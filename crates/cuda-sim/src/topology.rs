//! How the devices of a machine are connected: which links a copy between two of them takes, and how fast they are.
//!
//! Every device has a link in each direction to whatever connects the devices, and one in each direction to the host. A copy
//! takes all links of its way at once; a link serves one copy after another, in the order in which they could begin, so
//! that copies which need the same link have its bandwidth between them. The two directions have nothing to do with each
//! other.

/// Nanoseconds that a byte takes between a device and the host, in thousandths.
const HOST_PICOSECONDS: u64 = 20;

/// The links between the devices of a simulated machine. Without one, copies between devices take the time that copies
/// inside a device take, and never wait for each other.
///
/// ```
/// use cuda_sim::{Config, Machine, Topology};
///
/// let machine = Machine::new(Config::default().devices(8).topology(Topology::nvlink(450, 1_000)));
/// let of_bridges = Topology::pcie(64, 2_000, 4).failed(0, 1);
/// assert_eq!(machine.now_ns(), 0);
/// # drop(of_bridges);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    kind: Kind,
    bytes_per_ns: u64,
    latency_ns: u64,
    failed: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Every device reaches every other through a switch that never is too slow.
    Switch,
    /// So many devices share a PCIe switch, and the switches share the host's bridge, one link of the same bandwidth each.
    Bridges(u32),
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    /// From a device to the others, and to it.
    Out(u32),
    In(u32),
    /// From a device to the host, and to it.
    ToHost(u32),
    FromHost(u32),
    /// From a PCIe switch to the host's bridge, and to it.
    Up(u32),
    Down(u32),
}

/// The most links of a way.
const LINKS: usize = 4;

/// The way of a copy: its links, each busy for as long as the copy moves bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way([Option<Link>; LINKS]);

impl Way {
    fn of(links: &[Link]) -> Self {
        let mut way = Self::default();
        way.0.iter_mut().zip(links).for_each(|(place, link)| *place = Some(*link));
        way
    }

    pub(crate) fn links(self) -> impl Iterator<Item = Link> {
        self.0.into_iter().flatten()
    }

    /// The way between a device and the host.
    pub(crate) fn of_host(device: u32, to_host: bool) -> Self {
        Self::of(&[if to_host { Link::ToHost(device) } else { Link::FromHost(device) }])
    }
}

impl Topology {
    /// Devices with links to a switch (NVLink): so many gigabytes a second out of each device and as many into it, whatever
    /// the others do, and so many nanoseconds before the first byte arrives.
    ///
    /// # Panics
    /// The bandwidth is 0.
    #[must_use]
    pub fn nvlink(gigabytes_per_second: u64, latency_ns: u64) -> Self {
        Self::new(Kind::Switch, gigabytes_per_second, latency_ns)
    }

    /// Devices behind PCIe switches, so many behind each; each switch has one link to the host's bridge, which is as fast as
    /// that of a device and which all copies to and from other switches share.
    ///
    /// # Panics
    /// The bandwidth, or the number of devices behind a switch, is 0.
    #[must_use]
    pub fn pcie(gigabytes_per_second: u64, latency_ns: u64, devices: u32) -> Self {
        assert!(devices > 0, "a switch has devices");
        Self::new(Kind::Bridges(devices), gigabytes_per_second, latency_ns)
    }

    fn new(kind: Kind, bytes_per_ns: u64, latency_ns: u64) -> Self {
        assert!(bytes_per_ns > 0, "a link moves bytes");
        Self { kind, bytes_per_ns, latency_ns, failed: Vec::new() }
    }

    /// The same with two devices that no longer reach each other: neither has access to the other's memory, and copies between
    /// them go by way of the host.
    #[must_use]
    pub fn failed(mut self, one: u32, other: u32) -> Self {
        self.failed.extend([(one, other), (other, one)]);
        self
    }

    /// Whether a device reaches another's memory.
    pub(crate) fn reaches(&self, one: u32, other: u32) -> bool {
        !self.failed.contains(&(one, other))
    }

    /// How good the way between two devices is: 0 is the best.
    pub(crate) fn rank(&self, one: u32, other: u32) -> i32 {
        match self.kind {
            _ if !self.reaches(one, other) => 3,
            Kind::Switch => 0,
            Kind::Bridges(devices) if one / devices == other / devices => 1,
            Kind::Bridges(_) => 2,
        }
    }

    /// Whether atomic instructions work on another device's memory.
    pub(crate) fn has_atomics(&self, one: u32, other: u32) -> bool {
        self.kind == Kind::Switch && self.reaches(one, other)
    }

    /// The way of a copy from one device to another, how long it takes until the first byte arrives, and how long its bytes
    /// move.
    pub(crate) fn way(&self, from: u32, to: u32, bytes: u64) -> (Way, u64, u64) {
        let moving_ns = bytes.div_ceil(self.bytes_per_ns);
        let (out, into) = (Link::Out(from), Link::In(to));
        match self.kind {
            _ if !self.reaches(from, to) => {
                let by_host_ns = moving_ns.max(bytes.saturating_mul(HOST_PICOSECONDS) / 1000);
                (Way::of(&[Link::ToHost(from), Link::FromHost(to)]), 2 * self.latency_ns, by_host_ns)
            }
            Kind::Bridges(devices) if from / devices != to / devices => {
                let (up, down) = (Link::Up(from / devices), Link::Down(to / devices));
                (Way::of(&[out, up, down, into]), 2 * self.latency_ns, moving_ns)
            }
            Kind::Switch | Kind::Bridges(_) => (Way::of(&[out, into]), self.latency_ns, moving_ns),
        }
    }
}
