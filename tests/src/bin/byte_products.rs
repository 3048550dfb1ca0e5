//! Floats of 8 bits and products of bytes on the GPU of this machine, against the host in `f64`: `byte_products`.
//!
//! Conversions of every number of 16 bits and of every code; `_int_mm` and `_scaled_mm` by cuBLASLt (where there is one)
//! and by the kernels of the crate. Products of integers are exact. Of floats an error is measured beside the sum of all
//! magnitudes: tensor cores add with fewer bits than `f32` has, the kernel for any strides, which results that begin at no
//! multiple of 16 bytes go to, adds in `f32`. Scales are those of tensors, of rows, of parts of 128 elements and of blocks of
//! 128 x 128. Prints a line for each kind with the number of comparisons and the largest error, and how long large products
//! and sums by index take; the exit code is 1 where an error is too large.

#![expect(clippy::wildcard_enum_match_arm, reason = "results have a few of the dtypes")]

use std::process::ExitCode;
use std::time::Instant;

use aten_cuda::blas::{self, ProductLibrary, ScaledMm};
use aten_cuda::{DType, Result, Tensor};
use tests::program::{ended, say};

const FORMATS: [DType; 2] = [DType::F8E4M3FN, DType::F8E5M2];

/// m, k and n: tiles that are cut, single rows, and what fills tiles.
const SIZES: [[i64; 3]; 6] =
    [[17, 16, 16], [65, 80, 144], [128, 256, 128], [200, 1024, 80], [300, 64, 272], [1, 512, 96]];

fn main() -> ExitCode {
    ended(all())
}

fn all() -> Result<bool> {
    index_times()?;
    let mut is_good = conversions()?;
    if let ProductLibrary::Cublas { version, lt_version, .. } = blas::product_library() {
        say(&format!("cuBLAS {version}, cuBLASLt {}", lt_version.as_deref().unwrap_or("none")));
        is_good &= products("library")?;
    }
    blas::set_libraries(None, None);
    is_good &= products("own")?;
    Ok(is_good & integers("any strides")? & floats("any strides")?)
}

/// A contiguous result on the device that begins at no multiple of 16 bytes.
fn odd_result(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let count: i64 = sizes.iter().product();
    Tensor::zeros(&[count + 1], dtype, "cuda")?.narrow(0, 1, count)?.reshape(sizes)
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
            let (a, b) = (there(&a, turned_a)?, there(&b, turned_b)?);
            let found = if name == "any strides" {
                let out = odd_result(&[m, n], DType::I32)?;
                a.int_mm_out(&b, &out)?;
                out.to_vec::<i32>()?
            } else {
                a.int_mm(&b)?.to_vec::<i32>()?
            };
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

/// What a scale is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    Rows,
    Parts,
    Blocks,
}

/// The kinds of both factors that go together.
const KINDS: [[Kind; 2]; 5] = [
    [Kind::Whole, Kind::Whole],
    [Kind::Rows, Kind::Rows],
    [Kind::Blocks, Kind::Parts],
    [Kind::Parts, Kind::Blocks],
    [Kind::Parts, Kind::Parts],
];

/// Elements that a scale of a part is for.
const PART: i64 = 128;

/// Scales of a factor by its lines, and the same for each element as `f64`.
fn scales(lines: i64, inner: i64, kind: Kind) -> Result<(Tensor, Tensor)> {
    let over = |size: i64| (size + PART - 1) / PART;
    let made = |count: i64, parts: i64| -> Result<Tensor> {
        let numbers: Vec<f32> = codes(count * parts, 7).map(|code| 0.125 + f32::from(code) / 256.0).collect();
        Tensor::from_slice(&numbers, &[count, parts])
    };
    let along = |count: i64, of: i64| Tensor::arange(0, count, 1, Some(DType::I64), "cpu")?.floor_divide(of);
    let (scale, shared) = match kind {
        Kind::Whole => (made(1, 1)?, lines),
        Kind::Rows => (made(lines, 1)?, 1),
        Kind::Parts => (made(over(inner), lines)?.t()?, 1),
        Kind::Blocks => (made(over(lines), over(inner))?, PART),
    };
    let inner_shared = if matches!(kind, Kind::Whole | Kind::Rows) { inner } else { PART };
    let each = scale.index_select(0, &along(lines, shared)?)?.index_select(1, &along(inner, inner_shared)?)?;
    let scale = if kind == Kind::Whole { scale.reshape(&[1])? } else { scale };
    Ok((scale, each.to_dtype(DType::F64)?))
}

/// A matrix on the device with the strides that it has on the host.
fn lying(scale: &Tensor) -> Result<Tensor> {
    if scale.is_contiguous() { scale.cuda(None) } else { scale.t()?.cuda(None)?.t() }
}

