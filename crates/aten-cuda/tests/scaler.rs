//! The gradient scaler: its kernels, its turns, several devices, and a training that overflows and recovers.

use aten_cuda::{
    AmpError, DType, Error, GradScaler, GradScalerOptions, GradScalerState, Operand, Result, Tensor,
    amp_foreach_non_finite_check_and_unscale_, amp_update_scale_, autocast,
};
use c10_core::{CUDAGraph, CaptureMode, Stream};
use testkit::{Config, SimulatedRuntime};

fn single(value: f64, device: &str) -> Result<Tensor> {
    Tensor::full(&[], value, DType::F32, device)
}

/// The numbers from 0 on in a dtype.
fn ramp(count: i64, dtype: DType, device: &str) -> Result<Tensor> {
    Tensor::arange(0, count, 1, Some(DType::F32), "cpu")?.to_dtype(dtype)?.to(device)
}

/// What unscaling makes of a tensor, by operations.
fn product(tensor: &Tensor, by: f64) -> Result<Vec<u8>> {
    tensor.mul(by)?.to_bytes()
}

#[test]
fn gradients_of_every_dtype_and_layout_are_unscaled_and_checked() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in ["cuda", "cpu"] {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            // More than one piece, none, one element, with gaps, turned round, and more than there are of.
            let gradients = [
                ramp(20_000, dtype, device)?,
                ramp(0, dtype, device)?,
                ramp(1, dtype, device)?.reshape(&[])?,
                ramp(60, dtype, device)?.view(&[6, 10])?.slice(1, None, None, 2)?,
                ramp(12, dtype, device)?.view(&[3, 4])?.t()?,
                ramp(9, dtype, device)?.narrow(0, 3, 5)?,
            ];
            let all: Vec<&Tensor> = gradients.iter().collect();
            let wanted = gradients.iter().map(|one| product(one, 0.3_f32.into())).collect::<Result<Vec<_>>>()?;
            let found = single(0.0, device)?;
            amp_foreach_non_finite_check_and_unscale_(&all, &found, &single(0.3, device)?)?;
            for (gradient, wanted) in gradients.iter().zip(&wanted) {
                assert_eq!(&gradient.to_bytes()?, wanted, "{dtype} {:?} on {device}", gradient.sizes());
            }
            assert_eq!(found.item()?.to_f64(), 0.0, "{dtype} on {device}");
            amp_foreach_non_finite_check_and_unscale_(&all, &found, &single(1.0, device)?)?;
            assert_eq!(gradients[0].to_bytes()?, wanted[0], "a factor of one leaves them");
            for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                for at in [0, 3, 4] {
                    let found = single(0.0, device)?;
                    gradients[at].select(0, -1)?.fill_(bad)?;
                    amp_foreach_non_finite_check_and_unscale_(&all, &found, &single(1.0, device)?)?;
                    assert_eq!(found.item()?.to_f64(), 1.0, "{bad} in {at} of {dtype} on {device}");
                    gradients[at].select(0, -1)?.fill_(1)?;
                }
            }
        }
    }
    Ok(())
}

/// What lies between the elements of a gradient with gaps stays.
#[test]
fn gaps_stay() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let whole = Tensor::full(&[10], 4, DType::F32, "cuda")?;
    let gradient = whole.slice(0, None, None, 2)?;
    amp_foreach_non_finite_check_and_unscale_(&[&gradient], &single(0.0, "cuda")?, &single(0.5, "cuda")?)?;
    assert_eq!(whole.to_vec::<f32>()?, [2.0, 4.0, 2.0, 4.0, 2.0, 4.0, 2.0, 4.0, 2.0, 4.0]);
    Ok(())
}

fn launches(rig: &SimulatedRuntime) -> u64 {
    rig.machine()
        .calls()
        .into_iter()
        .filter(|(call, ..)| call.contains("cuLaunchKernel"))
        .map(|(_, _, count)| count)
        .sum()
}

