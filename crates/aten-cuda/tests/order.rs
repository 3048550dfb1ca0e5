//! Sorting on the simulated device against the host, and against what is known of the order.

mod common;

use aten_cuda::{DType, Result, Tensor};
use common::{assert_same, layouts, numbers, on_both, random};

const ORDERED: [DType; 10] = [
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Random bits as elements: for floats with NaNs of both signs, infinities and both zeros.
fn bits(count: i64, dtype: DType) -> Result<Tensor> {
    let width = dtype.itemsize();
    let bytes: Vec<u8> = random(count)
        .flat_map(|number| {
            let special = [0_u64, 0x8000 << 48, 0x7ff8 << 48, 0xfff8 << 48, 0x7ff0 << 48]
                [usize::try_from(number % 5).unwrap_or(0)];
            let word = if number % 7 == 0 && dtype.is_floating_point() {
                special >> (64 - 8 * width)
            } else {
                number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            };
            let word = if dtype == DType::Bool { word & 1 } else { word };
            word.to_le_bytes().into_iter().take(width).collect::<Vec<u8>>()
        })
        .collect();
    Tensor::from_bytes(&bytes, &[count], dtype)
}

/// [`bits`] with the sign of each NaN cleared: with it, a NaN is the lowest element of a long row on a device, as in torch,
/// and the highest on the host.
fn sortable(count: i64, dtype: DType) -> Result<Tensor> {
    let tensor = bits(count, dtype)?;
    if !dtype.is_floating_point() {
        return Ok(tensor);
    }
    tensor.isnan()?.where_cond(&tensor.abs()?, &tensor)
}

#[test]
fn short_rows() -> Result<()> {
    for dtype in ORDERED {
        for source in layouts(dtype)? {
            on_both(&source, |tensor| {
                let mut results = Vec::new();
                for dim in 0..i64::try_from(tensor.dim()).unwrap_or(0) {
                    for descending in [false, true] {
                        let (values, places) = tensor.sort(dim, descending)?;
                        results.extend([values, places]);
                    }
                }
                Ok(results)
            })?;
        }
    }
    Ok(())
}

#[test]
fn rows_of_every_length_up_to_a_block() -> Result<()> {
    for n in [1_i64, 2, 3, 31, 32, 33, 1024, 2047, 2048] {
        on_both(&sortable(n * 3, DType::F32)?.view(&[3, n])?, both_orders)?;
    }
    Ok(())
}

#[test]
fn long_rows() -> Result<()> {
    for dtype in ORDERED {
        on_both(&sortable(2 * 17_001, dtype)?.view(&[2, 17_001])?, both_orders)?;
    }
    // Several tiles, and rows that end with a tile.
    on_both(&sortable(60_000, DType::I32)?, both_orders)?;
    on_both(&sortable(3 * 14_336, DType::F32)?.view(&[3, 14_336])?, both_orders)?;
    on_both(&numbers(9000, 3)?.to_dtype(DType::I16)?, both_orders)
}

fn both_orders(tensor: &Tensor) -> Result<Vec<Tensor>> {
    let (up, up_places) = tensor.sort(-1, false)?;
    let (down, down_places) = tensor.sort(-1, true)?;
    Ok(vec![up, up_places, down, down_places])
}

#[test]
fn the_order_of_special_numbers() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let given = [f32::NAN, 1.0, f32::INFINITY, -0.0, 0.0, f32::NEG_INFINITY, -f32::NAN];
    for device in ["cpu", "cuda"] {
        let tensor = Tensor::from_slice(&given, &[7])?.to_device(device)?;
        assert_eq!(tensor.argsort(0, false)?.to_vec::<i64>()?, [5, 3, 4, 1, 2, 0, 6], "{device}");
        assert_eq!(tensor.argsort(0, true)?.to_vec::<i64>()?, [0, 6, 2, 1, 3, 4, 5], "{device}");
        assert_eq!(tensor.topk(3, 0, true)?.1.to_vec::<i64>()?, [0, 6, 2], "{device}");
    }
    Ok(())
}

#[test]
fn the_largest_and_the_smallest() -> Result<()> {
    for dtype in ORDERED.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for (rows, n, k) in [(5, 70, 64), (1, 5000, 10), (4, 1, 1), (3, 9, 0)] {
            on_both(&bits(rows * n, dtype)?.view(&[rows, n])?, |tensor| {
                let (largest, of_largest) = tensor.topk(k, 1, true)?;
                let (smallest, of_smallest) = tensor.topk(k, 1, false)?;
                Ok(vec![largest, of_largest, smallest, of_smallest])
            })?;
        }
    }
    Ok(())
}

#[test]
fn values_without_repetitions() -> Result<()> {
    for dtype in ORDERED {
        for source in layouts(dtype)? {
            on_both(&source, |tensor| {
                let (values, inverse, counts) = tensor.unique()?;
                Ok(vec![values, inverse, counts])
            })?;
        }
    }
    let _simulated = testkit::simulated_runtime();
    let tensor = numbers(10_000, 100)?.cuda(None)?;
    let (values, inverse, counts) = tensor.unique()?;
    assert_same(&tensor.cpu()?, &values.index_select(0, &inverse)?);
    assert_eq!(counts.to_vec::<i64>()?.iter().sum::<i64>(), 10_000);
    Ok(())
}
