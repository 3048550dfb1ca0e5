//! Whether every public type, trait and function of `c10-core` has an example that runs.
//!
//! An example is a code block of the item's own documentation, or of a function or an `impl` of the type, that the
//! documentation tests compile and run.

use std::path::Path;

use rustdoc_types::{Crate, Id, Item, ItemEnum};

use crate::rustdoc;
use crate::{Result, verdict};

/// The crate whose items need examples.
const CRATE: &str = "c10-core";

/// Names the items without an example.
///
/// # Errors
/// There are some, or a crate does not build.
pub(crate) fn check(root: &Path) -> Result<String> {
    let krate = rustdoc::load(&rustdoc::build(root)?[CRATE])?;
    let public = rustdoc::public(&krate);
    let items = public.iter().filter_map(|(path, id)| Some((path.join("::"), has_example(&krate, *id)?)));
    let items: Vec<(String, bool)> = items.collect();
    let faults: Vec<String> =
        items.iter().filter(|(_, shown)| !shown).map(|(path, _)| format!("{path} has no example that runs")).collect();
    verdict(&faults, format!("{} items", items.len()))
}

/// Whether an item has an example; nothing for items that need none.
fn has_example(krate: &Crate, id: Id) -> Option<bool> {
    let item = krate.index.get(&id).filter(|item| item.crate_id == 0)?;
    let members = match &item.inner {
        ItemEnum::Struct(shape) => &shape.impls,
        ItemEnum::Enum(shape) => &shape.impls,
        ItemEnum::Trait(shape) => &shape.items,
        ItemEnum::Function(_) => return Some(is_example(item)),
        _ => return None,
    };
    Some(is_example(item) || members.iter().any(|member| shows_in(krate, *member)))
}

/// Whether a member of a type has an example: an `impl` of this crate, a function in one, or a function of a trait.
fn shows_in(krate: &Crate, id: Id) -> bool {
    let Some(item) = krate.index.get(&id) else { return false };
    let inside: &[Id] = match &item.inner {
        ItemEnum::Impl(block) if block.is_synthetic || block.blanket_impl.is_some() => return false,
        ItemEnum::Impl(block) => &block.items,
        _ => &[],
    };
    is_example(item) || inside.iter().filter_map(|id| krate.index.get(id)).any(is_example)
}

fn is_example(item: &Item) -> bool {
    item.docs.as_deref().is_some_and(runs)
}

/// Whether a documentation has a block of Rust that is run. Every second fence ends a block.
fn runs(docs: &str) -> bool {
    let fences = docs.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
    fences.step_by(2).any(|words| words.is_empty() || words == "rust")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_are_run_count() {
        assert!(runs("A type.\n\n```\nuse it;\n```\n\n# Errors"));
        assert!(runs("```compile_fail,E0277\nno\n```\n\n```\nyes\n```"));
        for none in ["", "```text\na\n```", "```no_run\na\n```", "```compile_fail\na\n```"] {
            assert!(!runs(none), "{none}");
        }
    }
}
