//! The order of the folders inside a crate: each imports only those before it.
//!
//! The order stands in the crate's `lib.rs`, under the heading `# Layers` of its documentation, one line
//! ``- `folder/inner`: what it is`` for each layer, from the lowest up. A layer is a module: a folder with all that is in
//! it, or a single file. A file belongs to the layer with the longest name that leads to it, so `caching` is what no
//! layer `caching/...` has. Layers whose name ends with `tests` import what they want, as all test code does.
//!
//! What a folder imports also stands in its `README.md`, in a line that begins with `Imports: `.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use imports::Target;

use crate::modules::{self, Source, Tree};
use crate::{Result, verdict};

/// The crates whose folders have an order, by the folders of their sources.
const CRATES: &[&str] =
    &["crates/c10-core/src", "crates/kernel-ir/src", "crates/aten-cuda/src", "crates/memory-viz/src"];

/// The heading above the list.
const HEADING: &str = "# Layers";

/// Checks all crates and returns their import graphs.
///
/// # Errors
/// The list of what breaks the order.
pub(crate) fn run(root: &Path) -> Result<String> {
    let mut graphs = Vec::new();
    let mut faults = Vec::new();
    for folder in CRATES {
        let (graph, found) = survey(&modules::folder(&root.join(folder)))?;
        faults.extend(found.into_iter().map(|fault| format!("{folder}/{fault}")));
        graphs.push(graph);
    }
    // Whoever mends an arrow wants to see the graph most.
    let graphs = graphs.join("\n\n");
    verdict(&faults, graphs.clone()).map_err(|faults| format!("{graphs}\n{faults}").trim_start().to_owned())
}

/// A crate's import graph, one line a layer, and what breaks its order.
fn survey(source: Source<'_>) -> Result<(String, Vec<String>)> {
    let tree = Tree::read(source)?;
    let (layers, mut faults) = order(&source("lib.rs").unwrap_or_default());
    if layers.is_empty() {
        return Ok((String::new(), faults));
    }
    for layer in layers.iter().filter(|layer| !tree.has(&words(layer))) {
        faults.push(format!("lib.rs: lists the layer `{layer}`, but there is no such module"));
    }
    let mut graph: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| !file.module.is_empty() && !file.test) {
        let Some(from) = layer_of(&layers, &file.module) else {
            faults.push(format!("{}:1: belongs to no layer that lib.rs lists", file.name));
            continue;
        };
        for (line, target) in imports::of(file, &tree) {
            let place = format!("{}:{line}: layer `{}`", file.name, layers[from]);
            match destination(&layers, &target) {
                Ok(to) if to == from => {}
                Ok(to) => {
                    graph.entry(from).or_default().insert(to);
                    if to > from && !is_tests(&layers[from]) {
                        faults.push(format!("{place} imports `{}`, which is above it", layers[to]));
                    }
                }
                Err(reason) => faults.push(format!("{place} {reason}")),
            }
        }
    }
    let names = |of: usize| graph.get(&of).into_iter().flatten().map(|to| layers[*to].as_str()).collect::<Vec<_>>();
    faults.extend((0..layers.len()).filter_map(|of| stated(source, &tree, &layers[of], &names(of))));
    let line = |of: usize| format!("{} -> {}", layers[of], or_nothing(names(of).join(", ")));
    Ok(((0..layers.len()).map(line).collect::<Vec<_>>().join("\n"), faults))
}

/// The layer an import leads to, or why it may not be written so.
fn destination(layers: &[String], target: &Target) -> std::result::Result<usize, String> {
    match target {
        Target::Root(name) => {
            Err(format!("imports `crate::{name}` from the crate's root, which is above all: name the folder"))
        }
        Target::Module(path) => layer_of(layers, path)
            .ok_or_else(|| format!("imports `{}`, which belongs to no layer that lib.rs lists", path.join("::"))),
    }
}

