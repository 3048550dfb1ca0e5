//! The writer of pickles: protocol 4, of instructions that the reader in PyTorch's page knows.
//!
//! Texts, frames and stacks that come again are recalled by number. Lists are filled at most 1,000 items at a time,
//! since that page hands them over as the arguments of a call.

use std::collections::HashMap;
use std::io::{self, Write};

use super::opcode as op;
use crate::model::{FrameId, StackId, TextId};
use crate::schema::{Key, Sink};

/// How many items or entries are added at once.
const BATCH: usize = 1000;

/// Writes a pickle to anything that takes bytes.
pub(crate) struct Pickler<W> {
    out: W,
    /// For each open list or dictionary how many items it was given since the last were added to it.
    open: Vec<usize>,
    /// The next number of a value that is kept.
    next: u32,
    keys: [Option<u32>; Key::COUNT],
    words: HashMap<&'static str, u32>,
    texts: Vec<Option<u32>>,
    frames: Vec<Option<u32>>,
    stacks: Vec<Option<u32>>,
    /// Memo indices of the lists and dictionaries of unknown keys.
    nodes: Vec<Option<u32>>,
}

impl<W: Write> Pickler<W> {
    /// Begins a pickle.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[op::PROTO, 4])?;
        Ok(Self {
            out,
            open: Vec::new(),
            next: 0,
            keys: [None; Key::COUNT],
            words: HashMap::new(),
            texts: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            nodes: Vec::new(),
        })
    }

    /// Ends the pickle.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.code(op::STOP)?;
        Ok(self.out)
    }

    fn code(&mut self, code: u8) -> io::Result<()> {
        self.out.write_all(&[code])
    }

    fn recall(&mut self, number: u32) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(small) => self.out.write_all(&[op::BINGET, small]),
            Err(_) => {
                self.code(op::LONG_BINGET)?;
                self.out.write_all(&number.to_le_bytes())
            }
        }
    }

    /// Keeps the value that was written last.
    fn keep(&mut self) -> io::Result<u32> {
        self.code(op::MEMOIZE)?;
        let number = self.next;
        self.next = self.next.checked_add(1).ok_or_else(|| io::Error::other("more than 4 billion texts and stacks"))?;
        Ok(number)
    }

    /// Before another item or entry: adds what has gathered, and begins to gather.
    fn another(&mut self, add: u8) -> io::Result<()> {
        let gathered = self.open.last().copied().unwrap_or(0);
        if gathered == usize::MAX {
            return Ok(());
        }
        if gathered == BATCH {
            self.code(add)?;
        }
        if gathered.is_multiple_of(BATCH) {
            self.code(op::MARK)?;
        }
        if let Some(count) = self.open.last_mut() {
            *count = gathered % BATCH + 1;
        }
        Ok(())
    }

    fn end(&mut self, add: u8) -> io::Result<()> {
        if self.open.pop().is_some_and(|gathered| gathered > 0) { self.code(add) } else { Ok(()) }
    }
}

/// The slot of a number, made if it is not there.
fn slot(slots: &mut Vec<Option<u32>>, index: usize) -> &mut Option<u32> {
    if slots.len() <= index {
        slots.resize(index + 1, None);
    }
    &mut slots[index]
}

impl<W: Write> Sink for Pickler<W> {
    fn begin_dict(&mut self) -> io::Result<()> {
        self.open.push(0);
        self.code(op::EMPTY_DICT)
    }

    fn key(&mut self, key: Key) -> io::Result<()> {
        self.another(op::SETITEMS)?;
        if let Some(number) = self.keys[key.index()] {
            return self.recall(number);
        }
        self.text(key.name())?;
        self.keys[key.index()] = Some(self.keep()?);
        Ok(())
    }

    fn named(&mut self, key: &str) -> io::Result<()> {
        self.another(op::SETITEMS)?;
        self.text(key)
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.end(op::SETITEMS)
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.open.push(0);
        self.code(op::EMPTY_LIST)
    }

    fn item(&mut self) -> io::Result<()> {
        self.another(op::APPENDS)
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end(op::APPENDS)
    }

    fn none(&mut self) -> io::Result<()> {
        self.code(op::NONE)
    }

    fn truth(&mut self, value: bool) -> io::Result<()> {
        self.code(if value { op::NEWTRUE } else { op::NEWFALSE })
    }

