//! Libraries, which belong to no context, and their kernels.

use super::function::{file_with, nodes_of};
use super::prelude::*;
use super::ptx::{idle, kernel, pointers_to};

cases!("library", CASES, Needs::CONTEXT.since(12000);
    kernel_is_launched, function_of_a_kernel, module_of_a_library, variable_of_a_library, names_that_are_not_there,
    library_of_a_file, attributes_of_a_kernel, kernels_have_contents_in_two_streams, node_of_a_kernel,
);

cases!("library", NAME_CASES, Needs::CONTEXT.since(12050);
    kernels_of_a_library, name_library_and_parameters,
);

cases!("library", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    contexts_that_end, texts_that_are_none, files_that_are_none, options, null_arguments, handles_that_are_none,
    devices_that_are_none, kernels_that_are_not_simulated, no_room_in_a_context, module_goes_with_its_library,
    kernels_where_functions_are_wanted,
);

cases!("library", PAIR_CASES, Needs { simulated: true, ..Needs::TWO_DEVICES };
    each_device_has_its_own,
);

impl Cuda<'_> {
    /// A library of this text.
    fn library(&self, text: &str) -> CaseResult<CUlibrary> {
        let cu = self;
        let (mut library, text, none) = (ptr::null_mut(), format!("{text}\0"), ptr::null_mut());
        let (options, values) = (ptr::null_mut(), ptr::null_mut());
        ok!(cu.cuLibraryLoadData(&mut library, text.as_ptr().cast(), options, none, 0, ptr::null_mut(), values, 0));
        self.later(Cleanup::Library(library));
        Ok(library)
    }

    /// The kernel `k` of a library.
    fn kernel_of(&self, library: CUlibrary) -> CaseResult<CUkernel> {
        let cu = self;
        let mut kernel = ptr::null_mut();
        ok!(cu.cuLibraryGetKernel(&mut kernel, library, c"k".as_ptr()));
        that!(cu, !kernel.is_null());
        Ok(kernel)
    }
}

/// A kernel as functions that want a function take it.
fn as_function(kernel: CUkernel) -> CUfunction {
    kernel.cast()
}

/// Counts in a variable and writes how often it ran.
fn counting() -> String {
    let body =
        "ld.global.u32 %r0, [value];\nadd.u32 %r1, %r0, %n;\nst.global.u32 [value], %r1;\nst.global.u32 [%o], %r1;";
    kernel(body).replace(".visible .entry", ".visible .global .align 4 .u32 value = 7;\n.visible .entry")
}

fn kernel_is_launched(cu: &Cuda<'_>) -> CaseResult {
    let (library, out, stream) = (cu.library(&counting())?, cu.filled(4, 0)?, cu.stream()?);
    let function = as_function(cu.kernel_of(library)?);
    cu.launch(function, [[1; 3]; 2], 0, stream, &[out, 0, 5])?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read_words(out, 1)?, [12]);
    let values = [out, 0, 5];
    let mut pointers = pointers_to(&values);
    ok!(cu.cuLaunchKernelEx(&launch_config(stream), function, pointers.as_mut_ptr(), ptr::null_mut()));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read_words(out, 1)?, [17]);
    Ok(())
}

fn function_of_a_kernel(cu: &Cuda<'_>) -> CaseResult {
    let (library, out, mut function) = (cu.library(&counting())?, cu.filled(4, 0)?, ptr::null_mut());
    let kernel = cu.kernel_of(library)?;
    ok!(cu.cuKernelGetFunction(&mut function, kernel));
    cu.launch(function, [[1; 3]; 2], 0, DEFAULT, &[out, 0, 1])?;
    same!(cu, cu.read_words(out, 1)?, [8]);
    let (mut module, mut wanted) = (ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuFuncGetModule(&mut module, function));
    ok!(cu.cuLibraryGetModule(&mut wanted, library));
    same!(cu, module, wanted);
    Ok(())
}

