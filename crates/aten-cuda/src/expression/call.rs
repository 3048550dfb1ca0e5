//! From tensors to a launch.
//!
//! Most calls of a program are like one that it made shortly before: whole tensors of one shape and of the same dtypes.
//! Then nothing has to be worked out but where the memory is, as for operations (`ops::pointwise::whole`). Any other call
//! goes the usual way.

use std::sync::{Arc, PoisonError};

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
pub(super) type Made = SmallVec<[Tensor; 1]>;

/// The most kernels of whole tensors that a function keeps; the oldest goes first.
const KEPT: usize = 32;

/// What a call of whole tensors needs besides the memory.
pub(super) struct Whole {
    /// A byte for each tensor.
    dtypes: u64,
    device: DeviceIndex,
    compiled: Arc<Compiled>,
    kernel: WholeKernel,
}

impl JitFunction {
    /// The results in new memory.
    pub(super) fn run(&self, tensors: &[&Tensor], parameters: &[Scalar]) -> Result<Made> {
        self.check_inputs(tensors.len())?;
        let parameters = self.filled(parameters)?;
        if let Some(whole) = self.whole_for(tensors)? {
            return self.run_whole(&whole, tensors, &parameters).of(whole.compiled.key.operation, tensors);
        }
        let device = launch::common_device(tensors.iter().copied())?;
        let device = device.unwrap_or(Device { kind: DeviceType::Cpu, index: None });
        let (compiled, sizes) = self.compiled_for(tensors)?;
        let strides = iterate::result_strides(&sizes, tensors, false);
        let make = |_| empty_strided(&sizes, &strides, compiled.common, device);
        let made: Made = (0..self.outputs()).map(make).collect::<Result<_>>().of(compiled.key.operation, tensors)?;
        let outputs: SmallVec<[&Tensor; 8]> = made.iter().collect();
        let words: SmallVec<[u64; 8]> = compiled.words(&parameters).collect();
        let program = Arc::clone(&compiled.program);
        let work = Work { key: compiled.key, program, outputs: &outputs, inputs: tensors, scalars: &words };
        launch::run(&work, &sizes)?;
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

    /// What a call of whole tensors needs, which is found or made; `None` where the tensors are not whole, or more than such
    /// kernels take.
    fn whole_for(&self, tensors: &[&Tensor]) -> Result<Option<Arc<Whole>>> {
        // A trace takes what goes the usual way.
        if launch::record::is_on() {
            return Ok(None);
        }
        let Some((&first, others)) = tensors.split_first() else { return Ok(None) };
        let Some(device) = first.storage().buffer().map(c10_core::DeviceBuffer::device_index) else { return Ok(None) };
        let is_one = |tensor: &&Tensor| std::ptr::eq(*tensor, first) || is_alike(tensor, first);
        if tensors.len() + self.outputs() > WholeKernel::MOST_TENSORS || !is_whole(first) || !others.iter().all(is_one)
        {
            return Ok(None);
        }
        let dtypes = tensors.iter().fold(0, |all, tensor| all << 8 | tensor.dtype() as u64);
        let fits = |known: &&Arc<Whole>| known.dtypes == dtypes && known.device == device;
        let known = {
            let all = self.shared.whole.read().unwrap_or_else(PoisonError::into_inner);
            Runtime::with_current(|runtime| {
                all.iter().find(|known| fits(known) && known.kernel.is_of(runtime)).cloned()
            })
        };
        match known {
            Some(known) => Ok(Some(known)),
            None => self.make_whole(tensors, dtypes, device),
        }
    }

    #[cold]
    fn make_whole(&self, tensors: &[&Tensor], dtypes: u64, device: DeviceIndex) -> Result<Option<Arc<Whole>>> {
        let (compiled, _) = self.compiled_for(tensors)?;
        if compiled.common.is_complex() {
            return Ok(None);
        }
        let counts = (self.outputs(), tensors.len(), compiled.scalar_count());
        let kernel = launch::whole_kernel_of(compiled.key, &compiled.program, device, counts)
            .of(compiled.key.operation, tensors)?;
        let made = Arc::new(Whole { dtypes, device, compiled, kernel });
        let mut all = self.shared.whole.write().unwrap_or_else(PoisonError::into_inner);
        let oldest = (all.len() >= KEPT).then(|| all.remove(0));
        all.push(Arc::clone(&made));
        drop(all);
        // Unloading a module may come back here.
        drop(oldest);
        Ok(Some(made))
    }

    fn run_whole(&self, whole: &Whole, tensors: &[&Tensor], parameters: &[Scalar]) -> Result<Made> {
        let first = tensors[0];
        let common = whole.compiled.common;
        let storages: SmallVec<[Storage; 1]> =
            (0..self.outputs()).map(|_| storage_like(first, common)).collect::<Result<_>>()?;
        let mut words: SmallVec<[u64; 6]> = SmallVec::new();
        words.push(first.numel().unsigned_abs());
        words.extend(whole.compiled.words(parameters));
        whole.kernel.run_all(&storages, tensors, &words)?;
        Ok(storages.into_iter().map(|storage| first.whole_of(storage, common)).collect())
    }
}
