//! Distributions that fill a tensor in place.
//!
//! **Invariants:** elements are drawn in the order of memory; a tensor of no elements draws nothing. What a distribution
//! refuses, it refuses before it draws.

use c10_core::DeviceIndex;

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, refuse_float8};
use crate::base::random_error::RandomError;
use crate::base::shape::Dims;
use crate::launch::library::random::{self as kernels, Drawn, Floats, Part, Schedule, WideView};
use crate::launch::record;
use crate::random::device::DeviceGenerator;
use crate::random::generator::{Generator, Kind};
use crate::random::host::HostGenerator;
use crate::random::host_fill::{self, Law};
use crate::random::seeding::{default_generator, default_host_generator};
use crate::tensor::{Context, Signs, Tensor, check_overlap, is_host};

/// A generator to draw from.
#[derive(Debug)]
pub(super) enum Source {
    Device(DeviceSource),
    Host(HostGenerator),
}

/// The generator of a CUDA device.
#[derive(Clone, Debug)]
pub(super) struct DeviceSource {
    generator: DeviceGenerator,
    pub(super) device: DeviceIndex,
    call: &'static str,
}

impl Source {
    /// The generator that is given, or the default one of the tensor's device.
    pub(super) fn of(tensor: &Tensor, given: Option<&Generator>, call: &'static str) -> Result<Self> {
        let device = tensor.device();
        let index = if is_host(device) { None } else { device.cuda_index()? };
        let generator = match (given, index) {
            (Some(given), _) => given.clone(),
            (None, Some(index)) => default_generator(index)?,
            (None, None) => default_host_generator(),
        };
        match (generator.0, index) {
            (Kind::Host(generator), None) => Ok(Self::Host(generator)),
            (Kind::Device(generator), Some(index)) if generator.device() == device => {
                Ok(Self::Device(DeviceSource { generator, device: index, call }))
            }
            (Kind::Device(generator), Some(_)) => {
                let (tensor, generator) = (device.to_string(), generator.device().to_string());
                Err(RandomError::Device { tensor, generator }.into())
            }
            (Kind::Device(_), None) => Err(RandomError::DeviceType { tensor: "cpu", generator: "cuda" }.into()),
            (Kind::Host(_), Some(_)) => Err(RandomError::DeviceType { tensor: "cuda", generator: "cpu" }.into()),
        }
    }
}

impl DeviceSource {
    pub(super) fn draw(&self, increment: u64) -> Result<Drawn> {
        self.generator.draw(increment)
    }

    /// What tells calls apart that are written down: the generator, and these numbers. The call keeps the generator.
    pub(super) fn detail(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
        std::iter::once(self.generator.identity()).chain(numbers).collect()
    }

    /// Whether the current stream of the device captures.
    pub(super) fn is_capturing(&self) -> Result<bool> {
        self.generator.is_capturing()
    }
}

/// Fills a tensor: each part of it by a launch of its own, with its own share of the sequence. As in torch, a tensor
/// that must be split takes the share of the whole first.
pub(super) fn fill(
    tensor: &Tensor,
    source: &DeviceSource,
    unroll: u32,
    run: &mut impl FnMut(&Tensor, &Part, &Drawn, Schedule) -> Result<()>,
) -> Result<()> {
    check_overlap(tensor, &[])?;
    if tensor.numel() == 0 {
        return Ok(());
    }
    let stored = tensor.as_stored();
    fill_part(&stored, &kernels::whole(&stored), source, unroll, run)?;
    tensor.turn_signs(tensor.signs())
}

fn fill_part(
    tensor: &Tensor,
    part: &Part,
    source: &DeviceSource,
    unroll: u32,
    run: &mut impl FnMut(&Tensor, &Part, &Drawn, Schedule) -> Result<()>,
) -> Result<()> {
    let schedule = Schedule::of(source.device, part.numel, unroll)?;
    let drawn = source.draw(schedule.increment())?;
    if part.is_narrow() {
        return run(tensor, part, &drawn, schedule);
    }
    narrow_parts(part).iter().try_for_each(|part| fill_part(tensor, part, source, unroll, run))
}

/// The parts of one that is too large, in order.
fn narrow_parts(part: &Part) -> Vec<Part> {
    if part.is_narrow() { vec![part.clone()] } else { part.halves().iter().flat_map(narrow_parts).collect() }
}