    fn signed(&mut self, value: i64) -> io::Result<()> {
        if let Ok(value) = u64::try_from(value) {
            return self.unsigned(value);
        }
        if let Ok(value) = i32::try_from(value) {
            self.code(op::BININT)?;
            return self.out.write_all(&value.to_le_bytes());
        }
        self.out.write_all(&[op::LONG1, 8])?;
        self.out.write_all(&value.to_le_bytes())
    }

    fn unsigned(&mut self, value: u64) -> io::Result<()> {
        if let Ok(value) = u8::try_from(value) {
            return self.out.write_all(&[op::BININT1, value]);
        }
        if let Ok(value) = u16::try_from(value) {
            self.code(op::BININT2)?;
            return self.out.write_all(&value.to_le_bytes());
        }
        if let Ok(value) = i32::try_from(value) {
            self.code(op::BININT)?;
            return self.out.write_all(&value.to_le_bytes());
        }
        // A ninth byte keeps a number positive whose highest bit is set.
        let is_high = i64::try_from(value).is_err();
        self.out.write_all(&[op::LONG1, if is_high { 9 } else { 8 }])?;
        self.out.write_all(&value.to_le_bytes())?;
        if is_high { self.out.write_all(&[0]) } else { Ok(()) }
    }

    fn float(&mut self, value: f64) -> io::Result<()> {
        self.code(op::BINFLOAT)?;
        self.out.write_all(&value.to_be_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        let length = u32::try_from(text.len()).map_err(|_| io::Error::other("a text of 4 GiB or more"))?;
        match u8::try_from(length) {
            Ok(short) => self.out.write_all(&[op::SHORT_BINUNICODE, short])?,
            Err(_) => {
                self.code(op::BINUNICODE)?;
                self.out.write_all(&length.to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())
    }

    fn name(&mut self, id: TextId, text: &str) -> io::Result<()> {
        if let Some(number) = *slot(&mut self.texts, id.index()) {
            return self.recall(number);
        }
        self.text(text)?;
        *slot(&mut self.texts, id.index()) = Some(self.keep()?);
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(number) = self.words.get(word) {
            return self.recall(*number);
        }
        self.text(word)?;
        let number = self.keep()?;
        self.words.insert(word, number);
        Ok(())
    }

    fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.unsigned(first)?;
        self.unsigned(second)?;
        self.code(op::TUPLE2)
    }

    fn recall_frame(&mut self, id: FrameId) -> io::Result<bool> {
        match *slot(&mut self.frames, id.index()) {
            Some(number) => self.recall(number).map(|()| true),
            None => Ok(false),
        }
    }

    fn begin_frame(&mut self, id: FrameId) -> io::Result<()> {
        self.begin_dict()?;
        *slot(&mut self.frames, id.index()) = Some(self.keep()?);
        Ok(())
    }

    fn recall_stack(&mut self, id: StackId) -> io::Result<bool> {
        match *slot(&mut self.stacks, id.index()) {
            Some(number) => self.recall(number).map(|()| true),
            None => Ok(false),
        }
    }

    fn begin_stack(&mut self, id: StackId) -> io::Result<()> {
        self.begin_list()?;
        *slot(&mut self.stacks, id.index()) = Some(self.keep()?);
        Ok(())
    }

    fn number_key(&mut self, key: i64) -> io::Result<()> {
        self.another(op::SETITEMS)?;
        self.signed(key)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| io::Error::other("bytes of 4 GiB or more"))?;
        self.code(op::BINBYTES)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(bytes)
    }

    fn begin_tuple(&mut self) -> io::Result<()> {
        // A tuple is made of all values after a mark; its items are not appended in batches.
        self.open.push(usize::MAX);
        self.code(op::MARK)
    }

    fn end_tuple(&mut self) -> io::Result<()> {
        self.open.pop();
        self.code(op::TUPLE)
    }

    fn recall_node(&mut self, node: usize) -> io::Result<bool> {
        match *slot(&mut self.nodes, node) {
            Some(number) => self.recall(number).map(|()| true),
            None => Ok(false),
        }
    }

    fn keep_node(&mut self, node: usize) -> io::Result<()> {
        *slot(&mut self.nodes, node) = Some(self.keep()?);
        Ok(())
    }
}
