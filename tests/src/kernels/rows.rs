//! What `rows.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::floats;

const FILE: &str = "rows";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "softmax_rows", softmax_rows),
    Case::new(FILE, "layer_norm_rows", layer_norm_rows),
    Case::new(FILE, "welford_rows", welford_rows),
];

const COLUMNS: usize = 200;

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

fn softmax_rows(device: &Device<'_>) -> Answer {
    let from = floats(31, 4 * COLUMNS, -8.0, 8.0);
    let (source, target) = (device.put(&from)?, device.zeros::<f32>(4 * COLUMNS)?);
    device.run("softmax_rows", 4, 96, &[(&target).into(), (&source).into(), 200_u32.into()])?;
    let row = |row: &[f32]| {
        let powers: Vec<f64> = wide(row).iter().map(|value| value.exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(move |power| power / sum).collect::<Vec<_>>()
    };
    device.within(
        "softmax_rows, of 1",
        &target.to_vec()?,
        &from.chunks(COLUMNS).flat_map(row).collect::<Vec<_>>(),
        1e-6,
    )
}

fn layer_norm_rows(device: &Device<'_>) -> Answer {
    let from = floats(32, 4 * COLUMNS, -3.0, 8.0);
    let (weight, bias) = (floats(33, COLUMNS, 0.0, 2.0), floats(34, COLUMNS, -1.0, 1.0));
    let (source, target) = (device.put(&from)?, device.zeros::<f32>(4 * COLUMNS)?);
    let (on_weight, on_bias) = (device.put(&weight)?, device.put(&bias)?);
    let arguments =
        [(&target).into(), (&source).into(), (&on_weight).into(), (&on_bias).into(), 1e-5_f32.into(), 200_u32.into()];
    device.run("layer_norm_rows", 4, 128, &arguments)?;
    let row = |row: &[f32]| {
        let (row, count) = (wide(row), COLUMNS as f64);
        let mean = row.iter().sum::<f64>() / count;
        let spread = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let one = |(i, value): (usize, &f64)| {
            (value - mean) / (spread + 1e-5).sqrt() * f64::from(weight[i]) + f64::from(bias[i])
        };
        row.iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let wanted: Vec<f64> = from.chunks(COLUMNS).flat_map(row).collect();
    device.within("layer_norm_rows, of magnitude", &target.to_vec()?, &wanted, 2e-6)
}

fn welford_rows(device: &Device<'_>) -> Answer {
    let from = floats(35, 40 * 30, -3.0, 8.0);
    let (source, target) = (device.put(&from)?, device.zeros::<f64>(80)?);
    device.run("welford_rows", 2, 20, &[(&target).into(), (&source).into(), 30_u32.into()])?;
    let row = |row: &[f32]| {
        let (mut mean, mut spread) = (0.0, 0.0);
        for (value, count) in wide(row).into_iter().zip(1_u32..) {
            let delta = value - mean;
            mean += delta / f64::from(count);
            spread += delta * (value - mean);
        }
        [mean, spread / 30.0]
    };
    same("welford_rows", &target.to_vec()?, &from.chunks(30).flat_map(row).collect::<Vec<_>>())
}
