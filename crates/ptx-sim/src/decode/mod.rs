//! From the tree to the program: names, types and instructions.

pub(crate) mod instruction;
pub(crate) mod names;
