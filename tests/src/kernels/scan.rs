//! What `scan.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::short_words;

pub(super) const CASES: &[Case] = &[Case::new("scan", "look_back_sum", look_back_sum)];

fn look_back_sum(device: &Device<'_>) -> Answer {
    let from = short_words(41, 64 * 60 - 13);
    let (source, target) = (device.put(&from)?, device.zeros::<u32>(from.len())?);
    let (states, tickets) = (device.zeros::<u64>(60)?, device.zeros::<u32>(1)?);
    let count = u32::try_from(from.len())?;
    let arguments = [(&target).into(), (&source).into(), (&states).into(), (&tickets).into(), count.into()];
    device.run("look_back_sum", 60, 64, &arguments)?;
    let sums = from.iter().scan(0_u32, |sum, value| {
        *sum = sum.wrapping_add(*value);
        Some(*sum)
    });
    same("look_back_sum", &target.to_vec()?, &sums.collect::<Vec<_>>())
}
