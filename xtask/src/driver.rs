//! What `--driver` means: which libcuda the programs of a command load.
//!
//! The runtime itself knows one override, the environment variable `CUDA_SYS_LIBCUDA`; this module sets it.

use std::path::PathBuf;
use std::process::Command;

use crate::shell::{self, Result};

/// The variable that names the libcuda to load instead of searching for one.
pub(crate) const VARIABLE: &str = "CUDA_SYS_LIBCUDA";

/// The file name of the simulated driver.
pub(crate) const SIMULATED: &str = "libcuda_sim_driver.so";

/// Checks the spelling of a driver before anything is built for it.
///
/// # Errors
/// It is none of the words and no file.
pub(crate) fn validate(driver: &str) -> Result<()> {
    match driver {
        "auto" | "sim" | "real" => Ok(()),
        path if PathBuf::from(path).is_file() => Ok(()),
        path => Err(format!("--driver takes auto, sim, real or the path of a libcuda; there is no file `{path}`")),
    }
}

/// Points a program that does not choose by itself at the driver asked for.
///
/// With `auto` it is the real one if this machine shows a GPU, else the simulated one of the given build profile.
pub(crate) fn apply(command: &mut Command, driver: &str, profile: &str) -> Result<()> {
    validate(driver)?;
    match driver {
        "auto" if gpu_is_visible() => command.env_remove(VARIABLE),
        "auto" | "sim" => command.env(VARIABLE, shell::target_dir().join(profile).join(SIMULATED)),
        "real" => command.env_remove(VARIABLE),
        path => command.env(VARIABLE, absolute(path)?),
    };
    Ok(())
}

/// Whether this machine shows an NVIDIA GPU to programs: the device files of Linux, of WSL or of Jetson.
pub(crate) fn gpu_is_visible() -> bool {
    ["/dev/nvidia0", "/dev/dxg", "/dev/nvhost-gpu"].iter().any(|path| std::path::Path::new(path).exists()) || any_gpu()
}

/// A container may be given a GPU other than the first.
fn any_gpu() -> bool {
    std::fs::read_dir("/dev").is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
            digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        })
    })
}

/// A path that means the same in the folder of the workspace, where programs run.
pub(crate) fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| format!("cannot tell where `{path}` is: {error}"))
}