fn module_of_a_library(cu: &Cuda<'_>) -> CaseResult {
    let (library, mut module, mut function) = (cu.library(&idle())?, ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuLibraryGetModule(&mut module, library));
    ok!(cu.cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    cu.launch(function, [[1; 3]; 2], 0, DEFAULT, &[])?;
    Ok(())
}

fn variable_of_a_library(cu: &Cuda<'_>) -> CaseResult {
    let (library, mut address, mut bytes) = (cu.library(&counting())?, 0, 0);
    ok!(cu.cuLibraryGetGlobal(&mut address, &mut bytes, library, c"value".as_ptr()));
    same!(cu, bytes, 4);
    same!(cu, cu.read_words(address, 1)?, [7]);
    let out = cu.filled(4, 0)?;
    cu.launch(as_function(cu.kernel_of(library)?), [[1; 3]; 2], 0, DEFAULT, &[out, 0, 1])?;
    same!(cu, cu.read_words(address, 1)?, [8]);
    Ok(())
}

fn names_that_are_not_there(cu: &Cuda<'_>) -> CaseResult {
    let (library, mut kernel, mut address, mut bytes) = (cu.library(&idle())?, ptr::null_mut(), 0, 0);
    let (name, mut function) = (c"other".as_ptr(), ptr::null_mut());
    want!(NOT_FOUND, cu.cuLibraryGetKernel(&mut kernel, library, name));
    want!(NOT_FOUND, cu.cuLibraryGetGlobal(&mut address, &mut bytes, library, name));
    want!(NOT_FOUND, cu.cuLibraryGetManaged(&mut address, &mut bytes, library, name));
    want!(INVALID_VALUE, cu.cuLibraryGetUnifiedFunction(&mut function, library, name));
    Ok(())
}

fn from_file(cu: &Cuda<'_>, path: &std::ffi::CStr) -> CaseResult<(CUresult, CUlibrary)> {
    let (mut library, none) = (ptr::null_mut(), ptr::null_mut());
    let (options, values, path) = (ptr::null_mut(), ptr::null_mut(), path.as_ptr());
    let status = status!(cu.cuLibraryLoadFromFile(&mut library, path, options, none, 0, ptr::null_mut(), values, 0));
    if status == CUresult::CUDA_SUCCESS {
        cu.later(Cleanup::Library(library));
    }
    Ok((status, library))
}

fn library_of_a_file(cu: &Cuda<'_>) -> CaseResult {
    let (_file, path) = file_with("library.ptx", idle().as_bytes())?;
    let (status, library) = from_file(cu, &path)?;
    same!(cu, status, CUresult::CUDA_SUCCESS);
    cu.launch(as_function(cu.kernel_of(library)?), [[1; 3]; 2], 0, DEFAULT, &[])?;
    Ok(())
}

const DYNAMIC: CUfunction_attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
const THREADS: CUfunction_attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;

fn attribute_of(cu: &Cuda<'_>, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice) -> CaseResult<i32> {
    let mut value = -7;
    ok!(cu.cuKernelGetAttribute(&mut value, attribute, kernel, device));
    Ok(value)
}

fn attributes_of_a_kernel(cu: &Cuda<'_>) -> CaseResult {
    let library = cu.library(&idle())?;
    let kernel = cu.kernel_of(library)?;
    same!(cu, attribute_of(cu, THREADS, kernel, 0)?, 1024);
    same!(cu, attribute_of(cu, DYNAMIC, kernel, 0)?, 48 << 10);
    let (function, none) = (as_function(kernel), ptr::null_mut());
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 60_000, DEFAULT, none, ptr::null_mut()));
    ok!(cu.cuKernelSetAttribute(DYNAMIC, 60_000, kernel, 0));
    same!(cu, attribute_of(cu, DYNAMIC, kernel, 0)?, 60_000);
    want!(SUCCESS, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 60_000, DEFAULT, none, ptr::null_mut()));
    ok!(cu.cuKernelSetCacheConfig(kernel, CUfunc_cache(1), 0));
    Ok(())
}

