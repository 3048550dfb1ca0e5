//! Functions of the user's own: expressions of elements that become one kernel.
//!
//! [`jit_fn!`](crate::jit_fn!) builds a [`JitFunction`] of a closure, [`JitFunction::parse`] of a text. It is what torch's
//! jiterator is for, without C++ and without a compiler but the driver's: a function of up to eight tensors with up to eight
//! results is written as one kernel for the dtypes that it is called with. The rules are the jiterator's. Tensors broadcast
//! and are converted to their common dtype as they are loaded; floats of 8 and 16 bits are computed as `f32`; results have
//! the common dtype; parameters may change from call to call without a new kernel. Unlike torch's it takes complex numbers,
//! and tensors on the host, where it is a loop.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use aten_cuda::expression::JitFunction;
//! use aten_cuda::{Tensor, jit_fn};
//!
//! let function = jit_fn!(|x, y| x * y + x)?;
//! let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[3])?.cuda(None)?;
//! let y = Tensor::from_slice(&[10.0_f32], &[1])?.cuda(None)?;
//! assert_eq!(function.one(&[&x, &y])?.to_vec::<f32>()?, [11.0, 22.0, 33.0]);
//!
//! let parsed = JitFunction::parse("f(x, y, alpha=1.0) = x * y + alpha * x")?;
//! assert_eq!(parsed.call(&[&x, &y], &[2.0.into()])?[0].to_vec::<f32>()?, [12.0, 24.0, 36.0]);
//! assert_eq!(function.to_string(), "f(x, y) = x * y + x");
//! # Ok::<(), aten_cuda::Error>(())
//! ```
//!
//! # Texts
//! ```text
//! function   = name "(" name {"," name} {"," name "=" ["-"] number} ")" "=" body
//! body       = {"let" name "=" expression ";"} expression {"," expression}
//! expression = expression operator expression | ("-" | "+" | "~" | "not") expression
//!            | name | number | (operation | dtype) "(" expression {"," expression} ")" | "(" expression ")"
//! ```
//!
//! From the loosest to the closest operators are `or`; `and`; `not`; the comparisons `==` `!=` `<` `<=` `>` `>=`, of which
//! one stands alone; `|`; `^`; `&`; `<<` `>>`; `+` `-`; `*` `/` `//` `%`; the signs; `**`, which goes from right to left and
//! takes a sign on its right. They are those of Python, with torch's meanings. Integers, floats (`1.0`, `1e-3`, `inf`,
//! `nan`), `true`, `false`, imaginary numbers (`2j`) and `complex(1.0, 2.0)` are numbers. Operations have the names of
//! [`crate::table`], `true_divide` that of `div`; dtypes are `bool`, `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32`,
//! `f64`, `c32`, `c64`, `c128`, `f8e4m3fn` and `f8e5m2`. What stands between `#` and the end of a line is left out. A text has
//! up to 64 KiB, expressions stand up to 100 deep in one another, and a function has up to [`MOST_NODES`] of them, counting
//! equal ones once.
//!
//! # The code
//! Reading order: this file ([`JitFunction`]), `definition` (what a function computes), `value` (building by closures),
//! `text` (functions as text), `program` (from a definition and dtypes to a program), `call` (from tensors to a launch).

mod call;
mod definition;
mod program;
mod text;
mod value;

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::{Arc, PoisonError};

pub use crate::base::expression_error::{ExpressionError, ParseError, ParseErrorKind};
pub use definition::{MOST_NODES, MOST_PARAMETERS, MOST_TENSORS};
pub use text::MOST_TEXT;
pub use value::{Expr, ExprFn, ExprResults};

pub(crate) use call::{Made, Wholes};
pub(crate) use program::Compiled;

use definition::{Definition, check_name, kind};
use value::Building;

use crate::base::dtype::DType;
use crate::base::dtype_key::packed_all;
use crate::base::error::{Error, Result};
use crate::base::promotion::Participants;
use crate::base::scalar::Scalar;
use crate::tensor::Tensor;
use c10_core::locks::RwLock;

/// A function of tensors that is one kernel for all its results.
///
/// This is a handle: clones share what was built. A program is made for each combination of dtypes when it is first
/// called with them, and a kernel for each device and layout as operations have them. Two functions are equal if they
/// have the same name and signature and compute the same in the same way. The text of a function
/// ([`Display`](fmt::Display)) is read as an equal one.
///
/// ```
/// use aten_cuda::expression::JitFunction;
/// use aten_cuda::{Tensor, jit_fn};
///
/// let function = jit_fn!(|x, y| (x + y, x - y))?.named("both")?;
/// assert_eq!(function.to_string(), "both(x, y) = x + y, x - y");
/// assert_eq!(JitFunction::parse("both(x, y) = x + y, x - y")?, function);
///
/// let (x, y) = (Tensor::from_slice(&[5_i64, 6], &[2])?, Tensor::from_slice(&[1_i64], &[1])?);
/// let results = function.call(&[&x, &y], &[])?;
/// assert_eq!(results[0].to_vec::<i64>()?, [6, 7]);
/// assert_eq!(results[1].to_vec::<i64>()?, [4, 5]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone)]
pub struct JitFunction {
    shared: Arc<Shared>,
}

