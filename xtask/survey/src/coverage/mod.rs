//! Whether `docs/coverage.md` is true, in both directions and by item.
//!
//! - Every name that PyTorch shows has a row.
//! - A row that says done names a public item of `cuda-api`, the file that defines it, and tests that use its name.
//! - A row that says anything else names no such item.
//! - A row that says done has an example that the tests compile and run (`shown`).
//! - The same for the keys of the allocator's configuration and for environment variables, by the code that reads them.

mod page;
mod shown;
mod surface;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use page::{Row, State};
use serde_json::Value;
use shown::Shown;
use surface::Surface;
use words::Words;

use crate::{Result, read, rustdoc, verdict};

/// The page.
const PAGE: &str = "docs/coverage.md";

/// What PyTorch answered about itself; its `surface` lists every public name by module.
const FACTS: &str = "tests/data/golden/torch_facts.json";

/// The section whose rows are keys of the allocator's configuration.
const KEYS: &str = "Allocator configuration keys";

/// The section whose rows are environment variables.
const VARIABLES: &str = "Environment variables";

/// The crate with PyTorch's names, and where its code and the code below it lies.
const API: &str = "cuda_api";
const SOURCES: &[&str] = &[
    "crates/cuda-sys/src",
    "crates/c10-core/src",
    "crates/aten-cuda/src",
    "crates/cuda-dist/src",
    "crates/cuda-api/src",
];

/// Why a name of Python's own may have an item of that name here all the same: it means something else.
const OTHER_MEANING: &str = "Python machinery";

/// Checks the page.
///
/// # Errors
/// The list of what is untrue.
pub(crate) fn check(root: &Path) -> Result<String> {
    let page = read(&root.join(PAGE))?;
    let rows = page::rows(&page).map_err(|error| format!("{PAGE}: {error}"))?;
    let facts: Value = serde_json::from_str(&read(&root.join(FACTS))?).map_err(|error| format!("{FACTS}: {error}"))?;
    let (truth, shown) = (Truth::read(root)?, Shown::read(root)?);
    let mut faults = missing(&rows, &facts);
    let count = page::count(&rows);
    if !page.contains(&count) {
        faults.push(format!("{PAGE}: does not say how many rows it has; `cargo xtask coverage` writes: {count}"));
    }
    for row in &rows {
        let fault = match row.section {
            KEYS => truth.key(row),
            VARIABLES => truth.variable(row),
            _ => truth.item(row, |test| std::fs::read_to_string(root.join(test)).ok().map(|text| Words::of(&text))),
        };
        let fault = fault.or_else(|| misplaced(row, truth.place(row)?)).or_else(|| untested(root, row));
        let item = if matches!(row.section, KEYS | VARIABLES) { None } else { truth.found(row) };
        let fault = fault.or_else(|| shown.fault(row, &rows, item.map(|found| found.name.as_str())));
        faults.extend(fault.map(|text| format!("{PAGE}:{}: `{}` {text}", row.line, row.name)));
    }
    let listed = |key: &&String| rows.iter().any(|row| row.section == KEYS && row.name == **key);
    let unlisted = truth.keys.keys().filter(|key| !listed(key));
    faults.extend(unlisted.map(|key| format!("{PAGE}: the key `{key}` has no row")));
    verdict(&faults, count)
}

/// Writes into each row that is done the file that defines its item, and how many rows there are.
///
/// # Errors
/// The page cannot be read or written, or a crate does not build.
pub(crate) fn write(root: &Path) -> Result<String> {
    let page = read(&root.join(PAGE))?;
    let rows = page::rows(&page).map_err(|error| format!("{PAGE}: {error}"))?;
    let truth = Truth::read(root)?;
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let mut moved = 0;
    for row in &rows {
        let (Some(old), Some(new)) = (row.file(), truth.place(row)) else { continue };
        if misplaced(row, new).is_some() {
            // The first file of a row is the place; the tests stand behind it.
            lines[row.line - 1] = lines[row.line - 1].replacen(&format!("`{old}`"), &format!("`{}`", new.display()), 1);
            moved += 1;
        }
    }
    let count = page::count(&rows);
    let text = page::with_count(&(lines.join("\n") + "\n"), &count);
    std::fs::write(root.join(PAGE), text).map_err(|error| format!("cannot write {PAGE}: {error}"))?;
    Ok(format!("{moved} places written; {count}"))
}

