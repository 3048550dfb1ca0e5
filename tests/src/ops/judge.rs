//! Comparing answers: the rules stand in the README of the golden data.

use aten_cuda::{DType, Tensor, promote_types, result_type};
use half::{bf16, f16};

use super::call;
use super::file::{self, Case, File, Stored, name_of};

/// Operations whose unit of error is taken at the same operation on absolute values.
const BY_MAGNITUDE: [&str; 16] = [
    "sum",
    "nansum",
    "mean",
    "var",
    "std",
    "norm",
    "cumsum",
    "logsumexp",
    "mm",
    "matmul",
    "addmm",
    "bmm",
    "mv",
    "dot",
    "baddbmm",
    "outer",
];

/// Compares every output.
pub(crate) fn values(case: &Case, wanted: &[Stored], found: &[Tensor]) -> Result<(), String> {
    if wanted.len() != found.len() {
        return Err(format!("{} outputs instead of {}", found.len(), wanted.len()));
    }
    for (at, (wanted, found)) in wanted.iter().zip(found).enumerate() {
        one(case, at, wanted, found).map_err(|why| format!("output {at}: {why}"))?;
    }
    Ok(())
}

fn one(case: &Case, at: usize, wanted: &Stored, found: &Tensor) -> Result<(), String> {
    if found.dtype() != wanted.dtype {
        return Err(format!("dtype {} instead of {}", name_of(found.dtype()), name_of(wanted.dtype)));
    }
    if found.sizes() != wanted.sizes {
        return Err(format!("sizes {:?} instead of {:?}", found.sizes(), wanted.sizes));
    }
    if found.strides() != wanted.strides {
        return Err(format!("strides {:?} instead of {:?}", found.strides(), wanted.strides));
    }
    let bytes = found.to_bytes().map_err(|error| error.to_string())?;
    let (found, torch) = (numbers(&bytes, wanted.dtype), numbers(&wanted.bytes, wanted.dtype));
    let reference = case.reference.get(at).filter(|_| !case.exact);
    let Some(reference) = reference else { return exact(&bytes, wanted, &found, &torch) };
    let exact = numbers(reference, if wanted.dtype.is_complex() { DType::C128 } else { DType::F64 });
    let scale = magnitudes(case)?;
    for (place, ((&found, &torch), &exact)) in found.iter().zip(&torch).zip(&exact).enumerate() {
        let unit = unit(scale.as_ref().and_then(|scale| scale.get(place)).copied().unwrap_or(exact), wanted.dtype);
        close(found, torch, exact, unit).map_err(|why| format!("element {place}: {why}"))?;
    }
    Ok(())
}

fn exact(bytes: &[u8], wanted: &Stored, found: &[f64], torch: &[f64]) -> Result<(), String> {
    let width = (bytes.len() / found.len().max(1)).max(1);
    for (place, (ours, theirs)) in bytes.chunks(width).zip(wanted.bytes.chunks(width)).enumerate() {
        let both_nan = found[place].is_nan() && torch[place].is_nan();
        if ours != theirs && !both_nan {
            return Err(format!("element {place}: {} instead of {}", found[place], torch[place]));
        }
    }
    Ok(())
}

fn close(found: f64, torch: f64, exact: f64, unit: f64) -> Result<(), String> {
    if !torch.is_finite() || !found.is_finite() {
        let same = found == torch || (found.is_nan() && torch.is_nan());
        return if same { Ok(()) } else { Err(format!("{found} instead of {torch}")) };
    }
    let (ours, theirs) = ((found - exact).abs(), (torch - exact).abs());
    if ours <= (4.0 * unit).max(2.0 * theirs) {
        return Ok(());
    }
    Err(format!("{found} instead of {torch}: {:.1} units off, torch {:.1}", ours / unit, theirs / unit))
}

/// The distance of neighbouring numbers of a dtype at a value.
pub(crate) fn unit(value: f64, dtype: DType) -> f64 {
    let (digits, lowest) = match dtype.to_real() {
        DType::F16 => (10, -24),
        DType::BF16 => (7, -133),
        DType::F32 => (23, -149),
        _ => (52, -1074),
    };
    if value == 0.0 || !value.is_finite() {
        return 2.0_f64.powi(lowest);
    }
    let exponent = value.abs().log2().floor().max(-1022.0);
    2.0_f64.powf(exponent - f64::from(digits)).max(2.0_f64.powi(lowest))
}

