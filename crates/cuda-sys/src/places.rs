//! Folders in which the libraries of a CUDA toolkit lie: those of toolkits, and those of Python packages.
//!
//! Nothing is run to find them. A Python's packages lie beside its program, so the programs on the search path, and the
//! environment that is active, tell where to look. Folders that do not exist are left out of wheels' folders, since
//! there would be dozens; toolkits' folders are named either way, so that an error shows where one is expected.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where a toolkit is installed when nothing else is said.
const TOOLKITS: &[&str] = &["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-12", "/opt/cuda"];

/// Variables that name a toolkit's folder.
const TOOLKIT_VARIABLES: &[&str] = &["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

/// Variables that name the folder of a Python environment.
const ENVIRONMENT_VARIABLES: &[&str] = &["VIRTUAL_ENV", "CONDA_PREFIX"];

/// Library folders of toolkits: those that the environment names first.
pub(crate) fn toolkits() -> impl Iterator<Item = PathBuf> {
    let named = TOOLKIT_VARIABLES.iter().filter_map(|name| folder_of(name));
    named.chain(TOOLKITS.iter().map(PathBuf::from)).map(|root| root.join("lib64"))
}

/// Folders of a library inside the packages of every Python that is found, in the order of the search path.
pub(crate) fn of_wheels(wheels: &[&str]) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ENVIRONMENT_VARIABLES.iter().filter_map(|name| folder_of(name)).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    roots.extend(std::env::split_paths(&path).flat_map(|folder| of_programs(&folder)));
    roots.extend(folder_of("HOME").map(|home| home.join(".local")));
    in_environments(&roots, wheels)
}

/// Folders of a library inside Python environments.
fn in_environments(roots: &[PathBuf], wheels: &[&str]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let roots = roots.iter().filter(|root| seen.insert(PathBuf::clone(root)));
    let packages: Vec<PathBuf> = roots.flat_map(|root| packages(root)).collect();
    let folders = packages.iter().flat_map(|folder| wheels.iter().map(move |wheel| folder.join(wheel)));
    folders.filter(|folder| folder.is_dir()).collect()
}

fn folder_of(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// Environments of the Python in a folder of programs: the one it is in, and the one it is a link to.
fn of_programs(folder: &Path) -> Vec<PathBuf> {
    let program = ["python3", "python"].iter().map(|name| folder.join(name)).find(|program| program.is_file());
    let Some(program) = program else { return Vec::new() };
    let linked = std::fs::canonicalize(&program).ok();
    let programs = std::iter::once(program).chain(linked);
    programs.filter_map(|program| Some(program.parent()?.parent()?.to_owned())).collect()
}

/// Package folders of an environment: Debian gives one of them another name.
fn packages(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64", "local/lib"].map(|name| root.join(name)) {
        let Ok(entries) = std::fs::read_dir(&lib) else { continue };
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        let mut versions: Vec<_> = names.filter(|name| is_python(name)).collect();
        versions.sort_by_key(|name| std::cmp::Reverse(minor(name)));
        let folders =
            versions.iter().flat_map(|name| ["site-packages", "dist-packages"].map(|kind| lib.join(name).join(kind)));
        found.extend(folders.filter(|folder| folder.is_dir()));
    }
    found
}

fn is_python(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("python3"))
}

/// The 11 of `python3.11`: 9 comes before 11, which names do not say.
fn minor(name: &OsStr) -> u32 {
    name.to_str().and_then(|name| name.rsplit('.').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_are_found_beside_a_python_newest_first() {
        let root = std::env::temp_dir().join(format!("cuda-sys-places-{}", std::process::id()));
        let folders = ["lib/python3.9/site-packages/nvidia/x/lib", "lib/python3.11/site-packages/nvidia/x/lib"];
        for folder in folders {
            std::fs::create_dir_all(root.join(folder)).expect("a writable folder");
        }
        std::fs::create_dir_all(root.join("lib/python3.10/site-packages")).expect("a writable folder");
        std::fs::create_dir_all(root.join("bin")).expect("a writable folder");
        std::fs::write(root.join("bin/python3"), "").expect("a writable folder");
        let roots = of_programs(&root.join("bin"));
        assert_eq!(roots.first(), Some(&root));
        let found = in_environments(&roots, &["nvidia/none/lib", "nvidia/x/lib"]);
        std::fs::remove_dir_all(&root).expect("this test's folder");
        assert_eq!(found, [root.join(folders[1]), root.join(folders[0])]);
    }

    #[test]
    fn a_folder_without_python_has_no_packages() {
        assert_eq!(of_programs(Path::new("/nonexistent")), Vec::<PathBuf>::new());
        assert_eq!(packages(Path::new("/nonexistent")), Vec::<PathBuf>::new());
    }
}
