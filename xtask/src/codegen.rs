//! `cargo xtask codegen`: fetches the pinned headers and the libclang that reads them, and runs the generator.
//!
//! Headers and libclang come as wheels from the Python package index and land beneath the target folder (`wheels.rs`).

use crate::flags::Flags;
use crate::shell::{self, Result};
use crate::wheels;

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    generate(flags.has("--check"))
}

/// Writes the bindings, or compares them with what is committed.
///
/// # Errors
/// The wheels cannot be fetched, the generator fails, or `check` finds a difference.
pub(crate) fn generate(check: bool) -> Result<()> {
    let wheels = wheels::unpacked(&shell::root().join("xtask/codegen/requirements.txt"), "codegen")?;
    let out = shell::root().join("crates/cuda-sys/src");
    let mut command = shell::cargo(["run", "--quiet", "--package", "codegen", "--"]);
    command.arg(&wheels).arg(out).env("LIBCLANG_PATH", wheels.join("clang/native"));
    if check {
        command.arg("--check");
    }
    shell::run(&mut command)
}
