//! A kernel of a loaded module: what a launch must know of it.

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use ptx_sim::{Program, Refusal};

/// The most threads that a block may have on any device.
const MAX_THREADS: u32 = 1024;

/// Registers of a multiprocessor, and the fewest and the most that a thread has.
pub(crate) const REGISTERS: u32 = 65536;
const REGISTERS_MIN: u32 = 8;
const REGISTERS_MAX: u32 = 255;

/// A parameter: where it is in the block of parameters, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

impl Parameter {
    fn new(offset: u32, size: u32) -> Self {
        Self { offset: offset as usize, size: size as usize }
    }
}

/// A kernel.
pub(crate) struct Kernel {
    pub(crate) program: Arc<Program>,
    /// Which of the program's functions it is.
    pub(crate) entry: usize,
    pub(crate) name: String,
    /// The same for C programs, which are given its address.
    c_name: CString,
    pub(crate) parameters: Vec<Parameter>,
    /// Bytes of shared memory that it names itself.
    pub(crate) shared_bytes: u64,
    /// Bytes of local memory of each thread.
    pub(crate) local_bytes: u64,
    /// Registers that the text needs.
    registers: u32,
    /// The most registers that the text allows a thread.
    max_registers: Option<u32>,
    /// The most threads that a block may have.
    pub(crate) max_threads: u32,
    /// The threads that a block must have, where the text says so.
    pub(crate) required_threads: Option<[u32; 3]>,
    /// The architecture that the text was written for, as 75 for 7.5.
    pub(crate) target: u32,
    /// Whether it may allocate memory of the device's heap, or give some back.
    pub(crate) uses_heap: bool,
    /// What of it is not supported; it is not launched if there is any.
    pub(crate) refusals: Vec<Refusal>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kernel {
    /// The kernels of a program.
    pub(crate) fn all_of(program: &Arc<Program>) -> Vec<Arc<Self>> {
        let target = program.module().target();
        let entries = program.module().entries().map(|entry| {
            let product =
                |threads: [u32; 3]| threads.iter().fold(1_u32, |all, &count| all.saturating_mul(count.max(1)));
            let tuning = entry.tuning();
            let threads = tuning.required_threads.or(tuning.max_threads).map_or(MAX_THREADS, product);
            let parameters = entry.parameters();
            Arc::new(Self {
                program: Arc::clone(program),
                entry: entry.index(),
                name: entry.name().to_owned(),
                c_name: CString::new(entry.name()).unwrap_or_default(),
                parameters: parameters.map(|(offset, size)| Parameter::new(offset, size)).collect(),
                shared_bytes: entry.shared_bytes(),
                local_bytes: u64::from(entry.local_bytes()),
                registers: entry.registers(),
                max_registers: tuning.max_registers,
                max_threads: threads.clamp(1, MAX_THREADS),
                required_threads: tuning.required_threads,
                target,
                uses_heap: entry.uses_heap(),
                refusals: entry.refusals().into_iter().cloned().collect(),
            })
        });
        entries.collect()
    }

    /// Registers of a thread as a compiler might give them out: as many as the text needs at once, but not so many that a
    /// block with the most threads would have too few.
    pub(crate) fn register_count(&self) -> u32 {
        let room = (REGISTERS / self.max_threads.next_multiple_of(128)) / 8 * 8;
        self.registers.min(room).min(self.max_registers.unwrap_or(u32::MAX)).clamp(REGISTERS_MIN, REGISTERS_MAX)
    }

    /// Address of its name, which ends with a zero byte.
    pub(crate) fn name_address(&self) -> u64 {
        self.c_name.as_ptr().expose_provenance() as u64
    }

    /// Bytes of all parameters.
    pub(crate) fn parameter_bytes(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.offset + last.size)
    }
}
