//! From an address to its block without a lock, and blocks that other threads give back.

mod messages;
mod pages;
mod slot;

pub(crate) use messages::MessageBits;
pub(crate) use pages::{Pages, Place, ShardId};
pub(crate) use slot::{Followed, Returned};
