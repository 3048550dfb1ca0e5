//! What the example programs share: choosing a driver, reading a recorded trace, a progress bar, checked results, a kernel,
//! a second process.
//!
//! The examples use the runtime only through `cuda-api`, as any program would.
#![deny(unsafe_code)]

pub mod checks;
pub mod driver;
pub mod kernels;
pub mod progress;
#[cfg(doctest)]
mod readmes;
pub mod second;
pub mod trace;
