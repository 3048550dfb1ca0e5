//! Who holds memory that a failed request could not get, where memory is in pages that move.
//!
//! **Invariant:** a sentence for a person says no more than the figures beside it.

use std::fmt;

use crate::base::ids::PoolId;
use crate::base::size::Size;

/// A part of the memory that is held in pages, when a request for pages failed. All figures are bytes.
///
/// `Display` is a sentence for a person.
///
/// ```
/// # testkit::make_default(testkit::Config::default().capacity(64 << 20)).unwrap();
/// use c10_core::{DeviceBuffer, Error, MemoryHolder, Runtime};
///
/// Runtime::current().memory().set_settings("backend:elastic")?;
/// let kept = DeviceBuffer::new(40 << 20, None)?;
/// let Err(Error::OutOfMemory(error)) = DeviceBuffer::new(40 << 20, None) else { panic!("the device has 64 MiB") };
/// assert_eq!((error.held[0].holder, error.held[0].in_use), (MemoryHolder::Program, 40 << 20));
/// assert_eq!(error.held[0].to_string(), "The program uses 40.00 MiB of 40.00 MiB.");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldMemory {
    /// Who holds it.
    pub holder: MemoryHolder,
    /// Bytes held from the driver. What is given back and still used by a stream is counted with its pool too.
    pub reserved: u64,
    /// Bytes handed out, or given back and still used.
    pub in_use: u64,
    /// Free bytes in whole pages, which the request could not have.
    pub free: u64,
    /// The most of them that are neighbours.
    pub largest_free_run: u64,
}

/// Who holds a part of the memory.
///
/// ```
/// use c10_core::{MemoryHolder, PoolId};
///
/// assert_eq!(MemoryHolder::Graphs { pool: PoolId(0, 3) }.to_string(), "Graphs of pool (0, 3)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryHolder {
    /// The default pools.
    Program,
    /// A private pool of which a graph or a checkpoint knows addresses.
    Graphs {
        /// Its name.
        pool: PoolId,
    },
    /// Another private pool.
    Pool {
        /// Its name.
        pool: PoolId,
    },
    /// Work on a stream, which may still use memory that was given back.
    Stream {
        /// The stream's handle.
        handle: u64,
    },
}

impl fmt::Display for MemoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("The program"),
            Self::Graphs { pool } => write!(f, "Graphs of pool {pool}"),
            Self::Pool { pool } => write!(f, "Memory pool {pool}"),
            Self::Stream { handle } => write!(f, "Work on stream {handle:#x}"),
        }
    }
}

impl fmt::Display for HeldMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holder, reserved, in_use, free, largest_free_run } = *self;
        match holder {
            MemoryHolder::Program => write!(f, "The program uses {} of {}", Size(in_use), Size(reserved))?,
            MemoryHolder::Graphs { .. } => write!(f, "{holder} keep {}", Size(reserved))?,
            MemoryHolder::Pool { .. } => write!(f, "{holder} keeps {}", Size(reserved))?,
            MemoryHolder::Stream { .. } => {
                return write!(f, "{holder} has to pass before {} that were given back are free.", Size(in_use));
            }
        }
        if !matches!(holder, MemoryHolder::Program) {
            write!(f, ", of which {} are in use", Size(in_use))?;
        }
        if free > 0 {
            write!(f, "; {} are free, at most {} in one run", Size(free), Size(largest_free_run))?;
        }
        f.write_str(".")
    }
}
