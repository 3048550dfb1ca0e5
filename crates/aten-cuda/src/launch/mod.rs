//! Running programs: on the host by loops, on a device by kernels.
//!
//! Reading order: this file ([`Work`], [`run`]), `host` (rows of elements), `pinned` (over pinned memory), `arch` (what
//! code is written for), `device` (variants and launches), `prepared` (launches that are repeated), `record` (what is
//! written down instead of being run), `kept` (programs and kernels by key), `streams` (memory that other streams use),
//! `rows` (reductions, row operations and scans), `library` (kernels written in CUDA C++), `module` (from a text to code on a
//! device).

mod arch;
mod device;
mod host;
mod kept;
pub(crate) mod library;
mod module;
mod pinned;
mod prepared;
pub(crate) mod record;
pub(crate) mod rows;
mod streams;
mod writes;

pub use arch::ARCHITECTURES;
pub(crate) use device::{WholeKernel, run_programs, whole_kernel, whole_kernel_of};
pub(crate) use kept::{MOST_OF_FUNCTIONS, Numbered};
pub use library::kernel_texts_of_one_architecture;
pub use library::product as own_products;
pub(crate) use library::product::bytes as byte_products;
pub use module::{KernelText, kernel_texts, kernel_texts_for};
pub(crate) use prepared::{Keeps, Prepared};

use std::sync::{Arc, OnceLock};

use kernel_ir::{GraphError, Program, Type};
use smallvec::SmallVec;

use crate::base::error::{Result, TensorError};
use crate::iterate::Iteration;
use crate::tensor::{Context, Tensor, is_host};
use kept::Kept;

/// Names a program: the operation and what else its program depends on, such as dtypes.
///
/// Two programs with one key are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramKey {
    /// The operation's name, which is unique.
    pub(crate) operation: &'static str,
    /// Dtypes and flags, as the operation packs them.
    pub(crate) variant: u64,
    /// A bit for each operand, outputs first, that lies in memory with the opposite sign. Programs that were fused have more
    /// operands than there are bits, all of which lie as they are.
    turned: u64,
    origin: Origin,
}

/// Whose program one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    /// An operation of the crate.
    Operation,
    /// A function that was made at run time.
    Function,
    /// A compiled function, which is fused of several operations.
    Fused,
}

impl ProgramKey {
    /// The key of a program for operands that lie in memory as they are.
    pub(crate) fn new(operation: &'static str, variant: u64) -> Self {
        Self { operation, variant, turned: 0, origin: Origin::Operation }
    }

    /// That of the same program for operands with signs; `None` where the key is of them already.
    fn turned_for(self, parts: &[Part<'_>]) -> Option<Self> {
        let turned =
            parts.iter().enumerate().filter(|(_, part)| part.is_turned).fold(0, |bits, (at, _)| bits | 1 << at);
        (turned != self.turned).then_some(Self { turned, ..self })
    }

    /// The key of a program of a function that was made at run time. Each program of a name has another number.
    pub(crate) fn function(name: &'static str, number: u64) -> Self {
        Self { origin: Origin::Function, ..Self::new(name, number) }
    }

    /// That of a program that was fused of several, of which each has a number of its own.
    pub(crate) fn fused(operation: &'static str, number: u64) -> Self {
        Self { origin: Origin::Fused, ..Self::new(operation, number) }
    }

    /// Whether the program was fused of several.
    fn is_fused(self) -> bool {
        self.origin == Origin::Fused
    }

    /// Whether an operand lies in memory with the opposite sign.
    fn turns(self, operand: usize) -> bool {
        u32::try_from(operand)
            .ok()
            .and_then(|operand| self.turned.checked_shr(operand))
            .is_some_and(|bits| bits & 1 == 1)
    }
}

/// A program with the tensors that it works on.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub(crate) key: ProgramKey,
    pub(crate) program: Arc<Program>,
    /// Outputs, then inputs. A complex tensor stands for two operands of the program.
    pub(crate) outputs: &'a [&'a Tensor],
    pub(crate) inputs: &'a [&'a Tensor],
    /// The bits of the scalars.
    pub(crate) scalars: &'a [u64],
}

