//! Distributions that fill host tensors.
//!
//! **Invariants:** elements are drawn in the order of memory, as many words for each as torch draws; floats round where
//! torch rounds. A tensor of no elements draws nothing.

use c10_core::host_memory;
use half::{bf16, f16};

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::random::fill::round;
use crate::random::host::{Engine, HostGenerator};
use crate::random::host_normal::{pair_of_doubles, pair_of_halves, pair_of_singles};
use crate::tensor::{Places, Tensor, check_overlap};

/// A distribution.
#[derive(Clone, Copy, Debug)]
pub(super) enum Law {
    Uniform {
        from: f64,
        to: f64,
    },
    Normal {
        mean: f64,
        std: f64,
    },
    LogNormal {
        mean: f64,
        std: f64,
    },
    Exponential {
        lambda: f64,
    },
    Cauchy {
        median: f64,
        sigma: f64,
    },
    Geometric {
        p: f64,
    },
    Bernoulli {
        p: f64,
    },
    /// Words of 64 or 32 bits modulo a range, 0 for all of them, from a number on.
    Integers {
        is_wide: bool,
        range: u64,
        from: i64,
    },
}

/// An element before it has its dtype.
#[derive(Clone, Copy, Debug)]
enum Number {
    Float(f64),
    Int(i64),
}

/// How many elements are made at once of as many uniform numbers, where normal numbers fill contiguous memory.
const BLOCK: usize = 16;

/// Fills a tensor; complex numbers as pairs.
pub(super) fn fill(tensor: &Tensor, generator: &HostGenerator, law: Law) -> Result<()> {
    check_overlap(tensor, &[])?;
    let real = tensor.halves()?;
    let count = usize::try_from(real.numel()).unwrap_or(0);
    let mut engine = generator.lock();
    match law {
        Law::Normal { mean, std } if count >= BLOCK && real.is_contiguous() => {
            let mut numbers = normal_blocks(&mut engine, real.dtype(), count, [mean, std])?.into_iter();
            put(&real, |_| numbers.next().map_or(Number::Int(0), Number::Float))?;
        }
        _ => put(&real, |dtype| draw(&mut engine, law, dtype))?,
    }
    tensor.turn_signs(tensor.signs())
}

/// Fills a tensor with ones, each of its own probability, and zeros. Both have the same sizes.
pub(super) fn fill_by(tensor: &Tensor, p: &Tensor, generator: &HostGenerator) -> Result<()> {
    check_overlap(tensor, &[])?;
    let order = falling(tensor);
    let mut engine = generator.lock();
    let is_double = p.dtype() == DType::F64;
    let p: Vec<f64> = permuted(p, &order)?.to_dtype(DType::F64)?.contiguous()?.to_vec()?;
    let mut p = p.into_iter();
    put(tensor, |_| {
        let p = p.next().unwrap_or_default();
        let drawn = if is_double { engine.double() } else { engine.single(24).into() };
        Number::Int((drawn < p).into())
    })
}

/// The numbers below the length of a contiguous tensor of `i64`, in random order.
pub(super) fn permute(tensor: &Tensor, generator: &HostGenerator) -> Result<()> {
    let mut engine = generator.lock();
    let mut numbers: Vec<i64> = host_memory::collected(usize::try_from(tensor.numel()).unwrap_or(0), 0..)?;
    let is_wide = numbers.len() as u64 >= u64::from(u32::MAX / 20);
    for at in 0..numbers.len().saturating_sub(1) {
        let word = if is_wide { engine.wide_word() } else { engine.word().into() };
        #[expect(clippy::cast_possible_truncation, reason = "below the length")]
        let other = at + (word % (numbers.len() - at) as u64) as usize;
        numbers.swap(at, other);
    }
    let mut numbers = numbers.into_iter();
    put(tensor, |_| Number::Int(numbers.next().unwrap_or_default()))
}

/// The dimensions with falling strides: row-major order over them is the order of memory.
fn falling(tensor: &Tensor) -> Vec<i64> {
    let mut order: Vec<usize> = (0..tensor.dim()).collect();
    order.sort_by_key(|&dim| std::cmp::Reverse(tensor.strides()[dim]));
    order.into_iter().map(|dim| i64::try_from(dim).unwrap_or(0)).collect()
}

fn permuted(tensor: &Tensor, order: &[i64]) -> Result<Tensor> {
    tensor.permute(order)
}

/// Sets the elements, in the order of memory, to what is made for each.
fn put(tensor: &Tensor, mut make: impl FnMut(DType) -> Number) -> Result<()> {
    let (dtype, size) = (tensor.dtype(), tensor.element_size());
    let order = falling(tensor);
    let of = |list: &[i64]| -> Dims { order.iter().map(|&dim| list[usize::try_from(dim).unwrap_or(0)]).collect() };
    let (sizes, strides) = (of(tensor.sizes()), of(tensor.strides()));
    let mut bytes = tensor.plain_storage()?.host_mut()?;
    for place in Places::new(&sizes, &strides) {
        let at = tensor.byte_offset() + place * size;
        write(&mut bytes[at..at + size], dtype, make(dtype));
    }
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number is cut to its dtype, as torch does"
)]
#[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
fn write(bytes: &mut [u8], dtype: DType, number: Number) {
    let float = || match number {
        Number::Float(value) => value,
        Number::Int(value) => value as f64,
    };
    // An integer becomes a single at once.
    let single = || match number {
        Number::Float(value) => value as f32,
        Number::Int(value) => value as f32,
    };
    let int = match number {
        Number::Float(value) => value as i64,
        Number::Int(value) => value,
    };
    match dtype {
        DType::Bool => bytes[0] = u8::from(int != 0),
        DType::U8 => bytes[0] = int as u8,
        DType::I8 => bytes.copy_from_slice(&(int as i8).to_le_bytes()),
        DType::I16 => bytes.copy_from_slice(&(int as i16).to_le_bytes()),
        DType::I32 => bytes.copy_from_slice(&(int as i32).to_le_bytes()),
        DType::I64 => bytes.copy_from_slice(&int.to_le_bytes()),
        DType::F16 => bytes.copy_from_slice(&f16::from_f32(single()).to_le_bytes()),
        DType::BF16 => bytes.copy_from_slice(&bf16::from_f32(single()).to_le_bytes()),
        DType::F32 => bytes.copy_from_slice(&single().to_le_bytes()),
        // Floats of 8 bits are refused before.
        DType::F8E4M3FN | DType::F8E5M2 => {}
        // Complex numbers are filled as pairs of their parts.
        DType::F64 | DType::C32 | DType::C64 | DType::C128 => bytes.copy_from_slice(&float().to_le_bytes()),
    }
}

