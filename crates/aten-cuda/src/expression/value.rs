//! Symbolic values: what a closure computes with while a function is built.
//!
//! A value is the number of a node of the function that the calling thread builds, so it is small and can be copied:
//! `|x, y| x * y + x` needs no reference. Building is what the thread does between [`Building::begin`] and its end.
//!
//! **Invariants:** a value is good for the function that it was made for alone. Any other use is a mistake that the function
//! then being built tells ([`ExpressionError::Foreign`]); outside of all functions it means nothing.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use num_complex::Complex64;
use smallvec::SmallVec;

use super::definition::{Builder, Function, Id, Node, Number};
use crate::base::dtype::DType;
use crate::base::expression_error::ExpressionError;
use crate::base::scalar::Scalar;

thread_local! {
    /// The functions that the thread builds, the innermost one last, each with its number.
    static BUILDING: RefCell<Vec<(u64, Builder)>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

/// A function that is being built. It ends when this is dropped.
pub(super) struct Building {
    number: u64,
}

impl Building {
    pub(super) fn begin() -> Self {
        let number = NEXT.replace(NEXT.get() + 1);
        BUILDING.with_borrow_mut(|building| building.push((number, Builder::default())));
        Self { number }
    }

    /// The elements of so many tensors.
    pub(super) fn inputs(&self, count: usize) -> SmallVec<[Expr; 8]> {
        (0..count).map(|at| in_building(|builder| builder.input(at))).collect()
    }

    /// The builder with all that was added, and the nodes of these values.
    pub(super) fn end(self, values: &[Expr]) -> (Builder, Vec<Id>) {
        let taken = BUILDING.with_borrow_mut(|building| {
            let place = building.iter().position(|(number, _)| *number == self.number)?;
            building.get_mut(place).map(|(_, builder)| std::mem::take(builder))
        });
        let mut builder = taken.unwrap_or_default();
        if values.iter().any(|value| value.number != self.number) {
            builder.refuse(ExpressionError::Foreign);
        }
        (builder, values.iter().map(|value| value.id).collect())
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        BUILDING.with_borrow_mut(|building| building.retain(|(number, _)| *number != self.number));
    }
}

/// Adds to the innermost function that the thread builds.
fn in_building(add: impl FnOnce(&mut Builder) -> Id) -> Expr {
    BUILDING.with_borrow_mut(|building| match building.last_mut() {
        Some((number, builder)) => Expr::new(*number, add(builder)),
        None => Expr::new(0, 0),
    })
}

/// An element of a tensor, or what is computed of elements, in a function that is being built
/// ([`jit_fn!`](crate::jit_fn!)).
///
/// Values have Rust's operators, also with numbers on either side (an `i64` or `f64` on the left), and the pointwise operations of [`crate::Tensor`] as
/// methods. Each has the dtype that the operation of tensors would have: a comparison is a boolean, a quotient of integers
/// a float. Numbers take part in promotion as they do beside tensors, so `x * 0.5` of 16-bit floats stays one. `%` is
/// [`Self::remainder`], `&`, `|`, `^`, `!`, `<<` and `>>` work on bits and booleans. Rust's comparison operators cannot give
/// symbolic values; comparisons are methods.
///
/// Floats of 8 and 16 bits are computed as `f32` and rounded once, where they are stored; [`Self::to`] rounds in between.
///
/// ```
/// use aten_cuda::expression::Expr;
/// use aten_cuda::{Tensor, jit_fn};
///
/// let smooth = jit_fn!(|x| {
///     let small = x.abs().lt(Expr::parameter("beta", 1.0));
///     small.where_(0.5 * x * x, x.abs() - 0.5)
/// })?;
/// let x = Tensor::from_slice(&[-3.0_f32, 0.5, 2.0], &[3])?;
/// assert_eq!(smooth.one(&[&x])?.to_vec::<f32>()?, [2.5, 0.125, 1.5]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Expr {
    /// The number of the function.
    number: u64,
    id: Id,
    /// A value means something on the thread that builds the function alone.
    here: PhantomData<*const ()>,
}

