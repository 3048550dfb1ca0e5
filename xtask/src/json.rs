//! A reader of JSON, as much of it as cargo's messages and the recorded facts need.

use std::collections::BTreeMap;

use crate::shell::Result;

/// A JSON value. Numbers keep their spelling: nothing here calculates with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json {
    /// `null`, `true`, `false` or a number.
    Word(String),
    /// A text, unescaped.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, sorted by key.
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Reads one value and nothing after it.
    ///
    /// # Errors
    /// The text is not JSON; the position says where.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
        let value = reader.value()?;
        reader.space();
        if reader.at == reader.bytes.len() { Ok(value) } else { reader.refuse("the end") }
    }

    /// The member of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(key),
            Self::Word(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Word(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// The keys of an object.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::Object(members) => Some(members.keys().map(String::as_str)),
            Self::Word(_) | Self::Text(_) | Self::List(_) => None,
        }
        .into_iter()
        .flatten()
    }
}

struct Reader<'text> {
    bytes: &'text [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<Json> {
        self.space();
        match self.bytes.get(self.at) {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => self.text().map(Json::Text),
            Some(byte) if byte.is_ascii_alphanumeric() || *byte == b'-' => Ok(Json::Word(self.word())),
            _ => self.refuse("a value"),
        }
    }

    fn object(&mut self) -> Result<Json> {
        let mut members = BTreeMap::new();
        self.at += 1;
        while !self.ends(b'}')? {
            self.space();
            let key = self.text()?;
            self.expect(b':')?;
            members.insert(key, self.value()?);
        }
        Ok(Json::Object(members))
    }

    fn list(&mut self) -> Result<Json> {
        let mut items = Vec::new();
        self.at += 1;
        while !self.ends(b']')? {
            items.push(self.value()?);
        }
        Ok(Json::List(items))
    }

    /// Steps over the comma or the closing bracket; true at the latter.
    fn ends(&mut self, close: u8) -> Result<bool> {
        self.space();
        match self.bytes.get(self.at) {
            Some(byte) if *byte == close => {
                self.at += 1;
                Ok(true)
            }
            Some(b',') => {
                self.at += 1;
                Ok(false)
            }
            Some(_) => Ok(false),
            None => self.refuse("a closing bracket"),
        }
    }

    fn text(&mut self) -> Result<String> {
        self.expect(b'"')?;
        let mut bytes = Vec::new();
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut bytes)?,
                Some(byte) => bytes.push(*byte),
                None => return self.refuse("a closing quote"),
            }
            self.at += 1;
        }
        self.at += 1;
        String::from_utf8(bytes).map_err(|_| "JSON text that is not UTF-8".to_owned())
    }

    /// Reads the escape at the cursor and leaves the cursor on its last byte.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        self.at += 1;
        match self.bytes.get(self.at) {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'r') => bytes.push(b'\r'),
            Some(b'u') => {
                let digits =
                    self.bytes.get(self.at + 1..self.at + 5).and_then(|digits| std::str::from_utf8(digits).ok());
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                let letter = code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += 4;
            }
            Some(byte) => bytes.push(*byte),
            None => return self.refuse("an escape"),
        }
        Ok(())
    }

    fn word(&mut self) -> String {
        let rest = &self.bytes[self.at..];
        let length = rest
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'-' | b'+' | b'.'))
            .unwrap_or(rest.len());
        self.at += length;
        String::from_utf8_lossy(&rest[..length]).into_owned()
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        self.space();
        if self.bytes.get(self.at) == Some(&byte) {
            self.at += 1;
            Ok(())
        } else {
            self.refuse(&format!("`{}`", char::from(byte)))
        }
    }

    fn space(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn refuse<T>(&self, expected: &str) -> Result<T> {
        Err(format!("not JSON at byte {}: expected {expected}", self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn reads_what_cargo_writes() {
        let text =
            r#"{"reason":"compiler-artifact","filenames":["a\"b","c\u0041"],"n":-1.5e3,"executable":null,"o":{}}"#;
        let json = Json::parse(text).unwrap();
        assert_eq!(json.get("reason").and_then(Json::text), Some("compiler-artifact"));
        assert_eq!(
            json.get("filenames"),
            Some(&Json::List(vec![Json::Text("a\"b".to_owned()), Json::Text("cA".to_owned())]))
        );
        assert_eq!(json.get("n"), Some(&Json::Word("-1.5e3".to_owned())));
        assert_eq!(json.get("executable").and_then(Json::text), None);
        assert_eq!(json.keys().count(), 5);
    }

    #[test]
    fn refuses_what_is_cut_short() {
        for text in ["", "{", "[1,", "\"a", "{\"a\"}", "1 2", "\"\\"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
    }
}
