//! Order of elements on the host: keys that compare as the elements do.

use c10_core::host_memory;
use half::{bf16, f16};

use super::Order;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

/// Rows of `n` elements sorted, the first `keep` of each: values and places of the given sizes.
pub(super) fn sort(rows: &Tensor, n: i64, order: Order, keep: i64, sizes: &[i64]) -> Result<(Tensor, Tensor)> {
    let (bytes, dtype) = (rows.to_bytes()?, rows.dtype());
    let (width, n) = (dtype.itemsize(), usize::try_from(n).unwrap_or(0));
    let keep = usize::try_from(keep).unwrap_or(0);
    let kept = (bytes.len() / (n * width).max(1)) * keep;
    let (mut values, mut places) = (host_memory::with_capacity(kept * width)?, host_memory::with_capacity(kept)?);
    for row in bytes.chunks_exact((n * width).max(1)) {
        let keys = host_memory::collected(n, row.chunks_exact(width).map(|element| key(element, dtype)))?;
        let mut sorted: Vec<usize> = host_memory::collected(n, 0..n)?;
        // The original index breaks ties, so the unstable sort, which needs no memory, gives the stable order.
        sorted.sort_unstable_by_key(|&place| (if order.descending { !keys[place] } else { keys[place] }, place));
        for &place in &sorted[..keep] {
            values.extend_from_slice(&row[place * width..(place + 1) * width]);
            places.push(i64::try_from(place).unwrap_or(i64::MAX));
        }
    }
    Ok((Tensor::from_bytes(&values, sizes, dtype)?, Tensor::from_slice(&places, sizes)?))
}

/// Returns an unsigned sort key in the order of the elements. Every NaN is the greatest, whatever its sign.
fn key(element: &[u8], dtype: DType) -> u64 {
    let signed = |value: i64| value.cast_unsigned() ^ 1 << 63;
    match dtype {
        DType::Bool | DType::U8 => u64::from(element[0]),
        DType::I8 => signed(bytemuck::pod_read_unaligned::<i8>(element).into()),
        DType::I16 => signed(bytemuck::pod_read_unaligned::<i16>(element).into()),
        DType::I32 => signed(bytemuck::pod_read_unaligned::<i32>(element).into()),
        DType::F16 => float(bytemuck::pod_read_unaligned::<f16>(element).to_f64()),
        DType::BF16 => float(bytemuck::pod_read_unaligned::<bf16>(element).to_f64()),
        DType::F32 => float(bytemuck::pod_read_unaligned::<f32>(element).into()),
        DType::F64 => float(bytemuck::pod_read_unaligned(element)),
        // Complex numbers and floats of 8 bits are refused before.
        DType::F8E4M3FN | DType::F8E5M2 => u64::from(element[0]),
        DType::I64 | DType::C32 | DType::C64 | DType::C128 => {
            signed(bytemuck::pod_read_unaligned(&element[..8.min(element.len())]))
        }
    }
}

fn float(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    // Adding zero makes both zeros the positive one.
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}
