//! `torch.cuda`: devices, their properties and readings, and random numbers.

use cuda_api::torch::{self, Tensor};
use cuda_api::{CompatInterval, CompatSet, CompatTable, CudaDeviceProperties, DeviceBuffer, VisibleDevices};

use super::{Example, ones, run};

#[test]
fn devices() {
    run(DEVICES);
}

#[test]
fn readings() {
    run(READINGS);
}

#[test]
fn code() {
    run(CODE);
}

#[test]
fn random_numbers() {
    run(RANDOM);
}

const DEVICES: &[Example] = &[
    ("torch.cuda.init torch.cuda._lazy_init torch.cuda.is_initialized", || {
        assert!(!cuda_api::is_initialized());
        cuda_api::init()?;
        cuda_api::lazy_init()?;
        assert!(cuda_api::is_initialized());
        Ok(())
    }),
    ("torch.cuda._lazy_call torch.cuda.DeferredCudaCallError", || {
        cuda_api::lazy_call(|runtime| runtime.set_device(9))?;
        let failed: Option<cuda_api::DeferredCudaCallError> = match cuda_api::init() {
            Err(cuda_api::Error::Start(cuda_api::StartError::DeferredCall(failed))) => Some(*failed),
            _ => None,
        };
        assert!(failed.is_some_and(|failed| failed.to_string().starts_with("CUDA call failed lazily")));
        Ok(())
    }),
    ("torch.cuda._is_in_bad_fork torch.cuda._is_compiled", || {
        assert!(cuda_api::is_compiled() && !cuda_api::is_in_bad_fork());
        Ok(())
    }),
    ("torch.cuda.is_available torch.cuda.device_count", || {
        let device = if cuda_api::is_available() { "cuda" } else { "cpu" };
        assert!(torch::zeros(&[2], torch::float32, device)?.is_cuda());
        assert_eq!(cuda_api::device_count(), 2);
        Ok(())
    }),
    ("torch.cuda.current_device torch.cuda.set_device", || {
        cuda_api::set_device(1)?;
        assert_eq!(cuda_api::current_device()?, 1);
        cuda_api::set_device("cuda:0")?;
        assert_eq!(ones(&[1])?.device(), cuda_api::Device::cuda(0));
        Ok(())
    }),
    ("torch.cuda.device", || {
        {
            let _device = cuda_api::device(1)?;
            assert_eq!(ones(&[1])?.device(), cuda_api::Device::cuda(1));
        }
        let there = cuda_api::with_device("cuda:1", || ones(&[1]))?;
        assert_eq!((there.device().index, cuda_api::current_device()?), (Some(1), 0));
        Ok(())
    }),
    ("torch.cuda.device_of", || {
        let tensor = torch::ones(&[2], torch::float32, "cuda:1")?;
        {
            let _device = cuda_api::device_of(&tensor)?;
            assert_eq!(cuda_api::current_device()?, 1);
        }
        let _device = cuda_api::device_of(tensor.storage())?;
        assert_eq!(cuda_api::current_device()?, 1);
        Ok(())
    }),
    ("torch.cuda._exchange_device torch.cuda._maybe_exchange_device", || {
        let before = cuda_api::exchange_device(1)?;
        assert_eq!(cuda_api::maybe_exchange_device(before)?, 1);
        Ok(())
    }),
    ("torch.cuda.synchronize", || {
        cuda_api::synchronize(None)?;
        cuda_api::synchronize("cuda:1")?;
        Ok(())
    }),
    ("torch.cuda.get_device_name torch.cuda.get_device_capability", || {
        assert!(!cuda_api::get_device_name(None)?.is_empty());
        let (major, _minor) = cuda_api::get_device_capability(0)?;
        assert!(major >= 7);
        Ok(())
    }),
    ("torch.cuda.get_device_properties torch.cuda._get_device_properties torch.cuda._CudaDeviceProperties", || {
        let properties: CudaDeviceProperties = cuda_api::get_device_properties("cuda:0")?;
        assert!(properties.total_memory > 0 && properties.multi_processor_count > 0);
        Ok(())
    }),
    ("torch.cuda._get_device torch.cuda._get_device_index", || {
        assert_eq!(cuda_api::get_device("cuda:1")?, cuda_api::Device::cuda(1));
        assert_eq!(cuda_api::get_device_index("cuda:1", false, false)?, 1);
        assert_eq!(cuda_api::get_device_index(None, true, false)?, cuda_api::current_device()?);
        Ok(())
    }),
    ("torch.cuda.can_device_access_peer", || {
        assert!(cuda_api::can_device_access_peer(0, 1)?);
        Ok(())
    }),
    ("torch.cuda.cudart torch.cuda.cudaStatus torch.cuda.check_error torch.cuda.CudaError", || {
        let answer = cuda_api::cudart()?.cudaProfilerStart();
        assert_eq!(answer, cuda_api::cudaStatus::SUCCESS);
        cuda_api::check_error(answer)?;
        let Err(cuda_api::Error::Cuda(error)) = cuda_api::check_error(2) else { panic!("2 is an error") };
        let error: cuda_api::CudaError = error;
        assert!(error.to_string().contains("out of memory"), "{error}");
        Ok(())
    }),
    ("torch.cuda.get_sync_debug_mode torch.cuda.set_sync_debug_mode", || {
        cuda_api::set_sync_debug_mode("error")?;
        assert_eq!(cuda_api::get_sync_debug_mode()?, cuda_api::SyncDebugMode::Error);
        cuda_api::set_sync_debug_mode(0)?;
        Ok(())
    }),
    ("torch.cuda.AcceleratorError torch.cuda.OutOfMemoryError", || {
        let Err(cuda_api::Error::Accelerator(error)) = cuda_api::set_device(99) else { panic!("no such device") };
        let error: cuda_api::AcceleratorError = error;
        assert_eq!(error.error_code(), 101);
        let full = DeviceBuffer::new(1 << 45, None).expect_err("no device is that large");
        let cuda_api::Error::OutOfMemory(full) = full else { panic!("{full}") };
        let full: Box<cuda_api::OutOfMemoryError> = full;
        assert!(full.to_string().starts_with("CUDA out of memory. Tried to allocate"), "{full}");
        Ok(())
    }),
    ("torch.cuda.ipc_collect", || Ok(cuda_api::ipc_collect()?)),
];

