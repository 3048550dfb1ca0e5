//! Conjugates and negatives that are views (`torch.conj`, and the imaginary part of such a conjugate).
//!
//! A tensor says by [`Signs`] whether the parts of its elements lie in memory with the opposite sign. A view carries the
//! signs along.
//!
//! **Invariants:** whoever reads or writes elements as they lie in memory asks [`Tensor::plain_storage`] for it, which
//! refuses a tensor with signs: a forgotten sign is an error and never a wrong number. Programs turn signs where they read
//! and write elements (`launch`), copies too (`ops::copy`); products hand them on (`blas`); other kernels get
//! [`Tensor::as_stored`] views or resolved copies.

use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::shape::Dims;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// Which parts of elements lie in memory with the opposite sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Signs {
    /// The imaginary part.
    pub(crate) is_conj: bool,
    /// Both parts, or the only one.
    pub(crate) is_neg: bool,
}

impl Signs {
    /// None is turned.
    pub(crate) const PLAIN: Self = Self { is_conj: false, is_neg: false };

    /// Whether a part is turned: the real one is the first.
    pub(crate) fn turns(self, part: usize) -> bool {
        self.is_neg != (self.is_conj && part == 1)
    }

    /// What is left to turn between a tensor of these signs and one of others.
    pub(crate) fn towards(self, other: Self) -> Self {
        Self { is_conj: self.is_conj != other.is_conj, is_neg: self.is_neg != other.is_neg }
    }

    /// Turns the signs in the bytes of elements.
    pub(crate) fn turn(self, bytes: &mut [u8], dtype: DType) {
        let width = dtype.part().bytes();
        if self == Self::PLAIN {
            return;
        }
        for (at, part) in bytes.chunks_exact_mut(width).enumerate() {
            // Only floats have signs, and a float's sign is its highest bit.
            if let Some(last) = part.last_mut().filter(|_| self.turns(at % dtype.parts())) {
                *last ^= 0x80;
            }
        }
    }
}

