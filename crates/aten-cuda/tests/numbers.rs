//! Numbers beside tensors: rounding, refusals, layouts and orders of results, each with the value that torch 2.11 has.

use aten_cuda::{DType, Error, Result, Scalar, Tensor, TensorError};
use num_complex::{Complex32, Complex64};

/// Runs a test on the host and on a simulated device.
fn on_both(test: impl Fn(&str)) {
    test("cpu");
    let _simulated = testkit::simulated_runtime();
    test("cuda");
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.expect_err("the number does not fit").to_string()
}

fn overflow(name: &str) -> String {
    format!("value cannot be converted to type {name} without overflow")
}

/// Numbers, `f64` after conversion.
fn read(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).and_then(|wide| wide.to_vec()).expect("the elements can be read")
}

/// Two ones.
fn ones(dtype: DType, device: &str) -> Tensor {
    Tensor::ones(&[2], dtype, device).expect("there is memory")
}

const NAN: f64 = f64::NAN;

#[test]
fn comparisons_round_numbers_to_halves() {
    on_both(|device| {
        for dtype in [DType::F16, DType::BF16] {
            let tenth = Tensor::full(&[2], 0.1, dtype, device).unwrap();
            let found = [tenth.eq(0.1), tenth.ne(0.1), tenth.lt(0.1), tenth.le(0.1), tenth.gt(0.1), tenth.ge(0.1)];
            for (found, expected) in found.into_iter().zip([1.0, 0.0, 0.0, 1.0, 0.0, 1.0]) {
                assert_eq!(read(&found.unwrap()), [expected; 2], "{dtype}");
            }
            let in_place = tenth.copy().unwrap();
            assert_eq!(read(in_place.ge_(0.1).unwrap()), [1.0; 2]);
            let apart = tenth.narrow(0, 0, 1).unwrap().expand(&[3]).unwrap();
            assert_eq!(read(&apart.eq(0.1).unwrap()), [1.0; 3]);
        }
    });
}

#[test]
fn powers_round_numbers_to_halves() {
    on_both(|device| {
        let of = |numbers: &[f64], dtype| {
            Tensor::from_slice(numbers, &[2]).unwrap().to_dtype(dtype).unwrap().to_device(device).unwrap()
        };
        let (f16, bf16) = (DType::F16, DType::BF16);
        assert_eq!(read(&of(&[3.0, 1000.0], f16).pow(0.1).unwrap()), [1.116_210_937_5, 1.995_117_187_5]);
        assert_eq!(read(&of(&[3.0, 1000.0], bf16).pow(0.1).unwrap()), [1.117_187_5, 2.0]);
        let exponents = of(&[3.0, 2.5], f16);
        assert_eq!(
            read(&Tensor::pow_of(0.1, &exponents).unwrap()),
            [0.000_999_450_683_593_75, 0.003_160_476_684_570_312_5]
        );
        let exponents = of(&[3.0, 2.5], bf16);
        assert_eq!(read(&Tensor::pow_of(0.1, &exponents).unwrap()), [0.000_999_450_683_593_75, 0.003_173_828_125]);
        // 0.5001 is one half in f16. On the host only an exact half is a root, and the power of an infinity stays one.
        let root = read(&of(&[f64::NEG_INFINITY, 4.0], f16).pow(0.5001).unwrap());
        assert_eq!(root[1], 2.0);
        assert!(if device == "cpu" { root[0] == f64::INFINITY } else { root[0].is_nan() }, "{root:?}");
    });
}

#[test]
fn truth_values_have_no_imaginary_part() {
    on_both(|device| {
        let whole = |re: f32, im: f32| {
            Tensor::from_slice(&[Complex32::new(re, im); 2], &[2]).unwrap().to_device(device).unwrap()
        };
        let read = |tensor: &Tensor| tensor.to_vec::<Complex32>().unwrap();
        let (one, zero) = ([Complex32::new(1.0, 0.0); 2], [Complex32::new(0.0, 0.0); 2]);
        let number = Complex64::new(3.0, 4.0);
        assert_eq!(read(whole(3.0, 4.0).eq_(number).unwrap()), one);
        assert_eq!(read(whole(3.0, 4.0).ne_(number).unwrap()), zero);
        assert_eq!(read(whole(3.0, 5.0).ne_(number).unwrap()), one);
        let out = whole(9.0, 9.0);
        ones(DType::F32, device).eq_out(1, &out).unwrap();
        assert_eq!(read(&out), one);
        let out = whole(9.0, 9.0);
        whole(1.0, 1.0).logical_and_out(&whole(1.0, 1.0), &out).unwrap();
        assert_eq!(read(&out), one);
        let out = whole(9.0, 9.0);
        whole(3.0, 4.0).ne_out(&whole(3.0, 5.0), &out).unwrap();
        assert_eq!(read(&out), one);
        let out = whole(9.0, 9.0);
        whole(f32::NAN, 4.0).isnan_out(&out).unwrap();
        assert_eq!(read(&out), one);
        let out = whole(9.0, 9.0);
        whole(3.0, 4.0).abs_out(&out).unwrap();
        assert_eq!(read(&out), [Complex32::new(5.0, 0.0); 2]);
    });
}

