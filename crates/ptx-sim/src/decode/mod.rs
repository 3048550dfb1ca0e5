//! From the tree to the program: names, types and instructions.
//!
//! Reading order: `module` (the whole way), `link` (what names mean across texts), `usage` (the names that functions
//! use), `shape` and `image` (variables), `reach` (calls and shared memory), `function` (a body), `call` (calls),
//! `names` (what a function sees).

mod call;
mod function;
mod image;
pub(crate) mod instruction;
mod label;
mod link;
mod locals;
mod module;
pub(crate) mod names;
mod reach;
mod shape;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use reach::reachable;
