//! How devices are connected to each other.

/// What the driver says of the link from one device to another (`cuDeviceGetP2PAttribute`).
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// let link = c10_core::Runtime::current().devices().peer_link(0.into(), 1.into())?;
/// assert!(link.access && link.rank == 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerLink {
    /// Whether work of the one can reach memory of the other.
    pub access: bool,
    /// How good the link is among those of the machine; 0 is the best.
    pub rank: i32,
    /// Whether atomic operations of the one in memory of the other are those of the hardware.
    pub atomics: bool,
    /// Whether work of the one can reach arrays of the other.
    pub arrays: bool,
}

/// The nearest thing that two devices share on the way of PCIe (`nvmlGpuTopologyLevel_t`), from near to far.
///
/// ```
/// use c10_core::CommonAncestor;
///
/// assert!(CommonAncestor::SingleSwitch < CommonAncestor::System);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CommonAncestor {
    /// They are on one board.
    Board,
    /// One PCIe switch.
    SingleSwitch,
    /// Several PCIe switches, and no bridge of the host.
    MultipleSwitches,
    /// One bridge of the host.
    HostBridge,
    /// The same node of memory (NUMA).
    Node,
    /// The connection between the nodes of the machine.
    System,
}

/// What NVML says of the way between two devices.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default().devices(2)).with_nvml().here();
/// let path = c10_core::Runtime::current().telemetry().peer_path(0.into(), 1.into())?;
/// assert!(path.ancestor.is_some());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerPath {
    /// The nearest thing that they share; `None` for one that this version does not know.
    pub ancestor: Option<CommonAncestor>,
    /// Whether NVLink connects them, directly or by switches.
    pub nvlink: bool,
}
