//! `torch.backends.cuda` for attention, by the names that programs use.

use cuda_api::backends::cuda::{self, SDPAParams, SDPBackend, SdpKernels};
use cuda_api::torch::{self, Result, Tensor, functional as F};

fn params(tensor: &Tensor) -> SDPAParams {
    SDPAParams::new(tensor, tensor, tensor, None, 0.0, true, false)
}

#[test]
fn switches_of_attention() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let q = torch::ones(&[1, 2, 9, 64], torch::float16, "cuda")?;
    assert!(cuda::is_flash_attention_available());
    assert!(cuda::flash_sdp_enabled() && cuda::mem_efficient_sdp_enabled());
    assert!(cuda::math_sdp_enabled() && cuda::cudnn_sdp_enabled());
    assert!(!cuda::fp16_bf16_reduction_math_sdp_allowed());
    assert!(cuda::can_use_flash_attention(&params(&q), true));
    assert!(!cuda::can_use_efficient_attention(&params(&q), true), "there is none");
    assert!(!cuda::can_use_cudnn_attention(&params(&q), true), "there is none");
    assert_eq!(cuda::fused_sdp_choice(&params(&q)), SDPBackend::FlashAttention);

    cuda::enable_flash_sdp(false);
    cuda::enable_mem_efficient_sdp(false);
    cuda::enable_cudnn_sdp(false);
    cuda::allow_fp16_bf16_reduction_math_sdp(true);
    assert!(cuda::fp16_bf16_reduction_math_sdp_allowed());
    assert_eq!(cuda::fused_sdp_choice(&params(&q)), SDPBackend::Math);
    cuda::enable_math_sdp(false);
    assert_eq!(cuda::fused_sdp_choice(&params(&q)), SDPBackend::Error);
    {
        let _all = cuda::sdp_kernel(SdpKernels::default());
        assert_eq!(SdpKernels::current(), SdpKernels::default());
    }
    assert!(!cuda::flash_sdp_enabled(), "as before the guard");
    let refused = F::scaled_dot_product_attention(&q, &q, &q, &F::Attention::default()).unwrap_err();
    assert!(refused.to_string().starts_with("No viable backend for scaled_dot_product_attention was found."));
    Ok(())
}

#[test]
fn arguments_are_kept() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (q, mask) = (torch::ones(&[1, 2, 3, 8], torch::float32, "cpu")?, torch::ones(&[3, 3], torch::bool, "cpu")?);
    let params = SDPAParams::new(&q, &q, &q, Some(&mask), 0.25, false, true);
    assert_eq!((params.query.sizes(), params.key.sizes(), params.value.sizes()), (q.sizes(), q.sizes(), q.sizes()));
    assert_eq!(params.attn_mask.map(|mask| mask.dtype()), Some(torch::bool));
    assert_eq!((params.dropout.to_bits(), params.is_causal, params.enable_gqa), (0.25_f64.to_bits(), false, true));
    Ok(())
}
