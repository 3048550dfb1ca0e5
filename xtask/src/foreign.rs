//! `cargo xtask foreign`: programs of others on the simulated driver.
//!
//! They are fetched at pinned versions into `foreign` beneath the target folder; nothing of them is committed. The
//! system's loader finds the simulated driver there under the names of the real one. Each test is a process of its own,
//! so that none sees what another left behind. What is expected of each stands in `tests/foreign/expected.txt`; the
//! command fails where something differs from it, also where a test passes that should not.
//!
//! `--driver` chooses which libcuda the loader finds: `auto` is the simulated one here, since it is what is tested.

mod candle;
mod expected;
mod suites;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use expected::Verdict;
use suites::{Caching, Suite};

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Result};

/// Where the expected outcomes are kept.
const EXPECTED: &str = "tests/foreign/expected.txt";

/// A test that takes longer than this does not end.
const LONGEST: Duration = Duration::from_secs(600);

/// How many devices the simulated machine has: some tests copy between two.
const DEVICES: &str = "2";

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let chosen = suites::chosen(flags.words())?;
    let cache = shell::target_dir().join("foreign");
    let library = library_folder(&cache, flags.driver())?;
    let is_served = |suite: &&dyn Suite| suite.caching() != Caching::No;
    let caching = if chosen.iter().any(is_served) { Some(caching_folder(&cache, &library)?) } else { None };
    let expected = expected::parse(&shell::read(&shell::root().join(EXPECTED))?)?;
    let mut differences = Vec::new();
    for suite in chosen {
        let expected = expected.get(suite.name()).cloned().unwrap_or_default();
        let libraries = Libraries::of(suite.caching(), &library, caching.as_deref());
        let place = Place { cache: &cache, is_simulated: flags.driver() != "real" };
        differences.extend(run_suite(suite, &place, &libraries, flags.has("--slow"), &expected)?);
    }
    if differences.is_empty() { Ok(()) } else { Err(format!("not as {EXPECTED} says:\n{}", differences.join("\n"))) }
}

/// Where a suite is prepared, and for what.
pub(crate) struct Place<'a> {
    /// The folder for everything that is fetched and built.
    cache: &'a Path,
    /// Whether the driver is not that of this machine, so that libraries upon it must be simulated too.
    is_simulated: bool,
}

/// What the system's loader is told before a program starts.
struct Libraries<'a> {
    /// The folder in which it finds the driver.
    folder: &'a Path,
    /// What it loads before everything else.
    first: Option<PathBuf>,
}

impl<'a> Libraries<'a> {
    fn of(caching: Caching, driver: &'a Path, served: Option<&'a Path>) -> Self {
        let served = served.unwrap_or(driver);
        match caching {
            Caching::No => Self { folder: driver, first: None },
            Caching::Opened => Self { folder: served, first: None },
            Caching::Preloaded => Self { folder: driver, first: Some(served.join(SHORT)) },
        }
    }
}

/// Runs one suite; what differs from what is expected.
fn run_suite(
    suite: &dyn Suite,
    place: &Place<'_>,
    libraries: &Libraries<'_>,
    slow: bool,
    expected: &expected::Outcomes,
) -> Result<Vec<String>> {
    let name = suite.name();
    shell::say(&format!("== {name}"));
    let begin = Instant::now();
    let prepared = suite.prepare(place)?;
    let tests = prepared.tests(|command| surround(command, libraries))?;
    let mut counts = [0_usize; 3];
    let mut differences = expected::absent(name, expected, &tests);
    let logs = place.cache.join("logs").join(name);
    std::fs::create_dir_all(&logs).map_err(|error| format!("cannot make {}: {error}", logs.display()))?;
    for test in &tests {
        let wanted = expected.get(test.as_str());
        if let Some(cause) = wanted.and_then(|wanted| wanted.skipped(slow)) {
            counts[2] += 1;
            shell::say(&format!("skipped {test}: {cause}"));
            continue;
        }
        let log = logs.join(format!("{}.log", test.replace("::", ".")));
        let verdict = one(prepared.command(test), libraries, &log)?;
        counts[usize::from(verdict != Verdict::Passed)] += 1;
        let cause = wanted.map_or("", |wanted| wanted.cause.as_str());
        shell::say(format!("{verdict:<7} {test}: {cause}").trim_end_matches([':', ' ']));
        if wanted.map(|wanted| wanted.verdict()) != Some(Verdict::plain(verdict)) {
            differences.push(format!("{name} {test}: {verdict}; its output: {}", log.display()));
        }
    }
    let [passed, failed, skipped] = counts;
    let seconds = begin.elapsed().as_secs_f64();
    shell::say(&format!("{name}: {passed} passed, {failed} failed, {skipped} skipped, {seconds:.1} s"));
    Ok(differences)
}