fn kernels_have_contents_in_two_streams(cu: &Cuda<'_>) -> CaseResult {
    let (library, out, other) = (cu.library(&counting())?, cu.filled(4, 0)?, cu.filled(4, 0)?);
    let (function, first, second) = (as_function(cu.kernel_of(library)?), cu.stream()?, cu.stream()?);
    cu.launch(function, [[1; 3]; 2], 0, first, &[out, 0, 1])?;
    ok!(cu.cuStreamSynchronize(first));
    cu.launch(function, [[1; 3]; 2], 0, second, &[other, 0, 1])?;
    ok!(cu.cuStreamSynchronize(second));
    same!(cu, (cu.read_words(out, 1)?, cu.read_words(other, 1)?), (vec![8], vec![9]));
    Ok(())
}

/// A node that names a kernel, and no function.
fn node_of_a_kernel(cu: &Cuda<'_>) -> CaseResult {
    let (library, out, graph, mut node) = (cu.library(&counting())?, cu.filled(4, 0)?, cu.graph()?, ptr::null_mut());
    let values = [out, 0, 3];
    let mut pointers = pointers_to(&values);
    let params = CUDA_KERNEL_NODE_PARAMS {
        kern: cu.kernel_of(library)?,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: pointers.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    };
    ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, ptr::null(), 0, &params));
    let exec = cu.instantiate(graph)?;
    super::graph::launch(cu, exec)?;
    same!(cu, cu.read_words(out, 1)?, [10]);
    Ok(())
}

fn kernels_of_a_library(cu: &Cuda<'_>) -> CaseResult {
    let text = format!("{}\n.visible .entry other() {{ ret; }}\n", idle());
    let (library, mut count) = (cu.library(&text)?, 0);
    ok!(cu.cuLibraryGetKernelCount(&mut count, library));
    same!(cu, count, 2);
    let mut kernels = vec![ptr::null_mut(); 2];
    ok!(cu.cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 2, library));
    let mut names = kernels.iter().map(|&kernel| name_of(cu, kernel)).collect::<CaseResult<Vec<_>>>()?;
    names.sort();
    same!(cu, names, ["k", "other"]);
    that!(cu, kernels.contains(&cu.kernel_of(library)?));
    Ok(())
}

fn name_of(cu: &Cuda<'_>, kernel: CUkernel) -> CaseResult<String> {
    let mut name = ptr::null();
    ok!(cu.cuKernelGetName(&mut name, kernel));
    Ok(text_at(name))
}

fn name_library_and_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (library, mut found) = (cu.library(&kernel(""))?, ptr::null_mut());
    let kernel = cu.kernel_of(library)?;
    same!(cu, name_of(cu, kernel)?, "k");
    ok!(cu.cuKernelGetLibrary(&mut found, kernel));
    same!(cu, found, library);
    let (mut offset, mut size) = (0, 0);
    ok!(cu.cuKernelGetParamInfo(kernel, 2, &mut offset, &mut size));
    same!(cu, (offset, size), (16, 4));
    want!(INVALID_VALUE, cu.cuKernelGetParamInfo(kernel, 3, &mut offset, &mut size));
    Ok(())
}

/// A context that ends takes its module along; the library stays, and begins anew in the next.
fn contexts_that_end(cu: &Cuda<'_>) -> CaseResult {
    let (library, mut context, mut address) = (cu.library(&counting())?, ptr::null_mut(), 0);
    let kernel = cu.kernel_of(library)?;
    for _ in 0..2 {
        ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
        let mut out = 0;
        ok!(cu.cuMemAlloc_v2(&mut out, 4));
        cu.launch(as_function(kernel), [[1; 3]; 2], 0, DEFAULT, &[out, 0, 1])?;
        same!(cu, cu.read_words(out, 1)?, [8]);
        ok!(cu.cuMemFree_v2(out));
        ok!(cu.cuCtxDestroy_v2(context));
    }
    ok!(cu.cuLibraryGetGlobal(&mut address, ptr::null_mut(), library, c"value".as_ptr()));
    same!(cu, cu.read_words(address, 1)?, [7]);
    Ok(())
}

