//! Philox4x32-10, the generator behind all random numbers of CUDA devices (Salmon and others, 2011): four words for each
//! number of a block, from a seed and the number of a subsequence.

/// The four words of a block: `block` counts within the subsequence, of which each thread of a launch has one of its own.
///
/// A generator's offset counts words, so that the block at an offset has the number `offset / 4`.
///
/// ```
/// use aten_cuda::random::philox;
///
/// assert_eq!(philox(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
/// assert_eq!(philox(0, 0, 1), [0x8445_15e1, 0xf08d_6eaa, 0x0f19_c053, 0x83f8_75f0]);
/// ```
#[must_use]
pub fn philox(seed: u64, block: u64, subsequence: u64) -> [u32; 4] {
    let [mut key0, mut key1] = halves(seed);
    let ([a, b], [c, d]) = (halves(block), halves(subsequence));
    let mut counter = [a, b, c, d];
    for _ in 0..10 {
        let [left_low, left_high] = halves(0xD251_1F53 * u64::from(counter[0]));
        let [right_low, right_high] = halves(0xCD9E_8D57 * u64::from(counter[2]));
        counter = [right_high ^ counter[1] ^ key0, right_low, left_high ^ counter[3] ^ key1, left_low];
        key0 = key0.wrapping_add(0x9E37_79B9);
        key1 = key1.wrapping_add(0xBB67_AE85);
    }
    counter
}

/// The low and the high word.
#[expect(clippy::cast_possible_truncation, reason = "the words are the halves of the number")]
const fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}
