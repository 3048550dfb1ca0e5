//! When the driver loads code.

use std::fmt;

/// When the driver loads the functions of a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ModuleLoading {
    /// Each when it is first used, which saves time and memory at the start.
    Lazy,
    /// All with their module.
    Eager,
}

impl fmt::Display for ModuleLoading {
    /// Writes the values of `CUDA_MODULE_LOADING`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lazy => "LAZY",
            Self::Eager => "EAGER",
        })
    }
}
