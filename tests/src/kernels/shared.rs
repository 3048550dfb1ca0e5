//! What `shared.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::{floats, low, short_words, words};

const FILE: &str = "shared";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "transpose", transpose),
    Case::new(FILE, "block_sums", block_sums),
    Case::new(FILE, "tree_sums", tree_sums),
    Case::new(FILE, "argmax_rows", argmax_rows),
    Case::new(FILE, "block_scan", block_scan),
    Case::new(FILE, "barrier_votes", barrier_votes),
    Case::new(FILE, "named_barriers", named_barriers),
    Case::new(FILE, "dynamic_parts", dynamic_parts),
];

fn transpose(device: &Device<'_>) -> Answer {
    let (rows, columns) = (50_usize, 71_usize);
    let from = floats(21, rows * columns, -1.0, 1.0);
    let (source, target) = (device.put(&from)?, device.zeros::<f32>(rows * columns)?);
    device.run("transpose", (3, 2), (32, 8), &[(&target).into(), (&source).into(), 50_u32.into(), 71_u32.into()])?;
    let wanted: Vec<f32> =
        (0..columns).flat_map(|c| (0..rows).map(move |r| r * columns + c)).map(|i| from[i]).collect();
    same("transpose", &target.to_vec()?, &wanted)
}

fn block_sums(device: &Device<'_>) -> Answer {
    let from: Vec<i32> = words(22, 3000).iter().map(|word| (low(*word) % 2001).cast_signed() - 1000).collect();
    let (source, target) = (device.put(&from)?, device.zeros::<i64>(4)?);
    device.run("block_sums", 4, 128, &[(&target).into(), (&source).into(), 3000_u32.into()])?;
    let of_block = |block: usize| -> i64 {
        from.iter().enumerate().filter(|(i, _)| i / 128 % 4 == block).map(|(_, value)| i64::from(*value)).sum()
    };
    same("block_sums", &target.to_vec()?, &(0..4).map(of_block).collect::<Vec<_>>())
}

fn tree_sums(device: &Device<'_>) -> Answer {
    let from = floats(23, 512, -1.0, 1.0);
    let (source, target) = (device.put(&from)?, device.zeros::<f32>(2)?);
    device.run_shared("tree_sums", 2, 256, 1024, &[(&target).into(), (&source).into()])?;
    let tree = |values: &[f32]| {
        let mut values = values.to_vec();
        while values.len() > 1 {
            let (left, right) = values.split_at(values.len() / 2);
            values = left.iter().zip(right).map(|(a, b)| a + b).collect();
        }
        values[0]
    };
    same("tree_sums", &target.to_vec()?, &from.chunks(256).map(tree).collect::<Vec<_>>())
}

fn argmax_rows(device: &Device<'_>) -> Answer {
    let from: Vec<f32> = short_words(24, 5 * 333).iter().map(|word| (word % 50) as f32).collect();
    let (source, target) = (device.put(&from)?, device.zeros::<u32>(5)?);
    device.run("argmax_rows", 5, 128, &[(&target).into(), (&source).into(), 333_u32.into()])?;
    let first = |row: &[f32]| {
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        u32::try_from(row.iter().position(|value| *value == best).unwrap_or_default()).unwrap_or_default()
    };
    same("argmax_rows", &target.to_vec()?, &from.chunks(333).map(first).collect::<Vec<_>>())
}

fn block_scan(device: &Device<'_>) -> Answer {
    let from = short_words(25, 3 * 192);
    let (source, target) = (device.put(&from)?, device.zeros::<u32>(3 * 193)?);
    device.run("block_scan", 3, 192, &[(&target).into(), (&source).into()])?;
    let mut wanted = Vec::new();
    for block in from.chunks(192) {
        let mut sum = 0_u32;
        for value in block {
            wanted.push(sum);
            sum = sum.wrapping_add(*value);
        }
        wanted.push(sum);
    }
    same("block_scan", &target.to_vec()?, &wanted)
}

fn barrier_votes(device: &Device<'_>) -> Answer {
    let from: Vec<i32> = (0..480)
        .map(|i| {
            if i < 96 {
                100
            } else if i < 192 {
                0
            } else {
                i * 7 % 100
            }
        })
        .collect();
    let (source, target) = (device.put(&from)?, device.zeros::<i32>(480)?);
    device.run("barrier_votes", 5, 96, &[(&target).into(), (&source).into(), 42_i32.into()])?;
    let mut wanted = Vec::new();
    for block in from.chunks(96) {
        let above = block.iter().filter(|value| **value > 42).count();
        let votes = i32::try_from(above)? | i32::from(above == 96) << 16 | i32::from(above > 0) << 17;
        wanted.extend([votes; 96]);
    }
    same("barrier_votes", &target.to_vec()?, &wanted)
}

fn named_barriers(device: &Device<'_>) -> Answer {
    let target = device.zeros::<u32>(9 * 64)?;
    device.run("named_barriers", 1, 128, &[(&target).into(), 9_u32.into()])?;
    let wanted: Vec<u32> = (0..9).flat_map(|round| (0..64).map(move |i| round * 1000 + 63 - i)).collect();
    same("named_barriers", &target.to_vec()?, &wanted)
}

fn dynamic_parts(device: &Device<'_>) -> Answer {
    let (from, n) = (short_words(26, 64), 64_usize);
    let (source, target) = (device.put(&from)?, device.zeros::<f64>(n)?);
    let bytes = u32::try_from(n * (16 + 4 + 1))?;
    device.run_shared("dynamic_parts", 1, 64, bytes, &[(&target).into(), (&source).into(), 64_u32.into()])?;
    let part = |i: usize| {
        let byte = f64::from(from[n - 1 - i] & 0xFF);
        let (first, second) = (from[(i + 1) % n] & 0xFFFF, from[(i + 2) % n] >> 16);
        0.5 * byte + f64::from(first) * 2.0 - f64::from(second)
    };
    same("dynamic_parts", &target.to_vec()?, &(0..n).map(|i| part((i + 3) % n)).collect::<Vec<_>>())
}
