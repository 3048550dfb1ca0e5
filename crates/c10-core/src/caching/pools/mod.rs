//! Pools, where their segments come from, and blocks that wait for streams.

mod pending;
mod private_pool;
mod reuse;
mod source;
mod stock;
mod table;

pub(crate) use pending::{Pending, Waiter, Waiting};
pub(crate) use private_pool::{Filter, PoolOptions, Predicate, PrivatePool, Request, Scope, route};
pub(crate) use source::{FromDriver, SegmentSource, Source, new_segment};
pub(crate) use stock::{Left, Stock};
pub(crate) use table::{Pool, PoolIndex, Pools};
