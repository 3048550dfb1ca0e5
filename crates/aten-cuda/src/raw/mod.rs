//! Kernels of the user's own: CUDA C++ that is compiled when the program runs, several inputs that are linked, and launches
//! with tensors as arguments (torch's `torch.cuda._compile_kernel`).
//!
//! NVRTC compiles; it is looked for when a text is first compiled, and without it [`JitError::NoLibrary`] says where. What was
//! compiled is kept on disk ([`cache_folder`]).
//!
//! Reading order: this file, `options` (what a kernel is made of), `kernel` (launches), `argument` (what a launch takes),
//! `load` (from a text to a module), `compiler` (NVRTC), `includes` (headers), `assertions` (conditions in kernels), `cache` and `sha1` (the disk), `link` (several
//! inputs).
//!
//! [`JitError::NoLibrary`]: crate::JitError::NoLibrary

mod argument;
mod assertions;
mod cache;
mod compiler;
mod includes;
mod kernel;
mod link;
mod load;
mod options;
mod sha1;

pub use argument::KernelArg;
pub(crate) use cache::{FileKey, Stored, read as read_kept, write as keep};
pub use cache::{cache_folder, cache_limit, set_cache_limit};
pub use compiler::{set_compiler, supported_architectures};
pub use kernel::RawKernel;
pub use link::{LinkInput, LinkKind, link_module, set_linker};
pub(crate) use load::{Source, load};
pub use options::{CompileOptions, compile_kernel};

/// FNV-1a with 128 bits.
pub(crate) fn fingerprint(bytes: &[u8]) -> u128 {
    let prime = 0x0100_0000_0000_0000_0000_013b;
    let basis = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(basis, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(prime))
}
