//! The cached memory of one device: what a hit and a free need.
//!
//! Reading order: `cache` ([`DeviceCache`] and what devices share), `hit`, `free`, `cross_stream` (blocks that other
//! streams use), `planned` (requests that a plan serves), `all_shards` (figures, peaks and what is done under all locks), `leases` (room below a peak that passes
//! from one shard to another), `on_miss` (who is asked to give memory back).
//!
//! **Invariant:** the driver is called with the lock of `pending` held at most, never with a shard's.

mod all_shards;
mod cache;
mod cross_stream;
mod free;
mod hit;
mod leases;
mod on_miss;
mod planned;

pub(crate) use all_shards::{AllShards, count_segment};
pub(crate) use cache::{DeviceCache, Shared};
pub(crate) use free::FreeOfLast;
pub(crate) use hit::Hit;
pub(crate) use planned::ByPlan;
