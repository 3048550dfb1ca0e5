//! Whether `docs/coverage.md` is true, in both directions and by item.
//!
//! - Every name that PyTorch shows has a row.
//! - A row that says done names a public item of `cuda-api`, the file that defines it, and tests that use its name.
//! - A row that says anything else names no such item.
//! - The same for the keys of the allocator's configuration and for environment variables, by the code that reads them.

mod page;
mod surface;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use page::{Row, State};
use serde_json::Value;
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
const SOURCES: &[&str] = &["crates/cuda-sys/src", "crates/c10-core/src", "crates/cuda-api/src"];

/// Why a name of Python's own may have an item of that name here all the same: it means something else.
const OTHER_MEANING: &str = "Python machinery";

/// Checks the page.
///
/// # Errors
/// The list of what is untrue.
pub(crate) fn run(root: &Path) -> Result<String> {
    let page = read(&root.join(PAGE))?;
    let rows = page::rows(&page).map_err(|error| format!("{PAGE}: {error}"))?;
    let facts: Value = serde_json::from_str(&read(&root.join(FACTS))?).map_err(|error| format!("{FACTS}: {error}"))?;
    let mut faults = missing(&rows, &facts);
    let count = page::count(&rows);
    if !page.contains(&count) {
        faults.push(format!("{PAGE}: its rows are other than it says; write: {count}"));
    }
    let code = Code::read(root)?;
    let mut crates = BTreeMap::new();
    for (name, path) in rustdoc::build(root)? {
        crates.insert(name.replace('-', "_"), rustdoc::load(&path)?);
    }
    let surface = Surface::new(&crates, API);
    for row in &rows {
        let fault = match row.section {
            KEYS => key(row, &code),
            VARIABLES => variable(row, &code),
            _ => item(row, &surface, |test| std::fs::read_to_string(root.join(test)).ok().map(|text| Words::of(&text))),
        };
        faults.extend(fault.map(|text| format!("{PAGE}:{}: `{}` {text}", row.line, row.name)));
        faults.extend(files(root, row).map(|text| format!("{PAGE}:{}: {text}", row.line)));
    }
    let listed = |key: &&String| rows.iter().any(|row| row.section == KEYS && row.name == **key);
    faults.extend(code.keys.iter().filter(|key| !listed(key)).map(|key| format!("{PAGE}: the key `{key}` has no row")));
    verdict(&faults, count)
}

/// What the sources say, by files from the workspace's root.
struct Code {
    words: BTreeMap<PathBuf, Words>,
    /// The keys of the allocator's configuration.
    keys: BTreeSet<String>,
}

impl Code {
    fn read(root: &Path) -> Result<Self> {
        let mut code = Self { words: BTreeMap::new(), keys: BTreeSet::new() };
        for folder in SOURCES {
            code.enter(root, Path::new(folder))?;
        }
        Ok(code)
    }

    fn enter(&mut self, root: &Path, path: &Path) -> Result<()> {
        let whole = root.join(path);
        if whole.is_dir() {
            let entries =
                std::fs::read_dir(&whole).map_err(|error| format!("cannot list {}: {error}", path.display()))?;
            entries.flatten().try_for_each(|entry| self.enter(root, &path.join(entry.file_name())))
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&whole)?;
            if path.components().any(|part| matches!(part.as_os_str().to_str(), Some("config" | "config.rs"))) {
                self.keys.extend(words::keys(&text));
            }
            self.words.insert(path.to_owned(), Words::of(&text));
            Ok(())
        } else {
            Ok(())
        }
    }
}

/// What is wrong with a row about a public item. Where the item has another name than PyTorch's, the row gives its path
/// before the file.
fn item(row: &Row<'_>, surface: &Surface, tests: impl Fn(&str) -> Option<Words>) -> Option<String> {
    let path = row.place.iter().find(|word| word.contains("::")).filter(|_| row.state == State::Done);
    let found = path.map_or_else(|| surface.find(row.section, row.name), |path| surface.at(path));
    match (row.state, found) {
        (State::Done, None) => Some(format!("is said to be done, but {API} shows no such item")),
        (State::Done, Some(found)) => {
            let file = found.file.display().to_string();
            let uses = |test: &&str| tests(test).is_some_and(|words| words.names.contains(&found.name));
            if !row.place.contains(&file.as_str()) {
                Some(format!("is defined in `{file}`"))
            } else {
                let is_used = found.is_type || row.tests.iter().any(uses);
                (!is_used).then(|| format!("is said to be tested, but no file of the row uses `{}`", found.name))
            }
        }
        (State::NotYet, Some(found)) => Some(format!("is said to be not there, but {} is", spelled(found))),
        (State::NotApplicable, Some(found)) if row.remark != OTHER_MEANING => {
            Some(format!("is said not to apply, but {} is there", spelled(found)))
        }
        (State::NotApplicable, _) => row.remark.is_empty().then(|| "does not say why it does not apply".to_owned()),
        (State::NotYet, None) => None,
    }
}

fn spelled(found: &surface::Found) -> String {
    let owner = if found.owner.is_empty() { API.to_owned() } else { format!("{API}::{}", found.owner) };
    format!("`{owner}::{}` in `{}`", found.name, found.file.display())
}

