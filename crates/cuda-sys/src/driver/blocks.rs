//! A table of functions by which an allocator tells a driver which blocks it cuts from memory.
//!
//! NVIDIA's driver has no such table. A simulated driver that checks kernels answers `cuGetExportTable` with it, and then
//! knows what an allocator of the program has handed out of a larger allocation.

use super::types::{CUcontext, CUdeviceptr, CUresult, CUstream, CUuuid};

/// What `cuGetExportTable` is asked for.
pub const BLOCK_TABLE_ID: CUuuid =
    CUuuid { bytes: [0x62, 0x6c, 0x6f, 0x63, 0x6b, 0x73, 0x2d, 0x6f, 0x66, 0x2d, 0x61, 0x6c, 0x6c, 0x6f, 0x63, 0x31] };

/// Identity of a table that only simulated drivers have: `cuGetExportTable` returns a table that holds only its own
/// size in bytes.
pub const SIMULATED_TABLE_ID: CUuuid =
    CUuuid { bytes: [0x73, 0x69, 0x6d, 0x75, 0x6c, 0x61, 0x74, 0x65, 0x64, 0x2d, 0x64, 0x72, 0x69, 0x76, 0x65, 0x72] };

/// The functions. None of them waits, fails a capture, or takes simulated time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlockTable {
    /// Bytes of the table: a driver may have more functions than this.
    pub size: usize,
    /// A block of so many bytes was handed out for use on a stream of a context, and is as if nobody had written it.
    ///
    /// # Safety
    /// - None: handles and addresses are looked up.
    pub handed_out: unsafe extern "C" fn(CUcontext, CUstream, CUdeviceptr, usize) -> CUresult,
    /// The block that begins at an address was given back: work that is queued from now on has no business in it.
    ///
    /// # Safety
    /// - None: the address is looked up.
    pub given_back: unsafe extern "C" fn(CUdeviceptr) -> CUresult,
}
