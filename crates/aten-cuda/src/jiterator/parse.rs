//! The text of an elementwise function: torch's grammar.
//!
//! A text begins with the word `template` and a list in angle brackets; then come a word, blanks, another word, a list in
//! parentheses and a body in braces. Each list is as long as it can be, so several functions may stand before the last one,
//! which is the one that is called. What follows the last brace does not matter.

use crate::base::error::Result;
use crate::base::jit_error::JitError;

/// The parts of a function's text (`_CodeParser`).
///
/// ```
/// use aten_cuda::jiterator::CodeParser;
///
/// let parsed = CodeParser::new("template <typename T> T twice(T x) { return x + x; }")?;
/// assert_eq!((parsed.template_params, parsed.return_type, parsed.function_name), ("<typename T>", "T", "twice"));
/// assert_eq!((parsed.function_params, parsed.function_body), ("(T x)", "{ return x + x; }"));
/// assert!(CodeParser::new("T twice(T x) { return x + x; }").is_err());
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "_CodeParser")]
pub struct CodeParser<'a> {
    /// The list of the template, with its brackets.
    pub template_params: &'a str,
    /// The type of the result.
    pub return_type: &'a str,
    /// The name of the function that is called.
    pub function_name: &'a str,
    /// The list of the parameters, with its parentheses.
    pub function_params: &'a str,
    /// The body, with its braces.
    pub function_body: &'a str,
}

impl<'a> CodeParser<'a> {
    /// Reads a text.
    ///
    /// # Errors
    /// [`JitError::Parse`]: it is not of the grammar.
    pub fn new(code_string: &'a str) -> Result<Self> {
        find(code_string).ok_or_else(|| JitError::Parse { code: code_string.to_owned() }.into())
    }
}

fn find(code: &str) -> Option<CodeParser<'_>> {
    let list = code.trim_start().strip_prefix("template")?.trim_start();
    let after = list.strip_prefix('<')?;
    // The longest list comes first.
    let ends = after.rmatch_indices('>').filter(|(at, _)| *at > 0).map(|(at, _)| at + 1);
    ends.into_iter().find_map(|end| function(&list[..=end], &after[end..]))
}

/// A function from its result's type on.
fn function<'a>(template_params: &'a str, text: &'a str) -> Option<CodeParser<'a>> {
    let (return_type, rest) = word(text.trim_start())?;
    let named = rest.trim_start();
    if named.len() == rest.len() {
        return None;
    }
    let (function_name, rest) = word(named)?;
    let list = rest.trim_start();
    let parameters = list.strip_prefix('(')?;
    let ends = parameters.rmatch_indices(')').filter(|(at, _)| *at > 0).map(|(at, _)| at + 1);
    let (end, function_body) = ends.into_iter().find_map(|end| Some((end, body(&parameters[end..])?)))?;
    Some(CodeParser { template_params, return_type, function_name, function_params: &list[..=end], function_body })
}

/// The body in braces, with something in it, that begins here.
fn body(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.strip_prefix('{')?.rfind('}').filter(|end| *end > 0)?;
    Some(&text[..end + 2])
}

/// The word at the beginning, and what follows.
fn word(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::CodeParser;

    fn name(code: &str) -> Option<String> {
        CodeParser::new(code).ok().map(|parsed| parsed.function_name.to_owned())
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
            let error = CodeParser::new(code).expect_err(code).to_string();
            assert!(error.starts_with("Couldn't parse code, please check correctness:\n "), "{error}");
            assert!(error.ends_with(code));
        }
    }
}
