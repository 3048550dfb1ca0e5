//! What each name of `torch.cuda` is in a traced function, and what ends a graph.
//!
//! **Invariants:** each row of `docs/coverage.md` has one class, and there is no class without a row. Each cause that is
//! listed is one that the code gives, and the other way round. Tests compare both.

/// What a name of `torch.cuda` is in a compiled function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Foldability {
    /// It is done when the function is traced. What it answers is a constant of the program; what it changes on the host is
    /// changed by traces alone.
    Folded,
    /// The same, and the program is for calls with this answer alone.
    Guarded,
    /// It is part of the graph: each call does it, in its order.
    Node,
    /// What was written down before it runs first, and the function is called each time. A setting ends the graph where
    /// the function leaves it changed.
    EndsGraph,
}

/// The class of a name as `docs/coverage.md` writes it, without quotes; `None` for names that have no row there.
///
/// ```
/// use aten_cuda::compile::{Foldability, foldability};
///
/// assert_eq!(foldability("is_available"), Some(Foldability::Folded));
/// assert_eq!(foldability("current_device"), Some(Foldability::Guarded));
/// assert_eq!(foldability("Stream.wait_stream"), Some(Foldability::Node));
/// assert_eq!(foldability("get_rng_state"), Some(Foldability::EndsGraph));
/// assert_eq!(foldability("no_such_name"), None);
/// ```
#[must_use]
pub fn foldability(name: &str) -> Option<Foldability> {
    foldabilities().find(|(known, _)| *known == name).map(|(_, class)| class)
}

/// All names with their classes.
///
/// ```
/// use aten_cuda::compile::{Foldability, foldabilities};
///
/// let nodes: Vec<&str> = foldabilities().filter(|(_, class)| *class == Foldability::Node).map(|(name, _)| name).collect();
/// assert!(nodes.contains(&"set_stream") && !nodes.contains(&"set_device"));
/// ```
pub fn foldabilities() -> impl Iterator<Item = (&'static str, Foldability)> {
    let classes = [
        (FOLDED, Foldability::Folded),
        (GUARDED, Foldability::Guarded),
        (NODES, Foldability::Node),
        (ENDING, Foldability::EndsGraph),
    ];
    classes.into_iter().flat_map(|(names, class)| names.split_ascii_whitespace().map(move |name| (name, class)))
}

/// What can end a graph: the texts of [`GraphBreak::cause`](super::GraphBreak::cause).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::compile::{break_causes, compile};
/// use aten_cuda::{DType, Tensor};
///
/// let f = compile(|x: &[Tensor]| Ok(vec![x[0].mul(x[0].add(1)?.max()?.item()?)?]));
/// f.call(&[&Tensor::ones(&[4], DType::F32, "cuda")?])?;
/// let cause = f.report().programs[0].breaks[0].cause;
/// assert!(cause == "values are read" && break_causes().contains(&cause));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[must_use]
pub fn break_causes() -> &'static [&'static str] {
    CAUSES
}

/// The cause of a break where a function ends with other settings than it began with: the next calls need that, too.
pub(super) const SETTING_CHANGED: &str =
    "the function leaves a setting changed, such as the current stream or autocast";

const CAUSES: &[&str] = &[
    "values are read",
    "pinned memory is read",
    "memory is copied",
    "memory is filled",
    "memory is used by an operation that traces do not write down",
    "the state of a generator is used",
    "the current device is set",
    SETTING_CHANGED,
    "the state of memory is asked for",
    "the state of memory is changed",
    "memory comes from another pool",
    "memory of several devices is made",
    "a device is asked for a reading",
    "a device is waited for",
    "a stream is waited for",
    "a stream is asked whether it is done",
    "an event is waited for",
    "an event is asked whether it is done",
    "a capture begins",
    "a CUDA graph is launched",
    "a kernel is launched",
    "a library queues work",
    "a function of the host is queued",
];

