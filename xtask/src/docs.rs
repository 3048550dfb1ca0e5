//! Drift of the documents: commands that do not exist, links to nothing, names that the coverage page forgot.

use std::collections::HashMap;
use std::path::Path;

use tinyjson::JsonValue;

use crate::flags::COMMANDS;
use crate::shell::{self, Result};
use crate::tidy::{self, Source};

/// What PyTorch answered about itself; its `surface` lists every public name.
const FACTS: &str = "tests/data/golden/torch_facts.json";

/// The page with the state of every name.
const COVERAGE: &str = "docs/coverage.md";

/// The program the README shows.
const PROGRAM: &str = "examples/src/bin/01_alloc.rs";

/// Checks all documents.
///
/// # Errors
/// The list of what is wrong.
pub(crate) fn check() -> Result<String> {
    let sources = tidy::sources()?;
    let pages: Vec<&Source> = sources.iter().filter(|source| source.path.ends_with(".md")).collect();
    let mut faults = Vec::new();
    for page in &pages {
        faults.extend(commands(page));
        faults.extend(links(page));
    }
    let program = shell::read(&shell::root().join(PROGRAM))?;
    faults.extend(pages.iter().filter(|page| page.path == "README.md").flat_map(|page| shown(page, &program)));
    let coverage = shell::read(&shell::root().join(COVERAGE))?;
    let facts = shell::read(&shell::root().join(FACTS))?.parse();
    let facts: JsonValue = facts.map_err(|error| format!("{FACTS} is not JSON: {error}"))?;
    faults.extend(missing(&coverage, &facts));
    faults.extend(untrue(&coverage));
    let rows = coverage.lines().filter(|line| line.starts_with("| `")).count();
    let done = coverage.lines().filter(|line| line.contains("| done |")).count();
    if faults.is_empty() { Ok(format!("{done} of {rows} names done")) } else { Err(faults.join("\n")) }
}

/// Commands a page names that the table lacks.
fn commands(page: &Source) -> Vec<String> {
    let named = page.text.match_indices("cargo xtask ").map(|(at, start)| {
        let rest = &page.text[at + start.len()..];
        rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').next().unwrap_or_default()
    });
    let known = |name: &&str| COMMANDS.iter().any(|command| command.name == *name);
    named
        .filter(|name| !name.is_empty() && *name != "COMMAND" && !known(name))
        .map(|name| format!("{}: there is no `cargo xtask {name}`", page.path))
        .collect()
}

/// Links of a page to files that do not exist.
fn links(page: &Source) -> Vec<String> {
    let folder = shell::root().join(&page.path).parent().map(Path::to_owned).unwrap_or_default();
    let targets =
        page.text.match_indices("](").filter_map(|(at, start)| page.text[at + start.len()..].split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .filter(|target| !folder.join(target.split('#').next().unwrap_or_default()).exists())
        .map(|target| format!("{}: links to `{target}`, which does not exist", page.path))
        .collect()
}

/// A page whose first Rust block is not the program it says it shows, which may have a header of its own.
fn shown(page: &Source, program: &str) -> Option<String> {
    let block = page.text.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let same = !block.is_empty() && program.ends_with(block);
    (!same).then(|| format!("{}: the program shown is not that of {PROGRAM}", page.path))
}

/// Names PyTorch has that the page does not list.
fn missing(coverage: &str, facts: &JsonValue) -> Vec<String> {
    let mut faults = Vec::new();
    for (module, names) in
        members(facts).into_iter().filter(|(key, _)| *key == "surface").flat_map(|(_, it)| members(it))
    {
        let Some(section) = section(coverage, module) else {
            faults.push(format!("{COVERAGE}: no section `{module}`"));
            continue;
        };
        let names = members(names).into_iter().map(|(name, _)| name);
        let absent = names.filter(|name| !section.contains(&format!("| `{name}` |")));
        faults.extend(absent.map(|name| format!("{COVERAGE}: {module} lacks `{name}`")));
    }
    faults
}

/// The members of an object in the order of their keys; none of anything else.
fn members(value: &JsonValue) -> Vec<(&str, &JsonValue)> {
    let object = value.get::<HashMap<String, JsonValue>>();
    let mut members: Vec<_> = object.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    members
}

/// The lines below a heading that names a module in backquotes, up to the next heading.
fn section<'page>(coverage: &'page str, module: &str) -> Option<&'page str> {
    let heading = format!("\n## `{module}`\n");
    let start = coverage.find(&heading)? + heading.len();
    let rest = &coverage[start..];
    Some(rest.find("\n## ").map_or(rest, |end| &rest[..end]))
}

/// Rows that claim a name is done, without a public item of that name or with a test file that is not there.
fn untrue(coverage: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for line in coverage.lines().filter(|line| line.contains("| done |")) {
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let files: Vec<&&str> = quoted.iter().filter(|word| word.ends_with(".rs")).collect();
        if files.len() < 2 {
            faults.push(format!("{COVERAGE}: says where and how tested, in two files: {line}"));
        }
        let lost = files.iter().filter(|file| !shell::root().join(file).is_file());
        faults.extend(lost.map(|file| format!("{COVERAGE}: there is no `{file}`")));
        let (Some(name), Some(file)) = (quoted.first(), files.first()) else { continue };
        // The underscore that marks a private name in Python is dropped in Rust.
        let word = name.rsplit('.').next().unwrap_or(name).trim_start_matches('_');
        let text = std::fs::read_to_string(shell::root().join(file)).unwrap_or_default();
        if !text.contains(word) {
            faults.push(format!("{COVERAGE}: `{file}` does not name `{word}`"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Source {
        Source { path: "README.md".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn commands_of_a_page_must_exist() {
        assert_eq!(commands(&page("Run `cargo xtask demo` or `cargo xtask test`.")), Vec::<String>::new());
        assert_eq!(commands(&page("`cargo xtask dance`")), ["README.md: there is no `cargo xtask dance`"]);
    }

    #[test]
    fn links_of_a_page_must_lead_somewhere() {
        assert_eq!(links(&page("[a](Cargo.toml) [b](https://example.org) [c](#here)")), Vec::<String>::new());
        assert_eq!(links(&page("[a](nowhere.md)")), ["README.md: links to `nowhere.md`, which does not exist"]);
    }

    #[test]
    fn the_program_shown_must_be_the_one_that_is_run() {
        let program = "//! A program.\nfn main() {}\n";
        assert_eq!(shown(&page("```rust\nfn main() {}\n```"), program), None);
        assert!(shown(&page("```rust\nfn main() { }\n```"), program).is_some());
        assert!(shown(&page("no program"), program).is_some());
    }

    #[test]
    fn a_name_without_a_row_is_found() {
        let facts = r#"{"surface": {"torch.cuda": {"Event": null, "Stream": null}}}"#.parse().unwrap();
        let coverage =
            "# Coverage\n\n## `torch.cuda`\n\n| `Event` | not yet |\n\n## `torch.cuda.memory`\n| `Stream` |\n";
        assert_eq!(missing(coverage, &facts), ["docs/coverage.md: torch.cuda lacks `Stream`"]);
        assert_eq!(missing("", &facts), ["docs/coverage.md: no section `torch.cuda`"]);
    }

    #[test]
    fn a_row_that_claims_too_much_is_found() {
        assert_eq!(untrue("| `nothing_like_it` | done | `xtask/src/main.rs` | `xtask/src/gone.rs` |").len(), 2);
        assert_eq!(untrue("| `flags` | done | `xtask/src/main.rs` | `xtask/src/flags.rs` |"), Vec::<String>::new());
    }
}
