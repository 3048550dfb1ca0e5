//! Generates the committed bindings of `cuda-sys`: `codegen OUT HEADERS [MORE] [--check]`.
//!
//! `OUT` is the `src` folder of `cuda-sys`, `HEADERS` the folder into which the wheels of `requirements.txt` were
//! installed, `MORE` that of `libraries.txt`; without it, the libraries that need it are left as they are. With
//! `--check` nothing is written; a difference to what is committed ends with exit code 1.
//! `cargo xtask codegen` fetches the wheels, points `LIBCLANG_PATH` at the right libclang and runs this.
//!
//! Output for each library: `types.rs` (types and constants as bindgen gives them, layouts asserted at compile time),
//! `functions.rs` (one line a function: symbol, base name, ABI version, signature) and `codes.rs` (status codes and
//! their names). None of the headers' comments is copied.

mod emit;
mod library;
mod parse;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use library::{INCLUDE, LIBRARIES, Library};

/// Any failure: this is a tool for people, so a text that says what to do is enough.
pub(crate) type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (check, folders): (Vec<&String>, Vec<&String>) = args.iter().partition(|argument| *argument == "--check");
    let [out, headers @ ..] = folders.as_slice() else { return fail(USAGE) };
    if headers.is_empty() || headers.len() > 2 {
        return fail(USAGE);
    }
    let mut drifted = Vec::new();
    for library in LIBRARIES.iter().filter(|library| !library.is_heavy || headers.len() == 2) {
        match generate(library, headers, Path::new(out), !check.is_empty()) {
            Ok(files) => drifted.extend(files),
            Err(error) => return fail(&format!("{}: {error}", library.module)),
        }
    }
    if !drifted.is_empty() {
        let list: Vec<String> = drifted.iter().map(|path| path.display().to_string()).collect();
        return fail(&format!("out of date, run `cargo xtask codegen` and commit: {}", list.join(", ")));
    }
    ExitCode::SUCCESS
}

const USAGE: &str = "usage: codegen OUT HEADERS [MORE] [--check]; run it as `cargo xtask codegen [--check]`";

#[expect(clippy::print_stderr, reason = "the error output of a command line tool")]
fn fail(text: &str) -> ExitCode {
    eprintln!("codegen: {text}");
    ExitCode::FAILURE
}

/// Generates one library's files and returns those that differ from what is on disk, when only checking.
fn generate(library: &Library, headers: &[&String], out: &Path, check: bool) -> Result<Vec<PathBuf>> {
    // A library with folders of its own reads the runtime's headers too.
    let folders = headers.iter().flat_map(|folder| [library.include, INCLUDE].map(|part| Path::new(folder).join(part)));
    let include: Vec<PathBuf> = folders.collect();
    let parsed = parse::parse(library, &include)?;
    let folder = out.join(library.module);
    let mut files =
        vec![("types.rs", emit::types(library, &parsed)), ("functions.rs", emit::functions(library, &parsed))];
    if !library.shared.iter().any(|shared| shared.names.contains(&library.status)) {
        files.push(("codes.rs", emit::codes(library, &parsed)?));
    }
    let mut drifted = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            drifted.push(path);
        } else {
            std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
    }
    Ok(drifted)
}
