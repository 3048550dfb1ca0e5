//! Attention by the fused kernel: operands laid out as it takes them.

use super::Attention;
use super::math::scale_of;
use crate::base::error::Result;
use crate::launch::library::attention::{self, Operands, VECTOR};
use crate::tensor::Tensor;

/// Attention whose arguments the kernel takes, in four dimensions. Operands whose lines do not lie together, or do not
/// begin at multiples of 16 bytes, are copied.
pub(super) fn attend(query: &Tensor, key: &Tensor, value: &Tensor, options: &Attention<'_>) -> Result<Tensor> {
    let scale = scale_of(query, options);
    // The kernel looks for the largest product, so that its scale is above zero.
    let query = match scale {
        scale if scale < 0.0 => query.neg()?,
        0.0 => query.mul(0.0)?,
        _ => query.clone(),
    };
    let scale = if scale == 0.0 { 1.0 } else { scale.abs() };
    let width = query.sizes()[3];
    let [query, key, value] = [&query, key, value].map(aligned);
    let (query, key, value) = (query?, key?, value?);
    // Queries that lie with their heads together give such a result.
    let heads_lie_together = query.strides()[1] < query.strides()[2];
    let [batches, heads, queries, padded] = [0, 1, 2, 3].map(|dim| query.sizes()[dim]);
    let out = if heads_lie_together {
        Tensor::uninitialized(&[batches, queries, heads, padded], query.dtype(), &query)?.transpose(1, 2)?
    } else {
        Tensor::uninitialized(&[batches, heads, queries, padded], query.dtype(), &query)?
    };
    let operands = Operands { out: &out, query: &query, key: &key, value: &value };
    attention::attend(&operands, scale, options.is_causal)?;
    if padded == width { Ok(out) } else { out.narrow(3, 0, width)?.contiguous() }
}

/// The operand as it is, or a copy of it whose lines have a multiple of [`VECTOR`] elements, with zeros at the end.
fn aligned(tensor: &Tensor) -> Result<Tensor> {
    let [batches, heads, rows, width] = [0, 1, 2, 3].map(|dim| tensor.sizes()[dim]);
    let padded = (width + VECTOR - 1) / VECTOR * VECTOR;
    if padded == width {
        let resolved = tensor.resolved()?;
        return if attention::is_aligned(&resolved) { Ok(resolved) } else { resolved.copy()?.contiguous() };
    }
    let copy = Tensor::zeros(&[batches, heads, rows, padded], tensor.dtype(), tensor)?;
    copy.narrow(3, 0, width)?.copy_(tensor)?;
    Ok(copy)
}
