//! Elements with all that is special about a dtype, and distances between results.
#![allow(dead_code, reason = "each test program uses a part")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a few dtypes are treated on their own and the rest alike")]

use aten_cuda::{DType, Tensor};
use half::{bf16, f16};
use kernel_ir::float8;

/// Numbers that each float dtype has in some form: zeros, infinities, NaN, edges, halves between whole numbers.
const FLOATS: [f64; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    -7.25,
    0.1,
    -0.1,
    1e-3,
    20.5,
    -20.5,
    88.0,
    300.0,
    6e-8,
    -1e-40,
    3e38,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Integers, of which each dtype takes the low bits.
const INTEGERS: [i64; 16] = [0, 1, -1, 2, 3, -3, 5, 7, 12, -100, 127, 128, -32768, 0x7fff_ffff, i64::MIN, i64::MAX];

/// How many special elements a dtype has.
pub(crate) fn count_of(dtype: DType) -> i64 {
    i64::try_from(specials(dtype).len() / dtype.itemsize()).expect("it fits")
}

/// The bytes of the special elements.
pub(crate) fn specials(dtype: DType) -> Vec<u8> {
    let real = dtype.to_real();
    if dtype.is_complex() {
        // Pairs of a few numbers that are special enough.
        let parts = [0.0, -0.0, 1.0, -1.5, 0.3, 4.0, -9.0, f64::INFINITY, f64::NAN];
        return parts
            .iter()
            .flat_map(|&a| parts.iter().flat_map(move |&b| [float(a, real), float(b, real)].concat()))
            .collect();
    }
    match dtype {
        DType::Bool => vec![0, 1],
        _ if dtype.is_integral() => {
            INTEGERS.iter().flat_map(|n| n.to_le_bytes()[..dtype.itemsize()].to_vec()).collect()
        }
        _ => FLOATS.iter().flat_map(|&number| float(number, dtype)).collect(),
    }
}

/// The bytes of a number in a float dtype.
#[expect(clippy::cast_possible_truncation, reason = "a number is rounded to its dtype")]
pub(crate) fn float(number: f64, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f64(number).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(number).to_le_bytes().to_vec(),
        DType::F32 => (number as f32).to_le_bytes().to_vec(),
        DType::F8E4M3FN => vec![float8::E4M3.round(number as f32)],
        DType::F8E5M2 => vec![float8::E5M2.round(number as f32)],
        _ => number.to_le_bytes().to_vec(),
    }
}

/// A host tensor of the special elements.
pub(crate) fn special_tensor(dtype: DType) -> Tensor {
    Tensor::from_bytes(&specials(dtype), &[count_of(dtype)], dtype).expect("it succeeds")
}

/// The parts of the elements as numbers of 64 bits.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    let wide = if tensor.dtype().is_complex() { DType::C128 } else { DType::F64 };
    let bytes =
        tensor.cpu().expect("it succeeds").to_dtype(wide).expect("it succeeds").to_bytes().expect("it succeeds");
    bytes.chunks_exact(8).map(|part| f64::from_le_bytes(part.try_into().expect("it has that length"))).collect()
}

/// The distance of neighbouring numbers of a float dtype at a value.
pub(crate) fn unit(value: f64, dtype: DType) -> f64 {
    let (digits, lowest) = match dtype.to_real() {
        DType::F16 => (10_i32, -24_i32),
        DType::BF16 => (7, -133),
        DType::F32 => (23, -149),
        _ => (52, -1074),
    };
    let exponent = if value == 0.0 { -1022.0 } else { value.abs().log2().floor().max(-1022.0) };
    (exponent - f64::from(digits)).max(f64::from(lowest)).exp2()
}
