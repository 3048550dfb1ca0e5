//! Recorded allocations, replayed on the caching allocator and measured.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod history;
mod pass;
mod step;

pub use history::steps_of;
pub use pass::{Pass, Replay, ReplayError};
pub use step::{Step, TraceError, parse, read};