const FOLDED: &str = "\
    Tensor.is_shared UntypedStorage._new_shared_cuda UntypedStorage._release_ipc_counter \
    multiprocessing.reductions.rebuild_cuda_tensor AcceleratorError Any BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor \
    CUBLASLT_WORKSPACE_SIZE CUBLAS_WORKSPACE_CONFIG CUDAGraph CUDAGraph._pybind11_conduit_v1_ CUDAGraph.debug_dump \
    CUDAGraph.enable_debug_mode CUDAGraph.instantiate CUDAGraph.pool CUDAGraph.raw_cuda_graph \
    CUDAGraph.raw_cuda_graph_exec CUDAGraph.register_generator_state CUDAGraph.reset CUDAPluggableAllocator \
    CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES Callable CharStorage CharTensor \
    ComplexDoubleStorage ComplexFloatStorage \
    CudaError DISABLE_ADDMM_CUDA_LT DeferredCudaCallError DoubleStorage DoubleTensor Event Event._as_parameter_ \
    Event.cuda_event Event.device Event.event_id Event.from_ipc_handle ExternalStream ExternalStream._as_parameter_ \
    ExternalStream.cuda_stream ExternalStream.device ExternalStream.device_index ExternalStream.device_type \
    ExternalStream.native_handle ExternalStream.priority ExternalStream.priority_range ExternalStream.stream_id \
    FloatStorage FloatTensor GdsFile GdsFile.deregister_handle GdsFile.register_handle GradScaler \
    GradScaler.get_backoff_factor GradScaler.get_growth_factor GradScaler.get_growth_interval GradScaler.is_enabled \
    GradScaler.load_state_dict GradScaler.set_backoff_factor GradScaler.set_growth_factor GradScaler.set_growth_interval \
    GreenContext GreenContext.Stream GreenContext.create GreenContext.pop_context GreenContext.set_context HalfStorage \
    HalfTensor IntStorage IntTensor Literal LongStorage LongTensor MemPool MemPool._pybind11_conduit_v1_ MemPool.id \
    MemPool.use_count NVIDIA_TF32_OVERRIDE NewType Optional OutOfMemoryError PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF \
    PYTORCH_KERNEL_CACHE_PATH PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NVML_BASED_CUDA_CHECK PYTORCH_TUNABLEOP_* \
    PYTORCH_USE_CUDA_DSA ParamSpec SDPAParams SDPBackend SUM Self ShortStorage ShortTensor Storage Stream \
    Stream._as_parameter_ Stream.cuda_stream Stream.device Stream.device_index Stream.device_type Stream.native_handle \
    Stream.priority Stream.priority_range Stream.stream_id TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_BLAS_PREFER_CUBLASLT \
    TORCH_CUBLASLT_UNIFIED_WORKSPACE TORCH_CUDA_SANITIZER TORCH_LINALG_PREFER_CUSOLVER TORCH_NCCL_* Tensor TypeAlias \
    TypeVar USE_PYTORCH_KERNEL_CACHE Union _CUDAAllocator _CUDAGraph _CodeParser _CompatInterval _CompatSet _CudaBase \
    _CudaDeviceProperties _LazySeedTracker _MemPool _ModuleOrCallable _POOL_HANDLE _WrappedTritonKernel \
    _augment_memory_snapshot_stack_traces _check_bf16_tensor_supported _check_capability _check_cubins \
    _check_tuning_assertions _code_compatible_with_device _compile_kernel _construct_storage_from_data_pointer \
    _create_batch_matrices _create_jit_fn _create_matrices _create_multi_output_jit_fn _cuda_CUDAAllocator \
    _cuda_attach_out_of_memory_observer _cuda_clearCublasWorkspaces _cuda_getCheckpointState \
    _cuda_isCurrentStreamCapturing _cuda_releasePool _cuda_setCheckpointPoolState _device_count_amdsmi _device_count_nvml \
    _device_range_end _device_range_start _dummy_fn _dummy_type _extract_arch_version _free_mutex \
    _gather_tunableop_results _gather_unique_untuned_gemm_from_files _get_amdsmi_device_index _get_amdsmi_handler \
    _get_current_allocator _get_device _get_device_index _get_device_properties _get_generator _get_memory_metadata \
    _get_nvml_device_index _get_pynvml_handler _graph_pool_handle _host_allocator _is_compiled _is_in_bad_fork _lazy_call \
    _lazy_init _lazy_new _memory _nvml_based_avail _parse_visible_devices _process_single_offline_gemm \
    _raw_device_count_amdsmi _raw_device_count_nvml _raw_device_uuid_amdsmi _raw_device_uuid_nvml _record_memory_history \
    _record_memory_history_impl _record_memory_history_legacy _register_triton_kernels _sanitizer.enable_cuda_sanitizer \
    _set_memory_metadata _transform_uuid_to_ordinals _warn_typed_storage_removal _warn_unsupported_code \
    amp_definitely_not_available backend can_device_access_peer can_use_cudnn_attention can_use_efficient_attention \
    can_use_flash_attention cast change_current_allocator check_error classproperty contextmanager cuBLASModule \
    cuFFTPlanCache cuFFTPlanCacheAttrContextProp cuFFTPlanCacheManager cudaStatus cudart cufft_plan_cache \
    current_blas_handle default_generators default_stream deprecated device_count enable expandable_segments \
    garbage_collection_threshold gds.GdsFile get_allocator_backend get_arch_list get_device_capability get_device_name \
    get_device_properties get_filename get_gencode_flags get_max_tuning_duration get_max_tuning_iterations get_results \
    get_rotating_buffer_size get_stream_from_external get_sync_debug_mode get_validators graph_capture_record_stream_reuse \
    graph_pool_handle init ipc_collect is_autocast_available is_available is_bf16_supported is_built \
    is_current_stream_capturing is_enabled is_flash_attention_available is_tf32_supported jiterator._create_jit_fn \
    jiterator._create_multi_output_jit_fn large_segment_size_mb learn_plans lru_cache mark max_non_split_rounding_mb \
    max_split_size_mb nvtx.mark nvtx.range nvtx.range_end nvtx.range_pop nvtx.range_push nvtx.range_start overload \
    per_process_memory_fraction pinned_max_round_threshold_mb pinned_num_register_threads pinned_reserve_segment_size_mb \
    pinned_use_background_threads pinned_use_cuda_host_register preferred_linalg_library preferred_rocm_fa_library range \
    range_end range_pop range_push range_start read_file record_untuned_enable record_untuned_is_enabled \
    register_callback_for_device_synchronization register_callback_for_event_creation register_callback_for_event_deletion \
    register_callback_for_event_record register_callback_for_event_synchronization register_callback_for_event_wait \
    register_callback_for_memory_allocation register_callback_for_memory_deallocation \
    register_callback_for_stream_creation register_callback_for_stream_synchronization release_lock_on_cudamalloc \
    roundup_power2_divisions set_filename set_max_tuning_duration set_max_tuning_iterations set_numerical_check_tolerances \
    set_rotating_buffer_size set_sync_debug_mode signature throw_on_cudamalloc_oom torch.clear_autocast_cache \
    torch.get_autocast_cpu_dtype torch.get_autocast_dtype torch.get_autocast_gpu_dtype torch.is_any_autocast_enabled \
    torch.is_autocast_cache_enabled torch.is_autocast_cpu_enabled torch.is_autocast_enabled tuning_enable \
    tuning_is_enabled unique_id version write_file write_file_on_exit";

