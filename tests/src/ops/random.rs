//! Random calls of tensor operations, with the answers of the host and of a device.
//!
//! Invariant: the calls follow from the seed alone. Each line of the file is one call in the format of recorded
//! operations, with `form` (empty, `inplace` or `out`) and an answer for each device under its name.

use std::io::Write as _;

use aten_cuda::{DType, Tensor};
use base64::Engine as _;
use half::{bf16, f16};
use serde_json::{Map, Value, json};

use super::call::{self, Failure};
use super::file::{Case, name_of};

const DTYPES: [DType; 12] = [
    DType::Bool,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
];

const UNARY: &str = "abs acos acosh asin asinh atan atanh bitwise_not ceil conj_physical cos cosh digamma erf erfc erfinv \
    exp exp2 expm1 floor frac gelu isfinite isinf isnan lgamma log log10 log1p log2 logical_not logsigmoid mish neg \
    positive reciprocal relu round rsqrt sigmoid sign signbit silu sin sinh sqrt square tan tanh trunc nan_to_num";
const BINARY: &str = "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign \
    div_trunc eq floor_divide fmax fmin fmod gcd ge gt hypot le logaddexp logical_and logical_or logical_xor lt maximum \
    minimum mul ne nextafter pow remainder sub xlogy true_divide add_alpha sub_alpha";
const TERNARY: &str = "addcmul addcdiv lerp where masked_fill copy fill clamp";
const REDUCTIONS: &str = "sum nansum mean prod amax amin any all logsumexp count_nonzero var std norm max min argmax \
    argmin cumsum cumprod cummax cummin softmax log_softmax";
const INDEXED: &str = "gather scatter scatter_add index_select index_add index_copy masked_select nonzero sort argsort \
    topk take_along_dim index index_put";
const SHAPED: &str = "cat stack flip roll repeat expand view reshape tril triu to select narrow squeeze unsqueeze \
    transpose permute split chunk fft ifft rfft irfft";
const MADE: &str = "mm bmm mv dot matmul addmm addmv addbmm baddbmm einsum full arange linspace eye";

/// Writes the calls: the arguments are a file, their number, the seed, the distance between
/// calls that run on a device too, and that device's driver.
pub(crate) fn main(arguments: &[String]) -> Result<(), String> {
    let [path, count, seed, every, driver] = arguments else {
        return Err("random_ops FILE COUNT SEED DEVICE_EVERY DRIVER".to_owned());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|_| format!("`{text}` is not a whole number"));
    let (count, seed, every) = (number(count)?, number(seed)?, number(every)?);
    let _bound = if every > 0 { super::bind(driver)? } else { None };
    let file = std::fs::File::create(path).map_err(|error| format!("cannot create {path}: {error}"))?;
    let mut file = std::io::BufWriter::new(file);
    for at in 0..count {
        let mut case = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at.wrapping_mul(0xd134_2543_de82_ef95)).case();
        let parsed = Case::parse(&case)?;
        case["cpu"] = answer(&parsed, "cpu");
        if every > 0 && at % every == 0 {
            case["cuda"] = answer(&parsed, "cuda");
        }
        writeln!(file, "{case}").map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    file.flush().map_err(|error| format!("cannot write {path}: {error}"))
}

/// The outcome of a call: tensors, the text of an error, or a panic.
fn answer(case: &Case, device: &str) -> Value {
    let run = || {
        let tensors = call::run(case, device)?;
        tensors.iter().map(written).collect::<Result<Vec<Value>, Failure>>()
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Ok(tensors)) => json!({ "out": tensors }),
        Ok(Err(Failure::Refused(text))) => json!({ "error": text }),
        Ok(Err(Failure::Absent)) => json!({ "absent": true }),
        Err(_) => json!({ "panic": true }),
    }
}

fn written(tensor: &Tensor) -> Result<Value, Failure> {
    let data = base64::engine::general_purpose::STANDARD.encode(tensor.to_bytes()?);
    Ok(json!({
        "dtype": name_of(tensor.dtype()), "shape": tensor.sizes(), "stride": tensor.strides(), "data": data,
    }))
}

