//! PTX text: tokens (`lex`), the tree (`syntax`), and how one becomes the other (`parse`).

pub(crate) mod syntax;

pub use syntax::Place;
