//! Forms of operations that torch has beside the usual ones: numbers as bases, decimals, probabilities as targets, and
//! layouts of joined tensors. Expected values are PyTorch's.

use aten_cuda::{Complex64, CrossEntropy, DType, LossReduction, Result, Scalar, Tensor};

const DEVICES: [&str; 2] = ["cpu", "cuda"];

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, wanted: &str) {
    let error = result.expect_err("it is refused").to_string();
    assert!(error.contains(wanted), "{error:?} should say {wanted:?}");
}

#[test]
fn powers_of_numbers() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let check = |base: Scalar, exponents: DType, dtype: DType, wanted: [f64; 4]| -> Result<()> {
        for device in DEVICES {
            let exponents = Tensor::arange(0, 4, 1, Some(DType::I64), device)?.to_dtype(exponents)?;
            let powers = Tensor::pow_of(base, &exponents)?;
            assert_eq!(powers.dtype(), dtype, "{base:?}");
            assert_eq!(powers.to_dtype(DType::F64)?.to_vec::<f64>()?, wanted, "{base:?} {dtype} {device}");
        }
        Ok(())
    };
    let halves = [1.0, 2.5, 6.25, 15.625];
    check(2.into(), DType::F32, DType::F32, [1.0, 2.0, 4.0, 8.0])?;
    check(2.5.into(), DType::F16, DType::F16, halves)?;
    check(2.5.into(), DType::I64, DType::F32, halves)?;
    check((-2).into(), DType::I32, DType::I32, [1.0, -2.0, 4.0, -8.0])?;
    check((-2).into(), DType::U8, DType::U8, [1.0, 254.0, 4.0, 248.0])?;
    check(2.into(), DType::Bool, DType::I64, [1.0, 2.0, 2.0, 2.0])?;
    check(2.5.into(), DType::Bool, DType::F32, [1.0, 2.5, 2.5, 2.5])?;
    check(0.0.into(), DType::I64, DType::F32, [1.0, 0.0, 0.0, 0.0])?;
    check(true.into(), DType::F64, DType::F64, [1.0; 4])?;
    check(f64::INFINITY.into(), DType::BF16, DType::BF16, [1.0, f64::INFINITY, f64::INFINITY, f64::INFINITY])?;
    for device in DEVICES {
        let exponents = Tensor::arange(0, 4, 1, Some(DType::F64), device)?;
        let powers = Tensor::pow_of(Complex64::new(0.0, 1.0), &exponents)?;
        let wanted = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)];
        assert_eq!(powers.dtype(), DType::C128);
        let near = |found: &Complex64, (re, im): (f64, f64)| (found - Complex64::new(re, im)).norm() < 1e-15;
        assert!(
            powers.to_vec::<Complex64>()?.iter().zip(wanted).all(|(found, wanted)| near(found, wanted)),
            "{powers}"
        );
        let truths = exponents.to_dtype(DType::Bool)?;
        refused(Tensor::pow_of(true, &truths), "\"pow_cuda\" not implemented for 'Bool'");
    }
    Ok(())
}

#[test]
fn rounding_to_decimals() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let numbers = [0.125_f32, 2.5, -3.45678, 12345.678, f32::INFINITY, f32::NAN, 1e30, 0.045];
    for line in include_str!("data/round.txt").lines().filter(|line| !line.starts_with('#')) {
        let [dtype, decimals, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let dtype = match dtype {
            "f16" => DType::F16,
            "bf16" => DType::BF16,
            "f32" => DType::F32,
            _ => DType::F64,
        };
        let byte = |at: usize| u8::from_str_radix(&bytes[at..at + 2], 16).expect("hexadecimal digits");
        let bytes: Vec<u8> = (0..bytes.len()).step_by(2).map(byte).collect();
        let as_numbers = |tensor: &Tensor| tensor.to_dtype(DType::F64)?.to_vec::<f64>();
        let wanted = as_numbers(&Tensor::from_bytes(&bytes, &[8], dtype)?)?;
        for device in DEVICES {
            let rounded = Tensor::from_slice(&numbers, &[8])?
                .to_device(device)?
                .to_dtype(dtype)?
                .round_decimals(decimals.parse().expect("a number"))?;
            let found = as_numbers(&rounded)?;
            let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(found.iter().zip(&wanted).all(same), "{line} {device}: {found:?} {wanted:?}");
        }
    }
    let whole = Tensor::from_slice(&[15_i32, 25], &[2])?;
    assert_eq!(whole.round_decimals(0)?.to_vec::<i32>()?, [15, 25]);
    refused(whole.round_decimals(1), "\"round_cuda\" not implemented for 'Int'");
    let tensor = Tensor::from_slice(&[1.25_f64, 1.375], &[2])?;
    tensor.round_decimals_(1)?;
    assert_eq!(tensor.to_vec::<f64>()?, [1.2, 1.4]);
    Ok(())
}

