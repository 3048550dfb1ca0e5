//! The operations, a folder for each family.
//!
//! - `pointwise`: each element of the result is computed of the elements at its place;
//! - `copy`: fills, copies and conversions.

mod copy;
mod pointwise;

pub use pointwise::{Operation, table};
