//! What a file imports: every path of it that leads to a module of the same crate.
//!
//! Looked at are `use` lines, paths in code, and paths inside the words of a macro call. What stands under
//! `#[cfg(test)]` is left out, as are visibilities and attributes.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, ItemMod, ItemUse, Macro, Stmt, UseTree};

use crate::modules::{File, ModulePath, Tree, is_for_tests};

/// Where an import leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// Into this module.
    Module(ModulePath),
    /// To this name of the crate's root, which is no module there and no macro.
    Root(String),
}

/// The imports of a file with their lines, each once.
pub(crate) fn of(file: &File, tree: &Tree) -> BTreeSet<(usize, Target)> {
    if file.test {
        return BTreeSet::new();
    }
    let mut reader = Reader { tree, module: file.module.clone(), names: vec![BTreeMap::new()], found: BTreeSet::new() };
    reader.bind(&file.syntax.items);
    reader.visit_file(&file.syntax);
    reader.found
}

struct Reader<'a> {
    tree: &'a Tree,
    /// The module that is being read.
    module: ModulePath,
    /// For each module that is being read the names that its `use` lines give to modules; the innermost last.
    names: Vec<BTreeMap<String, ModulePath>>,
    found: BTreeSet<(usize, Target)>,
}

impl Reader<'_> {
    /// Notes which names the `use` lines of a module give to modules: code below says `name::item` with them.
    fn bind(&mut self, items: &[Item]) {
        let mut leaves = Vec::new();
        for item in items {
            if let Item::Use(item) = item
                && item.leading_colon.is_none()
            {
                flatten(&item.tree, &mut Vec::new(), &mut leaves);
            }
        }
        for Leaf { path, name, .. } in leaves {
            if let Some(module) = self.absolute(&path, 1).filter(|path| self.tree.has(path))
                && let Some(names) = self.names.last_mut()
            {
                names.insert(name, module);
            }
        }
    }

    /// The path from the crate's root that a path in the current module stands for. One without `crate`, `self` or
    /// `super` is taken for one of this crate only if its first word is a module and it has at least `least` words.
    fn absolute(&self, path: &[String], least: usize) -> Option<ModulePath> {
        let mut base = self.module.clone();
        let mut rest = path;
        while let Some((word, after)) = rest.split_first() {
            match word.as_str() {
                "crate" => base.clear(),
                "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = after;
        }
        if rest.len() == path.len() {
            let first = path.first().filter(|_| path.len() >= least)?;
            let child: ModulePath = base.iter().cloned().chain([first.clone()]).collect();
            base = match self.names.last().and_then(|names| names.get(first)) {
                Some(module) => module.clone(),
                None if self.tree.has(&child) => child,
                None => return None,
            };
            rest = &path[1..];
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn note(&mut self, path: &[String], line: usize, least: usize) {
        // Nothing is taken of a module by `pub(super)`, nor by `self` as a value.
        if path.iter().all(|word| matches!(word.as_str(), "crate" | "self" | "super")) {
            return;
        }
        let Some(path) = self.absolute(path, least) else { return };
        let depth = (0..=path.len()).rev().find(|depth| self.tree.has(&path[..*depth])).unwrap_or(0);
        let target = match path.first() {
            Some(name) if depth == 0 && self.tree.macros.contains(name) => None,
            Some(name) if depth == 0 => Some(Target::Root(name.clone())),
            Some(_) => Some(Target::Module(path[..depth].to_vec())),
            None => None,
        };
        self.found.extend(target.map(|target| (line, target)));
    }

    /// Reads the words of a macro call, in which anything may stand: only paths are looked for.
    fn words(&mut self, words: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for word in words {
            match word {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.note_words(&mut path, line);
                        line = word.span().start().line;
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    self.note_words(&mut path, line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.words(group.stream());
                    }
                }
            }
        }
        self.note_words(&mut path, line);
    }

    fn note_words(&mut self, path: &mut Vec<String>, line: usize) {
        if !path.is_empty() {
            self.note(path, line, 2);
            path.clear();
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !item_attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let Some((_, items)) = &item.content else { return };
        self.module.push(item.ident.to_string());
        self.names.push(BTreeMap::new());
        self.bind(items);
        items.iter().for_each(|item| self.visit_item(item));
        self.names.pop();
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut leaves = Vec::new();
        if item.leading_colon.is_none() {
            flatten(&item.tree, &mut Vec::new(), &mut leaves);
        }
        for Leaf { path, line, .. } in leaves {
            self.note(&path, line, 1);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
            self.note(&words, line, 2);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.words(call.tokens.clone());
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[Attribute] = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !field.attrs.iter().any(is_for_tests) {
            visit::visit_field(self, field);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes: &[Attribute] = match statement {
            Stmt::Local(local) => &local.attrs,
            Stmt::Macro(call) => &call.attrs,
            Stmt::Expr(Expr::Block(block), _) => &block.attrs,
            Stmt::Expr(Expr::Call(call), _) => &call.attrs,
            Stmt::Expr(Expr::MethodCall(call), _) => &call.attrs,
            Stmt::Item(_) | Stmt::Expr(..) => &[],
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_visibility(&mut self, _visibility: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _attribute: &'ast Attribute) {}
}

/// One name of a `use` line.
struct Leaf {
    path: ModulePath,
    /// What the path is called below the line.
    name: String,
    line: usize,
}

fn flatten(tree: &UseTree, path: &mut ModulePath, leaves: &mut Vec<Leaf>) {
    let mut leaf = |word: &syn::Ident, name: &syn::Ident, path: &[String]| {
        let mut path = path.to_vec();
        // `a::{self}` is `a`.
        if word != "self" || path.is_empty() {
            path.push(word.to_string());
        }
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_string() };
        leaves.push(Leaf { path, name, line: word.span().start().line });
    };
    match tree {
        UseTree::Name(item) => leaf(&item.ident, &item.ident, path),
        UseTree::Rename(item) => leaf(&item.ident, &item.rename, path),
        UseTree::Glob(item) => {
            let line = item.star_token.spans[0].start().line;
            let path = path.iter().cloned().chain(["*".to_owned()]).collect();
            leaves.push(Leaf { path, name: "*".to_owned(), line });
        }
        UseTree::Path(item) => {
            path.push(item.ident.to_string());
            flatten(&item.tree, path, leaves);
            path.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, path, leaves)),
    }
}

fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of `a/b.rs` in a crate that has also `a/c.rs`, `d.rs` and a macro in `e.rs`.
    fn imports(text: &str) -> Vec<String> {
        let files = [
            ("lib.rs", "mod a; mod d; #[macro_use] mod e; pub use d::Thing;"),
            ("a/mod.rs", "mod b; mod c;"),
            ("a/b.rs", text),
            ("a/c.rs", "pub(crate) mod inner {}"),
            ("d.rs", ""),
            ("e.rs", "macro_rules! shout { () => {} }"),
        ];
        let tree = Tree::read(&|name| files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned()));
        let tree = tree.unwrap();
        let file = tree.files.iter().find(|file| file.name == "a/b.rs").unwrap();
        let spelled = |target: &Target| match target {
            Target::Module(path) => path.join("/"),
            Target::Root(name) => format!("root {name}"),
        };
        of(file, &tree).iter().map(|(line, target)| format!("{line} {}", spelled(target))).collect()
    }

    #[test]
    fn use_lines_lead_to_modules() {
        assert_eq!(
            imports("use crate::d::{X, deep::{Y, Z}};\npub(crate) use super::c::inner::W;"),
            ["1 d", "2 a/c/inner"]
        );
        assert_eq!(imports("use crate::{\n    a::c::{self, T as U},\n    d as e,\n};"), ["2 a/c", "3 d"]);
        assert_eq!(imports("use super::super::d::X;\nuse super::*;"), ["1 d", "2 a"]);
        assert_eq!(imports("use std::fmt;\nuse ::d::X;\nuse libc::c_int;"), Vec::<String>::new());
    }

    #[test]
    fn paths_in_code_and_in_macro_calls_count_too() {
        assert_eq!(imports("fn f() -> crate::d::X { super::c::g::<super::super::d::Y>() }"), ["1 a/c", "1 d"]);
        assert_eq!(
            imports("fn f() { debug_assert!(1 == 1,\n \"{}\", crate::d::g(super::c::h())); }"),
            ["2 a/c", "2 d"]
        );
        assert_eq!(imports("use super::c;\nfn f(d: u8) { c::g(); d; }"), ["1 a/c", "2 a/c"]);
    }

    #[test]
    fn the_crates_root_is_a_target_unless_it_gives_a_macro() {
        assert_eq!(imports("use crate::Thing;\nuse crate::shout;\nfn f() { crate::shout!(); }"), ["1 root Thing"]);
        assert_eq!(imports("use crate::{self as c, *};"), ["1 root *"]);
    }

    #[test]
    fn tests_visibilities_attributes_and_text_do_not_count() {
        let text = "//! [`crate::d::X`]\n#[cfg(test)]\nuse crate::d::X;\n#[cfg(test)]\nmod tests { use crate::d::X; }\n\
                    pub(in crate::a) struct S { #[cfg(test)] x: crate::d::X }\n\
                    impl S { #[cfg(test)] fn f() { crate::d::g() } }\n\
                    fn g() { #[cfg(test)] crate::d::g(); #[cfg(test)] let x = crate::d::g(); }";
        assert_eq!(imports(text), Vec::<String>::new());
        assert_eq!(imports("#[cfg(not(test))]\nuse crate::d::X;"), ["2 d"]);
    }
}