/// Values that a thread makes of a block of words.
fn unroll(dtype: DType) -> u32 {
    if dtype.to_real() == DType::F64 { 2 } else { 4 }
}

/// Fills a tensor of floats, or the halves of complex numbers: on the host by the law, on a device by the kernels of the
/// distribution.
fn fill_floats(tensor: &Tensor, source: &Source, law: Law, distribution: &Floats) -> Result<()> {
    let source = match source {
        Source::Host(generator) => return host_fill::fill(tensor, generator, law),
        Source::Device(source) => source,
    };
    if is_recorded(tensor, source, *distribution)? {
        return Ok(());
    }
    fill_device_floats(tensor, source, distribution)
}

/// Writes a fill down where a trace is under way. It draws when it runs, so that what it draws follows from what was drawn
/// before.
fn is_recorded(tensor: &Tensor, source: &DeviceSource, distribution: Floats) -> Result<bool> {
    check_overlap(tensor, &[])?;
    let own = source.clone();
    let numbers = distribution.numbers.map(f64::to_bits);
    record::call(source.call, (&[tensor], &[]), source.detail(numbers), move |outputs, _| {
        outputs.iter().try_for_each(|tensor| fill_device_floats(tensor, &own, &distribution))
    })
}

fn fill_device_floats(tensor: &Tensor, source: &DeviceSource, distribution: &Floats) -> Result<()> {
    let real = tensor.halves()?;
    let filled = fill(&real, source, unroll(real.dtype()), &mut |tensor, part, drawn, schedule| {
        kernels::floats(tensor, part, drawn, schedule, distribution)
    });
    filled.of(source.call, &[tensor])?;
    tensor.turn_signs(tensor.signs())
}

impl Tensor {
    /// Returns a view with the parts of complex numbers as a separate dimension; other tensors unchanged. Both are in
    /// memory order.
    ///
    /// # Errors
    /// The number of parts exceeds the largest number of elements of a tensor.
    pub(super) fn halves(&self) -> Result<Self> {
        if !self.dtype().is_complex() {
            return Ok(self.as_stored());
        }
        let mut sizes = Dims::from_slice(self.sizes());
        sizes.push(2);
        let mut strides: Dims = self.strides().iter().map(|stride| stride.saturating_mul(2)).collect();
        strides.push(1);
        let real = self.dtype().to_real();
        Self::view_of(self.storage().clone(), real, sizes, strides, self.storage_offset().saturating_mul(2))
    }

