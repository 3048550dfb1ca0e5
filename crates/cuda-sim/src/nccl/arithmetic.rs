//! What collectives compute, on plain bytes.
//!
//! Sums begin with rank 0 and are rounded to the elements' type at each step, so every rank is given the same bits.

use std::fmt;

use cuda_sys::cublas::types::cudaDataType_t;

use super::exchange::{Asked, What};
use crate::toolkit::numbers::{decode, encode};

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
    F8E4m3,
    F8E5m2,
}

/// All types, by their numbers in the header.
const KINDS: [(Kind, &str, u64); 12] = [
    (Kind::I8, "int8", 1),
    (Kind::U8, "uint8", 1),
    (Kind::I32, "int32", 4),
    (Kind::U32, "uint32", 4),
    (Kind::I64, "int64", 8),
    (Kind::U64, "uint64", 8),
    (Kind::F16, "float16", 2),
    (Kind::F32, "float32", 4),
    (Kind::F64, "float64", 8),
    (Kind::Bf16, "bfloat16", 2),
    (Kind::F8E4m3, "float8e4m3", 1),
    (Kind::F8E5m2, "float8e5m2", 1),
];

impl Kind {
    /// The type of a number in the header.
    pub(super) fn of(number: u32) -> Option<Self> {
        KINDS.get(usize::try_from(number).ok()?).map(|(kind, ..)| *kind)
    }

    /// Its number in the header.
    pub(super) fn number(self) -> u32 {
        (0..).zip(KINDS).find(|(_, (kind, ..))| *kind == self).map_or(0, |(number, _)| number)
    }

    pub(super) fn bytes(self) -> u64 {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or(1, |(_, _, bytes)| *bytes)
    }

    /// The type as matrices have it; none for integers.
    fn float(self) -> Option<cudaDataType_t> {
        Some(match self {
            Self::F16 => cudaDataType_t::CUDA_R_16F,
            Self::F32 => cudaDataType_t::CUDA_R_32F,
            Self::F64 => cudaDataType_t::CUDA_R_64F,
            Self::Bf16 => cudaDataType_t::CUDA_R_16BF,
            Self::F8E4m3 => cudaDataType_t::CUDA_R_8F_E4M3,
            Self::F8E5m2 => cudaDataType_t::CUDA_R_8F_E5M2,
            Self::I8 | Self::U8 | Self::I32 | Self::U32 | Self::I64 | Self::U64 => return None,
        })
    }

    /// An element as a number.
    #[expect(clippy::cast_precision_loss, reason = "factors are small")]
    pub(super) fn value(self, bytes: &[u8]) -> f64 {
        match self.float() {
            Some(ty) => decode(ty, bytes).first().map_or(0.0, |[value, _]| *value),
            None => widened(bytes, self) as f64,
        }
    }

    fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I32 | Self::I64)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS.iter().find(|(kind, ..)| kind == self).map_or("?", |(_, name, _)| name))
    }
}

/// What elements are reduced by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    Sum,
    Product,
    Max,
    Min,
    Average,
    /// A sum of what each rank has multiplied by a factor of its own.
    Scaled(f64),
}

impl Op {
    /// The operation of a number in the header that is not made by a program.
    pub(super) fn of(number: u32) -> Option<Self> {
        [Self::Sum, Self::Product, Self::Max, Self::Min, Self::Average].get(usize::try_from(number).ok()?).copied()
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sum => f.write_str("sum"),
            Self::Product => f.write_str("product"),
            Self::Max => f.write_str("max"),
            Self::Min => f.write_str("min"),
            Self::Average => f.write_str("average"),
            Self::Scaled(factor) => write!(f, "sum scaled by {factor}"),
        }
    }
}

/// What each rank is given of a collective to which all have brought their parts, in the order of ranks.
pub(super) fn results(brought: &[(Asked, &[u8])]) -> Vec<Vec<u8>> {
    let ranks = brought.len();
    let Some(&(asked, _)) = brought.first() else { return Vec::new() };
    match asked.what {
        What::AllReduce => vec![reduced(brought); ranks],
        What::Reduce { root } => {
            let mut sum = Some(reduced(brought));
            (0..ranks).map(|rank| if rank == root { sum.take().unwrap_or_default() } else { Vec::new() }).collect()
        }
        What::Broadcast { root } => vec![brought[root].1.to_vec(); ranks],
        What::AllGather => vec![brought.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect(); ranks],
        What::ReduceScatter => {
            let sum = reduced(brought);
            let length = sum.len() / ranks;
            (0..ranks).map(|rank| sum[rank * length..(rank + 1) * length].to_vec()).collect()
        }
        // Messages have no collective.
        What::Send { .. } | What::Recv { .. } => vec![Vec::new(); ranks],
    }
}

/// Elements of all ranks, one by one.
fn reduced(brought: &[(Asked, &[u8])]) -> Vec<u8> {
    let kind = brought[0].0.kind;
    match kind.float() {
        Some(ty) => floats(brought, ty),
        None => integers(brought, kind),
    }
}

