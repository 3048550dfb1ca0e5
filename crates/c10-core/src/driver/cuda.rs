//! The driver proper: start, devices, primary contexts.
//!
//! **Invariants:** a device's primary context is retained at most once, when a call first needs it, and never for a
//! device that is not used. [`Api::bind`] precedes every call that depends on the current context.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call; device
//! numbers come from `cuDeviceGet`, contexts from `cuDevicePrimaryCtxRetain`.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use cuda_sys::driver::types::{CUcontext, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUuuid};
use cuda_sys::{CUresult, CallError, Driver as Table};

use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceError, Error, OLDEST_DRIVER, Result, StartError};
use crate::base::links::PeerLink;
use crate::driver::Relaxed;
use crate::driver::blocks::Listener;
use crate::driver::captures::OwnCaptures;
use crate::driver::conditional::Bodies;
use crate::driver::vmm::Mappings;
use crate::sync::Mutex;
use crate::sync::tracked::assert_none_held;
use crate::trace::{Trace, TraceEvent, TraceKind};

/// A driver that has been initialised.
pub(crate) struct Api {
    pub(super) table: Arc<Table>,
    contexts: Box<[Context]>,
    pub(super) mappings: Mutex<Mappings>,
    pub(super) bodies: Bodies,
    captures: OwnCaptures,
    pub(super) listener: Option<Listener>,
    /// Who is told what is queued.
    pub(crate) trace: Arc<Trace>,
}

/// The primary context of one device.
#[derive(Default)]
struct Context {
    /// The context, or 0 while it is not retained.
    handle: AtomicUsize,
    /// Held while retaining, so that it happens once.
    retaining: Mutex<()>,
    /// Whether pages are made so that other processes can have them, once that was asked.
    exports: OnceLock<bool>,
}