#[test]
fn many_gradients_are_one_launch() -> Result<()> {
    let rig = testkit::simulated_runtime();
    for (count, kernels) in [(128, 1), (300, 3)] {
        let gradients = (0..count).map(|at| ramp(at % 7, DType::F32, "cuda")).collect::<Result<Vec<_>>>()?;
        let (all, found, factor): (Vec<&Tensor>, _, _) =
            (gradients.iter().collect(), single(0.0, "cuda")?, single(2.0, "cuda")?);
        gradients[5].select(0, 2)?.fill_(f64::INFINITY)?;
        let before = launches(&rig);
        amp_foreach_non_finite_check_and_unscale_(&all, &found, &factor)?;
        assert_eq!(launches(&rig) - before, kernels, "{count}");
        assert_eq!(found.item()?.to_f64(), 1.0);
        assert_eq!(gradients[6].to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(gradients.last().map(Tensor::numel), Some((count - 1) % 7));
    }
    Ok(())
}

#[test]
fn wrong_operands_are_refused() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let (gradient, zero, one) = (ramp(3, DType::F32, "cuda")?, single(0.0, "cuda")?, single(1.0, "cuda")?);
    let refused = |gradients: &[&Tensor], found: &Tensor, factor: &Tensor| {
        amp_foreach_non_finite_check_and_unscale_(gradients, found, factor).unwrap_err().to_string()
    };
    assert_eq!(refused(&[&gradient], &single(0.0, "cpu")?, &one), "found_inf must be a CUDA tensor.");
    assert_eq!(refused(&[&gradient], &zero, &ramp(2, DType::F32, "cuda")?), "inv_scale must be a 1-element tensor.");
    assert_eq!(refused(&[&gradient], &zero, &one.to_dtype(DType::F64)?), "inv_scale must be a float tensor.");
    let other = gradient.to_dtype(DType::F64)?;
    assert!(refused(&[&gradient, &other], &zero, &one).contains("same dtype"));
    assert!(refused(&[&gradient.cpu()?, &gradient], &zero.cpu()?, &one.cpu()?).contains("same device"));
    assert!(refused(&[&ramp(3, DType::I32, "cuda")?], &zero, &one).contains("not implemented for 'Int'"));
    assert!(amp_foreach_non_finite_check_and_unscale_(&[&gradient.select(0, 0)?.expand(&[4])?], &zero, &one).is_err());
    let tracker = Tensor::zeros(&[], DType::I32, "cuda")?;
    let refused = |scale: &Tensor, tracker: &Tensor, found: &Tensor| {
        amp_update_scale_(scale, tracker, found, 2.0, 0.5, 3).unwrap_err().to_string()
    };
    assert_eq!(refused(&one, &zero, &zero), "growth_tracker must be an int tensor.");
    assert_eq!(refused(&ramp(2, DType::F32, "cuda")?, &tracker, &zero), "current_scale must be a 1-element tensor.");
    assert_eq!(refused(&one, &tracker, &single(0.0, "cpu")?), "found_inf must be a CUDA tensor.");
    assert_eq!(refused(&one, &tracker.cpu()?, &zero), "growth_tracker must be on the device of current_scale.");
    assert_eq!(gradient.to_vec::<f32>()?, [0.0, 1.0, 2.0], "what is refused changes nothing");
    Ok(())
}

/// The scale after each of several steps, on a device and on the host, beside a plain loop.
#[test]
fn the_scale_moves_as_torch_moves_it() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let steps = [false, false, true, false, false, false, false, true, true, false, false, false];
    for device in ["cuda", "cpu"] {
        let (scale, tracker) = (single(1024.0, device)?, Tensor::zeros(&[], DType::I32, device)?);
        let (mut wanted, mut count) = (1024.0, 0);
        for is_bad in steps {
            let found = single(if is_bad { 2.0 } else { 0.0 }, device)?;
            amp_update_scale_(&scale, &tracker, &found, 4.0, 0.25, 3)?;
            count = if is_bad { 0 } else { count + 1 };
            wanted *= if is_bad { 0.25 } else { 1.0 };
            if count == 3 {
                (wanted, count) = (wanted * 4.0, 0);
            }
            assert_eq!((scale.item()?.to_f64(), tracker.item()?.to_i64()), (wanted, count), "{device}");
        }
        scale.fill_(f64::from(f32::MAX))?;
        amp_update_scale_(&scale, &tracker, &single(0.0, device)?, 2.0, 0.5, 1)?;
        assert_eq!(scale.item()?.to_f64(), f64::from(f32::MAX), "it does not become infinite");
    }
    Ok(())
}

fn options(init_scale: f64, growth_interval: i32) -> GradScalerOptions {
    GradScalerOptions { init_scale, growth_interval, ..GradScalerOptions::default() }
}

