//! Drawing categories by their probabilities.
//!
//! One sample, or samples without replacement: each category gets an exponential number, and those with the largest
//! quotients of probability and number are the samples. Samples with replacement: a uniform number each, and a search in
//! the sums of the probabilities. `docs/random.md` says where the results can differ from torch's.

use c10_core::Runtime;

use crate::base::dtype::DType;
use crate::base::error::{Result, invalid, refuse_float8};
use crate::base::random_error::RandomError;
use crate::launch::library::random::{self as kernels, Rows};
use crate::launch::record;
use crate::random::fill::{DeviceSource, Source, refused};
use crate::random::generator::Generator;
use crate::random::host::HostGenerator;
use crate::random::host_fill;
use crate::tensor::{Context, Tensor};

impl Tensor {
    /// Draws `samples` categories of each row, whose elements are probabilities up to a factor (`torch.multinomial`).
    /// The result has the dtype `i64`.
    ///
    /// Waits for the device, which checks the probabilities; with replacement, captured work is not checked.
    ///
    /// # Errors
    /// The tensor has neither one nor two dimensions, is no float, has more than 2^24 categories; there
    /// are no samples or, without replacement, more than categories; an element is no number, infinite or below zero, or
    /// a row is zero; the generator's error, or the device failed.
    pub fn multinomial(&self, samples: i64, replacement: bool, generator: Option<&Generator>) -> Result<Self> {
        let run = || {
            let source = Source::of(self, generator, "multinomial")?;
            let columns = self.check_rows_of(samples, replacement)?;
            let is_matrix = self.dim() == 2;
            let count = if is_matrix { self.sizes()[0] } else { 1 };
            let sizes: &[i64] = if is_matrix { &[count, samples] } else { &[samples] };
            let to = Self::uninitialized(sizes, DType::I64, self)?;
            if to.numel() == 0 {
                return Ok(to);
            }
            let p = self.packed()?;
            let source = match source {
                Source::Host(host) => {
                    p.sample_on_host(&to, (count, columns, samples), replacement, &host, generator)?;
                    return Ok(to);
                }
                Source::Device(source) => source,
            };
            p.sample(&to, (count, columns, samples), replacement, &source, generator)?;
            Ok(to)
        };
        run().of("multinomial", &[self])
    }

    /// Samples of contiguous rows on a device.
    fn sample(
        &self,
        to: &Self,
        (count, columns, samples): (i64, i64, i64),
        replacement: bool,
        source: &DeviceSource,
        generator: Option<&Generator>,
    ) -> Result<()> {
        let (own, given) = (source.clone(), generator.cloned());
        let detail = source.detail([count, columns, samples, replacement.into()].map(i64::cast_unsigned));
        if record::call("multinomial", (&[to], &[self]), detail, move |outputs, inputs| {
            let ([to], [p]) = (outputs, inputs) else { return Ok(()) };
            p.sample(to, (count, columns, samples), replacement, &own, given.as_ref())
        })? {
            return Ok(());
        }
        let number = |value: i64| u32::try_from(value).map_err(|_| invalid("there are too many samples or rows"));
        let rows = Rows { p: self, rows: number(count)?, columns: number(columns)? };
        let samples = number(samples)?;
        check_probabilities(&rows, source.is_capturing()?)?;
        if replacement && samples > 1 {
            let [_, y] = kernels::sample_grid(rows.rows, samples);
            let drawn = source.draw(u64::from(rows.rows.div_ceil(y)) * 4)?;
            return kernels::sample_rows(&rows, to, samples, &drawn);
        }
        let q = Self::uninitialized(self.sizes(), self.dtype(), self)?;
        q.exponential_(1.0, generator)?;
        if samples == 1 {
            kernels::largest_of_rows(&rows, &q, to)
        } else {
            kernels::largest_few(&rows, &q, to, samples)
        }
    }

    /// Samples of contiguous rows on the host: of each as many categories as there are columns.
    fn sample_on_host(
        &self,
        to: &Self,
        (rows, columns, samples): (i64, i64, i64),
        replacement: bool,
        host: &HostGenerator,
        generator: Option<&Generator>,
    ) -> Result<()> {
        let p: Vec<f64> = self.to_dtype(DType::F64)?.to_vec()?;
        let columns = usize::try_from(columns).unwrap_or(1);
        check_on_host(&p, columns)?;
        if replacement && samples > 1 {
            let samples = usize::try_from(samples).unwrap_or(0);
            let drawn = host_fill::sample(&p, columns, samples, self.dtype() == DType::F64, host)?;
            return to.copy_(&Self::from_slice(&drawn, to.sizes())?).map(drop);
        }
        let q = Self::uninitialized(self.sizes(), self.dtype(), self)?;
        q.exponential_(1.0, generator)?;
        let quotients = self.div(&q)?.reshape(&[rows, -1])?;
        to.copy_(&quotients.topk(samples, -1, true)?.1.reshape(to.sizes())?).map(drop)
    }

    /// Checks sizes and dtype, and returns the number of categories.
    fn check_rows_of(&self, samples: i64, replacement: bool) -> Result<i64> {
        let refuse = |text: &str| Err(refused(text.to_owned()));
        if !(1..=2).contains(&self.dim()) {
            return refuse("prob_dist must be 1 or 2 dim");
        }
        if !self.dtype().is_floating_point() {
            let name = self.dtype().scalar_type_name();
            return refuse(&format!("multinomial only supports floating-point dtypes for input, got: {name}"));
        }
        refuse_float8("min_all_cuda", self.dtype())?;
        if samples <= 0 {
            return refuse("cannot sample n_sample <= 0 samples");
        }
        let columns = self.size(-1)?;
        if !replacement && samples > columns {
            return refuse("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
        }
        if columns > 1 << 24 {
            return refuse("number of categories cannot exceed 2^24");
        }
        if columns == 0 && self.numel() == 0 && (self.dim() == 1 || self.sizes()[0] > 0) {
            return refuse("invalid multinomial distribution (sum of probabilities <= 0)");
        }
        Ok(columns)
    }
}

/// Checks probabilities on the host.
fn check_on_host(p: &[f64], columns: usize) -> Result<()> {
    if let Some(at) = p.iter().position(|p| !(0.0..f64::INFINITY).contains(p)) {
        let element = i64::try_from(at).unwrap_or(i64::MAX);
        return Err(RandomError::Probability { operation: "multinomial", element, value: p[at] }.into());
    }
    let row = p.chunks(columns.max(1)).position(|row| row.iter().all(|&p| p == 0.0));
    row.map_or(
        Ok(()),
        |row| Err(RandomError::SumOfProbabilities { row: i64::try_from(row).unwrap_or(i64::MAX) }.into()),
    )
}

/// Checks the probabilities: at once or, while the work is captured, when whoever replays it waits.
fn check_probabilities(rows: &Rows<'_>, is_captured: bool) -> Result<()> {
    kernels::check_rows(rows)?;
    if is_captured {
        return Ok(());
    }
    let device = rows.p.device();
    Runtime::with_current(|runtime| runtime.streams().current(device.cuda_index()?.unwrap_or(0))?.synchronize())?;
    Ok(())
}
