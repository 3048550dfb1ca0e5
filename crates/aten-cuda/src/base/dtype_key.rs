//! Packs dtypes into cache keys.
//!
//! **Invariant:** each dtype takes one byte. The code `NUMBER` denotes a scalar operand. Codes of dtypes leave the
//! highest bit free, for keys that flag scalars with it.

use crate::base::dtype::DType;

/// Code of an operand that is a scalar or is absent.
const NUMBER: u8 = 0xff;

// Adding a dtype whose code collides with `NUMBER` or with the flag bit does not compile.
const _: () = {
    let mut at = 0;
    while at < DType::ALL.len() {
        assert!((DType::ALL[at] as usize) < 0x7f, "codes of dtypes have seven bits in the keys of caches");
        at += 1;
    }
};

/// Packs dtypes into a word, one byte each, the last in the lowest byte. `None` denotes a scalar.
pub(crate) fn packed<const N: usize>(dtypes: [Option<DType>; N]) -> u64 {
    const { assert!(N <= 8, "a word has eight bytes") }
    dtypes.into_iter().fold(0, |word, dtype| word << 8 | u64::from(code(dtype)))
}

/// Packs the common dtype and the dtypes of up to 14 tensors. Keys for different tensor counts differ.
pub(crate) fn packed_all(common: DType, dtypes: &[DType]) -> u128 {
    debug_assert!(dtypes.len() <= 14, "a key has sixteen bytes");
    let first = 0x100 | u128::from(code(Some(common)));
    dtypes.iter().fold(first, |key, &dtype| key << 8 | u128::from(code(Some(dtype))))
}

fn code(dtype: Option<DType>) -> u8 {
    dtype.map_or(NUMBER, |dtype| dtype as u8)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_pair_of_dtypes_and_numbers_has_another_word() {
        let kinds: Vec<Option<DType>> = DType::ALL.into_iter().map(Some).chain([None]).collect();
        let words: HashSet<u64> = kinds.iter().flat_map(|&a| kinds.iter().map(move |&b| packed([a, b]))).collect();
        assert_eq!(words.len(), kinds.len() * kinds.len());
    }

    #[test]
    fn keys_tell_how_many_tensors_there_are() {
        let zero = DType::ALL[0];
        let keys: HashSet<u128> = (0..=14).map(|count| packed_all(zero, &vec![zero; count])).collect();
        assert_eq!(keys.len(), 15);
    }
}