/// Variables and limits are each device's own.
fn each_device_has_its_own(cu: &Cuda<'_>) -> CaseResult {
    let (library, mut addresses) = (cu.library(&counting())?, [0; 2]);
    let (kernel, first, second) = (cu.kernel_of(library)?, cu.current()?, cu.primary(1)?);
    ok!(cu.cuKernelSetAttribute(DYNAMIC, 60_000, kernel, 1));
    same!(cu, (attribute_of(cu, DYNAMIC, kernel, 0)?, attribute_of(cu, DYNAMIC, kernel, 1)?), (48 << 10, 60_000));
    ok!(cu.cuLibraryGetGlobal(&mut addresses[0], ptr::null_mut(), library, c"value".as_ptr()));
    ok!(cu.cuCtxSetCurrent(second));
    let (mut stream, mut value) = (ptr::null_mut(), 0);
    ok!(cu.cuStreamCreate(&mut stream, NON_BLOCKING));
    ok!(cu.cuLibraryGetGlobal(&mut addresses[1], ptr::null_mut(), library, c"value".as_ptr()));
    that!(cu, addresses[0] != addresses[1]);
    ok!(cu.cuFuncGetAttribute(&mut value, DYNAMIC, as_function(kernel)));
    same!(cu, value, 60_000);
    let mut out = 0;
    ok!(cu.cuMemAlloc_v2(&mut out, 4));
    ok!(cu.cuCtxSetCurrent(first));
    // The context of the stream decides, not the current one.
    cu.launch(as_function(kernel), [[1; 3]; 2], 60_000, stream, &[out, 0, 5])?;
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFree_v2(out));
    same!(cu, (cu.read_words(addresses[0], 1)?, cu.read_words(addresses[1], 1)?), (vec![7], vec![12]));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(1));
    Ok(())
}

fn load_status(cu: &Cuda<'_>, code: *const c_void) -> CaseResult<CUresult> {
    let (mut library, none) = (ptr::null_mut(), ptr::null_mut());
    let (options, values) = (ptr::null_mut(), ptr::null_mut());
    Ok(status!(cu.cuLibraryLoadData(&mut library, code, options, none, 0, ptr::null_mut(), values, 0)))
}

/// Texts, and what loading them answers.
fn wrong_images() -> [(String, CUresult); 5] {
    let undefined = ".extern .global .align 4 .u32 other;\n.visible .global .align 8 .u64 pointer = other;\n.visible";
    [
        ("text".to_owned(), CUresult::CUDA_ERROR_INVALID_IMAGE),
        ("\x7fELF".to_owned(), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
        (kernel("frobnicate.u32 %r1, %r0;"), CUresult::CUDA_ERROR_INVALID_PTX),
        (idle().replace("7.8", "99.0"), CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
        (idle().replace(".visible", undefined), CUresult::CUDA_ERROR_NOT_SUPPORTED),
    ]
}

fn texts_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    for (text, wanted) in wrong_images() {
        let text = format!("{text}\0");
        same!(cu, load_status(cu, text.as_ptr().cast())?, wanted);
    }
    Ok(())
}

fn files_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    for (text, wanted) in wrong_images() {
        let (_file, path) = file_with("wrong-library.ptx", text.as_bytes())?;
        same!(cu, from_file(cu, &path)?.0, wanted);
    }
    same!(cu, from_file(cu, c"/no/such/file.ptx")?.0, CUresult::CUDA_ERROR_FILE_NOT_FOUND);
    Ok(())
}

