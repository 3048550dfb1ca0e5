//! Tensors from values, and without any.

use c10_core::Device;
use kernel_ir::float8;

use crate::base::dtype::{DType, Element};
use crate::base::error::{Error, Result, Step, TensorError, invalid};
use crate::base::layout::checked_reach;
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims, contiguous_strides};
use crate::deterministic;
use crate::storage::Storage;
use crate::tensor::{Tensor, ToDevice};

impl Tensor {
    /// A host tensor with a copy of these elements, in row-major order (`torch.tensor`).
    ///
    /// # Errors
    /// `sizes` does not match the number of elements, or there is not enough memory.
    pub fn from_slice<T: Element>(elements: &[T], sizes: &[i64]) -> Result<Self> {
        Self::from_bytes(bytemuck::cast_slice(elements), sizes, T::DTYPE)
    }

    /// A host tensor with a copy of these booleans (`torch.tensor`).
    ///
    /// # Errors
    /// `sizes` does not match the number of elements, or there is not enough memory.
    pub fn from_bools(elements: &[bool], sizes: &[i64]) -> Result<Self> {
        Self::from_bytes(bytemuck::cast_slice(elements), sizes, DType::Bool)
    }

    /// A host tensor of any dtype with a copy of the elements' bytes (`torch.frombuffer`).
    ///
    /// # Errors
    /// `sizes` does not match the number of bytes, or there is not enough memory.
    pub fn from_bytes(bytes: &[u8], sizes: &[i64], dtype: DType) -> Result<Self> {
        let numel = shape::checked_numel(sizes)?;
        if usize::try_from(numel).ok() != bytes.len().checked_div(dtype.itemsize()) {
            let given = i64::try_from(bytes.len() / dtype.itemsize()).unwrap_or(i64::MAX);
            return Err(TensorError::InvalidShape { shape: sizes.to_vec(), numel: given }.into());
        }
        let storage = Storage::from_bytes(bytes)?;
        Self::view_of(storage, dtype, Dims::from_slice(sizes), contiguous_strides(sizes), 0)
    }

    /// A tensor without dimensions, of a number (`torch.tensor`).
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn from_scalar(number: impl Into<Scalar>) -> Result<Self> {
        let number = number.into();
        Self::from_bytes(&scalar_bytes(number, number.default_dtype()), &[], number.default_dtype())
    }

