//! Computes by candle as any program of its does, and knows nothing of this project: what the device computes is what candle
//! computes on the CPU. `candle-program list` prints the names of what it checks, `candle-program NAME` runs one, and
//! without a word it runs all but `allocator`.
//!
//! `allocator` alone looks at where the memory came from: it reads the figures that the process exports if
//! `TORCH_CUDA_EXPORT=1` is set, in the folder that `TORCH_CUDA_EXPORT_FOLDER` names.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread;

use candle_core::{DType, Device, IndexOp, Tensor, Var, D};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CHECKS: [(&str, fn() -> Result); 10] = [
    ("unary", unary),
    ("binary", binary),
    ("reduce", reduce),
    ("shapes", shapes),
    ("types", types),
    ("windows", windows),
    ("products", products),
    ("training", training),
    ("threads", threads),
    (ALLOCATOR, allocator),
];
const ALLOCATOR: &str = "allocator";

/// Numbers between -2 and 2 that look random, without two that are equal next to each other.
fn numbers(shape: &[usize], seed: u64, device: &Device) -> candle_core::Result<Tensor> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1_u64 << 24) as f32).mul_add(4.0, -2.0)
    };
    let count = shape.iter().product();
    Tensor::from_vec((0..count).map(|_| next()).collect::<Vec<_>>(), shape, device)
}

/// The same computed on the device and the CPU; differences are relative to the greater of 1 and the number.
fn alike(what: &str, bound: f64, compute: impl Fn(&Device) -> candle_core::Result<Tensor>) -> Result {
    let (device, cpu) = (compute(&Device::new_cuda(0)?)?, compute(&Device::Cpu)?);
    if (device.dtype(), device.shape()) != (cpu.dtype(), cpu.shape()) {
        return Err(format!("{what}: {device:?} on the device, {cpu:?} on the CPU").into());
    }
    let values = |tensor: &Tensor| {
        tensor.to_device(&Device::Cpu)?.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()
    };
    let (device, cpu) = (values(&device)?, values(&cpu)?);
    let far = |(one, other): (&f64, &f64)| (one - other).abs() > bound * other.abs().max(1.0) || one.is_nan();
    match device.iter().zip(&cpu).position(far) {
        None => Ok(()),
        Some(place) => {
            Err(format!("{what}: at {place} {} on the device, {} on the CPU", device[place], cpu[place]).into())
        }
    }
}

/// What two ways to compute functions in single precision may differ by.
const CLOSE: f64 = 1e-5;

type Function = fn(&Tensor) -> candle_core::Result<Tensor>;
type Pair = fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>;

fn unary() -> Result {
    let functions: [(&str, Function); 20] = [
        ("exp", Tensor::exp),
        ("sin", Tensor::sin),
        ("cos", Tensor::cos),
        ("tanh", Tensor::tanh),
        ("abs", Tensor::abs),
        ("neg", Tensor::neg),
        ("recip", Tensor::recip),
        ("relu", Tensor::relu),
        ("gelu", Tensor::gelu),
        ("gelu_erf", Tensor::gelu_erf),
        ("erf", Tensor::erf),
        ("silu", Tensor::silu),
        ("sqr", Tensor::sqr),
        ("floor", Tensor::floor),
        ("ceil", Tensor::ceil),
        ("round", Tensor::round),
        ("sign", Tensor::sign),
        ("log", |x| x.abs()?.log()),
        ("sqrt", |x| x.abs()?.sqrt()),
        ("elu", |x| x.elu(0.7)),
    ];
    for (name, function) in functions {
        // Reciprocals of small numbers are large, and their difference with them.
        alike(name, CLOSE, |device| function(&numbers(&[3, 341], 1, device)?))?;
    }
    alike("affine", CLOSE, |device| numbers(&[1000], 1, device)?.affine(3.0, -1.0))?;
    alike("powf", CLOSE, |device| numbers(&[1000], 1, device)?.abs()?.powf(1.5))?;
    alike("of f64", 1e-12, |device| numbers(&[1000], 1, device)?.to_dtype(DType::F64)?.tanh())
}

