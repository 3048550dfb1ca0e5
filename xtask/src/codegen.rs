//! `cargo xtask codegen`: fetches the pinned headers and the libclang that reads them, and runs the generator.
//!
//! Headers and libclang come as wheels from the Python package index and land beneath the target folder, once for each
//! content of the requirements file. Nothing of them is committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Result};

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    generate(flags.has("--check"))
}

/// Writes the bindings, or compares them with what is committed.
///
/// # Errors
/// The wheels cannot be fetched, the generator fails, or `check` finds a difference.
pub(crate) fn generate(check: bool) -> Result<()> {
    let wheels = wheels()?;
    let out = shell::root().join("crates/cuda-sys/src");
    let mut command = shell::cargo(["run", "--quiet", "--package", "codegen", "--"]);
    command.arg(&wheels).arg(out).env("LIBCLANG_PATH", wheels.join("clang/native"));
    if check {
        command.arg("--check");
    }
    shell::run(&mut command)
}

/// The folder into which the wheels of the requirements file are unpacked.
fn wheels() -> Result<PathBuf> {
    let requirements = shell::root().join("xtask/codegen/requirements.txt");
    let key = fingerprint(shell::read(&requirements)?.as_bytes());
    let folder = shell::target_dir().join("codegen").join(format!("{key:016x}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let unfinished = folder.with_extension(format!("unfinished-{}", std::process::id()));
    install(&requirements, &unfinished)?;
    // Two commands may run at once: whoever comes second finds a finished folder of the same content.
    match std::fs::rename(&unfinished, &folder) {
        Err(_) if folder.is_dir() => Ok(folder),
        Err(error) => Err(format!("cannot move {} into place: {error}", unfinished.display())),
        Ok(()) => Ok(folder),
    }
}

fn install(requirements: &Path, folder: &Path) -> Result<()> {
    shell::say("fetching the pinned headers and libclang");
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]);
    command.arg(folder).arg("-r").arg(requirements);
    command.env("PIP_ROOT_USER_ACTION", "ignore");
    shell::run(&mut command).map_err(|error| {
        format!(
            "{error}\nthe bindings are generated from wheels of the Python package index: python3 with pip is needed"
        )
    })
}

/// FNV-1a: names a folder after the content it is made from.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn the_fingerprint_is_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
