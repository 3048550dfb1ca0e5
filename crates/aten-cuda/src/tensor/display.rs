//! Tensors as torch prints them: `tensor([1., 2.], device='cuda:0')`.
//!
//! Numbers of a tensor have one width and one notation: with four digits, as whole numbers with a point where all are
//! whole, in scientific notation where they differ too much. Of more than 1000 elements, three are shown at each end of
//! a dimension. Printing waits for the device.

use std::fmt;

use num_complex::Complex64;

use super::Tensor;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::tensor::is_host;
use crate::tensor::read::scalar_of;

/// Digits behind the point, elements that are all shown, elements at each end, columns (`torch.set_printoptions`).
const PRECISION: usize = 4;
const THRESHOLD: i64 = 1000;
const EDGE: i64 = 3;
const COLUMNS: usize = 80;

/// What stands before the elements.
const PREFIX: &str = "tensor(";

impl fmt::Display for Tensor {
    /// As torch prints the tensor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match text(self) {
            Ok(text) => f.write_str(&text),
            Err(error) => {
                write!(f, "tensor(<{:?} of {} on {}: {error}>)", self.sizes(), self.dtype(), self.device())
            }
        }
    }
}

impl fmt::Debug for Tensor {
    /// As torch prints the tensor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn text(tensor: &Tensor) -> Result<String> {
    let mut suffixes = Vec::new();
    if !is_host(tensor.device()) {
        suffixes.push(format!("device='{}'", tensor.device()));
    }
    let usual = matches!(tensor.dtype(), DType::F32 | DType::C64 | DType::I64 | DType::Bool);
    let elements = if tensor.numel() == 0 {
        if tensor.dim() != 1 {
            let sizes: Vec<String> = tensor.sizes().iter().map(ToString::to_string).collect();
            suffixes.push(format!("size=({})", sizes.join(", ")));
        }
        if tensor.dtype() != DType::F32 {
            suffixes.push(format!("dtype={}", tensor.dtype()));
        }
        "[]".to_owned()
    } else {
        if !usual {
            suffixes.push(format!("dtype={}", tensor.dtype()));
        }
        Shown::new(tensor)?.all()
    };
    Ok(with_suffixes(&format!("{PREFIX}{elements}"), &suffixes))
}

/// The text with what follows the elements, on lines of its own where a line would be too long.
fn with_suffixes(text: &str, suffixes: &[String]) -> String {
    let mut whole = text.to_owned();
    let mut column = text.len() - text.rfind('\n').map_or(0, |at| at + 1) + 2;
    for suffix in suffixes {
        if column + suffix.len() + 2 > COLUMNS {
            whole.push_str(&format!(",\n{}{suffix}", " ".repeat(PREFIX.len())));
            column = PREFIX.len() + suffix.len();
        } else {
            whole.push_str(&format!(", {suffix}"));
            column += suffix.len() + 2;
        }
    }
    whole + ")"
}

/// The elements that are shown, on the host.
struct Shown {
    elements: Vec<Scalar>,
    /// Sizes of what is shown.
    sizes: Vec<usize>,
    /// For each dimension, whether its middle is left out.
    cut: Vec<bool>,
    real: Notation,
    imaginary: Option<Notation>,
}

impl Shown {
    fn new(tensor: &Tensor) -> Result<Self> {
        let mut shown = tensor.clone();
        let mut cut = vec![false; tensor.dim()];
        for (dim, at) in (0_i64..).zip(0..tensor.dim()) {
            let size = tensor.sizes()[at];
            if tensor.numel() > THRESHOLD && size > 2 * EDGE {
                shown = Tensor::cat(&[&shown.narrow(dim, 0, EDGE)?, &shown.narrow(dim, size - EDGE, EDGE)?], dim)?;
                cut[at] = true;
            }
        }
        let bytes = shown.to_bytes()?;
        let elements: Vec<Scalar> =
            bytes.chunks_exact(shown.element_size()).map(|element| scalar_of(element, shown.dtype())).collect();
        let sizes = shown.sizes().iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
        let is_complex = tensor.dtype().is_complex();
        let real: Vec<Scalar> = if is_complex { parts(&elements, |z| z.re) } else { elements.clone() };
        let imaginary = is_complex.then(|| Notation::of(&parts(&elements, |z| z.im)));
        Ok(Self { real: Notation::of(&real), imaginary, elements, sizes, cut })
    }

    fn all(&self) -> String {
        self.part(0, 0, PREFIX.len())
    }

