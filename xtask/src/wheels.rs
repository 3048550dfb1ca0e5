//! Wheels of the Python package index, unpacked beneath the target folder.
//!
//! Invariant: a folder is named after the content of the requirements file it is made from, and it exists only when it
//! is complete. So a changed requirement is a new folder, and nothing is fetched twice. Nothing of it is committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{self, Result};

/// The folder into which the wheels of a requirements file are unpacked; `under` is a folder of the target folder.
///
/// # Errors
/// There is no Python with pip, or a wheel cannot be fetched.
pub(crate) fn unpacked(requirements: &Path, under: &str) -> Result<PathBuf> {
    let (requirements, folder) = located(requirements, under)?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let unfinished = folder.with_extension(format!("unfinished-{}", std::process::id()));
    let mut python = Command::new("python3");
    install(&mut python, &["--target", &unfinished.to_string_lossy()], &requirements)?;
    // Two commands may run at once: whoever comes second finds a finished folder of the same content.
    match std::fs::rename(&unfinished, &folder) {
        Err(_) if folder.is_dir() => Ok(folder),
        Err(error) => Err(format!("cannot move {} into place: {error}", unfinished.display())),
        Ok(()) => Ok(folder),
    }
}

/// The Python of a virtual environment that has the wheels of a requirements file.
///
/// # Errors
/// As [`unpacked`].
pub(crate) fn environment(requirements: &Path, under: &str) -> Result<PathBuf> {
    let (requirements, folder) = located(requirements, under)?;
    let python = folder.join("bin/python");
    // An environment holds its own path and cannot be moved into place, so a file says that it is complete.
    let complete = folder.join("complete");
    if !complete.is_file() {
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        install(&mut Command::new(&python), &[], &requirements)?;
        std::fs::write(&complete, "").map_err(|error| format!("cannot write {}: {error}", complete.display()))?;
    }
    Ok(python)
}

/// A requirements file of the workspace, and the folder that belongs to its content.
fn located(requirements: &Path, under: &str) -> Result<(PathBuf, PathBuf)> {
    let requirements = shell::root().join(requirements);
    let key = fingerprint(shell::read(&requirements)?.as_bytes());
    Ok((requirements, shell::target_dir().join(under).join(format!("{key:016x}"))))
}

/// Installs exactly what the file lists: each file names all it needs with its version.
fn install(python: &mut Command, options: &[&str], requirements: &Path) -> Result<()> {
    shell::say(&format!("fetching the wheels of {}", requirements.display()));
    python.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    python.args(options).arg("-r").arg(requirements).env("PIP_ROOT_USER_ACTION", "ignore");
    shell::run(python)
        .map_err(|error| format!("{error}\nwheels of the Python package index are needed, so python3 with pip is"))
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