    /// Fills with uniform numbers from `from` up to but without `to` (`uniform_`).
    ///
    /// # Errors
    /// The dtype is no float and not complex, a bound does not fit it or the bounds are the wrong way round, several
    /// elements lie at one place, the generator's error, or the device failed.
    pub fn uniform_(&self, from: f64, to: f64, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "uniform_")?;
        let dtype = self.dtype().to_real();
        check_float(self.dtype(), dtype, "check_uniform_bounds")?;
        check_uniform(from, to, dtype)?;
        let (low, high) = (round(from, dtype), round(to, dtype));
        let range = round(high - low, dtype);
        let distribution = Floats { single: "uniform_single", double: "uniform_double", numbers: [low, range, high] };
        fill_floats(self, &source, Law::Uniform { from, to }, &distribution)?;
        Ok(self)
    }

    /// Fills with normal numbers of a mean and a standard deviation (`normal_`). Complex numbers have the deviation as a
    /// whole, and each half of them has it over the root of two.
    ///
    /// # Errors
    /// The dtype is no float and not complex, `std` is negative, or as for [`Self::uniform_`].
    pub fn normal_(&self, mean: f64, std: f64, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "normal_")?;
        if std.is_nan() || std < 0.0 {
            return Err(refused(format!("normal expects std >= 0.0, but found std {}", number(std))));
        }
        check_float(self.dtype(), self.dtype().to_real(), &kernel(self, "normal_kernel"))?;
        let std = if self.dtype().is_complex() { std / std::f64::consts::SQRT_2 } else { std };
        let numbers = moments(mean, std, self.dtype().to_real());
        fill_floats(
            self,
            &source,
            Law::Normal { mean, std },
            &Floats { single: "normal_single", double: "normal_double", numbers },
        )?;
        Ok(self)
    }

    /// Fills with numbers whose logarithms are normal, of a mean and a standard deviation (`log_normal_`).
    ///
    /// # Errors
    /// The dtype is no float, `std` is not above zero, or as for [`Self::uniform_`].
    pub fn log_normal_(&self, mean: f64, std: f64, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "log_normal_")?;
        if std.is_nan() || std <= 0.0 {
            return Err(refused(format!("log_normal_ expects std > 0.0, but found std={}", number(std))));
        }
        check_float(self.dtype(), self.dtype(), &kernel(self, "log_normal"))?;
        let numbers = moments(mean, std, self.dtype());
        fill_floats(
            self,
            &source,
            Law::LogNormal { mean, std },
            &Floats { single: "log_normal_single", double: "log_normal_double", numbers },
        )?;
        Ok(self)
    }

    /// Fills with numbers of the exponential distribution of a rate (`exponential_`). None of them is zero.
    ///
    /// # Errors
    /// The dtype is no float, the rate is not above zero, or as for [`Self::uniform_`].
    pub fn exponential_(&self, lambda: f64, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "exponential_")?;
        if lambda.is_nan() || lambda <= 0.0 {
            return Err(refused(format!("exponential_ expects lambda > 0.0, but found lambda={}", number(lambda))));
        }
        check_float(self.dtype(), self.dtype(), "exponential_cuda")?;
        let factor = if self.dtype() == DType::F64 { -1.0 / lambda } else { f64::from(-1.0 / single(lambda)) };
        let numbers = [factor, 0.0, 0.0];
        fill_floats(
            self,
            &source,
            Law::Exponential { lambda },
            &Floats { single: "exponential_single", double: "exponential_double", numbers },
        )?;
        Ok(self)
    }

    /// Fills with numbers of the Cauchy distribution of a median and a scale (`cauchy_`).
    ///
    /// # Errors
    /// The dtype is no float, the scale is not above zero, or as for [`Self::uniform_`].
    pub fn cauchy_(&self, median: f64, sigma: f64, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "cauchy_")?;
        if sigma.is_nan() || sigma <= 0.0 {
            return Err(refused(format!("cauchy_ expects sigma > 0.0, but found sigma={}", number(sigma))));
        }
        if !self.dtype().is_floating_point() {
            let name = self.dtype().scalar_type_name().to_ascii_lowercase();
            return Err(refused(format!(
                "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you \
                 specified {name}"
            )));
        }
        refuse_float8(&kernel(self, "cauchy"), self.dtype())?;
        let numbers = [median, sigma, 0.0];
        let numbers = if self.dtype() == DType::F64 { numbers } else { singles(numbers) };
        fill_floats(
            self,
            &source,
            Law::Cauchy { median, sigma },
            &Floats { single: "cauchy_single", double: "cauchy_double", numbers },
        )?;
        Ok(self)
    }

    /// Fills with the number of trials up to the first success, of a probability of success (`geometric_`).
    ///
    /// # Errors
    /// The dtype is bool or complex, the probability is not between 0 and 1, or as for [`Self::uniform_`].
    pub fn geometric_(&self, p: f64, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "geometric_")?;
        if !(0.0 < p && p < 1.0) {
            return Err(refused(format!("geometric_ expects p to be in (0, 1), but got p={}", number(p))));
        }
        if self.dtype().is_complex() || self.dtype() == DType::Bool {
            return Err(not_implemented(&kernel(self, "geometric"), self.dtype()));
        }
        refuse_float8(&kernel(self, "geometric"), self.dtype())?;
        let law = Law::Geometric { p };
        let p = if self.dtype() == DType::F64 { p } else { f64::from(single(p)) };
        let distribution = Floats { single: "geometric_single", double: "geometric_double", numbers: [p, 0.0, 0.0] };
        fill_floats(self, &source, law, &distribution)?;
        Ok(self)
    }

    /// Fills with ones of a probability, and zeros (`bernoulli_`). With a probability of 1 an element is zero once in
    /// about 2^26, as in torch.
    ///
    /// # Errors
    /// The dtype is complex, the probability is not in [0, 1], or as for [`Self::uniform_`].
    pub fn bernoulli_(&self, p: f64, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "bernoulli_")?;
        if !(0.0..=1.0).contains(&p) {
            return Err(refused(format!("bernoulli_ expects p to be in [0, 1], but got p={}", number(p))));
        }
        if self.dtype().is_complex() {
            return Err(not_implemented(&format!("{}_", kernel(self, "bernoulli_scalar")), self.dtype()));
        }
        refuse_float8(&format!("{}_", kernel(self, "bernoulli_scalar")), self.dtype())?;
        let law = Law::Bernoulli { p };
        let p = if self.dtype() == DType::F64 { p } else { f64::from(single(p)) };
        let distribution = Floats { single: "bernoulli_single", double: "bernoulli_double", numbers: [p, 0.0, 0.0] };
        fill_floats(self, &source, law, &distribution)?;
        Ok(self)
    }

    /// Fills with ones, each of its own probability, and zeros (`bernoulli_` of a tensor). The probabilities broadcast
    /// to this tensor. One outside of [0, 1] is reported by the next call that waits for the device
    /// ([`RandomError::Probability`](crate::RandomError::Probability)), and its element left as it was.
    ///
    /// # Errors
    /// The dtype is complex, the probabilities are no floats or do not broadcast, or as for [`Self::uniform_`].
    pub fn bernoulli_of_(&self, p: &Self, generator: Option<&Generator>) -> Result<&Self> {
        if self.signs() != Signs::PLAIN {
            self.as_stored().bernoulli_of_(p, generator)?;
            self.turn_signs(self.signs())?;
            return Ok(self);
        }
        let run = || {
            let source = Source::of(self, generator, "bernoulli_")?;
            if self.numel() == 0 {
                return Ok(self);
            }
            check_overlap(self, &[])?;
            if self.dtype().is_complex() {
                return Err(not_implemented(&format!("{}_self_", kernel(self, "bernoulli_tensor")), self.dtype()));
            }
            refuse_float8(&format!("{}_self_", kernel(self, "bernoulli_tensor")), self.dtype())?;
            check_float(p.dtype(), p.dtype(), &format!("{}_p_", kernel(self, "bernoulli_tensor")))?;
            let p = p.to_device(self.device())?.expand(self.sizes())?;
            let p = if p.storage().is_same(self.storage()) { p.copy()? } else { p.resolved()? };
            let source = match source {
                Source::Host(generator) => {
                    host_fill::fill_by(self, &p, &generator)?;
                    return Ok(self);
                }
                Source::Device(source) => source,
            };
            self.choose_by(&p, &source)?;
            Ok(self)
        };
        run().of("bernoulli_", &[self, p])
    }

    /// Ones of the probabilities `p`, of the same sizes, and zeros.
    fn choose_by(&self, p: &Self, source: &DeviceSource) -> Result<()> {
        let own = source.clone();
        if record::call(source.call, (&[self], &[p]), source.detail([]), move |outputs, inputs| {
            let ([tensor], [p]) = (outputs, inputs) else { return Ok(()) };
            tensor.choose_by(p, &own)
        })? {
            return Ok(());
        }
        let drawn = source.draw(10)?;
        let order = falling(self, p);
        let view = |tensor: &Self| {
            let size = i64::try_from(tensor.element_size()).unwrap_or(1);
            let sizes: Dims = order.iter().rev().map(|&dim| tensor.sizes()[dim]).collect();
            let strides: Dims = order.iter().rev().map(|&dim| tensor.strides()[dim] * size).collect();
            WideView::new(&sizes, &strides)
        };
        kernels::bernoulli_of((self, &view(self)?), (p, &view(p)?), &drawn)
    }

    /// Returns a contiguous tensor of ones and zeros with this tensor's sizes, whose elements here are the
    /// probabilities of a one (`bernoulli`).
    ///
    /// # Errors
    /// As for [`Self::bernoulli_of_`], or there is not enough memory.
    pub fn bernoulli(&self, generator: Option<&Generator>) -> Result<Self> {
        let made = Self::uninitialized(self.sizes(), self.dtype(), self)?;
        made.bernoulli_of_(self, generator)?;
        Ok(made)
    }

    /// Fills with whole numbers from 0 up to the largest that the dtype holds, or up to which a float holds every one
    /// (`random_`).
    ///
    /// # Errors
    /// The dtype is complex, or as for [`Self::uniform_`].
    pub fn random_(&self, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "random_")?;
        let range: u64 = match self.dtype() {
            DType::Bool => 2,
            DType::U8 => 1 << 8,
            DType::I8 => 1 << 7,
            DType::I16 => 1 << 15,
            DType::I32 => 1 << 31,
            DType::I64 => 1 << 63,
            DType::F16 => (1 << 11) + 1,
            DType::BF16 => (1 << 8) + 1,
            DType::F32 => (1 << 24) + 1,
            DType::F64 => (1 << 53) + 1,
            DType::F8E4M3FN | DType::F8E5M2 | DType::C32 | DType::C64 | DType::C128 => {
                return Err(not_implemented(&kernel(self, "random_kernel"), self.dtype()));
            }
        };
        let is_wide = matches!(self.dtype(), DType::I64 | DType::F64);
        fill_integers(self, &source, (is_wide, range, 0))
    }

    /// Fills with whole numbers from 0 up to but without `to` (`random_(to)`).
    ///
    /// # Errors
    /// As for [`Self::random_from_to_`].
    pub fn random_to_(&self, to: i64, generator: Option<&Generator>) -> Result<&Self> {
        self.random_from_to_(0, Some(to), generator)
    }

    /// Fills with whole numbers from `from` up to but without `to` (`random_(from, to)`). Without `to` they go up to the
    /// largest that [`Self::random_`] gives, and with it; from `i64::MIN` on they are any of 64 bits.
    ///
    /// # Errors
    /// The dtype is complex or does not hold the bounds, there is no number between them, or as for [`Self::uniform_`].
    pub fn random_from_to_(&self, from: i64, to: Option<i64>, generator: Option<&Generator>) -> Result<&Self> {
        let source = Source::of(self, generator, "random_")?;
        let dtype = self.dtype();
        if dtype.is_complex() {
            return Err(refused(
                "random_from_to_impl handles only integral, floating-point and boolean types".to_owned(),
            ));
        }
        refuse_float8("random_update_from_to", dtype)?;
        let Some(to) = to else {
            if from == i64::MIN {
                return self.random_any(&source);
            }
            let from = if dtype.is_floating_point() { higher(from, dtype) } else { from };
            let last = last_integer(dtype);
            if dtype.is_floating_point() && from >= last {
                return Err(refused(format!(
                    "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but \
                     got from={from} > to_inc={last}"
                )));
            }
            check_bounds(from, last, dtype)?;
            let range = last.wrapping_sub(from).cast_unsigned().wrapping_add(1);
            return fill_integers(self, &source, (range >= 1 << 28, range, from));
        };
        if from >= to {
            return Err(refused(format!(
                "random_ expects 'from' to be less than 'to', but got from={from} >= to={to}"
            )));
        }
        let (mut first, mut end) = (from, to);
        if dtype.is_floating_point() {
            (first, end) = (higher(from, dtype), lower(to, dtype));
            if first >= end {
                return Err(refused(format!(
                    "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={first} \
                     >= to={end}"
                )));
            }
        }
        check_bounds(first, end - 1, dtype)?;
        let range = end.wrapping_sub(first).cast_unsigned();
        fill_integers(self, &source, (range >= 1 << 28, range, first))
    }

    /// Fills with whole numbers from a source, of a range that the dtype holds.
    pub(super) fn random_from_source(&self, source: &DeviceSource, from: i64, to: i64) -> Result<()> {
        let range = to.wrapping_sub(from).cast_unsigned();
        device_integers(self, source, (range >= 1 << 28, range, from))
    }

    /// Fills with any whole numbers of 64 bits.
    fn random_any(&self, source: &Source) -> Result<&Self> {
        if !matches!(self.dtype(), DType::I64 | DType::F64 | DType::F32 | DType::BF16) {
            let kernel = kernel(self, "random_full_64_bits_range_kernel");
            return Err(refused(format!("{kernel} handles only int64, double, float and bfloat16")));
        }
        fill_integers(self, source, (true, 0, 0))
    }
}

