//! PTX text as tokens with their lines. Comments and white space are gone.

use super::Refusal;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name, a directive or an instruction with its modifiers: `ld.global.u32`, `.reg`, `%tid.x`.
    Word(String),
    /// An integer; a negative one is a sign and a number.
    Integer(u64),
    /// The bits of a floating constant, and how many there are.
    Float(u64, u8),
    /// Anything else, one character.
    Sign(char),
}

/// A token and its line.
pub(super) type Placed = (Token, u32);

/// Cuts text into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, Refusal> {
    let mut lexer = Lexer { rest: text, line: 1 };
    let mut found = Vec::new();
    while let Some(token) = lexer.next()? {
        found.push(token);
    }
    Ok(found)
}

struct Lexer<'t> {
    rest: &'t str,
    line: u32,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Option<Placed>, Refusal> {
        self.skip_blanks()?;
        let line = self.line;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let token = if first.is_ascii_digit() {
            let word = self.take(|other| other.is_ascii_alphanumeric() || other == '.' || other == '_');
            number(word).ok_or_else(|| Refusal::invalid(line, format!("'{word}' is no number")))?
        } else if first.is_ascii_alphabetic() || "_$%.".contains(first) {
            let word = self.take(|other| other.is_ascii_alphanumeric() || "_$%.".contains(other));
            Token::Word(word.to_owned())
        } else if first == '"' {
            self.rest = &self.rest[1..];
            let word = self.take(|other| other != '"').to_owned();
            self.rest = self.rest.strip_prefix('"').ok_or_else(|| Refusal::invalid(line, "a text has no end"))?;
            Token::Word(word)
        } else {
            self.rest = &self.rest[first.len_utf8()..];
            Token::Sign(first)
        };
        Ok(Some((token, line)))
    }

    fn take(&mut self, mut belongs: impl FnMut(char) -> bool) -> &str {
        let end = self.rest.find(|other| !belongs(other)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip_blanks(&mut self) -> Result<(), Refusal> {
        loop {
            let trimmed = self.rest.trim_start();
            let skipped = self.rest.len() - trimmed.len();
            self.count_lines(skipped);
            if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else if self.rest.starts_with("/*") {
                let end = self.rest.find("*/").ok_or_else(|| Refusal::invalid(self.line, "a comment has no end"))?;
                self.count_lines(end + 2);
            } else {
                return Ok(());
            }
        }
    }

    /// Leaves bytes behind that are on several lines.
    fn count_lines(&mut self, bytes: usize) {
        let (gone, rest) = self.rest.split_at(bytes);
        let lines = gone.bytes().filter(|&byte| byte == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = rest;
    }
}

/// Reads decimal, hexadecimal, octal and binary integers, the exact form of floating numbers, and decimal ones.
fn number(word: &str) -> Option<Token> {
    let word = word.strip_suffix('U').unwrap_or(word);
    let (head, tail) = word.split_at_checked(2).unwrap_or((word, ""));
    let radix = |digits: &str, radix| u64::from_str_radix(digits, radix).ok();
    match head {
        "0x" | "0X" => radix(tail, 16).map(Token::Integer),
        "0b" | "0B" => radix(tail, 2).map(Token::Integer),
        "0f" | "0F" if tail.len() == 8 => radix(tail, 16).map(|bits| Token::Float(bits, 32)),
        "0d" | "0D" if tail.len() == 16 => radix(tail, 16).map(|bits| Token::Float(bits, 64)),
        _ if word.contains('.') => word.parse::<f64>().ok().map(|value| Token::Float(value.to_bits(), 64)),
        _ if word.len() > 1 && word.starts_with('0') => radix(word, 8).map(Token::Integer),
        _ => word.parse().ok().map(Token::Integer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Token> {
        tokens(text).expect("it is well formed").into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn instructions_are_cut_at_signs() {
        let word = |text: &str| Token::Word(text.to_owned());
        assert_eq!(
            words("@!%p1 ld.param.u64 %rd1,[_Z1aPf_param_0+4];"),
            [
                Token::Sign('@'),
                Token::Sign('!'),
                word("%p1"),
                word("ld.param.u64"),
                word("%rd1"),
                Token::Sign(','),
                Token::Sign('['),
                word("_Z1aPf_param_0"),
                Token::Sign('+'),
                Token::Integer(4),
                Token::Sign(']'),
                Token::Sign(';'),
            ]
        );
        assert_eq!(words("$L1: %tid.x"), [word("$L1"), Token::Sign(':'), word("%tid.x")]);
    }

    #[test]
    fn numbers_of_every_form() {
        let expected = [Token::Integer(16), Token::Integer(8), Token::Integer(3), Token::Integer(0)];
        assert_eq!(words("0x10 010 0b11 0"), expected);
        assert_eq!(words("0f3F800000"), [Token::Float(0x3F80_0000, 32)]);
        assert_eq!(words("0d3FF0000000000000 1.0"), vec![Token::Float(1.0_f64.to_bits(), 64); 2]);
        assert!(tokens("12ab").is_err());
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let found = tokens("// one\n/* two\nthree */ word\n\nlast").expect("it is well formed");
        assert_eq!(found, [(Token::Word("word".to_owned()), 3), (Token::Word("last".to_owned()), 5)]);
        assert_eq!(tokens("\n/* no end").expect_err("no end").line, 2);
    }
}
