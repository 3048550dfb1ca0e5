//! Handles of cuBLAS: one for each thread and device, bound to the current stream at each use.
//!
//! A thread keeps the handle that it used first, and gives it to others when it ends. Handles are destroyed with their
//! runtime. The default runtime lives as long as the process, so its handles are not: cuBLAS frees memory of the device
//! then, at a time when the driver may be gone.
//!
//! **Invariants:** one thread at a time uses a handle. Its stream, workspace and modes are those that are noted here, so
//! that a call that changes none of them makes no call besides its own.
//!
//! # Safety
//! A handle is made by the library that it is given to, and is alive as long as its runtime.
#![expect(unsafe_code, reason = "calls of cuBLAS")]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use c10_core::{DeviceBuffer, DeviceIndex, LibraryFunction, LibraryStream, Runtime};
use cuda_sys::cublas::types::{cublasHandle_t, cublasMath_t};
use cuda_sys::{Cublas, CublasError};

use super::Libraries;
use super::workspace::{self, Generation, Key, Purpose, Workspaces};
use crate::base::error::{Error, LibraryError, Result};

/// What a runtime keeps for the libraries.
#[derive(Debug, Default)]
pub(in crate::blas) struct Blas {
    pub(in crate::blas) libraries: Libraries,
    pub(in crate::blas) workspaces: Workspaces,
    /// Handles that no thread has.
    free: Mutex<HashMap<DeviceIndex, Vec<Handle>>>,
    /// All that were made.
    made: Mutex<Vec<(Arc<Cublas>, usize)>>,
}

impl Drop for Blas {
    fn drop(&mut self) {
        for (library, raw) in self.made.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: made by this library; without its runtime nobody uses it any more. An error cannot be returned here.
            let _ = unsafe { library.cublasDestroy_v2(ptr::with_exposed_provenance_mut(raw)) };
        }
    }
}

/// A handle and what it is set to.
#[derive(Debug)]
pub(in crate::blas) struct Handle {
    /// The address of the library's object.
    raw: usize,
    pub(in crate::blas) library: Arc<Cublas>,
    device: DeviceIndex,
    major: i32,
    bound: Cell<Option<Bound>>,
    math: Cell<cublasMath_t>,
    /// The functions that were called; they are few.
    functions: RefCell<Vec<(&'static str, LibraryFunction)>>,
}

/// The stream that a handle is bound to, and how often workspaces had been given back then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    stream: usize,
    generation: u64,
}

/// The handles of a thread.
struct Reserved {
    blas: Weak<Blas>,
    device: DeviceIndex,
    handle: Option<Rc<Handle>>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let (Some(blas), Some(handle)) = (self.blas.upgrade(), self.handle.take()) else { return };
        if let Ok(handle) = Rc::try_unwrap(handle) {
            blas.free().entry(self.device).or_default().push(handle);
        }
    }
}

thread_local! {
    static RESERVED: RefCell<Vec<Reserved>> = const { RefCell::new(Vec::new()) };
}

impl Blas {
    /// Those of a runtime.
    pub(in crate::blas) fn of(runtime: &Runtime) -> Arc<Self> {
        runtime.extension::<Self>()
    }

    /// The calling thread's handle for a device; `None` where there is no cuBLAS.
    pub(in crate::blas) fn handle(
        self: &Arc<Self>,
        runtime: &Runtime,
        device: DeviceIndex,
    ) -> Result<Option<Rc<Handle>>> {
        let is_own = |known: &&Reserved| known.device == device && ptr::eq(known.blas.as_ptr(), Arc::as_ptr(self));
        let known = RESERVED.with_borrow(|reserved| reserved.iter().find(is_own).map(|known| known.handle.clone()));
        if let Some(Some(handle)) = known {
            return Ok(Some(handle));
        }
        let Ok(library) = self.libraries.cublas(runtime) else { return Ok(None) };
        let unused = self.free().get_mut(&device).and_then(Vec::pop);
        let handle = match unused {
            Some(handle) => handle,
            None => {
                let handle = Handle::new(runtime, library, device)?;
                let made = (Arc::clone(&handle.library), handle.raw);
                self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
                handle
            }
        };
        let handle = Rc::new(handle);
        let reserved = Reserved { blas: Arc::downgrade(self), device, handle: Some(Rc::clone(&handle)) };
        RESERVED.with_borrow_mut(|all| {
            // Those of runtimes that are gone go too.
            all.retain(|known| known.blas.strong_count() > 0);
            all.push(reserved);
        });
        Ok(Some(handle))
    }

    /// Forgets the handles of the calling thread and of nobody, after the libraries were changed.
    pub(in crate::blas) fn forget_handles(&self) {
        self.free().clear();
        RESERVED.with_borrow_mut(|all| all.retain(|known| !ptr::eq(known.blas.as_ptr(), self)));
        self.free().clear();
        self.workspaces.forget_handles();
    }

