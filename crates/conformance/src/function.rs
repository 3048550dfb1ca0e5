//! What modules hold: variables, functions by number, names, and when functions are loaded.

use super::prelude::*;
use super::ptx::{idle, kernel};

cases!("function", CASES, Needs::CONTEXT;
    variable_of_a_module, one_of_address_and_size, variable_that_is_not_there, variable_is_used_by_a_kernel,
    module_of_a_file, file_that_is_not_there, cache_configs,
);

cases!("function", NAME_CASES, Needs::CONTEXT.since(12030);
    name_of_a_function,
);

cases!("function", COUNT_CASES, Needs::CONTEXT.since(12040);
    functions_of_a_module, found_functions_are_loaded,
);

cases!("function", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    nothing_to_tell, null_arguments, handles_that_are_none, files_that_are_none, enumerated_functions_are_not_loaded,
    kernels_that_are_not_simulated, variables_of_nothing,
);

/// A kernel `k` that writes the variable `value`, which begins as 7, and adds `n` to it.
fn with_variable() -> String {
    let body =
        "ld.global.u32 %r0, [value];\nst.global.u32 [%o], %r0;\nadd.u32 %r1, %r0, %n;\nst.global.u32 [value], %r1;";
    kernel(body).replace(".visible .entry", ".visible .global .align 4 .u32 value = 7;\n.visible .entry")
}

fn variable_of_a_module(cu: &Cuda<'_>) -> CaseResult {
    let (module, mut address, mut bytes) = (cu.module(&with_variable())?, 0, 0);
    ok!(cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"value".as_ptr()));
    same!(cu, (address != 0, bytes), (true, 4));
    same!(cu, cu.read_words(address, 1)?, [7]);
    let new = 40_u32;
    ok!(cu.cuMemcpyHtoD_v2(address, ptr::from_ref(&new).cast(), 4));
    same!(cu, cu.read_words(address, 1)?, [40]);
    Ok(())
}

fn one_of_address_and_size(cu: &Cuda<'_>) -> CaseResult {
    let (module, mut address, mut bytes) = (cu.module(&with_variable())?, 0, 0);
    ok!(cu.cuModuleGetGlobal_v2(&mut address, ptr::null_mut(), module, c"value".as_ptr()));
    ok!(cu.cuModuleGetGlobal_v2(ptr::null_mut(), &mut bytes, module, c"value".as_ptr()));
    same!(cu, (address != 0, bytes), (true, 4));
    Ok(())
}

fn variable_that_is_not_there(cu: &Cuda<'_>) -> CaseResult {
    let (module, mut address, mut bytes) = (cu.module(&with_variable())?, 0, 0);
    want!(NOT_FOUND, cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"other".as_ptr()));
    want!(INVALID_VALUE, cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"k".as_ptr()));
    Ok(())
}

fn variable_is_used_by_a_kernel(cu: &Cuda<'_>) -> CaseResult {
    let (module, out, mut address) = (cu.module(&with_variable())?, cu.filled(4, 0)?, 0);
    let (function, stream) = (cu.function_of(module)?, cu.stream()?);
    ok!(cu.cuModuleGetGlobal_v2(&mut address, ptr::null_mut(), module, c"value".as_ptr()));
    cu.launch(function, [[1; 3]; 2], 0, stream, &[out, 0, 5])?;
    same!(cu, (cu.read_words(out, 1)?, cu.read_words(address, 1)?), (vec![7], vec![12]));
    Ok(())
}

fn functions_of_a_module(cu: &Cuda<'_>) -> CaseResult {
    let text = format!("{}\n.visible .entry other() {{ ret; }}\n", idle());
    let (module, mut count) = (cu.module(&text)?, 0);
    ok!(cu.cuModuleGetFunctionCount(&mut count, module));
    same!(cu, count, 2);
    let mut functions = vec![ptr::null_mut(); 2];
    ok!(cu.cuModuleEnumerateFunctions(functions.as_mut_ptr(), 2, module));
    let mut names = functions.iter().map(|&function| name_of(cu, function)).collect::<CaseResult<Vec<_>>>()?;
    names.sort();
    same!(cu, names, ["k", "other"]);
    Ok(())
}

fn name_of(cu: &Cuda<'_>, function: CUfunction) -> CaseResult<String> {
    let mut name = ptr::null();
    ok!(cu.cuFuncGetName(&mut name, function));
    Ok(text_at(name))
}

fn name_of_a_function(cu: &Cuda<'_>) -> CaseResult {
    let function = cu.function(&idle())?;
    same!(cu, name_of(cu, function)?, "k");
    Ok(())
}

fn state_of(cu: &Cuda<'_>, function: CUfunction) -> CaseResult<CUfunctionLoadingState> {
    let mut state = CUfunctionLoadingState(7);
    ok!(cu.cuFuncIsLoaded(&mut state, function));
    Ok(state)
}

