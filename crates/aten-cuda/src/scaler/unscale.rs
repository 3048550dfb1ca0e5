//! What a scaler does to gradients and to its scale, on whatever device they are.

use c10_core::DeviceType;

use crate::base::amp_error::AmpError;
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::base::shape::is_non_overlapping_and_dense;
use crate::launch::library::amp;
use crate::tensor::{Context, Tensor, is_host};

/// Multiplies every element of the gradients by `inv_scale`, in place, and sets `found_inf` to 1 where one of them was no
/// finite number (`torch._amp_foreach_non_finite_check_and_unscale_`); it is left as it is where all were. A factor of 1
/// leaves the gradients as they are.
///
/// The gradients have one dtype, `f32`, `f64`, `f16` or `bf16`, and are on one device, where `found_inf` and `inv_scale` are
/// too, each one `f32`. On a CUDA device it is queued on the current stream: one kernel for every 128 gradients.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Tensor, amp_foreach_non_finite_check_and_unscale_};
///
/// let gradients = [Tensor::full(&[3], 8, DType::F32, "cuda")?, Tensor::full(&[2, 2], f64::INFINITY, DType::F32, "cuda")?];
/// let found = Tensor::zeros(&[], DType::F32, "cuda")?;
/// let factor = Tensor::full(&[], 0.25, DType::F32, "cuda")?;
/// amp_foreach_non_finite_check_and_unscale_(&[&gradients[0], &gradients[1]], &found, &factor)?;
/// assert_eq!((found.item()?.to_f64(), gradients[0].to_vec::<f32>()?), (1.0, vec![2.0; 3]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// Dtypes or devices differ or are others, `found_inf` or `inv_scale` is no single `f32` there, several elements of a
/// gradient lie at one place, there is not enough memory, or the device failed. Nothing is changed then but by a device.
#[doc(alias = "_amp_foreach_non_finite_check_and_unscale_")]
pub fn amp_foreach_non_finite_check_and_unscale_(
    scaled_grads: &[&Tensor],
    found_inf: &Tensor,
    inv_scale: &Tensor,
) -> Result<()> {
    let Some(&first) = scaled_grads.first() else { return Ok(()) };
    check(scaled_grads, first, found_inf, inv_scale)?;
    for written in scaled_grads.iter().chain([&found_inf]) {
        written.storage().note_write();
    }
    let run = || match first.device().kind {
        DeviceType::Cuda => on_device(scaled_grads, found_inf, inv_scale),
        _ => on_host(scaled_grads, found_inf, inv_scale),
    };
    run().of("_amp_foreach_non_finite_check_and_unscale_", &[first, found_inf, inv_scale])
}

fn check(gradients: &[&Tensor], first: &Tensor, found: &Tensor, factor: &Tensor) -> Result<()> {
    let dtype = first.dtype();
    if !dtype.is_floating_point() || dtype.is_float8() {
        let kernel = if is_host(first.device()) {
            "_amp_foreach_non_finite_check_and_unscale_cpu"
        } else {
            "_amp_foreach_non_finite_check_and_unscale_cuda"
        };
        return Err(TensorError::NotImplemented { kernel: kernel.to_owned(), dtype }.into());
    }
    if gradients.iter().any(|gradient| gradient.dtype() != dtype || gradient.device() != first.device()) {
        return Err(AmpError::Gradients.into());
    }
    for gradient in gradients {
        crate::tensor::check_overlap(gradient, &[])?;
    }
    single("found_inf", found, first)?;
    single("inv_scale", factor, first)
}

/// Whether a tensor is one `f32` on the device of another.
fn single(what: &'static str, tensor: &Tensor, of: &Tensor) -> Result<()> {
    let is_right_kind = tensor.device().kind == of.device().kind;
    let wanted = match () {
        () if !is_right_kind && of.is_cuda() => "a CUDA tensor.",
        () if !is_right_kind => "a CPU tensor.",
        () if tensor.numel() != 1 => "a 1-element tensor.",
        () if tensor.dtype() != DType::F32 => "a float tensor.",
        () if tensor.device() != of.device() => "on the device of the gradients.",
        () => return Ok(()),
    };
    Err(AmpError::Flag { what, wanted }.into())
}

