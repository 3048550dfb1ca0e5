//! Kernels, which are not simulated.

use std::ffi::c_void;

use cuda_sys::driver::types::{CUfunc_st, CUlaunchConfig, CUstream_st};

use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_HANDLE, NOT_SUPPORTED};

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn kernel(
    _: &mut Call<'_>,
    function: Ptr<CUfunc_st>,
    _grid_x: u32,
    _grid_y: u32,
    _grid_z: u32,
    _block_x: u32,
    _block_y: u32,
    _block_z: u32,
    _shared_bytes: u32,
    _stream: Ptr<CUstream_st>,
    _params: Ptr<*mut c_void>,
    _extra: Ptr<*mut c_void>,
) -> Answer {
    if function.is_null() { Err(INVALID_HANDLE) } else { Err(NOT_SUPPORTED) }
}

pub(crate) fn kernel_ex(
    call: &mut Call<'_>,
    config: Ptr<CUlaunchConfig>,
    function: Ptr<CUfunc_st>,
    _params: Ptr<*mut c_void>,
    _extra: Ptr<*mut c_void>,
) -> Answer {
    config.required()?;
    call.need_context()?;
    if function.is_null() { Err(INVALID_HANDLE) } else { Err(NOT_SUPPORTED) }
}
