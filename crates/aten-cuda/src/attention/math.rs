//! Attention made of tensor operations: any floats, sizes, masks and dropout, on the host and on devices.

use super::Attention;
use super::settings::fp16_bf16_reduction_math_sdp_allowed;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

/// Attention whose arguments were checked. 16-bit floats are computed in `f32`, unless the switch allows their own dtype.
pub(super) fn attend(query: &Tensor, key: &Tensor, value: &Tensor, options: &Attention<'_>) -> Result<Tensor> {
    let dtype = query.dtype();
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    let inside = if is_half && !fp16_bf16_reduction_math_sdp_allowed() { DType::F32 } else { dtype };
    let [query, key, value] = [query, key, value].map(|tensor| tensor.to_dtype(inside));
    let (query, key, value) = (query?, key?, value?);
    let heads = query.dim().checked_sub(3).map(|at| query.sizes()[at]).filter(|_| options.enable_gqa);
    let shared = |tensor: &Tensor| heads.map_or_else(|| Ok(tensor.clone()), |heads| repeated(tensor, heads));
    let (key, value) = (shared(&key)?, shared(&value)?);

    // Both factors are scaled, so that no product is larger than its place in the dtype needs.
    let scale = scale_of(&query, options);
    let root = scale.abs().sqrt();
    let scores = query.mul(root.copysign(scale))?.matmul(&key.transpose(-2, -1)?.mul(root)?)?;
    let mask = if options.is_causal { Some(causal(&query, &key)?) } else { options.attn_mask.cloned() };
    if let Some(mask) = mask {
        scores.add_(&additive(&mask, inside)?)?;
    }
    let weights = softmax(&scores)?;
    let weights = if options.dropout_p > 0.0 { weights.dropout(options.dropout_p, true)? } else { weights };
    weights.matmul(&value)?.to_dtype(dtype)
}

/// What the products of queries and keys are multiplied by.
pub(super) fn scale_of(query: &Tensor, options: &Attention<'_>) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "widths are far below 2^53")]
    let width = query.sizes().last().copied().unwrap_or(1) as f64;
    options.scale.unwrap_or_else(|| 1.0 / width.sqrt())
}

/// Keys or values with each head repeated for the heads of the queries that share it.
fn repeated(tensor: &Tensor, heads: i64) -> Result<Tensor> {
    let at = tensor.dim() - 3;
    let own = tensor.sizes()[at];
    if own == heads {
        return Ok(tensor.clone());
    }
    let (mut apart, mut together) = (tensor.sizes().to_vec(), tensor.sizes().to_vec());
    apart.insert(at + 1, heads / own);
    together[at] = heads;
    tensor.unsqueeze(-3)?.expand(&apart)?.reshape(&together)
}

/// Which keys a query sees: those up to its own number.
fn causal(query: &Tensor, key: &Tensor) -> Result<Tensor> {
    let rows = |tensor: &Tensor| tensor.sizes()[tensor.dim() - 2];
    Tensor::ones(&[rows(query), rows(key)], DType::Bool, query)?.tril(0)
}

/// What is added to the products: of booleans, nothing where they are true and minus infinity elsewhere.
fn additive(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    if mask.dtype() != DType::Bool {
        return Ok(mask.clone());
    }
    let nothing = Tensor::zeros(&[], dtype, mask)?;
    mask.where_cond(&nothing, &Tensor::full(&[], f64::NEG_INFINITY, dtype, mask)?)
}

/// Softmax of rows; one without a key to be seen is zero, not undefined.
fn softmax(scores: &Tensor) -> Result<Tensor> {
    let weights = scores.softmax(-1, None)?;
    if scores.sizes().last() == Some(&0) || scores.numel() == 0 {
        return Ok(weights);
    }
    let is_unseen = scores.amax(-1, true)?.eq(f64::NEG_INFINITY)?;
    is_unseen.where_cond(0.0, &weights)
}