/// What the page is compared with.
struct Truth {
    surface: Surface,
    /// The words of the sources, by files from the workspace's root.
    words: BTreeMap<PathBuf, Words>,
    /// The keys of the allocator's configuration, and the file that knows them.
    keys: BTreeMap<String, PathBuf>,
}

impl Truth {
    fn read(root: &Path) -> Result<Self> {
        let mut crates = BTreeMap::new();
        for (name, path) in rustdoc::build(root)? {
            crates.insert(name.replace('-', "_"), rustdoc::load(&path)?);
        }
        let mut truth = Self { surface: Surface::new(&crates, API), words: BTreeMap::new(), keys: BTreeMap::new() };
        SOURCES.iter().try_for_each(|folder| truth.enter(root, Path::new(folder)))?;
        Ok(truth)
    }

    fn enter(&mut self, root: &Path, path: &Path) -> Result<()> {
        let whole = root.join(path);
        if whole.is_dir() {
            let entries =
                std::fs::read_dir(&whole).map_err(|error| format!("cannot list {}: {error}", path.display()))?;
            return entries.flatten().try_for_each(|entry| self.enter(root, &path.join(entry.file_name())));
        }
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&whole)?;
            if path.components().any(|part| matches!(part.as_os_str().to_str(), Some("config" | "config.rs"))) {
                self.keys.extend(words::keys(&text).into_iter().map(|key| (key, path.to_owned())));
            }
            self.words.insert(path.to_owned(), Words::of(&text));
        }
        Ok(())
    }

    /// The item of a row. Where it has another name than PyTorch's, the row gives its path before the file.
    fn found(&self, row: &Row<'_>) -> Option<&surface::Found> {
        let path = row.place.iter().find(|word| word.contains("::")).filter(|_| row.state == State::Done);
        path.map_or_else(|| self.surface.find(row.section, row.name), |path| self.surface.at(path))
    }

    /// The files that name a variable, which may end with `*`.
    fn readers(&self, name: &str) -> impl Iterator<Item = &Path> {
        let fits = move |text: &String| match name.strip_suffix('*') {
            Some(head) => text.starts_with(head),
            None => text == name,
        };
        self.words.iter().filter(move |(_, words)| words.texts.iter().any(fits)).map(|(file, _)| file.as_path())
    }

    /// The file that the row of a name that is done must give; a variable may be read in several.
    fn place(&self, row: &Row<'_>) -> Option<&Path> {
        match row.section {
            _ if row.state != State::Done => None,
            KEYS => self.keys.get(row.name).map(PathBuf::as_path),
            VARIABLES => {
                let given = |file: &&Path| row.file() == file.to_str();
                self.readers(row.name).find(given).or_else(|| self.readers(row.name).next())
            }
            _ => self.found(row).map(|found| found.file.as_path()),
        }
    }

    /// What is wrong with a row about a public item.
    fn item(&self, row: &Row<'_>, tests: impl Fn(&str) -> Option<Words>) -> Option<String> {
        match (row.state, self.found(row)) {
            (State::Done, None) => Some(format!("is said to be done, but {API} shows no such item")),
            (State::Done, Some(found)) => {
                let uses = |test: &&str| tests(test).is_some_and(|words| words.names.contains(&found.name));
                let is_used = found.is_type || row.tests.iter().any(uses);
                (!is_used).then(|| format!("is said to be tested, but no file of the row uses `{}`", found.name))
            }
            (State::NotYet, Some(found)) => Some(format!("is said to be not there, but {} is", spelled(found))),
            (State::NotApplicable, Some(found)) if row.remark != OTHER_MEANING => {
                Some(format!("is said not to apply, but {} is there", spelled(found)))
            }
            (State::NotApplicable, _) => row.remark.is_empty().then(|| "does not say why it does not apply".to_owned()),
            (State::NotYet, None) => None,
        }
    }

    /// What is wrong with a row about a key of the allocator's configuration.
    fn key(&self, row: &Row<'_>) -> Option<String> {
        match (row.state, self.keys.contains_key(row.name)) {
            (State::Done, false) => Some("is said to be done, but the configuration knows no such key".to_owned()),
            (State::NotYet | State::NotApplicable, true) => Some("is a key that the configuration knows".to_owned()),
            (State::Done, true) | (State::NotYet | State::NotApplicable, false) => None,
        }
    }

    /// What is wrong with a row about an environment variable.
    fn variable(&self, row: &Row<'_>) -> Option<String> {
        match (row.state, self.readers(row.name).next()) {
            (State::Done, None) => Some("is said to be done, but nothing reads it".to_owned()),
            (State::Done, Some(_)) | (State::NotYet | State::NotApplicable, None) => None,
            (State::NotYet | State::NotApplicable, Some(file)) => Some(format!("is read in `{}`", file.display())),
        }
    }
}

