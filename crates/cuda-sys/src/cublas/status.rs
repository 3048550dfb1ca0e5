//! Names of `cublasStatus_t`, and the text that torch prints of a call that failed.

use std::fmt;

use super::CublasError;
use super::codes::NAMES;
use super::types::cublasStatus_t;
use crate::toolkit::toolkit_status;

toolkit_status!(cublasStatus_t, CUBLAS_STATUS_SUCCESS);

impl CublasError {
    /// The error in torch's words, given the arguments as torch spells them:
    /// ``CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasSgemm( handle, opa, ... )` ``.
    ///
    /// A function that the library lacks is told by this error's own text.
    pub fn when_calling(&self, arguments: impl fmt::Display) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.status() {
            // The versions of functions are hidden by the header's macros, whose names torch prints.
            Some(status) => {
                let function = self.call().strip_suffix("_v2").unwrap_or(self.call());
                let name = status.name().unwrap_or("Unrecognized CUBLAS error");
                write!(f, "CUDA error: {name} when calling `{function}( {arguments} )`")
            }
            None => write!(f, "CUDA error: {self}"),
        })
    }
}