fn fill_integers<'a>(tensor: &'a Tensor, source: &Source, which: (bool, u64, i64)) -> Result<&'a Tensor> {
    match source {
        Source::Host(generator) => {
            let (is_wide, range, from) = which;
            host_fill::fill(tensor, generator, Law::Integers { is_wide, range, from })?;
        }
        Source::Device(source) => device_integers(tensor, source, which)?,
    }
    Ok(tensor)
}

fn device_integers(tensor: &Tensor, source: &DeviceSource, which: (bool, u64, i64)) -> Result<()> {
    let own = source.clone();
    let detail = source.detail([u64::from(which.0), which.1, which.2.cast_unsigned()]);
    let is_recorded = record::call(source.call, (&[tensor], &[]), detail, move |outputs, _| {
        outputs.iter().try_for_each(|tensor| device_integers(tensor, &own, which))
    })?;
    if is_recorded {
        return Ok(());
    }
    fill(tensor, source, if which.0 { 2 } else { 4 }, &mut |tensor, part, drawn, schedule| {
        kernels::integers(tensor, part, drawn, schedule, which)
    })
    .of(source.call, &[tensor])
}

/// The dimensions with falling strides, as far as both tensors agree; those of one element stay where they are.
fn falling(first: &Tensor, second: &Tensor) -> Vec<usize> {
    let mut order: Vec<usize> = (0..first.dim()).collect();
    let size = |dim: usize| first.sizes()[dim];
    for at in 0..order.len() {
        if size(order[at]) == 1 {
            continue;
        }
        for other in at + 1..order.len() {
            if size(order[other]) == 1 {
                continue;
            }
            let rises = |tensor: &Tensor| tensor.strides()[order[at]].cmp(&tensor.strides()[order[other]]);
            let both = [rises(first), rises(second)];
            if both.contains(&std::cmp::Ordering::Less) && !both.contains(&std::cmp::Ordering::Greater) {
                order.swap(at, other);
            }
        }
    }
    order
}

