//! The operations, a folder for each family.
//!
//! - `pointwise`: each element of the result is computed of the elements at its place;
//! - `copy`: fills, copies and conversions;
//! - `factory`: tensors whose elements follow from their places;
//! - `join`: tensors joined, cut up, turned round and repeated;
//! - `index`: elements at places that another tensor tells;
//! - `sort`: orders, the largest elements, values without repetitions;
//! - `linalg`: products of matrices and vectors.

mod copy;
mod factory;
mod index;
mod join;
mod linalg;
mod pointwise;
mod sort;

pub use pointwise::{Operation, table};
