//! Reductions, scans and row operations on the simulated device against the host and against sums in `f64`.

use aten_cuda::{CrossEntropy, DType, LossReduction, Result, Tensor, reductions, scans};
use cuda_sim::Config;
use num_complex::Complex64;
use testkit::SimulatedRuntime;

/// Numbers that look random: from -8 to 8 in steps that every float holds, and for integers small ones.
fn values(count: i64, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 57) as f64 - 64.0) / 8.0
        })
        .collect()
}

fn tensor(sizes: &[i64], dtype: DType, seed: u64) -> Result<Tensor> {
    let of = |seed: u64| Tensor::from_slice(&values(sizes.iter().product(), seed), sizes);
    if dtype.is_complex() {
        return of(seed)?.add(&of(seed + 1000)?.mul(Complex64::i())?)?.to_dtype(dtype);
    }
    of(seed)?.to_dtype(dtype)
}

/// The elements, or the parts of complex ones.
fn as_f64(tensor: &Tensor) -> Result<Vec<f64>> {
    if tensor.dtype().is_complex() {
        let pairs = tensor.to_dtype(DType::C128)?.to_vec::<Complex64>()?;
        return Ok(pairs.into_iter().flat_map(|pair| [pair.re, pair.im]).collect());
    }
    tensor.to_dtype(DType::F64)?.to_vec::<f64>()
}

/// Relative distance of neighbouring floats.
fn unit(dtype: DType) -> f64 {
    let real = dtype.to_real();
    let digits = [(DType::F16, 10), (DType::BF16, 7), (DType::F32, 23)].into_iter().find(|&(known, _)| known == real);
    2.0_f64.powi(-digits.map_or(52, |(_, digits)| digits))
}

/// Compares two results: NaNs and infinities stand at the same places, and numbers are close by the scale.
fn assert_close(found: &Tensor, wanted: &Tensor, scale: f64, title: &str) -> Result<()> {
    assert_eq!((found.sizes(), found.dtype()), (wanted.sizes(), wanted.dtype()), "{title}");
    let exact = !found.dtype().is_floating_point() && !found.dtype().is_complex();
    for (at, (found, wanted)) in as_f64(found)?.into_iter().zip(as_f64(wanted)?).enumerate() {
        let same = found == wanted || (found.is_nan() && wanted.is_nan());
        let close = !exact && (found - wanted).abs() <= scale;
        assert!(same || close, "{title}: element {at}: {found} instead of {wanted}");
    }
    Ok(())
}

/// Dtypes of all kinds.
const DTYPES: [DType; 11] = [
    DType::U8,
    DType::Bool,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::C32,
    DType::C64,
    DType::C128,
];

/// Sizes and dimensions: rows along the last, the first, a middle dimension, several and all, empty, one, long.
const SHAPES: &[(&[i64], &[i64])] = &[
    (&[5, 37], &[1]),
    (&[3, 1024], &[1]),
    (&[37, 5], &[0]),
    (&[70, 64], &[0]),
    (&[4, 9, 6], &[1]),
    (&[4, 9, 6], &[0, 2]),
    (&[6, 35], &[]),
    (&[], &[]),
    (&[1], &[0]),
    (&[3, 0], &[0]),
    (&[40_003], &[0]),
];

#[test]
fn every_row_on_the_device_is_as_on_the_host() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for operation in reductions() {
        for dtype in DTYPES {
            if !operation.accepts(dtype) {
                continue;
            }
            for (at, &(sizes, dims)) in SHAPES.iter().enumerate() {
                let mut host = tensor(sizes, dtype, at as u64)?;
                if operation.name == "prod" && dtype.is_complex() {
                    // Parts that overflow become infinities or NaNs, by the order of the products.
                    host = host.mul(0.125)?;
                }
                let (found, wanted) =
                    (by_name(operation.name, &host.cuda(None)?, dims), by_name(operation.name, &host, dims));
                let title = format!("{} {dtype} {sizes:?} along {dims:?}", operation.name);
                let (found, wanted) = match (found, wanted) {
                    (Ok(found), Ok(wanted)) => (found, wanted),
                    (Err(found), Err(wanted)) => {
                        assert_eq!(found.to_string(), wanted.to_string(), "{title}");
                        continue;
                    }
                    (found, wanted) => panic!("{title}: {found:?} and {wanted:?}"),
                };
                // Sums of `count` numbers up to 8 differ by their order; products by a unit for each factor; sums of
                // magnitudes of complex numbers, which are rounded, by units of the sum.
                let count = host.numel().max(1) as f64;
                let most = || as_f64(&wanted).map(|all| all.iter().fold(0.0_f64, |most, value| most.max(value.abs())));
                let scale = match operation.name {
                    "prod" => most()? * count,
                    "norm_1" if dtype.is_complex() => most()? * 16.0,
                    _ => 128.0 * count.sqrt(),
                } * unit(found.dtype());
                assert_close(&found.cpu()?, &wanted, scale, &title)?;
            }
        }
    }
    Ok(())
}

