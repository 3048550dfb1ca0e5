//! Layouts of views, validated before a view is created.
//!
//! **Invariants:** every view and every new tensor is checked here ([`check_inside`], [`checked_reach`]). Sizes,
//! strides and offsets are not negative, and every element is inside the storage. Strides and the number of elements
//! (an empty dimension counts as one) are at most [`LARGEST`]. Strides in bytes, contiguous strides and distances
//! between elements therefore fit into `i64` without further checks. Code that computes a layout uses saturating
//! arithmetic: a saturated number exceeds the limit and is rejected here.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result, TensorError};

/// Largest stride, offset and number of elements. Multiplied by the largest element, 16 bytes, it still fits into
/// `i64`.
pub(crate) const LARGEST: i64 = i64::MAX / 16;

/// Checks that a view is inside a storage of `available` bytes.
///
/// # Errors
/// A size, a stride or the offset is negative, their products overflow, or an element is outside the storage.
#[inline]
pub(crate) fn check_inside(available: usize, dtype: DType, sizes: &[i64], strides: &[i64], offset: i64) -> Result<()> {
    let end = reach(sizes, strides, offset).and_then(|end| bytes_of(end, dtype));
    match end {
        Some(end) if end <= available && sizes.len() == strides.len() => Ok(()),
        _ => Err(refused(sizes, strides, offset, Some((available, dtype)))),
    }
}

/// Returns the number of bytes from the first element to the end of the last one; zero if there are no elements.
///
/// # Errors
/// A size or a stride is negative, or their products overflow.
#[inline]
pub(crate) fn checked_reach(dtype: DType, sizes: &[i64], strides: &[i64]) -> Result<usize> {
    let bytes = reach(sizes, strides, 0).and_then(|end| bytes_of(end, dtype));
    match bytes {
        Some(bytes) if sizes.len() == strides.len() => Ok(bytes),
        _ => Err(refused(sizes, strides, 0, None)),
    }
}

/// Returns the number of elements up to the end of the last one, zero if there are no elements; `None` for an invalid
/// layout.
#[inline]
fn reach(sizes: &[i64], strides: &[i64], offset: i64) -> Option<i64> {
    let (mut count, mut is_empty, mut last) = (1_i64, false, Some(offset));
    if !(0..=LARGEST).contains(&offset) {
        return None;
    }
    for (&size, &stride) in sizes.iter().zip(strides) {
        if size < 0 || !(0..=LARGEST).contains(&stride) {
            return None;
        }
        if size == 0 {
            is_empty = true;
            continue;
        }
        count = count.checked_mul(size).filter(|count| *count <= LARGEST)?;
        // An empty view accesses nothing, however far the offset is.
        last = last.and_then(|last| last.checked_add((size - 1).checked_mul(stride)?));
    }
    if is_empty { Some(0) } else { last?.checked_add(1) }
}

fn bytes_of(elements: i64, dtype: DType) -> Option<usize> {
    usize::try_from(elements).ok()?.checked_mul(dtype.itemsize())
}

/// Builds torch's error for an invalid layout.
#[cold]
fn refused(sizes: &[i64], strides: &[i64], offset: i64, storage: Option<(usize, DType)>) -> Error {
    if sizes.len() != strides.len() {
        let (sizes, strides) = (sizes.len(), strides.len());
        let text = format!("mismatch in length of strides and shape: {strides} strides for {sizes} sizes");
        return TensorError::Invalid(text).into();
    }
    if let Some(stride) = strides.iter().find(|&&stride| stride < 0) {
        let text =
            format!("as_strided: Negative strides are not supported at the moment, got strides: {strides:?}, {stride}");
        return TensorError::Invalid(text).into();
    }
    if offset < 0 {
        return TensorError::Invalid(format!("Tensor: invalid storage offset {offset}")).into();
    }
    match (storage, reach(sizes, strides, offset)) {
        (Some((available, dtype)), Some(end)) => TensorError::OutOfStorage {
            sizes: sizes.to_vec(),
            strides: strides.to_vec(),
            offset,
            itemsize: dtype.itemsize(),
            required: bytes_of(end, dtype).and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(i64::MAX),
            available,
        }
        .into(),
        _ => TensorError::ReachTooLarge { sizes: sizes.to_vec(), strides: strides.to_vec() }.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates numbers near zero, near the limits and near the ends of `i64`.
    fn number() -> impl Strategy<Value = i64> {
        let near = |center: i64| (-3..=3_i64).prop_map(move |step| center.saturating_add(step));
        prop_oneof![
            8 => 0..6_i64,
            1 => near(0),
            1 => near(LARGEST),
            1 => near(i64::MAX),
            1 => near(i64::MIN),
            1 => (0..63_u32).prop_map(|bits| 1_i64 << bits),
            1 => any::<i64>(),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// The checks accept exactly the layouts that 128-bit arithmetic finds inside the storage.
        #[test]
        fn checks_agree_with_wide_arithmetic(
            dims in prop::collection::vec((number(), number()), 0..5),
            offset in number(),
            available in prop_oneof![0..600_usize, Just(usize::MAX / 2)],
            dtype in prop::sample::select(DType::ALL.to_vec()),
        ) {
            let (sizes, strides): (Vec<i64>, Vec<i64>) = dims.into_iter().unzip();
            let wide = |numbers: &[i64]| numbers.iter().copied().map(i128::from).collect::<Vec<i128>>();
            let (wide_sizes, wide_strides, limit) = (wide(&sizes), wide(&strides), i128::from(LARGEST));
            let is_good = wide_sizes.iter().all(|size| *size >= 0)
                && wide_strides.iter().chain([&i128::from(offset)]).all(|number| (0..=limit).contains(number))
                // Four sizes of 63 bits have a product of up to 252 bits.
                && wide_sizes.iter().try_fold(1_i128, |count, size| count.checked_mul((*size).max(1)))
                    .is_some_and(|count| count <= limit);
            let last: Option<i128> = wide_sizes.iter().zip(&wide_strides)
                .try_fold(i128::from(offset), |sum, (size, stride)| sum.checked_add((size - 1).checked_mul(*stride)?));
            let end = if wide_sizes.contains(&0) { Some(0) } else { last.map(|last| last + 1) };
            let itemsize = i128::try_from(dtype.itemsize()).expect("it fits");
            let bytes = end.and_then(|end| end.checked_mul(itemsize));
            let fits = bytes.is_some_and(|bytes| bytes <= i128::try_from(available).expect("it fits"));
            prop_assert_eq!(check_inside(available, dtype, &sizes, &strides, offset).is_ok(), is_good && fits);
        }
    }
}
