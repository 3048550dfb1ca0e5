//! What a kernel of the user's own is made of: torch's arguments of `_compile_kernel`.

use std::path::PathBuf;

use c10_core::Runtime;

use crate::base::error::Result;
use crate::raw::kernel::RawKernel;
use crate::raw::load::{Source, load};

/// How a kernel is compiled; the default is torch's.
///
/// ```
/// use aten_cuda::raw::CompileOptions;
///
/// let options = CompileOptions { nvcc_options: vec!["-DN=4".into()], ..CompileOptions::default() };
/// assert!(options.compute_capability.is_none() && options.header_code.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// The compute capability to compile for, such as `90` or `90a`; that of the current device for `None`.
    pub compute_capability: Option<String>,
    /// Text that stands before the kernel's.
    pub header_code: String,
    /// Folders in which headers are looked for, before those of the toolkit, which are found by themselves.
    pub cuda_include_dirs: Vec<PathBuf>,
    /// Options for the compiler, such as `--use_fast_math`.
    pub nvcc_options: Vec<String>,
}

/// Compiles CUDA C++ for the current device and returns one of its kernels (`torch.cuda._compile_kernel`). Compiling takes
/// tens of milliseconds and more, and the calling thread waits; code that was compiled before comes from disk
/// ([`crate::raw::cache_folder`]).
///
/// A name with template arguments, such as `scale<float, 4>`, asks for that instance of a template. A kernel by a plain
/// name gets `extern "C"` where the text has none.
///
/// ```no_run
/// use aten_cuda::raw::{CompileOptions, compile_kernel};
/// use aten_cuda::{DType, Tensor};
///
/// let text = "__global__ void scale(float* x, int count, double by) {
///     int at = blockIdx.x * blockDim.x + threadIdx.x;
///     if (at < count) x[at] *= by;
/// }";
/// let kernel = compile_kernel(text, "scale", &CompileOptions::default())?;
/// let x = Tensor::ones(&[1000], DType::F32, "cuda")?;
/// // SAFETY: the kernel writes the first 1000 elements, and the tensor has as many.
/// unsafe { kernel.launch((4, 1, 1), (256, 1, 1), &[(&x).into(), 1000.into(), 2.5.into()], 0, None) }?;
/// assert_eq!(x.narrow(0, 999, 1)?.to_vec::<f32>()?, [2.5]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// NVRTC is not there ([`crate::JitError::NoLibrary`]) or refuses the text ([`crate::JitError::Compile`], with its log and
/// the lines it is about); the compute capability is not one; the text has no kernel of the name; the device's error.
#[doc(alias = "_compile_kernel")]
pub fn compile_kernel(kernel_source: &str, kernel_name: &str, options: &CompileOptions) -> Result<RawKernel> {
    let is_instance = kernel_name.contains('<');
    let own = if is_instance { kernel_source.to_owned() } else { exported(kernel_source, kernel_name) };
    let header = &options.header_code;
    let text = if header.is_empty() { own } else { format!("{header}\n{own}") };
    let expressions = if is_instance { vec![kernel_name.to_owned()] } else { Vec::new() };
    let source = Source {
        name: kernel_name,
        text: &text,
        options: options.nvcc_options.clone(),
        folders: options.cuda_include_dirs.clone(),
        with_toolkit: true,
        expressions: &expressions,
        architecture: options.compute_capability.as_deref(),
        is_kept: true,
    };
    Runtime::with_current(|runtime| {
        let loaded = load(runtime, runtime.current_device()?, &source)?;
        let name = loaded.names.first().map_or(kernel_name, String::as_str);
        Ok(RawKernel::new(loaded.module.kernel(name)?))
    })
}

/// The text with `extern "C"` before the kernel, unless it stands somewhere already.
fn exported(text: &str, name: &str) -> String {
    if text.contains("extern \"C\"") {
        return text.to_owned();
    }
    let at = definition(text, name).unwrap_or(0);
    format!("{}extern \"C\" {}", &text[..at], &text[at..])
}

/// Where the `__global__` of a kernel stands.
fn definition(text: &str, name: &str) -> Option<usize> {
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    let is_name = |&(at, _): &(usize, &str)| {
        let ends = !text[at + name.len()..].starts_with(is_word) && !text[..at].ends_with(is_word);
        ends && text[at + name.len()..].trim_start().starts_with('(')
    };
    text.match_indices(name).filter(is_name).find_map(|(at, _)| {
        let before = &text[..at];
        let global = before.rfind("__global__")?;
        // Another function's or a prototype's end between them: this is a use of the name.
        (!before[global..].contains(['{', '}', ';'])).then_some(global)
    })
}

#[cfg(test)]
mod tests {
    use super::exported;

    #[test]
    fn kernels_are_exported_by_their_name() {
        let text = "__device__ int g() { return 1; }\n__global__ void f(int* x) { *x = g(); }";
        let wanted = "__device__ int g() { return 1; }\nextern \"C\" __global__ void f(int* x) { *x = g(); }";
        assert_eq!(exported(text, "f"), wanted);
        assert_eq!(exported(wanted, "f"), wanted);
        let bounded = "__global__ void ff() {}\n__global__ __launch_bounds__(64) void f () {}";
        assert!(exported(bounded, "f").contains("}\nextern \"C\" __global__ __launch_bounds__"));
    }

    #[test]
    fn a_kernel_that_is_not_found_is_prefixed_as_torch_does() {
        assert_eq!(exported("KERNEL(f)", "f"), "extern \"C\" KERNEL(f)");
    }
}
