//! Modules: loading them, and finding what they hold.

use std::ffi::{c_char, c_void};

use cuda_sys::driver::types::{CUfunction, CUjit_option, CUmod_st, CUmodule, CUmoduleLoadingMode};

use super::image::Image;
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_PERMITTED};
use crate::model::State;
use crate::model::links::Logs;
use crate::model::modules::Module;

pub(crate) fn load(call: &mut Call<'_>, module: Ptr<CUmodule>, image: Ptr<c_void>) -> Answer {
    load_with_options(call, module, image, 0, Ptr::null(), Ptr::null())
}

pub(crate) fn load_with_options(
    call: &mut Call<'_>,
    module: Ptr<CUmodule>,
    image: Ptr<c_void>,
    count: u32,
    options: Ptr<CUjit_option>,
    values: Ptr<*mut c_void>,
) -> Answer {
    module.required()?;
    let image = Image::at(image)?;
    let logs = Logs::find(count, options, values)?;
    load_image(call, module, &image, &logs)
}

pub(crate) fn load_file(call: &mut Call<'_>, module: Ptr<CUmodule>, path: Ptr<c_char>) -> Answer {
    module.required()?;
    let image = Image::of_file(path)?;
    load_image(call, module, &image, &Logs::default())
}

fn load_image(call: &mut Call<'_>, module: Ptr<CUmodule>, image: &Image, logs: &Logs) -> Answer {
    let context = call.need_context()?;
    let program = image.program(call, logs)?;
    let key = call.add_module(context, program)?;
    module.write(handle(key))
}

/// The module of a handle.
fn named(state: &State, module: Ptr<CUmod_st>) -> Answer<&Module> {
    state.modules.get(&module.address()).ok_or(INVALID_HANDLE)
}

pub(crate) fn unload(call: &mut Call<'_>, module: Ptr<CUmod_st>) -> Answer {
    let context = named(call, module)?.context;
    if call.is_of_a_library(module.address()) {
        return Err(NOT_PERMITTED);
    }
    // Hardware waits: code goes back as memory does.
    call.finish_context(context)?;
    call.remove_module(module.address())
}

/// Whether functions are loaded when they are first used, or all with their module.
pub(crate) fn loading_mode(call: &mut Call<'_>, mode: Ptr<CUmoduleLoadingMode>) -> Answer {
    let eager = call.config.eager_loading;
    mode.write(if eager {
        CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING
    } else {
        CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING
    })
}

pub(crate) fn function(
    call: &mut Call<'_>,
    function: Ptr<CUfunction>,
    module: Ptr<CUmod_st>,
    name: Ptr<c_char>,
) -> Answer {
    let found = named(call, module)?;
    function.required()?;
    let name = name.read_string()?;
    let is_named = |key: &&u64| call.function(**key).is_ok_and(|function| function.kernel.name == name);
    let key = *found.functions.iter().find(is_named).ok_or(NOT_FOUND)?;
    call.load_function(key)?;
    function.write(handle(key))
}

pub(crate) fn function_count(call: &mut Call<'_>, count: Ptr<u32>, module: Ptr<CUmod_st>) -> Answer {
    let found = named(call, module)?.functions.len();
    count.write(u32::try_from(found).unwrap_or(u32::MAX))
}

/// Handles of functions, which need not be loaded yet.
pub(crate) fn functions(call: &mut Call<'_>, functions: Ptr<CUfunction>, count: u32, module: Ptr<CUmod_st>) -> Answer {
    let found = &named(call, module)?.functions;
    functions.required()?;
    let room = usize::try_from(count).unwrap_or(usize::MAX);
    found.iter().take(room).enumerate().try_for_each(|(index, &key)| functions.write_at(index, handle(key)))
}

pub(crate) fn variable(
    call: &mut Call<'_>,
    address: Ptr<u64>,
    bytes: Ptr<usize>,
    module: Ptr<CUmod_st>,
    name: Ptr<c_char>,
) -> Answer {
    let found = named(call, module)?;
    tell_variable(found, address, bytes, name)
}

/// Where a variable lies and how large it is; one of the two may be left out.
pub(super) fn tell_variable(module: &Module, address: Ptr<u64>, bytes: Ptr<usize>, name: Ptr<c_char>) -> Answer {
    let name = name.read_string()?;
    if address.is_null() && bytes.is_null() {
        return Err(INVALID_VALUE);
    }
    let (found, size) = module.variable(&name).ok_or(NOT_FOUND)?;
    address.write_if_wanted(found);
    bytes.write_if_wanted(usize::try_from(size).unwrap_or(usize::MAX));
    Ok(())
}
