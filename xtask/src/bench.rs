//! `cargo xtask bench`: our costs beside those of the raw driver; with `alloc` those of the caching allocator, with
//! `streams` and `graphs` those of streams, events and graphs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Result};

/// The profile that benches are built with.
pub(crate) const PROFILE: &str = "measured";

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let arguments = arguments(flags)?;
    shell::run(&mut shell::cargo(["build", "--release", "--quiet", "--package", "libcuda-sim"]))?;
    shell::run(&mut shell::cargo(["build", "--profile", PROFILE, "--quiet", "--package", "bench"]))?;
    let mut command = Command::new(shell::target_dir().join(PROFILE).join("bench"));
    driver::apply(&mut command, flags.driver(), "release")?;
    shell::run(command.args(arguments))
}

/// The words for the program, checked before anything is built.
fn arguments(flags: &Flags) -> Result<Vec<OsString>> {
    let mut arguments: Vec<OsString> = Vec::new();
    let words: Vec<&str> = flags.words().iter().map(String::as_str).collect();
    let (alloc, flow) = match words.as_slice() {
        [] => (false, false),
        ["alloc"] => (true, false),
        ["streams"] | ["graphs"] | ["streams", "graphs"] => (false, true),
        words => {
            return Err(format!("`bench` takes `alloc`, `streams`, `graphs` or nothing, not `{}`", words.join(" ")));
        }
    };
    arguments.extend(words.iter().map(OsString::from));
    let takes = |name: &str, meant: bool, how: &str| match flags.value(name) {
        Some(_) if !meant => Err(format!("{name} goes with {how}")),
        value => Ok(value),
    };
    if let Some(harness) = takes("--peer", alloc, "`alloc`: `bench alloc --peer HARNESS`")? {
        arguments.extend(["--peer".into(), existing("--peer", "a harness program", harness)?]);
    }
    if let Some(figures) = takes("--figures", flow, "`streams` and `graphs`")? {
        arguments.extend(["--figures".into(), existing("--figures", "figures", figures)?]);
    }
    if flags.has("--cold") {
        if !flow {
            return Err("--cold goes with `streams`".into());
        }
        arguments.push("--cold".into());
    }
    if flags.has("--json") {
        arguments.push("--json".into());
    }
    Ok(arguments)
}

/// The absolute path of a file that is there.
fn existing(name: &str, what: &str, path: &str) -> Result<OsString> {
    if PathBuf::from(path).is_file() {
        Ok(driver::absolute(path)?.into_os_string())
    } else {
        Err(format!("{name} takes the path of {what}; there is no file `{path}`"))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::arguments;
    use crate::flags::{self, Request};

    fn given(line: &str) -> Result<Vec<String>, String> {
        match flags::parse(line.split_whitespace().map(OsString::from)).unwrap() {
            Request::Run(_, flags) => {
                arguments(&flags).map(|words| words.into_iter().map(|word| word.into_string().unwrap()).collect())
            }
            Request::Help(text) => panic!("expected a command, got {text}"),
        }
    }

    #[test]
    fn options_are_handed_on() {
        assert_eq!(given("bench"), Ok(vec![]));
        assert_eq!(given("bench --json"), Ok(vec!["--json".to_owned()]));
        let words = ["alloc", "--peer", "/bin/sh", "--json"].map(str::to_owned);
        assert_eq!(given("bench --json --peer /bin/sh alloc"), Ok(words.to_vec()));
        let words = ["streams", "graphs", "--figures", "/bin/sh", "--cold"].map(str::to_owned);
        assert_eq!(given("bench streams graphs --cold --figures /bin/sh"), Ok(words.to_vec()));
    }

    #[test]
    fn what_means_nothing_is_refused_before_anything_is_built() {
        for (line, reason) in [
            ("bench events", "`graphs` or nothing"),
            ("bench alloc alloc", "`graphs` or nothing"),
            ("bench alloc --cold", "goes with `streams`"),
            ("bench alloc --figures /bin/sh", "goes with `streams` and `graphs`"),
            ("bench streams --figures /there/is/nothing", "no file `/there/is/nothing`"),
            ("bench --peer /bin/sh", "goes with `alloc`"),
            ("bench alloc --peer /there/is/no/harness", "no file `/there/is/no/harness`"),
        ] {
            assert!(given(line).unwrap_err().contains(reason), "{line}");
        }
    }
}
