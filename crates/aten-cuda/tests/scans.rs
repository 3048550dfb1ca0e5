//! Running sums and products of long rows on the simulated device, where many blocks share a row, against the host.
//! Numbers are such that accumulators have all results exactly, so that the order of additions cannot show.

mod common;

use aten_cuda::{DType, Result, Tensor};
use common::{numbers, on_both};

/// Dtypes whose long rows are shared, with the elements of a tile.
const SHARED: [(DType, i64); 7] = [
    (DType::F16, 16_384),
    (DType::BF16, 16_384),
    (DType::F32, 24_576),
    (DType::F64, 6144),
    (DType::I64, 6144),
    (DType::C64, 6144),
    (DType::C128, 2048),
];

/// Numbers from -2 to 2, whose sums `f32` has exactly.
fn summands(count: i64, dtype: DType) -> Result<Tensor> {
    let numbers = numbers(count, 5)?.sub(2)?;
    if dtype.is_complex() {
        numbers.to_dtype(dtype)?.mul(num_complex::Complex64::new(1.0, -1.0))
    } else {
        numbers.to_dtype(dtype)
    }
}

/// Ones of both signs, times the imaginary unit for complex dtypes. Whole numbers are odd and overflow.
fn factors(count: i64, dtype: DType) -> Result<Tensor> {
    let signs = numbers(count, 2)?.mul(2)?.sub(1)?;
    if dtype == DType::I64 {
        return signs.add(&numbers(count, 7)?.mul(2)?);
    }
    let factors = signs.to_dtype(dtype)?;
    if dtype.is_complex() { factors.mul(num_complex::Complex64::new(0.0, 1.0)) } else { Ok(factors) }
}

/// Running products. The sign of a zero part depends on the order of multiplications; adding zero takes it away.
fn products(tensor: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
    let made = tensor.cumprod(dim, None)?;
    Ok(vec![if made.dtype().is_complex() { made.add(0)? } else { made }])
}

fn both(tensor: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
    Ok(vec![tensor.cumsum(dim, None)?, tensor.cumprod(dim, None)?])
}

#[test]
fn rows_of_several_tiles() -> Result<()> {
    for (dtype, tile) in SHARED {
        for n in [2 * tile, 2 * tile + 1, 3 * tile - 5] {
            on_both(&summands(2 * n, dtype)?.view(&[2, n])?, |rows| Ok(vec![rows.cumsum(1, None)?]))?;
            on_both(&factors(2 * n, dtype)?.view(&[2, n])?, |rows| products(rows, -1))?;
        }
    }
    Ok(())
}

#[test]
fn rows_of_several_groups() -> Result<()> {
    for (dtype, tile) in [(DType::I64, 6144), (DType::C128, 2048)] {
        for tiles in [32, 33, 65] {
            let n = tiles * tile - 3;
            on_both(&summands(n, dtype)?, |row| Ok(vec![row.cumsum(0, None)?]))?;
            on_both(&factors(n, dtype)?, |row| products(row, 0))?;
        }
    }
    on_both(&summands(2 * 800_000, DType::F32)?.view(&[2, 800_000])?, |rows| Ok(vec![rows.cumsum(1, None)?]))
}

/// Rows that lie apart, begin anywhere, are converted, and results that lie apart or are the input itself.
#[test]
fn all_layouts_of_long_rows() -> Result<()> {
    let n = 13_000;
    let all = summands(3 * n + 1, DType::I64)?;
    on_both(&all, |all| {
        let behind = all.narrow(0, 1, 3 * n)?;
        let apart = behind.view(&[n, 3])?;
        let out = Tensor::zeros(&[n, 3], DType::I64, all)?;
        let out_rows = Tensor::zeros(&[3, n], DType::I64, all)?.t()?;
        apart.cumsum_out(0, &out)?;
        apart.cumprod_out(0, &out_rows)?;
        let in_place = all.copy()?;
        in_place.narrow(0, 1, 3 * n)?.view(&[n, 3])?.cumsum_(0)?;
        let row_in_place = all.copy()?;
        row_in_place.narrow(0, 1, 3 * n)?.cumsum_(0)?;
        Ok(vec![
            behind.cumsum(0, None)?,
            apart.cumsum(0, None)?,
            behind.view(&[2, 3 * n / 2])?.cumsum(1, None)?,
            all.gt(0)?.cumsum(0, None)?,
            all.to_dtype(DType::I8)?.cumsum(0, DType::F32)?,
            all.to_dtype(DType::F32)?.cumsum(0, DType::F64)?,
            out,
            out_rows,
            in_place,
            row_in_place,
        ])
    })
}

/// Scans that no kernel shares rows for, along dimensions that lie apart.
#[test]
fn few_rows_that_lie_apart() -> Result<()> {
    on_both(&numbers(700 * 6, 97)?.view(&[2, 700, 3])?, |tensor| {
        let (largest, places) = tensor.cummax(1)?;
        let (smallest, last) = tensor.transpose(0, 1)?.cummin(0)?;
        let mut results = both(&tensor.to_dtype(DType::I32)?, 1)?;
        results.extend([largest, places, smallest, last, tensor.narrow(2, 0, 0)?.cumsum(1, None)?]);
        Ok(results)
    })
}

/// The same sums at every run, of numbers whose sums depend on the order.
#[test]
fn the_order_of_additions_is_fixed() -> Result<()> {
    let host = numbers(100_000, 1_000_003)?.to_dtype(DType::F32)?.div(&Tensor::full(&[1], 7, DType::F32, "cpu")?)?;
    let once = || -> Result<Vec<u8>> {
        let _simulated = testkit::simulated_runtime();
        host.cuda(None)?.cumsum(0, None)?.to_bytes()
    };
    let first = once()?;
    let last = Tensor::from_bytes(&first, &[100_000], DType::F32)?.select(0, -1)?.item()?.to_f64();
    let expected = host.to_dtype(DType::F64)?.sum((), false, None)?.item()?.to_f64();
    assert!((last / expected - 1.0).abs() < 1e-6, "{last} is not {expected}");
    for _ in 0..3 {
        assert!(once()? == first, "the sums differ between runs");
    }
    Ok(())
}