/// The operation of a row of the table.
fn by_name(name: &str, input: &Tensor, dims: &[i64]) -> Result<Tensor> {
    let first = dims.first().copied();
    match name {
        "sum" => input.sum(dims, false, None),
        "nansum" => input.nansum(dims, false, None),
        "mean" => input.mean(dims, true, None),
        "prod" => input.prod(dims, false, None),
        "count_nonzero" => input.count_nonzero(dims),
        "any" => input.any(dims, false),
        "all" => input.all(dims, true),
        "amax" => input.amax(dims, false),
        "amin" => input.amin(dims, true),
        "max" => input.max(),
        "min" => input.min(),
        "max_dim" => Ok(input.max_dim(first.unwrap_or(0), false)?.1),
        "min_dim" => Ok(input.min_dim(first.unwrap_or(0), false)?.0),
        "argmax" => input.argmax(first, false),
        "argmin" => input.argmin(first, true),
        "var" => input.var(dims, 1, false),
        "std" => input.std(dims, 0, false),
        "logsumexp" => input.logsumexp(dims, false),
        "norm_0" => input.norm(0, dims, false, None),
        "norm_1" => input.norm(1, dims, false, None),
        "norm_2" => input.norm(2, dims, false, None),
        "norm_p" => input.norm(3.0, dims, false, None),
        "norm_inf" => input.norm(f64::INFINITY, dims, false, None),
        "norm_minus_inf" => input.norm(f64::NEG_INFINITY, dims, false, None),
        "cumsum" => input.cumsum(first.unwrap_or(0), None),
        "cumprod" => input.cumprod(first.unwrap_or(0), None),
        "cummax" => Ok(input.cummax(first.unwrap_or(0))?.1),
        "cummin" => Ok(input.cummin(first.unwrap_or(0))?.0),
        "logcumsumexp" => input.logcumsumexp(first.unwrap_or(0)),
        _ => panic!("the test does not know {name}"),
    }
}

#[test]
fn scans_on_the_device_are_those_of_the_host() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for operation in scans() {
        for dtype in [DType::U8, DType::Bool, DType::I64, DType::F16, DType::F32, DType::F64] {
            if !operation.accepts(dtype) {
                continue;
            }
            let shapes: [(&[i64], i64); 9] = [
                (&[5, 37], 1),
                (&[5, 64], 1),
                (&[37, 5], 0),
                (&[4, 9, 6], 1),
                (&[], 0),
                (&[3, 0], 1),
                (&[300], 0),
                (&[2, 5000], 1),
                (&[20_000, 2], 0),
            ];
            for (sizes, dim) in shapes {
                let mut host = tensor(sizes, dtype, 3)?;
                if operation.name == "cumprod" && dtype.is_floating_point() {
                    // Products that overflow and then meet a zero depend on the order.
                    host = host.mul(0.125)?;
                }
                let found = by_name(operation.name, &host.cuda(None)?, &[dim])?.cpu()?;
                let wanted = match operation.name {
                    // The host takes one element after another, so that its own sums in f32 drift.
                    "logcumsumexp" => host.to_dtype(DType::F64)?.logcumsumexp(dim)?.to_dtype(dtype)?,
                    name => by_name(name, &host, &[dim])?,
                };
                // Sums of these numbers are exact in f32 and f64. Products differ by a unit for each factor,
                // exponentials and their logarithms in the last bits.
                let count = host.numel().max(1) as f64;
                let scale = match operation.name {
                    // The reference takes one element after another in f64.
                    "logcumsumexp" => 64.0 + count * unit(DType::F64) / unit(dtype),
                    "cumprod" => as_f64(&wanted)?.iter().fold(0.0_f64, |most, value| most.max(value.abs())) * count,
                    "cumsum" if dtype == DType::F16 => 1024.0,
                    _ => 0.0,
                } * unit(dtype);
                assert_close(&found, &wanted, scale, &format!("{} {dtype} {sizes:?}", operation.name))?;
            }
        }
    }
    Ok(())
}

