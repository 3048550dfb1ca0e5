//! Allocator configuration text as it was typed: keys with their values, in order.
//!
//! Like torch's reader this one looks at positions: a key, one separator, a value, one separator. Which separator
//! stands there is not looked at, so `expandable_segments,True` is a setting and a trailing comma is nothing.
//!
//! **Invariant:** reading never fails; a value that is not there is an absent value, which the resolver refuses.

use std::fmt;

/// The only key whose value may be a list in brackets.
const LIST_KEY: &str = "roundup_power2_divisions";

/// One token with its position among the tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word<'a> {
    pub(super) index: usize,
    pub(super) text: &'a str,
}

/// One setting as typed.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Setting<'a> {
    pub(super) key: Word<'a>,
    pub(super) value: Value<'a>,
}

/// What stands after a key.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Missing,
    Word(Word<'a>),
    List(Vec<(Word<'a>, Word<'a>)>),
    /// A list that the text ends in.
    OpenList,
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => Ok(()),
            Self::Word(word) => f.write_str(word.text),
            Self::OpenList => f.write_str("["),
            Self::List(pairs) => {
                for (index, (first, second)) in pairs.iter().enumerate() {
                    let before = if index == 0 { '[' } else { ',' };
                    write!(f, "{before}{}:{}", first.text, second.text)?;
                }
                f.write_str("]")
            }
        }
    }
}

/// The settings of a text.
#[must_use]
pub(super) fn settings(text: &str) -> Vec<Setting<'_>> {
    let mut reader = Reader { tokens: tokens(text), next: 0 };
    let mut settings = Vec::new();
    while let Some(key) = reader.word() {
        reader.word();
        let value = reader.value(key);
        reader.word();
        settings.push(Setting { key, value });
    }
    settings
}

/// Words and separators, without white space.
fn tokens(text: &str) -> Vec<&str> {
    let is_separator = |letter: char| matches!(letter, ',' | ':' | '[' | ']');
    text.split_inclusive(is_separator)
        .flat_map(|piece| match piece.char_indices().next_back() {
            Some((at, last)) if is_separator(last) => [&piece[..at], &piece[at..]],
            Some(_) | None => [piece, ""],
        })
        .flat_map(str::split_whitespace)
        .collect()
}

struct Reader<'a> {
    tokens: Vec<&'a str>,
    next: usize,
}

impl<'a> Reader<'a> {
    fn word(&mut self) -> Option<Word<'a>> {
        let index = self.next;
        let text = self.tokens.get(index)?;
        self.next += 1;
        Some(Word { index, text })
    }

    fn value(&mut self, key: Word<'a>) -> Value<'a> {
        match self.word() {
            None => Value::Missing,
            Some(word) if word.text == "[" && key.text == LIST_KEY => self.list(),
            Some(word) => Value::Word(word),
        }
    }

    /// The pairs up to the closing bracket.
    fn list(&mut self) -> Value<'a> {
        let mut pairs = Vec::new();
        loop {
            let Some(first) = self.word() else { return Value::OpenList };
            self.word();
            let (Some(second), Some(end)) = (self.word(), self.word()) else { return Value::OpenList };
            pairs.push((first, second));
            if end.text == "]" {
                return Value::List(pairs);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_tokens_and_white_space_is_dropped() {
        assert_eq!(tokens("a : b,c:[1 :2]"), ["a", ":", "b", ",", "c", ":", "[", "1", ":", "2", "]"]);
        assert_eq!(tokens(" \t"), [""; 0]);
    }

    #[test]
    fn settings_are_read_by_position() {
        let pairs = |text| {
            let word = |value: &Value<'_>| match value {
                Value::Word(word) => word.text.to_owned(),
                Value::Missing => "missing".to_owned(),
                Value::List(pairs) => format!("{} pairs", pairs.len()),
                Value::OpenList => "open".to_owned(),
            };
            let settings = settings(text);
            settings.iter().map(|setting| format!("{}={}", setting.key.text, word(&setting.value))).collect::<Vec<_>>()
        };
        assert_eq!(pairs("a:1,b:2"), ["a=1", "b=2"]);
        assert_eq!(pairs("a,1,"), ["a=1"]);
        assert_eq!(pairs("a:1,,b:2"), ["a=1", ",=:"]);
        assert_eq!(pairs("a:"), ["a=missing"]);
        assert_eq!(pairs("roundup_power2_divisions:[256:1,>:8],a:1"), ["roundup_power2_divisions=2 pairs", "a=1"]);
        assert_eq!(pairs("roundup_power2_divisions:[256:1"), ["roundup_power2_divisions=open"]);
        assert_eq!(pairs("a:[1:2]"), ["a=[", ":=]"]);
    }
}
