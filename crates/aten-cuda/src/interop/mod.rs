//! Tensors of other libraries.

pub mod dlpack;
#[cfg(feature = "ndarray")]
mod ndarray;
