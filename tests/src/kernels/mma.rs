//! What `mma.cu` must leave behind. All sums are whole numbers that their types hold.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::{BRAIN, HALF, Small, words};

const FILE: &str = "mma";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "mma_bf16", |device| sixteen(device, "mma_bf16", BRAIN)).since(80),
    Case::new(FILE, "mma_f16", |device| sixteen(device, "mma_f16", HALF)).since(80),
    Case::new(FILE, "mma_f16_sums_f16", mma_f16_sums_f16).since(80),
    Case::new(FILE, "mma_tf32", mma_tf32).since(80),
    Case::new(FILE, "mma_int8", mma_int8).since(80),
    Case::new(FILE, "mma_pipeline", mma_pipeline).since(80),
];

/// Whole numbers up to a size.
fn small(seed: u64, count: usize, most: i32) -> Vec<i32> {
    let range = u64::from(most.unsigned_abs()) * 2 + 1;
    words(seed, count).iter().map(|word| i32::try_from(word % range).unwrap_or_default() - most).collect()
}

/// `a` by rows of length `k`, times `b`, whose element `(i, column)` a function knows; 16 x `columns` sums.
fn product(a: &[i32], k: usize, columns: usize, b: impl Fn(usize, usize) -> i32) -> Vec<i32> {
    let element = |row: usize, column: usize| (0..k).map(|i| a[row * k + i] * b(i, column)).sum();
    (0..16 * columns).map(|i| element(i / columns, i % columns)).collect()
}

fn bits(small: Small, values: &[i32]) -> Vec<u16> {
    values.iter().map(|&value| small.bits(f64::from(value))).collect()
}

fn real(values: &[i32]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn sixteen(device: &Device<'_>, kernel: &str, ty: Small) -> Answer {
    let (a, b) = (small(71, 256, 9), small(72, 128, 9));
    let (on_a, on_b, to) = (device.put(&bits(ty, &a))?, device.put(&bits(ty, &b))?, device.zeros::<f32>(128)?);
    device.run(kernel, 1, 32, &[(&to).into(), (&on_a).into(), (&on_b).into()])?;
    let mut wanted = product(&a, 16, 8, |i, column| b[column * 16 + i]);
    for (i, sum) in wanted.iter_mut().enumerate() {
        *sum += i32::from(i % 2 == 1) + if i >= 64 { 3 } else { 1 };
    }
    same(kernel, &to.to_vec()?, &real(&wanted))
}

fn mma_f16_sums_f16(device: &Device<'_>) -> Answer {
    let (a, b) = (small(73, 256, 9), small(74, 128, 9));
    let (on_a, on_b, to) = (device.put(&bits(HALF, &a))?, device.put(&bits(HALF, &b))?, device.zeros::<u16>(128)?);
    device.run("mma_f16_sums_f16", 1, 32, &[(&to).into(), (&on_a).into(), (&on_b).into()])?;
    same("mma_f16_sums_f16", &to.to_vec()?, &bits(HALF, &product(&a, 16, 8, |i, column| b[column * 16 + i])))
}

fn mma_tf32(device: &Device<'_>) -> Answer {
    let (a, b) = (small(75, 128, 900), small(76, 64, 900));
    let (on_a, on_b, to) = (device.put(&real(&a))?, device.put(&real(&b))?, device.zeros::<f32>(128)?);
    device.run("mma_tf32", 1, 32, &[(&to).into(), (&on_a).into(), (&on_b).into()])?;
    same("mma_tf32", &to.to_vec()?, &real(&product(&a, 8, 8, |i, column| b[column * 8 + i])))
}

fn mma_int8(device: &Device<'_>) -> Answer {
    let (a, b) = (small(77, 512, 127), small(78, 256, 127));
    let bytes = |values: &[i32]| values.iter().map(|&value| value.to_le_bytes()[0]).collect::<Vec<_>>();
    let (on_a, on_b, to) = (device.put(&bytes(&a))?, device.put(&bytes(&b))?, device.zeros::<i32>(128)?);
    device.run("mma_int8", 1, 32, &[(&to).into(), (&on_a).into(), (&on_b).into()])?;
    let wanted = product(&a, 32, 8, |i, column| b[column * 32 + i]);
    same("mma_int8", &to.to_vec()?, &wanted.iter().map(|sum| sum - 5).collect::<Vec<_>>())
}

fn mma_pipeline(device: &Device<'_>) -> Answer {
    let (k, n) = (80_usize, 24_usize);
    let (a, b) = (small(79, 16 * k, 9), small(80, k * n, 9));
    let (on_a, on_b, to) = (device.put(&bits(BRAIN, &a))?, device.put(&bits(BRAIN, &b))?, device.zeros::<f32>(16 * n)?);
    device.run("mma_pipeline", 3, 32, &[(&to).into(), (&on_a).into(), (&on_b).into(), 80_i32.into(), 24_i32.into()])?;
    same("mma_pipeline", &to.to_vec()?, &real(&product(&a, k, n, |i, column| b[i * n + column])))
}
