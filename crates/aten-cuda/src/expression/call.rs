//! From tensors to a launch.
//!
//! Most calls of a program are like one that it made shortly before: whole tensors of one shape and of the same dtypes.
//! Then nothing has to be worked out but where the memory is, as for operations (`ops::pointwise::whole`). Any other call
//! goes the usual way.

use std::sync::{Arc, PoisonError};

use c10_core::locks::RwLock;
use c10_core::{Device, DeviceIndex, DeviceType, Runtime};
use smallvec::SmallVec;

use super::JitFunction;
use super::program::Compiled;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::expression_error::ExpressionError;
use crate::base::promotion::Participants;
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims};
use crate::iterate;
use crate::launch::{self, WholeKernel, Work};
use crate::ops::{is_alike, is_whole};
use crate::storage::Storage;
use crate::tensor::{Context, Tensor, empty_strided, storage_like};

/// The results of a call.
pub(crate) type Made = SmallVec<[Tensor; 1]>;

/// The most kernels of whole tensors that a function keeps; the oldest goes first.
const KEPT: usize = 32;

/// The kernels that a function has for calls of whole tensors.
#[derive(Default)]
pub(crate) struct Wholes(RwLock<Vec<Arc<Whole>>>);

/// What such calls have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Case {
    /// A byte for each tensor.
    dtypes: u64,
    /// What else decides about the program.
    variant: u64,
    device: DeviceIndex,
    outputs: usize,
}

/// What a call of whole tensors needs besides the memory.
pub(crate) struct Whole {
    case: Case,
    compiled: Arc<Compiled>,
    kernel: WholeKernel,
}

impl Wholes {
    /// What a call of whole tensors needs, which is found or made; `None` where the tensors are not whole, more than such
    /// kernels take, or there is no program for their dtypes and the variant, which is asked for when there is no kernel.
    pub(crate) fn find(
        &self,
        tensors: &[&Tensor],
        (outputs, variant): (usize, u64),
        compiled: impl FnOnce() -> Result<Option<Arc<Compiled>>>,
    ) -> Result<Option<Arc<Whole>>> {
        // A trace takes what goes the usual way.
        if launch::record::is_on() {
            return Ok(None);
        }
        let Some((&first, others)) = tensors.split_first() else { return Ok(None) };
        let Some(device) = first.storage().buffer().map(c10_core::DeviceBuffer::device_index) else { return Ok(None) };
        let is_one = |tensor: &&Tensor| std::ptr::eq(*tensor, first) || is_alike(tensor, first);
        if tensors.len() + outputs > WholeKernel::MOST_TENSORS || !is_whole(first) || !others.iter().all(is_one) {
            return Ok(None);
        }
        let dtypes = tensors.iter().fold(0, |all, tensor| all << 8 | tensor.dtype() as u64);
        let case = Case { dtypes, variant, device, outputs };
        let known = {
            let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
            Runtime::with_current(|runtime| {
                all.iter().find(|known| known.case == case && known.kernel.is_of(runtime)).cloned()
            })
        };
        match known {
            Some(known) => Ok(Some(known)),
            None => self.make(tensors, case, compiled),
        }
    }

    #[cold]
    fn make(
        &self,
        tensors: &[&Tensor],
        case: Case,
        compiled: impl FnOnce() -> Result<Option<Arc<Compiled>>>,
    ) -> Result<Option<Arc<Whole>>> {
        let Some(compiled) = compiled()?.filter(|compiled| !compiled.common.is_complex()) else { return Ok(None) };
        let counts = (case.outputs, tensors.len(), compiled.scalar_count());
        let kernel = launch::whole_kernel_of(compiled.key, &compiled.program, case.device, counts)
            .of(compiled.key.operation, tensors)?;
        let made = Arc::new(Whole { case, compiled, kernel });
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let oldest = (all.len() >= KEPT).then(|| all.remove(0));
        all.push(Arc::clone(&made));
        drop(all);
        // Unloading a module may come back here.
        drop(oldest);
        Ok(Some(made))
    }
}

