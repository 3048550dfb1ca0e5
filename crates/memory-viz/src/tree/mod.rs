//! Parsed values of a file, before they are interpreted as a snapshot. Lists and dictionaries are referenced by index.
//!
//! A value takes eight bytes; a list that is referenced ten times is ten indices. A container may contain itself, so a
//! traversal of a tree bounds its depth.
//!
//! Invariants: every container index and every text range of a value is within the tree; all memory of a tree is
//! charged to its budget before it is allocated.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::limits::{Budget, Limits};

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A whole number above the largest of [`Value::Int`].
    Large(u64),
    Float(f64),
    Text(Range),
    /// A byte string, which no snapshot needs.
    Bytes(Range),
    List(Node),
    Tuple(Node),
    Dict(Node),
}

/// A range of the tree's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

/// The number of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node(u32);

impl Node {
    /// Returns the index of the container.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value packed into eight bytes: a four-bit tag, and the value or its index among the wide values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed(u64);

/// Tags of packed values.
mod kind {
    pub(super) const NONE: u64 = 0;
    pub(super) const FALSE: u64 = 1;
    pub(super) const TRUE: u64 = 2;
    pub(super) const INT: u64 = 3;
    pub(super) const WIDE_INT: u64 = 4;
    pub(super) const LARGE: u64 = 5;
    pub(super) const FLOAT: u64 = 6;
    pub(super) const TEXT: u64 = 7;
    pub(super) const LONG_TEXT: u64 = 8;
    pub(super) const BYTES: u64 = 9;
    pub(super) const LIST: u64 = 10;
    pub(super) const TUPLE: u64 = 11;
    pub(super) const DICT: u64 = 12;
}

/// Number of tag bits of a packed value.
const KIND_BITS: u32 = 4;

/// Longest text whose length is packed together with its offset.
const SHORT_TEXT: u32 = (1 << 28) - 1;

/// All values of a file.
#[derive(Debug, Clone)]
pub(crate) struct Tree<'file> {
    text: Cow<'file, [u8]>,
    /// Texts that are not in the file verbatim. Their ranges begin after the file's bytes.
    more_text: Vec<u8>,
    /// The items of lists and tuples; of dictionaries each key followed by its value.
    nodes: Vec<Vec<Packed>>,
    /// Numbers and ranges that do not fit into a packed value.
    wide: Vec<u64>,
    /// Root value of the file.
    pub(crate) root: Value,
    /// Memory budget of this tree and of its reader.
    pub(crate) budget: Budget,
}

impl PartialEq for Tree<'_> {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.more_text, &self.nodes, &self.wide)
            == (&other.text, &other.more_text, &other.nodes, &other.wide)
    }
}

impl Tree<'static> {
    /// Makes an empty tree that outlives the file and shares no text with it.
    pub(crate) fn owned(budget: Budget) -> Self {
        let text = Cow::Borrowed(&[][..]);
        Self { text, more_text: Vec::new(), nodes: Vec::new(), wide: Vec::new(), root: Value::None, budget }
    }
}

impl<'file> Tree<'file> {
    /// A tree without values over a text; ranges are offsets in it.
    pub(crate) fn new(text: &'file [u8], limits: &Limits) -> Self {
        Self { text: Cow::Borrowed(text), ..Tree::owned(limits.budget(text.len())) }
    }

    /// Packs a value of this tree.
    pub(crate) fn pack(&mut self, value: Value) -> Result<Packed> {
        let packed = |kind: u64, bits: u64| Packed(bits << KIND_BITS | kind);
        Ok(match value {
            Value::None => packed(kind::NONE, 0),
            Value::Bool(false) => packed(kind::FALSE, 0),
            Value::Bool(true) => packed(kind::TRUE, 0),
            Value::Int(number) if number << KIND_BITS >> KIND_BITS == number => {
                packed(kind::INT, number.cast_unsigned())
            }
            Value::Int(number) => packed(kind::WIDE_INT, self.widen(number.cast_unsigned())?),
            Value::Large(number) => packed(kind::LARGE, self.widen(number)?),
            Value::Float(number) => packed(kind::FLOAT, self.widen(number.to_bits())?),
            Value::Text(Range { start, length }) if length <= SHORT_TEXT => {
                packed(kind::TEXT, u64::from(start) << 28 | u64::from(length))
            }
            Value::Text(range) => packed(kind::LONG_TEXT, self.widen_range(range)?),
            Value::Bytes(range) => packed(kind::BYTES, self.widen_range(range)?),
            Value::List(node) => packed(kind::LIST, u64::from(node.0)),
            Value::Tuple(node) => packed(kind::TUPLE, u64::from(node.0)),
            Value::Dict(node) => packed(kind::DICT, u64::from(node.0)),
        })
    }

