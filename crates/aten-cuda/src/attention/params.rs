//! What is known of a call of attention before it runs, and which kernels take it.

use super::settings::{cudnn_sdp_enabled, flash_sdp_enabled, mem_efficient_sdp_enabled};
use crate::base::dtype::DType;
use crate::launch::library::attention::{WIDTH_MAX, is_supported};
use crate::tensor::{Tensor, is_host};

/// The ways to compute attention (`torch.nn.attention.SDPBackend`), with torch's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum SDPBackend {
    /// None can be used.
    #[doc(alias = "ERROR")]
    Error = -1,
    /// Tensor operations.
    #[doc(alias = "MATH")]
    Math = 0,
    /// The fused kernel.
    #[doc(alias = "FLASH_ATTENTION")]
    FlashAttention = 1,
    /// A memory-efficient kernel, of which there is none here.
    #[doc(alias = "EFFICIENT_ATTENTION")]
    EfficientAttention = 2,
    /// cuDNN's kernel, which is not used here.
    #[doc(alias = "CUDNN_ATTENTION")]
    CudnnAttention = 3,
    /// A kernel that another backend brings, of which there is none here.
    #[doc(alias = "OVERRIDEABLE")]
    Overrideable = 4,
}

/// The arguments of a call of attention, to ask which kernel takes it (`torch.backends.cuda.SDPAParams`).
#[derive(Clone, Debug)]
pub struct SDPAParams {
    /// The queries: (batch, heads, queries, width).
    pub query: Tensor,
    /// The keys: (batch, heads, keys, width).
    pub key: Tensor,
    /// The values: (batch, heads, keys, width).
    pub value: Tensor,
    /// What is added to the products, or which of them count.
    pub attn_mask: Option<Tensor>,
    /// The probability that a weight is dropped.
    pub dropout: f64,
    /// Whether a query sees only the keys up to its own number.
    pub is_causal: bool,
    /// Whether several heads of the queries share one of the keys.
    pub enable_gqa: bool,
}

impl SDPAParams {
    /// Takes the arguments together.
    #[must_use]
    pub fn new(
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        attn_mask: Option<&Tensor>,
        dropout: f64,
        is_causal: bool,
        enable_gqa: bool,
    ) -> Self {
        let [query, key, value] = [query, key, value].map(Tensor::clone);
        Self { query, key, value, attn_mask: attn_mask.cloned(), dropout, is_causal, enable_gqa }
    }
}

/// Whether the fused kernel is there (`torch.backends.cuda.is_flash_attention_available`): it always is.
#[must_use]
pub fn is_flash_attention_available() -> bool {
    true
}

/// Whether [`Tensor::scaled_dot_product_attention`] may compute this call by the fused kernel
/// (`torch.backends.cuda.can_use_flash_attention`): `f16` or `bf16` on a device of compute capability 8.0 or later, four
/// dimensions of the same batches, heads (or, with `enable_gqa`, a multiple of those of keys and values) and width up to
/// 256, at least one query and key, no mask and no dropout. With `debug` the reason against it is a warning.
#[must_use]
pub fn can_use_flash_attention(params: &SDPAParams, debug: bool) -> bool {
    told(flash_refusal(params), debug)
}

/// Whether a memory-efficient kernel can compute this call (`torch.backends.cuda.can_use_efficient_attention`): no, there
/// is none. With `debug` that is a warning.
#[must_use]
pub fn can_use_efficient_attention(params: &SDPAParams, debug: bool) -> bool {
    let _ = params;
    let disabled = (!mem_efficient_sdp_enabled()).then_some("Memory Efficient attention has been runtime disabled.");
    told(Some(disabled.unwrap_or("Memory Efficient attention is not part of this library.").to_owned()), debug)
}

/// Whether cuDNN can compute this call (`torch.backends.cuda.can_use_cudnn_attention`): no, it is not used. With `debug`
/// that is a warning.
#[must_use]
pub fn can_use_cudnn_attention(params: &SDPAParams, debug: bool) -> bool {
    let _ = params;
    let disabled = (!cudnn_sdp_enabled()).then_some("cuDNN attention has been runtime disabled.");
    told(Some(disabled.unwrap_or("cuDNN attention is not part of this library.").to_owned()), debug)
}

