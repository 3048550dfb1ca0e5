//! Operations whose result at a place is computed of the operands' elements at that place.
//!
//! Each is declared once as an [`Operation`]: its names, what it accepts, how the dtypes combine and what is computed.
//! The methods of [`Tensor`](crate::Tensor), with their in-place and `out` forms, follow from that row; so do the
//! [`table`] and the tests that compare every operation on the host, the simulated device and a real one.
//!
//! Reading order: this file, `run` (from operands to a launch), `limit` (range checks of scalars), `whole` (the fast
//! path for whole tensors), `formula` and `complex` (what rows are built of), then the families: `unary` (arithmetic of
//! one tensor), `function` (exp, sin, erf and the like), `activation`, `binary`, `bitwise` (bits and truth), `compare`,
//! `ternary`.

mod activation;
mod binary;
mod bitwise;
mod compare;
pub(crate) mod complex;
mod formula;
mod function;
mod limit;
mod run;
mod ternary;
mod unary;
mod whole;

use kernel_ir::{Graph, Node, Value};

pub(crate) use limit::{Limit, element_limit};
use run::{Call, Several, elementwise};
pub(crate) use run::{scalar_bits, store};
pub(crate) use whole::{is_alike, is_whole};

use crate::autocast::Policies;
use crate::base::dtype::{Category, DType};
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::tensor::{Operand, Tensor};

/// A pointwise operation.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{Tensor, table};
///
/// let hypot = table().find(|operation| operation.name == "hypot").unwrap();
/// let (a, b) = (Tensor::from_slice(&[3.0, 8.0], &[2])?, Tensor::from_slice(&[4.0, 15.0], &[2])?);
/// assert_eq!(hypot.apply(&[(&a).into(), (&b).into()], &[])?.to_vec::<f64>()?, [5.0, 17.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Debug)]
pub struct Operation {
    /// The name, which is torch's where that has one operation of the kind.
    pub name: &'static str,
    /// How many tensors or numbers it takes.
    pub arity: usize,
    /// How many numbers of its own it takes after these, which have no part in promotion.
    pub numbers: usize,
    /// Whether the first operand is a condition: a tensor of booleans, which has no part in promotion.
    pub takes_condition: bool,
    /// The name that torch's messages give its kernel.
    pub(crate) kernel: &'static str,
    /// How the dtype of the result follows from those of the operands.
    pub(crate) rule: Rule,
    /// Which common dtypes it is there for.
    pub(crate) accepts: fn(DType) -> bool,
    /// What is computed: the operands, then the operation's own numbers. All have the type that is computed in for the
    /// dtype given, but a condition, which is a boolean.
    pub(crate) build: Build<Value>,
    /// The same on complex numbers as pairs of real ones, where there is such a thing.
    pub(crate) complex: Option<Build<Pair>>,
    /// What is computed if the last operand is a number, where torch computes something else then.
    pub(crate) by_number: Option<Build<Value>>,
    /// [`Self::by_number`] for complex numbers.
    pub(crate) complex_by_number: Option<Build<Pair>>,
    /// Whether the host refuses integers whose last operand has a zero.
    pub(crate) divides: bool,
    /// Whether an output must have the dtype of the operands.
    pub(crate) output: OutputDType,
    /// Returns torch's text for operands that the operation rejects. Called before sizes and outputs are checked.
    pub(crate) check: fn(&Participating<'_>) -> Option<String>,
    /// Faults of operands that torch looks for after sizes and outputs, as its text for them.
    pub(crate) late_check: fn(&Participating<'_>) -> Option<String>,
    /// Whether numbers among the operands count as tensors without dimensions for the layout of the result.
    pub(crate) wraps_numbers: bool,
    /// Whether numbers among the operands are rounded to the common dtype.
    pub(crate) rounds_numbers: bool,
    /// Range check of scalar operands.
    pub(crate) limit: Limit,
    /// How a new result lies in memory.
    pub(crate) layout: Layout,
    /// Whether it takes floats of 8 bits.
    pub(crate) takes_float8: bool,
    /// What regions of autocast make of it.
    pub(crate) autocast: Policies,
}

/// How a new result lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In the order in which the operands' memory is visited.
    Visited,
    /// As a copy of the first operand lies.
    Copied,
    /// As a copy of the first operand where that has integers or booleans, else in the order of visiting.
    CopiedIntegers,
    /// In the order in which the operands' memory would be visited if all were first converted to the common dtype.
    Converted,
    /// Row by row.
    Rows,
}

/// Dtypes that an output tensor may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputDType {
    /// Those to which the result can be cast.
    Cast,
    /// The result's alone.
    Equal,
    /// The result's alone. Real results of complex numbers can be cast, but not to another complex dtype.
    EqualOrReal,
}

/// Adds what an operation computes to a graph: of the values, for the dtype that is computed in.
pub(crate) type Build<V> = fn(&mut Graph, DType, &[V]) -> V;

/// A complex number in a graph: its real and its imaginary part.
pub(crate) type Pair = (Value, Value);

