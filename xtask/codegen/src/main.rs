//! Generates the committed bindings of `cuda-sys`: `codegen HEADERS OUT [--check]`.
//!
//! `HEADERS` is the folder into which the wheels of `requirements.txt` were installed, `OUT` the `src` folder of
//! `cuda-sys`. With `--check` nothing is written; a difference to what is committed ends with exit code 1.
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

use library::{LIBRARIES, Library};

/// Any failure: this is a tool for people, so a text that says what to do is enough.
pub(crate) type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (headers, out, check) = match args.as_slice() {
        [headers, out] => (headers, out, false),
        [headers, out, flag] if flag == "--check" => (headers, out, true),
        _ => return fail("usage: codegen HEADERS OUT [--check]; run it as `cargo xtask codegen [--check]`"),
    };
    let mut drifted = Vec::new();
    for library in LIBRARIES {
        match generate(library, Path::new(headers), Path::new(out), check) {
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

#[expect(clippy::print_stderr, reason = "the error output of a command line tool")]
fn fail(text: &str) -> ExitCode {
    eprintln!("codegen: {text}");
    ExitCode::FAILURE
}

/// Generates one library's files and returns those that differ from what is on disk, when only checking.
fn generate(library: &Library, headers: &Path, out: &Path, check: bool) -> Result<Vec<PathBuf>> {
    let include = headers.join(library.include);
    let parsed = parse::parse(library, &include)?;
    let folder = out.join(library.module);
    let files = [
        ("types.rs", emit::types(library, &parsed)),
        ("functions.rs", emit::functions(library, &parsed)),
        ("codes.rs", emit::codes(library, &parsed)?),
    ];
    let mut drifted = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
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
