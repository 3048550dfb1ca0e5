//! How far the results of float functions are from the exact ones.
//!
//! Arguments are drawn over the range of each function and rounded to the dtype; the exact result is the same function in
//! `f64` on the host. In `f64` itself both sides are approximations, and the figure is their distance. Functions that cross
//! zero where their formula loses digits, as torch's does, are measured on one side of it.

use aten_cuda::{DType, Operand, Operation, Result, Tensor, table};
use half::{bf16, f16};

/// Arguments of each function and dtype.
const COUNT: usize = 4096;

/// The dtypes, from the narrowest.
pub(crate) const DTYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Where arguments are drawn from.
#[derive(Clone, Copy)]
enum Range {
    /// Between two numbers, evenly.
    Even(f64, f64),
    /// Between two numbers above zero, each magnitude as likely as the next.
    Magnitudes(f64, f64),
}

/// A measured function.
pub(crate) struct Measured {
    /// Its name.
    pub(crate) name: &'static str,
    /// The largest error for each of [`DTYPES`], in units in the last place.
    pub(crate) errors: [f64; 4],
    /// The most that the error may be in `f32` and in `f64`.
    pub(crate) bounds: [f64; 2],
}

impl Measured {
    /// Whether every error is within its bound. What is computed in `f32` is rounded once more to 16 bits, which is the
    /// only error that is left there.
    pub(crate) fn is_good(&self) -> bool {
        let ([f16, bf16, f32, f64], [bound, bound_f64]) = (self.errors, self.bounds);
        let halves = f16 <= 0.51 + bound / 1024.0 && bf16 <= 0.51 + bound / 256.0;
        halves && f32 <= bound && f64 <= bound_f64
    }
}

/// Measures every function of the table of pointwise operations that has an error, on a device.
///
/// # Errors
/// An operation fails.
pub(crate) fn measure(device: &str) -> Result<Vec<Measured>> {
    let has_error = |operation: &&Operation| operation.arity + operation.numbers <= 2 && operation.numbers == 0;
    let functions = table().filter(|operation| operation.accepts(DType::F32)).filter(has_error);
    let mut all = Vec::new();
    for operation in functions.filter(|operation| !operation.is_exact(DType::F32)) {
        let mut errors = [0.0; 4];
        let mut bounds = documented(operation.name);
        for (at, dtype) in DTYPES.into_iter().enumerate() {
            let (own, torchs) = largest_errors(operation, dtype, device)?;
            errors[at] = own;
            if let Some(bound) = at.checked_sub(2).and_then(|at| bounds.get_mut(at)) {
                *bound = bound.max(torchs);
            }
        }
        all.push(Measured { name: operation.name, errors, bounds });
    }
    Ok(all)
}

/// The error in `f32` and `f64` of what torch calls: what NVIDIA's documentation gives for its functions, and at least two
/// units; for those that torch composes of several, the sum. In `f64` one unit more, for the host's own function.
fn documented(name: &str) -> [f64; 2] {
    match name {
        "asinh" => [3.0, 4.0],
        "acosh" => [4.0, 4.0],
        "atan2" | "atanh" | "sinh" | "hypot" | "silu" | "sigmoid" => [3.0, 3.0],
        "erfc" => [4.0, 6.0],
        "erfinv" => [2.0, 6.0],
        "tan" | "pow" | "logaddexp" | "xlogy" | "mish" | "logsigmoid" => [4.0, 3.0],
        "lgamma" => [6.0, 5.0],
        // A sum of up to ten reciprocals and a logarithm.
        "digamma" => [16.0, 16.0],
        _ => [2.0, 3.0],
    }
}

/// Where a function's arguments are drawn from, one range for each argument.
fn ranges(name: &str) -> [Range; 2] {
    let (tiny, huge) = (1e-4, 6e4);
    match name {
        "log" | "log2" | "log10" | "rsqrt" => [Range::Magnitudes(tiny, huge); 2],
        "log1p" => [Range::Even(-0.99, 20.0); 2],
        "sin" | "cos" | "tan" => [Range::Even(-300.0, 300.0); 2],
        "asin" | "acos" | "atanh" | "erfinv" => [Range::Even(-0.999, 0.999); 2],
        "acosh" => [Range::Magnitudes(1.01, huge); 2],
        "erfc" => [Range::Even(-4.0, 3.0); 2],
        "lgamma" => [Range::Magnitudes(3.0, 5e3); 2],
        "digamma" => [Range::Magnitudes(2.0, huge); 2],
        "pow" => [Range::Magnitudes(0.1, 10.0), Range::Even(-4.0, 4.0)],
        "xlogy" => [Range::Even(-10.0, 10.0), Range::Magnitudes(2.0, huge)],
        "logaddexp" => [Range::Even(0.0, 8.0); 2],
        "gelu" | "gelu_tanh" => [Range::Even(-3.0, 10.0); 2],
        _ => [Range::Even(-8.0, 8.0); 2],
    }
}