/// Logits, probabilities and weights of the recorded losses.
fn recorded(lines: &[&str]) -> Result<[Tensor; 3]> {
    let numbers =
        |line: &str| -> Vec<f64> { line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect() };
    let sizes: Vec<i64> = lines[0].split(' ').skip(1).map(|word| word.parse().expect("a size")).collect();
    let weights = numbers(lines[3]);
    let count = i64::try_from(weights.len()).unwrap_or(0);
    Ok([
        Tensor::from_slice(&numbers(lines[1]), &sizes)?,
        Tensor::from_slice(&numbers(lines[2]), &sizes)?,
        Tensor::from_slice(&weights, &[count])?,
    ])
}

#[test]
fn cross_entropies_of_probabilities() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let lines: Vec<&str> = include_str!("data/cross_entropy.txt").lines().skip(2).collect();
    let blocks: Vec<&[&str]> = lines.chunks(16).collect();
    for block in blocks {
        for device in DEVICES {
            let [logits, target, weight] = recorded(block)?.map(|tensor| tensor.to_device(device));
            let (logits, target, weight) = (logits?, target?, weight?);
            for line in &block[4..] {
                let (how, wanted) = line.split_once(" = ").expect("a loss");
                let [reduction, smoothing, weighted] = how.split(' ').collect::<Vec<_>>()[..] else { panic!("{how}") };
                let options = CrossEntropy {
                    weight: (weighted == "true").then_some(&weight),
                    reduction: match reduction {
                        "none" => LossReduction::None,
                        "mean" => LossReduction::Mean,
                        _ => LossReduction::Sum,
                    },
                    label_smoothing: smoothing.parse().expect("a number"),
                    ..CrossEntropy::default()
                };
                let found = logits.cross_entropy(&target, &options)?.to_vec::<f64>()?;
                let wanted: Vec<f64> = wanted.split(' ').map(|word| word.parse().expect("a number")).collect();
                assert_eq!(found.len(), wanted.len(), "{line}");
                let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-14 * b.abs().max(1.0);
                assert!(found.iter().zip(&wanted).all(near), "{line} {device}: {found:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn targets_that_do_not_fit_are_refused() -> Result<()> {
    let floats = |sizes: &[i64]| Tensor::ones(sizes, DType::F32, "cpu");
    let (logits, usual) = (floats(&[2, 3])?, CrossEntropy::default());
    let whole = floats(&[2, 3])?.to_dtype(DType::I64)?;
    refused(
        logits.cross_entropy(&whole, &usual),
        "Expected floating point type for target with class probabilities, got Long",
    );
    let ignoring = CrossEntropy { ignore_index: 1, ..usual };
    refused(logits.cross_entropy(&logits, &ignoring), "ignore_index is not supported for floating point target");
    let other = logits.cross_entropy(&floats(&[3, 3])?, &usual);
    refused(other, "Expected input batch_size (2) to match target batch_size (3).");
    let short = floats(&[2])?;
    let weighted = CrossEntropy { weight: Some(&short), ..usual };
    refused(
        logits.cross_entropy(&logits, &weighted),
        "for all 3 classes or no classes but got weight tensor of shape: [2]",
    );
    refused(logits.cross_entropy(&short, &usual), "expected scalar type Long but found Float");
    let nothing = floats(&[0, 3])?;
    assert!(nothing.cross_entropy(&nothing, &usual)?.item()?.to_f64().is_nan());
    let mixed = logits.cross_entropy(&logits.to_dtype(DType::F64)?, &usual)?;
    assert_eq!((mixed.dtype(), (mixed.item()?.to_f64() * 1e4).round()), (DType::F64, 32958.0));
    Ok(())
}

/// Elements of sizes and strides, in memory of their own.
fn laid(sizes: &[i64], strides: &[i64]) -> Result<Tensor> {
    let extent = sizes.iter().zip(strides).map(|(size, stride)| (size - 1) * stride).sum::<i64>() + 1;
    Tensor::arange(0, extent, 1, Some(DType::F32), "cpu")?.as_strided(sizes, strides, Some(0))
}

#[test]
fn joined_tensors_keep_their_channels_last() -> Result<()> {
    let last = laid(&[2, 3, 4, 5], &[60, 1, 15, 3])?;
    let rows = laid(&[2, 3, 4, 5], &[60, 20, 5, 1])?;
    let one = laid(&[2, 1, 4, 5], &[20, 1, 5, 1])?;
    let volume = laid(&[2, 3, 2, 4, 5], &[120, 1, 60, 15, 3])?;
    let nothing = Tensor::empty(&[0], DType::F32, "cpu")?;
    let check = |tensors: &[&Tensor], dim: i64, wanted: &[i64]| -> Result<()> {
        let joined = Tensor::cat(tensors, dim)?;
        assert_eq!(joined.strides(), wanted, "along {dim}");
        // The elements are those of tensors that lie row by row.
        let plain = tensors.iter().map(|tensor| tensor.contiguous()).collect::<Result<Vec<_>>>()?;
        let plain = Tensor::cat(&plain.iter().collect::<Vec<_>>(), dim)?;
        assert_eq!(joined.contiguous()?.to_vec::<f32>()?, plain.to_vec::<f32>()?);
        Ok(())
    };
    check(&[&last, &last], 0, &[60, 1, 15, 3])?;
    check(&[&last, &last], 1, &[120, 1, 30, 6])?;
    check(&[&last, &last], 2, &[120, 1, 15, 3])?;
    check(&[&last, &last], 3, &[120, 1, 30, 3])?;
    check(&[&last, &rows], 1, &[120, 20, 5, 1])?;
    check(&[&rows, &last], 3, &[120, 40, 10, 1])?;
    check(&[&last, &one], 1, &[80, 1, 20, 4])?;
    check(&[&one, &one], 1, &[40, 1, 10, 2])?;
    check(&[&volume, &volume], 1, &[240, 1, 120, 30, 6])?;
    // An empty tensor takes part in the layout, though it is left out.
    check(&[&nothing, &last, &last], 1, &[120, 20, 5, 1])?;
    check(&[&last, &nothing], 2, &[60, 20, 5, 1])?;
    let points = laid(&[2, 3, 1, 1], &[3, 1, 1, 1])?;
    check(&[&points, &points], 1, &[6, 1, 1, 1])?;
    assert_eq!(Tensor::stack(&[&last, &last], 0)?.strides(), [120, 60, 1, 15, 3]);
    assert_eq!(Tensor::stack(&[&rows, &rows], 4)?.sizes(), [2, 3, 4, 5, 2]);
    let wider = Tensor::cat(&[&last, &last.to_dtype(DType::F64)?], 1)?;
    assert_eq!((wider.dtype(), wider.strides()), (DType::F64, &[120, 1, 30, 6][..]));
    Ok(())
}

#[test]
fn bounds_of_unsigned_numbers_are_not_negative() -> Result<()> {
    let bytes = Tensor::from_slice(&[0_u8, 7, 200], &[3])?;
    refused(bytes.hardtanh(-1, 1), "cannot do hardtanh on an unsigned type with negative limits");
    assert_eq!(bytes.hardtanh(1, 9)?.to_vec::<u8>()?, [1, 7, 9]);
    Ok(())
}
