//! Kernels of libraries: their functions in contexts, and what can be asked and set on devices.

use std::ffi::c_char;

use cuda_sys::driver::types::{CUfunc_cache, CUfunction, CUfunction_attribute, CUkern_st, CUlibrary};

use super::function::{check_cache_config, set_attribute_of, tell_attribute, tell_parameter};
use crate::call::Call;
use crate::claim::{Ptr, handle, host_pointer};
use crate::codes::Answer;

/// The function that the kernel is in the current context.
pub(crate) fn function(call: &mut Call<'_>, function: Ptr<CUfunction>, kernel: Ptr<CUkern_st>) -> Answer {
    let context = call.need_context()?;
    call.library_kernel(kernel.address())?;
    function.required()?;
    let key = call.function_in(kernel.address(), context)?;
    call.load_function(key)?;
    function.write(handle(key))
}

pub(crate) fn library(call: &mut Call<'_>, library: Ptr<CUlibrary>, kernel: Ptr<CUkern_st>) -> Answer {
    let found = call.library_kernel(kernel.address())?.library;
    library.write(handle(found))
}

/// Its name, which lives as long as its library.
pub(crate) fn name(call: &mut Call<'_>, name: Ptr<*const c_char>, kernel: Ptr<CUkern_st>) -> Answer {
    let told = call.library_kernel(kernel.address())?.kernel.name_address();
    name.write(host_pointer(told).cast())
}

pub(crate) fn parameter(
    call: &mut Call<'_>,
    kernel: Ptr<CUkern_st>,
    index: usize,
    offset: Ptr<usize>,
    size: Ptr<usize>,
) -> Answer {
    let found = &call.library_kernel(kernel.address())?.kernel;
    tell_parameter(found, index, offset, size)
}

pub(crate) fn attribute(
    call: &mut Call<'_>,
    value: Ptr<i32>,
    attribute: CUfunction_attribute,
    kernel: Ptr<CUkern_st>,
    device: i32,
) -> Answer {
    call.library_kernel(kernel.address())?;
    let device = call.device(device)?;
    let described = call.described(kernel.address(), device)?;
    tell_attribute(value, attribute, &described)
}

pub(crate) fn set_attribute(
    call: &mut Call<'_>,
    attribute: CUfunction_attribute,
    value: i32,
    kernel: Ptr<CUkern_st>,
    device: i32,
) -> Answer {
    call.library_kernel(kernel.address())?;
    let device = call.device(device)?;
    set_attribute_of(call, kernel.address(), device, attribute, value)
}

pub(crate) fn set_cache_config(
    call: &mut Call<'_>,
    kernel: Ptr<CUkern_st>,
    config: CUfunc_cache,
    device: i32,
) -> Answer {
    call.library_kernel(kernel.address())?;
    call.device(device)?;
    check_cache_config(config)
}
