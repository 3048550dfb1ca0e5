//! Programs and helpers of the tests that cross crates.
//!
//! # Safety
//! Unsafe code is in `replay::interpose` and `kernels::device` only, which say why.

#[forbid(unsafe_code)]
pub mod attention;
#[forbid(unsafe_code)]
pub mod common;
#[forbid(unsafe_code)]
pub mod conformance;
#[forbid(unsafe_code)]
pub mod determinism;
#[forbid(unsafe_code)]
pub mod every;
#[forbid(unsafe_code)]
pub mod fills;
pub mod kernels;
#[forbid(unsafe_code)]
pub mod large;
pub mod ops;
#[forbid(unsafe_code)]
pub mod program;
mod recorded;
pub mod replay;
#[forbid(unsafe_code)]
pub mod script;
#[forbid(unsafe_code)]
pub mod table;
