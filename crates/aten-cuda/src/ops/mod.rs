//! The operations, a folder for each family.
//!
//! - `pointwise`: each element of the result is computed of the elements at its place;
//! - `copy`: fills, copies and conversions;
//! - `factory`: tensors whose elements follow from their places;
//! - `join`: tensors joined, cut up, turned round and repeated;
//! - `index`: elements at places that another tensor tells;
//! - `sort`: orders, the largest elements, values without repetitions;
//! - `reduce`: one result of all elements along dimensions;
//! - `row`: each element of the result depends on the whole row that it lies in;
//! - `scan`: each element of the result depends on those before it.

mod copy;
mod factory;
mod index;
mod join;
mod pointwise;
mod reduce;
mod row;
mod scan;
mod sort;

pub(crate) use copy::preserved_strides;
pub use pointwise::{Operation, table};
pub(crate) use pointwise::{Pair, Participating, is_alike, is_whole, scalar_bits, store};
pub use reduce::{Dim, Operation as Reduction, table as reductions};
pub use row::{CrossEntropy, LossReduction};
pub use scan::table as scans;
