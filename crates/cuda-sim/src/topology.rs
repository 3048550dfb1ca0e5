//! How the devices of a machine are connected: which links a copy between two of them takes, and how fast they are.
//!
//! Every device has a link in each direction to whatever connects the devices, and one in each direction to the host. What goes
//! over a link at once shares its bandwidth, and so it does on each link of its way ([`crate::model::flows`]). The two
//! directions have nothing to do with each other.

/// Bytes a microsecond between a device and the host, where that is no link of the topology's own.
const HOST_RATE: u64 = 50_000;

/// Nanoseconds of a microsecond.
const RATE_NS: u64 = 1_000;

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
    /// Pairs of devices whose link has failed, in both orders.
    failed: Vec<(u32, u32)>,
    /// Pairs of devices whose link is slower, in both orders, and how many percent of its bandwidth it has.
    degraded: Vec<((u32, u32), u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Every device reaches every other through a switch that never is too slow.
    Switch,
    /// So many devices share a PCIe switch, and the switches share the host's bridge, one link of the same bandwidth each.
    Bridges(u32),
    /// Pairs of devices with an NVLink of their own; other pairs go by the host's PCIe.
    Pairs(Vec<(u32, u32)>),
}

/// How two devices are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// By NVLink, through a switch.
    Switch,
    /// By NVLink, without anything between.
    Direct,
    /// By one PCIe switch.
    PcieSwitch,
    /// By the host's PCIe bridge.
    HostBridge,
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    /// From a device to the others, and to it.
    Out(u16),
    In(u16),
    /// From a device to the host, and to it.
    ToHost(u16),
    FromHost(u16),
    /// From a PCIe switch to the host's bridge, and to it.
    Up(u16),
    Down(u16),
    /// From a device to another: a link of their own, or what is left of a way that is damaged.
    Between(u16, u16),
}

/// The most links of a way.
const LINKS: usize = 5;

/// The way of a copy: its links, whose bandwidth it shares while its bytes move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    links: [Option<Link>; LINKS],
    /// The devices at its ends, if both are.
    pub(crate) ends: Option<(u16, u16)>,
}

impl Way {
    fn of(links: &[Link]) -> Self {
        let mut way = Self::default();
        way.links.iter_mut().zip(links).for_each(|(place, link)| *place = Some(*link));
        way
    }

    fn with(mut self, link: Link) -> Self {
        if let Some(place) = self.links.iter_mut().find(|place| place.is_none()) {
            *place = Some(link);
        }
        self
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = Link> {
        self.links.into_iter().flatten()
    }

    /// Whether it has no links, as work that moves nothing over any.
    pub(crate) fn is_empty(&self) -> bool {
        self.links[0].is_none()
    }

    /// Whether it joins two devices, in either direction.
    pub(crate) fn joins(&self, one: u32, other: u32) -> bool {
        self.ends.is_some_and(|ends| ends == (id(one), id(other)) || ends == (id(other), id(one)))
    }
}

/// A device, or a switch, in a link.
fn id(index: u32) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
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
    /// that of a device and which all copies to and from other switches and the host share.
    ///
    /// # Panics
    /// The bandwidth, or the number of devices behind a switch, is 0.
    #[must_use]
    pub fn pcie(gigabytes_per_second: u64, latency_ns: u64, devices: u32) -> Self {
        assert!(devices > 0, "a switch has devices");
        Self::new(Kind::Bridges(devices), gigabytes_per_second, latency_ns)
    }

    /// Pairs of devices with an NVLink between them (bridges of cards): so many gigabytes a second in each direction. Other
    /// devices reach each other by the host's PCIe, whose links copies to and from the host need, too.
    ///
    /// # Panics
    /// The bandwidth is 0.
    #[must_use]
    pub fn pairs(gigabytes_per_second: u64, latency_ns: u64, pairs: &[(u32, u32)]) -> Self {
        Self::new(Kind::Pairs(pairs.to_vec()), gigabytes_per_second, latency_ns)
    }

    fn new(kind: Kind, bytes_per_ns: u64, latency_ns: u64) -> Self {
        assert!(bytes_per_ns > 0, "a link moves bytes");
        Self { kind, bytes_per_ns, latency_ns, failed: Vec::new(), degraded: Vec::new() }
    }

