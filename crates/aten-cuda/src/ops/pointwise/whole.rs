//! The short way of operations on whole tensors of one shape.
//!
//! Most calls of a program are like one that it made shortly before: the same operation on tensors of the same dtypes,
//! each of them whole. Then nothing has to be worked out but where the memory is. Each thread keeps what such calls
//! need, found by a few words; a call that is not of this kind goes the usual way.
//!
//! **Invariants:** tensors here are on one CUDA device, real, contiguous, of the same sizes with at least one element
//! and one dimension, and begin at a multiple of [`ALIGNMENT`]. What depends on the dtypes alone was checked when the
//! entry was made; what depends on numbers is checked in each call.

use std::cell::RefCell;
use std::rc::Rc;

use c10_core::{DeviceIndex, Runtime};
use kernel_ir::Type;
use smallvec::SmallVec;

use super::run::{Output, Prepared, scalar_bits};
use super::{Operation, Participating, limit};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::scalar::Scalar;
use crate::launch::{self, WholeKernel};
use crate::storage::Storage;
use crate::tensor::{Operand, Signs, Tensor, storage_like};

/// What the first byte of each operand lies at a multiple of, so that threads can load 16 bytes at once.
const ALIGNMENT: u64 = 16;

/// Entries of a thread. Two calls that fall on one entry drive each other out, which costs time and nothing else.
const ENTRIES: usize = 64;

/// What a call needs besides the memory.
struct Entry {
    key: Key,
    common: DType,
    result: DType,
    kernel: WholeKernel,
    /// The types of the numbers, in the order in which the kernel takes them.
    numbers: SmallVec<[Type; 4]>,
}

/// What decides about an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    operation: usize,
    /// A byte for each operand and one for the output.
    dtypes: u32,
    device: DeviceIndex,
}

thread_local! {
    static ENTRIES_OF_THREAD: RefCell<[Option<Rc<Entry>>; ENTRIES]> = const { RefCell::new([const { None }; ENTRIES]) };
}

/// A result that has no tensor yet.
pub(super) struct Made<'a> {
    storage: Storage,
    dtype: DType,
    like: &'a Tensor,
}

impl Made<'_> {
    /// The tensor of the result.
    #[inline]
    pub(super) fn into_tensor(self) -> Tensor {
        self.like.whole_of(self.storage, self.dtype)
    }
}

/// The operation's result in new memory, where the call is of this kind. `None` where it is not: nothing was done then.
#[inline]
pub(super) fn new<'a>(
    operation: &'static Operation,
    operands: &[Operand<'a>],
    numbers: &[Scalar],
) -> Result<Option<Made<'a>>> {
    let Some((entry, like)) = entry_for(operation, operands, numbers, None)? else { return Ok(None) };
    let words = words(operation, operands, numbers, (&entry, like))?;
    let dtype = entry.result;
    let storage = storage_like(like, dtype)?;
    let range = 0..storage.nbytes();
    entry.kernel.run((&storage, range), operands.iter().filter_map(tensor_of), &words)?;
    Ok(Some(Made { storage, dtype, like }))
}

/// Writes the operation's result to `out`, where the call is of this kind, and says whether it is.
pub(super) fn write(
    operation: &'static Operation,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
    out: &Tensor,
) -> Result<bool> {
    let Some((entry, like)) = entry_for(operation, operands, numbers, Some(out))? else { return Ok(false) };
    let words = words(operation, operands, numbers, (&entry, like))?;
    let start = out.byte_offset();
    out.storage().note_write();
    let output = (out.storage(), start..start + out.nbytes());
    entry.kernel.run(output, operands.iter().filter_map(tensor_of), &words)?;
    Ok(true)
}

/// The entry of a call, which is found or made, and its first tensor.
#[inline]
fn entry_for<'a>(
    operation: &'static Operation,
    operands: &[Operand<'a>],
    numbers: &[Scalar],
    out: Option<&Tensor>,
) -> Result<Option<(Rc<Entry>, &'a Tensor)>> {
    // A trace takes no short ways.
    if launch::record::is_on() {
        return Ok(None);
    }
    let Some((key, first)) = key(operation, operands, out) else { return Ok(None) };
    if let Some(entry) = find(key) {
        return Ok(Some((entry, first)));
    }
    Ok(make(operation, operands, numbers, out, key)?.map(|entry| (entry, first)))
}

fn tensor_of<'a>(operand: &Operand<'a>) -> Option<&'a Tensor> {
    if let Operand::Tensor(tensor) = operand { Some(tensor) } else { None }
}