/// A part of an operand: elements of one real type, from a byte of a storage on.
#[derive(Clone)]
struct Part<'a> {
    tensor: &'a Tensor,
    /// Which operand of the iteration it goes along with.
    operand: usize,
    /// The first byte.
    offset: usize,
    ty: Type,
    /// Whether the elements lie in memory with the opposite sign.
    is_turned: bool,
}

/// The program of a key, built once.
pub(crate) fn program(
    key: ProgramKey,
    build: impl FnOnce() -> std::result::Result<Program, GraphError>,
) -> Result<Arc<Program>> {
    static PROGRAMS: OnceLock<Kept<ProgramKey, Arc<Program>>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(Kept::default);
    if let Some(known) = programs.read(&key, Arc::clone) {
        return Ok(known);
    }
    Ok(programs.keep(key, Arc::new(build()?)))
}

/// Computes every element of the outputs. All tensors are on one device and broadcast to `sizes`.
pub(crate) fn run(work: &Work<'_>, sizes: &[i64]) -> Result<()> {
    run_keeping(work, sizes, Keeps::Nothing).map(drop)
}

/// As [`run`]. A launch that is kept is the answer; `None` where there was not one launch on a device.
pub(crate) fn run_keeping(work: &Work<'_>, sizes: &[i64], keeps: Keeps) -> Result<Option<Box<Prepared>>> {
    let operands: SmallVec<[&Tensor; 4]> = work.outputs.iter().chain(work.inputs).copied().collect();
    let iteration = Iteration::new(sizes, &operands, work.program.uses_index());
    if iteration.numel == 0 {
        return Ok(None);
    }
    let parts = parts(work.outputs, work.inputs);
    if let Some(key) = work.key.turned_for(&parts) {
        let outputs = work.program.outputs().len();
        let negating = || Ok(work.program.negating(|input| key.turns(outputs + input), |output| key.turns(output)));
        return run_keeping(&Work { key, program: program(key, negating)?, ..*work }, sizes, keeps);
    }
    let types = work.program.output_types().chain(work.program.inputs().iter().copied());
    debug_assert!(parts.iter().map(|part| part.ty).eq(types), "the tensors are those that the program is for");
    match operands.first() {
        Some(first) if is_host(first.device()) && pinned::is_any_pinned(&operands) => {
            pinned::run(&operands, |operands| {
                let (outputs, inputs) = operands.split_at(work.outputs.len());
                run(&Work { program: Arc::clone(&work.program), outputs, inputs, ..*work }, sizes)
            })?;
        }
        Some(first) if is_host(first.device()) => host::run(work, &iteration, &parts)?,
        Some(_) if record::is_on() => record::elements(work, sizes)?,
        Some(first) => {
            let launched = device::run(work, &iteration, &parts, first.device(), keeps);
            return launched.of(work.key.operation, &operands);
        }
        None => {}
    }
    Ok(None)
}

/// The operands that the program sees.
fn parts<'a>(outputs: &[&'a Tensor], inputs: &[&'a Tensor]) -> SmallVec<[Part<'a>; 4]> {
    let mut parts = SmallVec::new();
    for (operand, &tensor) in outputs.iter().chain(inputs).enumerate() {
        let ty = tensor.dtype().part();
        for half in 0..tensor.dtype().parts() {
            let (offset, is_turned) = (tensor.byte_offset() + half * ty.bytes(), tensor.signs().turns(half));
            parts.push(Part { tensor, operand, offset, ty, is_turned });
        }
    }
    parts
}

/// The device that all tensors are on.
pub(crate) fn common_device<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Option<c10_core::Device>> {
    let mut found: Option<c10_core::Device> = None;
    for tensor in tensors {
        let device = tensor.device();
        match found {
            None => found = Some(device),
            Some(first) if first != device => {
                let (first, second) = (first.to_string(), device.to_string());
                return Err(TensorError::Devices { first, second }.into());
            }
            Some(_) => {}
        }
    }
    Ok(found)
}
