//! Programs and helpers of the tests that cross crates.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod table;
