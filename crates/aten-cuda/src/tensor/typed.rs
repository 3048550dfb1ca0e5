//! Tensors and storages by their type (`torch.cuda.FloatTensor`, `torch.cuda.FloatStorage` and their families).
//!
//! In torch these are classes: a tensor is an instance of the one that its dtype and device name. Here they make tensors
//! on the current CUDA device and tell whether a tensor is one of theirs.

use std::fmt;
use std::marker::PhantomData;

use c10_core::{Device, DeviceIndex, DeviceOf, host_memory};

use crate::base::dtype::{DType, Element};
use crate::base::error::{Result, TensorError, invalid};
use crate::storage::Storage;
use crate::tensor::{Tensor, ToDevice as _};

/// A Rust type that a torch type of tensors stands for.
pub trait TypedElement: bytemuck::NoUninit + fmt::Debug + sealed::Sealed {
    /// The dtype.
    const DTYPE: DType;
    /// What torch names the type by: `Float` of `FloatTensor`.
    const NAME: &'static str;

    /// A value of the bytes of an element.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! typed {
    ($($rust:ty => $name:literal,)*) => {
        $(
            impl sealed::Sealed for $rust {}
            impl TypedElement for $rust {
                const DTYPE: DType = <$rust as Element>::DTYPE;
                const NAME: &'static str = $name;

                fn from_bytes(bytes: &[u8]) -> Self {
                    bytemuck::pod_read_unaligned(bytes)
                }
            }
        )*
    };
}

typed! {
    u8 => "Byte",
    i8 => "Char",
    i16 => "Short",
    i32 => "Int",
    i64 => "Long",
    half::f16 => "Half",
    half::bf16 => "BFloat16",
    f32 => "Float",
    f64 => "Double",
    num_complex::Complex32 => "ComplexFloat",
    num_complex::Complex64 => "ComplexDouble",
}

impl sealed::Sealed for bool {}

impl TypedElement for bool {
    const DTYPE: DType = DType::Bool;
    const NAME: &'static str = "Bool";

    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.iter().any(|byte| *byte != 0)
    }
}

/// The tensors of one dtype on CUDA devices; `torch.cuda.FloatTensor` for `f32`. It has no values: it makes tensors.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, TypedTensor};
///
/// type FloatTensor = TypedTensor<f32>;
/// let tensor = FloatTensor::from_slice(&[1.0, 2.0], &[2])?;
/// assert_eq!((tensor.dtype(), tensor.is_cuda()), (DType::F32, true));
/// assert!(FloatTensor::is_instance(&tensor) && !TypedTensor::<f64>::is_instance(&tensor));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Debug)]
pub struct TypedTensor<T: TypedElement>(PhantomData<T>, std::convert::Infallible);

impl<T: TypedElement> TypedTensor<T> {
    /// The dtype of the tensors.
    pub const DTYPE: DType = T::DTYPE;

    /// A tensor on the current device whose elements are not set (`torch.cuda.FloatTensor(2, 3)`; without sizes torch
    /// makes one of the sizes `[0]`).
    ///
    /// # Errors
    /// A size is negative, the runtime cannot start, or there is not enough memory.
    #[expect(clippy::new_ret_no_self, reason = "the type stands for a class whose instances are tensors")]
    pub fn new(sizes: &[i64]) -> Result<Tensor> {
        Tensor::empty(sizes, T::DTYPE, Device::CUDA)
    }

    /// A tensor on the current device with a copy of these elements, in row-major order (`torch.cuda.FloatTensor([1, 2])`).
    ///
    /// # Errors
    /// The sizes are for another number of elements, the runtime cannot start, or there is not enough memory.
    pub fn from_slice(elements: &[T], sizes: &[i64]) -> Result<Tensor> {
        Tensor::from_bytes(bytemuck::cast_slice(elements), sizes, T::DTYPE)?.cuda(None)
    }

    /// The same tensor, which shares its memory (`torch.cuda.FloatTensor(tensor)`). Nothing is converted.
    ///
    /// # Errors
    /// It is of another type.
    pub fn from_tensor(tensor: &Tensor) -> Result<Tensor> {
        if Self::is_instance(tensor) {
            return Ok(tensor.clone());
        }
        let place = if tensor.is_cuda() { "torch.cuda" } else { "torch" };
        let (wanted, found) = (T::NAME, name_of(tensor.dtype()));
        Err(invalid(format!("expected torch.cuda.{wanted}Tensor (got {place}.{found}Tensor)")))
    }

