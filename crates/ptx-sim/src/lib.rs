//! Reads PTX and executes it, warp by warp, without a GPU.
//!
//! # Layers
//! Each folder imports only those before it: `text` (from characters to a tree), `program` (what a module is once names
//! are resolved), `arith` (what an operation makes of the values of one lane), `decode` (from the tree to the program),
//! `exec` (a grid of threads).

#![deny(unsafe_code)]

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod arith;
mod decode;
mod exec;
mod program;
mod refusal;
mod text;

pub use decode::instruction::{FormStatus, forms};
pub use exec::{
    Checks, Failure, Fault, Finding, FindingKind, FlatMemory, Grid, Launch, Memory, Notice, Outcome, Program, Progress,
    Site, Wait, Window, run,
};
pub use program::{Entry, Module, Source, Tuning, Variable};
pub use refusal::{Refusal, RefusalKind};
pub use text::{Limits, Place};