fn options(cu: &Cuda<'_>) -> CaseResult {
    let (text, mut library, none) = (format!("{}\0", idle()), ptr::null_mut(), ptr::null_mut());
    let answers =
        [(1, CUresult::CUDA_SUCCESS), (0, CUresult::CUDA_ERROR_NOT_SUPPORTED), (7, CUresult::CUDA_ERROR_INVALID_VALUE)];
    for (option, wanted) in answers {
        let (code, mut options) = (text.as_ptr().cast(), [CUlibraryOption(option)]);
        let status = status!(cu.cuLibraryLoadData(
            &mut library,
            code,
            ptr::null_mut(),
            none,
            0,
            options.as_mut_ptr(),
            ptr::null_mut(),
            1
        ));
        same!(cu, status, wanted);
        if status == CUresult::CUDA_SUCCESS {
            cu.later(Cleanup::Library(library));
        }
    }
    Ok(())
}

fn null_arguments(cu: &Cuda<'_>) -> CaseResult {
    let library = cu.library(&counting())?;
    let (kernel, none, name) = (cu.kernel_of(library)?, ptr::null_mut::<c_void>(), c"value".as_ptr());
    let (mut address, mut value, nothing) = (0, 0, ptr::null());
    same!(cu, load_status(cu, ptr::null())?, CUresult::CUDA_ERROR_INVALID_VALUE);
    let code = c"".as_ptr().cast();
    want!(
        INVALID_VALUE,
        cu.cuLibraryLoadData(none.cast(), code, none.cast(), none.cast(), 0, none.cast(), none.cast(), 0)
    );
    want!(
        INVALID_VALUE,
        cu.cuLibraryLoadFromFile(none.cast(), name, none.cast(), none.cast(), 0, none.cast(), none.cast(), 0)
    );
    want!(INVALID_VALUE, cu.cuLibraryGetKernel(ptr::null_mut(), library, c"k".as_ptr()));
    want!(INVALID_VALUE, cu.cuLibraryGetKernel(&mut ptr::null_mut(), library, nothing));
    want!(INVALID_VALUE, cu.cuLibraryGetKernelCount(ptr::null_mut(), library));
    want!(INVALID_VALUE, cu.cuLibraryEnumerateKernels(ptr::null_mut(), 1, library));
    want!(INVALID_VALUE, cu.cuLibraryGetModule(ptr::null_mut(), library));
    want!(INVALID_VALUE, cu.cuLibraryGetGlobal(ptr::null_mut(), ptr::null_mut(), library, name));
    want!(INVALID_VALUE, cu.cuLibraryGetGlobal(&mut address, ptr::null_mut(), library, nothing));
    want!(INVALID_VALUE, cu.cuLibraryGetManaged(&mut address, ptr::null_mut(), library, nothing));
    want!(INVALID_VALUE, cu.cuLibraryGetUnifiedFunction(ptr::null_mut(), library, name));
    want!(INVALID_VALUE, cu.cuKernelGetFunction(ptr::null_mut(), kernel));
    want!(INVALID_VALUE, cu.cuKernelGetLibrary(ptr::null_mut(), kernel));
    want!(INVALID_VALUE, cu.cuKernelGetName(ptr::null_mut(), kernel));
    want!(INVALID_VALUE, cu.cuKernelGetParamInfo(kernel, 0, ptr::null_mut(), ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuKernelGetAttribute(ptr::null_mut(), THREADS, kernel, 0));
    want!(INVALID_VALUE, cu.cuKernelGetAttribute(&mut value, CUfunction_attribute(99), kernel, 0));
    want!(INVALID_VALUE, cu.cuKernelSetAttribute(DYNAMIC, 4 << 20, kernel, 0));
    want!(INVALID_VALUE, cu.cuKernelSetCacheConfig(kernel, CUfunc_cache(4), 0));
    Ok(())
}

fn handles_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (name, mut count, mut value, mut address) = (c"k".as_ptr(), 0, 0, 0);
    let (mut offset, mut size, none) = (0, 0, ptr::null_mut());
    for wrong in [0, 0xDEAD_BEE8] {
        let (library, kernel): (CUlibrary, CUkernel) =
            (ptr::without_provenance_mut(wrong), ptr::without_provenance_mut(wrong));
        want!(INVALID_HANDLE, cu.cuLibraryUnload(library));
        want!(INVALID_HANDLE, cu.cuLibraryGetKernel(&mut ptr::null_mut(), library, name));
        want!(INVALID_HANDLE, cu.cuLibraryGetKernelCount(&mut count, library));
        want!(INVALID_HANDLE, cu.cuLibraryEnumerateKernels(&mut ptr::null_mut(), 1, library));
        want!(INVALID_HANDLE, cu.cuLibraryGetModule(&mut ptr::null_mut(), library));
        want!(INVALID_HANDLE, cu.cuLibraryGetGlobal(&mut address, none, library, name));
        want!(INVALID_HANDLE, cu.cuLibraryGetManaged(&mut address, none, library, name));
        want!(INVALID_HANDLE, cu.cuLibraryGetUnifiedFunction(&mut ptr::null_mut(), library, name));
        want!(INVALID_HANDLE, cu.cuKernelGetFunction(&mut ptr::null_mut(), kernel));
        want!(INVALID_HANDLE, cu.cuKernelGetLibrary(&mut ptr::null_mut(), kernel));
        want!(INVALID_HANDLE, cu.cuKernelGetName(&mut ptr::null(), kernel));
        want!(INVALID_HANDLE, cu.cuKernelGetParamInfo(kernel, 0, &mut offset, &mut size));
        want!(INVALID_HANDLE, cu.cuKernelGetAttribute(&mut value, THREADS, kernel, 0));
        want!(INVALID_HANDLE, cu.cuKernelSetAttribute(DYNAMIC, 0, kernel, 0));
        want!(INVALID_HANDLE, cu.cuKernelSetCacheConfig(kernel, CUfunc_cache(0), 0));
    }
    Ok(())
}

