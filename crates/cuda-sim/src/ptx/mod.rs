//! Kernels: a part of PTX, read from text and really executed.
//!
//! Reading order: `lex` (text to tokens), `program` (what a kernel is once read), `parse` (directives), `decode` (one
//! instruction), `arith` (what an operation makes of values), `machine` (a grid of threads run one after another).
//! Nothing here knows a simulated device: memory is behind [`machine::Memory`].
//!
//! The part: one or more `.entry`, `.param`, `.reg`, `.shared`; moves, integer and floating arithmetic, comparison,
//! selection, conversion, branches, loads and stores of parameters, global and shared memory, `atom` and `red`,
//! `bar.sync`, the special registers of a thread's place and of clocks, calls of `cudaGraphSetConditional`, the one
//! function that the driver itself brings. Text outside of it is refused when it is
//! loaded, with the line and the instruction; nothing is executed approximately but the functions that PTX itself calls
//! approximate.

#![forbid(unsafe_code)]

mod arith;
mod decode;
mod lex;
pub(crate) mod machine;
mod parse;
mod program;

#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use parse::{Limits, parse};
pub(crate) use program::Kernel;

/// Why text was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    /// Line of the text, counted from 1.
    pub(crate) line: u32,
    pub(crate) text: String,
}

/// How a refusal is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// It is not PTX.
    Invalid,
    /// It is PTX, but of a part that is not simulated.
    NotSimulated,
    /// It is of a newer version of PTX than the driver reads.
    NewerVersion,
}

impl Refusal {
    fn invalid(line: u32, text: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Invalid, line, text: text.into() }
    }

    fn not_simulated(line: u32, text: impl Into<String>) -> Self {
        Self { kind: RefusalKind::NotSimulated, line, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            RefusalKind::Invalid => "error",
            RefusalKind::NotSimulated => "not simulated",
            RefusalKind::NewerVersion => "unsupported version",
        };
        write!(f, "ptx input, line {}; {what}: {}", self.line, self.text)
    }
}