fn draw(engine: &mut Engine, law: Law, dtype: DType) -> Number {
    Number::Float(match law {
        Law::Uniform { from, to } => uniform(engine, dtype, from, to),
        Law::Normal { mean, std } => engine.normal().mul_add(std, mean),
        Law::LogNormal { mean, std } => engine.normal().mul_add(std, mean).exp(),
        Law::Exponential { lambda } => -1.0 / lambda * (-engine.double()).ln_1p(),
        Law::Cauchy { median, sigma } => {
            // The tangent is finite: its argument keeps away from the poles.
            let part = engine.double().clamp(f64::EPSILON, 1.0 - f64::EPSILON);
            (std::f64::consts::PI * (part - 0.5)).tan().mul_add(sigma, median)
        }
        Law::Geometric { p } => (engine.double().ln() / (-p).ln_1p()).ceil(),
        Law::Bernoulli { p } => return Number::Int((engine.double() < p).into()),
        Law::Integers { is_wide, range, from } => {
            let word = if is_wide { engine.wide_word() } else { engine.word().into() };
            let word = if range == 0 { word } else { word % range };
            return Number::Int(word.wrapping_add(from.cast_unsigned()).cast_signed());
        }
    })
}

/// Computed in the dtype, of half types in `f32`.
#[expect(clippy::cast_possible_truncation, reason = "the numbers are rounded before")]
fn uniform(engine: &mut Engine, dtype: DType, from: f64, to: f64) -> f64 {
    let (from, to) = (round(from, dtype), round(to, dtype));
    let range = round(to - from, dtype);
    match dtype {
        DType::F64 => engine.double().mul_add(range, from),
        _ => engine.single(digits(dtype)).mul_add(range as f32, from as f32).into(),
    }
}

fn digits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => f16::MANTISSA_DIGITS,
        DType::BF16 => bf16::MANTISSA_DIGITS,
        _ => f32::MANTISSA_DIGITS,
    }
}

/// Normal numbers for contiguous memory: of a block of uniform numbers the first half are lengths and the second half
/// angles. The last block is drawn again where the blocks leave a rest.
fn normal_blocks(engine: &mut Engine, dtype: DType, count: usize, [mean, std]: [f64; 2]) -> Result<Vec<f64>> {
    let mut uniform = || match dtype {
        DType::F64 => engine.double(),
        _ => engine.single(digits(dtype)).into(),
    };
    let mut numbers: Vec<f64> = host_memory::collected(count, std::iter::repeat_with(&mut uniform))?;
    let [mean, std] = [round(mean, dtype), round(std, dtype)];
    let pair = match dtype {
        DType::F64 => pair_of_doubles,
        DType::F32 => pair_of_singles,
        DType::F16 => pair_of_halves::<true>,
        _ => pair_of_halves::<false>,
    };
    let mut normalise = |block: &mut [f64]| {
        let (lengths, angles) = block.split_at_mut(BLOCK / 2);
        for (length, angle) in lengths.iter_mut().zip(angles) {
            [*length, *angle] = pair([*length, *angle], mean, std);
        }
    };
    numbers.chunks_exact_mut(BLOCK).for_each(&mut normalise);
    if !count.is_multiple_of(BLOCK) {
        let last = &mut numbers[count - BLOCK..];
        last.fill_with(&mut uniform);
        normalise(last);
    }
    Ok(numbers)
}

/// Categories of rows of probabilities, so many of each row: of a uniform number the first category up to which the
/// probabilities sum to no less. They are summed in the dtype, of half types in `f32`.
#[expect(clippy::cast_possible_truncation, reason = "sums of singles")]
pub(super) fn sample(
    p: &[f64],
    columns: usize,
    samples: usize,
    is_double: bool,
    generator: &HostGenerator,
) -> Result<Vec<i64>> {
    let mut engine = generator.lock();
    let rows = p.len().div_ceil(columns.max(1));
    let mut drawn = host_memory::with_capacity(rows.saturating_mul(samples))?;
    for row in p.chunks(columns.max(1)) {
        let rounded = |value: f64| if is_double { value } else { f64::from(value as f32) };
        let mut sum = 0.0;
        let mut shares: Vec<f64> = host_memory::copied(row)?;
        for share in &mut shares {
            sum = rounded(sum + *share);
            *share = sum;
        }
        shares.iter_mut().for_each(|share| *share = rounded(*share / sum));
        drawn.extend((0..samples).map(|_| {
            let number = engine.double();
            i64::try_from(shares.partition_point(|share| *share < number).min(columns - 1)).unwrap_or(0)
        }));
    }
    Ok(drawn)
}
