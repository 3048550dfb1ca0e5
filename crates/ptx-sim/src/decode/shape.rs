//! Sizes and alignments of variables, and where one lies behind another.

use crate::program::types::{Kind, Type};
use crate::refusal::Refusal;
use crate::text::syntax::VariableText;

/// What a variable takes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The type of an element.
    pub(super) ty: Type,
    /// Bytes; [`u64::MAX`] where they are more.
    pub(super) size: u64,
    pub(super) align: u64,
}

impl Shape {
    /// The shape that a declaration gives.
    pub(super) fn of(variable: &VariableText<'_>) -> Result<Self, Refusal> {
        let not_supported =
            || Refusal::not_supported(variable.at, format!("'{}' of type .{}", variable.name, variable.ty));
        let ty = Type::of(variable.ty).ok_or_else(not_supported)?;
        if ty.kind == Kind::Predicate {
            return Err(Refusal::invalid(variable.at, format!("'{}' is a predicate in memory", variable.name)));
        }
        let natural = ty.bytes() * u64::from(variable.vector);
        let size = variable.dimensions.iter().fold(natural, |size, &count| size.saturating_mul(count));
        Ok(Self { ty, size, align: variable.align.unwrap_or(1).max(natural) })
    }

    /// Whether an array is left open.
    pub(super) fn is_open(variable: &VariableText<'_>) -> bool {
        variable.dimensions.contains(&0)
    }

    /// Its offset behind `end`, which it moves to its own end; none where that is beyond `limit`.
    pub(super) fn behind(self, end: &mut u64, limit: u64) -> Option<u64> {
        let offset = end.checked_next_multiple_of(self.align)?;
        *end = offset.checked_add(self.size).filter(|&end| end <= limit)?;
        Some(offset)
    }
}
