//! Mistakes in a graph.

use crate::graph::{Binary, Unary};
use crate::math::Math;
use crate::types::Type;

/// Why a graph is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Two values that must have one type have two.
    #[error("the values have the types {first} and {second}, but one type is needed: convert one of them")]
    Mismatch {
        /// The type of the first value.
        first: Type,
        /// The type of the second.
        second: Type,
    },
    /// An operation does not exist for the type.
    #[error("{op:?} does not exist for {ty}; 16-bit floats are converted to f32 first")]
    Unary {
        /// The operation.
        op: Unary,
        /// The type.
        ty: Type,
    },
    /// An operation does not exist for the type.
    #[error("{op:?} does not exist for {ty}; 16-bit floats are converted to f32 first")]
    Binary {
        /// The operation.
        op: Binary,
        /// The type.
        ty: Type,
    },
    /// The type cannot be compared.
    #[error("values of {ty} cannot be compared: convert them to f32 first")]
    Compare {
        /// The type.
        ty: Type,
    },
    /// There are no such constants of the type.
    #[error("there are no such constants of the type {ty}: make one of another type and convert it")]
    Constant {
        /// The type.
        ty: Type,
    },
    /// A function does not take these arguments.
    #[error(
        "{} takes {} values of {} or {}, not {given} of {ty}",
        function.name(), function.arity(), function.types()[0], function.types()[1]
    )]
    Call {
        /// The function.
        function: Math,
        /// The type of the first argument.
        ty: Type,
        /// How many arguments there are.
        given: usize,
    },
    /// The programs of a reduction do not fit together.
    #[error(
        "the programs of the reduction do not fit together: inputs, outputs or scalars are not those of their place"
    )]
    Reduction,
    /// The graph has no output.
    #[error("the graph has no output")]
    NoOutput,
    /// A schedule does not fit the program.
    #[error("the schedule does not fit the program: {reason}")]
    Schedule {
        /// What does not fit.
        reason: &'static str,
    },
}
