//! Generated kernels, assembled by the oldest assembler whose drivers are supported.
//!
//! The program `common_kernels` of the tests writes a text for every kind of kernel that is generated, for each of two
//! compute capabilities. Each text is assembled for one architecture: those of 7.5 for it, the others for 8.0 or 9.0, as
//! their fingerprint says. Of some six thousand texts a third is taken, by fingerprint, unless all are asked for. What
//! was assembled once is not assembled again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::shell::{self, Result};
use crate::wheels;

/// Which part of the texts is taken.
const PART: u32 = 3;

/// How many assemblers run at once.
const AT_ONCE: usize = 2;

/// Assembles the texts, or a part of them.
///
/// # Errors
/// A text cannot be made, or the assembler refuses one.
pub(super) fn assemble(all: bool, requirements: &Path) -> Result<()> {
    let folder = written()?;
    let assembler = wheels::unpacked(requirements, "kernels")?.join("nvidia/cuda_nvcc/bin/ptxas");
    let done = shell::target_dir().join("kernels/assembled");
    std::fs::create_dir_all(&done).map_err(|error| format!("cannot create {}: {error}", done.display()))?;
    let mut texts = Vec::new();
    for target in [75, 80] {
        let listed = files(&folder.join(target.to_string()))?;
        texts.extend(listed.into_iter().filter(|text| all || is_taken(text)).map(|text| (target, text)));
    }
    let (next, refused) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((target, text)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = assemble_one(text, architecture(*target, text), &assembler, &done) {
                refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(error);
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let refused = refused.into_inner().unwrap_or_default();
    match refused.first() {
        None => {
            shell::say(&format!("{} generated texts can be assembled", texts.len()));
            Ok(())
        }
        Some(first) => {
            Err(format!("{} of {} generated texts cannot be assembled: {first}", refused.len(), texts.len()))
        }
    }
}

/// The folder that the texts were written to just now.
fn written() -> Result<PathBuf> {
    let program = "common_kernels";
    // The profile that tests are built with, so that nothing is built twice.
    shell::run(&mut shell::cargo(["build", "--quiet", "--profile", "test", "--package", "tests", "--bin", program]))?;
    let folder = shell::target_dir().join("kernels/every");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("cannot empty {}: {error}", folder.display()))?;
    }
    let mut command = Command::new(shell::target_dir().join("debug").join(program));
    shell::run(command.arg(&folder).arg("--every"))?;
    Ok(folder)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

/// The last digits of the fingerprint that a file is named after.
fn fingerprint(text: &Path) -> u32 {
    let name = text.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.get(name.len().saturating_sub(6)..).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

fn is_taken(text: &Path) -> bool {
    (fingerprint(text) / 2).is_multiple_of(PART)
}

/// The architecture that a text for a compute capability is assembled for.
fn architecture(target: u32, text: &Path) -> u32 {
    match (target, fingerprint(text).is_multiple_of(2)) {
        (80, false) => 90,
        _ => target,
    }
}

/// Assembles a text, unless that was done before.
fn assemble_one(text: &Path, architecture: u32, assembler: &Path, done: &Path) -> Result<()> {
    let name = text.file_stem().unwrap_or_default().to_string_lossy();
    let mark = done.join(format!("{name}-{architecture}"));
    if mark.exists() {
        return Ok(());
    }
    let image = mark.with_extension("part");
    let mut command = Command::new(assembler);
    command.arg(format!("-arch=sm_{architecture}")).arg(text).arg("-o").arg(&image);
    shell::run(&mut command)?;
    // The machine code is of no use; that there was some is noted.
    std::fs::write(&mark, "").map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
    std::fs::remove_file(&image).map_err(|error| format!("cannot remove {}: {error}", image.display()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{architecture, fingerprint, is_taken};

    #[test]
    fn a_third_is_taken_and_split_among_architectures() {
        let name = |number: u32| format!("texts/80/00000000000000000000000000{number:06x}.ptx");
        assert_eq!(fingerprint(Path::new(&name(0xabcdef))), 0xabcdef);
        let taken: Vec<String> = (0..600).map(name).filter(|name| is_taken(Path::new(name))).collect();
        assert_eq!(taken.len(), 200);
        let newest = taken.iter().filter(|name| architecture(80, Path::new(name)) == 90);
        assert_eq!(newest.count(), 100);
        assert!(taken.iter().all(|name| architecture(75, Path::new(name)) == 75));
    }
}