/// Sums of every schedule against sums in `f64`.
#[test]
fn sums_are_close_to_those_in_f64() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let shapes: [(&[i64], &[i64]); 9] = [
        (&[300_001], &[0]),
        (&[2, 100_000], &[1]),
        (&[9, 8192], &[1]),
        (&[4, 33_000], &[1]),
        (&[20_000, 3], &[0]),
        (&[3000, 64], &[0]),
        (&[7, 11, 13], &[0, 2]),
        (&[64, 5, 64], &[1]),
        (&[1100, 2, 7], &[0, 1]),
    ];
    for dtype in [DType::F16, DType::F32, DType::F64, DType::I32] {
        for (sizes, dims) in shapes {
            let host = tensor(sizes, dtype, 11)?;
            let exact = host.to_dtype(DType::F64)?.sum(dims, false, None)?;
            let found = host.cuda(None)?.sum(dims, false, None)?.cpu()?;
            let magnitude = host.to_dtype(DType::F64)?.abs()?.sum(dims, false, None)?.max()?.item()?.to_f64();
            // A half is rounded once, in the end.
            let largest = as_f64(&exact)?.iter().fold(0.0_f64, |most, sum| most.max(sum.abs()));
            let scale = unit(dtype) * if dtype == DType::F16 { largest } else { 16.0 * magnitude };
            let wanted = exact.to_dtype(found.dtype())?;
            assert_close(&found, &wanted, scale, &format!("sum {dtype} {sizes:?} along {dims:?}"))?;
        }
    }
    Ok(())
}

#[test]
fn views_that_are_not_contiguous_are_reduced_too() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let host = tensor(&[12, 10, 8], DType::F32, 5)?;
    let device = host.cuda(None)?;
    let views: [fn(&Tensor) -> Result<Tensor>; 5] = [
        |tensor| tensor.transpose(0, 2),
        |tensor| tensor.slice(2, Some(1), None, 2),
        |tensor| tensor.select(1, 3),
        |tensor| tensor.narrow(0, 3, 5),
        |tensor| tensor.select(0, 1)?.unsqueeze(0)?.expand(&[6, 10, 8]),
    ];
    for (at, view) in views.iter().enumerate() {
        let (host, device) = (view(&host)?, view(&device)?);
        for dim in 0..host.dim() as i64 {
            let title = format!("view {at} along {dim}");
            assert_close(&device.sum(dim, false, None)?.cpu()?, &host.sum(dim, false, None)?, 1e-4, &title)?;
            assert_close(&device.argmin(dim, false)?.cpu()?, &host.argmin(dim, false)?, 0.0, &title)?;
            assert_close(&device.var(dim, 1, false)?.cpu()?, &host.var(dim, 1, false)?, 1e-4, &title)?;
            assert_close(&device.softmax(dim, None)?.cpu()?, &host.softmax(dim, None)?, 1e-6, &title)?;
            assert_close(&device.cumsum(dim, None)?.cpu()?, &host.cumsum(dim, None)?, 0.0, &title)?;
            assert_close(&device.cummax(dim)?.1.cpu()?, &host.cummax(dim)?.1, 0.0, &title)?;
        }
    }
    Ok(())
}

#[test]
fn the_order_of_work_does_not_change_a_bit() -> Result<()> {
    let mut first: Option<Vec<Vec<u8>>> = None;
    for seed in 0..4 {
        let _simulated = SimulatedRuntime::new(Config::default().seed(seed));
        let long = tensor(&[200_000], DType::F32, 1)?.cuda(None)?.mul(0.1)?;
        let rows = tensor(&[9, 5000], DType::F32, 2)?.cuda(None)?.mul(0.1)?;
        let columns = tensor(&[3000, 7], DType::F32, 3)?.cuda(None)?.mul(0.1)?;
        let results = [
            long.sum((), false, None)?,
            long.var((), 1, false)?,
            long.norm(2, (), false, None)?,
            rows.sum(1, false, None)?,
            rows.softmax(1, None)?,
            columns.mean(0, false, None)?,
            columns.logsumexp(0, false)?,
            rows.cumsum(1, None)?,
        ];
        let bytes: Vec<Vec<u8>> = results.iter().map(Tensor::to_bytes).collect::<Result<_>>()?;
        match &first {
            Some(first) => assert_eq!(*first, bytes, "seed {seed}"),
            None => first = Some(bytes),
        }
    }
    Ok(())
}

