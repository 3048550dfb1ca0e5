//! The memory of one stream and pool behind one lock.

mod newest;
mod state;
mod streams;

#[cfg(test)]
pub(crate) use newest::Stage;
pub(crate) use state::{Apart, Key, Shard, ShardState, Taking, signed};
pub(crate) use streams::StreamTable;
