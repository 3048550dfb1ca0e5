//! `torch.amp` and `torch.cuda.amp`: autocast and scaled gradients.
#![expect(deprecated, reason = "torch's older names are shown, too")]

use cuda_api::amp::{self, GradScaler, GradScalerOptions};
use cuda_api::torch;

use super::{Example, ones, run};

#[test]
fn autocast() {
    run(AUTOCAST);
}

#[test]
fn scaled_gradients() {
    run(SCALER);
}

const AUTOCAST: &[Example] = &[
    ("torch.amp.autocast torch.cuda.amp.autocast torch.autocast", || {
        let x = ones(&[8, 8])?;
        let product = {
            let _region = torch::autocast("cuda", torch::float16)?;
            torch::mm(&x, &x)?
        };
        assert_eq!((product.dtype(), torch::mm(&x, &x)?.dtype()), (torch::float16, torch::float32));
        let closure = amp::with_autocast("cuda", torch::bfloat16, || torch::mm(&x, &x))??;
        assert_eq!(closure.dtype(), torch::bfloat16);
        let _region = amp::autocast("cuda", ())?;
        Ok(())
    }),
    ("torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd", || {
        let x = ones(&[2])?;
        let (result, context) = amp::custom_fwd("cuda", torch::float32, &[&x], |inputs| inputs[0].mul(2))?;
        let gradient = amp::custom_bwd(&context, || ones(&[2])?.mul(2))??;
        assert_eq!((result.to_vec::<f32>()?, gradient.to_vec::<f32>()?), (vec![2.0; 2], vec![2.0; 2]));
        Ok(())
    }),
    ("torch.amp.is_autocast_available torch.cuda.amp.amp_definitely_not_available", || {
        assert!(amp::is_autocast_available("cuda") && !amp::amp_definitely_not_available());
        Ok(())
    }),
    (
        "torch.is_autocast_enabled torch.set_autocast_enabled torch.get_autocast_dtype torch.set_autocast_dtype \
         torch.get_autocast_gpu_dtype torch.set_autocast_gpu_dtype torch.is_any_autocast_enabled",
        || {
            torch::set_autocast_enabled("cuda", true)?;
            assert!(torch::is_autocast_enabled("cuda")? && torch::is_any_autocast_enabled());
            torch::set_autocast_enabled("cuda", false)?;
            torch::set_autocast_dtype("cuda", torch::bfloat16)?;
            assert_eq!(
                (torch::get_autocast_dtype("cuda")?, torch::get_autocast_gpu_dtype()?),
                (torch::bfloat16, torch::bfloat16)
            );
            torch::set_autocast_gpu_dtype(torch::float16)
        },
    ),
    (
        "torch.is_autocast_cpu_enabled torch.set_autocast_cpu_enabled torch.get_autocast_cpu_dtype \
         torch.set_autocast_cpu_dtype",
        || {
            torch::set_autocast_cpu_enabled(true)?;
            assert!(torch::is_autocast_cpu_enabled()?);
            torch::set_autocast_cpu_enabled(false)?;
            let dtype = torch::get_autocast_cpu_dtype()?;
            torch::set_autocast_cpu_dtype(dtype)
        },
    ),
    (
        "torch.is_autocast_cache_enabled torch.set_autocast_cache_enabled torch.clear_autocast_cache \
         torch.autocast_increment_nesting torch.autocast_decrement_nesting",
        || {
            torch::set_autocast_cache_enabled(false);
            assert!(!torch::is_autocast_cache_enabled());
            torch::set_autocast_cache_enabled(true);
            assert_eq!(torch::autocast_increment_nesting(), 1);
            assert_eq!(torch::autocast_decrement_nesting(), 0);
            torch::clear_autocast_cache();
            Ok(())
        },
    ),
];

const SCALER: &[Example] = &[
    (
        "torch.amp.GradScaler torch.cuda.amp.GradScaler GradScaler.scale GradScaler.unscale_ GradScaler.step \
         GradScaler.update GradScaler.get_scale",
        || {
            let mut scaler = GradScaler::new("cuda", ())?;
            let weight = ones(&[2])?;
            let gradient = scaler.scale(&ones(&[2])?)?;
            scaler.unscale_((), &[&gradient])?;
            scaler.step((), &[&gradient], || weight.sub_(&gradient).map(drop))?;
            scaler.update()?;
            assert_eq!((weight.to_vec::<f32>()?, scaler.get_scale()?), (vec![0.0; 2], 65536.0));
            Ok(())
        },
    ),
    (
        "GradScaler.get_growth_factor GradScaler.set_growth_factor GradScaler.get_backoff_factor \
         GradScaler.set_backoff_factor GradScaler.get_growth_interval GradScaler.set_growth_interval \
         GradScaler.is_enabled",
        || {
            let mut scaler = GradScaler::new("cuda", GradScalerOptions { growth_interval: 10, ..Default::default() })?;
            scaler.set_growth_factor(4.0);
            scaler.set_backoff_factor(0.25);
            scaler.set_growth_interval(20);
            assert_eq!((scaler.get_growth_factor(), scaler.get_backoff_factor()), (4.0, 0.25));
            assert!(scaler.is_enabled() && scaler.get_growth_interval() == 20);
            Ok(())
        },
    ),
    ("GradScaler.state_dict GradScaler.load_state_dict GradScaler._get_growth_tracker", || {
        let mut scaler = GradScaler::new("cuda", ())?;
        scaler.scale(&ones(&[1])?)?;
        let state = scaler.state_dict()?;
        scaler.load_state_dict(state.as_ref())?;
        assert_eq!(scaler.get_growth_tracker()?, 0);
        Ok(())
    }),
    ("torch._amp_foreach_non_finite_check_and_unscale_ torch._amp_update_scale_", || {
        let (gradient, found) = (ones(&[2])?, torch::zeros(&[1], torch::float32, "cuda")?);
        amp::amp_foreach_non_finite_check_and_unscale_(&[&gradient], &found, &ones(&[1])?.mul(0.5)?)?;
        let tracker = torch::zeros(&[1], torch::int32, "cuda")?;
        amp::amp_update_scale_(&ones(&[1])?, &tracker, &found, 2.0, 0.5, 2000)?;
        assert_eq!((gradient.to_vec::<f32>()?, found.to_vec::<f32>()?), (vec![0.5; 2], vec![0.0]));
        Ok(())
    }),
];
