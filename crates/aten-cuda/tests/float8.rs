//! Floats of 8 bits: conversions from and to every dtype on the host and on the simulated device, against the definition
//! of the formats and against what PyTorch 2.11 gave on an H200; what is there of other operations, and how dtypes combine.

use aten_cuda::{DType, Result, Scalar, Tensor, promote_types, result_type};

/// Each format with the bits of its fraction, the bias of its exponent and the code of numbers that are too large.
const FORMATS: [(DType, u32, i32, u8); 2] = [(DType::F8E4M3FN, 3, 7, 0x7f), (DType::F8E5M2, 2, 15, 0x7c)];

/// What a code without its sign would stand for, were none an infinity or a NaN.
fn worth(code: u8, fraction: u32, bias: i32) -> f64 {
    let (exponent, rest) = (i32::from(code >> fraction), f64::from(code & ((1 << fraction) - 1)));
    let steps = 1 << fraction;
    let (exponent, rest) = if exponent == 0 { (1, rest) } else { (exponent, rest + f64::from(steps)) };
    rest / f64::from(steps) * 2_f64.powi(exponent - bias)
}

/// The number of a code.
fn value(code: u8, (_, fraction, bias, overflow): (DType, u32, i32, u8)) -> f64 {
    let magnitude = code & 0x7f;
    let number = match magnitude {
        0x7f => f64::NAN,
        _ if magnitude == overflow => f64::INFINITY,
        _ if magnitude > overflow => f64::NAN,
        _ => worth(magnitude, fraction, bias),
    };
    if code >= 0x80 { -number } else { number }
}

/// The nearest code of a number, of two the even one.
fn nearest(number: f64, (_, fraction, bias, overflow): (DType, u32, i32, u8)) -> u8 {
    let sign = if number.is_sign_negative() { 0x80 } else { 0 };
    if number.is_nan() {
        return sign | 0x7f;
    }
    let magnitude = number.abs().min(1e6);
    let above = (0..=overflow).find(|&code| worth(code, fraction, bias) >= magnitude).unwrap_or(overflow);
    if above == 0 {
        return sign;
    }
    let (low, high) = (magnitude - worth(above - 1, fraction, bias), worth(above, fraction, bias) - magnitude);
    // Beyond the last code of all, `high` is below zero.
    let takes_low = low < high || (low.to_bits() == high.to_bits() && above & 1 == 1);
    sign | if takes_low { above - 1 } else { above }
}

fn is_nan(code: u8, format: (DType, u32, i32, u8)) -> bool {
    value(code, format).is_nan()
}

fn places(device: &str, tensor: &Tensor) -> Result<Tensor> {
    tensor.to_device(device)
}