    /// The elements from a place on that the dimensions from `dim` on have, behind `indent` columns.
    fn part(&self, dim: usize, start: usize, indent: usize) -> String {
        let rank = self.sizes.len() - dim;
        match rank {
            0 => self.element(start),
            1 => self.row(dim, start, indent),
            _ => {
                let below: usize = self.sizes[dim + 1..].iter().product();
                let mut slices: Vec<String> =
                    (0..self.sizes[dim]).map(|at| self.part(dim + 1, start + at * below, indent + 1)).collect();
                if self.cut[dim] {
                    slices.insert(slices.len() / 2, "...".to_owned());
                }
                let between = format!(",{}{}", "\n".repeat(rank - 1), " ".repeat(indent + 1));
                format!("[{}]", slices.join(&between))
            }
        }
    }

    fn row(&self, dim: usize, start: usize, indent: usize) -> String {
        let each = self.real.width + 2 + self.imaginary.as_ref().map_or(0, |imaginary| imaginary.width + 1);
        let per_line = (COLUMNS.saturating_sub(indent) / each).max(1);
        let mut words: Vec<String> = (start..start + self.sizes[dim]).map(|at| self.element(at)).collect();
        if self.cut[dim] {
            words.insert(words.len() / 2, " ...".to_owned());
        }
        let lines: Vec<String> = words.chunks(per_line).map(|line| line.join(", ")).collect();
        format!("[{}]", lines.join(&format!(",\n{}", " ".repeat(indent + 1))))
    }

    fn element(&self, at: usize) -> String {
        let element = self.elements[at];
        let (Some(imaginary), Scalar::Complex(number)) = (&self.imaginary, element) else {
            return self.real.write(element);
        };
        let real = self.real.write(number.re.into());
        let written = imaginary.write(number.im.into());
        let written = written.trim_start();
        let sign = if written.starts_with('-') { "" } else { "+" };
        format!("{real}{sign}{written}j")
    }
}

fn parts(elements: &[Scalar], part: fn(Complex64) -> f64) -> Vec<Scalar> {
    let of = |element: &Scalar| match *element {
        Scalar::Complex(number) => part(number).into(),
        other => other,
    };
    elements.iter().map(of).collect()
}

/// How the numbers of a tensor are written.
struct Notation {
    whole: bool,
    scientific: bool,
    width: usize,
}

impl Notation {
    fn of(elements: &[Scalar]) -> Self {
        let mut notation = Self { whole: true, scientific: false, width: 1 };
        let float = |element: &Scalar| if let Scalar::Float(value) = *element { Some(value) } else { None };
        let floats: Vec<f64> = elements.iter().filter_map(float).collect();
        if floats.is_empty() {
            notation.width = elements.iter().map(|&element| notation.word(element).len()).max().unwrap_or(1);
            return notation;
        }
        let counting: Vec<f64> = floats.into_iter().filter(|value| value.is_finite() && *value != 0.0).collect();
        if counting.is_empty() {
            return notation;
        }
        let smallest = counting.iter().fold(f64::INFINITY, |least, value| least.min(value.abs()));
        let largest = counting.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        notation.whole = counting.iter().all(|value| value.fract() == 0.0);
        notation.scientific = largest / smallest > 1000.0 || largest > 1e8 || smallest < 1e-4;
        notation.width = counting.iter().map(|&value| notation.word(value.into()).len()).max().unwrap_or(1);
        notation
    }

    /// The number, at least as wide as the others.
    fn write(&self, element: Scalar) -> String {
        format!("{:>width$}", self.word(element), width = self.width)
    }

    fn word(&self, element: Scalar) -> String {
        match element {
            Scalar::Bool(value) => (if value { "True" } else { "False" }).to_owned(),
            Scalar::Int(value) => value.to_string(),
            Scalar::Float(value) if value.is_nan() => "nan".to_owned(),
            Scalar::Float(value) if value.is_infinite() => (if value > 0.0 { "inf" } else { "-inf" }).to_owned(),
            Scalar::Float(value) if self.scientific => scientific(value),
            Scalar::Float(value) if self.whole => format!("{value:.0}."),
            Scalar::Float(value) => format!("{value:.PRECISION$}"),
            Scalar::Complex(value) => value.to_string(),
        }
    }
}

/// A float in scientific notation, with a sign and two digits in the exponent.
fn scientific(value: f64) -> String {
    let text = format!("{value:.PRECISION$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}