/// The operation on absolute values, in f64 on the host.
fn magnitudes(case: &Case) -> Result<Option<Vec<f64>>, String> {
    if !BY_MAGNITUDE.contains(&case.op.as_str()) {
        return Ok(None);
    }
    let answer = call::run_on_magnitudes(case).map_err(|_| "the operation fails on absolute values".to_owned())?;
    let bytes = answer.to_bytes().map_err(|error| error.to_string())?;
    let real = numbers(&bytes, answer.dtype());
    // Both halves of a complex element are measured by the same magnitude.
    let is_complex = matches!(&case.outcome, file::Outcome::Values(values) if values[0].dtype.is_complex());
    let copies = if is_complex { 2 } else { 1 };
    Ok(Some(real.into_iter().flat_map(|value| std::iter::repeat_n(value, copies)).collect()))
}

/// The elements as numbers of 64 bits, complex ones as two.
fn numbers(bytes: &[u8], dtype: DType) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).map(|chunk| number(chunk.try_into().unwrap_or([0; N]))).collect()
    }
    match dtype {
        DType::Bool | DType::U8 => each::<1>(bytes, |bytes| f64::from(bytes[0])),
        DType::I8 => each(bytes, |bytes| f64::from(i8::from_le_bytes(bytes))),
        DType::I16 => each(bytes, |bytes| f64::from(i16::from_le_bytes(bytes))),
        DType::I32 => each(bytes, |bytes| f64::from(i32::from_le_bytes(bytes))),
        #[expect(clippy::cast_precision_loss, reason = "shown in messages only; bytes are what is compared")]
        DType::I64 => each(bytes, |bytes| i64::from_le_bytes(bytes) as f64),
        DType::F16 | DType::C32 => each(bytes, |bytes| f16::from_le_bytes(bytes).to_f64()),
        DType::BF16 => each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f64()),
        DType::F32 | DType::C64 => each(bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
        DType::F64 | DType::C128 => each(bytes, f64::from_le_bytes),
        // No case has these; the codes tell them apart.
        DType::F8E4M3FN | DType::F8E5M2 => each::<1>(bytes, |bytes| f64::from(bytes[0])),
    }
}

/// The tables of a file: promotion of dtypes, promotion with numbers, and printed forms.
pub(crate) fn tables(file: &File, device: &str) -> Vec<(String, Result<(), String>)> {
    let mut outcomes = Vec::new();
    let named = |name: &serde_json::Value| file::dtype(name.as_str().unwrap_or_default());
    for row in &file.promote {
        let outcome = (|| {
            let (a, b, wanted) = (named(&row[0])?, named(&row[1])?, named(&row[2])?);
            let found = promote_types(a, b).map_err(|error| error.to_string())?;
            if found == wanted { Ok(()) } else { Err(format!("{row}: {}", name_of(found))) }
        })();
        outcomes.push(("promote_types".to_owned(), outcome));
    }
    for row in &file.with_scalar {
        let outcome = (|| {
            let (dtype, wanted) = (named(&row[0])?, named(&row[3])?);
            let dimensions = usize::try_from(row[1].as_i64().unwrap_or(0)).unwrap_or(0);
            let number = python_number(row[2].as_str().unwrap_or_default());
            let found = result_type(dtype, dimensions, number).map_err(|error| error.to_string())?;
            if found == wanted { Ok(()) } else { Err(format!("{row}: {}", name_of(found))) }
        })();
        outcomes.push(("result_type".to_owned(), outcome));
    }
    for (stored, text) in &file.printed {
        // The texts name the device that they were recorded on.
        let wanted = if device == "cpu" { text.replace(", device='cuda:0'", "") } else { text.clone() };
        let outcome = match call::tensor(stored, device).map(|tensor| tensor.to_string()) {
            Ok(found) if found == wanted => Ok(()),
            Ok(found) => Err(format!("{found} instead of {wanted}")),
            Err(_) => Err("the tensor cannot be made".to_owned()),
        };
        outcomes.push(("repr".to_owned(), outcome));
    }
    outcomes
}

/// A number as Python writes it.
fn python_number(text: &str) -> aten_cuda::Scalar {
    use aten_cuda::Scalar;
    if text == "True" || text == "False" {
        return Scalar::Bool(text == "True");
    }
    if let Some(imaginary) = text.strip_suffix('j') {
        return Scalar::Complex(num_complex::Complex64::new(0.0, imaginary.parse().unwrap_or(f64::NAN)));
    }
    text.parse::<i64>().map_or_else(|_| Scalar::Float(text.parse().unwrap_or(f64::NAN)), Scalar::Int)
}