/// The numbers of a normal distribution, as kernels take them for a dtype.
fn moments(mean: f64, std: f64, dtype: DType) -> [f64; 3] {
    if dtype == DType::F64 { [mean, std, 0.0] } else { singles([mean, std, 0.0]) }
}

pub(super) fn refused(text: String) -> crate::base::error::Error {
    RandomError::Parameter(text).into()
}

/// What torch names a kernel of the tensor's device.
fn kernel(tensor: &Tensor, name: &str) -> String {
    format!("{name}_{}", if tensor.is_cuda() { "cuda" } else { "cpu" })
}

fn not_implemented(kernel: &str, dtype: DType) -> crate::base::error::Error {
    TensorError::NotImplemented { kernel: kernel.to_owned(), dtype }.into()
}

/// Checks that a distribution of floats can be stored in the dtype, of which the second one is the real part.
fn check_float(dtype: DType, real: DType, kernel: &str) -> Result<()> {
    if real.is_floating_point() && !real.is_float8() { Ok(()) } else { Err(not_implemented(kernel, dtype)) }
}

fn check_uniform(from: f64, to: f64, dtype: DType) -> Result<()> {
    let (low, high) = (-largest(dtype), largest(dtype));
    let name = dtype.scalar_type_name().to_ascii_lowercase();
    for (value, which) in [(from, "from"), (to, "to")] {
        if !(low..=high).contains(&value) {
            return Err(refused(format!("{which} is out of bounds for {}", cxx_name(dtype, &name))));
        }
    }
    if from > to {
        let (from, to) = (number(from), number(to));
        return Err(refused(format!("uniform_ expects to return a [from, to) range, but found from={from} > to={to}")));
    }
    if to - from > high {
        let (name, from, to) = (dtype.scalar_type_name(), number(from), number(to));
        return Err(refused(format!(
            "uniform_ expects to-from <= std::numeric_limits<{name}>::max(), but found to={to} and from={from} which \
             result in to-from to exceed the limit"
        )));
    }
    Ok(())
}