/// Runs one test to its end, its output into a file.
fn one(mut command: Command, libraries: &Libraries<'_>, log: &Path) -> Result<Verdict> {
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", log.display());
    let output = std::fs::File::create(log).map_err(cannot)?;
    command.stderr(output.try_clone().map_err(cannot)?).stdout(output);
    surround(&mut command, libraries);
    let mut child = command.spawn().map_err(|error| format!("cannot run `{}`: {error}", shell::spelled(&command)))?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("cannot wait for a test: {error}"))? {
            return Ok(if status.success() { Verdict::Passed } else { Verdict::Failed });
        }
        if begin.elapsed() > LONGEST {
            let ended = child.kill().and_then(|()| child.wait());
            return ended.map(|_| Verdict::Endless).map_err(|error| format!("cannot end a test: {error}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Gives a program the driver, and a machine that nobody else has configured.
fn surround(command: &mut Command, libraries: &Libraries<'_>) {
    let settings = std::env::vars_os().map(|(name, _)| name);
    for name in settings.filter(|name| name.to_string_lossy().starts_with("CUDA_")) {
        command.env_remove(name);
    }
    let own = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH").and_then(|(_, value)| value);
    let mut path = libraries.folder.as_os_str().to_owned();
    if let Some(own) = own {
        path.push(":");
        path.push(own);
    }
    command.env("LD_LIBRARY_PATH", path).env("CUDA_SIM_DEVICES", DEVICES);
    if let Some(first) = &libraries.first {
        command.env("LD_PRELOAD", first);
    }
}

/// Builds the libraries that programs find in place of NVIDIA's, in one go: for each alone cargo would choose other features
/// of the packages beneath, and build those again.
fn shared_objects() -> Result<()> {
    let mut command = shell::cargo(["build", "--quiet", "--release"]);
    for package in ["libcuda-sim", "libcuda-caching", "libcublas-sim"] {
        command.args(["--package", package]);
    }
    shell::run(&mut command)
}

/// A folder in which the driver asked for has the names under which programs look for it.
fn library_folder(cache: &Path, driver: &str) -> Result<PathBuf> {
    let library = match driver {
        "auto" | "sim" => {
            shared_objects()?;
            Some(shell::target_dir().join("release").join(driver::SIMULATED))
        }
        "real" => None,
        path => Some(driver::absolute(path)?),
    };
    let folder = cache.join("libcuda");
    for name in [SHORT, SONAME] {
        link(&folder, name, library.as_deref())?;
    }
    Ok(folder)
}

/// A folder in which programs find the library whose allocations are this project's, and that library the driver of
/// another folder.
fn caching_folder(cache: &Path, driver: &Path) -> Result<PathBuf> {
    shared_objects()?;
    let folder = cache.join("libcuda-caching");
    link(&folder, SHORT, Some(&shell::target_dir().join("release/libcuda_caching.so")))?;
    let real = driver.join(SONAME);
    link(&folder, SONAME, real.exists().then_some(real.as_path()))?;
    Ok(folder)
}

/// The names under which programs look for the driver: cudarc by the first, whatever is linked with it by the second.
const SHORT: &str = "libcuda.so";
const SONAME: &str = "libcuda.so.1";

/// Gives a library a name in a folder; without one the name is that of nothing there.
pub(crate) fn link(folder: &Path, name: &str, library: Option<&Path>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let link = folder.join(name);
    // A link of an earlier run may lead elsewhere.
    let _ = std::fs::remove_file(&link);
    match library {
        Some(library) => std::os::unix::fs::symlink(library, &link)
            .map_err(|error| format!("cannot make {}: {error}", link.display())),
        None => Ok(()),
    }
}
