//! C programs on the simulated driver's shared object: built by the system's compiler, run as processes of their own.
//!
//! The programs in `tests/c` know nothing of this project. Each is linked with `libcuda.so.1`, which the system's loader
//! finds in a folder made here, where that is the name of the simulated driver. Where there is a GPU, they run on it too.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Variables of whoever runs the tests that would configure the machine.
const SETTINGS: [&str; 10] = [
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_SIM_DEVICES",
    "CUDA_SIM_DRIVER_VERSION",
    "CUDA_SIM_FAULTS",
    "CUDA_SIM_KERNEL_STEPS",
    "CUDA_SIM_LATE_EVENTS",
    "CUDA_SIM_MEMORY",
    "CUDA_SIM_PROCESSES",
    "CUDA_SIM_SEED",
    "CUDA_SIM_STRICT",
];

/// A folder in which the simulated driver has the names of the real one.
fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let program = std::env::current_exe().expect("this program has a path");
        let library = program.with_file_name("libcuda_sim_driver.so");
        assert!(library.exists(), "{} was not built", library.display());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda");
        std::fs::create_dir_all(&folder).expect("the target folder can be written");
        let link = folder.join("libcuda.so.1");
        // A link of an earlier run may lead elsewhere.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(library, link).expect("the folder can be written");
        folder
    })
}

/// Builds the program of a source file in `tests/c`.
fn build(name: &str) -> PathBuf {
    build_as(name, name)
}

/// The same under another name, for a test beside those that build it too.
fn build_as(name: &str, called: &str) -> PathBuf {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.target(&triple).host(&triple).opt_level(1).cargo_metadata(false);
    build.std("c11").warnings(true).extra_warnings(true).warnings_into_errors(true);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(called);
    let mut command = build.get_compiler().to_command();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{name}.c"))).arg("-o").arg(&program);
    if name == "dlopened" {
        command.arg("-ldl");
    } else {
        command.arg("-L").arg(library_folder()).arg("-l:libcuda.so.1");
    }
    let output = command.output().expect("there is a C compiler where Rust can link");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    SETTINGS.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.env("LD_LIBRARY_PATH", library_folder()).envs(variables.iter().copied());
    command.output().expect("the program can be started")
}

/// Runs a program under each set of variables; gives what the last run printed.
fn check(program: &Path, settings: &[&[(&str, &str)]]) -> String {
    let mut printed = String::new();
    for variables in settings {
        let output = run(program, variables);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} with {variables:?}: {said}{}", program.display(), output.status);
        printed = String::from_utf8_lossy(&output.stdout).into_owned();
    }
    printed
}

/// Runs a program that has to end with this complaint.
fn check_complaint(program: &Path, variables: &[(&str, &str)], complaint: &str) {
    let output = run(program, variables);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(complaint), "{} says: {said}", program.display());
}

/// Different histories, the oldest driver, events that are seen late, misuse refused.
const HISTORIES: &[&[(&str, &str)]] = &[
    &[("CUDA_SIM_SEED", "1")],
    &[("CUDA_SIM_SEED", "2"), ("CUDA_SIM_DRIVER_VERSION", "11.8")],
    &[("CUDA_SIM_SEED", "3"), ("CUDA_SIM_LATE_EVENTS", "1")],
    &[("CUDA_SIM_SEED", "4"), ("CUDA_SIM_STRICT", "1")],
];

/// Launches return when the work is done.
const BLOCKING: &[(&str, &str)] = &[("CUDA_LAUNCH_BLOCKING", "1")];

#[test]
fn devices_are_queried() {
    let program = build("device_query");
    let two = [("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_MEMORY", "1073741824"), ("CUDA_SIM_DRIVER_VERSION", "12.4")];
    let device = "NVIDIA H200, capability 9.0, 132 multiprocessors, warps of 32, blocks of 1024, 1073741824 bytes";
    let expected = format!("CUDA 12.4, 2 device(s)\n0: {device}\n1: {device}\n");
    assert_eq!(check(&program, &[&two]), expected);
    assert_eq!(check(&program, &[&[("CUDA_SIM_DEVICES", "1")]]).lines().count(), 2);
}

#[test]
fn memory_is_copied() {
    let program = build("copies");
    check(&program, HISTORIES);
    check(&program, &[BLOCKING]);
    let complaint = "cuMemAlloc_v2(&there, 64 << 20) answered 2 (CUDA_ERROR_OUT_OF_MEMORY) instead of 0";
    check_complaint(&program, &[("CUDA_SIM_FAULTS", "cuMemAlloc_v2:2:2")], complaint);
}

#[test]
fn events_order_streams() {
    let program = build("streams");
    check(&program, HISTORIES);
    check(&program, &[BLOCKING]);
}

#[test]
fn kernels_are_launched() {
    let program = build("kernel");
    check(&program, HISTORIES);
    check(&program, &[BLOCKING]);
}

#[test]
fn graphs_are_captured_and_replayed() {
    let program = build("graph");
    check(&program, HISTORIES);
    check(&program, &[BLOCKING]);
}

#[test]
fn errors_are_answered() {
    let program = build("errors");
    check(&program, HISTORIES);
    // Then the launch itself answers with what its kernel did.
    check_complaint(&program, BLOCKING, "parameters, NULL) answered 700 (CUDA_ERROR_ILLEGAL_ADDRESS) instead of 0");
}

#[test]
fn the_library_is_opened_by_name() {
    check(&build("dlopened"), &[&[], &[("CUDA_SIM_DRIVER_VERSION", "12.0")]]);
}

/// What the programs say of the simulated driver they say of a real one.
#[test]
fn the_real_driver_where_there_is_a_gpu() {
    // The programs are found by the system's loader, which does not look at this variable.
    if std::env::var_os("CUDA_SYS_LIBCUDA").is_some() {
        return println!("skipped: another driver is asked for");
    }
    if let Err(error) = c10_core::Runtime::on_system_driver().init() {
        return println!("skipped: {error}");
    }
    for name in ["device_query", "copies", "streams", "kernel", "graph", "errors", "dlopened"] {
        let mut command = Command::new(build_as(name, &format!("{name}-real")));
        let output = command.env_remove("CUDA_LAUNCH_BLOCKING").output().expect("the program can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}{}", output.status);
    }
}
