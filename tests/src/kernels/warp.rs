//! What `warp.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::short_words;

const FILE: &str = "warp";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "shuffles", shuffles),
    Case::new(FILE, "votes", votes),
    Case::new(FILE, "aggregate", aggregate),
    Case::new(FILE, "warp_barriers", warp_barriers),
    Case::new(FILE, "reductions", reductions).since(80),
];

const KINDS: usize = 16;

fn shuffles(device: &Device<'_>) -> Answer {
    let from: Vec<i32> = (0..32).map(|i| i * 37 - 400).collect();
    let (source, target) = (device.put(&from)?, device.zeros::<i32>(32 * KINDS)?);
    device.run("shuffles", 1, 32, &[(&target).into(), (&source).into()])?;
    let mut wanted = Vec::new();
    for lane in 0..32_usize {
        let of = |at: usize| from[at];
        let far = if lane < 28 { lane + 4 } else { lane };
        let long = (i64::from(of(far)) << 32) + i64::try_from(far)?;
        wanted.extend([
            of(5),
            of(lane * 7 % 32),
            of(if lane >= 3 { lane - 3 } else { lane }),
            of(if lane + 9 < 32 { lane + 9 } else { lane }),
            of(lane ^ 21),
            of(lane & !7 | 3),
            of(if lane % 16 >= 1 { lane - 1 } else { lane }),
            of(if lane % 4 + 2 < 4 { lane + 2 } else { lane }),
            of(lane ^ 6),
            of(lane ^ 1) * 3,
            i32::try_from(long >> 31)?,
            of(31 - lane),
            if lane < 16 { of((lane + 1) % 16) } else { -1 },
            if lane % 2 == 1 { of(lane ^ 2) } else { -of(lane ^ 4) },
            0,
            0,
        ]);
    }
    same("shuffles", &target.to_vec()?, &wanted)
}

fn votes(device: &Device<'_>) -> Answer {
    let from: Vec<i32> = (0..32).map(|i| i * 5 % 17 - 6).collect();
    let (source, target) = (device.put(&from)?, device.zeros::<u32>(32 * KINDS)?);
    device.run("votes", 1, 32, &[(&target).into(), (&source).into()])?;
    let ballot = |fits: &dyn Fn(usize) -> bool| (0..32).fold(0_u32, |mask, lane| mask | u32::from(fits(lane)) << lane);
    let mut wanted = Vec::new();
    for lane in 0..32_usize {
        let one = 1_u32 << lane;
        wanted.extend([
            ballot(&|other| from[other] > 0),
            0,
            1,
            ballot(&|other| from[other] & 3 == from[lane] & 3),
            0,
            0,
            u32::MAX,
            1,
            ballot(&|other| from[other] & 1 == from[lane] & 1),
            one,
            one - 1,
            one | (one - 1),
            !(one | (one - 1)),
            !(one - 1),
            if lane >= 24 { 1 << 24 | 1 << 27 | 1 << 30 } else { 0 },
            u32::MAX,
        ]);
    }
    same("votes", &target.to_vec()?, &wanted)
}

fn aggregate(device: &Device<'_>) -> Answer {
    let turns: Vec<u32> = short_words(91, 96).iter().map(|word| word % 6).collect();
    let all: u32 = turns.iter().sum();
    let (on_turns, count, target) = (device.put(&turns)?, device.zeros::<u32>(1)?, device.zeros::<u32>(all as usize)?);
    device.run("aggregate", 1, 96, &[(&count).into(), (&target).into(), (&on_turns).into()])?;
    same("count", &count.to_vec()?, &[all])?;
    let mut found = target.to_vec()?;
    found.sort_unstable();
    let wanted: Vec<u32> = (0_u32..).zip(&turns).flat_map(|(i, &times)| (0..times).map(move |_| i)).collect();
    same("aggregate", &found, &wanted)
}

fn warp_barriers(device: &Device<'_>) -> Answer {
    let target = device.zeros::<u32>(128)?;
    device.run("warp_barriers", 1, 128, &[(&target).into()])?;
    let mut values: Vec<u32> = (0..128).collect();
    for round in 0..5_usize {
        let next =
            |i: usize| values[i / 32 * 32 + (i % 32 * 5 + round) % 32] * 3 + u32::try_from(round).unwrap_or_default();
        values = (0..128).map(next).collect();
    }
    same("warp_barriers", &target.to_vec()?, &values)
}

fn reductions(device: &Device<'_>) -> Answer {
    let from = short_words(92, 32);
    let (source, target) = (device.put(&from)?, device.zeros::<u32>(32 * KINDS)?);
    device.run("reductions", 1, 32, &[(&target).into(), (&source).into()])?;
    let sum = |values: &[u32]| values.iter().fold(0_u32, |sum, value| sum.wrapping_add(*value));
    let signed = || from.iter().map(|value| value.cast_signed());
    let mut wanted = Vec::new();
    for lane in 0..32 {
        wanted.extend([
            sum(&from),
            from.iter().copied().min().unwrap_or_default(),
            from.iter().copied().max().unwrap_or_default(),
            from.iter().fold(u32::MAX, |all, value| all & (value | 0x10)),
            from.iter().fold(0, |all, value| all | value),
            from.iter().fold(0, |all, value| all ^ value),
            signed().min().unwrap_or_default().cast_unsigned(),
            signed().max().unwrap_or_default().cast_unsigned(),
            sum(if lane < 11 { &from[..11] } else { &from[11..] }),
        ]);
        wanted.extend([0; 7]);
    }
    same("reductions", &target.to_vec()?, &wanted)
}
