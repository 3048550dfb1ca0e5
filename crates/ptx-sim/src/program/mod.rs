//! What a module is once it has been read: functions, variables and instructions with everything resolved.
//!
//! Reading order: `types`, `scalar` (operations of a lane), `action` (everything an instruction can do), then this
//! file.
//!
//! **Invariants:** every index in an instruction exists in its function's frame; every branch stays in its function; a
//! function whose `refusals` are empty has all its instructions.

pub(crate) mod action;
mod entry;
pub(crate) mod live;
mod operands;
pub(crate) mod scalar;
pub(crate) mod types;

use crate::refusal::Refusal;
use crate::text::Place;
use action::{Instruction, Slot};
use types::{Register, Special};

pub use entry::Entry;

/// A module: what one text says, or several that were linked.
#[derive(Debug, Default)]
pub struct Module {
    /// `.version`, times ten.
    pub(crate) version: u32,
    /// The number of `.target sm_NN`.
    pub(crate) target: u32,
    pub(crate) functions: Vec<Function>,
    /// Functions that a call by address may mean: those with a text whose address something takes.
    pub(crate) addressed: Vec<u32>,
    /// Variables of global and constant memory, which lie in one stretch of memory of the device.
    pub(crate) variables: Vec<Variable>,
    /// Names that functions use and no text defines.
    pub(crate) undefined: Vec<String>,
    /// Names of the files that texts were compiled from.
    pub(crate) files: Vec<String>,
    /// The bytes of that stretch as they are when the module is loaded, addresses still missing.
    pub(crate) image: Vec<u8>,
    /// Addresses that belong into the image.
    pub(crate) relocations: Vec<Relocation>,
}

/// A variable that a program can find by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Offset in the module's stretch of memory.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// An address that is written into the image: 8 bytes, or those that `mask` takes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// Where it is written.
    pub(crate) at: u64,
    pub(crate) bytes: u8,
    pub(crate) target: RelocationTarget,
    /// By how many bits the address is shifted right first.
    pub(crate) shift: u8,
}

/// What an address in the image is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelocationTarget {
    /// The module's stretch of memory plus this.
    Variable(u64),
    /// A number that is known already: the address of a function.
    Absolute(u64),
}

/// A kernel or a function. One that no text defines has a refusal and no code.
#[derive(Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) is_entry: bool,
    /// Of an entry offsets into the launch's parameters; of a function into the local memory of its frame.
    pub(crate) parameters: Vec<Slot>,
    pub(crate) results: Vec<Slot>,
    pub(crate) frame: Frame,
    pub(crate) code: Vec<Instruction>,
    /// Of each instruction.
    pub(crate) places: Vec<Source>,
    /// Bytes of shared memory that the kernel and the functions that it may call name themselves.
    pub(crate) shared_bytes: u64,
    pub(crate) tuning: Tuning,
    /// Registers that it needs at once, as [`live`] estimates.
    pub(crate) registers: u32,
    /// What of its text is not supported; a function that has some is never run.
    pub(crate) refusals: Vec<Refusal>,
    /// Functions with a text that it calls by name or that `.calltargets` names.
    pub(crate) calls: Vec<u32>,
    /// Whether it calls `malloc` or `free`.
    pub(crate) uses_heap: bool,
    /// Whether it calls addresses for which no `.calltargets` says what they may be.
    pub(crate) calls_by_address: bool,
}

/// Where an instruction stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// In the PTX text.
    pub place: Place,
    /// Number of the file in the module (see [`Module::file`]) and line that `.loc` names, where it does.
    pub origin: Option<(u32, u32)>,
}

/// What a launch must keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The most threads of a block by axis, of which the product counts.
    pub max_threads: Option<[u32; 3]>,
    /// The threads of a block by axis.
    pub required_threads: Option<[u32; 3]>,
    /// The most registers of a thread.
    pub max_registers: Option<u32>,
}

/// The rows of a function: registers, then constants and special rows, which are filled when the frame is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Frame {
    /// Number of predicates; the first two are false and true.
    pub(crate) predicates: u16,
    /// Number of rows of up to 32 bits.
    pub(crate) words: u16,
    /// Number of rows of 64 bits.
    pub(crate) longs: u16,
    pub(crate) constants: Vec<(Register, u64)>,
    pub(crate) specials: Vec<(Register, Special)>,
    /// Bytes of local memory of each thread.
    pub(crate) local_bytes: u32,
}
