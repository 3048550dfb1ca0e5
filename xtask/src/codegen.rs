//! `cargo xtask codegen`: fetches the pinned headers and the libclang that reads them, and runs the generator.
//!
//! Headers and libclang come as wheels from the Python package index and land beneath the target folder (`wheels.rs`).
//! Some headers lie in wheels of hundreds of megabytes. Those are fetched to write bindings and never to check them:
//! a file of digests says what the headers that were pinned then gave.

use std::fmt::Write as _;
use std::path::Path;

use crate::flags::Flags;
use crate::shell::{self, Result};
use crate::wheels;

/// The wheels that are fetched to write only.
const HEAVY: &str = "xtask/codegen/libraries.txt";
/// The digests of that list and of the files made with it.
const DIGESTS: &str = "xtask/codegen/digests.txt";
/// Modules of `cuda-sys` whose headers those wheels have.
const MODULES: &[&str] = &["cublas", "cublaslt", "cusolver", "cufft", "nvrtc", "nvjitlink", "nccl"];

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    generate(flags.has("--check"))
}

/// Writes the bindings, or compares them with what is committed.
///
/// # Errors
/// The wheels cannot be fetched, the generator fails, or `check` finds a difference.
pub(crate) fn generate(check: bool) -> Result<()> {
    let light = wheels::unpacked(&shell::root().join("xtask/codegen/requirements.txt"), "codegen")?;
    let mut command = shell::cargo(["run", "--quiet", "--package", "codegen", "--"]);
    command.arg(shell::root().join("crates/cuda-sys/src")).arg(&light);
    command.env("LIBCLANG_PATH", light.join("clang/native"));
    if check {
        shell::run(command.arg("--check"))?;
        return compare();
    }
    shell::run(command.arg(wheels::headers(&shell::root().join(HEAVY), "codegen")?))?;
    let path = shell::root().join(DIGESTS);
    std::fs::write(&path, digests()?).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn compare() -> Result<()> {
    if shell::read(&shell::root().join(DIGESTS))? == digests()? {
        return Ok(());
    }
    Err(format!("{HEAVY} or the bindings made with it differ from {DIGESTS}: run `cargo xtask codegen` and commit"))
}

/// One line a file: its digest and its path.
fn digests() -> Result<String> {
    let mut text = String::new();
    let mut add = |path: &str| {
        let digest = wheels::fingerprint(shell::read(&shell::root().join(path))?.as_bytes());
        let _ = writeln!(text, "{digest:016x} {path}");
        Ok::<(), String>(())
    };
    add(HEAVY)?;
    for module in MODULES {
        for file in ["types.rs", "functions.rs", "codes.rs"] {
            let path = format!("crates/cuda-sys/src/{module}/{file}");
            if Path::new(&shell::root().join(&path)).is_file() {
                add(&path)?;
            }
        }
    }
    Ok(text)
}