/// A row that gives another file than the one it must.
fn misplaced(row: &Row<'_>, file: &Path) -> Option<String> {
    let text = || format!("is in `{}`; `cargo xtask coverage` writes that", file.display());
    (row.file() != file.to_str()).then(text)
}

/// A row that is done and names no tests, or a file of tests that is not there.
fn untested(root: &Path, row: &Row<'_>) -> Option<String> {
    if row.state != State::Done {
        return None;
    }
    if row.tests.is_empty() {
        return Some("is said to be done, but no test is named".to_owned());
    }
    let lost = row.tests.iter().find(|file| !root.join(file).is_file());
    lost.map(|file| format!("is tested in `{file}`, which is not there"))
}

fn spelled(found: &surface::Found) -> String {
    let owner = if found.owner.is_empty() { API.to_owned() } else { format!("{API}::{}", found.owner) };
    format!("`{owner}::{}` in `{}`", found.name, found.file.display())
}

/// Names PyTorch has that the page does not list.
fn missing(rows: &[Row<'_>], facts: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (module, names) in facts["surface"].as_object().into_iter().flatten() {
        let listed: BTreeSet<&str> = rows.iter().filter(|row| in_section(row, module)).map(|row| row.name).collect();
        let names = names.as_object().into_iter().flatten().map(|(name, _)| name);
        let absent = names.filter(|name| !listed.contains(name.as_str()));
        faults.extend(absent.map(|name| format!("{PAGE}: the section `{module}` has no row for `{name}`")));
    }
    faults
}

