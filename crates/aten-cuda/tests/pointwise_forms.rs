//! The forms of pointwise operations: in place, into an output, with numbers and broadcast operands, and what each
//! refuses with torch's texts.

use aten_cuda::{DType, Error, Operand, Result, Scalar, Tensor};
use num_complex::Complex64;

/// Runs a test on the host and on a simulated device.
fn on_both(test: impl Fn(&str)) {
    test("cpu");
    let _simulated = testkit::simulated_runtime();
    test("cuda");
}

fn floats(values: &[f32], device: &str) -> Tensor {
    let count = i64::try_from(values.len()).expect("it fits");
    Tensor::from_slice(values, &[count]).and_then(|host| host.to_device(device)).expect("there is memory")
}

fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.expect_err("it is an error").to_string()
}

#[test]
fn in_place_changes_the_tensor_and_its_views() {
    on_both(|device| {
        let a = floats(&[1.0, -2.0, 3.0, -4.0], device);
        let tail = a.narrow(0, 2, 2).unwrap();
        tail.abs_().unwrap().mul_(10).unwrap().add_alpha_(&tail, 0.5).unwrap();
        assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, -2.0, 45.0, 60.0]);
        a.clamp_(None, Some(50.into())).unwrap().masked_fill_(&a.lt(0).unwrap(), 7).unwrap();
        assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, 7.0, 45.0, 50.0]);
        a.lerp_(&floats(&[3.0; 4], device), 0.5).unwrap().pow_(2).unwrap();
        assert_eq!(a.to_vec::<f32>().unwrap(), [4.0, 25.0, 576.0, 702.25]);
    });
}

#[test]
fn results_are_cast_to_the_output() {
    on_both(|device| {
        let (a, b) = (floats(&[1.5, -2.5, 3.0], device), floats(&[2.0, 2.0, 2.0], device));
        let wide = Tensor::zeros(&[3], DType::F64, device).unwrap();
        a.div_out(&b, &wide).unwrap();
        assert_eq!(wide.to_vec::<f64>().unwrap(), [0.75, -1.25, 1.5]);
        let truth = Tensor::zeros(&[3], DType::I32, device).unwrap();
        a.gt_out(0, &truth).unwrap();
        assert_eq!(truth.to_vec::<i32>().unwrap(), [1, 0, 1]);
        let out = Tensor::zeros(&[3], DType::F32, device).unwrap();
        a.gt(0).unwrap().where_cond_out(&a, &b, &out).unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), [1.5, 2.0, 3.0]);
    });
}

#[test]
fn an_output_that_cannot_hold_the_result_is_refused() {
    on_both(|device| {
        let a = floats(&[1.0, 2.0, 3.0], device);
        let whole = Tensor::zeros(&[3], DType::I64, device).unwrap();
        assert_eq!(text(a.exp_out(&whole)), "result type Float can't be cast to the desired output type Long");
        assert_eq!(text(whole.div_(2)), "result type Float can't be cast to the desired output type Long");
        let column = floats(&[1.0, 2.0], device).view(&[2, 1]).unwrap();
        assert_eq!(text(a.add_(&column)), "output with shape [3] doesn't match the broadcast shape [2, 3]");
        // What was refused has changed nothing.
        assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    });
}

