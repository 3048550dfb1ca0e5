//! Each row of the table of classes against what a call does in a compiled function.
//!
//! A row is tried, or is one of [`NOT_CALLED`], or does not apply outside of Python as the page says. So a new row has to be
//! put in one of these places, and no row can be in two.
#![expect(deprecated, reason = "rows of the older names are tried, too")]
#![expect(dropping_copy_types, dropping_references, reason = "what a row answers does not matter")]

use super::*;
use cuda_api::backends::cuda as backend;
use cuda_api::streams::StreamId;
use cuda_api::{ExternalStream, nvtx, tunable};

type Try = fn(&Tensor);

/// Names whose calls are tried: what they give or refuse does not matter here, but whether the graph goes on.
const TRIED: &[(&str, Try)] = &[
    ("is_available", |_| drop(cuda_api::is_available())),
    ("is_initialized", |_| drop(cuda_api::is_initialized())),
    ("init", |_| drop(cuda_api::init())),
    ("_lazy_init", |_| drop(cuda_api::lazy_init())),
    ("_lazy_call", |_| drop(cuda_api::lazy_call(|_| Ok(())))),
    ("_is_compiled", |_| drop(cuda_api::is_compiled())),
    ("_is_in_bad_fork", |_| drop(cuda_api::is_in_bad_fork())),
    ("is_built", |_| drop(backend::is_built())),
    ("device_count", |_| drop(cuda_api::device_count())),
    ("_device_count_nvml", |_| drop(cuda_api::device_count_nvml())),
    ("_raw_device_count_nvml", |_| drop(cuda_api::raw_device_count_nvml())),
    ("_raw_device_uuid_nvml", |_| drop(cuda_api::raw_device_uuid_nvml())),
    ("_nvml_based_avail", |_| drop(cuda_api::nvml_based_avail())),
    ("_parse_visible_devices", |_| drop(cuda_api::parse_visible_devices())),
    ("_get_nvml_device_index", |_| drop(cuda_api::get_nvml_device_index(None))),
    ("current_device", |_| drop(cuda_api::current_device())),
    ("current_stream", |_| drop(cuda_api::current_stream(None))),
    ("default_stream", |_| drop(cuda_api::default_stream(None))),
    ("get_device_properties", |_| drop(cuda_api::get_device_properties(None))),
    ("get_device_capability", |_| drop(cuda_api::get_device_capability(None))),
    ("get_device_name", |_| drop(cuda_api::get_device_name(None))),
    ("_get_device", |_| drop(cuda_api::get_device(0))),
    ("_get_device_index", |_| drop(cuda_api::get_device_index(0, false, false))),
    ("_get_generator", |_| drop(cuda_api::get_generator(None))),
    ("default_generators", |_| drop(cuda_api::default_generators())),
    ("can_device_access_peer", |_| drop(cuda_api::can_device_access_peer(0, 0))),
    ("cudart", |_| drop(cuda_api::cudart())),
    ("get_allocator_backend", |_| drop(cuda_api::get_allocator_backend())),
    ("_get_current_allocator", |_| drop(cuda_api::get_current_allocator())),
    ("_get_memory_metadata", |_| drop(cuda_api::get_memory_metadata())),
    ("_set_memory_metadata", |_| cuda_api::set_memory_metadata("")),
    ("_host_allocator", |_| drop(cuda_api::host_allocator())),
    ("get_arch_list", |_| drop(cuda_api::get_arch_list())),
    ("get_gencode_flags", |_| drop(cuda_api::get_gencode_flags())),
    ("is_bf16_supported", |_| drop(cuda_api::is_bf16_supported(true))),
    ("is_tf32_supported", |_| drop(cuda_api::is_tf32_supported())),
    ("_check_bf16_tensor_supported", |_| drop(cuda_api::check_bf16_tensor_supported(None))),
    ("_code_compatible_with_device", |_| drop(cuda_api::code_compatible_with_device(90, 80))),
    ("get_sync_debug_mode", |_| drop(cuda_api::get_sync_debug_mode())),
    ("set_sync_debug_mode", |_| drop(cuda_api::set_sync_debug_mode(0))),
    ("is_current_stream_capturing", |_| drop(cuda_api::is_current_stream_capturing())),
    ("graph_pool_handle", |_| drop(cuda_api::graph_pool_handle())),
    ("ipc_collect", |_| drop(cuda_api::ipc_collect())),
    ("amp_definitely_not_available", |_| drop(amp::amp_definitely_not_available())),
    ("is_autocast_available", |_| drop(amp::is_autocast_available("cuda"))),
    ("torch.is_autocast_enabled", |_| drop(torch::is_autocast_enabled("cuda"))),
    ("torch.is_autocast_cpu_enabled", |_| drop(torch::is_autocast_cpu_enabled())),
    ("torch.is_any_autocast_enabled", |_| drop(torch::is_any_autocast_enabled())),
    ("torch.is_autocast_cache_enabled", |_| drop(torch::is_autocast_cache_enabled())),
    ("torch.get_autocast_dtype", |_| drop(torch::get_autocast_dtype("cuda"))),
    ("torch.get_autocast_gpu_dtype", |_| drop(torch::get_autocast_gpu_dtype())),
    ("torch.get_autocast_cpu_dtype", |_| drop(torch::get_autocast_cpu_dtype())),
    ("torch.clear_autocast_cache", |_| torch::clear_autocast_cache()),
    ("is_enabled", |_| drop(tunable::is_enabled())),
    ("tuning_is_enabled", |_| drop(tunable::tuning_is_enabled())),
    ("record_untuned_is_enabled", |_| drop(tunable::record_untuned_is_enabled())),
    ("get_max_tuning_duration", |_| drop(tunable::get_max_tuning_duration())),
    ("get_max_tuning_iterations", |_| drop(tunable::get_max_tuning_iterations())),
    ("get_filename", |_| drop(tunable::get_filename())),
    ("get_results", |_| drop(tunable::get_results())),
    ("get_validators", |_| drop(tunable::get_validators())),
    ("get_rotating_buffer_size", |_| drop(tunable::get_rotating_buffer_size())),
    ("torch.are_deterministic_algorithms_enabled", |_| drop(torch::are_deterministic_algorithms_enabled())),
    ("torch.is_deterministic_algorithms_warn_only_enabled", |_| {
        let _ = torch::is_deterministic_algorithms_warn_only_enabled();
    }),
    ("torch.get_deterministic_debug_mode", |_| drop(torch::get_deterministic_debug_mode())),
    ("torch.utils.deterministic.fill_uninitialized_memory", |_| {
        let _ = torch::utils::deterministic::fill_uninitialized_memory();
    }),
    ("torch.get_float32_matmul_precision", |_| drop(torch::get_float32_matmul_precision())),
    ("flash_sdp_enabled", |_| drop(backend::flash_sdp_enabled())),
    ("math_sdp_enabled", |_| drop(backend::math_sdp_enabled())),
    ("mem_efficient_sdp_enabled", |_| drop(backend::mem_efficient_sdp_enabled())),
    ("cudnn_sdp_enabled", |_| drop(backend::cudnn_sdp_enabled())),
    ("fp16_bf16_reduction_math_sdp_allowed", |_| drop(backend::fp16_bf16_reduction_math_sdp_allowed())),
    ("preferred_blas_library", |_| drop(backend::preferred_blas_library())),
    ("preferred_linalg_library", |_| drop(backend::preferred_linalg_library())),
    ("matmul.allow_tf32", |_| drop(backend::matmul::allow_tf32())),
    ("matmul.fp32_precision", |_| drop(backend::matmul::fp32_precision())),
    ("matmul.allow_fp16_accumulation", |_| drop(backend::matmul::allow_fp16_accumulation())),
    ("matmul.allow_fp16_reduced_precision_reduction", |_| {
        let _ = backend::matmul::allow_fp16_reduced_precision_reduction();
    }),
    ("matmul.allow_bf16_reduced_precision_reduction", |_| {
        let _ = backend::matmul::allow_bf16_reduced_precision_reduction();
    }),
    ("Event", |_| drop(Event::new(EventOptions::default()))),
    ("Event.device", |_| drop(Event::new(EventOptions::default()).device())),
    ("Event.event_id", |_| drop(Event::new(EventOptions::default()).event_id())),
    ("Stream", |_| drop(Stream::new(None, 0))),
    ("Stream.priority_range", |_| drop(Stream::priority_range())),
    ("Stream.device", |_| drop(cuda_api::current_stream(None).unwrap().device())),
    ("Stream.stream_id", |_| drop(cuda_api::current_stream(None).unwrap().stream_id())),
    ("Stream.device_index", |_| drop(cuda_api::current_stream(None).unwrap().device_index())),
    ("Stream.priority", |_| drop(cuda_api::current_stream(None).unwrap().priority())),
    ("Stream.cuda_stream", |_| drop(cuda_api::current_stream(None).unwrap().cuda_stream())),
    ("ExternalStream.priority_range", |_| drop(ExternalStream::priority_range())),
    ("mark", |_| nvtx::mark("here")),
    ("range", |_| drop(nvtx::range("here"))),
    ("range_push", |_| drop(nvtx::range_push("here"))),
    ("range_pop", |_| drop(nvtx::range_pop())),
    ("range_start", |_| drop(nvtx::range_start("here"))),
    ("range_end", |_| nvtx::range_end(nvtx::range_start("here"))),
    ("nvtx.mark", |_| nvtx::mark("here")),
    ("nvtx.range", |_| drop(nvtx::range("here"))),
    ("nvtx.range_push", |_| {
        nvtx::range_push("here");
        nvtx::range_pop();
    }),
    ("nvtx.range_pop", |_| drop(nvtx::range_pop())),
    ("nvtx.range_start", |_| nvtx::range_end(nvtx::range_start("here"))),
    ("nvtx.range_end", |_| nvtx::range_end(nvtx::range_start("here"))),
    ("_get_device_properties", |_| drop(cuda_api::get_device_properties(0))),
    ("_graph_pool_handle", |_| drop(cuda_api::graph_pool_handle())),
    ("_cuda_isCurrentStreamCapturing", |_| drop(cuda_api::is_current_stream_capturing())),
    ("is_flash_attention_available", |_| drop(backend::is_flash_attention_available())),
    ("cufft_plan_cache", |_| drop(backend::cufft_plan_cache(0))),
    ("MemPool.id", |_| drop(MemPool::new(MemPoolOptions::default()).unwrap().id())),
    ("MemPool.use_count", |_| drop(MemPool::new(MemPoolOptions::default()).unwrap().use_count())),
    ("MemPool", |_| drop(MemPool::new(MemPoolOptions::default()))),
    ("GradScaler", |_| drop(scaler())),
    ("GradScaler.get_growth_factor", |_| drop(scaler().get_growth_factor())),
    ("GradScaler.get_backoff_factor", |_| drop(scaler().get_backoff_factor())),
    ("GradScaler.get_growth_interval", |_| drop(scaler().get_growth_interval())),
    ("GradScaler.is_enabled", |_| drop(scaler().is_enabled())),
    ("GradScaler.set_growth_factor", |_| scaler().set_growth_factor(2.0)),
    ("GradScaler.set_backoff_factor", |_| scaler().set_backoff_factor(0.5)),
    ("GradScaler.set_growth_interval", |_| scaler().set_growth_interval(7)),
    // Nodes.
    ("GradScaler.scale", |x| drop(scaler().scale(x).unwrap())),
    ("stream", |x| drop(cuda_api::stream(cuda_api::default_stream(None).unwrap()).map(|_on| x.add(1)))),
    ("StreamContext", |x| drop(cuda_api::stream(cuda_api::default_stream(None).unwrap()).map(|_on| x.add(1)))),
    ("set_stream", |_| drop(cuda_api::set_stream(cuda_api::current_stream(None).unwrap()))),
    ("_set_stream_by_id", |_| {
        let now = cuda_api::current_stream(None).unwrap();
        cuda_api::set_stream_by_id(now.stream_id(), now.device_index(), cuda_api::DeviceType::Cuda).unwrap();
    }),
    ("device", |_| drop(cuda_api::device(0).unwrap())),
    ("_DeviceGuard", |_| drop(cuda_api::device(0).unwrap())),
    ("device_of", |_| drop(cuda_api::device_of(&cuda_api::current_stream(None).unwrap()).unwrap())),
    ("_exchange_device", |_| drop(cuda_api::exchange_device(0).unwrap())),
    ("_maybe_exchange_device", |_| drop(cuda_api::maybe_exchange_device(0).unwrap())),
    ("_sleep", |_| cuda_api::sleep(10).unwrap()),
    ("mm", |x| drop(torch::mm(&x.unsqueeze(0).unwrap(), &x.unsqueeze(1).unwrap()).unwrap())),
    ("bmm", |x| drop(torch::bmm(&x.view(&[1, 2, 2]).unwrap(), &x.view(&[1, 2, 2]).unwrap()).unwrap())),
    ("addmm", |x| drop(x.addmm(&x.view(&[4, 1]).unwrap(), &x.view(&[1, 4]).unwrap(), 1, 1).unwrap())),
    ("baddbmm", |x| {
        let cube = x.view(&[1, 2, 2]).unwrap();
        cube.baddbmm(&cube, &cube, 1, 1).unwrap();
    }),
    ("autocast", |x| drop(amp::autocast("cuda", torch::float16).map(|_region| x.add(1)))),
    ("torch.autocast", |x| drop(torch::autocast("cuda", torch::float16).map(|_region| x.add(1)))),
    ("custom_fwd", |x| drop(amp::custom_fwd("cuda", None, &[x], |given| given[0].add(1)).unwrap())),
    ("custom_bwd", |x| {
        let (made, context) = amp::custom_fwd("cuda", None, &[x], |given| given[0].add(1)).unwrap();
        drop(amp::custom_bwd(&context, || made.mul(2)).unwrap());
    }),
    ("sdp_kernel", |x| drop(backend::with_sdp_kernel(backend::SdpKernels::default(), || x.add(1)).unwrap())),
    ("use_mem_pool", |_| drop(cuda_api::use_mem_pool(&MemPool::new(MemPoolOptions::default()).unwrap(), None))),
    ("_cuda_beginAllocateToPool", |_| in_route(|pool| cuda_api::begin_allocate_to_pool(None, pool)).unwrap()),
    ("_cuda_endAllocateToPool", |_| in_route(|pool| cuda_api::begin_allocate_to_pool(None, pool)).unwrap()),
    ("_cuda_beginAllocateCurrentThreadToPool", |_| {
        in_route(|pool| cuda_api::begin_allocate_current_thread_to_pool(None, pool)).unwrap();
    }),
    ("_cuda_beginAllocateCurrentStreamToPool", |_| {
        in_route(|pool| cuda_api::begin_allocate_current_stream_to_pool(None, pool)).unwrap();
    }),
    ("Event.record", |_| Event::new(EventOptions::default()).record(None).unwrap()),
    ("Event.wait", |_| Event::new(EventOptions::default()).wait(None).unwrap()),
    ("Stream.record_event", |_| drop(cuda_api::current_stream(None).unwrap().record_event().unwrap())),
    ("Stream.wait_event", |_| {
        let stream = cuda_api::current_stream(None).unwrap();
        stream.wait_event(&stream.record_event().unwrap()).unwrap();
    }),
    ("Stream.wait_stream", |_| {
        let stream = cuda_api::current_stream(None).unwrap();
        let side = stream.runtime().streams().by_id(0, StreamId(3)).unwrap();
        stream.wait_stream(&side).unwrap();
    }),
    // What ends a graph.
    ("set_device", |_| cuda_api::set_device(0).unwrap()),
    ("synchronize", |_| cuda_api::synchronize(None).unwrap()),
    ("Stream.synchronize", |_| cuda_api::current_stream(None).unwrap().synchronize().unwrap()),
    ("Stream.query", |_| drop(cuda_api::current_stream(None).unwrap().query().unwrap())),
    ("Event.query", |_| drop(Event::new(EventOptions::default()).query().unwrap())),
    ("Event.synchronize", |_| Event::new(EventOptions::default()).synchronize().unwrap()),
    ("Event.elapsed_time", |_| {
        let timed = EventOptions { enable_timing: true, ..EventOptions::default() };
        let [one, other] = [Event::new(timed), Event::new(timed)];
        [&one, &other].into_iter().for_each(|event| event.record(None).unwrap());
        drop(one.elapsed_time(&other));
    }),
    ("get_rng_state", |_| drop(cuda_api::get_rng_state(None).unwrap())),
    ("get_rng_state_all", |_| drop(cuda_api::get_rng_state_all().unwrap())),
    ("set_rng_state", |_| cuda_api::set_rng_state(&cuda_api::get_rng_state(None).unwrap(), None).unwrap()),
    ("set_rng_state_all", |_| cuda_api::set_rng_state_all(&cuda_api::get_rng_state_all().unwrap()).unwrap()),
    ("_get_rng_state_offset", |_| drop(cuda_api::random::get_rng_state_offset(None).unwrap())),
    ("_set_rng_state_offset", |_| cuda_api::random::set_rng_state_offset(8, None).unwrap()),
    ("manual_seed", |_| cuda_api::manual_seed(3).unwrap()),
    ("manual_seed_all", |_| cuda_api::manual_seed_all(3).unwrap()),
    ("seed", |_| cuda_api::seed().unwrap()),
    ("seed_all", |_| cuda_api::seed_all().unwrap()),
    ("initial_seed", |_| drop(cuda_api::initial_seed().unwrap())),
    ("memory_stats", |_| drop(cuda_api::memory_stats(None).unwrap())),
    ("memory_stats_as_nested_dict", |_| drop(cuda_api::memory_stats_as_nested_dict(None).unwrap())),
    ("memory_summary", |_| drop(cuda_api::memory_summary(None, false).unwrap())),
    ("memory_allocated", |_| drop(cuda_api::memory_allocated(None).unwrap())),
    ("max_memory_allocated", |_| drop(cuda_api::max_memory_allocated(None).unwrap())),
    ("memory_reserved", |_| drop(cuda_api::memory_reserved(None).unwrap())),
    ("max_memory_reserved", |_| drop(cuda_api::max_memory_reserved(None).unwrap())),
    ("memory_snapshot", |_| drop(cuda_api::memory_snapshot(None).unwrap())),
    ("_snapshot", |_| drop(cuda_api::snapshot(None).unwrap())),
    ("mem_get_info", |_| drop(cuda_api::mem_get_info(None).unwrap())),
    ("host_memory_stats", |_| drop(cuda_api::host_memory_stats())),
    ("host_memory_stats_as_nested_dict", |_| drop(cuda_api::host_memory_stats_as_nested_dict())),
    ("reset_peak_memory_stats", |_| cuda_api::reset_peak_memory_stats(None).unwrap()),
    ("reset_accumulated_memory_stats", |_| cuda_api::reset_accumulated_memory_stats(None).unwrap()),
    ("reset_peak_host_memory_stats", |_| cuda_api::reset_peak_host_memory_stats()),
    ("reset_accumulated_host_memory_stats", |_| cuda_api::reset_accumulated_host_memory_stats()),
    ("get_per_process_memory_fraction", |_| drop(cuda_api::get_per_process_memory_fraction(None).unwrap())),
    ("set_per_process_memory_fraction", |_| cuda_api::set_per_process_memory_fraction(1.0, None).unwrap()),
    ("empty_cache", |_| cuda_api::empty_cache().unwrap()),
    ("_set_allocator_settings", |_| cuda_api::set_allocator_settings("garbage_collection_threshold:0.9").unwrap()),
    ("caching_allocator_alloc", |_| {
        let address = cuda_api::caching_allocator_alloc(512, None, None).unwrap();
        cuda_api::caching_allocator_delete(address).unwrap();
    }),
    ("caching_allocator_delete", |_| {
        let address = cuda_api::caching_allocator_alloc(512, None, None).unwrap();
        cuda_api::caching_allocator_delete(address).unwrap();
    }),
    ("MemPool.snapshot", |_| drop(MemPool::new(MemPoolOptions::default()).unwrap().snapshot())),
    ("memory_cached", |_| drop(cuda_api::memory_cached(None))),
    ("max_memory_cached", |_| drop(cuda_api::max_memory_cached(None))),
    ("reset_max_memory_allocated", |_| drop(cuda_api::reset_max_memory_allocated(None))),
    ("reset_max_memory_cached", |_| drop(cuda_api::reset_max_memory_cached(None))),
    ("_segments", |_| drop(cuda_api::segments(&cuda_api::snapshot(None).unwrap()))),
    ("graph", |_| {
        let mut graph = cuda_api::CUDAGraph::new();
        drop(cuda_api::graph(&mut graph, cuda_api::GraphOptions::default()).map(drop));
    }),
    ("utilization", |_| drop(cuda_api::utilization(None))),
    ("temperature", |_| drop(cuda_api::temperature(None))),
    ("power_draw", |_| drop(cuda_api::power_draw(None))),
    ("clock_rate", |_| drop(cuda_api::clock_rate(None))),
    ("memory_usage", |_| drop(cuda_api::memory_usage(None))),
    ("device_memory_used", |_| drop(cuda_api::device_memory_used(None))),
    ("list_gpu_processes", |_| drop(cuda_api::list_gpu_processes(None))),
    ("GradScaler.get_scale", |x| drop(scaled(x).get_scale().unwrap())),
    ("GradScaler._get_growth_tracker", |x| drop(scaled(x).get_growth_tracker().unwrap())),
    ("GradScaler.state_dict", |x| drop(scaled(x).state_dict().unwrap())),
];

