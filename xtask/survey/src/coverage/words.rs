//! What a file says, word by word: names, texts, and the keys that a `match` knows. Comments do not count.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, ExprMatch, Lit, Pat};

/// The names of a file, and its texts.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) names: BTreeSet<String>,
    pub(crate) texts: BTreeSet<String>,
}

impl Words {
    /// Reads a file; one that is no Rust has no words.
    pub(crate) fn of(text: &str) -> Self {
        let mut words = Self::default();
        words.enter(text.parse().unwrap_or_default());
        words
    }

    fn enter(&mut self, stream: TokenStream) {
        for token in stream {
            match token {
                TokenTree::Ident(name) => drop(self.names.insert(name.to_string())),
                TokenTree::Group(group) => self.enter(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Lit::Str(text) = Lit::new(literal) {
                        self.texts.insert(text.value());
                    }
                }
                TokenTree::Punct(_) => {}
            }
        }
    }
}

/// The texts that a file compares a `key` with in a `match`.
pub(crate) fn keys(text: &str) -> BTreeSet<String> {
    let mut keys = Keys::default();
    if let Ok(file) = syn::parse_file(text) {
        keys.visit_file(&file);
    }
    keys.0
}

#[derive(Default)]
struct Keys(BTreeSet<String>);

impl<'ast> Visit<'ast> for Keys {
    fn visit_expr_match(&mut self, item: &'ast ExprMatch) {
        if names_key(&item.expr) {
            item.arms.iter().for_each(|arm| self.pattern(&arm.pat));
        }
        visit::visit_expr_match(self, item);
    }
}

impl Keys {
    fn pattern(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Lit(literal) => {
                if let Lit::Str(text) = &literal.lit {
                    self.0.insert(text.value());
                }
            }
            Pat::Or(any) => any.cases.iter().for_each(|pattern| self.pattern(pattern)),
            _ => {}
        }
    }
}

/// `key`, `key.text`, `setting.key.text`.
fn names_key(expression: &Expr) -> bool {
    match expression {
        Expr::Path(path) => path.path.is_ident("key"),
        Expr::Field(field) => {
            matches!(&field.member, syn::Member::Named(name) if name == "key") || names_key(&field.base)
        }
        Expr::MethodCall(call) => names_key(&call.receiver),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        let words = Words::of("//! said\n/// too\nfn f() { g!(\"A_B\", h); }");
        assert!(words.names.contains("h") && words.texts.contains("A_B"));
        assert!(!words.names.contains("said") && !words.texts.contains("A"));
    }

    #[test]
    fn keys_are_what_a_key_is_compared_with() {
        let text = "fn f() { match a.key.text { \"x\" | \"y\" => 1, _ => 2 }; match word { \"z\" => 3, _ => 4 } }";
        assert_eq!(keys(text).into_iter().collect::<Vec<_>>(), ["x", "y"]);
    }
}
