//! Modules: text that is loaded or refused, functions and what can be asked about them.

use super::prelude::*;
use super::ptx::{idle, kernel, with_directives};

cases!("module", CASES, Needs::CONTEXT;
    load_and_unload, load_null, images_that_are_none, text_that_is_none, unknown_names, newer_text, error_log, function_attributes,
    attributes_that_are_none, shared_memory_of_a_function, shared_memory_beyond_the_device, threads_of_a_function,
    module_of_a_function, loading_mode,
);

cases!("module", PARAMETER_CASES, Needs::CONTEXT.since(12040);
    parameters_of_a_function,
);

cases!("module", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    handles_that_are_none, machine_code, text_that_is_not_simulated, variables_without_room,
);

type Attribute = CUfunction_attribute;

fn load_and_unload(cu: &Cuda<'_>) -> CaseResult {
    let (mut module, mut function, text) = (ptr::null_mut(), ptr::null_mut(), format!("{}\0", idle()));
    ok!(cu.cuModuleLoadData(&mut module, text.as_ptr().cast()));
    ok!(cu.cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    that!(cu, !module.is_null() && !function.is_null());
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 0, ptr::null_mut(), ptr::null_mut()));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn load_null(cu: &Cuda<'_>) -> CaseResult {
    let mut module = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuModuleLoadData(&mut module, ptr::null()));
    want!(INVALID_VALUE, cu.cuModuleLoadDataEx(&mut module, ptr::null(), 0, ptr::null_mut(), ptr::null_mut()));
    Ok(())
}

fn text_that_is_none(cu: &Cuda<'_>) -> CaseResult {
    for body in ["frobnicate.u32 %r1, %r0;", "add.u32 %r1, %r0, 1", "add.u32 %unknown, %r0, 1;", "bra nowhere;"] {
        same!(cu, cu.load_status(&kernel(body))?, CUresult::CUDA_ERROR_INVALID_PTX);
    }
    Ok(())
}

fn unknown_names(cu: &Cuda<'_>) -> CaseResult {
    let (module, mut function) = (cu.module(&idle())?, ptr::null_mut());
    want!(NOT_FOUND, cu.cuModuleGetFunction(&mut function, module, c"other".as_ptr()));
    want!(INVALID_VALUE, cu.cuModuleGetFunction(ptr::null_mut(), module, c"k".as_ptr()));
    Ok(())
}

fn newer_text(cu: &Cuda<'_>) -> CaseResult {
    let text = idle().replace("7.8", "99.0");
    same!(cu, cu.load_status(&text)?, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    let (mut module, text) = (ptr::null_mut(), format!("{text}\0"));
    want!(
        UNSUPPORTED_PTX_VERSION,
        cu.cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 0, ptr::null_mut(), ptr::null_mut())
    );
    Ok(())
}

fn error_log(cu: &Cuda<'_>) -> CaseResult {
    let text = format!("{}\0", kernel("frobnicate.u32 %r1, %r0;"));
    let (mut module, mut log) = (ptr::null_mut(), vec![0_u8; 4096]);
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
    want!(
        INVALID_PTX,
        cu.cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
    );
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]).into_owned();
    that!(cu, text.contains("line") && text.contains("frobnicate"));
    Ok(())
}

fn attribute(cu: &Cuda<'_>, function: CUfunction, attribute: Attribute) -> CaseResult<i32> {
    let mut value = -7;
    ok!(cu.cuFuncGetAttribute(&mut value, attribute, function));
    Ok(value)
}

