//! Complex numbers in reductions, scans, `logaddexp` and `linspace`: what PyTorch answered (`data/README.md`), on the
//! device that it was recorded on: a CUDA device is a simulated one here.

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

#[test]
fn explore() {
    let _simulated = testkit::simulated_runtime();
    let text = std::env::var("RECORD").map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or(RECORD.to_owned());
    let mut stats: BTreeMap<String, (usize, usize, usize, f64, f64)> = BTreeMap::new();
    let mut shown: BTreeMap<String, usize> = BTreeMap::new();
    for (number, text) in text.lines().enumerate() {
        let line = Line::of(text);
        let head: String = text.split(' ').take(3).collect::<Vec<_>>().join(" ");
        let key = format!("{} {} {}", line.operation, line.device, line.inputs.first().map_or("-".into(), |x| format!("{}", x.dtype())));
        let mut show = |s: String| {
            let n = shown.entry(key.clone()).or_default();
            *n += 1;
            if *n <= std::env::var("SHOW").map_or(6, |n| n.parse().unwrap()) { println!("#{number} {head}: {s}"); }
        };
        let found = line.run();
        let e = stats.entry(key.clone()).or_default();
        e.0 += 1;
        match (found, line.answer) {
            (Err(f), Err(w)) => { if !f.to_string().contains(w) { show(format!("ERR {f} / {w}")); e.1 += 1; } }
            (Err(f), Ok(w)) => { show(format!("we fail: {f}; wanted {:?} {:?}", w.dtype(), w.sizes())); e.1 += 1; }
            (Ok(f), Err(w)) => { show(format!("we give {:?}: torch {w}", f.dtype())); e.1 += 1; }
            (Ok(f), Ok(w)) => {
                if f.dtype() != w.dtype() || f.sizes() != w.sizes() { show(format!("{:?}{:?} / {:?}{:?}", f.dtype(), f.sizes(), w.dtype(), w.sizes())); e.1 += 1; continue; }
                let p = |t: &Tensor| -> Vec<Complex64> { t.cpu().unwrap().to_dtype(DType::C128).unwrap().contiguous().unwrap().to_vec::<Complex64>().unwrap() };
                let unit = match w.dtype().to_real() { DType::F16 => 2f64.powi(-10), DType::F32 => 2f64.powi(-23), _ => 2f64.powi(-52) };
                for (at, (a, b)) in p(&f).into_iter().zip(p(&w)).enumerate() {
                    for (k, (x, y)) in [(a.re, b.re), (a.im, b.im)].into_iter().enumerate() {
                        let same = x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                        if same { continue }
                        if !x.is_finite() || !y.is_finite() || (x == 0.0 && y == 0.0) {
                            e.2 += 1;
                            let ins: Vec<String> = line.inputs.iter().map(|i| { let v = p(i); if v.len() == f.numel() as usize { format!("{}", v[at]) } else { let n = v.len() / (f.numel().max(1) as usize); format!("{:?}", &v[(at*n)..(at*n+n).min(at*n+4)]) } }).collect();
                            show(format!("el {at} part {k}: {a} / {b} of {ins:?}"));
                        } else {
                            let d = (x - y).abs();
                            let d = if k == 1 && line.operation.contains("exp") { let m = d % std::f64::consts::TAU; if d > 3.0 { e.3 = e.3.max(1e6); }  m.min(std::f64::consts::TAU - m) } else { d };
                            let r = d / unit / y.abs().max(1.0);
                            if r > e.4 { e.4 = r; if r > 8.0 { let ins: Vec<String> = line.inputs.iter().map(|i| { let v = p(i); format!("{:?}", v.get(at)) }).collect();  show(format!("far {r}: el {at} {a} / {b} of {ins:?}")); } }
                        }
                    }
                }
            }
        }
    }
    for (k, v) in stats { println!("{k}: lines {} wrong {} special {} turned {} far {:.2}", v.0, v.1, v.2, v.3, v.4); }
}