    /// Unpacks a value.
    pub(crate) fn value(&self, Packed(all): Packed) -> Value {
        let bits = all >> KIND_BITS;
        let wide = || usize::try_from(bits).ok().and_then(|place| self.wide.get(place)).copied().unwrap_or_default();
        let range = |range: u64| Range { start: upper(range), length: lower(range) };
        match all & ((1 << KIND_BITS) - 1) {
            kind::FALSE => Value::Bool(false),
            kind::TRUE => Value::Bool(true),
            kind::INT => Value::Int(all.cast_signed() >> KIND_BITS),
            kind::WIDE_INT => Value::Int(wide().cast_signed()),
            kind::LARGE => Value::Large(wide()),
            kind::FLOAT => Value::Float(f64::from_bits(wide())),
            kind::TEXT => Value::Text(Range { start: lower(bits >> 28), length: lower(bits) & SHORT_TEXT }),
            kind::LONG_TEXT => Value::Text(range(wide())),
            kind::BYTES => Value::Bytes(range(wide())),
            kind::LIST => Value::List(Node(lower(bits))),
            kind::TUPLE => Value::Tuple(Node(lower(bits))),
            kind::DICT => Value::Dict(Node(lower(bits))),
            _ => Value::None,
        }
    }

    fn widen(&mut self, bits: u64) -> Result<u64> {
        self.budget.push(&mut self.wide, bits)?;
        Ok(self.wide.len() as u64 - 1)
    }

    fn widen_range(&mut self, range: Range) -> Result<u64> {
        self.widen(u64::from(range.start) << 32 | u64::from(range.length))
    }

    /// Makes a container of the values from position `first` of a stack on, and removes them from the stack.
    pub(crate) fn node(&mut self, stack: &mut Vec<Packed>, first: usize) -> Result<Node> {
        let number = u32::try_from(self.nodes.len()).map_err(|_| Error::Limit {
            what: "lists and dictionaries",
            limit: u64::from(u32::MAX),
            field: "bytes_max",
        })?;
        let mut items = self.budget.list(stack.len() - first)?;
        items.extend(stack.drain(first..));
        self.budget.push(&mut self.nodes, items)?;
        Ok(Node(number))
    }

    /// Moves the values from position `first` of a stack on to a container.
    pub(crate) fn extend(&mut self, node: Node, stack: &mut Vec<Packed>, first: usize) -> Result<()> {
        let Some(items) = self.nodes.get_mut(node.index()) else { return Ok(()) };
        self.budget.reserve(items, stack.len() - first)?;
        items.extend(stack.drain(first..));
        Ok(())
    }

    /// Returns the number of items of a container.
    pub(crate) fn length(&self, node: Node) -> usize {
        self.nodes.get(node.index()).map_or(0, Vec::len)
    }

    /// The items of a container.
    pub(crate) fn items(&self, node: Node) -> impl ExactSizeIterator<Item = Value> {
        self.nodes.get(node.index()).map_or(&[][..], Vec::as_slice).iter().map(|item| self.value(*item))
    }

    /// Returns the entries of a dictionary.
    pub(crate) fn pairs(&self, node: Node) -> impl Iterator<Item = (Value, Value)> {
        let items = self.nodes.get(node.index()).map_or(&[][..], Vec::as_slice);
        items.as_chunks().0.iter().map(|[key, value]| (self.value(*key), self.value(*value)))
    }

    /// Appends a byte to the texts that are not in the file.
    pub(crate) fn push_text(&mut self, byte: u8) -> Result<()> {
        self.budget.push(&mut self.more_text, byte)
    }

    /// Appends bytes to the texts that are not in the file.
    pub(crate) fn extend_text(&mut self, bytes: &[u8]) -> Result<()> {
        self.budget.reserve(&mut self.more_text, bytes.len())?;
        self.more_text.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the offset of the next text that is added.
    pub(crate) fn text_end(&self) -> usize {
        self.text.len() + self.more_text.len()
    }

    /// The bytes of a text.
    pub(crate) fn bytes(&self, range: Range) -> &[u8] {
        let (start, length) = (range.start as usize, range.length as usize);
        let (text, start) = match start.checked_sub(self.text.len()) {
            Some(behind) => (self.more_text.as_slice(), behind),
            None => (&*self.text, start),
        };
        text.get(start..start + length).unwrap_or_default()
    }

    /// A text; bytes that are no UTF-8, as Python writes for file names, are replaced.
    pub(crate) fn text(&self, range: Range) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(range))
    }
}

/// Returns the lower 32 bits.
fn lower(bits: u64) -> u32 {
    u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default()
}

/// Returns the upper 32 bits.
fn upper(bits: u64) -> u32 {
    lower(bits >> 32)
}

impl Value {
    /// Returns the kind of the value, for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Int(number) if number < 0 => "a negative number",
            Self::Int(_) | Self::Large(_) => "a whole number",
            Self::Float(_) => "a fraction",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dictionary",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Node, Range, Tree, Value};
    use crate::limits::Limits;

    proptest! {
        #[test]
        fn values_are_unpacked_as_they_were_packed(
            number in any::<i64>(), shift in 0..64_u32, float in any::<f64>(), start in any::<u32>(), length in any::<u32>(),
        ) {
            let mut tree = Tree::new(b"", &Limits::default());
            let (range, node) = (Range { start, length: length >> (shift / 2) }, Node(start));
            let values = [
                Value::None, Value::Bool(true), Value::Bool(false), Value::Int(number >> shift), Value::Float(float),
                Value::Large(number.cast_unsigned() >> shift), Value::Text(range), Value::Bytes(range),
                Value::List(node), Value::Tuple(node), Value::Dict(node),
            ];
            for value in values {
                let packed = tree.pack(value)?;
                match (tree.value(packed), value) {
                    (Value::Float(one), Value::Float(other)) => prop_assert_eq!(one.to_bits(), other.to_bits()),
                    (one, other) => prop_assert_eq!(one, other),
                }
            }
        }
    }
}
