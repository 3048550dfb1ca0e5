//! Memory that several devices of a process have at the same offsets and that each of them reaches.
//!
//! One range of addresses holds a part for each device, one after another and equally far apart. Behind each part is memory
//! of its device, mapped for all of them (`cuMemCreate`, `cuMemMap`, `cuMemSetAccess`; no multicast object). So kernels
//! find the memory of any rank from the first address and a distance, and read and write it over the links between the
//! devices.
//!
//! **Invariants:** the range is given back when the parts of all ranks were dropped and the work that used each is done.
//! Whoever launches a kernel that reaches other parts passes the part of the kernel's own device as an argument, and that
//! keeps all of them.

use std::fmt;
use std::sync::Arc;

use crate::api::buffers::DeviceBuffer;
use crate::api::ipc::Received;
use crate::api::memory::Memory;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::process;
use crate::runtime::{Runtime, Started, WeakRuntime};
use crate::state::deferred_destroy::DriverObject;
use crate::thread::pending::PuttingOff;

/// The parts are multiples of what all devices map at least.
const GRANULE: u64 = 2 << 20;

/// Memory that each of some devices has at the same offset and that all of them reach; made by [`Memory::symmetric`].
///
/// The place of a device among those that it was made with is its rank. Clones refer to the same memory.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use c10_core::{DeviceIndex, Runtime};
///
/// let memory = Runtime::current().memory().symmetric(1024, &[DeviceIndex(0), DeviceIndex(1)])?;
/// assert_eq!(memory.part(1).address() - memory.part(0).address(), memory.stride());
/// memory.part(1).copy_from_slice(0, &[7; 4])?;
/// assert_eq!(&memory.part(1).to_vec()?[..4], [7; 4]);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SymmetricMemory {
    parts: Vec<DeviceBuffer>,
    stride: u64,
}

impl SymmetricMemory {
    /// The memory of a rank, on its device.
    ///
    /// # Panics
    /// There is no such rank.
    #[must_use]
    #[inline]
    pub fn part(&self, rank: usize) -> &DeviceBuffer {
        &self.parts[rank]
    }

    /// How many devices have a part.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of each part.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.first().map_or(0, DeviceBuffer::len)
    }

    /// Whether the parts have no bytes; they always have some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes from the first address of a part to that of the next.
    #[must_use]
    #[inline]
    pub fn stride(&self) -> u64 {
        self.stride
    }
}

impl fmt::Debug for SymmetricMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymmetricMemory").field("parts", &self.parts).field("stride", &self.stride).finish()
    }
}

impl Memory<'_> {
    /// Memory of so many bytes on each of some devices, at the same offset in one range of addresses, which all of them
    /// reach. It holds whatever was there before. It comes from the driver, not from the cache, which gives its free memory
    /// back where the device has too little otherwise. A part is used as any buffer of its device; kernels of the other
    /// devices may reach it too, ordered by whoever launches them.
    ///
    /// # Errors
    /// [`MemoryError::SymmetricDevices`] without devices or with one named twice; [`MemoryError::NotSymmetric`] where
    /// a device has no virtual memory or does not reach another's; a device does not exist, there is not enough memory,
    /// or the driver's error.
    pub fn symmetric(self, bytes: usize, devices: &[DeviceIndex]) -> Result<SymmetricMemory> {
        PuttingOff::settle("memory of several devices is made");
        let runtime = self.runtime();
        let is_twice = |(at, device): (usize, &DeviceIndex)| devices[..at].contains(device);
        if devices.is_empty() || devices.iter().enumerate().any(is_twice) {
            return Err(Error::Memory(MemoryError::SymmetricDevices { devices: devices.to_vec() }));
        }
        check_reach(runtime, devices)?;
        let ready = runtime.ready()?;
        let _relaxed = ready.relaxed()?;
        let requested = bytes.max(1) as u64;
        let stride = requested.checked_next_multiple_of(GRANULE);
        let total = stride.and_then(|stride| stride.checked_mul(devices.len() as u64));
        let (Some(stride), Some(total)) = (stride, total) else {
            return Err(Error::Memory(MemoryError::RequestTooLarge { requested }));
        };
        let base = reserved(ready, devices, stride, total).or_else(|error| {
            if !error.driver_is_out_of_memory() {
                return Err(error);
            }
            self.empty_cache()?;
            reserved(ready, devices, stride, total)
        })?;
        ready.ipc.keep_range(base, devices[0], total, stride);
        let range = Arc::new(Range { home: runtime.downgrade(), base });
        let part = |(rank, &device): (u64, &DeviceIndex)| {
            let stream = runtime.streams().current(device)?.reference();
            let received = Received::new(Box::new(Arc::clone(&range)));
            Ok(DeviceBuffer::of(runtime, base + rank * stride, bytes.max(1), stream, Some(Arc::new(received))))
        };
        let parts = (0..).zip(devices).map(part).collect::<Result<Vec<DeviceBuffer>>>()?;
        Ok(SymmetricMemory { parts, stride })
    }
}

/// Refuses devices that cannot have such memory.
fn check_reach(runtime: &Runtime, devices: &[DeviceIndex]) -> Result<()> {
    for &device in devices {
        let ready: &Started = runtime.check_device(device)?;
        if !ready.api.has_virtual_memory(device)? {
            return Err(Error::Memory(MemoryError::NotSymmetric { device, peer: device }));
        }
        for &peer in devices.iter().filter(|peer| **peer != device) {
            if !runtime.devices().can_access_peer(device, peer)? {
                return Err(Error::Memory(MemoryError::NotSymmetric { device, peer }));
            }
        }
    }
    Ok(())
}

/// A range with a part of memory for each device; all or nothing.
fn reserved(ready: &Started, devices: &[DeviceIndex], stride: u64, total: u64) -> Result<u64> {
    let base = ready.api.address_reserve(devices[0], total)?;
    let mapped = (0..).zip(devices).try_for_each(|(rank, &device)| {
        // The range belongs to no device; what is behind a part does.
        ready.api.map_for_devices(device, devices, base + rank * stride, stride)
    });
    match mapped {
        Ok(()) => Ok(base),
        Err(error) => {
            // The error above is the one to return; what fails now is tried again later.
            let _ = ready.destroy(DriverObject::MappedRange(devices[0], base, total, stride));
            Err(error)
        }
    }
}

/// What the parts share: the range behind which their memory is.
#[derive(Debug)]
struct Range {
    home: WeakRuntime,
    base: u64,
}

impl Drop for Range {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        // Without the runtime the range is gone already. What fails is tried again later.
        if let Some(runtime) = Runtime::upgrade(&self.home)
            && let Ok(ready) = runtime.ready()
        {
            ready.ipc.close_pages(&ready.api, &ready.deferred, self.base);
        }
    }
}