#[test]
fn every_number_of_16_bits_becomes_the_nearest_code() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for from in [DType::F16, DType::BF16] {
        let numbers = Tensor::from_bytes(&all, &[1 << 16], from)?;
        let exact = numbers.to_dtype(DType::F64)?.to_vec::<f64>()?;
        for format in FORMATS {
            for device in ["cpu", "cuda"] {
                let codes = places(device, &numbers)?.to_dtype(format.0)?.to_bytes()?;
                for (code, number) in codes.iter().zip(&exact) {
                    let wanted = nearest(*number, format);
                    let both_nan = number.is_nan() && is_nan(*code, format);
                    assert!(
                        *code == wanted || both_nan,
                        "{number:e} of {from} on {device}: {code:#x}, not {wanted:#x}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_code_becomes_its_number_in_every_dtype() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let all: Vec<u8> = (0..=u8::MAX).collect();
    for format in FORMATS {
        let codes = Tensor::from_bytes(&all, &[256], format.0)?;
        for device in ["cpu", "cuda"] {
            let codes = places(device, &codes)?;
            for to in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::C32, DType::C64, DType::C128] {
                let wide = codes.to_dtype(to)?.to_dtype(DType::C128)?.to_vec::<num_complex::Complex64>()?;
                for (code, number) in all.iter().zip(wide) {
                    let wanted = value(*code, format);
                    let same = number.re.to_bits() == wanted.to_bits() || number.re.is_nan() && wanted.is_nan();
                    assert!(same && number.im == 0.0, "{code:#x} of {} as {to} on {device}: {number}", format.0);
                }
                // A copy keeps every code, a way through wider floats all but the NaNs' fractions.
                let back = codes.to_dtype(to)?.to_dtype(format.0)?.to_bytes()?;
                let fits = |(a, b): (&u8, &u8)| a == b || is_nan(*a, format) && is_nan(*b, format);
                assert!(all.iter().zip(&back).all(fits), "{} by way of {to} on {device}", format.0);
            }
            assert_eq!(codes.copy()?.to_bytes()?, all);
            assert_eq!(codes.view(&[16, 16])?.t()?.contiguous()?.t()?.contiguous()?.to_bytes()?, all);
            let truth = codes.to_dtype(DType::Bool)?.to_bools()?;
            assert!(all.iter().zip(truth).all(|(code, is_true)| is_true == (code & 0x7f != 0)));
            let whole = codes.narrow(0, 0, 0x60)?.to_dtype(DType::I32)?.to_vec::<i32>()?;
            let towards_zero = |code: &u8| value(*code, format).trunc();
            assert!(all.iter().zip(whole).all(|(code, number)| f64::from(number) == towards_zero(code)));
        }
    }
    Ok(())
}

/// Numbers of 64 bits go by way of `f32`: rounded twice. The codes are those of PyTorch.
#[test]
fn wide_numbers_become_the_codes_of_torch() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let floats = [
        1.0625,
        1.0625 + 2_f64.powi(-40),
        1.0625 - 2_f64.powi(-40),
        464.0,
        464.000_000_1,
        61440.0,
        61_439.999_999_9,
        2_f64.powi(-10),
        2_f64.powi(-10) + 2_f64.powi(-50),
        1e300,
        -1e300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        2_f64.powi(-17),
        1.5 * 2_f64.powi(-17),
        1e-320,
    ];
    let whole: [i64; 22] = [
        0,
        1,
        -1,
        7,
        17,
        19,
        25,
        27,
        -300,
        447,
        464,
        465,
        480,
        500,
        1 << 20,
        61439,
        61440,
        65536,
        1_i64 << 62,
        -(1_i64 << 62),
        16_777_217,
        (1 << 24) * 3 + 1,
    ];
    let wanted: [(DType, [u8; 16], [u8; 22]); 2] = [
        (
            DType::F8E4M3FN,
            [56, 56, 56, 126, 126, 127, 127, 0, 0, 127, 255, 127, 255, 0, 0, 0],
            [0, 56, 184, 78, 88, 90, 92, 94, 249, 126, 126, 127, 127, 127, 127, 127, 127, 127, 127, 255, 127, 127],
        ),
        (
            DType::F8E5M2,
            [60, 60, 60, 95, 95, 124, 124, 20, 20, 124, 252, 124, 252, 0, 1, 0],
            [0, 60, 188, 71, 76, 77, 78, 79, 221, 95, 95, 95, 96, 96, 124, 123, 124, 124, 124, 252, 124, 124],
        ),
    ];
    for (dtype, of_floats, of_whole) in wanted {
        for device in ["cpu", "cuda"] {
            let made = places(device, &Tensor::from_slice(&floats, &[16])?)?.to_dtype(dtype)?;
            assert_eq!(made.to_bytes()?, of_floats, "{dtype} on {device}");
            let made = places(device, &Tensor::from_slice(&whole, &[22])?)?.to_dtype(dtype)?;
            assert_eq!(made.to_bytes()?, of_whole, "{dtype} on {device}");
            let target = Tensor::zeros(&[22], dtype, device)?;
            assert_eq!(target.copy_(&Tensor::from_slice(&whole, &[22])?)?.to_bytes()?, of_whole);
        }
    }
    Ok(())
}

#[test]
fn codes_are_indexed_joined_compared_and_printed() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for (dtype, ..) in FORMATS {
        for device in ["cpu", "cuda"] {
            let numbers = Tensor::from_slice(&[1.0_f32, -2.0, 0.0, -0.0, 448.0, f32::NAN], &[6])?;
            let codes = places(device, &numbers)?.to_dtype(dtype)?;
            let places = Tensor::from_slice(&[4_i64, 0, 4], &[3])?.to_device(device)?;
            let taken = codes.index_select(0, &places)?.to_dtype(DType::F32)?;
            assert_eq!(taken.to_vec::<f32>()?, [448.0, 1.0, 448.0]);
            let joined = Tensor::cat(&[&codes.narrow(0, 0, 1)?, &codes.narrow(0, 4, 1)?], 0)?;
            assert_eq!(joined.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0, 448.0]);
            assert_eq!(codes.eq(&codes)?.to_bools()?, [true, true, true, true, true, false]);
            assert_eq!(codes.eq(0.0)?.to_bools()?, [false, false, true, true, false, false]);
            assert_eq!(codes.ne(1)?.to_bools()?, [false, true, true, true, true, true]);
            assert_eq!(codes.isnan()?.to_bools()?, [false, false, false, false, false, true]);
            let chosen = codes.eq(&codes)?.where_cond(&codes, 2.0)?;
            assert_eq!(chosen.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0, -2.0, 0.0, 0.0, 448.0, 2.0]);
            // Sums of several values for one place are rounded once.
            let sums = Tensor::zeros(&[2], dtype, device)?;
            let twice = Tensor::from_slice(&[1_i64, 1], &[2])?.to_device(device)?;
            sums.index_put_(&[Some(&twice)], &Tensor::full(&[2], 1.5, dtype, device)?, true)?;
            assert_eq!(sums.to_dtype(DType::F32)?.to_vec::<f32>()?, [0.0, 3.0]);
            assert_eq!(codes.narrow(0, 1, 1)?.item()?, Scalar::Float(-2.0));
            assert_eq!(codes.narrow(0, 0, 5)?.sum((), false, DType::F32)?.item()?, Scalar::Float(447.0));
        }
        let shown = [f32::NAN, 448.0, -0.0, 0.015_625];
        let shown = Tensor::from_slice(&shown, &[4])?.cuda(None)?.to_dtype(dtype)?.to_string();
        let name = dtype.torch_name();
        let wanted =
            format!("tensor([       nan, 4.4800e+02, -0.0000e+00, 1.5625e-02], device='cuda:0',\n       dtype={name})");
        assert_eq!(shown, wanted);
    }
    Ok(())
}

