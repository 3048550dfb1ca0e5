//! What the example programs share: choosing a driver, reading a recorded trace, a progress bar, checked results.
//!
//! The examples use the runtime only through `cuda-api`, as any program would.
#![forbid(unsafe_code)]

pub mod checks;
pub mod driver;
pub mod progress;
pub mod trace;
