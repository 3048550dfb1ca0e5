//! What rustdoc says of the crates, as its JSON output.
//!
//! That output is not yet offered by a stable toolchain, so the flag that nightly ones accept is unlocked for this one
//! call (docs/decisions/0006). It goes into a target folder of its own: the unlocked compiler would have everything else
//! built again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustdoc_types::{Crate, Id, Item, ItemEnum};

use crate::Result;

/// The documented crates, each after those it depends on.
pub(crate) const CRATES: &[&str] = &[
    "regular-files",
    "memory-viz",
    "cuda-sys",
    "c10-core",
    "kernel-ir",
    "aten-cuda",
    "cuda-storage",
    "cuda-dist",
    "cuda-api",
    "testkit",
];

/// Documents all crates, with all features, and returns the path of the output of each.
///
/// # Errors
/// Cargo cannot be run, or a crate does not build.
pub(crate) fn build(root: &Path) -> Result<BTreeMap<&'static str, PathBuf>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path));
    let target = target.join("survey");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(root)
        .args(["doc", "--quiet", "--lib", "--no-deps", "--all-features", "--target-dir"])
        .arg(&target);
    command.args(CRATES.iter().flat_map(|name| ["--package", *name]));
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTDOCFLAGS", "-Zunstable-options --output-format json");
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(format!("`cargo doc` failed: {status}"));
    }
    let path = |name: &str| target.join("doc").join(name.replace('-', "_")).with_extension("json");
    Ok(CRATES.iter().map(|name| (*name, path(name))).collect())
}

/// Reads the output of one crate.
///
/// # Errors
/// It is not of the form that this program knows: the toolchain has moved.
pub(crate) fn load(path: &Path) -> Result<Crate> {
    serde_json::from_str(&crate::read(path)?).map_err(|error| {
        format!(
            "cannot read {}: {error}\nif the toolchain has moved, `public-api` and `rustdoc-types` in \
             xtask/survey/Cargo.toml must move with it",
            path.display()
        )
    })
}

/// A crate's public items with the path that leads to each, by modules and re-exports. Items of other crates are among
/// them where they are re-exported; members of types are not.
pub(crate) fn public(krate: &Crate) -> Vec<(Vec<String>, Id)> {
    let mut found = Vec::new();
    if let Some(root) = krate.index.get(&krate.root) {
        let name = root.name.clone().unwrap_or_default();
        enter(krate, root, &[name], &mut found);
    }
    found
}

fn enter(krate: &Crate, module: &Item, path: &[String], found: &mut Vec<(Vec<String>, Id)>) {
    let ItemEnum::Module(inner) = &module.inner else { return };
    for item in inner.items.iter().filter_map(|id| krate.index.get(id)) {
        let (name, id, is_glob) = match &item.inner {
            ItemEnum::Use(reexport) => (Some(&reexport.name), reexport.id, reexport.is_glob),
            _ => (item.name.as_ref(), Some(item.id), false),
        };
        let (Some(name), Some(id)) = (name, id) else { continue };
        let path: Vec<String> = path.iter().chain((!is_glob).then_some(name)).cloned().collect();
        if !is_glob {
            found.push((path.clone(), id));
        }
        if let Some(target) = krate.index.get(&id) {
            enter(krate, target, &path, found);
        }
    }
}

/// For each public item of a crate that lies elsewhere than its shortest public path says: where it lies, and that path.
pub(crate) fn shortest_names(krate: &Crate) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for (path, id) in public(krate) {
        let Some(summary) = krate.paths.get(&id).filter(|summary| summary.crate_id == 0) else { continue };
        let shortest = names.entry(summary.path.join("::")).or_insert_with(|| path.join("::"));
        if path.len() < shortest.split("::").count() {
            *shortest = path.join("::");
        }
    }
    names
}

/// The file of an item, from the workspace's root.
pub(crate) fn file(item: &Item) -> Option<&Path> {
    item.span.as_ref().map(|span| span.filename.as_path())
}
