//! Functions of expressions beside the operations of tensors, on a GPU: `expression [--driver real] [--small] [--json]`.
//!
//! Prints what a first call takes, whose kernel the driver compiles (with `CUDA_CACHE_DISABLE=1` it keeps nothing from before),
//! what the host needs for a small call, and how many bytes a second a large call reads and writes. Each stands beside
//! the operations of tensors that do the same, measured in turn. The driver is the one that the runtime finds, or that
//! `CUDA_SYS_LIBCUDA` names; `--small` takes small tensors, for a look on the simulated device.

use std::process::ExitCode;
use std::time::Instant;

use aten_cuda::expression::JitFunction;
use aten_cuda::{DType, Tensor};
use bench::{Failure, device_seconds, host_seconds, median};

/// Bursts of a row, of which the median counts.
const BURSTS: usize = 9;

/// Calls of a burst of small calls.
const CALLS: u32 = 1000;

/// Functions whose first calls are measured: each has numbers of its own, so that no kernel is known.
const FIRST: usize = 5;

/// Elements of the tensors of small calls.
const FEW: i64 = 1024;

/// A line of the output.
struct Row {
    name: &'static str,
    unit: &'static str,
    ours: f64,
    /// The operations of tensors; nothing where they have no such thing.
    eager: Option<f64>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    bench::ended(options(&words).and_then(|(small, json)| run(small, json)).map(|()| true))
}

/// Whether small tensors and JSON are asked for.
fn options(words: &[String]) -> Result<(bool, bool), Failure> {
    let (mut small, mut json) = (false, false);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--small" => small = true,
            "--json" => json = true,
            "--driver" if words.next() == Some("real") => {}
            "--driver" => return Err("--driver takes real; another one is named by CUDA_SYS_LIBCUDA".into()),
            _ => return Err(format!("there is no option {word}").into()),
        }
    }
    Ok((small, json))
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run(small: bool, json: bool) -> Result<(), Failure> {
    let mut rows = first_calls()?;
    rows.extend(small_calls()?);
    rows.extend(large_calls(if small { 1 << 16 } else { 1 << 28 })?);
    if json {
        let one = |row: &Row| {
            let eager = row.eager.map_or_else(|| "null".to_owned(), |eager| format!("{eager:.3}"));
            format!(
                "{{\"name\":\"{}\",\"unit\":\"{}\",\"ours\":{:.3},\"eager\":{eager}}}",
                row.name, row.unit, row.ours
            )
        };
        println!("[{}]", rows.iter().map(one).collect::<Vec<_>>().join(","));
        return Ok(());
    }
    println!("{:<44} {:>12} {:>12} {:>6}", "", "ours", "operations", "");
    for row in rows {
        let eager = row.eager.map_or_else(|| "-".to_owned(), |eager| format!("{eager:.2}"));
        println!("{:<44} {:>12.2} {eager:>12} {:>6}", row.name, row.ours, row.unit);
    }
    Ok(())
}

/// A function of 20 operations, whose numbers differ with that of the function.
fn long_text(number: usize) -> String {
    let mut text = "long(x, y) = ".to_owned();
    let mut last = "x".to_owned();
    for step in 0..5 {
        let factor = 7 * number + step + 1;
        text += &format!("let t{step} = tanh({last} * {factor}.5 + y) + abs(x); ");
        last = format!("t{step}");
    }
    text + &last
}

