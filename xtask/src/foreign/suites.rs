//! The programs of others: where they come from, what tests they have, how one is run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Place;
use super::candle::CandleProgram;
use crate::shell::{self, Result};
use crate::wheels;

/// Programs of one origin.
pub(super) trait Suite {
    /// The word for it on the command line and in the file of expected outcomes.
    fn name(&self) -> &'static str;

    /// Fetches and builds what is not yet in the cache folder.
    fn prepare(&self, place: &Place<'_>) -> Result<Prepared>;

    /// How the programs find the library whose allocations are this project's, if they do.
    fn caching(&self) -> Caching {
        Caching::No
    }
}

/// How programs find `libcuda-caching`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caching {
    /// They find the driver alone.
    No,
    /// As the driver that they open.
    Opened,
    /// Loaded before the driver that they are linked with.
    Preloaded,
}

/// Every suite there is.
const SUITES: [&dyn Suite; 7] = [
    &Cudarc { is_cached: false },
    &CudarcExamples,
    &Cudarc { is_cached: true },
    &CudarcProgram,
    &CandleProgram,
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
    programs: Programs,
    /// Where they run.
    place: PathBuf,
    /// Folders of libraries that they open, as the system's loader is told them.
    libraries: Option<OsString>,
    /// What they find in their environment.
    environment: Vec<(&'static str, &'static str)>,
}

impl Prepared {
    /// A program with a word that makes it print its tests, which runs the test whose name it is called with.
    pub(super) fn one(program: Vec<PathBuf>, list: &'static [&'static str], place: PathBuf) -> Self {
        Self::new(Programs::One { program, list, run: &[] }, place)
    }

    fn new(programs: Programs, place: PathBuf) -> Self {
        Self { programs, place, libraries: None, environment: Vec::new() }
    }

    /// With libraries in these folders.
    pub(super) fn libraries(self, folders: impl Into<OsString>) -> Self {
        Self { libraries: Some(folders.into()), ..self }
    }

    /// With an environment.
    pub(super) fn environment(self, environment: &[(&'static str, &'static str)]) -> Self {
        Self { environment: environment.to_vec(), ..self }
    }
}

#[derive(Debug)]
enum Programs {
    /// One program, and what it is always called with: `list` makes it print its tests, one a line, and `run` stands
    /// before the name of the test to run.
    One { program: Vec<PathBuf>, list: &'static [&'static str], run: &'static [&'static str] },
    /// A program for each test, in a folder.
    Each { folder: PathBuf, names: &'static [&'static str] },
}

impl Prepared {
    /// The names of all tests, in order. A program that tells them may need libraries to start, by `surround`.
    pub(super) fn tests(&self, surround: impl FnOnce(&mut Command)) -> Result<Vec<String>> {
        let (program, list) = match &self.programs {
            Programs::One { program, list, .. } => (program, list),
            Programs::Each { names, .. } => return Ok(names.iter().map(|name| (*name).to_owned()).collect()),
        };
        let mut command = self.base(&program[0]);
        surround(command.args(&program[1..]).args(*list));
        let text = shell::capture(&mut command)?;
        // Rust's test programs say what kind of thing a name is; there are only tests.
        let names = text.lines().map(|line| line.strip_suffix(": test").unwrap_or(line).to_owned());
        let names: Vec<_> = names.filter(|name| !name.is_empty() && !name.contains(' ')).collect();
        if names.is_empty() { Err("the suite has no tests".to_owned()) } else { Ok(names) }
    }

    /// What runs one test.
    pub(super) fn command(&self, test: &str) -> Command {
        match &self.programs {
            Programs::One { program, run, .. } => {
                let mut command = self.base(&program[0]);
                command.args(&program[1..]).args(*run).arg(test);
                command
            }
            Programs::Each { folder, .. } => self.base(&folder.join(test)),
        }
    }

    fn base(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.place);
        if let Some(folder) = &self.libraries {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command.envs(self.environment.iter().copied());
        command
    }
}

/// The tests that cudarc brings along, in the package as it is published.
pub(super) struct Cudarc {
    is_cached: bool,
}

impl Cudarc {
    const VERSION: &str = "0.19.10";

    /// SHA-256 of the package, as the registry's index has it; cargo compares the package with it.
    const CHECKSUM: &str = "7359bf1de037ddada72729c3acec9b040f3468400c6e9e740b01ba0cd2e89562";

    /// Where cargo builds it, in the cache folder.
    const TARGET: &str = "cudarc-target";

    const FEATURES: &str = "std,driver,dynamic-loading,cuda-12080,nvrtc,f16";