const READINGS: &[Example] = &[
    ("torch.cuda.utilization torch.cuda.memory_usage torch.cuda.temperature", || {
        assert!(cuda_api::utilization(None)? <= 100 && cuda_api::memory_usage(0)? <= 100);
        assert!(cuda_api::temperature("cuda:0")? > 0);
        Ok(())
    }),
    ("torch.cuda.power_draw torch.cuda.clock_rate torch.cuda.device_memory_used", || {
        assert!(cuda_api::power_draw(None)? > 0 && cuda_api::clock_rate(0)? > 0);
        cuda_api::device_memory_used(0)?;
        Ok(())
    }),
    ("torch.cuda.list_gpu_processes", || {
        assert!(cuda_api::list_gpu_processes(None)?.starts_with("GPU:0"));
        Ok(())
    }),
    ("torch.cuda._device_count_nvml torch.cuda._raw_device_count_nvml torch.cuda._nvml_based_avail", || {
        assert_eq!((cuda_api::device_count_nvml(), cuda_api::raw_device_count_nvml()?), (Some(2), 2));
        let _ = cuda_api::nvml_based_avail();
        Ok(())
    }),
    (
        "torch.cuda._raw_device_uuid_nvml torch.cuda._transform_uuid_to_ordinals torch.cuda._parse_visible_devices",
        || {
            let uuids = cuda_api::raw_device_uuid_nvml()?;
            assert_eq!(cuda_api::transform_uuid_to_ordinals(&[&uuids[1]], &uuids), [1]);
            assert_ne!(cuda_api::parse_visible_devices(), VisibleDevices::parse(Some("GPU-none")));
            Ok(())
        },
    ),
    ("torch.cuda._get_nvml_device_index", || {
        assert_eq!(cuda_api::get_nvml_device_index(1)?, 1);
        Ok(())
    }),
];