/// Milliseconds from a text to the end of its first kernel, after the process has loaded another module.
fn first_calls() -> Result<Vec<Row>, Failure> {
    let tensor = Tensor::ones(&[FEW], DType::F32, "cuda")?;
    tensor.add(&tensor)?;
    cuda_api::synchronize(None)?;
    let first = |text: String| -> Result<f64, Failure> {
        let begin = Instant::now();
        let function = JitFunction::parse(&text)?;
        function.one(&vec![&tensor; function.inputs()])?;
        cuda_api::synchronize(None)?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    let short = (0..FIRST).map(|number| first(format!("short(x, y) = x * y + {number}.25 * x")));
    let short = short.collect::<Result<Vec<_>, _>>()?;
    let long = (0..FIRST).map(|number| first(long_text(number))).collect::<Result<Vec<_>, _>>()?;
    let row = |name, mut figures: Vec<f64>| Row { name, unit: "ms", ours: median(&mut figures), eager: None };
    Ok(vec![row("first call, x * y + a * x", short), row("first call, 20 operations", long)])
}

/// Microseconds that the host needs for a call, allocation included.
fn host_time(call: impl FnMut() -> aten_cuda::Result<()>) -> Result<f64, Failure> {
    Ok(host_seconds(CALLS, call)? * 1e6)
}

fn small_calls() -> Result<Vec<Row>, Failure> {
    let (x, y) = (Tensor::ones(&[FEW], DType::F32, "cuda")?, Tensor::ones(&[FEW], DType::F32, "cuda")?);
    let (sum, fused) = (JitFunction::parse("f(x, y) = x + y")?, JitFunction::parse("f(x, y, a=2.0) = x * y + a * x")?);
    let chain = JitFunction::parse(&long_text(0))?;
    let mut figures: [[Vec<f64>; 2]; 3] = Default::default();
    for _ in 0..BURSTS {
        let [adds, products, chains] = &mut figures;
        adds[0].push(host_time(|| sum.one(&[&x, &y]).map(drop))?);
        adds[1].push(host_time(|| x.add(&y).map(drop))?);
        products[0].push(host_time(|| fused.one_with(&[&x, &y], &[3.0.into()]).map(drop))?);
        products[1].push(host_time(|| x.mul(&y)?.add(&x.mul(3.0)?).map(drop))?);
        chains[0].push(host_time(|| chain.one(&[&x, &y]).map(drop))?);
        chains[1].push(host_time(|| long_eager(&x, &y).map(drop))?);
    }
    let names = ["small call, x + y", "small call, x * y + a * x", "small call, 20 operations"];
    let row = |(name, [mut ours, mut eager]): (_, [Vec<f64>; 2])| Row {
        name,
        unit: "us",
        ours: median(&mut ours),
        eager: Some(median(&mut eager)),
    };
    Ok(names.into_iter().zip(figures).map(row).collect())
}

/// What the first long function computes, by operations of tensors.
fn long_eager(x: &Tensor, y: &Tensor) -> aten_cuda::Result<Tensor> {
    let mut last = x.clone();
    for step in 0..5 {
        last = last.mul(f64::from(step) + 1.5)?.add(y)?.tanh()?.add(&x.abs()?)?;
    }
    Ok(last)
}

/// Gigabytes a second of calls on tensors of so many `f32`: two are read and one is written.
fn large_calls(count: i64) -> Result<Vec<Row>, Failure> {
    let (x, y) = (Tensor::ones(&[count], DType::F32, "cuda")?, Tensor::ones(&[count], DType::F32, "cuda")?);
    let sum = JitFunction::parse("f(x, y) = x + y")?;
    let fused = JitFunction::parse("f(x, y, a=2.0) = x * y + a * x")?;
    let chain = JitFunction::parse(&long_text(0))?;
    let mut figures: [[Vec<f64>; 2]; 3] = Default::default();
    #[expect(clippy::cast_precision_loss, reason = "a number of bytes is far below 2^53")]
    let gigabytes = 12.0 * count as f64 * 1e-9;
    for burst in 0..=BURSTS {
        let rate =
            |call: &dyn Fn() -> aten_cuda::Result<()>| device_seconds(1, call).map(|seconds| gigabytes / seconds);
        let measured = [
            [rate(&|| sum.one(&[&x, &y]).map(drop))?, rate(&|| x.add(&y).map(drop))?],
            [rate(&|| fused.one(&[&x, &y]).map(drop))?, rate(&|| x.mul(&y)?.add(&x.mul(2.0)?).map(drop))?],
            [rate(&|| chain.one(&[&x, &y]).map(drop))?, rate(&|| long_eager(&x, &y).map(drop))?],
        ];
        // The first burst compiles and warms up.
        if burst > 0 {
            for (all, pair) in figures.iter_mut().zip(measured) {
                all.iter_mut().zip(pair).for_each(|(all, figure)| all.push(figure));
            }
        }
    }
    let names = ["large call, x + y", "large call, x * y + a * x", "large call, 20 operations"];
    let row = |(name, [mut ours, mut eager]): (_, [Vec<f64>; 2])| Row {
        name,
        unit: "GB/s",
        ours: median(&mut ours),
        eager: Some(median(&mut eager)),
    };
    Ok(names.into_iter().zip(figures).map(row).collect())
}