fn binary() -> Result {
    let functions: [(&str, Pair); 10] = [
        ("add", Tensor::add),
        ("sub", Tensor::sub),
        ("mul", Tensor::mul),
        ("div", |x, y| x.div(&(y.abs()? + 1.0)?)),
        ("maximum", |x, y| x.maximum(y)),
        ("minimum", |x, y| x.minimum(y)),
        ("eq", |x, y| x.round()?.eq(&y.round()?)),
        ("lt", |x, y| x.lt(y)),
        ("ge", |x, y| x.ge(y)),
        ("where", |x, y| x.lt(y)?.where_cond(x, y)),
    ];
    for (name, function) in functions {
        alike(name, CLOSE, |device| function(&numbers(&[7, 143], 1, device)?, &numbers(&[7, 143], 2, device)?))?;
    }
    let parts = |device: &Device| Ok::<_, candle_core::Error>((numbers(&[5, 1, 9], 1, device)?, numbers(&[4, 1], 2, device)?));
    alike("broadcast_add", CLOSE, |device| parts(device).and_then(|(x, y)| x.broadcast_add(&y)))?;
    alike("of transposed", CLOSE, |device| numbers(&[30, 20], 1, device)?.t()? + numbers(&[20, 30], 2, device)?)
}

fn reduce() -> Result {
    let functions: [(&str, Function); 8] = [
        ("sum of rows", |x| x.sum(1)),
        ("sum of columns", |x| x.sum(0)),
        ("sum of all", Tensor::sum_all),
        ("mean", |x| x.mean_keepdim(1)),
        ("max", |x| x.max(1)),
        ("min of columns", |x| x.min(0)),
        ("argmax", |x| x.argmax(1)),
        ("argmin of columns", |x| x.argmin(0)),
    ];
    for (name, function) in functions {
        alike(name, 1e-4, |device| function(&numbers(&[13, 1500], 1, device)?))?;
    }
    alike("softmax", CLOSE, |device| softmax(&numbers(&[11, 77], 3, device)?))?;
    alike("norm", CLOSE, |device| normalized(&numbers(&[11, 77], 3, device)?))
}

fn softmax(x: &Tensor) -> candle_core::Result<Tensor> {
    let exponents = x.broadcast_sub(&x.max_keepdim(D::Minus1)?)?.exp()?;
    exponents.broadcast_div(&exponents.sum_keepdim(D::Minus1)?)
}

