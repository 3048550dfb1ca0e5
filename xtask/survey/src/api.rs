//! The public API of the crates as text, one line an item: `docs/api/CRATE.txt`.
//!
//! A change of it shall be seen by whoever makes it. Left out are what the compiler gives to all types alike (blanket
//! and auto traits), the methods of a trait's implementation (the line of the `impl` stays), and generated bindings:
//! those have their own check. Types of another crate here stand under their public names, wherever they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use public_api::{Builder, PublicItem};
use rustdoc_types::{Crate, Id, ItemEnum};

use crate::Result;
use crate::rustdoc::{self, CRATES};

/// Where the texts lie.
const FOLDER: &str = "docs/api";

/// How many lines of a difference are shown for each crate.
const SHOWN: usize = 20;

/// Writes the texts.
///
/// # Errors
/// A crate does not build, or a text cannot be written.
pub(crate) fn write(root: &Path) -> Result<String> {
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot create {FOLDER}: {error}"))?;
    let mut notes = Vec::new();
    for (name, text) in texts(root)? {
        let path = folder.join(format!("{name}.txt"));
        std::fs::write(&path, &text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        notes.push(format!("{name}: {} lines", text.lines().count()));
    }
    Ok(notes.join(", "))
}

/// Compares the texts with those that are committed.
///
/// # Errors
/// They differ; the lines that do are listed.
pub(crate) fn check(root: &Path) -> Result<String> {
    let mut faults = Vec::new();
    let mut lines = 0;
    for (name, text) in texts(root)? {
        lines += text.lines().count();
        let file = format!("{FOLDER}/{name}.txt");
        let old = std::fs::read_to_string(root.join(&file)).unwrap_or_default();
        if old != text {
            faults.push(format!("{file} differs:\n{}", difference(&old, &text)));
        }
    }
    if faults.is_empty() {
        Ok(format!("{lines} lines"))
    } else {
        faults.push("if the change is meant, run `cargo xtask api` and commit".to_owned());
        Err(faults.join("\n"))
    }
}

/// The text of each crate.
fn texts(root: &Path) -> Result<BTreeMap<&'static str, String>> {
    let paths = rustdoc::build(root)?;
    let mut names = BTreeMap::new();
    let mut texts = BTreeMap::new();
    for name in CRATES {
        let krate = rustdoc::load(&paths[name])?;
        let api = Builder::from_rustdoc_json(&paths[name]).omit_blanket_impls(true).omit_auto_trait_impls(true);
        let api = api.build().map_err(|error| format!("cannot read {}: {error}", paths[name].display()))?;
        let mut generated = Generated { root, known: BTreeMap::new() };
        let kept = api.items().filter(|item| !is_implied(&krate, item) && !generated.holds(&krate, item.id()));
        texts.insert(*name, lines(kept.map(|item| renamed(&item.to_string(), &names))));
        names.extend(rustdoc::shortest_names(&krate));
    }
    Ok(texts)
}

/// Each line once: a type with two names has its methods under both.
fn lines(items: impl Iterator<Item = String>) -> String {
    let mut seen = BTreeSet::new();
    items.filter(|line| seen.insert(line.clone())).map(|line| line + "\n").collect()
}

/// Whether the line of an `impl` says that an item is there.
fn is_implied(krate: &Crate, item: &PublicItem) -> bool {
    let inner = |id: Id| krate.index.get(&id).map(|item| &item.inner);
    let of_trait = |id: Id| matches!(inner(id), Some(ItemEnum::Impl(block)) if block.trait_.is_some());
    let is_method = matches!(inner(item.id()), Some(ItemEnum::Function(_)));
    is_method && item.parent_id().is_some_and(of_trait) || item.to_string().contains("marker::StructuralPartialEq for ")
}

/// A line in which paths of other crates are replaced by their public names.
fn renamed(line: &str, names: &BTreeMap<String, String>) -> String {
    let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let mut text = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|letter| !is_path(letter)).unwrap_or(rest.len()));
        // A member's path begins with that of its type.
        let known = std::iter::successors(Some(word), |word| word.rsplit_once("::").map(|(head, _)| head));
        let known = known.filter_map(|head| Some((head, names.get(head)?))).next();
        text.push_str(&known.map_or_else(|| word.to_owned(), |(head, name)| format!("{name}{}", &word[head.len()..])));
        let (other, after) = after.split_at(after.find(is_path).unwrap_or(after.len()));
        text.push_str(other);
        rest = after;
    }
    text
}

/// Which files are generated.
struct Generated<'a> {
    root: &'a Path,
    known: BTreeMap<PathBuf, bool>,
}

impl Generated<'_> {
    fn holds(&mut self, krate: &Crate, id: Id) -> bool {
        let Some(file) = krate.index.get(&id).and_then(rustdoc::file) else { return false };
        if let Some(known) = self.known.get(file) {
            return *known;
        }
        let text = std::fs::read_to_string(self.root.join(file)).unwrap_or_default();
        let is_generated = text.lines().take(4).any(|line| line.starts_with("//! Generated by"));
        self.known.insert(file.to_owned(), is_generated);
        is_generated
    }
}

/// The lines that only one of two texts has, the old ones first.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (old.lines().collect(), new.lines().collect());
    let gone = old.difference(&new).map(|line| format!("  - {line}"));
    let come = new.difference(&old).map(|line| format!("  + {line}"));
    let lines: Vec<String> = gone.chain(come).collect();
    let rest = lines.len().saturating_sub(SHOWN);
    let note = (rest > 0).then(|| format!("  and {rest} more"));
    lines.into_iter().take(SHOWN).chain(note).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_other_crates_stand_under_their_public_names() {
        let names = BTreeMap::from([("core::pool::Id".to_owned(), "core::PoolId".to_owned())]);
        let line = "pub fn a::f(&core::pool::Id, core::pool::Ids) -> Vec<core::pool::Id::Err>";
        assert_eq!(renamed(line, &names), "pub fn a::f(&core::PoolId, core::pool::Ids) -> Vec<core::PoolId::Err>");
    }

    #[test]
    fn a_line_stands_once() {
        let all = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(lines(all.into_iter()), "a\nb\n");
    }

    #[test]
    fn a_difference_shows_what_went_and_what_came() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), "  - a\n  + c");
        let many: String = (0..25).map(|n| format!("{n}\n")).collect();
        let shown = difference("", &many);
        assert_eq!(shown.lines().count(), SHOWN + 1);
        assert!(shown.ends_with("  and 5 more"));
    }
}
