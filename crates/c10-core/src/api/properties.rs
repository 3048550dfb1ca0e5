//! What a device is and can do.
//!
//! Each call asks the driver anew, without creating a context. The fields are torch's.

use std::fmt;

use cuda_sys::driver::types::CUdevice_attribute as Attribute;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::links::PeerLink;
use crate::base::uuid::Uuid;
use crate::driver::Api;
use crate::runtime::Runtime;

/// Properties of a device; torch's `_CudaDeviceProperties`. Sizes are bytes, clocks kHz, bus widths bits.
///
/// `Display` writes what torch's `repr` does.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::Runtime;
///
/// let properties = Runtime::current().devices().properties(0)?;
/// assert_eq!((properties.warp_size, properties.max_threads_per_block), (32, 1024));
/// assert!(properties.to_string().starts_with("_CudaDeviceProperties(name='"));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are CUDA's attributes of the same names")]
#[expect(non_snake_case, reason = "torch's names")]
pub struct DeviceProperties {
    pub name: String,
    pub major: i32,
    pub minor: i32,
    pub total_memory: u64,
    pub multi_processor_count: i32,
    pub is_integrated: bool,
    pub is_multi_gpu_board: bool,
    pub max_threads_per_block: i32,
    pub max_threads_per_multi_processor: i32,
    pub regs_per_multiprocessor: i32,
    pub shared_memory_per_block: i32,
    pub shared_memory_per_block_optin: i32,
    pub shared_memory_per_multiprocessor: i32,
    pub warp_size: i32,
    pub L2_cache_size: i32,
    pub clock_rate: i32,
    pub memory_clock_rate: i32,
    pub memory_bus_width: i32,
    pub pci_bus_id: i32,
    pub pci_device_id: i32,
    pub pci_domain_id: i32,
    pub uuid: Uuid,
}

impl DeviceProperties {
    /// On CUDA devices the same as `name`.
    #[must_use]
    #[doc(alias = "gcnArchName")]
    pub fn gcn_arch_name(&self) -> &str {
        &self.name
    }

    fn ask(api: &Api, device: DeviceIndex) -> Result<Self> {
        let get = |attribute| api.attribute(device, attribute);
        Ok(Self {
            name: api.name(device)?,
            major: get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            total_memory: api.total_memory_of(device)?,
            multi_processor_count: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            is_integrated: get(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
            is_multi_gpu_board: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD)? != 0,
            max_threads_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_threads_per_multi_processor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            regs_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            shared_memory_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            shared_memory_per_block_optin: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_memory_per_multiprocessor: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            warp_size: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            L2_cache_size: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            clock_rate: get(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_rate: get(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_width: get(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            pci_bus_id: get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            pci_device_id: get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
            pci_domain_id: get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            uuid: Uuid { bytes: api.uuid(device)? },
        })
    }
}

impl fmt::Display for DeviceProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "_CudaDeviceProperties(name='{}', major={}, minor={}, ", self.name, self.major, self.minor)?;
        write!(f, "total_memory={}MB, ", self.total_memory >> 20)?;
        write!(f, "multi_processor_count={}, uuid={}, ", self.multi_processor_count, self.uuid)?;
        write!(f, "pci_bus_id={}, pci_device_id={}, ", self.pci_bus_id, self.pci_device_id)?;
        write!(f, "pci_domain_id={}, L2_cache_size={}MB)", self.pci_domain_id, self.L2_cache_size >> 20)
    }
}

/// The devices of a runtime; made by [`Runtime::devices`].
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use c10_core::Runtime;
///
/// let runtime = Runtime::current();
/// let (major, minor) = runtime.devices().capability(1)?;
/// println!("{} is of compute capability {major}.{minor}", runtime.devices().name(1)?);
/// assert!(runtime.devices().can_access_peer(0, 0)?);
/// assert!(!runtime.devices().is_used(1), "asking creates no context");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Devices<'a>(&'a Runtime);

impl Runtime {
    /// The devices: names, properties, and which of them can reach the memory of another.
    #[must_use]
    #[inline]
    pub fn devices(&self) -> Devices<'_> {
        Devices(self)
    }
}

impl Devices<'_> {
    /// Properties of a device. Creates no context.
    ///
    /// # Errors
    /// [`crate::DeviceError::InvalidId`] for a device that does not exist, or the driver's error.
    pub fn properties(self, device: DeviceIndex) -> Result<DeviceProperties> {
        DeviceProperties::ask(&self.0.check_device_id(device)?.api, device)
    }

    /// Name of a device.
    ///
    /// # Errors
    /// As for [`Self::properties`].
    pub fn name(self, device: DeviceIndex) -> Result<String> {
        self.0.check_device_id(device)?.api.name(device)
    }

    /// Compute capability of a device: major and minor number.
    ///
    /// # Errors
    /// As for [`Self::properties`].
    pub fn capability(self, device: DeviceIndex) -> Result<(i32, i32)> {
        let api = &self.0.check_device_id(device)?.api;
        let major = api.attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = api.attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok((major, minor))
    }

    /// Whether work of `device` can reach memory of `peer`; a device reaches its own. Starts the runtime and creates no
    /// context.
    ///
    /// # Errors
    /// [`crate::DeviceError::InvalidId`] or [`crate::DeviceError::InvalidPeerId`] for a device that does not
    /// exist; the runtime cannot start; the driver's error.
    pub fn can_access_peer(self, device: DeviceIndex, peer: DeviceIndex) -> Result<bool> {
        let ready = self.0.check_device_id(device)?;
        ready.peers.can_access(&ready.api, device, peer)
    }

    /// How good the link from `device` to `peer` is among those of the machine, as the driver ranks it
    /// (`CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`); 0 is the best, and that of a device to itself.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
    /// let runtime = c10_core::Runtime::current();
    /// assert_eq!(runtime.devices().peer_rank(0.into(), 1.into())?, 0);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::can_access_peer`].
    pub fn peer_rank(self, device: DeviceIndex, peer: DeviceIndex) -> Result<i32> {
        let ready = self.0.check_device_id(device)?;
        // It refuses a peer that does not exist.
        ready.peers.can_access(&ready.api, device, peer)?;
        if device == peer { Ok(0) } else { ready.api.peer_rank(device, peer) }
    }

    /// What the driver says of the link from `device` to `peer` (`cuDeviceGetP2PAttribute`). A device reaches itself in
    /// every way.
    ///
    /// # Errors
    /// As for [`Self::can_access_peer`].
    pub fn peer_link(self, device: DeviceIndex, peer: DeviceIndex) -> Result<PeerLink> {
        let ready = self.0.check_device_id(device)?;
        // It refuses a peer that does not exist.
        ready.peers.can_access(&ready.api, device, peer)?;
        let own = PeerLink { access: true, rank: 0, atomics: true, arrays: true };
        if device == peer { Ok(own) } else { ready.api.peer_link(device, peer) }
    }

    /// Whether this runtime has created the context of a device.
    #[must_use]
    pub fn is_used(self, device: DeviceIndex) -> bool {
        self.0.started().is_some_and(|ready| ready.api.is_used(device))
    }
}