impl Expr {
    fn new(number: u64, id: Id) -> Self {
        Self { number, id, here: PhantomData }
    }

    /// A number that may change from call to call without a new program. Its kind is that of `default`, which also takes
    /// part in promotion and is what calls have that do not tell. The parameters of a function are in the order in
    /// which they are first named.
    ///
    /// ```
    /// use aten_cuda::expression::Expr;
    /// use aten_cuda::{Tensor, jit_fn};
    ///
    /// let axpy = jit_fn!(|x, y| Expr::parameter("alpha", 1.0) * x + y)?;
    /// let (x, y) = (Tensor::from_slice(&[1.0, 2.0], &[2])?, Tensor::from_slice(&[10.0, 20.0], &[2])?);
    /// assert_eq!(axpy.one(&[&x, &y])?.to_vec::<f64>()?, [11.0, 22.0]);
    /// assert_eq!(axpy.call(&[&x, &y], &[3.0.into()])?[0].to_vec::<f64>()?, [13.0, 26.0]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn parameter(name: &str, default: impl Into<Scalar>) -> Self {
        let default = default.into();
        in_building(|builder| builder.parameter(name, default))
    }

    /// A constant. Operators and methods take numbers as they are; this is for functions of numbers.
    ///
    /// ```
    /// use aten_cuda::expression::Expr;
    /// use aten_cuda::{Tensor, jit_fn};
    ///
    /// let function = jit_fn!(|x| x * Expr::constant(2.0).sqrt())?;
    /// assert_eq!(function.one(&[&Tensor::from_slice(&[1.0], &[1])?])?.to_vec::<f64>()?, [2.0_f64.sqrt()]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn constant(number: impl Into<Scalar>) -> Self {
        let number = Number::from(number.into());
        in_building(|builder| builder.add(Node::Number(number)))
    }

    /// The value in another dtype, rounded to it, as [`crate::Tensor::to_dtype`] makes it; of complex numbers to real ones
    /// their real part. A value that has the dtype already is rounded to it.
    ///
    /// ```
    /// use aten_cuda::{DType, Tensor, jit_fn};
    ///
    /// let function = jit_fn!(|x| x.to(DType::I64) + 0.5)?;
    /// assert_eq!(function.one(&[&Tensor::from_slice(&[1.75], &[1])?])?.to_vec::<f64>()?, [1.5]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn to(self, dtype: DType) -> Self {
        self.with(&[], |ids| Node::Cast(dtype, ids[0]))
    }

    /// The first value where this one is true, which is not zero, else the second (`torch.where`).
    #[must_use]
    pub fn where_(self, yes: impl Into<Self>, no: impl Into<Self>) -> Self {
        self.apply("where", &[yes.into(), no.into()])
    }

    /// From this value to `end` by the part `weight` of the way (`torch.lerp`).
    #[must_use]
    pub fn lerp(self, end: impl Into<Self>, weight: impl Into<Self>) -> Self {
        self.apply("lerp_weights", &[end.into(), weight.into()])
    }

    /// An operation by its name in the table ([`crate::table`]), on this value and others. Operations of the table that
    /// have numbers of their own take them last.
    ///
    /// ```
    /// use aten_cuda::{Tensor, jit_fn};
    ///
    /// let function = jit_fn!(|x, y| x.apply("hypot", &[y]))?;
    /// let (x, y) = (Tensor::from_slice(&[3.0], &[1])?, Tensor::from_slice(&[4.0], &[1])?);
    /// assert_eq!(function.one(&[&x, &y])?.to_vec::<f64>()?, [5.0]);
    /// assert!(jit_fn!(|x| x.apply("no such", &[])).is_err());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn apply(self, operation: &str, others: &[Self]) -> Self {
        let Some(function) = Function::named(operation).filter(|found| found.arguments() == 1 + others.len()) else {
            let reason = "there is no operation of the name and the number of arguments";
            let name = operation.chars().take(100).collect();
            return in_building(|builder| builder.refuse(ExpressionError::Name { name, reason }));
        };
        self.with(others, |ids| Node::Apply(function, ids))
    }

    /// A node of this value and others.
    fn with(self, others: &[Self], node: impl FnOnce(SmallVec<[Id; 3]>) -> Node) -> Self {
        let all = || std::iter::once(self).chain(others.iter().copied());
        BUILDING.with_borrow_mut(|building| match building.last_mut() {
            Some((number, builder)) if all().any(|value| value.number != *number) => {
                Self::new(*number, builder.refuse(ExpressionError::Foreign))
            }
            Some((number, builder)) => Self::new(*number, builder.add(node(all().map(|value| value.id).collect()))),
            None => Self::new(0, 0),
        })
    }
}