    fn free(&self) -> std::sync::MutexGuard<'_, HashMap<DeviceIndex, Vec<Handle>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    fn new(runtime: &Runtime, library: Arc<Cublas>, device: DeviceIndex) -> Result<Self> {
        let (major, _) = runtime.devices().capability(device)?;
        let raw = runtime.with_library(device, || {
            let mut raw: cublasHandle_t = ptr::null_mut();
            // SAFETY: `raw` outlives the call; the device's context is current.
            let made = unsafe { library.cublasCreate_v2(&mut raw) };
            made.map_err(|cause| failed(cause, "handle", format!("device {device}")))?;
            Ok::<_, Error>(raw.expose_provenance())
        })?;
        let (bound, math) = (Cell::new(None), Cell::new(cublasMath_t::CUBLAS_DEFAULT_MATH));
        Ok(Self { raw, library, device, major, bound, math, functions: RefCell::default() })
    }

    /// The handle as the library takes it.
    pub(in crate::blas) fn raw(&self) -> cublasHandle_t {
        ptr::with_exposed_provenance_mut(self.raw)
    }

    /// The major compute capability of the device.
    pub(in crate::blas) fn major(&self) -> i32 {
        self.major
    }

    /// How a function is named in the list of last launches.
    pub(in crate::blas) fn function(&self, runtime: &Runtime, name: &'static str) -> Result<LibraryFunction> {
        let is_it = |known: &&(&'static str, LibraryFunction)| ptr::eq(known.0, name);
        if let Some(&(_, known)) = self.functions.borrow().iter().find(is_it) {
            return Ok(known);
        }
        let made = runtime.library_function(name)?;
        self.functions.borrow_mut().push((name, made));
        Ok(made)
    }

    /// Whether the handle is bound to a stream that nothing captures, with a workspace that was not given back since.
    #[inline]
    pub(in crate::blas) fn is_bound(&self, generation: &Generation, stream: LibraryStream) -> bool {
        let wanted = Bound { stream: stream.handle, generation: generation.now() };
        !stream.is_capturing && self.bound.get() == Some(wanted)
    }

    /// Binds the handle to a stream, with the workspace that it has there. What comes back is to be kept until the work is
    /// queued.
    pub(in crate::blas) fn bind(&self, blas: &Blas, stream: LibraryStream) -> Result<Option<DeviceBuffer>> {
        if self.is_bound(blas.workspaces.generation(), stream) {
            return Ok(None);
        }
        let wanted = Bound { stream: stream.handle, generation: blas.workspaces.generation().now() };
        // Until all of it is done, the handle is bound to nothing.
        self.bound.set(None);
        let raw_stream = ptr::with_exposed_provenance_mut(stream.handle);
        // SAFETY: handle and stream are alive.
        let set = unsafe { self.library.cublasSetStream_v2(self.raw(), raw_stream) };
        set.map_err(|cause| failed(cause, "handle, stream", format!("stream {:#x}", stream.handle)))?;
        let bytes = workspace::cublas_bytes(self.major);
        let (kept, address, bytes) = if stream.is_capturing {
            let buffer = workspace::allocate(self.device, bytes)?;
            let (address, bytes) = (buffer.address(), buffer.len());
            (Some(buffer), address, bytes)
        } else {
            let key = Key { purpose: Purpose::Cublas, device: self.device, handle: self.raw, stream: stream.handle };
            let buffer = blas.workspaces.get(key, bytes)?;
            (None, buffer.address(), buffer.len())
        };
        let place = ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
        // SAFETY: the workspace is of this size, and is kept until the work that uses it is queued; its stream orders what
        // comes after it was given back.
        let set = unsafe { self.library.cublasSetWorkspace_v2(self.raw(), place, bytes) };
        set.map_err(|cause| failed(cause, "handle, workspace, workspaceSizeInBytes", format!("{bytes} bytes")))?;
        if !stream.is_capturing {
            self.bound.set(Some(wanted));
        }
        Ok(kept)
    }

    /// The workspace of cuBLASLt on a stream. What comes back is to be kept until the work is queued.
    pub(in crate::blas) fn lt_workspace(&self, blas: &Blas, stream: LibraryStream) -> Result<LtWorkspace> {
        let bytes = workspace::lt_bytes(self.major);
        if stream.is_capturing {
            let buffer = workspace::allocate(self.device, bytes)?;
            return Ok(LtWorkspace { address: buffer.address(), bytes: buffer.len(), _kept: Some(buffer) });
        }
        let key = Key { purpose: Purpose::CublasLt, device: self.device, handle: self.raw, stream: stream.handle };
        let buffer = blas.workspaces.get(key, bytes)?;
        Ok(LtWorkspace { address: buffer.address(), bytes: buffer.len(), _kept: None })
    }

    /// Sets how the library may compute.
    pub(in crate::blas) fn set_math(&self, math: cublasMath_t) -> Result<()> {
        if self.math.get() == math {
            return Ok(());
        }
        // SAFETY: the handle is alive.
        let set = unsafe { self.library.cublasSetMathMode(self.raw(), math) };
        set.map_err(|cause| failed(cause, "handle, mode", format!("mode {}", math.0)))?;
        self.math.set(math);
        Ok(())
    }
}

/// Memory for a call of cuBLASLt.
pub(in crate::blas) struct LtWorkspace {
    pub(in crate::blas) address: u64,
    pub(in crate::blas) bytes: usize,
    _kept: Option<DeviceBuffer>,
}

/// The error of a call.
pub(in crate::blas) fn failed(cause: CublasError, arguments: &'static str, values: String) -> Error {
    Error::Library(Box::new(LibraryError { cause, arguments, values }))
}