fn normalized(x: &Tensor) -> candle_core::Result<Tensor> {
    let around = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    around.broadcast_div(&(around.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?)
}

/// Which rows are meant where rows are chosen.
fn rows(device: &Device) -> candle_core::Result<Tensor> {
    Tensor::new(&[4_u32, 0, 3, 3, 1], device)
}

fn shapes() -> Result {
    let functions: [(&str, Function); 9] = [
        ("transposed", |x| x.t()?.contiguous()),
        ("a part", |x| x.narrow(1, 3, 20)?.contiguous()),
        ("an element", |x| x.i((2, 5))),
        ("joined", |x| Tensor::cat(&[x, &x.neg()?], 1)),
        ("stacked", |x| Tensor::stack(&[x, x, x], 1)),
        ("padded", |x| x.pad_with_zeros(1, 2, 3)),
        ("repeated", |x| x.repeat((2, 3))),
        ("chosen", |x| x.index_select(&rows(x.device())?, 0)),
        ("added at", |x| x.index_add(&rows(x.device())?, &x.narrow(0, 0, 5)?.contiguous()?, 0)),
    ];
    for (name, function) in functions {
        alike(name, 0.0, |device| function(&numbers(&[6, 50], 1, device)?))?;
    }
    alike("gathered", 0.0, |device| {
        let places = (numbers(&[6, 8], 2, device)?.abs()? * 20.0)?.to_dtype(DType::U32)?;
        numbers(&[6, 50], 1, device)?.gather(&places, 1)
    })?;
    alike("sorted", 0.0, |device| numbers(&[6, 50], 1, device)?.sort_last_dim(true).map(|(sorted, _)| sorted))
}

fn types() -> Result {
    for kind in [DType::F64, DType::F16, DType::BF16, DType::I64, DType::U32, DType::U8] {
        alike(kind.as_str(), 0.0, |device| (numbers(&[900], 1, device)?.abs()? * 50.0)?.to_dtype(kind))?;
    }
    for (kind, bound) in [(DType::F16, 2e-3), (DType::BF16, 2e-2), (DType::F64, 1e-12)] {
        alike(kind.as_str(), bound, |device| {
            let x = numbers(&[900], 1, device)?.to_dtype(kind)?;
            (&x * &x)? + x.exp()?
        })?;
    }
    Ok(())
}

fn windows() -> Result {
    alike("conv2d", 1e-4, |device| {
        numbers(&[2, 3, 12, 10], 1, device)?.conv2d(&numbers(&[4, 3, 3, 3], 2, device)?, 1, 2, 1, 1)
    })?;
    alike("conv1d", 1e-4, |device| {
        numbers(&[2, 3, 30], 1, device)?.conv1d(&numbers(&[4, 3, 5], 2, device)?, 2, 1, 1, 1)
    })?;
    alike("avg_pool2d", CLOSE, |device| numbers(&[2, 3, 12, 10], 1, device)?.avg_pool2d(2))?;
    alike("max_pool2d", 0.0, |device| numbers(&[2, 3, 12, 10], 1, device)?.max_pool2d(2))?;
    alike("upsampled", 0.0, |device| numbers(&[2, 3, 6, 5], 1, device)?.upsample_nearest2d(12, 10))
}

fn products() -> Result {
    let product = |one: &[usize], other: &[usize], device: &Device| numbers(one, 1, device)?.matmul(&numbers(other, 2, device)?);
    alike("matmul", 1e-4, |device| product(&[33, 70], &[70, 21], device))?;
    alike("a batch", 1e-4, |device| product(&[4, 9, 17], &[4, 17, 8], device))?;
    alike("of transposed", 1e-4, |device| {
        numbers(&[33, 70], 1, device)?.matmul(&numbers(&[21, 70], 2, device)?.t()?)
    })?;
    alike("attention", 1e-4, |device| {
        let [queries, keys, values] = [1, 2, 3].map(|seed| numbers(&[2, 3, 10, 16], seed, device));
        let weights = softmax(&(queries?.matmul(&keys?.t()?)? * 0.25)?)?;
        weights.matmul(&values?)
    })
}

/// The losses of a small network in steps of gradient descent.
fn losses(device: &Device, steps: usize) -> candle_core::Result<Tensor> {
    let (inputs, wanted) = (numbers(&[32, 24], 1, device)?, numbers(&[32, 4], 2, device)?);
    let weights = |shape: &[usize], seed| Var::from_tensor(&(numbers(shape, seed, device)? * 0.2)?);
    let network = [weights(&[24, 48], 3)?, weights(&[1, 48], 4)?, weights(&[48, 4], 5)?, weights(&[1, 4], 6)?];
    let [first, first_bias, second, second_bias] = &network;
    let mut losses = Vec::new();
    for _ in 0..steps {
        let hidden = normalized(&inputs.matmul(first)?.broadcast_add(first_bias)?)?.gelu()?;
        let loss = (hidden.matmul(second)?.broadcast_add(second_bias)? - &wanted)?.sqr()?.mean_all()?;
        let gradients = loss.backward()?;
        for weights in &network {
            let gradient = gradients.get(weights).expect("each is used");
            weights.set(&(weights.as_tensor() - (gradient * 0.3)?)?)?;
        }
        losses.push(loss);
    }
    Tensor::stack(&losses, 0)
}

fn training() -> Result {
    alike("losses", 1e-4, |device| losses(device, 12))?;
    let fell = losses(&Device::new_cuda(0)?, 12)?.to_vec1::<f32>()?;
    if fell[11] < 0.7 * fell[0] { Ok(()) } else { Err(format!("it learns nothing: {fell:?}").into()) }
}

/// Threads compute at once, each on its default stream; another one reads and drops what they have made.
fn threads() -> Result {
    let device = Device::new_cuda(0)?;
    let work = |seed: u64, device: Device| -> Result<Tensor> {
        let mut sum = numbers(&[100, 50], seed, &device)?;
        for turn in 1..=20 {
            let other = numbers(&[50 + turn, 50], turn as u64, &device)?;
            sum = (sum + other.narrow(0, 0, 50)?.contiguous()?.repeat((2, 1))?)?;
        }
        device.synchronize()?;
        Ok(sum)
    };
    let running: Vec<_> = (0..4).map(|seed| (seed, device.clone())).map(|(seed, device)| thread::spawn(move || work(seed, device))).collect();
    for (seed, running) in running.into_iter().enumerate() {
        let found = running.join().expect("it does not panic")?.flatten_all()?.to_vec1::<f32>()?;
        let wanted = work(seed as u64, Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
        if found != wanted {
            return Err(format!("thread {seed} computed something else").into());
        }
    }
    Ok(())
}

/// The figure of device 0 and all its memory, as the process tells it.
fn figure(text: &str, name: &str) -> Result<u64> {
    let sample = format!("{name}{{device=\"0\",pool=\"all\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(sample.as_str()));
    Ok(value.ok_or_else(|| format!("there is no {name} among the figures"))?.parse()?)
}

/// The figures that this process exports.
fn figures() -> Result<String> {
    let folder = std::env::var("TORCH_CUDA_EXPORT_FOLDER").map_err(|_| "TORCH_CUDA_EXPORT_FOLDER names no folder")?;
    let own = format!("{}-", std::process::id());
    for entry in std::fs::read_dir(&folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&own) {
            let mut text = String::new();
            UnixStream::connect(entry.path())?.read_to_string(&mut text)?;
            return Ok(text);
        }
    }
    Err(format!("this process tells no figures in {folder}").into())
}

fn allocator() -> Result {
    const STEPS: usize = 10;
    let device = Device::new_cuda(0)?;
    let held = losses(&device, STEPS)?;
    device.synchronize()?;
    let during = figures()?;
    let live = figure(&during, "torch_cuda_allocated_bytes")?;
    drop(held);
    device.synchronize()?;
    let after = figures()?;
    let [left, peak, requests, segments, reserved] = [
        "torch_cuda_allocated_bytes",
        "torch_cuda_allocated_bytes_peak",
        "torch_cuda_allocation_increases_total",
        "torch_cuda_segment_increases_total",
        "torch_cuda_reserved_bytes",
    ]
    .map(|name| figure(&after, name));
    let (left, peak, requests, segments, reserved) = (left?, peak?, requests?, segments?, reserved?);
    println!("{requests} requests, of which {segments} went to the driver; {live} bytes live, {left} left, {peak} at most");
    // A step makes 30 tensors at least, and its memory is that of the step before it.
    let stands = requests > 30 * STEPS as u64 && segments < 10 && live > 0 && left == 0 && peak <= reserved;
    if stands { Ok(()) } else { Err("not what an allocator of tensors tells".into()) }
}

fn main() -> Result {
    match std::env::args().nth(1).as_deref() {
        None => CHECKS.iter().filter(|(name, _)| *name != ALLOCATOR).try_for_each(|(name, check)| {
            println!("{name}");
            check()
        }),
        Some("list") => {
            CHECKS.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        Some(asked) => {
            let found = CHECKS.iter().find(|(name, _)| *name == asked);
            found.map_or_else(|| Err(format!("there is no check `{asked}`").into()), |(_, check)| check())
        }
    }
}