const LOADED: CUfunctionLoadingState = CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED;
const UNLOADED: CUfunctionLoadingState = CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_UNLOADED;

fn found_functions_are_loaded(cu: &Cuda<'_>) -> CaseResult {
    let function = cu.function(&idle())?;
    ok!(cu.cuFuncLoad(function));
    same!(cu, state_of(cu, function)?, LOADED);
    Ok(())
}

/// What hardware answers follows from the mode of loading in its environment.
fn enumerated_functions_are_not_loaded(cu: &Cuda<'_>) -> CaseResult {
    let (module, mut function) = (cu.module(&idle())?, ptr::null_mut());
    ok!(cu.cuModuleEnumerateFunctions(&mut function, 1, module));
    same!(cu, state_of(cu, function)?, UNLOADED);
    ok!(cu.cuFuncLoad(function));
    same!(cu, state_of(cu, function)?, LOADED);
    Ok(())
}

fn cache_configs(cu: &Cuda<'_>) -> CaseResult {
    let function = cu.function(&idle())?;
    for config in 0..4 {
        ok!(cu.cuFuncSetCacheConfig(function, CUfunc_cache(config)));
    }
    Ok(())
}

/// A file that is removed when the case ends.
struct TemporaryFile(std::path::PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a file for a case; its path for C.
pub(super) fn file_with(name: &str, bytes: &[u8]) -> CaseResult<(impl Drop + use<>, std::ffi::CString)> {
    let path = std::env::temp_dir().join(format!("conformance-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).map_err(|error| Stop::Failed(error.to_string()))?;
    let c_path = std::ffi::CString::new(path.to_string_lossy().as_ref());
    Ok((TemporaryFile(path), c_path.map_err(|error| Stop::Failed(error.to_string()))?))
}

fn module_of_a_file(cu: &Cuda<'_>) -> CaseResult {
    let (mut module, (_file, path)) = (ptr::null_mut(), file_with("good.ptx", idle().as_bytes())?);
    ok!(cu.cuModuleLoad(&mut module, path.as_ptr()));
    cu.later(Cleanup::Module(module));
    cu.function_of(module)?;
    Ok(())
}

fn file_that_is_not_there(cu: &Cuda<'_>) -> CaseResult {
    let mut module = ptr::null_mut();
    want!(FILE_NOT_FOUND, cu.cuModuleLoad(&mut module, c"/no/such/file.ptx".as_ptr()));
    Ok(())
}

fn files_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (mut module, mut free, mut total, mut memory) = (ptr::null_mut(), 0, 0, 0);
    let (_file, path) = file_with("none.ptx", b"text")?;
    want!(INVALID_IMAGE, cu.cuModuleLoad(&mut module, path.as_ptr()));
    let (_file, path) = file_with("object.cubin", b"\x7fELF")?;
    want!(NO_BINARY_FOR_GPU, cu.cuModuleLoad(&mut module, path.as_ptr()));
    let (_file, path) = file_with("newer.ptx", idle().replace("7.8", "99.0").as_bytes())?;
    want!(UNSUPPORTED_PTX_VERSION, cu.cuModuleLoad(&mut module, path.as_ptr()));
    let (_file, path) = file_with("wrong.ptx", kernel("frobnicate.u32 %r1, %r0;").as_bytes())?;
    want!(INVALID_PTX, cu.cuModuleLoad(&mut module, path.as_ptr()));
    want!(INVALID_VALUE, cu.cuModuleLoad(&mut module, ptr::null()));
    want!(INVALID_VALUE, cu.cuModuleLoad(ptr::null_mut(), path.as_ptr()));
    let large = idle().replace(".visible", ".global .align 4 .b8 table[4194304];\n.visible");
    let (_file, path) = file_with("large.ptx", large.as_bytes())?;
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cu.cuMemAlloc_v2(&mut memory, free >> 21 << 21));
    want!(OUT_OF_MEMORY, cu.cuModuleLoad(&mut module, path.as_ptr()));
    ok!(cu.cuMemFree_v2(memory));
    Ok(())
}

/// A variable whose value is the address of what no text defines.
fn variables_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let items = ".extern .global .align 4 .u32 other;\n.visible .global .align 8 .u64 pointer = other;\n.visible";
    let (mut module, text) = (ptr::null_mut(), format!("{}\0", idle().replace(".visible", items)));
    let (_file, path) = file_with("undefined.ptx", text.as_bytes())?;
    want!(NOT_SUPPORTED, cu.cuModuleLoadData(&mut module, text.as_ptr().cast()));
    let none = ptr::null_mut();
    want!(NOT_SUPPORTED, cu.cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 0, none, ptr::null_mut()));
    want!(NOT_SUPPORTED, cu.cuModuleLoad(&mut module, path.as_ptr()));
    Ok(())
}

fn nothing_to_tell(cu: &Cuda<'_>) -> CaseResult {
    let (module, mut address) = (cu.module(&with_variable())?, 0);
    let none = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuModuleGetGlobal_v2(ptr::null_mut(), none, module, c"value".as_ptr()));
    want!(INVALID_VALUE, cu.cuModuleGetGlobal_v2(&mut address, none, module, ptr::null()));
    Ok(())
}