/// Numbers that `torch.full` refuses and takes, for each dtype.
#[test]
fn fills_refuse_what_the_dtype_does_not_hold() {
    let infinity = f64::INFINITY;
    let one_turned = Complex64::new(1.0, 1.0);
    let (mut refusals, mut values) = (Vec::<(DType, &str, Vec<Scalar>)>::new(), Vec::<(DType, Scalar, f64)>::new());
    refusals.push((DType::U8, "uint8_t", [-256, 300, 256, 1 << 31].map(Scalar::Int).to_vec()));
    refusals.push((DType::U8, "uint8_t", [-1.0, -0.5, 255.5, 1e10, NAN, infinity].map(Scalar::Float).to_vec()));
    refusals.push((DType::I8, "int8_t", [128, -129].map(Scalar::Int).to_vec()));
    refusals.push((DType::I16, "int16_t", vec![65_520.into(), 70_000.0.into(), NAN.into(), one_turned.into()]));
    refusals.push((
        DType::I32,
        "int",
        vec![(1_i64 << 31).into(), 1e10.into(), NAN.into(), infinity.into(), one_turned.into()],
    ));
    refusals.push((DType::I64, "int64_t", vec![1e19.into(), NAN.into(), (-infinity).into(), one_turned.into()]));
    refusals.push((DType::F16, "c10::Half", vec![65_505.into(), 65_520.into(), 1e6.into(), one_turned.into()]));
    refusals.push((DType::BF16, "c10::BFloat16", vec![3.41e38.into(), 1e300.into()]));
    refusals.push((DType::F32, "float", vec![3.41e38.into(), 1e300.into(), one_turned.into()]));
    refusals.push((DType::F64, "double", vec![one_turned.into()]));
    refusals.push((DType::C64, "c10::complex<float>", vec![1e300.into(), Complex64::new(0.0, 1e300).into()]));
    refusals.push((DType::F8E4M3FN, "c10::Float8_e4m3fn", vec![449.into(), infinity.into(), one_turned.into()]));
    refusals.push((DType::F8E5M2, "c10::Float8_e5m2", vec![61_440.0.into()]));
    values.push((DType::U8, (-1).into(), 255.0));
    values.push((DType::U8, (-255).into(), 1.0));
    values.push((DType::U8, 1.7.into(), 1.0));
    values.push((DType::I8, (-0.5).into(), 0.0));
    values.push((DType::I32, 1.7.into(), 1.0));
    values.push((DType::I64, 9_223_372_036_854_775_808.0.into(), -9_223_372_036_854_775_808.0));
    values.push((DType::F16, infinity.into(), infinity));
    values.push((DType::F8E5M2, (-infinity).into(), -infinity));
    values.push((DType::F32, Complex64::new(1.0, 0.0).into(), 1.0));
    values.push((DType::Bool, NAN.into(), 1.0));
    values.push((DType::Bool, one_turned.into(), 1.0));
    on_both(|device| {
        for (dtype, name, numbers) in &refusals {
            let (target, empty) = (ones(*dtype, device), Tensor::zeros(&[0], *dtype, device).unwrap());
            for &number in numbers {
                assert_eq!(refused(Tensor::full(&[2], number, *dtype, device)), overflow(name), "{number:?}");
                assert_eq!(refused(target.fill_(number)), overflow(name));
                assert_eq!(refused(target.full_like(number)), overflow(name));
                assert_eq!(refused(empty.fill_(number)), overflow(name));
            }
            assert_eq!(read(&target.to_dtype(DType::F32).unwrap()), [1.0; 2], "nothing was written");
        }
        for &(dtype, number, expected) in &values {
            assert_eq!(
                read(&Tensor::full(&[2], number, dtype, device).unwrap().to_dtype(DType::F32).unwrap()),
                [expected; 2]
            );
        }
    });
}

/// torch converts one element of a short float on the host by way of `f64`.
#[test]
fn single_elements_of_the_host_take_larger_numbers() {
    let one = |number: Scalar, dtype| Tensor::full(&[1], number, dtype, "cpu");
    assert_eq!(read(&one(1e6.into(), DType::F16).unwrap()), [f64::INFINITY]);
    assert_eq!(read(&one(1e300.into(), DType::BF16).unwrap()), [f64::INFINITY]);
    assert_eq!(refused(one(Complex64::new(1.0, 1.0).into(), DType::F16)), overflow("double"));
    assert_eq!(refused(one(1e6.into(), DType::C32)), overflow("c10::complex<c10::Half>"));
    assert_eq!(refused(Tensor::full(&[2], 1e39, DType::C32, "cpu")), overflow("c10::complex<float>"));
    let _simulated = testkit::simulated_runtime();
    assert_eq!(refused(Tensor::full(&[1], 1e6, DType::F16, "cuda")), overflow("c10::Half"));
    assert_eq!(refused(Tensor::full(&[2], 1e6, DType::C32, "cuda")), overflow("c10::complex<c10::Half>"));
}

#[test]
fn selections_refuse_numbers_that_do_not_fit() {
    on_both(|device| {
        let mask =
            Tensor::from_slice(&[1_u8, 0], &[2]).unwrap().to_dtype(DType::Bool).unwrap().to_device(device).unwrap();
        let places = Tensor::from_slice(&[0_i64, 1], &[2]).unwrap().to_device(device).unwrap();
        let (bytes, ints, halves) = (ones(DType::U8, device), ones(DType::I32, device), ones(DType::F16, device));
        assert_eq!(refused(mask.where_cond(1_i64 << 31, &ints)), overflow("int"));
        assert_eq!(refused(mask.where_cond(&bytes, 300)), overflow("uint8_t"));
        assert_eq!(refused(mask.where_cond(1e300, &ints)), overflow("float"));
        match device {
            "cpu" => assert_eq!(read(&mask.where_cond(70_000.0, &halves).unwrap()), [f64::INFINITY, 1.0]),
            _ => assert_eq!(refused(mask.where_cond(70_000.0, &halves)), overflow("c10::Half")),
        }
        assert_eq!(refused(ints.scatter(0, &places, 1e10)), overflow("int"));
        assert_eq!(refused(ints.scatter(0, &places, NAN)), overflow("int"));
        assert_eq!(refused(halves.scatter_(0, &places, 1e6)), overflow("c10::Half"));
        assert_eq!(read(&bytes.scatter(0, &places, -1).unwrap()), [255.0; 2]);
        let nowhere = places.narrow(0, 0, 0).unwrap();
        assert_eq!(read(&ints.scatter(0, &nowhere, 1e10).unwrap()), [1.0; 2]);
        assert_eq!(refused(ints.masked_fill(&mask, NAN)), overflow("int"));
        assert_eq!(refused(halves.masked_fill_(&mask, 1e6)), overflow("c10::Half"));
        assert_eq!(refused(bytes.masked_fill(&mask, -256)), overflow("uint8_t"));
        assert_eq!(read(&bytes.masked_fill(&mask, -1).unwrap()), [255.0, 1.0]);
        assert_eq!(read(&halves.masked_fill(&mask, f64::INFINITY).unwrap()), [f64::INFINITY, 1.0]);
    });
}

#[test]
fn factors_refuse_numbers_that_do_not_fit() {
    on_both(|device| {
        let is_host = device == "cpu";
        let (bytes, halves, floats) = (ones(DType::U8, device), ones(DType::F16, device), ones(DType::F32, device));
        assert_eq!(refused(floats.add_alpha(&floats, 1e300)), overflow("float"));
        assert_eq!(refused(bytes.add_alpha(&bytes, 300)), overflow("uint8_t"));
        assert_eq!(refused(bytes.sub_alpha(&bytes, 256)), overflow("uint8_t"));
        assert_eq!(read(&ones(DType::I32, device).sub_alpha(1, 1_i64 << 31).unwrap()), [-2_147_483_647.0; 2]);
        // A device multiplies in f32.
        match is_host {
            true => assert_eq!(refused(halves.add_alpha(&halves, 70_000.0)), overflow("c10::Half")),
            false => assert_eq!(read(&halves.add_alpha(&halves, 70_000.0).unwrap()), [f64::INFINITY; 2]),
        }
        assert_eq!(refused(halves.addcmul(&halves, &halves, 1e300)), overflow("float"));
        assert_eq!(read(&halves.addcmul(&halves, &halves, 70_000.0).unwrap()), [f64::INFINITY; 2]);
        match is_host {
            true => assert_eq!(refused(bytes.addcmul(&bytes, &bytes, 300)), overflow("uint8_t")),
            false => assert_eq!(read(&bytes.addcmul(&bytes, &bytes, 300).unwrap()), [45.0; 2]),
        }
        assert_eq!(refused(floats.addcdiv(&floats, &floats, 1e300)), overflow("float"));
        assert_eq!(refused(floats.lerp(&floats, 1e300)), overflow("float"));
        assert_eq!(refused(halves.leaky_relu(1e300)), overflow("float"));
        assert_eq!(refused(halves.softplus(1e300, 20)), overflow("float"));
        let places = Tensor::from_slice(&[0_i64, 1], &[2]).unwrap().to_device(device).unwrap();
        assert_eq!(refused(bytes.index_add(0, &places, &bytes, 300)), overflow("uint8_t"));
        assert_eq!(refused(halves.index_add(0, &places, &halves, 1e6)), overflow("c10::Half"));
        let matrix = Tensor::ones(&[1, 1], DType::F32, device).unwrap();
        assert_eq!(refused(matrix.addmm(&matrix, &matrix, 1, 1e300)), overflow("float"));
        assert_eq!(refused(matrix.addmm_(&matrix, &matrix, Complex64::new(1.0, 1.0), 1)), overflow("float"));
        let half = matrix.to_dtype(DType::F16).unwrap();
        let vector = half.select(0, 0).unwrap();
        assert_eq!(refused(vector.addmv(&half, &vector, 1, 70_000.0)), overflow("c10::Half"));
        assert_eq!(read(&half.addmm(&half, &half, 1, 70_000.0).unwrap().view(&[1]).unwrap()), [f64::INFINITY]);
    });
    let whole = Tensor::ones(&[1, 1], DType::U8, "cpu").unwrap();
    assert_eq!(refused(whole.addmm(&whole, &whole, 1, 300)), overflow("uint8_t"));
}