fn check_bounds(from: i64, last: i64, dtype: DType) -> Result<()> {
    let holds = |value: i64| match dtype {
        DType::Bool => (0..=1).contains(&value),
        DType::U8 => u8::try_from(value).is_ok(),
        DType::I8 => i8::try_from(value).is_ok(),
        DType::I16 => i16::try_from(value).is_ok(),
        DType::I32 => i32::try_from(value).is_ok(),
        #[expect(clippy::cast_precision_loss, reason = "compared as torch compares")]
        DType::F16 => (value as f64).abs() <= largest(dtype),
        _ => true,
    };
    let name = dtype.scalar_type_name().to_ascii_lowercase();
    for (value, which) in [(from, "from"), (last, "to - 1")] {
        if !holds(value) {
            return Err(refused(format!("{which} is out of bounds for {}", cxx_name(dtype, &name))));
        }
    }
    Ok(())
}

/// The name of a dtype's C++ type, as torch's texts have it.
fn cxx_name(dtype: DType, lower: &str) -> &str {
    match dtype {
        DType::U8 => "unsigned char",
        DType::I8 => "signed char",
        DType::I64 => "long int",
        DType::I16 => "short int",
        DType::F16 => "c10::Half",
        DType::BF16 => "c10::BFloat16",
        _ => lower,
    }
}

