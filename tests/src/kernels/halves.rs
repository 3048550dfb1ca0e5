//! What `halves.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::{BRAIN, HALF, Small, doubles, words};

const FILE: &str = "halves";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "half_pairs", |device| pairs(device, "half_pairs", HALF)),
    Case::new(FILE, "bfloat_pairs", |device| pairs(device, "bfloat_pairs", BRAIN)),
    Case::new(FILE, "half_singles", half_singles),
    Case::new(FILE, "half_functions", half_functions),
];

/// Operations of the pair kernels.
const KINDS: usize = 12;

fn pairs(device: &Device<'_>, kernel: &str, small: Small) -> Answer {
    // Eighths: a product and a sum need few more bits than the types have, so that f64 holds them.
    let eighths = |seed| -> Vec<u16> {
        words(seed, 256).iter().map(|word| small.bits((word % 257) as f64 / 8.0 - 16.0)).collect()
    };
    let (a, b) = (eighths(11), eighths(12));
    let (on_a, on_b, to) = (device.put(&a)?, device.put(&b)?, device.zeros::<u16>(256 * KINDS)?);
    device.run(kernel, 2, 64, &[(&to).into(), (&on_a).into(), (&on_b).into(), 128_u32.into()])?;
    let mut wanted = Vec::new();
    for pair in 0..128 {
        let value = |of: &[u16], half: usize| small.wide(of[pair * 2 + half]);
        for kind in 0..KINDS {
            for half in 0..2 {
                let (x, y) = (value(&a, half), value(&b, half));
                wanted.push(small.bits(match kind {
                    0 => x + y,
                    1 => x - y,
                    2 => x * y,
                    3 => x.mul_add(y, x),
                    4 => -x,
                    5 => x.abs(),
                    6 => x.min(y),
                    7 => x.max(y),
                    8 => x + value(&b, 1 - half),
                    9 => x.mul_add(y, x).max(0.0),
                    10 => f64::from(u8::from(x < y)),
                    _ => (x + y).clamp(0.0, 1.0),
                }));
            }
        }
    }
    let unsigned_zero =
        |bits: &[u16]| bits.iter().map(|&bits| if bits == 0x8000 { 0 } else { bits }).collect::<Vec<_>>();
    same(kernel, &unsigned_zero(&to.to_vec()?), &unsigned_zero(&wanted))
}

#[expect(clippy::cast_possible_truncation, reason = "the numbers are small")]
fn half_singles(device: &Device<'_>) -> Answer {
    let (a, b) = (HALF.all(&doubles(13, 200, -300.0, 300.0)), HALF.all(&doubles(14, 200, 0.1, 9.0)));
    let (on_a, on_b) = (device.put(&a)?, device.put(&b)?);
    let (to, whole) = (device.zeros::<u16>(1200)?, device.zeros::<i32>(800)?);
    let arguments = [(&to).into(), (&whole).into(), (&on_a).into(), (&on_b).into(), 200_u32.into()];
    device.run("half_singles", 4, 64, &arguments)?;
    let values: Vec<(f64, f64)> = HALF.all_wide(&a).into_iter().zip(HALF.all_wide(&b)).collect();
    let found = to.to_vec()?;
    let wanted = |place: usize| -> Vec<f64> {
        let one = |&(a, b): &(f64, f64)| match place {
            0 => a / b,
            1 => a.abs().sqrt(),
            2 => a.floor(),
            3 => a.ceil(),
            4 => a.round_ties_even(),
            _ => a.trunc(),
        };
        values.iter().map(one).collect()
    };
    let at = |place: usize| found.iter().copied().skip(place).step_by(6).collect::<Vec<_>>();
    for place in [2, 3, 4, 5] {
        same("half_singles: whole parts", &at(place), &HALF.all(&wanted(place)))?;
    }
    for place in [0, 1] {
        places(device, "half quotient and root, in last places", HALF, &at(place), &wanted(place), 1.0)?;
    }
    let roundings: Vec<i32> = values
        .iter()
        .flat_map(|(a, _)| [a.round_ties_even(), a.trunc(), a.ceil(), a.floor()].map(|value| value as i32))
        .collect();
    same("half_singles: integers", &whole.to_vec()?, &roundings)
}

/// Compares by units in the last place of a small type.
fn places(device: &Device<'_>, what: &str, small: Small, found: &[u16], wanted: &[f64], limit: f64) -> Answer {
    for (&found, &wanted) in found.iter().zip(wanted) {
        let nearest = small.bits(wanted);
        let unit = (small.wide(nearest.wrapping_add(1)) - small.wide(nearest)).abs();
        let far = if found == nearest { 0.0 } else { (small.wide(found) - wanted).abs() / unit };
        device.note(what, far, limit, || format!("{} is not {wanted}", small.wide(found)))?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "rounds")]
fn half_functions(device: &Device<'_>) -> Answer {
    let x: Vec<f32> = doubles(15, 300, 0.05, 9.0).into_iter().map(|value| value as f32).collect();
    let (on_x, to, brain) = (device.put(&x)?, device.zeros::<u16>(1800)?, device.zeros::<u16>(1800)?);
    device.run("half_functions", 5, 64, &[(&to).into(), (&brain).into(), (&on_x).into(), 300_u32.into()])?;
    for (what, small, found) in [("half", HALF, to.to_vec()?), ("bfloat", BRAIN, brain.to_vec()?)] {
        let rounded: Vec<f64> = x.iter().map(|&x| small.wide(small.bits(f64::from(x)))).collect();
        type Function = (&'static str, fn(f64) -> f64);
        let functions: [Function; 6] = [
            ("exp", f64::exp),
            ("log", f64::ln),
            ("sin", f64::sin),
            ("rsqrt", |x| 1.0 / x.sqrt()),
            ("exp2", f64::exp2),
            ("rcp", |x| 1.0 / x),
        ];
        for (place, (name, function)) in functions.into_iter().enumerate() {
            let found: Vec<u16> = found.iter().copied().skip(place).step_by(6).collect();
            let wanted: Vec<f64> = rounded.iter().map(|&x| function(x)).collect();
            places(device, &format!("{what} {name}, in last places"), small, &found, &wanted, 2.0)?;
        }
    }
    Ok(())
}