#[test]
fn bounds_and_exponents_refuse_numbers_that_do_not_fit() {
    on_both(|device| {
        let is_host = device == "cpu";
        let (bytes, ints, halves) = (ones(DType::U8, device), ones(DType::I32, device), ones(DType::F16, device));
        let floats = ones(DType::F32, device);
        assert_eq!(refused(bytes.pow(300)), overflow("uint8_t"));
        assert_eq!(refused(ints.pow_(1_i64 << 31)), overflow("int"));
        assert_eq!(refused(halves.pow(70_000.0)), overflow("c10::Half"));
        // The host looks at integers and halves alone.
        match is_host {
            true => assert_eq!(read(&floats.pow(1e300).unwrap()), [1.0; 2]),
            false => assert_eq!(refused(floats.pow(1e300)), overflow("float")),
        }
        assert_eq!(read(&Tensor::pow_of(300, &bytes).unwrap()), [44.0; 2], "a base is cut");
        assert_eq!(refused(bytes.clamp(Some(300.into()), None)), overflow("uint8_t"));
        assert_eq!(refused(ints.clamp(None, Some((1_i64 << 31).into()))), overflow("int"));
        assert_eq!(refused(ints.clamp(Some(1e300.into()), None)), overflow("float"));
        assert_eq!(read(&bytes.clamp(Some((-1).into()), None).unwrap()), [255.0; 2]);
        assert_eq!(refused(ones(DType::I16, device).hardtanh(0, 65_520)), overflow("int16_t"));
        assert_eq!(refused(ints.hardtanh(0, 1e300)), overflow("int64_t"));
        assert_eq!(refused(floats.hardtanh(0, 1e300)), overflow("float"));
        // A NaN alone is no bound.
        assert_eq!(read(&floats.clamp(Some(NAN.into()), None).unwrap()), [1.0; 2]);
        assert_eq!(read(&floats.clamp(None, Some(NAN.into())).unwrap()), [1.0; 2]);
        assert!(read(&floats.clamp(Some(0.into()), Some(NAN.into())).unwrap()).iter().all(|number| number.is_nan()));
    });
}

#[test]
fn ranges_refuse_numbers_that_do_not_fit() {
    on_both(|device| {
        let linspace = |start: f64, end: f64, steps, dtype| Tensor::linspace(start, end, steps, Some(dtype), device);
        assert_eq!(refused(linspace(1e10, 1.0, 3, DType::I16)), overflow("int16_t"));
        assert_eq!(refused(linspace(1.0, -1.0, 3, DType::U8)), overflow("uint8_t"));
        assert_eq!(refused(linspace(1.0, 1e300, 3, DType::F32)), overflow("float"));
        assert_eq!(refused(linspace(70_000.0, 1.0, 3, DType::F16)), overflow("c10::Half"));
        assert_eq!(refused(linspace(1e10, 1.0, 1, DType::I16)), overflow("int16_t"));
        assert_eq!(linspace(1e10, 1.0, 0, DType::I16).unwrap().numel(), 0);
        assert_eq!(read(&linspace(1.0, 1e10, 1, DType::I16).unwrap()), [1.0]);
        assert_eq!(refused(Tensor::arange(1e300, 2e300, 1, Some(DType::I32), device)), overflow("int64_t"));
        assert_eq!(read(&Tensor::arange(300, 302, 1, Some(DType::U8), device).unwrap()), [44.0, 45.0]);
        assert_eq!(refused(ones(DType::F32, device).var((), Complex64::new(1.0, 1.0), false)), overflow("double"));
    });
}

/// torch does not look at numbers of arithmetic, comparisons and operations on bits.
#[test]
fn arithmetic_cuts_numbers() {
    on_both(|device| {
        let bytes = ones(DType::U8, device);
        assert_eq!(read(&bytes.add(300).unwrap()), [45.0; 2]);
        assert_eq!(read(bytes.copy().unwrap().mul_(300).unwrap()), [44.0; 2]);
        assert_eq!(read(&bytes.eq(257).unwrap()), [1.0; 2]);
        assert_eq!(read(&bytes.bitwise_and(257).unwrap()), [1.0; 2]);
        assert_eq!(read(&ones(DType::F32, device).mul(1e300).unwrap()), [f64::INFINITY; 2]);
    });
}

#[test]
fn results_are_rounded_before_they_are_widened() {
    on_both(|device| {
        let of = |number: f64, dtype| Tensor::full(&[2], number, dtype, device).unwrap();
        let out = of(0.0, DType::F32);
        let number = of(1.007_812_5, DType::BF16);
        number.mul_out(&number, &out).unwrap();
        assert_eq!(read(&out), [1.015_625; 2]);
        of(1.0, DType::F16).sin_out(&out).unwrap();
        assert_eq!(read(&out), [0.841_308_593_75; 2]);
        let out = of(0.0, DType::I32);
        of(200.0, DType::U8).add_out(&of(100.0, DType::U8), &out).unwrap();
        assert_eq!(read(&out), [44.0; 2]);
        let out = of(0.0, DType::BF16);
        let number = of(1.001, DType::F16);
        number.mul_out(&number, &out).unwrap();
        assert_eq!(read(&out), [1.0; 2]);
        // Beside strides, where the operation does not go the short way.
        let (out, number) = (Tensor::zeros(&[3], DType::F32, device).unwrap(), of(1.007_812_5, DType::BF16));
        let number = number.narrow(0, 0, 1).unwrap().expand(&[3]).unwrap();
        number.mul_out(&number, &out).unwrap();
        assert_eq!(read(&out), [1.015_625; 3]);
    });
}

