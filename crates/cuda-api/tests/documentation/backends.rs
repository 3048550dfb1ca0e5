//! `torch.backends.cuda`, products, and deterministic algorithms. The settings are process-wide, so one test covers all
//! of them.

use cuda_api::backends::cuda::{self, SDPAParams, SDPBackend, SdpKernels, matmul};
use cuda_api::torch;
use cuda_api::torch::functional::Attention;

use super::{Example, ones, run};

#[test]
fn backends() {
    run(ATTENTION);
    run(PRODUCTS);
    run(DETERMINISTIC);
}

const ATTENTION: &[Example] = &[
    (
        "torch.backends.cuda.flash_sdp_enabled torch.backends.cuda.enable_flash_sdp \
         torch.backends.cuda.math_sdp_enabled torch.backends.cuda.enable_math_sdp \
         torch.backends.cuda.mem_efficient_sdp_enabled torch.backends.cuda.enable_mem_efficient_sdp \
         torch.backends.cuda.cudnn_sdp_enabled torch.backends.cuda.enable_cudnn_sdp \
         torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed \
         torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        || {
            cuda::enable_flash_sdp(false);
            assert!(!cuda::flash_sdp_enabled());
            cuda::enable_flash_sdp(true);
            cuda::enable_math_sdp(true);
            cuda::enable_mem_efficient_sdp(true);
            cuda::enable_cudnn_sdp(true);
            assert!(cuda::math_sdp_enabled() && cuda::mem_efficient_sdp_enabled() && cuda::cudnn_sdp_enabled());
            cuda::allow_fp16_bf16_reduction_math_sdp(true);
            assert!(cuda::fp16_bf16_reduction_math_sdp_allowed());
            cuda::allow_fp16_bf16_reduction_math_sdp(false);
            Ok(())
        },
    ),
    ("torch.backends.cuda.sdp_kernel torch.backends.cuda.SDPBackend", || {
        let q = ones(&[1, 1, 4, 8])?;
        let only = SdpKernels { enable_flash: false, ..SdpKernels::default() };
        {
            let _kernels = cuda::sdp_kernel(only);
            assert!(!cuda::flash_sdp_enabled());
        }
        let attended = cuda::with_sdp_kernel(only, || {
            torch::functional::scaled_dot_product_attention(&q, &q, &q, &Attention::default())
        })?;
        assert_eq!((attended.sizes(), SDPBackend::Math as i32), (&[1, 1, 4, 8][..], 0));
        Ok(())
    }),
    (
        "torch.backends.cuda.SDPAParams torch.backends.cuda.can_use_flash_attention \
         torch.backends.cuda.can_use_efficient_attention torch.backends.cuda.can_use_cudnn_attention \
         torch.backends.cuda.is_flash_attention_available torch.backends.cuda.is_built",
        || {
            let q = torch::ones(&[1, 1, 16, 64], torch::float16, "cuda")?;
            let params = SDPAParams::new(&q, &q, &q, None, 0.0, false, false);
            let _ = cuda::can_use_flash_attention(&params, false);
            let _ = cuda::can_use_efficient_attention(&params, false);
            let _ = cuda::can_use_cudnn_attention(&params, false);
            let _ = cuda::is_flash_attention_available();
            assert!(cuda::is_built());
            Ok(())
        },
    ),
];

const PRODUCTS: &[Example] = &[
    ("mm addmm bmm baddbmm", || {
        let (a, cube) = (ones(&[2, 2])?, ones(&[1, 2, 2])?);
        assert_eq!(torch::mm(&a, &a)?.to_vec::<f32>()?, [2.0; 4]);
        assert_eq!(torch::addmm(&a, &a, &a, 1, 1)?.to_vec::<f32>()?, [3.0; 4]);
        assert_eq!(torch::bmm(&cube, &cube)?.to_vec::<f32>()?, [2.0; 4]);
        assert_eq!(torch::baddbmm(&cube, &cube, &cube, 1, 1)?.to_vec::<f32>()?, [3.0; 4]);
        Ok(())
    }),
    ("matmul.allow_tf32 matmul.fp32_precision matmul.allow_fp16_accumulation", || {
        matmul::set_allow_tf32(true);
        assert!(matmul::allow_tf32()?);
        matmul::set_fp32_precision("ieee")?;
        assert_eq!(matmul::fp32_precision().to_string(), "ieee");
        matmul::set_allow_fp16_accumulation(true);
        assert!(matmul::allow_fp16_accumulation());
        matmul::set_allow_fp16_accumulation(false);
        Ok(())
    }),
    ("matmul.allow_fp16_reduced_precision_reduction matmul.allow_bf16_reduced_precision_reduction", || {
        matmul::set_allow_fp16_reduced_precision_reduction(false)?;
        matmul::set_allow_bf16_reduced_precision_reduction(false)?;
        assert!(!matmul::allow_fp16_reduced_precision_reduction() && !matmul::allow_bf16_reduced_precision_reduction());
        matmul::set_allow_fp16_reduced_precision_reduction(true)?;
        matmul::set_allow_bf16_reduced_precision_reduction(true)
    }),
    ("torch.set_float32_matmul_precision torch.get_float32_matmul_precision", || {
        torch::set_float32_matmul_precision("high")?;
        assert_eq!(torch::get_float32_matmul_precision()?.to_string(), "high");
        torch::set_float32_matmul_precision("highest")
    }),
    ("torch.backends.cuda.preferred_blas_library torch.backends.cuda.preferred_linalg_library", || {
        cuda::set_preferred_blas_library("cublaslt")?;
        assert_eq!(cuda::preferred_blas_library(), cuda::BlasBackend::Cublaslt);
        cuda::set_preferred_blas_library("default")?;
        cuda::set_preferred_linalg_library("cusolver")?;
        let _ = cuda::preferred_linalg_library();
        cuda::set_preferred_linalg_library("default")
    }),
    ("cufft_plan_cache", || {
        cuda::cufft_plan_cache(0)?.clear();
        Ok(())
    }),
    ("torch.cuda.current_blas_handle _cuda_clearCublasWorkspaces", || {
        aten_cuda::blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
        assert_ne!(cuda_api::current_blas_handle(None)?, 0);
        cuda_api::clear_cublas_workspaces();
        aten_cuda::blas::set_libraries(None, None);
        Ok(())
    }),
];

const DETERMINISTIC: &[Example] = &[
    (
        "torch.use_deterministic_algorithms torch.are_deterministic_algorithms_enabled \
         torch.is_deterministic_algorithms_warn_only_enabled",
        || {
            torch::use_deterministic_algorithms(true, true);
            assert!(torch::are_deterministic_algorithms_enabled());
            assert!(torch::is_deterministic_algorithms_warn_only_enabled());
            torch::use_deterministic_algorithms(false, None);
            Ok(())
        },
    ),
    ("torch.set_deterministic_debug_mode torch.get_deterministic_debug_mode", || {
        torch::set_deterministic_debug_mode("warn")?;
        let _ = torch::get_deterministic_debug_mode();
        torch::set_deterministic_debug_mode(0)
    }),
    ("torch.utils.deterministic.fill_uninitialized_memory", || {
        assert!(torch::utils::deterministic::fill_uninitialized_memory());
        Ok(())
    }),
];
