//! Operations whose result at a place is computed of the operands' elements at that place.
//!
//! Each is declared once as an [`Operation`]: its names, what it accepts, how the dtypes combine and what is computed.
//! The methods of [`Tensor`](crate::Tensor), with their in-place and `out` forms, follow from that row; so do the
//! [`table`] and the tests that compare every operation on the host, the simulated device and a real one.
//!
//! Reading order: this file, `run` (from operands to a launch), then the families: `unary`, `binary`, `compare`.

mod binary;
mod compare;
mod run;
mod unary;

use kernel_ir::{Graph, Type, Value};

pub(crate) use run::{check_overlap, elementwise, elementwise_into, scalar_bits, store};

use crate::base::dtype::{Category, DType};

/// A pointwise operation.
#[derive(Debug)]
pub struct Operation {
    /// The name in torch.
    pub name: &'static str,
    /// The name that torch's messages give its kernel.
    pub(crate) kernel: &'static str,
    /// How many tensors or numbers it takes.
    pub arity: usize,
    /// How the dtype of the result follows from those of the operands.
    pub(crate) rule: Rule,
    /// Which common dtypes it is there for.
    pub(crate) accepts: fn(DType) -> bool,
    /// What is computed: the operands, then the operation's own numbers, all of the type given.
    pub(crate) build: Build<Value>,
    /// The same on complex numbers as pairs of real ones, where there is such a thing.
    pub(crate) complex: Option<Build<Pair>>,
}

/// Adds what an operation computes to a graph: of the values, and in the type given.
pub(crate) type Build<V> = fn(&mut Graph, Type, &[V]) -> V;

/// A complex number in a graph: its real and its imaginary part.
pub(crate) type Pair = (Value, Value);

/// How dtypes combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The common dtype is computed in and is the result's.
    Common,
    /// As [`Rule::Common`], but integers and booleans become `f32`.
    Float,
    /// The common dtype is computed in; the result is a boolean.
    Bool,
}

impl Rule {
    /// The dtype that is computed in, for this common dtype of the operands.
    pub(crate) fn computed(self, common: DType) -> DType {
        match self {
            Self::Float if common.category() < Category::Floating => DType::F32,
            _ => common,
        }
    }

    /// The dtype of the result.
    pub(crate) fn result(self, common: DType) -> DType {
        if self == Self::Bool { DType::Bool } else { self.computed(common) }
    }
}

impl Operation {
    /// Whether the operation is there for operands whose common dtype is this.
    #[must_use]
    pub fn accepts(&self, dtype: DType) -> bool {
        (self.accepts)(dtype)
    }
}

/// Every pointwise operation, by name.
pub fn table() -> impl Iterator<Item = &'static Operation> {
    unary::TABLE.iter().chain(binary::TABLE).chain(compare::TABLE).copied()
}

/// The dtypes that operations accept.
mod accept {
    use crate::base::dtype::DType;

    pub(super) fn all(_: DType) -> bool {
        true
    }

    pub(super) fn real(dtype: DType) -> bool {
        !dtype.is_complex()
    }

    pub(super) fn real_but_bool(dtype: DType) -> bool {
        !dtype.is_complex() && dtype != DType::Bool
    }

    pub(super) fn float(dtype: DType) -> bool {
        dtype.is_floating_point()
    }

    pub(super) fn integral(dtype: DType) -> bool {
        dtype.is_integral()
    }

    pub(super) fn integral_or_bool(dtype: DType) -> bool {
        dtype.is_integral() || dtype == DType::Bool
    }
}

/// Declares operations of one tensor, their methods and the table of the family.
macro_rules! unary_operations {
    ($($(#[$doc:meta])* $name:ident, $in_place:ident, $out:ident: $torch:literal, $kernel:literal, $rule:ident,
        $accepts:ident, $build:expr;)*) => {
        mod rows {
            #![allow(clippy::allow_attributes, non_upper_case_globals, reason = "a row has the name of its operation")]
            use super::*;
            $(pub(super) static $name: Operation = Operation {
                name: $torch,
                kernel: $kernel,
                arity: 1,
                rule: Rule::$rule,
                accepts: accept::$accepts,
                build: $build,
                complex: None,
            };)*
        }

        /// The rows of the family.
        pub(super) static TABLE: &[&Operation] = &[$(&rows::$name),*];

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The operation is not there for the dtype, there is not enough memory, or the device failed.
                pub fn $name(&self) -> Result<Self> {
                    elementwise(&rows::$name, &[self.into()], &[])
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] in place.")]
                ///
                /// # Errors
                /// As for the operation, or the result does not fit the tensor's dtype.
                pub fn $in_place(&self) -> Result<&Self> {
                    elementwise_into(&rows::$name, &[self.into()], &[], self)?;
                    Ok(self)
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`.")]
                ///
                /// # Errors
                /// As for the operation, or the result does not fit `out`.
                pub fn $out(&self, out: &Self) -> Result<()> {
                    elementwise_into(&rows::$name, &[self.into()], &[], out)
                }
            )*
        }
    };
}
use unary_operations;

/// Declares operations of two operands, their methods and the table of the family.
macro_rules! binary_operations {
    ($($(#[$doc:meta])* $name:ident, $in_place:ident, $out:ident: $torch:literal, $kernel:literal, $rule:ident,
        $accepts:ident, $build:expr;)*) => {
        mod rows {
            #![allow(clippy::allow_attributes, non_upper_case_globals, reason = "a row has the name of its operation")]
            use super::*;
            $(pub(super) static $name: Operation = Operation {
                name: $torch,
                kernel: $kernel,
                arity: 2,
                rule: Rule::$rule,
                accepts: accept::$accepts,
                build: $build,
                complex: None,
            };)*
        }

        /// The rows of the family.
        pub(super) static TABLE: &[&Operation] = &[$(&rows::$name),*];

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The operation is not there for the dtypes, the sizes do not broadcast, the tensors are on several
                /// devices, there is not enough memory, or the device failed.
                pub fn $name<'a>(&'a self, other: impl Into<Operand<'a>>) -> Result<Self> {
                    elementwise(&rows::$name, &[self.into(), other.into()], &[])
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] in place.")]
                ///
                /// # Errors
                /// As for the operation, or the result does not fit the tensor.
                pub fn $in_place<'a>(&'a self, other: impl Into<Operand<'a>>) -> Result<&'a Self> {
                    elementwise_into(&rows::$name, &[self.into(), other.into()], &[], self)?;
                    Ok(self)
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`.")]
                ///
                /// # Errors
                /// As for the operation, or the result does not fit `out`.
                pub fn $out<'a>(&'a self, other: impl Into<Operand<'a>>, out: &Self) -> Result<()> {
                    elementwise_into(&rows::$name, &[self.into(), other.into()], &[], out)
                }
            )*
        }
    };
}
use binary_operations;