    /// The same with two devices that no longer reach each other: neither has access to the other's memory, and copies between
    /// them go by way of the host.
    #[must_use]
    pub fn failed(mut self, one: u32, other: u32) -> Self {
        self.fail(one, other);
        self
    }

    /// The same with a way between two devices that has so many percent of its bandwidth left, at least one.
    #[must_use]
    pub fn degraded(mut self, one: u32, other: u32, percent: u32) -> Self {
        self.degrade(one, other, percent);
        self
    }

    /// `nvlink:GIGABYTES:LATENCY`, `pcie:GIGABYTES:LATENCY:DEVICES` or `pairs:GIGABYTES:LATENCY:ONE-OTHER:...`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (kind, rate, latency) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let rest: Vec<&str> = parts.collect();
        let kind = match (kind, rest.as_slice()) {
            ("nvlink", []) => Kind::Switch,
            ("pcie", [devices]) => Kind::Bridges(devices.parse().ok().filter(|devices| *devices > 0)?),
            ("pairs", pairs) => Kind::Pairs(pairs.iter().map(|pair| parse_pair(pair)).collect::<Option<_>>()?),
            _ => return None,
        };
        (rate > 0).then(|| Self::new(kind, rate, latency))
    }

    pub(crate) fn fail(&mut self, one: u32, other: u32) {
        self.failed.extend([(one, other), (other, one)]);
    }

    pub(crate) fn degrade(&mut self, one: u32, other: u32, percent: u32) {
        let percent = percent.clamp(1, 100);
        self.degraded.retain(|&(pair, _)| pair != (one, other) && pair != (other, one));
        self.degraded.extend([((one, other), percent), ((other, one), percent)]);
    }

    /// Whether a device reaches another's memory.
    pub(crate) fn reaches(&self, one: u32, other: u32) -> bool {
        !self.failed.contains(&(one, other))
    }

    /// How two devices are connected, failed or not.
    pub(crate) fn connection(&self, one: u32, other: u32) -> Connection {
        match &self.kind {
            Kind::Switch => Connection::Switch,
            Kind::Bridges(devices) if one / devices == other / devices => Connection::PcieSwitch,
            Kind::Pairs(pairs) if pairs.contains(&(one, other)) || pairs.contains(&(other, one)) => Connection::Direct,
            Kind::Bridges(_) | Kind::Pairs(_) => Connection::HostBridge,
        }
    }

    /// How good the way between two devices is: 0 is the best.
    pub(crate) fn rank(&self, one: u32, other: u32) -> i32 {
        if !self.reaches(one, other) {
            return 3;
        }
        match self.connection(one, other) {
            Connection::Switch | Connection::Direct => 0,
            Connection::PcieSwitch => 1,
            Connection::HostBridge => 2,
        }
    }

    /// Nanoseconds before the first byte arrives.
    pub(crate) fn latency_ns(&self, from: u32, to: u32) -> u64 {
        let is_long = !self.reaches(from, to) || self.connection(from, to) == Connection::HostBridge;
        if is_long { 2 * self.latency_ns } else { self.latency_ns }
    }

    /// The way of a copy from one device to another.
    pub(crate) fn way(&self, from: u32, to: u32) -> Way {
        let (source, target, reaches) = (id(from), id(to), self.reaches(from, to));
        let mut way = match (&self.kind, self.connection(from, to)) {
            (Kind::Bridges(devices), connection) if !reaches || connection == Connection::HostBridge => {
                let (up, down) = (Link::Up(id(from / devices)), Link::Down(id(to / devices)));
                Way::of(&[Link::Out(source), up, down, Link::In(target)])
            }
            (_, Connection::Direct) if reaches => Way::of(&[Link::Between(source, target)]),
            (_, Connection::Switch | Connection::PcieSwitch) if reaches => {
                Way::of(&[Link::Out(source), Link::In(target)])
            }
            _ => Way::of(&[Link::ToHost(source), Link::FromHost(target)]),
        };
        if reaches {
            way.ends = Some((source, target));
            if self.percent(from, to) < 100 && !way.links().any(|link| link == Link::Between(source, target)) {
                way = way.with(Link::Between(source, target));
            }
        }
        way
    }

    /// The way between a device and the host.
    pub(crate) fn way_of_host(&self, device: u32, to_host: bool) -> Way {
        match (&self.kind, to_host) {
            (Kind::Bridges(devices), true) => Way::of(&[Link::Out(id(device)), Link::Up(id(device / devices))]),
            (Kind::Bridges(devices), false) => Way::of(&[Link::Down(id(device / devices)), Link::In(id(device))]),
            (Kind::Switch | Kind::Pairs(_), true) => Way::of(&[Link::ToHost(id(device))]),
            (Kind::Switch | Kind::Pairs(_), false) => Way::of(&[Link::FromHost(id(device))]),
        }
    }

    /// Percent of its bandwidth that the way between two devices has.
    fn percent(&self, one: u32, other: u32) -> u32 {
        self.degraded.iter().find(|(pair, _)| *pair == (one, other)).map_or(100, |(_, percent)| *percent)
    }

    /// Bytes that a link moves in a microsecond.
    pub(crate) fn rate(&self, link: Link) -> u64 {
        let full = self.bytes_per_ns.saturating_mul(RATE_NS);
        match link {
            Link::ToHost(_) | Link::FromHost(_) => HOST_RATE,
            Link::Out(_) | Link::In(_) | Link::Up(_) | Link::Down(_) => full,
            Link::Between(one, other) => {
                let by_host = self.connection(one.into(), other.into()) == Connection::HostBridge;
                let of_pair = if by_host && matches!(self.kind, Kind::Pairs(_)) { HOST_RATE } else { full };
                of_pair.saturating_mul(self.percent(one.into(), other.into()).into()) / 100
            }
        }
    }
}