fn floats(name: &str) -> Result<bool> {
    // Parts of the sum of magnitudes. Tensor cores keep some fourteen bits of each product beside the largest one: on an
    // H200 PyTorch's own results are off by up to 2^-10.6.
    let allowed = if name == "any strides" { 2_f64.powi(-20) } else { 2_f64.powi(-10) };
    let pairs = [(FORMATS[0], FORMATS[0]), (FORMATS[0], FORMATS[1]), (FORMATS[1], FORMATS[0])];
    let mut is_good = true;
    // What is rounded to other dtypes shows nothing of how sums are taken.
    let all = [DType::F32, DType::BF16, DType::F16, DType::F8E4M3FN, DType::F8E5M2];
    let dtypes = if name == "any strides" { &all[..1] } else { &all[..] };
    for &dtype in dtypes {
        let (mut compared, mut worst) = (0_usize, 0.0_f64);
        for ([m, k, n], (first, second)) in SIZES.into_iter().flat_map(|sizes| pairs.map(|pair| (sizes, pair))) {
            let (a, b) = (factor(m, k, 3, first)?, factor(n, k, 4, second)?);
            let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64);
            for kind in KINDS {
                let [(rows, each_a), (columns, each_b)] = [scales(m, k, kind[0])?, scales(n, k, kind[1])?];
                // Factors with their scales, and the sums of their products and of the sizes of these.
                let (left, right) = (wide(&a)?.mul(&each_a)?, wide(&b)?.mul(&each_b)?);
                let sums = left.mm(&right.t()?)?;
                let magnitudes = left.abs()?.mm(&right.abs()?.t()?)?;
                for has_bias in [false, true].into_iter().filter(|has_bias| !has_bias || dtype != DType::F32) {
                    let near = magnitudes.mul(allowed)?;
                    let narrow = if dtype == DType::F16 { DType::F16 } else { DType::BF16 };
                    let bias = Tensor::arange(-8, n - 8, 1, Some(DType::F32), "cpu")?.div(64)?.to_dtype(narrow)?;
                    let exact = if has_bias { sums.add(&wide(&bias)?)? } else { sums.clone() };
                    let bias = bias.cuda(None)?;
                    let options = ScaledMm {
                        bias: Some(&bias).filter(|_| has_bias),
                        out_dtype: Some(dtype),
                        ..ScaledMm::default()
                    };
                    let (a, b) = (a.cuda(None)?, b.cuda(None)?.t()?);
                    let turned = if kind[1] == Kind::Whole { columns.clone() } else { columns.t()? };
                    let (rows, columns) = (lying(&rows)?, lying(&turned)?);
                    let found = if name == "any strides" {
                        let out = odd_result(&[m, n], dtype)?;
                        a.scaled_mm_out(&b, &rows, &columns, &options, &out)?;
                        out
                    } else {
                        a.scaled_mm(&b, &rows, &columns, &options)?
                    };
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
    let blocks = Tensor::ones(&[size / PART, size / PART], DType::F32, "cuda")?;
    let (parts, turned_parts) = {
        let made = Tensor::ones(&[size / PART, size], DType::F32, "cuda")?;
        (made.t()?, made)
    };
    let runs: [(&str, Run<'_>); 10] = [
        ("scaled_mm 1x128 by 1x128", Box::new(|| a.scaled_mm(&b, &parts, &turned_parts, &options))),
        ("1x128 by 128x128", Box::new(|| a.scaled_mm(&b, &parts, &blocks.t()?, &options))),
        ("128x128 by 1x128", Box::new(|| a.scaled_mm(&b, &blocks, &turned_parts, &options))),
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
        line.push_str(&format!(" {what} {:.4};", time(&run)?));
    }
    say(&line);
    Ok(())
}

/// The milliseconds of one of several runs in a row, in the best of a few rounds.
fn time(run: &dyn Fn() -> Result<Tensor>) -> Result<f64> {
    const RUNS: u8 = 20;
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        run()?;
        aten_cuda::synchronize(None)?;
        let begin = Instant::now();
        for _ in 0..RUNS {
            run()?;
        }
        aten_cuda::synchronize(None)?;
        best = best.min(begin.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS));
    }
    Ok(best)
}

/// How long sums by index take, with deterministic algorithms and without: 4 Mi numbers into few places and into many, 64 Ki
/// rows of 256, and 1 Mi numbers that are put or added to as many places.
fn index_times() -> Result<()> {
    let random = |count: i64, below: i64, seed: u64| -> Result<Tensor> {
        let bytes: Vec<u8> = codes(count * 4, seed).collect();
        let words = Tensor::from_bytes(&bytes, &[count], DType::I32)?.to_dtype(DType::I64)?;
        words.remainder(below)?.cuda(None)
    };
    for is_on in [false, true] {
        aten_cuda::deterministic::use_deterministic_algorithms(is_on, true);
        let mut line = format!("sums by index, deterministic {is_on}, ms:");
        for places in [1 << 10, 1 << 16, 1 << 20] {
            let (out, index) = (Tensor::zeros(&[places], DType::F32, "cuda")?, random(1 << 22, places, 3)?);
            let numbers = Tensor::ones(&[1 << 22], DType::F32, "cuda")?;
            let best = time(&|| out.index_add_(0, &index, &numbers, 1).cloned())?;
            line.push_str(&format!(" 4Mi into {places} {best:.4};"));
        }
        let (out, index) = (Tensor::zeros(&[1 << 20], DType::F32, "cuda")?, random(1 << 20, 1 << 20, 4)?);
        let numbers = Tensor::ones(&[1 << 20], DType::F32, "cuda")?;
        for (what, adds) in [("put", false), ("add", true)] {
            let best = time(&|| out.index_put_(&[Some(&index)], &numbers, adds).cloned())?;
            line.push_str(&format!(" {what} 1Mi {best:.4};"));
        }
        for places in [1 << 10, 1 << 16] {
            let (out, index) = (Tensor::zeros(&[places, 256], DType::F32, "cuda")?, random(1 << 16, places, 5)?);
            let numbers = Tensor::ones(&[1 << 16, 256], DType::F32, "cuda")?;
            let best = time(&|| out.index_add_(0, &index, &numbers, 1).cloned())?;
            line.push_str(&format!(" rows into {places} {best:.4};"));
        }
        say(&line);
    }
    aten_cuda::deterministic::use_deterministic_algorithms(false, false);
    Ok(())
}