#[test]
fn nans_and_infinities_count_as_in_torch() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let host = Tensor::from_slice(&[1.0, nan, 3.0, nan, inf, 2.0, -inf, 5.0, -inf, -inf, -inf, -inf], &[3, 4])?;
    for input in [host.clone(), host.cuda(None)?] {
        let (values, places) = input.max_dim(1, false)?;
        assert!(values.to_vec::<f32>()?[0].is_nan());
        assert_eq!(values.to_vec::<f32>()?[1..], [inf, -inf]);
        assert_eq!(places.to_vec::<i64>()?, [1, 0, 0]);
        assert_eq!(input.argmin(1, false)?.to_vec::<i64>()?, [1, 2, 0]);
        assert_eq!(input.nansum(1, false, None)?.to_vec::<f32>()?[0], 4.0);
        assert!(input.amin((), false)?.to_vec::<f32>()?[0].is_nan());
        let sums = input.sum(1, false, None)?.to_vec::<f32>()?;
        assert!(sums[0].is_nan() && sums[1].is_nan() && sums[2] == -inf);
        assert_eq!(input.logsumexp(1, false)?.to_vec::<f32>()?[1..], [inf, -inf]);
        assert!(input.softmax(1, None)?.to_vec::<f32>()?.iter().all(|value| value.is_nan()));
        assert_eq!(input.cummax(1)?.1.to_vec::<i64>()?, [0, 1, 1, 3, 0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!(input.any(1, false)?.to_bools()?, [true, true, true]);
    }
    Ok(())
}

#[test]
fn ties_go_to_the_first_place_and_empty_rows_have_their_own_results() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let ties = Tensor::from_slice(&vec![7_i32; 5000], &[5000])?.cuda(None)?;
    assert_eq!(ties.argmax(None, false)?.to_vec::<i64>()?, [0]);
    assert_eq!(ties.max_dim(0, true)?.1.to_vec::<i64>()?, [0]);
    let none = Tensor::zeros(&[2, 0], DType::F32, "cuda")?;
    assert_eq!(none.sum(1, false, None)?.to_vec::<f32>()?, [0.0, 0.0]);
    assert_eq!(none.prod(1, false, None)?.to_vec::<f32>()?, [1.0, 1.0]);
    assert_eq!(none.all(1, false)?.to_bools()?, [true, true]);
    assert!(none.mean(1, false, None)?.to_vec::<f32>()?.iter().all(|mean| mean.is_nan()));
    assert!(none.var(1, 1, false)?.to_vec::<f32>()?.iter().all(|variance| variance.is_nan()));
    assert_eq!(none.logsumexp(1, false)?.to_vec::<f32>()?, [f32::NEG_INFINITY; 2]);
    assert_eq!(none.amax(0, false)?.sizes(), [0]);
    let constant = Tensor::full(&[1000], 0.1, DType::F32, "cuda")?;
    assert_eq!(constant.std((), 1, false)?.to_vec::<f32>()?, [0.0]);
    Ok(())
}

#[test]
fn mistakes_have_the_texts_of_torch() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let text = |result: Result<Tensor>| result.map_or_else(|error| error.to_string(), |tensor| format!("{tensor:?}"));
    let a = Tensor::zeros(&[2, 3], DType::F32, "cuda")?;
    let ints = Tensor::zeros(&[2, 3], DType::I64, "cuda")?;
    let none = Tensor::zeros(&[2, 0], DType::F32, "cuda")?;
    assert_eq!(text(a.sum(5, false, None)), "Dimension out of range (expected to be in range of [-2, 1], but got 5)");
    assert_eq!(text(a.sum([0, -2], false, None)), "dim 0 appears multiple times in the list of dims");
    let got = "Input dtype must be either a floating point or complex dtype. Got: Long";
    assert_eq!(text(ints.mean((), false, None)), format!("mean(): could not infer output dtype. {got}"));
    assert_eq!(text(ints.std((), 1, false)), "std and var only support floating point and complex dtypes");
    assert_eq!(text(ints.softmax(0, None)), "\"host_softmax\" not implemented for 'Long'");
    let got = "linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long";
    assert_eq!(text(ints.norm(2, (), false, None)), got);
    assert_eq!(text(ints.to_dtype(DType::Bool)?.argmax(0, false)), "argmax(): does not support bool input");
    let needs = "Expected reduction dim to be specified for input.numel() == 0.";
    assert_eq!(text(none.argmax(None, false)), format!("argmax(): {needs}"));
    assert_eq!(text(none.max()), format!("max(): {needs} Specify the reduction dim with the 'dim' argument."));
    assert_eq!(text(none.amax(1, false)), "amax(): Expected reduction dim 1 to have non-zero size.");
    assert_eq!(
        none.max_dim(1, false).map_err(|error| error.to_string()).unwrap_err(),
        "max(): Expected reduction dim 1 to have non-zero size."
    );
    let out = Tensor::zeros(&[2], DType::F64, "cuda")?;
    let refused = a.amax_out(1, false, &out).map_err(|error| error.to_string());
    let text =
        "Expected the dtype for input and out to match, but got Float for input's dtype and Double for out's dtype.";
    assert_eq!(refused, Err(text.to_owned()));
    a.add(1)?.sum_out(1, false, &out)?;
    assert_eq!(out.to_vec::<f64>()?, [3.0, 3.0]);
    Ok(())
}

