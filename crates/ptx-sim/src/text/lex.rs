//! PTX text as tokens with their places. Comments and white space are gone.
//!
//! **Invariants:** tokens borrow from the text and come one at a time, so that memory does not grow with the text. Each
//! call moves forward, so that any text ends. Columns count characters, and are counted once.

use super::Place;
use crate::refusal::Refusal;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    /// A name, a directive or an instruction with its modifiers: `ld.global.u32`, `.reg`, `%tid.x`, `.shared::cta`.
    Word(&'t str),
    /// What stands between quotation marks.
    Quoted(&'t str),
    /// An integer; a negative one is a sign and a number.
    Integer(u64),
    /// The bits of a floating constant, and how many there are.
    Float(u64, u8),
    /// Anything else, one character.
    Sign(char),
}

/// A token, how it is written and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed<'t> {
    pub(crate) token: Token<'t>,
    pub(crate) text: &'t str,
    pub(crate) at: Place,
}

/// Cuts text into tokens.
#[derive(Debug)]
pub(crate) struct Lexer<'t> {
    rest: &'t str,
    /// Where the rest begins.
    at: Place,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { rest: text, at: Place { line: 1, column: 1 } }
    }

    /// The next token; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Placed<'t>>, Refusal> {
        self.skip_blanks()?;
        let at = self.at;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let (length, token) = if first.is_ascii_digit() {
            let word = &self.rest[..number_length(self.rest)];
            let token = number(word).ok_or_else(|| Refusal::invalid(at, format!("'{word}' is not a number")))?;
            (word.len(), token)
        } else if is_word_start(first) {
            let word = &self.rest[..word_length(self.rest)];
            (word.len(), Token::Word(word))
        } else if first == '"' {
            let inside = &self.rest[1..];
            let end = inside.find('"').ok_or_else(|| Refusal::invalid(at, "a quoted text has no end"))?;
            (end + 2, Token::Quoted(&inside[..end]))
        } else {
            (first.len_utf8(), Token::Sign(first))
        };
        let text = self.skip(length);
        Ok(Some(Placed { token, text, at }))
    }

    /// Where the next token would begin if there was no white space before it.
    pub(crate) fn place(&self) -> Place {
        self.at
    }

    fn skip_blanks(&mut self) -> Result<(), Refusal> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.skip(blanks);
            // `@@DWARF` opens a line of debug data in old texts.
            if self.rest.starts_with("//") || self.rest.starts_with("@@") {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if let Some(inside) = self.rest.strip_prefix("/*") {
                let end = inside.find("*/").ok_or_else(|| Refusal::invalid(self.at, "a comment has no end"))?;
                self.skip(end + 4);
            } else {
                return Ok(());
            }
        }
    }

    /// Leaves bytes behind.
    fn skip(&mut self, bytes: usize) -> &'t str {
        let (gone, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        for character in gone.chars() {
            if character == '\n' {
                self.at = Place { line: self.at.line.saturating_add(1), column: 1 };
            } else {
                self.at.column = self.at.column.saturating_add(1);
            }
        }
        gone
    }
}

fn is_word_start(first: char) -> bool {
    first.is_ascii_alphabetic() || "_$%.".contains(first)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_$%.".contains(&byte)
}

/// Length of a word, which may have `::` inside. A directive ends before the next one: `.reg.f32` is two.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_directive = bytes[0] == b'.';
    let mut end = 1;
    loop {
        let inside = |byte: u8| is_word_byte(byte) && !(is_directive && byte == b'.');
        end += bytes[end..].iter().take_while(|&&byte| inside(byte)).count();
        let goes_on = bytes[end..].starts_with(b"::") && bytes.get(end + 2).is_some_and(|&byte| is_word_byte(byte));
        if !goes_on {
            return end;
        }
        end += 2;
    }
}

/// Length of a number; a sign belongs to it behind the `E` of a decimal one.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let run = |from: usize| bytes[from..].iter().take_while(|&&byte| is_word_byte(byte)).count();
    let end = run(0);
    let has_radix = bytes[0] == b'0' && bytes.get(1).is_some_and(|&letter| b"xXbBfFdD".contains(&letter));
    let has_exponent = !has_radix && matches!(bytes[end - 1], b'e' | b'E');
    let sign = bytes.get(end).is_some_and(|&sign| matches!(sign, b'+' | b'-'));
    if has_exponent && sign && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        return end + 1 + run(end + 1);
    }
    end
}

