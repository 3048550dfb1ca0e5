//! The kernels that the crates bring along: CUDA C++ beside the PTX that was made of it.
//!
//! The texts are committed, so that building needs no compiler of NVIDIA's. They are compiled for compute capability 7.5,
//! or for what their first line asks for (`// needs 80`), and say the language version of CUDA 11.8, whose assembler must
//! accept them: the oldest driver that is supported reads no later version. Texts for one architecture alone
//! (`// needs 90a`) say the version that brought its instructions, that of CUDA 12.0: on older drivers other kernels serve.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::texts::Assembler;
use crate::shell::{self, Result};
use crate::wheels;

/// The architecture of texts that ask for no other.
const ARCHITECTURE: &str = "75";

/// The version of the language that a text for an architecture says.
fn version(architecture: &str) -> &'static str {
    if architecture.ends_with('a') { ".version 8.0" } else { ".version 7.8" }
}

/// A folder of sources, and what NVRTC is told besides.
struct Library {
    folder: &'static str,
    options: &'static [&'static str],
}

/// How often the compiler is asked before a text counts as different. It has been seen to number the registers of one
/// source in another order, rarely, with everything else the same.
const ATTEMPTS: usize = 3;

const LIBRARIES: [Library; 2] = [
    // Functions without a kernel exist only in code that is to be linked.
    Library { folder: "crates/kernel-ir/kernels", options: &["--relocatable-device-code=true"] },
    Library { folder: "crates/aten-cuda/kernels", options: &[] },
];

/// Makes every text again: writes those that differ, or says which differ and fails.
///
/// # Errors
/// The compilers cannot be fetched, one refuses a source, or a text differs from its source while checking.
pub(crate) fn update(write: bool) -> Result<()> {
    let requirements = shell::root().join("xtask/kernels/requirements.txt");
    let script = shell::root().join("xtask/kernels/compile.py");
    let mut stale = Vec::new();
    for library in &LIBRARIES {
        for (name, text) in differing(library, &script, &requirements)? {
            if write {
                std::fs::write(&name, text).map_err(|error| format!("cannot write {}: {error}", name.display()))?;
                shell::say(&format!("wrote {}", name.display()));
            } else {
                stale.push(name.display().to_string());
            }
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!("{} is not what its source says; `cargo xtask kernels --write` makes it again", stale.join(", ")))
}

/// The committed texts that differ from what the compiler writes each time, with what it wrote last.
fn differing(library: &Library, script: &Path, requirements: &Path) -> Result<Vec<(PathBuf, String)>> {
    let sources = super::sources(&shell::root().join(library.folder))?;
    let mut found = Vec::new();
    for attempt in 0..ATTEMPTS {
        let made = compiled(library, &sources, script, requirements)?;
        let before = found;
        found = compare(&sources, &made)?;
        if attempt > 0 {
            found.retain(|(name, _)| before.iter().any(|(other, _)| other == name));
        }
        if found.is_empty() {
            break;
        }
        if attempt + 1 < ATTEMPTS {
            std::fs::remove_dir_all(&made).map_err(|error| format!("cannot remove {}: {error}", made.display()))?;
        }
    }
    Ok(found)
}

/// The committed texts that differ from those of a folder, with the latter.
fn compare(sources: &[PathBuf], made: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for source in sources {
        let name = source.with_extension("ptx");
        let text = shell::read(&made.join(name.file_name().unwrap_or_default()))?;
        if std::fs::read_to_string(&name).is_ok_and(|committed| committed == text) {
            continue;
        }
        found.push((name, text));
    }
    Ok(found)
}

/// The folder of the texts made of these sources.
fn compiled(library: &Library, sources: &[PathBuf], script: &Path, requirements: &Path) -> Result<PathBuf> {
    let headers = super::with_extension(&shell::root().join(library.folder), "cuh")?;
    let mut all = library.options.concat();
    for path in [requirements, script].into_iter().chain(sources.iter().chain(&headers).map(PathBuf::as_path)) {
        all.push_str(&shell::read(path)?);
    }
    let key = wheels::fingerprint(all.as_bytes());
    let folder = shell::target_dir().join("kernels").join(format!("library-{key:016x}"));
    wheels::made(&folder, |folder| {
        let unpacked = wheels::unpacked(requirements, "kernels")?;
        let mut architectures: Vec<String> =
            sources.iter().map(|source| architecture(source)).collect::<Result<_>>()?;
        architectures.sort_unstable();
        architectures.dedup();
        for wanted in &architectures {
            let of_it = sources.iter().filter(|source| architecture(source).is_ok_and(|own| own == *wanted));
            let mut command = Command::new("python3");
            command.arg(script).arg(unpacked.join("nvidia/cu13/lib")).arg(unpacked.join("nvidia/cu13/include"));
            command.arg(wanted).arg(folder).args(library.options);
            shell::run(command.args(of_it))?;
        }
        sources.iter().try_for_each(|source| finish(folder, source, requirements))
    })
}

/// The architecture that a source is compiled for.
fn architecture(source: &Path) -> Result<String> {
    let text = shell::read(source)?;
    let asked = text.lines().next().and_then(|line| line.strip_prefix("// needs ")).map(str::trim);
    let asked = asked.unwrap_or(ARCHITECTURE);
    let number = asked.strip_suffix('a').unwrap_or(asked);
    match number.parse::<u32>() {
        Ok(_) => Ok(asked.to_owned()),
        Err(_) => Err(format!("{} needs `{asked}`, which is no architecture", source.display())),
    }
}

/// Takes the comments out of a text, sets its version, and has it assembled.
fn finish(folder: &Path, source: &Path, requirements: &Path) -> Result<()> {
    let architecture = architecture(source)?;
    let path = folder.join(source.with_extension("ptx").file_name().unwrap_or_default());
    let text = shell::read(&path)?;
    // The hint is younger than the version that the text says, and drivers refuse it there.
    let is_said = |line: &&str| !line.trim_start().starts_with("//") && !line.contains(".pragma \"used_bytes_mask");
    let lines = text.lines().filter(|line| !line.is_empty()).filter(is_said);
    let lines = lines.map(|line| if line.starts_with(".version ") { version(&architecture) } else { line });
    let finished: String = lines.flat_map(|line| [line, "\n"]).collect();
    std::fs::write(&path, finished).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Assembler::of(requirements, &architecture)?.assemble(&path, &architecture, &path.with_extension("cubin"))
}
