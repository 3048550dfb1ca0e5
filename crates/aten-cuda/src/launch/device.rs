//! Programs on a device: a variant of the kernel for each program and schedule, compiled when it is first needed and
//! kept by the runtime, and its launches.
//!
//! # Safety
//! Kernels here are written by `kernel_ir` for exactly the operands that they are launched with: the iteration that the
//! numbers are taken from was made of the same tensors, whose views lie inside their storages.
#![expect(unsafe_code, reason = "launches of kernels that are generated for their operands")]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use c10_core::locks::RwLock;
use c10_core::{Arg, DetachedKernel, Device, DeviceIndex, Kernel, LaunchConfig, MemoryAccess, PreparedLaunch, Runtime};
use kernel_ir::pointwise::{self, Access, Meta, Parts, Rows, Schedule};
use kernel_ir::{GraphError, Program, reduce};
use smallvec::SmallVec;

use super::kept::{Kept, Owned};
use super::module::Written;
use super::prepared::{Keeps, Prepared};
use super::{Origin, Part, ProgramKey, Work, arch, module};
use crate::base::error::{Error, Result, TensorError};
use crate::iterate::Iteration;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// What decides about a kernel's text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct VariantKey {
    program: ProgramKey,
    plan: Plan,
    device: DeviceIndex,
}

impl Owned for VariantKey {
    fn origin(&self) -> Origin {
        self.program.origin
    }
}

/// What is made of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Plan {
    /// A kernel over elements.
    Pointwise(Schedule),
    /// A kernel of several programs, for a compute capability.
    Parts(u32),
    /// A kernel over rows.
    Rows(reduce::Schedule, Step),
}

/// Which step of a reduction a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// All of it.
    Whole,
    /// Parts of rows, to accumulators.
    Partial,
    /// Accumulators of parts, to the result.
    Merge,
}

/// The kernels that a runtime has compiled.
#[derive(Default)]
struct Variants {
    kernels: Kept<VariantKey, DetachedKernel>,
    /// Compute capability of each device, as 10 * major + minor.
    targets: RwLock<HashMap<DeviceIndex, u32>>,
}