/// A splitmix64 generator of calls.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: i64) -> i64 {
        i64::try_from(self.next() % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    fn one_in(&mut self, count: i64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let at = usize::try_from(self.below(i64::try_from(items.len()).unwrap_or(1))).unwrap_or(0);
        items[at]
    }

    fn word(&mut self, words: &'static str) -> &'static str {
        let words: Vec<&'static str> = words.split_whitespace().collect();
        self.pick(&words)
    }

    fn sizes(&mut self) -> Vec<i64> {
        let dimensions = self.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
        (0..dimensions).map(|_| self.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 5])).collect()
    }

    /// A dimension of a tensor, now and then one that it lacks.
    fn dim(&mut self, sizes: &[i64]) -> i64 {
        let count = i64::try_from(sizes.len()).unwrap_or(0);
        if self.one_in(12) { self.pick(&[count, -count - 1, 5]) } else { self.below(2 * count) - count }
    }

    fn value(&mut self) -> f64 {
        self.pick(&[
            0.0,
            -0.0,
            1.0,
            -1.0,
            2.0,
            3.0,
            0.5,
            -0.5,
            1.5,
            -2.5,
            0.1,
            100.0,
            -7.0,
            1e-3,
            255.0,
            300.0,
            65504.0,
            1e10,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ])
    }

    fn scalar(&mut self) -> Value {
        match self.below(8) {
            0 => json!(self.one_in(2)),
            1..=4 => json!(self.pick(&[0, 1, 2, 3, -1, -3, 7, 127, 255, 300, -300, 70000, 1 << 31, i64::MAX])),
            5 if self.one_in(2) => json!([number(self.value()), number(self.value())]),
            _ => number(self.value()),
        }
    }

    /// A tensor of these sizes over its own storage: contiguous, transposed, expanded, stepped or overlapping.
    fn tensor(&mut self, sizes: &[i64], dtype: DType) -> Value {
        let mut strides = contiguous(sizes);
        match self.below(10) {
            0 | 1 => {
                let mut order: Vec<usize> = (0..sizes.len()).collect();
                order.sort_by_key(|_| self.next());
                let mut step = 1;
                for at in order {
                    strides[at] = step;
                    step *= sizes[at].max(1);
                }
            }
            2 => strides.iter_mut().for_each(|stride| *stride *= 2),
            3 if !sizes.is_empty() => {
                let at = usize::try_from(self.below(i64::try_from(sizes.len()).unwrap_or(1))).unwrap_or(0);
                strides[at] = 0;
            }
            4 if self.one_in(4) => strides.iter_mut().for_each(|stride| *stride = 1),
            _ => {}
        }
        let offset = self.pick(&[0, 0, 0, 2]);
        let reach: i64 = sizes.iter().zip(&strides).map(|(size, stride)| (size - 1).max(0) * stride).sum();
        let bytes: Vec<u8> = (0..=reach + offset).flat_map(|_| self.element(dtype)).collect();
        let storage = base64::engine::general_purpose::STANDARD.encode(bytes);
        json!({ "dtype": name_of(dtype), "shape": sizes, "stride": strides, "offset": offset, "storage": storage })
    }

    fn element(&mut self, dtype: DType) -> Vec<u8> {
        let whole: i64 = self.pick(&[0, 1, 2, 3, -1, -2, 5, 7, 100, 127, -128]);
        let real = self.value();
        match dtype {
            DType::Bool => vec![u8::from(whole % 2 != 0)],
            DType::U8 | DType::I8 => vec![whole.to_le_bytes()[0]],
            DType::I16 => whole.to_le_bytes()[..2].to_vec(),
            DType::I32 => whole.to_le_bytes()[..4].to_vec(),
            DType::I64 => whole.to_le_bytes().to_vec(),
            DType::F16 => f16::from_f64(real).to_le_bytes().to_vec(),
            DType::BF16 => bf16::from_f64(real).to_le_bytes().to_vec(),
            #[expect(clippy::cast_possible_truncation, reason = "the nearest value is meant")]
            DType::F32 => (real as f32).to_le_bytes().to_vec(),
            DType::F64 => real.to_le_bytes().to_vec(),
            _ => [self.element(dtype.to_real()), self.element(dtype.to_real())].concat(),
        }
    }

    /// Indices below a limit, now and then out of range or of another dtype.
    fn indices(&mut self, sizes: &[i64], limit: i64) -> Value {
        let wrong = self.one_in(10);
        let count: i64 = sizes.iter().product();
        let limit = if wrong { limit + 2 } else { limit.max(1) };
        let bytes: Vec<u8> = (0..count.max(1)).flat_map(|_| self.below(limit).to_le_bytes()).collect();
        if self.one_in(14) {
            return self.any_tensor(sizes);
        }
        let storage = base64::engine::general_purpose::STANDARD.encode(bytes);
        json!({ "dtype": "i64", "shape": sizes, "stride": contiguous(sizes), "offset": 0, "storage": storage })
    }

    fn any_tensor(&mut self, sizes: &[i64]) -> Value {
        let dtype = self.pick(&DTYPES);
        self.tensor(sizes, dtype)
    }

    /// Sizes that mostly broadcast with others.
    fn beside(&mut self, sizes: &[i64]) -> Vec<i64> {
        if self.one_in(10) {
            return self.sizes();
        }
        let from = usize::try_from(self.below(i64::try_from(sizes.len()).unwrap_or(0) + 1)).unwrap_or(0);
        let from = if self.one_in(2) { 0 } else { from };
        sizes[from..].iter().map(|&size| if self.one_in(5) { 1 } else { size }).collect()
    }

    fn case(&mut self) -> Value {
        match self.below(12) {
            0..=2 => self.unary(),
            3..=5 => self.binary(),
            6 => self.ternary(),
            7 | 8 => self.reduction(),
            9 => self.indexed(),
            10 => self.shaped(),
            _ => self.made(),
        }
    }

    fn form(&mut self, inputs: &mut Vec<Value>, sizes: &[i64]) -> &'static str {
        let form = self.pick(&["", "", "inplace", "out"]);
        if form == "out" {
            let sizes = if self.one_in(8) { self.sizes() } else { sizes.to_vec() };
            inputs.push(self.any_tensor(&sizes));
        }
        form
    }

    fn unary(&mut self) -> Value {
        let (op, sizes) = (self.word(UNARY), self.sizes());
        let mut inputs = vec![self.any_tensor(&sizes)];
        let form = self.form(&mut inputs, &sizes);
        call_of(op, form, inputs, &[])
    }

    fn binary(&mut self) -> Value {
        let (name, sizes) = (self.word(BINARY), self.sizes());
        let other = self.beside(&sizes);
        let first = self.any_tensor(&sizes);
        let second = if self.one_in(3) { self.scalar() } else { self.any_tensor(&other) };
        let mut inputs = vec![first, second];
        if let Some(op) = name.strip_suffix("_alpha") {
            let alpha = self.scalar();
            return call_of(op, "", inputs, &[("alpha", alpha)]);
        }
        let form = self.form(&mut inputs, &sizes);
        call_of(name, form, inputs, &[])
    }

    fn ternary(&mut self) -> Value {
        let (op, sizes) = (self.word(TERNARY), self.sizes());
        let (second, third) = (self.beside(&sizes), self.beside(&sizes));
        let dtype = self.pick(&DTYPES);
        let first = self.tensor(&sizes, dtype);
        // Mostly one dtype, since few operations of three operands promote.
        let next = |draw: &mut Self, sizes: &[i64]| {
            let dtype = if draw.one_in(3) { draw.pick(&DTYPES) } else { dtype };
            draw.tensor(sizes, dtype)
        };
        let form = if self.one_in(2) { "inplace" } else { "" };
        let number = self.scalar();
        match op {
            "where" => {
                let mask = if self.one_in(6) { self.any_tensor(&sizes) } else { self.tensor(&sizes, DType::Bool) };
                let (a, b) = (next(self, &second), next(self, &third));
                call_of(op, "", vec![mask, a, b], &[])
            }
            "masked_fill" => {
                let mask = if self.one_in(6) { self.any_tensor(&second) } else { self.tensor(&second, DType::Bool) };
                call_of(op, form, vec![first, mask], &[("value", number)])
            }
            "copy" => {
                let source = next(self, &second);
                call_of(op, "inplace", vec![first, source], &[])
            }
            "fill" => call_of(op, "inplace", vec![first], &[("value", number)]),
            "clamp" => {
                let other = self.scalar();
                call_of(op, "", vec![first], &[("min", number), ("max", other)])
            }
            "lerp" => {
                let end = next(self, &second);
                call_of(op, "", vec![first, end], &[("weight", number)])
            }
            _ => {
                let (a, b) = (next(self, &second), next(self, &third));
                call_of(op, form, vec![first, a, b], &[("value", number)])
            }
        }
    }

    fn reduction(&mut self) -> Value {
        let (op, sizes) = (self.word(REDUCTIONS), self.sizes());
        let dim = self.dim(&sizes);
        let inputs = vec![self.any_tensor(&sizes)];
        let mut args = vec![("dim", json!(dim))];
        let whole = ["max", "min", "argmax", "argmin"].contains(&op) && self.one_in(4);
        if whole {
            args.clear();
        }
        let scans = ["cumsum", "cumprod", "cummax", "cummin", "softmax", "log_softmax", "count_nonzero"];
        if !whole && !scans.contains(&op) {
            args.push(("keepdim", json!(self.one_in(2))));
        }
        if ["sum", "nansum", "prod", "cumsum", "cumprod", "mean", "norm"].contains(&op) && self.one_in(3) {
            args.push(("dtype", json!(name_of(self.pick(&DTYPES)))));
        }
        if ["sum", "amax", "mean", "any"].contains(&op) && self.one_in(4) {
            args.retain(|(name, _)| *name != "dtype");
            let mut inputs = inputs;
            let at = if dim < 0 { dim + i64::try_from(sizes.len()).unwrap_or(0) } else { dim };
            let left = sizes.iter().zip(0..).filter(|(_, place)| *place != at).map(|(size, _)| *size);
            let left: Vec<i64> = left.collect();
            args.retain(|(name, _)| *name != "keepdim");
            inputs.push(self.any_tensor(&left));
            return call_of(op, "out", inputs, &args);
        }
        if op == "norm" {
            args.push(("p", number(self.pick(&[2.0, 1.0, 0.0, -1.0, 3.0, f64::INFINITY, f64::NEG_INFINITY]))));
        }
        call_of(op, "", inputs, &args)
    }

    fn indexed(&mut self) -> Value {
        let (op, sizes) = (self.word(INDEXED), self.sizes());
        let dtype = self.pick(&DTYPES);
        let first = self.tensor(&sizes, dtype);
        let dim = self.dim(&sizes);
        let count = i64::try_from(sizes.len()).unwrap_or(0);
        let at = usize::try_from(if dim < 0 { dim + count } else { dim }).unwrap_or(usize::MAX);
        let size = sizes.get(at).copied().unwrap_or(1);
        let form = if self.one_in(3) && ["scatter", "scatter_add", "index_add", "index_copy"].contains(&op) {
            "inplace"
        } else {
            ""
        };
        let other = if self.one_in(10) { self.pick(&DTYPES) } else { dtype };
        let args = [("dim", json!(dim))];
        match op {
            "gather" | "scatter" | "scatter_add" => {
                let mut shape: Vec<i64> = sizes.iter().map(|&size| size.min(self.below(4) + 1)).collect();
                if self.one_in(12) {
                    shape = self.sizes();
                }
                let mut inputs = vec![first, self.indices(&shape, size)];
                if op != "gather" {
                    let number = op == "scatter" && self.one_in(3);
                    let shape = if self.one_in(10) { self.sizes() } else { shape };
                    inputs.push(if number { self.scalar() } else { self.tensor(&shape, other) });
                }
                call_of(op, form, inputs, &args)
            }
            "index_select" | "index_add" | "index_copy" => {
                let length = self.below(4);
                let shape = if self.one_in(12) { self.sizes() } else { vec![length] };
                let mut inputs = vec![first, self.indices(&shape, size)];
                if op != "index_select" {
                    let mut shape = sizes.clone();
                    if let Some(size) = shape.get_mut(at) {
                        *size = length;
                    }
                    let shape = if self.one_in(8) { self.sizes() } else { shape };
                    inputs.push(self.tensor(&shape, other));
                }
                call_of(op, form, inputs, &args)
            }
            "masked_select" => {
                let shape = self.beside(&sizes);
                let mask = if self.one_in(6) { self.any_tensor(&shape) } else { self.tensor(&shape, DType::Bool) };
                call_of(op, "", vec![first, mask], &[])
            }
            "nonzero" => call_of(op, "", vec![first], &[]),
            "take_along_dim" => {
                let shape = self.beside(&sizes);
                let shape = shape.iter().map(|&size| size.min(self.below(4) + 1)).collect::<Vec<i64>>();
                call_of(op, "", vec![first, self.indices(&shape, size)], &args)
            }
            "index" | "index_put" => self.places(op, first, &sizes, other),
            "topk" => {
                let k = if self.one_in(6) { size + 1 } else { self.below(size + 1) };
                // The order of equal values is not defined, so only the values are compared.
                call_of(op, "", vec![first], &[("dim", json!(dim)), ("k", json!(k)), ("values_only", json!(true))])
            }
            _ => {
                let args = [("dim", json!(dim)), ("descending", json!(self.one_in(2))), ("stable", json!(true))];
                call_of(op, "", vec![first], &args)
            }
        }
    }

    /// A read or write of the elements at places that one or two tensors name: whole numbers or masks.
    fn places(&mut self, op: &'static str, first: Value, sizes: &[i64], other: DType) -> Value {
        let count = i64::try_from(sizes.len()).unwrap_or(0);
        let mut at: Vec<i64> = (0..1 + self.below(2)).map(|_| self.below(count.max(1))).collect();
        at.sort_unstable();
        at.dedup();
        let shape = if self.one_in(3) { vec![self.below(4)] } else { vec![self.below(3) + 1, self.below(3) + 1] };
        let mut inputs = vec![first];
        for &dim in &at {
            let size = sizes.get(usize::try_from(dim).unwrap_or(0)).copied().unwrap_or(1);
            let is_mask = self.one_in(5);
            let shape = if self.one_in(4) { self.beside(&shape) } else { shape.clone() };
            let index = if is_mask { self.tensor(&[size], DType::Bool) } else { self.indices(&shape, size) };
            inputs.push(index);
        }
        let mut args = vec![("at", json!(at))];
        if op == "index_put" {
            let values = if self.one_in(2) { Vec::new() } else { self.beside(&shape) };
            inputs.push(self.tensor(&values, other));
            args.push(("accumulate", json!(self.one_in(2))));
        }
        call_of(op, "", inputs, &args)
    }

    /// A Fourier transform of mostly the usual length.
    fn transform(&mut self, op: &'static str, input: Vec<Value>, dim: i64) -> Value {
        let mut args = vec![("dim", json!(dim))];
        if self.one_in(3) {
            args.push(("n", json!(self.below(7))));
        }
        if self.one_in(2) {
            args.push(("norm", json!(self.pick(&["forward", "backward", "ortho", "other"]))));
        }
        call_of(op, "", input, &args)
    }

    fn shaped(&mut self) -> Value {
        let (op, sizes) = (self.word(SHAPED), self.sizes());
        let first = self.any_tensor(&sizes);
        let (dim, again) = (self.dim(&sizes), self.dim(&sizes));
        let small = |draw: &mut Self| json!(draw.below(7) - 2);
        let one = vec![first.clone()];
        match op {
            "cat" | "stack" => {
                let other = self.beside(&sizes);
                call_of(op, "", vec![first, self.any_tensor(&other)], &[("dim", json!(dim))])
            }
            "flip" => call_of(op, "", one, &[("dims", json!([dim]))]),
            "permute" => {
                let mut dims: Vec<usize> = (0..sizes.len()).collect();
                dims.sort_by_key(|_| self.next());
                if self.one_in(6) {
                    dims.push(0);
                }
                call_of(op, "", one, &[("dims", json!(dims))])
            }
            "roll" => call_of(op, "", one, &[("shifts", json!([self.below(9) - 4])), ("dims", json!([dim]))]),
            "repeat" | "expand" | "view" | "reshape" => {
                let name = match op {
                    "repeat" => "repeats",
                    "expand" => "size",
                    _ => "shape",
                };
                let mut shape = sizes;
                match self.below(5) {
                    0 => shape = self.sizes(),
                    1 => shape.insert(0, self.below(4) - 1),
                    2 => shape = vec![-1],
                    3 if !shape.is_empty() => shape[0] = -1,
                    _ => shape.reverse(),
                }
                call_of(op, "", one, &[(name, json!(shape))])
            }
            "tril" | "triu" => call_of(op, "", one, &[("diagonal", small(self))]),
            "to" => call_of(op, "", one, &[("dtype", json!(name_of(self.pick(&DTYPES))))]),
            "select" => call_of(op, "", one, &[("dim", json!(dim)), ("index", small(self))]),
            "narrow" => call_of(op, "", one, &[("dim", json!(dim)), ("start", small(self)), ("length", small(self))]),
            "transpose" => call_of(op, "", one, &[("dim0", json!(dim)), ("dim1", json!(again))]),
            "fft" | "ifft" | "rfft" | "irfft" => self.transform(op, one, dim),
            "split" => call_of(op, "", one, &[("size", small(self)), ("dim", json!(dim))]),
            "chunk" => call_of(op, "", one, &[("chunks", small(self)), ("dim", json!(dim))]),
            _ => call_of(op, "", one, &[("dim", json!(dim))]),
        }
    }

    fn made(&mut self) -> Value {
        let op = self.word(MADE);
        let dtype = self.pick(&DTYPES);
        let named = ("dtype", json!(name_of(dtype)));
        match op {
            "full" => {
                let sizes = self.sizes();
                call_of(op, "", vec![], &[("size", json!(sizes)), ("fill", self.scalar()), named])
            }
            "arange" => {
                let (start, end) = (self.below(9) - 4, self.below(12));
                let step = self.pick(&[1, 2, -1, 0]);
                call_of(op, "", vec![], &[("start", json!(start)), ("end", json!(end)), ("step", json!(step)), named])
            }
            "linspace" => {
                let (start, end) = (self.pick(&[0, 1, -3, 300]), self.below(12));
                let steps = self.below(8) - 1;
                call_of(op, "", vec![], &[("start", json!(start)), ("end", json!(end)), ("steps", json!(steps)), named])
            }
            "eye" => {
                call_of(op, "", vec![], &[("n", json!(self.below(5) - 1)), ("m", json!(self.below(5) - 1)), named])
            }
            _ => self.product(op, dtype),
        }
    }

    fn product(&mut self, op: &'static str, dtype: DType) -> Value {
        let [n, m, k, batch] = [0; 4].map(|_: i64| self.below(4));
        let (mut a, mut b) = match op {
            "einsum" => return self.einsum(dtype),
            "addmv" => (vec![n, k], vec![k]),
            "bmm" | "addbmm" | "baddbmm" => (vec![batch, n, k], vec![batch, k, m]),
            "mv" => (vec![n, k], vec![k]),
            "dot" => (vec![k], vec![k]),
            _ => (vec![n, k], vec![k, m]),
        };
        if self.one_in(6) {
            a = self.sizes();
        }
        if self.one_in(6) {
            b = self.sizes();
        }
        let other = if self.one_in(10) { self.pick(&DTYPES) } else { dtype };
        let mut inputs = vec![self.tensor(&a, dtype), self.tensor(&b, other)];
        let sum: &[i64] = match op {
            "addmv" => &[n],
            "baddbmm" => &[batch, n, m],
            "addmm" | "addbmm" => &[n, m],
            _ => return call_of(op, "", inputs, &[]),
        };
        let sizes = self.beside(sum);
        inputs.insert(0, self.tensor(&sizes, dtype));
        let mut args = Vec::new();
        if self.one_in(2) {
            args = vec![("alpha", self.scalar()), ("beta", self.scalar())];
        }
        let form = if op == "addbmm" { "" } else { self.form(&mut inputs, sum) };
        call_of(op, form, inputs, &args)
    }

    /// A sum of products by an equation, with sizes that mostly fit it.
    fn einsum(&mut self, dtype: DType) -> Value {
        let equation = self.pick(&[
            "ij,jk->ik",
            "ij,jk",
            "ij,ij->ij",
            "ij,ij->",
            "bij,bjk->bik",
            "ij->ji",
            "ij->i",
            "ii->i",
            "ii",
            "i,j->ij",
            "ij,j->i",
            "bi,bj->bij",
            "...ij,jk->...ik",
            "ij,kj->ik",
            "bij,bij->b",
            "i,i->",
            "ijk,ik->ij",
            "ij,jk->k",
        ]);
        let sizes: Vec<i64> = (0..26).map(|_| self.pick(&[0, 1, 2, 3, 3])).collect();
        let operands = equation.split("->").next().unwrap_or_default();
        let inputs = operands.split(',').map(|letters| {
            let letters = letters.bytes().filter(u8::is_ascii_lowercase);
            let shape: Vec<i64> = letters.map(|letter| sizes[usize::from(letter - b'a')]).collect();
            let shape = if self.one_in(12) { self.sizes() } else { shape };
            let dtype = if self.one_in(12) { self.pick(&DTYPES) } else { dtype };
            self.tensor(&shape, dtype)
        });
        let inputs = inputs.collect();
        call_of("einsum", "", inputs, &[("equation", json!(equation))])
    }
}

fn call_of(op: &str, form: &str, inputs: Vec<Value>, args: &[(&str, Value)]) -> Value {
    let args: Map<String, Value> = args.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({ "op": op, "form": form, "in": inputs, "args": args })
}

fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { json!(value.to_string()) }
}

fn contiguous(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for at in (1..sizes.len()).rev() {
        strides[at - 1] = strides[at] * sizes[at].max(1);
    }
    strides
}
