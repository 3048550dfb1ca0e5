//! Fallible allocation of vectors whose length comes from a caller, a file or another process.
//!
//! The standard library aborts the process if such a vector does not fit into memory; these functions return
//! [`MemoryError::HostAllocation`]. Vectors of a small, fixed length do not need them.
//!
//! **Invariant:** memory is reserved once, for the full length, before anything is computed.

use bytemuck::Zeroable;

use super::error::{Error, MemoryError, Result};

/// Returns an empty vector with room for `count` elements.
///
/// ```
/// let refused = c10_core::host_memory::with_capacity::<u64>(usize::MAX).unwrap_err();
/// assert!(refused.is_out_of_memory());
/// assert!(refused.to_string().starts_with("DefaultCPUAllocator: can't allocate memory"));
/// ```
///
/// # Errors
/// [`MemoryError::HostAllocation`].
pub fn with_capacity<T>(count: usize) -> Result<Vec<T>> {
    let mut made = Vec::new();
    made.try_reserve_exact(count).map_err(|_| refused::<T>(count))?;
    Ok(made)
}

/// Returns `count` elements whose bytes are all zero. Pages that are never written occupy no physical memory.
///
/// ```
/// assert_eq!(c10_core::host_memory::zeroed::<u32>(2)?, [0, 0]);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// [`MemoryError::HostAllocation`].
pub fn zeroed<T: Zeroable>(count: usize) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| refused::<T>(count))
}

/// Returns `count` clones of a value.
///
/// ```
/// assert_eq!(c10_core::host_memory::filled(7, 3)?, [7, 7, 7]);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// [`MemoryError::HostAllocation`].
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut made = with_capacity(count)?;
    made.resize(count, value);
    Ok(made)
}

/// Returns a copy of a slice.
///
/// ```
/// assert_eq!(c10_core::host_memory::copied(&[1, 2])?, [1, 2]);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// [`MemoryError::HostAllocation`].
pub fn copied<T: Clone>(elements: &[T]) -> Result<Vec<T>> {
    let mut made = with_capacity(elements.len())?;
    made.extend_from_slice(elements);
    Ok(made)
}

/// Collects at most `count` elements of an iterator.
///
/// ```
/// assert_eq!(c10_core::host_memory::collected(2, 5..)?, [5, 6]);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// [`MemoryError::HostAllocation`].
pub fn collected<T>(count: usize, elements: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let mut made = with_capacity(count)?;
    // `take` stops an iterator that yields more than `count` elements from growing the vector.
    made.extend(elements.into_iter().take(count));
    Ok(made)
}

#[cold]
fn refused<T>(count: usize) -> Error {
    Error::Memory(MemoryError::HostAllocation { bytes: count.saturating_mul(size_of::<T>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_any_memory_are_refused() {
        let bytes = usize::MAX / 8 * 8;
        let expected = Error::Memory(MemoryError::HostAllocation { bytes });
        assert_eq!(with_capacity::<u64>(bytes / 8).unwrap_err(), expected);
        assert_eq!(zeroed::<u64>(bytes / 8).unwrap_err(), expected);
        assert_eq!(filled(7_u64, bytes / 8).unwrap_err(), expected);
        assert_eq!(collected(bytes / 8, 0_u64..).unwrap_err(), expected);
    }

    #[test]
    fn lengths_that_fit_are_served() {
        assert_eq!((zeroed::<u32>(2), filled(3, 2)), (Ok(vec![0, 0]), Ok(vec![3, 3])));
        assert_eq!((copied(&[1, 2]), collected(2, 5..)), (Ok(vec![1, 2]), Ok(vec![5, 6])));
        assert_eq!(zeroed::<u32>(0), Ok(Vec::new()));
    }
}
