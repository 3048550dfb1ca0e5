//! Tensors: what they are, how they are made and read.
//!
//! Reading order: this file ([`Tensor`] and its properties), `make` (tensors from values), `read` (values from
//! tensors), `context` (which operation failed), `view` (other sizes and strides over the same storage), `overlap`
//! (views that share memory), `resize` (resizing of outputs), `place` (which device), `signs` (conjugates that are
//! views), `typed` (torch's types of tensors), `display` (as torch prints it).

mod context;
mod display;
mod make;
mod overlap;
mod place;
mod read;
mod resize;
mod signs;
mod typed;
mod view;

use std::sync::OnceLock;

use c10_core::{Arg, Device, DeviceIndex, DeviceOf, DeviceType, MemoryAccess};

pub(crate) use context::Context;
pub(crate) use make::{empty_strided, scalar_bytes, storage_like, storage_of};
pub(crate) use overlap::{check_apart, check_overlap, may_mix, may_share, repeats};
pub use place::{Destination, ToDevice};
pub(crate) use read::{Places, read_complex, scalar_of};
pub(crate) use resize::resize_output;
pub(crate) use signs::Signs;
pub use typed::{TypedElement, TypedStorage, TypedTensor};
pub(crate) use view::view_strides;

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::layout::check_inside;
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims};
use crate::storage::Storage;

/// A view of shared storage (`torch.Tensor`).
///
/// Clones and views refer to the same memory. Operations on a CUDA device are queued on its current stream and return
/// before they are done.
///
/// Threads may share a tensor. If one thread writes a host tensor while another reads it, the reader sees each element
/// either before or after the write, but not a consistent state of all elements: a program that needs one must
/// synchronise its threads, as with torch.
///
/// An in-place operation or an operation with an output is rejected if the output certainly shares memory with an
/// input, other than element by element, or repeats an element. Overlaps of views with gaps are not detected: if their
/// elements overlap, the result is unspecified, as in torch. An output whose sizes differ from the result's is resized;
/// its existing clones and views keep their sizes.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Tensor};
///
/// let (x, out) = (Tensor::ones(&[2, 3], DType::F32, "cuda")?, Tensor::empty(&[0], DType::F32, "cuda")?);
/// x.select(1, 0)?.add_(&x.select(1, 1)?)?;
/// x.mul_out(2, &out)?;
/// assert_eq!((out.sizes(), out.to_vec::<f32>()?), (&[2, 3][..], vec![4.0, 2.0, 2.0, 4.0, 2.0, 2.0]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub struct Tensor {
    storage: Storage,
    dtype: DType,
    sizes: Dims,
    strides: Dims,
    /// The place of the first element in the storage, in elements.
    offset: i64,
    signs: Signs,
    /// Whether regions of autocast keep its casts.
    is_parameter: bool,
    /// Tensor that this handle refers to after it was resized as an output. All properties are read through
    /// [`Self::latest`].
    resized: OnceLock<Box<Self>>,
}

impl Clone for Tensor {
    fn clone(&self) -> Self {
        let Self { storage, dtype, sizes, strides, offset, signs, is_parameter, .. } = self.latest();
        let (storage, sizes, strides) = (storage.clone(), sizes.clone(), strides.clone());
        let (dtype, offset, signs, is_parameter) = (*dtype, *offset, *signs, *is_parameter);
        Self { storage, dtype, sizes, strides, offset, signs, is_parameter, resized: OnceLock::new() }
    }
}

/// What stands beside a tensor in an operation: another tensor or a number.
#[derive(Clone, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number.
    Number(Scalar),
}

impl Operand<'_> {
    /// The dtype of the tensor, or that of one made of the number alone.
    pub(crate) fn default_dtype(&self) -> DType {
        match self {
            Self::Tensor(tensor) => tensor.dtype(),
            Self::Number(number) => number.default_dtype(),
        }
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl<T: Into<Scalar>> From<T> for Operand<'_> {
    fn from(number: T) -> Self {
        Self::Number(number.into())
    }
}

impl DeviceOf for Tensor {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        self.device().cuda_device()
    }
}

impl Tensor {
    /// Makes a view of elements in the storage. Every tensor is created here, by [`Self::with_layout`] or by
    /// [`Self::whole_of`].
    ///
    /// # Errors
    /// The layout is invalid ([`check_inside`]).
    #[inline]
    pub(crate) fn view_of(storage: Storage, dtype: DType, sizes: Dims, strides: Dims, offset: i64) -> Result<Self> {
        check_inside(storage.nbytes(), dtype, &sizes, &strides, offset)?;
        let resized = OnceLock::new();
        Ok(Self { storage, dtype, sizes, strides, offset, signs: Signs::PLAIN, is_parameter: false, resized })
    }

    /// Makes a view of the same storage with other sizes and strides.
    ///
    /// # Errors
    /// The layout is invalid ([`check_inside`]).
    pub(crate) fn with_layout(&self, sizes: Dims, strides: Dims, offset: i64) -> Result<Self> {
        let Self { storage, dtype, signs, .. } = self.latest();
        check_inside(storage.nbytes(), *dtype, &sizes, &strides, offset)?;
        let (storage, resized) = (storage.clone(), OnceLock::new());
        Ok(Self { storage, dtype: *dtype, sizes, strides, offset, signs: *signs, is_parameter: false, resized })
    }

