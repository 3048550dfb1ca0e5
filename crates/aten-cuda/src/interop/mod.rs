//! Tensors of other libraries and of other processes.

pub mod dlpack;
#[cfg(feature = "ndarray")]
mod ndarray;
pub(crate) mod shared;