const GUARDED: &str = "\
    cudnn_sdp_enabled current_device current_stream flash_sdp_enabled fp16_bf16_reduction_math_sdp_allowed is_initialized \
    math_sdp_enabled matmul.allow_bf16_reduced_precision_reduction matmul.allow_fp16_accumulation \
    matmul.allow_fp16_reduced_precision_reduction matmul.allow_tf32 matmul.fp32_precision mem_efficient_sdp_enabled \
    preferred_blas_library torch.are_deterministic_algorithms_enabled torch.get_deterministic_debug_mode \
    torch.get_float32_matmul_precision torch.is_deterministic_algorithms_warn_only_enabled \
    torch.utils.deterministic.fill_uninitialized_memory";

const NODES: &str = "\
    Event.record Event.wait ExternalStream.record_event ExternalStream.wait_event ExternalStream.wait_stream \
    GradScaler.scale Stream.record_event Stream.wait_event Stream.wait_stream StreamContext _DeviceGuard \
    _cuda_beginAllocateCurrentStreamToPool _cuda_beginAllocateCurrentThreadToPool _cuda_beginAllocateToPool \
    _cuda_endAllocateToPool _enter_autocast \
    _exchange_device _exit_autocast _maybe_exchange_device _set_stream_by_id _sleep addmm autocast baddbmm bmm custom_bwd \
    custom_fwd device device_of mm sdp_kernel set_stream stream torch.autocast use_mem_pool";