struct Shared {
    definition: Definition,
    /// By the dtypes of the tensors and the common one.
    compiled: RwLock<HashMap<u128, Arc<Compiled>>>,
    /// The kernels of calls of whole tensors.
    whole: Wholes,
}

/// Builds a function of a closure of symbolic values ([`Expr`]), which is run once.
///
/// The closure takes one value for each tensor and returns one result, a tuple, an array or a vector of results. Its
/// arguments need types here; the macro [`jit_fn!`](crate::jit_fn!) writes them. The function is named `f`
/// ([`JitFunction::named`]), its tensors `x`, `y`, `z`, `w`, `a`, `b`, `c` and `d`.
///
/// ```
/// use aten_cuda::Tensor;
/// use aten_cuda::expression::{Expr, jit_fn};
///
/// let function = jit_fn(|x: Expr| 1.0 / (1.0 + (-x).exp()))?;
/// assert_eq!(function.one(&[&Tensor::from_slice(&[0.0], &[1])?])?.to_vec::<f64>()?, [0.5]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// [`ExpressionError`]: there are no or too many tensors, results, parameters or expressions, a parameter is declared twice
/// with different numbers, or an expression of another function is used.
pub fn jit_fn<Arguments>(f: impl ExprFn<Arguments>) -> Result<JitFunction> {
    build(f).map_err(Into::into)
}

fn build<F: ExprFn<Arguments>, Arguments>(f: F) -> std::result::Result<JitFunction, ExpressionError> {
    let building = Building::begin();
    let inputs = building.inputs(F::INPUTS);
    let results = f.run(&inputs);
    let (builder, outputs) = building.end(&results);
    let names = ["x", "y", "z", "w", "a", "b", "c", "d"].into_iter().map(str::to_owned);
    let spare = (0..).map(|number| format!("x{number}"));
    let names = names.chain(spare).filter(|name| !builder.declares(name)).take(F::INPUTS);
    let names = names.collect();
    Ok(JitFunction::of(builder.finish("f", names, &outputs)?))
}

/// Builds a function of a closure of symbolic values, whose types it writes: [`expression::jit_fn`](crate::expression::jit_fn)
/// without types.
///
/// ```
/// use aten_cuda::{Tensor, jit_fn};
///
/// let hinge = jit_fn!(|x, y| (1.0 - x * y).maximum(0.0))?;
/// let x = Tensor::from_slice(&[0.25_f32, 2.0], &[2])?;
/// assert_eq!(hinge.one(&[&x, &x.sign()?])?.to_vec::<f32>()?, [0.75, 0.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[macro_export]
macro_rules! jit_fn {
    (|$($argument:ident),+ $(,)?| $body:expr) => {
        $crate::expression::jit_fn(|$($argument: $crate::expression::Expr),+| $body)
    };
    (move |$($argument:ident),+ $(,)?| $body:expr) => {
        $crate::expression::jit_fn(move |$($argument: $crate::expression::Expr),+| $body)
    };
}

/// Why a text is no function; `None` where it is one.
///
/// ```
/// assert_eq!(aten_cuda::expression::parse_error("f(x) = x"), None);
/// ```
#[must_use]
pub fn parse_error(text: &str) -> Option<ParseError> {
    text::parse(text).err()
}

