//! Gradients that are scaled so that 16 bits hold them (`torch.amp.GradScaler`).
//!
//! Small gradients are zero in `f16`. A loss that is multiplied by a large number has gradients that are as much larger;
//! before an optimizer takes its step they are divided again. Where the number was too large some are infinite: then the
//! step is left out and the number halved; after many steps without that it is doubled.
//!
//! Reading order: this file ([`GradScaler`]), `unscale` (what is done to gradients and to the scale).

mod unscale;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use c10_core::{Device, DeviceType, Runtime};

pub use unscale::{amp_foreach_non_finite_check_and_unscale_, amp_update_scale_};

use crate::autocast::{Inside, ToDeviceType};
use crate::base::amp_error::AmpError;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::{Operand, Tensor};

/// The options of a [`GradScaler`], with torch's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerOptions {
    /// The first scale.
    pub init_scale: f64,
    /// What the scale is multiplied by after `growth_interval` steps without an infinite gradient; above 1.
    pub growth_factor: f64,
    /// What the scale is multiplied by after a step with one; below 1.
    pub backoff_factor: f64,
    /// How many such steps, one after another.
    pub growth_interval: i32,
    /// Whether anything is scaled at all; otherwise losses stay as they are and every step is taken.
    pub enabled: bool,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        Self { init_scale: 65536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 2000, enabled: true }
    }
}

impl From<()> for GradScalerOptions {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// What a scaler is, to be saved along with a model (`GradScaler.state_dict`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerState {
    /// The scale.
    pub scale: f64,
    /// As in [`GradScalerOptions`].
    pub growth_factor: f64,
    /// As in [`GradScalerOptions`].
    pub backoff_factor: f64,
    /// As in [`GradScalerOptions`].
    pub growth_interval: i32,
    /// How many steps without an infinite gradient came last.
    pub growth_tracker: i32,
}

/// Names an optimizer for a scaler, where torch takes the optimizer itself: a number of the program's choice, or `()` for the
/// only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptimizerKey(u64);

impl From<()> for OptimizerKey {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<u64> for OptimizerKey {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Where an optimizer stands in an iteration (`OptState`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Ready,
    Unscaled,
    Stepped,
}

/// What a scaler knows of an optimizer in an iteration.
#[derive(Debug, Default)]
struct OptimizerState {
    stage: Stage,
    /// One number on each device that has gradients: not 0 where one of them was no finite number.
    found: Vec<Tensor>,
}

/// Scales losses and divides their gradients again (`torch.amp.GradScaler`).
///
/// An iteration is: [`Self::scale`] the loss, compute gradients of that, [`Self::step`] for each optimizer, [`Self::update`].
/// The scale, and whether a gradient was infinite, are on the device; the host waits for it in [`Self::step`] alone.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, GradScaler, GradScalerOptions, Tensor};
///
/// let options = GradScalerOptions { init_scale: 4.0, ..GradScalerOptions::default() };
/// let mut scaler = GradScaler::new("cuda", options)?;
/// let weight = Tensor::ones(&[2], DType::F32, "cuda")?;
/// // The gradient of the sum of all weights is one for each of them.
/// let gradient = scaler.scale(&Tensor::ones(&[2], DType::F32, "cuda")?)?;
/// assert_eq!(gradient.to_vec::<f32>()?, [4.0; 2]);
/// let stepped = scaler.step((), &[&gradient], || weight.sub_(&gradient).map(drop))?;
/// scaler.update()?;
/// assert_eq!((stepped, weight.to_vec::<f32>()?), (Some(()), vec![0.0; 2]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Debug)]
pub struct GradScaler {
    kind: DeviceType,
    options: GradScalerOptions,
    /// What the tracker begins with.
    init_tracker: i32,
    /// The scale and the tracker, once something was scaled.
    on_device: Option<(Tensor, Tensor)>,
    optimizers: BTreeMap<OptimizerKey, OptimizerState>,
}

impl GradScaler {
    /// A scaler for losses on devices of a kind. As in torch one for CUDA devices warns and is disabled where there are none.
    ///
    /// # Errors
    /// There is no autocast for such devices, the growth factor is not above 1, or the backoff factor is not below 1.
    pub fn new(device: impl ToDeviceType, options: impl Into<GradScalerOptions>) -> Result<Self> {
        let (kind, mut options) = (device.to_device_type()?, options.into());
        if kind == DeviceType::Cuda && options.enabled && !Runtime::with_current(Runtime::is_available) {
            c10_core::warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.");
            options.enabled = false;
        }
        // A factor which is no number is refused, too.
        if options.enabled && (options.growth_factor.is_nan() || options.growth_factor <= 1.0) {
            return Err(AmpError::GrowthFactor { factor: options.growth_factor }.into());
        }
        if options.enabled && (options.backoff_factor.is_nan() || options.backoff_factor >= 1.0) {
            return Err(AmpError::BackoffFactor { factor: options.backoff_factor }.into());
        }
        Ok(Self { kind, options, init_tracker: 0, on_device: None, optimizers: BTreeMap::new() })
    }

