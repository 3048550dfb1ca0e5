//! Functions of modules: what can be asked about them, and what can be set.

use std::ffi::c_char;

use cuda_sys::driver::types::{
    CUfunc_cache, CUfunc_st, CUfunction_attribute, CUfunctionLoadingState as LoadingState, CUmodule,
};

use crate::call::Call;
use crate::claim::{Ptr, handle, host_pointer};
use crate::codes::{Answer, INVALID_VALUE};
use crate::model::kernel::Kernel;
use crate::model::modules::{Described, SHARED_BYTES_MAX};

/// The largest `CUfunc_cache`.
const CACHE_CONFIG_MAX: u32 = 3;

/// Its name, which lives as long as its module.
pub(crate) fn name(call: &mut Call<'_>, name: Ptr<*const c_char>, function: Ptr<CUfunc_st>) -> Answer {
    let told = call.described_function(function)?.kernel.name_address();
    name.write(host_pointer(told).cast())
}

pub(crate) fn load(call: &mut Call<'_>, function: Ptr<CUfunc_st>) -> Answer {
    let key = named(call, function)?;
    call.load_function(key)
}

pub(crate) fn is_loaded(call: &mut Call<'_>, state: Ptr<LoadingState>, function: Ptr<CUfunc_st>) -> Answer {
    call.described_function(function)?;
    let context = call.need_context()?;
    let key = match call.library_kernel(function.address()) {
        Ok(_) => call.present_function(function.address(), context)?,
        Err(_) => Some(function.address()),
    };
    let loaded = key.is_some_and(|key| call.function(key).is_ok_and(|function| function.loaded));
    state.write(if loaded {
        LoadingState::CU_FUNCTION_LOADING_STATE_LOADED
    } else {
        LoadingState::CU_FUNCTION_LOADING_STATE_UNLOADED
    })
}

/// A wish for how memory is divided between cache and shared memory, which changes nothing here.
pub(crate) fn set_cache_config(call: &mut Call<'_>, function: Ptr<CUfunc_st>, config: CUfunc_cache) -> Answer {
    call.described_function(function)?;
    check_cache_config(config)
}

pub(super) fn check_cache_config(config: CUfunc_cache) -> Answer {
    if config.0 > CACHE_CONFIG_MAX { Err(INVALID_VALUE) } else { Ok(()) }
}

/// The function that a handle names in the current context.
fn named(call: &mut Call<'_>, function: Ptr<CUfunc_st>) -> Answer<u64> {
    let context = call.need_context()?;
    call.function_in(function.address(), context)
}

pub(crate) fn module_of(call: &mut Call<'_>, module: Ptr<CUmodule>, function: Ptr<CUfunc_st>) -> Answer {
    let key = named(call, function)?;
    let found = call.function(key)?.module;
    module.write(handle(found))
}

pub(crate) fn attribute(
    call: &mut Call<'_>,
    value: Ptr<i32>,
    attribute: CUfunction_attribute,
    function: Ptr<CUfunc_st>,
) -> Answer {
    value.required()?;
    let described = call.described_function(function)?;
    tell_attribute(value, attribute, &described)
}

pub(super) fn tell_attribute(value: Ptr<i32>, attribute: CUfunction_attribute, found: &Described) -> Answer {
    value.required()?;
    let shared = i32::try_from(found.kernel.shared_bytes).unwrap_or(i32::MAX);
    let told = match attribute {
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => {
            i32::try_from(found.kernel.max_threads).unwrap_or(i32::MAX)
        }
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => shared,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => {
            i32::try_from(found.kernel.local_bytes).unwrap_or(i32::MAX)
        }
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        | CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => 0,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => {
            i32::try_from(found.kernel.register_count()).unwrap_or(i32::MAX)
        }
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION => i32::try_from(found.kernel.target).unwrap_or(0),
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION => 90,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            i32::try_from(found.dynamic_shared_max).unwrap_or(i32::MAX)
        }
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => -1,
        _ => return Err(INVALID_VALUE),
    };
    value.write(told)
}

pub(crate) fn set_attribute(
    call: &mut Call<'_>,
    function: Ptr<CUfunc_st>,
    attribute: CUfunction_attribute,
    value: i32,
) -> Answer {
    let device = call.current_device()?;
    set_attribute_of(call, function.address(), device, attribute, value)
}

/// Sets an attribute of a function, or of a kernel on a device.
pub(super) fn set_attribute_of(
    call: &mut Call<'_>,
    key: u64,
    device: u32,
    attribute: CUfunction_attribute,
    value: i32,
) -> Answer {
    let named = call.described(key, device)?.kernel.shared_bytes;
    match attribute {
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let wanted = u32::try_from(value).map_err(|_| INVALID_VALUE)?;
            if u64::from(wanted) + named > u64::from(SHARED_BYTES_MAX) {
                return Err(INVALID_VALUE);
            }
            call.set_dynamic_shared_max(key, device, wanted)
        }
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => {
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

pub(crate) fn parameter(
    call: &mut Call<'_>,
    function: Ptr<CUfunc_st>,
    index: usize,
    offset: Ptr<usize>,
    size: Ptr<usize>,
) -> Answer {
    offset.required()?;
    tell_parameter(&call.described_function(function)?.kernel, index, offset, size)
}

pub(super) fn tell_parameter(kernel: &Kernel, index: usize, offset: Ptr<usize>, size: Ptr<usize>) -> Answer {
    offset.required()?;
    let parameter = *kernel.parameters.get(index).ok_or(INVALID_VALUE)?;
    size.write_if_wanted(parameter.size);
    offset.write(parameter.offset)
}
