//! The names of `torch.backends.cuda` and of products at the root: answers as PyTorch 2.11 gives them, on a simulated
//! machine with simulated libraries. The settings are the process's, so one test changes them all, and another one those of
//! deterministic algorithms.

use cuda_api::backends::cuda::{
    BlasBackend, cufft_plan_cache, is_built, matmul, preferred_blas_library, preferred_linalg_library, product_library,
    set_preferred_blas_library, set_preferred_linalg_library,
};
use cuda_api::torch::{self, get_float32_matmul_precision, set_float32_matmul_precision};
use cuda_api::{backends, clear_cublas_workspaces, current_blas_handle, memory_allocated};

fn text(error: torch::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// No other test here depends on these settings.
#[test]
fn deterministic_algorithms_are_asked_for() -> torch::Result<()> {
    use torch::utils::deterministic::{fill_uninitialized_memory, set_fill_uninitialized_memory};
    let state = || {
        (
            torch::are_deterministic_algorithms_enabled(),
            torch::is_deterministic_algorithms_warn_only_enabled(),
            torch::get_deterministic_debug_mode(),
        )
    };
    assert_eq!(state(), (false, false, torch::DeterministicDebugMode::Default));
    torch::use_deterministic_algorithms(true, true);
    assert_eq!(state(), (true, true, torch::DeterministicDebugMode::Warn));
    torch::set_deterministic_debug_mode("error")?;
    assert_eq!(state(), (true, false, torch::DeterministicDebugMode::Error));
    let wrong = torch::set_deterministic_debug_mode(5).map_err(text);
    assert_eq!(wrong, Err("invalid value of debug_mode, expected 0, 1, or 2, but got 5".to_owned()));
    assert!(fill_uninitialized_memory());
    let made = torch::empty_strided(&[2, 2], &[1, 2], torch::int16, "cpu")?;
    assert_eq!((made.strides(), made.to_vec::<i16>()?), (&[1, 2][..], vec![i16::MAX; 4]));
    set_fill_uninitialized_memory(false);
    assert_eq!(torch::empty(&[2], torch::int16, "cpu")?.to_vec::<i16>()?, [0; 2]);
    set_fill_uninitialized_memory(true);
    torch::use_deterministic_algorithms(false, None);
    assert_eq!(state(), (false, false, torch::DeterministicDebugMode::Default));
    Ok(())
}

#[test]
fn settings_answer_as_in_torch() -> torch::Result<()> {
    assert!(is_built());
    assert_eq!(preferred_blas_library(), BlasBackend::Cublas);
    set_preferred_blas_library("hipblaslt")?;
    assert_eq!(preferred_blas_library(), BlasBackend::Cublaslt);
    set_preferred_blas_library("default")?;
    assert_eq!(preferred_blas_library(), BlasBackend::Cublas);
    assert_eq!(
        set_preferred_blas_library("xx").map_err(text),
        Err("Unknown input value. Choose from: default, cublas, hipblas, cublaslt, hipblaslt, ck.".to_owned())
    );
    let before = preferred_linalg_library();
    set_preferred_linalg_library("cusolver")?;
    assert_ne!(preferred_linalg_library(), before);
    set_preferred_linalg_library("default")?;
    let wrong = set_preferred_linalg_library("xx").map_err(text);
    assert_eq!(wrong, Err("Unknown input value. Choose from: default, cusolver, magma.".to_owned()));

    let state = || {
        let legacy = get_float32_matmul_precision().map(|precision| precision.to_string()).map_err(text);
        (matmul::fp32_precision().to_string(), matmul::allow_tf32().is_ok_and(|allowed| allowed), legacy)
    };
    let is = |precision: &str, tf32: bool, legacy: &str| (precision.to_owned(), tf32, Ok(legacy.to_owned()));
    assert_eq!(state(), is("none", false, "highest"));
    set_float32_matmul_precision("medium")?;
    assert_eq!(state(), is("tf32", true, "medium"));
    assert_eq!(
        set_float32_matmul_precision("xx").map_err(text),
        Err("xx is not one of 'highest', 'high', or 'medium'; the current setFloat32MatmulPrecision call has no effect."
            .to_owned())
    );
    matmul::set_allow_tf32(false);
    assert_eq!(state(), is("ieee", false, "highest"));
    matmul::set_fp32_precision("tf32")?;
    let mixed = matmul::allow_tf32().map_err(text).unwrap_err();
    assert!(mixed.starts_with("PyTorch is checking whether allow_tf32_new is enabled for cuBlas matmul,"), "{mixed}");
    let mixed = get_float32_matmul_precision().map_err(text).unwrap_err();
    assert!(mixed.starts_with("PyTorch is checking the matmul precision without a specific backend name,"), "{mixed}");
    let refused = matmul::set_fp32_precision("bf16").map_err(text);
    assert_eq!(refused, Err("backend 'cuda' does not support precision 'bf16'".to_owned()));
    assert_eq!(matmul::set_fp32_precision("xyz").map_err(text), Err("Unknown precision: xyz".to_owned()));
    matmul::set_fp32_precision("none")?;
    backends::set_fp32_precision("tf32")?;
    assert_eq!(matmul::fp32_precision(), backends::fp32_precision());
    backends::set_fp32_precision("none")?;

    matmul::set_allow_fp16_reduced_precision_reduction((false, false))?;
    assert!(!matmul::allow_fp16_reduced_precision_reduction());
    assert!(!matmul::allow_fp16_reduced_precision_reduction_split_k());
    assert_eq!(
        matmul::set_allow_fp16_reduced_precision_reduction((true, false)).map_err(text),
        Err("allow_splitk=False is not supported when reduced precision reductions are enabled".to_owned())
    );
    matmul::set_allow_fp16_reduced_precision_reduction(true)?;
    matmul::set_allow_bf16_reduced_precision_reduction(false)?;
    assert!(!matmul::allow_bf16_reduced_precision_reduction());
    assert!(matmul::allow_bf16_reduced_precision_reduction_split_k());
    matmul::set_allow_bf16_reduced_precision_reduction(true)?;
    matmul::set_allow_fp16_accumulation(true);
    assert!(matmul::allow_fp16_accumulation());
    matmul::set_allow_fp16_accumulation(false);
    Ok(())
}

#[test]
fn products_keep_a_workspace_until_it_is_given_back() -> torch::Result<()> {
    let _simulated = testkit::Simulation::new(testkit::Config::default()).here();
    assert!(current_blas_handle(None).is_err(), "{:?}", product_library());
    aten_cuda::blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
    let a = torch::ones(&[8, 8], torch::float32, "cuda")?;
    let before = memory_allocated(None)?;
    assert_ne!(current_blas_handle(None)?, 0);
    assert_eq!(torch::mm(&a, &a)?.to_vec::<f32>()?, [8.0; 64]);
    assert_eq!(memory_allocated(None)? - before, 32 << 20);
    clear_cublas_workspaces();
    assert_eq!(memory_allocated(None)?, before);
    Ok(())
}

#[test]
fn the_cache_of_plans_has_a_limit() -> torch::Result<()> {
    let _simulated = testkit::Simulation::new(testkit::Config::default()).here();
    let cache = cufft_plan_cache(0)?;
    assert_eq!((cache.size(), cache.max_size()), (0, 4096));
    cache.set_max_size(10)?;
    assert_eq!(cufft_plan_cache(0)?.max_size(), 10);
    assert_eq!(
        cache.set_max_size(-1).map_err(text),
        Err("cuFFT plan cache size must be non-negative, but got -1".to_owned())
    );
    assert_eq!(
        cufft_plan_cache(1).map(drop).map_err(text),
        Err("cufft_plan_cache: expected 0 <= device index < 1, but got device with index 1".to_owned())
    );
    Ok(())
}
