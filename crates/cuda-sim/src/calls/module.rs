//! Modules: loading text, finding functions, asking about them.

use std::ffi::{c_char, c_void};

use std::sync::Arc;

use ptx_sim::{Limits, Module, Program, Refusal, RefusalKind};

use cuda_sys::CUresult;

use cuda_sys::driver::types::{
    CUfunc_st, CUfunction, CUfunction_attribute, CUjit_option, CUmod_st, CUmodule, CUmoduleLoadingMode,
};

use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{
    Answer, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_FOUND, NOT_SUPPORTED,
    UNSUPPORTED_PTX_VERSION,
};
use crate::model::modules::SHARED_BYTES_MAX;
use crate::report::ReportKind;

/// How machine code begins: as an object file, and as a bundle of several.
const MACHINE_CODE: [[u8; 4]; 2] = [*b"\x7fELF", [0x50, 0xED, 0x55, 0xBA]];

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
    image.required()?;
    let context = call.need_context()?;
    let log = ErrorLog::find(usize::try_from(count).unwrap_or(0), options, values)?;
    if begins_with(image, MACHINE_CODE[0])? || begins_with(image, MACHINE_CODE[1])? {
        log.write("machine code is not simulated")?;
        return Err(NO_BINARY_FOR_GPU);
    }
    let text = image.cast::<c_char>().read_string()?;
    // What does not look like PTX at all is no text to compile.
    if !text.is_ascii() || !text.contains(".version") {
        return Err(INVALID_IMAGE);
    }
    match read(&[&text], call.ptx_limits()) {
        Ok(program) => {
            log.write("")?;
            let key = call.add_module(context, program)?;
            module.write(handle(key))
        }
        Err((code, why)) => {
            log.write(&why)?;
            Err(code)
        }
    }
}

/// Makes a program of one text or of several; why not, with all that is wrong.
fn read(texts: &[&str], limits: Limits) -> Result<Arc<Program>, (CUresult, String)> {
    let module = Module::link(texts, limits).map_err(|refusal| (code_of(&refusal), refusal.to_string()))?;
    let wrong = module.refusals().filter(|refusal| refusal.kind == RefusalKind::Invalid);
    let wrong: Vec<String> = wrong.map(ToString::to_string).collect();
    if wrong.is_empty() { Ok(Arc::new(Program::new(module))) } else { Err((INVALID_PTX, wrong.join("\n"))) }
}

/// Whether an image begins so. Nothing is read behind the first byte that differs.
fn begins_with(image: Ptr<c_void>, bytes: [u8; 4]) -> Answer<bool> {
    for (index, byte) in bytes.into_iter().enumerate() {
        if image.cast::<u8>().read_at(index)? != byte {
            return Ok(false);
        }
    }
    Ok(true)
}

fn code_of(refusal: &Refusal) -> CUresult {
    match refusal.kind {
        RefusalKind::Invalid => INVALID_PTX,
        RefusalKind::NotSupported => NOT_SUPPORTED,
        RefusalKind::NewerVersion => UNSUPPORTED_PTX_VERSION,
    }
}

/// Where the program wants to read why its text was refused.
struct ErrorLog {
    buffer: Ptr<c_char>,
    bytes: usize,
    /// Where to say how much was written.
    written: Option<(Ptr<*mut c_void>, usize)>,
}

impl ErrorLog {
    fn find(count: usize, options: Ptr<CUjit_option>, values: Ptr<*mut c_void>) -> Answer<Self> {
        let mut log = Self { buffer: Ptr::null(), bytes: 0, written: None };
        for index in 0..count {
            let value = values.pointer_at(index)?;
            match options.read_at(index)? {
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER => log.buffer = value.cast(),
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    log.bytes = usize::try_from(value.address() & u64::from(u32::MAX)).unwrap_or(0);
                    log.written = Some((values, index));
                }
                _ => {}
            }
        }
        Ok(log)
    }

    fn write(&self, text: &str) -> Answer {
        let fits = !self.buffer.is_null() && self.bytes > 0;
        if fits {
            self.buffer.write_string(text, self.bytes)?;
        }
        let length = if fits && !text.is_empty() { (text.len() + 1).min(self.bytes) } else { 0 };
        match self.written {
            Some((values, index)) => values.write_at(index, handle(length as u64)),
            None => Ok(()),
        }
    }
}

pub(crate) fn unload(call: &mut Call<'_>, module: Ptr<CUmod_st>) -> Answer {
    let context = call.modules.get(&module.address()).ok_or(INVALID_HANDLE)?.context;
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
    let found = call.modules.get(&module.address()).ok_or(INVALID_HANDLE)?;
    function.required()?;
    let name = name.read_string()?;
    let named = |key: &&u64| call.function(**key).is_ok_and(|function| function.kernel.name == name);
    let key = *found.functions.iter().find(named).ok_or(NOT_FOUND)?;
    refuse_unsupported(call, key)?;
    function.write(handle(key))
}

/// Refuses a kernel that uses what is not supported, and tells all of it.
fn refuse_unsupported(call: &mut Call<'_>, key: u64) -> Answer {
    let kernel = Arc::clone(&call.function(key)?.kernel);
    if kernel.refusals.is_empty() {
        return Ok(());
    }
    let all: Vec<String> = kernel.refusals.iter().map(ToString::to_string).collect();
    call.report(ReportKind::NotSupported, format!("kernel '{}': {}", kernel.name, all.join("; ")));
    Err(NOT_SUPPORTED)
}

pub(crate) fn module_of(call: &mut Call<'_>, module: Ptr<CUmodule>, function: Ptr<CUfunc_st>) -> Answer {
    let key = call.function(function.address())?.module;
    module.write(handle(key))
}

/// Registers as a compiler would give them to so many names; only told, never used.
fn register_count(names: usize) -> i32 {
    i32::try_from(names).unwrap_or(i32::MAX).clamp(8, 255)
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
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => register_count(found.kernel.registers),
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
