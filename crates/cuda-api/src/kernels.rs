//! Modules of PTX or machine code, their kernels and launches.

pub use c10_core::{Arg, Kernel, KernelAttributes, LaunchConfig, LaunchError, LaunchErrorKind, Module, ModuleError};