/// A change of the way between two devices while the machine runs.
///
/// What is on its way over a link that goes down, or comes later from before, loses its context with
/// `CUDA_ERROR_NVLINK_UNCORRECTABLE`, as does a kernel that still reaches over it; from then on the two devices do not reach each
/// other, and copies that are queued later go by the host. A machine without a [`Topology`] has no links that could change.
///
/// ```
/// use cuda_sim::{Config, LinkChange, LinkFault, LinkMoment, Machine, Topology};
///
/// let fault = LinkFault { devices: (0, 1), change: LinkChange::Down, when: LinkMoment::After(1 << 20) };
/// let machine = Machine::new(Config::default().devices(2).topology(Topology::nvlink(450, 1_000)).link_fault(fault));
/// # drop(machine);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFault {
    /// The devices at its ends, in either order.
    pub devices: (u32, u32),
    /// What becomes of it, in both directions.
    pub change: LinkChange,
    /// When.
    pub when: LinkMoment,
}

/// What becomes of the way between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// It moves nothing any more.
    Down,
    /// It has so many percent of its bandwidth left, at least one.
    Percent(u32),
}

/// When the way between two devices changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMoment {
    /// At a time of the machine, in nanoseconds.
    At(u64),
    /// When so many bytes have begun to move over it since the fault was injected, in both directions together: the copy or kernel
    /// that goes beyond stops there.
    After(u64),
}

impl LinkFault {
    /// `link:ONE-OTHER:CHANGE:WHEN`, where the change is `down` or a number of percent, as `50%`, and the moment `5000ns` or
    /// `4096B`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (word, devices) = (parts.next()?, parse_pair(parts.next()?)?);
        let (change, when) = (parts.next()?, parts.next()?);
        let change = match change.strip_suffix('%') {
            Some(percent) => LinkChange::Percent(percent.parse().ok().filter(|percent| (1..=100).contains(percent))?),
            None => (change == "down").then_some(LinkChange::Down)?,
        };
        let when = match (when.strip_suffix("ns"), when.strip_suffix('B')) {
            (Some(time), _) => LinkMoment::At(time.parse().ok()?),
            (None, bytes) => LinkMoment::After(bytes?.parse().ok()?),
        };
        (word == "link" && parts.next().is_none()).then_some(Self { devices, change, when })
    }
}

/// `ONE-OTHER`: two devices.
fn parse_pair(text: &str) -> Option<(u32, u32)> {
    let (one, other) = text.split_once('-')?;
    let pair = (one.parse().ok()?, other.parse().ok()?);
    (pair.0 != pair.1).then_some(pair)
}
