//! Functions as text, for configuration files: `axpy(x, y, alpha=1.0) = alpha * x + y`.
//!
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
//! `nan`), `true`, `false`, imaginary numbers (`2j`) and `complex(1.0, 2.0)` are numbers. What stands between `#` and the end
//! of a line is left out.
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
