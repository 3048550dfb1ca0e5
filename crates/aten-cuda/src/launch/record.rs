//! What traced functions do, written down instead of being run.
//!
//! A trace takes what would be launched: programs over elements, reductions over rows, and calls of everything else that
//! says what it reads and writes. Views leave no trace, since each operand is written down as it lies in its storage; an
//! operation in place is one whose output is there already.
//!
//! **Invariants:** records are in the order in which the operations were called. Operands hold their storages, so that an
//! address means one memory as long as the records are there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError};

use c10_core::locks::Mutex;
use c10_core::{Device, Made, PuttingOff, Runtime, Stream};
use kernel_ir::Program;
use kernel_ir::reduce::Reduction;

use super::rows::RowWork;
use super::{ProgramKey, Work};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::Dims;
use crate::storage::Storage;
use crate::storage::deferred;
use crate::tensor::Tensor;

/// An operation that was written down.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: &'static str,
    pub(crate) work: Recorded,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) inputs: Vec<Tensor>,
    /// The stream that it is for: the current one of its device when it was called.
    pub(crate) stream: Stream,
    /// What the trace has made and the call uses, such as an event.
    pub(crate) made: Option<Made>,
}

/// What an operation does.
#[derive(Clone)]
pub(crate) enum Recorded {
    /// A program for each element.
    Elements { key: ProgramKey, program: Arc<Program>, scalars: Vec<u64>, sizes: Dims },
    /// A reduction of rows.
    Rows { key: ProgramKey, reduction: Arc<Reduction>, scalars: Vec<u64>, dims: Vec<usize> },
    /// Anything else, by a function of the outputs and the inputs. `detail` tells apart what two calls of a name do.
    Call { run: Arc<CallFn>, detail: Vec<u64>, beyond: Beyond },
}

/// What a call does beyond writing its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// Nothing: it is left out where nobody needs them.
    Nothing,
    /// It draws from a generator, or reports values that are wrong.
    State,
    /// It orders streams, or tells which of them use memory.
    Streams,
}

/// Runs an operation over outputs and inputs that lie in memory as those did that were written down.
pub(crate) type CallFn = dyn Fn(&[Tensor], &[Tensor]) -> Result<()> + Send + Sync;

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements { key, sizes, .. } => write!(f, "Elements({}, {sizes:?})", key.operation),
            Self::Rows { key, dims, .. } => write!(f, "Rows({}, {dims:?})", key.operation),
            Self::Call { detail, .. } => write!(f, "Call({detail:?})"),
        }
    }
}

/// Constants of a function that its traces have copied to a device, by their bytes: a second trace has the same memory.
#[derive(Debug, Default)]
pub(crate) struct Constants(Mutex<HashMap<Bytes, Tensor>>);

/// Bytes, how they lie (dtype, sizes, strides), and on which device.
type Bytes = (Vec<u8>, DType, Dims, Dims, Device);

/// Bytes of constants that a function keeps at most, and how many. What does not fit is copied in each call.
const MOST_BYTES: usize = 64 << 20;
const MOST_CONSTANTS: usize = 1024;

thread_local! {
    static RECORDS: RefCell<Vec<Record>> = const { RefCell::new(Vec::new()) };
    static CONSTANTS: RefCell<Option<Arc<Constants>>> = const { RefCell::new(None) };
}

/// A trace has these constants; without any, none are kept.
pub(crate) fn set_constants(constants: Option<Arc<Constants>>) {
    drop(CONSTANTS.replace(constants));
}

/// Memory of the device of `like` that has these bytes, laid out as that: a constant of the function that is traced.
/// Nothing where it keeps no more.
pub(crate) fn constant(like: &Tensor, bytes: Vec<u8>) -> Result<Option<Tensor>> {
    let Some(constants) = CONSTANTS.with_borrow(Clone::clone) else { return Ok(None) };
    let known = || constants.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (sizes, strides) = (Dims::from_slice(like.sizes()), Dims::from_slice(like.strides()));
    let key = (bytes, like.dtype(), sizes.clone(), strides.clone(), like.device());
    if let Some(constant) = known().get(&key) {
        return Ok(Some(constant.clone()));
    }
    let bytes = &key.0;
    let (count, kept) = {
        let known = known();
        (known.len(), known.keys().map(|(bytes, ..)| bytes.len()).sum::<usize>())
    };
    let Some(device) = like.device().index else { return Ok(None) };
    if count >= MOST_CONSTANTS || kept.saturating_add(bytes.len()) > MOST_BYTES {
        return Ok(None);
    }
    // The constant is made without the lock, since this waits for the device.
    let made = PuttingOff::paused(|| {
        let stream = Runtime::with_current(|runtime| runtime.streams().current(device))?;
        if stream.is_capturing()? {
            return Ok(None);
        }
        let make = || -> Result<Storage> {
            let storage = Storage::new(bytes.len(), like.device())?;
            storage.write(0, bytes)?;
            Ok(storage)
        };
        let storage = Runtime::with_current(|runtime| runtime.mem_pools().outside(make))??;
        // Any stream may read it from now on.
        stream.synchronize()?;
        Ok::<_, Error>(Some(Tensor::view_of(storage, like.dtype(), sizes, strides, 0)?))
    })?;
    Ok(made.map(|made| known().entry(key).or_insert(made).clone()))
}

