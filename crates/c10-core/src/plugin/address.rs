//! Functions of an allocator by their C addresses, and the shared object that they are in.
//!
//! # Safety
//! Whoever gives an address or names a symbol promises that a function of the signature lies there, that it may be called
//! from any thread, and that it stays. An exception of C++ that leaves such a function ends the process, with a message: the
//! functions are called by the ABI that lets one pass, and Rust catches none but its own.
#![expect(unsafe_code, reason = "calls of C functions by their addresses")]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cuda_sys::PluginLibrary;

use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, PluginLoadError, Result};
use crate::base::ids::PoolId;
use crate::plugin::filter::StdFunction;
use crate::plugin::functions::{AllocFn, FreeFn};
use crate::plugin::hooks::{AllocatorHook, Hooks, StreamFilter};

type CAlloc = unsafe extern "C-unwind" fn(usize, c_int, *mut c_void) -> *mut c_void;
type CFree = unsafe extern "C-unwind" fn(*mut c_void, usize, c_int, *mut c_void);
type CInit = unsafe extern "C-unwind" fn(c_int);
type CReset = unsafe extern "C-unwind" fn();
type CMemoryFraction = unsafe extern "C-unwind" fn(f64, c_int);
type CBaseAlloc = unsafe extern "C-unwind" fn(*mut c_void, *mut usize) -> *mut c_void;
type CRecordStream = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type CBeginPool = unsafe extern "C-unwind" fn(c_int, CPool, *mut StdFunction);
type COfPool = unsafe extern "C-unwind" fn(c_int, CPool);

/// A pool's name as C++ passes it: a pair of two numbers of 64 bits.
#[repr(C)]
#[derive(Clone, Copy)]
struct CPool(u64, u64);

impl From<PoolId> for CPool {
    fn from(pool: PoolId) -> Self {
        Self(pool.0, pool.1)
    }
}

