//! `torch.backends.cuda`: which libraries compute, and how precisely.

mod attention;
pub mod matmul;

pub use attention::*;

pub use aten_cuda::blas::{
    BlasBackend, ProductLibrary, preferred_blas_library, product_library, set_preferred_blas_library,
};

pub use aten_cuda::fft::{PlanCache, loaded_library as cufft_library, plan_cache as cufft_plan_cache};
pub use aten_cuda::linalg::loaded_library as cusolver_library;
pub use aten_cuda::linalg::{LinalgBackend, preferred_linalg_library, set_preferred_linalg_library};

/// Whether the program can use CUDA devices at all, which says nothing of whether there is one
/// (`torch.backends.cuda.is_built`). It always can: the driver is loaded when it is first needed.
///
/// ```
/// assert!(cuda_api::backends::cuda::is_built());
/// ```
#[must_use]
pub fn is_built() -> bool {
    true
}
