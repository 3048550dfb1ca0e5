//! Images of code as programs hand them over: text, machine code, and files of either.
//!
//! Only text can be run here. An image with machine code and nothing else is answered as on a device that the code was
//! not made for, and a report says how to get text.

use std::ffi::{c_char, c_void};
use std::fs;
use std::sync::Arc;

use cuda_sys::CUresult;
use ptx_sim::{Limits, Module, Program, Refusal, RefusalKind};

use super::jit::Logs;
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{
    Answer, FILE_NOT_FOUND, INVALID_IMAGE, INVALID_PTX, NO_BINARY_FOR_GPU, NOT_SUPPORTED, UNSUPPORTED_PTX_VERSION,
};
use crate::report::ReportKind;

/// How machine code begins: as an object file, and as a bundle of several.
const MACHINE_CODE: [[u8; 4]; 2] = [*b"\x7fELF", [0x50, 0xED, 0x55, 0xBA]];

/// Where an image lies.
#[derive(Clone)]
pub(super) enum Image {
    /// In memory of the program, which knows its length.
    Memory(Ptr<u8>),
    /// In a file that was read, or a part of another image.
    Bytes(Vec<u8>),
}

/// Why there is nothing to run, as a code and in words.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) code: CUresult,
    pub(super) why: String,
}

impl From<CUresult> for Refused {
    fn from(code: CUresult) -> Self {
        Self { code, why: String::new() }
    }
}

impl Image {
    /// The image behind a pointer.
    pub(super) fn at(image: Ptr<c_void>) -> Answer<Self> {
        Ok(Self::Memory(image.required()?.cast()))
    }

    /// The image in a file.
    pub(super) fn of_file(path: Ptr<c_char>) -> Answer<Self> {
        fs::read(path.read_string()?).map(Self::Bytes).map_err(|_| FILE_NOT_FOUND)
    }

    /// A byte of it; behind the end of a file there is none.
    fn byte(&self, at: usize) -> Answer<u8> {
        match self {
            Self::Memory(start) => start.read_at(at),
            Self::Bytes(bytes) => bytes.get(at).copied().ok_or(INVALID_IMAGE),
        }
    }

    /// Whether it begins so. Nothing is read behind the first byte that differs.
    fn begins_with(&self, bytes: &[u8]) -> bool {
        bytes.iter().enumerate().all(|(index, byte)| self.byte(index) == Ok(*byte))
    }

    /// All of it as text, up to the first zero byte.
    fn text(&self) -> Answer<String> {
        match self {
            Self::Memory(start) => start.cast::<c_char>().read_string(),
            Self::Bytes(bytes) => {
                let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                Ok(String::from_utf8_lossy(text).into_owned())
            }
        }
    }

    /// The texts that it consists of.
    pub(super) fn texts(&self) -> Result<Vec<String>, Refused> {
        if MACHINE_CODE.iter().any(|start| self.begins_with(start)) {
            return Err(Refused { code: NO_BINARY_FOR_GPU, why: "machine code is not simulated".to_owned() });
        }
        let text = self.text()?;
        // What does not look like PTX at all is no text to compile.
        if !text.is_ascii() || !text.contains(".version") {
            return Err(INVALID_IMAGE.into());
        }
        Ok(vec![text])
    }

    /// The program that it holds; what is wrong goes to the logs.
    pub(super) fn program(&self, call: &mut Call<'_>, logs: &Logs) -> Answer<Arc<Program>> {
        let limits = call.ptx_limits();
        match self.texts().and_then(|texts| linked(&texts, limits)) {
            Ok(module) => {
                logs.write("")?;
                Ok(Arc::new(Program::new(module)))
            }
            Err(refused) => Err(refused.tell(call, logs)?),
        }
    }
}

impl Refused {
    /// Writes into the logs why, and reports what only the simulator refuses; the code to answer with.
    pub(super) fn tell(self, call: &mut Call<'_>, logs: &Logs) -> Answer<CUresult> {
        logs.write(&self.why)?;
        if self.code == NO_BINARY_FOR_GPU {
            let text =
                format!("{}: ask the compiler for PTX (nvcc -gencode arch=compute_NN,code=compute_NN)", self.why);
            call.report(ReportKind::NotSupported, text);
        }
        Ok(self.code)
    }
}

/// Makes a module of one text or of several; why not, with all that is wrong.
pub(super) fn linked(texts: &[String], limits: Limits) -> Result<Module, Refused> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let refused = |refusal: Refusal| Refused { code: code_of(&refusal), why: refusal.to_string() };
    let module = Module::link(&texts, limits).map_err(refused)?;
    let wrong = module.refusals().filter(|refusal| refusal.kind == RefusalKind::Invalid);
    let wrong: Vec<String> = wrong.map(ToString::to_string).collect();
    if wrong.is_empty() { Ok(module) } else { Err(Refused { code: INVALID_PTX, why: wrong.join("\n") }) }
}

fn code_of(refusal: &Refusal) -> CUresult {
    match refusal.kind {
        RefusalKind::Invalid => INVALID_PTX,
        RefusalKind::NotSupported => NOT_SUPPORTED,
        RefusalKind::NewerVersion => UNSUPPORTED_PTX_VERSION,
    }
}
