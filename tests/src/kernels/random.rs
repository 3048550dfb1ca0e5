//! What `random.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::low;

const FILE: &str = "random";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "philox_words", philox_words),
    Case::new(FILE, "philox_uniform", philox_uniform),
    Case::new(FILE, "philox_normal", philox_normal),
];

const SEED: u64 = 0x1234_5678_9ABC_DEF0;
const OFFSET: u64 = 0x3_0000_0007;
const THREADS: u32 = 200;

fn philox(mut counter: [u32; 4], seed: u64) -> [u32; 4] {
    let (mut first, mut second) = (low(seed), low(seed >> 32));
    for _ in 0..10 {
        let left = 0xD251_1F53 * u64::from(counter[0]);
        let right = 0xCD9E_8D57 * u64::from(counter[2]);
        counter = [low(right >> 32) ^ counter[1] ^ first, low(right), low(left >> 32) ^ counter[3] ^ second, low(left)];
        first = first.wrapping_add(0x9E37_79B9);
        second = second.wrapping_add(0xBB67_AE85);
    }
    counter
}

/// What all threads draw.
fn drawn() -> Vec<u32> {
    (0..THREADS).flat_map(|thread| philox([low(OFFSET), low(OFFSET >> 32), thread, 0], SEED)).collect()
}

/// As the kernel makes a number in (0, 1] of a word.
fn unit(word: u32) -> f32 {
    (word as f32).mul_add(2.328_306_4e-10, 1.164_153_2e-10)
}

fn philox_words(device: &Device<'_>) -> Answer {
    // The first answer that the authors of Philox publish.
    same("philox of zeros", &philox([0; 4], 0), &[0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8])?;
    let target = device.zeros::<u32>(800)?;
    device.run("philox_words", 4, 50, &[(&target).into(), SEED.into(), OFFSET.into()])?;
    same("philox_words", &target.to_vec()?, &drawn())
}

fn philox_uniform(device: &Device<'_>) -> Answer {
    let target = device.zeros::<f32>(800)?;
    device.run("philox_uniform", 4, 50, &[(&target).into(), SEED.into(), OFFSET.into()])?;
    same("philox_uniform", &target.to_vec()?, &drawn().into_iter().map(unit).collect::<Vec<_>>())
}

fn philox_normal(device: &Device<'_>) -> Answer {
    let target = device.zeros::<f32>(800)?;
    device.run("philox_normal", 4, 50, &[(&target).into(), SEED.into(), OFFSET.into()])?;
    let pair = |words: &[u32]| {
        let radius = (-2.0 * f64::from(unit(words[0])).ln()).sqrt();
        let turn = f64::from(6.283_185_5_f32 * unit(words[1]));
        [radius * turn.cos(), radius * turn.sin()]
    };
    let wanted: Vec<f64> = drawn().chunks(2).flat_map(pair).collect();
    device.within("philox_normal, of magnitude", &target.to_vec()?, &wanted, 1e-6)
}
