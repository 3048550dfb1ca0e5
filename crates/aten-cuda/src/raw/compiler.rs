//! CUDA C++ to PTX and machine code by NVRTC, which is looked for when a text is first compiled.
//!
//! **Invariant:** a program of the compiler is destroyed whatever becomes of it.
//!
//! # Safety
//! Pointers that the compiler is given are of strings and buffers that outlive the call, as long as it was told. A program
//! is alive until it is destroyed.
#![expect(unsafe_code, reason = "calls of NVRTC")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::{Arc, PoisonError};

use c10_core::Runtime;
use c10_core::locks::Mutex;
use cuda_sys::nvrtc::types::nvrtcProgram;
use cuda_sys::{LibraryVersion, Nvrtc, NvrtcError, nvrtcResult};

use crate::base::error::Result;
use crate::base::jit_error::{CompileError, JitError};

/// What is compiled.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    /// Name of the text in messages.
    pub(crate) name: &'a str,
    pub(crate) source: &'a str,
    pub(crate) options: Vec<String>,
    /// Instances of templates that are wanted, and other names as C++ writes them.
    pub(crate) expressions: &'a [String],
    /// What to make: `sm_90` gives machine code and PTX, `compute_90` PTX alone.
    pub(crate) architecture: Architecture,
}

/// What a text is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Architecture {
    /// Digits with an optional letter: `90`, `90a`.
    pub(crate) number: String,
    /// Whether machine code is made, else PTX alone.
    pub(crate) is_machine: bool,
}

impl Architecture {
    fn option(&self) -> String {
        format!("--gpu-architecture={}_{}", if self.is_machine { "sm" } else { "compute" }, self.number)
    }
}

/// What the compiler made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// PTX that ends with a zero byte.
    pub(crate) ptx: Vec<u8>,
    /// Machine code, where that was wanted.
    pub(crate) machine: Option<Vec<u8>>,
    /// The names in the code of the expressions, in their order.
    pub(crate) names: Vec<String>,
}

/// The compiler of a runtime: one that was given, or the one that was found.
#[derive(Debug, Default)]
struct Compiler(Mutex<Option<Arc<Nvrtc>>>);

/// Has the current runtime compile CUDA C++ by this library, or, for `None`, search for one when it is next needed.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use cuda_sys::{LibraryVersion, Nvrtc};
///
/// // SAFETY: a table without functions has none that could misbehave.
/// let empty = unsafe { Nvrtc::from_functions(Default::default(), LibraryVersion { major: 13, minor: 0, patch: 0 }) };
/// aten_cuda::raw::set_compiler(Some(empty));
/// assert!(aten_cuda::raw::supported_architectures().unwrap_err().to_string().contains("nvrtcGetNumSupportedArchs"));
/// aten_cuda::raw::set_compiler(None);
/// ```
pub fn set_compiler(nvrtc: Option<Nvrtc>) {
    Runtime::with_current(|runtime| *lock(&runtime.extension::<Compiler>().0) = nvrtc.map(Arc::new));
}

fn lock<T>(mutex: &Mutex<T>) -> c10_core::locks::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The compiler of the runtime. One that was not found is searched for again the next time, since a program may install it.
///
/// # Errors
/// [`JitError::NoLibrary`] says where it was looked for.
pub(crate) fn compiler(runtime: &Runtime) -> Result<Arc<Nvrtc>> {
    let compiler = runtime.extension::<Compiler>();
    let mut known = lock(&compiler.0);
    if let Some(known) = &*known {
        return Ok(Arc::clone(known));
    }
    let _span = tracing::debug_span!("load_library", name = "libnvrtc.so").entered();
    let missing = |error: cuda_sys::LoadError| JitError::NoLibrary { library: "NVRTC", reason: error.to_string() };
    let found = Arc::new(Nvrtc::load().map_err(missing)?);
    *known = Some(Arc::clone(&found));
    Ok(found)
}

/// The architectures that the compiler makes code for, as 10 * major + minor, from the lowest up
/// (`nvrtcGetSupportedArchs`). Starts nothing on a device.
///
/// ```no_run
/// assert!(aten_cuda::raw::supported_architectures()?.contains(&90));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// The compiler is not there, or does not answer.
pub fn supported_architectures() -> Result<Vec<u32>> {
    Runtime::with_current(|runtime| architectures(&*compiler(runtime)?))
}

/// The architectures that a compiler knows.
pub(crate) fn architectures(nvrtc: &Nvrtc) -> Result<Vec<u32>> {
    let mut count: c_int = 0;
    // SAFETY: `count` outlives the call.
    unsafe { nvrtc.nvrtcGetNumSupportedArchs(&mut count) }.map_err(refused)?;
    let mut known: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many numbers as the library has.
    unsafe { nvrtc.nvrtcGetSupportedArchs(known.as_mut_ptr()) }.map_err(refused)?;
    let mut known: Vec<u32> = known.into_iter().filter_map(|number| u32::try_from(number).ok()).collect();
    known.sort_unstable();
    Ok(known)
}

fn refused(cause: NvrtcError) -> crate::base::error::Error {
    JitError::Compiler { cause, log: String::new() }.into()
}

/// `13.0`.
pub(crate) fn short_version(version: LibraryVersion) -> String {
    format!("{}.{}", version.major, version.minor)
}

