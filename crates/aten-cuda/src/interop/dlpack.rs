//! Tensors that libraries hand to each other within a process: DLPack, version 1 of its structures.
//!
//! [`Tensor::to_dlpack`] lends a tensor's memory, [`Tensor::from_dlpack`] takes what another library lends. Nothing is
//! copied. A [`DLPack`] is what travels: a C structure with a function that ends the loan, which is called once.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use aten_cuda::dlpack::{Consumer, DLPack};
//! use aten_cuda::{DType, Tensor};
//!
//! let ours = Tensor::arange(0, 6, 1, Some(DType::F32), "cuda")?.view(&[2, 3])?.t()?;
//! let lent = ours.to_dlpack(Consumer::Unordered)?.into_raw();
//! // SAFETY: the structure comes from `to_dlpack`, and is given away once.
//! let theirs = Tensor::from_dlpack(unsafe { DLPack::from_raw(lent) })?;
//! assert_eq!((theirs.sizes(), theirs.strides(), theirs.data_ptr()), (&[3, 2][..], &[1, 3][..], ours.data_ptr()));
//! theirs.fill_(7)?;
//! assert_eq!(ours.to_vec::<f32>()?, [7.0; 6]);
//! # Ok::<(), aten_cuda::Error>(())
//! ```
//!
//! # Safety
//! A structure that comes from elsewhere is as its author describes it, and its memory is there until its deleter has been
//! called: that is what the caller of [`DLPack::from_raw`] promises. Our own structures lie in a box together with their
//! shape, their strides and the tensor, and the deleter frees that box.
#![expect(unsafe_code, reason = "structures of C with pointers")]

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use c10_core::panics::discard;
use c10_core::{Device, DeviceBuffer, Runtime, Stream};

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::shape::{self, Dims, contiguous_strides};
use crate::storage::Storage;
use crate::tensor::Tensor;

/// The version of the structures, of which readers of another major version must use the deleter alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Changes with the layout.
    pub major: u32,
    /// Changes with what can be expressed.
    pub minor: u32,
}

/// Where a tensor is (`DLDevice`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// 1 for the host, 2 for a CUDA device, 3 for pinned memory of the host.
    pub device_type: i32,
    /// Which of them.
    pub device_id: i32,
}

/// What elements are (`DLDataType`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// 0 for signed integers, 1 for unsigned ones, 2 for floats, 4 for `bfloat`, 5 for complex floats, 6 for booleans.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// How many make up a vector; 1 for plain elements.
    pub lanes: u16,
}

/// A view of memory (`DLTensor`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The memory: an address of the device.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// What the elements are.
    pub dtype: DLDataType,
    /// As many sizes as dimensions.
    pub shape: *mut i64,
    /// As many strides in elements; null where the elements lie one after another.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A lent tensor (`DLManagedTensorVersioned`).
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of this structure.
    pub version: DLPackVersion,
    /// For the deleter.
    pub manager_ctx: *mut c_void,
    /// Ends the loan, with this structure as its argument; null where there is nothing to end.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Bit 0: the memory must not be written. Bit 1: it is a copy that nobody else uses.
    pub flags: u64,
    /// The view.
    pub dl_tensor: DLTensor,
}

/// The memory must not be written.
const READ_ONLY: u64 = 1;

/// The version that is written here.
const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

const HOST: i32 = 1;
const CUDA: i32 = 2;
const PINNED: i32 = 3;

/// A lent tensor on its way. Dropping it ends the loan.
pub struct DLPack(NonNull<DLManagedTensorVersioned>);

// SAFETY: who makes one of a pointer promises that it may be used and ended on any thread.
unsafe impl Send for DLPack {}
// SAFETY: a shared reference gives nothing but numbers.
unsafe impl Sync for DLPack {}

