//! What `atomics.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::{HALF, doubles, low, words};

const FILE: &str = "atomics";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "histogram", histogram),
    Case::new(FILE, "index_add", index_add),
    Case::new(FILE, "greatest_double", greatest_double).that_races(),
    Case::new(FILE, "each_operation", each_operation),
    Case::new(FILE, "lock_of_lanes", lock_of_lanes),
    Case::new(FILE, "barrier_of_grid", barrier_of_grid),
    Case::new(FILE, "chain_of_flags", chain_of_flags),
    Case::new(FILE, "last_block_sums", last_block_sums),
    Case::new(FILE, "wait_by_clock", wait_by_clock),
];

fn histogram(device: &Device<'_>) -> Answer {
    let from: Vec<u8> = words(81, 5000).iter().map(|word| word.to_le_bytes()[0] & word.to_le_bytes()[1]).collect();
    let (source, target) = (device.put(&from)?, device.zeros::<u32>(256)?);
    device.run("histogram", 4, 128, &[(&target).into(), (&source).into(), 5000_u32.into()])?;
    let mut wanted = vec![0_u32; 256];
    from.iter().for_each(|&byte| wanted[usize::from(byte)] += 1);
    same("histogram", &target.to_vec()?, &wanted)
}

/// Whole numbers, so that every order gives the same sum.
fn index_add(device: &Device<'_>) -> Answer {
    let index: Vec<u32> = words(82, 600).iter().map(|word| low(*word) % 20).collect();
    let values: Vec<f32> = words(83, 600).iter().map(|word| (word % 9) as f32 - 4.0).collect();
    let mut wanted = vec![0.0_f32; 20];
    index.iter().zip(&values).for_each(|(&at, value)| wanted[at as usize] += value);
    let wide: Vec<f64> = wanted.iter().copied().map(f64::from).collect();
    let (on_index, source, target) = (device.put(&index)?, device.put(&values)?, device.zeros::<f32>(20)?);
    let count = 600_u32;
    device.run("index_add_float", 5, 128, &[(&target).into(), (&on_index).into(), (&source).into(), count.into()])?;
    same("index_add_float", &target.to_vec()?, &wanted)?;
    let (source, target) =
        (device.put(&values.iter().copied().map(f64::from).collect::<Vec<_>>())?, device.zeros::<f64>(20)?);
    device.run("index_add_double", 5, 128, &[(&target).into(), (&on_index).into(), (&source).into(), count.into()])?;
    same("index_add_double", &target.to_vec()?, &wide)?;
    // Pairs: the value and its double.
    let pairs: Vec<u16> =
        values.iter().flat_map(|&value| [value, 2.0 * value].map(|value| HALF.bits(f64::from(value)))).collect();
    let (source, target) = (device.put(&pairs)?, device.zeros::<u16>(40)?);
    device.run("index_add_half2", 5, 128, &[(&target).into(), (&on_index).into(), (&source).into(), count.into()])?;
    let wanted: Vec<u16> = wide.iter().flat_map(|&sum| [sum, 2.0 * sum].map(|value| HALF.bits(value))).collect();
    let plain = |bits: Vec<u16>| bits.into_iter().map(|bits| if bits == 0x8000 { 0 } else { bits }).collect::<Vec<_>>();
    same("index_add_half2", &plain(target.to_vec()?), &plain(wanted))
}

fn greatest_double(device: &Device<'_>) -> Answer {
    let from = doubles(84, 2000, -1e9, -1.0);
    let (source, target) = (device.put(&from)?, device.put(&[f64::NEG_INFINITY])?);
    device.run("greatest_double", 6, 64, &[(&target).into(), (&source).into(), 2000_u32.into()])?;
    same("greatest_double", &target.to_vec()?, &[from.iter().copied().fold(f64::NEG_INFINITY, f64::max)])
}

