//! What kernels report: on each device the first index that was out of range, or another value that an operation cannot
//! take.
//!
//! A kernel that meets such a value leaves the element out and writes what it met to a slot of pinned memory, without
//! anybody waiting. Whatever next waits for the device, and the next operation that could report, finds the slot filled
//! and returns the error; the slot is free again then.
//!
//! **Invariants:** a slot lives as long as its runtime. It holds one report, the first one; later ones are dropped until
//! it has been read.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use c10_core::locks::{Mutex, MutexGuard};
use c10_core::{DeviceArg, DeviceAssertionError, DeviceIndex, PinnedBuffer, Runtime};

use crate::base::error::{Error, IndexKernel, Result, TensorError, invalid};
use crate::base::random_error::RandomError;

/// Bytes of a slot: two words of 32 bits, then the element, the value and the size.
const BYTES: usize = 32;

/// torch's message for a source of `masked_scatter` with fewer elements than the mask selects.
pub(crate) const FEW_ELEMENTS: &str = "Number of elements of source < number of ones in mask";

/// The state of a slot that holds a whole report.
const WRITTEN: u32 = 2;

/// The operations that can report, by the number that their kernels are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reporter {
    Gather,
    Scatter,
    ScatterAdd,
    IndexSelect,
    IndexAdd,
    IndexCopy,
    Index,
    IndexPut,
    Embedding,
    TakeAlongDim,
    Bernoulli,
    /// The one after it stands for a row without a probability above zero.
    Multinomial,
    MultinomialRow,
    CrossEntropy,
    MaskedScatter,
}

impl Reporter {
    const ALL: [Self; 15] = [
        Self::Gather,
        Self::Scatter,
        Self::ScatterAdd,
        Self::IndexSelect,
        Self::IndexAdd,
        Self::IndexCopy,
        Self::Index,
        Self::IndexPut,
        Self::Embedding,
        Self::TakeAlongDim,
        Self::Bernoulli,
        Self::Multinomial,
        Self::MultinomialRow,
        Self::CrossEntropy,
        Self::MaskedScatter,
    ];

    /// The operation's name in torch.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::ScatterAdd => "scatter_add",
            Self::IndexSelect => "index_select",
            Self::IndexAdd => "index_add",
            Self::IndexCopy => "index_copy",
            Self::Index => "index",
            Self::IndexPut => "index_put",
            Self::Embedding => "embedding",
            Self::TakeAlongDim => "take_along_dim",
            Self::Bernoulli => "bernoulli_",
            Self::Multinomial | Self::MultinomialRow => "multinomial",
            Self::CrossEntropy => "cross_entropy",
            Self::MaskedScatter => "masked_scatter",
        }
    }
}

/// The slots of a runtime.
#[derive(Default)]
struct Reports(Mutex<HashMap<DeviceIndex, Arc<PinnedBuffer>>>);

/// A report as a kernel writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Report {
    operation: Reporter,
    element: i64,
    /// An index or, where a number is reported, its bits.
    value: i64,
    size: i64,
}

/// The address of the device's slot; an error that lies in it is returned first.
pub(crate) fn slot(runtime: &Runtime, device: DeviceIndex) -> Result<u64> {
    let reports = runtime.extension::<Reports>();
    let known = reports.lock().get(&device).cloned();
    if let Some(known) = known {
        return match taken(&known)? {
            Some(report) => Err(report.error()),
            None => Ok(known.address() as u64),
        };
    }
    let made = runtime.pinned().buffer(BYTES)?;
    made.write(0, &[0; BYTES])?;
    let mut slots = reports.lock();
    if slots.is_empty() {
        let reports = Arc::clone(&reports);
        runtime.check_after_waiting(move |device| reports.found(device));
    }
    Ok(slots.entry(device).or_insert_with(|| Arc::new(made)).address() as u64)
}

/// Waits for all work of a device, the current one for `None`, and tells what its kernels have reported meanwhile, such
/// as an index out of range (`torch.cuda.synchronize`). So do all calls of `c10_core` that wait for the device.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Tensor, synchronize};
///
/// let table = Tensor::ones(&[4, 2], DType::F32, "cuda")?;
/// let index = Tensor::from_slice(&[1_i64, 9], &[2])?.cuda(None)?;
/// let rows = table.index_select(0, &index)?;
/// let error = synchronize(None).unwrap_err().to_string();
/// assert_eq!(
///     error,
///     "index_select(): index 9 is out of bounds for dimension with size 4 (element 1 of the index)"
/// );
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// What was reported; the device does not exist, work on it failed, or a capture forbids waiting.
pub fn synchronize(device: impl DeviceArg) -> Result<()> {
    let wait = |runtime: &Runtime| runtime.synchronize(device.resolve(runtime)?);
    Ok(Runtime::with_current(wait)?)
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, HashMap<DeviceIndex, Arc<PinnedBuffer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What kernels of the device have reported since the last report, as far as they have run.
    fn found(&self, device: DeviceIndex) -> Option<DeviceAssertionError> {
        let slot = self.lock().get(&device).cloned()?;
        // A slot has as many bytes as are read of it.
        let report = taken(&slot).ok().flatten()?;
        let (operation, element) = (report.operation.name(), report.element);
        Some(DeviceAssertionError {
            device,
            operation,
            element,
            value: report.value(),
            found: Arc::new(report.error()),
        })
    }
}

/// Empties a slot that holds a whole report.
fn taken(slot: &PinnedBuffer) -> Result<Option<Report>> {
    let mut bytes = [0; BYTES];
    slot.read(0, &mut bytes[..4])?;
    if bytemuck::pod_read_unaligned::<u32>(&bytes[..4]) != WRITTEN {
        return Ok(None);
    }
    slot.read(0, &mut bytes)?;
    slot.write(0, &[0; BYTES])?;
    let number = bytemuck::pod_read_unaligned::<u32>(&bytes[4..8]) as usize;
    let word = |at: usize| bytemuck::pod_read_unaligned::<i64>(&bytes[at..at + 8]);
    let operation = Reporter::ALL.get(number).copied();
    Ok(operation.map(|operation| Report { operation, element: word(8), value: word(16), size: word(24) }))
}

impl Report {
    fn number(&self) -> f64 {
        f64::from_bits(self.value.cast_unsigned())
    }

    fn value(&self) -> String {
        match self.operation {
            Reporter::Bernoulli | Reporter::Multinomial | Reporter::MultinomialRow => self.number().to_string(),
            _ => self.value.to_string(),
        }
    }

    fn error(&self) -> Error {
        let (operation, element) = (self.operation.name(), self.element);
        match self.operation {
            Reporter::Bernoulli | Reporter::Multinomial => {
                RandomError::Probability { operation, element, value: self.number() }.into()
            }
            Reporter::MultinomialRow => RandomError::SumOfProbabilities { row: element }.into(),
            Reporter::CrossEntropy => {
                TensorError::TargetOutOfRange { element, class: self.value, classes: self.size }.into()
            }
            Reporter::MaskedScatter => invalid(FEW_ELEMENTS),
            _ => TensorError::IndexOutOfRange {
                operation,
                element,
                index: self.value,
                dim: None,
                size: self.size,
                kernel: IndexKernel::default(),
            }
            .into(),
        }
    }
}
