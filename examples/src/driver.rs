//! Which driver a program runs on: `auto`, `sim`, `real` or the path of a libcuda.
//!
//! The runtime opens one driver for the life of a process and is told which by `CUDA_SYS_LIBCUDA`. A program that wants
//! another one than it was started with starts itself anew with that variable changed.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::checks::Failure;

/// The variable that names the libcuda to load instead of searching for one.
pub const VARIABLE: &str = "CUDA_SYS_LIBCUDA";

/// The file name of the simulated driver, which lies beside the programs.
pub const SIMULATED: &str = "libcuda_sim_driver.so";

/// Tells the program started anew why its driver was chosen.
const REASON: &str = "EXAMPLES_DRIVER_REASON";

/// Makes sure that this process runs on the driver asked for, and says which that is and why.
///
/// Returns in a process whose environment names that driver: either at once, or after the program has replaced itself.
///
/// # Errors
/// The simulated driver is not beside the program, the path is no file, or the program cannot be started anew.
pub fn settle(choice: &str) -> Result<String, Failure> {
    let named = std::env::var_os(VARIABLE);
    if let (Some(_), Ok(reason)) = (&named, std::env::var(REASON)) {
        return Ok(reason);
    }
    match (choice, named) {
        ("real", None) => Ok("real device, asked for".to_owned()),
        ("real", Some(_)) => restart(None, "real device, asked for"),
        ("sim", _) => simulated("simulated device, asked for"),
        ("auto", Some(path)) => Ok(format!("the driver {VARIABLE} names: {}", path.display())),
        ("auto", None) if cuda_api::is_available() => Ok("real device, found on this machine".to_owned()),
        ("auto", None) => simulated("simulated device, since this machine has no usable GPU"),
        (path, _) => {
            let path = std::path::absolute(path)?;
            if !path.is_file() {
                return Err(format!("there is no driver at {}", path.display()).into());
            }
            restart(Some(&path), &format!("the driver asked for: {}", path.display()))
        }
    }
}

fn simulated(reason: &str) -> Result<String, Failure> {
    let path = beside_the_program()?;
    if path.is_file() {
        return restart(Some(&path), reason);
    }
    Err(format!("no simulated driver at {}; build it with `cargo build --release -p libcuda-sim`", path.display())
        .into())
}

fn beside_the_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    Ok(program.parent().map(Path::to_owned).unwrap_or_default().join(SIMULATED))
}

/// Replaces this process by the same program with the same arguments and another driver.
fn restart(path: Option<&Path>, reason: &str) -> Result<String, Failure> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).env(REASON, reason);
    match path {
        Some(path) => command.env(VARIABLE, path),
        None => command.env_remove(VARIABLE),
    };
    Err(format!("cannot start anew: {}", command.exec()).into())
}