    /// A tensor of the elements of a storage, which it shares (`torch.cuda.FloatTensor(storage)`).
    ///
    /// # Errors
    /// None: a storage of the type has whole elements.
    pub fn from_storage(storage: &TypedStorage<T>) -> Result<Tensor> {
        let elements = i64::try_from(storage.len()).unwrap_or(i64::MAX);
        Tensor::from_storage(storage.untyped().clone(), T::DTYPE, &[elements], &[1], 0)
    }

    /// Whether a tensor is of this type (`isinstance(tensor, torch.cuda.FloatTensor)`).
    #[must_use]
    pub fn is_instance(tensor: &Tensor) -> bool {
        tensor.is_cuda() && tensor.dtype() == T::DTYPE
    }
}

fn name_of(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => u8::NAME,
        DType::I8 => i8::NAME,
        DType::I16 => i16::NAME,
        DType::I32 => i32::NAME,
        DType::I64 => i64::NAME,
        DType::F16 => half::f16::NAME,
        DType::BF16 => half::bf16::NAME,
        DType::F32 => f32::NAME,
        DType::F64 => f64::NAME,
        DType::C32 => "ComplexHalf",
        DType::C64 => num_complex::Complex32::NAME,
        DType::C128 => num_complex::Complex64::NAME,
        DType::Bool => bool::NAME,
        DType::F8E4M3FN | DType::F8E5M2 => dtype.scalar_type_name(),
    }
}

/// Memory on a CUDA device as elements of one dtype; `torch.cuda.FloatStorage` for `f32`.
///
/// This is a handle: clones, and tensors made of it, refer to the same memory.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{TypedStorage, TypedTensor};
///
/// let storage = TypedStorage::<i64>::from_slice(&[1, 2, 3])?;
/// TypedTensor::from_storage(&storage)?.mul_(10)?;
/// assert_eq!((storage.len(), storage.nbytes(), storage.to_vec()?), (3, 24, vec![10, 20, 30]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TypedStorage<T: TypedElement>(Storage, PhantomData<T>);

impl<T: TypedElement> TypedStorage<T> {
    /// The dtype of the elements (`dtype`).
    pub const DTYPE: DType = T::DTYPE;

    /// Memory for so many elements on the current device, which are not set (`torch.cuda.FloatStorage(3)`).
    ///
    /// # Errors
    /// The runtime cannot start, or there is not enough memory.
    pub fn new(elements: usize) -> Result<Self> {
        let too_large = || TensorError::TooLarge { sizes: vec![i64::try_from(elements).unwrap_or(i64::MAX)] };
        let bytes = elements.checked_mul(T::DTYPE.itemsize()).ok_or_else(too_large)?;
        Ok(Self(Storage::new(bytes, Device::CUDA.to_device()?)?, PhantomData))
    }

    /// Memory on the current device with a copy of these elements (`torch.cuda.FloatStorage([1, 2])`).
    ///
    /// # Errors
    /// As for [`Self::new`], or the device failed.
    pub fn from_slice(elements: &[T]) -> Result<Self> {
        let storage = Self::new(elements.len())?;
        if !elements.is_empty() {
            storage.0.write(0, bytemuck::cast_slice(elements))?;
        }
        Ok(storage)
    }

    /// The number of elements (`len(storage)`).
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.nbytes() / T::DTYPE.itemsize()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the memory (`nbytes`).
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// Where the memory is (`device`).
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// The memory without a type (`untyped()`).
    #[must_use]
    pub fn untyped(&self) -> &Storage {
        &self.0
    }

    /// The elements, after the work of the current stream (`tolist()`).
    ///
    /// # Errors
    /// The device failed.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let bytes = self.0.read(0, self.0.nbytes())?;
        Ok(host_memory::collected(self.len(), bytes.chunks_exact(T::DTYPE.itemsize()).map(T::from_bytes))?)
    }
}

impl<T: TypedElement> DeviceOf for TypedStorage<T> {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        self.0.cuda_device()
    }
}
