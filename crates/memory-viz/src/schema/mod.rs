//! The keys of a snapshot file, and which field each is.

mod key;
mod read;
mod write;

pub(crate) use key::Key;
pub(crate) use read::snapshot;
pub(crate) use write::{Sink, emit};
