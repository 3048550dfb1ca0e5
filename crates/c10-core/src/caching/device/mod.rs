//! One device: serving a request from the cache and taking a block back.

mod elsewhere;
mod exclusive;
mod hit;
mod lending;

pub(crate) use exclusive::Exclusive;
pub(crate) use hit::{Device, Search, Shared, Undoing};