#[test]
fn rows_are_normalised() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for (sizes, dtype) in [
        (&[3, 7][..], DType::F32),
        (&[5, 64], DType::F16),
        (&[2, 3, 4096], DType::F32),
        (&[2, 40_000], DType::F32),
        (&[4, 130], DType::F64),
        (&[2, 9001], DType::BF16),
    ] {
        let host = tensor(sizes, dtype, 9)?;
        let last = &sizes[sizes.len() - 1..];
        let (weight, bias) = (tensor(last, dtype, 1)?, tensor(last, dtype, 2)?);
        let device = host.cuda(None)?;
        let title = format!("{sizes:?} {dtype}");
        let found = device.layer_norm(last, Some(&weight.cuda(None)?), Some(&bias.cuda(None)?), 1e-5)?.cpu()?;
        let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64);
        let exact = wide(&host)?.layer_norm(last, Some(&wide(&weight)?), Some(&wide(&bias)?), 1e-5)?.to_dtype(dtype)?;
        assert_close(&found, &exact, 64.0 * unit(dtype), &format!("layer_norm {title}"))?;
        let sums = device.softmax(-1, None)?.to_dtype(DType::F64)?.sum(-1, false, None)?;
        for sum in sums.to_vec::<f64>()? {
            assert!((sum - 1.0).abs() < 8.0 * unit(dtype), "softmax {title}: {sum}");
        }
        let exact = wide(&host)?.log_softmax(-1, None)?.to_dtype(dtype)?;
        assert_close(
            &device.log_softmax(-1, None)?.cpu()?,
            &exact,
            32.0 * unit(dtype),
            &format!("log_softmax {title}"),
        )?;
    }
    Ok(())
}

#[test]
fn cross_entropy_is_the_mean_of_negative_logarithms() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let host = tensor(&[4, 9], DType::F32, 4)?;
    let target = Tensor::from_slice(&[3_i64, 0, -100, 8], &[4])?;
    let logarithms = host.to_dtype(DType::F64)?.log_softmax(1, None)?.to_vec::<f64>()?;
    let each = [-logarithms[3], -logarithms[9], 0.0, -logarithms[27 + 8]];
    for (input, target) in [(host.clone(), target.clone()), (host.cuda(None)?, target.cuda(None)?)] {
        let none = CrossEntropy { reduction: LossReduction::None, ..CrossEntropy::default() };
        for (found, wanted) in input.cross_entropy(&target, &none)?.to_vec::<f32>()?.into_iter().zip(each) {
            assert!((f64::from(found) - wanted).abs() < 1e-5, "{found} instead of {wanted}");
        }
        let mean = input.cross_entropy(&target, &CrossEntropy::default())?.item()?.to_f64();
        assert!((mean - each.iter().sum::<f64>() / 3.0).abs() < 1e-5);
        let smooth = CrossEntropy { label_smoothing: 0.1, reduction: LossReduction::Sum, ..CrossEntropy::default() };
        let shared: f64 =
            [0, 1, 3].iter().map(|row| -logarithms[row * 9..(row + 1) * 9].iter().sum::<f64>() / 9.0).sum();
        let wanted = 0.9 * each.iter().sum::<f64>() + 0.1 * shared;
        assert!((input.cross_entropy(&target, &smooth)?.item()?.to_f64() - wanted).abs() < 1e-4);
    }
    let wrong = host.cross_entropy(&Tensor::from_slice(&[9_i64; 4], &[4])?, &CrossEntropy::default());
    assert_eq!(
        wrong.map_err(|error| error.to_string()).unwrap_err(),
        "Target 9 is out of bounds. cross_entropy() has 9 classes (element 0 of the target)"
    );
    Ok(())
}
