//! What `torch.backends.cuda` has for attention: switches, and which kernels take a call.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::backends::cuda::{self, SDPAParams, SdpKernels};
//! use cuda_api::torch::{self, functional as F};
//!
//! let q = torch::ones(&[2, 8, 16, 64], torch::bfloat16, "cuda")?;
//! assert!(cuda::can_use_flash_attention(&SDPAParams::new(&q, &q, &q, None, 0.0, false, false), true));
//! let only_math = SdpKernels { enable_flash: false, ..SdpKernels::default() };
//! let out = cuda::with_sdp_kernel(only_math, || F::scaled_dot_product_attention(&q, &q, &q, &F::Attention::default()))?;
//! assert_eq!(out.sizes(), q.sizes());
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::attention::{
    SDPAParams, SDPBackend, SdpKernelGuard, SdpKernels, allow_fp16_bf16_reduction_math_sdp, can_use_cudnn_attention,
    can_use_efficient_attention, can_use_flash_attention, cudnn_sdp_enabled, enable_cudnn_sdp, enable_flash_sdp,
    enable_math_sdp, enable_mem_efficient_sdp, flash_sdp_enabled, fp16_bf16_reduction_math_sdp_allowed,
    fused_sdp_choice, is_flash_attention_available, math_sdp_enabled, mem_efficient_sdp_enabled, sdp_kernel,
    with_sdp_kernel,
};
