//! Dropout.

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, refuse_float8};
use crate::base::shape::is_non_overlapping_and_dense;
use crate::launch::library::random::{self as kernels, Dropout, Schedule};
use crate::launch::record;
use crate::random::fill::{DeviceSource, Source, refused};
use crate::random::make::like;
use crate::tensor::{Context, Tensor};

impl Tensor {
    /// Sets elements to zero with a probability and scales the others up by 1 / (1 - p), while training; gives the
    /// tensor itself otherwise, and for `p` of 0 (`torch.nn.functional.dropout`). Draws from the default generator.
    ///
    /// # Errors
    /// The probability is not in [0, 1], the dtype is no float, there is not enough memory,
    /// the generator's error, or the device failed.
    pub fn dropout(&self, p: f64, training: bool) -> Result<Self> {
        check_probability(p)?;
        if p == 0.0 || !training || self.numel() == 0 {
            return Ok(self.clone());
        }
        if p == 1.0 {
            return self.mul(0.0);
        }
        if !self.is_cuda() {
            // On the host torch makes the factors as a tensor of their own.
            let factors = self.uninitialized_like()?;
            factors.bernoulli_(1.0 - p, None)?.div_(1.0 - p)?;
            return self.mul(&factors);
        }
        Ok(self.native_dropout(p, Some(true))?.0)
    }

    /// Dropout with the mask of the elements that are kept (`torch.native_dropout`). Without `train` it is as for
    /// `Some(true)`. The mask is laid out as the tensor. With `p` of 0 it draws all the same.
    ///
    /// # Errors
    /// As for [`Self::dropout`].
    pub fn native_dropout(&self, p: f64, train: Option<bool>) -> Result<(Self, Self)> {
        let run = || {
            check_probability(p)?;
            if train == Some(false) {
                return Ok((self.copy()?, Self::ones(self.sizes(), DType::Bool, self)?));
            }
            if p == 1.0 {
                let output = like(self, self.dtype())?;
                output.zero_()?;
                return Ok((output, Self::zeros(self.sizes(), DType::Bool, self)?));
            }
            refuse_float8("fused_dropout", self.dtype())?;
            let source = match Source::of(self, None, "native_dropout")? {
                Source::Device(source) => source,
                Source::Host(_) => {
                    let mask = Self::uninitialized(self.sizes(), DType::Bool, self)?;
                    mask.bernoulli_(1.0 - p, None)?;
                    let output = self.mul(&mask)?;
                    output.mul_(1.0 / (1.0 - p))?;
                    return Ok((output, mask));
                }
            };
            if !self.dtype().is_floating_point() {
                return Err(
                    TensorError::NotImplemented { kernel: "fused_dropout".to_owned(), dtype: self.dtype() }.into()
                );
            }
            let (output, mask) = (like(self, self.dtype())?, like(self, DType::Bool)?);
            if self.numel() > 0 {
                drop_elements(&self.resolved()?, &output, &mask, 1.0 - p, &source)?;
            }
            Ok((output, mask))
        };
        run().of("dropout", &[self])
    }
}

fn check_probability(p: f64) -> Result<()> {
    let is_one = (0.0..=1.0).contains(&p);
    if is_one { Ok(()) } else { Err(refused(format!("dropout probability has to be between 0 and 1, but got {p}"))) }
}

#[expect(clippy::cast_possible_truncation, reason = "floats compute in 32 bits")]
fn drop_elements(input: &Tensor, output: &Tensor, mask: &Tensor, keep: f64, source: &DeviceSource) -> Result<()> {
    let own = source.clone();
    let is_recorded = record::call(
        "dropout",
        (&[output, mask], &[input]),
        source.detail([keep.to_bits()]),
        move |outputs, inputs| {
            let ([output, mask], [input]) = (outputs, inputs) else { return Ok(()) };
            drop_elements(input, output, mask, keep, &own)
        },
    )?;
    if is_recorded {
        return Ok(());
    }
    let is_double = input.dtype() == DType::F64;
    let scale = if is_double { 1.0 / keep } else { f64::from(1.0 / keep as f32) };
    let dropout = Dropout { input, output, mask, keep, scale };
    let schedule = Schedule::of(source.device, input.numel().unsigned_abs(), 4)?;
    let drawn = source.draw(schedule.increment())?;
    match group(input, output, mask) {
        1 => kernels::dropout_single(&dropout, &drawn, schedule),
        group => kernels::dropout_groups(&dropout, group, &drawn, schedule.threads),
    }
}

/// How many elements a thread takes at once.
fn group(input: &Tensor, output: &Tensor, mask: &Tensor) -> u32 {
    let dense = |tensor: &Tensor| is_non_overlapping_and_dense(tensor.sizes(), tensor.strides());
    if ![input, output, mask].into_iter().all(dense) {
        return 1;
    }
    let size = input.element_size() as u64;
    let fits = |group: &u64| input.data_ptr().is_multiple_of(size * group) && size * group <= 16;
    let widest = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
    let divides = |group: &u64| input.numel().unsigned_abs().is_multiple_of(*group);
    u32::try_from([8, 4, 2].into_iter().filter(|group| *group <= widest).find(divides).unwrap_or(1)).unwrap_or(1)
}
