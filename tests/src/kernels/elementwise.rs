//! What `elementwise.cu` must leave behind.

use super::device::{Answer, Device, same};
use super::numbers::{BRAIN, doubles, floats, short_words, words};
use super::{Case, math};

const FILE: &str = "elementwise";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "axpy", axpy),
    Case::new(FILE, "scale_by_fours", scale_by_fours),
    Case::new(FILE, "add_pairs_of_doubles", add_pairs_of_doubles),
    Case::new(FILE, "saturating_bytes", saturating_bytes),
    Case::new(FILE, "gather_strided", gather_strided),
    Case::new(FILE, "place_in_grid", place_in_grid),
    Case::new(FILE, "gelu_bf16", gelu_bf16),
];

fn axpy(device: &Device<'_>) -> Answer {
    let (x, y) = (floats(1, 1000, -5.0, 5.0), floats(2, 1000, -5.0, 5.0));
    let (on_x, on_y) = (device.put(&x)?, device.put(&y)?);
    device.run("axpy", 3, 64, &[(&on_y).into(), (&on_x).into(), 0.7_f32.into(), 1000_u32.into()])?;
    let wanted: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 0.7_f32.mul_add(*x, *y)).collect();
    same("axpy", &on_y.to_vec()?, &wanted)
}

fn scale_by_fours(device: &Device<'_>) -> Answer {
    let from = floats(3, 515, -5.0, 5.0);
    let (source, target) = (device.put(&from)?, device.zeros::<f32>(515)?);
    let arguments = [(&target).into(), (&source).into(), 1.3_f32.into(), 515_u32.into()];
    device.run("scale_by_fours", 2, 96, &arguments)?;
    same("scale_by_fours", &target.to_vec()?, &from.iter().map(|value| value * 1.3).collect::<Vec<_>>())
}

fn add_pairs_of_doubles(device: &Device<'_>) -> Answer {
    let (a, b) = (doubles(4, 200, -1.0, 1.0), doubles(5, 200, -1e-9, 1e9));
    let (on_a, on_b, to) = (device.put(&a)?, device.put(&b)?, device.zeros::<f64>(200)?);
    let arguments = [(&to).into(), (&on_a).into(), (&on_b).into(), 100_u32.into()];
    device.run("add_pairs_of_doubles", 2, 64, &arguments)?;
    let wanted: Vec<f64> =
        a.iter().zip(&b).enumerate().map(|(i, (a, b))| if i % 2 == 0 { a + b } else { a - b }).collect();
    same("add_pairs_of_doubles", &to.to_vec()?, &wanted)
}

fn saturating_bytes(device: &Device<'_>) -> Answer {
    let from: Vec<u8> = words(6, 400).iter().map(|word| word.to_le_bytes()[0]).collect();
    for step in [-100_i32, 0, 77] {
        let (source, target) = (device.put(&from)?, device.zeros::<u8>(400)?);
        device.run("saturating_bytes", 2, 64, &[(&target).into(), (&source).into(), step.into(), 100_u32.into()])?;
        let step = i16::try_from(step)?;
        let wanted: Vec<u8> = from.iter().map(|&byte| byte.saturating_add_signed_wide(step)).collect();
        same("saturating_bytes", &target.to_vec()?, &wanted)?;
    }
    Ok(())
}

trait Saturating {
    fn saturating_add_signed_wide(self, step: i16) -> Self;
}

impl Saturating for u8 {
    fn saturating_add_signed_wide(self, step: i16) -> Self {
        Self::try_from((i16::from(self) + step).clamp(0, 255)).unwrap_or(Self::MAX)
    }
}

fn gather_strided(device: &Device<'_>) -> Answer {
    let from: Vec<i16> = (0..2000).collect();
    let (size, strides) = ([6_i64, 5, 7], [240_i64, -3, 20]);
    let first = 100_usize;
    let (source, target) = (device.put(&from)?, device.zeros::<i16>(210)?);
    let plain = [size, strides].concat();
    let plain: [i64; 6] = plain.try_into().map_err(|_| "six")?;
    let start = source.slice(first..)?;
    device.run("gather_strided", 4, 64, &[(&target).into(), (&start).into(), (&plain).into(), 210_i64.into()])?;
    let mut wanted = Vec::new();
    for (x, y, z) in (0..6).flat_map(|x| (0..5).flat_map(move |y| (0..7).map(move |z| (x, y, z)))) {
        wanted.push(i16::try_from(100 + x * strides[0] + y * strides[1] + z * strides[2])?);
    }
    same("gather_strided", &target.to_vec()?, &wanted)
}

fn place_in_grid(device: &Device<'_>) -> Answer {
    let (grid, block) = ([3_u32, 2, 4], [5_u32, 3, 6]);
    let each = |sizes: [u32; 3]| {
        (0..sizes[2]).flat_map(move |z| (0..sizes[1]).flat_map(move |y| (0..sizes[0]).map(move |x| [x, y, z])))
    };
    let to = device.zeros::<u32>(24 * 90)?;
    device.run("place_in_grid", grid, block, &[(&to).into()])?;
    let wanted: Vec<u32> = each(grid)
        .flat_map(|b| each(block).map(move |t| b[0] | b[1] << 4 | b[2] << 8 | t[0] << 12 | t[1] << 18 | t[2] << 24))
        .collect();
    same("place_in_grid", &to.to_vec()?, &wanted)
}

fn gelu_bf16(device: &Device<'_>) -> Answer {
    let mut bits = BRAIN.all(&doubles(7, 500, -6.0, 6.0));
    bits.extend(short_words(8, 12).iter().map(|word| BRAIN.bits(f64::from(word % 5) - 2.0)));
    let (source, target) = (device.put(&bits)?, device.zeros::<u16>(512)?);
    device.run("gelu_bf16", 4, 128, &[(&target).into(), (&source).into(), 512_u32.into()])?;
    let wanted: Vec<f64> =
        BRAIN.all_wide(&bits).iter().map(|x| 0.5 * x * (1.0 + math::erf(x / std::f64::consts::SQRT_2))).collect();
    // The nearest bf16 is off by at most 2^-8 of the number.
    device.within("gelu_bf16, of 1", &BRAIN.all_wide(&target.to_vec()?), &wanted, 0.004)
}
