//! Which libraries and kernels compute, and how (`torch.backends`).

mod attention;

/// `torch.backends.cuda`.
pub mod cuda {
    pub use super::attention::*;
}