/// The key of a call, and its first tensor; `None` where it is not of this kind.
fn key<'a>(operation: &'static Operation, operands: &[Operand<'a>], out: Option<&Tensor>) -> Option<(Key, &'a Tensor)> {
    let first = operands.iter().find_map(tensor_of)?;
    let device = first.storage().buffer()?.device_index();
    let has_number = operands.iter().any(|operand| tensor_of(operand).is_none());
    // Beside numbers, dimensions of one element may get other strides.
    if !is_whole(first) || has_number && first.sizes().contains(&1) {
        return None;
    }
    let mut dtypes = out.map_or(0xff, |out| out.dtype() as u32);
    for operand in operands {
        let code = match operand {
            Operand::Tensor(tensor) if std::ptr::eq(*tensor, first) || is_alike(tensor, first) => tensor.dtype() as u32,
            Operand::Tensor(_) => return None,
            Operand::Number(number) => 0x80 | number.default_dtype() as u32,
        };
        dtypes = dtypes << 8 | code;
    }
    if let Some(out) = out {
        let apart = |tensor: &Tensor| {
            !tensor.storage().is_same(out.storage())
                || (tensor.storage_offset() == out.storage_offset() && tensor.dtype() == out.dtype())
        };
        if !is_alike(out, first) || !operands.iter().filter_map(tensor_of).all(apart) {
            return None;
        }
    }
    Some((Key { operation: std::ptr::from_ref(operation).addr(), dtypes, device }, first))
}

/// Whether a tensor on a CUDA device is whole: see the file's invariants.
pub(crate) fn is_whole(tensor: &Tensor) -> bool {
    let mut expected = 1;
    for (&size, &stride) in tensor.sizes().iter().zip(tensor.strides()).rev() {
        if stride != expected || size == 0 {
            return false;
        }
        expected *= size;
    }
    tensor.dim() > 0 && is_real(tensor) && tensor.data_ptr().is_multiple_of(ALIGNMENT)
}

/// Whether a tensor is whole and of the device and the sizes of the first.
pub(crate) fn is_alike(tensor: &Tensor, first: &Tensor) -> bool {
    tensor.sizes() == first.sizes()
        && tensor.strides() == first.strides()
        && tensor.device() == first.device()
        && is_real(tensor)
        && tensor.data_ptr().is_multiple_of(ALIGNMENT)
}

/// Whether elements are real numbers that lie in memory as they are.
fn is_real(tensor: &Tensor) -> bool {
    !tensor.dtype().is_complex() && tensor.signs() == Signs::PLAIN
}

impl Key {
    fn place(self) -> usize {
        let mixed = (self.operation as u64 ^ u64::from(self.dtypes) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 58) as usize % ENTRIES
    }
}

/// The entry of a key, if this thread has it for the current runtime.
fn find(key: Key) -> Option<Rc<Entry>> {
    let known = ENTRIES_OF_THREAD.with_borrow(|entries| entries[key.place()].clone());
    known.filter(|entry| entry.key == key && Runtime::with_current(|runtime| entry.kernel.is_of(runtime)))
}

/// Makes the entry of a call, after all that is checked once; `None` where the kernel has no place for it.
#[cold]
fn make(
    operation: &'static Operation,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
    out: Option<&Tensor>,
    key: Key,
) -> Result<Option<Rc<Entry>>> {
    let output = out.map(|out| (out, Output::InPlace));
    let prepared = Prepared::for_output(operation, operands, numbers, output)?;
    let computed = operation.rule.computed(prepared.common);
    let result = operation.rule.result(prepared.common);
    if computed.is_complex() || result.is_complex() {
        return Ok(None);
    }
    let (program_key, program) = prepared.program(out.map_or(result, Tensor::dtype))?;
    let own = operands.iter().enumerate().filter(|(_, operand)| tensor_of(operand).is_none());
    let types = own.map(|(at, _)| operation.read_as(at, computed)).chain(numbers.iter().map(|_| computed));
    let types: SmallVec<[Type; 4]> = types.map(DType::compute_type).collect();
    let tensors = 1 + operands.iter().filter_map(tensor_of).count();
    let kernel = launch::whole_kernel(program_key, &program, key.device, (tensors, types.len()))?;
    let entry = Rc::new(Entry { key, common: prepared.common, result, kernel, numbers: types });
    let replaced = ENTRIES_OF_THREAD.with_borrow_mut(|entries| entries[key.place()].replace(Rc::clone(&entry)));
    // Dropped only here, after the borrow: unloading a module may look at this thread's entries again.
    drop(replaced);
    Ok(Some(entry))
}

/// What the kernel takes besides memory: the number of elements, and the bits of the numbers, which are checked first.
fn words(
    operation: &'static Operation,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
    (entry, first): (&Entry, &Tensor),
) -> Result<SmallVec<[u64; 6]>> {
    let mut words: SmallVec<[u64; 6]> = SmallVec::new();
    words.push(first.numel().unsigned_abs());
    if entry.numbers.is_empty() {
        return Ok(words);
    }
    let dtypes: SmallVec<[DType; 3]> = operands.iter().map(Operand::default_dtype).collect();
    let participating = Participating { common: entry.common, dtypes: &dtypes, numbers, on_host: false };
    if let Some(text) = (operation.check)(&participating).or_else(|| (operation.late_check)(&participating)) {
        return Err(invalid(text));
    }
    limit::check(operation, entry.common, operands, numbers, false)?;
    let own =
        operands.iter().filter_map(|operand| if let Operand::Number(number) = operand { Some(*number) } else { None });
    let all = own.chain(numbers.iter().copied()).zip(&entry.numbers);
    words.extend(all.flat_map(|(number, &ty)| scalar_bits(number, ty, 1)));
    Ok(words)
}
