//! The texts that the program `common_kernels` of the tests writes, and the assemblers that read texts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::shell::{self, Result};
use crate::wheels;

/// How many assemblers run at once.
const AT_ONCE: usize = 2;

/// Has the program write its texts into a folder of this name, which is emptied before; returns the folder.
///
/// # Errors
/// The program cannot be built, or fails.
pub(super) fn written(name: &str, options: &[&str]) -> Result<PathBuf> {
    let program = "common_kernels";
    shell::build_programs_of("conformance")?;
    let folder = shell::target_dir().join("kernels").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("cannot empty {}: {error}", folder.display()))?;
    }
    shell::run(Command::new(shell::target_dir().join("debug").join(program)).arg(&folder).args(options))?;
    Ok(folder)
}

/// The files in a folder, in the order of their names.
///
/// # Errors
/// The folder cannot be listed.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

/// An assembler: the oldest one that matters, of CUDA 11.8, or a later one for texts that it cannot know.
pub(super) struct Assembler(PathBuf);

impl Assembler {
    /// The one for an architecture, of the wheels.
    ///
    /// # Errors
    /// The wheels cannot be fetched.
    pub(super) fn of(requirements: &Path, architecture: &str) -> Result<Self> {
        let later = requirements.with_file_name("assembler.txt");
        let requirements = if architecture.ends_with('a') { &later } else { requirements };
        Ok(Self(wheels::unpacked(requirements, "kernels")?.join("nvidia/cuda_nvcc/bin/ptxas")))
    }

    /// Makes machine code of a text.
    ///
    /// # Errors
    /// It refuses the text.
    pub(super) fn assemble(&self, text: &Path, architecture: &str, image: &Path) -> Result<()> {
        let mut command = Command::new(&self.0);
        shell::run(command.arg(format!("-arch=sm_{architecture}")).arg(text).arg("-o").arg(image))
    }
}

/// Does the work for each item, some at once; returns what failed.
pub(super) fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Vec<String> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(error);
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(run))));
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::for_each;

    #[test]
    fn each_item_is_done_and_failures_are_told() {
        let items: Vec<u32> = (0..100).collect();
        let work = |&item: &u32| if item % 50 == 7 { Err(item.to_string()) } else { Ok(()) };
        let mut failed = for_each(&items, work);
        failed.sort();
        assert_eq!(failed, ["57", "7"]);
    }
}
