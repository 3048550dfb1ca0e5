//! From characters to words.

use crate::base::expression_error::{ParseError, ParseErrorKind};

/// A word of a text with its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// As it stands in the text; empty at the end.
    pub(super) text: &'a str,
    pub(super) position: usize,
}

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Int,
    Float,
    /// A number with a `j` behind.
    Imaginary,
    Symbol,
    End,
}

/// Symbols of two characters, which come before those of one.
const PAIRS: [&str; 8] = ["**", "//", "<<", ">>", "==", "!=", "<=", ">="];

/// Symbols of one character.
const SINGLES: &str = "()=,;+-*/%&|^~<>";

impl Token<'_> {
    /// The word as messages name it.
    pub(super) fn described(&self) -> String {
        match self.kind {
            Kind::End => "the end".to_owned(),
            _ => format!("`{}`", self.text.chars().take(40).collect::<String>()),
        }
    }
}

/// The words of a text; the last one is its end.
pub(super) fn words(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut words = Vec::new();
    let mut position = 0;
    while let Some(first) = text[position..].chars().next() {
        let rest = &text[position..];
        let (kind, length) = match first {
            _ if first.is_whitespace() => {
                position += first.len_utf8();
                continue;
            }
            '#' => {
                position += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            _ if first.is_ascii_alphabetic() || first == '_' => (Kind::Name, word(rest)),
            _ if first.is_ascii_digit() || first == '.' => number(rest),
            _ if PAIRS.iter().any(|pair| rest.starts_with(pair)) => (Kind::Symbol, 2),
            _ if SINGLES.contains(first) => (Kind::Symbol, 1),
            _ => return Err(ParseError::new(text, position, ParseErrorKind::Character(first))),
        };
        words.push(Token { kind, text: &rest[..length], position });
        position += length;
    }
    words.push(Token { kind: Kind::End, text: "", position });
    Ok(words)
}

/// The length of the letters, digits and underscores that a text begins with.
fn word(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// What kind of number a text begins with, and its length. Letters that follow at once belong to it, so that `2x` is
/// refused as a whole.
fn number(text: &str) -> (Kind, usize) {
    let mut length = digits(text);
    let mut kind = Kind::Int;
    if text[length..].starts_with('.') {
        length += 1 + digits(&text[length + 1..]);
        kind = Kind::Float;
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(&text[length + 1 + sign..]);
        if exponent > 0 {
            length += 1 + sign + exponent;
            kind = Kind::Float;
        }
    }
    let tail = word(&text[length..]);
    let kind = if &text[length..length + tail] == "j" { Kind::Imaginary } else { kind };
    (kind, length + tail)
}