/// Reads decimal, hexadecimal, octal and binary integers, the exact form of floating numbers, and decimal ones.
fn number(word: &str) -> Option<Token<'static>> {
    let integer = |digits: &str, radix| {
        let digits = digits.strip_suffix('U').unwrap_or(digits);
        u64::from_str_radix(digits, radix).ok().map(Token::Integer)
    };
    let bits = |digits, radix| u64::from_str_radix(digits, radix).ok();
    match word.split_at_checked(2).unwrap_or((word, "")) {
        ("0x" | "0X", digits) => integer(digits, 16),
        ("0b" | "0B", digits) => integer(digits, 2),
        ("0f" | "0F", digits) if digits.len() == 8 => bits(digits, 16).map(|bits| Token::Float(bits, 32)),
        ("0d" | "0D", digits) if digits.len() == 16 => bits(digits, 16).map(|bits| Token::Float(bits, 64)),
        _ if word.contains(['.', 'e', 'E']) => word.parse().ok().map(|value: f64| Token::Float(value.to_bits(), 64)),
        _ if word.len() > 1 && word.starts_with('0') && !word.starts_with("0U") => integer(word, 8),
        _ => integer(word, 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Placed<'_>>, Refusal> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| lexer.next().transpose()).collect()
    }

    fn words(text: &str) -> Vec<Token<'_>> {
        tokens(text).expect("it is well formed").into_iter().map(|placed| placed.token).collect()
    }

    #[test]
    fn instructions_are_cut_at_signs() {
        use Token::{Integer, Sign, Word};
        let cases: [(&str, &[Token<'_>]); 7] = [
            (".reg.f32 f", &[Word(".reg"), Word(".f32"), Word("f")]),
            ("@!%p1 bra $L__1;", &[Sign('@'), Sign('!'), Word("%p1"), Word("bra"), Word("$L__1"), Sign(';')]),
            ("[_Z1aPf_0+4]", &[Sign('['), Word("_Z1aPf_0"), Sign('+'), Integer(4), Sign(']')]),
            ("$L1: %tid.x", &[Word("$L1"), Sign(':'), Word("%tid.x")]),
            ("%r<5>", &[Word("%r"), Sign('<'), Integer(5), Sign('>')]),
            ("ld.shared::cta.u32 p|q", &[Word("ld.shared::cta.u32"), Word("p"), Sign('|'), Word("q")]),
            ("\"no unroll\";", &[Token::Quoted("no unroll"), Sign(';')]),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_of_every_form() {
        for (text, value) in [("0x10", 16), ("0XfFU", 255), ("010", 8), ("0b11", 3), ("0", 0), ("7U", 7), ("0U", 0)] {
            assert_eq!(words(text), [Token::Integer(value)], "{text}");
        }
        assert_eq!(words("18446744073709551615"), [Token::Integer(u64::MAX)]);
        assert_eq!(words("0f3F800000"), [Token::Float(0x3F80_0000, 32)]);
        for (text, value) in [("0d3FF0000000000000", 1.0), ("1.0E+3", 1000.0), ("2.5e-1", 0.25), ("1e2", 100.0)] {
            assert_eq!(words(text), [Token::Float(f64::to_bits(value), 64)], "{text}");
        }
        assert_eq!(words("0x1E+3"), [Token::Integer(0x1E), Token::Sign('+'), Token::Integer(3)]);
        for text in ["12ab", "0x", "0f123", "09", "18446744073709551616", "0b2", "1.2.3", "0xU"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn places_are_counted_through_comments() {
        let found = tokens("// one\n/* zwölf\nthree */ word\n\n  \"ä\" last").expect("it is well formed");
        let places: Vec<_> = found.iter().map(|placed| (placed.text, placed.at.line, placed.at.column)).collect();
        assert_eq!(places, [("word", 3, 10), ("\"ä\"", 5, 3), ("last", 5, 7)]);
        let refusal = tokens("\n  /* no end").expect_err("no end");
        assert_eq!((refusal.place.line, refusal.place.column), (2, 3));
        assert_eq!(tokens("a \"b").expect_err("no end").place.column, 3);
    }
}
