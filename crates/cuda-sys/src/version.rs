//! Version numbers of CUDA and of its libraries.

use std::fmt;

/// A CUDA version as the driver writes it: 1000 * major + 10 * minor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion(pub u32);

impl CudaVersion {
    /// Major version, for example 12 of 12.8.
    #[must_use]
    pub const fn major(self) -> u32 {
        self.0 / 1000
    }

    /// Minor version, for example 8 of 12.8.
    #[must_use]
    pub const fn minor(self) -> u32 {
        self.0 % 1000 / 10
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

impl fmt::Debug for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaVersion({self})")
    }
}

/// Version of a library of the CUDA toolkit, which counts for itself: cuBLAS 13.1 came with CUDA 13.0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LibraryVersion {
    /// Changes with the interface.
    pub major: u32,
    /// Changes with new functions.
    pub minor: u32,
    /// Changes with corrections.
    pub patch: u32,
}

impl fmt::Display for LibraryVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
