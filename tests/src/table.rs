//! The table arm: a simulated machine of its own for every case, in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use conformance::{Case, Enter, Outcome, run_case};
use cuda_sim::{Config, EXPORTS, Machine, ReportKind};
use cuda_sys::CUresult;
use testkit::leftovers;

/// How often each function answered with each code, over all machines.
pub type Calls = BTreeMap<(String, u32), u64>;

/// Runs one case on a new machine; gives also the calls that were answered.
///
/// # Errors
/// No driver could be made of the machine's table.
pub fn run(case: &Case) -> Result<(Outcome, Calls), String> {
    let machine = Machine::new(Config::default().devices(2).seed(1));
    let bound = machine.bind();
    let driver = Arc::new(cuda_sim::driver().map_err(|error| error.to_string())?);
    drop(bound);
    let there = machine.clone();
    let enter: Arc<Enter> = Arc::new(move || Box::new(there.bind()));
    let mut outcome = run_case(case, &driver, true, &enter);
    if outcome == Outcome::Passed {
        outcome = left_clean(&machine);
    }
    let mut calls = Calls::new();
    for (symbol, code, count) in machine.calls() {
        *calls.entry((symbol.to_owned(), code.0)).or_default() += count;
    }
    Ok((outcome, calls))
}

/// A case that passed must leave nothing behind, and must not have shown a mistake of the model.
fn left_clean(machine: &Machine) -> Outcome {
    let mut wrong: Vec<String> = leftovers(machine).into_iter().map(|what| format!("left behind: {what}")).collect();
    let undeclared = machine.reports().into_iter().filter(|report| report.kind == ReportKind::UndeclaredCode);
    wrong.extend(undeclared.map(|report| report.to_string()));
    if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed(wrong.join("\n")) }
}

/// Functions that no case called, and codes that none of a function's calls answered with: those that it lists and those
/// that come with what it needs.
#[must_use]
pub fn uncovered(calls: &Calls, excused: &[(&str, CUresult)]) -> Vec<String> {
    let mut missing = Vec::new();
    for export in EXPORTS {
        if !calls.keys().any(|(symbol, _)| symbol == export.symbol) {
            missing.push(format!("{}: no case calls it", export.symbol));
        }
        for &code in export.codes.iter().chain(export.common_codes()) {
            let seen = calls.contains_key(&(export.symbol.to_owned(), code.0));
            if !seen && !excused.contains(&(export.symbol, code)) {
                missing.push(format!("{}: no case sees {code:?}", export.symbol));
            }
        }
    }
    missing
}
