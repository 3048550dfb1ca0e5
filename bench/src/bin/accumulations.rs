//! Prints sums, products, scans and other accumulations in 16 bits, to compare with PyTorch's:
//! `accumulations [cpu|cuda]`.
//!
//! Prints one line for each case: its name, the bits of the result as `f64`, and the result. `accumulations.py` prints
//! PyTorch's lines in the same format, so that `diff` shows where rounding differs.

use std::process::ExitCode;

use aten_cuda::{DType, Result, Tensor};

/// Number of elements in each accumulation.
const COUNT: i64 = 3000;

fn main() -> ExitCode {
    let device = std::env::args().nth(1).unwrap_or_else(|| "cuda".to_owned());
    bench::ended(run(&device).map_err(bench::Failure::from).map(|()| true))
}

/// Returns a deterministic tensor of values near one that need few mantissa bits.
fn pattern(sizes: &[i64], dtype: DType, device: &str) -> Result<Tensor> {
    let count: i64 = sizes.iter().product();
    let numbers: Vec<f64> = (0..count).map(|at| 1.0 + f64::from(u8::try_from(at % 7).unwrap_or(0)) / 8.0).collect();
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)?.to_device(device)
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn show(name: &str, dtype: DType, found: &Tensor) -> Result<()> {
    let first = found.flatten()?.narrow(0, -1, 1)?.to_dtype(DType::F64)?.to_vec::<f64>()?[0];
    println!("{name} {dtype} {:016x} {first}", first.to_bits());
    Ok(())
}

fn run(device: &str) -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        indexed(dtype, device)?;
        scans(dtype, device)?;
        reductions(dtype, device)?;
    }
    Ok(())
}

fn indexed(dtype: DType, device: &str) -> Result<()> {
    let places = Tensor::zeros(&[COUNT], DType::I64, device)?;
    for row in [1, 2, 32, 33, 64] {
        let source = pattern(&[COUNT, row], dtype, device)?;
        let target = || Tensor::zeros(&[1, row], dtype, device);
        show(&format!("index_put/{row}"), dtype, &target()?.index_put(&[Some(&places)], &source, true)?)?;
        show(&format!("index_add/{row}"), dtype, &target()?.index_add(0, &places, &source, 1)?)?;
        let spread = Tensor::zeros(&[COUNT, row], DType::I64, device)?;
        show(&format!("scatter_add/{row}"), dtype, &target()?.scatter_add(0, &spread, &source)?)?;
    }
    Ok(())
}

fn scans(dtype: DType, device: &str) -> Result<()> {
    let near_one = Tensor::full(&[COUNT], 1.002, dtype, device)?;
    show("cumprod", dtype, &near_one.cumprod(0, None)?)?;
    for sizes in [[COUNT, 1], [COUNT, 3], [20_000, 1]] {
        let numbers = pattern(&sizes, dtype, device)?;
        let name = format!("{}x{}", sizes[0], sizes[1]);
        show(&format!("cumsum/columns/{name}"), dtype, &numbers.cumsum(0, None)?)?;
        show(&format!("cumsum/rows/{name}"), dtype, &numbers.t()?.contiguous()?.cumsum(1, None)?)?;
        show(&format!("logcumsumexp/{name}"), dtype, &numbers.logcumsumexp(0)?)?;
    }
    show("cumsum/flat", dtype, &pattern(&[COUNT], dtype, device)?.cumsum(0, None)?)
}

fn reductions(dtype: DType, device: &str) -> Result<()> {
    let (numbers, near_one) = (pattern(&[COUNT, 3], dtype, device)?, Tensor::full(&[COUNT, 3], 1.002, dtype, device)?);
    show("sum", dtype, &numbers.sum(0, false, None)?)?;
    show("mean", dtype, &numbers.mean(0, false, None)?)?;
    show("prod", dtype, &near_one.prod(0, false, None)?)?;
    show("var", dtype, &numbers.var(0, 1, false)?)?;
    show("std", dtype, &numbers.std(0, 1, false)?)?;
    show("norm", dtype, &numbers.norm(2, 0, false, None)?)?;
    show("logsumexp", dtype, &numbers.logsumexp(0, false)?)
}
