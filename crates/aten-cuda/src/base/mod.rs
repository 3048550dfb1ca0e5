//! What everything is built on: dtypes, scalars, promotion, shapes, errors.

pub(crate) mod amp_error;
pub(crate) mod comm_error;
pub(crate) mod dtype;
pub(crate) mod dtype_key;
pub(crate) mod error;
pub(crate) mod expression_error;
pub(crate) mod jit_error;
pub(crate) mod layout;
pub(crate) mod linalg_error;
pub(crate) mod nccl_error;
pub(crate) mod promotion;
pub(crate) mod random_error;
pub(crate) mod recent;
pub(crate) mod scalar;
pub(crate) mod shape;
pub(crate) mod tune_error;