fn scaler() -> amp::GradScaler {
    amp::GradScaler::new("cuda", amp::GradScalerOptions::default()).unwrap()
}

/// A scaler that has its scale on the device.
fn scaled(x: &Tensor) -> amp::GradScaler {
    let mut scaler = scaler();
    scaler.scale(x).unwrap();
    scaler
}

#[test]
fn each_row_that_can_be_called_is_what_its_class_says() {
    let _simulated = testkit::simulated_runtime();
    let mut wrong = Vec::new();
    for &(name, call) in TRIED {
        let called = move |x: &Tensor| {
            call(x);
            Ok(())
        };
        let causes = std::panic::catch_unwind(|| breaks(called).unwrap());
        let class = foldability(name).unwrap();
        let is_its = |causes: &Vec<&str>| causes.is_empty() == (class != Foldability::EndsGraph);
        if !causes.as_ref().is_ok_and(is_its) {
            wrong.push(format!("{name} is {class:?} and gave {causes:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A setting: the rows that ask for it, the one that sets it, a way to set it, the way back, and what a program says that was
/// compiled for another value.
type Setting = (&'static [&'static str], &'static str, fn(), fn(), &'static str);

const SETTINGS: &[Setting] = &[
    (
        &["matmul.allow_tf32", "torch.get_float32_matmul_precision"],
        "torch.set_float32_matmul_precision",
        || torch::set_float32_matmul_precision("high").unwrap(),
        || torch::set_float32_matmul_precision("highest").unwrap(),
        "the precision of f32 products was IEEE 754 and is TF32",
    ),
    (
        &["matmul.fp32_precision"],
        "",
        || backend::matmul::set_fp32_precision("tf32").unwrap(),
        || backend::matmul::set_fp32_precision("ieee").unwrap(),
        "the precision of f32 products was IEEE 754 and is TF32",
    ),
    (
        &["matmul.allow_fp16_accumulation"],
        "",
        || backend::matmul::set_allow_fp16_accumulation(true),
        || backend::matmul::set_allow_fp16_accumulation(false),
        "the sum of f16 products was in 32 bits and is in 16 bits",
    ),
    (
        &["matmul.allow_fp16_reduced_precision_reduction"],
        "",
        || backend::matmul::set_allow_fp16_reduced_precision_reduction(false).unwrap(),
        || backend::matmul::set_allow_fp16_reduced_precision_reduction(true).unwrap(),
        "the sum of parts of f16 products was in 16 bits and is in 32 bits",
    ),
    (
        &["matmul.allow_bf16_reduced_precision_reduction"],
        "",
        || backend::matmul::set_allow_bf16_reduced_precision_reduction(false).unwrap(),
        || backend::matmul::set_allow_bf16_reduced_precision_reduction(true).unwrap(),
        "the sum of parts of bf16 products was in 16 bits and is in 32 bits",
    ),
    (
        &["preferred_blas_library"],
        "",
        || backend::set_preferred_blas_library("cublaslt").unwrap(),
        || backend::set_preferred_blas_library("cublas").unwrap(),
        "the library of products was Cublas and is Cublaslt",
    ),
    (
        &["flash_sdp_enabled"],
        "enable_flash_sdp",
        || backend::enable_flash_sdp(false),
        || backend::enable_flash_sdp(true),
        "the fused kernel of attention was on and is off",
    ),
    (
        &["math_sdp_enabled"],
        "enable_math_sdp",
        || backend::enable_math_sdp(false),
        || backend::enable_math_sdp(true),
        "attention made of operations was on and is off",
    ),
    (
        &["mem_efficient_sdp_enabled"],
        "enable_mem_efficient_sdp",
        || backend::enable_mem_efficient_sdp(false),
        || backend::enable_mem_efficient_sdp(true),
        "the memory-efficient kernel of attention was on and is off",
    ),
    (
        &["cudnn_sdp_enabled"],
        "enable_cudnn_sdp",
        || backend::enable_cudnn_sdp(false),
        || backend::enable_cudnn_sdp(true),
        "cuDNN's kernel of attention was on and is off",
    ),
    (
        &["fp16_bf16_reduction_math_sdp_allowed"],
        "allow_fp16_bf16_reduction_math_sdp",
        || backend::allow_fp16_bf16_reduction_math_sdp(true),
        || backend::allow_fp16_bf16_reduction_math_sdp(false),
        "attention in 16 bits was off and is on",
    ),
    (
        &["torch.are_deterministic_algorithms_enabled"],
        "torch.use_deterministic_algorithms",
        || torch::use_deterministic_algorithms(true, None),
        || torch::use_deterministic_algorithms(false, None),
        "the mode of deterministic algorithms was off and is on",
    ),
    (
        &["torch.is_deterministic_algorithms_warn_only_enabled", "torch.get_deterministic_debug_mode"],
        "torch.set_deterministic_debug_mode",
        || torch::set_deterministic_debug_mode("warn").unwrap(),
        || torch::set_deterministic_debug_mode("default").unwrap(),
        "the mode of deterministic algorithms was off and is warning",
    ),
    (
        &["torch.utils.deterministic.fill_uninitialized_memory"],
        "",
        || torch::utils::deterministic::set_fill_uninitialized_memory(false),
        || torch::utils::deterministic::set_fill_uninitialized_memory(true),
        "the mode of deterministic algorithms was off and is off, without filling new memory",
    ),
    (
        &["current_stream"],
        "",
        || cuda_api::set_stream_by_id(StreamId(3), 0, cuda_api::DeviceType::Cuda).unwrap(),
        || cuda_api::set_stream(cuda_api::default_stream(None).unwrap()).unwrap(),
        "the current stream was the default stream and is stream 0x",
    ),
    (
        &["current_device"],
        "set_device",
        || cuda_api::set_device(1).unwrap(),
        || cuda_api::set_device(0).unwrap(),
        "the current device was 0 and is 1",
    ),
    // What regions of autocast set is guarded, too; asking for it gives a constant.
    (
        &[],
        "torch.set_autocast_enabled",
        || torch::set_autocast_enabled("cuda", true).unwrap(),
        || torch::set_autocast_enabled("cuda", false).unwrap(),
        "autocast on CUDA devices was off and is to ",
    ),
    (
        &[],
        "torch.set_autocast_cpu_enabled",
        || torch::set_autocast_cpu_enabled(true).unwrap(),
        || torch::set_autocast_cpu_enabled(false).unwrap(),
        "autocast on the host was off and is to ",
    ),
    (
        &[],
        "torch.set_autocast_cache_enabled",
        || torch::set_autocast_cache_enabled(false),
        || torch::set_autocast_cache_enabled(true),
        "the cache of autocast was on and is off",
    ),
];

/// Settings of the process, which other tests would see: in a process of its own.
#[test]
fn settings_are_guarded_where_they_are_asked_for_and_end_graphs_that_change_them() {
    testkit::with_environment(
        "table::settings_are_guarded_where_they_are_asked_for_and_end_graphs_that_change_them",
        &[],
        || {
            let _simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
            for &setting in SETTINGS {
                is_guarded(setting);
                ends_the_graph(setting);
            }
            // A call has started the runtime, whatever it was before.
            let guarded: BTreeSet<&str> =
                of_class(Foldability::Guarded).filter(|name| *name != "is_initialized").collect();
            assert_eq!(SETTINGS.iter().flat_map(|setting| setting.0).copied().collect::<BTreeSet<_>>(), guarded);
        },
    );
}

fn of_class(wanted: Foldability) -> impl Iterator<Item = &'static str> {
    foldabilities().filter(move |(_, class)| *class == wanted).map(|(name, _)| name)
}

/// Another value is another program, which says why.
fn is_guarded((rows, _, set, reset, reason): Setting) {
    let x = torch::full(&[4], 3, torch::float32, "cuda:0").unwrap();
    reset();
    let compiled = torch::compile(|x: &[Tensor]| Ok(vec![x[0].add(1)?]));
    for _ in 0..3 {
        compiled.call(&[&x]).unwrap();
        set();
        compiled.call(&[&x]).unwrap();
        reset();
    }
    let report = compiled.report();
    let reasons: Vec<String> =
        report.programs.iter().flat_map(|program| &program.recompiled).map(ToString::to_string).collect();
    assert!(reasons.len() == 1 && reasons[0].starts_with(reason), "{rows:?}: {reasons:?}");
}

/// A function that leaves it changed is called each time.
fn ends_the_graph((_, row, set, reset, _): Setting) {
    if row.is_empty() {
        return;
    }
    let x = torch::full(&[4], 3, torch::float32, "cuda:0").unwrap();
    let compiled = torch::compile(move |x: &[Tensor]| {
        let made = x[0].add(1)?;
        set();
        Ok(vec![made])
    });
    compiled.call(&[&x]).unwrap();
    reset();
    let report = compiled.report();
    let causes: Vec<&str> = report.programs[0].breaks.iter().map(|found| found.cause).collect();
    assert_eq!(foldability(row), Some(Foldability::EndsGraph), "{row}");
    assert!(!causes.is_empty() && causes.iter().all(|cause| break_causes().contains(cause)), "{row}: {causes:?}");
}

/// Rows that no call stands for, or whose calls need more than a tensor, and where those are tried.
const NOT_CALLED: &[(&str, &str)] = &[
    ("types, constants and errors", TYPES),
    ("variables of the environment and keys of settings, which are read before anything is compiled", KEYS),
    ("members of graphs, of streams and of events that are made elsewhere: `c10-core`'s tests", HANDLES),
    ("files, whose calls are those of memory and of its state", FILES),
    ("several devices or ranks: the tests of `comm` and of `nccl`", DEVICES),
    ("kernels of the program's own, and what registers functions: nothing of a graph", OTHERS),
];

const TYPES: &str = "\
    AcceleratorError BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor CUDAGraph \
    CUDAPluggableAllocator CharStorage CharTensor ComplexDoubleStorage ComplexFloatStorage CudaError \
    DeferredCudaCallError DoubleStorage DoubleTensor ExternalStream FloatStorage FloatTensor GdsFile GreenContext \
    HalfStorage HalfTensor IntStorage IntTensor LongStorage LongTensor OutOfMemoryError SDPAParams SDPBackend SUM \
    ShortStorage ShortTensor Storage Tensor _CodeParser _CompatInterval _CompatSet _CudaDeviceProperties \
    cudaStatus gds.GdsFile";

const KEYS: &str = "\
    CUBLASLT_WORKSPACE_SIZE CUBLAS_WORKSPACE_CONFIG CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES DISABLE_ADDMM_CUDA_LT PYTORCH_ALLOC_CONF \
    PYTORCH_CUDA_ALLOC_CONF PYTORCH_KERNEL_CACHE_PATH PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NVML_BASED_CUDA_CHECK \
    PYTORCH_TUNABLEOP_* PYTORCH_USE_CUDA_DSA TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_BLAS_PREFER_CUBLASLT \
    TORCH_CUDA_SANITIZER TORCH_LINALG_PREFER_CUSOLVER TORCH_NCCL_* USE_PYTORCH_KERNEL_CACHE backend \
    expandable_segments garbage_collection_threshold graph_capture_record_stream_reuse large_segment_size_mb \
    learn_plans max_non_split_rounding_mb max_split_size_mb per_process_memory_fraction \
    pinned_num_register_threads pinned_reserve_segment_size_mb pinned_use_background_threads \
    pinned_use_cuda_host_register release_lock_on_cudamalloc roundup_power2_divisions";

const HANDLES: &str = "\
    Tensor.is_shared UntypedStorage._new_shared_cuda UntypedStorage._release_ipc_counter UntypedStorage._share_cuda_ \
    multiprocessing.reductions.rebuild_cuda_tensor multiprocessing.reductions.reduce_tensor \
    CUDAGraph.capture_begin CUDAGraph.capture_end CUDAGraph.debug_dump CUDAGraph.enable_debug_mode \
    CUDAGraph.instantiate CUDAGraph.pool CUDAGraph.raw_cuda_graph CUDAGraph.raw_cuda_graph_exec \
    CUDAGraph.register_generator_state CUDAGraph.replay CUDAGraph.reset Event.cuda_event Event.from_ipc_handle \
    Event.ipc_handle ExternalStream.cuda_stream ExternalStream.device ExternalStream.device_index \
    ExternalStream.device_type ExternalStream.native_handle ExternalStream.priority ExternalStream.query \
    ExternalStream.record_event ExternalStream.stream_id ExternalStream.synchronize ExternalStream.wait_event \
    ExternalStream.wait_stream GreenContext.Stream GreenContext.create GreenContext.pop_context \
    GreenContext.set_context Stream.device_type Stream.native_handle _construct_storage_from_data_pointer \
    _cuda_getCheckpointState _cuda_releasePool _cuda_setCheckpointPoolState clone_state get_stream_from_external \
    graphsafe_get_state graphsafe_set_state make_graphed_callables";

const FILES: &str = "\
    GdsFile.deregister_handle GdsFile.load_storage GdsFile.register_handle GdsFile.save_storage _dump_snapshot \
    _save_memory_usage _save_segment_usage gds.gds_deregister_buffer gds.gds_register_buffer gds_deregister_buffer \
    gds_register_buffer mgpu_tune_gemm_in_file read_file set_filename tune_gemm_in_file write_file";

const DEVICES: &str = "\
    all_gather all_reduce broadcast broadcast_coalesced gather init_rank reduce reduce_add reduce_add_coalesced \
    reduce_scatter scatter unique_id version";

const OTHERS: &str = "\
    GradScaler.update \
    GradScaler.load_state_dict GradScaler.step GradScaler.unscale_ _JittedFunction _check_capability _check_cubins \
    _compile_kernel _create_jit_fn _create_multi_output_jit_fn _cuda_attach_out_of_memory_observer \
    _cuda_clearCublasWorkspaces _device_range_end _device_range_start _extract_arch_version _record_memory_history \
    _record_memory_history_impl _record_memory_history_legacy _sanitizer.enable_cuda_sanitizer \
    _transform_uuid_to_ordinals _warn_unsupported_code caching_allocator_enable \
    can_use_cudnn_attention can_use_efficient_attention can_use_flash_attention change_current_allocator \
    check_error current_blas_handle enable jiterator._create_jit_fn jiterator._create_multi_output_jit_fn \
    record_untuned_enable \
    register_callback_for_device_synchronization register_callback_for_event_creation \
    register_callback_for_event_deletion register_callback_for_event_record \
    register_callback_for_event_synchronization register_callback_for_event_wait \
    register_callback_for_memory_allocation register_callback_for_memory_deallocation \
    register_callback_for_stream_creation register_callback_for_stream_synchronization set_max_tuning_duration \
    set_max_tuning_iterations set_numerical_check_tolerances set_rotating_buffer_size \
    torch._amp_foreach_non_finite_check_and_unscale_ torch._amp_update_scale_ torch.autocast_decrement_nesting \
    torch.autocast_increment_nesting torch.set_autocast_cpu_dtype torch.set_autocast_dtype \
    torch.set_autocast_gpu_dtype tuning_enable";

#[test]
fn each_row_is_tried_or_is_named_with_the_reason() {
    let page = page("coverage.md");
    let elsewhere = |line: &str| Some(line.strip_prefix("| `")?.split_once("` | not applicable")?.0.to_owned());
    let mut known: BTreeSet<String> = page.lines().filter_map(elsewhere).collect();
    known.extend(SETTINGS.iter().map(|setting| setting.1.to_owned()).filter(|row| !row.is_empty()));
    known.extend(TRIED.iter().map(|(name, _)| (*name).to_owned()));
    for (why, names) in NOT_CALLED {
        for name in names.split_ascii_whitespace() {
            assert!(known.insert(name.to_owned()), "{name} is in two places, one of them: {why}");
        }
    }
    let rows: BTreeSet<String> = foldabilities().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(known.difference(&rows).collect::<Vec<_>>(), [""; 0], "no rows");
    assert_eq!(rows.difference(&known).collect::<Vec<_>>(), [""; 0], "rows that are not tried");
}
