//! From a checked product to work of a stream.

use std::sync::Arc;

use cuda_sys::cublas::types::{cublasContext, cublasOperation_t, cudaDataType_t};

use super::handles::Handle;
use super::product::Product;
use super::{ALLOC_FAILED, Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::call::Call;
use crate::claim::Ptr;
use crate::report::ReportKind;

/// The kernel that products are launched as.
const KERNEL: &str = "library_product";

impl Call<'_> {
    /// The handle that a call works with: it must be the thread's, and usable.
    pub(super) fn working_handle(&mut self, given: Ptr<cublasContext>) -> Answer<Handle> {
        let found = self.blas_handle(given)?;
        self.check_handle(found.context, found.thread)?;
        Ok(found)
    }

    /// Queues a product of a handle of cuBLAS on its stream.
    pub(super) fn queue_product(&mut self, handle: &Handle, mut product: Product) -> Answer {
        if product.is_empty() {
            return Ok(());
        }
        product.workspace = handle.workspace.unwrap_or_default();
        let captures = self.is_capturing(handle.stream);
        if captures && handle.workspace.is_none() {
            let text = "the product is captured, and the handle has no workspace of the program's".to_owned();
            self.report(ReportKind::WorkspaceInCapture, text);
            if self.config.strict {
                return Err(ALLOC_FAILED);
            }
        }
        self.queue_on(handle.context, handle.stream, product)
    }

    /// Queues a product on a stream, which must be of the context that the library works in.
    pub(super) fn queue_on(&mut self, context: u64, stream: u64, product: Product) -> Answer {
        self.queue_work(context, stream, KERNEL, Arc::new(product))
    }
}

/// A size, which must not be negative.
pub(super) fn size(value: i32) -> Answer<u64> {
    u64::try_from(value).map_err(|_| INVALID_VALUE)
}

/// Refuses operations that there are not.
pub(super) fn check_op(op: cublasOperation_t) -> Answer {
    if op.0 <= cublasOperation_t::CUBLAS_OP_CONJG.0 { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Bytes from one matrix to the next.
pub(super) fn stride_bytes(stride: i64, ty: cudaDataType_t) -> Answer<i64> {
    let size = crate::toolkit::numbers::bytes_of(ty).ok_or(NOT_SUPPORTED)?;
    stride.checked_mul(size.cast_signed()).ok_or(INVALID_VALUE)
}
