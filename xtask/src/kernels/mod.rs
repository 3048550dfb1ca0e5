//! `cargo xtask kernels`: compiles the kernels in CUDA C++ to PTX, runs them and compares them with plain Rust.
//!
//! There are two kinds. Those that the crates bring along (`library`) are committed with their texts, which are compared
//! with what the sources give today. Those that are generated (`every`) are assembled by the oldest assembler that matters. Those of `tests/kernels` are run here.
//!
//! The compilers are NVRTC of pinned wheels. The texts are made once for each content of the sources and of what compiles
//! them; after that neither Python nor a registry is needed.

mod every;
mod library;
mod machine;
mod texts;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Result};
use crate::{driver, wheels};

/// A compiler: its name, where it and its headers are among the wheels, and the architectures to compile for.
struct Compiler {
    name: &'static str,
    libraries: &'static str,
    headers: &'static str,
    architectures: &'static [u32],
}

const COMPILERS: [Compiler; 2] = [
    Compiler {
        name: "nvrtc-13.0",
        libraries: "nvidia/cu13/lib",
        headers: "nvidia/cu13/include",
        architectures: &[75, 90],
    },
    Compiler {
        name: "nvrtc-12.9",
        libraries: "nvidia/cuda_nvrtc/lib",
        headers: "nvidia/cuda_runtime/include",
        architectures: &[80],
    },
];

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    library::update(flags.has("--write"))?;
    machine::update(flags.has("--write"), &shell::root().join("xtask/kernels/requirements.txt"))?;
    if flags.has("--write") {
        return Ok(());
    }
    every::assemble(flags.has("--all"), &shell::root().join("xtask/kernels/requirements.txt"))?;
    let texts = texts()?;
    compiled_at_run_time()?;
    shell::build_programs_of("conformance")?;
    let mut command = Command::new(shell::target_dir().join("debug/cuda_kernels"));
    command.arg("--folder").arg(texts);
    match flags.driver() {
        "auto" | "sim" => command.args(["--seeds", &flags.number("--seeds", 3)?.to_string()]),
        "real" => command.args(["--driver", "real"]),
        path => command.arg("--driver").arg(driver::absolute(path)?),
    };
    if let Some(filter) = flags.value("--filter") {
        command.args(["--filter", filter]);
    }
    shell::run(&mut command)
}

/// Tests of CUDA C++ that is compiled when a program runs. Each compiler of the wheels has its turn; without one these tests
/// are skipped elsewhere.
fn compiled_at_run_time() -> Result<()> {
    let unpacked = wheels::unpacked(&shell::root().join("xtask/kernels/requirements.txt"), "kernels")?;
    let tests = ["raw_kernels", "jiterator", "kernel_cache", "jiterator_translated"];
    for (compiler, library, tests) in
        [(&COMPILERS[0], "libnvrtc.so.13", &tests[..]), (&COMPILERS[1], "libnvrtc.so.12", &tests[..2])]
    {
        shell::say(&format!("tests of texts that {} compiles when they are called", compiler.name));
        let mut command = shell::cargo(["test", "--quiet"]);
        for test in tests {
            command.args(["--test", test]);
        }
        command.env("CUDA_SYS_LIBNVRTC", unpacked.join(compiler.libraries).join(library));
        command.env("ATEN_CUDA_NEEDS_NVRTC", "1").env("PYTORCH_KERNEL_CACHE_PATH", kernel_cache());
        shell::run(command.env_remove("USE_PYTORCH_KERNEL_CACHE"))?;
    }
    Ok(())
}

/// Where tests keep compiled code.
pub(crate) fn kernel_cache() -> PathBuf {
    shell::target_dir().join("tmp/kernel_cache_of_tests")
}

/// The folder of the texts: in it one for each compiler and architecture, as `nvrtc-13.0-90`.
///
/// # Errors
/// The compilers cannot be fetched, or one refuses a source.
pub(crate) fn texts() -> Result<PathBuf> {
    let requirements = shell::root().join("xtask/kernels/requirements.txt");
    let script = shell::root().join("xtask/kernels/compile.py");
    let sources = sources(&shell::root().join("tests/kernels"))?;
    let mut all = String::new();
    for path in [&requirements, &script].into_iter().chain(&sources) {
        all.push_str(&shell::read(path)?);
    }
    let key = wheels::fingerprint(all.as_bytes());
    let folder = shell::target_dir().join("kernels").join(format!("ptx-{key:016x}"));
    wheels::made(&folder, |folder| {
        let unpacked = wheels::unpacked(&requirements, "kernels")?;
        COMPILERS.iter().try_for_each(|compiler| compile(compiler, &unpacked, &script, &sources, folder))
    })
}

/// The sources in a folder, in the order of their names.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    with_extension(folder, "cu")
}

fn with_extension(folder: &Path, wanted: &str) -> Result<Vec<PathBuf>> {
    let mut files = texts::files(folder)?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == wanted));
    Ok(files)
}

fn compile(compiler: &Compiler, unpacked: &Path, script: &Path, sources: &[PathBuf], folder: &Path) -> Result<()> {
    for architecture in compiler.architectures {
        let mut command = Command::new("python3");
        command.arg(script).arg(unpacked.join(compiler.libraries)).arg(unpacked.join(compiler.headers));
        command.arg(architecture.to_string()).arg(folder.join(format!("{}-{architecture}", compiler.name)));
        // Without contraction, so that plain Rust computes the same.
        shell::run(command.arg("--fmad=false").args(sources))?;
    }
    Ok(())
}