/// A NaN with its sign bit set, which is the NaN of 0/0 on x86.
#[test]
fn every_nan_is_sorted_last_on_the_host() {
    let negative = f32::from_bits(0xffc0_0000);
    let x = Tensor::from_slice(&[1.0, negative, 2.0], &[3]).unwrap();
    let bits =
        |tensor: &Tensor| tensor.to_vec::<f32>().unwrap().iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    let (one, two, nan) = (1.0_f32.to_bits(), 2.0_f32.to_bits(), negative.to_bits());
    let (values, places) = x.sort(0, false).unwrap();
    assert_eq!((bits(&values), places.to_vec::<i64>().unwrap()), (vec![one, two, nan], vec![0, 2, 1]));
    let (values, places) = x.sort(0, true).unwrap();
    assert_eq!((bits(&values), places.to_vec::<i64>().unwrap()), (vec![nan, two, one], vec![1, 2, 0]));
    assert_eq!(x.argsort(0, false).unwrap().to_vec::<i64>().unwrap(), [0, 2, 1]);
    assert_eq!(bits(&x.unique().unwrap().0), [one, two, nan]);
    let long: Vec<f32> = (0..40_u8).map(|at| if at == 0 { negative } else { f32::from(at) }).collect();
    let long = Tensor::from_slice(&long, &[40]).unwrap();
    assert_eq!(long.argsort(0, false).unwrap().to_vec::<i64>().unwrap()[39], 0);
    // A device compares up to 32 elements, and sorts more of them by their bits.
    let _simulated = testkit::simulated_runtime();
    let (x, long) = (x.cuda(None).unwrap(), long.cuda(None).unwrap());
    assert_eq!(x.argsort(0, false).unwrap().to_vec::<i64>().unwrap(), [0, 2, 1]);
    assert_eq!(x.argsort(0, true).unwrap().to_vec::<i64>().unwrap(), [1, 2, 0]);
    assert_eq!(long.argsort(0, false).unwrap().to_vec::<i64>().unwrap()[0], 0);
}

#[test]
fn complex_elements_become_integers_before_they_are_added() {
    on_both(|device| {
        let numbers = [Complex32::new(1.7, 2.9), Complex32::new(-2.6, 0.5), Complex32::new(3.9, -1.0)];
        let x = Tensor::from_slice(&numbers, &[3]).unwrap().to_device(device).unwrap();
        for dtype in [DType::I32, DType::I64] {
            assert_eq!(read(&x.sum((), false, dtype).unwrap().view(&[1]).unwrap()), [2.0]);
            assert_eq!(read(&x.prod(0, false, dtype).unwrap().view(&[1]).unwrap()), [-6.0]);
            assert_eq!(read(&x.cumsum(0, dtype).unwrap()), [1.0, -1.0, 2.0]);
            assert_eq!(read(&x.cumprod(0, dtype).unwrap()), [1.0, -2.0, -6.0]);
        }
        assert_eq!(read(&x.cumprod(0, DType::U8).unwrap()), [1.0, 254.0, 250.0]);
        let out = Tensor::zeros(&[3], DType::I32, device).unwrap();
        x.cumprod_out(0, &out).unwrap();
        assert_eq!(read(&out), [1.0, -2.0, -6.0]);
    });
}