/// A program of the compiler, which is destroyed with this.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: nvrtcProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        // SAFETY: the program was made by this library and is destroyed once. An error cannot be returned here.
        let _ = unsafe { self.nvrtc.nvrtcDestroyProgram(&mut self.raw) };
    }
}

/// Compiles a text. Takes tens of milliseconds and more; the calling thread waits.
///
/// # Errors
/// [`JitError::Compile`] with the log where the text is wrong, else the compiler's error.
pub(crate) fn compile(nvrtc: &Nvrtc, request: &Request<'_>) -> Result<Compiled> {
    let _span = tracing::debug_span!("compile_text", name = request.name, bytes = request.source.len()).entered();
    let source = ended("the text of a program", request.source)?;
    let name = ended("the name of a program", request.name)?;
    let mut program = Program { nvrtc, raw: ptr::null_mut() };
    let (raw, text, name) = (&mut program.raw, source.as_ptr(), name.as_ptr());
    // SAFETY: both strings end with a zero byte and outlive the call; there are no headers.
    unsafe { nvrtc.nvrtcCreateProgram(raw, text, name, 0, ptr::null(), ptr::null()) }.map_err(refused)?;
    let expressions = request.expressions.iter().map(|name| ended("the name of a kernel", name));
    let expressions: Vec<CString> = expressions.collect::<Result<_>>()?;
    for expression in &expressions {
        // SAFETY: the program is alive; the string ends with a zero byte and outlives the call.
        unsafe { nvrtc.nvrtcAddNameExpression(program.raw, expression.as_ptr()) }.map_err(refused)?;
    }
    let mut options = request.options.clone();
    options.push(request.architecture.option());
    program.build(request, &options)?;
    let ptx = program.bytes(Nvrtc::nvrtcGetPTXSize, Nvrtc::nvrtcGetPTX)?;
    let machine = match request.architecture.is_machine {
        true => Some(program.bytes(Nvrtc::nvrtcGetCUBINSize, Nvrtc::nvrtcGetCUBIN)?),
        false => None,
    };
    let names = expressions.iter().map(|name| program.lowered(name)).collect::<Result<_>>()?;
    Ok(Compiled { ptx, machine, names })
}

/// A method of [`Nvrtc`] that tells how many bytes there are.
type Size = unsafe fn(&Nvrtc, nvrtcProgram, *mut usize) -> std::result::Result<(), NvrtcError>;
/// A method of [`Nvrtc`] that writes these bytes.
type Bytes = unsafe fn(&Nvrtc, nvrtcProgram, *mut c_char) -> std::result::Result<(), NvrtcError>;

impl Program<'_> {
    fn build(&self, request: &Request<'_>, options: &[String]) -> Result<()> {
        let ended: Vec<CString> = options.iter().map(|option| ended("an option", option)).collect::<Result<_>>()?;
        let places: Vec<*const c_char> = ended.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(places.len()).unwrap_or(c_int::MAX);
        // SAFETY: there are as many options as is said; each ends with a zero byte and outlives the call.
        let built = unsafe { self.nvrtc.nvrtcCompileProgram(self.raw, count, places.as_ptr()) };
        let Err(cause) = built else { return Ok(()) };
        let log = self.log();
        let of_text = [nvrtcResult::NVRTC_ERROR_COMPILATION, nvrtcResult::NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID];
        if !cause.status().is_some_and(|status| of_text.contains(&status)) {
            return Err(JitError::Compiler { cause, log }.into());
        }
        let (name, source) = (request.name.to_owned(), request.source.to_owned());
        Err(JitError::Compile(CompileError { name, source, log, options: options.to_vec() }).into())
    }

    /// What the compiler wrote; empty where it does not say.
    fn log(&self) -> String {
        let bytes = self.bytes(Nvrtc::nvrtcGetProgramLogSize, Nvrtc::nvrtcGetProgramLog).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches(['\0', '\n']).to_owned()
    }

    fn bytes(&self, size: Size, read: Bytes) -> Result<Vec<u8>> {
        let mut count = 0;
        // SAFETY: the program is alive; `count` outlives the call.
        unsafe { size(self.nvrtc, self.raw, &mut count) }.map_err(refused)?;
        let mut bytes = vec![0_u8; count];
        // SAFETY: the program is alive; there is room for as many bytes as the library said.
        unsafe { read(self.nvrtc, self.raw, bytes.as_mut_ptr().cast()) }.map_err(refused)?;
        Ok(bytes)
    }

    /// The name in the code of an expression.
    fn lowered(&self, expression: &CStr) -> Result<String> {
        let mut name: *const c_char = ptr::null();
        // SAFETY: the program is alive; the expression is one that it was given; `name` outlives the call.
        unsafe { self.nvrtc.nvrtcGetLoweredName(self.raw, expression.as_ptr(), &mut name) }.map_err(refused)?;
        if name.is_null() {
            return Ok(expression.to_string_lossy().into_owned());
        }
        // SAFETY: the library's string ends with a zero byte and lives as long as the program.
        let name = unsafe { CStr::from_ptr(name) };
        Ok(name.to_string_lossy().into_owned())
    }
}

/// The text as C has it.
pub(crate) fn ended(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| JitError::ZeroByte { what }.into())
}