    /// The outputs times the scale (`scale`), in the dtype that a float of 32 bits without dimensions leaves them: theirs.
    /// They themselves where the scaler is disabled.
    ///
    /// # Errors
    /// There is not enough memory, or a device failed.
    pub fn scale(&mut self, outputs: &Tensor) -> Result<Tensor> {
        if !self.options.enabled {
            return Ok(outputs.clone());
        }
        let scale = self.scale_for(outputs)?.to_device_non_blocking(outputs.device())?;
        outputs.mul(Operand::Tensor(&scale))
    }

    /// [`Self::scale`] of several outputs, which may be on several devices.
    ///
    /// # Errors
    /// As there.
    pub fn scale_all(&mut self, outputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        outputs.iter().map(|output| self.scale(output)).collect()
    }

    /// The scale; made on the device of the first tensor that is scaled.
    fn scale_for(&mut self, first: &Tensor) -> Result<&Tensor> {
        if self.on_device.is_none() {
            let scale = Tensor::full(&[], self.options.init_scale, DType::F32, first)?;
            let tracker = Tensor::full(&[], i64::from(self.init_tracker), DType::I32, first)?;
            self.on_device = Some((scale, tracker));
        }
        self.made("scale").map(|(scale, _)| scale)
    }

    fn made(&self, call: &'static str) -> Result<&(Tensor, Tensor)> {
        self.on_device.as_ref().ok_or_else(|| AmpError::NoScale { call }.into())
    }

    /// Divides the gradients of an optimizer by the scale, in place, and looks for those that are no finite numbers
    /// (`unscale_`): for what is done to gradients before [`Self::step`], which otherwise calls this. It does not wait for the
    /// devices: there is one kernel for each device and dtype (and every 128 gradients). It has nothing to do where the scaler is disabled.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, GradScaler, Tensor};
    ///
    /// let mut scaler = GradScaler::new("cuda", ())?;
    /// let gradient = scaler.scale(&Tensor::full(&[2], 3, DType::F32, "cuda")?)?;
    /// scaler.unscale_((), &[&gradient])?;
    /// let clipped = gradient.clamp_(None, Some(1.into()))?;
    /// assert_eq!(clipped.to_vec::<f32>()?, [1.0; 2]);
    /// assert_eq!(scaler.step((), &[&gradient], || Ok(7))?, Some(7));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// Nothing was scaled yet, this optimizer's gradients were unscaled already or its step was taken, a gradient is of
    /// `f16` or no float, there is not enough memory, or a device failed.
    #[doc(alias = "unscale")]
    pub fn unscale_(&mut self, optimizer: impl Into<OptimizerKey>, gradients: &[&Tensor]) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        let optimizer = optimizer.into();
        self.made("unscale_")?;
        match self.stage(optimizer) {
            Stage::Ready => {}
            Stage::Unscaled => return Err(AmpError::UnscaledTwice.into()),
            Stage::Stepped => return Err(AmpError::UnscaledAfterStep.into()),
        }
        if gradients.iter().any(|gradient| gradient.dtype() == DType::F16) {
            return Err(AmpError::HalfGradients.into());
        }
        let found = self.unscaled(gradients)?;
        self.optimizers.insert(optimizer, OptimizerState { stage: Stage::Unscaled, found });
        Ok(())
    }