impl JitFunction {
    fn of(definition: Definition) -> Self {
        let shared = Shared { definition, compiled: RwLock::default(), whole: Wholes::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Reads a function: its name, its tensors and parameters with their defaults, and its results.
    ///
    /// Operators are Python's, with torch's meanings: `+ - * / // % **`, the comparisons, `& | ^ ~ << >>` on bits and
    /// booleans, `and or not` on truth. Operations have the names of [`crate::table`], with their own numbers last, and a
    /// dtype's name casts: `f32(x)`. `let` binds what is used several times. A text may have 64 KiB.
    ///
    /// ```
    /// use aten_cuda::Tensor;
    /// use aten_cuda::expression::JitFunction;
    ///
    /// let swiglu = JitFunction::parse(
    ///     "swiglu(gate, up, limit=7.0) =
    ///          let low = minimum(gate, limit);  # as some models clamp it
    ///          low / (1.0 + exp(-low)) * clamp(up, -limit, limit)",
    /// )?;
    /// let zero = Tensor::from_slice(&[0.0_f32], &[1])?;
    /// assert_eq!(swiglu.one(&[&zero, &zero])?.to_vec::<f32>()?, [0.0]);
    ///
    /// let error = JitFunction::parse("f(x) = sinn(x)").unwrap_err();
    /// assert_eq!(error.to_string(), "there is no operation `sinn` at line 1, column 8\nf(x) = sinn(x)\n       ^");
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ExpressionError::Parse`]: what is wrong and where.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self::of(text::parse(text).map_err(ExpressionError::from)?))
    }

    /// The same function under another name, which its kernels have with `jit_` before it.
    ///
    /// ```
    /// let function = aten_cuda::jit_fn!(|x| x + 1)?.named("next")?;
    /// assert_eq!(function.name(), "next");
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// The name is empty, longer than 64 bytes, a word that texts have, or has something else than letters, digits and
    /// underscores.
    pub fn named(&self, name: &str) -> Result<Self> {
        check_name(name)?;
        Ok(Self::of(Definition { name: name.to_owned(), ..self.shared.definition.clone() }))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.definition.name
    }

    /// How many tensors it takes.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.shared.definition.inputs.len()
    }

    /// How many results it has.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.shared.definition.outputs.len()
    }

