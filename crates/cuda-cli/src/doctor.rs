//! `doctor`: what is there, where it was found, what is missing, and what that means.
//!
//! It looks at the machine as the runtime does: by loading and asking. Where a library was found is read from the
//! process's own list of what is mapped, which exists on Linux alone.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use cuda_api::Runtime;

use crate::Error;

/// Prints a line for each thing that is looked for. The exit code is 1 if something that everything needs is missing.
pub(crate) fn run(out: &mut dyn Write) -> Result<u8, Error> {
    nodes(out)?;
    if let Err(error) = cuda_api::init() {
        missing(out, "driver", &error.to_string(), "no device can be used; install NVIDIA's driver, 520 or newer")?;
        return Ok(1);
    }
    let version = Runtime::current().driver_version();
    match version {
        Ok((version, _)) => {
            there(out, "driver", &format!("CUDA {}.{}", version / 1000, version % 1000 / 10), "libcuda")?
        }
        Err(error) => missing(out, "driver", &error.to_string(), "its version is not known")?,
    }
    let count = cuda_api::device_count();
    if count == 0 {
        let hidden = std::env::var("CUDA_VISIBLE_DEVICES");
        let why = hidden.map_or_else(|_| "none is there".to_owned(), |value| format!("CUDA_VISIBLE_DEVICES={value}"));
        missing(out, "devices", &why, "everything that needs one fails")?;
        return Ok(1);
    }
    there(out, "devices", &count.to_string(), "")?;
    let mut code = 0;
    for device in 0..count {
        if let Err(error) = cuda_api::mem_get_info(device) {
            missing(out, &format!("cuda:{device}"), &error.to_string(), "it cannot be used by this process")?;
            code = 1;
        }
    }
    match cuda_api::temperature(0) {
        Ok(_) => there(out, "NVML", "answers", "libnvidia-ml")?,
        Err(error) => {
            missing(out, "NVML", &error.to_string(), "no temperature, power, load or processes; all else works")?
        }
    }
    match cuda_api::current_blas_handle(None) {
        Ok(_) => there(out, "cuBLAS", "answers", "libcublas")?,
        Err(error) => missing(
            out,
            "cuBLAS",
            &error.to_string(),
            "products of matrices run on own kernels, which know fewer cases",
        )?,
    }
    Ok(code)
}

/// The files through which a process reaches the driver's kernel part: each must be there and may be opened.
fn nodes(out: &mut dyn Write) -> Result<(), Error> {
    for node in ["/dev/nvidiactl", "/dev/nvidia-uvm"] {
        match OpenOptions::new().read(true).write(true).open(node) {
            Ok(_) => there(out, node, "may be opened", "")?,
            Err(error) if !Path::new(node).exists() => {
                missing(
                    out,
                    node,
                    &error.to_string(),
                    "the kernel's part of the driver is not loaded, or a container hides it",
                )?;
            }
            Err(error) => missing(out, node, &error.to_string(), "this user may not use the GPU")?,
        }
    }
    Ok(())
}

fn there(out: &mut dyn Write, what: &str, state: &str, library: &str) -> Result<(), Error> {
    let place = if library.is_empty() { None } else { mapped(library) };
    let place = place.map_or_else(String::new, |place| format!(" ({place})"));
    Ok(writeln!(out, "ok       {what}: {state}{place}")?)
}

fn missing(out: &mut dyn Write, what: &str, why: &str, so: &str) -> Result<(), Error> {
    Ok(writeln!(out, "missing  {what}: {why}\n         so: {so}")?)
}

/// The file of a library that this process has loaded.
fn mapped(library: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let is_library =
        |path: &&str| Path::new(path).file_name().is_some_and(|name| name.to_string_lossy().starts_with(library));
    maps.lines()
        .filter_map(|line| line.split_once('/').map(|(head, _)| &line[head.len()..]))
        .find(is_library)
        .map(str::to_owned)
}