fn amp(error: Error) -> AmpError {
    let Error::Amp(error) = error else { panic!("another error: {error}") };
    error
}

#[test]
fn calls_out_of_turn_are_refused_in_torchs_words() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let mut scaler = GradScaler::new("cuda", options(8.0, 2000))?;
    let gradient = ramp(3, DType::F32, "cuda")?;
    let none = || -> Result<()> { Ok(()) };
    let fix = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration.";
    let text = |call: &str| format!("Attempted {call} but _scale is None.  {fix}");
    assert_eq!(amp(scaler.unscale_((), &[&gradient]).unwrap_err()).to_string(), text("unscale_"));
    assert_eq!(amp(scaler.step((), &[&gradient], none).unwrap_err()).to_string(), text("step"));
    assert_eq!(amp(scaler.update().unwrap_err()).to_string(), text("update"));
    assert_eq!((scaler.get_scale()?, scaler.get_growth_tracker()?), (8.0, 0));
    scaler.scale(&gradient)?;
    assert_eq!(amp(scaler.update().unwrap_err()), AmpError::NoChecksBeforeUpdate);
    assert_eq!(amp(scaler.step((), &[], none).unwrap_err()), AmpError::NoChecks);
    // As in torch that optimizer's gradients, none, count as unscaled until the next update.
    scaler.update_to(8.0)?;
    let half = gradient.to_dtype(DType::F16)?;
    assert_eq!(amp(scaler.unscale_((), &[&half]).unwrap_err()).to_string(), "Attempting to unscale FP16 gradients.");
    scaler.unscale_((), &[&gradient])?;
    assert_eq!(amp(scaler.unscale_((), &[&gradient]).unwrap_err()), AmpError::UnscaledTwice);
    assert_eq!(gradient.to_vec::<f32>()?, [0.0, 0.125, 0.25], "once");
    assert_eq!(scaler.step((), &[&gradient], none)?, Some(()));
    assert_eq!(amp(scaler.step((), &[&gradient], none).unwrap_err()), AmpError::SteppedTwice);
    assert_eq!(amp(scaler.unscale_((), &[&gradient]).unwrap_err()), AmpError::UnscaledAfterStep);
    scaler.unscale_(1, &[&gradient])?;
    scaler.update()?;
    assert_eq!((scaler.get_scale()?, scaler.get_growth_tracker()?), (8.0, 1));
    scaler.unscale_((), &[&gradient])?;
    for (growth, backoff) in [(1.0, 0.5), (f64::NAN, 0.5), (2.0, 1.0), (2.0, f64::NAN)] {
        let wrong =
            GradScalerOptions { growth_factor: growth, backoff_factor: backoff, ..GradScalerOptions::default() };
        assert!(matches!(
            amp(GradScaler::new("cuda", wrong).map(drop).unwrap_err()),
            AmpError::GrowthFactor { .. } | AmpError::BackoffFactor { .. }
        ));
    }
    Ok(())
}

/// An error of the step itself leaves the gradients unscaled, so that it can be tried again.
#[test]
fn a_step_that_fails_is_not_taken() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let mut scaler = GradScaler::new("cuda", options(2.0, 2000))?;
    let gradient = scaler.scale(&ramp(2, DType::F32, "cuda")?)?;
    let wrong = scaler.step((), &[&gradient], || gradient.mm(&gradient)).unwrap_err();
    assert!(!matches!(wrong, Error::Amp(_)), "{wrong}");
    assert_eq!(scaler.step((), &[&gradient], || gradient.to_vec::<f32>())?, Some(vec![0.0, 1.0]));
    Ok(())
}

