//! The Python package and the shared object without PyTorch, on the simulated driver: what `python/scenarios.py` plays.
//!
//! Each scenario is a process of its own, which has to end by itself and well. A machine without Python has nothing to
//! install the package in; there the test says so. A forge's machines must have it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A scenario takes less than a second; on a busy machine some.
const LONGEST: Duration = Duration::from_secs(120);

/// A shared object that cargo builds next to this test's executable.
fn shared_object(name: &str) -> PathBuf {
    let library = std::env::current_exe().expect("this program has a path").with_file_name(name);
    assert!(library.exists(), "{} was not built", library.display());
    library
}

fn python(script: &Path) -> Command {
    let mut command = Command::new("python3");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUDA_")) {
        command.env_remove(name);
    }
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTHONPATH"] {
        command.env_remove(name);
    }
    command.arg("-B").arg(script);
    command.env("CUDA_SYS_LIBCUDA", shared_object("libcuda_sim_driver.so"));
    command.env("TORCH_ALLOCATOR_LIBRARY", shared_object("libtorch_allocator.so")).env("CUDA_SIM_DEVICES", "2");
    command
}

/// Runs one scenario to its end; what is wrong with it.
fn play(script: &Path, name: &str) -> Option<String> {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.log"));
    let file = std::fs::File::create(&log).expect("the target folder can be written");
    let mut child = python(script).arg(name).stdout(Stdio::null()).stderr(file).spawn().expect("there is a Python");
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if begin.elapsed() > LONGEST => {
                child.kill().and_then(|()| child.wait()).expect("a child");
                return Some(format!("{name} does not end"));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    (!status.success()).then(|| format!("{name}: {status}\n{said}"))
}

#[test]
fn scenarios() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/scenarios.py");
    let has_python = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has_python {
        assert!(std::env::var_os("CI").is_none(), "there is no python3");
        println!("not tested: there is no python3");
        return;
    }
    let listed = python(&script).output().expect("there is a Python");
    let names = String::from_utf8(listed.stdout).expect("a text");
    let names: Vec<_> = names.lines().collect();
    assert!(names.len() > 10, "{}", String::from_utf8_lossy(&listed.stderr));
    let half = names.len() / 2;
    let failed: Vec<_> = std::thread::scope(|scope| {
        let parts = [&names[..half], &names[half..]];
        let halves = parts.map(|part| scope.spawn(|| part.iter().filter_map(|name| play(&script, name)).collect()));
        halves.into_iter().flat_map(|half| -> Vec<String> { half.join().expect("a thread") }).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
