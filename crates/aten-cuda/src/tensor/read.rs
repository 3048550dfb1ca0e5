//! Values from tensors.

use c10_core::host_memory;
use kernel_ir::float8;
use num_complex::Complex64;

use crate::base::dtype::{DType, Element};
use crate::base::error::{Result, TensorError};
use crate::base::scalar::Scalar;
use crate::tensor::Tensor;

impl Tensor {
    /// The elements in row-major order, after the work of the current stream (`tolist`).
    ///
    /// # Errors
    /// The elements have another dtype, there is not enough memory, or the device failed.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            return Err(TensorError::WrongDType { wanted: T::DTYPE, found: self.dtype() }.into());
        }
        let mut elements: Vec<T> = host_memory::zeroed(usize::try_from(self.numel()).unwrap_or(usize::MAX))?;
        self.read_elements(bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// The booleans in row-major order, after the work of the current stream (`tolist`).
    ///
    /// # Errors
    /// The elements are not booleans, there is not enough memory, or the device failed.
    pub fn to_bools(&self) -> Result<Vec<bool>> {
        if self.dtype() != DType::Bool {
            return Err(TensorError::WrongDType { wanted: DType::Bool, found: self.dtype() }.into());
        }
        let bytes = self.to_bytes()?;
        Ok(host_memory::collected(bytes.len(), bytes.into_iter().map(|byte| byte != 0))?)
    }

    /// The bytes of the elements in row-major order, after the work of the current stream.
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // Allocates before waiting for the device: an expanded tensor has more bytes than its storage, so this may
        // fail.
        let mut bytes = host_memory::zeroed(self.nbytes())?;
        self.read_elements(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the elements in row-major order into `to`, which must have the right size.
    fn read_elements(&self, to: &mut [u8]) -> Result<()> {
        if self.is_contiguous() {
            self.storage().read_into(self.byte_offset(), to)?;
            self.signs().turn(to, self.dtype());
            return Ok(());
        }
        let mut stored = self.storage().read(self.byte_offset(), self.byte_extent())?;
        self.signs().turn(&mut stored, self.dtype());
        let itemsize = self.element_size();
        for (place, to) in Places::new(self.sizes(), self.strides()).zip(to.chunks_exact_mut(itemsize)) {
            let at = place * itemsize;
            to.copy_from_slice(&stored[at..at + itemsize]);
        }
        Ok(())
    }

    /// The value of a tensor with one element (`item`).
    ///
    /// # Errors
    /// There are more elements or none, or the device failed.
    pub fn item(&self) -> Result<Scalar> {
        if self.numel() != 1 {
            return Err(TensorError::NotOneElement { numel: self.numel() }.into());
        }
        Ok(scalar_of(&self.to_bytes()?, self.dtype()))
    }
}

/// The elements in row-major order as complex numbers of 64-bit parts.
pub(crate) fn read_complex(tensor: &Tensor) -> Result<Vec<Complex64>> {
    let bytes = tensor.to_bytes()?;
    let elements = bytes.chunks_exact(tensor.element_size()).map(|bytes| match scalar_of(bytes, tensor.dtype()) {
        Scalar::Complex(value) => value,
        real => Complex64::new(real.to_f64(), 0.0),
    });
    Ok(host_memory::collected(bytes.len() / tensor.element_size(), elements)?)
}

/// The number that an element's bytes are.
pub(crate) fn scalar_of(bytes: &[u8], dtype: DType) -> Scalar {
    let pair = |part: fn(&[u8]) -> f64| {
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        Scalar::Complex(Complex64::new(part(real), part(imaginary)))
    };
    match dtype {
        DType::Bool => Scalar::Bool(bytes[0] != 0),
        DType::U8 => Scalar::Int(i64::from(bytes[0])),
        DType::I8 => Scalar::Int(i64::from(bytemuck::pod_read_unaligned::<i8>(bytes))),
        DType::I16 => Scalar::Int(i64::from(bytemuck::pod_read_unaligned::<i16>(bytes))),
        DType::I32 => Scalar::Int(i64::from(bytemuck::pod_read_unaligned::<i32>(bytes))),
        DType::I64 => Scalar::Int(bytemuck::pod_read_unaligned(bytes)),
        DType::F16 => Scalar::Float(half(bytes)),
        DType::BF16 => Scalar::Float(bytemuck::pod_read_unaligned::<half::bf16>(bytes).to_f64()),
        DType::F32 => Scalar::Float(single(bytes)),
        DType::F64 => Scalar::Float(bytemuck::pod_read_unaligned(bytes)),
        DType::F8E4M3FN => Scalar::Float(float8::E4M3.value(bytes[0]).into()),
        DType::F8E5M2 => Scalar::Float(float8::E5M2.value(bytes[0]).into()),
        DType::C32 => pair(half),
        DType::C64 => pair(single),
        DType::C128 => pair(bytemuck::pod_read_unaligned),
    }
}

fn half(bytes: &[u8]) -> f64 {
    bytemuck::pod_read_unaligned::<half::f16>(bytes).to_f64()
}

fn single(bytes: &[u8]) -> f64 {
    f64::from(bytemuck::pod_read_unaligned::<f32>(bytes))
}

/// The places of a view's elements after its first one, in row-major order.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    sizes: &'a [i64],
    strides: &'a [i64],
    at: Vec<i64>,
    place: i64,
    left: i64,
}

impl<'a> Places<'a> {
    pub(crate) fn new(sizes: &'a [i64], strides: &'a [i64]) -> Self {
        Self { sizes, strides, at: vec![0; sizes.len()], place: 0, left: sizes.iter().product() }
    }
}

impl Iterator for Places<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let place = usize::try_from(self.place).ok();
        for dim in (0..self.sizes.len()).rev() {
            self.at[dim] += 1;
            self.place += self.strides[dim];
            if self.at[dim] < self.sizes[dim] {
                break;
            }
            self.place -= self.sizes[dim] * self.strides[dim];
            self.at[dim] = 0;
        }
        place
    }
}
