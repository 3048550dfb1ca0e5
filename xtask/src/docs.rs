//! Drift of the documents: commands that do not exist, links to nothing, a program that is not the one that runs.

use std::path::Path;

use crate::flags::COMMANDS;
use crate::shell::{self, Result};
use crate::tidy::{self, Source};

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
    fn the_program_shown_must_be_the_one_that_is_run() {
        let program = "//! A program.\nfn main() {}\n";
        assert_eq!(shown(&page("```rust\nfn main() {}\n```"), program), None);
        assert!(shown(&page("```rust\nfn main() { }\n```"), program).is_some());
        assert!(shown(&page("no program"), program).is_some());
    }
}
