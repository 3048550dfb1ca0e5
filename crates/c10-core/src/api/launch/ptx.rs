//! Sizes of kernels' parameters, read from the text of a module.
//!
//! Drivers before CUDA 12.4 do not tell them. Only the parameter lists of `.entry` are read; whether the rest of the text
//! is right is the driver's to say.
//!
//! **Invariant:** a kernel whose parameter list is not wholly understood is left out. Its parameters then count as
//! unknown, so that a correct launch is never refused.

use std::collections::BTreeMap;

/// Sizes of the parameters of each kernel in a text, in bytes, by the kernel's name.
pub(super) fn parameters(text: &str) -> BTreeMap<String, Vec<usize>> {
    let mut words = Words { rest: text };
    let mut kernels = BTreeMap::new();
    while let Some(word) = words.next() {
        if word == ".entry"
            && let Some(name) = words.next()
            && let Some(sizes) = words.parameter_list()
        {
            kernels.insert(name.to_owned(), sizes);
        }
    }
    kernels
}

/// The words of a text: names, directives and numbers, and every other sign for itself. Comments and quoted texts are left
/// out.
#[derive(Clone)]
struct Words<'a> {
    rest: &'a str,
}

fn is_of_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '_' | '$' | '%')
}

impl<'a> Words<'a> {
    /// The text from after a mark on; nothing if there is no such mark.
    fn after(text: &'a str, mark: &str) -> &'a str {
        text.split_once(mark).map_or("", |(_, rest)| rest)
    }

    /// The list after a kernel's name. A kernel without one has no parameters.
    fn parameter_list(&mut self) -> Option<Vec<usize>> {
        if self.clone().next() != Some("(") {
            return Some(Vec::new());
        }
        self.next();
        let mut sizes = Vec::new();
        let mut parameter = Vec::new();
        loop {
            match self.next()? {
                word @ ("," | ")") => {
                    if !parameter.is_empty() {
                        sizes.push(size(&parameter)?);
                        parameter.clear();
                    }
                    if word == ")" {
                        return Some(sizes);
                    }
                }
                word => parameter.push(word),
            }
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("//") {
                self.rest = Self::after(comment, "\n");
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = Self::after(comment, "*/");
            } else if let Some(quoted) = self.rest.strip_prefix('"') {
                self.rest = Self::after(quoted, "\"");
            } else {
                break;
            }
        }
        let first = self.rest.chars().next()?;
        // A directive begins with a point and goes on as a name does.
        let begin = if first == '.' { 1 } else { 0 };
        let len = begin + self.rest[begin..].find(|sign| !is_of_word(sign)).unwrap_or(self.rest.len() - begin);
        let (word, rest) = self.rest.split_at(len.max(first.len_utf8()));
        self.rest = rest;
        Some(word)
    }
}

/// Bytes of a parameter such as `.param .align 8 .b8 name[16]`.
fn size(words: &[&str]) -> Option<usize> {
    let (first, words) = words.split_first()?;
    let element = words.iter().find_map(|word| element_size(word)).filter(|_| *first == ".param")?;
    let Some(open) = words.iter().position(|word| *word == "[") else { return Some(element) };
    match words[open..] {
        ["[", count, "]"] => count.parse::<usize>().ok()?.checked_mul(element),
        _ => None,
    }
}

/// Bytes of a type that a parameter can have.
fn element_size(word: &str) -> Option<usize> {
    match word {
        ".b8" | ".u8" | ".s8" => Some(1),
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => Some(2),
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => Some(4),
        ".b64" | ".u64" | ".s64" | ".f64" => Some(8),
        ".b128" => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_compilers_write_them() {
        let text = r#"
            // .entry commented(.param .u64 a)
            /* .entry this_too(.param .u64 a) */
            .version 8.0 .target sm_80
            .file 1 ".entry quoted(.param .u8 a)"
            .visible .entry _Z3addPfi(
                .param .u64 .ptr .global .align 4 _Z3addPfi_param_0, // the numbers
                .param .u32 _Z3addPfi_param_1
            )
            .maxntid 256, 1, 1
            { .param .b32 inner; ret; }
            .entry structs(.param .align 8 .b8 a[24], .param .f64 b,.param .bf16 c) { ret; }
            .entry nothing() { ret; }
            .entry bare { ret; }
            .weak .entry odd$name(.param.s8 a){ ret; }
            .func (.param .b32 r) helper(.param .b64 a) { ret; }"#;
        let kernels = parameters(text);
        let of = |name: &str| kernels.get(name).map(Vec::as_slice);
        assert_eq!(of("_Z3addPfi"), Some(&[8, 4][..]));
        assert_eq!(of("structs"), Some(&[24, 8, 2][..]));
        assert_eq!((of("nothing"), of("bare")), (Some(&[][..]), Some(&[][..])));
        assert_eq!(of("odd$name"), Some(&[1][..]));
        assert_eq!(kernels.len(), 5, "{kernels:?}");
    }

    #[test]
    fn what_is_not_understood_counts_as_unknown() {
        for list in
            [".param .texref t", ".param .b8 a[]", ".param .b8 a[N]", ".reg .u32 a", ".param .u32 a", ".param .b8 a[4"]
        {
            assert_eq!(parameters(&format!(".entry k({list}")), BTreeMap::new(), "{list}");
        }
        assert_eq!(parameters(".entry k(.param .texref t, .param .u32 a) { }"), BTreeMap::new());
        assert_eq!(parameters(".entry"), BTreeMap::new());
        assert_eq!(parameters("\u{e9} /* no end"), BTreeMap::new());
    }
}
