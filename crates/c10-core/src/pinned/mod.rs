//! The caching allocator of pinned host memory.
//!
//! # Map, in reading order
//! - `stats`: the figures, under torch's names.
//! - `cache`: the allocator, written against the driver's traits `EventQuery` and `HostDriver`.
//! - `class`: free blocks by size, and the counts that are changed with them. `blocks`: all blocks by number. `books`:
//!   what memory there is, by address. `reserve`: the segment of `pinned_reserve_segment_size_mb`.
//! - `source`: memory that the program brings.
//! - `waiting`: blocks that streams still use. `background`: the thread of `pinned_use_background_threads`.
//!
//! # Where it differs from PyTorch 2.11
//! - Statistics are exact; `stats` says what PyTorch's are.
//! - Each stream has its own queue of events, so that a stream that is behind keeps no memory of others; PyTorch has
//!   one queue for all.
//! - During a capture memory comes from the same cache. A block that a captured copy uses is kept by its graph until the
//!   graph's replays are over, and by the memory pool of the capture as long as anybody uses that pool. A block that a
//!   capture took and did not use serves again at once. PyTorch has private pools of pinned memory for this.
//! - Blocks of the reserved segment stay in the cache when that is emptied. Where the driver has no memory left, what
//!   is cached goes back and the driver is asked once more.
//!
//! **Invariants:** an asynchronous copy notes its stream on the block before it is queued, or, if it is captured, makes
//! the graph an owner of the block. Dropping a buffer waits for nothing.

mod background;
mod blocks;
mod books;
mod cache;
mod class;
mod relaxed;
mod reserve;
mod source;
mod stats;
mod waiting;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub(crate) use blocks::{Block, BlockId};
pub(crate) use cache::{PinnedCache, Released};
pub use source::{HostMemorySource, HostPages};
pub use stats::{DurationStat, HostStats};