const CODE: &[Example] = &[
    ("torch.cuda.get_arch_list torch.cuda.get_gencode_flags torch.cuda._extract_arch_version", || {
        let architectures = cuda_api::get_arch_list();
        assert!(cuda_api::get_gencode_flags().starts_with("-gencode compute="));
        assert!(cuda_api::extract_arch_version(architectures[0])? >= 50);
        Ok(())
    }),
    ("torch.cuda.is_bf16_supported torch.cuda.is_tf32_supported torch.cuda._check_bf16_tensor_supported", || {
        assert!(cuda_api::is_bf16_supported(true)? && cuda_api::is_tf32_supported()?);
        assert!(cuda_api::check_bf16_tensor_supported("cuda:0"));
        Ok(())
    }),
    (
        "torch.cuda._check_capability torch.cuda._check_cubins torch.cuda._code_compatible_with_device \
         torch.cuda._warn_unsupported_code",
        || {
            let table = CompatTable::default();
            assert_eq!(cuda_api::check_capability(cuda_api::get_arch_list(), &table)?, []);
            assert_eq!(cuda_api::check_cubins(cuda_api::get_arch_list())?, []);
            assert!(cuda_api::code_compatible_with_device(89, 86));
            cuda_api::warn_unsupported_code(0, 90, &[80], &table)?;
            Ok(())
        },
    ),
    ("torch.cuda._CompatInterval torch.cuda._CompatSet", || {
        assert!(CompatInterval::new(80, [87]).contains(86) && !CompatInterval::new(80, [87]).contains(87));
        assert!(CompatSet::new([87]).contains(87));
        Ok(())
    }),
];

const RANDOM: &[Example] = &[
    ("torch.cuda.manual_seed torch.cuda.manual_seed_all torch.cuda.initial_seed", || {
        cuda_api::manual_seed(42)?;
        let first = torch::rand(&[3], torch::float32, "cuda")?.to_vec::<f32>()?;
        cuda_api::manual_seed_all(42)?;
        assert_eq!(torch::rand(&[3], torch::float32, "cuda")?.to_vec::<f32>()?, first);
        assert_eq!(cuda_api::initial_seed()?, 42);
        Ok(())
    }),
    ("torch.cuda.seed torch.cuda.seed_all", || {
        cuda_api::seed()?;
        cuda_api::seed_all()
    }),
    ("torch.cuda.get_rng_state torch.cuda.set_rng_state", || {
        let state: Tensor = cuda_api::get_rng_state("cuda")?;
        let first = torch::randn(&[3], torch::float32, "cuda")?.to_vec::<f32>()?;
        cuda_api::set_rng_state(&state, "cuda")?;
        assert_eq!(torch::randn(&[3], torch::float32, "cuda")?.to_vec::<f32>()?, first);
        Ok(())
    }),
    ("torch.cuda.get_rng_state_all torch.cuda.set_rng_state_all", || {
        let states = cuda_api::get_rng_state_all()?;
        assert_eq!(states.len(), cuda_api::device_count());
        cuda_api::set_rng_state_all(&states)
    }),
    (
        "torch.cuda._get_rng_state_offset torch.cuda._set_rng_state_offset _get_rng_state_offset \
         _set_rng_state_offset",
        || {
            cuda_api::set_rng_state_offset(8, None)?;
            assert_eq!(cuda_api::get_rng_state_offset("cuda")?, 8);
            Ok(())
        },
    ),
    ("torch.cuda._get_generator default_generators", || {
        cuda_api::get_generator("cuda:0")?.manual_seed(11)?;
        assert_eq!(cuda_api::default_generators()?[0].initial_seed()?, 11);
        Ok(())
    }),
];
