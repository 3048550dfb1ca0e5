//! Floats of 8 bits and products of bytes on the GPU of this machine, against the host in `f64`: `byte_products`.
//!
//! Conversions of every number of 16 bits and of every code; `_int_mm` and `_scaled_mm` by cuBLASLt (where there is one)
//! and by the kernels of the crate. Products of integers are exact. Of floats an error is measured beside the sum of all
//! magnitudes: kernels of the crate add in `f32`, cuBLASLt on tensor cores with fewer bits. Prints a line for each kind
//! with the number of comparisons and the largest error, and how long large products take; the exit code is 1 where an
//! error is too large.

#![expect(clippy::wildcard_enum_match_arm, reason = "results have a few of the dtypes")]

use std::process::ExitCode;
use std::time::Instant;

use aten_cuda::blas::{self, ProductLibrary, ScaledMm};
use aten_cuda::{DType, Result, Tensor};

const FORMATS: [DType; 2] = [DType::F8E4M3FN, DType::F8E5M2];

/// m, k and n: tiles that are cut, single rows, and what fills tiles.
const SIZES: [[i64; 3]; 6] =
    [[17, 16, 16], [65, 80, 144], [128, 256, 128], [200, 1024, 80], [300, 64, 272], [1, 512, 96]];

fn main() -> ExitCode {
    match all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn say(text: &str) {
    println!("{text}");
}

fn all() -> Result<bool> {
    let mut is_good = conversions()?;
    if let ProductLibrary::Cublas { version, lt_version, .. } = blas::product_library() {
        say(&format!("cuBLAS {version}, cuBLASLt {}", lt_version.as_deref().unwrap_or("none")));
        is_good &= products("library")?;
    }
    blas::set_libraries(None, None);
    Ok(is_good & products("own")?)
}

/// Bytes that look random.
fn codes(count: i64, seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[5]
    })
}

/// Every number of 16 bits to codes and every code to numbers, on the device and on the host.
fn conversions() -> Result<bool> {
    let numbers: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let every: Vec<u8> = (0..=u8::MAX).collect();
    let (mut compared, mut different) = (0_usize, 0_usize);
    let mut compare = |host: &Tensor, device: &Tensor| -> Result<()> {
        let wide = |tensor: &Tensor| tensor.cpu()?.to_dtype(DType::F64)?.to_vec::<f64>();
        for (host, device) in wide(host)?.into_iter().zip(wide(device)?) {
            compared += 1;
            different += usize::from(host.to_bits() != device.to_bits() && !(host.is_nan() && device.is_nan()));
        }
        Ok(())
    };
    for format in FORMATS {
        for dtype in [DType::F16, DType::BF16] {
            let all = Tensor::from_bytes(&numbers, &[1 << 16], dtype)?;
            compare(&all.to_dtype(format)?, &all.cuda(None)?.to_dtype(format)?)?;
        }
        let random: Vec<u8> = codes(1 << 20, 5).collect();
        let all = Tensor::from_bytes(&random, &[1 << 18], DType::F32)?;
        compare(&all.to_dtype(format)?, &all.cuda(None)?.to_dtype(format)?)?;
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let all = Tensor::from_bytes(&every, &[256], format)?;
            compare(&all.to_dtype(dtype)?, &all.cuda(None)?.to_dtype(dtype)?)?;
        }
    }
    say(&format!("conversions: {compared} compared, {different} differ"));
    Ok(different == 0)
}

fn products(name: &str) -> Result<bool> {
    let good = integers(name)? & floats(name)?;
    times(name)?;
    Ok(good)
}

