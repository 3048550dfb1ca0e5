//! The reader of JSON texts (RFC 8259).
//!
//! A number without fraction and exponent is a whole number; one that fits neither 64 bit form is read as a fraction.
//! Texts without escapes are ranges of the file, others are put behind it.

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::tree::{Packed, Range, Tree, Value};

/// Reads a JSON text.
pub(crate) fn read<'file>(bytes: &'file [u8], limits: &Limits) -> Result<Tree<'file>> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::Json { offset: error.valid_up_to(), fault: "this is no UTF-8 text" })?;
    let tree = Tree::new(bytes, limits);
    let mut reader = Reader { text, at: 0, depth: 0, depth_max: limits.depth_max, tree, stack: Vec::new() };
    let root = reader.value()?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.fault("something follows the end"));
    }
    reader.tree.root = root;
    reader.tree.budget.give(reader.stack.capacity() * size_of::<Packed>());
    Ok(reader.tree)
}

struct Reader<'file> {
    text: &'file str,
    at: usize,
    depth: usize,
    depth_max: usize,
    tree: Tree<'file>,
    /// Items of the open containers.
    stack: Vec<Packed>,
}

impl Reader<'_> {
    fn push(&mut self, value: Value) -> Result<()> {
        let value = self.tree.pack(value)?;
        self.tree.budget.push(&mut self.stack, value)
    }

    fn value(&mut self) -> Result<Value> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Self::dict),
            Some(b'[') => self.nested(Self::list),
            Some(b'"') => self.string().map(Value::Text),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::None),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.fault("this begins no value")),
            None => Err(self.fault("the text is cut short")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value>) -> Result<Value> {
        if self.depth >= self.depth_max {
            return Err(self.fault("values stand inside each other too deep"));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<Value> {
        let first = self.stack.len();
        if !self.ends(b']') {
            loop {
                let value = self.value()?;
                self.push(value)?;
                if !self.goes_on(b']')? {
                    break;
                }
            }
        }
        Ok(Value::List(self.tree.node(&mut self.stack, first)?))
    }

    fn dict(&mut self) -> Result<Value> {
        let first = self.stack.len();
        if !self.ends(b'}') {
            loop {
                self.space();
                if self.peek() != Some(b'"') {
                    return Err(self.fault("a key should stand here"));
                }
                let key = self.string()?;
                self.push(Value::Text(key))?;
                self.space();
                if self.peek() != Some(b':') {
                    return Err(self.fault("a colon should stand here"));
                }
                self.at += 1;
                let value = self.value()?;
                self.push(value)?;
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        Ok(Value::Dict(self.tree.node(&mut self.stack, first)?))
    }

    /// Whether the container ends at once.
    fn ends(&mut self, close: u8) -> bool {
        self.space();
        let ends = self.peek() == Some(close);
        self.at += usize::from(ends);
        ends
    }

    /// Whether another item follows.
    fn goes_on(&mut self, close: u8) -> Result<bool> {
        self.space();
        let next = self.peek();
        self.at += 1;
        match next {
            Some(b',') => Ok(true),
            Some(found) if found == close => Ok(false),
            _ => {
                self.at -= 1;
                Err(self.fault("a comma or the end of the list should stand here"))
            }
        }
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fault("this begins no value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value> {
        let begin = self.at;
        let digits = |reader: &mut Self| {
            let begin = reader.at;
            while reader.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                reader.at += 1;
            }
            if reader.at > begin { Ok(()) } else { Err(reader.fault("a digit should stand here")) }
        };
        self.at += usize::from(self.peek() == Some(b'-'));
        digits(self)?;
        let whole = &self.text[begin..self.at];
        if self.peek() == Some(b'.') {
            self.at += 1;
            digits(self)?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            digits(self)?;
        }
        let all = &self.text[begin..self.at];
        if all.len() == whole.len() {
            if let Ok(number) = whole.parse() {
                return Ok(Value::Int(number));
            }
            if let Ok(number) = whole.parse() {
                return Ok(Value::Large(number));
            }
        }
        all.parse().map(Value::Float).map_err(|_| self.fault("this is no number"))
    }

    fn string(&mut self) -> Result<Range> {
        self.at += 1;
        let begin = self.at;
        let rest = self.text.as_bytes().get(begin..).unwrap_or_default();
        let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
        let Some(plain) = plain else {
            self.at = self.text.len();
            return Err(self.fault("the text is cut short"));
        };
        self.at = begin + plain;
        if rest[plain] == b'"' {
            self.at += 1;
            return self.range(begin, plain);
        }
        let start = self.tree.text_end();
        let plain = &self.text.as_bytes()[begin..self.at];
        self.tree.extend_text(plain)?;
        self.escapes()?;
        self.range(start, self.tree.text_end() - start)
    }

    fn range(&self, start: usize, length: usize) -> Result<Range> {
        match (u32::try_from(start), u32::try_from(length)) {
            (Ok(start), Ok(length)) => Ok(Range { start, length }),
            _ => Err(self.fault("the text is longer than 4 GiB")),
        }
    }

    /// The rest of a text, from its first escape on.
    fn escapes(&mut self) -> Result<()> {
        loop {
            let Some(byte) = self.peek() else { return Err(self.fault("the text is cut short")) };
            self.at += 1;
            match byte {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                0..=0x1f => return Err(self.fault("a control character stands in a text")),
                _ => self.tree.push_text(byte)?,
            }
        }
    }

    fn escape(&mut self) -> Result<()> {
        let byte = self.peek().ok_or_else(|| self.fault("the text is cut short"))?;
        self.at += 1;
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.code_point(),
            _ => return Err(self.fault("there is no such escape")),
        };
        self.tree.push_text(plain)
    }

    /// `uXXXX`, and the second half of a pair; a half without its other is replaced.
    fn code_point(&mut self) -> Result<()> {
        let mut unit = self.hex()?;
        if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                unit = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            } else {
                self.at = before;
            }
        }
        let letter = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.tree.extend_text(letter.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).filter(|all| all.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.fault("four hexadecimal digits should stand here"))?;
        self.at += 4;
        Ok(unit)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fault(&self, fault: &'static str) -> Error {
        Error::Json { offset: self.at, fault }
    }
}
