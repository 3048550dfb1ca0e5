//! Modules of several inputs: nvJitLink links them where it is installed, the driver else.
//!
//! nvJitLink takes intermediate code of the compiler too and is of the toolkit's version, while the driver's linker is always
//! there. Machine code for a device that the driver does not run, as one that simulates its devices says, is linked by the
//! driver instead.
//!
//! # Safety
//! Pointers that the linker is given are of strings and buffers that outlive the call, as long as it was told. A link is
//! alive until it is destroyed. That inputs are whole is the caller's promise.
#![expect(unsafe_code, reason = "calls of nvJitLink, and loads what it made")]

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Arc, PoisonError};

use c10_core::locks::Mutex;
use c10_core::{DeviceIndex, Module, Runtime};
pub use c10_core::{LinkInput, LinkKind};
use cuda_sys::nvjitlink::types::{nvJitLinkHandle, nvJitLinkInputType};
use cuda_sys::{NvJitLink, NvJitLinkError};

use crate::base::error::{Error, Result};
use crate::base::jit_error::JitError;
use crate::raw::compiler::ended;
use crate::raw::load::is_for_other_devices;

/// The linker of a runtime, once it was looked for or given.
#[derive(Debug, Default)]
struct Linker(Mutex<Option<Option<Arc<NvJitLink>>>>);

/// Has the current runtime link by this library from now on, or, for `None`, by the driver.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// aten_cuda::raw::set_linker(None);
/// ```
pub fn set_linker(nvjitlink: Option<NvJitLink>) {
    Runtime::with_current(|runtime| {
        let linker = runtime.extension::<Linker>();
        *linker.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(nvjitlink.map(Arc::new));
    });
}

fn linker(runtime: &Runtime) -> Option<Arc<NvJitLink>> {
    let linker = runtime.extension::<Linker>();
    let mut known = linker.0.lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_with(|| NvJitLink::load().ok().map(Arc::new)).clone()
}

/// Links several inputs for the current device and loads what comes of it. Functions and variables that one input declares
/// and another defines are found. A host call that queues nothing.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::raw::{LinkInput, LinkKind, link_module};
///
/// let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry f() { ret; }";
/// let input = LinkInput { kind: LinkKind::Ptx, name: "f.ptx", data: text.as_bytes() };
/// // SAFETY: texts say where they end.
/// assert_eq!(unsafe { link_module(&[input]) }?.kernel("f")?.name(), "f");
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Safety
/// - Inputs that are not PTX are whole: how long they are, the linker may read in themselves.
///
/// # Errors
/// There is nothing to link; the linker refuses an input, or something is missing in all of them ([`JitError::Linker`] or
/// [`c10_core::ModuleError::Refused`], with the log); the driver refuses the code.
#[doc(alias = "nvJitLinkComplete")]
pub unsafe fn link_module(inputs: &[LinkInput<'_>]) -> Result<Module> {
    if inputs.is_empty() {
        return Err(JitError::NothingToLink.into());
    }
    Runtime::with_current(|runtime| {
        let device = runtime.current_device()?;
        if let Some(linker) = linker(runtime) {
            let image = linked(&linker, runtime, device, inputs)?;
            // SAFETY: the linker made the image and told its length.
            match unsafe { Module::from_image(runtime, device, &image) } {
                Err(error) if is_for_other_devices(&error) => {}
                loaded => return Ok(loaded?),
            }
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { Module::link(runtime, device, inputs) }?)
    })
}

/// A link, which is destroyed with this.
struct Link<'a> {
    library: &'a NvJitLink,
    raw: nvJitLinkHandle,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        // SAFETY: the link was made by this library and is destroyed once. An error cannot be returned here.
        let _ = unsafe { self.library.nvJitLinkDestroy(&mut self.raw) };
    }
}

/// The machine code of the inputs for a device.
fn linked(library: &NvJitLink, runtime: &Runtime, device: DeviceIndex, inputs: &[LinkInput<'_>]) -> Result<Vec<u8>> {
    let _span = tracing::debug_span!("link_inputs", inputs = inputs.len()).entered();
    let (major, minor) = runtime.devices().capability(device)?;
    let option = ended("an option", &format!("-arch=sm_{major}{minor}"))?;
    let mut options = [option.as_ptr()];
    let mut link = Link { library, raw: ptr::null_mut() };
    // SAFETY: there is one option, which ends with a zero byte and outlives the call, as the handle's place does.
    let made = unsafe { library.nvJitLinkCreate(&mut link.raw, 1, options.as_mut_ptr()) };
    made.map_err(|cause| link.refused(cause))?;
    for input in inputs {
        link.add(input)?;
    }
    // SAFETY: the link is alive.
    unsafe { library.nvJitLinkComplete(link.raw) }.map_err(|cause| link.refused(cause))?;
    let mut bytes = 0;
    // SAFETY: the link is alive and complete; `bytes` outlives the call.
    let told = unsafe { library.nvJitLinkGetLinkedCubinSize(link.raw, &mut bytes) };
    told.map_err(|cause| link.refused(cause))?;
    let mut image = vec![0_u8; bytes];
    // SAFETY: the link is alive; there is room for as many bytes as the library said.
    let read = unsafe { library.nvJitLinkGetLinkedCubin(link.raw, image.as_mut_ptr().cast()) };
    read.map_err(|cause| link.refused(cause))?;
    Ok(image)
}

impl Link<'_> {
    fn add(&self, input: &LinkInput<'_>) -> Result<()> {
        let kind = match input.kind {
            LinkKind::Ptx => nvJitLinkInputType::NVJITLINK_INPUT_PTX,
            LinkKind::Cubin => nvJitLinkInputType::NVJITLINK_INPUT_CUBIN,
            LinkKind::Fatbin => nvJitLinkInputType::NVJITLINK_INPUT_FATBIN,
            LinkKind::Library => nvJitLinkInputType::NVJITLINK_INPUT_LIBRARY,
            _ => nvJitLinkInputType::NVJITLINK_INPUT_OBJECT,
        };
        let name: CString = ended("the name of an input", input.name)?;
        let mut data = input.data.to_vec();
        if input.kind == LinkKind::Ptx && data.last() != Some(&0) {
            data.push(0);
        }
        let (place, bytes) = (data.as_ptr().cast(), data.len());
        // SAFETY: the link is alive; the input has as many bytes as is said and is copied; the name ends with a zero byte.
        let added = unsafe { self.library.nvJitLinkAddData(self.raw, kind, place, bytes, name.as_ptr()) };
        added.map_err(|cause| self.refused(cause))
    }

    /// A failed call with what the linker wrote.
    fn refused(&self, cause: NvJitLinkError) -> Error {
        JitError::Linker { cause, log: self.log() }.into()
    }

    fn log(&self) -> String {
        let mut bytes = 0;
        if self.raw.is_null() {
            return String::new();
        }
        // SAFETY: the link is alive; `bytes` outlives the call.
        let told = unsafe { self.library.nvJitLinkGetErrorLogSize(self.raw, &mut bytes) };
        if told.is_err() || bytes == 0 {
            return String::new();
        }
        let mut log = vec![0_u8; bytes];
        // SAFETY: the link is alive; there is room for as many bytes as the library said.
        let read = unsafe { self.library.nvJitLinkGetErrorLog(self.raw, log.as_mut_ptr().cast::<c_char>()) };
        if read.is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }
}
