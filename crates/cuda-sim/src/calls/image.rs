//! Images of code as programs hand them over: text, machine code, fat binaries with both, and files of these.
//!
//! Only text can be run here. An image with machine code and nothing else is answered as on a device that the code was
//! not made for, and a report says how to get text.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use cuda_sys::CUresult;
use ptx_sim::{Limits, Module, Program, Refusal, RefusalKind};

use super::fat;
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{
    Answer, FILE_NOT_FOUND, INVALID_IMAGE, INVALID_PTX, NO_BINARY_FOR_GPU, NOT_SUPPORTED, UNSUPPORTED_PTX_VERSION,
};
use crate::model::links::Logs;
use crate::report::ReportKind;

/// How machine code begins.
const MACHINE_CODE: [u8; 4] = *b"\x7fELF";

/// How an image that a link made begins. Its length follows, then each text behind its own length.
const LINKED: [u8; 8] = *b"\x7fPTXSIM\x01";

/// Size limit of an image in a file, in bytes.
const FILE_MAX: u64 = 1 << 30;

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
        regular_files::read(path.read_string()?.as_ref(), FILE_MAX).map(Self::Bytes).map_err(|_| FILE_NOT_FOUND)
    }

    /// A byte of it; behind the end of a file there is none.
    fn byte(&self, at: usize) -> Answer<u8> {
        match self {
            Self::Memory(start) => start.read_at(at),
            Self::Bytes(bytes) => bytes.get(at).copied().ok_or(INVALID_IMAGE),
        }
    }

    /// Whether it begins so. Nothing is read behind the first byte that differs.
    pub(super) fn begins_with(&self, bytes: &[u8]) -> bool {
        bytes.iter().enumerate().all(|(index, byte)| self.byte(index) == Ok(*byte))
    }

    /// All of it as text, up to the first zero byte.
    pub(super) fn text(&self) -> Answer<String> {
        match self {
            Self::Memory(start) => start.cast::<c_char>().read_string(),
            Self::Bytes(bytes) => {
                let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                Ok(String::from_utf8_lossy(text).into_owned())
            }
        }
    }

    /// A part of it.
    pub(super) fn bytes(&self, at: usize, count: usize) -> Answer<Vec<u8>> {
        (at..at.saturating_add(count)).map(|index| self.byte(index)).collect()
    }

    /// A number of up to 8 bytes.
    pub(super) fn number(&self, at: usize, bytes: usize) -> Answer<usize> {
        let bytes = self.bytes(at, bytes)?;
        let number = bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        usize::try_from(number).map_err(|_| INVALID_IMAGE)
    }

    /// The texts of an image that a link made.
    fn linked_texts(&self) -> Answer<Vec<String>> {
        let (mut at, mut texts) = (LINKED.len() + 8, Vec::new());
        let end = self.number(LINKED.len(), 8)?;
        while at < end {
            let length = self.number(at, 8)?;
            let text = self.bytes(at + 8, length)?;
            texts.push(String::from_utf8(text).map_err(|_| INVALID_IMAGE)?);
            at += 8 + length;
        }
        Ok(texts)
    }

    /// The texts that it consists of.
    pub(super) fn texts(&self) -> Result<Vec<String>, Refused> {
        if self.begins_with(&LINKED) {
            return Ok(self.linked_texts()?);
        }
        if self.begins_with(&fat::WRAPPER) {
            return Ok(vec![fat::text(&fat::wrapped(self)?)?]);
        }
        if self.begins_with(&fat::MAGIC) {
            return Ok(vec![fat::text(self)?]);
        }
        if self.begins_with(&MACHINE_CODE) {
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
            let text = format!(
                "{}: ask the compiler for PTX beside machine code (nvcc -gencode arch=compute_90,code=compute_90)",
                self.why
            );
            call.report(ReportKind::NotSupported, text);
        }
        Ok(self.code)
    }
}

/// The image of a link.
pub(super) fn packed(texts: &[String]) -> Vec<u8> {
    let length = |bytes: usize| (bytes as u64).to_le_bytes();
    let all: usize = texts.iter().map(|text| 8 + text.len()).sum();
    let mut image = LINKED.to_vec();
    image.extend(length(LINKED.len() + 8 + all));
    for text in texts {
        image.extend(length(text.len()));
        image.extend(text.as_bytes());
    }
    image
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
