//! The modules of a crate, as its `mod` lines lay them out: which file holds which, and which are for tests only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta};

use crate::Result;

/// The names from the crate's root to a module; the root itself has none.
pub(crate) type ModulePath = Vec<String>;

/// A crate's modules.
#[derive(Default)]
pub(crate) struct Tree {
    /// Every module, and whether only tests see it.
    pub(crate) modules: BTreeMap<ModulePath, bool>,
    /// Every file, in the order in which `mod` lines lead to it.
    pub(crate) files: Vec<File>,
    /// The names of all macros that the crate defines with `macro_rules!`.
    pub(crate) macros: BTreeSet<String>,
}

/// A source file.
pub(crate) struct File {
    /// Its path from the `src` folder, with forward slashes.
    pub(crate) name: String,
    /// The module it holds.
    pub(crate) module: ModulePath,
    /// Whether only tests see it.
    pub(crate) test: bool,
    /// What is in it.
    pub(crate) syntax: syn::File,
}

/// Gives the text of the file of a name below `src`, or nothing where there is none.
pub(crate) type Source<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The files below a folder.
pub(crate) fn folder(src: &Path) -> impl Fn(&str) -> Option<String> {
    move |name| std::fs::read_to_string(src.join(name)).ok()
}

impl Tree {
    /// Reads a crate from its `lib.rs` on.
    ///
    /// # Errors
    /// A file that a `mod` line names is not there, or one that cannot be parsed.
    pub(crate) fn read(source: Source<'_>) -> Result<Self> {
        let mut tree = Self::default();
        tree.file(source, "lib.rs", "", Vec::new(), false)?;
        Ok(tree)
    }

    /// Whether there is such a module, for tests or not.
    pub(crate) fn has(&self, path: &[String]) -> bool {
        self.modules.contains_key(path)
    }

    fn file(&mut self, source: Source<'_>, name: &str, folder: &str, module: ModulePath, test: bool) -> Result<()> {
        let text = source(name).ok_or_else(|| format!("there is no {name}, which a `mod` line names"))?;
        let syntax =
            syn::parse_file(&text).map_err(|error| format!("{name}:{}: {error}", error.span().start().line))?;
        let test = test || syntax.attrs.iter().any(is_for_tests);
        self.items(source, &syntax.items, folder, &module, test)?;
        self.files.push(File { name: name.to_owned(), module, test, syntax });
        Ok(())
    }

    /// Enters a module's own modules; `folder` is where the files of its modules lie, with a slash at its end.
    fn items(&mut self, source: Source<'_>, items: &[Item], folder: &str, module: &[String], test: bool) -> Result<()> {
        // A module for tests and for everything else may stand under one name, by `cfg`.
        let known = self.modules.entry(module.to_vec()).or_insert(test);
        *known = *known && test;
        for item in items {
            match item {
                Item::Mod(inner) => self.inner(source, inner, folder, module, test)?,
                Item::Macro(definition) => self.macros.extend(definition.ident.as_ref().map(ToString::to_string)),
                _ => {}
            }
        }
        Ok(())
    }

    fn inner(&mut self, source: Source<'_>, item: &ItemMod, folder: &str, parent: &[String], test: bool) -> Result<()> {
        let name = item.ident.to_string();
        let module: ModulePath = parent.iter().cloned().chain([name.clone()]).collect();
        let test = test || item.attrs.iter().any(is_for_tests);
        let inner_folder = format!("{folder}{name}/");
        if let Some((_, items)) = &item.content {
            return self.items(source, items, &inner_folder, &module, test);
        }
        let given = item.attrs.iter().find_map(path_attribute).map(|path| format!("{folder}{path}"));
        let file = given.unwrap_or_else(|| {
            let beside = format!("{folder}{name}.rs");
            if source(&beside).is_some() { beside } else { format!("{inner_folder}mod.rs") }
        });
        let below = if file.ends_with("/mod.rs") { file.trim_end_matches("mod.rs").to_owned() } else { inner_folder };
        self.file(source, &file, &below, module, test)
    }
}

/// The file that `#[path = "..."]` names.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if pair.path.is_ident("path") => Some(text.value()),
        _ => None,
    }
}

/// Whether an attribute leaves its item to tests alone: `#[cfg(test)]`, or `all` of something and `test`.
pub(crate) fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => {
            let parts = list.parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(needs_test))
        }
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a crate from pairs of a file's name and its text.
    fn tree(files: &[(&str, &str)]) -> Result<Tree> {
        Tree::read(&|name| files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn modules_are_found_where_the_language_looks_for_them() {
        let tree = tree(&[
            ("lib.rs", "mod a; mod b; mod c { mod d; } #[path = \"elsewhere.rs\"] mod e;"),
            ("a.rs", "mod deep;"),
            ("a/deep.rs", "macro_rules! m { () => {} }"),
            ("b/mod.rs", "mod deep;"),
            ("b/deep.rs", ""),
            ("c/d.rs", ""),
            ("elsewhere.rs", ""),
        ])
        .unwrap();
        let paths: Vec<String> = tree.modules.keys().map(|path| path.join("/")).collect();
        assert_eq!(paths, ["", "a", "a/deep", "b", "b/deep", "c", "c/d", "e"]);
        assert!(tree.macros.contains("m"));
    }

    #[test]
    fn what_only_tests_see_is_marked() {
        let tree = tree(&[
            ("lib.rs", "#[cfg(test)] mod a; #[cfg(all(unix, test))] mod b {} #[cfg(any(unix, test))] mod c {}"),
            ("a.rs", "mod deep {}"),
        ])
        .unwrap();
        let marked = tree.modules.iter().filter(|(_, test)| **test).map(|(path, _)| path.join("/"));
        assert_eq!(marked.collect::<Vec<_>>(), ["a", "a/deep", "b"]);
    }

    #[test]
    fn a_file_that_is_not_there_or_no_rust_is_named() {
        assert!(tree(&[("lib.rs", "mod a;")]).err().unwrap().contains("there is no a/mod.rs"));
        assert!(tree(&[("lib.rs", "\nmod a mod b;")]).err().unwrap().starts_with("lib.rs:2: "));
    }
}
