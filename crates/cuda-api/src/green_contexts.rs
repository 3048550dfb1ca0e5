//! Work on a part of a device's multiprocessors; torch's `torch.cuda.green_contexts`.

pub use c10_core::{GreenContext, GreenContextError};