    /// The folder of the package's sources.
    pub(super) fn source(cache: &Path) -> Result<PathBuf> {
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

    /// The folder of the compiler's libraries.
    fn compiler() -> Result<PathBuf> {
        let wheels = wheels::unpacked(&shell::root().join("tests/foreign/cudarc-requirements.txt"), "foreign/wheels")?;
        Ok(wheels.join("nvidia/cuda_nvrtc/lib"))
    }

    /// What has cargo build something of the package beneath the cache folder.
    fn cargo(command: [&str; 4], source: &Path, cache: &Path) -> Command {
        let mut command = shell::cargo(command);
        command.args(["--locked", "--no-default-features", "--features", Self::FEATURES]);
        command.arg("--manifest-path").arg(source.join("Cargo.toml"));
        command.arg("--target-dir").arg(cache.join(Self::TARGET));
        command
    }

    /// Builds the tests; the program that holds them.
    fn build(source: &Path, cache: &Path) -> Result<PathBuf> {
        let mut command = Self::cargo(["test", "--quiet", "--lib", "--no-run"], source, cache);
        let text = shell::capture(command.arg("--message-format=json"))?;
        executable(&text).ok_or_else(|| "cargo names no program with cudarc's tests".to_owned())
    }
}

impl Suite for Cudarc {
    fn name(&self) -> &'static str {
        if self.is_cached { "cudarc-caching" } else { "cudarc" }
    }

    fn caching(&self) -> Caching {
        if self.is_cached { Caching::Opened } else { Caching::No }
    }

    fn prepare(&self, &Place { cache, .. }: &Place<'_>) -> Result<Prepared> {
        let source = Self::source(cache)?;
        let programs = Programs::One {
            program: vec![Self::build(&source, cache)?],
            list: &["--list"],
            // Those that cudarc ignores need two devices or a process of their own, and have both here.
            run: &["--include-ignored", "--exact"],
        };
        Ok(Prepared::new(programs, source).libraries(Self::compiler()?))
    }
}

/// The examples in the same package, less the two for libraries that only come with a device.
struct CudarcExamples;

impl CudarcExamples {
    const NAMES: [&str; 12] = [
        "01-allocate",
        "02-copy",
        "03-launch-kernel",
        "04-streams",
        "05-device-repr",
        "06-threading",
        "09-constant-memory",
        "10-function-attributes",
        "12-context-config",
        "13-copy-multi-gpu",
        "matmul-kernel",
        "nvrtc-compile",
    ];
}

impl Suite for CudarcExamples {
    fn name(&self) -> &'static str {
        "cudarc-examples"
    }

    fn prepare(&self, &Place { cache, .. }: &Place<'_>) -> Result<Prepared> {
        let source = Cudarc::source(cache)?;
        let mut command = Cudarc::cargo(["build", "--quiet", "--profile", "dev"], &source, cache);
        for name in &Self::NAMES {
            command.args(["--example", name]);
        }
        shell::run(&mut command)?;
        let folder = cache.join(Cudarc::TARGET).join("debug/examples");
        let programs = Programs::Each { folder, names: &Self::NAMES };
        Ok(Prepared::new(programs, source).libraries(Cudarc::compiler()?))
    }
}

/// A program of ours that allocates by cudarc, with cudarc as it is published.
struct CudarcProgram;

impl CudarcProgram {
    const NAME: &str = "cudarc-program";
}

impl Suite for CudarcProgram {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn caching(&self) -> Caching {
        Caching::Opened
    }

    fn prepare(&self, &Place { cache, .. }: &Place<'_>) -> Result<Prepared> {
        Cudarc::source(cache)?;
        let to = copied(Self::NAME, &["Cargo.toml", "src/main.rs"], cache)?;
        let target = cache.join(Cudarc::TARGET);
        let mut command = shell::cargo(["build", "--quiet", "--release", "--manifest-path"]);
        shell::run(command.arg(to.join("Cargo.toml")).arg("--target-dir").arg(&target))?;
        let program = vec![target.join("release").join(Self::NAME)];
        Ok(Prepared::one(program, &["list"], to))
    }
}

/// A program of `tests/foreign` where it is built, outside the workspace.
pub(super) fn copied(name: &str, files: &[&str], cache: &Path) -> Result<PathBuf> {
    let (from, to) = (shell::root().join("tests/foreign").join(name), cache.join(name));
    std::fs::create_dir_all(to.join("src")).map_err(|error| format!("cannot make {}: {error}", to.display()))?;
    for file in files {
        let (text, copy) = (shell::read(&from.join(file))?, to.join(file));
        // What has not changed need not be built again.
        if std::fs::read_to_string(&copy).ok().as_ref() != Some(&text) {
            write(&copy, &text)?;
        }
    }
    Ok(to)
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

    fn prepare(&self, _: &Place<'_>) -> Result<Prepared> {
        let python =
            wheels::environment(&shell::root().join("tests/foreign/python-requirements.txt"), "foreign/python")?;
        let script = shell::root().join("tests/foreign").join(self.file);
        let program = vec![python, NO_BYTECODE.into(), script];
        Ok(Prepared::one(program, &[], shell::root()))
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<()> {
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
