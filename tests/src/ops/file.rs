//! The format of recorded operations.

use std::io::Read as _;

use aten_cuda::{DType, Scalar};
use base64::Engine as _;
use serde_json::Value;

/// A file of recorded operations.
pub(crate) struct File {
    pub(crate) cases: Vec<Case>,
    pub(crate) promote: Vec<Value>,
    pub(crate) with_scalar: Vec<Value>,
    pub(crate) printed: Vec<(Stored, String)>,
}

/// One call.
pub(crate) struct Case {
    pub(crate) op: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) args: Value,
    /// Empty for a new result, `inplace`, or `out`: the last input is the result.
    pub(crate) form: String,
    pub(crate) exact: bool,
    pub(crate) outcome: Outcome,
    /// The exact results: numbers of 64 bits for each output, or pairs of them.
    pub(crate) reference: Vec<Vec<u8>>,
}

/// What an operation is given.
pub(crate) enum Input {
    Tensor(Stored),
    Number(Scalar),
}

/// A tensor in a file: a view of the bytes of its storage.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) offset: i64,
    pub(crate) bytes: Vec<u8>,
}

/// What torch answered.
pub(crate) enum Outcome {
    Values(Vec<Stored>),
    Error { text: String },
}

impl File {
    pub(crate) fn read(path: &str) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let mut text = String::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut reader = flate2::read::GzDecoder::new(bytes.as_slice());
            reader.read_to_string(&mut text).map_err(|error| format!("cannot unpack {path}: {error}"))?;
        } else {
            text = String::from_utf8(bytes).map_err(|_| format!("{path} is no text"))?;
        }
        let root: Value = serde_json::from_str(&text).map_err(|error| format!("cannot parse {path}: {error}"))?;
        let list = |key: &str| root[key].as_array().cloned().unwrap_or_default();
        let cases: Result<Vec<Case>, String> = list("cases").iter().map(Case::parse).collect();
        let printed: Result<Vec<(Stored, String)>, String> = list("repr")
            .iter()
            .map(|entry| Ok((Stored::parse(&entry["in"])?, entry["text"].as_str().unwrap_or_default().to_owned())))
            .collect();
        Ok(Self {
            cases: cases?,
            promote: list("promote"),
            with_scalar: list("result_type_with_scalar"),
            printed: printed?,
        })
    }
}

impl Case {
    pub(crate) fn parse(case: &Value) -> Result<Self, String> {
        let inputs: Result<Vec<Input>, String> = array(&case["in"]).iter().map(Input::parse).collect();
        let outcome = match case.get("error") {
            Some(error) => Outcome::Error { text: error[1].as_str().unwrap_or_default().to_owned() },
            None => Outcome::Values(array(&case["out"]).iter().map(Stored::parse).collect::<Result<_, _>>()?),
        };
        Ok(Self {
            op: case["op"].as_str().unwrap_or_default().to_owned(),
            inputs: inputs?,
            args: case["args"].clone(),
            form: case["form"].as_str().unwrap_or_default().to_owned(),
            exact: case["exact"].as_bool().unwrap_or(true),
            outcome,
            reference: array(&case["ref"]).iter().map(decode).collect::<Result<_, _>>()?,
        })
    }

    /// The operation with its dtypes and sizes.
    pub(crate) fn title(&self) -> String {
        let inputs: Vec<String> = self.inputs.iter().map(Input::title).collect();
        format!("{}({}) {}", self.op, inputs.join(", "), self.args)
    }
}

impl Input {
    fn parse(input: &Value) -> Result<Self, String> {
        Ok(if input.is_object() { Self::Tensor(Stored::parse(input)?) } else { Self::Number(scalar(input)) })
    }

    fn title(&self) -> String {
        match self {
            Self::Tensor(stored) => format!("{}{:?}:{:?}", name_of(stored.dtype), stored.sizes, stored.strides),
            Self::Number(number) => format!("{number:?}"),
        }
    }
}

impl Stored {
    fn parse(stored: &Value) -> Result<Self, String> {
        if !stored.is_object() {
            return Err(format!("{stored} is no tensor"));
        }
        Ok(Self {
            dtype: dtype(stored["dtype"].as_str().unwrap_or_default())?,
            sizes: integers(&stored["shape"]),
            strides: integers(&stored["stride"]),
            offset: stored["offset"].as_i64().unwrap_or(0),
            bytes: decode(stored.get("storage").unwrap_or(&stored["data"]))?,
        })
    }
}

/// A number as JSON writes it.
pub(crate) fn scalar(value: &Value) -> Scalar {
    match value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::Number(number) => {
            number.as_i64().map_or(Scalar::Float(number.as_f64().unwrap_or(f64::NAN)), Scalar::Int)
        }
        // What JSON cannot write as a number is a text.
        Value::String(text) => Scalar::Float(text.parse().unwrap_or(f64::NAN)),
        // The parts of a complex number.
        Value::Array(parts) => {
            let part = |at: usize| parts.get(at).map_or(0.0, |part| scalar(part).to_f64());
            Scalar::Complex(num_complex::Complex64::new(part(0), part(1)))
        }
        _ => Scalar::Float(f64::NAN),
    }
}

/// A list of integers.
pub(crate) fn integers(value: &Value) -> Vec<i64> {
    array(value).iter().filter_map(Value::as_i64).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn decode(value: &Value) -> Result<Vec<u8>, String> {
    let text = value.as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD.decode(text).map_err(|error| format!("bad base64: {error}"))
}

const NAMES: [(&str, DType); 13] = [
    ("u8", DType::U8),
    ("i8", DType::I8),
    ("i16", DType::I16),
    ("i32", DType::I32),
    ("i64", DType::I64),
    ("f16", DType::F16),
    ("bf16", DType::BF16),
    ("f32", DType::F32),
    ("f64", DType::F64),
    ("c32", DType::C32),
    ("c64", DType::C64),
    ("c128", DType::C128),
    ("bool", DType::Bool),
];

/// The dtype that a file calls so.
pub(crate) fn dtype(name: &str) -> Result<DType, String> {
    let found = NAMES.iter().find(|(known, _)| *known == name);
    found.map(|&(_, dtype)| dtype).ok_or_else(|| format!("no dtype is called {name}"))
}

/// What a file calls a dtype.
pub(crate) fn name_of(dtype: DType) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == dtype).map_or("?", |&(name, _)| name)
}