fn integers(name: &str) -> Result<bool> {
    let (mut compared, mut different) = (0_usize, 0_usize);
    for [m, k, n] in SIZES.into_iter().filter(|[m, ..]| *m > 16) {
        for (turned_a, turned_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let made = |rows: i64, columns: i64, turned: bool, seed: u64| -> Result<Tensor> {
                let sizes = if turned { [columns, rows] } else { [rows, columns] };
                let made = Tensor::from_bytes(&codes(rows * columns, seed).collect::<Vec<u8>>(), &sizes, DType::I8)?;
                if turned { made.t() } else { Ok(made) }
            };
            let (a, b) = (made(m, k, turned_a, 1)?, made(k, n, turned_b, 2)?);
            let wanted = a.int_mm(&b)?.to_vec::<i32>()?;
            let there = |tensor: &Tensor, turned: bool| -> Result<Tensor> {
                if turned { tensor.t()?.cuda(None)?.t() } else { tensor.cuda(None) }
            };
            let found = there(&a, turned_a)?.int_mm(&there(&b, turned_b)?)?.to_vec::<i32>()?;
            compared += found.len();
            different += found.iter().zip(&wanted).filter(|(found, wanted)| found != wanted).count();
        }
    }
    say(&format!("int_mm {name}: {compared} compared, {different} differ"));
    Ok(different == 0)
}

/// Codes of numbers below two.
fn factor(rows: i64, columns: i64, seed: u64, format: DType) -> Result<Tensor> {
    let small: Vec<u8> = codes(rows * columns, seed).map(|code| code & 0xbf).collect();
    Tensor::from_bytes(&small, &[rows, columns], format)
}

/// Half the distance of neighbours of a dtype beside a number, as a part of it.
fn half_unit(dtype: DType) -> f64 {
    match dtype {
        DType::F8E5M2 => 2_f64.powi(-3),
        DType::F8E4M3FN => 2_f64.powi(-4),
        DType::BF16 => 2_f64.powi(-8),
        DType::F16 => 2_f64.powi(-11),
        _ => 2_f64.powi(-24),
    }
}

fn floats(name: &str) -> Result<bool> {
    // Parts of the sum of magnitudes. Tensor cores keep some fourteen bits of each product beside the largest one: on an
    // H200 PyTorch's own results are off by up to 2^-10.6.
    let allowed = if name == "own" { 2_f64.powi(-20) } else { 2_f64.powi(-10) };
    let pairs = [(FORMATS[0], FORMATS[0]), (FORMATS[0], FORMATS[1]), (FORMATS[1], FORMATS[0])];
    let mut is_good = true;
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F8E4M3FN, DType::F8E5M2] {
        let (mut compared, mut worst) = (0_usize, 0.0_f64);
        for ([m, k, n], (first, second)) in SIZES.into_iter().flat_map(|sizes| pairs.map(|pair| (sizes, pair))) {
            let (a, b) = (factor(m, k, 3, first)?, factor(n, k, 4, second)?);
            let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64);
            let sums = wide(&a)?.mm(&wide(&b)?.t()?)?;
            let magnitudes = wide(&a)?.abs()?.mm(&wide(&b)?.abs()?.t()?)?;
            for is_each in [false, true] {
                for has_bias in [false, true].into_iter().filter(|has_bias| !has_bias || dtype != DType::F32) {
                    let scale = |sizes: &[i64], step: f64| -> Result<Tensor> {
                        let count: i64 = sizes.iter().product();
                        Tensor::arange(0, count, 1, Some(DType::F32), "cpu")?.mul(step)?.add(0.125)?.reshape(sizes)
                    };
                    let [rows, columns] = if is_each {
                        [scale(&[m, 1], 1.0 / 512.0)?, scale(&[1, n], 1.0 / 512.0)?]
                    } else {
                        [scale(&[], 1.0)?, scale(&[], 1.0)?]
                    };
                    let kind = if dtype == DType::F16 { DType::F16 } else { DType::BF16 };
                    let bias = Tensor::arange(-8, n - 8, 1, Some(DType::F32), "cpu")?.div(64)?.to_dtype(kind)?;
                    let scaling = wide(&rows)?.mul(&wide(&columns)?)?;
                    let mut exact = sums.mul(&scaling)?;
                    if has_bias {
                        exact = exact.add(&wide(&bias)?)?;
                    }
                    let near = magnitudes.mul(&scaling)?.mul(allowed)?;
                    let bias = bias.cuda(None)?;
                    let options = ScaledMm {
                        bias: Some(&bias).filter(|_| has_bias),
                        out_dtype: Some(dtype),
                        ..ScaledMm::default()
                    };
                    let (a, b) = (a.cuda(None)?, b.cuda(None)?.t()?);
                    let found = a.scaled_mm(&b, &rows.cuda(None)?, &columns.cuda(None)?, &options)?;
                    let found = wide(&found.cpu()?)?.to_vec::<f64>()?;
                    let parts = exact.to_vec::<f64>()?.into_iter().zip(near.to_vec::<f64>()?);
                    for (found, (exact, near)) in found.into_iter().zip(parts) {
                        let bound = near + (exact.abs() + near) * half_unit(dtype) + least(dtype);
                        compared += 1;
                        worst = worst.max(if found.is_nan() { f64::INFINITY } else { (found - exact).abs() / bound });
                    }
                }
            }
        }
        let word = if worst <= 1.0 { "" } else { " TOO MUCH" };
        say(&format!(
            "scaled_mm {name} into {dtype}: {compared} compared, largest error {worst:.3} of the bound{word}"
        ));
        is_good &= worst <= 1.0;
    }
    Ok(is_good)
}

