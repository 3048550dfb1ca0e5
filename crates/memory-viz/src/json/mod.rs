//! Snapshots as JSON text: the same keys as in a pickle, tuples as lists.

mod read;
mod write;

pub(crate) use read::read;
pub(crate) use write::{JsonWriter, quote};
