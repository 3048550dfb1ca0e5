//! How much of the process' heap the allocator's books take: a count of its own process.
//!
//! The process counts every byte it holds, starts the runtime, and then takes blocks. What it holds more afterwards is
//! the books' part of those blocks. The driver is a library with its own allocator; that it is not counted is checked.

use std::hint::black_box;
use std::process::Command;

use c10_core::Runtime;

use crate::alloc::work::DEVICE;
use crate::heap;
use crate::random::{Random, SIZES};
use crate::raw::{Failure, Raw};

/// The words after the program's name that start the counting process.
pub(crate) const WORDS: [&str; 2] = ["alloc", "--host-memory"];

/// Blocks that are live when the heap is looked at.
pub(crate) const LIVE: usize = 10_000;

/// Bytes that the books may take for each live block...
pub(crate) const LIMIT: f64 = 128.0;

/// ...beside one for this many bytes held from the driver.
const RESERVED_SHARE: f64 = 2048.0;

/// Calls to the driver that must leave the heap as it is.
const DRIVER_CALLS: usize = 64;

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostMemory {
    /// Bytes of the heap that the blocks brought.
    pub(crate) heap_bytes: i64,
    /// Bytes held from the driver for them.
    pub(crate) reserved_bytes: i64,
    /// Bytes of the heap that calls of the driver brought; anything but 0 spoils the rest.
    pub(crate) driver_bytes: i64,
}

impl HostMemory {
    /// Bytes for each live block.
    #[must_use]
    pub(crate) fn per_block(&self) -> f64 {
        self.heap_bytes as f64 / LIVE as f64
    }

    /// Bytes for each live block, less what the held memory allows.
    #[must_use]
    pub(crate) fn per_block_less_share(&self) -> f64 {
        (self.heap_bytes as f64 - self.reserved_bytes as f64 / RESERVED_SHARE) / LIVE as f64
    }

    /// Counts in a process of its own.
    ///
    /// # Errors
    /// The process cannot start, or says why it failed.
    pub(crate) fn measure() -> Result<Self, Failure> {
        let output = Command::new(std::env::current_exe()?).args(WORDS).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let complaint = || format!("counting the heap failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        Self::parse(&text).ok_or_else(|| complaint().into())
    }

    fn parse(text: &str) -> Option<Self> {
        let figures = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<i64>>>()?;
        let [heap_bytes, reserved_bytes, driver_bytes] = figures.try_into().ok()?;
        Some(Self { heap_bytes, reserved_bytes, driver_bytes })
    }

    /// Counts in this process, which has done nothing yet; the three figures as text.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn count() -> Result<String, Failure> {
        heap::count();
        let raw = Raw::new()?;
        let before = heap::bytes();
        (0..DRIVER_CALLS).try_for_each(|_| raw.mem_alloc(1 << 20))?;
        let driver_bytes = heap::bytes() - before;

        let runtime = Runtime::default_runtime();
        let stream = runtime.streams().pooled(DEVICE, 0)?;
        let sizes = Random::new(1).sizes();
        let mut blocks = Vec::with_capacity(LIVE);
        runtime.memory().free(runtime.memory().alloc(sizes[0], &stream)?)?;
        let (before, held_before) = (heap::bytes(), reserved(&runtime)?);
        for index in 0..LIVE {
            blocks.push(runtime.memory().alloc(sizes[index % SIZES], &stream)?);
        }
        let heap_bytes = heap::bytes() - before;
        let reserved_bytes = reserved(&runtime)? - held_before;
        black_box(blocks);
        Ok(format!("{heap_bytes} {reserved_bytes} {driver_bytes}"))
    }
}

fn reserved(runtime: &Runtime) -> Result<i64, Failure> {
    Ok(runtime.memory().stats(DEVICE)?.reserved_bytes.all.current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_memory_is_allowed_its_share() {
        let counted = HostMemory { heap_bytes: 10_000 * 100 + 512, reserved_bytes: 2048 * 512, driver_bytes: 0 };
        assert_eq!(counted.per_block_less_share(), 100.0);
        assert_eq!(HostMemory { reserved_bytes: 0, ..counted }.per_block(), 100.0512);
    }

    #[test]
    fn three_figures_are_read_and_nothing_else() {
        let counted = HostMemory { heap_bytes: 5, reserved_bytes: 6, driver_bytes: -7 };
        assert_eq!(HostMemory::parse("5 6 -7\n"), Some(counted));
        for text in ["", "1 2", "1 2 3 4", "1 2 x"] {
            assert_eq!(HostMemory::parse(text), None, "{text}");
        }
    }
}
