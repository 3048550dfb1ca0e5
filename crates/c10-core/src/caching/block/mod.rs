//! Blocks: how requests are rounded, what a block is, and which streams use it.

mod descriptor;
mod owner;
mod size_class;
mod uses;

pub(crate) use descriptor::{Block, BlockId, Blocks, Index, NONE, State};
pub(crate) use owner::{Asked, Claim, Owner};
pub(crate) use size_class::{
    ELASTIC_PAGE, MIN_BLOCK_SIZE, ROUND_LARGE, Rules, SIZE_LIMIT, SMALL_SIZE, SizeClass, max_split_size, page_size,
    round_plainly, round_size, segment_size, size_class,
};
pub(crate) use uses::{StreamUse, UseLists};
