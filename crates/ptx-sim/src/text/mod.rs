//! PTX text: tokens (`lex`), the tree (`syntax`), and how one becomes the other (`parse`).

mod lex;
pub(crate) mod parse;
pub(crate) mod syntax;

pub use parse::Limits;
pub use syntax::Place;