fn each_operation(device: &Device<'_>) -> Answer {
    let n = 200_u32;
    let mut start = vec![0_u32; 16 + n as usize];
    (start[2], start[4]) = (u32::MAX, u32::MAX);
    let w = device.put(&start)?;
    let d = device.put(&[0_u64, u64::MAX, 0, u64::MAX, 0, 0, 0])?;
    let (s, sd) = (device.zeros::<i32>(2)?, device.put(&[0_i64, -5000])?);
    device.run("each_operation", 5, 40, &[(&w).into(), (&d).into(), (&s).into(), (&sd).into()])?;
    let (w, d) = (w.to_vec()?, d.to_vec()?);
    let sum = n * (n - 1) / 2;
    let mixed = (0..n).fold(0, |all, i| all ^ i.wrapping_mul(0x9E37_79B9));
    same("words", &w[..9], &[sum, sum.wrapping_neg(), 5, n - 1, 0, 0x7FFF_FFFF, mixed, n % 10, (10 - n % 10) % 10])?;
    let mut taken = w[16..].to_vec();
    taken.sort_unstable();
    same("tickets", &taken, &(1..=n).collect::<Vec<_>>())?;
    same("count of tickets", &[w[10]], &[n])?;
    let mixed = (0..u64::from(n)).fold(0, |all, i| all ^ i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let long = u64::from(sum).wrapping_mul(0x1_0000_0001);
    same("long words", &d[..6], &[long, u64::MAX - 199, 199 << 33, 0, u64::MAX >> 1, mixed])?;
    same("exchanged", &[d[6] + u64::from(w[9])], &[u64::from(n * (n + 1) / 2)])?;
    same("signed", &s.to_vec()?, &[3 - 199, 0])?;
    same("signed long", &sd.to_vec()?, &[-199, 199 - 1000])
}

fn lock_of_lanes(device: &Device<'_>) -> Answer {
    let words = device.zeros::<u32>(2)?;
    let (lock, count) = (words.slice(0..1)?, words.slice(1..2)?);
    device.run("lock_of_lanes", 2, 64, &[(&lock).into(), (&count).into(), 3_u32.into()])?;
    same("lock_of_lanes", &words.to_vec()?, &[0, 2 * 64 * 3])
}

fn barrier_of_grid(device: &Device<'_>) -> Answer {
    let (all, rounds) = (6 * 64_usize, 7_u32);
    let start: Vec<u32> = (0..2 * 384).map(|i| if i < 384 { i * 10 } else { 0 }).collect();
    let (target, arrived) = (device.put(&start)?, device.zeros::<u32>(1)?);
    device.run("barrier_of_grid", 6, 64, &[(&target).into(), (&arrived).into(), rounds.into()])?;
    let mut wanted = start[..all].to_vec();
    for _ in 0..rounds {
        wanted = (0..all).map(|i| wanted[(i + 65) % all] + 1).collect();
    }
    same("barrier_of_grid", &target.to_vec()?[all..], &wanted)
}

fn chain_of_flags(device: &Device<'_>) -> Answer {
    let (flags, values) = (device.zeros::<u32>(40)?, device.zeros::<u32>(40)?);
    device.run("chain_of_flags", 40, 32, &[(&flags).into(), (&values).into()])?;
    let wanted = (0..40_u32).scan(7_u32, |value, block| {
        *value = value.wrapping_mul(3).wrapping_add(block);
        Some(*value)
    });
    same("chain_of_flags", &values.to_vec()?, &wanted.collect::<Vec<_>>())
}

fn last_block_sums(device: &Device<'_>) -> Answer {
    // Twice, since the last block resets the count.
    for _ in 0..2 {
        let (parts, total) = (device.zeros::<u32>(30)?, device.zeros::<u32>(1)?);
        device.run("last_block_sums", 30, 32, &[(&parts).into(), (&total).into()])?;
        same("last_block_sums", &total.to_vec()?, &[(0..30).map(|i| i * i).sum()])?;
    }
    Ok(())
}

fn wait_by_clock(device: &Device<'_>) -> Answer {
    let target = device.zeros::<u32>(32)?;
    device.run("wait_by_clock", 1, 32, &[(&target).into(), 3000_i64.into()])?;
    same("wait_by_clock", &target.to_vec()?, &[3; 32])
}
