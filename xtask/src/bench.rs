//! `cargo xtask bench`: our costs beside those of the raw driver; with `alloc` those of the caching allocator.

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
    let mut arguments = Vec::new();
    match flags.words() {
        [] if flags.value("--peer").is_some() => {
            return Err("--peer goes with `alloc`: `bench alloc --peer HARNESS`".into());
        }
        [] => {}
        [word] if word == "alloc" => arguments.push("alloc".into()),
        words => return Err(format!("`bench` takes the word `alloc` or none, not `{}`", words.join(" "))),
    }
    if let Some(harness) = flags.value("--peer") {
        if !PathBuf::from(harness).is_file() {
            return Err(format!("--peer takes the path of a harness program; there is no file `{harness}`"));
        }
        arguments.extend(["--peer".into(), driver::absolute(harness)?.into_os_string()]);
    }
    if flags.has("--json") {
        arguments.push("--json".into());
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::arguments;
    use crate::flags::{self, Request};

    fn given(line: &str) -> Result<Vec<String>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match flags::parse(&words).unwrap() {
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
    }

    #[test]
    fn what_means_nothing_is_refused_before_anything_is_built() {
        for (line, reason) in [
            ("bench events", "`alloc` or none"),
            ("bench alloc alloc", "`alloc` or none"),
            ("bench --peer /bin/sh", "goes with `alloc`"),
            ("bench alloc --peer /there/is/no/harness", "no file `/there/is/no/harness`"),
        ] {
            assert!(given(line).unwrap_err().contains(reason), "{line}");
        }
    }
}
