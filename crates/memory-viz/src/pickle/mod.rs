//! Python's pickle format, as far as snapshots need it.

pub(crate) mod opcode;
mod read;
mod write;

pub(crate) use read::{is_pickle, read};
pub(crate) use write::Pickler;
