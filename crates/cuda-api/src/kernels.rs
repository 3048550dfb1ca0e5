//! Modules of PTX or machine code or of CUDA C++ that is compiled when the program runs, their kernels and launches.

pub use c10_core::{
    Arg, Dim3, Kernel, KernelAttributes, LaunchBuilder, LaunchConfig, LaunchError, LaunchErrorKind, Module, ModuleError,
};

pub use aten_cuda::raw::{
    CompileOptions, KernelArg, LinkInput, LinkKind, RawKernel, cache_folder, cache_limit, compile_kernel, link_module,
    set_cache_limit, set_compiler, set_linker, supported_architectures,
};
pub use aten_cuda::{CompileError, CompileMessage, DeviceAssertion, DeviceAssertions, JitError};
