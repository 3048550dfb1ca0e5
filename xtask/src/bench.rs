//! `cargo xtask bench`: our costs beside those of the raw driver; with `alloc` those of the caching allocator, with
//! `streams` and `graphs` those of streams, events and graphs, with `tensors` those of operations on tensors, with `observe`
//! what the history, snapshots, marks and the time line cost, with `storage` files of tensors onto the device.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Result};

/// The profile that benches are built with.
pub(crate) const PROFILE: &str = "measured";

/// PyTorch's side of `tensors`, in the project.
pub(crate) const TENSORS_PEER: &str = "bench/src/bin/tensors/peer.py";

/// PyTorch's side of `storage`, in the project.
const STORAGE_PEER: &str = "bench/src/bin/storage/peer.py";

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let (program, arguments) = arguments(flags)?;
    shell::run(&mut shell::cargo(["build", "--release", "--quiet", "--package", "libcuda-sim"]))?;
    shell::run(&mut shell::cargo(["build", "--profile", PROFILE, "--quiet", "--package", "bench"]))?;
    let mut command = Command::new(shell::target_dir().join(PROFILE).join(program));
    driver::apply(&mut command, flags.driver(), "release")?;
    shell::run(command.args(arguments))
}

/// The program and the words for it, checked before anything is built.
fn arguments(flags: &Flags) -> Result<(&'static str, Vec<OsString>)> {
    let words: Vec<&str> = flags.words().iter().map(String::as_str).collect();
    if words == ["tensors"] {
        return Ok(("tensors", of_tensors(flags)?));
    }
    if words == ["observe"] {
        return Ok(("observe", of_observe(flags)?));
    }
    if words == ["storage"] {
        return Ok(("storage", of_storage(flags)?));
    }
    if let Some(name) = ["--filter", "--small"].into_iter().find(|name| flags.has(name)) {
        return Err(format!("{name} goes with `tensors`, and --small with `storage` too"));
    }
    Ok(("bench", of_runtime(flags, &words)?))
}

/// The words for `tensors`. PyTorch stands beside ours where the driver is a real one and Python finds PyTorch.
fn of_tensors(flags: &Flags) -> Result<Vec<OsString>> {
    if let Some(name) = ["--cold", "--figures", "--json"].into_iter().find(|name| flags.has(name)) {
        return Err(format!("{name} does not go with `tensors`"));
    }
    let mut arguments: Vec<OsString> = Vec::new();
    match flags.value("--peer") {
        Some(peer) => arguments.extend(["--peer".into(), existing("--peer", "a program", peer)?]),
        None if flags.driver() == "real" && has_pytorch() => {
            let script = shell::root().join(TENSORS_PEER);
            arguments.extend(["--peer".into(), format!("python3 {}", script.display()).into()]);
        }
        None => shell::say("no peer: PyTorch stands beside ours on a real driver where python3 finds it"),
    }
    if let Some(filter) = flags.value("--filter") {
        arguments.extend(["--filter".into(), filter.into()]);
    }
    if flags.has("--small") {
        arguments.push("--small".into());
    }
    Ok(arguments)
}

/// The words for `observe`.
fn of_observe(flags: &Flags) -> Result<Vec<OsString>> {
    let others = ["--cold", "--figures", "--peer", "--filter", "--small"];
    match others.into_iter().find(|name| flags.has(name)) {
        Some(name) => Err(format!("{name} does not go with `observe`")),
        None => Ok(if flags.has("--json") { vec!["--json".into()] } else { Vec::new() }),
    }
}

/// The words for `storage`. PyTorch's loader stands beside ours where the driver is a real one and Python finds PyTorch.
fn of_storage(flags: &Flags) -> Result<Vec<OsString>> {
    let others = ["--cold", "--figures", "--json", "--filter"];
    if let Some(name) = others.into_iter().find(|name| flags.has(name)) {
        return Err(format!("{name} does not go with `storage`"));
    }
    let mut arguments: Vec<OsString> = Vec::new();
    match flags.value("--peer") {
        Some(peer) => arguments.extend(["--peer".into(), existing("--peer", "a program", peer)?]),
        None if flags.driver() == "real" && has_pytorch() => {
            let script = shell::root().join(STORAGE_PEER);
            arguments.extend(["--peer".into(), format!("python3 {}", script.display()).into()]);
        }
        None => shell::say("no peer: PyTorch stands beside ours on a real driver where python3 finds it"),
    }
    if flags.has("--small") || flags.driver() != "real" {
        arguments.push("--small".into());
    }
    Ok(arguments)
}

fn has_pytorch() -> bool {
    let found = Command::new("python3").args(["-c", "import torch"]).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// The words for the other benches.
fn of_runtime(flags: &Flags, words: &[&str]) -> Result<Vec<OsString>> {
    let mut arguments: Vec<OsString> = Vec::new();
    let (alloc, flow) = match words {
        [] => (false, false),
        ["alloc"] => (true, false),
        ["streams"] | ["graphs"] | ["streams", "graphs"] => (false, true),
        words => {
            return Err(format!(
                "`bench` takes `alloc`, `streams`, `graphs`, `tensors`, `observe`, `storage` or nothing, not `{}`",
                words.join(" ")
            ));
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
                arguments(&flags).map(|(_, words)| words.into_iter().map(|word| word.into_string().unwrap()).collect())
            }
            Request::Help(text) => panic!("expected a command, got {text}"),
        }
    }

    #[test]
    fn options_are_handed_on() {
        assert_eq!(given("bench"), Ok(vec![]));
        assert_eq!(given("bench --json"), Ok(vec!["--json".to_owned()]));
        assert_eq!(given("bench observe --json"), Ok(vec!["--json".to_owned()]));
        let words = ["alloc", "--peer", "/bin/sh", "--json"].map(str::to_owned);
        assert_eq!(given("bench --json --peer /bin/sh alloc"), Ok(words.to_vec()));
        let words = ["--peer", "/bin/sh", "--filter", "add", "--small"].map(str::to_owned);
        assert_eq!(given("bench tensors --small --filter add --peer /bin/sh"), Ok(words.to_vec()));
        let words = ["--peer", "/bin/sh", "--small"].map(str::to_owned);
        assert_eq!(given("bench storage --small --peer /bin/sh"), Ok(words.to_vec()));
        let words = ["streams", "graphs", "--figures", "/bin/sh", "--cold"].map(str::to_owned);
        assert_eq!(given("bench streams graphs --cold --figures /bin/sh"), Ok(words.to_vec()));
    }

    #[test]
    fn what_means_nothing_is_refused_before_anything_is_built() {
        for (line, reason) in [
            ("bench events", "`storage` or nothing"),
            ("bench alloc alloc", "`storage` or nothing"),
            ("bench alloc --small", "goes with `tensors`"),
            ("bench storage --json", "does not go with `storage`"),
            ("bench observe --cold", "does not go with `observe`"),
            ("bench tensors --cold", "does not go with `tensors`"),
            ("bench tensors --peer /there/is/no/program", "no file `/there/is/no/program`"),
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
