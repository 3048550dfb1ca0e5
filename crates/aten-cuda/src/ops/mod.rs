//! The operations, a folder for each family.
//!
//! - `pointwise`: each element of the result is computed of the elements at its place;
//! - `copy`: fills, copies and conversions;
//! - `linalg`: products of matrices and vectors.

mod copy;
mod linalg;
mod pointwise;

pub use pointwise::{Operation, table};