#[test]
fn products_times_zero_are_left_out_on_the_host() {
    for dtype in [DType::F32, DType::F64] {
        let nans = Tensor::full(&[2, 2], NAN, dtype, "cpu").unwrap();
        let (whole, vector) =
            (Tensor::full(&[2, 2], -0.0, dtype, "cpu").unwrap(), Tensor::full(&[2], 2, dtype, "cpu").unwrap());
        let batch = nans.unsqueeze(0).unwrap();
        let signs = |tensor: &Tensor| {
            read(&tensor.flatten().unwrap()).iter().map(|number| number.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(signs(&whole.addmm(&nans, &nans, 1, 0).unwrap()), [(-0.0_f64).to_bits(); 4]);
        assert_eq!(signs(&whole.addbmm(&batch, &batch, 1, 0).unwrap()), [(-0.0_f64).to_bits(); 4]);
        assert_eq!(read(&vector.addmv(&nans, &vector, 1, 0).unwrap()), [2.0; 2]);
        assert_eq!(signs(&whole.addmm(&nans, &nans, 0, 0).unwrap()), [0; 4]);
        // Batches and halves carry them in torch too.
        let sum = whole.unsqueeze(0).unwrap().baddbmm(&batch, &batch, 1, 0).unwrap();
        assert!(read(&sum.flatten().unwrap()).iter().all(|number| number.is_nan()));
        let half = nans.to_dtype(DType::F16).unwrap();
        assert!(read(&half.addmm(&half, &half, 0, 0).unwrap().flatten().unwrap()).iter().all(|number| number.is_nan()));
    }
}

#[test]
fn nothing_has_no_variance() {
    on_both(|device| {
        for dtype in [DType::F32, DType::F64] {
            let nothing = Tensor::zeros(&[0, 3], dtype, device).unwrap();
            for correction in [-2, -1, 0, 1] {
                assert!(read(&nothing.std(0, correction, false).unwrap()).iter().all(|number| number.is_nan()));
                assert!(read(&nothing.var((), correction, false).unwrap().view(&[1]).unwrap())[0].is_nan());
            }
            let one = Tensor::ones(&[1], dtype, device).unwrap();
            assert_eq!(read(&one.std(0, -1, true).unwrap()), [0.0]);
        }
    });
}

/// Angles and widths at infinity are a quarter turn and zeros.
#[test]
fn inverse_tangents_at_infinity() {
    let (infinity, quarter) = (f64::INFINITY, std::f64::consts::FRAC_PI_2);
    let cases = [
        ((infinity, infinity), (0.0, quarter)),
        ((infinity, -infinity), (0.0, -quarter)),
        ((infinity, 1.0), (0.0, quarter)),
        ((infinity, -0.0), (0.0, -quarter)),
        ((-infinity, 1.0), (-0.0, quarter)),
        ((NAN, infinity), (0.0, quarter)),
        ((NAN, -infinity), (0.0, -quarter)),
        ((1.0, infinity), (0.0, quarter)),
        ((-1.0, -infinity), (-0.0, -quarter)),
        ((infinity, NAN), (0.0, NAN)),
        ((0.0, NAN), (0.0, NAN)),
        ((1e300, 1.0), (1e-300, quarter)),
        ((0.0, infinity), (0.0, quarter)),
    ];
    let close = |found: f64, expected: f64| {
        (found.is_nan() && expected.is_nan())
            || (found.is_sign_negative() == expected.is_sign_negative()
                && (found - expected).abs() <= 1e-15 * expected.abs())
    };
    on_both(|device| {
        for ((re, im), (real, angle)) in cases {
            let of = |re, im| Tensor::from_slice(&[Complex64::new(re, im)], &[1]).unwrap().to_device(device).unwrap();
            let found = of(re, im).atanh().unwrap().to_vec::<Complex64>().unwrap()[0];
            assert!(close(found.re, real) && close(found.im, angle), "atanh({re}, {im}) = {found}");
            // atan(z) = atanh(iz) / i. The sign of a zero beside a NaN is any.
            if re.is_nan() {
                continue;
            }
            let found = of(im, -re).atan().unwrap().to_vec::<Complex64>().unwrap()[0];
            assert!(close(found.re, angle) && close(-found.im, real), "atan({im}, {}) = {found}", -re);
        }
    });
}

/// Operands of several dtypes are converted first, which packs those with gaps.
#[test]
fn selections_lie_as_converted_operands_do() {
    on_both(|device| {
        let condition = Tensor::ones(&[7, 1, 1, 3], DType::Bool, device).unwrap();
        let doubles = Tensor::zeros(&[7, 2, 5, 3], DType::F64, device).unwrap();
        let wide = Tensor::zeros(&[7, 3, 5, 3], DType::I32, device).unwrap().transpose(0, 1).unwrap();
        let ints = wide.narrow(0, 0, 2).unwrap().transpose(0, 1).unwrap();
        let found = condition.where_cond(&ints, &doubles).unwrap();
        assert_eq!(found.strides(), [30, 15, 3, 1]);
        // An operand that repeats elements has no order of its own once it is converted.
        let column = Tensor::zeros(&[3, 1], DType::I32, device).unwrap().t().unwrap().expand(&[2, 3]).unwrap();
        let transposed = Tensor::zeros(&[3, 2], DType::F64, device).unwrap().t().unwrap();
        let all = Tensor::ones(&[2, 3], DType::Bool, device).unwrap().t().unwrap().t().unwrap();
        assert_eq!(all.where_cond(&column, &transposed).unwrap().strides(), [3, 1]);
    });
}

#[test]
fn conjugates_of_real_tensors_are_the_tensors() {
    on_both(|device| {
        let x = Tensor::zeros(&[3, 4], DType::F32, device).unwrap().t().unwrap();
        let same = x.conj_physical().unwrap();
        assert!(same.storage().is_same(x.storage()) && same.strides() == x.strides());
        let turned = Tensor::from_slice(&[Complex32::new(1.0, 2.0)], &[1]).unwrap().to_device(device).unwrap();
        let conjugate = turned.conj_physical().unwrap();
        assert!(!conjugate.storage().is_same(turned.storage()));
        assert_eq!(conjugate.to_vec::<Complex32>().unwrap(), [Complex32::new(1.0, -2.0)]);
        turned.conj_physical_().unwrap();
        assert_eq!(turned.to_vec::<Complex32>().unwrap(), [Complex32::new(1.0, -2.0)]);
    });
}

#[test]
fn bernoulli_is_contiguous() {
    on_both(|device| {
        let chances = Tensor::full(&[3, 4], 0.5, DType::F32, device).unwrap().t().unwrap();
        assert_eq!(chances.bernoulli(None).unwrap().strides(), [3, 1]);
    });
}

/// A tensor of zeros with sizes for letters.
fn named(letters: &str, device: &str) -> Tensor {
    let size = |letter| match letter {
        'i' => 2,
        'j' => 3,
        'k' => 4,
        'l' => 5,
        'b' => 6,
        _ => 7,
    };
    Tensor::zeros(&letters.chars().map(size).collect::<Vec<i64>>(), DType::F32, device).expect("there is memory")
}

/// Equations with the order in which torch lays their results out.
#[test]
fn sums_of_products_lie_as_torchs() {
    const CASES: [(&str, &[i64]); 22] = [
        ("ij,jk->ik", &[4, 1]),
        ("ij,jk->ki", &[2, 1]),
        ("jk,ij->ik", &[4, 1]),
        ("ijl,jk->kil", &[10, 5, 1]),
        ("ijl,jk->ikl", &[20, 1, 4]),
        ("ijl,jk->ilk", &[20, 4, 1]),
        ("ijl,jkc->kcil", &[70, 10, 5, 1]),
        ("ijl,jkc->kicl", &[7, 140, 1, 28]),
        ("ijl,jkc->ickl", &[140, 4, 1, 28]),
        ("bij,bjk->bki", &[8, 2, 1]),
        ("bij,bjk->kib", &[2, 1, 8]),
        ("bij,bjk->ibk", &[4, 8, 1]),
        ("bij,bj->bi", &[2, 1]),
        ("bij,bj->ib", &[1, 2]),
        ("i,j->ij", &[3, 1]),
        ("i,j->ji", &[2, 1]),
        ("i,j,k->kji", &[6, 2, 1]),
        ("ij,kl->ljki", &[3, 1, 30, 15]),
        ("ij,ij,ij->ji", &[1, 3]),
        ("ij,jk,kl->il", &[5, 1]),
        ("ij,jk,kl->li", &[1, 5]),
        ("ij,ik,il->lkj", &[12, 3, 1]),
    ];
    on_both(|device| {
        for (equation, strides) in CASES {
            let inputs = equation.split_once("->").map_or("", |(inputs, _)| inputs);
            let operands: Vec<Tensor> = inputs.split(',').map(|letters| named(letters, device)).collect();
            let found = aten_cuda::blas::einsum(equation, &operands.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(found.strides(), strides, "{equation}");
        }
    });
}

/// Without a summed dimension of more than one element there is no product of matrices, which autocast would cast.
#[test]
fn sums_of_single_products_are_not_cast_on_the_host() {
    let (column, row) = (
        Tensor::full(&[2, 1], 1.001, DType::F32, "cpu").unwrap(),
        Tensor::full(&[1, 2], 1.001, DType::F32, "cpu").unwrap(),
    );
    let square = Tensor::ones(&[2, 2], DType::F32, "cpu").unwrap();
    aten_cuda::autocast::with_autocast("cpu", (), || {
        let product = aten_cuda::blas::einsum("ij,jk->ik", &[&column, &row])?;
        assert_eq!(
            (product.dtype(), read(&product.flatten()?)),
            (DType::F32, vec![f64::from(1.001_f32 * 1.001_f32); 4])
        );
        assert_eq!(aten_cuda::blas::einsum("ij,ij->ij", &[&square, &square])?.dtype(), DType::F32);
        assert_eq!(aten_cuda::blas::einsum("ij,jk->ik", &[&square, &square])?.dtype(), DType::BF16);
        Ok::<(), Error>(())
    })
    .unwrap()
    .unwrap();
}

#[test]
fn indexed_elements_lie_as_torchs() {
    on_both(|device| {
        let rows = Tensor::zeros(&[2, 4, 5, 3], DType::F32, device).unwrap();
        let last = rows.permute(&[0, 3, 1, 2]).unwrap();
        let pair = Tensor::from_slice(&[0_i64, 1], &[2]).unwrap().to_device(device).unwrap();
        let strides = |indices: &[Option<&Tensor>]| last.index(indices).unwrap().strides().to_vec();
        assert_eq!(strides(&[Some(&pair)]), [60, 1, 15, 3]);
        assert_eq!(strides(&[None, Some(&pair)]), [40, 20, 5, 1]);
        assert_eq!(strides(&[None, None, Some(&pair)]), [30, 1, 3, 6]);
        assert_eq!(strides(&[None, None, None, Some(&pair)]), [24, 2, 6, 1]);
        let turned = Tensor::zeros(&[2, 3, 4, 5], DType::F32, device).unwrap().permute(&[3, 2, 1, 0]).unwrap();
        let four = Tensor::from_slice(&[0_i64, 1, 1, 2], &[2, 2]).unwrap().to_device(device).unwrap();
        assert_eq!(turned.index(&[Some(&four)]).unwrap().strides(), [48, 24, 1, 4, 12]);
        // The values are those of a contiguous tensor.
        let numbers = Tensor::arange(0, 120, 1, None, device).unwrap().view(&[2, 4, 5, 3]).unwrap();
        let apart = numbers.permute(&[0, 3, 1, 2]).unwrap();
        let found = apart.index(&[None, None, Some(&pair)]).unwrap();
        let packed = apart.contiguous().unwrap().index(&[None, None, Some(&pair)]).unwrap();
        assert_eq!(read(&found.contiguous().unwrap()), read(&packed.contiguous().unwrap()));
    });
}

#[test]
fn factors_of_matrices_lie_by_columns() {
    let one = Tensor::eye(3, 3, DType::F64, "cpu").unwrap();
    let batch = one.unsqueeze(0).unwrap().repeat(&[2, 1, 1]).unwrap();
    for upper in [false, true] {
        assert_eq!(aten_cuda::linalg::cholesky(&one, upper).unwrap().strides(), [1, 3]);
        assert_eq!(aten_cuda::linalg::cholesky(&batch, upper).unwrap().strides(), [9, 1, 3]);
        assert_eq!(aten_cuda::linalg::cholesky(&batch.transpose(1, 2).unwrap(), upper).unwrap().strides(), [9, 1, 3]);
    }
}

#[test]
fn transforms_lie_by_the_strides_of_their_signals() {
    use aten_cuda::fft;
    let real = Tensor::zeros(&[3, 4, 5], DType::F32, "cpu").unwrap();
    let complex = real.to_dtype(DType::C64).unwrap();
    let turned = |tensor: &Tensor| tensor.permute(&[2, 0, 1]).unwrap();
    let cases = [
        (-1, [[20, 5, 1], [4, 20, 1], [12, 3, 1], [32, 8, 1], [3, 15, 1]]),
        (0, [[1, 15, 3], [1, 20, 5], [1, 10, 2], [1, 20, 4], [1, 12, 3]]),
        (1, [[20, 1, 4], [3, 1, 15], [15, 1, 3], [30, 1, 6], [2, 1, 10]]),
    ];
    for (dim, expected) in cases {
        let found = [
            fft::fft(&complex, None, dim, None).unwrap(),
            fft::ifft(&turned(&complex), None, dim, None).unwrap(),
            fft::rfft(&real, None, dim, None).unwrap(),
            fft::irfft(&complex, None, dim, None).unwrap(),
            fft::rfft(&turned(&real), None, dim, None).unwrap(),
        ];
        assert_eq!(found.map(|tensor| tensor.strides().to_vec()), expected.map(|strides| strides.to_vec()), "{dim}");
    }
}

/// Rows of up to 32 elements are added in 32 bits and rounded once on a device; longer rows, and all on the host, are
/// rounded after each addition.
#[test]
fn short_rows_are_rounded_once_on_a_device() {
    on_both(|device| {
        let is_device = device != "cpu";
        for (dtype, once, each) in [(DType::F16, 3000.0, 2048.0), (DType::BF16, 3008.0, 256.0)] {
            for row in [1, 3, 32, 33] {
                let places = Tensor::zeros(&[3000], DType::I64, device).unwrap();
                let target = Tensor::zeros(&[2, row], dtype, device).unwrap();
                let source = Tensor::ones(&[1, row], dtype, device).unwrap();
                target.index_put_(&[Some(&places)], &source, true).unwrap();
                let expected = if is_device && row <= 32 { once } else { each };
                let count = usize::try_from(row).unwrap();
                assert_eq!(read(&target.select(0, 0).unwrap()), vec![expected; count], "{dtype}, rows of {row}");
                assert_eq!(read(&target.select(0, 1).unwrap()), vec![0.0; count]);
            }
            // The row is what stands behind the indices; what is there already is added last.
            let places = Tensor::zeros(&[2000], DType::I64, device).unwrap();
            let target = Tensor::full(&[40, 2], 1000, dtype, device).unwrap();
            target.index_put_(&[None, Some(&places)], &Tensor::ones(&[1, 1], dtype, device).unwrap(), true).unwrap();
            let expected = match (is_device, dtype) {
                (true, DType::F16) => 3000.0,
                (true, _) => 3008.0,
                (false, DType::F16) => 2048.0,
                (false, _) => 1000.0,
            };
            assert_eq!(read(&target.select(1, 0).unwrap()), [expected; 40]);
        }
    });
}

/// The host sums in `f32` what `scatter_add` adds, and matrices of `index_add`; other slices are rounded after each.
#[test]
fn scattered_halves_are_rounded_once_on_the_host() {
    for (dtype, once, each) in [(DType::F16, 3000.0, 2048.0), (DType::BF16, 3008.0, 256.0)] {
        let ones = |sizes: &[i64]| Tensor::ones(sizes, dtype, "cpu").unwrap();
        let zeros = |sizes: &[i64]| Tensor::zeros(sizes, dtype, "cpu").unwrap();
        let places = Tensor::zeros(&[3000], DType::I64, "cpu").unwrap();
        let first = |tensor: Tensor| read(&tensor.flatten().unwrap())[0];
        assert_eq!(first(zeros(&[2]).scatter_add(0, &places, &ones(&[3000])).unwrap()), once);
        let spread = places.unsqueeze(1).unwrap().expand(&[3000, 3]).unwrap();
        assert_eq!(first(zeros(&[2, 3]).scatter_add(0, &spread, &ones(&[3000, 3])).unwrap()), once);
        assert_eq!(first(zeros(&[2, 3]).index_add(0, &places, &ones(&[3000, 3]), 1).unwrap()), once);
        assert_eq!(first(zeros(&[3, 2]).index_add(1, &places, &ones(&[3, 3000]), 1).unwrap()), once);
        assert_eq!(first(zeros(&[2]).index_add(0, &places, &ones(&[3000]), 1).unwrap()), each);
        assert_eq!(first(zeros(&[2, 2, 3]).index_add(1, &places, &ones(&[2, 3000, 3]), 1).unwrap()), each);
    }
}

#[test]
fn sums_of_halves_round_numbers_on_the_host() -> Result<()> {
    // 1e10 is 9999220736 in bf16, and 70000 is 70144.
    let large = Tensor::full(&[2], 1e10, DType::BF16, "cpu")?;
    assert_eq!(read(&large.sub(1e10)?), [0.0; 2]);
    assert_eq!(read(&ones(DType::BF16, "cpu").mul(255)?.add_alpha(-1, 70_000)?), [-70_144.0; 2]);
    let _simulated = testkit::simulated_runtime();
    assert_eq!(read(&large.cuda(None)?.sub(1e10)?), [-778_240.0; 2], "CUDA keeps the number in f32");
    Ok(())
}

#[test]
fn numbers_beside_a_factor_are_cut() -> Result<()> {
    on_both(|device| {
        let found = ones(DType::I16, device).sub_alpha(i64::MAX, -300).expect("the number is cut, the factor fits");
        assert_eq!(read(&found), [-299.0; 2]);
    });
    Ok(())
}

#[test]
fn complex_logarithms_near_one_keep_their_digits() {
    on_both(|device| {
        let of = |real: f64, imaginary: f64| {
            let number = Tensor::from_slice(&[Complex64::new(real, imaginary)], &[1]).unwrap();
            number.to_device(device).unwrap()
        };
        let parts = |tensor: Tensor| {
            let part = tensor.to_vec::<Complex64>().unwrap()[0];
            (part.re, part.im)
        };
        let near = |found: f64, expected: f64| {
            assert!((found - expected).abs() <= 4.0 * f64::EPSILON * expected.abs(), "{found} instead of {expected}");
        };
        near(parts(of(1.0, 0.001).log().unwrap()).0, 4.999_997_500_001_667e-7);
        near(parts(of(-1.0, 0.1).atanh().unwrap()).0, -1.498_490_356_826_642_3);
        near(parts(of(0.001, 1.0).atan().unwrap()).1, 3.800_451_292_271_033_4);
        // Zero has no negative powers, nor one that is no number.
        let zero = of(0.0, 0.0);
        assert!(parts(zero.pow(-1).unwrap()).0.is_infinite());
        assert!(parts(zero.pow(NAN).unwrap()).0.is_nan());
        assert_eq!(parts(zero.pow(0.5).unwrap()), (0.0, 0.0));
    });
}

#[test]
fn angles_of_running_sums_are_those_of_torch_on_the_host() -> Result<()> {
    let numbers = [(1.0, 3.0), (1.5, 3.0), (1.4, 3.1), (1.6, 2.9), (0.5, -3.0), (2.0, -3.0), (2.1, 3.0), (2.0, 3.1)];
    let numbers = numbers.map(|(real, imaginary)| Complex32::new(real, imaginary));
    let torchs = [3.0, 3.0, 3.036_019, 2.994_455, 3.020_905, 3.097_738, 3.073_658, 3.078_466];
    let row = Tensor::from_slice(&numbers.repeat(9), &[72])?;
    let found = row.logcumsumexp(0)?.to_vec::<Complex32>()?;
    for (found, expected) in found.iter().zip(torchs) {
        assert!((f64::from(found.im) - expected).abs() < 1e-5, "{found} instead of {expected}");
    }
    // The angle stays near three, and is not a turn away from it.
    assert!(found.iter().all(|sum| (sum.im - 3.0).abs() < 0.2), "{found:?}");
    Ok(())
}

#[test]
fn complex_products_with_a_vector_multiply_by_zero_on_the_host() -> Result<()> {
    let number = |real: f64| Complex64::new(real, 0.0);
    let matrix = Tensor::from_slice(&[number(NAN), number(1.0)], &[1, 2])?;
    let (vector, added) =
        (Tensor::from_slice(&[number(1.0), number(2.0)], &[2])?, Tensor::from_slice(&[number(5.0)], &[1])?);
    assert!(added.addmv(&matrix, &vector, 1, 0)?.to_vec::<Complex64>()?[0].is_nan());
    assert_eq!(added.addmm(&matrix, &vector.unsqueeze(1)?, 1, 0)?.to_vec::<Complex64>()?, [number(5.0)]);
    let real = |tensor: &Tensor| tensor.to_dtype(DType::F64);
    assert_eq!(real(&added)?.addmv(&real(&matrix)?, &real(&vector)?, 1, 0)?.to_vec::<f64>()?, [5.0]);
    Ok(())
}

#[test]
fn indices_wrap_around_a_dimension_that_is_named() {
    on_both(|device| {
        let x = Tensor::arange(0, 6, 1, Some(DType::F32), device).unwrap().view(&[2, 3]).unwrap();
        for (index, expected) in [(7_i64, [1.0, 4.0]), (-1, [2.0, 5.0]), (-4, [2.0, 5.0])] {
            let index = Tensor::full(&[2, 1], index, DType::I64, device).unwrap();
            assert_eq!(read(&x.take_along_dim(&index, Some(1)).unwrap()), expected);
        }
    });
}

#[test]
fn calls_without_elements_need_no_kernel() -> Result<()> {
    let none = |dtype: DType| Tensor::zeros(&[0, 3], dtype, "cpu");
    assert_eq!(none(DType::I8)?.softmax(0, None)?.sizes(), [0, 3]);
    assert_eq!(none(DType::C64)?.cummax(7)?.1.dtype(), DType::I64);
    assert_eq!(none(DType::BF16)?.nansum(1, false, DType::U8)?.dtype(), DType::U8);
    let alone = Tensor::full(&[], 7, DType::I32, "cpu")?;
    assert_eq!(alone.topk(0, 0, true)?.0.sizes(), [0_i64; 0]);
    assert_eq!(Tensor::zeros(&[1], DType::I8, "cpu")?.nonzero()?.strides(), [1, 0]);
    let bytes = Tensor::from_slice(&[1_u8, 0], &[2])?;
    assert_eq!(read(&bytes.where_cond(&ones(DType::F32, "cpu"), 2.0)?), [1.0, 2.0], "bytes are a condition");
    Ok(())
}

#[test]
fn operands_of_the_host_are_converted_before_they_are_laid_out() -> Result<()> {
    let lies = |tensor: Result<Tensor>| tensor.map(|tensor| tensor.strides().to_vec());
    let ints = Tensor::zeros(&[8], DType::I32, "cpu")?;
    assert_eq!(lies(ints.as_strided(&[1, 4, 2], &[1, 1, 1], None)?.reciprocal())?, [8, 2, 1]);
    assert_eq!(lies(ints.expand(&[1, 8]))?, [8, 1]);
    assert_eq!(lies(ints.narrow(0, 0, 4)?.as_strided(&[1, 2], &[4, 2], None)?.expand(&[1, 1, 2]))?, [4, 4, 2]);
    Ok(())
}

#[test]
fn means_for_another_short_float_are_converted_on_the_host() -> Result<()> {
    let large = Tensor::from_slice(&[65_536.0, 0.0, 0.0, 0.0], &[4])?.to_dtype(DType::BF16)?;
    assert_eq!(read(&large.mean(0, false, DType::F16)?), [16_384.0]);
    let out = Tensor::zeros(&[], DType::F16, "cpu")?;
    large.mean_out(0, false, &out)?;
    assert_eq!(read(&out), [16_384.0]);
    Ok(())
}

#[test]
fn quotients_of_halves_are_rounded_before_they_are_truncated() {
    on_both(|device| {
        let halves = |numbers: &[f64], dtype| {
            let wide = Tensor::from_slice(numbers, &[3]).and_then(|wide| wide.to_dtype(dtype));
            wide.and_then(|narrow| narrow.to_device(device)).unwrap()
        };
        // 65504 / 127 is 515.78, between 515.5 and 516.
        let (large, small) = ([65504.0, 60000.0, -65504.0], [127.0, 59.0, 127.0]);
        let quotient = halves(&large, DType::F16).div_trunc(&halves(&small, DType::F16)).unwrap();
        assert_eq!(read(&quotient), [516.0, 1017.0, -516.0], "{device}");
        // torch multiplies by a number in f32.
        assert_eq!(read(&halves(&large, DType::F16).div_trunc(127).unwrap()), [515.0, 472.0, -515.0], "{device}");
        let (large, small) = ([65280.0, 1e5, -1e5], [127.0, 63.5, 59.0]);
        let quotient = halves(&large, DType::BF16).div_trunc(&halves(&small, DType::BF16)).unwrap();
        assert_eq!(read(&quotient), [516.0, 1576.0, -1696.0], "{device}");
    });
}

#[test]
fn the_host_refuses_to_divide_integers_by_zero() -> Result<()> {
    type Divide = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let divisions: [(&str, Divide); 4] = [
        ("div_trunc", |a, b| a.div_trunc(b)),
        ("floor_divide", |a, b| a.floor_divide(b)),
        ("remainder", |a, b| a.remainder(b)),
        ("fmod", |a, b| a.fmod(b)),
    ];
    for dtype in [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64] {
        let numbers = |numbers: &[i64]| Tensor::from_slice(numbers, &[numbers.len() as i64])?.to_dtype(dtype);
        for (name, divide) in divisions {
            let refused = divide(&numbers(&[1, 7, 9])?, &numbers(&[1, 1, 0])?).unwrap_err();
            assert!(matches!(refused, Error::Tensor(TensorError::ZeroDivision { operation }) if operation == name));
            assert_eq!(refused.to_string().lines().next(), Some("ZeroDivisionError"));
            assert!(divide(&numbers(&[1, 7, 9])?, &numbers(&[1, 2, 3])?).is_ok());
            assert_eq!(divide(&numbers(&[])?, &numbers(&[0])?)?.numel(), 0);
        }
        assert!(refused(numbers(&[1])?.fmod(0)).starts_with("ZeroDivisionError"));
        assert!(refused(numbers(&[1])?.floor_divide_(0).cloned()).starts_with("ZeroDivisionError"));
        assert!(numbers(&[1])?.to_dtype(DType::F32)?.fmod(0).is_ok());
    }
    // The divisor counts in the dtype of the result.
    let bytes = Tensor::from_slice(&[1_u8, 2], &[2])?;
    assert!(refused(bytes.remainder(&Tensor::full(&[], 256, DType::I64, "cpu")?)).starts_with("ZeroDivisionError"));
    Ok(())
}

#[test]
fn sums_and_powers_of_complex_numbers_take_the_second_operand_through_a_product() {
    on_both(|device| {
        let complex = |parts: &[(f64, f64)]| {
            let flat: Vec<f64> = parts.iter().flat_map(|&(real, imaginary)| [real, imaginary]).collect();
            let pairs = Tensor::from_slice(&flat, &[parts.len() as i64, 2]).and_then(|pairs| pairs.view_as_complex());
            pairs.and_then(|wide| wide.to_dtype(DType::C64)?.to_device(device)).unwrap()
        };
        let parts = |made: Result<Tensor>| {
            let wide = made.and_then(|made| made.to_dtype(DType::C128)?.cpu()?.view_as_real()).unwrap();
            wide.contiguous()
                .unwrap()
                .to_vec::<f64>()
                .unwrap()
                .chunks(2)
                .map(|pair| (pair[0], pair[1]))
                .collect::<Vec<_>>()
        };
        let same = |found: Vec<(f64, f64)>, expected: &[(f64, f64)]| {
            let bits = |pairs: &[(f64, f64)]| format!("{pairs:?}");
            assert_eq!(bits(&found), bits(expected), "{device}");
        };
        let (a, b) = (complex(&[(255.0, NAN), (1.0, f64::INFINITY)]), complex(&[(1.0, 0.0), (2.0, 0.0)]));
        same(parts(a.add(&b)), &[(256.0, NAN), (3.0, f64::INFINITY)]);
        same(parts(b.add(&a)), &[(NAN, NAN), (NAN, f64::INFINITY)]);
        same(parts(b.sub(&a)), &[(NAN, NAN), (NAN, f64::NEG_INFINITY)]);
        let (zero, exponents) = (complex(&[(0.0, 0.0); 3]), complex(&[(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]));
        same(parts(zero.pow(&exponents)), &[(NAN, NAN), (0.0, 0.0), (0.0, 0.0)]);
        same(parts(zero.pow(0)), &[(1.0, 0.0); 3]);
    });
}

#[test]
fn products_over_no_elements_have_every_dtype() {
    on_both(|device| {
        for dtype in [DType::Bool, DType::U8, DType::I32, DType::F32] {
            let empty = |sizes: &[i64]| Tensor::zeros(sizes, dtype, device).unwrap();
            let product = empty(&[2, 0]).mm(&empty(&[0, 2])).unwrap();
            assert_eq!((product.dtype(), read(&product.flatten().unwrap())), (dtype, vec![0.0; 4]), "{device}");
        }
    });
}

#[test]
fn the_power_of_minus_one_half_is_the_reciprocal_of_a_root() {
    on_both(|device| {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let numbers = Tensor::from_slice(&[4.0, f64::NEG_INFINITY, -0.0], &[3]).and_then(|x| x.to_dtype(dtype));
            let power = numbers.and_then(|x| x.to_device(device)?.pow(-0.5)).unwrap();
            // torch's host computes powers of f16 by the usual function.
            let expected = match (device, dtype) {
                ("cpu", DType::F16) => [0.5, 0.0, f64::INFINITY],
                _ => [0.5, NAN, f64::NEG_INFINITY],
            };
            assert_eq!(format!("{:?}", read(&power)), format!("{expected:?}"), "{dtype} on {device}");
        }
        let whole = Tensor::from_slice(&[4_i32, -1], &[2]).and_then(|x| x.to_device(device)?.pow(-0.5)).unwrap();
        assert_eq!((whole.dtype(), format!("{:?}", read(&whole))), (DType::F32, "[0.5, NaN]".to_owned()));
    });
}

#[test]
fn a_bound_beside_nan_is_not_looked_at() {
    on_both(|device| {
        for dtype in [DType::F16, DType::F32, DType::I32] {
            for bounds in [(f64::from(i32::MAX) + 1.0, NAN), (NAN, 1e10)] {
                let held = ones(dtype, device).clamp(Some(bounds.0.into()), Some(bounds.1.into())).unwrap();
                assert!(read(&held).iter().all(|number| number.is_nan()), "{dtype} on {device}");
            }
        }
    });
}