/// What takes part in an operation, for its check.
pub(crate) struct Participating<'a> {
    /// The dtype that the operands have in common.
    pub(crate) common: DType,
    /// The dtype of each operand.
    pub(crate) dtypes: &'a [DType],
    /// The operation's own numbers.
    pub(crate) numbers: &'a [Scalar],
    /// Whether the tensors are on the host, whose texts differ in some operations.
    pub(crate) on_host: bool,
}

/// How dtypes combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The common dtype is computed in and is the result's.
    Common,
    /// As [`Rule::Common`], but integers and booleans become `f32`.
    Float,
    /// As [`Rule::Common`], but booleans become `i64`.
    Integer,
    /// The common dtype is computed in; the result is a boolean.
    Bool,
    /// The common dtype is computed in; the result of complex numbers is real.
    Real,
}

impl Rule {
    /// The dtype that is computed in, for this common dtype of the operands.
    pub(crate) fn computed(self, common: DType) -> DType {
        match self {
            Self::Float if common.category() < Category::Floating => DType::F32,
            Self::Integer if common == DType::Bool => DType::I64,
            _ => common,
        }
    }

    /// The dtype of the result.
    pub(crate) fn result(self, common: DType) -> DType {
        match self {
            Self::Bool => DType::Bool,
            Self::Real => common.to_real(),
            _ => self.computed(common),
        }
    }
}

impl Operation {
    /// A row: torch's names of the operation and its kernel, how dtypes combine, which are accepted, what is computed.
    pub(crate) const fn new(
        name: &'static str,
        kernel: &'static str,
        rule: Rule,
        accepts: fn(DType) -> bool,
        build: Build<Value>,
    ) -> Self {
        Self {
            name,
            arity: 1,
            numbers: 0,
            takes_condition: false,
            kernel,
            rule,
            accepts,
            build,
            complex: None,
            by_number: None,
            complex_by_number: None,
            divides: false,
            output: OutputDType::Cast,
            check: |_| None,
            late_check: |_| None,
            wraps_numbers: true,
            rounds_numbers: false,
            limit: Limit::Cut,
            layout: Layout::Visited,
            takes_float8: false,
            autocast: Policies::of(name),
        }
    }

    /// The row for complex numbers too.
    pub(crate) const fn complex(self, build: Build<Pair>) -> Self {
        Self { complex: Some(build), ..self }
    }

    /// Sets what is computed if the last operand is a number.
    pub(crate) const fn by_number(self, build: Build<Value>) -> Self {
        Self { by_number: Some(build), ..self }
    }

    /// Sets what is computed of complex numbers if the last operand is a number.
    pub(crate) const fn complex_by_number(self, build: Build<Pair>) -> Self {
        Self { complex_by_number: Some(build), ..self }
    }

    /// Makes the host refuse to divide integers by zero.
    pub(crate) const fn divides(self) -> Self {
        Self { divides: true, ..self }
    }

    /// Sets which dtypes an output may have.
    pub(crate) const fn output(self, output: OutputDType) -> Self {
        Self { output, ..self }
    }

    /// The row with something else that may be wrong.
    pub(crate) const fn check(self, check: fn(&Participating<'_>) -> Option<String>) -> Self {
        Self { check, ..self }
    }

    /// The row with something else that may be wrong, which is looked for after sizes and outputs.
    pub(crate) const fn late_check(self, late_check: fn(&Participating<'_>) -> Option<String>) -> Self {
        Self { late_check, ..self }
    }

    /// The row with numbers that do not count for the layout.
    pub(crate) const fn plain_numbers(self) -> Self {
        Self { wraps_numbers: false, ..self }
    }

    /// The row with results that lie in memory so.
    pub(crate) const fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The row for floats of 8 bits too.
    pub(crate) const fn float8(self) -> Self {
        Self { takes_float8: true, ..self }
    }

    /// The row with numbers that are rounded to the common dtype.
    pub(crate) const fn rounded_numbers(self) -> Self {
        Self { rounds_numbers: true, ..self }
    }

    /// Sets the range check of scalar operands.
    pub(crate) const fn limit(self, limit: Limit) -> Self {
        Self { limit, ..self }
    }

    /// Whether the operation is there for operands whose common dtype is this.
    #[must_use]
    pub fn accepts(&self, dtype: DType) -> bool {
        match self.rule.computed(dtype).is_complex() {
            true => self.complex.is_some(),
            false => (self.accepts)(dtype) && (self.takes_float8 || !dtype.is_float8()),
        }
    }

    /// What a region of autocast makes of the operation on devices of a kind; `None` where it runs in the dtypes of its
    /// operands.
    ///
    /// ```
    /// use aten_cuda::{autocast::Policy, table};
    /// use c10_core::DeviceType;
    ///
    /// let exp = table().find(|operation| operation.name == "exp").unwrap();
    /// assert_eq!(exp.autocast(DeviceType::Cuda), Some(Policy::Fp32));
    /// assert_eq!(exp.autocast(DeviceType::Cpu), None);
    /// ```
    #[must_use]
    pub fn autocast(&self, kind: c10_core::DeviceType) -> Option<crate::autocast::Policy> {
        self.autocast.of_kind(kind)
    }

    /// Whether the result for operands of this dtype is the same on every device, bit by bit: it calls no function
    /// whose result is only near the exact one.
    #[must_use]
    pub fn is_exact(&'static self, dtype: DType) -> bool {
        let inexact = |node: Node| matches!(node, Node::Call(function, ..) if !function.is_exact());
        run::program_of(self, dtype).is_ok_and(|program| !program.nodes().any(|(_, node, _)| inexact(node)))
    }

    /// The result as a new tensor.
    ///
    /// # Errors
    /// There are too few or too many operands or numbers, the operation is not there for the dtypes, the sizes do not
    /// broadcast, the tensors are on several devices, there is not enough memory, or the device failed.
    pub fn apply(&'static self, operands: &[Operand<'_>], numbers: &[Scalar]) -> Result<Tensor> {
        elementwise(self, operands, numbers)
    }
}

/// Every pointwise operation, family by family.
pub fn table() -> impl Iterator<Item = &'static Operation> {
    let families = [
        unary::TABLE,
        function::TABLE,
        activation::TABLE,
        binary::TABLE,
        bitwise::TABLE,
        compare::TABLE,
        ternary::TABLE,
    ];
    families.into_iter().flatten().copied()
}