    /// The parameters in their order, with their defaults.
    ///
    /// ```
    /// use aten_cuda::Scalar;
    /// use aten_cuda::expression::JitFunction;
    ///
    /// let function = JitFunction::parse("f(x, alpha=1.5, n=2) = alpha * x ** n")?;
    /// let parameters: Vec<(&str, Scalar)> = function.parameters().collect();
    /// assert_eq!(parameters, [("alpha", Scalar::Float(1.5)), ("n", Scalar::Int(2))]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    pub fn parameters(&self) -> impl Iterator<Item = (&str, Scalar)> {
        self.shared.definition.parameters.iter().map(|known| (known.name.as_str(), known.default.scalar()))
    }

    /// The dtype of the results for tensors with dimensions of these dtypes, after checking that the function is there for
    /// them. The program is built and kept.
    ///
    /// ```
    /// use aten_cuda::DType;
    /// use aten_cuda::expression::JitFunction;
    ///
    /// let function = JitFunction::parse("f(x, y) = x << y")?;
    /// assert_eq!(function.result_dtype(&[DType::I8, DType::I32])?, DType::I32);
    /// assert!(function.result_dtype(&[DType::F32, DType::I32]).is_err());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// There are too few or too many dtypes, they have none in common, or an operation is not there for what reaches it.
    pub fn result_dtype(&self, dtypes: &[DType]) -> Result<DType> {
        self.check_inputs(dtypes.len())?;
        let mut participants = Participants::default();
        dtypes.iter().try_for_each(|&dtype| participants.tensor(dtype, 1))?;
        let common = participants.result()?;
        self.compiled(dtypes, common)?;
        Ok(common)
    }

    /// Queues one kernel for all results on the current stream of the tensors' device, and returns the results in new
    /// memory before it is done. On the host the results are there on return.
    ///
    /// `parameters` are numbers for the first parameters; the others are their defaults. An integer or boolean may stand for
    /// a float parameter, and so on upwards, never the other way round. The results have the sizes that the tensors
    /// broadcast to and their common dtype. Without elements nothing is launched.
    ///
    /// # Errors
    /// There is another number of tensors, or there are too many or other numbers; the sizes do not broadcast; the tensors are
    /// on several devices, where a host tensor is never taken for a number; the dtypes have none in common, or an operation is
    /// not there for them; there is not enough memory, or the device failed.
    pub fn call(&self, tensors: &[&Tensor], parameters: &[Scalar]) -> Result<Vec<Tensor>> {
        Ok(self.run(tensors, parameters)?.into_vec())
    }

    /// [`Self::call`] with parameters by name.
    ///
    /// ```
    /// use aten_cuda::Tensor;
    /// use aten_cuda::expression::JitFunction;
    ///
    /// let function = JitFunction::parse("f(x, alpha=1.0, beta=0.0) = alpha * x + beta")?;
    /// let x = Tensor::from_slice(&[1.0_f32, 2.0], &[2])?;
    /// let made = function.call_named(&[&x], &[("beta", 5.0.into())])?;
    /// assert_eq!(made[0].to_vec::<f32>()?, [6.0, 7.0]);
    /// assert!(function.call_named(&[&x], &[("gamma", 5.0.into())]).is_err());
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::call`], or there is no parameter of a name.
    pub fn call_named(&self, tensors: &[&Tensor], parameters: &[(&str, Scalar)]) -> Result<Vec<Tensor>> {
        let mut all: Vec<Scalar> = self.parameters().map(|(_, default)| default).collect();
        for &(name, number) in parameters {
            let Some(at) = self.parameters().position(|(known, _)| known == name) else {
                let known = self.parameters().map(|(known, _)| known.to_owned()).collect();
                let name = name.to_owned();
                return Err(ExpressionError::UnknownParameter { function: self.name().to_owned(), name, known }.into());
            };
            all[at] = number;
        }
        self.call(tensors, &all)
    }

    /// [`Self::call`] of a function with one result, with the defaults of the parameters.
    ///
    /// ```
    /// use aten_cuda::{Tensor, jit_fn};
    ///
    /// let square = jit_fn!(|x| x * x)?;
    /// assert_eq!(square.one(&[&Tensor::from_slice(&[3_i32], &[1])?])?.to_vec::<i32>()?, [9]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::call`], or there are several results.
    pub fn one(&self, tensors: &[&Tensor]) -> Result<Tensor> {
        self.one_with(tensors, &[])
    }

    /// [`Self::call`] of a function with one result.
    ///
    /// # Errors
    /// As for [`Self::call`], or there are several results.
    pub fn one_with(&self, tensors: &[&Tensor], parameters: &[Scalar]) -> Result<Tensor> {
        let found = self.outputs();
        if found != 1 {
            let function = self.name().to_owned();
            return Err(ExpressionError::OutputCount { function, expected: 1, found }.into());
        }
        let made = self.run(tensors, parameters)?.into_iter().next();
        made.ok_or_else(|| ExpressionError::NoOutput.into())
    }

    /// [`Self::call`] with arrays, whose lengths the compiler knows.
    ///
    /// ```
    /// use aten_cuda::{Tensor, jit_fn};
    ///
    /// let polar = jit_fn!(|x, y| (x.hypot(y), y.atan2(x)))?;
    /// let (x, y) = (Tensor::from_slice(&[3.0], &[1])?, Tensor::from_slice(&[4.0], &[1])?);
    /// let [radius, _angle] = polar.arrays([&x, &y], &[])?;
    /// assert_eq!(radius.to_vec::<f64>()?, [5.0]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::call`], or there are not as many results.
    pub fn arrays<const INPUTS: usize, const OUTPUTS: usize>(
        &self,
        tensors: [&Tensor; INPUTS],
        parameters: &[Scalar],
    ) -> Result<[Tensor; OUTPUTS]> {
        let wrong = |found| ExpressionError::OutputCount { function: self.name().to_owned(), expected: OUTPUTS, found };
        if self.outputs() != OUTPUTS {
            return Err(wrong(self.outputs()).into());
        }
        self.call(&tensors, parameters)?.try_into().map_err(|made: Vec<Tensor>| wrong(made.len()).into())
    }

    fn check_inputs(&self, found: usize) -> Result<()> {
        let expected = self.inputs();
        if found == expected {
            return Ok(());
        }
        Err(ExpressionError::InputCount { function: self.name().to_owned(), expected, found }.into())
    }

    /// A number as a parameter takes it.
    fn fitting(&self, at: usize, number: Scalar) -> Result<Scalar> {
        let known = &self.shared.definition.parameters[at];
        let default = known.default.scalar();
        Ok(match (default, number) {
            (Scalar::Bool(_), Scalar::Bool(_))
            | (Scalar::Int(_), Scalar::Int(_) | Scalar::Bool(_))
            | (Scalar::Float(_), Scalar::Float(_) | Scalar::Int(_) | Scalar::Bool(_))
            | (Scalar::Complex(_), _) => number,
            (expected, found) => {
                let (function, name) = (self.name().to_owned(), known.name.clone());
                let (expected, found) = (kind(expected), kind(found));
                return Err(ExpressionError::ParameterKind { function, name, expected, found }.into());
            }
        })
    }

    /// The function for tensors of these dtypes, which is built once.
    fn compiled(&self, dtypes: &[DType], common: DType) -> Result<Arc<Compiled>> {
        let key = packed_all(common, dtypes);
        let compiled = &self.shared.compiled;
        if let Some(known) = compiled.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(Compiled::new(&self.shared.definition, dtypes, common)?);
        let mut compiled = compiled.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(compiled.entry(key).or_insert(made)))
    }
}

impl FromStr for JitFunction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for JitFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.definition.fmt(f)
    }
}

impl fmt::Debug for JitFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JitFunction({})", self.shared.definition)
    }
}

impl PartialEq for JitFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) || self.shared.definition == other.shared.definition
    }
}

impl Eq for JitFunction {}

impl Hash for JitFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shared.definition.hash(state);
    }
}
