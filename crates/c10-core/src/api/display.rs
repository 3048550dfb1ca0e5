//! How figures, snapshots and checkpoints of the caching allocator are printed: one line for each value.
//!
//! **Invariant:** the texts are for people. Programs read the fields, or the figures by their names (`figures`).

use std::fmt;

use crate::base::device::Device;
use crate::base::ids::PoolId;
use crate::base::size::Size;
use crate::base::stat::Stat;
use crate::caching::{
    BlockCheckpoint, BlockInfo, BlockState, DeviceStats, PoolCheckpoint, RestoreResult, SegmentCheckpoint, SegmentInfo,
    SegmentType, StatByPool,
};

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let (small, large) = (DeviceBuffer::new(1000, None)?, DeviceBuffer::new(2 << 20, None)?);
/// let blocks = Runtime::current().memory().stats(0)?.allocation;
/// assert_eq!(blocks.all.current, blocks.small_pool.current + blocks.large_pool.current);
/// assert_eq!(blocks.to_string(), "2 (small pool 1, large pool 1)");
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for StatByPool {
    /// The present figure and its parts: `3 (small pool 2, large pool 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (small, large) = (self.small_pool.current, self.large_pool.current);
        write!(f, "{} (small pool {small}, large pool {large})", self.all.current)
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let buffer = DeviceBuffer::new(2000, None)?;
/// let stats = Runtime::current().memory().stats(0)?;
/// assert_eq!(stats.reserved_bytes.all.current, 2 << 20);
/// assert!(stats.to_string().starts_with("2.00 KiB allocated in 1 blocks (peak 2.00 KiB), 2.00 MiB reserved in 1 segments"));
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for DeviceStats {
    /// One line: what is handed out and held, each with its peak, how often memory ran short, and what was done with pages
    /// where there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, what: &str, bytes: &Stat, in_what: &str, count: &Stat| {
            let (now, peak) = (Size::of(bytes.current), Size::of(bytes.peak));
            write!(f, "{now} {what} in {} {in_what} (peak {peak})", count.current)
        };
        part(f, "allocated", &self.allocated_bytes.all, "blocks", &self.allocation.all)?;
        f.write_str(", ")?;
        part(f, "reserved", &self.reserved_bytes.all, "segments", &self.segment.all)?;
        write!(f, ", {} retries, {} out of memory", self.num_alloc_retries, self.num_ooms)?;
        if !self.has_pages {
            return Ok(());
        }
        let [made, moved] = [self.page_bytes_made, self.page_bytes_moved].map(Size);
        write!(f, ", {} pages made ({made}), {} moved ({moved}), ", self.pages_made, self.pages_moved)?;
        write!(f, "{} driver calls for pages", self.page_calls)
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{BlockState, DeviceBuffer, Runtime};
///
/// let buffer = DeviceBuffer::new(2000, None)?;
/// let blocks = &Runtime::current().memory().snapshot(None)[0].blocks;
/// assert_eq!((blocks[0].state, blocks[1].state), (BlockState::ActiveAllocated, BlockState::Inactive));
/// assert_eq!(blocks[0].state.to_string(), "active_allocated");
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for BlockState {
    /// The name that torch's snapshots use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, SegmentType};
///
/// let buffer = DeviceBuffer::new(2000, None)?;
/// let kind = Runtime::current().memory().snapshot(None)[0].segment_type;
/// assert_eq!((kind, kind.to_string()), (SegmentType::Small, "small".to_owned()));
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for SegmentType {
    /// The name that torch's snapshots use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let buffer = DeviceBuffer::new(2000, None)?;
/// let block = Runtime::current().memory().snapshot(None)[0].blocks[0];
/// assert_eq!((block.address, block.size, block.requested_size), (buffer.address(), 2048, 2000));
/// assert_eq!(block.to_string(), format!("2.00 KiB at {:#x}, active_allocated", block.address));
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for BlockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}, {}", Size(self.size), self.address, self.state)
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let buffer = DeviceBuffer::new(2000, None)?;
/// let segment = &Runtime::current().memory().snapshot(None)[0];
/// assert_eq!((segment.total_size, segment.allocated_size, segment.blocks.len()), (2 << 20, 2048, 2));
/// assert!(segment.to_string().ends_with("on cuda:0, 2.00 KiB in use, 2 blocks"));
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for SegmentInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_expandable { "expandable segment" } else { "segment" };
        write!(f, "{} {kind} of {} at {:#x} ", self.segment_type, Size(self.total_size), self.address)?;
        write!(f, "on {}, {} in use, ", Device::cuda(self.device), Size(self.active_size))?;
        write!(f, "{} blocks", self.blocks.len())?;
        if self.pool == PoolId(0, 0) { Ok(()) } else { write!(f, ", pool {}", self.pool) }
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, MemPool, MemPoolOptions, Runtime};
///
/// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
/// let buffer = runtime.mem_pools().with(&pool, 0, || DeviceBuffer::new(2000, None))?;
/// let checkpoint = runtime.mem_pools().checkpoint(0, pool.id())?;
///
/// assert_eq!((checkpoint.device(), checkpoint.pool()), (0, pool.id()));
/// assert!(checkpoint.to_string().ends_with("on cuda:0: 1 segments"));
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for PoolCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, segments) = (Device::cuda(self.device()), self.segments().len());
        write!(f, "checkpoint of pool {} on {device}: {segments} segments", self.pool())
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, MemPool, MemPoolOptions, Runtime};
///
/// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
/// let buffer = runtime.mem_pools().with(&pool, 0, || DeviceBuffer::new(2000, None))?;
/// let checkpoint = runtime.mem_pools().checkpoint(0, pool.id())?;
///
/// let segment = &checkpoint.segments()[0];
/// assert_eq!((segment.stream, segment.blocks.len()), (0, 2));
/// assert_eq!(segment.to_string(), "small segment of 2 blocks");
/// # Ok::<(), c10_core::Error>(())
/// ```
impl fmt::Display for SegmentCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_expandable { "expandable segment" } else { "segment" };
        write!(f, "{} {kind} of {} blocks", self.segment_type, self.blocks.len())
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, MemPool, MemPoolOptions, Runtime};
///
/// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
/// let buffer = runtime.mem_pools().with(&pool, 0, || DeviceBuffer::new(2000, None))?;
/// let checkpoint = runtime.mem_pools().checkpoint(0, pool.id())?;
///
/// let block = &checkpoint.segments()[0].blocks[0];
/// assert!(block.allocated && block.mapped && block.address == buffer.address());
/// assert_eq!(block.to_string(), format!("2.00 KiB at {:#x}, allocated", buffer.address()));
/// # Ok::<(), c10_core::Error>(())
/// ```
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

/// ```
/// use c10_core::RestoreResult;
///
/// let nothing = RestoreResult::default();
/// assert_eq!(nothing.to_string(), "0 blocks taken back, 0 handed out");
/// ```
impl fmt::Display for RestoreResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks taken back, {} handed out", self.allocations_freed.len(), self.allocations_created.len())
    }
}