    fn stage(&self, optimizer: OptimizerKey) -> Stage {
        self.optimizers.get(&optimizer).map_or(Stage::Ready, |state| state.stage)
    }

    /// Unscales gradients device by device and dtype by dtype.
    fn unscaled(&self, gradients: &[&Tensor]) -> Result<Vec<Tensor>> {
        // The inverse is taken in 64 bits, whatever the region wants.
        let _inside = Inside::new();
        let (scale, _) = self.made("unscale_")?;
        let inverse = scale.to_dtype(DType::F64)?.reciprocal()?.to_dtype(DType::F32)?;
        let mut groups: BTreeMap<(Device, &'static str), Vec<&Tensor>> = BTreeMap::new();
        for &gradient in gradients {
            groups.entry((gradient.device(), gradient.dtype().torch_name())).or_default().push(gradient);
        }
        let mut found: BTreeMap<Device, (Tensor, Tensor)> = BTreeMap::new();
        for ((device, _), group) in groups {
            let (flag, inverse) = match found.entry(device) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let flag = Tensor::zeros(&[], DType::F32, device)?;
                    new.insert((flag, inverse.to_device_non_blocking(device)?))
                }
            };
            amp_foreach_non_finite_check_and_unscale_(&group, flag, inverse)?;
        }
        Ok(found.into_values().map(|(flag, _)| flag).collect())
    }

    /// Takes the step of an optimizer, unless one of its gradients is no finite number (`step`): unscales them where that was
    /// not done, waits for the devices that have them, and calls `step`. Returns what that returns, or `None` where the step
    /// was left out. Where the scaler is disabled the step is always taken.
    ///
    /// # Errors
    /// Nothing was scaled yet, the step of this optimizer was taken already, there are no gradients, or as for
    /// [`Self::unscale_`]; what `step` returns.
    pub fn step<T>(
        &mut self,
        optimizer: impl Into<OptimizerKey>,
        gradients: &[&Tensor],
        step: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        if !self.options.enabled {
            return step().map(Some);
        }
        let optimizer = optimizer.into();
        self.made("step")?;
        if self.stage(optimizer) == Stage::Stepped {
            return Err(AmpError::SteppedTwice.into());
        }
        if self.stage(optimizer) == Stage::Ready {
            self.unscale_(optimizer, gradients)?;
        }
        let state = self.optimizers.entry(optimizer).or_default();
        if state.found.is_empty() {
            return Err(AmpError::NoChecks.into());
        }
        let mut is_any_found = false;
        for found in &state.found {
            is_any_found |= found.item()?.is_true();
        }
        let taken = if is_any_found { None } else { Some(step()?) };
        state.stage = Stage::Stepped;
        Ok(taken)
    }

