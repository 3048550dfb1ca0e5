//! Recorded tensor operations: `file` reads them, `call` runs them, `judge` compares the answers. Beside them `accuracy`
//! measures the errors of float functions.

#![expect(clippy::wildcard_enum_match_arm, reason = "a few dtypes and forms of numbers are treated on their own")]

mod accuracy;
mod call;
mod file;
mod judge;
mod random;

use std::collections::BTreeMap;
use std::process::ExitCode;

use c10_core::Runtime;

use crate::recorded::{self, Options};

use self::file::{Case, File, Outcome};

/// The program `ops`.
pub fn main(arguments: Vec<String>) -> ExitCode {
    recorded::main(arguments, run)
}

/// The program `random_ops`.
pub fn random(arguments: &[String]) -> ExitCode {
    crate::program::ended(random::main(arguments).map(|()| true))
}

/// The program `accuracy`.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]
pub fn accuracy(arguments: Vec<String>) -> ExitCode {
    let driver = match arguments.as_slice() {
        [] => "sim",
        [word, driver] if word == "--driver" => driver,
        _ => {
            eprintln!("error: accuracy [--driver cpu|sim|real|PATH]");
            return ExitCode::from(2);
        }
    };
    let measured = bind(driver).and_then(|_bound| {
        accuracy::measure(if driver == "cpu" { "cpu" } else { "cuda" }).map_err(|error| error.to_string())
    });
    match measured {
        Ok(measured) => {
            println!(
                "{:<12}{:>8}{:>8}{:>8}{:>8}{:>12}{:>12}",
                "function", "f16", "bf16", "f32", "f64", "f32 bound", "f64 bound"
            );
            for row in &measured {
                let [f16, bf16, f32, f64] = row.errors;
                let mark = if row.is_good() { "" } else { "  above the bound" };
                println!(
                    "{:<12}{f16:>8.3}{bf16:>8.3}{f32:>8.3}{f64:>8.3}{:>12.1}{:>12.1}{mark}",
                    row.name, row.bounds[0], row.bounds[1]
                );
            }
            let bad = measured.iter().filter(|row| !row.is_good()).count();
            println!("{} within the bound, {bad} above", measured.len() - bad);
            ExitCode::from(u8::from(bad > 0))
        }
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run(options: &Options) -> Result<(usize, usize), String> {
    let device = if options.driver == "cpu" { "cpu" } else { "cuda" };
    let _bound = bind(&options.driver)?;
    let (mut passed, mut failed) = (0, 0);
    let mut tally: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut sums = String::new();
    for path in &options.files {
        let file = File::read(path)?;
        for (at, case) in file.cases.iter().enumerate() {
            if options.filter.as_ref().is_some_and(|filter| *filter != case.op) {
                continue;
            }
            let counts = tally.entry(case.op.clone()).or_default();
            let (sum, outcome) = check(case, device);
            sums.push_str(&format!("{at} {} {sum:016x}\n", case.op));
            match outcome {
                Ok(()) => counts.0 += 1,
                Err(why) => {
                    if options.all || counts.1 == 0 {
                        println!("{path}: case {at}, {}: {why}", case.title());
                    }
                    counts.1 += 1;
                }
            }
        }
        for (title, outcome) in judge::tables(&file, device) {
            if options.filter.as_ref().is_some_and(|filter| *filter != title) {
                continue;
            }
            let counts = tally.entry(title.clone()).or_default();
            match outcome {
                Ok(()) => counts.0 += 1,
                Err(why) => {
                    println!("{path}: {title}: {why}");
                    counts.1 += 1;
                }
            }
        }
    }
    for (op, (good, bad)) in tally {
        if bad > 0 {
            println!("{op}: {good} passed, {bad} failed");
        }
        passed += good;
        failed += bad;
    }
    if let Some(path) = &options.sums {
        std::fs::write(path, sums).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    Ok((passed, failed))
}

/// The runtime on the driver that is asked for, bound to this thread; none for the host alone.
pub(crate) fn bind(driver: &str) -> Result<Option<Bound>, String> {
    Ok(match driver {
        "cpu" => None,
        "sim" | "auto" => Some(Bound::Simulated(testkit::simulated_runtime())),
        "real" => Some(Bound::Real(Runtime::on_system_driver().bind())),
        path => Some(Bound::Real(Runtime::on_driver_file(path).bind())),
    })
}

/// A runtime that stays bound to the thread.
#[expect(dead_code, reason = "holding it keeps the runtime bound")]
pub(crate) enum Bound {
    Simulated(testkit::SimulatedRuntime),
    Real(c10_core::RuntimeGuard),
}

/// The sum of the answer's bytes, 0 where there is none, and whether the answer is right.
fn check(case: &Case, device: &str) -> (u64, Result<(), String>) {
    // A panic is a failure of its case, not of the whole run.
    let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call::run(case, device)));
    let answered = match answered {
        Ok(answered) => answered,
        Err(_) => return (0, Err("a panic".to_owned())),
    };
    let sum = answered.as_ref().map_or(0, |tensors| sum_of(tensors));
    let outcome = match (&case.outcome, answered) {
        (_, Err(call::Failure::Absent)) => Err("the operation is not there".to_owned()),
        (Outcome::Error { .. }, Err(call::Failure::Refused(_))) => Ok(()),
        (Outcome::Error { text }, Ok(_)) => Err(format!("succeeds, but torch says: {text}")),
        (Outcome::Values(_), Err(call::Failure::Refused(text))) => Err(format!("fails: {text}")),
        (Outcome::Values(wanted), Ok(found)) => judge::values(case, wanted, &found),
    };
    (sum, outcome)
}

/// FNV-1a of the bytes of all tensors. One that cannot be read has no bytes; the comparison says why.
fn sum_of(tensors: &[aten_cuda::Tensor]) -> u64 {
    let bytes = tensors.iter().flat_map(|tensor| tensor.to_bytes().unwrap_or_default());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_functions_are_within_their_bounds() {
        for driver in ["cpu", "sim"] {
            let _bound = bind(driver).unwrap();
            for row in accuracy::measure(if driver == "cpu" { "cpu" } else { "cuda" }).unwrap() {
                assert!(row.is_good(), "{driver}, {}: {:?} units, bounds {:?}", row.name, row.errors, row.bounds);
            }
        }
    }
}
