//! Libraries, which belong to no context.

use std::ffi::{c_char, c_void};

use cuda_sys::driver::types::{CUjit_option, CUkernel, CUlib_st, CUlibrary, CUlibraryOption, CUmodule};

use super::image::Image;
use super::module::tell_variable;
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED};
use crate::model::links::Logs;

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn load(
    call: &mut Call<'_>,
    library: Ptr<CUlibrary>,
    code: Ptr<c_void>,
    options: Ptr<CUjit_option>,
    values: Ptr<*mut c_void>,
    count: u32,
    library_options: Ptr<CUlibraryOption>,
    _library_values: Ptr<*mut c_void>,
    library_count: u32,
) -> Answer {
    library.required()?;
    let image = Image::at(code)?;
    let logs = Logs::find(count, options, values)?;
    check_options(library_options, library_count)?;
    load_image(call, library, &image, &logs)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn load_file(
    call: &mut Call<'_>,
    library: Ptr<CUlibrary>,
    path: Ptr<c_char>,
    options: Ptr<CUjit_option>,
    values: Ptr<*mut c_void>,
    count: u32,
    library_options: Ptr<CUlibraryOption>,
    _library_values: Ptr<*mut c_void>,
    library_count: u32,
) -> Answer {
    library.required()?;
    let image = Image::of_file(path)?;
    let logs = Logs::find(count, options, values)?;
    check_options(library_options, library_count)?;
    load_image(call, library, &image, &logs)
}

fn load_image(call: &mut Call<'_>, library: Ptr<CUlibrary>, image: &Image, logs: &Logs) -> Answer {
    let program = image.program(call, logs)?;
    let key = call.add_library(program);
    library.write(handle(key))
}

/// That the program keeps the code is fine, as it is copied; tables of functions that are the same on every device are
/// not simulated.
fn check_options(options: Ptr<CUlibraryOption>, count: u32) -> Answer {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        match options.read_at(index)? {
            CUlibraryOption::CU_LIBRARY_BINARY_IS_PRESERVED => {}
            CUlibraryOption::CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

pub(crate) fn unload(call: &mut Call<'_>, library: Ptr<CUlib_st>) -> Answer {
    let contexts: Vec<u64> = call.library(library.address())?.modules.keys().copied().collect();
    // As for modules: code goes back when nothing can run it any more.
    for context in contexts {
        call.wait_until(|state| state.load_of(context) == 0);
    }
    call.remove_library(library.address())
}

pub(crate) fn kernel(call: &mut Call<'_>, kernel: Ptr<CUkernel>, library: Ptr<CUlib_st>, name: Ptr<c_char>) -> Answer {
    let found = call.library(library.address())?;
    kernel.required()?;
    let name = name.read_string()?;
    let is_named = |key: &&u64| call.library_kernel(**key).is_ok_and(|kernel| kernel.kernel.name == name);
    let key = *found.kernels.iter().find(is_named).ok_or(NOT_FOUND)?;
    let named = std::sync::Arc::clone(&call.library_kernel(key)?.kernel);
    call.refuse_unsupported(&named)?;
    kernel.write(handle(key))
}

pub(crate) fn kernel_count(call: &mut Call<'_>, count: Ptr<u32>, library: Ptr<CUlib_st>) -> Answer {
    let found = call.library(library.address())?.kernels.len();
    count.write(u32::try_from(found).unwrap_or(u32::MAX))
}

pub(crate) fn kernels(call: &mut Call<'_>, kernels: Ptr<CUkernel>, count: u32, library: Ptr<CUlib_st>) -> Answer {
    let found = &call.library(library.address())?.kernels;
    kernels.required()?;
    let room = usize::try_from(count).unwrap_or(usize::MAX);
    found.iter().take(room).enumerate().try_for_each(|(index, &key)| kernels.write_at(index, handle(key)))
}

/// The module that the library is in the current context.
pub(crate) fn module(call: &mut Call<'_>, module: Ptr<CUmodule>, library: Ptr<CUlib_st>) -> Answer {
    let context = call.need_context()?;
    call.library(library.address())?;
    module.required()?;
    let key = call.module_of_library(library.address(), context)?;
    module.write(handle(key))
}

pub(crate) fn variable(
    call: &mut Call<'_>,
    address: Ptr<u64>,
    bytes: Ptr<usize>,
    library: Ptr<CUlib_st>,
    name: Ptr<c_char>,
) -> Answer {
    let context = call.need_context()?;
    let key = call.module_of_library(library.address(), context)?;
    tell_variable(call.modules.get(&key).ok_or(INVALID_HANDLE)?, address, bytes, name)
}

/// Variables in managed memory, of which there are none.
pub(crate) fn managed(
    call: &mut Call<'_>,
    _address: Ptr<u64>,
    _bytes: Ptr<usize>,
    library: Ptr<CUlib_st>,
    name: Ptr<c_char>,
) -> Answer {
    call.library(library.address())?;
    name.required()?;
    Err(NOT_FOUND)
}

/// Functions that have one address on all devices, of which there are none.
pub(crate) fn unified_function(
    call: &mut Call<'_>,
    function: Ptr<*mut c_void>,
    library: Ptr<CUlib_st>,
    symbol: Ptr<c_char>,
) -> Answer {
    call.library(library.address())?;
    function.required()?;
    symbol.required()?;
    Err(INVALID_VALUE)
}
