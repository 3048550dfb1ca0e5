//! The end: everything that was taken has been given back.

use examples::checks::{Failure, bytes, equal};

use crate::say;

/// Empties the cache and looks at the statistics.
pub(crate) fn is_back_at_zero() -> Result<(), Failure> {
    cuda_api::synchronize(None)?;
    // Where cuBLAS is installed, products have kept memory to work in.
    cuda_api::clear_cublas_workspaces();
    cuda_api::empty_cache()?;
    let (allocated, reserved) = (cuda_api::memory_allocated(None)?, cuda_api::memory_reserved(None)?);
    say(format!("  allocated {}, reserved {}", bytes(allocated), bytes(reserved)));
    equal("bytes allocated at the end", 0, allocated)?;
    equal("bytes reserved at the end", 0, reserved)
}
