//! From an address to its block without a lock, and blocks that other threads give back.

mod flags;
mod pages;
mod slot;

pub(crate) use flags::RemoteFreeFlags;
pub(crate) use pages::{Pages, Place, ShardId};
pub(crate) use slot::{RemoteCursor, RemoteFrees};
