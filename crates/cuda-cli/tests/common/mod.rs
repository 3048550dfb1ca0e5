//! The program on a simulated machine.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![allow(dead_code, reason = "not every test uses everything")]

use std::path::PathBuf;
use std::process::Command;

/// A shared object, which cargo builds beside this test's executable.
pub(crate) fn shared_object(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// A folder of this test alone, empty.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The program on a simulated machine with two devices, where nobody exports figures.
pub(crate) fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torch-cuda"));
    command
        .args(words)
        .env("CUDA_SYS_LIBCUDA", shared_object("libcuda_sim_driver.so"))
        .env("CUDA_SYS_LIBNVML", shared_object("libnvml_sim.so"))
        .env("CUDA_SIM_DEVICES", "2")
        .env("TORCH_CUDA_EXPORT_FOLDER", "/nowhere")
        .env_remove("PYTORCH_CUDA_ALLOC_CONF");
    command
}

/// Exit code, output and error output.
pub(crate) fn told(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// When this process was started, as names of sockets have it.
pub(crate) fn own_start() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    text.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().parse().unwrap()
}
