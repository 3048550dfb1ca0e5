//! Where libcuda is found, and how its functions are asked for.

use std::ffi::{CString, c_int, c_void};
use std::ptr::{self, NonNull};

use super::types::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t};
use crate::loader::{Library, LibraryInfo, Outcome};
use crate::table::Address;
use crate::{CudaVersion, FunctionInfo};

/// How libcuda is searched for. It has had one soname since it exists.
pub(super) const LIBCUDA: LibraryInfo = LibraryInfo {
    name: "libcuda (NVIDIA driver)",
    override_variable: "CUDA_SYS_LIBCUDA",
    sonames: &["libcuda.so.1", "libcuda.so"],
    folders: &[
        "/usr/lib/wsl/lib",
        "/usr/lib/aarch64-linux-gnu/nvidia",
        "/usr/lib/aarch64-linux-gnu/tegra",
        "/usr/local/nvidia/lib64",
    ],
    wheels: &[],
    landmark: "cuDriverGetVersion",
};

type GetVersion = unsafe extern "C" fn(*mut c_int) -> CUresult;
type GetProcAddress = unsafe extern "C" fn(*const core::ffi::c_char, *mut *mut c_void, c_int, cuuint64_t) -> CUresult;
type GetProcAddressV2 = unsafe extern "C" fn(
    *const core::ffi::c_char,
    *mut *mut c_void,
    c_int,
    cuuint64_t,
    *mut CUdriverProcAddressQueryResult,
) -> CUresult;

/// The version of CUDA that a library supports; an error when it is a stub or no driver at all.
pub(super) fn version(library: &Library) -> Result<CudaVersion, Outcome> {
    let address = library.symbol("cuDriverGetVersion").ok_or(Outcome::MissingSymbol("cuDriverGetVersion"))?;
    // SAFETY: every libcuda exports cuDriverGetVersion with this signature, unchanged since CUDA 2.2.
    let get_version = unsafe { std::mem::transmute::<Address, GetVersion>(address) };
    let mut version = 0;
    // SAFETY: `version` outlives the call, and the function may be called before cuInit.
    let status = unsafe { get_version(&mut version) };
    match status {
        CUresult::CUDA_SUCCESS => Ok(CudaVersion(u32::try_from(version).unwrap_or(0))),
        CUresult::CUDA_ERROR_STUB_LIBRARY => Err(Outcome::Stub),
        other => Err(Outcome::Refused(format!("cuDriverGetVersion: {other}"))),
    }
}

/// Looks functions up in an open libcuda.
pub(super) struct Finder<'a> {
    library: &'a Library,
    version: CudaVersion,
    entry: EntryPoint,
}

/// The newest look-up function that the library has.
enum EntryPoint {
    V2(GetProcAddressV2),
    V1(GetProcAddress),
    Symbols,
}

impl<'a> Finder<'a> {
    pub(super) fn new(library: &'a Library, version: CudaVersion) -> Self {
        let wanted = |since: u32, symbol: &str| {
            if version >= CudaVersion(since) { library.symbol(symbol) } else { None }
        };
        let entry = if let Some(address) = wanted(12000, "cuGetProcAddress_v2") {
            // SAFETY: the symbol's signature, unchanged since it came with CUDA 12.0.
            EntryPoint::V2(unsafe { std::mem::transmute::<Address, GetProcAddressV2>(address) })
        } else if let Some(address) = wanted(11030, "cuGetProcAddress") {
            // SAFETY: the symbol's signature, unchanged since it came with CUDA 11.3.
            EntryPoint::V1(unsafe { std::mem::transmute::<Address, GetProcAddress>(address) })
        } else {
            EntryPoint::Symbols
        };
        Self { library, version, entry }
    }

    /// Address of a function at exactly the ABI that `info` describes.
    ///
    /// A function newer than the driver is not asked for: the driver would answer with an older ABI of the same name.
    pub(super) fn find(&self, info: &FunctionInfo) -> Option<Address> {
        if info.version > self.version {
            return None;
        }
        let name = CString::new(info.base).ok()?;
        let version = c_int::try_from(info.version.0).ok()?;
        let mut found: *mut c_void = ptr::null_mut();
        let status = match self.entry {
            EntryPoint::Symbols => return self.library.symbol(info.symbol),
            EntryPoint::V1(get) => {
                // SAFETY: a C string and an out pointer, both alive during the call; usable before cuInit.
                unsafe { get(name.as_ptr(), &mut found, version, 0) }
            }
            EntryPoint::V2(get) => {
                let mut result = CUdriverProcAddressQueryResult(0);
                // SAFETY: a C string and two out pointers, all alive during the call; usable before cuInit.
                unsafe { get(name.as_ptr(), &mut found, version, 0, &mut result) }
            }
        };
        // A name the driver does not know is answered with success and no address, or with NOT_FOUND.
        NonNull::new(found).filter(|_| status == CUresult::CUDA_SUCCESS)
    }
}
