//! cuFile: where it comes from, whether it moves bytes between disk and device, and its calls.
//!
//! cuFile has a compatibility mode in which it copies through the host's memory as this crate does. That is not what it is
//! asked for, so it is switched off before cuFile is opened; where that is not possible cuFile is not used.
//!
//! # Safety
//! Calls get addresses and sizes of storages that live until they return, and handles that cuFile has given and not taken
//! back. Memory that is registered stays alive until it is deregistered.
#![expect(unsafe_code, reason = "calls of cuFile")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use aten_cuda::Storage;
use c10_core::locks::{Mutex, MutexGuard};
use c10_core::{DeviceBuffer, LibrarySource, Runtime};
use cuda_sys::cufile::types::{
    CUFileBoolConfigParameter_t, CUfileDescr_t, CUfileDescr_t__bindgen_ty_1, CUfileDriverControlFlags,
    CUfileDrvProps_t, CUfileFileHandleType, CUfileHandle_t,
};
use cuda_sys::{CUfileError_t, CUfileOpError, CallError, Cufile, CufileError};

use crate::error::{CufileCause, Error, Result};

/// What came of looking for cuFile: the library, or why it does not move bytes between disk and device.
type Looked = std::result::Result<Arc<Cufile>, String>;

/// What a runtime keeps for cuFile.
#[derive(Debug, Default)]
pub(crate) struct Gds {
    looked: Mutex<Option<Looked>>,
    /// Storages that are registered, by their addresses. They live until they are deregistered.
    buffers: Mutex<BTreeMap<u64, Storage>>,
}

