//! How many blocks of a kernel run at once, and which size of block fills a multiprocessor.

use cuda_sys::driver::types::{CUfunc_st, CUlaunchConfig, CUoccupancyB2DSize};

use super::launch::asks_for_clusters;
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_CLUSTER_SIZE, INVALID_VALUE};
use crate::model::modules::Described;
use crate::model::occupancy::{Demand, MULTIPROCESSORS, WARP};

/// `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`, the only flag; caches do not change the answers of this device.
const FLAGS_MAX: u32 = 1;

/// A size of blocks that a program gives.
fn threads_of(block_size: i32) -> Answer<u32> {
    u32::try_from(block_size).ok().filter(|&threads| threads > 0).ok_or(INVALID_VALUE)
}

pub(crate) fn active_blocks(
    call: &mut Call<'_>,
    blocks: Ptr<i32>,
    function: Ptr<CUfunc_st>,
    block_size: i32,
    dynamic_shared: usize,
) -> Answer {
    active_blocks_with_flags(call, blocks, function, block_size, dynamic_shared, 0)
}

pub(crate) fn active_blocks_with_flags(
    call: &mut Call<'_>,
    blocks: Ptr<i32>,
    function: Ptr<CUfunc_st>,
    block_size: i32,
    dynamic_shared: usize,
    flags: u32,
) -> Answer {
    blocks.required()?;
    let described = call.described_function(function)?;
    let threads = threads_of(block_size)?;
    if flags > FLAGS_MAX {
        return Err(INVALID_VALUE);
    }
    blocks.write(i32::try_from(blocks_at_once(&described, threads, dynamic_shared)).unwrap_or(i32::MAX))
}

fn blocks_at_once(described: &Described, threads: u32, dynamic_shared: usize) -> u32 {
    described.demand(threads, dynamic_shared as u64).blocks()
}

pub(crate) fn block_size(
    call: &mut Call<'_>,
    least_grid: Ptr<i32>,
    block_size: Ptr<i32>,
    function: Ptr<CUfunc_st>,
    shared_of: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: i32,
) -> Answer {
    block_size_with_flags(call, least_grid, block_size, function, shared_of, dynamic_shared, limit, 0)
}

/// The size of blocks with which most threads run at once, the largest of several, and how many blocks fill the device.
#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn block_size_with_flags(
    call: &mut Call<'_>,
    least_grid: Ptr<i32>,
    block_size: Ptr<i32>,
    function: Ptr<CUfunc_st>,
    shared_of: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: i32,
    flags: u32,
) -> Answer {
    least_grid.required()?;
    block_size.required()?;
    let described = call.described_function(function)?;
    let limit = u32::try_from(limit).map_err(|_| INVALID_VALUE)?;
    if flags > FLAGS_MAX {
        return Err(INVALID_VALUE);
    }
    let most = described.kernel.max_threads.min(if limit == 0 { u32::MAX } else { limit });
    let (mut best, mut blocks, mut running) = (0, 0, 0);
    for aligned in (1..=most.div_ceil(WARP)).rev().map(|warps| warps * WARP) {
        let threads = aligned.min(most);
        let shared = call.shared_for_block(shared_of, threads).unwrap_or(dynamic_shared);
        let found = blocks_at_once(&described, threads, shared);
        if found * threads > running {
            (best, blocks, running) = (threads, found, found * threads);
        }
    }
    least_grid.write(i32::try_from(blocks * MULTIPROCESSORS).unwrap_or(i32::MAX))?;
    block_size.write(i32::try_from(best).unwrap_or(i32::MAX))
}

pub(crate) fn available_shared(
    call: &mut Call<'_>,
    bytes: Ptr<usize>,
    function: Ptr<CUfunc_st>,
    blocks: i32,
    block_size: i32,
) -> Answer {
    bytes.required()?;
    let described = call.described_function(function)?;
    let threads = threads_of(block_size)?;
    let blocks = u32::try_from(blocks).map_err(|_| INVALID_VALUE)?;
    let demand: Demand<'_> = described.demand(threads, 0);
    let found = demand.shared_for(blocks).ok_or(INVALID_VALUE)?;
    bytes.write(usize::try_from(found).unwrap_or(usize::MAX))
}

/// Clusters are of one block: what the device says that it does not have more of.
pub(crate) fn cluster_size(
    call: &mut Call<'_>,
    size: Ptr<i32>,
    function: Ptr<CUfunc_st>,
    config: Ptr<CUlaunchConfig>,
) -> Answer {
    size.required()?;
    let blocks = blocks_on_device(call, function, &config.read()?)?;
    size.write(i32::from(blocks > 0))
}

pub(crate) fn active_clusters(
    call: &mut Call<'_>,
    clusters: Ptr<i32>,
    function: Ptr<CUfunc_st>,
    config: Ptr<CUlaunchConfig>,
) -> Answer {
    clusters.required()?;
    let config = config.read()?;
    let blocks = blocks_on_device(call, function, &config)?;
    if asks_for_clusters(&config)? != Some(1) {
        return Err(INVALID_CLUSTER_SIZE);
    }
    clusters.write(i32::try_from(blocks).unwrap_or(i32::MAX))
}

/// How many blocks of a launch run on the device at once.
fn blocks_on_device(call: &Call<'_>, function: Ptr<CUfunc_st>, config: &CUlaunchConfig) -> Answer<u32> {
    let described = call.described_function(function)?;
    let axes = [config.blockDimX, config.blockDimY, config.blockDimZ];
    let threads = axes.into_iter().fold(1_u32, u32::saturating_mul);
    let dynamic_shared = usize::try_from(config.sharedMemBytes).unwrap_or(usize::MAX);
    Ok(blocks_at_once(&described, threads, dynamic_shared) * MULTIPROCESSORS)
}