/// The largest number that a float holds.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// The last number that `random_` gives without an end.
fn last_integer(dtype: DType) -> i64 {
    match dtype {
        DType::Bool => 1,
        DType::U8 => u8::MAX.into(),
        DType::I8 => i8::MAX.into(),
        DType::I16 => i16::MAX.into(),
        DType::I32 => i32::MAX.into(),
        _ if dtype.is_floating_point() => 1 << digits(dtype),
        _ => i64::MAX,
    }
}

/// Binary digits of a float.
fn digits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    }
}

/// A number as a float holds it.
pub(super) fn round(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_f32(single(value)).to_f64(),
        DType::BF16 => half::bf16::from_f32(single(value)).to_f64(),
        DType::F32 => f64::from(single(value)),
        _ => value,
    }
}

/// What becomes of an integer in a float and back.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "that is what is asked")]
fn there_and_back(value: i64, dtype: DType) -> i64 {
    match dtype {
        DType::F64 => value as f64 as i64,
        DType::F32 => value as f32 as i64,
        DType::F16 => half::f16::from_f32(value as f32).to_f32() as i64,
        _ => half::bf16::from_f32(value as f32).to_f32() as i64,
    }
}

/// The next integer from a bound up whose neighbour above is not rounded below it (`update_from`).
fn higher(from: i64, dtype: DType) -> i64 {
    let next = there_and_back(from.wrapping_add(1), dtype);
    if next >= from {
        return from;
    }
    next.wrapping_add(step_at(from.wrapping_add(1), dtype))
}

/// The next integer from a bound down whose neighbour below is not rounded up to it (`update_to`).
fn lower(to: i64, dtype: DType) -> i64 {
    let last = there_and_back(to.wrapping_sub(1), dtype);
    if last < to {
        return to;
    }
    last.wrapping_sub(step_at(to.wrapping_sub(1), dtype))
}

/// The distance of neighbouring floats at an integer.
fn step_at(value: i64, dtype: DType) -> i64 {
    let exponent = value.unsigned_abs().max(1).ilog2();
    1 << (exponent + 1).saturating_sub(digits(dtype))
}

#[expect(clippy::cast_possible_truncation, reason = "the nearest float is meant")]
fn single(value: f64) -> f32 {
    value as f32
}

fn singles(numbers: [f64; 3]) -> [f64; 3] {
    numbers.map(|number| f64::from(single(number)))
}

/// A number as C++ streams write it: six digits, without a needless point.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let exponent = if value == 0.0 || value.is_infinite() { 0.0 } else { value.abs().log10().floor() };
    if value.is_infinite() || !(-5.0..6.0).contains(&exponent) {
        return if value.is_infinite() { format!("{value}") } else { scientific(value) };
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 10")]
    let places = (5.0 - exponent).max(0.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn scientific(value: f64) -> String {
    let text = format!("{value:.5e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_streams_do() {
        for (value, text) in [(-1.0, "-1"), (0.5, "0.5"), (1e-7, "1e-07"), (1234567.0, "1.23457e+06"), (-0.3, "-0.3")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn bounds_move_to_what_a_float_holds() {
        assert_eq!((lower(65504, DType::F16), lower(10, DType::F16)), (65472, 10));
        assert_eq!((higher(-65504, DType::F16), higher((1 << 25) + 1, DType::F32)), (-65504, (1 << 25) + 4));
        assert_eq!(lower(1 << 40, DType::F64), 1 << 40);
    }
}
