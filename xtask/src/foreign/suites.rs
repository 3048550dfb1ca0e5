//! The programs of others: where they come from, what tests they have, how one is run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{self, Result};
use crate::wheels;

/// Programs of one origin.
pub(super) trait Suite {
    /// The word for it on the command line and in the file of expected outcomes.
    fn name(&self) -> &'static str;

    /// Fetches and builds what is not yet in the cache folder.
    fn prepare(&self, cache: &Path) -> Result<Prepared>;
}

/// Every suite there is.
const SUITES: [&dyn Suite; 3] = [
    &Cudarc,
    &Script { name: "cuda-core", file: "cuda_core_tests.py" },
    &Script { name: "numba", file: "numba_tests.py" },
];

/// The suites of the command line, or all.
pub(super) fn chosen(words: &[String]) -> Result<Vec<&'static dyn Suite>> {
    if words.is_empty() {
        return Ok(SUITES.to_vec());
    }
    let find = |word: &String| {
        let found = SUITES.iter().find(|suite| suite.name() == word);
        found.copied().ok_or_else(|| format!("there is no suite `{word}`"))
    };
    words.iter().map(find).collect()
}

/// A suite that can be run.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The program and what it is always called with.
    program: Vec<PathBuf>,
    /// What makes it print its tests, one a line.
    list: &'static [&'static str],
    /// What stands before the name of the test to run.
    run: &'static [&'static str],
    /// A folder of libraries that it opens.
    libraries: Option<PathBuf>,
}

impl Prepared {
    /// The names of all tests, in order.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let text = shell::capture(self.base().args(self.list))?;
        // Rust's test programs say what kind of thing a name is; there are only tests.
        let names = text.lines().map(|line| line.strip_suffix(": test").unwrap_or(line).to_owned());
        let names: Vec<_> = names.filter(|name| !name.is_empty() && !name.contains(' ')).collect();
        if names.is_empty() { Err("the suite has no tests".to_owned()) } else { Ok(names) }
    }

    /// What runs one test.
    pub(super) fn command(&self, test: &str) -> Command {
        let mut command = self.base();
        command.args(self.run).arg(test);
        command
    }

    fn base(&self) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        if let Some(folder) = &self.libraries {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command
    }
}

/// The tests that cudarc brings along, in the package as it is published.
struct Cudarc;

impl Cudarc {
    const VERSION: &str = "0.19.10";

    /// SHA-256 of the package, as the registry's index has it; cargo compares the package with it.
    const CHECKSUM: &str = "7359bf1de037ddada72729c3acec9b040f3468400c6e9e740b01ba0cd2e89562";

    const FEATURES: &str = "std,driver,dynamic-loading,cuda-12080,nvrtc,f16";

    /// The folder of the package's sources.
    fn source(cache: &Path) -> Result<PathBuf> {
        let folder = cache.join(format!("cudarc-{}", Self::VERSION));
        if folder.is_dir() {
            return Ok(folder);
        }
        let unfinished = cache.join(format!("cudarc.unfinished-{}", std::process::id()));
        let packages = Self::fetch(&unfinished)?;
        let source = packages.join("cudarc");
        let sums = shell::read(&source.join(".cargo-checksum.json"))?;
        if !sums.contains(&format!("\"package\":\"{}\"", Self::CHECKSUM)) {
            return Err(format!("cudarc {} is not the package that it was", Self::VERSION));
        }
        // Without this, cargo takes the package for a lost member of the workspace around the target folder.
        let manifest = source.join("Cargo.toml");
        write(&manifest, &format!("{}\n[workspace]\n", shell::read(&manifest)?))?;
        std::fs::rename(&source, &folder).map_err(|error| format!("cannot move {}: {error}", source.display()))?;
        std::fs::remove_dir_all(&unfinished)
            .map_err(|error| format!("cannot remove {}: {error}", unfinished.display()))?;
        Ok(folder)
    }

    /// Has cargo fetch the package for a project made for this; the folder with all packages beneath it.
    fn fetch(folder: &Path) -> Result<PathBuf> {
        shell::say(&format!("fetching cudarc {}", Self::VERSION));
        std::fs::create_dir_all(folder.join("src")).map_err(|error| format!("cannot make a folder: {error}"))?;
        write(&folder.join("src/lib.rs"), "")?;
        let manifest = folder.join("Cargo.toml");
        write(
            &manifest,
            &format!(
                "[package]\nname = \"fetch\"\nedition = \"2021\"\n[workspace]\n[dependencies.cudarc]\n\
                 version = \"={}\"\ndefault-features = false\nfeatures = [\"cuda-12080\"]\n",
                Self::VERSION
            ),
        )?;
        let packages = folder.join("packages");
        let mut command = shell::cargo(["vendor", "--quiet", "--manifest-path"]);
        // What it prints is how to build from there, which nobody does.
        shell::capture(command.arg(manifest).arg(&packages))?;
        Ok(packages)
    }

    /// Builds the tests; the program that holds them.
    fn build(source: &Path, cache: &Path) -> Result<PathBuf> {
        let mut command = shell::cargo(["test", "--quiet", "--lib", "--no-run", "--locked", "--message-format=json"]);
        command.args(["--no-default-features", "--features", Self::FEATURES]);
        command.arg("--manifest-path").arg(source.join("Cargo.toml"));
        command.arg("--target-dir").arg(cache.join("cudarc-target"));
        let text = shell::capture(&mut command)?;
        executable(&text).ok_or_else(|| "cargo names no program with cudarc's tests".to_owned())
    }
}

impl Suite for Cudarc {
    fn name(&self) -> &'static str {
        "cudarc"
    }

    fn prepare(&self, cache: &Path) -> Result<Prepared> {
        let nvrtc = wheels::unpacked(Path::new("tests/foreign/cudarc-requirements.txt"), "foreign/wheels")?;
        let source = Self::source(cache)?;
        Ok(Prepared {
            program: vec![Self::build(&source, cache)?],
            list: &["--list"],
            // Those that cudarc ignores need two devices or a process of their own, and have both here.
            run: &["--include-ignored", "--exact"],
            libraries: Some(nvrtc.join("nvidia/cuda_nvrtc/lib")),
        })
    }
}

/// The last program that cargo's messages name.
fn executable(messages: &str) -> Option<PathBuf> {
    let (_, rest) = messages.rsplit_once("\"executable\":\"")?;
    rest.split('"').next().map(PathBuf::from)
}

/// Keeps Python from writing files beside the scripts.
const NO_BYTECODE: &str = "-B";

/// A script of ours for libraries of others: without a word it prints its tests, with one it runs that test.
struct Script {
    name: &'static str,
    file: &'static str,
}

impl Suite for Script {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self, _: &Path) -> Result<Prepared> {
        let python = wheels::environment(Path::new("tests/foreign/python-requirements.txt"), "foreign/python")?;
        let script = shell::root().join("tests/foreign").join(self.file);
        Ok(Prepared { program: vec![python, NO_BYTECODE.into(), script], list: &[], run: &[], libraries: None })
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), SUITES.len());
        assert_eq!(chosen(&["numba".to_owned()]).unwrap()[0].name(), "numba");
        assert!(chosen(&["dance".to_owned()]).is_err());
    }

    #[test]
    fn the_program_is_the_last_one_named() {
        let messages = "{\"executable\":null}\n{\"executable\":\"/a/b-12\",\"fresh\":true}\n{\"success\":true}";
        assert_eq!(executable(messages), Some(PathBuf::from("/a/b-12")));
        assert_eq!(executable("{}"), None);
    }
}
