//! How fast the simulated GPU runs kernels: `kernels [--peer OURS.so:OTHER.so] [--seconds S] [--only NAME]`.
//!
//! Each kernel runs on one thread, decoded once. A row says millions of thread instructions a second: with the least x86-64
//! processor's instructions, with those of 256 bits, and with these while races are looked for. With `--peer`, the paths of
//! two builds of the simulated driver, each kernel also runs through the driver's interface of both in turn, and the row has
//! the other's time over ours.

#![deny(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints")]

mod peer;
mod programs;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use programs::{WORKLOADS, Workload, text};
use ptx_sim::{Checks, Failure, FlatMemory, Launch, Limits, Module, Program, run};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Bytes of each of the three arrays.
pub(crate) const BYTES: usize = 4 << 20;

/// Where the arrays begin.
const BASE: u64 = 1 << 32;

/// What the texts are read for.
pub(crate) const LIMITS: Limits = Limits { version: 90, target: 90 };

/// The bytes of the parameters.
fn parameters(base: u64, n: u32) -> Vec<u8> {
    let arrays = (0..3).map(|index| base + index * BYTES as u64);
    arrays.flat_map(u64::to_le_bytes).chain(n.to_le_bytes()).collect()
}

fn launch<'k>(workload: &Workload, program: &'k Program, parameters: &'k [u8], how: How) -> Launch<'k> {
    let sizes = ([workload.blocks, 1, 1], [workload.threads, 1, 1]);
    Launch {
        warp_steps: u64::MAX,
        all_steps: u64::MAX,
        parts_warps: false,
        wide: how != How::Narrow,
        checks: if how == How::Checked { Checks::ALL } else { Checks::default() },
        ..Launch::new(program, 0, sizes.0, sizes.1, parameters)
    }
}

/// How a kernel is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// With the instructions of the least processor.
    Narrow,
    /// With those of 256 bits.
    Wide,
    /// The same, and races are looked for.
    Checked,
}

/// Thread instructions of a launch, and the seconds of the median launch.
fn measure(workload: &Workload, program: &Program, how: How, budget: Duration) -> Result<(u64, f64), Failure> {
    let mut bytes = vec![0x3A_u8; BYTES * 3];
    let mut memory = FlatMemory::new(BASE, &mut bytes);
    let parameters = parameters(BASE, workload.n);
    let (mut times, mut steps) = (Vec::new(), 0);
    let begin = Instant::now();
    while times.len() < 3 || begin.elapsed() < budget {
        let start = Instant::now();
        let (outcome, ran) = run(launch(workload, program, &parameters, how), &mut memory);
        ran?;
        times.push(start.elapsed().as_secs_f64());
        steps = outcome.steps;
    }
    times.sort_by(f64::total_cmp);
    Ok((steps, times[times.len() / 2]))
}

fn row(workload: &Workload, budget: Duration, other: Option<&peer::Pair>) -> Outcome<String> {
    let program = Program::new(Module::read(&text(workload), LIMITS)?);
    let failed = |failure: Failure| format!("{}: {} at {:?}", workload.name, failure.fault, failure.at.source);
    let (steps, narrow) = measure(workload, &program, How::Narrow, budget).map_err(failed)?;
    let (_, wide) = measure(workload, &program, How::Wide, budget).map_err(failed)?;
    let (_, checked) = measure(workload, &program, How::Checked, budget).map_err(failed)?;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let rate = |count: u64, seconds: f64| count as f64 / seconds / 1e6;
    let flops = workload.flops * u64::from(workload.blocks) * u64::from(workload.threads);
    let mut line =
        format!("{:<20} {:>9.0} {:>9.0} {:>8.2}", workload.name, rate(steps, narrow), rate(steps, wide), narrow / wide);
    line += &format!(" {:>8.1} {:>9.0}", rate(flops, wide) / 1e3, rate(steps, checked));
    if let Some(pair) = other {
        line += &pair.ratio(workload, budget)?;
    }
    Ok(line)
}

fn everything() -> Outcome {
    let (mut budget, mut other, mut only) = (Duration::from_millis(500), None, String::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--seconds" => budget = Duration::from_secs_f64(value.parse()?),
            "--peer" => other = Some(peer::Pair::load(&value)?),
            "--only" => only = value,
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    println!(
        "{:<20} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "M instructions/s", "x86-64", "256 bits", "ratio", "GFLOP/s", "checked"
    );
    for workload in WORKLOADS.iter().filter(|workload| workload.name.contains(&only)) {
        println!("{}", row(workload, budget, other.as_ref())?);
    }
    Ok(())
}

fn main() -> ExitCode {
    bench::ended(everything().map(|()| true))
}