fn null_arguments(cu: &Cuda<'_>) -> CaseResult {
    let module = cu.module(&idle())?;
    let function = cu.function_of(module)?;
    want!(INVALID_VALUE, cu.cuModuleGetFunctionCount(ptr::null_mut(), module));
    want!(INVALID_VALUE, cu.cuModuleEnumerateFunctions(ptr::null_mut(), 1, module));
    want!(INVALID_VALUE, cu.cuFuncGetName(ptr::null_mut(), function));
    want!(INVALID_VALUE, cu.cuFuncIsLoaded(ptr::null_mut(), function));
    want!(INVALID_VALUE, cu.cuFuncSetCacheConfig(function, CUfunc_cache(4)));
    Ok(())
}

fn handles_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (mut address, mut count, mut name, mut state) = (0, 0, ptr::null(), CUfunctionLoadingState(0));
    for wrong in [0, 0xDEAD_BEE8] {
        let (module, function) = (ptr::without_provenance_mut(wrong), ptr::without_provenance_mut(wrong));
        want!(INVALID_HANDLE, cu.cuModuleGetGlobal_v2(&mut address, ptr::null_mut(), module, c"value".as_ptr()));
        want!(INVALID_HANDLE, cu.cuModuleGetFunctionCount(&mut count, module));
        want!(INVALID_HANDLE, cu.cuModuleEnumerateFunctions(&mut ptr::null_mut(), 1, module));
        want!(INVALID_HANDLE, cu.cuFuncGetName(&mut name, function));
        want!(INVALID_HANDLE, cu.cuFuncLoad(function));
        want!(INVALID_HANDLE, cu.cuFuncIsLoaded(&mut state, function));
        want!(INVALID_HANDLE, cu.cuFuncSetCacheConfig(function, CUfunc_cache(0)));
    }
    Ok(())
}

/// A kernel that cannot be run is found by number, but neither loaded nor launched.
fn kernels_that_are_not_simulated(cu: &Cuda<'_>) -> CaseResult {
    let text = idle().replace("ret;", "wgmma.fence.sync.aligned; ret;").replace("sm_75", "sm_90");
    let (module, mut function, none) = (cu.module(&text)?, ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuModuleEnumerateFunctions(&mut function, 1, module));
    same!(cu, name_of(cu, function)?, "k");
    want!(NOT_SUPPORTED, cu.cuFuncLoad(function));
    want!(NOT_SUPPORTED, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none, ptr::null_mut()));
    want!(NOT_SUPPORTED, cu.cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none));
    want!(NOT_SUPPORTED, cu.cuLaunchKernelEx(&launch_config(DEFAULT), function, none, ptr::null_mut()));
    nodes_of(cu, function, CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

/// What functions that make and change nodes of a kernel without parameters answer.
pub(super) fn nodes_of(cu: &Cuda<'_>, function: CUfunction, wanted: CUresult) -> CaseResult {
    let new = CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    };
    let old = first_params(&new);
    let mut any = CUgraphNodeParams::zeroed();
    any.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
    any.__bindgen_anon_1.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: ptr::null_mut(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    };
    let (graph, mut node, mut made) = (cu.graph()?, ptr::null_mut(), ptr::null_mut());
    let good = CUDA_KERNEL_NODE_PARAMS { func: cu.function(&idle())?, ..new };
    ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, ptr::null(), 0, &good));
    let (exec, none) = (cu.instantiate(graph)?, ptr::null());
    let answers = [
        status!(cu.cuGraphAddKernelNode(&mut made, graph, none, 0, &old)),
        status!(cu.cuGraphAddKernelNode_v2(&mut made, graph, none, 0, &new)),
        status!(cu.cuGraphAddNode(&mut made, graph, none, 0, &mut any)),
        status!(cu.cuGraphAddNode_v2(&mut made, graph, none, ptr::null(), 0, &mut any)),
        status!(cu.cuGraphKernelNodeSetParams(node, &old)),
        status!(cu.cuGraphKernelNodeSetParams_v2(node, &new)),
        status!(cu.cuGraphExecKernelNodeSetParams(exec, node, &old)),
        status!(cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &new)),
    ];
    same!(cu, answers, [wanted; 8]);
    Ok(())
}

/// Parameters of a node as the first interface has them.
pub(super) fn first_params(new: &CUDA_KERNEL_NODE_PARAMS) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func: new.func,
        gridDimX: new.gridDimX,
        gridDimY: new.gridDimY,
        gridDimZ: new.gridDimZ,
        blockDimX: new.blockDimX,
        blockDimY: new.blockDimY,
        blockDimZ: new.blockDimZ,
        sharedMemBytes: new.sharedMemBytes,
        kernelParams: new.kernelParams,
        extra: new.extra,
    }
}
