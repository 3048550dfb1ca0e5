//! What can be wrong with a file, and where.

use std::io;
use std::path::PathBuf;

/// Why a snapshot could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened, read, or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried: `read`, `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The bytes are not a pickle that can be read.
    #[error("not a snapshot that can be read: {fault} (byte {offset} of the pickle)")]
    Pickle {
        /// How many bytes lie before the instruction at fault.
        offset: usize,
        /// What is wrong with it.
        fault: PickleFault,
    },
    /// The bytes are not JSON.
    #[error("not a snapshot that can be read: {fault} (byte {offset} of the JSON text)")]
    Json {
        /// How many bytes lie before the fault.
        offset: usize,
        /// What is wrong there.
        fault: &'static str,
    },
    /// The file is well formed but does not hold what a snapshot holds.
    #[error("not a memory snapshot: {path} should be {expected}, found {found}")]
    Shape {
        /// Which value, such as `segments[].blocks[].size`.
        path: &'static str,
        /// What a snapshot has there.
        expected: &'static str,
        /// What the file has there.
        found: &'static str,
    },
    /// The file is larger than the reader was told to accept.
    #[error("the snapshot has more than {limit} {what}: raise `Limits::{field}` to read it")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much is accepted.
        limit: u64,
        /// The field of [`Limits`](crate::Limits) that says so.
        field: &'static str,
    },
}

/// What is wrong with an instruction of a pickle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleFault {
    /// The file ends before the pickle does.
    #[error("the file is cut short")]
    CutShort,
    /// The first two bytes are not those of protocol 2 to 5.
    #[error("it is of pickle protocol {0}; 2 to 5 can be read")]
    Protocol(u8),
    /// The file does not begin as a pickle of these protocols does.
    #[error("it does not begin as a pickle of protocol 2 to 5 does")]
    NoPickle,
    /// The instruction would look up a name or call something: it is never done.
    #[error("instruction {0:#04x} would run code, which is never done")]
    RunsCode(u8),
    /// No data of a snapshot needs the instruction.
    #[error("instruction {0:#04x} is not one that snapshots are made of")]
    Instruction(u8),
    /// The instruction takes more values than there are.
    #[error("the instruction takes a value that is not there")]
    StackEmpty,
    /// The instruction adds to something that is neither list nor dictionary, or not to a whole number of pairs.
    #[error("the instruction adds to something that cannot hold it")]
    WrongContainer,
    /// A value is recalled that was never kept.
    #[error("value {0} is recalled and was never kept")]
    NoMemo(u32),
    /// A whole number does not fit 64 bits.
    #[error("a whole number has more than 64 bits")]
    IntegerTooLarge,
    /// More than one value is left at the end.
    #[error("values are left over at the end")]
    LeftOver,
    /// Values are marked inside each other too deep.
    #[error("values stand inside each other too deep")]
    TooDeep,
}

/// Short for a result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
