//! What is rare: growing, giving back, checkpoints, snapshots, and checking the books.

mod capturing;
mod checkpoint;
mod expandable;
mod growth;
mod reclaim;
mod snapshot;
mod stale;
mod validity;

pub use checkpoint::{BlockCheckpoint, PoolCheckpoint, RestoreResult, SegmentCheckpoint};
pub(crate) use growth::Cold;
pub use snapshot::{BlockInfo, BlockState, SegmentInfo, SegmentType};
