//! Drift of the documents: commands and files that do not exist, links to nothing, a program that is not the one that
//! runs, a file that the README of its folder forgot.

use std::path::Path;

use crate::flags::COMMANDS;
use crate::shell::{self, Result};
use crate::tidy::{self, Source};

/// The program the README shows.
const PROGRAM: &str = "examples/src/bin/06_tensors.rs";

/// The page that names files of all folders by their paths; others than it and the READMEs speak of files in passing.
const TESTING: &str = "docs/testing.md";

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
        faults.extend(files(page, &sources));
    }
    let program = shell::read(&shell::root().join(PROGRAM))?;
    faults.extend(pages.iter().filter(|page| page.path == "README.md").flat_map(|page| shown(page, &program)));
    if faults.is_empty() { Ok(format!("{} pages", pages.len())) } else { Err(faults.join("\n")) }
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

/// Files a page names that are not there, and those beside a README that names some of them but not these.
///
/// A page may write a name from its own folder, from the `src` folder below or above it, or from the root.
fn files(page: &Source, sources: &[Source]) -> Vec<String> {
    if page.path != TESTING && !page.path.ends_with("README.md") {
        return Vec::new();
    }
    let folder = page.path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let src = folder.find("/src/").map(|at| folder[..at + "/src/".len()].to_owned());
    let bases = [Some(folder.clone()), Some(format!("{folder}src/")), src, Some(String::new())];
    let is_there = |file: &str| sources.iter().any(|source| source.path == file);
    let named: Vec<&str> = quoted(&page.text).filter(|word| is_file_name(word)).collect();
    let lost = named.iter().filter(|name| !bases.iter().flatten().any(|base| is_there(&format!("{base}{name}"))));
    let mut faults: Vec<String> =
        lost.map(|name| format!("{}: names `{name}`, which does not exist", page.path)).collect();
    let beside =
        sources.iter().filter_map(|source| source.path.strip_prefix(&folder)).filter(|name| is_file_name(name));
    let beside: Vec<&str> = beside.filter(|name| !name.contains('/')).collect();
    if page.path.ends_with("/README.md") && beside.iter().any(|name| named.contains(name)) {
        let absent = beside.iter().filter(|name| !named.contains(name));
        faults.extend(absent.map(|name| format!("{}: lists files of its folder, but not `{name}`", page.path)));
    }
    faults
}

fn is_file_name(word: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '/' | '.' | '-');
    word.ends_with(".rs") && word.chars().all(plain)
}

/// What stands in backquotes, outside blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// A page whose first Rust block is not the program it says it shows, which may have a header of its own.
fn shown(page: &Source, program: &str) -> Option<String> {
    let block = page.text.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let same = !block.is_empty() && program.ends_with(block);
    (!same).then(|| format!("{}: the program shown is not that of {PROGRAM}", page.path))
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
    fn files_of_a_page_must_exist() {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let page = |path: &str, text: &str| {
            let here = ["crates/a/src/lib.rs", "crates/a/src/b/mod.rs", "crates/a/src/b/c.rs"];
            files(&source(path, text), &here.map(|path| source(path, "")))
        };
        let none = Vec::<String>::new();
        assert_eq!(page("docs/testing.md", "`crates/a/src/b/c.rs`, `d.rs x`, `**/*.rs`\n```\n`e.rs`\n```\n"), none);
        assert_eq!(page("docs/testing.md", "`b/c.rs`"), ["docs/testing.md: names `b/c.rs`, which does not exist"]);
        assert_eq!(page("crates/a/README.md", "`b/c.rs` `src/lib.rs`"), none);
        assert_eq!(page("crates/a/src/b/README.md", "`mod.rs`, `c.rs`; `b/c.rs`, `lib.rs`"), none);
        assert_eq!(page("crates/a/src/b/README.md", "no list"), none);
        let forgotten = "crates/a/src/b/README.md: lists files of its folder, but not `c.rs`";
        assert_eq!(page("crates/a/src/b/README.md", "`mod.rs`"), [forgotten]);
        assert_eq!(page("docs/other.md", "`gone.rs`"), none);
    }

    #[test]
    fn the_program_shown_must_be_the_one_that_is_run() {
        let program = "//! A program.\nfn main() {}\n";
        assert_eq!(shown(&page("```rust\nfn main() {}\n```"), program), None);
        assert!(shown(&page("```rust\nfn main() { }\n```"), program).is_some());
        assert!(shown(&page("no program"), program).is_some());
    }
}