    /// Makes a tensor with the sizes and strides of this one, which is contiguous, over new memory for the same number
    /// of elements.
    #[inline]
    pub(crate) fn whole_of(&self, storage: Storage, dtype: DType) -> Self {
        let (sizes, strides) = (Dims::from_slice(self.sizes()), Dims::from_slice(self.strides()));
        debug_assert!(
            check_inside(storage.nbytes(), dtype, &sizes, &strides, 0).is_ok(),
            "the memory has the elements"
        );
        let (signs, resized) = (Signs::PLAIN, OnceLock::new());
        Self { storage, dtype, sizes, strides, offset: 0, signs, is_parameter: false, resized }
    }

    /// Returns the tensor that this handle refers to.
    #[inline]
    fn latest(&self) -> &Self {
        let mut tensor = self;
        while let Some(next) = tensor.resized.get() {
            tensor = next;
        }
        tensor
    }

    /// The same memory with other signs.
    pub(crate) fn with_signs(&self, signs: Signs) -> Self {
        Self { signs, is_parameter: false, ..self.clone() }
    }

    /// Which parts of the elements lie in memory with the opposite sign.
    pub(crate) fn signs(&self) -> Signs {
        self.signs
    }

    /// The same tensor as a parameter.
    pub(crate) fn marked_parameter(&self) -> Self {
        Self { is_parameter: true, ..self.clone() }
    }

    /// Whether it was made by [`Self::as_parameter`], or is a clone of such a tensor.
    #[must_use]
    pub fn is_parameter(&self) -> bool {
        self.is_parameter
    }

    /// The type of the elements (`dtype`).
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device of the memory (`device`).
    #[must_use]
    pub fn device(&self) -> Device {
        self.storage().device()
    }

    /// Whether the memory is on a CUDA device (`is_cuda`).
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        self.device().kind == DeviceType::Cuda
    }

    /// The sizes (`shape`, `size()`).
    #[must_use]
    pub fn sizes(&self) -> &[i64] {
        &self.latest().sizes
    }

    /// The strides in elements (`stride()`).
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        &self.latest().strides
    }

    /// The place of the first element in the storage, in elements (`storage_offset()`).
    #[must_use]
    pub fn storage_offset(&self) -> i64 {
        self.latest().offset
    }

    /// The storage (`untyped_storage()`).
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.latest().storage
    }

    /// The number of dimensions (`dim()`).
    #[must_use]
    pub fn dim(&self) -> usize {
        self.sizes().len()
    }

    /// The size of a dimension, which may be counted from the end with a negative number (`size(dim)`).
    ///
    /// # Errors
    /// There is no such dimension.
    pub fn size(&self, dim: i64) -> Result<i64> {
        let at = shape::wrap_dim(dim, self.dim())?;
        Ok(self.sizes().get(at).copied().unwrap_or(1))
    }

    /// The number of elements (`numel()`).
    #[must_use]
    pub fn numel(&self) -> i64 {
        shape::numel(self.sizes())
    }

    /// Bytes of an element (`element_size()`).
    #[must_use]
    pub fn element_size(&self) -> usize {
        self.dtype.itemsize()
    }

    /// Bytes of all elements (`nbytes`).
    #[must_use]
    pub fn nbytes(&self) -> usize {
        usize::try_from(self.numel()).unwrap_or(0).saturating_mul(self.element_size())
    }

    /// Whether the elements lie one after another, the last dimension fastest (`is_contiguous()`).
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        shape::is_contiguous(self.sizes(), self.strides())
    }

    /// Returns the address of the first element, on its device or on the host; 0 if there are no elements
    /// (`data_ptr()`).
    #[must_use]
    pub fn data_ptr(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let offset = u64::try_from(self.byte_offset()).unwrap_or(0);
        match self.storage().data_ptr() {
            0 => 0,
            first => first + offset,
        }
    }

    /// Where the first element begins, counted from a multiple of 512 bytes: of memory that is not there yet, that is known
    /// all the same.
    #[inline]
    pub(crate) fn alignment(&self) -> u64 {
        let first = match self.storage().present() {
            Some(buffer) => buffer.address(),
            None if self.storage().deferred().is_some() => 0,
            None => self.storage().data_ptr(),
        };
        (first + u64::try_from(self.byte_offset()).unwrap_or(0)) % 512
    }

    /// Whether the memory is pinned, so that devices copy from it and to it while the program goes on (`is_pinned()`).
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.storage().is_pinned()
    }

    /// Makes a tensor with this layout over another storage.
    ///
    /// # Errors
    /// The other storage is smaller.
    pub(crate) fn over(&self, storage: Storage) -> Result<Self> {
        check_inside(storage.nbytes(), self.dtype, self.sizes(), self.strides(), self.storage_offset())?;
        Ok(Self { storage, is_parameter: false, ..self.clone() })
    }

    /// Whether there are no elements.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sizes().contains(&0)
    }

    /// Returns the byte offset of the first element in the storage; 0 for an empty view, whose own offset may be
    /// outside the storage.
    #[inline]
    pub(crate) fn byte_offset(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        usize::try_from(self.storage_offset()).unwrap_or(0) * self.element_size()
    }

    /// The bytes between the first element and the end of the last one.
    pub(crate) fn byte_extent(&self) -> usize {
        let extent = shape::extent(self.sizes(), self.strides()).unwrap_or(0);
        usize::try_from(extent).unwrap_or(0) * self.element_size()
    }

    /// The memory of the view as what work of a library does to it; nothing for a tensor on no device.
    pub(crate) fn used(&self, access: MemoryAccess) -> Option<Arg<'_>> {
        let start = self.byte_offset();
        Some(Arg::range(self.storage().buffer()?, start..start + self.byte_extent()).accessed(access))
    }
}

/// Whether the memory of a device is the host's.
pub(crate) fn is_host(device: Device) -> bool {
    device.kind == DeviceType::Cpu
}
