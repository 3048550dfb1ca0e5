//! `cargo xtask gpu-test`: what only a real GPU can say.
//!
//! Programs are always packed first (`bundle.rs`) and then run from the pack, so that what runs here is what runs on a
//! host without Rust.

use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Result};
use crate::{bundle, driver};

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let peer = flags.value("--peer").map(driver::absolute).transpose()?;
    if let Some(folder) = flags.value("--bundle") {
        return bundle::pack(&driver::absolute(folder)?, peer.as_deref());
    }
    let wants_gpu = matches!(flags.driver(), "auto" | "real");
    if wants_gpu && !driver::gpu_is_visible() {
        return Err(
            "this machine shows no NVIDIA GPU; pack the tests for one with `cargo xtask gpu-test --bundle DIR`, \
                    or see the same programs on the simulated driver with `--driver sim`"
                .to_owned(),
        );
    }
    let folder = shell::target_dir().join("gpu-test");
    bundle::pack(&folder, peer.as_deref())?;
    let driver = match flags.driver() {
        "auto" => "real".into(),
        word @ ("real" | "sim") => word.into(),
        path => driver::absolute(path)?.into_os_string(),
    };
    shell::run(Command::new("sh").arg(folder.join("run")).arg(driver))
}