fn devices_that_are_none(cu: &Cuda<'_>) -> CaseResult {
    let (library, mut value) = (cu.library(&idle())?, 0);
    let kernel = cu.kernel_of(library)?;
    for device in [-1, 99] {
        want!(INVALID_DEVICE, cu.cuKernelGetAttribute(&mut value, THREADS, kernel, device));
        want!(INVALID_DEVICE, cu.cuKernelSetAttribute(DYNAMIC, 0, kernel, device));
        want!(INVALID_DEVICE, cu.cuKernelSetCacheConfig(kernel, CUfunc_cache(0), device));
    }
    Ok(())
}

/// A kernel that cannot be run is found by number, but not by name, and has no function.
fn kernels_that_are_not_simulated(cu: &Cuda<'_>) -> CaseResult {
    let text = idle().replace("ret;", "wgmma.fence.sync.aligned; ret;").replace("sm_75", "sm_90");
    let (library, mut kernel, mut function) = (cu.library(&text)?, ptr::null_mut(), ptr::null_mut());
    want!(NOT_SUPPORTED, cu.cuLibraryGetKernel(&mut kernel, library, c"k".as_ptr()));
    ok!(cu.cuLibraryEnumerateKernels(&mut kernel, 1, library));
    want!(NOT_SUPPORTED, cu.cuKernelGetFunction(&mut function, kernel));
    Ok(())
}