    /// Moves the scale on, after the steps of all optimizers (`update`): down where a step was left out, up after enough steps
    /// without that. It does not wait for the device.
    ///
    /// # Errors
    /// Nothing was scaled yet, no gradients were unscaled since the last update, or a device failed.
    pub fn update(&mut self) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        let (scale, tracker) = self.made("update")?;
        let mut all: Option<Tensor> = None;
        for found in self.optimizers.values().flat_map(|state| &state.found) {
            let found = found.to_device_non_blocking(scale.device())?;
            all = Some(match all {
                Some(before) => before.add(&found)?,
                None => found,
            });
        }
        let found = all.ok_or(AmpError::NoChecksBeforeUpdate)?;
        let GradScalerOptions { growth_factor, backoff_factor, growth_interval, .. } = self.options;
        amp_update_scale_(scale, tracker, &found, growth_factor, backoff_factor, growth_interval)?;
        self.optimizers.clear();
        Ok(())
    }

    /// Ends an iteration with a scale of the program's choice: a number, or a tensor of one `f32` on a device of the scaler's
    /// kind, which is copied (`update` with `new_scale`).
    ///
    /// # Errors
    /// Nothing was scaled yet, the tensor is another, or a device failed.
    pub fn update_to<'a>(&mut self, new_scale: impl Into<Operand<'a>>) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        let (scale, _) = self.made("update")?;
        match new_scale.into() {
            Operand::Number(number) => scale.fill_(number)?,
            Operand::Tensor(new) if new.device().kind == self.kind && new.numel() == 1 => {
                scale.copy_(&new.reshape(&[])?)?
            }
            Operand::Tensor(_) => return Err(AmpError::NewScale.into()),
        };
        self.optimizers.clear();
        Ok(())
    }

    /// The scale; 1 where the scaler is disabled (`get_scale`). Waits for the device.
    ///
    /// # Errors
    /// The device failed.
    pub fn get_scale(&self) -> Result<f64> {
        match &self.on_device {
            _ if !self.options.enabled => Ok(1.0),
            Some((scale, _)) => Ok(scale.item()?.to_f64()),
            None => Ok(self.options.init_scale),
        }
    }

    /// How many steps without an infinite gradient came last (`_get_growth_tracker`). Waits for the device.
    ///
    /// # Errors
    /// The device failed.
    #[doc(alias = "_get_growth_tracker")]
    pub fn get_growth_tracker(&self) -> Result<i32> {
        match &self.on_device {
            _ if !self.options.enabled => Ok(0),
            Some((_, tracker)) => Ok(i32::try_from(tracker.item()?.to_i64()).unwrap_or(i32::MAX)),
            None => Ok(self.init_tracker),
        }
    }

    /// What the scale grows by (`get_growth_factor`).
    #[must_use]
    pub fn get_growth_factor(&self) -> f64 {
        self.options.growth_factor
    }

    /// Sets [`Self::get_growth_factor`] (`set_growth_factor`).
    pub fn set_growth_factor(&mut self, new_factor: f64) {
        self.options.growth_factor = new_factor;
    }

    /// What the scale shrinks by (`get_backoff_factor`).
    #[must_use]
    pub fn get_backoff_factor(&self) -> f64 {
        self.options.backoff_factor
    }

    /// Sets [`Self::get_backoff_factor`] (`set_backoff_factor`).
    pub fn set_backoff_factor(&mut self, new_factor: f64) {
        self.options.backoff_factor = new_factor;
    }

    /// After how many steps the scale grows (`get_growth_interval`).
    #[must_use]
    pub fn get_growth_interval(&self) -> i32 {
        self.options.growth_interval
    }

    /// Sets [`Self::get_growth_interval`] (`set_growth_interval`).
    pub fn set_growth_interval(&mut self, new_interval: i32) {
        self.options.growth_interval = new_interval;
    }

    /// Whether anything is scaled (`is_enabled`).
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.options.enabled
    }

    /// What is to be saved, after [`Self::update`]; nothing where the scaler is disabled (`state_dict`). Waits for the device.
    ///
    /// # Errors
    /// The device failed.
    pub fn state_dict(&self) -> Result<Option<GradScalerState>> {
        if !self.options.enabled {
            return Ok(None);
        }
        Ok(Some(GradScalerState {
            scale: self.get_scale()?,
            growth_factor: self.options.growth_factor,
            backoff_factor: self.options.backoff_factor,
            growth_interval: self.options.growth_interval,
            growth_tracker: self.get_growth_tracker()?,
        }))
    }

    /// Becomes what was saved (`load_state_dict`); nothing happens where the scaler is disabled.
    ///
    /// # Errors
    /// The state is that of a disabled scaler, or the device failed.
    pub fn load_state_dict(&mut self, state: Option<&GradScalerState>) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        let state = state.ok_or(AmpError::EmptyState)?;
        if let Some((scale, tracker)) = &self.on_device {
            scale.fill_(state.scale)?;
            tracker.fill_(i64::from(state.growth_tracker))?;
        }
        let GradScalerState { scale, growth_factor, backoff_factor, growth_interval, growth_tracker } = *state;
        self.options =
            GradScalerOptions { init_scale: scale, growth_factor, backoff_factor, growth_interval, ..self.options };
        self.init_tracker = growth_tracker;
        Ok(())
    }
}