impl Whole {
    /// The results in new memory.
    pub(crate) fn run(&self, tensors: &[&Tensor], parameters: &[Scalar]) -> Result<Made> {
        self.launch(tensors, parameters).of(self.compiled.key.operation, tensors)
    }

    fn launch(&self, tensors: &[&Tensor], parameters: &[Scalar]) -> Result<Made> {
        let first = tensors[0];
        let common = self.compiled.common;
        let storages: SmallVec<[Storage; 1]> =
            (0..self.case.outputs).map(|_| storage_like(first, common)).collect::<Result<_>>()?;
        let mut words: SmallVec<[u64; 6]> = SmallVec::new();
        words.push(first.numel().unsigned_abs());
        words.extend(self.compiled.words(parameters));
        self.kernel.run_all(&storages, tensors, &words)?;
        Ok(storages.into_iter().map(|storage| first.whole_of(storage, common)).collect())
    }
}

impl JitFunction {
    /// The results in new memory.
    pub(super) fn run(&self, tensors: &[&Tensor], parameters: &[Scalar]) -> Result<Made> {
        self.check_inputs(tensors.len())?;
        let parameters = self.filled(parameters)?;
        let compiled = || self.compiled_for(tensors).map(|(compiled, _)| Some(compiled));
        if let Some(whole) = self.shared.whole.find(tensors, (self.outputs(), 0), compiled)? {
            return whole.run(tensors, &parameters);
        }
        let device = launch::common_device(tensors.iter().copied())?;
        let device = device.unwrap_or(Device { kind: DeviceType::Cpu, index: None });
        let (compiled, sizes) = self.compiled_for(tensors)?;
        let strides = iterate::result_strides(&sizes, tensors, false);
        let make = |_| empty_strided(&sizes, &strides, compiled.common, device);
        let made: Made = (0..self.outputs()).map(make).collect::<Result<_>>().of(compiled.key.operation, tensors)?;
        let outputs: SmallVec<[&Tensor; 8]> = made.iter().collect();
        compiled.launch(&outputs, tensors, &parameters, &sizes)?;
        drop(outputs);
        Ok(made)
    }

    /// All parameters: those that are given, then the defaults.
    fn filled(&self, given: &[Scalar]) -> Result<SmallVec<[Scalar; 4]>> {
        let known = &self.shared.definition.parameters;
        if given.len() > known.len() {
            let (function, expected, found) = (self.name().to_owned(), known.len(), given.len());
            return Err(ExpressionError::ParameterCount { function, expected, found }.into());
        }
        let defaults = known.iter().skip(given.len()).map(|known| Ok(known.default.scalar()));
        let given = given.iter().enumerate().map(|(at, &number)| self.fitting(at, number));
        given.chain(defaults).collect()
    }

    /// The function for the dtypes of tensors, and the sizes that they broadcast to.
    fn compiled_for(&self, tensors: &[&Tensor]) -> Result<(Arc<Compiled>, Dims)> {
        let mut participants = Participants::default();
        let mut sizes = Dims::new();
        for tensor in tensors {
            participants.tensor(tensor.dtype(), tensor.dim())?;
            if sizes.as_slice() != tensor.sizes() {
                sizes = shape::broadcast(&sizes, tensor.sizes())?;
            }
        }
        let dtypes: SmallVec<[DType; 8]> = tensors.iter().map(|tensor| tensor.dtype()).collect();
        Ok((self.compiled(&dtypes, participants.result()?)?, sizes))
    }
}

impl Compiled {
    /// Computes what the outputs hold, for operands that broadcast to the sizes.
    pub(crate) fn launch(
        &self,
        outputs: &[&Tensor],
        inputs: &[&Tensor],
        parameters: &[Scalar],
        sizes: &[i64],
    ) -> Result<()> {
        let words: SmallVec<[u64; 8]> = self.words(parameters).collect();
        let program = Arc::clone(&self.program);
        launch::run(&Work { key: self.key, program, outputs, inputs, scalars: &words }, sizes)
    }
}
