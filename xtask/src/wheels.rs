//! Wheels of the Python package index, unpacked beneath the target folder.
//!
//! Invariant: there is a folder for each content of a requirements file, and it is whole; nothing of it is committed.
//! Once it is there, nothing is fetched.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{self, Result};

/// The folder into which the wheels of a requirements file are unpacked.
///
/// # Errors
/// They cannot be fetched.
pub(crate) fn unpacked(requirements: &Path, name: &str) -> Result<PathBuf> {
    let key = fingerprint(shell::read(requirements)?.as_bytes());
    made(&shell::target_dir().join(name).join(format!("{key:016x}")), |folder| {
        let mut python = Command::new("python3");
        install(python.args(PIP).arg("--target").arg(folder), requirements)
    })
}

/// As [`unpacked`], without the libraries in the wheels: what is kept is small.
///
/// # Errors
/// They cannot be fetched.
pub(crate) fn headers(requirements: &Path, name: &str) -> Result<PathBuf> {
    let key = fingerprint(shell::read(requirements)?.as_bytes());
    made(&shell::target_dir().join(name).join(format!("{key:016x}")), |folder| {
        let mut python = Command::new("python3");
        install(python.args(PIP).arg("--target").arg(folder), requirements)?;
        for libraries in ["nvidia/cu13/lib", "nvidia/nccl/lib"].map(|part| folder.join(part)) {
            let removed = std::fs::remove_dir_all(&libraries);
            removed.map_err(|error| format!("cannot remove {}: {error}", libraries.display()))?;
        }
        Ok(())
    })
}

/// The Python of a virtual environment that has the wheels of a requirements file.
///
/// # Errors
/// They cannot be fetched.
pub(crate) fn environment(requirements: &Path, name: &str) -> Result<PathBuf> {
    let key = fingerprint(shell::read(requirements)?.as_bytes());
    let folder = shell::target_dir().join(name).join(format!("{key:016x}"));
    let python = folder.join("bin/python");
    // An environment holds its own path and cannot be moved into place, so a file says that it is whole.
    let whole = folder.join("whole");
    if !whole.is_file() {
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        install(Command::new(&python).args(PIP), requirements)?;
        std::fs::write(&whole, "").map_err(|error| format!("cannot write {}: {error}", whole.display()))?;
    }
    Ok(python)
}

/// A folder that is made once: in another place, from which it is moved when it is whole.
///
/// # Errors
/// It cannot be made or moved.
pub(crate) fn made(folder: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    if folder.is_dir() {
        return Ok(folder.to_owned());
    }
    let unfinished = folder.with_extension(format!("unfinished-{}", std::process::id()));
    make(&unfinished)?;
    // Two commands may run at once: whoever comes second finds a finished folder of the same content.
    match std::fs::rename(&unfinished, folder) {
        Err(_) if folder.is_dir() => Ok(folder.to_owned()),
        Err(error) => Err(format!("cannot move {} into place: {error}", unfinished.display())),
        Ok(()) => Ok(folder.to_owned()),
    }
}

/// What makes a Python install just what a file lists: it names everything that is needed, with its version.
const PIP: [&str; 6] = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];

fn install(pip: &mut Command, requirements: &Path) -> Result<()> {
    shell::say(&format!("fetching the wheels of {}", requirements.display()));
    pip.arg("-r").arg(requirements).env("PIP_ROOT_USER_ACTION", "ignore");
    shell::run(pip).map_err(|error| {
        format!("{error}\nwheels of the Python package index are needed here: python3 with pip fetches them")
    })
}

/// FNV-1a: names a folder after the content it is made from.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
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
