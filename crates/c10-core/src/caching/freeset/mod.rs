//! The free blocks of a shard: exact best fit by size and address.

mod bins;
mod tree;

pub(crate) use bins::Bins;
