//! candle as it is published, built on a machine without an installed toolkit.
//!
//! candle's build asks for nvcc and links the program with the driver and the libraries upon it. nvcc comes in wheels of the
//! Python package index. For the linker there are libraries that have the names of the functions and nothing else, so that
//! no others are fetched. When the program runs, the libraries are the simulated ones, or this machine's with a real
//! driver; cudart, which candle's own kernels register with, is that of the wheels.
//!
//! **Invariant:** the program never finds a library made for the linker.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::suites::{self, Caching, Cudarc, Prepared, Suite};
use super::{Place, link};
use crate::shell::{self, Result};
use crate::wheels;

/// A program of ours that computes by candle.
pub(super) struct CandleProgram;

impl CandleProgram {
    const NAME: &str = "candle-program";

    /// Kernels are compiled for this capability unless `CUDA_COMPUTE_CAP` names another one: that of the simulated device.
    const CAPABILITY: &str = "90";
}

/// The libraries that candle's programs are linked with: where cudarc declares their functions, the name for the linker,
/// and the name in the program.
const LINKED: [(&str, &str, &str); 5] = [
    ("driver", "cuda", "libcuda.so.1"),
    ("nvrtc", "nvrtc", "libnvrtc.so.13"),
    ("curand", "curand", "libcurand.so.10"),
    ("cublas", "cublas", "libcublas.so.13"),
    ("cublaslt", "cublasLt", "libcublasLt.so.13"),
];

impl Suite for CandleProgram {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn caching(&self) -> Caching {
        Caching::Preloaded
    }

    fn prepare(&self, place: &Place<'_>) -> Result<Prepared> {
        let toolkit = toolkit(place.cache)?;
        let program = build(&toolkit, place.cache)?;
        let folder = suites::copied(Self::NAME, &[], place.cache)?;
        let mut libraries = libraries(&toolkit, place)?.into_os_string();
        if let Some(own) = std::env::var_os("LD_LIBRARY_PATH").filter(|_| !place.is_simulated) {
            libraries.push(":");
            libraries.push(own);
        }
        // The folder of the socket is named from where the program runs, since the path of a socket must be short.
        let figures = [("TORCH_CUDA_EXPORT", "1"), ("TORCH_CUDA_EXPORT_FOLDER", "figures")];
        Ok(Prepared::one(vec![program], &["list"], folder).libraries(libraries).environment(&figures))
    }
}

/// A folder as that of an installed toolkit.
fn toolkit(cache: &Path) -> Result<PathBuf> {
    let requirements = shell::root().join("tests/foreign/candle-requirements.txt");
    let toolkit = wheels::unpacked(&requirements, "foreign/toolkit")?.join("nvidia/cu13");
    link(&toolkit, "lib64", Some(Path::new("lib")))?;
    link(&toolkit.join("lib"), "libcudart.so", Some(Path::new("libcudart.so.13")))?;
    let declared = Cudarc::source(cache)?.join("src");
    for (module, short, soname) in LINKED {
        let text = shell::read(&declared.join(module).join("sys/mod.rs"))?;
        for_the_linker(&toolkit.join("lib/stubs"), short, soname, &functions(&text))?;
    }
    Ok(toolkit)
}

/// The names of the C functions that a text of cudarc declares.
fn functions(declarations: &str) -> Vec<&str> {
    let lines = declarations.lines().map(str::trim_start).filter_map(|line| line.strip_prefix("fn "));
    let is_one_of_c = |name: &str| name.starts_with("cu") || name.starts_with("nvrtc");
    let names = lines.filter_map(|line| line.split_once('(')).map(|(name, _)| name);
    let mut names: Vec<_> = names.filter(|name| is_one_of_c(name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Makes a library of functions that only have names.
fn for_the_linker(folder: &Path, short: &str, soname: &str, names: &[&str]) -> Result<()> {
    if names.is_empty() {
        return Err(format!("cudarc declares no function of {soname}"));
    }
    std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let text = folder.join(format!("{short}.s"));
    let functions: Vec<_> =
        names.iter().map(|name| format!(".globl {name}\n.type {name}, STT_FUNC\n{name}:\n")).collect();
    suites::write(&text, &format!(".text\n{}.byte 0\n", functions.concat()))?;
    let library = folder.join(format!("lib{short}.so"));
    shell::run(
        Command::new("cc")
            .args(["-shared", "-nostdlib"])
            .args([&text, Path::new("-o"), &library])
            .arg(format!("-Wl,-soname,{soname}")),
    )
}

/// Builds the program.
fn build(toolkit: &Path, cache: &Path) -> Result<PathBuf> {
    let folder = suites::copied(CandleProgram::NAME, &["Cargo.toml", "Cargo.lock", "src/main.rs"], cache)?;
    let target = cache.join("candle-target");
    let mut command = shell::cargo(["build", "--quiet", "--locked", "--manifest-path"]);
    command.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(&target);
    // Other places where the builds of candle and cudarc would look for a toolkit first.
    for name in ["NVCC", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDNN_LIB"] {
        command.env_remove(name);
    }
    let mut path = toolkit.join("bin").into_os_string();
    if let Some(own) = std::env::var_os("PATH") {
        path.push(":");
        path.push(own);
    }
    let capability = std::env::var_os("CUDA_COMPUTE_CAP").unwrap_or_else(|| CandleProgram::CAPABILITY.into());
    command.env("PATH", path).env("CUDA_HOME", toolkit).env("CUDA_COMPUTE_CAP", capability);
    shell::say("building candle, whose kernels take minutes the first time");
    shell::run(&mut command)?;
    Ok(target.join("debug").join(CandleProgram::NAME))
}

/// The folder of the libraries that the program finds.
fn libraries(toolkit: &Path, place: &Place<'_>) -> Result<PathBuf> {
    let folder = place.cache.join(if place.is_simulated { "candle-libraries" } else { "candle-cudart" });
    link(&folder, "libcudart.so.13", Some(&toolkit.join("lib/libcudart.so.13")))?;
    if !place.is_simulated {
        return Ok(folder);
    }
    super::shared_objects()?;
    let simulated = shell::target_dir().join("release/libcublas_sim.so");
    for name in ["libcublas.so.13", "libcublasLt.so.13"] {
        link(&folder, name, Some(&simulated))?;
    }
    let source = shell::root().join("tests/foreign/curand_stand_in.c");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcurand.so.10"]);
    shell::run(command.arg(source).arg("-o").arg(folder.join("libcurand.so.10")))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn declared_functions_are_found_once_each() {
        let text = "pub fn cuInit(Flags: u32) -> R {\n  extern \"C\" {\n    fn cuInit(Flags: u32) -> R;\n  }\n\
                    fn cuB(x: i32);\n fn cuB(x: i32);\n fn load<F>(name: &str);\npub type F = extern \"C\" fn(i32);";
        assert_eq!(functions(text), ["cuB", "cuInit"]);
    }
}
