//! Compiled functions beside the same functions called as they are, on a GPU: `compiled [--driver real] [--small]
//! [--only text] [--report]`.
//!
//! For each program: what the first call takes in a process that has loaded a module, what a call takes on the device
//! (many calls between two events) and on the host (many calls without waiting), compiled, compiled with wide intermediates,
//! compiled as a CUDA graph, and eager, in turn. Beside the host's side of calls stands that of the same launches with the
//! same parameters by the raw driver, and of a graph of them, in turn with the others; `above` is what a call takes beyond. Peak is what a compiled call takes of memory beyond what was taken before
//! it. Texts are those that the first call had the driver compile, and the milliseconds beside them what it takes to compile
//! them once more. The last column compares the results. With `CUDA_CACHE_DISABLE=1` and
//! `USE_PYTORCH_KERNEL_CACHE=0` no code is kept from before.
//! The driver is the one that the runtime finds, or that `CUDA_SYS_LIBCUDA` names; `--small` takes small tensors, for a look
//! on the simulated device, and `--only` the programs whose names have the text. `--report` prints what became of each program
//! beneath its row: its kernels, what was fused and what was not, and why.

mod raw;

#[path = "../../../../crates/aten-cuda/tests/common/programs.rs"]
mod programs;

use std::process::ExitCode;
use std::time::Instant;

use aten_cuda::attention::Attention;
use aten_cuda::compile::{CompileMode, CompileOptions, Compiled, Report, compile_with};
use aten_cuda::{DType, Result, Tensor};
use bench::{Failure, device_seconds, host_seconds, median};
use programs::{chain, norm, rms_norm, softmax, squares, twenty};
use raw::Launches;

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Rounds of which the median counts.
const ROUNDS: usize = 7;

