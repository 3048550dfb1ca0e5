//! The rows: what is called, and how much memory or work a call stands for.

use aten_cuda::attention::Attention;
use aten_cuda::{DType, Tensor};

use bench::Failure;

use crate::{BURSTS, raw};

/// A row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Calls of a burst.
    pub(crate) calls: u32,
    /// Makes the tensors.
    pub(crate) prepare: fn(bool) -> Result<Work, Failure>,
}

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Nanoseconds,
    GigabytesPerSecond,
    GigaPerSecond,
    TeraflopPerSecond,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::GigabytesPerSecond => "GB/s",
            Self::GigaPerSecond => "G/s",
            Self::TeraflopPerSecond => "TFLOP/s",
        }
    }
}

/// A call of what an operation is made of.
pub(crate) type Beneath = Box<dyn Fn() -> Result<(), Failure>>;

/// A call with its tensors, and what one call amounts to in bytes or operations.
pub(crate) struct Work {
    pub(crate) amount: f64,
    pub(crate) call: Box<dyn FnMut() -> aten_cuda::Result<Tensor>>,
    /// What is measured in turn with the call, and taken away from it.
    pub(crate) beneath: Option<Beneath>,
}

impl Work {
    pub(crate) fn new(amount: f64, call: impl FnMut() -> aten_cuda::Result<Tensor> + 'static) -> Self {
        Self { amount, call: Box::new(call), beneath: None }
    }
}

/// The rows in the order of the table.
pub(crate) const ROWS: &[Row] = &[
    wide("add f32", |small| {
        let (a, b) = (numbers(small)?, numbers(small)?);
        pointwise(12, small, move || a.add(&b))
    }),
    wide("copy f32", |small| {
        let a = numbers(small)?;
        pointwise(8, small, move || a.copy())
    }),
    wide("fill f32", |small| {
        let a = numbers(small)?;
        pointwise(4, small, move || a.fill_(1.5).cloned())
    }),
    wide("cast f32 to bf16", |small| {
        let a = numbers(small)?;
        pointwise(6, small, move || a.to_dtype(DType::BF16))
    }),
    wide("cast bf16 to f32", |small| {
        let a = numbers(small)?.to_dtype(DType::BF16)?;
        pointwise(6, small, move || a.to_dtype(DType::F32))
    }),
    wide("relu bf16", |small| {
        let a = numbers(small)?.to_dtype(DType::BF16)?;
        pointwise(4, small, move || a.relu())
    }),
    wide("exp f32", |small| {
        let a = numbers(small)?;
        pointwise(8, small, move || a.exp())
    }),
    wide("transposed copy f32", |small| {
        let a = square(small)?;
        pointwise(8, small, move || a.t()?.contiguous())
    }),
    wide("broadcast add f32", |small| {
        let a = square(small)?;
        let row = a.select(0, 0)?.contiguous()?;
        pointwise(8, small, move || a.add(&row))
    }),
    wide("gelu bf16", |small| {
        let a = numbers(small)?.to_dtype(DType::BF16)?;
        pointwise(4, small, move || a.gelu())
    }),
    wide("sum f32", |small| {
        let a = numbers(small)?;
        pointwise(4, small, move || a.sum(None, false, None))
    }),
    wide("softmax rows f32", |small| {
        let a = square(small)?;
        pointwise(8, small, move || a.softmax(-1, None))
    }),
    wide("cumsum f32", |small| {
        let a = numbers(small)?;
        pointwise(8, small, move || a.cumsum(0, None))
    }),
    wide("dropout f32", |small| {
        let a = numbers(small)?;
        pointwise(9, small, move || a.dropout(0.4, true))
    }),
    wide("gather f32", |small| {
        let a = numbers(small)?;
        let places = Tensor::randint(0, a.numel(), &[a.numel() / 8], DType::I64, "cuda", None)?;
        pointwise(2, small, move || a.gather(0, &places))
    }),
    wide("index_add f32", |small| {
        let a = numbers(small)?.view(&[-1, 64])?;
        let rows = a.size(0)?;
        let places = Tensor::randint(0, rows, &[rows / 4], DType::I64, "cuda", None)?;
        let added = a.narrow(0, 0, rows / 4)?.copy()?;
        pointwise(3, small, move || a.index_add_(0, &places, &added, 1).cloned())
    }),
    Row {
        name: "normal f32",
        unit: Unit::GigaPerSecond,
        calls: 5,
        prepare: |small| {
            let a = numbers(small)?;
            samples(small, move || a.normal_(0.0, 1.0, None).cloned())
        },
    },
    Row {
        name: "uniform f32",
        unit: Unit::GigaPerSecond,
        calls: 5,
        prepare: |small| {
            let a = numbers(small)?;
            samples(small, move || a.uniform_(0.0, 1.0, None).cloned())
        },
    },
    Row {
        name: "sort 64 Mi i32",
        unit: Unit::GigaPerSecond,
        calls: 2,
        prepare: |small| {
            let count = if small { 4096 } else { 1 << 26 };
            let a = Tensor::randint(0, 1 << 30, &[count], DType::I32, "cuda", None)?;
            Ok(Work::new(f64::from(1 << 26), move || Ok(a.sort(0, false)?.0)))
        },
    },
    Row {
        name: "topk 64 of 512",
        unit: Unit::GigaPerSecond,
        calls: 2,
        prepare: |small| {
            let count = if small { 16 } else { 1 << 20 };
            let a = Tensor::randn(&[count, 512], DType::F32, "cuda", None)?;
            Ok(Work::new(f64::from(1 << 29), move || Ok(a.topk(64, -1, true)?.0)))
        },
    },
    Row {
        name: "attention bf16 128",
        unit: Unit::TeraflopPerSecond,
        calls: 3,
        prepare: |small| attention(small, 128, false),
    },
    Row {
        name: "attention bf16 128 causal",
        unit: Unit::TeraflopPerSecond,
        calls: 3,
        prepare: |small| attention(small, 128, true),
    },
    Row {
        name: "attention bf16 64",
        unit: Unit::TeraflopPerSecond,
        calls: 3,
        prepare: |small| attention(small, 64, false),
    },
    Row {
        name: "attention bf16 256",
        unit: Unit::TeraflopPerSecond,
        calls: 3,
        prepare: |small| attention(small, 256, false),
    },
    Row {
        name: "small add",
        unit: Unit::Nanoseconds,
        calls: 200,
        prepare: |_| {
            let (a, b) = small_operands()?;
            Ok(Work::new(1.0, move || a.add(&b)))
        },
    },
    Row {
        name: "small add over a raw launch",
        unit: Unit::Nanoseconds,
        calls: 200,
        prepare: |_| {
            let (a, b) = small_operands()?;
            let beneath = raw::Add::new([a.add(&b)?, a.copy()?, b.copy()?])?;
            let beneath: Beneath = Box::new(move || beneath.launch());
            Ok(Work { beneath: Some(beneath), ..Work::new(1.0, move || a.add(&b)) })
        },
    },
    Row { name: "first launch, machine code", unit: Unit::Nanoseconds, calls: 1, prepare: |_| first_calls(&COMMON) },
    Row { name: "first launch, compiled", unit: Unit::Nanoseconds, calls: 1, prepare: |_| first_calls(&RARE) },
    Row {
        name: "empty",
        unit: Unit::Nanoseconds,
        calls: 200,
        prepare: |_| Ok(Work::new(1.0, || Tensor::empty(&[1024], DType::F32, "cuda"))),
    },
];