/// Numbers are constants where a value is wanted.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Expr {
            fn from(number: $number) -> Self {
                Self::constant(number)
            }
        }
    )*};
}

numbers!(bool i32 i64 f32 f64 Complex64 Scalar);

/// Rust's operators, with numbers on either side. On the left there is one type of integers and one of floats, so that
/// the type of a literal is known.
macro_rules! operators {
    ($($Trait:ident $method:ident $operation:literal,)*) => {$(
        impl<R: Into<Self>> $Trait<R> for Expr {
            type Output = Self;

            fn $method(self, other: R) -> Self {
                self.apply($operation, &[other.into()])
            }
        }

        operators!(@numbers $Trait $method i64 f64);
    )*};
    (@numbers $Trait:ident $method:ident $($number:ty)*) => {$(
        impl $Trait<Expr> for $number {
            type Output = Expr;

            fn $method(self, other: Expr) -> Expr {
                $Trait::$method(Expr::from(self), other)
            }
        }
    )*};
}

operators! {
    Add add "add",
    Sub sub "sub",
    Mul mul "mul",
    Div div "div",
    Rem rem "remainder",
    BitAnd bitand "bitwise_and",
    BitOr bitor "bitwise_or",
    BitXor bitxor "bitwise_xor",
    Shl shl "bitwise_left_shift",
    Shr shr "bitwise_right_shift",
}

impl Neg for Expr {
    type Output = Self;

    fn neg(self) -> Self {
        self.apply("neg", &[])
    }
}

impl Not for Expr {
    type Output = Self;

    fn not(self) -> Self {
        self.apply("bitwise_not", &[])
    }
}

/// The operations of the table as methods, which have their names.
macro_rules! methods {
    ($($name:ident($($other:ident),*);)*) => {
        impl Expr {
            $(
                #[doc = concat!("[`crate::Tensor::", stringify!($name), "`] of the value.")]
                #[must_use]
                pub fn $name(self $(, $other: impl Into<Self>)*) -> Self {
                    self.apply(stringify!($name), &[$($other.into()),*])
                }
            )*
        }
    };
}

methods! {
    abs();
    conj_physical();
    sign();
    signbit();
    square();
    reciprocal();
    sqrt();
    rsqrt();
    floor();
    ceil();
    round();
    trunc();
    frac();
    isnan();
    isinf();
    isfinite();
    exp();
    exp2();
    expm1();
    log();
    log2();
    log10();
    log1p();
    sin();
    cos();
    tan();
    asin();
    acos();
    atan();
    sinh();
    cosh();
    tanh();
    asinh();
    acosh();
    atanh();
    erf();
    erfc();
    erfinv();
    lgamma();
    digamma();
    relu();
    leaky_relu(slope);
    hardtanh(low, high);
    sigmoid();
    logsigmoid();
    gelu();
    gelu_tanh();
    silu();
    mish();
    softplus(beta, threshold);
    add_alpha(other, alpha);
    sub_alpha(other, alpha);
    div_trunc(other);
    floor_divide(other);
    remainder(other);
    fmod(other);
    pow(exponent);
    maximum(other);
    minimum(other);
    fmax(other);
    fmin(other);
    atan2(other);
    hypot(other);
    copysign(other);
    nextafter(other);
    logaddexp(other);
    xlogy(other);
    gcd(other);
    logical_not();
    logical_and(other);
    logical_or(other);
    logical_xor(other);
    eq(other);
    ne(other);
    lt(other);
    le(other);
    gt(other);
    ge(other);
    nan_to_num(nan, positive, negative);
    clamp(low, high);
    addcmul(first, second, value);
    addcdiv(first, second, value);
}