const ENDING: &str = "\
    UntypedStorage._share_cuda_ multiprocessing.reductions.reduce_tensor \
    CUDAGraph.capture_begin CUDAGraph.capture_end CUDAGraph.replay Event.elapsed_time Event.ipc_handle Event.query \
    Event.synchronize ExternalStream.query ExternalStream.synchronize GdsFile.load_storage GdsFile.save_storage GradScaler._get_growth_tracker \
    GradScaler.get_scale GradScaler.state_dict GradScaler.step GradScaler.unscale_ GradScaler.update MemPool.snapshot \
    Stream.query Stream.synchronize _JittedFunction \
    _dump_snapshot _get_amdsmi_clock_rate _get_amdsmi_device_memory_used _get_amdsmi_memory_usage \
    _get_amdsmi_power_draw _get_amdsmi_temperature _get_amdsmi_utilization _get_rng_state_offset _save_memory_usage \
    _save_segment_usage _segments _set_allocator_settings _set_rng_state_offset _snapshot \
    all_gather all_reduce allow_fp16_bf16_reduction_math_sdp broadcast broadcast_coalesced caching_allocator_alloc caching_allocator_delete \
    caching_allocator_enable clock_rate clone_state device_memory_used empty_cache enable_cudnn_sdp enable_flash_sdp \
    enable_math_sdp enable_mem_efficient_sdp gather gds.gds_deregister_buffer gds.gds_register_buffer \
    gds_deregister_buffer gds_register_buffer get_per_process_memory_fraction get_rng_state get_rng_state_all graph \
    graphsafe_get_state graphsafe_set_state host_memory_stats host_memory_stats_as_nested_dict init_rank initial_seed \
    list_gpu_processes make_graphed_callables manual_seed manual_seed_all max_memory_allocated max_memory_cached \
    max_memory_reserved mem_get_info memory_allocated memory_cached memory_reserved memory_snapshot memory_stats \
    memory_stats_as_nested_dict memory_summary memory_usage mgpu_tune_gemm_in_file power_draw reduce \
    reduce_add reduce_add_coalesced reduce_scatter reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated \
    reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats scatter seed seed_all set_device \
    set_per_process_memory_fraction set_rng_state set_rng_state_all synchronize temperature \
    torch._amp_foreach_non_finite_check_and_unscale_ torch._amp_update_scale_ torch.autocast_decrement_nesting \
    torch.autocast_increment_nesting torch.set_autocast_cache_enabled torch.set_autocast_cpu_dtype \
    torch.set_autocast_cpu_enabled torch.set_autocast_dtype torch.set_autocast_enabled torch.set_autocast_gpu_dtype \
    torch.set_deterministic_debug_mode torch.set_float32_matmul_precision torch.use_deterministic_algorithms \
    tune_gemm_in_file utilization";