fn on_device(gradients: &[&Tensor], found: &Tensor, factor: &Tensor) -> Result<()> {
    let is_whole = |tensor: &&&Tensor| is_non_overlapping_and_dense(tensor.sizes(), tensor.strides());
    let (whole, others): (Vec<&Tensor>, Vec<&Tensor>) = gradients.iter().partition(|tensor| is_whole(tensor));
    let device = found.device().cuda_index()?.unwrap_or(0);
    // Those with gaps are brought together and written back.
    let copies = others.iter().map(|tensor| tensor.contiguous()).collect::<Result<Vec<Tensor>>>()?;
    let all: Vec<&Tensor> = whole.into_iter().chain(&copies).collect();
    amp::unscale(&all, found, factor, device)?;
    for (to, from) in others.iter().zip(&copies) {
        to.copy_(from)?;
    }
    Ok(())
}

fn on_host(gradients: &[&Tensor], found: &Tensor, factor: &Tensor) -> Result<()> {
    let by = factor.item()?.to_f64();
    for gradient in gradients {
        if !gradient.isfinite()?.all((), false)?.item()?.is_true() {
            found.fill_(1)?;
        }
        #[expect(clippy::float_cmp, reason = "one is meant, and nothing near it")]
        if by != 1.0 {
            gradient.mul_(by)?;
        }
    }
    Ok(())
}

/// Moves a scale on (`torch._amp_update_scale_`): where `found_inf` is not 0, `current_scale` is multiplied by
/// `scale_backoff_factor` and `growth_tracker` begins anew; else the tracker counts one more, and with the
/// `growth_interval`th the scale is multiplied by `scale_growth_factor`, unless it would be infinite then, and the tracker
/// begins anew.
///
/// `current_scale` and `found_inf` are one `f32` each and `growth_tracker` is one `i32`, on one device. On a CUDA device it
/// is queued on the current stream.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Tensor, amp_update_scale_};
///
/// let scale = Tensor::full(&[], 1024, DType::F32, "cuda")?;
/// let tracker = Tensor::full(&[], 1, DType::I32, "cuda")?;
/// amp_update_scale_(&scale, &tracker, &Tensor::zeros(&[], DType::F32, "cuda")?, 2.0, 0.5, 2)?;
/// assert_eq!((scale.item()?.to_f64(), tracker.item()?.to_i64()), (2048.0, 0));
/// amp_update_scale_(&scale, &tracker, &Tensor::ones(&[], DType::F32, "cuda")?, 2.0, 0.5, 2)?;
/// assert_eq!(scale.item()?.to_f64(), 1024.0);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// The tensors are others or on several devices, or the device failed.
#[doc(alias = "_amp_update_scale_")]
pub fn amp_update_scale_(
    current_scale: &Tensor,
    growth_tracker: &Tensor,
    found_inf: &Tensor,
    scale_growth_factor: f64,
    scale_backoff_factor: f64,
    growth_interval: i32,
) -> Result<()> {
    single("current_scale", current_scale, current_scale)?;
    single("found_inf", found_inf, current_scale)?;
    let what = "growth_tracker";
    if growth_tracker.numel() != 1 {
        return Err(AmpError::Flag { what, wanted: "a 1-element tensor." }.into());
    }
    if growth_tracker.dtype() != DType::I32 {
        return Err(AmpError::Flag { what, wanted: "an int tensor." }.into());
    }
    if growth_tracker.device() != current_scale.device() {
        return Err(AmpError::Flag { what, wanted: "on the device of current_scale." }.into());
    }
    let factors = (scale_growth_factor, scale_backoff_factor, growth_interval);
    if let Some(device) = current_scale.is_cuda().then(|| current_scale.device().cuda_index()).transpose()? {
        let operands = [current_scale, growth_tracker, found_inf];
        return amp::update((current_scale, growth_tracker), found_inf, factors, device.unwrap_or(0))
            .of("_amp_update_scale_", &operands);
    }
    update_on_host(current_scale, growth_tracker, found_inf, factors)
}

#[expect(clippy::cast_possible_truncation, reason = "the scale is a float of 32 bits")]
fn update_on_host(
    scale: &Tensor,
    tracker: &Tensor,
    found: &Tensor,
    (growth, backoff, interval): (f64, f64, i32),
) -> Result<()> {
    let current = scale.item()?.to_f64();
    if found.item()?.is_true() {
        scale.fill_(f64::from((current * backoff) as f32))?;
        tracker.fill_(0)?;
        return Ok(());
    }
    let mut successful = tracker.item()?.to_i64().wrapping_add(1);
    if successful == i64::from(interval) {
        let grown = (current * growth) as f32;
        if grown.is_finite() {
            scale.fill_(f64::from(grown))?;
        }
        successful = 0;
    }
    tracker.fill_(successful)?;
    Ok(())
}
