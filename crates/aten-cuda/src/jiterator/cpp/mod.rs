//! Texts of CUDA C++ that need no compiler: they are translated to programs of `kernel_ir`.
//!
//! Most elementwise functions are a few lines of arithmetic: variables, assignments, `if`, `return`, operators, casts, calls
//! of the mathematical functions, and helpers before the function. Those are run once on symbolic values, and what they
//! compute becomes the program. The rules are C++'s: literals without suffix are `double`, small integers are promoted to
//! `int`, integers are divided towards zero; a product that is added to something becomes one `fma`, as NVRTC has it by
//! default.
//!
//! **Invariants:** only what a compiler accepts is translated, with the meaning that it has there; of functions that are not
//! called the form alone is looked at. Anything else is [`Untranslated`], and left to NVRTC, which also says what is wrong
//! with a text that is wrong.
//!
//! Reading order: `tree` (what a text is made of), `lex` and `parse` (from the text to that), `arithmetic` and `library`
//! (rules for numbers, and functions), `run` (a function on symbolic values).

mod arithmetic;
mod lex;
mod library;
mod parse;
mod run;
mod tree;

use std::fmt;

pub(super) use parse::parse;
pub(super) use run::{Arguments, translate};
pub(super) use tree::Function;

/// Why a text is left to NVRTC, and the line where that was seen.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, jiterator::create_jit_fn};
///
/// let code = "template <typename T> T f(T x) {\n  while (x > T(1)) x = x / T(2);\n  return x;\n}";
/// // SAFETY: the function touches nothing but its arguments, and ends.
/// let function = unsafe { create_jit_fn(code, &[]) }?;
/// let reason = function.untranslated(&[DType::F32], &[])?.unwrap();
/// assert_eq!(reason.to_string(), "line 2: `while`");
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untranslated {
    /// The line, counted from 1.
    pub line: usize,
    /// What is not translated.
    pub what: String,
}

impl fmt::Display for Untranslated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

type Result<T> = std::result::Result<T, Untranslated>;

/// The text is left to NVRTC.
fn leave<T>(line: usize, what: impl Into<String>) -> Result<T> {
    Err(Untranslated { line, what: what.into() })
}
