//! Functions of modules: what can be asked about them, and what can be set.

use std::ffi::c_char;

use cuda_sys::driver::types::{
    CUfunc_cache, CUfunc_st, CUfunction_attribute, CUfunctionLoadingState as LoadingState, CUmodule,
};

use crate::call::Call;
use crate::claim::{Ptr, handle, host_pointer};
use crate::codes::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::model::modules::SHARED_BYTES_MAX;

/// The largest `CUfunc_cache`.
const CACHE_CONFIG_MAX: u32 = 3;

/// Its name, which lives as long as its module.
pub(crate) fn name(call: &mut Call<'_>, name: Ptr<*const c_char>, function: Ptr<CUfunc_st>) -> Answer {
    let told = call.function(function.address())?.kernel.name_address();
    name.write(host_pointer(told).cast())
}

pub(crate) fn load(call: &mut Call<'_>, function: Ptr<CUfunc_st>) -> Answer {
    call.load_function(function.address())
}

pub(crate) fn is_loaded(call: &mut Call<'_>, state: Ptr<LoadingState>, function: Ptr<CUfunc_st>) -> Answer {
    let loaded = call.function(function.address())?.loaded;
    state.write(if loaded {
        LoadingState::CU_FUNCTION_LOADING_STATE_LOADED
    } else {
        LoadingState::CU_FUNCTION_LOADING_STATE_UNLOADED
    })
}

/// A wish for how memory is divided between cache and shared memory, which changes nothing here.
pub(crate) fn set_cache_config(call: &mut Call<'_>, function: Ptr<CUfunc_st>, config: CUfunc_cache) -> Answer {
    call.function(function.address())?;
    if config.0 > CACHE_CONFIG_MAX { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn module_of(call: &mut Call<'_>, module: Ptr<CUmodule>, function: Ptr<CUfunc_st>) -> Answer {
    let key = call.function(function.address())?.module;
    module.write(handle(key))
}

pub(crate) fn attribute(
    call: &mut Call<'_>,
    value: Ptr<i32>,
    attribute: CUfunction_attribute,
    function: Ptr<CUfunc_st>,
) -> Answer {
    value.required()?;
    let found = call.function(function.address())?;
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
    let key = function.address();
    let named = call.function(key)?.kernel.shared_bytes;
    match attribute {
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let wanted = u32::try_from(value).map_err(|_| INVALID_VALUE)?;
            if u64::from(wanted) + named > u64::from(SHARED_BYTES_MAX) {
                return Err(INVALID_VALUE);
            }
            call.functions.get_mut(&key).ok_or(INVALID_HANDLE)?.dynamic_shared_max = wanted;
            Ok(())
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
    let parameter = *call.function(function.address())?.kernel.parameters.get(index).ok_or(INVALID_VALUE)?;
    size.write_if_wanted(parameter.size);
    offset.write(parameter.offset)
}
