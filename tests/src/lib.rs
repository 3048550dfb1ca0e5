//! Programs and helpers of the tests that cross crates.
//!
//! # Safety
//! Unsafe code is in `replay::interpose` only, which says why.

#[forbid(unsafe_code)]
pub mod conformance;
pub mod replay;
#[forbid(unsafe_code)]
pub mod script;
#[forbid(unsafe_code)]
pub mod table;
#[forbid(unsafe_code)]
pub mod trace;