/// An address of a device, a stream's handle or a function as a pointer. Nothing is read by it here.
fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// A device's address as a pointer; devices are used by programs of 64 bits alone.
#[expect(clippy::cast_possible_truncation, reason = "addresses have as many bits as the program's own")]
fn device_pointer(address: u64) -> *mut c_void {
    pointer(address as usize)
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The function at an address that a program gave.
pub(super) fn function(address: usize, function: &'static str) -> Result<NonNull<c_void>> {
    NonNull::new(pointer(address)).ok_or(AllocatorError::NullFunction { function }.into())
}

/// The function that gives memory.
///
/// # Safety
/// A function of torch's signature lies there; what it gives is memory of the device that nobody else uses.
pub(super) unsafe fn alloc_at(address: NonNull<c_void>) -> Box<AllocFn> {
    // SAFETY: the caller's promise about the signature.
    let alloc = unsafe { transmute::<*mut c_void, CAlloc>(address.as_ptr()) };
    Box::new(move |bytes, device, stream| {
        // SAFETY: the caller's promise: the function may be called with any size, device and stream.
        let given = unsafe { alloc(size(bytes), device, pointer(stream)) };
        given.expose_provenance() as u64
    })
}

/// The function that takes memory back.
///
/// # Safety
/// A function of torch's signature lies there.
pub(super) unsafe fn free_at(address: NonNull<c_void>) -> Box<FreeFn> {
    // SAFETY: the caller's promise about the signature.
    let free = unsafe { transmute::<*mut c_void, CFree>(address.as_ptr()) };
    Box::new(move |address, bytes, device, stream| {
        // SAFETY: the address is one that the alloc function gave and that was not given back since.
        unsafe { free(device_pointer(address), size(bytes), device, pointer(stream)) };
    })
}

/// Sets a hook to the function at an address.
///
/// # Safety
/// A function of the hook's signature lies there.
pub(super) unsafe fn set_hook(hooks: &Hooks, hook: AllocatorHook, address: NonNull<c_void>) {
    let at = address.as_ptr();
    match hook {
        AllocatorHook::Init => {
            // SAFETY: the caller's promise about the signature.
            let call = unsafe { transmute::<*mut c_void, CInit>(at) };
            // SAFETY: the caller's promise about the function.
            hooks.init.set(Arc::new(move |count| unsafe { call(c_int::try_from(count).unwrap_or(c_int::MAX)) }));
        }
        AllocatorHook::Reset => {
            // SAFETY: the caller's promise about the signature.
            let call = unsafe { transmute::<*mut c_void, CReset>(at) };
            // SAFETY: the caller's promise about the function.
            hooks.reset.set(Arc::new(move || unsafe { call() }));
        }
        AllocatorHook::MemoryFraction => {
            // SAFETY: the caller's promise about the signature.
            let call = unsafe { transmute::<*mut c_void, CMemoryFraction>(at) };
            // SAFETY: the caller's promise about the function.
            hooks.memory_fraction.set(Arc::new(move |part, device: DeviceIndex| unsafe { call(part, device) }));
        }
        AllocatorHook::BaseAlloc => {
            // SAFETY: the caller's promise about the signature.
            let call = unsafe { transmute::<*mut c_void, CBaseAlloc>(at) };
            hooks.base_alloc.set(Arc::new(move |address| {
                let mut bytes = 0;
                // SAFETY: the place for the size outlives the call.
                let base = unsafe { call(device_pointer(address), &raw mut bytes) };
                (base.expose_provenance() as u64, bytes as u64)
            }));
        }
        AllocatorHook::RecordStream => {
            // SAFETY: the caller's promise about the signature.
            let call = unsafe { transmute::<*mut c_void, CRecordStream>(at) };
            hooks.record_stream.set(Arc::new(move |address, stream| {
                // SAFETY: the address is one that the alloc function gave.
                unsafe { call(device_pointer(address), pointer(stream)) };
            }));
        }
        AllocatorHook::BeginAllocateToPool => {
            // SAFETY: the caller's promise about the signature.
            let call = unsafe { transmute::<*mut c_void, CBeginPool>(at) };
            hooks.begin_pool.set(Arc::new(move |device: DeviceIndex, pool: PoolId, filter: StreamFilter| {
                let mut filter = StdFunction::new(filter);
                // SAFETY: C++ passes such an object by its address, and the caller destroys it.
                unsafe { call(device, pool.into(), &raw mut filter) };
            }));
        }
        AllocatorHook::EndAllocateToPool | AllocatorHook::ReleasePool => {
            // SAFETY: the caller's promise about the signature.
            let call = unsafe { transmute::<*mut c_void, COfPool>(at) };
            let slot = if hook == AllocatorHook::ReleasePool { &hooks.release_pool } else { &hooks.end_pool };
            // SAFETY: the caller's promise about the function.
            slot.set(Arc::new(move |device: DeviceIndex, pool: PoolId| unsafe { call(device, pool.into()) }));
        }
    }
}

/// A shared object with the functions of an allocator. It is never closed.
#[derive(Debug)]
pub(super) struct SharedObject {
    path: String,
    library: PluginLibrary,
}

impl SharedObject {
    /// The file, as it was named.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Opens it.
    ///
    /// # Safety
    /// Its initialisers are run.
    pub(super) unsafe fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        // SAFETY: the caller wants the initialisers of this file to be run.
        match unsafe { PluginLibrary::open(path) } {
            Ok(library) => Ok(Self { path: name, library }),
            Err(reason) => {
                Err(AllocatorError::Library(Box::new(PluginLoadError { path: name, symbol: None, reason })).into())
            }
        }
    }

    /// Address of one of its functions.
    pub(super) fn symbol(&self, name: &str) -> Result<NonNull<c_void>> {
        self.library.symbol(name).map_err(|reason| {
            let (path, symbol) = (self.path.clone(), Some(name.to_owned()));
            AllocatorError::Library(Box::new(PluginLoadError { path, symbol, reason })).into()
        })
    }
}