impl Tensor {
    /// The conjugate of each element, as a view; of real numbers the tensor itself (`torch.conj`). Nothing is computed:
    /// operations read and write the view's elements as conjugates of what lies in memory.
    ///
    /// ```
    /// use aten_cuda::{Complex64, Tensor};
    ///
    /// let a = Tensor::from_slice(&[Complex64::new(1.0, 2.0)], &[1])?;
    /// let conjugate = a.conj();
    /// conjugate.add_(1)?;
    /// assert!(conjugate.is_conj() && conjugate.data_ptr() == a.data_ptr());
    /// assert_eq!(conjugate.to_vec::<Complex64>()?, [Complex64::new(2.0, -2.0)]);
    /// assert_eq!(a.to_vec::<Complex64>()?, [Complex64::new(2.0, 2.0)]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn conj(&self) -> Self {
        if !self.dtype().is_complex() {
            return self.clone();
        }
        self.with_signs(self.signs().towards(Signs { is_conj: true, is_neg: false }))
    }

    /// Whether elements are conjugates of what lies in memory (`is_conj`).
    #[must_use]
    pub fn is_conj(&self) -> bool {
        self.signs().is_conj
    }

    /// Whether elements are negatives of what lies in memory (`is_neg`): [`Self::imag`] of a conjugate is such a view.
    #[must_use]
    pub fn is_neg(&self) -> bool {
        self.signs().is_neg
    }

    /// The tensor itself, or a copy where its elements are conjugates of what lies in memory (`resolve_conj`).
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    pub fn resolve_conj(&self) -> Result<Self> {
        if self.is_conj() { self.copy() } else { Ok(self.clone()) }
    }

    /// The tensor itself, or a copy where its elements are negatives of what lies in memory (`resolve_neg`).
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    pub fn resolve_neg(&self) -> Result<Self> {
        if self.is_neg() { self.copy() } else { Ok(self.clone()) }
    }

    /// The last two dimensions swapped and the elements conjugated, as a view; a tensor without dimensions is conjugated
    /// (`torch.adjoint`).
    ///
    /// # Errors
    /// There is one dimension.
    pub fn adjoint(&self) -> Result<Self> {
        Ok(self.matrices_turned("adjoint()")?.conj())
    }

    /// [`Self::adjoint`] under the name of torch's attribute (`mH`).
    ///
    /// # Errors
    /// There is one dimension.
    #[doc(alias = "mH")]
    pub fn mh(&self) -> Result<Self> {
        Ok(self.matrices_turned("mH")?.conj())
    }

    /// The last two dimensions swapped, as a view; a tensor without dimensions as it is (`mT`).
    ///
    /// # Errors
    /// There is one dimension.
    #[doc(alias = "mT")]
    pub fn mt(&self) -> Result<Self> {
        self.matrices_turned("mT")
    }

    /// The conjugate of a matrix with its dimensions swapped, as a view; a tensor without dimensions is conjugated (`H`).
    ///
    /// # Errors
    /// The tensor is no matrix.
    #[doc(alias = "H")]
    pub fn h(&self) -> Result<Self> {
        match self.dim() {
            0 => Ok(self.conj()),
            2 => Ok(self.transpose(0, 1)?.conj()),
            dim => {
                let more = if dim > 2 { " For batches of matrices, consider using tensor.mH" } else { "" };
                let text = "tensor.H is only supported on matrices (2-D tensors)";
                Err(invalid(format!("{text}. Got {dim}-D tensor.{more}")))
            }
        }
    }

    fn matrices_turned(&self, name: &str) -> Result<Self> {
        match self.dim() {
            0 => Ok(self.clone()),
            1 => {
                let text = "is only supported on matrices or batches of matrices. Got 1-D tensor.";
                Err(invalid(format!("tensor.{name} {text}")))
            }
            _ => self.transpose(-2, -1),
        }
    }

    /// Real and imaginary parts as a new last dimension of two elements, as a view (`torch.view_as_real`).
    ///
    /// # Errors
    /// The elements are not complex, or conjugates of what lies in memory.
    pub fn view_as_real(&self) -> Result<Self> {
        if self.is_conj() {
            return Err(invalid(
                "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view \
                 it as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the \
                 original.",
            ));
        }
        if !self.dtype().is_complex() {
            return Err(invalid("view_as_real is only supported for complex tensors"));
        }
        self.parts()
    }

    /// Real and imaginary parts as they lie in memory.
    fn parts(&self) -> Result<Self> {
        let sizes: Dims = self.sizes().iter().copied().chain([2]).collect();
        let strides: Dims = self.strides().iter().map(|stride| stride.saturating_mul(2)).chain([1]).collect();
        let storage = self.storage().clone();
        let offset = self.storage_offset().saturating_mul(2);
        let view = Self::view_of(storage, self.dtype().to_real(), sizes, strides, offset)?;
        Ok(view.with_signs(Signs { is_neg: self.is_neg(), ..Signs::PLAIN }))
    }

    /// The pairs of a last dimension of two floats as complex numbers, as a view.
    pub(crate) fn pairs_as_complex(&self) -> Result<Self> {
        let dtype = match self.dtype() {
            DType::F16 => DType::C32,
            DType::F32 => DType::C64,
            DType::F64 => DType::C128,
            other => {
                let name = other.scalar_type_name();
                let text =
                    "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar";
                return Err(invalid(format!("{text} type: {name}")));
            }
        };
        let (Some((&size, sizes)), Some((&step, strides))) = (self.sizes().split_last(), self.strides().split_last())
        else {
            return Err(invalid("Input tensor must have one or more dimensions"));
        };
        if size != 2 {
            return Err(invalid("Tensor must have a last dimension of size 2"));
        }
        if step != 1 {
            return Err(invalid("Tensor must have a last dimension with stride 1"));
        }
        if sizes.iter().zip(strides).any(|(&size, stride)| size != 1 && stride % 2 != 0) {
            return Err(invalid("Tensor must have a stride divisible by 2 for all but last dimension"));
        }
        if self.storage_offset() % 2 != 0 {
            return Err(invalid("Tensor must have a storage_offset divisible by 2"));
        }
        let strides = strides.iter().map(|stride| stride / 2).collect();
        let view =
            Self::view_of(self.storage().clone(), dtype, Dims::from_slice(sizes), strides, self.storage_offset() / 2)?;
        Ok(view.with_signs(self.signs()))
    }

    /// The real parts, as a view; of real numbers the tensor itself (`torch.real`).
    ///
    /// # Errors
    /// None.
    pub fn real(&self) -> Result<Self> {
        if self.dtype().is_complex() { self.parts()?.select(-1, 0) } else { Ok(self.clone()) }
    }

    /// The imaginary parts, as a view (`torch.imag`). Those of a conjugate are negatives of what lies in memory
    /// ([`Self::is_neg`]).
    ///
    /// # Errors
    /// The elements are real.
    pub fn imag(&self) -> Result<Self> {
        if !self.dtype().is_complex() {
            return Err(invalid("imag is not implemented for tensors with non-complex dtypes."));
        }
        let parts = self.parts()?.select(-1, 1)?;
        Ok(parts.with_signs(Signs { is_neg: self.signs().turns(1), ..Signs::PLAIN }))
    }

    /// The view with its elements as they lie in memory.
    pub(crate) fn as_stored(&self) -> Self {
        self.with_signs(Signs::PLAIN)
    }

    /// The tensor itself where its elements are what lies in memory, else a copy for which that is so.
    pub(crate) fn resolved(&self) -> Result<Self> {
        if self.signs() == Signs::PLAIN { Ok(self.clone()) } else { self.copy() }
    }

    /// The storage, for whoever reads or writes elements as they lie in it.
    ///
    /// # Errors
    /// The elements are not what lies in memory: the operation should have resolved them. A traced function that failed
    /// has left the memory without contents.
    pub(crate) fn plain_storage(&self) -> Result<&Storage> {
        if self.signs() == Signs::PLAIN {
            return self.storage().checked();
        }
        Err(invalid(
            "the elements are conjugates or negatives of what lies in memory, which is not supported here; use \
             resolve_conj() or resolve_neg()",
        ))
    }
}
