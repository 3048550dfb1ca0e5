//! Functions as text, for configuration files: `axpy(x, y, alpha=1.0) = alpha * x + y`.
//! The grammar is in the module above.
//!
//! **Invariants:** reading is bounded in length, nesting and size, and never panics. What is written for a function is read as
//! an equal function.

mod lex;
mod parse;
mod print;

pub(super) use parse::parse;

/// The most bytes of a text.
pub const MOST_TEXT: usize = 1 << 16;

/// How deep expressions may stand in one another.
const MOST_NESTING: usize = 100;