/// The dtypes that operations accept, complex ones aside.
mod accept {
    use crate::base::dtype::DType;

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

/// How many words there are.
macro_rules! count {
    () => { 0 };
    ($first:ident $($rest:ident)*) => { 1 + count!($($rest)*) };
}
use count;

/// Declares operations: the rows, the table of the family, and the methods, whose first operand is the tensor itself.
/// After the names of the three methods stand the other operands, and after a semicolon the operation's own numbers.
/// Rows without methods have a name, operands and numbers too.
macro_rules! operations {
    (
        $(
            $(#[$doc:meta])*
            $name:ident, $in_place:ident, $out:ident($($operand:ident),* $(; $($number:ident),*)?): $row:expr;
        )*
        $(
            [rows without methods]
            $(
                $(#[$row_doc:meta])*
                $row_name:ident($($row_operand:ident),* $(; $($row_number:ident),*)?): $bare:expr;
            )*
        )?
    ) => {
        mod rows {
            #![allow(clippy::allow_attributes, non_upper_case_globals, reason = "a row has the name of its operation")]
            use super::*;
            $(pub(super) static $name: Operation = Operation {
                arity: 1 + count!($($operand)*),
                numbers: count!($($($number)*)?),
                ..$row
            };)*
            $($($(#[$row_doc])* pub(super) static $row_name: Operation = Operation {
                arity: count!($($row_operand)*),
                numbers: count!($($($row_number)*)?),
                ..$bare
            };)*)?
        }

        /// The rows of the family.
        pub(super) static TABLE: &[&Operation] = &[$(&rows::$name,)* $($(&rows::$row_name,)*)?];

        methods! {
            $(
                $(#[$doc])*
                $name, $in_place, $out($($operand: impl Into<Operand<'a>>,)* $($($number: impl Into<Scalar>,)*)?)
                |this| Ok(Call::new(&rows::$name, [this.into(), $($operand.into(),)*], [$($($number.into(),)*)?]));
            )*
        }
    };
}
use operations;

/// Declares the three methods of operations, of what makes the call of them. The tensor itself is named between bars.
macro_rules! methods {
    (
        $(
            $(#[$doc:meta])*
            $name:ident, $in_place:ident, $out:ident($($argument:ident: $ty:ty,)*) |$this:ident| $call:expr;
        )*
    ) => {
        #[allow(clippy::allow_attributes, clippy::needless_lifetimes, reason = "further operands live as long")]
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The operation is not there for the dtypes, the sizes do not broadcast, the tensors are on several
                /// devices, there is not enough memory, or the device failed.
                pub fn $name<'a>(&'a self, $($argument: $ty),*) -> Result<Self> {
                    let $this = self;
                    let call: Result<Call<_, _>> = $call;
                    call?.made()
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] in place.")]
                ///
                /// # Errors
                /// As for the operation, or the result does not fit the tensor.
                pub fn $in_place<'a>(&'a self, $($argument: $ty),*) -> Result<&'a Self> {
                    let $this = self;
                    let call: Result<Call<_, _>> = $call;
                    call?.written_in_place(self)?;
                    Ok(self)
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`, which gets the sizes of the result.")]
                ///
                /// # Errors
                /// As for the operation, or the result does not fit `out`.
                pub fn $out<'a>(&'a self, $($argument: $ty,)* out: &Self) -> Result<()> {
                    let $this = self;
                    let call: Result<Call<_, _>> = $call;
                    call?.written_out(out)
                }
            )*
        }
    };
}
use methods;