fn in_section(row: &Row<'_>, module: &str) -> bool {
    row.section.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) == Some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth() -> Truth {
        let found = |owner: &str, name: &str, is_type: bool| surface::Found {
            name: name.to_owned(),
            owner: owner.to_owned(),
            aliases: Vec::new(),
            is_type,
            file: PathBuf::from("m.rs"),
        };
        let items = vec![found("", "MemPool", true), found("memory", "set_settings", false)];
        let surface = Surface { items, members: vec![found("Runtime", "count", false)] };
        let words = Words::of("const V: [&str; 2] = [\"SOME_PATH\", \"OTHER\"];");
        Truth {
            surface,
            words: BTreeMap::from([(PathBuf::from("m.rs"), words)]),
            keys: BTreeMap::from([("backend".to_owned(), PathBuf::from("m.rs"))]),
        }
    }

    /// What is wrong with a row of the section `torch.cuda.memory`, where the test `t.rs` uses `set_settings`.
    fn about_item(row: &str) -> Option<String> {
        let page = format!("## `torch.cuda.memory`\n{row}\n");
        let rows = page::rows(&page).unwrap();
        let tests = |test: &str| (test == "t.rs").then(|| Words::of("fn t() { set_settings(); count(); }"));
        truth().item(&rows[0], tests).or_else(|| misplaced(&rows[0], truth().place(&rows[0])?))
    }

    #[test]
    fn true_rows_pass() {
        for row in [
            "| `MemPool` | done | `m.rs` | `t.rs` |",
            "| `_set_settings` | done | `m.rs` | `t.rs` |",
            "| `_count_all` | done | `Runtime::count` in `m.rs` | `t.rs` |",
            "| `other` | not yet | | |",
            "| `other` | not applicable | AMD devices | |",
            "| `_MemPool` | not applicable | Python machinery | |",
        ] {
            assert_eq!(about_item(row), None, "{row}");
        }
    }

    #[test]
    fn untrue_rows_are_found_in_both_directions() {
        for (row, fault) in [
            ("| `MemPool` | not yet | | |", "`cuda_api::MemPool` in `m.rs` is"),
            ("| `_set_settings` | not yet | | |", "`cuda_api::memory::set_settings` in `m.rs` is"),
            ("| `MemPool` | not applicable | after 2.11 | |", "is there"),
            ("| `other` | not applicable | | |", "does not say why"),
            ("| `MemPools` | done | `m.rs` | `t.rs` |", "shows no such item"),
            ("| `_count_all` | done | `Runtime::counts` in `m.rs` | `t.rs` |", "shows no such item"),
            ("| `MemPool` | done | `n.rs` | `t.rs` |", "is in `m.rs`"),
            ("| `_set_settings` | done | `m.rs` | `u.rs` |", "no file of the row uses `set_settings`"),
        ] {
            assert!(about_item(row).is_some_and(|text| text.contains(fault)), "{row}: {:?}", about_item(row));
        }
    }

    #[test]
    fn keys_and_variables_are_compared_with_the_code() {
        let check = |row: &str, check: fn(&Truth, &Row<'_>) -> Option<String>| {
            check(&truth(), &page::rows(row).unwrap()[0]).unwrap_or_default()
        };
        let (key, variable) = (Truth::key, Truth::variable);
        assert_eq!(check("| `backend` | done | `m.rs` | `t.rs` |", key), "");
        assert!(check("| `backend` | not applicable | after 2.11 | |", key).contains("knows"));
        assert!(check("| `back` | done | `m.rs` | `t.rs` |", key).contains("no such key"));
        assert_eq!(check("| `OTHER` | done | `m.rs` | `t.rs` |", variable), "");
        assert!(check("| `SOME_*` | not yet | | |", variable).contains("is read in `m.rs`"));
        assert!(check("| `SOME` | done | `m.rs` | `t.rs` |", variable).contains("nothing reads it"));
        assert_eq!(check("| `SOME` | not yet | | |", variable), "");
    }

    #[test]
    fn the_place_of_a_row_follows_the_code() {
        for (heading, row) in [
            ("`torch.cuda`", "| `MemPool` | done | `n.rs` | `t.rs` |"),
            (KEYS, "| `backend` | done | `n.rs`: `native` alone | `t.rs` |"),
            (VARIABLES, "| `OTHER` | done | `n.rs` | `t.rs` |"),
        ] {
            let page = format!("## {heading}\n{row}\n");
            let rows = page::rows(&page).unwrap();
            assert_eq!(truth().place(&rows[0]), Some(Path::new("m.rs")), "{row}");
            assert!(misplaced(&rows[0], Path::new("m.rs")).is_some());
            assert!(misplaced(&rows[0], Path::new("n.rs")).is_none());
        }
    }

    #[test]
    fn a_name_without_a_row_is_found() {
        let page = "## `torch.cuda`\n| `Event` | not yet | | |\n## `torch.cuda.memory`\n| `Stream` | not yet | | |\n";
        let facts = serde_json::json!({"surface": {"torch.cuda": {"Event": null, "Stream": null}}});
        let faults = missing(&page::rows(page).unwrap(), &facts);
        assert_eq!(faults, ["docs/coverage.md: the section `torch.cuda` has no row for `Stream`"]);
    }
}