/// Launches the kernel of the program on the current stream of the device. A launch that is kept is the answer, where it is
/// of the kind that can be.
pub(super) fn run(
    work: &Work<'_>,
    iteration: &Iteration,
    parts: &[Part<'_>],
    device: Device,
    keeps: Keeps,
) -> Result<Option<Box<Prepared>>> {
    Runtime::with_current(|runtime| {
        let index = device.cuda_index()?.unwrap_or(0);
        let variants = runtime.extension::<Variants>();
        let target = variants.target(runtime, index)?;
        let schedule = schedule(work, iteration, parts, target);
        let key = VariantKey { program: work.key, plan: Plan::Pointwise(schedule), device: index };
        let write = || Ok(pointwise::write(&work.program, &schedule, work.key.operation)?.text.into());
        let kernel = variants.kernel(runtime, key, write)?;
        let (meta, config) = numbers(work, iteration, parts, &schedule)?;
        let outputs = parts.iter().filter(|part| part.operand < work.outputs.len()).count();
        launch(&kernel, (parts, outputs), &meta, &config, keeps)
    })
}

/// Launches one kernel of several programs, each over elements of its own number, on the current stream of the device. The
/// operands are the outputs of all programs and then the inputs of all. What is answered, [`run`] says.
pub(crate) fn run_programs(
    (key, programs): (ProgramKey, &[Arc<Program>]),
    (outputs, inputs): (&[&Tensor], &[&Tensor]),
    counts: &[u64],
    keeps: Keeps,
) -> Result<Option<Box<Prepared>>> {
    let parts = super::parts(outputs, inputs);
    let types = programs.iter().flat_map(|program| program.output_types());
    let types = types.chain(programs.iter().flat_map(|program| program.inputs().iter().copied()));
    let sizes = programs.iter().zip(counts).flat_map(|(program, &count)| program.outputs().iter().map(move |_| count));
    let sizes = sizes
        .chain(programs.iter().zip(counts).flat_map(|(program, &count)| program.inputs().iter().map(move |_| count)));
    let fits = |(part, (ty, count)): (&Part<'_>, (_, u64))| {
        let is_whole = part.tensor.is_contiguous() && u64::try_from(part.tensor.numel()) == Ok(count);
        part.ty == ty && !part.is_turned && is_whole
    };
    assert!(
        counts.len() == programs.len() && parts.iter().zip(types.zip(sizes)).all(fits),
        "the tensors are those of the programs"
    );
    let Some(device) = outputs.first().map(|output| output.device()) else { return Ok(None) };
    Runtime::with_current(|runtime| {
        let index = device.cuda_index()?.unwrap_or(0);
        let variants = runtime.extension::<Variants>();
        let target = variants.target(runtime, index)?;
        let all: Vec<&Program> = programs.iter().map(Arc::as_ref).collect();
        let several = Parts::new(&all)?;
        let variant = VariantKey { program: key, plan: Plan::Parts(target), device: index };
        let kernel = variants.kernel(runtime, variant, || Ok(several.write(key.operation, target).into()))?;
        let words = several.words(counts);
        let blocks = words.last().copied().unwrap_or(0);
        let numbers: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let grid = u32::try_from(blocks).map_err(|_| too_large(outputs.first().copied()))?;
        let config = LaunchConfig { grid: [grid, 1, 1], block: BLOCK, shared_bytes: 0 };
        launch(&kernel, (&parts, outputs.len()), &numbers, &config, keeps)
    })
}

/// Compute capability of a device, as 10 * major + minor, as far as kernels differ by it.
pub(super) fn target(device: Device) -> Result<u32> {
    Runtime::with_current(|runtime| {
        let index = device.cuda_index()?.unwrap_or(0);
        runtime.extension::<Variants>().target(runtime, index)
    })
}

/// Has kernels for a device written for another compute capability than it has.
pub(super) fn write_for(runtime: &Runtime, device: DeviceIndex, target: u32) {
    let variants = runtime.extension::<Variants>();
    variants.targets.write().unwrap_or_else(PoisonError::into_inner).insert(device, target);
}

/// The most tensors that a pointwise operation takes.
const MOST_INPUTS: usize = 3;

/// A kernel over whole tensors: contiguous, aligned to 16 bytes, with the same number of elements.
#[derive(Debug)]
pub(crate) struct WholeKernel {
    launch: PreparedLaunch,
    /// Elements that a block computes.
    of_block: u64,
}

/// The kernel of a program over this many whole tensors, the output among them, with this many scalars. The program has one
/// output.
pub(crate) fn whole_kernel(
    key: ProgramKey,
    program: &Program,
    device: DeviceIndex,
    (tensors, scalars): (usize, usize),
) -> Result<WholeKernel> {
    whole_kernel_of(key, program, device, (1, tensors - 1, scalars))
}

/// As [`whole_kernel`], of a program with several outputs: outputs, inputs and scalars are so many.
pub(crate) fn whole_kernel_of(
    key: ProgramKey,
    program: &Program,
    device: DeviceIndex,
    (outputs, inputs, scalars): (usize, usize, usize),
) -> Result<WholeKernel> {
    let tensors = outputs + inputs;
    Runtime::with_current(|runtime| {
        let variants = runtime.extension::<Variants>();
        let schedule = Schedule::contiguous(program).for_target(variants.target(runtime, device)?);
        let write = || Ok(pointwise::write(program, &schedule, key.operation)?.text.into());
        let variant = VariantKey { program: key, plan: Plan::Pointwise(schedule), device };
        // What `Meta` says of contiguous kernels: the number of elements, then the scalars.
        let launch = variants.kernel(runtime, variant, write)?.prepare(BLOCK, tensors, 1 + scalars)?;
        let accesses: SmallVec<[MemoryAccess; 4]> = (0..tensors).map(|part| access(part, outputs)).collect();
        let launch = launch.accessing(&accesses);
        Ok(WholeKernel { launch, of_block: schedule.elements_of_block() })
    })
}

impl WholeKernel {
    /// The most tensors of a kernel, the outputs among them.
    pub(crate) const MOST_TENSORS: usize = 7;

    /// As [`Self::run`], with several outputs: each a memory of its own that holds nothing else.
    pub(crate) fn run_all(&self, outputs: &[Storage], inputs: &[&Tensor], numbers: &[u64]) -> Result<()> {
        let made = outputs.iter().filter_map(|output| Some((output.buffer()?, 0..output.nbytes())));
        let read = inputs.iter().filter_map(|input| {
            let start = input.byte_offset();
            Some((input.storage().buffer()?, start..start + input.nbytes()))
        });
        let parts: SmallVec<[_; Self::MOST_TENSORS]> = made.chain(read).collect();
        let numel = numbers.first().copied().unwrap_or(0);
        let grid = u32::try_from(numel.div_ceil(self.of_block)).map_err(|_| too_large(inputs.first().copied()))?;
        Runtime::with_current(|runtime| {
            // SAFETY: the kernel was written for contiguous operands of these dtypes, all with as many elements as it is
            // told, and the buffers hold them. Streams order the work.
            unsafe { self.launch.launch(runtime, grid, &parts, numbers)? };
            Ok(())
        })
    }

    /// Whether it is of this runtime.
    pub(crate) fn is_of(&self, runtime: &Runtime) -> bool {
        self.launch.is_of(runtime)
    }

    /// Launches the kernel on the current stream of the tensors' device: the output's memory, then the inputs. The caller
    /// has the kernel of the program for exactly their dtypes. `numbers` are the number of elements and the scalars.
    #[inline]
    pub(crate) fn run<'a>(
        &self,
        (output, range): (&'a Storage, Range<usize>),
        inputs: impl Iterator<Item = &'a Tensor> + Clone,
        numbers: &[u64],
    ) -> Result<()> {
        let Some(output) = output.buffer() else { return Ok(()) };
        // The places behind the last input are not given to the launch.
        let mut parts: [_; 1 + MOST_INPUTS] = std::array::from_fn(|_| (output, range.clone()));
        let mut count = 1;
        let buffers = inputs.clone().filter_map(|tensor| Some((tensor.storage().buffer()?, tensor)));
        for (part, (buffer, tensor)) in parts[1..].iter_mut().zip(buffers) {
            let start = tensor.byte_offset();
            *part = (buffer, start..start + tensor.nbytes());
            count += 1;
        }
        let numel = numbers.first().copied().unwrap_or(0);
        let grid = u32::try_from(numel.div_ceil(self.of_block)).map_err(|_| too_large(inputs.clone().next()))?;
        Runtime::with_current(|runtime| {
            // SAFETY: the kernel was written for contiguous operands of these dtypes, all with as many elements as it is
            // told, and the buffers hold them. Streams order the work.
            unsafe { self.launch.launch(runtime, grid, &parts[..count], numbers)? };
            Ok(())
        })
    }
}

/// There are more elements than a launch has blocks for.
#[cold]
fn too_large(like: Option<&Tensor>) -> Error {
    TensorError::TooLarge { sizes: like.map_or_else(Vec::new, |like| like.sizes().to_vec()) }.into()
}

/// Launches a kernel over rows on the current stream of the device. The text is written where it is not known. What is
/// answered, [`run`] says.
///
/// The parts are the operands that the text takes, results first, and the numbers are those of an iteration that was made of the same
/// tensors.
pub(super) fn run_rows(
    (program, plan, device): (ProgramKey, Plan, Device),
    write: impl FnOnce() -> std::result::Result<Written, GraphError>,
    parts: (&[Part<'_>], usize),
    (numbers, config): (&[u8], &LaunchConfig),
    keeps: Keeps,
) -> Result<Option<Box<Prepared>>> {
    Runtime::with_current(|runtime| {
        let key = VariantKey { program, plan, device: device.cuda_index()?.unwrap_or(0) };
        let kernel = runtime.extension::<Variants>().kernel(runtime, key, write)?;
        launch(&kernel, parts, numbers, config, keeps)
    })
}

/// What a kernel over elements does to an operand; results come first.
pub(super) fn access(operand: usize, outputs: usize) -> MemoryAccess {
    const INPUTS: [&str; 2] = ["self", "other"];
    match operand.checked_sub(outputs) {
        Some(input) => MemoryAccess::Reads(INPUTS.get(input).copied().unwrap_or_default()),
        None => MemoryAccess::Output,
    }
}

/// What a kernel is given: the memory of each operand, then the block of numbers. The first `outputs` parts are results.
fn arguments<'a>(parts: &'a [Part<'_>], outputs: usize, numbers: &'a [u8]) -> Result<SmallVec<[Arg<'a>; 6]>> {
    let mut arguments: SmallVec<[Arg<'_>; 6]> = SmallVec::new();
    for (position, part) in parts.iter().enumerate() {
        let storage = part.tensor.storage();
        let buffer = storage.buffer().ok_or_else(|| storage.without_contents())?;
        let end = part.tensor.byte_offset() + part.tensor.byte_extent();
        arguments.push(Arg::range(buffer, part.offset.min(end)..end).accessed(access(position, outputs)));
    }
    arguments.push(Arg::Plain(numbers));
    Ok(arguments)
}

/// Launches a kernel over parts of operands, the first `outputs` of which are results.
fn launch(
    kernel: &Kernel,
    (parts, outputs): (&[Part<'_>], usize),
    numbers: &[u8],
    config: &LaunchConfig,
    keeps: Keeps,
) -> Result<Option<Box<Prepared>>> {
    let arguments = arguments(parts, outputs, numbers)?;
    // SAFETY: the kernel was written for the program and schedule that these operands and numbers are of. Its elements are
    // those of the iteration, which lie inside the tensors' parts of their storages. Streams order the work.
    unsafe { kernel.launch(config, &arguments, None)? };
    match keeps {
        Keeps::Nothing => Ok(None),
        Keeps::Launch => Prepared::new(kernel, config, (parts, outputs), numbers),
    }
}

/// The block of numbers of a launch, and its blocks.
fn numbers(
    work: &Work<'_>,
    iteration: &Iteration,
    parts: &[Part<'_>],
    schedule: &Schedule,
) -> Result<(Vec<u8>, LaunchConfig)> {
    let numel = u64::try_from(iteration.numel).unwrap_or(0);
    let strides: SmallVec<[&[i64]; 4]> = match schedule.access {
        Access::Contiguous { .. } => SmallVec::new(),
        Access::Rows(_) | Access::Strided { .. } => strides_of(iteration, parts),
    };
    let sizes: SmallVec<[u64; 6]> = match schedule.access {
        Access::Contiguous { .. } => SmallVec::new(),
        Access::Rows(_) | Access::Strided { .. } => sizes_of(iteration),
    };
    let meta = Meta::of(&work.program, schedule).write(numel, work.scalars, &sizes, &strides);
    Ok((meta, row_of(schedule.blocks(numel, &sizes), &iteration.sizes)?))
}

/// Threads of the blocks of kernels over elements.
const BLOCK: [u32; 3] = [pointwise::THREADS, 1, 1];

/// A row of blocks for a kernel over elements of these sizes.
fn row_of(blocks: u64, sizes: &[i64]) -> Result<LaunchConfig> {
    let grid = u32::try_from(blocks).map_err(|_| TensorError::TooLarge { sizes: sizes.to_vec() })?;
    Ok(LaunchConfig { grid: [grid, 1, 1], block: BLOCK, shared_bytes: 0 })
}

/// The strides of each part in bytes.
fn strides_of<'a>(iteration: &'a Iteration, parts: &[Part<'_>]) -> SmallVec<[&'a [i64]; 4]> {
    parts.iter().map(|part| iteration.strides[part.operand].as_slice()).collect()
}

fn sizes_of(iteration: &Iteration) -> SmallVec<[u64; 6]> {
    iteration.sizes.iter().map(|&size| u64::try_from(size).unwrap_or(0)).collect()
}

/// The schedule of the program for devices of a compute capability.
fn schedule(work: &Work<'_>, iteration: &Iteration, parts: &[Part<'_>], target: u32) -> Schedule {
    let schedule = fitting(work, iteration, parts).for_target(target);
    if work.key.is_fused() { schedule.for_fused(&work.program) } else { schedule }
}

/// The schedule that fits how the operands lie in memory.
fn fitting(work: &Work<'_>, iteration: &Iteration, parts: &[Part<'_>]) -> Schedule {
    let strides = strides_of(iteration, parts);
    let address = |part: &Part<'_>| {
        let base = part.tensor.storage().buffer().map_or(0, c10_core::DeviceBuffer::address);
        base + part.offset as u64
    };
    let one_by_one = |(part, strides): (&Part<'_>, &&[i64])| i64::try_from(part.ty.bytes()) == Ok(strides[0]);
    if iteration.sizes.len() == 1 && parts.iter().zip(&strides).all(one_by_one) {
        let widest = Schedule::contiguous(&work.program);
        let Access::Contiguous { vector, .. } = widest.access else { return widest };
        let aligned =
            parts.iter().all(|part| address(part).is_multiple_of((part.ty.bytes() * usize::from(vector)) as u64));
        return if aligned { widest } else { Schedule::unaligned() };
    }
    let addresses: SmallVec<[u64; 4]> = parts.iter().map(address).collect();
    if let Some(rows) = Rows::fitting(&work.program, &sizes_of(iteration), &strides, &addresses) {
        return Schedule { access: Access::Rows(rows), target: 75, fused: false };
    }
    let rank = u8::try_from(iteration.sizes.len()).unwrap_or(u8::MAX);
    let limit = u64::from(i32::MAX.unsigned_abs());
    let far = |strides: &&[i64]| strides.iter().any(|stride| stride.unsigned_abs() > limit);
    let wide = iteration.numel.unsigned_abs() > limit || strides.iter().any(far);
    Schedule { access: Access::Strided { rank, wide }, target: 75, fused: false }
}

impl Variants {
    fn target(&self, runtime: &Runtime, device: DeviceIndex) -> Result<u32> {
        if let Some(&known) = self.targets.read().unwrap_or_else(PoisonError::into_inner).get(&device) {
            return Ok(known);
        }
        let (major, minor) = runtime.devices().capability(device)?;
        let target = arch::ptx_target(u32::try_from(10 * major + minor).unwrap_or(u32::MAX));
        self.targets.write().unwrap_or_else(PoisonError::into_inner).insert(device, target);
        Ok(target)
    }

    fn kernel(
        &self,
        runtime: &Runtime,
        key: VariantKey,
        write: impl FnOnce() -> std::result::Result<Written, GraphError>,
    ) -> Result<Kernel> {
        if let Some(known) = self.kernels.read(&key, |known| known.attach(runtime)) {
            return Ok(known?);
        }
        let name = key.program.operation;
        let (written, device) = (write()?, key.device);
        let module = match key.program.is_fused() {
            true => module::load_kept(runtime, device, name, &written)?,
            false => module::load(runtime, device, name, &written.text)?,
        };
        let kernel = module.kernel(name)?;
        self.kernels.keep(key, kernel.detach());
        Ok(kernel)
    }
}