/// Which stream the borrower of a tensor on a CUDA device uses it on: the `stream` argument of the array API's
/// `__dlpack__`.
#[derive(Clone, Copy, Debug)]
pub enum Consumer<'a> {
    /// The device's default stream (`None` and 1): it waits for the work queued on the current stream so far.
    Default,
    /// This stream, which waits likewise.
    Stream(&'a Stream),
    /// Whoever borrows it orders the work (-1).
    Unordered,
}

impl DLPack {
    /// Takes a structure over. Nothing is looked at yet.
    ///
    /// # Safety
    /// - The pointer is that of a structure of DLPack's version 1, or of another major version with the first three
    ///   fields in the same places. It is not used by anybody else from now on.
    /// - What the structure says of the memory holds until its deleter is called: the memory is there, is initialised,
    ///   and may be read and written on the stream that its producer has been told of.
    /// - The deleter may be called on any thread.
    #[must_use]
    pub unsafe fn from_raw(managed: NonNull<DLManagedTensorVersioned>) -> Self {
        Self(managed)
    }

    /// Gives the structure away; whoever has it calls its deleter.
    #[must_use]
    pub fn into_raw(self) -> NonNull<DLManagedTensorVersioned> {
        ManuallyDrop::new(self).0
    }

    /// The version of the structure.
    #[must_use]
    pub fn version(&self) -> DLPackVersion {
        // SAFETY: the structure lives as long as `self`, and begins with the version.
        unsafe { (*self.0.as_ptr()).version }
    }

    /// The structure, which has the layout that is known here.
    fn managed(&self) -> Result<&DLManagedTensorVersioned> {
        let version = self.version();
        if version.major != VERSION.major {
            let DLPackVersion { major, minor } = version;
            return Err(refused(&format!("version {major}.{minor} of the structures is not known, only 1")));
        }
        // SAFETY: the structure lives as long as `self`, and its layout is that of its version.
        Ok(unsafe { self.0.as_ref() })
    }
}