/// The names under the heading, and what is wrong with the list.
fn order(lib: &str) -> (Vec<String>, Vec<String>) {
    let mut layers: Vec<String> = Vec::new();
    let mut faults = Vec::new();
    let mut lines = lib.lines().enumerate().skip_while(|(_, line)| doc(line) != Some(HEADING)).peekable();
    if lines.next().is_none() {
        let fault = format!("lib.rs: its documentation has no section `{HEADING}`, which lists the folders upwards");
        return (layers, vec![fault]);
    }
    let section = lines.map_while(|(at, line)| Some((at, doc(line).filter(|line| !line.starts_with('#'))?)));
    for (at, item) in section.filter_map(|(at, line)| Some((at + 1, line.strip_prefix("- ")?))) {
        let name = item.strip_prefix('`').and_then(|rest| rest.split_once("`:")).map(|(name, _)| name.to_owned());
        match name {
            Some(name) if layers.contains(&name) => faults.push(format!("lib.rs:{at}: lists `{name}` twice")),
            Some(name) => layers.push(name),
            None => faults.push(format!("lib.rs:{at}: a layer is written as - `folder`: what it is")),
        }
    }
    if layers.is_empty() {
        faults.push(format!("lib.rs: lists nothing under `{HEADING}`"));
    }
    (layers, faults)
}

/// The text of a line of a module's documentation.
fn doc(line: &str) -> Option<&str> {
    line.strip_prefix("//!").map(str::trim)
}

fn layer_of(layers: &[String], module: &[String]) -> Option<usize> {
    let holds = |layer: &String| module.starts_with(&words(layer));
    layers
        .iter()
        .enumerate()
        .filter(|(_, layer)| holds(layer))
        .max_by_key(|(_, layer)| words(layer).len())
        .map(|it| it.0)
}

fn words(layer: &str) -> Vec<String> {
    layer.split('/').map(str::to_owned).collect()
}

fn is_tests(layer: &str) -> bool {
    layer.rsplit('/').next() == Some("tests")
}

/// What is wrong with the line of a folder's README that says what the folder imports.
fn stated(source: Source<'_>, tree: &Tree, layer: &str, imports: &[&str]) -> Option<String> {
    let is_folder = tree.files.iter().any(|file| file.name.starts_with(&format!("{layer}/")));
    if is_tests(layer) || !is_folder {
        return None;
    }
    let readme = source(&format!("{layer}/README.md"));
    let quoted: Vec<String> = imports.iter().map(|layer| format!("`{layer}`")).collect();
    let meant = format!("Imports: {}", or_nothing(quoted.join(", ")));
    let Some(readme) = readme else {
        return Some(format!("{layer}/README.md: is not there; it must have the line {meant}"));
    };
    let said = readme.lines().enumerate().find(|(_, line)| line.starts_with("Imports: "));
    match said {
        None => Some(format!("{layer}/README.md: must have the line {meant}")),
        Some((at, line)) => {
            let mut names: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
            names.sort_unstable();
            let mut imports = imports.to_vec();
            imports.sort_unstable();
            let is_bare = names.is_empty() && line.trim_end_matches('.') != "Imports: nothing";
            (names != imports || is_bare).then(|| format!("{layer}/README.md:{}: the code says {meant}", at + 1))
        }
    }
}