fn floats(brought: &[(Asked, &[u8])], ty: cudaDataType_t) -> Vec<u8> {
    let ranks = f64::from(u32::try_from(brought.len()).unwrap_or(1));
    let rounded = |values: &[[f64; 2]]| decode(ty, &encode(ty, values));
    let prepared = |(asked, bytes): &(Asked, &[u8])| {
        let values = decode(ty, bytes);
        let factor = match asked.op {
            Op::Average => 1.0 / ranks,
            Op::Scaled(factor) => factor,
            Op::Sum | Op::Product | Op::Max | Op::Min => return values,
        };
        // The factor is of the elements' type too.
        let factor = rounded(&[[factor, 0.0]])[0][0];
        rounded(&values.iter().map(|[value, _]| [value * factor, 0.0]).collect::<Vec<_>>())
    };
    let mut all = brought.iter().map(prepared);
    let mut sum = all.next().unwrap_or_default();
    for other in all {
        let step = |(left, right): (&[f64; 2], &[f64; 2])| {
            let (left, right) = (left[0], right[0]);
            [
                match brought[0].0.op {
                    Op::Sum | Op::Average | Op::Scaled(_) => left + right,
                    Op::Product => left * right,
                    Op::Max => left.max(right),
                    Op::Min => left.min(right),
                },
                0.0,
            ]
        };
        sum = rounded(&sum.iter().zip(&other).map(step).collect::<Vec<_>>());
    }
    encode(ty, &sum)
}

fn integers(brought: &[(Asked, &[u8])], kind: Kind) -> Vec<u8> {
    let width = usize::try_from(kind.bytes()).unwrap_or(1);
    let values = |bytes: &[u8]| -> Vec<i128> { bytes.chunks_exact(width).map(|one| widened(one, kind)).collect() };
    let prepared = |(asked, bytes): &(Asked, &[u8])| match asked.op {
        Op::Scaled(factor) => values(bytes).into_iter().map(|value| scaled(value, factor)).collect(),
        Op::Sum | Op::Product | Op::Max | Op::Min | Op::Average => values(bytes),
    };
    let mut all = brought.iter().map(prepared);
    let mut sum: Vec<i128> = all.next().unwrap_or_default();
    for other in all {
        for (left, right) in sum.iter_mut().zip(other) {
            let step = match brought[0].0.op {
                Op::Sum | Op::Average | Op::Scaled(_) => left.wrapping_add(right),
                Op::Product => left.wrapping_mul(right),
                Op::Max => (*left).max(right),
                Op::Min => (*left).min(right),
            };
            // As the type wraps around.
            *left = widened(&step.to_le_bytes()[..width], kind);
        }
    }
    if brought[0].0.op == Op::Average {
        let ranks = i128::try_from(brought.len()).unwrap_or(1);
        sum.iter_mut().for_each(|value| *value /= ranks);
    }
    sum.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width)).collect()
}

/// A whole number that was multiplied by a factor, which is whole for elements that are.
#[expect(
    clippy::cast_possible_truncation,
    reason = "factors of whole elements are whole, and wrap around as elements do"
)]
fn scaled(value: i128, factor: f64) -> i128 {
    value.wrapping_mul(factor as i128)
}

/// A whole number of few bytes.
fn widened(bytes: &[u8], kind: Kind) -> i128 {
    let is_negative = kind.is_signed() && bytes.last().is_some_and(|top| top & 0x80 != 0);
    let fill = if is_negative { 0xff } else { 0 };
    let mut wide = [fill; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(what: What, kind: Kind, op: Op) -> Asked {
        Asked { what, count: 2, kind, op }
    }

    fn run(kind: Kind, op: Op, values: [[u8; 2]; 3]) -> Vec<u8> {
        let all: Vec<(Asked, &[u8])> = values.iter().map(|one| (asked(What::AllReduce, kind, op), &one[..])).collect();
        let results = results(&all);
        assert!(results.iter().all(|one| *one == results[0]));
        results[0].clone()
    }

    #[test]
    fn whole_numbers_wrap_around_and_keep_their_sign() {
        let values = [[200, 1], [100, 2], [255, 3]];
        assert_eq!(run(Kind::U8, Op::Sum, values), [43, 6]);
        assert_eq!(run(Kind::U8, Op::Max, values), [255, 3]);
        assert_eq!(run(Kind::I8, Op::Max, values), [100, 3]);
        assert_eq!(run(Kind::I8, Op::Min, values), [200, 1]);
        assert_eq!(run(Kind::U8, Op::Product, values), [224, 6]);
        assert_eq!(run(Kind::U8, Op::Average, values), [14, 2]);
    }

    #[test]
    fn floats_are_rounded_at_each_step() {
        let half = |value: f64| encode(cudaDataType_t::CUDA_R_16F, &[[value, 0.0]]);
        let brought: Vec<Vec<u8>> = [2048.0, 1.0, 1.0].map(half).into();
        let all: Vec<(Asked, &[u8])> = brought
            .iter()
            .map(|bytes| (Asked { what: What::AllReduce, count: 1, kind: Kind::F16, op: Op::Sum }, &bytes[..]))
            .collect();
        // 2049 is no half, and is rounded to 2048 twice.
        assert_eq!(results(&all)[2], half(2048.0));
    }

    #[test]
    fn each_rank_is_given_its_part() {
        let brought: Vec<Vec<u8>> = vec![vec![1, 2], vec![3, 4]];
        let of = |what| -> Vec<Vec<u8>> {
            results(&brought.iter().map(|one| (asked(what, Kind::U8, Op::Sum), &one[..])).collect::<Vec<_>>())
        };
        assert_eq!(of(What::AllGather), [[1, 2, 3, 4], [1, 2, 3, 4]]);
        assert_eq!(of(What::ReduceScatter), [[4], [6]]);
        assert_eq!(of(What::Broadcast { root: 1 }), [[3, 4], [3, 4]]);
        assert_eq!(of(What::Reduce { root: 1 }), [vec![], vec![4, 6]]);
    }
}