/// What a closure returns: one result or several.
///
/// It is there for a value, for tuples of up to eight, for arrays and for vectors.
///
/// ```
/// use aten_cuda::{Tensor, jit_fn};
///
/// let both = jit_fn!(|x| (x.sin(), x.cos()))?;
/// let [sine, cosine] = both.arrays([&Tensor::from_slice(&[0.0_f32], &[1])?], &[])?;
/// assert_eq!((sine.to_vec::<f32>()?, cosine.to_vec::<f32>()?), (vec![0.0], vec![1.0]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub trait ExprResults {
    /// The results in their order.
    fn results(self) -> Vec<Expr>;
}

impl ExprResults for Expr {
    fn results(self) -> Vec<Expr> {
        vec![self]
    }
}

impl ExprResults for Vec<Expr> {
    fn results(self) -> Self {
        self
    }
}

impl<const COUNT: usize> ExprResults for [Expr; COUNT] {
    fn results(self) -> Vec<Expr> {
        self.to_vec()
    }
}

/// A closure of symbolic values that a function can be built of.
///
/// `Arguments` tells one form from another: a tuple of [`Expr`] for closures of one to eight values, an array for closures of
/// an array of any length. The macro [`jit_fn!`](crate::jit_fn!) writes the types.
///
/// ```
/// use aten_cuda::expression::{Expr, jit_fn};
///
/// let first = jit_fn(|x: Expr, y: Expr| x + y)?;
/// let second = jit_fn(|values: [Expr; 2]| values[0] + values[1])?;
/// assert_eq!(first, second);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub trait ExprFn<Arguments> {
    /// How many tensors the function takes.
    const INPUTS: usize;

    /// Runs the closure, which is given [`Self::INPUTS`] values; further ones are left out, and missing ones give no results.
    fn run(self, inputs: &[Expr]) -> Vec<Expr>;
}

impl<F, R, const COUNT: usize> ExprFn<[Expr; COUNT]> for F
where
    F: FnOnce([Expr; COUNT]) -> R,
    R: ExprResults,
{
    const INPUTS: usize = COUNT;

    fn run(self, inputs: &[Expr]) -> Vec<Expr> {
        inputs.first_chunk::<COUNT>().map_or_else(Vec::new, |&inputs| self(inputs).results())
    }
}

/// A closure's argument, and a result, for each name.
macro_rules! closures {
    ($($name:ident)*) => {
        impl<F, R> ExprFn<($(closures!(@value $name),)*)> for F
        where
            F: FnOnce($(closures!(@value $name)),*) -> R,
            R: ExprResults,
        {
            const INPUTS: usize = [$(stringify!($name)),*].len();

            fn run(self, inputs: &[Expr]) -> Vec<Expr> {
                let [$($name),*, ..] = *inputs else { return Vec::new() };
                self($($name),*).results()
            }
        }

        impl ExprResults for ($(closures!(@value $name),)*) {
            fn results(self) -> Vec<Expr> {
                let ($($name,)*) = self;
                vec![$($name),*]
            }
        }
    };
    (@value $name:ident) => { Expr };
}

closures!(a);
closures!(a b);
closures!(a b c);
closures!(a b c d);
closures!(a b c d e);
closures!(a b c d e f);
closures!(a b c d e f g);
closures!(a b c d e f g h);
