//! Functions that NVRTC compiles: the kernel for what a function is called with, and its launches.
//!
//! **Invariant:** a runtime keeps a kernel for each combination of function, dtypes, layout and device, as torch does; of
//! more than [`MOST_OF_FUNCTIONS`] the least recently used goes.
//!
//! # Safety
//! The kernel is the one of this text around a function, whose author has promised what it does. It is launched with
//! operands whose views lie inside their storages, and with offsets that were made of the same views.
#![expect(unsafe_code, reason = "launches of kernels around functions that are the user's own")]

use std::collections::HashMap;
use std::sync::PoisonError;

use c10_core::locks::RwLock;
use c10_core::{Arg, DetachedKernel, Device, DeviceIndex, Kernel, MemoryAccess, Runtime};
use smallvec::SmallVec;

use super::Function;
use super::geometry::{self, Params, Piece};
use super::text::{self, THREADS, Variant};
use super::types::{self, Extra};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, invalid};
use crate::base::jit_error::JitError;
use crate::base::recent::RecentMap;
use crate::base::scalar::Scalar;
use crate::base::shape::Dims;
use crate::iterate::Iteration;
use crate::launch::MOST_OF_FUNCTIONS;
use crate::raw::{self, Source};
use crate::tensor::Tensor;

/// What a kernel is kept by.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    fingerprint: u128,
    variant: Variant,
    device: DeviceIndex,
}

/// The kernels that a runtime has compiled, and the compute capabilities of its devices.
struct Kernels {
    kernels: RwLock<RecentMap<Key, DetachedKernel>>,
    capabilities: RwLock<HashMap<DeviceIndex, (i32, i32)>>,
}

impl Default for Kernels {
    fn default() -> Self {
        Self { kernels: RwLock::new(RecentMap::new(MOST_OF_FUNCTIONS)), capabilities: RwLock::default() }
    }
}

/// A call that was checked.
pub(super) struct Call<'a> {
    pub(super) function: &'a Function,
    pub(super) inputs: &'a [&'a Tensor],
    pub(super) outputs: &'a [Tensor],
    pub(super) numbers: &'a [Scalar],
    pub(super) common: DType,
    pub(super) sizes: &'a [i64],
}

impl Call<'_> {
    pub(super) fn run(&self, device: Device) -> Result<()> {
        Runtime::with_current(|runtime| {
            let device = device.cuda_index()?.unwrap_or(0);
            let kernels = runtime.extension::<Kernels>();
            let operands: SmallVec<[&Tensor; 4]> = self.outputs.iter().chain(self.inputs.iter().copied()).collect();
            let iteration = Iteration::new(self.sizes, &operands, false);
            if iteration.sizes.len() > text::DIMS {
                return Err(invalid(format!("jiterator goes through at most {} dimensions", text::DIMS)));
            }
            let capability = kernels.capability(runtime, device)?;
            for piece in geometry::pieces(iteration) {
                let variant = self.variant(&piece, &operands, capability);
                let kernel = kernels.kernel(runtime, device, self.function, &variant)?;
                self.launch(&kernel, &piece, &operands, &variant)?;
            }
            Ok(())
        })
    }

    /// The addresses at which the operands of a piece begin.
    fn addresses<'b>(piece: &'b Piece, operands: &'b [&Tensor]) -> impl Iterator<Item = u64> + 'b {
        operands.iter().zip(&piece.begins).map(|(tensor, begin)| tensor.data_ptr().wrapping_add_signed(*begin))
    }

    fn variant(&self, piece: &Piece, operands: &[&Tensor], capability: (i32, i32)) -> Variant {
        let (sizes, strides) = (&piece.iteration.sizes, &piece.iteration.strides);
        let in_steps = |(tensor, strides): (&&Tensor, &Dims)| {
            usize::try_from(strides.first().copied().unwrap_or(0)).is_ok_and(|stride| stride == tensor.element_size())
        };
        let is_contiguous =
            piece.iteration.numel == 1 || sizes.len() == 1 && operands.iter().zip(strides).all(in_steps);
        let casts = self.inputs.iter().any(|input| input.dtype() != self.common);
        let width = self.common.itemsize() as u64;
        let is_packed = is_contiguous && !casts;
        let pack = if is_packed { geometry::pack(Self::addresses(piece, operands), width, capability) } else { 1 };
        Variant {
            inputs: self.inputs.len(),
            outputs: self.outputs.len(),
            returns: self.function.returns,
            common: self.common,
            is_contiguous,
            casts,
            pack,
            extras: self.numbers.iter().map(|number| Extra::of(*number)).collect(),
        }
    }

    fn launch(&self, kernel: &Kernel, piece: &Piece, operands: &[&Tensor], variant: &Variant) -> Result<()> {
        let inputs = self.inputs.iter().map(|input| {
            let width = u32::try_from(input.element_size()).unwrap_or(0);
            (types::code(input.dtype()), width)
        });
        let inputs: SmallVec<[(u32, u32); 4]> = inputs.collect();
        let data: SmallVec<[u64; 4]> = Self::addresses(piece, operands).collect();
        let params = Params { data: &data, inputs: &inputs, iteration: &piece.iteration, dims: variant.dims() };
        let bytes = params.bytes();
        // A piece has 31 bits of elements.
        let count = u32::try_from(piece.iteration.numel).unwrap_or(u32::MAX);
        let blocks = count.div_ceil(THREADS * variant.work());
        let mut launch = kernel.launch_builder(None).grid(blocks).block(THREADS).arg(Arg::Plain(&bytes));
        launch = launch.args(self.numbers.iter().map(types::argument));
        for input in self.inputs {
            launch =
                input.used(MemoryAccess::Undeclared).into_iter().fold(launch, |launch, memory| launch.reads(memory));
        }
        for output in self.outputs {
            let memory = output.used(MemoryAccess::Undeclared);
            launch = memory.into_iter().fold(launch, |launch, memory| launch.writes(memory));
        }
        // SAFETY: the struct is the kernel's, of operands whose views lie inside their storages, and the numbers have the
        // types of the parameters; what the function does is its author's promise.
        Ok(unsafe { launch.launch() }?)
    }
}

