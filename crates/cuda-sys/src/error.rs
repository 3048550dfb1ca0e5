//! Why a call through a function table failed.

use std::error::Error;
use std::fmt;

use crate::{CudaVersion, FunctionInfo};

/// A library's status type: an open number with names and texts from built-in tables.
pub trait Status: Copy + Eq + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Whether this is the library's success code.
    fn is_success(self) -> bool;
}

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CallError<S> {
    /// The loaded library does not have the function.
    Missing(MissingFunction),
    /// The function answered with a status other than success.
    Failed {
        /// Symbol that was called, for example `cuMemAlloc_v2`.
        call: &'static str,
        /// What it answered.
        status: S,
    },
}

impl<S: Status> CallError<S> {
    /// The status the library answered with; `None` when the function was missing and nothing was called.
    #[must_use]
    pub fn status(&self) -> Option<S> {
        match self {
            Self::Missing(_) => None,
            Self::Failed { status, .. } => Some(*status),
        }
    }

    /// The symbol that was called or looked for.
    #[must_use]
    pub fn call(&self) -> &'static str {
        match self {
            Self::Missing(missing) => missing.function.symbol,
            Self::Failed { call, .. } => call,
        }
    }
}

/// A function that the loaded library does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingFunction {
    /// The function, with the version that introduced it.
    pub function: &'static FunctionInfo,
    /// Version of the loaded library; 0 for libraries whose functions come without one.
    pub found: CudaVersion,
}

impl fmt::Display for MissingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, found } = self;
        let needs = function.version;
        if needs == CudaVersion(0) {
            return write!(f, "{} is missing from the loaded library; a newer one may have it", function.symbol);
        }
        if needs > *found {
            return write!(f, "{} needs CUDA {needs}, but the loaded driver supports CUDA {found}", function.symbol);
        }
        write!(
            f,
            "{} is missing from the loaded driver (CUDA {found}; the function came with CUDA {needs})",
            function.symbol
        )
    }
}

impl<S: Status> fmt::Display for CallError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Failed { call, status } => write!(f, "{call}: {status}"),
        }
    }
}

impl<S: Status> fmt::Debug for CallError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Failed { call, status } => write!(f, "{call} -> {status:?}"),
        }
    }
}

impl<S: Status> Error for CallError<S> {}
