//! Complex numbers in reductions, scans, `logaddexp` and `linspace`: what PyTorch answered, on the device that it was
//! recorded on. A CUDA device is a simulated one here.

use std::collections::BTreeMap;

use aten_cuda::{DType, Result, Scalar, Tensor};
use num_complex::Complex64;

/// What PyTorch answered: an operation, the device, arguments, the inputs, `=` and the result or after `!` the message.
const RECORD: &str = include_str!("data/complex.txt");

/// A line of the record.
struct Line<'a> {
    operation: &'a str,
    device: &'a str,
    arguments: BTreeMap<&'a str, &'a str>,
    inputs: Vec<Tensor>,
    answer: std::result::Result<Tensor, &'a str>,
}

impl<'a> Line<'a> {
    fn of(text: &'a str) -> Self {
        let (call, answer) = text.split_once(" = ").expect("a call and an answer");
        let mut words = call.split(' ');
        let mut word = || words.next().expect("an operation, a device and arguments");
        let (operation, device, arguments) = (word(), word(), word());
        let answer = answer.strip_prefix("! ").map_or_else(|| Ok(tensor(answer)), Err);
        let arguments = arguments.split(';').filter_map(|argument| argument.split_once('=')).collect();
        Self { operation, device, arguments, inputs: words.map(tensor).collect(), answer }
    }

    fn number(&self, name: &str) -> f64 {
        self.arguments.get(name).map_or(1.0, |text| text.parse().expect("a number"))
    }

    fn dims(&self) -> Vec<i64> {
        let dims = self.arguments.get("dim").copied().filter(|&dims| dims != "all");
        dims.into_iter().flat_map(|dims| dims.split('+')).map(|dim| dim.parse().expect("a dimension")).collect()
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.arguments.get(name).filter(|&&text| text != "none").map(|text| dtype(text))
    }

    /// An end of `linspace`.
    fn end(&self, name: &str) -> Scalar {
        let parts: Vec<&str> = self.arguments[name].split('/').collect();
        let part = |at: usize| parts[at].parse::<f64>().expect("a number");
        #[expect(clippy::cast_possible_truncation, reason = "the number is whole")]
        match parts[2] {
            "int" => Scalar::Int(part(0) as i64),
            "float" => Scalar::Float(part(0)),
            _ => Scalar::Complex(Complex64::new(part(0), part(1))),
        }
    }

    /// What this library makes of it.
    fn run(&self) -> Result<Tensor> {
        let inputs = self.inputs.iter().map(|input| match self.device {
            "cuda" => input.cuda(None),
            _ => Ok(input.clone()),
        });
        let inputs: Vec<Tensor> = inputs.collect::<Result<_>>()?;
        let (dims, keepdim) = (self.dims(), self.arguments.get("keepdim") == Some(&"true"));
        let dim = dims.first().copied().unwrap_or(0);
        let correction = self.number("correction");
        let into = |sizes: &[i64], run: &dyn Fn(&Tensor) -> Result<()>| {
            let out = Tensor::empty(sizes, self.dtype("out").expect("a dtype"), self.device)?;
            run(&out)?;
            Ok(out)
        };
        match (self.operation, &inputs[..]) {
            ("nansum", [x]) => x.nansum(&dims[..], keepdim, None),
            ("nansum_dtype", [x]) => x.nansum(&dims[..], keepdim, self.dtype("dtype")),
            ("nansum_out", [x]) => into(&[3], &|out| x.nansum_out(&dims[..], keepdim, out)),
            ("var", [x]) => x.var(&dims[..], correction, keepdim),
            ("var_out", [x]) => into(&[3], &|out| x.var_out(&dims[..], correction, keepdim, out)),
            ("std", [x]) => x.std(&dims[..], correction, keepdim),
            ("std_out", [x]) => into(&[3], &|out| x.std_out(&dims[..], correction, keepdim, out)),
            ("logsumexp", [x]) => x.logsumexp(&dims[..], keepdim),
            ("logsumexp_out", [x]) => into(&[3], &|out| x.logsumexp_out(&dims[..], keepdim, out)),
            ("logcumsumexp", [x]) => x.logcumsumexp(dim),
            ("logcumsumexp_out", [x]) => into(&[3, 5], &|out| x.logcumsumexp_out(dim, out)),
            ("exp", [x]) => x.exp(),
            ("log", [x]) => x.log(),
            ("log1p", [x]) => x.log1p(),
            ("sqrt", [x]) => x.sqrt(),
            ("abs", [x]) => x.abs(),
            ("logaddexp", [a, b]) => a.logaddexp(b),
            ("logaddexp_out", [a, b]) => into(&[3, 5], &|out| a.logaddexp_out(b, out)),
            #[expect(clippy::cast_possible_truncation, reason = "the number is whole")]
            ("linspace", []) => {
                let steps = self.number("steps") as i64;
                Tensor::linspace(self.end("start"), self.end("end"), steps, self.dtype("dtype"), self.device)
            }
            (other, inputs) => panic!("the test does not know {other} of {} tensors", inputs.len()),
        }
    }
}