/// A file that cuFile knows.
#[derive(Debug)]
pub(crate) struct Handle {
    library: Arc<Cufile>,
    raw: usize,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The most bytes of one call: cuFile counts them in a signed number, and cuts them into requests itself.
const CALL_MAX: usize = 1 << 30;

/// The library of a runtime, which is looked for where that was not done; else why bytes do not go by it.
pub(crate) fn find(runtime: &Runtime) -> Looked {
    let gds = runtime.extension::<Gds>();
    let mut looked = lock(&gds.looked);
    looked.get_or_insert_with(|| look(runtime).and_then(opened)).clone()
}

/// Has a runtime use this library from now on, or none.
pub(crate) fn set(runtime: &Runtime, cufile: Option<Cufile>) {
    let chosen = cufile.ok_or_else(|| "the program has chosen to do without cuFile".to_owned()).and_then(opened);
    *lock(&runtime.extension::<Gds>().looked) = Some(chosen);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for the library where the runtime's driver is from.
fn look(runtime: &Runtime) -> std::result::Result<Cufile, String> {
    let is_named = std::env::var_os("CUDA_SYS_LIBCUFILE").is_some_and(|path| !path.is_empty());
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is neither of these is searched for")]
    let found = match runtime.library_source() {
        LibrarySource::Given => {
            return Err("the driver was given as a table of functions, and no cuFile with it".to_owned());
        }
        LibrarySource::Beside(folder) if !is_named => Cufile::load_from(folder.join("libcufile.so.0")),
        // cuFile is large and writes a log where it fails to start, so it is not asked what the kernel answers too.
        LibrarySource::System if !is_named && !Path::new("/proc/driver/nvidia-fs").exists() => {
            return Err("the kernel has no nvidia-fs module".to_owned());
        }
        _ => Cufile::load(),
    };
    found.map_err(|error| error.to_string())
}

/// Opens cuFile without its compatibility mode, and refuses one that would copy through the host's memory.
fn opened(cufile: Cufile) -> Looked {
    let compatible = CUFileBoolConfigParameter_t::CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE;
    // SAFETY: sets a switch before anything is open. Older libraries do not have the function; what holds is read below.
    let _ = unsafe { cufile.cuFileSetParameterBool(compatible, false) };
    // SAFETY: takes nothing.
    if let Err(error) = unsafe { cufile.cuFileDriverOpen() }
        && error.status().is_none_or(|status| status.err != CUfileOpError::CU_FILE_DRIVER_ALREADY_OPEN)
    {
        return Err(format!("cuFile does not start: {error}"));
    }
    let mut properties = MaybeUninit::<CUfileDrvProps_t>::zeroed();
    // SAFETY: writes the structure.
    (unsafe { cufile.cuFileDriverGetProperties(properties.as_mut_ptr()) })
        .map_err(|error| format!("cuFile does not say what it can do: {error}"))?;
    // SAFETY: numbers, all of which were zero before cuFile wrote them.
    let properties = unsafe { properties.assume_init() };
    if properties.nvfs.major_version == 0 {
        return Err("cuFile finds no nvidia-fs".to_owned());
    }
    if properties.nvfs.dcontrolflags & (1 << CUfileDriverControlFlags::CU_FILE_ALLOW_COMPAT_MODE.0) != 0 {
        return Err(
            "cuFile's compatibility mode cannot be switched off, and would copy through the host's memory; set \
                    allow_compat_mode to false in cufile.json"
                .to_owned(),
        );
    }
    Ok(Arc::new(cufile))
}

/// Whether a code says that a file cannot be served so, rather than that a call was wrong.
fn is_unsupported(status: CUfileError_t) -> bool {
    [
        CUfileOpError::CU_FILE_DRIVER_NOT_INITIALIZED,
        CUfileOpError::CU_FILE_PLATFORM_NOT_SUPPORTED,
        CUfileOpError::CU_FILE_IO_NOT_SUPPORTED,
        CUfileOpError::CU_FILE_DEVICE_NOT_SUPPORTED,
        CUfileOpError::CU_FILE_INVALID_FILE_TYPE,
        CUfileOpError::CU_FILE_INVALID_FILE_OPEN_FLAG,
        CUfileOpError::CU_FILE_DIO_NOT_SET,
        CUfileOpError::CU_FILE_IO_DISABLED,
        CUfileOpError::CU_FILE_BATCH_NOCOMPAT_ERROR,
    ]
    .contains(&status.err)
}

fn refused(call: &'static str) -> impl Fn(CufileError) -> Error {
    move |error| Error::Cufile { call, cause: CufileCause::Code(error) }
}

impl Handle {
    /// Registers an open file; `Err` of the inner result says why cuFile does not serve it.
    ///
    /// # Errors
    /// cuFile's, where it says that the call was wrong.
    pub(crate) fn new(library: &Arc<Cufile>, file: &File) -> Result<std::result::Result<Self, String>> {
        let mut descriptor = CUfileDescr_t {
            type_: CUfileFileHandleType::CU_FILE_HANDLE_TYPE_OPAQUE_FD,
            handle: CUfileDescr_t__bindgen_ty_1 { fd: file.as_raw_fd() },
            fs_ops: std::ptr::null(),
        };
        let mut raw: CUfileHandle_t = std::ptr::null_mut();
        // SAFETY: both outlive the call, and the descriptor names an open file.
        match unsafe { library.cuFileHandleRegister(&raw mut raw, &raw mut descriptor) } {
            Ok(()) => Ok(Ok(Self { library: library.clone(), raw: raw.expose_provenance() })),
            Err(error) if error.status().is_some_and(is_unsupported) => {
                Ok(Err(format!("cuFile does not serve it: {error}")))
            }
            Err(error) => Err(refused("cuFileHandleRegister")(error)),
        }
    }

    /// cuFile's handle, as a number.
    pub(crate) fn raw(&self) -> usize {
        self.raw
    }

    /// Reads or writes bytes of a device's memory until they are done or the file ends; returns how many were.
    ///
    /// # Errors
    /// cuFile's, or the system's.
    pub(crate) fn transfer(
        &self,
        direction: Direction,
        buffer: &DeviceBuffer,
        at: usize,
        bytes: usize,
        position: u64,
    ) -> Result<usize> {
        let mut done = 0;
        while done < bytes {
            let answer =
                self.call(direction, buffer, at + done, (bytes - done).min(CALL_MAX), position + done as u64)?;
            match answer {
                0 => break,
                some => done += some,
            }
        }
        Ok(done)
    }

    fn call(
        &self,
        direction: Direction,
        buffer: &DeviceBuffer,
        at: usize,
        bytes: usize,
        position: u64,
    ) -> Result<usize> {
        let raw = std::ptr::with_exposed_provenance_mut(self.raw);
        let base = std::ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(buffer.address()).unwrap_or(0));
        let beyond = |_| Error::Position { offset: position, bytes: bytes as u64 };
        let (position, at) = (i64::try_from(position).map_err(beyond)?, i64::try_from(at).map_err(beyond)?);
        let (call, answer) = match direction {
            Direction::Read => {
                // SAFETY: the handle is registered, and the caller's buffer has these bytes and lives.
                ("cuFileRead", unsafe { self.library.cuFileRead(raw, base, bytes, position, at) })
            }
            Direction::Write => {
                // SAFETY: as above.
                ("cuFileWrite", unsafe { self.library.cuFileWrite(raw, base, bytes, position, at) })
            }
        };
        let answer = answer.map_err(refused(call))?;
        usize::try_from(answer).map_err(|_| {
            let cause = match CUfileOpError::of_answer(answer) {
                Some(err) => {
                    let status = CUfileError_t { err, ..CUfileError_t::CU_FILE_SUCCESS };
                    CufileCause::Code(CallError::Failed { call, status })
                }
                None => CufileCause::System(io::Error::last_os_error()),
            };
            Error::Cufile { call, cause }
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: cuFile gave the handle, and nobody else has it. An error cannot be returned here.
        let _ = unsafe { self.library.cuFileHandleDeregister(std::ptr::with_exposed_provenance_mut(self.raw)) };
    }
}

/// A code as cuFile gives it, for what is refused without asking it.
fn code(call: &'static str, err: CUfileOpError) -> Error {
    let status = CUfileError_t { err, ..CUfileError_t::CU_FILE_SUCCESS };
    refused(call)(CallError::Failed { call, status })
}

/// Registers the memory of a storage, and keeps it alive until it is deregistered.
///
/// # Errors
/// cuFile's; it is registered already.
pub(crate) fn register(runtime: &Runtime, storage: &Storage, buffer: &DeviceBuffer) -> Result<()> {
    let gds = runtime.extension::<Gds>();
    let library = find(runtime).ok();
    let mut buffers = lock(&gds.buffers);
    if buffers.contains_key(&buffer.address()) {
        return Err(code("cuFileBufRegister", CUfileOpError::CU_FILE_MEMORY_ALREADY_REGISTERED));
    }
    if let Some(library) = library {
        let base = std::ptr::with_exposed_provenance(usize::try_from(buffer.address()).unwrap_or(0));
        runtime.with_library(buffer.device_index(), || {
            // SAFETY: the memory has these bytes, and lives until it is deregistered.
            (unsafe { library.cuFileBufRegister(base, buffer.len(), 0) }).map_err(refused("cuFileBufRegister"))
        })?;
    }
    buffers.insert(buffer.address(), storage.clone());
    Ok(())
}

/// Deregisters the memory of a storage.
///
/// # Errors
/// cuFile's; it is not registered.
pub(crate) fn deregister(runtime: &Runtime, buffer: &DeviceBuffer) -> Result<()> {
    let gds = runtime.extension::<Gds>();
    let library = find(runtime).ok();
    let mut buffers = lock(&gds.buffers);
    if !buffers.contains_key(&buffer.address()) {
        return Err(code("cuFileBufDeregister", CUfileOpError::CU_FILE_MEMORY_NOT_REGISTERED));
    }
    if let Some(library) = library {
        let base = std::ptr::with_exposed_provenance(usize::try_from(buffer.address()).unwrap_or(0));
        runtime.with_library(buffer.device_index(), || {
            // SAFETY: the memory was registered, and lives.
            (unsafe { library.cuFileBufDeregister(base) }).map_err(refused("cuFileBufDeregister"))
        })?;
    }
    buffers.remove(&buffer.address());
    Ok(())
}