fn function_attributes(cu: &Cuda<'_>) -> CaseResult {
    let body = ".shared .align 4 .b8 tile[256];\nmov.u32 %r1, tile;\nst.shared.u32 [%r1], %n;\nld.shared.u32 %r2, [%r1];\n\
                st.global.u32 [%o], %r2;";
    let function = cu.function(&kernel(body))?;
    same!(cu, attribute(cu, function, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?, 1024);
    same!(cu, attribute(cu, function, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?, 256);
    same!(cu, attribute(cu, function, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?, 0);
    that!(cu, (1..=255).contains(&attribute(cu, function, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?));
    that!(cu, attribute(cu, function, Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)? >= 75);
    that!(cu, attribute(cu, function, Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)? >= 75);
    Ok(())
}

fn attributes_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (function, mut value) = (cu.function(&idle())?, 0);
    want!(INVALID_VALUE, cu.cuFuncGetAttribute(&mut value, CUfunction_attribute(99), function));
    want!(INVALID_VALUE, cu.cuFuncGetAttribute(ptr::null_mut(), Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    want!(INVALID_VALUE, cu.cuFuncSetAttribute(function, CUfunction_attribute(99), 0));
    Ok(())
}

fn shared_memory_of_a_function(cu: &Cuda<'_>) -> CaseResult {
    let (function, wanted) = (cu.function(&idle())?, Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    same!(cu, attribute(cu, function, wanted)?, 48 << 10);
    ok!(cu.cuFuncSetAttribute(function, wanted, 60_000));
    same!(cu, attribute(cu, function, wanted)?, 60_000);
    Ok(())
}

fn shared_memory_beyond_the_device(cu: &Cuda<'_>) -> CaseResult {
    let (function, wanted) = (cu.function(&idle())?, Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    want!(INVALID_VALUE, cu.cuFuncSetAttribute(function, wanted, 4 << 20));
    same!(cu, attribute(cu, function, wanted)?, 48 << 10);
    Ok(())
}

fn threads_of_a_function(cu: &Cuda<'_>) -> CaseResult {
    let function = cu.function(&with_directives(".maxntid 64, 1, 1\n", ""))?;
    same!(cu, attribute(cu, function, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?, 64);
    Ok(())
}

fn module_of_a_function(cu: &Cuda<'_>) -> CaseResult {
    let module = cu.module(&idle())?;
    let (function, mut found) = (cu.function_of(module)?, ptr::null_mut());
    ok!(cu.cuFuncGetModule(&mut found, function));
    same!(cu, found, module);
    want!(INVALID_VALUE, cu.cuFuncGetModule(ptr::null_mut(), function));
    Ok(())
}

fn parameters_of_a_function(cu: &Cuda<'_>) -> CaseResult {
    let function = cu.function(&kernel(""))?;
    let mut found = Vec::new();
    for index in 0..3 {
        let (mut offset, mut size) = (77, 77);
        ok!(cu.cuFuncGetParamInfo(function, index, &mut offset, &mut size));
        found.push((offset, size));
    }
    same!(cu, found, [(0, 8), (8, 8), (16, 4)]);
    let (mut offset, mut size) = (0, 0);
    want!(INVALID_VALUE, cu.cuFuncGetParamInfo(function, 3, &mut offset, &mut size));
    Ok(())
}

fn handles_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (mut function, mut module, mut value) = (ptr::null_mut(), ptr::null_mut(), 0);
    let (mut offset, mut size) = (0, 0);
    let limit = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    for address in [0, 0xDEAD_BEE8] {
        let (nothing, no_module) = (ptr::without_provenance_mut(address), ptr::without_provenance_mut(address));
        want!(INVALID_HANDLE, cu.cuModuleUnload(no_module));
        want!(INVALID_HANDLE, cu.cuModuleGetFunction(&mut function, no_module, c"k".as_ptr()));
        want!(INVALID_HANDLE, cu.cuFuncGetModule(&mut module, nothing));
        want!(INVALID_HANDLE, cu.cuFuncGetAttribute(&mut value, limit, nothing));
        want!(INVALID_HANDLE, cu.cuFuncSetAttribute(nothing, limit, 0));
        want!(INVALID_HANDLE, cu.cuFuncGetParamInfo(nothing, 0, &mut offset, &mut size));
    }
    Ok(())
}

fn images_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let mut module = ptr::null_mut();
    let none = ptr::null_mut();
    for image in [c" ", c"text"] {
        want!(INVALID_IMAGE, cu.cuModuleLoadData(&mut module, image.as_ptr().cast()));
        want!(INVALID_IMAGE, cu.cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 0, none, ptr::null_mut()));
    }
    Ok(())
}

/// Hardware runs machine code; the model has none to run.
fn machine_code(cu: &Cuda<'_>) -> CaseResult {
    let (mut module, none) = (ptr::null_mut(), ptr::null_mut());
    let object = c"\x7fELF";
    want!(NO_BINARY_FOR_GPU, cu.cuModuleLoadData(&mut module, object.as_ptr().cast()));
    want!(NO_BINARY_FOR_GPU, cu.cuModuleLoadDataEx(&mut module, object.as_ptr().cast(), 0, none, ptr::null_mut()));
    Ok(())
}

/// Only the kernel that needs it is refused, not its module.
fn text_that_is_not_simulated(cu: &Cuda<'_>) -> CaseResult {
    let other = kernel("wgmma.fence.sync.aligned;").replace("sm_75", "sm_90");
    let text = format!("{other}\n.visible .entry plain() {{ ret; }}");
    let (module, mut function) = (cu.module(&text)?, ptr::null_mut());
    want!(NOT_SUPPORTED, cu.cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    ok!(cu.cuModuleGetFunction(&mut function, module, c"plain".as_ptr()));
    Ok(())
}

/// A full device has no room for the variables of a module. Of a real one it is not known what is left.
fn variables_without_room(cu: &Cuda<'_>) -> CaseResult {
    let (mut free, mut total, mut memory, mut module) = (0, 0, 0, ptr::null_mut());
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cu.cuMemAlloc_v2(&mut memory, free >> 21 << 21));
    let text = format!("{}\0", idle().replace(".visible", ".global .align 4 .b8 table[4194304];\n.visible"));
    let none = ptr::null_mut();
    want!(OUT_OF_MEMORY, cu.cuModuleLoadData(&mut module, text.as_ptr().cast()));
    want!(OUT_OF_MEMORY, cu.cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 0, none, ptr::null_mut()));
    ok!(cu.cuMemFree_v2(memory));
    ok!(cu.cuModuleLoadData(&mut module, text.as_ptr().cast()));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// The mode is the environment's, which nobody here knows.
fn loading_mode(cu: &Cuda<'_>) -> CaseResult {
    let mut mode = CUmoduleLoadingMode(7);
    ok!(cu.cuModuleGetLoadingMode(&mut mode));
    let known = [CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING, CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING];
    that!(cu, known.contains(&mode));
    Ok(())
}
