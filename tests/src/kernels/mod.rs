//! Kernels in CUDA C++ (`tests/kernels`), compiled to PTX, run on a driver and compared with plain Rust.
//!
//! The folder given holds a folder for each compiler and architecture, with `NAME.ptx` for each `NAME.cu`. Each case runs on
//! each of them, on the simulated driver under several seeds with a machine of its own. On the simulated machine nothing may
//! be reported but what a case provokes; under the first seed everything is looked for that can be.

mod atomics;
mod cast;
mod control;
mod device;
mod elementwise;
mod halves;
mod integers;
mod math;
mod matmul;
mod mma;
mod numbers;
mod planted;
mod random;
mod rows;
mod scan;
mod shared;
mod sort;
mod warp;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use c10_core::{DeviceIndex, Module, Runtime};
use testkit::{Config, KernelChecks, Machine, Simulation};

use self::device::{Answer, Device};
use crate::program::say;

/// A comparison of some kernels of a file with plain Rust.
struct Case {
    /// The file of the kernels, without its ending.
    file: &'static str,
    name: &'static str,
    run: fn(&Device<'_>) -> Answer,
    /// The oldest architecture that has these kernels.
    least: u32,
    /// Whether the kernel fails on purpose, after which a real device's process is of no use.
    fails: bool,
    /// Whether threads read without order what others change by atomics, as the CUDA guide does before a loop of
    /// `atomicCAS`: that is a race, though a harmless one.
    races: bool,
}

impl Case {
    const fn new(file: &'static str, name: &'static str, run: fn(&Device<'_>) -> Answer) -> Self {
        Self { file, name, run, least: 0, fails: false, races: false }
    }

    const fn since(self, least: u32) -> Self {
        Self { least, ..self }
    }

    const fn that_fails(self) -> Self {
        Self { fails: true, ..self }
    }

    const fn that_races(self) -> Self {
        Self { races: true, ..self }
    }
}

const CASES: [&[Case]; 16] = [
    elementwise::CASES,
    cast::CASES,
    halves::CASES,
    shared::CASES,
    rows::CASES,
    scan::CASES,
    random::CASES,
    sort::CASES,
    atomics::CASES,
    warp::CASES,
    integers::CASES,
    control::CASES,
    matmul::CASES,
    mma::CASES,
    math::CASES,
    planted::CASES,
];

/// The driver to run on.
enum Arm {
    Simulated { seeds: u64 },
    Real,
    Shared(PathBuf),
}

/// What the command line asks for.
struct Options {
    folder: PathBuf,
    arm: Arm,
    filter: String,
}

impl Options {
    fn parse(arguments: Vec<String>) -> Result<Self, String> {
        let mut options = Self { folder: PathBuf::new(), arm: Arm::Simulated { seeds: 3 }, filter: String::new() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            match (argument.as_str(), value.as_str()) {
                ("--folder", _) => options.folder = PathBuf::from(value),
                ("--filter", _) => options.filter = value,
                ("--seeds", _) => options.arm = Arm::Simulated { seeds: value.parse().map_err(|_| "no number")? },
                ("--driver", "sim") => {}
                ("--driver", "real") => options.arm = Arm::Real,
                ("--driver", _) => options.arm = Arm::Shared(PathBuf::from(value)),
                _ => return Err(format!("unknown option {argument}")),
            }
        }
        Ok(options)
    }
}

/// What came of all cases on one folder of texts.
#[derive(Default)]
struct Tally {
    ran: usize,
    failed: usize,
    differences: RefCell<BTreeMap<String, (f64, f64)>>,
}

/// The program's main function.
#[must_use]
pub fn main(arguments: Vec<String>) -> ExitCode {
    match Options::parse(arguments).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "cuda_kernels: {text}");
            ExitCode::from(2)
        }
    }
}

/// Runs everything; whether nothing differed.
fn run(options: &Options) -> Result<bool, String> {
    let entries = std::fs::read_dir(&options.folder);
    let entries = entries.map_err(|error| format!("cannot list {}: {error}", options.folder.display()))?;
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    if folders.is_empty() {
        return Err(format!("{} holds no folder of PTX", options.folder.display()));
    }
    let (mut right, mut differences) = (true, BTreeMap::<String, (f64, f64)>::new());
    for folder in folders {
        let mut tally = Tally::default();
        for case in CASES.into_iter().flatten() {
            run_case(options, &folder, case, &mut tally)?;
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        say(&format!("{name}: {} cases, {} failed", tally.ran, tally.failed));
        right &= tally.failed == 0 && tally.ran > 0;
        for (what, (most, limit)) in tally.differences.take() {
            let entry = differences.entry(what).or_insert((0.0, limit));
            entry.0 = entry.0.max(most);
        }
    }
    for (what, (most, limit)) in differences {
        say(&format!("{what}: at most {most:.3e}, of {limit:.0e} allowed"));
    }
    Ok(right)
}

/// Runs one case on one folder, on the simulated driver once a seed.
fn run_case(options: &Options, folder: &Path, case: &Case, tally: &mut Tally) -> Result<(), String> {
    let name = format!("{}::{}", case.file, case.name);
    let path = folder.join(case.file).with_extension("ptx");
    let too_old = case.least > architecture(folder);
    if !name.contains(&options.filter) || too_old || case.fails && !matches!(options.arm, Arm::Simulated { .. }) {
        return Ok(());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    tally.ran += 1;
    let answer = match &options.arm {
        Arm::Simulated { seeds } => (0..*seeds)
            .try_for_each(|seed| simulate(case, &text, seed, tally).map_err(|error| format!("seed {seed}: {error}"))),
        Arm::Real => on(&Runtime::on_system_driver(), case, &text, None, tally).map_err(|error| error.to_string()),
        Arm::Shared(driver) => {
            on(&Runtime::on_driver_file(driver), case, &text, None, tally).map_err(|error| error.to_string())
        }
    };
    if let Err(error) = answer {
        tally.failed += 1;
        say(&format!("FAILED {} {name}: {error}", path.display()));
    }
    Ok(())
}

/// The number behind the last dash of a folder's name.
fn architecture(folder: &Path) -> u32 {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
}

/// Runs a case on a machine of its own, which must have nothing to report.
fn simulate(case: &Case, text: &str, seed: u64, tally: &Tally) -> Answer {
    // What is right must not be reported, whatever is looked for.
    let checks = if seed == 0 || case.fails { KernelChecks::ALL } else { KernelChecks::default() };
    let checks = KernelChecks { races: checks.races && !case.races, ..checks };
    let simulation = Simulation::new(Config::default().seed(seed).keeps_prints(true).checks(checks));
    let _entered = simulation.enter();
    let machine = simulation.machine();
    on(simulation.runtime(), case, text, Some(machine), tally)?;
    let reports = machine.take_reports();
    match reports.first() {
        Some(report) if !case.fails => Err(format!("{} reports, first {report}", reports.len()).into()),
        _ => Ok(()),
    }
}

fn on(runtime: &Runtime, case: &Case, text: &str, machine: Option<&Machine>, tally: &Tally) -> Answer {
    let _bound = runtime.bind();
    let module = Module::from_ptx(runtime, DeviceIndex(0), text)?;
    (case.run)(&Device { runtime, module: &module, text, machine, differences: &tally.differences })
}
