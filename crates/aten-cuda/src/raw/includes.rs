//! Headers that texts include: where those of the toolkit are, and what a text draws in.
//!
//! **Invariant:** what names the headers of a text changes whenever one of their contents does, so that compiled code on
//! disk is never used for other headers than it was made of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::raw::fingerprint;

/// Variables that name a toolkit's folder.
const VARIABLES: [&str; 3] = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

/// Folders of toolkits where nothing else is said.
const TOOLKITS: [&str; 4] = ["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-12", "/opt/cuda"];

/// More headers than any program has: a circle of includes ends here.
const MOST_HEADERS: usize = 10_000;

/// Size limit of a header in bytes. The largest header of the CUDA toolkit has about 1 MiB.
const HEADER_MAX: u64 = 64 << 20;

/// The folders of the toolkit's headers: beside the compiler's library first, since those are of its version.
pub(crate) fn folders(compiler: &str) -> Vec<PathBuf> {
    let named = VARIABLES.iter().filter_map(std::env::var_os).filter(|value| !value.is_empty()).map(PathBuf::from);
    let toolkits = named.chain(TOOLKITS.iter().map(PathBuf::from)).map(|root| root.join("include"));
    with_headers(beside(Path::new(compiler)).into_iter().chain(toolkits))
}

/// Where headers are beside a library: in its own tree, and in the wheels of the runtime that lie beside its wheel.
fn beside(library: &Path) -> Vec<PathBuf> {
    let Some(root) = library.parent().and_then(Path::parent) else { return Vec::new() };
    let own = root.join("include");
    let wheels = root.parent().into_iter();
    let wheels =
        wheels.flat_map(|nvidia| ["cuda_runtime", "cuda_cccl"].map(|wheel| nvidia.join(wheel).join("include")));
    std::iter::once(own).chain(wheels).collect()
}

/// Those of the folders that have headers of CUDA, once each, with the folder of libcu++ in them.
fn with_headers(folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let is_one =
        |folder: &PathBuf| ["cuda.h", "cuda_fp16.h", "cuda/std", "cccl"].iter().any(|name| folder.join(name).exists());
    let folders = folders.filter(is_one).flat_map(|folder| [folder.clone(), folder.join("cccl")]);
    folders.filter(|folder| folder.is_dir() && seen.insert(folder.clone())).collect()
}

/// What names the contents of all headers that a text draws in from these folders, whatever its conditions say. Headers
/// that are not there are the compiler's own, or an error that it will tell.
pub(crate) fn contents(text: &str, folders: &[PathBuf]) -> u128 {
    let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
    let mut open: Vec<(PathBuf, String)> = vec![(PathBuf::new(), text.to_owned())];
    let mut all = 0_u128;
    while let Some((beside, text)) = open.pop() {
        for name in included(&text) {
            let places = std::iter::once(&beside).chain(folders).map(|folder| folder.join(name));
            let Some(found) = places.into_iter().find(|path| path.is_file()) else { continue };
            if seen.len() >= MOST_HEADERS || !seen.insert(found.clone()) {
                continue;
            }
            let Ok(bytes) = regular_files::read(&found, HEADER_MAX) else { continue };
            all = all.rotate_left(1) ^ fingerprint(&bytes);
            let folder = found.parent().map(Path::to_owned).unwrap_or_default();
            open.push((folder, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    all
}

/// The names that `#include` lines have.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let close = match rest.chars().next()? {
            '<' => '>',
            '"' => '"',
            _ => return None,
        };
        rest[1..].split_once(close).map(|(name, _)| name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_found_in_both_forms() {
        let text = "#include <a/b.h>\n  # include \"c.h\" // why\n// #include <no.h>\n#include MACRO\n#include <open";
        assert_eq!(included(text).collect::<Vec<_>>(), ["a/b.h", "c.h"]);
    }

    #[test]
    fn a_changed_header_of_a_header_has_another_name() {
        let folder = std::env::temp_dir().join(format!("aten-cuda-includes-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("deep")).expect("a writable folder");
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a writable folder");
        write("deep/a.h", "#include \"b.h\"\n#include <a.h>");
        write("deep/b.h", "int b;\n#include \"a.h\"");
        let of = |text: &str| contents(text, std::slice::from_ref(&folder));
        let before = of("#include <deep/a.h>");
        assert_eq!(before, of("#include <deep/a.h>"));
        assert_eq!((of("int none;"), of("#include <other.h>")), (0, 0));
        write("deep/b.h", "int c;\n#include \"a.h\"");
        let after = of("#include <deep/a.h>");
        std::fs::remove_dir_all(&folder).expect("this test's folder");
        assert_ne!(before, after);
    }

    #[test]
    fn headers_are_looked_for_beside_the_compiler() {
        let folders = beside(Path::new("/x/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
        assert_eq!(folders[0], Path::new("/x/nvidia/cuda_nvrtc/include"));
        assert_eq!(folders[1], Path::new("/x/nvidia/cuda_runtime/include"));
    }
}