/// A row on 2 GiB of `f32`.
const fn wide(name: &'static str, prepare: fn(bool) -> Result<Work, Failure>) -> Row {
    Row { name, unit: Unit::GigabytesPerSecond, calls: 5, prepare }
}

/// Elements along one side of a square of them all.
fn side(small: bool) -> i64 {
    if small { 64 } else { 1 << 14 }
}

fn numbers(small: bool) -> Result<Tensor, Failure> {
    let count = side(small) * side(small) * 2;
    Ok(Tensor::randn(&[count], DType::F32, "cuda", None)?)
}

fn square(small: bool) -> Result<Tensor, Failure> {
    Ok(numbers(small)?.view(&[side(small) * 2, side(small)])?)
}

#[expect(clippy::cast_precision_loss, clippy::unnecessary_wraps, reason = "counts of bytes; the rows' shape")]
fn pointwise(
    bytes: i64,
    small: bool,
    call: impl FnMut() -> aten_cuda::Result<Tensor> + 'static,
) -> Result<Work, Failure> {
    Ok(Work::new((bytes * side(small) * side(small) * 2) as f64, call))
}

/// A row that counts elements.
fn samples(small: bool, call: impl FnMut() -> aten_cuda::Result<Tensor> + 'static) -> Result<Work, Failure> {
    pointwise(1, small, call)
}

/// Operations whose kernels are there as machine code, and others that the driver has to compile. No other row uses one,
/// and each is called once: ten bursts are one to warm up and those that are measured.
const COMMON: [fn(&Tensor) -> aten_cuda::Result<Tensor>; BURSTS + 1] = [
    Tensor::neg,
    Tensor::abs,
    Tensor::log,
    Tensor::sqrt,
    Tensor::rsqrt,
    Tensor::sin,
    Tensor::cos,
    Tensor::tanh,
    Tensor::sigmoid,
    Tensor::silu,
];
const RARE: [fn(&Tensor) -> aten_cuda::Result<Tensor>; BURSTS + 1] = [
    Tensor::sinh,
    Tensor::cosh,
    Tensor::asin,
    Tensor::acos,
    Tensor::atan,
    Tensor::expm1,
    Tensor::log1p,
    Tensor::exp2,
    Tensor::log2,
    Tensor::log10,
];

fn first_calls(operations: &'static [fn(&Tensor) -> aten_cuda::Result<Tensor>]) -> Result<Work, Failure> {
    let (a, _) = small_operands()?;
    let mut next = operations.iter();
    Ok(Work::new(1.0, move || next.next().map_or_else(|| a.copy(), |operation| operation(&a))))
}

/// Two tensors whose sum takes the device no time worth counting.
fn small_operands() -> Result<(Tensor, Tensor), Failure> {
    let ones = || Tensor::ones(&[1024], DType::F32, "cuda");
    Ok((ones()?, ones()?))
}

/// Attention of 8 Ki queries and keys, in 2 batches of 16 heads. With a causal mask half of the work counts.
#[expect(clippy::cast_precision_loss, reason = "counts of operations")]
fn attention(small: bool, width: i64, is_causal: bool) -> Result<Work, Failure> {
    let rows = if small { 96 } else { 8192 };
    let normal = || Tensor::randn(&[2, 16, rows, width], DType::BF16, "cuda", None);
    let (query, key, value) = (normal()?, normal()?, normal()?);
    let work = 4.0 * 32.0 * (rows * rows * width) as f64;
    let options = Attention { is_causal, ..Attention::default() };
    Ok(Work::new(if is_causal { work / 2.0 } else { work }, move || {
        query.scaled_dot_product_attention(&key, &value, &options)
    }))
}