/// A program and its arguments.
struct Program {
    name: &'static str,
    function: Function,
    arguments: Vec<Tensor>,
    /// Bytes that one pass over the memory moves.
    bytes: f64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let small = words.iter().any(|word| word == "--small");
    let only = words.iter().skip_while(|word| *word != "--only").nth(1).map_or("", String::as_str);
    let tells = words.iter().any(|word| word == "--report");
    bench::ended(run(small, only, tells).map(|()| true))
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run(small: bool, only: &str, tells: bool) -> std::result::Result<(), Failure> {
    // A module is loaded before anything is measured.
    Tensor::ones(&[16], DType::F32, "cuda")?.add(1)?.to_vec::<f32>()?;
    println!(
        "program | kernels | first ms | texts | lines | their ms | peak MiB | compiled us | wide us | graph us | eager us | GB/s | host: compiled us | \
         raw us | above us | graph us | raw graph us | above us | eager us | largest difference"
    );
    for program in programs(small)?.into_iter().filter(|program| program.name.contains(only)) {
        let (row, report) = measure(&program, if small { 3 } else { 50 })?;
        println!("{row}");
        if tells {
            println!("{report}");
        }
    }
    Ok(())
}

/// The row of a program, and what became of it.
fn measure(program: &Program, calls: u32) -> std::result::Result<(String, Report), Failure> {
    let arguments: Vec<&Tensor> = program.arguments.iter().collect();
    let plain = compile_with(program.function, CompileOptions::default());
    let mut options = CompileOptions::default();
    options.mode = CompileMode::ReduceOverhead;
    let graphed = compile_with(program.function, options);
    let begin = Instant::now();
    let mut first = Vec::new();
    let texts = aten_cuda::kernel_texts(|| {
        first = plain.call(&arguments)?;
        aten_cuda::synchronize(None)
    })?;
    let first_ms = begin.elapsed().as_secs_f64() * 1e3;
    let texts = texts_again(&texts)?;
    for _ in 0..4 {
        plain.call(&arguments)?;
        graphed.call(&arguments)?;
    }
    let eager = (program.function)(&program.arguments)?;
    let difference = difference(&first[0], &eager[0])?;
    drop((first, eager));
    options = CompileOptions::default();
    options.wide_intermediates = true;
    let wide = compile_with(program.function, options);
    for _ in 0..4 {
        wide.call(&arguments)?;
    }
    let by = |compiled: &Compiled| compiled.call(&arguments).map(drop);
    let eager = || (program.function)(&program.arguments).map(drop);
    let ways: [&dyn Fn() -> Result<()>; 4] = [&|| by(&plain), &|| by(&graphed), &eager, &|| by(&wide)];
    let (mut device, mut host, mut raw_host) = (vec![Vec::new(); 4], vec![Vec::new(); 4], [Vec::new(), Vec::new()]);
    let raw = Launches::of(ways[0])?;
    for _ in 0..ROUNDS {
        if let Some(raw) = &raw {
            raw_host[0].push(host_seconds(calls, || raw.launch())? * 1e6);
            raw_host[1].push(host_seconds(calls, || raw.launch_graph())? * 1e6);
        }
        for (way, call) in ways.iter().enumerate() {
            device[way].push(device_seconds(calls, call)? * 1e6);
            host[way].push(host_seconds(calls, call)? * 1e6);
        }
    }
    let [device, host] =
        [device, host].map(|mut all| all.iter_mut().map(|figures| median(figures)).collect::<Vec<f64>>());
    let hosts = host_columns(&host, raw.as_ref().map(|_| raw_host.map(|mut figures| median(&mut figures))));
    let peak = peak_bytes(&|| by(&plain))? as f64 / f64::from(1 << 20);
    let report = plain.report();
    let kernels = report.programs[0].kernels.len();
    let rate = program.bytes / device[0] / 1e3;
    let row = format!(
        "{} | {kernels} | {first_ms:.1} | {texts} | {peak:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {rate:.0} | {hosts} | \
         {difference:.3e}",
        program.name, device[0], device[3], device[1], device[2],
    );
    Ok((row, report))
}

/// What the host does for a call, compiled and as a graph, each beside the raw driver's calls, and eager.
fn host_columns(host: &[f64], raw: Option<[f64; 2]>) -> String {
    let beside = |own: f64, at: usize| match raw {
        Some(raw) => format!("{own:.2} | {:.2} | {:.2}", raw[at], own - raw[at]),
        None => format!("{own:.2} | - | -"),
    };
    format!("{} | {} | {:.2}", beside(host[0], 0), beside(host[1], 1), host[2])
}

/// How many texts and lines there are, and how long the driver takes to compile them.
fn texts_again(texts: &[aten_cuda::KernelText]) -> Result<String> {
    let begin = Instant::now();
    c10_core::Runtime::with_current(|runtime| {
        let device = runtime.current_device()?;
        texts.iter().try_for_each(|text| c10_core::Module::from_ptx(runtime, device, &text.text).map(drop))
    })?;
    let lines: usize = texts.iter().map(|text| text.text.lines().count()).sum();
    Ok(format!("{} | {lines} | {:.1}", texts.len(), begin.elapsed().as_secs_f64() * 1e3))
}

/// The most memory that a call takes beyond what was taken before it.
fn peak_bytes(call: &dyn Fn() -> Result<()>) -> Result<u64> {
    aten_cuda::synchronize(None)?;
    let before = cuda_api::memory_allocated(None)?;
    cuda_api::reset_peak_memory_stats(None)?;
    call()?;
    aten_cuda::synchronize(None)?;
    Ok(cuda_api::max_memory_allocated(None)?.saturating_sub(before))
}

fn difference(first: &Tensor, second: &Tensor) -> Result<f64> {
    first.to_dtype(DType::F32)?.sub(&second.to_dtype(DType::F32)?)?.abs()?.max()?.item().map(|most| most.to_f64())
}

fn programs(small: bool) -> Result<Vec<Program>> {
    let (n, rows, columns): (i64, i64, i64) = if small { (1 << 12, 64, 256) } else { (1 << 26, 16384, 4096) };
    let normal = |sizes: &[i64], dtype| Tensor::randn(sizes, DType::F32, "cuda", None)?.to_dtype(dtype);
    let (x, y) = (normal(&[n], DType::BF16)?, normal(&[n], DType::BF16)?);
    let (wide, weight, bias) =
        (normal(&[rows, columns], DType::BF16)?, normal(&[columns], DType::BF16)?, normal(&[columns], DType::BF16)?);
    let s = normal(&[1024], DType::F32)?;
    let (pass, plane) = ((2 * n) as f64, (2 * rows * columns) as f64);
    let make = |name, function: Function, arguments: &[&Tensor], bytes| Program {
        name,
        function,
        arguments: arguments.iter().map(|&tensor| tensor.clone()).collect(),
        bytes,
    };
    let mut all = vec![
        make("gelu(1.5 x + y) sigmoid(y) - x, bf16", chain, &[&x, &y], 3.0 * pass),
        make("gelu(layer_norm(X)) + X, bf16", norm, &[&wide, &weight, &bias], 2.0 * plane),
        make("softmax(x s + m) from bf16 in f32", softmax, &[&wide, &bias], 3.0 * plane),
        make("rms_norm rows, bf16", rms_norm, &[&wide, &weight], 2.0 * plane),
        make("sum((x - y)^2), bf16", squares, &[&x, &y], 2.0 * pass),
        make("20 small operations on 1024 f32", twenty, &[&s], 8.0 * 1024.0),
    ];
    let (batch, length, width): (i64, i64, i64) = if small { (1, 16, 64) } else { (8, 1024, 768) };
    let mut arguments = vec![normal(&[batch, length, width], DType::BF16)?];
    for _ in 0..if small { 1 } else { 12 } {
        for sizes in [&[width][..], &[width], &[3 * width, width], &[3 * width], &[width, width], &[width]] {
            arguments.push(normal(sizes, DType::F32)?.mul(0.02)?.to_dtype(DType::BF16)?);
        }
        for sizes in [&[width][..], &[width], &[4 * width, width], &[4 * width], &[width, 4 * width], &[width]] {
            arguments.push(normal(sizes, DType::F32)?.mul(0.02)?.to_dtype(DType::BF16)?);
        }
    }
    all.push(Program { name: "12 layers of a GPT block, bf16", function: gpt, arguments, bytes: 0.0 });
    Ok(all)
}

fn gpt(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut state = x[0].clone();
    let sizes = state.sizes().to_vec();
    let (batch, length, width) = (sizes[0], sizes[1], sizes[2]);
    let heads = width / 64;
    for layer in x[1..].chunks_exact(12) {
        let [norm1, shift1, qkv, qkv_bias, out, out_bias, norm2, shift2, up, up_bias, down, down_bias] = layer else {
            continue;
        };
        let inner = state.layer_norm(&[width], Some(norm1), Some(shift1), 1e-5)?;
        let joined = inner.linear(qkv, qkv_bias)?.reshape(&[batch, length, 3, heads, 64])?;
        let part = |at: i64| joined.select(2, at)?.transpose(1, 2);
        let options = Attention { is_causal: true, ..Attention::default() };
        let attended = part(0)?.scaled_dot_product_attention(&part(1)?, &part(2)?, &options)?;
        let attended = attended.transpose(1, 2)?.reshape(&[batch, length, width])?;
        state = state.add(&attended.linear(out, out_bias)?)?;
        let inner = state.layer_norm(&[width], Some(norm2), Some(shift2), 1e-5)?;
        state = state.add(&inner.linear(up, up_bias)?.gelu()?.linear(down, down_bias)?)?;
    }
    Ok(vec![state])
}
