//! How figures, snapshots and checkpoints of the caching allocator are printed: one line for each value.
//!
//! **Invariant:** the texts are for people. Programs read the fields, or the figures by their names (`figures`).

use std::fmt;

use crate::base::device::Device;
use crate::base::ids::PoolId;
use crate::base::size::Size;
use crate::base::stat::Stat;
use crate::caching::{
    BlockCheckpoint, BlockInfo, BlockState, DeviceStats, PoolCheckpoint, SegmentCheckpoint, SegmentInfo, SegmentType,
    StatByPool,
};

impl fmt::Display for StatByPool {
    /// The present figure and its parts: `3 (small pool 2, large pool 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (small, large) = (self.small_pool.current, self.large_pool.current);
        write!(f, "{} (small pool {small}, large pool {large})", self.all.current)
    }
}

impl fmt::Display for DeviceStats {
    /// One line: what is handed out and held, each with its peak, and how often memory ran short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, what: &str, bytes: &Stat, in_what: &str, count: &Stat| {
            let (now, peak) = (Size::of(bytes.current), Size::of(bytes.peak));
            write!(f, "{now} {what} in {} {in_what} (peak {peak})", count.current)
        };
        part(f, "allocated", &self.allocated_bytes.all, "blocks", &self.allocation.all)?;
        f.write_str(", ")?;
        part(f, "reserved", &self.reserved_bytes.all, "segments", &self.segment.all)?;
        write!(f, ", {} retries, {} out of memory", self.num_alloc_retries, self.num_ooms)
    }
}

impl fmt::Display for BlockState {
    /// The name that torch's snapshots use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for SegmentType {
    /// The name that torch's snapshots use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for BlockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}, {}", Size(self.size), self.address, self.state)
    }
}

impl fmt::Display for SegmentInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_expandable { "expandable segment" } else { "segment" };
        write!(f, "{} {kind} of {} at {:#x} ", self.segment_type, Size(self.total_size), self.address)?;
        write!(f, "on {}, {} in use, ", Device::cuda(self.device), Size(self.active_size))?;
        write!(f, "{} blocks", self.blocks.len())?;
        if self.pool == PoolId(0, 0) { Ok(()) } else { write!(f, ", pool {}", self.pool) }
    }
}

impl fmt::Display for PoolCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, segments) = (Device::cuda(self.device()), self.segments().len());
        write!(f, "checkpoint of pool {} on {device}: {segments} segments", self.pool())
    }
}

impl fmt::Display for SegmentCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_expandable { "expandable segment" } else { "segment" };
        write!(f, "{} {kind} of {} blocks", self.segment_type, self.blocks.len())
    }
}

impl fmt::Display for BlockCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.mapped, self.allocated) {
            (false, _) => "unmapped",
            (true, true) => "allocated",
            (true, false) => "free",
        };
        write!(f, "{} at {:#x}, {state}", Size(self.size), self.address)
    }
}
