//! Launches of programs and reductions that are worked out once and repeated over other memory.
//!
//! **Invariants:** a prepared launch is for operands that lie as those it was prepared with: the same sizes and strides, and
//! beginnings that are at the same places within 16 bytes. Whoever repeats it answers for that.
#![expect(unsafe_code, reason = "launches of kernels that are generated for their operands")]

use std::ops::Range;

use c10_core::{DeviceBuffer, Kernel, LaunchConfig, MemoryAccess, PreparedLaunch, Runtime};
use smallvec::SmallVec;

use super::Part;
use super::device::access;
use crate::base::error::Result;

/// Whether a launch is prepared to be repeated once it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// It is made once.
    Nothing,
    /// It is repeated.
    Launch,
}

/// As many buffers as a launch is repeated with without memory of its own.
const FEW_BUFFERS: usize = 7;

/// The most buffers that a launch is prepared with.
const MOST_BUFFERS: usize = 256;

/// A launch that needs nothing but the memory of its operands.
#[derive(Debug)]
pub(crate) struct Prepared {
    launch: PreparedLaunch,
    grid: u32,
    words: Vec<u64>,
    /// For each buffer the operand, outputs first, and the bytes of its memory.
    ranges: SmallVec<[(usize, Range<usize>); FEW_BUFFERS]>,
}

impl Prepared {
    /// Prepares a launch of a kernel over parts of operands, results first; `None` for launches that are not of one row of
    /// blocks, or have too many operands.
    pub(super) fn new(
        kernel: &Kernel,
        config: &LaunchConfig,
        (parts, outputs): (&[Part<'_>], usize),
        numbers: &[u8],
    ) -> Result<Option<Box<Self>>> {
        let is_row = config.grid[1..] == [1, 1] && config.shared_bytes == 0;
        if !is_row || parts.len() > MOST_BUFFERS || !numbers.len().is_multiple_of(8) {
            return Ok(None);
        }
        let words: Vec<u64> =
            numbers.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default())).collect();
        let accesses: SmallVec<[MemoryAccess; FEW_BUFFERS]> =
            (0..parts.len()).map(|part| access(part, outputs)).collect();
        let launch = kernel.prepare(config.block, parts.len(), words.len())?.accessing(&accesses);
        let ranges = parts.iter().map(|part| {
            let end = part.tensor.byte_offset() + part.tensor.byte_extent();
            (part.operand, part.offset.min(end)..end)
        });
        Ok(Some(Box::new(Self { launch, grid: config.grid[0], words, ranges: ranges.collect() })))
    }

    /// Whether it is of this runtime.
    pub(crate) fn is_of(&self, runtime: &Runtime) -> bool {
        self.launch.is_of(runtime)
    }

    /// Launches on the current stream of the operands' device. Each operand lies in its memory as it did in that which the
    /// launch was prepared with. `false` where an operand has no memory: nothing was done then.
    pub(crate) fn run<'a>(
        &self,
        runtime: &Runtime,
        memory: impl Fn(usize) -> Option<&'a DeviceBuffer>,
    ) -> Result<bool> {
        let mut parts: SmallVec<[(&DeviceBuffer, Range<usize>); FEW_BUFFERS]> = SmallVec::new();
        for (operand, range) in &self.ranges {
            let Some(buffer) = memory(*operand) else { return Ok(false) };
            parts.push((buffer, range.clone()));
        }
        // SAFETY: the kernel was written for operands with these sizes and strides, whose elements lie in these ranges. The
        // launch refuses ranges that are not inside the buffers.
        unsafe { self.launch.launch(runtime, self.grid, &parts, &self.words)? };
        Ok(true)
    }
}