    /// A tensor whose elements are not set: zeros on the host, on a device whatever was there before (`torch.empty`). While
    /// deterministic algorithms are used they have a value: see [`fill_uninitialized_memory`].
    ///
    /// [`fill_uninitialized_memory`]: crate::deterministic::fill_uninitialized_memory
    ///
    /// # Errors
    /// A size is negative, the dtype cannot represent the fill value, or there is not enough memory.
    pub fn empty(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Self> {
        Self::uninitialized(sizes, dtype, device)?.with_values()
    }

    /// As [`Self::empty`], with strides in elements, which may leave gaps and reach an element twice
    /// (`torch.empty_strided`).
    ///
    /// # Errors
    /// A size or a stride is negative, there are not as many strides as sizes, or there is not enough memory.
    pub fn empty_strided(sizes: &[i64], strides: &[i64], dtype: DType, device: impl ToDevice) -> Result<Self> {
        if sizes.len() != strides.len() {
            return Err(invalid(format!(
                "dimensionality of sizes ({}) must match dimensionality of strides ({})",
                sizes.len(),
                strides.len()
            )));
        }
        shape::checked_numel(sizes)?;
        empty_strided(sizes, strides, dtype, device.to_device()?)?.with_values()
    }

    /// A tensor that an operation writes all of: its elements are never seen before.
    pub(crate) fn uninitialized(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Self> {
        shape::checked_numel(sizes)?;
        empty_strided(sizes, &contiguous_strides(sizes), dtype, device.to_device()?)
    }

    /// The tensor, which has new memory, filled where deterministic algorithms are used and want it.
    pub(crate) fn with_values(self) -> Result<Self> {
        if deterministic::fills() {
            let value = match self.dtype() {
                DType::Bool => Scalar::Bool(true),
                DType::U8 => Scalar::Int(u8::MAX.into()),
                DType::I8 => Scalar::Int(i8::MAX.into()),
                DType::I16 => Scalar::Int(i16::MAX.into()),
                DType::I32 => Scalar::Int(i32::MAX.into()),
                DType::I64 => Scalar::Int(i64::MAX),
                _ => Scalar::Float(f64::NAN),
            };
            // The elements may lie with gaps, and more than one at a place.
            let all = shape::extent(self.sizes(), self.strides()).unwrap_or(0);
            let one = Dims::from_elem(1, 1);
            Self::view_of(self.storage().clone(), self.dtype(), Dims::from_elem(all, 1), one, 0)?.fill_(value)?;
        }
        Ok(self)
    }

    /// Elements of the same value (`torch.full`).
    ///
    /// # Errors
    /// A size is negative, or there is not enough memory.
    pub fn full(sizes: &[i64], value: impl Into<Scalar>, dtype: DType, device: impl ToDevice) -> Result<Self> {
        let made = Self::uninitialized(sizes, dtype, device)?;
        made.fill_(value)?;
        Ok(made)
    }

    /// Zeros (`torch.zeros`).
    ///
    /// # Errors
    /// A size is negative, or there is not enough memory.
    pub fn zeros(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Self> {
        Self::full(sizes, 0, dtype, device)
    }

    /// Ones (`torch.ones`).
    ///
    /// # Errors
    /// A size is negative, or there is not enough memory.
    pub fn ones(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Self> {
        Self::full(sizes, 1, dtype, device)
    }

    /// A tensor of a storage: sizes and strides over its elements from `offset` on (`set_`).
    ///
    /// # Errors
    /// A size or a stride is negative, or the view is not inside the storage.
    pub fn from_storage(storage: Storage, dtype: DType, sizes: &[i64], strides: &[i64], offset: i64) -> Result<Self> {
        Self::view_of(storage, dtype, Dims::from_slice(sizes), Dims::from_slice(strides), offset)
    }
}

#[cold]
fn no_memory(error: Error, sizes: &[i64], dtype: DType, device: Device) -> Error {
    error.in_step(Step { operation: "empty", operands: vec![(dtype, sizes.to_vec(), device)] })
}

/// Makes a tensor with these strides in new memory, which ends after the last element.
pub(crate) fn empty_strided(sizes: &[i64], strides: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    let bytes = checked_reach(dtype, sizes, strides)?;
    let storage = Storage::new(bytes, device).map_err(|error| no_memory(error, sizes, dtype, device))?;
    Tensor::view_of(storage, dtype, Dims::from_slice(sizes), Dims::from_slice(strides), 0)
}

/// New memory for a tensor of these sizes, which has so many bytes.
#[inline]
pub(crate) fn storage_of(sizes: &[i64], dtype: DType, bytes: usize, device: Device) -> Result<Storage> {
    Storage::new(bytes, device).map_err(|error| no_memory(error, sizes, dtype, device))
}

/// New memory for as many elements as a tensor has, on its device.
pub(crate) fn storage_like(like: &Tensor, dtype: DType) -> Result<Storage> {
    let bytes = usize::try_from(like.numel()).unwrap_or(0).saturating_mul(dtype.itemsize());
    Storage::new(bytes, like.device()).map_err(|error| no_memory(error, like.sizes(), dtype, like.device()))
}

/// A number as the bytes of an element.
#[expect(clippy::cast_possible_truncation, reason = "a number is cut to its dtype, as torch does")]
#[expect(clippy::cast_sign_loss, reason = "negative numbers wrap around, as torch has it")]
pub(crate) fn scalar_bytes(number: Scalar, dtype: DType) -> Vec<u8> {
    let real = number.to_f64();
    let imaginary = number.imaginary();
    let single = |value: f64| value as f32;
    match dtype {
        DType::Bool => vec![u8::from(number.is_true())],
        DType::U8 => vec![number.to_i64() as u8],
        DType::I8 => (number.to_i64() as i8).to_le_bytes().to_vec(),
        DType::I16 => (number.to_i64() as i16).to_le_bytes().to_vec(),
        DType::I32 => (number.to_i64() as i32).to_le_bytes().to_vec(),
        DType::I64 => number.to_i64().to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(single(real)).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f32(single(real)).to_le_bytes().to_vec(),
        DType::F32 => single(real).to_le_bytes().to_vec(),
        DType::F64 => real.to_le_bytes().to_vec(),
        DType::F8E4M3FN => vec![float8::E4M3.round(single(real))],
        DType::F8E5M2 => vec![float8::E5M2.round(single(real))],
        DType::C32 => {
            [real, imaginary].iter().flat_map(|&part| half::f16::from_f32(single(part)).to_le_bytes()).collect()
        }
        DType::C64 => [real, imaginary].iter().flat_map(|&part| single(part).to_le_bytes()).collect(),
        DType::C128 => [real, imaginary].iter().flat_map(|part| part.to_le_bytes()).collect(),
    }
}
