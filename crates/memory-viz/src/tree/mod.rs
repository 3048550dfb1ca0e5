//! What a file says, before anybody asks whether it is a snapshot: values, with lists and dictionaries by number.
//!
//! Values are small and are copied; a list that is recalled ten times is ten numbers. A container may hold itself, so
//! whoever walks a tree bounds the depth. Invariant: every number of a container and every range of text in a value
//! lies within the tree.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::limits::Limits;

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
    Bytes,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Node(u32);

/// All values of a file.
#[derive(Debug)]
pub(crate) struct Tree<'file> {
    text: Cow<'file, [u8]>,
    /// The items of lists and tuples; of dictionaries each key followed by its value.
    nodes: Vec<Vec<Value>>,
    /// What the file is as a whole.
    pub(crate) root: Value,
    values: u64,
    values_max: u64,
}

impl<'file> Tree<'file> {
    /// A tree without values over a text; ranges are offsets in it.
    pub(crate) fn new(text: Cow<'file, [u8]>, limits: &Limits) -> Self {
        Self { text, nodes: Vec::new(), root: Value::None, values: 0, values_max: limits.values_max }
    }

    /// Counts a value.
    pub(crate) fn count(&mut self) -> Result<()> {
        self.values += 1;
        if self.values <= self.values_max {
            return Ok(());
        }
        Err(Error::Limit { what: "values", limit: self.values_max, field: "values_max" })
    }

    /// A new container with these items.
    pub(crate) fn node(&mut self, items: Vec<Value>) -> Result<Node> {
        let number = u32::try_from(self.nodes.len()).map_err(|_| Error::Limit {
            what: "containers",
            limit: u64::from(u32::MAX),
            field: "values_max",
        })?;
        self.nodes.push(items);
        Ok(Node(number))
    }

    /// The items of a container.
    pub(crate) fn items(&self, node: Node) -> &[Value] {
        self.nodes.get(node.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The items of a container, to add to.
    pub(crate) fn items_mut(&mut self, node: Node) -> Option<&mut Vec<Value>> {
        self.nodes.get_mut(node.0 as usize)
    }

    /// Puts texts behind the file; their ranges go on where the file ends.
    pub(crate) fn extend_text(&mut self, more: &[u8]) {
        self.text.to_mut().extend_from_slice(more);
    }

    /// The bytes of a text.
    pub(crate) fn bytes(&self, range: Range) -> &[u8] {
        let start = range.start as usize;
        self.text.get(start..start + range.length as usize).unwrap_or_default()
    }

    /// A text; bytes that are no UTF-8, as Python writes for file names, are replaced.
    pub(crate) fn text(&self, range: Range) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(range))
    }
}

impl Value {
    /// What kind of value it is, for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Int(number) if number < 0 => "a negative number",
            Self::Int(_) | Self::Large(_) => "a whole number",
            Self::Float(_) => "a fraction",
            Self::Text(_) => "a text",
            Self::Bytes => "bytes",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dictionary",
        }
    }
}
