//! The text of an elementwise function: torch's grammar.
//!
//! A text begins with the word `template` and a list in angle brackets; then come a word, blanks, another word, a list in
//! parentheses and a body in braces. Each list is as long as it can be, so several functions may stand before the last one,
//! which is the one that is called. What follows the last brace does not matter.

use crate::base::error::Result;
use crate::base::jit_error::JitError;

/// The parts of a text that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed<'a> {
    /// Name of the function that is called.
    pub(super) name: &'a str,
}

/// Reads a text.
///
/// # Errors
/// It is not of the grammar.
pub(super) fn parse(code: &str) -> Result<Parsed<'_>> {
    find(code).ok_or_else(|| JitError::Parse { code: code.to_owned() }.into())
}

fn find(code: &str) -> Option<Parsed<'_>> {
    let after = code.trim_start().strip_prefix("template")?.trim_start().strip_prefix('<')?;
    // The longest list comes first.
    after.rmatch_indices('>').filter(|(at, _)| *at > 0).find_map(|(at, _)| function(&after[at + 1..]))
}

/// A function from its result's type on.
fn function(text: &str) -> Option<Parsed<'_>> {
    let (_, rest) = word(text.trim_start())?;
    let named = rest.trim_start();
    if named.len() == rest.len() {
        return None;
    }
    let (name, rest) = word(named)?;
    let parameters = rest.trim_start().strip_prefix('(')?;
    let ends = |at: usize| at > 0 && body(&parameters[at + 1..]);
    parameters.rmatch_indices(')').any(|(at, _)| ends(at)).then_some(Parsed { name })
}

/// Whether a body in braces with something in it begins here.
fn body(text: &str) -> bool {
    text.trim_start().strip_prefix('{').is_some_and(|inside| inside.rfind('}').is_some_and(|end| end > 0))
}

/// The word at the beginning, and what follows.
fn word(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn name(code: &str) -> Option<String> {
        parse(code).ok().map(|parsed| parsed.name.to_owned())
    }

    #[test]
    fn the_last_function_is_the_one_that_is_called() {
        assert_eq!(name("template <typename T> T f(T x) { return x; }").as_deref(), Some("f"));
        assert_eq!(name("\n template<typename T>T f (T x){return x;}\n").as_deref(), Some("f"));
        let two = "template <typename T> T g(T x) { return -x; }\ntemplate <typename T>\nT f(T x, T y)\n{ if (x > y) { return g(x); } return y; }";
        assert_eq!(name(two).as_deref(), Some("f"));
        assert_eq!(name("template <typename T> void f(T x, T& y) { y = x; } // end").as_deref(), Some("f"));
        let mixed = "template <typename T> __device__ T f(T x) { return x; }";
        assert_eq!(name(mixed), None, "the type of the result is one word");
    }

    #[test]
    fn other_texts_are_refused_with_torchs_words() {
        let wrong = [
            "",
            "T f(T x) { return x; }",
            "int template <typename T> T f(T x) { return x; }",
            "template <> T f(T x) { return x; }",
            "template <typename T> T f() { return 1; }",
            "template <typename T> T f(T x) {}",
            "template <typename T> T f(T x) { return x;",
            "template <typename T> T* f(T x) { return x; }",
            "template <typename T> f(T x) { return x; }",
            "template typename T T f(T x) { return x; }",
        ];
        for code in wrong {
            let error = parse(code).expect_err(code).to_string();
            assert!(error.starts_with("Couldn't parse code, please check correctness:\n "), "{error}");
            assert!(error.ends_with(code));
        }
    }
}