#[test]
fn dtypes_combine_as_in_torch() {
    for (dtype, ..) in FORMATS {
        assert_eq!(promote_types(dtype, dtype).ok(), Some(dtype));
        for other in DType::ALL.into_iter().filter(|&other| other != dtype) {
            let refused = |a: DType, b: DType| promote_types(a, b).map_err(|error| error.to_string());
            assert!(refused(dtype, other).is_err_and(|text| {
                text.starts_with("Promotion for Float8 Types is not supported, attempted to promote Float8_e")
            }));
            assert!(refused(other, dtype).is_err_and(|text| text.ends_with(&name(dtype))));
        }
        for number in [Scalar::Bool(true), Scalar::Int(1), Scalar::Float(1.5)] {
            assert_eq!(result_type(dtype, 1, number).ok(), Some(dtype));
            assert_eq!(result_type(dtype, 0, number).ok(), Some(dtype));
        }
        let complex = Scalar::Complex(num_complex::Complex64::new(0.0, 1.0));
        let text = result_type(dtype, 1, complex).map_err(|error| error.to_string());
        assert_eq!(text, Err(format!("Unknown Complex ScalarType for {}", name(dtype))));
    }
}

fn name(dtype: DType) -> String {
    if dtype == DType::F8E5M2 { "Float8_e5m2".to_owned() } else { "Float8_e4m3fn".to_owned() }
}
