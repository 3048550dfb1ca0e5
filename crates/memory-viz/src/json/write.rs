//! The writer of JSON texts: without spaces, one line.

use std::io::{self, Write};

use crate::model::{FrameId, StackId, TextId};
use crate::schema::{Key, Sink};

/// Writes a JSON text to anything that takes bytes.
pub(crate) struct JsonWriter<W> {
    out: W,
    /// For each open list or dictionary whether it has an item.
    open: Vec<bool>,
    /// Number of lists and dictionaries written for unknown keys.
    nodes: u64,
}

/// Limit of the lists and dictionaries written for unknown keys.
const NODES_MAX: u64 = 50_000_000;

impl<W: Write> JsonWriter<W> {
    /// Begins a text.
    pub(crate) fn new(out: W) -> Self {
        Self { out, open: Vec::new(), nodes: 0 }
    }

    /// Ends the text.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n")?;
        Ok(self.out)
    }

    fn comma(&mut self) -> io::Result<()> {
        let is_first = self.open.last_mut().is_none_or(|has_item| !std::mem::replace(has_item, true));
        if is_first { Ok(()) } else { self.out.write_all(b",") }
    }
}

/// A text in quotes. What would end a script in a page is escaped too.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '<' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)))
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

impl<W: Write> Sink for JsonWriter<W> {
    fn begin_dict(&mut self) -> io::Result<()> {
        self.open.push(false);
        self.out.write_all(b"{")
    }

    fn key(&mut self, key: Key) -> io::Result<()> {
        self.named(key.name())
    }

    fn named(&mut self, key: &str) -> io::Result<()> {
        self.comma()?;
        write!(self.out, "{}:", quote(key))
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.open.pop();
        self.out.write_all(b"}")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.open.push(false);
        self.out.write_all(b"[")
    }

    fn item(&mut self) -> io::Result<()> {
        self.comma()
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.open.pop();
        self.out.write_all(b"]")
    }

    fn none(&mut self) -> io::Result<()> {
        self.out.write_all(b"null")
    }

    fn truth(&mut self, value: bool) -> io::Result<()> {
        write!(self.out, "{value}")
    }

    fn signed(&mut self, value: i64) -> io::Result<()> {
        write!(self.out, "{value}")
    }

    fn unsigned(&mut self, value: u64) -> io::Result<()> {
        write!(self.out, "{value}")
    }

    /// JSON has no infinities and no NaN: they become nothing. A whole value keeps its point.
    fn float(&mut self, value: f64) -> io::Result<()> {
        if value.is_finite() { write!(self.out, "{value:?}") } else { self.none() }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(quote(text).as_bytes())
    }

    fn name(&mut self, _id: TextId, text: &str) -> io::Result<()> {
        self.text(text)
    }

    fn word(&mut self, word: &'static str) -> io::Result<()> {
        self.text(word)
    }

    fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        write!(self.out, "[{first},{second}]")
    }

    fn recall_frame(&mut self, _id: FrameId) -> io::Result<bool> {
        Ok(false)
    }

    fn begin_frame(&mut self, _id: FrameId) -> io::Result<()> {
        self.begin_dict()
    }

    fn recall_stack(&mut self, _id: StackId) -> io::Result<bool> {
        Ok(false)
    }

    fn begin_stack(&mut self, _id: StackId) -> io::Result<()> {
        self.begin_list()
    }

    /// Writes a number as a string, since JSON keys are strings.
    fn number_key(&mut self, key: i64) -> io::Result<()> {
        self.named(&key.to_string())
    }

    /// Writes bytes as a string, since JSON has no bytes; invalid UTF-8 is replaced.
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.text(&String::from_utf8_lossy(bytes))
    }

    /// Writes a tuple as a list, since JSON has no tuples.
    fn begin_tuple(&mut self) -> io::Result<()> {
        self.begin_list()
    }

    fn end_tuple(&mut self) -> io::Result<()> {
        self.end_list()
    }

    /// Returns `false`: JSON has no references, so a shared list is written each time it occurs. Fails beyond
    /// `NODES_MAX` lists, since nested shared lists can multiply exponentially.
    fn recall_node(&mut self, _node: usize) -> io::Result<bool> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(io::Error::other(format!("more than {NODES_MAX} lists of unknown keys: write a pickle")));
        }
        Ok(false)
    }

    fn keep_node(&mut self, _node: usize) -> io::Result<()> {
        Ok(())
    }
}
