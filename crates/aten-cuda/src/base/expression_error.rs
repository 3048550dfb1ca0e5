//! What can go wrong with functions that are built of expressions, and where in a text.

use std::fmt;

use crate::base::dtype::DType;

/// Why a function of expressions cannot be built, read or called.
///
/// ```
/// use aten_cuda::expression::{ExpressionError, JitFunction};
/// use aten_cuda::{Error, Tensor};
///
/// let function = JitFunction::parse("f(x, y) = x & y")?;
/// let floats = Tensor::from_slice(&[1.0_f32], &[1])?;
/// let Err(Error::Expression(error)) = function.one(&[&floats, &floats]) else { panic!("floats have no bits") };
/// assert!(matches!(*error, ExpressionError::Types { function: "bitwise_and", .. }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// A text is no function.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A function takes no tensor.
    #[error("a function needs at least one tensor")]
    NoInput,
    /// A function takes more tensors than functions can.
    #[error("a function takes up to {limit} tensors, not {found}")]
    TooManyInputs {
        /// The most tensors.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// A function has no result.
    #[error("a function needs at least one result")]
    NoOutput,
    /// A function has more results than functions can have.
    #[error("a function has up to {limit} results, not {found}")]
    TooManyOutputs {
        /// The most results.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// A function has more parameters than functions can have.
    #[error("a function has up to {limit} parameters, not {found}")]
    TooManyParameters {
        /// The most parameters.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// A function is too large.
    #[error("a function has up to {limit} expressions; cut it into several functions")]
    TooManyNodes {
        /// The most expressions.
        limit: usize,
    },
    /// What should be a name is none.
    #[error("`{name}` cannot be a name: {reason}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two parameters of one name have different numbers, or an input has the name.
    #[error("the parameter `{name}` is declared twice, with different numbers")]
    Declared {
        /// The name.
        name: String,
    },
    /// An expression is used outside of the function that it was made for.
    #[error("an expression was used outside of the function that it was made for")]
    Foreign,
    /// A function is called with another number of tensors.
    #[error("{function}() takes {expected} tensors, not {found}")]
    InputCount {
        /// The function's name.
        function: String,
        /// How many it takes.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A function is called with more numbers than it has parameters.
    #[error("{function}() has {expected} parameters, not {found}")]
    ParameterCount {
        /// The function's name.
        function: String,
        /// How many it has.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A function has no parameter of this name.
    #[error("{name} is not declared in {function}(), whose parameters are {known:?}")]
    UnknownParameter {
        /// The function's name.
        function: String,
        /// The name that was given.
        name: String,
        /// The names of the parameters.
        known: Vec<String>,
    },
    /// A number does not fit the kind of the parameter.
    #[error("the parameter `{name}` of {function}() was declared as {expected}, and a {found} does not fit")]
    ParameterKind {
        /// The function's name.
        function: String,
        /// The name of the parameter.
        name: String,
        /// The kind of the default.
        expected: &'static str,
        /// The kind of what was given.
        found: &'static str,
    },
    /// A function has another number of results than the caller wants.
    #[error("{function}() has {found} results, not {expected}")]
    OutputCount {
        /// The function's name.
        function: String,
        /// How many the caller wants.
        expected: usize,
        /// How many it has.
        found: usize,
    },
    /// An operation is not there for the dtypes that reach it.
    #[error("{function} of {dtypes:?}: {reason}")]
    Types {
        /// The operation.
        function: &'static str,
        /// The dtypes of its operands.
        dtypes: Vec<DType>,
        /// What is wrong, in torch's words.
        reason: String,
    },
    /// An operation wants a number where there is something that depends on the tensors.
    #[error("{function} wants a number or a parameter as argument {argument}")]
    NotANumber {
        /// The operation.
        function: &'static str,
        /// The argument, counted from 1.
        argument: usize,
    },
    /// A result is complex, and the tensors are not.
    #[error(
        "result {output} is complex and the common dtype of the tensors is {common}: cast it to a real dtype or give \
         complex tensors"
    )]
    ComplexResult {
        /// The result, counted from 1.
        output: usize,
        /// The dtype that results have.
        common: DType,
    },
}

/// Where a text stops being a function, and why. As text it shows the line with a mark below the place.
///
/// ```
/// use aten_cuda::expression::{ParseErrorKind, parse_error};
///
/// let error = parse_error("f(x) = x +* 2").unwrap();
/// assert_eq!((error.line, error.column), (1, 11));
/// assert_eq!(error.to_string(), "expected an expression, found `*` at line 1, column 11\nf(x) = x +* 2\n          ^");
/// assert!(matches!(error.kind, ParseErrorKind::Expected { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong.
    pub kind: ParseErrorKind,
    /// The place in the text, in bytes.
    pub position: usize,
    /// The line, counted from 1.
    pub line: usize,
    /// The place in the line in characters, counted from 1.
    pub column: usize,
    /// The line itself, as far as it is shown.
    pub source: String,
    /// Characters that the mark stands behind, of those that are shown.
    pub(crate) indent: usize,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The text is longer than texts may be.
    #[error("the text has {found} bytes, and may have {limit}")]
    TooLong {
        /// The most bytes.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// Something else should stand here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What should stand here.
        expected: &'static str,
        /// What does.
        found: String,
    },
    /// A character that no function has.
    #[error("`{0}` has no meaning here")]
    Character(char),
    /// A number that does not fit its kind.
    #[error("`{0}` is no number, or too large for one")]
    Number(String),
    /// A name that stands for nothing.
    #[error("`{0}` is neither an input, nor a parameter, nor bound by `let`")]
    UnknownName(String),
    /// A name of no operation.
    #[error("there is no operation `{0}`")]
    UnknownFunction(String),
    /// A name that is taken.
    #[error("the name `{0}` is taken")]
    Taken(String),
    /// An operation has another number of arguments.
    #[error("{function} takes {expected} arguments, not {found}")]
    Arguments {
        /// The operation.
        function: String,
        /// How many it takes.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// There are too many brackets and signs inside one another.
    #[error("expressions stand more than {limit} deep in one another: bind some with `let`")]
    Nesting {
        /// How deep they may stand.
        limit: usize,
    },
    /// An input comes after a parameter.
    #[error("`{0}` has no number, and stands behind a parameter: tensors come first")]
    InputAfterParameter(String),
    /// What is read is no function for a reason that has no place of its own.
    #[error("{0}")]
    Function(String),
}

/// The most characters of a line that are shown.
const SHOWN: usize = 100;

impl ParseError {
    pub(crate) fn new(text: &str, position: usize, kind: ParseErrorKind) -> Self {
        let position = text.floor_char_boundary(position.min(text.len()));
        let start = text[..position].rfind('\n').map_or(0, |at| at + 1);
        let before = text[start..position].chars().count();
        let cut = before.saturating_sub(SHOWN / 2);
        let source = text[start..].lines().next().unwrap_or_default().chars().skip(cut).take(SHOWN);
        let source = source.map(|character| if character.is_control() { ' ' } else { character }).collect();
        let line = 1 + text[..start].matches('\n').count();
        Self { kind, position, line, column: before + 1, source, indent: before - cut }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, line, column, source, indent, .. } = self;
        write!(f, "{kind} at line {line}, column {column}\n{source}\n{:indent$}^", "")
    }
}

impl std::error::Error for ParseError {}
