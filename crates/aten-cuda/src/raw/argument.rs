//! What a launch of a kernel takes: tensors, numbers as Python has them, and numbers of C's types.

use c10_core::Arg;

use crate::base::error::Result;
use crate::base::jit_error::JitError;
use crate::base::scalar::Scalar;
use crate::tensor::Tensor;

/// An argument of a kernel. Tensors, [`Scalar`]s, and whatever turns into an [`Arg`] turn into it by `into()`.
///
/// A tensor is the address of its first element. An integer [`Scalar`] is a C `int`, a float one a C `double`, as torch has
/// them since 2.10; Rust's numbers keep their own types.
///
/// ```
/// use aten_cuda::Scalar;
/// use aten_cuda::raw::KernelArg;
///
/// let arguments: [KernelArg<'_>; 3] = [7.into(), 2.5.into(), Scalar::Int(7).into()];
/// assert_eq!(format!("{arguments:?}"), "[7_i32, 2.5_f64, Int(7)]");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum KernelArg<'a> {
    /// The address of a tensor's first element. The tensor is on the kernel's device, or its memory is pinned.
    Tensor(&'a Tensor),
    /// A number of no particular width.
    Scalar(Scalar),
    /// An argument of exactly this type: a number of Rust's, a buffer, the bytes of a plain value.
    Exact(Arg<'a>),
}

impl<'a> From<&'a Tensor> for KernelArg<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<Scalar> for KernelArg<'_> {
    fn from(number: Scalar) -> Self {
        Self::Scalar(number)
    }
}

impl<'a> From<Arg<'a>> for KernelArg<'a> {
    fn from(argument: Arg<'a>) -> Self {
        Self::Exact(argument)
    }
}

macro_rules! from_numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for KernelArg<'_> {
            fn from(value: $number) -> Self {
                Self::Exact(value.into())
            }
        })*
    };
}
from_numbers!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, f32, f64, bool);

impl std::fmt::Debug for KernelArg<'_> {
    /// A number with its type, a tensor by its dtype and sizes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tensor(tensor) => write!(f, "{} {:?}", tensor.dtype(), tensor.sizes()),
            Self::Scalar(number) => write!(f, "{number:?}"),
            Self::Exact(argument) => write!(f, "{argument:?}"),
        }
    }
}

impl<'a> KernelArg<'a> {
    /// The argument as a launch takes it.
    ///
    /// # Errors
    /// A tensor on the host that is not pinned, a number that has no type in C, or one that does not fit its type.
    pub(crate) fn lower(&self) -> Result<Arg<'a>> {
        match self {
            Self::Tensor(tensor) => address(tensor),
            Self::Scalar(Scalar::Bool(value)) => Ok(Arg::I32((*value).into())),
            Self::Scalar(Scalar::Int(value)) => {
                Ok(Arg::I32(i32::try_from(*value).map_err(|_| JitError::IntRange { value: *value })?))
            }
            Self::Scalar(Scalar::Float(value)) => Ok(Arg::F64(*value)),
            Self::Scalar(number @ Scalar::Complex(_)) => {
                Err(JitError::Argument { given: format!("{number:?}") }.into())
            }
            Self::Exact(argument) => Ok(argument.clone()),
        }
    }
}

/// The memory that a tensor's elements may lie in, from its first element on.
fn address(tensor: &Tensor) -> Result<Arg<'_>> {
    let storage = tensor.plain_storage()?;
    if let Some(buffer) = storage.buffer() {
        return Ok(Arg::range(buffer, tensor.byte_offset()..tensor.byte_offset() + tensor.byte_extent()));
    }
    match storage.pinned() {
        Some(pinned) => Ok(Arg::U64(pinned.address() as u64 + tensor.byte_offset() as u64)),
        None => Err(JitError::NotOnDevice.into()),
    }
}
