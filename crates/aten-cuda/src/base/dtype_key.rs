//! Dtypes in the keys of caches.
//!
//! **Invariant:** a dtype takes a byte, so that keys tell more dtypes apart than there are. The highest code stands for a
//! number beside tensors, and codes leave the highest bit free for keys that mark numbers with it.

use crate::base::dtype::DType;

/// Code of an operand that is a number, or that is left out.
const NUMBER: u8 = 0xff;

// Adding a dtype that would be taken for a number, or for a marked one, does not compile.
const _: () = {
    let mut at = 0;
    while at < DType::ALL.len() {
        assert!((DType::ALL[at] as usize) < 0x7f, "codes of dtypes have seven bits in the keys of caches");
        at += 1;
    }
};

/// Packs dtypes into a word, a byte for each, the last one lowest. A number has no dtype.
pub(crate) fn packed<const N: usize>(dtypes: [Option<DType>; N]) -> u64 {
    const { assert!(N <= 8, "a word has eight bytes") }
    dtypes.into_iter().fold(0, |word, dtype| word << 8 | u64::from(code(dtype)))
}

/// Packs the common dtype of an operation and those of up to 14 tensors. Keys of different numbers of tensors differ.
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