#[test]
fn several_optimizers_and_new_scales() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let mut scaler = GradScaler::new("cuda", options(4.0, 1))?;
    let good = scaler.scale(&ramp(3, DType::F32, "cuda")?)?;
    let bad = scaler.scale(&Tensor::full(&[2], f64::NAN, DType::F32, "cuda")?)?;
    assert_eq!(scaler.step(1, &[&good], || Ok("taken"))?, Some("taken"));
    assert_eq!(scaler.step(2, &[&good, &bad], || Ok("taken"))?, None);
    scaler.update()?;
    assert_eq!((scaler.get_scale()?, scaler.get_growth_tracker()?), (2.0, 0), "one of them was left out");
    assert_eq!(scaler.step(1, &[&good], || Ok(()))?, Some(()));
    scaler.update()?;
    assert_eq!(scaler.get_scale()?, 4.0, "it grows after one step");
    scaler.update_to(16)?;
    assert_eq!(scaler.get_scale()?, 16.0);
    let new = single(32.0, "cuda")?;
    scaler.update_to(&new)?;
    new.fill_(1)?;
    assert_eq!(scaler.get_scale()?, 32.0, "it was copied");
    for wrong in [single(1.0, "cpu")?, ramp(2, DType::F32, "cuda")?] {
        assert_eq!(amp(scaler.update_to(Operand::Tensor(&wrong)).unwrap_err()), AmpError::NewScale);
    }
    scaler.set_growth_factor(3.0);
    scaler.set_backoff_factor(0.1);
    scaler.set_growth_interval(7);
    let wanted =
        GradScalerState { scale: 32.0, growth_factor: 3.0, backoff_factor: 0.1, growth_interval: 7, growth_tracker: 0 };
    assert_eq!(scaler.state_dict()?, Some(wanted));
    Ok(())
}

#[test]
fn states_are_saved_and_loaded() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let state = GradScalerState {
        scale: 128.0,
        growth_factor: 3.0,
        backoff_factor: 0.25,
        growth_interval: 9,
        growth_tracker: 8,
    };
    // Before and after the scale is on the device.
    for has_scaled in [false, true] {
        let mut scaler = GradScaler::new("cuda", ())?;
        assert_eq!(scaler.state_dict()?.map(|state| (state.scale, state.growth_interval)), Some((65536.0, 2000)));
        if has_scaled {
            scaler.scale(&ramp(1, DType::F32, "cuda")?)?;
        }
        scaler.load_state_dict(Some(&state))?;
        assert_eq!(scaler.state_dict()?, Some(state));
        let gradient = scaler.scale(&ramp(2, DType::F32, "cuda")?)?;
        assert_eq!(gradient.to_vec::<f32>()?, [0.0, 128.0]);
        scaler.step((), &[&gradient], || Ok(()))?;
        scaler.update()?;
        assert_eq!((scaler.get_scale()?, scaler.get_growth_tracker()?), (384.0, 0), "the ninth step");
        assert_eq!(amp(scaler.load_state_dict(None).unwrap_err()), AmpError::EmptyState);
    }
    Ok(())
}

#[test]
fn a_disabled_scaler_does_nothing() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let mut scaler =
        GradScaler::new("cuda", GradScalerOptions { enabled: false, growth_factor: 0.0, ..options(2.0, 1) })?;
    let gradient = Tensor::full(&[2], f64::INFINITY, DType::F16, "cuda")?;
    assert_eq!(scaler.scale(&gradient)?.data_ptr(), gradient.data_ptr());
    scaler.unscale_((), &[&gradient])?;
    assert_eq!(scaler.step((), &[&gradient], || Ok(1))?, Some(1));
    scaler.update()?;
    assert_eq!((scaler.is_enabled(), scaler.get_scale()?, scaler.state_dict()?), (false, 1.0, None));
    scaler.load_state_dict(None)?;
    let rig = SimulatedRuntime::new(Config::default().devices(0));
    assert!(!GradScaler::new("cuda", ())?.is_enabled(), "there are no devices");
    drop(rig);
    Ok(())
}

#[test]
fn gradients_may_be_on_several_devices() -> Result<()> {
    let _rig = SimulatedRuntime::new(Config::default().devices(2));
    for bad_on in [None, Some(0), Some(1)] {
        let mut scaler = GradScaler::new("cuda", options(4.0, 1))?;
        let outputs = [ramp(3, DType::F32, "cuda:0")?, ramp(4, DType::F64, "cuda:1")?, ramp(2, DType::BF16, "cuda:1")?];
        let gradients = scaler.scale_all(&outputs.iter().collect::<Vec<_>>())?;
        if let Some(at) = bad_on {
            gradients[at].select(0, 0)?.fill_(f64::NEG_INFINITY)?;
        }
        let stepped = scaler.step((), &gradients.iter().collect::<Vec<_>>(), || Ok(()))?;
        scaler.update()?;
        assert_eq!(
            (stepped.is_some(), scaler.get_scale()?),
            (bad_on.is_none(), if bad_on.is_none() { 8.0 } else { 2.0 })
        );
        assert_eq!(gradients[2].to_dtype(DType::F32)?.to_vec::<f32>()?, [0.0, 1.0]);
    }
    Ok(())
}