/// The largest error, and that of torch's formula where it is another one.
fn largest_errors(operation: &'static Operation, dtype: DType, device: &str) -> Result<(f64, f64)> {
    let operands: Vec<Tensor> =
        (0..operation.arity).map(|at| arguments(ranges(operation.name)[at], dtype, at)).collect::<Result<_>>()?;
    let exact = exact(operation, &operands)?;
    let there: Vec<Tensor> = operands.iter().map(|tensor| tensor.to_device(device)).collect::<Result<_>>()?;
    let largest = |found: Tensor| -> Result<f64> {
        let found = found.cpu()?.to_dtype(DType::F64)?.to_vec::<f64>()?;
        Ok(found.iter().zip(&exact).map(|(found, exact)| error(*found, *exact, dtype)).fold(0.0, f64::max))
    };
    let torchs = torchs_formula(operation.name, &there[0])?;
    Ok((largest(apply(operation, &there)?)?, torchs.map_or(Ok(0.0), largest)?))
}

/// What torch computes, where our formula is another one: `x / 2 * (1 + f(x))`.
fn torchs_formula(name: &str, x: &Tensor) -> Result<Option<Tensor>> {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
    let part = match name {
        "gelu" => x.mul(FRAC_1_SQRT_2)?.erf()?,
        "gelu_tanh" => x.add(&x.mul(x)?.mul(x)?.mul(0.044_715)?)?.mul(FRAC_2_SQRT_PI * FRAC_1_SQRT_2)?.tanh()?,
        _ => return Ok(None),
    };
    Ok(Some(x.mul(0.5)?.mul(&part.add(1)?)?))
}

fn apply(operation: &'static Operation, operands: &[Tensor]) -> Result<Tensor> {
    operation.apply(&operands.iter().map(Operand::from).collect::<Vec<_>>(), &[])
}

/// The exact results, for arguments of any dtype. Where torch's formula loses digits even in `f64`, it is one that does
/// not.
fn exact(operation: &'static Operation, operands: &[Tensor]) -> Result<Vec<f64>> {
    let wide: Vec<Tensor> = operands.iter().map(|tensor| tensor.to_dtype(DType::F64)).collect::<Result<_>>()?;
    let x = &wide[0];
    let result = match operation.name {
        "gelu" => x.mul(-std::f64::consts::FRAC_1_SQRT_2)?.erfc()?.mul(x)?.mul(0.5)?,
        "gelu_tanh" => {
            let scale = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
            x.add(&x.mul(x)?.mul(x)?.mul(0.044_715)?)?.mul(scale)?.sigmoid()?.mul(x)?
        }
        _ => apply(operation, &wide)?,
    };
    result.to_vec()
}

/// Arguments drawn from a range, rounded to the dtype. What is drawn depends on the place alone.
#[expect(clippy::cast_possible_truncation, reason = "arguments are rounded to the dtype")]
fn arguments(range: Range, dtype: DType, seed: usize) -> Result<Tensor> {
    let drawn = (0..COUNT).map(|at| {
        // The multiples of two irrational numbers fill the unit interval evenly, apart from each other.
        let step = [0.618_033_988_749_894_9, 0.754_877_666_246_692_7][seed % 2];
        let part = (at as f64 * step).fract();
        match range {
            Range::Even(low, high) => low + part * (high - low),
            Range::Magnitudes(low, high) => low * (high / low).powf(part),
        }
    });
    let bytes: Vec<u8> = match dtype {
        DType::F16 => drawn.flat_map(|x| f16::from_f64(x).to_le_bytes()).collect(),
        DType::BF16 => drawn.flat_map(|x| bf16::from_f64(x).to_le_bytes()).collect(),
        DType::F32 => drawn.flat_map(|x| (x as f32).to_le_bytes()).collect(),
        _ => drawn.flat_map(f64::to_le_bytes).collect(),
    };
    Tensor::from_bytes(&bytes, &[COUNT as i64], dtype)
}

/// The error in units in the last place. Results past the largest number are none.
fn error(found: f64, exact: f64, dtype: DType) -> f64 {
    if !found.is_finite() || !exact.is_finite() {
        return 0.0;
    }
    (found - exact).abs() / super::judge::unit(exact, dtype)
}