/// What is wrong with a row about a key of the allocator's configuration.
fn key(row: &Row<'_>, code: &Code) -> Option<String> {
    match (row.state, code.keys.contains(row.name)) {
        (State::Done, false) => Some("is said to be done, but the configuration knows no such key".to_owned()),
        (State::NotYet | State::NotApplicable, true) => Some("is a key that the configuration knows".to_owned()),
        (State::Done, true) | (State::NotYet | State::NotApplicable, false) => None,
    }
}

/// What is wrong with a row about an environment variable; a name may end with `*`.
fn variable(row: &Row<'_>, code: &Code) -> Option<String> {
    let fits = |text: &String| match row.name.strip_suffix('*') {
        Some(head) => text.starts_with(head),
        None => text == row.name,
    };
    let file = code.words.iter().find(|(_, words)| words.texts.iter().any(fits)).map(|(file, _)| file.display());
    let place = row.place.first().copied().unwrap_or_default();
    let named = code.words.get(Path::new(place)).is_some_and(|words| words.texts.iter().any(fits));
    match (row.state, file) {
        (State::Done, None) => Some("is said to be done, but nothing reads it".to_owned()),
        (State::Done, Some(file)) if !named => Some(format!("is named in `{file}`")),
        (State::Done, Some(_)) | (_, None) => None,
        (State::NotYet | State::NotApplicable, Some(file)) => Some(format!("is read in `{file}`")),
    }
}

/// Files that a row names and that are not there, and a row that is done and names no tests.
fn files(root: &Path, row: &Row<'_>) -> Option<String> {
    if row.state != State::Done {
        return None;
    }
    let sources = || row.place.iter().chain(&row.tests).filter(|word| word.ends_with(".rs"));
    if let Some(lost) = sources().find(|file| !root.join(file).is_file()) {
        return Some(format!("there is no `{lost}`"));
    }
    row.tests.is_empty().then(|| format!("`{}` is said to be done, but no test is named", row.name))
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

    fn surface() -> Surface {
        let found = |owner: &str, name: &str, is_type: bool| surface::Found {
            name: name.to_owned(),
            owner: owner.to_owned(),
            aliases: Vec::new(),
            is_type,
            file: PathBuf::from("m.rs"),
        };
        let items = vec![found("", "MemPool", true), found("memory", "set_settings", false)];
        Surface { items, members: vec![found("Runtime", "count", false)] }
    }

    /// What is wrong with a row of the section `torch.cuda.memory`, where the test `t.rs` uses `set_settings`.
    fn about_item(row: &str) -> Option<String> {
        let page = format!("## `torch.cuda.memory`\n{row}\n");
        let rows = page::rows(&page).unwrap();
        let tests = |test: &str| (test == "t.rs").then(|| Words::of("fn t() { set_settings(); count(); }"));
        item(&rows[0], &surface(), tests)
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
            ("| `MemPool` | done | `n.rs` | `t.rs` |", "is defined in `m.rs`"),
            ("| `_set_settings` | done | `m.rs` | `u.rs` |", "no file of the row uses `set_settings`"),
        ] {
            assert!(about_item(row).is_some_and(|text| text.contains(fault)), "{row}: {:?}", about_item(row));
        }
    }

    #[test]
    fn keys_and_variables_are_compared_with_the_code() {
        let words = Words::of("const V: [&str; 2] = [\"SOME_PATH\", \"OTHER\"];");
        let code = Code {
            words: BTreeMap::from([(PathBuf::from("m.rs"), words)]),
            keys: BTreeSet::from(["backend".to_owned()]),
        };
        let check = |row: &str, check: fn(&Row<'_>, &Code) -> Option<String>| {
            check(&page::rows(row).unwrap()[0], &code).unwrap_or_default()
        };
        assert_eq!(check("| `backend` | done | `m.rs` | `t.rs` |", key), "");
        assert!(check("| `backend` | not applicable | after 2.11 | |", key).contains("knows"));
        assert!(check("| `back` | done | `m.rs` | `t.rs` |", key).contains("no such key"));
        assert_eq!(check("| `OTHER` | done | `m.rs` | `t.rs` |", variable), "");
        assert!(check("| `OTHER` | done | `n.rs` | `t.rs` |", variable).contains("is named in `m.rs`"));
        assert!(check("| `SOME_*` | not yet | | |", variable).contains("is read in `m.rs`"));
        assert!(check("| `SOME` | done | `m.rs` | `t.rs` |", variable).contains("nothing reads it"));
        assert_eq!(check("| `SOME` | not yet | | |", variable), "");
    }

    #[test]
    fn a_name_without_a_row_is_found() {
        let page = "## `torch.cuda`\n| `Event` | not yet | | |\n## `torch.cuda.memory`\n| `Stream` | not yet | | |\n";
        let facts = serde_json::json!({"surface": {"torch.cuda": {"Event": null, "Stream": null}}});
        let faults = missing(&page::rows(page).unwrap(), &facts);
        assert_eq!(faults, ["docs/coverage.md: the section `torch.cuda` has no row for `Stream`"]);
    }
}