fn told(refusal: Option<String>, debug: bool) -> bool {
    if let (Some(reason), true) = (&refusal, debug) {
        tracing::warn!("{reason}");
    }
    refusal.is_none()
}

/// Why the fused kernel does not take a call; in torch's words where torch has the same reason.
pub(super) fn flash_refusal(params: &SDPAParams) -> Option<String> {
    if !flash_sdp_enabled() {
        return Some("Flash attention has been runtime disabled.".to_owned());
    }
    place(params).or_else(|| sizes(params)).or_else(|| features(params))
}

/// Tensors elsewhere, of other dtypes, or on a device that cannot run the kernel.
fn place(params: &SDPAParams) -> Option<String> {
    let tensors = [&params.query, &params.key, &params.value];
    let [query, key, value] = tensors.map(Tensor::device);
    if is_host(query) || key != query || value != query {
        return Some(format!(
            "All tensors need to be on cuda device. Got query on device: {query}, key on device: {key}, value on \
             device: {value}"
        ));
    }
    let [first, second, third] = tensors.map(Tensor::dtype);
    if !matches!(first, DType::F16 | DType::BF16) || second != first || third != first {
        let [first, second, third] = [first, second, third].map(DType::cpp_name);
        return Some(format!(
            "Expected query, key and value to all be of dtype: {{Half, BFloat16}}. Got Query dtype: {first}, Key \
             dtype: {second}, and Value dtype: {third} instead."
        ));
    }
    match is_supported(query) {
        Ok(true) => None,
        Ok(false) => Some("Flash attention only supports gpu architectures from sm80 on.".to_owned()),
        Err(error) => Some(format!("Flash attention cannot tell the architecture of the device: {error}")),
    }
}

/// Sizes that the kernel has no form for.
fn sizes(params: &SDPAParams) -> Option<String> {
    let tensors = [&params.query, &params.key, &params.value];
    let [query, key, value] = tensors.map(Tensor::sizes);
    let (&[batches, heads, queries, width], &[_, shared, keys, _], &[..]) = (query, key, value) else {
        let [first, second, third] = tensors.map(Tensor::dim);
        return Some(format!(
            "All fused kernels requires query, key and value to be 4 dimensional, but got Query dim: {first}, Key dim: \
             {second}, Value dim: {third} instead."
        ));
    };
    if key[3] != width || value.last() != Some(&width) || width > WIDTH_MAX {
        let [first, second, third] = [query, key, value].map(|sizes| sizes.last().copied().unwrap_or(0));
        return Some(format!(
            "Flash attention requires q,k,v to have the same last dimension and to be less than or equal to \
             {WIDTH_MAX}. Got Query.size(-1): {first}, Key.size(-1): {second}, Value.size(-1): {third} instead."
        ));
    }
    let instead = format!(
        "Query.sizes(): {query:?}, Key.sizes(): {key:?}, Value.sizes(): {value:?} instead. To broadcast dense inputs, try \
         using unsqueeze and expand_to before passing them into the kernel."
    );
    if key[0] != batches || value[0] != batches {
        return Some(format!(
            "For dense inputs, both fused kernels require query, key and value to have the same batch_size. {instead}"
        ));
    }
    let own = value[1];
    if params.enable_gqa && (shared == 0 || own != shared || heads % shared != 0) {
        return Some(format!(
            "The number of heads in key/value must divide number of heads in query.Got input Key sizes(): {shared}, \
             Value sizes(): {own}, Query sizes(): {heads} instead."
        ));
    }
    if !params.enable_gqa && (heads != shared || heads != own) {
        return Some(format!(
            "For dense input, both fused kernels require query, key and value to have the same num_heads. {instead}"
        ));
    }
    if value[2] != keys {
        return Some(format!("Flash attention requires as many values as keys. {instead}"));
    }
    (queries == 0 || keys == 0)
        .then(|| "All fused kernels do not support zero seq_len_q or seq_len_kv.".to_owned())
        .or_else(|| (query.contains(&0)).then(|| "Flash attention has nothing to compute.".to_owned()))
}

/// What the kernel does not do.
fn features(params: &SDPAParams) -> Option<String> {
    if params.attn_mask.is_some() {
        return Some("Flash Attention does not support non-null attn_mask.".to_owned());
    }
    (params.dropout != 0.0).then(|| "Flash attention does not support dropout here.".to_owned())
}