impl Drop for DLPack {
    fn drop(&mut self) {
        // SAFETY: the structure lives until now, and its deleter is at the same place in every version.
        let deleter = unsafe { (*self.0.as_ptr()).deleter };
        if let Some(deleter) = deleter {
            // SAFETY: it was not called yet, and nobody uses the structure any more.
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

impl fmt::Debug for DLPack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DLPack").field(&self.version()).finish()
    }
}

/// What we lend, in one box: the structure points to its neighbours.
struct Lent {
    managed: DLManagedTensorVersioned,
    sizes: Dims,
    strides: Dims,
    _tensor: Tensor,
}

/// Ends a loan of ours.
///
/// # Safety
/// - The structure is that of a [`Lent`] whose loan has not ended.
unsafe extern "C" fn end(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the structure is there, as the caller promises.
    let lent = unsafe { (*managed).manager_ctx };
    // SAFETY: the context is the box that was leaked when the tensor was lent.
    discard(unsafe { Box::from_raw(lent.cast::<Lent>()) });
}

impl Tensor {
    /// Lends this tensor's memory to another library (`__dlpack__`). The memory stays alive until the loan ends, and its
    /// elements may be written meanwhile. On a CUDA device the borrower's stream is made to wait for the work queued so
    /// far, and the memory is given to nobody else before that stream has passed the work queued there when the loan
    /// ends.
    ///
    /// # Errors
    /// The elements are conjugates or negatives of what lies in memory, the borrower's stream is of another device or
    /// runtime, or the driver's error.
    pub fn to_dlpack(&self, consumer: Consumer<'_>) -> Result<DLPack> {
        if self.is_conj() {
            return Err(invalid("Can't export tensors with the conjugate bit set"));
        }
        self.plain_storage()?;
        self.order_for(consumer)?;
        let sizes = Dims::from_slice(self.sizes());
        // The stride of a dimension of one element says nothing; readers take 1 for granted.
        let strides = sizes.iter().zip(self.strides()).map(|(&size, &stride)| if size == 1 { 1 } else { stride });
        let dl_tensor = DLTensor {
            data: ptr::with_exposed_provenance_mut(usize::try_from(self.data_ptr()).unwrap_or(0)),
            device: self.dl_device(),
            ndim: i32::try_from(self.dim()).unwrap_or(i32::MAX),
            dtype: dl_dtype(self.dtype()),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let deleter: unsafe extern "C" fn(*mut DLManagedTensorVersioned) = end;
        let (manager_ctx, deleter) = (ptr::null_mut(), Some(deleter));
        let managed = DLManagedTensorVersioned { version: VERSION, manager_ctx, deleter, flags: 0, dl_tensor };
        let mut lent = Box::new(Lent { managed, strides: strides.collect(), sizes, _tensor: self.clone() });
        // The box does not move any more, and neither list grows.
        lent.managed.dl_tensor.shape = lent.sizes.as_mut_ptr();
        lent.managed.dl_tensor.strides = lent.strides.as_mut_ptr();
        let lent = NonNull::from(Box::leak(lent));
        // SAFETY: the box was leaked just now, and nobody else has the pointer.
        let managed = unsafe { &raw mut (*lent.as_ptr()).managed };
        // SAFETY: as above.
        unsafe { (*managed).manager_ctx = lent.as_ptr().cast() };
        let managed = NonNull::new(managed).ok_or_else(|| refused("a box has no address"))?;
        Ok(DLPack(managed))
    }

    /// A tensor of the memory that another library lends (`torch.from_dlpack`): on the host, pinned or not, or on a CUDA
    /// device of the current runtime. The loan ends when nothing refers to the memory any more and the work that was
    /// queued with it here is done.
    ///
    /// # Errors
    /// The structure has another version, elements that no dtype here has, another kind of device, negative strides or
    /// memory that must not be written; the device does not exist. The loan has ended then.
    pub fn from_dlpack(lent: DLPack) -> Result<Self> {
        let managed = lent.managed()?;
        if managed.flags & READ_ONLY != 0 {
            return Err(refused("the memory must not be written, and tensors here are writable"));
        }
        let view = managed.dl_tensor;
        let dtype = dtype_of(view.dtype)?;
        let sizes = numbers(view.shape, view.ndim)?.ok_or_else(|| refused("there is no shape"))?;
        shape::checked_numel(&sizes)?;
        let strides = numbers(view.strides, view.ndim)?.unwrap_or_else(|| contiguous_strides(&sizes));
        if strides.iter().zip(&sizes).any(|(&stride, &size)| stride < 0 && size > 1) {
            return Err(refused(&format!("negative strides are not supported: {strides:?}")));
        }
        let strides: Dims = strides.iter().map(|&stride| stride.max(0)).collect();
        let too_large = || TensorError::TooLarge { sizes: sizes.to_vec() };
        let extent = shape::extent(&sizes, &strides).and_then(|extent| usize::try_from(extent).ok());
        let bytes = extent.and_then(|extent| extent.checked_mul(dtype.itemsize())).ok_or_else(too_large)?;
        let storage = storage(lent, &view, dtype, bytes)?;
        Self::view_of(storage, dtype, sizes, strides, 0)
    }

    /// Makes the borrower's stream wait for the work queued so far, and keeps the memory for it.
    fn order_for(&self, consumer: Consumer<'_>) -> Result<()> {
        let Some(buffer) = self.storage().buffer() else { return Ok(()) };
        let device = buffer.device_index();
        Runtime::with_current(|runtime| {
            let default;
            let stream = match consumer {
                Consumer::Unordered => return Ok(()),
                Consumer::Stream(stream) => stream,
                Consumer::Default => {
                    default = runtime.streams().default(device)?;
                    &default
                }
            };
            if stream.device_index() != device {
                let (own, given) = (Device::cuda(device), Device::cuda(stream.device_index()));
                return Err(refused(&format!("the tensor is on {own}, but the borrower's stream is of {given}")));
            }
            buffer.record_stream(stream)?;
            let current = runtime.streams().current(device)?;
            if current != *stream {
                stream.wait_stream(&current)?;
            }
            Ok(())
        })
    }

    fn dl_device(&self) -> DLDevice {
        match self.storage().buffer() {
            Some(buffer) => DLDevice { device_type: CUDA, device_id: buffer.device_index() },
            None if self.is_pinned() => DLDevice { device_type: PINNED, device_id: 0 },
            None => DLDevice { device_type: HOST, device_id: 0 },
        }
    }
}

/// The memory of a view, as a storage that keeps the loan.
fn storage(lent: DLPack, view: &DLTensor, dtype: DType, bytes: usize) -> Result<Storage> {
    let DLDevice { device_type, device_id } = view.device;
    let first = usize::try_from(view.byte_offset).ok().and_then(|offset| view.data.addr().checked_add(offset));
    let first = first.ok_or_else(|| refused("the offset reaches beyond the address space"))?;
    if bytes > 0 && (view.data.is_null() || !first.is_multiple_of(dtype.part().bytes())) {
        return Err(refused(&format!("no {dtype} can be at the address {first:#x}")));
    }
    match device_type {
        HOST | PINNED => {
            let first = NonNull::new(view.data.wrapping_byte_add(first - view.data.addr()).cast::<u8>());
            let first = first.unwrap_or(NonNull::dangling());
            // SAFETY: what the structure says holds until the loan ends, as whoever made it promised.
            Ok(unsafe { Storage::foreign(first, bytes, Box::new(lent), device_type == PINNED) })
        }
        CUDA if device_id < 0 => Err(refused("the number of the CUDA device is negative")),
        CUDA => {
            // SAFETY: as above.
            let buffer = unsafe { DeviceBuffer::from_owner(first as u64, device_id, bytes, lent)? };
            Ok(Storage::from_buffer(buffer))
        }
        other => Err(refused(&format!("devices of kind {other} are not supported, only the host and CUDA devices"))),
    }
}

/// As many numbers as dimensions; none behind a null pointer.
fn numbers(first: *const i64, count: i32) -> Result<Option<Dims>> {
    let count = usize::try_from(count).map_err(|_| refused("the number of dimensions is negative"))?;
    if count == 0 {
        return Ok(Some(Dims::new()));
    }
    if first.is_null() {
        return Ok(None);
    }
    // SAFETY: the structure has as many numbers there, as whoever made it promised.
    Ok(Some(Dims::from_slice(unsafe { std::slice::from_raw_parts(first, count) })))
}

fn refused(reason: &str) -> crate::base::error::Error {
    invalid(format!("from_dlpack: {reason}"))
}

/// The kinds of elements, as DLPack numbers them.
const CODES: [(DType, u8); 15] = [
    (DType::I8, 0),
    (DType::I16, 0),
    (DType::I32, 0),
    (DType::I64, 0),
    (DType::U8, 1),
    (DType::F16, 2),
    (DType::F32, 2),
    (DType::F64, 2),
    (DType::BF16, 4),
    (DType::C32, 5),
    (DType::C64, 5),
    (DType::C128, 5),
    (DType::Bool, 6),
    (DType::F8E4M3FN, 10),
    (DType::F8E5M2, 12),
];

fn bits(dtype: DType) -> u8 {
    u8::try_from(dtype.itemsize() * 8).unwrap_or(u8::MAX)
}

fn dl_dtype(dtype: DType) -> DLDataType {
    let code = CODES.iter().find(|(known, _)| *known == dtype).map_or(3, |(_, code)| *code);
    DLDataType { code, bits: bits(dtype), lanes: 1 }
}

fn dtype_of(given: DLDataType) -> Result<DType> {
    let DLDataType { code: wanted, bits: width, lanes } = given;
    let fits = |(dtype, code): &&(DType, u8)| (*code, bits(*dtype), 1) == (wanted, width, lanes);
    let known = CODES.iter().find(fits).map(|(dtype, _)| *dtype);
    known.ok_or_else(|| {
        refused(&format!("no dtype here has elements of kind {wanted} with {width} bits in vectors of {lanes}"))
    })
}
