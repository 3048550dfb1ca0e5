//! Whether the functions that `docs/life-of-an-allocation.md` names exist.
//!
//! A name in backquotes counts as that of a function if it is written `Type::function`, `module::function` or
//! `function()`. Looked for are `fn` items outside tests, by their name and by the type, the trait, the module or the
//! crate they belong to. What the driver (`cu...`) or the standard library has is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Item, Type};

use crate::modules::{self, Tree, is_for_tests};
use crate::{Result, read, verdict};

/// The page.
const PAGE: &str = "docs/life-of-an-allocation.md";

/// The crates whose functions it tells of, with the folders of their sources.
const CRATES: &[(&str, &str)] = &[("c10_core", "crates/c10-core/src"), ("cuda_api", "crates/cuda-api/src")];

/// Checks the page, if it is there.
///
/// # Errors
/// The names that are no functions.
pub(crate) fn run(root: &Path) -> Result<String> {
    if !root.join(PAGE).is_file() {
        return Ok(format!("skipped: there is no {PAGE}"));
    }
    let mut functions = Functions::default();
    for (name, folder) in CRATES {
        functions.enter(name, &Tree::read(&modules::folder(&root.join(folder)))?);
    }
    let page = read(&root.join(PAGE))?;
    let named = named(&page);
    let lost = named.iter().filter(|(_, name)| !functions.has(name));
    let faults: Vec<String> =
        lost.map(|(line, name)| format!("{PAGE}:{line}: there is no function `{name}`")).collect();
    verdict(&faults, format!("{} functions named", named.len()))
}

/// The names of a page that are written as those of functions, with their lines.
fn named(page: &str) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    let mut in_block = false;
    for (at, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            named.extend(line.split('`').skip(1).step_by(2).filter_map(function).map(|name| (at + 1, name)));
        }
    }
    named
}

/// The name without arguments and generics, if it is written as that of a function of ours.
fn function(text: &str) -> Option<String> {
    let (name, is_call) = text.split_once('(').map_or((text, false), |(name, rest)| (name, rest.ends_with(')')));
    let mut depth = 0_usize;
    let mut plain = String::new();
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    // `Type::<T>::function` has lost what stood between two colons.
    let plain = plain.replace("::::", "::");
    let is_name = plain.chars().all(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':');
    let last = plain.rsplit("::").next().unwrap_or_default();
    let is_function = last.starts_with(|letter: char| letter.is_lowercase() || letter == '_');
    let is_foreign = ["std::", "core::", "alloc::", "cu"].iter().any(|head| match plain.strip_prefix(head) {
        Some(rest) => *head != "cu" || rest.starts_with(char::is_uppercase),
        None => false,
    });
    (is_name && is_function && !is_foreign && (is_call || plain.contains("::"))).then_some(plain)
}

/// All functions: for each name what it belongs to.
#[derive(Default)]
struct Functions(BTreeMap<String, BTreeSet<String>>);

impl Functions {
    fn enter(&mut self, krate: &str, tree: &Tree) {
        for file in tree.files.iter().filter(|file| !file.test) {
            let module = file.module.last().cloned().unwrap_or_else(|| krate.to_owned());
            let mut reader = Reader { functions: self, krate, owner: module };
            reader.visit_file(&file.syntax);
        }
    }

    /// Whether there is a function of that name, which may begin with what it belongs to.
    fn has(&self, name: &str) -> bool {
        let (path, function) = name.rsplit_once("::").unwrap_or(("", name));
        let owner = path.rsplit("::").next().unwrap_or_default();
        self.0.get(function).is_some_and(|owners| owner.is_empty() || owners.contains(owner))
    }
}

struct Reader<'a> {
    functions: &'a mut Functions,
    krate: &'a str,
    /// The module, the type or the trait that is being read.
    owner: String,
}

impl Reader<'_> {
    fn note(&mut self, signature: &syn::Signature) {
        let owners = self.functions.0.entry(signature.ident.to_string()).or_default();
        owners.extend([self.owner.clone(), self.krate.to_owned()]);
    }

    fn within(&mut self, owner: String, body: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        body(self);
        self.owner = outer;
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if module.attrs.iter().any(is_for_tests) => {}
            Item::Mod(module) => self.within(module.ident.to_string(), |it| visit::visit_item_mod(it, module)),
            Item::Trait(item) => self.within(item.ident.to_string(), |it| visit::visit_item_trait(it, item)),
            Item::Impl(block) => {
                let named = |ty: &Type| match ty {
                    Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
                    _ => None,
                };
                let owner = named(&block.self_ty).unwrap_or_default();
                self.within(owner, |it| visit::visit_item_impl(it, block));
            }
            other => visit::visit_item(self, other),
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.sig);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.note(&item.sig);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_are_told_from_other_words() {
        let page = "`Shard::take` and `alloc(size)`, `slow::grow`, `Shard<Drained>::plan`, `Shard::<D>::free()`\n\
                    `take` `Shard` `Error::OutOfMemory` `a(b) c` `std::mem::swap()` `cuMemAlloc()` `x.y()`\n\
                    ```text\nwith `code::inside`\n```\n`crate::caching::alloc`";
        let names: Vec<String> = named(page).into_iter().map(|(line, name)| format!("{line} {name}")).collect();
        assert_eq!(
            names,
            ["1 Shard::take", "1 alloc", "1 slow::grow", "1 Shard::plan", "1 Shard::free", "6 crate::caching::alloc"]
        );
    }

    #[test]
    fn functions_are_found_by_what_they_belong_to() {
        let files = [
            ("lib.rs", "mod slow; pub fn top() {}"),
            (
                "slow.rs",
                "fn grow() {} struct S<T>(T); impl<T> S<T> { fn take(self) {} } trait Source { fn give(&self); }\n\
                 #[cfg(test)] mod tests { fn only_here() {} }",
            ),
        ];
        let tree = Tree::read(&|name| files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned()));
        let mut functions = Functions::default();
        functions.enter("c10_core", &tree.unwrap());
        for name in ["grow", "slow::grow", "S::take", "Source::give", "c10_core::top", "a::slow::grow", "take"] {
            assert!(functions.has(name), "{name}");
        }
        for name in ["shrink", "fast::grow", "S::grow", "only_here", "S::give"] {
            assert!(!functions.has(name), "{name}");
        }
    }
}
