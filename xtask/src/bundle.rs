//! Packs programs, data and a script into a folder that runs on a GPU host with nothing installed but its driver.
//!
//! The folder: `run` (the script), `bin` (stripped programs and the simulated driver), `data` (recorded traces), `kernels`
//! (the PTX of `cargo xtask kernels`) and,
//! where one was given, `peer` (benchmarks of other projects, built on the host by the script if PyTorch is there).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::{PROFILE, TENSORS_PEER};
use crate::driver::SIMULATED;
use crate::kernels;
use crate::shell::{self, Result};
use crate::test::DEMO_TRACE;

/// Programs that are packed beside the benches: those that say something on a real GPU.
const PROGRAMS: &[&str] = &[
    "attention",
    "byte_products",
    "conformance",
    "cuda_kernels",
    "determinism",
    "large_tensors",
    "linalg_and_fft",
    "many_devices",
    "distributed",
    "product_kernels",
    "user_kernels",
    "demo",
    "03_failures",
    "04_overlap",
    "05_replay",
    "07_observe",
    "08_mixed_precision",
    "ipc",
    "sharing",
    SIMULATED,
];

/// Tests of `aten-cuda` that also run on a real GPU.
const TESTS: &[&str] = &["compile_random", "compile_epilogues"];

/// A pack larger than this is a mistake. Each program that works with tensors has the machine code of all kernels.
const BYTES_MAX: u64 = 320 << 20;

/// The script.
const RUN: &str = include_str!("run.sh");

/// Packs everything into a folder, which may exist already.
///
/// # Errors
/// Something does not build or cannot be copied, or the folder becomes too large.
pub(crate) fn pack(folder: &Path, peer: Option<&Path>) -> Result<()> {
    let release = shell::target_dir().join("release");
    let mut build =
        shell::cargo(["build", "--release", "--quiet", "--package", "libcuda-sim", "--package", "examples"]);
    shell::run(build.args(["--package", "tests", "--lib", "--bins"]))?;
    shell::run(&mut shell::cargo(["build", "--profile", PROFILE, "--quiet", "--package", "bench"]))?;
    let bin = folder.join("bin");
    for place in [&bin, &folder.join("data")] {
        std::fs::create_dir_all(place).map_err(|error| format!("cannot create {}: {error}", place.display()))?;
    }
    for program in PROGRAMS {
        install(&release.join(program), &bin.join(program))?;
    }
    for test in TESTS {
        install(&test_program(test)?, &bin.join(test))?;
    }
    for program in ["bench", "tensors"] {
        install(&shell::target_dir().join(PROFILE).join(program), &bin.join(program))?;
    }
    copy(&shell::root().join(TENSORS_PEER), &bin.join("tensors_peer.py"))?;
    copy(&shell::root().join(DEMO_TRACE), &folder.join("data/demo.trace.gz"))?;
    copy_folder(&kernels::texts()?, &folder.join("kernels"))?;
    if let Some(peer) = peer {
        copy_folder(peer, &folder.join("peer"))?;
    }
    write_script(&folder.join("run"))?;
    let bytes = size(folder)?;
    shell::say(&format!("packed {} ({:.1} MiB); start it with its `run`", folder.display(), bytes as f64 / 1048576.0));
    if bytes > BYTES_MAX {
        Err(format!("the pack has {bytes} bytes; at most {BYTES_MAX} are meant to travel"))
    } else {
        Ok(())
    }
}

/// Builds a test of `aten-cuda`; its program.
fn test_program(test: &str) -> Result<PathBuf> {
    let mut build =
        shell::cargo(["test", "--release", "--no-run", "--quiet", "--package", "aten-cuda", "--test", test]);
    let output = build.arg("--message-format=json").output();
    let output = output.map_err(|error| format!("cannot build {test}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // One line of JSON tells of each thing that was built; only programs have their file there.
    let named = text.lines().rev().filter_map(|line| line.split_once("\"executable\":\""));
    let found = named.filter_map(|(_, rest)| rest.split_once('"')).map(|(path, _)| PathBuf::from(path)).next();
    found.filter(|_| output.status.success()).ok_or_else(|| format!("{test} does not build"))
}

/// Copies a program and removes what only a debugger needs.
fn install(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    shell::run(Command::new("strip").arg("--strip-unneeded").arg(to))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // A program that runs cannot be written to, but its name can be given to another file.
    let _ = std::fs::remove_file(to);
    let copied = std::fs::copy(from, to);
    copied.map(|_| ()).map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|error| format!("cannot create {}: {error}", to.display()))?;
    for path in entries(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() { copy_folder(&path, &target)? } else { copy(&path, &target)? }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in entries(folder)? {
        bytes += if path.is_dir() { size(&path)? } else { path.metadata().map_or(0, |data| data.len()) };
    }
    Ok(bytes)
}

fn write_script(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let refuse = |error| format!("cannot write {}: {error}", path.display());
    std::fs::write(path, RUN).map_err(refuse)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(refuse)
}