/// A full device has no room for a library's variables, which is found out when it is first used there.
fn no_room_in_a_context(cu: &Cuda<'_>) -> CaseResult {
    let text = idle().replace(".visible", ".visible .global .align 4 .b8 table[4194304];\n.visible");
    let (library, mut free, mut total, mut memory) = (cu.library(&text)?, 0, 0, 0);
    let (kernel, none, mut module, mut address) = (cu.kernel_of(library)?, ptr::null_mut(), ptr::null_mut(), 0);
    let function = as_function(kernel);
    cu.function(&idle())?;
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cu.cuMemAlloc_v2(&mut memory, free >> 21 << 21));
    want!(OUT_OF_MEMORY, cu.cuLibraryGetModule(&mut module, library));
    want!(OUT_OF_MEMORY, cu.cuLibraryGetGlobal(&mut address, ptr::null_mut(), library, c"table".as_ptr()));
    want!(OUT_OF_MEMORY, cu.cuKernelGetFunction(&mut ptr::null_mut(), kernel));
    want!(OUT_OF_MEMORY, cu.cuFuncGetModule(&mut module, function));
    want!(OUT_OF_MEMORY, cu.cuFuncLoad(function));
    want!(OUT_OF_MEMORY, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none, ptr::null_mut()));
    want!(OUT_OF_MEMORY, cu.cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none));
    want!(OUT_OF_MEMORY, cu.cuLaunchKernelEx(&launch_config(DEFAULT), function, none, ptr::null_mut()));
    nodes_of(cu, function, CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    ok!(cu.cuMemFree_v2(memory));
    ok!(cu.cuFuncLoad(function));
    Ok(())
}

fn module_goes_with_its_library(cu: &Cuda<'_>) -> CaseResult {
    let (text, mut library, mut module) = (format!("{}\0", idle()), ptr::null_mut(), ptr::null_mut());
    let (none, values, mut function) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let code = text.as_ptr().cast();
    ok!(cu.cuLibraryLoadData(&mut library, code, ptr::null_mut(), none, 0, ptr::null_mut(), values, 0));
    ok!(cu.cuLibraryGetModule(&mut module, library));
    want!(NOT_PERMITTED, cu.cuModuleUnload(module));
    ok!(cu.cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    let kernel = cu.kernel_of(library)?;
    ok!(cu.cuLibraryUnload(library));
    want!(INVALID_HANDLE, cu.cuModuleUnload(module));
    want!(INVALID_HANDLE, cu.cuFuncLoad(function));
    want!(INVALID_HANDLE, cu.cuFuncLoad(as_function(kernel)));
    want!(INVALID_HANDLE, cu.cuLibraryUnload(library));
    Ok(())
}

/// What is asked of a kernel where a function is wanted is answered without loading it, where that can be.
fn kernels_where_functions_are_wanted(cu: &Cuda<'_>) -> CaseResult {
    let library = cu.library(&kernel(""))?;
    let function = as_function(cu.kernel_of(library)?);
    let (mut value, mut offset, mut size, mut name) = (0, 0, 0, ptr::null());
    let mut state = CUfunctionLoadingState(7);
    ok!(cu.cuFuncIsLoaded(&mut state, function));
    same!(cu, state, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_UNLOADED);
    ok!(cu.cuFuncGetAttribute(&mut value, THREADS, function));
    same!(cu, value, 1024);
    ok!(cu.cuFuncGetName(&mut name, function));
    same!(cu, text_at(name), "k");
    ok!(cu.cuFuncGetParamInfo(function, 1, &mut offset, &mut size));
    same!(cu, (offset, size), (8, 8));
    let (plain, mut wanted) = (cu.function(&kernel(""))?, 0);
    ok!(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut value, function, 128, 0));
    ok!(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut wanted, plain, 128, 0));
    same!(cu, value, wanted);
    ok!(cu.cuFuncSetCacheConfig(function, CUfunc_cache(2)));
    ok!(cu.cuFuncSetAttribute(function, DYNAMIC, 50_000));
    ok!(cu.cuFuncLoad(function));
    ok!(cu.cuFuncIsLoaded(&mut state, function));
    same!(cu, state, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED);
    ok!(cu.cuFuncSetAttribute(function, DYNAMIC, 60_000));
    let mut own = ptr::null_mut();
    ok!(cu.cuKernelGetFunction(&mut own, function.cast()));
    ok!(cu.cuFuncGetAttribute(&mut value, DYNAMIC, own));
    same!(cu, value, 60_000);
    Ok(())
}