impl Kernels {
    fn capability(&self, runtime: &Runtime, device: DeviceIndex) -> Result<(i32, i32)> {
        if let Some(&known) = self.capabilities.read().unwrap_or_else(PoisonError::into_inner).get(&device) {
            return Ok(known);
        }
        let found = runtime.devices().capability(device)?;
        self.capabilities.write().unwrap_or_else(PoisonError::into_inner).insert(device, found);
        Ok(found)
    }

    /// The kernel of a function for a variant, which is compiled where that was not done. Several threads may do so at once;
    /// one of their kernels is kept.
    fn kernel(&self, runtime: &Runtime, device: DeviceIndex, function: &Function, variant: &Variant) -> Result<Kernel> {
        let key = Key { fingerprint: function.fingerprint, variant: variant.clone(), device };
        if let Some(known) = self.kernels.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.attach(runtime)?);
        }
        let made = compiled(runtime, device, function, variant)?;
        // The guard goes first: dropping a kernel takes another lock.
        let gone = self.kernels.write().unwrap_or_else(PoisonError::into_inner).insert(key, made.detach());
        drop(gone);
        Ok(made)
    }
}

fn compiled(runtime: &Runtime, device: DeviceIndex, function: &Function, variant: &Variant) -> Result<Kernel> {
    let text = text::text(&function.code, &function.name, variant)?;
    let options = ["--std=c++17", "-default-device", "-DNDEBUG"].map(str::to_owned).to_vec();
    let source = Source {
        name: &function.name,
        text: &text,
        options,
        folders: Vec::new(),
        with_toolkit: false,
        expressions: &[],
        architecture: None,
        is_kept: true,
    };
    let loaded = raw::load(runtime, device, &source).map_err(|error| of_code(error, function))?;
    Ok(loaded.module.kernel(&text::kernel_name(&function.name))?)
}

/// A refused text is shown as the user's part of it, whose lines the log counts.
fn of_code(error: Error, function: &Function) -> Error {
    match error {
        Error::Jit(cause) => Error::Jit(Box::new(match *cause {
            JitError::Compile(mut refused) => {
                refused.source.clone_from(&function.code);
                JitError::Compile(refused)
            }
            other => other,
        })),
        other => other,
    }
}
