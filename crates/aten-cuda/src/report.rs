//! What kernels report: the first index on each device that was out of range.
//!
//! A kernel that meets such an index leaves the element out and writes what it met to a slot of pinned memory, without
//! anybody waiting. Whoever next reads values from the device, calls [`synchronize`], or queues another operation that could report, finds the
//! slot filled and returns the error; the slot is free again then.
//!
//! **Invariants:** a slot lives as long as its runtime. It holds one report, the first one; later ones are dropped until
//! it has been read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use c10_core::{DeviceArg, DeviceIndex, PinnedBuffer, Runtime};

use crate::base::error::{Result, TensorError};

/// Bytes of a slot: two words of 32 bits, then the element, the index and the size.
const BYTES: usize = 32;

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
}

impl Reporter {
    const ALL: [Self; 10] = [
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
        }
    }
}

/// The slots of a runtime.
#[derive(Default)]
struct Reports(Mutex<HashMap<DeviceIndex, Arc<PinnedBuffer>>>);

/// The address of the device's slot; an error that lies in it is returned first.
pub(crate) fn slot(runtime: &Runtime, device: DeviceIndex) -> Result<u64> {
    let reports = runtime.extension::<Reports>();
    let known = reports.0.lock().unwrap_or_else(PoisonError::into_inner).get(&device).cloned();
    if let Some(known) = known {
        taken(&known)?;
        return Ok(known.address() as u64);
    }
    let made = runtime.pinned().buffer(BYTES)?;
    made.write(0, &[0; BYTES])?;
    let mut slots = reports.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(slots.entry(device).or_insert_with(|| Arc::new(made)).address() as u64)
}

/// Waits for all work of a device, the current one for `None`, and tells what its kernels have reported meanwhile, such
/// as an index out of range (`torch.cuda.synchronize`).
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
    let device = Runtime::with_current(|runtime| {
        let device = device.resolve(runtime)?;
        runtime.synchronize(device)?;
        Ok::<_, c10_core::Error>(device)
    })?;
    check(device)
}

/// The error that kernels of the device have reported since the last one, as far as they have run.
pub(crate) fn check(device: DeviceIndex) -> Result<()> {
    let slot = Runtime::with_current(|runtime| {
        let reports = runtime.extension::<Reports>();
        let slots = reports.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok::<_, c10_core::Error>(slots.get(&device).cloned())
    })?;
    slot.map_or(Ok(()), |slot| taken(&slot))
}

/// Empties a slot that holds a whole report.
fn taken(slot: &PinnedBuffer) -> Result<()> {
    let mut bytes = [0; BYTES];
    slot.read(0, &mut bytes[..4])?;
    if bytemuck::pod_read_unaligned::<u32>(&bytes[..4]) != WRITTEN {
        return Ok(());
    }
    slot.read(0, &mut bytes)?;
    slot.write(0, &[0; BYTES])?;
    let number = bytemuck::pod_read_unaligned::<u32>(&bytes[4..8]) as usize;
    let word = |at: usize| bytemuck::pod_read_unaligned::<i64>(&bytes[at..at + 8]);
    let operation = Reporter::ALL.get(number).map_or("an operation", |reporter| reporter.name());
    Err(TensorError::IndexOutOfRange { operation, element: word(8), index: word(16), size: word(24) }.into())
}