/// Half the smallest number of a dtype.
fn least(dtype: DType) -> f64 {
    match dtype {
        DType::F8E4M3FN => 2_f64.powi(-10),
        DType::F8E5M2 => 2_f64.powi(-17),
        DType::F16 => 2_f64.powi(-25),
        _ => 0.0,
    }
}

/// How long products of large matrices take, the quickest of a few rounds.
fn times(name: &str) -> Result<()> {
    let size = 4096;
    let (a, b) = (factor(size, size, 1, FORMATS[0])?.cuda(None)?, factor(size, size, 2, FORMATS[0])?.cuda(None)?.t()?);
    let whole = |seed: u64| -> Result<Tensor> {
        let bytes: Vec<u8> = codes(size * size, seed).collect();
        Tensor::from_bytes(&bytes, &[size, size], DType::I8)?.cuda(None)
    };
    let (x, y) = (whole(1)?, whole(2)?);
    let one = Tensor::ones(&[], DType::F32, "cuda")?;
    let (rows, columns) =
        (Tensor::ones(&[size, 1], DType::F32, "cuda")?, Tensor::ones(&[1, size], DType::F32, "cuda")?);
    let options = ScaledMm { out_dtype: Some(DType::BF16), ..ScaledMm::default() };
    let fast = ScaledMm { use_fast_accum: true, ..options };
    let turned = y.t()?;
    let wide = Tensor::ones(&[1 << 26], DType::F32, "cuda")?;
    let narrow = wide.to_dtype(FORMATS[0])?;
    type Run<'a> = Box<dyn Fn() -> Result<Tensor> + 'a>;
    let runs: [(&str, Run<'_>); 7] = [
        ("scaled_mm", Box::new(|| a.scaled_mm(&b, &one, &one, &options))),
        ("scaled_mm fast", Box::new(|| a.scaled_mm(&b, &one, &one, &fast))),
        ("scaled_mm rows", Box::new(|| a.scaled_mm(&b, &rows, &columns, &options))),
        ("int_mm turned", Box::new(|| x.int_mm(&turned))),
        ("int_mm", Box::new(|| x.int_mm(&y))),
        ("f32 to e4m3fn, 256 MiB", Box::new(|| wide.to_dtype(FORMATS[0]))),
        ("e4m3fn to bf16, 64 MiB", Box::new(|| narrow.to_dtype(DType::BF16))),
    ];
    let mut line = format!("{name} at {size}, ms:");
    for (what, run) in runs {
        let mut best = f64::INFINITY;
        for _ in 0..4 {
            run()?;
            aten_cuda::synchronize(None)?;
            let begin = Instant::now();
            for _ in 0..5 {
                run()?;
            }
            aten_cuda::synchronize(None)?;
            best = best.min(begin.elapsed().as_secs_f64() * 1e3 / 5.0);
        }
        line.push_str(&format!(" {what} {best:.4};"));
    }
    say(&line);
    Ok(())
}
