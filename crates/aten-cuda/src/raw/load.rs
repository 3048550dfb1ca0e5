//! From a text to a module on a device: found on disk, or compiled and kept there.
//!
//! Machine code is made where the compiler knows the device, so that the driver has nothing to compile; PTX for the newest
//! older architecture else, and where the driver has said that machine code is not for its devices, as one that simulates
//! them does.
//!
//! # Safety
//! Images are whole: the compiler made them, and those of disk were compared with their length and hash.
#![expect(unsafe_code, reason = "loads code that the compiler made")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use c10_core::{DeviceIndex, Error as RuntimeError, Module, Runtime};
use cuda_sys::Nvrtc;

use crate::base::error::{Error, Result};
use crate::base::jit_error::{CompileError, JitError};
use crate::raw::assertions;
use crate::raw::cache::{self, FileKey, Stored};
use crate::raw::compiler::{self, Architecture, Compiled, Request, short_version};
use crate::raw::includes;

/// `CUDA_ERROR_NO_BINARY_FOR_GPU`.
const NO_BINARY: u32 = 209;

/// What is to be compiled and loaded.
#[derive(Clone, Debug)]
pub(crate) struct Source<'a> {
    /// What the text is called in messages and on disk.
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    pub(crate) options: Vec<String>,
    /// Where headers are looked for besides the toolkit's folders.
    pub(crate) folders: Vec<PathBuf>,
    /// Whether the toolkit's headers may be included.
    pub(crate) with_toolkit: bool,
    pub(crate) expressions: &'a [String],
    /// The architecture, where it is not the device's.
    pub(crate) architecture: Option<&'a str>,
    /// Whether what comes of it is kept on disk.
    pub(crate) is_kept: bool,
}

/// Whether the driver of a runtime has said that machine code is not for its devices. It is not asked again.
#[derive(Debug, Default)]
struct Refusals {
    has_refused: AtomicBool,
}

/// A module with the names that the expressions have in it.
#[derive(Debug)]
pub(crate) struct LoadedText {
    pub(crate) module: Module,
    pub(crate) names: Vec<String>,
}

/// Compiles a text for a device and loads it.
///
/// # Errors
/// The compiler is not there or refuses the text, or the driver refuses the code.
pub(crate) fn load(runtime: &Runtime, device: DeviceIndex, source: &Source<'_>) -> Result<LoadedText> {
    let nvrtc = compiler::compiler(runtime)?;
    let prepared = assertions::prepare(runtime, device, source.name, source.text)?;
    let (text, is_kept) = match &prepared {
        Some(prepared) => (prepared.text.as_str(), !prepared.is_of_process),
        None => (source.text, true),
    };
    let whole = Source { text, is_kept: source.is_kept && is_kept, ..source.clone() };
    load_whole(runtime, device, &nvrtc, &whole).map_err(|error| shown(error, source.text))
}

/// A refused text is shown as it was given; the log counts its lines.
fn shown(error: Error, text: &str) -> Error {
    match error {
        Error::Jit(cause) => match *cause {
            JitError::Compile(refused) => JitError::Compile(CompileError { source: text.to_owned(), ..refused }).into(),
            other => other.into(),
        },
        other => other,
    }
}

