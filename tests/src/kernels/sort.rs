//! What `sort.cu` must leave behind: a sort of whole keys, four bits a step.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::short_words;

pub(super) const CASES: &[Case] = &[Case::new("sort", "radix sort", radix_sort)];

fn radix_sort(device: &Device<'_>) -> Answer {
    let keys: Vec<u32> = short_words(51, 700).iter().map(|word| word & 0xFFF).collect();
    let mut from = device.put(&keys)?;
    let mut wanted = keys;
    for shift in [0_u32, 4, 8] {
        let (counts, to, payload) =
            (device.zeros::<u32>(16 * 6)?, device.zeros::<u32>(700)?, device.zeros::<u32>(700)?);
        let before = wanted.clone();
        device.run("digit_counts", 6, 128, &[(&counts).into(), (&from).into(), shift.into(), 700_u32.into()])?;
        device.run("sum_before", 1, 32, &[(&counts).into(), 96_u32.into()])?;
        let arguments =
            [(&to).into(), (&payload).into(), (&from).into(), (&counts).into(), shift.into(), 700_u32.into()];
        device.run("scatter_by_digit", 6, 128, &arguments)?;
        let mut places: Vec<u32> = (0..700).collect();
        places.sort_by_key(|&place| before[place as usize] >> shift & 15);
        wanted = places.iter().map(|&place| before[place as usize]).collect();
        same("sorted keys", &to.to_vec()?, &wanted)?;
        same("places of sorted keys", &payload.to_vec()?, &places)?;
        from = to;
    }
    same("all sorted", &[u32::from(wanted.is_sorted())], &[1])
}