/// Whether operations of this thread are written down.
#[inline]
pub(crate) fn is_on() -> bool {
    deferred::is_tracing()
}

/// The records so far, which are not there any more.
pub(crate) fn take() -> Vec<Record> {
    RECORDS.take()
}

pub(super) fn elements(work: &Work<'_>, sizes: &[i64]) -> Result<()> {
    let (program, scalars) = (Arc::clone(&work.program), work.scalars.to_vec());
    let recorded = Recorded::Elements { key: work.key, program, scalars, sizes: Dims::from_slice(sizes) };
    add(work.key.operation, recorded, work.outputs, work.inputs)
}

pub(super) fn rows(work: &RowWork<'_>) -> Result<()> {
    let (reduction, scalars) = (Arc::clone(&work.reduction), work.scalars.to_vec());
    let recorded = Recorded::Rows { key: work.key, reduction, scalars, dims: work.dims.to_vec() };
    add(work.key.operation, recorded, work.outputs, work.inputs)
}

/// Writes down a call, where a trace is under way; else `false`, and nothing was done. `detail` has everything that the
/// function depends on besides its operands. The call is made even where nobody needs its outputs.
pub(crate) fn call(
    name: &'static str,
    operands: (&[&Tensor], &[&Tensor]),
    detail: Vec<u64>,
    run: impl Fn(&[Tensor], &[Tensor]) -> Result<()> + Send + Sync + 'static,
) -> Result<bool> {
    call_of(name, operands, detail, (Beyond::State, run))
}

/// As [`call`], for a call that does nothing but write its outputs.
pub(crate) fn pure_call(
    name: &'static str,
    operands: (&[&Tensor], &[&Tensor]),
    detail: Vec<u64>,
    run: impl Fn(&[Tensor], &[Tensor]) -> Result<()> + Send + Sync + 'static,
) -> Result<bool> {
    call_of(name, operands, detail, (Beyond::Nothing, run))
}

/// As [`call`], for a call that tells the runtime which streams use memory.
pub(super) fn stream_call(
    name: &'static str,
    operands: (&[&Tensor], &[&Tensor]),
    detail: Vec<u64>,
    run: impl Fn(&[Tensor], &[Tensor]) -> Result<()> + Send + Sync + 'static,
) -> Result<bool> {
    call_of(name, operands, detail, (Beyond::Streams, run))
}

fn call_of(
    name: &'static str,
    (outputs, inputs): (&[&Tensor], &[&Tensor]),
    detail: Vec<u64>,
    (beyond, run): (Beyond, impl Fn(&[Tensor], &[Tensor]) -> Result<()> + Send + Sync + 'static),
) -> Result<bool> {
    if !is_on() {
        return Ok(false);
    }
    add(name, Recorded::Call { run: Arc::new(run), detail, beyond }, outputs, inputs)?;
    Ok(true)
}

/// Writes down a call of the runtime that orders streams. Whatever is written down before it runs before it.
/// `made` stands for what the first number of the key names, where the trace has made it.
pub(crate) fn fence(
    name: &'static str,
    key: [u64; 2],
    made: Option<&Made>,
    call: Box<dyn Fn() -> c10_core::Result<()> + Send + Sync>,
) {
    let run = Arc::new(move |_: &[Tensor], _: &[Tensor]| Ok(call()?));
    // Without a current stream there is nothing that could be ordered.
    if add(name, Recorded::Call { run, detail: key.to_vec(), beyond: Beyond::Streams }, &[], &[]).is_ok() {
        let note =
            |records: &mut Vec<Record>| records.last_mut().into_iter().for_each(|last| last.made = made.cloned());
        RECORDS.with_borrow_mut(note);
    }
}

fn add(name: &'static str, work: Recorded, outputs: &[&Tensor], inputs: &[&Tensor]) -> Result<()> {
    let own = |tensors: &[&Tensor]| tensors.iter().map(|&tensor| tensor.clone()).collect::<Vec<_>>();
    let (outputs, inputs) = (own(outputs), own(inputs));
    let device = outputs.iter().chain(&inputs).find_map(|tensor| tensor.device().index).unwrap_or_default();
    let stream = Runtime::with_current(|runtime| runtime.streams().current(device))?;
    RECORDS.with_borrow_mut(|records| records.push(Record { name, work, outputs, inputs, stream, made: None }));
    Ok(())
}
