//! Which crate may depend on which, and how many packages of the registry lie beneath the public one and `xtask`.
//!
//! The arrows are those of `docs/ARCHITECTURE.md`. Development dependencies are free: the simulated driver tests what
//! stands above it.

use std::collections::BTreeSet;

use crate::shell::{self, Result};

/// For each crate those of the workspace it may depend on. Programs at the top are not listed: they may use anything.
const ARROWS: &[(&str, &[&str])] = &[
    ("cuda-sys", &[]),
    ("c10-core", &["cuda-sys"]),
    ("kernel-ir", &[]),
    ("dense-factors", &[]),
    ("regular-files", &[]),
    ("aten-cuda", &["c10-core", "cuda-sys", "dense-factors", "kernel-ir", "regular-files"]),
    ("cuda-storage", &["aten-cuda", "c10-core", "cuda-sys", "regular-files"]),
    ("cuda-dist", &["aten-cuda", "c10-core", "regular-files"]),
    ("cuda-api", &["aten-cuda", "c10-core", "cuda-dist", "cuda-storage", "memory-viz"]),
    ("memory-viz", &["regular-files"]),
    ("trace-replay", &["c10-core", "memory-viz", "regular-files"]),
    ("torch-allocator", &["c10-core", "cuda-sys"]),
    ("libcuda-caching", &["c10-core", "cuda-sys"]),
    ("cuda-cli", &["cuda-api", "memory-viz", "regular-files", "trace-replay"]),
    ("ptx-sim", &[]),
    ("cuda-sim", &["cuda-sys", "dense-factors", "ptx-sim", "regular-files"]),
    ("libcuda-sim", &["cuda-sim", "cuda-sys"]),
    ("libnvml-sim", &["cuda-sim", "cuda-sys"]),
    ("libnvtx-sim", &[]),
    ("libcublas-sim", &["cuda-sim", "cuda-sys"]),
    ("libnccl-sim", &["cuda-sim", "cuda-sys"]),
    ("testkit", &["c10-core", "cuda-sim", "cuda-sys"]),
    ("conformance", &["cuda-sim", "cuda-sys"]),
    ("xtask", &[]),
];

/// Number of packages of the registry that `cuda-api` may depend on with default features. Three of them are `rustix`
/// and what it needs, by which a store's server waits for its connections without unsafe code.
const REGISTRY_PACKAGES_MAX: usize = 27;

/// How many packages of the registry may be built before the first command runs.
const PACKAGES_OF_XTASK_MAX: usize = 1;

/// Checks the arrows and the counts.
///
/// # Errors
/// An arrow that is not drawn, or too many packages.
pub(crate) fn check() -> Result<String> {
    for (package, allowed) in ARROWS {
        let direct = tree(package, &["--depth", "1"])?;
        for found in direct.iter().filter(|found| found.is_ours && found.name != *package) {
            if !allowed.contains(&found.name.as_str()) {
                return Err(format!("{package} depends on {}, which docs/ARCHITECTURE.md does not allow", found.name));
            }
        }
    }
    registry_packages("xtask", PACKAGES_OF_XTASK_MAX)?;
    let beneath = registry_packages("cuda-api", REGISTRY_PACKAGES_MAX)?;
    Ok(format!("{beneath} registry packages beneath cuda-api"))
}

/// Counts the packages of the registry beneath one of ours.
fn registry_packages(package: &str, most: usize) -> Result<usize> {
    let beneath = tree(package, &[])?.iter().filter(|found| !found.is_ours).count();
    let text = format!("{beneath} registry packages beneath {package}; at most {most} are allowed");
    if beneath > most { Err(text) } else { Ok(beneath) }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    is_ours: bool,
}

fn tree(package: &str, options: &[&str]) -> Result<BTreeSet<Package>> {
    let mut command =
        shell::cargo(["tree", "--quiet", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let text = shell::capture(command.args(["--package", package]).args(options))?;
    Ok(text.lines().filter_map(parse).collect())
}

/// Reads `name v1.2.3`, or `name v1.2.3 (/its/folder)` of a package of the workspace.
fn parse(line: &str) -> Option<Package> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_owned();
    let version = words.next()?.to_owned();
    Some(Package { name, version, is_ours: line.contains("(/") })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn packages_of_the_workspace_are_told_from_those_of_the_registry() {
        let ours = parse("c10-core v0.1.0 (/some/folder/crates/c10-core)").unwrap();
        assert!(ours.is_ours && ours.name == "c10-core");
        for line in ["libc v0.2.180", "thiserror-impl v2.0.17 (proc-macro)", "libc v0.2.180 (*)"] {
            assert!(!parse(line).unwrap().is_ours, "{line}");
        }
    }
}
