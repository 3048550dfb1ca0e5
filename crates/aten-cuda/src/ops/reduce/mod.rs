//! Operations that make one result of all elements along some dimensions.
//!
//! Each is declared once as an [`Operation`]: its name, the dtypes it takes and gives, and a [`Recipe`] for the
//! accumulators. The methods of [`Tensor`](crate::Tensor) with their `out` forms follow from that row, and so does
//! [`table`], from which the tests and the coverage are made. The scans in `ops/scan` are rows of the same kind.
//!
//! Reading order: this file, `run` (from a tensor and dimensions to a launch), then the families: `sums`, `extremes`,
//! `moments`, `exponentials`, `norms`.
//!
//! # Order of combination
//! Sums of floats are computed in `f32` for 16-bit floats and otherwise in the dtype of the result. On a device the
//! order is a function of sizes and strides alone ([`kernel_ir::reduce`]): the same call gives the same bits on every
//! device and in the simulator. The host takes another order, so that its sums may differ in the last bits.

pub(crate) mod exponentials;
pub(crate) mod extremes;
mod moments;
mod norms;
mod run;
pub(crate) mod sums;

use kernel_ir::{Graph, Type, Value};

pub use run::Dim;
pub(crate) use run::{Call, check_output, check_target, launch, made_real, reduce, reduce_into};

use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, refuse_float8};

/// A reduction.
#[derive(Debug)]
pub struct Operation {
    /// The name in torch, of one form of it where several rows make one operation.
    pub name: &'static str,
    /// The dtype that elements are converted to and computed in (`f32` for 16-bit floats), or why there is none. The
    /// dtype that the caller asks for is there or not.
    pub(crate) computed: fn(DType, Option<DType>) -> Result<DType>,
    /// The dtypes of the results, for an input dtype and the one that is computed in.
    pub(crate) results: fn(DType, DType) -> Vec<DType>,
    /// Whether rows without elements have a result.
    pub(crate) of_nothing: bool,
    /// What is done with the elements.
    pub(crate) recipe: Recipe,
    /// What is done with elements that are computed as complex numbers, where that is something else.
    pub(crate) complex: Option<&'static Recipe>,
}

/// How elements come into accumulators and results out of them.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// What the accumulators begin with, of an element that has this many parts.
    pub(crate) start: fn(Type, usize) -> Vec<(Type, Start)>,
    /// What one element is as accumulators.
    pub(crate) element: fn(&mut Graph, &Element) -> Vec<Value>,
    /// Two sets of accumulators as one.
    pub(crate) combine: fn(&mut Graph, &[Value], &[Value]) -> Vec<Value>,
    /// Accumulators and one element as accumulators, where that is shorter than combining them.
    pub(crate) take: Option<Take>,
    /// The results of accumulators: a value for each part of each.
    pub(crate) finish: Finish,
    /// How many numbers the operation has, each an `f64`.
    pub(crate) numbers: usize,
    /// Whether the place of an element counts.
    pub(crate) placed: bool,
    /// Whether elements are measured from the first one of their row, but for those that are computed in `f64`.
    pub(crate) pivots: bool,
}

/// Makes accumulators of accumulators and an element.
pub(crate) type Take = fn(&mut Graph, &[Value], &Element) -> Vec<Value>;

/// Makes results of accumulators.
pub(crate) type Finish = fn(&mut Graph, &[Value], &Ending) -> Vec<Value>;

/// What results are made with besides the accumulators.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The operation's numbers.
    pub(crate) numbers: Vec<Value>,
    /// The type of a part of the first result.
    pub(crate) part: Type,
}

/// An element in a graph.
#[derive(Debug)]
pub(crate) struct Element {
    /// The type that is computed in.
    pub(crate) ty: Type,
    /// The real part, and the imaginary one where it is complex.
    pub(crate) parts: Vec<Value>,
    /// Its place in the row, where the recipe asks for it.
    pub(crate) place: Option<Value>,
    /// The parts of the row's first element, where the recipe asks for it.
    pub(crate) pivot: Option<Vec<Value>>,
    /// The operation's numbers.
    pub(crate) numbers: Vec<Value>,
}