fn dtype(name: &str) -> DType {
    match name {
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "f32" => DType::F32,
        "f64" => DType::F64,
        "i64" => DType::I64,
        "c32" => DType::C32,
        "c64" => DType::C64,
        "c128" => DType::C128,
        other => panic!("the test does not know the dtype {other}"),
    }
}

/// A tensor of its dtype, sizes and bytes.
fn tensor(text: &str) -> Tensor {
    let mut parts = text.split(':');
    let mut part = || parts.next().expect("a dtype, sizes and bytes");
    let (dtype, sizes, bytes) = (dtype(part()), part(), part());
    let sizes: Vec<i64> =
        sizes.split(',').filter(|size| !size.is_empty()).map(|size| size.parse().expect("a size")).collect();
    let byte = |at: usize| u8::from_str_radix(&bytes[at..at + 2], 16).expect("a byte");
    let bytes: Vec<u8> = (0..bytes.len()).step_by(2).map(byte).collect();
    Tensor::from_bytes(&bytes, &sizes, dtype).expect("as many bytes as the sizes say")
}

/// The parts of complex elements, or the elements, as `f64`, which has them exactly.
fn parts(tensor: &Tensor) -> Result<Vec<f64>> {
    let host = tensor.cpu()?.contiguous()?;
    if !tensor.dtype().is_complex() {
        return host.to_dtype(DType::F64)?.to_vec();
    }
    Ok(host.to_dtype(DType::C128)?.to_vec::<Complex64>()?.into_iter().flat_map(|value| [value.re, value.im]).collect())
}

/// Units in the last place that a part may differ by. Sums are made in another order than torch's, and functions are
/// within the bounds of their libraries; where parts come near zero the unit is that of one, as the numbers are that they
/// are made of.
fn units(operation: &str) -> f64 {
    if operation == "linspace" { 0.0 } else { 2.0 }
}

/// What is wrong with a part. NaNs, infinities and the signs of zeros are compared too.
fn wrong_part(operation: &str, dtype: DType, found: f64, wanted: f64) -> bool {
    let digits = [(DType::F16, 10), (DType::F32, 23)].into_iter().find(|&(known, _)| known == dtype.to_real());
    let unit = 2.0_f64.powi(-digits.map_or(52, |(_, digits)| digits));
    let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
    let both_zero = found == 0.0 && wanted == 0.0;
    let close = (found - wanted).abs() <= units(operation) * unit * wanted.abs().max(1.0);
    !(same || close && !both_zero)
}

/// What is wrong with an answer.
fn wrong(line: &Line<'_>) -> Result<Option<String>> {
    let (found, wanted) = match (line.run(), &line.answer) {
        (Ok(found), Ok(wanted)) => (found, wanted),
        (Err(found), Err(wanted)) => {
            let same = found.to_string().contains(wanted);
            return Ok((!same).then(|| format!("the error is {found}, not {wanted}")));
        }
        (found, wanted) => return Ok(Some(format!("{found:?} instead of {wanted:?}"))),
    };
    if (found.dtype(), found.sizes()) != (wanted.dtype(), wanted.sizes()) {
        let (dtype, sizes) = (found.dtype(), found.sizes());
        return Ok(Some(format!("{dtype} of {sizes:?} instead of {} of {:?}", wanted.dtype(), wanted.sizes())));
    }
    let pairs = parts(&found)?.into_iter().zip(parts(wanted)?);
    let at =
        pairs.enumerate().find(|(_, (found, wanted))| wrong_part(line.operation, wanted_dtype(line), *found, *wanted));
    Ok(at.map(|(at, (found, wanted))| format!("part {at}: {found:e} instead of {wanted:e}")))
}

fn wanted_dtype(line: &Line<'_>) -> DType {
    line.answer.as_ref().map_or(DType::F64, Tensor::dtype)
}

#[test]
fn answers_are_those_of_pytorch() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for (number, text) in RECORD.lines().enumerate().filter(|(_, text)| !text.starts_with('#')) {
        if let Some(what) = wrong(&Line::of(text))? {
            let head: Vec<&str> = text.split(' ').take(3).collect();
            panic!("line {}, {}: {what}", number + 1, head.join(" "));
        }
    }
    Ok(())
}
