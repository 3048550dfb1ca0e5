//! Modules of PTX or machine code, their kernels and launches.

pub use c10_core::{
    Arg, Dim3, Kernel, KernelAttributes, LaunchBuilder, LaunchConfig, LaunchError, LaunchErrorKind, Module, ModuleError,
};
