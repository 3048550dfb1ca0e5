//! Programs on the host, a row of elements at a time.
//!
//! A [`Row`] has the values of one node for up to [`ROW`] elements. Integers of every width are kept as `i64` that hold
//! the value (unsigned 64-bit ones as their two's complement); floats of 8 and 16 bits as the `f32` of the same value.

mod operate;

use half::{bf16, f16};

use crate::float8;
use crate::graph::{Node, Program, Value};
use crate::types::Type;

/// The most elements of a row.
pub const ROW: usize = 512;

/// Values of one node, one for each element.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Booleans as 0 and 1, and integers.
    Int(Vec<i64>),
    /// [`Type::F32`] and shorter floats.
    F32(Vec<f32>),
    /// [`Type::F64`].
    F64(Vec<f64>),
}

impl Row {
    /// A row of one value, given as its bits in memory.
    #[must_use]
    pub fn splat(ty: Type, bits: u64, count: usize) -> Self {
        let bytes = bits.to_le_bytes();
        Self::gather(ty, (0..count).map(|_| &bytes[..ty.bytes()]))
    }

    /// The row of elements in memory, given one by one as their bytes.
    ///
    /// Elements with fewer bytes than the type has are read as if zeros followed.
    pub fn gather<'a>(ty: Type, elements: impl Iterator<Item = &'a [u8]>) -> Self {
        let bits = elements.map(|bytes| {
            let mut all = [0; 8];
            let length = bytes.len().min(8);
            all[..length].copy_from_slice(&bytes[..length]);
            u64::from_le_bytes(all)
        });
        match ty {
            Type::F64 => Self::F64(bits.map(f64::from_bits).collect()),
            Type::F32 => Self::F32(bits.map(|bits| f32::from_bits(low32(bits))).collect()),
            Type::F16 => Self::F32(bits.map(|bits| f16::from_bits(low16(bits)).to_f32()).collect()),
            Type::BF16 => Self::F32(bits.map(|bits| bf16::from_bits(low16(bits)).to_f32()).collect()),
            Type::F8E4M3 => Self::F32(bits.map(|bits| float8::E4M3.value(low8(bits))).collect()),
            Type::F8E5M2 => Self::F32(bits.map(|bits| float8::E5M2.value(low8(bits))).collect()),
            Type::Bool => Self::Int(bits.map(|bits| i64::from(bits != 0)).collect()),
            _ => Self::Int(bits.map(|bits| operate::wrap(ty, bits.cast_signed())).collect()),
        }
    }

    /// The bytes of an element in memory, in the low bytes of the number.
    #[must_use]
    pub fn bits(&self, ty: Type, at: usize) -> u64 {
        match self {
            Self::Int(values) => values[at].cast_unsigned(),
            Self::F64(values) => values[at].to_bits(),
            Self::F32(values) => match ty {
                Type::F16 => u64::from(f16::from_f32(values[at]).to_bits()),
                Type::BF16 => u64::from(bf16::from_f32(values[at]).to_bits()),
                Type::F8E4M3 => u64::from(float8::E4M3.code(values[at])),
                Type::F8E5M2 => u64::from(float8::E5M2.code(values[at])),
                _ => u64::from(values[at].to_bits()),
            },
        }
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Computes the program's outputs for elements that begin at `index`. `inputs` has a row for each input, all of one
/// length; `scalars` has the bits of each scalar as memory has them; `count` is the number of elements.
#[must_use]
pub fn run(program: &Program, inputs: &[Row], scalars: &[u64], index: i64, count: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::with_capacity(program.nodes().len());
    for (_, node, ty) in program.nodes() {
        let row = node_row(program, &rows, node, ty, inputs, scalars, index, count);
        rows.push(row);
    }
    program.outputs().iter().map(|output| rows[output.index()].clone()).collect()
}

#[expect(clippy::too_many_arguments, reason = "they are what a node can refer to")]
fn node_row(
    program: &Program,
    rows: &[Row],
    node: Node,
    ty: Type,
    inputs: &[Row],
    scalars: &[u64],
    index: i64,
    count: usize,
) -> Row {
    let of = |value: Value| &rows[value.index()];
    match node {
        Node::Input(at) => inputs[at as usize].clone(),
        Node::Scalar(at) => Row::splat(ty, scalars[at as usize], count),
        Node::Constant { bits } => Row::splat(ty, bits, count),
        Node::Index => Row::Int((index..).take(count).collect()),
        Node::Unary(op, a) => operate::unary(op, ty, of(a)),
        Node::Binary(op, a, b) => operate::binary(op, ty, of(a), of(b)),
        Node::Compare(op, a, b) => operate::compare(op, program.type_of(a), of(a), of(b)),
        Node::Select(condition, a, b) => operate::select(of(condition), of(a), of(b)),
        Node::Fma(a, b, c) => operate::fma(of(a), of(b), of(c)),
        Node::Convert(a) => operate::convert(of(a), program.type_of(a), ty),
        Node::Bitcast(a) => operate::bitcast(of(a), program.type_of(a), ty),
        Node::Call(function, a, b) => operate::call(function, ty, of(a), b.map(of)),
    }
}

fn low32(bits: u64) -> u32 {
    u32::try_from(bits & 0xffff_ffff).unwrap_or(0)
}

fn low8(bits: u64) -> u8 {
    u8::try_from(bits & 0xff).unwrap_or(0)
}

fn low16(bits: u64) -> u16 {
    u16::try_from(bits & 0xffff).unwrap_or(0)
}
