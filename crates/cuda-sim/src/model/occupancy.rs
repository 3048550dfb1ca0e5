//! How many blocks of a kernel a multiprocessor runs at once, by the limits of compute capability 9.0.
//!
//! Threads, shared memory and blocks are counted as hardware counts them. Registers are an estimate, as no compiler has
//! given any out ([`Kernel::register_count`]).

use super::kernel::{Kernel, REGISTERS};

/// Multiprocessors of a device.
pub(crate) const MULTIPROCESSORS: u32 = 132;

/// Threads of a warp, which get their registers together.
pub(crate) const WARP: u32 = 32;

/// Warps and blocks of a multiprocessor.
const WARPS: u32 = 64;
const BLOCKS: u32 = 32;

/// The parts of a multiprocessor, which have registers and warps of their own.
const PARTS: u32 = 4;

/// Registers that a warp gets at a time.
const REGISTER_UNIT: u32 = 256;

/// Shared memory of a multiprocessor, what each block has of it for the system, and how much is given out at a time.
const SHARED_BYTES: u64 = 228 << 10;
const SHARED_RESERVED: u64 = 1 << 10;
const SHARED_UNIT: u64 = 128;

/// What blocks of a launch ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'k> {
    pub(crate) kernel: &'k Kernel,
    /// The most bytes of shared memory that a launch may ask for.
    pub(crate) dynamic_shared_max: u32,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Bytes of shared memory that the launch asks for.
    pub(crate) dynamic_shared: u64,
}

impl Demand<'_> {
    /// Blocks that run at once on a multiprocessor; none where the kernel cannot be launched so.
    pub(crate) fn blocks(&self) -> u32 {
        let fits = (1..=self.kernel.max_threads).contains(&self.threads)
            && self.dynamic_shared <= u64::from(self.dynamic_shared_max);
        if !fits {
            return 0;
        }
        let warps = self.threads.div_ceil(WARP);
        let by_shared = SHARED_BYTES / self.shared().next_multiple_of(SHARED_UNIT);
        let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
        (WARPS / warps).min(self.warps_by_registers() / warps).min(by_shared).min(BLOCKS)
    }

    /// Shared memory of a block, with that of the system.
    fn shared(&self) -> u64 {
        self.kernel.shared_bytes + self.dynamic_shared + SHARED_RESERVED
    }

    fn warps_by_registers(&self) -> u32 {
        let of_a_warp = (self.kernel.register_count() * WARP).next_multiple_of(REGISTER_UNIT);
        REGISTERS / PARTS / of_a_warp * PARTS
    }

    /// Bytes of shared memory that each of `blocks` blocks can ask for; none where so many do not run at once.
    pub(crate) fn shared_for(&self, blocks: u32) -> Option<u64> {
        if blocks == 0 || (Demand { dynamic_shared: 0, ..*self }).blocks() < blocks {
            return None;
        }
        let of_each = SHARED_BYTES / u64::from(blocks) / SHARED_UNIT * SHARED_UNIT;
        let left = of_each.saturating_sub(self.kernel.shared_bytes + SHARED_RESERVED);
        Some(left.min(u64::from(self.dynamic_shared_max)))
    }
}
