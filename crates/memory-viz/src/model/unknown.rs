//! Unknown parts of a file, kept so that writing the snapshot back loses nothing.
//!
//! Invariant: values are kept as in the file; a list that the file references ten times is stored once.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::Limits;
use crate::tree::{Packed, Tree, Value};

/// Dictionary of a snapshot that has unknown keys, addressed by positions in the snapshot's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Snapshot,
    Settings,
    Segment(usize),
    Block(usize, usize),
    Entry(usize, usize),
    Annotation(usize),
    Frame(usize),
}

impl Place {
    /// Returns the dictionary's name for messages.
    fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Settings => "allocator settings",
            Self::Segment(_) => "segments",
            Self::Block(..) => "blocks",
            Self::Entry(..) => "history",
            Self::Annotation(_) => "annotations",
            Self::Frame(_) => "frames",
        }
    }
}

/// Unknown keys of a file, with their values. They are attached to entries of the snapshot by position: a program that
/// changes the lists of a snapshot must [clear](Self::clear) them.
#[derive(Debug, Clone, PartialEq)]
pub struct Unknown {
    pub(crate) tree: Tree<'static>,
    pub(crate) places: BTreeMap<Place, Vec<(Packed, Packed)>>,
}

impl Default for Unknown {
    fn default() -> Self {
        Self { tree: Tree::owned(Limits::default().budget(0)), places: BTreeMap::new() }
    }
}

impl Unknown {
    /// Whether there are no unknown keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Removes all unknown keys.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns a line for each key: its dictionary, its name, and its length or number of occurrences.
    ///
    /// ```
    /// let text = br#"{"segments": [], "host_segments": [{}, {}], "host_traces": []}"#;
    /// let snapshot = memory_viz::file::parse(text)?;
    /// let lines = ["`host_segments` of the snapshot: 2 items", "`host_traces` of the snapshot: 0 items"];
    /// assert_eq!(snapshot.unknown.lines(), lines);
    /// # Ok::<(), memory_viz::Error>(())
    /// ```
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut counts: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
        let mut lines = BTreeSet::new();
        for (place, pairs) in &self.places {
            for (key, value) in pairs {
                let name = self.name(*key);
                match self.tree.value(*value) {
                    Value::List(node) | Value::Tuple(node) if *place == Place::Snapshot => {
                        lines.insert(format!("`{name}` of the snapshot: {} items", self.tree.length(node)));
                    }
                    _ => *counts.entry((place.name(), name)).or_default() += 1,
                }
            }
        }
        let counted = counts.into_iter().map(|((place, name), count)| match count {
            1 => format!("`{name}` of the {place}"),
            count => format!("`{name}` of the {place}: {count} times"),
        });
        lines.into_iter().chain(counted).collect()
    }

    /// Returns a key as text.
    pub(crate) fn name(&self, key: Packed) -> String {
        match self.tree.value(key) {
            Value::Text(range) => self.tree.text(range).into_owned(),
            Value::Int(number) => number.to_string(),
            Value::Large(number) => number.to_string(),
            other => other.kind().to_owned(),
        }
    }
}
