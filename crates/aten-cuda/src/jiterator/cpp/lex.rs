//! From a text to words, numbers and signs.

use kernel_ir::Type;

use super::tree::Literal;
use super::{Result, leave};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Number(Literal),
    Sign(&'static str),
}

/// A token and its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) token: Token<'a>,
    pub(super) line: usize,
}

/// Longer signs come before those that they begin with.
const SIGNS: [&str; 41] = [
    "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++",
    "--", "->", "::", "+", "-", "*", "/", "%", "<", ">", "=", "!", "~", "&", "|", "^", "?", ":", "(", ")", "{", "}",
];
const MORE_SIGNS: [&str; 3] = [",", ";", "."];

/// The most bytes of a text that is translated.
const MOST_TEXT: usize = 64 << 10;

/// All tokens of a text.
pub(super) fn tokens(code: &str) -> Result<Vec<Placed<'_>>> {
    if code.len() > MOST_TEXT {
        return leave(1, "a text of more than 64 KiB");
    }
    let (mut rest, mut line, mut found) = (code, 1, Vec::new());
    loop {
        rest = skip_blanks(rest, &mut line)?;
        let Some(first) = rest.chars().next() else { return Ok(found) };
        let begins_number =
            first.is_ascii_digit() || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit());
        let (token, length) = if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|sign: char| !is_word(sign)).unwrap_or(rest.len());
            (Token::Word(&rest[..length]), length)
        } else if begins_number {
            number(rest, line)?
        } else if let Some(sign) = SIGNS.iter().chain(&MORE_SIGNS).find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            return leave(line, format!("`{first}`"));
        };
        found.push(Placed { token, line });
        rest = &rest[length..];
    }
}

fn is_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_'
}

/// What follows blanks and comments.
fn skip_blanks<'a>(mut rest: &'a str, line: &mut usize) -> Result<&'a str> {
    loop {
        let begin = rest;
        let blanks = rest.find(|sign: char| !sign.is_ascii_whitespace()).unwrap_or(rest.len());
        rest = &rest[blanks..];
        if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            // A backslash at the end would have the comment go on.
            if rest[..end].trim_end().ends_with('\\') {
                return leave(*line, "a comment that goes on in the next line");
            }
            rest = &rest[end..];
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let Some(end) = comment.find("*/") else { return leave(*line, "a comment without an end") };
            rest = &comment[end + 2..];
        }
        *line += begin[..begin.len() - rest.len()].matches('\n').count();
        if rest.len() == begin.len() {
            return Ok(rest);
        }
    }
}

/// A number, and how many bytes it has.
fn number(text: &str, line: usize) -> Result<(Token<'static>, usize)> {
    let mut length = 0;
    let mut before = ' ';
    // A sign belongs to a number only behind the letter of an exponent, also where there is no exponent.
    for sign in text.chars() {
        let is_part = is_word(sign) || sign == '.' || matches!(sign, '+' | '-') && matches!(before, 'e' | 'E');
        if !is_part {
            break;
        }
        length += sign.len_utf8();
        before = sign;
    }
    let word = text[..length].to_ascii_lowercase();
    match literal(&word) {
        Some(literal) => Ok((Token::Number(literal), length)),
        None => leave(line, format!("the number `{}`", &text[..length])),
    }
}

