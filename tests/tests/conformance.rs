//! The driver conformance suite on its three arms, and what its cases cover of the simulated driver.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use conformance::call_with_zeros;
use conformance::common_codes::ask_all;
use cuda_sim::{Config, Fault, Machine};
use cuda_sys::CUresult;
use tests::conformance::{Arm, Report, run_in_children};
use tests::table::uncovered;

/// Codes that no program provokes on hardware, and why. Each is covered by an injected fault below.
const INJECTED: &[(&str, CUresult, &str)] = &[
    ("cuInit", CUresult::CUDA_ERROR_NOT_INITIALIZED, "needs a process forked from one that uses the driver"),
    ("cuInit", CUresult::CUDA_ERROR_NO_DEVICE, "needs a machine without a device"),
    ("cuCtxCreate_v2", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v2", CUresult::CUDA_ERROR_LAUNCH_FAILED, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v4", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v4", CUresult::CUDA_ERROR_LAUNCH_FAILED, "needs a device whose primary context was lost"),
    ("cuDevicePrimaryCtxRetain", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "needs a device whose primary context was lost"),
    ("cuDevicePrimaryCtxRetain", CUresult::CUDA_ERROR_LAUNCH_FAILED, "needs a device whose primary context was lost"),
    ("cuDeviceGetDefaultMemPool", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a device with all addresses taken"),
    ("cuDeviceGetMemPool", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a device with all addresses taken"),
    ("cuGraphLaunch", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a device that others fill between upload and launch"),
    ("cuGraphUpload", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a full device"),
    ("cuGraphInstantiateWithParams", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a full device"),
    ("cuIpcGetEventHandle", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a system without file descriptors"),
    ("cuIpcGetMemHandle", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a system without file descriptors"),
    (
        "cuIpcOpenMemHandle_v2",
        CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        "needs another process and a device without addresses",
    ),
    ("cuMemAddressReserve", CUresult::CUDA_ERROR_NOT_SUPPORTED, "needs a device without virtual memory management"),
    ("cuMemExportToShareableHandle", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a system without file descriptors"),
    ("cuMemPoolExportPointer", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a system without file descriptors"),
    ("cuMemPoolExportToShareableHandle", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a system without file descriptors"),
    (
        "cuMemPoolImportFromShareableHandle",
        CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        "needs a system without file descriptors",
    ),
    ("cuMemImportFromShareableHandle", CUresult::CUDA_ERROR_OUT_OF_MEMORY, "needs a system without file descriptors"),
    ("cuCtxCreate_v2", CUresult::CUDA_ERROR_ASSERT, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v2", CUresult::CUDA_ERROR_INVALID_PC, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v4", CUresult::CUDA_ERROR_ASSERT, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v4", CUresult::CUDA_ERROR_INVALID_PC, "needs a device whose primary context was lost"),
    ("cuDevicePrimaryCtxRetain", CUresult::CUDA_ERROR_ASSERT, "needs a device whose primary context was lost"),
    ("cuDevicePrimaryCtxRetain", CUresult::CUDA_ERROR_INVALID_PC, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v2", CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v2", CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v4", CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, "needs a device whose primary context was lost"),
    ("cuCtxCreate_v4", CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, "needs a device whose primary context was lost"),
    ("cuDevicePrimaryCtxRetain", CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, "needs a device whose primary context was lost"),
    (
        "cuDevicePrimaryCtxRetain",
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        "needs a device whose primary context was lost",
    ),
];

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

/// The table arm's report; both tests that look at it share one run.
fn table() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| run_in_children(runner(), &Arm::Table, "").expect("the table arm needs nothing"))
}

#[test]
fn table_arm() {
    expect_clean(table());
}

#[test]
fn every_export_and_every_code_has_a_case() {
    let report = table();
    let excused: Vec<_> = INJECTED.iter().map(|&(symbol, code, _)| (symbol, code)).collect();
    let mut calls = report.calls.clone();
    calls.extend(ask_all().0);
    let missing = uncovered(&calls, &excused);
    assert!(missing.is_empty(), "{} things no case covers:\n{}", missing.len(), missing.join("\n"));
}

#[test]
fn what_a_function_needs_is_asked_for() {
    let (_, wrong) = ask_all();
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn codes_without_a_case_can_be_injected() {
    for &(call, code, why) in INJECTED {
        let machine = Machine::new(Config::default().fault(Fault { call, occurrence: 1, code }));
        let _bound = machine.bind();
        let driver = cuda_sim::driver().expect("the version is not what fails");
        assert_eq!(call_with_zeros(&driver, call), Some(code), "{call}: {why}");
    }
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
