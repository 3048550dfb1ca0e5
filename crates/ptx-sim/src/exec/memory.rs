//! What a kernel reaches beside its own memory, and how a launch can fail.

use std::cell::Cell;
use std::fmt;

use super::core::FindingKind;
use crate::program::Source;

/// Why a launch ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no memory at an address, or it may not be written.
    Address,
    /// An address is no multiple of what is read or written there.
    Misaligned,
    /// A thread, or all of them together, took too many steps.
    Steps,
    /// Threads wait for each other for ever.
    Hang,
    /// A `trap` instruction.
    Trap,
    /// A failed assertion.
    Assert,
    /// Calls went deeper than the stack is large.
    Stack,
    /// A call of an address that is no function's.
    Call,
    /// Memory of the device's heap was given back that nobody has.
    Free,
}

/// Where in a launch something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The instruction.
    pub source: Source,
    /// Number of the block in the grid.
    pub block: u64,
    /// Number of the thread in its block.
    pub thread: u32,
    /// The address that was accessed; 0 where none was.
    pub address: u64,
}

/// Why a launch ended early, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub fault: Fault,
    /// Where.
    pub at: Site,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "accesses an address where there is no memory for it",
            Self::Misaligned => "accesses an address that is no multiple of the size",
            Self::Steps => "takes more steps than it may",
            Self::Hang => "waits for threads that never come",
            Self::Trap => "executes a trap",
            Self::Assert => "fails an assertion",
            Self::Stack => "needs more stack than there is",
            Self::Call => "calls an address that is no function's",
            Self::Free => "frees memory that malloc did not give, or that was freed already",
        })
    }
}

/// A stretch of memory that may be read, and written where it says so, without asking again while the launch runs.
#[derive(Clone, Copy)]
pub struct Window<'m> {
    /// Address of the first byte.
    pub base: u64,
    /// The bytes.
    pub bytes: &'m [Cell<u8>],
    /// Whether they may be written.
    pub writable: bool,
    /// A bit for each byte, the lowest first: whether somebody has written it. None where nobody knows, and nothing is
    /// looked for.
    pub written: Option<&'m [Cell<u8>]>,
    /// Whether host threads or other processes may change the bytes concurrently; atomic instructions then use
    /// [`Memory::exchange`].
    pub is_shared: bool,
}

impl fmt::Debug for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.base, self.bytes.len())
    }
}

/// What is wrong with an access that was let pass, as [`Memory`] knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is.
    pub kind: FindingKind,
    /// The same in words, which follow the place: "reads 4 bytes ...".
    pub text: String,
}

/// What a kernel can reach beside its shared and local memory.
pub trait Memory<'m> {
    /// The window that an address is in; none where each access has to be asked for.
    fn window(&mut self, address: u64) -> Option<Window<'m>>;

    /// Reads 1, 2, 4 or 8 bytes that are in no window.
    ///
    /// # Errors
    /// [`Fault::Address`].
    fn load(&mut self, address: u64, bytes: u64) -> Result<u64, Fault>;

    /// Writes 1, 2, 4 or 8 bytes that are in no window.
    ///
    /// # Errors
    /// [`Fault::Address`].
    fn store(&mut self, address: u64, bytes: u64, value: u64) -> Result<(), Fault>;

    /// Writes 1, 2, 4 or 8 bytes if they equal `expected`, atomically if others may change them, and returns the
    /// previous bytes.
    ///
    /// # Errors
    /// [`Fault::Address`].
    fn exchange(&mut self, address: u64, bytes: u64, expected: u64, new: u64) -> Result<u64, Fault> {
        let found = self.load(address, bytes)?;
        if found == expected {
            self.store(address, bytes, new)?;
        }
        Ok(found)
    }

    /// What was wrong with the last [`Memory::load`] or [`Memory::store`], if anything; asked once after each.
    fn noticed(&mut self) -> Option<Notice> {
        None
    }

    /// Sets the condition of a conditional node.
    ///
    /// # Errors
    /// [`Fault::Address`] for a handle of no condition.
    fn set_condition(&mut self, handle: u64, value: u64) -> Result<(), Fault>;

    /// Takes what a kernel prints.
    fn print(&mut self, text: &str);

    /// Takes what the device tells of a failed assertion.
    fn print_error(&mut self, text: &str);

    /// Memory of the device's heap for `malloc`; 0 where none is left.
    fn allocate(&mut self, bytes: u64) -> u64;

    /// Gives it back.
    ///
    /// # Errors
    /// [`Fault::Free`] for an address that was not allocated.
    fn free(&mut self, address: u64) -> Result<(), Fault>;
}
