//! Keys of the allocator's configuration and environment variables, with the values from PyTorch's documentation.

use cuda_api::torch;
use testkit::Config;

use super::{Example, ones, run};

#[test]
fn keys() {
    run(KEYS);
}

fn set(text: &str) -> torch::Result<()> {
    cuda_api::set_allocator_settings(text)?;
    assert_eq!(ones(&[4])?.to_vec::<f32>()?, [1.0; 4], "{text}");
    Ok(())
}

const KEYS: &[Example] = &[
    ("backend", || set("backend:native")),
    ("max_split_size_mb", || set("max_split_size_mb:64")),
    ("garbage_collection_threshold", || set("garbage_collection_threshold:0.6")),
    ("roundup_power2_divisions", || set("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]")),
    ("expandable_segments", || set("expandable_segments:True")),
    ("release_lock_on_cudamalloc", || set("release_lock_on_cudamalloc:True")),
    ("pinned_use_cuda_host_register pinned_num_register_threads", || {
        set("pinned_use_cuda_host_register:True,pinned_num_register_threads:8")
    }),
    ("pinned_use_background_threads", || set("pinned_use_background_threads:True")),
    ("pinned_reserve_segment_size_mb", || set("pinned_reserve_segment_size_mb:64")),
    ("max_non_split_rounding_mb", || set("max_non_split_rounding_mb:20")),
    ("large_segment_size_mb", || set("large_segment_size_mb:32")),
    ("per_process_memory_fraction", || set("per_process_memory_fraction:0.5")),
    ("graph_capture_record_stream_reuse", || set("graph_capture_record_stream_reuse:True")),
    ("learn_plans", || set("learn_plans:True")),
];

/// Environment variables with their values; a separate process runs with each.
const VARIABLES: &[(&str, &str)] = &[
    ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"),
    ("PYTORCH_ALLOC_CONF", "max_split_size_mb:64"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    ("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),
    ("CUDA_VISIBLE_DEVICES", "0"),
    ("CUDA_LAUNCH_BLOCKING", "1"),
    ("TORCH_BLAS_PREFER_CUBLASLT", "1"),
    ("TORCH_LINALG_PREFER_CUSOLVER", "1"),
    ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"),
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("CUBLASLT_WORKSPACE_SIZE", "1024"),
    ("DISABLE_ADDMM_CUDA_LT", "1"),
    ("PYTORCH_TUNABLEOP_ENABLED", "0"),
    ("TORCH_CUDA_SANITIZER", "1"),
    ("USE_PYTORCH_KERNEL_CACHE", "0"),
    ("PYTORCH_KERNEL_CACHE_PATH", "/nonexistent/folder"),
    ("PYTORCH_USE_CUDA_DSA", "1"),
    ("TORCH_NCCL_BLOCKING_WAIT", "1"),
];

/// Rows that cover several variables are tested by one of them: `PYTORCH_TUNABLEOP_*` and `TORCH_NCCL_*`.
#[test]
fn a_program_runs_under_each_variable() {
    testkit::with_environment("settings::a_program_runs_under_each_variable", VARIABLES, || {
        let _simulated = testkit::SimulatedRuntime::new(Config::default());
        let sum = ones(&[64]).and_then(|x| torch::mm(&x.view(&[8, 8])?, &x.view(&[8, 8])?)).expect("it runs");
        assert_eq!(sum.to_vec::<f32>().expect("it can be read"), [8.0; 64]);
        assert_eq!(cuda_api::memory_reserved(None).expect("figures"), 0, "nothing is cached");
    });
}

/// With `CUDA_LAUNCH_BLOCKING` a kernel is done when the call that launches it returns.
#[test]
fn launches_wait_if_the_variable_says_so() {
    let is_done = || {
        cuda_api::sleep(1_980_000_000).expect("a launch");
        cuda_api::current_stream(None).expect("a stream").query().expect("it can be asked")
    };
    testkit::with_environment(
        "settings::launches_wait_if_the_variable_says_so",
        &[("CUDA_LAUNCH_BLOCKING", "1")],
        || {
            let _simulated = testkit::SimulatedRuntime::new(Config::from_env().expect("the variables are right"));
            assert!(is_done());
        },
    );
    if std::env::var_os("CUDA_LAUNCH_BLOCKING").is_none() {
        let _simulated = testkit::SimulatedRuntime::new(Config::default());
        assert!(!is_done(), "the kernel runs for a second of the device's time");
    }
}
