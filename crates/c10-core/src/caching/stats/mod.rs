//! The figures of the allocator.

mod device_stats;
mod ledger;
mod nested;

#[cfg(test)]
pub(crate) use device_stats::FAMILIES;
pub use device_stats::{DeviceStats, StatByPool};
pub(crate) use ledger::{BYTES, COUNT, Change, LANES, Ledger, REQUESTED, SCOPES, SPLIT, SPLIT_BYTES, scope};
