//! How values of ranks become one (`torch.distributed.ReduceOp`), in words too.
//!
//! Invariant: a word reads back as the operation it was written from.

use std::fmt;

use aten_cuda::{DType, nccl};

/// How values of ranks become one, element by element: torch's `ReduceOp`.
///
/// ```
/// use cuda_dist::ReduceOp;
///
/// assert_eq!(ReduceOp::default(), ReduceOp::Sum);
/// assert_eq!(ReduceOp::PremulSum(0.5).to_string(), "premul_sum(0.5)");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum.
    #[default]
    Sum,
    /// The product.
    Product,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The sum, divided by the number of ranks.
    Avg,
    /// The sum of the values times a number, which each rank multiplies its own by. Of floating point numbers, and the
    /// same number on all ranks (torch's `PREMUL_SUM`).
    PremulSum(f64),
    /// The bits that are set on all ranks. Of whole numbers and booleans; not by NCCL, as in torch.
    BAnd,
    /// The bits that are set on a rank. As [`Self::BAnd`].
    BOr,
    /// The bits that are set on an odd number of ranks. As [`Self::BAnd`].
    BXor,
}

const WORDS: [(ReduceOp, &str); 8] = [
    (ReduceOp::Sum, "sum"),
    (ReduceOp::Product, "product"),
    (ReduceOp::Min, "min"),
    (ReduceOp::Max, "max"),
    (ReduceOp::Avg, "avg"),
    (ReduceOp::BAnd, "band"),
    (ReduceOp::BOr, "bor"),
    (ReduceOp::BXor, "bxor"),
];

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::PremulSum(factor) = self {
            return write!(f, "premul_sum({factor})");
        }
        f.write_str(WORDS.iter().find(|(known, _)| known == self).map_or("", |(_, word)| word))
    }
}

impl ReduceOp {
    /// Reads a word.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        if let Some(factor) = word.strip_prefix("premul_sum(").and_then(|rest| rest.strip_suffix(')')) {
            return factor.parse().ok().filter(|factor: &f64| factor.is_finite()).map(Self::PremulSum);
        }
        WORDS.iter().find(|(_, known)| *known == word).map(|(op, _)| *op)
    }

    /// What is wrong with it for elements of a dtype.
    pub(crate) fn problem(self, dtype: DType) -> Option<String> {
        let is_right = match self {
            Self::Sum | Self::Product | Self::Min | Self::Max | Self::Avg => true,
            Self::PremulSum(factor) => factor.is_finite() && (dtype.is_floating_point() || dtype.is_complex()),
            Self::BAnd | Self::BOr | Self::BXor => !dtype.is_floating_point() && !dtype.is_complex(),
        };
        (!is_right).then(|| format!("elements of {} cannot be made one by {self}", dtype.torch_name()))
    }

    /// The same in NCCL's words; the factor of [`Self::PremulSum`] is not in it. None where NCCL has no such thing.
    pub(crate) fn of_nccl(self) -> Option<nccl::ReduceOp> {
        Some(match self {
            Self::Sum | Self::PremulSum(_) => nccl::ReduceOp::Sum,
            Self::Product => nccl::ReduceOp::Product,
            Self::Min => nccl::ReduceOp::Min,
            Self::Max => nccl::ReduceOp::Max,
            Self::Avg => nccl::ReduceOp::Avg,
            Self::BAnd | Self::BOr | Self::BXor => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ReduceOp, WORDS};

    #[test]
    fn words_read_back() {
        let with_factor = [ReduceOp::PremulSum(-0.1), ReduceOp::PremulSum(3.0)];
        for op in WORDS.iter().map(|(op, _)| *op).chain(with_factor) {
            assert_eq!(ReduceOp::from_word(&op.to_string()), Some(op));
        }
        for word in ["", "summe", "premul_sum", "premul_sum(x)", "premul_sum(NaN)", "premul_sum(1"] {
            assert_eq!(ReduceOp::from_word(word), None, "{word}");
        }
    }
}
