//! Conjugates and the parts of complex numbers, which are views: `torch.conj` and the like.

use aten_cuda::{Result, Tensor};

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            #[doc = concat!("See [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// As for the method.
            pub fn $name(input: &Tensor) -> Result<Tensor> {
                input.$name()
            }
        )*
    };
}

views! {
    /// The complex conjugate of each element in new memory (`torch.conj_physical`).
    conj_physical;
    /// The last two dimensions swapped and the elements conjugated, as a view (`torch.adjoint`).
    adjoint;
    /// The tensor itself, or a copy where its elements are conjugates of what lies in memory (`torch.resolve_conj`).
    resolve_conj;
    /// The tensor itself, or a copy where its elements are negatives of what lies in memory (`torch.resolve_neg`).
    resolve_neg;
    /// The real parts, as a view; of real numbers the tensor itself (`torch.real`).
    real;
    /// The imaginary parts, as a view (`torch.imag`).
    imag;
    /// Real and imaginary parts as a new last dimension, as a view (`torch.view_as_real`).
    view_as_real;
    /// The pairs of a last dimension of two floats as complex numbers, as a view (`torch.view_as_complex`).
    view_as_complex;
}

/// The conjugate of each element, as a view; of real numbers the tensor itself (`torch.conj`); see [`Tensor::conj`].
#[must_use]
pub fn conj(input: &Tensor) -> Tensor {
    input.conj()
}

/// Whether elements are conjugates of what lies in memory (`torch.is_conj`); see [`Tensor::is_conj`].
#[must_use]
pub fn is_conj(input: &Tensor) -> bool {
    input.is_conj()
}

/// Whether elements are negatives of what lies in memory (`torch.is_neg`); see [`Tensor::is_neg`].
#[must_use]
pub fn is_neg(input: &Tensor) -> bool {
    input.is_neg()
}
