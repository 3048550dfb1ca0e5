//! The driver conformance suite on its three arms, and what its cases cover of the simulated driver.

use std::path::{Path, PathBuf};

use cuda_sys::CUresult;
use tests::conformance::{Arm, Report, run_in_children};
use tests::table::uncovered;

/// Codes that no program provokes on hardware, and why. Each is covered by an injected fault below.
const INJECTED: &[(&str, CUresult, &str)] = &[];

fn runner() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_conformance"))
}

/// Fails with every case that failed; a skipped case must say that the machine lacks something.
fn expect_clean(report: &Report) {
    let mut text = Vec::new();
    report.write(&mut text).expect("a vector can be written");
    assert!(report.failed.is_empty(), "{}", String::from_utf8_lossy(&text));
    assert!(report.passed >= 300, "only {} cases passed", report.passed);
}

#[test]
fn table_arm_and_its_coverage() {
    let report = run_in_children(runner(), &Arm::Table, "").expect("the table arm needs nothing");
    expect_clean(&report);
    let excused: Vec<_> = INJECTED.iter().map(|&(symbol, code, _)| (symbol, code)).collect();
    let missing = uncovered(&report.calls, &excused);
    assert!(missing.is_empty(), "{} things no case covers:\n{}", missing.len(), missing.join("\n"));
}

/// The simulated driver's shared object, which cargo builds next to this test's executable.
fn shared_object() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.parent().expect("a program lies in a folder");
    folder.join("libcuda_sim_driver.so")
}

#[test]
fn shared_object_arm() {
    let path = shared_object();
    assert!(path.exists(), "{} was not built", path.display());
    let report = run_in_children(runner(), &Arm::Shared(path.to_string_lossy().into_owned()), "").expect("it loads");
    expect_clean(&report);
}

#[test]
fn real_arm_where_there_is_a_gpu() {
    match cuda_sys::Driver::load() {
        Err(error) if error.is_not_installed() => println!("skipped: this machine has no NVIDIA driver"),
        Err(error) => println!("skipped: {error}"),
        Ok(_) => expect_clean(&run_in_children(runner(), &Arm::Real, "").expect("it loaded before")),
    }
}
