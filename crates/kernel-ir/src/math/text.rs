//! The compiled functions, cut out of one PTX text.
//!
//! `kernels/math.ptx` is one module with all functions. A kernel gets only those that it calls, with the functions and
//! tables that these need, so the text is cut at its top-level declarations. None of them is recursive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::Math;
use crate::types::Type;

/// The functions, compiled from `kernels/math.cu`.
const TEXT: &str = include_str!("../../kernels/math.ptx");

/// Writes the functions before a kernel that calls them, each after what it needs itself.
pub(crate) fn write_functions(calls: &BTreeSet<(Math, Type)>, text: &mut String) {
    let mut written = BTreeSet::new();
    for &(function, ty) in calls {
        write_piece(&symbol(function, ty), &mut written, text);
    }
}

/// The name of the function in PTX.
pub(crate) fn symbol(function: Math, ty: Type) -> String {
    format!("math_{}_{}", function.name(), ty.name())
}

fn write_piece(name: &str, written: &mut BTreeSet<String>, text: &mut String) {
    let Some(piece) = pieces().get(name) else { return };
    if !written.insert(name.to_owned()) {
        return;
    }
    for need in needs(name, piece) {
        write_piece(need, written, text);
    }
    // Nothing outside the module calls them.
    text.push_str(piece.strip_prefix(".visible ").unwrap_or(piece));
    text.push('\n');
}

/// The declarations at the top level, by their names.
fn pieces() -> &'static BTreeMap<&'static str, &'static str> {
    static PIECES: OnceLock<BTreeMap<&'static str, &'static str>> = OnceLock::new();
    PIECES.get_or_init(|| declarations(TEXT))
}

/// The other declarations that one of this name mentions, in their order. They are looked for in what is written alone:
/// a first call would wait for the whole text.
fn needs(own: &str, piece: &'static str) -> BTreeSet<&'static str> {
    let is_word = |symbol: char| symbol.is_ascii_alphanumeric() || symbol == '_';
    let words = piece.split(|symbol| !is_word(symbol)).filter(|&word| word != own);
    words.filter(|word| pieces().contains_key(word)).collect()
}

/// The tables and the functions with a body, by the names that they declare.
fn declarations(text: &'static str) -> BTreeMap<&'static str, &'static str> {
    let mut found = BTreeMap::new();
    let (mut at, mut rest) = (0, text);
    while let Some(line) = rest.lines().next() {
        let is_function = line.starts_with(".func") || line.starts_with(".visible .func");
        let length = match is_function {
            // A function without a body is declared again with one.
            true => end_of(&rest[..end_of(rest, "\n}\n")], "\n;\n"),
            false => line.len() + 1,
        };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        if is_function && piece.ends_with("}\n") {
            found.insert(function_name(line), piece);
        } else if line.starts_with(".global") {
            found.insert(table_name(line), piece);
        }
        at += piece.len();
        rest = after;
    }
    debug_assert_eq!(at, text.len(), "the text is cut without a rest");
    found
}

fn end_of(text: &str, end: &str) -> usize {
    text.find(end).map_or(text.len(), |at| at + end.len())
}

/// The name in `.func (.param .b32 func_retval0) name(`.
fn function_name(line: &str) -> &str {
    line.rsplit(") ").next().unwrap_or(line).trim_end_matches('(').trim()
}

/// The name in `.global .align 4 .b8 name[24] = {...};`.
fn table_name(line: &str) -> &str {
    let before = line.split('[').next().unwrap_or(line);
    before.rsplit(' ').next().unwrap_or(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_there() {
        for function in Math::ALL.into_iter().filter(|function| !function.is_instruction()) {
            for ty in function.types() {
                assert!(pieces().contains_key(symbol(function, ty).as_str()), "{} of {ty}", function.name());
            }
        }
    }

    #[test]
    fn a_function_brings_what_it_needs_and_nothing_else() {
        let mut text = String::new();
        write_functions(&BTreeSet::from([(Math::Sin, Type::F64), (Math::Exp, Type::F32)]), &mut text);
        let place = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(place("__cudart_i2opi_d[") < place(".func  (.param .align 8 .b8 func_retval0[16]) __internal_trig"));
        assert!(place("__internal_trig_reduction_slowpathd(") < place(") math_sin_f64("));
        assert!(!text.contains("math_cos_f64") && !text.contains(".visible"));
        assert_eq!(text.matches(") math_exp_f32(").count(), 1);
    }
}