fn literal(word: &str) -> Option<Literal> {
    let is_hex = word.starts_with("0x");
    if !is_hex && word.contains(['.', 'e']) {
        let (digits, ty) = match word.strip_suffix('f') {
            Some(digits) => (digits, Type::F32),
            None => (word, Type::F64),
        };
        // Rust takes words such as "inf" too, which do not begin with a digit or a point.
        let value = match ty {
            Type::F32 => f64::from(digits.parse::<f32>().ok()?),
            _ => digits.parse().ok()?,
        };
        return Some(Literal::Float(value, ty));
    }
    let digits = word.trim_end_matches(['u', 'l']);
    let (is_unsigned, is_long) = match &word[digits.len()..] {
        "" => (false, false),
        "u" => (true, false),
        "l" | "ll" => (false, true),
        "ul" | "ull" | "lu" | "llu" => (true, true),
        _ => return None,
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        // A number that begins with a zero is octal.
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(&digits[1..], 8).ok()?,
        None => digits.parse().ok()?,
    };
    let has_bits = is_hex || digits.len() > 1 && digits.starts_with('0');
    let ty = integer_type(value, is_unsigned, is_long, has_bits)?;
    Some(Literal::Int(value.cast_signed(), ty))
}

/// The first type that has the number: those without a sign only where the text says so, or shows bits.
fn integer_type(value: u64, is_unsigned: bool, is_long: bool, has_bits: bool) -> Option<Type> {
    let fits = |ty: Type| match ty {
        Type::I32 => i32::try_from(value).is_ok(),
        Type::U32 => u32::try_from(value).is_ok(),
        Type::I64 => i64::try_from(value).is_ok(),
        _ => true,
    };
    let is_allowed = |ty: &Type| {
        let (is_wide, has_sign) = (ty.bytes() == 8, matches!(ty, Type::I32 | Type::I64));
        (is_wide || !is_long) && if has_sign { !is_unsigned } else { is_unsigned || has_bits }
    };
    [Type::I32, Type::U32, Type::I64, Type::U64].into_iter().filter(is_allowed).find(|ty| fits(*ty))
}

#[cfg(test)]
mod tests {
    use kernel_ir::Type;

    use super::{Token, literal, tokens};
    use crate::jiterator::cpp::tree::Literal;

    #[test]
    fn numbers_have_the_types_that_cpp_gives_them() {
        let ints = [
            ("7", 7, Type::I32),
            ("2147483647", 0x7fff_ffff, Type::I32),
            ("2147483648", 0x8000_0000, Type::I64),
            ("0x80000000", 0x8000_0000, Type::U32),
            ("0xffffffffffffffff", -1, Type::U64),
            ("017", 15, Type::I32),
            ("0", 0, Type::I32),
            ("3u", 3, Type::U32),
            ("3ull", 3, Type::U64),
            ("3ll", 3, Type::I64),
        ];
        for (word, value, ty) in ints {
            assert_eq!(literal(word), Some(Literal::Int(value, ty)), "{word}");
        }
        let floats = [
            ("1.", 1.0, Type::F64),
            (".5", 0.5, Type::F64),
            ("1e-3", 1e-3, Type::F64),
            ("0.1f", f64::from(0.1_f32), Type::F32),
            ("2e3f", 2000.0, Type::F32),
        ];
        for (word, value, ty) in floats {
            assert_eq!(literal(word), Some(Literal::Float(value, ty)), "{word}");
        }
        for word in
            ["1f", "09", "0b1", "1.0l", "1e", "1.0.0", "3uu", "18446744073709551616", "0x1p3", "9223372036854775808"]
        {
            assert_eq!(literal(word), None, "{word}");
        }
    }

    #[test]
    fn comments_are_blanks_and_lines_are_counted() {
        let found = tokens("a /* b\n */ // c\n<<= d").unwrap_or_default();
        let shown: Vec<(Token<'_>, usize)> = found.iter().map(|placed| (placed.token, placed.line)).collect();
        assert_eq!(shown, [(Token::Word("a"), 1), (Token::Sign("<<="), 3), (Token::Word("d"), 3)]);
        for code in ["#define x", "'a'", "\"text\"", "a @ b", "1'000", "/* open", "// on \\\n"] {
            assert!(tokens(code).is_err(), "{code}");
        }
        assert_eq!(tokens("1-2").map_or(0, |found| found.len()), 3);
        assert!(tokens("0xe-2").is_err(), "C++ takes this for one number");
    }
}
