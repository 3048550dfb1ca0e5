//! The names of `torch.amp` and those of `torch` about autocast.

use cuda_api::amp::{self, AmpError, Autocast, GradScaler, GradScalerOptions, Policy};
use cuda_api::torch::{self, Result};

#[test]
fn regions_by_their_names() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    assert!(amp::is_autocast_available("cuda") && !amp::is_autocast_available("mps"));
    assert!(!amp::amp_definitely_not_available());
    let a = torch::ones(&[2, 2], torch::float32, "cuda")?.as_parameter();
    let product = amp::with_autocast("cuda", torch::bfloat16, || torch::mm(&a, &a))??;
    assert_eq!(product.dtype(), torch::bfloat16);
    let _region = torch::autocast("cuda", ())?;
    assert_eq!(torch::matmul(&a, &a)?.dtype(), torch::float16);
    assert_eq!(torch::softmax(&product, 0, None)?.dtype(), torch::float32);
    assert_eq!(amp::cached_casts(), 1);
    let off = Autocast { enabled: false, ..Autocast::default() };
    assert_eq!(torch::with_autocast("cuda", off, || torch::mm(&a, &a))??.dtype(), torch::float32);
    let (made, context) =
        amp::custom_fwd("cuda", torch::float32, &[&product], |given| torch::mm(&given[0], &given[0]))?;
    assert_eq!(made.dtype(), torch::float32);
    assert_eq!(amp::custom_bwd(&context, || torch::mm(&made, &a))??.dtype(), torch::float32);
    assert_eq!(amp::policy(cuda_api::DeviceType::Cuda, "exp"), Some(Policy::Fp32));
    assert!(amp::operations(cuda_api::DeviceType::Cpu).any(|(name, _)| name == "index_copy"));
    Ok(())
}

#[test]
fn settings_by_their_names() -> Result<()> {
    assert!(torch::is_autocast_cache_enabled() && !torch::is_any_autocast_enabled());
    torch::set_autocast_cache_enabled(false);
    torch::set_autocast_enabled("cpu", true)?;
    torch::set_autocast_dtype("cpu", torch::float16)?;
    assert!(torch::is_autocast_enabled("cpu")? && !torch::is_autocast_enabled("cuda")?);
    assert_eq!((torch::get_autocast_dtype("cpu")?, torch::is_autocast_cache_enabled()), (torch::float16, false));
    assert_eq!((torch::autocast_increment_nesting(), torch::autocast_decrement_nesting()), (1, 0));
    torch::clear_autocast_cache();
    assert!(matches!(torch::is_autocast_enabled("hpu"), Err(torch::Error::Amp(AmpError::DeviceType { .. }))));
    Ok(())
}

#[test]
#[expect(deprecated, reason = "these are the names that torch keeps for old programs")]
fn old_names_mean_the_new_ones() -> Result<()> {
    assert_eq!((torch::get_autocast_gpu_dtype()?, torch::get_autocast_cpu_dtype()?), (torch::float16, torch::bfloat16));
    torch::set_autocast_gpu_dtype(torch::bfloat16)?;
    torch::set_autocast_cpu_dtype(torch::float16)?;
    torch::set_autocast_cpu_enabled(true)?;
    assert_eq!(
        (torch::get_autocast_dtype("cuda")?, torch::get_autocast_dtype("cpu")?),
        (torch::bfloat16, torch::float16)
    );
    assert!(torch::is_autocast_cpu_enabled()? && torch::is_autocast_enabled("cpu")?);
    Ok(())
}

#[test]
fn a_scaler_by_its_names() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let options = GradScalerOptions { init_scale: 16.0, growth_interval: 1, ..GradScalerOptions::default() };
    let mut scaler = GradScaler::new("cuda", options)?;
    let gradient = scaler.scale(&torch::ones(&[3], torch::float32, "cuda")?)?;
    let both = scaler.scale_all(&[&gradient, &gradient])?;
    assert_eq!(both.len(), 2);
    scaler.unscale_(1, &[&gradient])?;
    assert_eq!(scaler.step(1, &[&gradient], || gradient.to_vec::<f32>())?, Some(vec![1.0; 3]));
    scaler.update()?;
    assert_eq!((scaler.get_scale()?, scaler.get_growth_tracker()?), (32.0, 0));
    scaler.update_to(8)?;
    assert_eq!((scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()), (2.0, 0.5, 1));
    scaler.set_growth_factor(4.0);
    scaler.set_backoff_factor(0.25);
    scaler.set_growth_interval(3);
    let state = scaler.state_dict()?;
    let mut other = GradScaler::new("cuda", ())?;
    other.load_state_dict(state.as_ref())?;
    assert_eq!((other.state_dict()?, other.is_enabled()), (state, true));
    let (scale, tracker) = (torch::full(&[], 4, torch::float32, "cuda")?, torch::zeros(&[], torch::int32, "cuda")?);
    let found = torch::zeros(&[], torch::float32, "cuda")?;
    amp::amp_foreach_non_finite_check_and_unscale_(&[&gradient], &found, &scale)?;
    amp::amp_update_scale_(&scale, &tracker, &found, 2.0, 0.5, 1)?;
    assert_eq!((scale.item()?.to_f64(), gradient.to_vec::<f32>()?), (8.0, vec![4.0; 3]));
    Ok(())
}