fn load_whole(runtime: &Runtime, device: DeviceIndex, nvrtc: &Nvrtc, source: &Source<'_>) -> Result<LoadedText> {
    let refusals = runtime.extension::<Refusals>();
    let architecture = architecture(nvrtc, runtime, device, source.architecture)?;
    if architecture.is_machine && !refusals.has_refused.load(Ordering::Relaxed) {
        let compiled = compiled(nvrtc, source, &architecture)?;
        match module(runtime, device, &compiled.code) {
            Ok(module) => return Ok(LoadedText { module, names: compiled.names }),
            Err(error) if is_for_other_devices(&error) => {
                refusals.has_refused.store(true, Ordering::Relaxed);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let compiled = compiled(nvrtc, source, &Architecture { is_machine: false, ..architecture })?;
    Ok(LoadedText { module: module(runtime, device, &compiled.code)?, names: compiled.names })
}

/// Whether a driver has refused machine code because it is not for its devices.
pub(super) fn is_for_other_devices(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Module(error)
        if error.accelerator().is_some_and(|error| error.error_code() == NO_BINARY))
}

fn module(runtime: &Runtime, device: DeviceIndex, image: &[u8]) -> c10_core::Result<Module> {
    // SAFETY: the image is whole, see above.
    unsafe { Module::from_image(runtime, device, image) }
}

/// What to compile for: the device where the compiler knows it, else the newest architecture before it, of which the driver
/// takes the PTX.
fn architecture(nvrtc: &Nvrtc, runtime: &Runtime, device: DeviceIndex, given: Option<&str>) -> Result<Architecture> {
    let (major, minor) = runtime.devices().capability(device)?;
    let own = u32::try_from(10 * major + minor).unwrap_or(0);
    if let Some(given) = given {
        let (digits, letter) = given.split_at(given.trim_end_matches(['a', 'f']).len());
        let number = digits.parse::<u32>().ok().filter(|_| letter.len() <= 1);
        let number = number.ok_or_else(|| JitError::Capability { given: given.to_owned() })?;
        return Ok(Architecture { number: given.to_owned(), is_machine: number == own });
    }
    let known = compiler::architectures(nvrtc)?;
    match known.iter().rev().find(|&&number| number <= own) {
        Some(&number) => Ok(Architecture { number: number.to_string(), is_machine: number == own }),
        None => {
            let nvrtc = short_version(nvrtc.version());
            Err(JitError::Architecture { capability: (major, minor), nvrtc, known }.into())
        }
    }
}

/// The code of a text: from disk, or compiled now and written there.
fn compiled(nvrtc: &Nvrtc, source: &Source<'_>, architecture: &Architecture) -> Result<Stored> {
    let toolkit = if source.with_toolkit { includes::folders(nvrtc.origin()) } else { Vec::new() };
    let folders: Vec<PathBuf> = source.folders.iter().cloned().chain(toolkit).collect();
    let mut options = source.options.clone();
    options.extend(folders.iter().map(|folder| format!("-I{}", folder.display())));
    let whole = identity(source, &folders);
    let number = architecture.number.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let (major, minor) = number.split_at(number.len().saturating_sub(1));
    let key = FileKey {
        name: source.name,
        architecture: format!("{major}.{minor}{}", &architecture.number[number.len()..]),
        compiler: format!("nvrtc{}", short_version(nvrtc.version())),
        is_machine: architecture.is_machine,
        text: &whole,
    };
    if let Some(stored) = source.is_kept.then(|| cache::read(&key)).flatten() {
        return Ok(stored);
    }
    let request = Request {
        name: source.name,
        source: source.text,
        options,
        expressions: source.expressions,
        architecture: architecture.clone(),
    };
    let Compiled { ptx, machine, names } = compiler::compile(nvrtc, &request)?;
    let stored = Stored { code: machine.unwrap_or(ptx), names };
    if source.is_kept {
        cache::write(&key, &stored);
    }
    Ok(stored)
}

/// The text with what else decides about the code: options, expressions and contents of headers, where there are any.
fn identity(source: &Source<'_>, folders: &[PathBuf]) -> String {
    let mut whole = source.text.to_owned();
    let headers = includes::contents(source.text, folders);
    if headers != 0 {
        whole.push_str(&format!("\n// headers {headers:032x}"));
    }
    let others = source.options.iter().map(|option| ("option", option));
    let others = others.chain(source.expressions.iter().map(|name| ("name", name)));
    others.for_each(|(what, text)| whole.push_str(&format!("\n// {what} {text}")));
    whole
}
