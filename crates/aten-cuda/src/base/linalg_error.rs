//! What can go wrong with factorisations and Fourier transforms.
//!
//! Where torch has a text for it, the text is torch's first line.

use cuda_sys::{CufftError, CusolverError};

/// Why a matrix was not factorised, or a signal not transformed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinalgError {
    /// A matrix has no Cholesky factor.
    #[error(
        "linalg.cholesky: {}The factorization could not be completed because the input is not positive-definite (the leading \
         minor of order {order} is not positive-definite).", element(*batch)
    )]
    NotPositive {
        /// Which matrix of a batch.
        batch: Option<usize>,
        /// Order of the first leading minor that is not positive.
        order: i32,
    },
    /// A system of equations has no solution, or several.
    #[error("torch.linalg.solve: {}The solver failed because the input matrix is singular.", element(*batch))]
    Singular {
        /// Which matrix of a batch.
        batch: Option<usize>,
    },
    /// Singular values were not found.
    #[error("linalg.svd: {}The algorithm failed to converge because the input matrix is ill-conditioned.", element(*batch))]
    NotConverged {
        /// Which matrix of a batch.
        batch: Option<usize>,
    },
    /// A library that an operation needs on a CUDA device is not there.
    #[error("{operation} on CUDA tensors needs {library}, which is not there: {reason}")]
    Missing {
        /// The operation as torch names it.
        operation: &'static str,
        /// The library.
        library: &'static str,
        /// What was looked for and found.
        reason: String,
    },
    /// A call to cuSOLVER did not succeed.
    #[error("cusolver error: {}, when calling `{}( {arguments} )`", solver_status(cause), cause.call())]
    Solver {
        /// What the library said, with the function's name.
        #[source]
        cause: CusolverError,
        /// The values that shape the call.
        arguments: String,
    },
    /// A call to cuFFT did not succeed.
    #[error("cuFFT error: {} in {}( {arguments} )", transform_status(cause), cause.call())]
    Transform {
        /// What the library said, with the function's name.
        #[source]
        cause: CufftError,
        /// The values that shape the call.
        arguments: String,
    },
}

fn element(batch: Option<usize>) -> String {
    batch.map_or(String::new(), |batch| format!("(Batch element {batch}): "))
}

fn solver_status(cause: &CusolverError) -> String {
    cause.status().map_or_else(|| cause.to_string(), |status| format!("{status:?}"))
}

fn transform_status(cause: &CufftError) -> String {
    cause.status().map_or_else(|| cause.to_string(), |status| format!("{status:?}"))
}