fn or_nothing(list: String) -> String {
    if list.is_empty() { "nothing".to_owned() } else { list }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "//! A crate.\n//!\n//! # Layers\n//! Upwards.\n//! - `error`: ways to fail,\n//!   all of them\n\
        //! - `base`: ids\n//! - `caching/block`: a block\n//! - `caching/tests`: tests\n//! - `caching`: the face\n\
        //!\n//! # Invariants\n//! - `not`: a layer\n\nmod base;\nmod caching;\nmod error;\npub use base::Id;\n";

    /// Surveys a crate of layers `error`, `base`, `caching/block`, `caching/tests`, `caching` in which these files
    /// differ.
    fn check(changed: &[(&str, &str)]) -> (String, Vec<String>) {
        let files = [
            ("lib.rs", LIB),
            ("error.rs", ""),
            ("base/mod.rs", "pub(crate) struct Id;"),
            ("base/README.md", "Imports: nothing\n"),
            ("caching/mod.rs", "mod block; #[cfg(test)] mod tests; pub(crate) use block::Block;"),
            ("caching/README.md", "# Caching\n\nImports: `caching/block`\n"),
            ("caching/block/mod.rs", "use crate::{base::Id, error::Error};"),
            ("caching/block/README.md", "Imports: `base`, `error`.\n"),
            ("caching/tests/mod.rs", "use super::Block;"),
        ];
        let all: BTreeMap<_, _> = files.iter().chain(changed).copied().collect();
        survey(&|name| all.get(name).filter(|text| **text != "gone").map(|text| (*text).to_owned())).unwrap()
    }

    #[track_caller]
    fn fault(changed: &[(&str, &str)], expected: &str) {
        assert_eq!(check(changed).1, [expected]);
    }

    #[test]
    fn a_crate_in_order_has_no_faults_and_a_graph() {
        let (graph, faults) = check(&[]);
        assert_eq!(faults, Vec::<String>::new());
        let lines = "error -> nothing\nbase -> nothing\ncaching/block -> error, base\ncaching/tests -> nothing\n\
                     caching -> caching/block";
        assert_eq!(graph, lines);
    }

    #[test]
    fn an_upward_arrow_is_named_with_its_line() {
        fault(&[("error.rs", "\nuse crate::base::Id;")], "error.rs:2: layer `error` imports `base`, which is above it");
        // The face of a folder is above what is in it.
        fault(
            &[
                ("caching/block/mod.rs", "use crate::base::Id;\nuse super::Block;"),
                ("caching/block/README.md", "Imports: `base`, `caching`"),
            ],
            "caching/block/mod.rs:2: layer `caching/block` imports `caching`, which is above it",
        );
    }

    #[test]
    fn tests_import_what_they_want() {
        let text = "#[cfg(test)]\nmod tests { use crate::caching::Block; use crate::Id; }";
        assert_eq!(check(&[("error.rs", text)]).1, Vec::<String>::new());
        let lib = LIB.replace("mod caching;", "mod caching; #[cfg(test)] mod unlisted;");
        assert_eq!(check(&[("lib.rs", &lib), ("unlisted.rs", "use crate::Id;")]).1, Vec::<String>::new());
    }

    #[test]
    fn the_root_is_no_way_to_a_layer() {
        fault(
            &[("error.rs", "fn f(id: crate::Id) {}")],
            "error.rs:1: layer `error` imports `crate::Id` from the crate's root, which is above all: name the folder",
        );
    }

    #[test]
    fn the_list_must_be_there_and_fit_the_modules() {
        let bare = LIB.replace("# Layers", "# Map");
        fault(
            &[("lib.rs", &bare)],
            "lib.rs: its documentation has no section `# Layers`, which lists the folders upwards",
        );
        let lib = LIB.replace("//! - `base`: ids", "//! - `base`: ids\n//! - `base`: ids\n//! - base\n//! - `gone`: x");
        assert_eq!(
            check(&[("lib.rs", &lib)]).1,
            [
                "lib.rs:8: lists `base` twice",
                "lib.rs:9: a layer is written as - `folder`: what it is",
                "lib.rs: lists the layer `gone`, but there is no such module",
            ]
        );
        let lib = LIB.replace("//! - `error`: ways to fail,\n", "");
        assert_eq!(
            check(&[("lib.rs", &lib), ("caching/block/README.md", "Imports: `base`")]).1,
            [
                "caching/block/mod.rs:1: layer `caching/block` imports `error`, which belongs to no layer that lib.rs lists",
                "error.rs:1: belongs to no layer that lib.rs lists",
            ]
        );
    }

    #[test]
    fn a_readme_must_say_what_the_code_imports() {
        fault(&[("base/README.md", "gone")], "base/README.md: is not there; it must have the line Imports: nothing");
        fault(&[("base/README.md", "# Base\n")], "base/README.md: must have the line Imports: nothing");
        fault(&[("base/README.md", "Imports: some\n")], "base/README.md:1: the code says Imports: nothing");
        fault(
            &[("caching/block/README.md", "\nImports: `base`\n")],
            "caching/block/README.md:2: the code says Imports: `error`, `base`",
        );
    }
}