impl Element {
    /// The element, or its real part.
    pub(crate) fn value(&self) -> Value {
        self.parts[0]
    }

    /// Whether a question is answered with yes by one of the parts.
    pub(crate) fn any_part(&self, graph: &mut Graph, mut question: impl FnMut(&mut Graph, Value) -> Value) -> Value {
        let first = question(graph, self.value());
        self.parts.iter().skip(1).fold(first, |any, &part| {
            let answer = question(graph, part);
            graph.binary(kernel_ir::Binary::Or, any, answer)
        })
    }
}

/// What an accumulator begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Zero,
    One,
    /// The lowest number; of floats negative infinity.
    Lowest,
    /// The highest number; of floats infinity.
    Highest,
}

impl Start {
    /// The bits in a type.
    pub(crate) fn bits(self, ty: Type) -> u64 {
        let float = match self {
            Self::Zero => 0.0_f64,
            Self::One => 1.0,
            Self::Lowest => f64::NEG_INFINITY,
            Self::Highest => f64::INFINITY,
        };
        match (ty, self) {
            (Type::F64, _) => float.to_bits(),
            #[expect(clippy::cast_possible_truncation, reason = "these numbers are exact in every float type")]
            (Type::F32, _) => u64::from((float as f32).to_bits()),
            (_, Self::Zero) => 0,
            (_, Self::One) => 1,
            (Type::I64, Self::Lowest) => i64::MIN.cast_unsigned(),
            (Type::I64, Self::Highest) => i64::MAX.cast_unsigned(),
            (_, Self::Lowest) => u64::from(i32::MIN.cast_unsigned()),
            (_, Self::Highest) => u64::from(i32::MAX.cast_unsigned()),
        }
    }
}

/// The type of accumulators for elements of a dtype: 32 bits at least.
pub(crate) fn accumulator(dtype: DType) -> Type {
    match dtype.compute_type() {
        Type::Bool | Type::U8 | Type::I8 | Type::I16 => Type::I32,
        other => other,
    }
}

/// Every reduction, by row.
pub fn table() -> impl Iterator<Item = &'static Operation> {
    sums::TABLE
        .iter()
        .chain(extremes::TABLE)
        .chain(moments::TABLE)
        .chain(exponentials::TABLE)
        .chain(norms::TABLE)
        .copied()
}

impl Operation {
    /// What is done with elements that are computed in this dtype.
    pub(crate) fn recipe_for(&self, computed: DType) -> &Recipe {
        self.complex.filter(|_| computed.is_complex()).unwrap_or(&self.recipe)
    }

    /// Whether the operation is there for elements of this dtype.
    #[must_use]
    pub fn accepts(&self, dtype: DType) -> bool {
        (self.computed)(dtype, None).is_ok()
    }

    /// The dtypes of its results, for elements of a dtype that it accepts.
    #[must_use]
    pub fn result_dtypes(&self, dtype: DType) -> Vec<DType> {
        (self.computed)(dtype, None).map(|computed| (self.results)(dtype, computed)).unwrap_or_default()
    }
}

/// The dtype of sums: 64-bit integers for integers and booleans. torch's kernel has this name.
pub(crate) fn widened(kernel: &str, dtype: DType, asked: Option<DType>) -> Result<DType> {
    let computed = asked.unwrap_or(if dtype.category() <= Category::Integral { DType::I64 } else { dtype });
    refuse_float8(kernel, computed)?;
    Ok(computed)
}

/// The dtype of the input, or the one that is asked for.
fn same(dtype: DType, asked: Option<DType>) -> Result<DType> {
    Ok(asked.unwrap_or(dtype))
}

/// One result in the dtype that is computed in.
pub(crate) fn as_computed(_: DType, computed: DType) -> Vec<DType> {
    vec![computed]
}

/// The accumulators as they are.
pub(crate) fn as_they_are(_: &mut Graph, accumulators: &[Value], _: &Ending) -> Vec<Value> {
    accumulators.to_vec()
}
