//! Functions of 16-bit floats that have formulas of their own, for every one of the 65,536 inputs: the host and a
//! simulated device give the true result, computed in `f64`, to within one unit in the last place.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use aten_cuda::{DType, Scalar, Tensor, table};
use half::{bf16, f16};

/// The true sigmoid, which keeps its digits on both sides in `f64`.
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// An argument of [`sigmoid`] that gives the hyperbolic form of gelu.
fn tanh_argument(x: f64) -> f64 {
    FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 2.0 * (x + 0.044715 * x * x * x)
}

/// The product, or zero with its sign where torch's formula is zero in `f64`.
fn or_zero(below: bool, x: f64, part: f64) -> f64 {
    if below { x * 0.0 } else { x * part }
}

fn truth(function: &str, x: f64, erfc: f64) -> f64 {
    match function {
        "sigmoid" => sigmoid(x),
        "silu" => x * sigmoid(x),
        "mish" => x * x.exp().ln_1p().tanh(),
        "softplus" => {
            if x > 20.0 {
                x
            } else {
                x.exp().ln_1p()
            }
        }
        "logsigmoid" => {
            if x.is_nan() {
                x
            } else {
                x.min(0.0) - (-x.abs()).exp().ln_1p()
            }
        }
        "gelu" => or_zero(x < -8.2924, x, 0.5 * erfc),
        _ => or_zero(tanh_argument(x) < -38.12, x, sigmoid(tanh_argument(x))),
    }
}

/// The number's place among all numbers of its type, zeros being one.
fn place(bits: u16) -> i32 {
    let magnitude = i32::from(bits & 0x7fff);
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

fn check(function: &'static str, dtype: DType) {
    let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let host = Tensor::from_bytes(&bits, &[1 << 16], dtype).expect("it succeeds");
    let device = host.cuda(None).expect("it succeeds");
    let apply = |tensor: &Tensor| {
        let operation = table().find(|operation| operation.name == function).expect("there is one");
        // Only one of them takes numbers.
        let numbers = [Scalar::Float(1.0), Scalar::Float(20.0)];
        operation
            .apply(&[tensor.into()], &numbers[..operation.numbers])
            .expect("it succeeds")
            .to_bytes()
            .expect("it succeeds")
    };
    let wide = host.to_dtype(DType::F64).expect("it succeeds");
    let erfc = wide.mul(-FRAC_1_SQRT_2).and_then(|scaled| scaled.erfc()).and_then(|tails| tails.to_vec::<f64>());
    let (values, erfc) = (wide.to_vec::<f64>().expect("it succeeds"), erfc.expect("it succeeds"));
    let is_f16 = dtype == DType::F16;
    let number = |bits: u16| if is_f16 { f16::from_bits(bits).to_f64() } else { bf16::from_bits(bits).to_f64() };
    for (name, found) in [("the host", apply(&host)), ("a device", apply(&device))] {
        for (at, bytes) in found.chunks(2).enumerate() {
            let (found, exact) = (u16::from_le_bytes([bytes[0], bytes[1]]), truth(function, values[at], erfc[at]));
            let nearest = if is_f16 { f16::from_f64(exact).to_bits() } else { bf16::from_f64(exact).to_bits() };
            let near = (place(found) - place(nearest)).abs() <= 1 && !number(found).is_nan();
            let text = || format!("{function} of {dtype} {:e}: {exact:e}, on {name} {:e}", values[at], number(found));
            assert!(near || (exact.is_nan() && number(found).is_nan()), "{}", text());
        }
    }
}

#[test]
fn every_input_gives_its_true_result() {
    let _simulated = testkit::simulated_runtime();
    for function in ["gelu", "gelu_tanh", "sigmoid", "silu", "mish", "softplus", "logsigmoid"] {
        check(function, DType::F16);
        check(function, DType::BF16);
    }
}