thread_local! {
    /// The context that was current when [`Api::bind`] first replaced one, since [`Api::keep_context`] began.
    static REPLACED: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Api {
    /// Initialises the driver.
    pub(crate) fn new(table: Arc<Table>, trace: Arc<Trace>) -> Result<Self> {
        let contexts = (0..count_devices(&table)?).map(|_| Context::default()).collect();
        let captures = OwnCaptures::new(&table);
        let listener = Listener::find(&table);
        let (mappings, bodies) = Default::default();
        Ok(Self { table, contexts, mappings, bodies, captures, listener, trace })
    }

    /// The captures of this runtime, as other runtimes see them.
    #[inline]
    pub(crate) fn captures(&self) -> &OwnCaptures {
        &self.captures
    }

    /// Until it is dropped, keeps a call that a capture forbids from spoiling captures of other runtimes. Calls that
    /// this runtime's own captures forbid stay forbidden.
    #[inline]
    pub(super) fn spare_others(&self) -> Result<Relaxed<'_, Self>> {
        Relaxed::new(self, false)
    }

    /// Number of devices, at least 1.
    pub(crate) fn device_count(&self) -> usize {
        self.contexts.len()
    }

    /// The driver's handle of a device, or its error if there is no such device.
    pub(crate) fn device(&self, device: DeviceIndex) -> Result<CUdevice> {
        let mut handle: CUdevice = 0;
        // SAFETY: `handle` outlives the call.
        unsafe { self.table.cuDeviceGet(&mut handle, device) }?;
        Ok(handle)
    }

    /// Makes the device's primary context current on this thread.
    #[inline]
    pub(crate) fn bind(&self, device: DeviceIndex) -> Result<()> {
        let wanted = self.context(device)?;
        let mut current: CUcontext = ptr::null_mut();
        // SAFETY: `current` outlives the call.
        unsafe { self.table.cuCtxGetCurrent(&mut current) }?;
        if current != wanted {
            // SAFETY: `wanted` is a primary context that this value keeps retained.
            unsafe { self.table.cuCtxSetCurrent(wanted) }?;
            REPLACED.set(REPLACED.get().or(Some(current.expose_provenance())));
        }
        Ok(())
    }

    /// Calls `body`, and makes the context current again that it has replaced. Costs no call of the driver otherwise.
    pub(crate) fn keep_context<R>(&self, body: impl FnOnce() -> R) -> R {
        let outer = REPLACED.take();
        let result = body();
        if let Some(before) = REPLACED.replace(outer) {
            // SAFETY: it was current before, so that it is null or a context that its owner keeps. A failure leaves things as
            // they are.
            let _ = unsafe { self.table.cuCtxSetCurrent(ptr::with_exposed_provenance_mut(before)) };
        }
        result
    }

    /// Whether the device's primary context is retained by this runtime.
    pub(crate) fn is_used(&self, device: DeviceIndex) -> bool {
        self.slot(device).is_some_and(|slot| slot.handle.load(Ordering::Acquire) != 0)
    }

    fn slot(&self, device: DeviceIndex) -> Option<&Context> {
        self.contexts.get(usize::try_from(device).ok()?)
    }

    #[inline]
    pub(super) fn context(&self, device: DeviceIndex) -> Result<CUcontext> {
        match self.slot(device).map(|slot| slot.handle.load(Ordering::Acquire)) {
            Some(handle) if handle != 0 => Ok(ptr::with_exposed_provenance_mut(handle)),
            _ => self.retain(device),
        }
    }

    #[cold]
    fn retain(&self, device: DeviceIndex) -> Result<CUcontext> {
        let number = self.device(device)?;
        let slot = self.slot(device).ok_or(Error::Device(DeviceError::InvalidId))?;
        let _retaining = slot.retaining.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = slot.handle.load(Ordering::Acquire);
        if handle != 0 {
            return Ok(ptr::with_exposed_provenance_mut(handle));
        }
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: `number` is a device; `context` outlives the call.
        unsafe { self.table.cuDevicePrimaryCtxRetain(&mut context, number) }?;
        slot.handle.store(context.expose_provenance(), Ordering::Release);
        Ok(context)
    }

    /// Gives every retained context back. Nothing may use them afterwards.
    pub(crate) fn release_contexts(&self) {
        for (index, slot) in (0..).zip(&self.contexts) {
            if slot.handle.swap(0, Ordering::AcqRel) == 0 {
                continue;
            }
            // A context that cannot be released is lost already, and there is no caller to return an error to.
            let _ = self.device(DeviceIndex(index)).map(|number| {
                // SAFETY: the context of `number` was retained once and is released once.
                unsafe { self.table.cuDevicePrimaryCtxRelease_v2(number) }
            });
        }
    }

    /// Blocks until all work of the device is done.
    ///
    /// No capture mode allows this during a capture on the device, and the call would spoil the capture. So where
    /// another runtime captures, the driver's error is returned without calling it.
    pub(crate) fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        assert_none_held("cuCtxSynchronize");
        if self.captures.have_others_on(device) {
            let status = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            return Err(CallError::Failed { call: "cuCtxSynchronize", status }.into());
        }
        self.bind(device)?;
        // SAFETY: no pointers; the context is current.
        unsafe { self.table.cuCtxSynchronize() }?;
        self.trace.report(TraceKind::Order, || TraceEvent::DeviceSeen(device));
        Ok(())
    }

    /// Least and greatest priority of streams; a lower number is more urgent.
    pub(crate) fn stream_priority_range(&self, device: DeviceIndex) -> Result<(i32, i32)> {
        self.bind(device)?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both outlive the call.
        unsafe { self.table.cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }?;
        Ok((least, greatest))
    }

    /// One attribute of a device.
    pub(crate) fn attribute(&self, device: DeviceIndex, attribute: CUdevice_attribute) -> Result<i32> {
        let number = self.device(device)?;
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        unsafe { self.table.cuDeviceGetAttribute(&mut value, attribute, number) }?;
        Ok(value)
    }

    /// What a device answered when it was first asked whether its pages can be exported; `None` for no such device.
    pub(super) fn known_exports(&self, device: DeviceIndex) -> Option<&OnceLock<bool>> {
        usize::try_from(device).ok().and_then(|at| self.contexts.get(at)).map(|context| &context.exports)
    }

    /// Whether work of a device can reach another's memory.
    pub(crate) fn can_access_peer(&self, device: DeviceIndex, peer: DeviceIndex) -> Result<bool> {
        let (number, peer_number) = (self.device(device)?, self.device(peer)?);
        let mut can: c_int = 0;
        // SAFETY: `can` outlives the call.
        unsafe { self.table.cuDeviceCanAccessPeer(&mut can, number, peer_number) }?;
        Ok(can != 0)
    }

    /// How good the link between two devices is among those of the machine; 0 is the best.
    pub(crate) fn peer_rank(&self, device: DeviceIndex, peer: DeviceIndex) -> Result<i32> {
        self.peer_attribute(device, peer, CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
    }

    /// What the driver says of the link between two devices.
    pub(crate) fn peer_link(&self, device: DeviceIndex, peer: DeviceIndex) -> Result<PeerLink> {
        let ask = |attribute| self.peer_attribute(device, peer, attribute);
        Ok(PeerLink {
            access: ask(CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? != 0,
            rank: ask(CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?,
            atomics: ask(CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0,
            arrays: ask(CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)? != 0,
        })
    }

    fn peer_attribute(
        &self,
        device: DeviceIndex,
        peer: DeviceIndex,
        attribute: CUdevice_P2PAttribute,
    ) -> Result<c_int> {
        let (number, peer_number) = (self.device(device)?, self.device(peer)?);
        let mut value: c_int = 0;
        // SAFETY: `value` outlives the call.
        unsafe { self.table.cuDeviceGetP2PAttribute(&mut value, attribute, number, peer_number) }?;
        Ok(value)
    }

    /// Has work of a device reach what the driver allocates on another at once; whether it does. The devices' primary
    /// contexts are made where they are not there.
    pub(crate) fn enable_peer(&self, device: DeviceIndex, peer: DeviceIndex) -> Result<bool> {
        let context = self.context(peer)?;
        self.bind(device)?;
        // SAFETY: `context` is a primary context that this value keeps retained; there are no flags yet.
        let status = unsafe { self.table.cuCtxEnablePeerAccess(context, 0) };
        match status.map_err(Error::from) {
            Ok(()) => Ok(true),
            Err(error) => match error.error_code().map(CUresult) {
                Some(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) => Ok(true),
                Some(CUresult::CUDA_ERROR_TOO_MANY_PEERS | CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Name of a device.
    pub(crate) fn name(&self, device: DeviceIndex) -> Result<String> {
        let number = self.device(device)?;
        let mut bytes = [0u8; 256];
        let space = c_int::try_from(bytes.len()).expect("256 fits");
        // SAFETY: the buffer has `space` bytes and outlives the call.
        unsafe { self.table.cuDeviceGetName(bytes.as_mut_ptr().cast::<c_char>(), space, number) }?;
        let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Bytes of memory of a device.
    pub(crate) fn total_memory_of(&self, device: DeviceIndex) -> Result<u64> {
        let number = self.device(device)?;
        let mut bytes = 0usize;
        // SAFETY: `bytes` outlives the call.
        unsafe { self.table.cuDeviceTotalMem_v2(&mut bytes, number) }?;
        Ok(bytes as u64)
    }

    /// The UUID of the GPU, which in multi-instance mode is not that of the device.
    pub(crate) fn gpu_uuid(&self, device: DeviceIndex) -> Result<[u8; 16]> {
        let number = self.device(device)?;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` outlives the call.
        unsafe { self.table.cuDeviceGetUuid(&mut uuid, number) }?;
        Ok(uuid.bytes.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())))
    }

    /// The device's UUID.
    pub(crate) fn uuid(&self, device: DeviceIndex) -> Result<[u8; 16]> {
        let number = self.device(device)?;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` outlives the call.
        unsafe { self.table.cuDeviceGetUuid_v2(&mut uuid, number) }?;
        Ok(uuid.bytes.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())))
    }
}

/// Initialises the driver, which does nothing if it is initialised already, and counts the devices. There is at least
/// one.
pub(crate) fn count_devices(table: &Table) -> Result<usize> {
    if table.version() < OLDEST_DRIVER {
        return Err(Error::Start(StartError::DriverTooOld { found: table.version().0 }));
    }
    // SAFETY: no pointers; 0 is the only flag.
    unsafe { table.cuInit(0) }.map_err(Error::from_init)?;
    let mut count: c_int = 0;
    // SAFETY: `count` outlives the call.
    unsafe { table.cuDeviceGetCount(&mut count) }?;
    match usize::try_from(count) {
        Ok(0) | Err(_) => Err(Error::Start(StartError::NoDevices)),
        Ok(count) => Ok(count),
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("table", &self.table).field("devices", &self.contexts.len()).finish()
    }
}
