//! `doctor`: what is there, where it was found, what is missing, and what that means.
//!
//! It looks at the machine as the runtime does: by loading and asking. Where a library was found is read from the
//! process's own list of what is mapped, which exists on Linux alone.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use cuda_api::Runtime;
use cuda_api::backends::cuda::{ProductLibrary, cufft_library, cusolver_library, product_library};

use crate::Error;
use crate::machine::one_line;

/// Prints a line for each thing that is looked for. The exit code is 1 if something that everything needs is missing.
pub(crate) fn run(out: &mut dyn Write) -> Result<u8, Error> {
    // A simulated driver has no kernel module.
    let is_simulated = Runtime::current().is_simulated();
    if !is_simulated {
        nodes(out)?;
    }
    match Runtime::current().driver_version() {
        Ok((version, _)) => {
            let kind = if is_simulated { ", simulated: no GPU computes" } else { "" };
            let state = format!("CUDA {}.{}{kind}", version / 1000, version % 1000 / 10);
            there(out, "driver", &state, mapped("libcuda"))?;
        }
        Err(error) => missing(out, "driver", &error, "no device can be used; install NVIDIA's driver, 520 or newer")?,
    }
    if let Err(error) = cuda_api::init() {
        let hidden = std::env::var("CUDA_VISIBLE_DEVICES");
        let hidden = hidden.map_or_else(|_| String::new(), |value| format!(" (CUDA_VISIBLE_DEVICES={value})"));
        missing(out, "devices", &format!("{error}{hidden}"), "everything that needs one fails")?;
        nvml(out)?;
        return Ok(1);
    }
    let count = cuda_api::device_count();
    there(out, "devices", &count.to_string(), None)?;
    let mut code = 0;
    for device in 0..count {
        if let Err(error) = cuda_api::mem_get_info(device) {
            missing(out, &format!("cuda:{device}"), &error, "it cannot be used by this process")?;
            code = 1;
        }
    }
    nvml(out)?;
    libraries(out)?;
    exports(out)?;
    Ok(code)
}

fn nvml(out: &mut dyn Write) -> Result<(), Error> {
    match Runtime::current().telemetry().versions() {
        Ok((driver, _)) => {
            there(out, "NVML", &format!("driver {driver}"), mapped("libnvidia-ml").or_else(|| mapped("libnvml")))
        }
        Err(error) => {
            missing(out, "NVML", &error, "no `top`, no temperature, power, load or processes; all else works")
        }
    }
}

/// What the absence of cuBLAS means.
const OWN_PRODUCTS: &str = "products of matrices run on own kernels, which know fewer cases";

/// The libraries of the toolkit. None is needed to start.
fn libraries(out: &mut dyn Write) -> Result<(), Error> {
    match product_library() {
        ProductLibrary::Cublas { version, lt_version, origin, .. } => {
            there(out, "cuBLAS", &version, Some(origin))?;
            match lt_version {
                Some(version) => {
                    there(out, "cuBLASLt", &version, mapped("libcublasLt").or_else(|| mapped("libcublas")))?
                }
                None => {
                    missing(out, "cuBLASLt", &"not found", "products with 8-bit and 4-bit floats are not to be had")?
                }
            }
        }
        ProductLibrary::Own { reason } => missing(out, "cuBLAS", &reason, OWN_PRODUCTS)?,
        _ => missing(out, "cuBLAS", &"it is not known", OWN_PRODUCTS)?,
    }
    match cusolver_library() {
        Ok((version, origin)) => there(out, "cuSOLVER", &version, Some(origin))?,
        Err(error) => {
            missing(out, "cuSOLVER", &error, "torch.linalg works on the host alone: cholesky, qr, solve, svd")?
        }
    }
    match cufft_library() {
        Ok((version, origin)) => there(out, "cuFFT", &version, Some(origin)),
        Err(error) => missing(out, "cuFFT", &error, "torch.fft works on the host alone"),
    }
}

/// Whether programs can show their figures.
fn exports(out: &mut dyn Write) -> Result<(), Error> {
    match cuda_api::figure_exports() {
        Ok(found) => {
            let alive = found.iter().filter(|found| found.is_alive).count();
            there(out, "exports", &format!("{alive} programs show their figures"), None)
        }
        Err(error) => missing(out, "exports", &error, "`top` and `stats` show no program's pools"),
    }
}

/// The files through which a process reaches the driver's kernel part: each must be there and may be opened.
fn nodes(out: &mut dyn Write) -> Result<(), Error> {
    for node in ["/dev/nvidiactl", "/dev/nvidia-uvm"] {
        match OpenOptions::new().read(true).write(true).open(node) {
            Ok(_) => there(out, node, "may be opened", None)?,
            Err(error) if !Path::new(node).exists() => {
                missing(out, node, &error, "the kernel's part of the driver is not loaded, or a container hides it")?;
            }
            Err(error) => missing(out, node, &error, "this user may not use the GPU")?,
        }
    }
    Ok(())
}

fn there(out: &mut dyn Write, what: &str, state: &str, place: Option<String>) -> Result<(), Error> {
    let place = place.map_or_else(String::new, |place| format!(" ({place})"));
    Ok(writeln!(out, "ok       {what}: {state}{place}")?)
}

fn missing(out: &mut dyn Write, what: &str, why: &dyn Display, so: &str) -> Result<(), Error> {
    Ok(writeln!(out, "missing  {what}: {}\n         so: {so}", one_line(&why.to_string()))?)
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
