//! Launches of programs and reductions that are worked out once and repeated over other memory.
//!
//! **Invariants:** a prepared launch is for operands that lie as those it was prepared with: the same sizes and strides, and
//! beginnings that are at the same places within 16 bytes. Whoever repeats it answers for that. Launches that go together
//! are queued one after another on one stream, and what one leaves for the next lies in memory that is asked for anew.
#![expect(unsafe_code, reason = "launches of kernels that are generated for their operands")]

use std::ops::Range;

use c10_core::{Device, DeviceBuffer, Kernel, LaunchConfig, MemoryAccess, PreparedLaunch, Runtime};
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

/// Launches that need nothing but the memory of their operands.
#[derive(Debug)]
pub(crate) struct Prepared {
    first: One,
    /// Those behind it.
    more: Vec<One>,
    /// Memory between the launches, and its device.
    scratch: Option<(usize, Device)>,
}

/// A launch.
#[derive(Debug)]
struct One {
    launch: PreparedLaunch,
    grid: u32,
    words: Vec<u64>,
    /// For each buffer whose memory it is, and the bytes of that.
    ranges: SmallVec<[(Whose, Range<usize>); FEW_BUFFERS]>,
}

/// Whose memory a buffer of a launch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// That of an operand, outputs first.
    Operand(usize),
    /// What lies between the launches.
    Scratch,
}

impl Prepared {
    /// Prepares a launch of a kernel over parts of operands, results first; `None` where a block uses shared memory that the
    /// kernel does not declare, or there are too many operands.
    pub(super) fn new(
        kernel: &Kernel,
        config: &LaunchConfig,
        (parts, outputs): (&[Part<'_>], usize),
        numbers: &[u8],
    ) -> Result<Option<Box<Self>>> {
        let [grid, rows, deep] = config.grid;
        if deep != 1 || parts.len() > MOST_BUFFERS || config.shared_bytes != 0 || !numbers.len().is_multiple_of(8) {
            return Ok(None);
        }
        let words: Vec<u64> =
            numbers.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default())).collect();
        let accesses: SmallVec<[MemoryAccess; FEW_BUFFERS]> =
            (0..parts.len()).map(|part| access(part, outputs)).collect();
        let launch = kernel.prepare(config.block, parts.len(), words.len())?.over_rows(rows)?.accessing(&accesses);
        let ranges = parts.iter().map(|part| {
            let end = part.tensor.byte_offset() + part.tensor.byte_extent();
            (Whose::Operand(part.operand), part.offset.min(end)..end)
        });
        let ranges = ranges.collect();
        Ok(Some(Box::new(Self { first: One { launch, grid, words, ranges }, more: Vec::new(), scratch: None })))
    }

    /// The same over other memory: `whose` tells it for each buffer of the first launch.
    pub(super) fn over(mut self: Box<Self>, whose: impl Fn(usize) -> Whose) -> Box<Self> {
        self.first.ranges.iter_mut().enumerate().for_each(|(buffer, range)| range.0 = whose(buffer));
        self
    }

    /// These launches, and others behind them. What lies between them has so many bytes on a device.
    pub(super) fn then(mut self: Box<Self>, next: Self, scratch: (usize, Device)) -> Box<Self> {
        self.more.push(next.first);
        self.more.extend(next.more);
        self.scratch = Some(scratch);
        self
    }

    /// How many launches there are.
    pub(crate) fn len(&self) -> usize {
        1 + self.more.len()
    }

    fn launches(&self) -> impl Iterator<Item = &One> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Whether they are of this runtime; all of them are of one.
    pub(crate) fn is_of(&self, runtime: &Runtime) -> bool {
        self.first.launch.is_of(runtime)
    }

    /// Launches on the current stream of the operands' device. Each operand lies in its memory as it did in that which the
    /// launches were prepared with. `false` where an operand has no memory: nothing was done then.
    pub(crate) fn run<'a>(
        &self,
        runtime: &Runtime,
        memory: impl Fn(usize) -> Option<&'a DeviceBuffer>,
    ) -> Result<bool> {
        let Some((bytes, device)) = self.scratch else {
            return self.first.run(runtime, memory, None);
        };
        let has_memory = |whose: Whose| match whose {
            Whose::Operand(operand) => memory(operand).is_some(),
            Whose::Scratch => true,
        };
        if !self.launches().flat_map(|one| &one.ranges).all(|(whose, _)| has_memory(*whose)) {
            return Ok(false);
        }
        let scratch = DeviceBuffer::new(bytes, device)?;
        self.launches().try_fold(true, |_, one| one.run(runtime, &memory, Some(&scratch)))
    }
}

impl One {
    #[inline]
    fn run<'a: 'b, 'b>(
        &self,
        runtime: &Runtime,
        memory: impl Fn(usize) -> Option<&'a DeviceBuffer>,
        scratch: Option<&'b DeviceBuffer>,
    ) -> Result<bool> {
        let mut parts: SmallVec<[(&DeviceBuffer, Range<usize>); FEW_BUFFERS]> = SmallVec::new();
        for (whose, range) in &self.ranges {
            let buffer = match whose {
                Whose::Operand(operand) => memory(*operand),
                Whose::Scratch => scratch,
            };
            let Some(buffer) = buffer else { return Ok(false) };
            parts.push((buffer, range.clone()));
        }
        // SAFETY: the kernel was written for operands with these sizes and strides, whose elements lie in these ranges. The
        // launch refuses ranges that are not inside the buffers.
        unsafe { self.launch.launch(runtime, self.grid, &parts, &self.words)? };
        Ok(true)
    }
}
