//! Products of matrices: by cuBLAS and cuBLASLt where they are installed, and by kernels of our own.
//!
//! - `settings`: how precisely products are computed, and by which library first;
//! - `operand`: factors and results as the libraries take them;
//! - `library`: the libraries, their handles and workspaces, and the calls;
//! - `host`: products on the host;
//! - `direct`: the short way of small products;
//! - `followed`: products that take along what follows them;
//! - `product`: one product, by whoever computes it best;
//! - `candidates`: the ways to one product that the tuner compares;
//! - `bytes`: one product of matrices of bytes, by whoever computes it best;
//! - `byte_candidates`: the ways to one such product that the tuner compares;
//! - `checks`: what products refuse, in torch's words;
//! - `operators`: `mm`, `addmm`, `bmm` and the like;
//! - `linear`: products with a bias and an activation;
//! - `int_mm`: products of 8-bit integers;
//! - `scaled`: products of 8-bit floats with scales;
//! - `einsum`: sums of products over named dimensions;
//! - `tune`: the tuner, which finds the quickest way to each product.
//!
//! Nothing here needs a library: without cuBLAS the kernels of this crate serve ([`product_library`]).

mod byte_candidates;
mod bytes;
mod candidates;
mod checks;
mod direct;
mod einsum;
pub(crate) mod followed;
mod host;
mod int_mm;
mod library;
mod linear;
pub(crate) mod operand;
mod operators;
mod product;
mod scaled;
mod settings;
pub(crate) mod tune;

use std::collections::BTreeSet;
use std::sync::PoisonError;

use c10_core::locks::Mutex;
use c10_core::{DeviceArg, Runtime};
use cuda_sys::{Cublas, CublasLt};

pub use crate::launch::own_products::Activation;
pub use einsum::einsum;
pub use scaled::ScaledMm;
pub use settings::{
    BlasBackend, Float32MatmulPrecision, Fp32Precision, ReducedPrecision, allow_fp16_accumulation, allow_tf32,
    bf16_reduction, float32_matmul_precision, fp16_reduction, fp32_precision, matmul_fp32_precision,
    preferred_blas_library, set_allow_fp16_accumulation, set_allow_tf32, set_bf16_reduction,
    set_float32_matmul_precision, set_fp16_reduction, set_fp32_precision, set_matmul_fp32_precision,
    set_preferred_blas_library,
};
pub(crate) use settings::{ProductSettings, product_settings};

pub(crate) use self::library::Slot;

use self::library::handle::Blas;
use crate::base::error::{Result, invalid};

/// What computes products on CUDA devices; answered by [`product_library`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProductLibrary {
    /// cuBLAS, and cuBLASLt where there is one.
    Cublas {
        /// Its version.
        version: String,
        /// Where it came from.
        origin: String,
        /// The version of cuBLASLt; `None` without it.
        lt_version: Option<String>,
    },
    /// Kernels of this crate.
    Own {
        /// Why it is not cuBLAS.
        reason: String,
    },
}

/// What computes products on the devices of the current runtime. Looks for cuBLAS if that was not done yet.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::blas::{ProductLibrary, product_library};
///
/// // No cuBLAS was given along with the simulated driver.
/// assert!(matches!(product_library(), ProductLibrary::Own { .. }));
/// ```
#[must_use]
pub fn product_library() -> ProductLibrary {
    Runtime::with_current(|runtime| {
        let blas = Blas::of(runtime);
        match blas.libraries.cublas(runtime) {
            Ok(cublas) => ProductLibrary::Cublas {
                version: cublas.version().to_string(),
                origin: cublas.origin().to_owned(),
                lt_version: blas.libraries.lt(runtime).ok().map(|lt| lt.version().to_string()),
            },
            Err(reason) => ProductLibrary::Own { reason },
        }
    })
}

/// Has the current runtime use these libraries from now on: simulated ones, or none, so that the kernels of this crate
/// compute. Other threads that have computed products before go on with what they have.
pub fn set_libraries(cublas: Option<Cublas>, cublaslt: Option<CublasLt>) {
    Runtime::with_current(|runtime| {
        let blas = Blas::of(runtime);
        blas.libraries.set(cublas, cublaslt);
        blas.forget_handles();
    });
}

/// The calling thread's cuBLAS handle for a device, as an address; it is bound to the device's current stream
/// (`torch.cuda.current_blas_handle`).
///
/// # Errors
/// There is no such device, no cuBLAS, or not enough memory for a workspace.
pub fn current_blas_handle(device: impl DeviceArg) -> Result<usize> {
    Runtime::with_current(|runtime| {
        let device = device.resolve(runtime)?;
        let blas = Blas::of(runtime);
        let Some(handle) = blas.handle(runtime, device)? else {
            let reason = blas.libraries.cublas(runtime).err().unwrap_or_default();
            return Err(invalid(format!("there is no cuBLAS: {reason}")));
        };
        let function = handle.function(runtime, "cublasSetStream")?;
        runtime.queue_by_library(function, device, [], |stream| handle.bind(&blas, stream))?;
        Ok(handle.raw().addr())
    })
}

/// Gives the memory back that products have kept as workspaces, on all streams (`torch._C._cuda_clearCublasWorkspaces`).
/// Products that run still keep theirs until they are done.
#[doc(alias = "_cuda_clearCublasWorkspaces")]
pub fn clear_cublas_workspaces() {
    Runtime::with_current(|runtime| Blas::of(runtime).workspaces.clear());
}

/// What the results of the tuner depend on, beside the driver and the device: keys and values of their validators.
pub(crate) fn versions(runtime: &Runtime) -> Vec<(String, String)> {
    let kernels = crate::launch::library::products_fingerprint();
    let blas = Blas::of(runtime);
    let version = |found: Option<String>| found.unwrap_or_else(|| "none".to_owned());
    let cublas = blas.libraries.cublas(runtime).ok().map(|library| library.version().to_string());
    let lt = blas.libraries.lt(runtime).ok().map(|library| library.version().to_string());
    vec![
        ("KERNELS".to_owned(), format!("{kernels:032x}")),
        ("CUBLAS_VERSION".to_owned(), version(cublas)),
        ("CUBLASLT_VERSION".to_owned(), version(lt)),
    ]
}

/// Warns the person who runs the program, once for each text.
fn warn(text: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
        c10_core::warn(text);
    }
}