#[test]
fn overlaps_are_refused() {
    on_both(|device| {
        let a = floats(&[1.0, 2.0, 3.0, 4.0], device);
        let (head, tail) = (a.narrow(0, 0, 3).unwrap(), a.narrow(0, 1, 3).unwrap());
        assert!(text(head.add_(&tail)).starts_with("unsupported operation: some elements of the input tensor"));
        assert!(text(tail.neg_out(&head)).starts_with("unsupported operation: some elements of the input tensor"));
        let same = a.narrow(0, 0, 1).unwrap().expand(&[5]).unwrap();
        assert!(
            text(same.add_(1)).starts_with("unsupported operation: more than one element of the written-to tensor")
        );
        // The very same elements may be read and written.
        assert_eq!(head.add_(&head).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
    });
}

#[test]
fn operands_must_fit_each_other() {
    on_both(|device| {
        let (a, b) = (floats(&[1.0, 2.0, 3.0], device), floats(&[1.0, 2.0], device));
        let broadcast = "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0";
        assert_eq!(text(a.add(&b)), broadcast);
        assert_eq!(text(a.gt(0).unwrap().where_cond(&a, &b)), broadcast);
        let double = a.to_dtype(DType::F64).unwrap();
        assert_eq!(text(a.lerp(&double, 0.5)), "expected dtype float for `end` but got dtype double");
    });
}

#[test]
fn tensors_of_several_devices_are_refused() {
    let _simulated = testkit::simulated_runtime();
    let (host, device) = (floats(&[1.0, 2.0], "cpu"), floats(&[1.0, 2.0], "cuda"));
    let wanted = "Expected all tensors to be on the same device, but found at least two devices";
    assert!(text(device.add(&host)).starts_with(wanted));
    assert!(text(host.mul_out(2, &device)).starts_with(wanted));
    // One number on the host stands for itself.
    let number = Tensor::from_slice(&[10.0_f32], &[]).unwrap();
    assert_eq!(device.add(&number).unwrap().to_vec::<f32>().unwrap(), [11.0, 12.0]);
}

#[test]
fn dtypes_that_are_not_there_have_torchs_texts() {
    on_both(|device| {
        let float = floats(&[1.0], device);
        let (truth, whole) = (float.gt(0).unwrap(), float.to_dtype(DType::I32).unwrap());
        let complex = float.to_dtype(DType::C64).unwrap();
        assert_eq!(text(float.bitwise_and(3)), "\"bitwise_and_cuda\" not implemented for 'Float'");
        assert_eq!(text(whole.frac()), "\"frac_cuda\" not implemented for 'Int'");
        assert_eq!(text(truth.floor_divide(&truth)), "\"div_floor_cuda\" not implemented for 'Bool'");
        assert_eq!(text(complex.lt(1)), "\"compare_cuda\" not implemented for 'ComplexFloat'");
        assert_eq!(text(complex.maximum(1)), "maximum not implemented for complex tensors.");
        assert!(text(truth.neg()).starts_with("Negation, the `-` operator, on a bool tensor is not supported."));
        assert!(text(truth.sub(1)).starts_with("Subtraction, the `-` operator, with a bool tensor is not supported."));
        assert_eq!(text(truth.relu()), "Boolean inputs not supported for relu");
        assert_eq!(text(truth.positive()), "The `+` operator, on a bool tensor is not supported.");
        assert_eq!(text(whole.pow(-2)), "Integers to negative integer powers are not allowed.");
        assert_eq!(
            text(whole.add_alpha(1, 0.5)),
            "For integral input tensors, argument alpha must not be a floating point number."
        );
        assert_eq!(
            text(float.where_cond(1, 2)),
            "where expected condition to be a boolean tensor, but got a tensor with dtype Float"
        );
        // The host's text names the function in place and C++'s type.
        let (name, found) = if device == "cpu" { ("masked_fill_", "int") } else { ("masked_fill", "Int") };
        assert_eq!(
            text(float.masked_fill(&whole, 2)),
            format!("{name} only supports boolean masks, but got mask with dtype {found}")
        );
        assert_eq!(
            text(float.to_dtype(DType::F16).unwrap().masked_fill(&truth, 1e6)),
            "value cannot be converted to type c10::Half without overflow"
        );
        assert_eq!(text(float.hardtanh(1, -1)), "min_val cannot be greater than max_val");
        assert_eq!(text(float.clamp(None, None)), "torch.clamp: At least one of 'min' or 'max' must not be None");
        assert!(
            text(whole.addcdiv(&whole, &whole, 1)).starts_with("Integer division with addcdiv is no longer supported")
        );
    });
}

#[test]
fn a_row_takes_as_much_as_it_says() {
    let add = aten_cuda::table().find(|operation| operation.name == "add").unwrap();
    let one: Operand<'_> = 1.into();
    let refused = add.apply(&[one], &[]);
    assert!(matches!(refused, Err(Error::Tensor(_))), "{refused:?}");
    assert_eq!(text(refused), "add takes 2 arguments, not 1");
}

#[test]
fn numbers_promote_as_in_torch() {
    on_both(|device| {
        let whole = Tensor::from_slice(&[1_i32, -2, 3], &[3]).unwrap().to_device(device).unwrap();
        assert_eq!(whole.mul(0.5).unwrap().dtype(), DType::F32);
        assert_eq!(whole.clamp(Some(0.5.into()), None).unwrap().to_vec::<f32>().unwrap(), [1.0, 0.5, 3.0]);
        assert_eq!(whole.gt(0).unwrap().square().unwrap().dtype(), DType::I64);
        assert_eq!(whole.mul(Complex64::new(0.0, 1.0)).unwrap().dtype(), DType::C64);
        assert_eq!(whole.gt(0).unwrap().where_cond(&whole, 1.5).unwrap().dtype(), DType::F32);
        assert_eq!(whole.masked_fill(&whole.lt(0).unwrap(), 9.7).unwrap().to_vec::<i32>().unwrap(), [1, 9, 3]);
    });
}

#[test]
fn integers_divide_as_on_a_gpu() {
    on_both(|device| {
        let a = Tensor::from_slice(&[7_i64, -7, 0, i64::MIN], &[4]).unwrap().to_device(device).unwrap();
        assert_eq!(a.floor_divide(2).unwrap().to_vec::<i64>().unwrap(), [3, -4, 0, i64::MIN / 2]);
        assert_eq!(a.div_trunc(2).unwrap().to_vec::<i64>().unwrap(), [3, -3, 0, i64::MIN / 2]);
        assert_eq!(a.remainder(-4).unwrap().to_vec::<i64>().unwrap(), [-1, -3, 0, 0]);
        assert_eq!(a.fmod(-4).unwrap().to_vec::<i64>().unwrap(), [3, -3, 0, 0]);
        let narrow = a.to_dtype(DType::I8).unwrap();
        // The host refuses to divide by zero.
        if device == "cuda" {
            assert_eq!(a.floor_divide(0).unwrap().to_vec::<i64>().unwrap(), [0xffff_ffff, -2, 0xffff_ffff, -2]);
            assert_eq!(narrow.fmod(0).unwrap().to_vec::<i8>().unwrap(), [-1, -1, -1, -1]);
        }
        assert_eq!(narrow.gcd(21).unwrap().to_vec::<i8>().unwrap(), [7, 7, 21, 21]);
        assert_eq!(narrow.pow(3).unwrap().to_vec::<i8>().unwrap(), [87, -87, 0, 0]);
    });
}

#[test]
fn complex_numbers_agree_with_the_textbook() {
    let values: Vec<Complex64> = [-2.5, -0.75, 0.3, 1.0, 3.5]
        .iter()
        .flat_map(|&re| [-1.5, -0.2, 0.6, 2.0].map(|im| Complex64::new(re, im)))
        .collect();
    type Unary = (fn(&Tensor) -> Result<Tensor>, fn(Complex64) -> Complex64);
    let cases: [Unary; 22] = [
        (Tensor::exp, |z| z.exp()),
        (Tensor::exp2, |z| z.exp2()),
        (Tensor::expm1, |z| z.exp() - 1.0),
        (Tensor::log, |z| z.ln()),
        (Tensor::log2, |z| z.log2()),
        (Tensor::log10, |z| z.log10()),
        (Tensor::log1p, |z| (z + 1.0).ln()),
        (Tensor::sqrt, |z| z.sqrt()),
        (Tensor::rsqrt, |z| z.sqrt().inv()),
        (Tensor::reciprocal, |z| z.inv()),
        (Tensor::square, |z| z * z),
        (Tensor::sin, |z| z.sin()),
        (Tensor::cos, |z| z.cos()),
        (Tensor::tan, |z| z.tan()),
        (Tensor::sinh, |z| z.sinh()),
        (Tensor::cosh, |z| z.cosh()),
        (Tensor::tanh, |z| z.tanh()),
        (Tensor::asin, |z| z.asin()),
        (Tensor::acos, |z| z.acos()),
        (Tensor::atan, |z| z.atan()),
        (Tensor::asinh, |z| z.asinh()),
        (Tensor::sigmoid, |z| ((-z).exp() + 1.0).inv()),
    ];
    on_both(|device| {
        let tensor = Tensor::from_slice(&values, &[20]).unwrap().to_device(device).unwrap();
        for (at, (function, expected)) in cases.iter().enumerate() {
            near(&function(&tensor).unwrap(), values.iter().map(|&z| expected(z)), &format!("case {at}"));
        }
        near(&tensor.acosh().unwrap(), values.iter().map(|z| z.acosh()), "acosh");
        near(&tensor.atanh().unwrap(), values.iter().map(|z| z.atanh()), "atanh");
        let other = tensor.add(Scalar::Complex(Complex64::new(0.5, -4.0))).unwrap();
        let shifted = |z: Complex64| z + Complex64::new(0.5, -4.0);
        near(&tensor.mul(&other).unwrap(), values.iter().map(|&z| z * shifted(z)), "mul");
        near(&tensor.div(&other).unwrap(), values.iter().map(|&z| z / shifted(z)), "div");
        near(&tensor.pow(&other).unwrap(), values.iter().map(|&z| z.powc(shifted(z))), "pow");
        let lengths = tensor.abs().unwrap();
        assert_eq!(lengths.dtype(), DType::F64);
        near(&lengths.to_dtype(DType::C128).unwrap(), values.iter().map(|z| z.norm().into()), "abs");
        assert!(tensor.eq(&tensor).unwrap().to_bools().unwrap().iter().all(|&equal| equal));
        assert!(tensor.ne(&other).unwrap().to_bools().unwrap().iter().all(|&differs| differs));
    });
}

/// Twenty units in the last place of the whole number: the formulas on both sides round several times.
fn near(found: &Tensor, expected: impl Iterator<Item = Complex64>, name: &str) {
    let found: Vec<Complex64> = found.to_vec().expect("it has complex numbers");
    for (found, expected) in found.into_iter().zip(expected) {
        let error = (found - expected).norm() / expected.norm();
        assert!(
            error < 20.0 * f64::EPSILON,
            "{name}: {found} instead of {expected}, {:.1} units",
            error / f64::EPSILON
        );
    }
}