/// Unscaling and updating are captured: the scale moves on the device at each replay.
#[test]
fn unscaling_and_updating_are_captured() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let (scale, tracker) = (single(4.0, "cuda")?, Tensor::zeros(&[], DType::I32, "cuda")?);
    let (gradient, found) = (Tensor::full(&[5], 8, DType::F32, "cuda")?, single(0.0, "cuda")?);
    let factor = single(0.25, "cuda")?;
    let work = || -> Result<()> {
        found.zero_()?;
        amp_foreach_non_finite_check_and_unscale_(&[&gradient], &found, &factor)?;
        amp_update_scale_(&scale, &tracker, &found, 2.0, 0.5, 2)
    };
    work()?;
    rig.runtime().synchronize(0)?;
    let stream = Stream::new(None, 0)?;
    let mut graph = CUDAGraph::new();
    graph.capture(&stream, None, CaptureMode::Global, work)?;
    gradient.fill_(8)?;
    graph.replay()?;
    assert_eq!((gradient.to_vec::<f32>()?, scale.item()?.to_f64()), (vec![2.0; 5], 8.0));
    gradient.select(0, 3)?.fill_(f64::NAN)?;
    graph.replay()?;
    assert_eq!((scale.item()?.to_f64(), tracker.item()?.to_i64()), (4.0, 0));
    Ok(())
}

/// A line is fitted to points with products in `f16`. The first scale is so large that gradients overflow: steps are left out
/// until it is small enough, then the error falls; after enough good steps it grows and overflows again.
#[test]
fn a_training_overflows_and_recovers() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let points: Vec<f32> = (0..16).map(|at| at as f32 / 16.0).collect();
    let x = Tensor::from_slice(&points, &[16, 1])?.cuda(None)?;
    let wanted = x.mul(3)?.add(0.5)?;
    let weight = Tensor::zeros(&[1, 1], DType::F32, "cuda")?.as_parameter();
    let bias = Tensor::zeros(&[1], DType::F32, "cuda")?.as_parameter();
    let mut scaler = GradScaler::new("cuda", options(f64::from(1 << 22), 20))?;
    let (mut skipped, mut losses, mut scales) = (0, Vec::new(), Vec::new());
    for _ in 0..80 {
        // The loss is the mean of squares; its gradient flows back through the product in `f16`, scaled.
        let (distance, gradient) = autocast::with_autocast("cuda", DType::F16, || -> Result<_> {
            let made = x.linear(&weight, &bias)?;
            assert_eq!(made.dtype(), DType::F16);
            let distance = made.sub(&wanted)?;
            let gradient = scaler.scale(&distance.mul(2.0 / 16.0)?)?.to_dtype(DType::F16)?;
            Ok((distance, [gradient.t()?.mm(&x)?, gradient.sum(0, false, None)?]))
        })??;
        losses.push(distance.square()?.mean((), false, None)?.item()?.to_f64());
        let gradients = [gradient[0].to_dtype(DType::F32)?, gradient[1].to_dtype(DType::F32)?];
        let step = || {
            weight.sub_(&gradients[0].mul(0.5)?)?;
            bias.sub_(&gradients[1].mul(0.5)?).map(drop)
        };
        skipped += usize::from(scaler.step((), &[&gradients[0], &gradients[1]], step)?.is_none());
        scaler.update()?;
        scales.push(scaler.get_scale()?);
    }
    assert!(skipped > 4 && skipped < 40, "{skipped} steps were left out");
    assert!(
        scales.windows(2).any(|pair| pair[1] > pair[0]) && scales.windows(2).any(|pair| pair[1] < pair[0]),
        "{scales:?}"
    );
    assert!(losses[0] > 2.0 && losses[79] < 0.01, "{losses:?}");
    let (slope, start) = (weight.select(0, 0)?.select(0, 0)?.item()?.to_f64(), bias.select(0, 0)?.item()?.to_f64());
    assert!((slope - 3.0).abs() < 0.3 && (start - 0.5).abs() < 0.2, "{slope} {start}");
    Ok(())
}
